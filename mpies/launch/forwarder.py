"""What mpirun and the ranks print on standard error, without mpirun's own reports of how ranks ended."""

import contextlib
import itertools
import re
import sys
import threading
from collections.abc import Callable, Iterable
from typing import IO

from mpies.comm import mpiexec

_DASHES = re.compile(r"-{74}\s*")  # how Open MPI begins and ends its reports; a user's line is mostly of other length
_LONGEST = 100  # lines of such a report; longer ones begin with a user's line of dashes, and are not held back
# How mpirun reports an exit code that is not 0, a rank that ended the job, and a lost host, which is reported better
# here; what it warns of where ranks may be lost; and a barrier that some are in while one is lost, which we report.
_NOISE = (
    *("processes exited with non-zero status", "MPI_ABORT was invoked", '"abort". This may have caused'),
    *("lost communication with a remote daemon", "is not tested for post-failure", "help-mpi-ft.txt"),
    *("plm:ssh: Warning: setpgid", "NBC_Progress: an error"),
)


class Forwarder(threading.Thread):
    """Hands mpirun's standard error on line by line, but for mpirun's own report of exit codes.

    write: takes the lines.  never_began: whether mpirun reported that it could not start.
    """

    def __init__(self, stream: IO[str], write: Callable[[Iterable[str]], object]) -> None:
        super().__init__(daemon=True)
        self._stream, self._write, self.never_began = stream, write, False

    def run(self) -> None:
        block: list[str] = []  # lines of a report that is not complete yet
        was_noise = False  # whether the line before was left out; an empty line behind it is, too
        for line in itertools.chain.from_iterable(map(_split, self._stream)):
            self.never_began |= mpiexec.never_began(line)
            is_noise = any(noise in line for noise in _NOISE)
            if _DASHES.fullmatch(line) or block:
                block.append(line)
                is_over = len(block) > 1 and _DASHES.fullmatch(line)
                if is_over or len(block) > _LONGEST:
                    is_left_out = is_over and any(noise in part for noise in _NOISE for part in block)
                    self._write([] if is_left_out else block)
                    block = []
            elif not is_noise and (line.strip() or not was_noise):
                self._write([line])
            was_noise = is_noise
        self._write(block)


def _split(line: str) -> list[str]:
    """A line of mpirun's as lines: it may begin a report, with dashes, behind a rank's error that has not ended."""
    line = line.replace("\0", "")  # mpirun ends its report of an abort with one
    found = re.fullmatch(r"(mpies: .*[^-])(-{74}\n)", line)
    return [found[1] + "\n", found[2]] if found else [line]


def write_lines(lines: Iterable[str]) -> None:
    """Write lines on this process's standard error; on a terminal above the live bar, which the ranks draw again."""
    clear = "\r\x1b[2K" if sys.stderr.isatty() and sys.stdout.isatty() else ""
    with contextlib.suppress(OSError):  # nobody may read it any more
        sys.stderr.writelines(clear + line for line in lines)
        sys.stderr.flush()
