"""Steps that all ranks take together, and that must fail on all of them when they fail on one."""

from collections.abc import Callable
from typing import TypeVar

from mpies.comm.communicator import Communicator
from mpies.errors import USER_ERRORS, explain_os_error

T = TypeVar("T")


class CollectiveError(Exception):
    """A user's mistake that some rank met; every rank raises it with the same message."""


def do_together(comm: Communicator, step: Callable[[], T]) -> T:
    """The result of `step` on this rank.  Raises CollectiveError on all ranks when a user's mistake ends it on any."""
    message, result = "", None
    try:
        result = step()
    except USER_ERRORS as error:
        message = str(error)
    except OSError as error:
        if error.filename is None:
            raise
        message = explain_os_error(error)
    message = comm.first_error(message)
    if message:
        raise CollectiveError(message)
    return result  # type: ignore[return-value]  # a step that failed has raised
