"""The command line, as `mpies` and as `python -m mpies`."""

import os
import signal
import sys

from mpies.core.errors import REQUEUE


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
    command_line()


if __name__ == "__main__":
    main()
