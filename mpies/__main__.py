"""The command line, as `mpies` and as `python -m mpies`."""

import contextlib
import os
import signal
import sys
import threading

from mpies.core.errors import REQUEUE

LINGER = 5.0  # seconds that threads and exit handlers of a user's code may go on when the command is over


def main() -> None:
    """Run the command in sys.argv.  Imports take a while, and a signal or Ctrl-C meanwhile is no failure."""
    if sys.argv[1:2] in (["train"], ["sweep"]):
        # Until the ranks have handlers of their own nothing is played, so a stop loses nothing.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, lambda *_: os._exit(REQUEUE))
    try:
        from mpies.cli.main import main as command_line
    except KeyboardInterrupt:
        sys.exit("Aborted!")  # as later
    try:
        command_line()
    except SystemExit as over:
        _end_soon(over.code if isinstance(over.code, int) else int(bool(over.code)))
        raise


def _end_soon(code: int) -> None:
    """End this process with this exit code after LINGER seconds, if it has not ended by itself."""

    def end() -> None:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
        os._exit(code)

    timer = threading.Timer(LINGER, end)
    timer.daemon = True
    timer.start()


if __name__ == "__main__":
    main()
