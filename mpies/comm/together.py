"""Steps that all ranks take together, and that must fail on all of them when they fail on one."""

import sys
import traceback
from collections.abc import Callable
from typing import TypeVar

from mpies.comm.communicator import Communicator
from mpies.core.errors import FAILED, ConfigError, UserError, error_of_kind, explain_os_error
from mpies.core.text import escape

T = TypeVar("T")


class CollectiveError(Exception):
    """A user's mistake that some rank met; every rank raises it with the same message.

    mistake: as an error of the class that it had on that rank.
    """

    def __init__(self, mistake: Exception) -> None:
        super().__init__(str(mistake))
        self.mistake = mistake


def do_together(comm: Communicator, step: Callable[[], T]) -> T:
    """The result of `step` on this rank.  Raises CollectiveError on all ranks when a user's mistake ends it on any."""
    mistake, result = None, None
    try:
        result = step()
    except UserError as error:
        mistake = error
    except OSError as error:
        if error.filename is None:
            raise
        mistake = ConfigError(explain_os_error(error))
    first = comm.first_error(f"{type(mistake).__name__}\n{mistake}" if mistake else "")
    if first:
        kind, _, message = first.partition("\n")
        raise CollectiveError(error_of_kind(kind, message))
    return result  # type: ignore[return-value]  # a step that failed has raised


def abort_with_traceback(comm: Communicator) -> None:
    """End all ranks for an exception of this one alone: the others would wait for ever.  A single rank goes on."""
    if comm.size > 1:
        print(escape(f"mpies: rank {comm.rank} failed:\n{traceback.format_exc()}"), file=sys.stderr, flush=True)
        comm.abort(FAILED)
