"""Tell a person's Ctrl-C from a KeyboardInterrupt that a user's environment or function raises."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import NoReturn


class Interrupted(KeyboardInterrupt):
    """A person pressed Ctrl-C."""


def is_interrupt(error: BaseException) -> bool:
    """Whether an exception is a person's Ctrl-C; whatever else a user's code raises is its own.

    Under Python's own handler of SIGINT the two cannot be told apart, and a KeyboardInterrupt counts as Ctrl-C.
    """
    if isinstance(error, Interrupted):
        return True
    return isinstance(error, KeyboardInterrupt) and signal.getsignal(signal.SIGINT) is signal.default_int_handler


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """In the `with` block Ctrl-C raises Interrupted; a second one ends the process at once.

    It changes nothing where another handler than Python's own is in place, or outside the main thread.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _raise_interrupted)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is _raise_interrupted:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _raise_interrupted(_number: int, _frame: object) -> NoReturn:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    raise Interrupted


def reset_after_first(number: int) -> None:
    """Have the second signal of this number end the process at once, also where compiled code keeps Python waiting."""
    import ctypes  # here, since every process imports this module

    class SignalAction(ctypes.Structure):
        """`struct sigaction` of Linux's C libraries."""

        _fields_ = (
            ("handler", ctypes.c_void_p),
            ("mask", ctypes.c_ulong * (1024 // (8 * ctypes.sizeof(ctypes.c_ulong)))),
            ("flags", ctypes.c_int),
            ("restorer", ctypes.c_void_p),
        )

    libc, action = ctypes.CDLL(None), SignalAction()
    if not libc.sigaction(number, None, ctypes.byref(action)):
        action.flags |= -0x80000000  # SA_RESETHAND
        libc.sigaction(number, ctypes.byref(action), None)
