"""The processes of one start: mpirun or srun with its ranks, and what they print."""

import contextlib
import ctypes
import itertools
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO

from mpies.comm import mpiexec
from mpies.comm.mpiexec import JOB
from mpies.comm.processes import kill_with_variable
from mpies.core.text import is_terminal

PATIENCE = 5.0  # seconds that mpirun has to end after SIGTERM
DRAIN = 0.5  # seconds that its last lines have to come through the pipe

Write = Callable[[Iterable[str]], object]  # takes lines of standard error

_DASHES = re.compile(r"-{74}\s*")  # how Open MPI begins and ends its reports; a user's line is mostly of other length
_LONGEST = 100  # lines of such a report; longer ones begin with a user's line of dashes, and are not held back
# How mpirun reports an exit code that is not 0, a rank that ended the job, and a lost host, which is reported better
# here; what it warns of where ranks may be lost; and a barrier that some are in while one is lost, which we report.
_NOISE = (
    *("processes exited with non-zero status", "MPI_ABORT was invoked", '"abort". This may have caused'),
    *("lost communication with a remote daemon", "is not tested for post-failure", "help-mpi-ft.txt"),
    *("plm:ssh: Warning: setpgid", "NBC_Progress: an error"),
)


def write_lines(lines: Iterable[str]) -> None:
    """Write lines on this process's standard error; on a terminal above the live bar, which the ranks draw again."""
    clear = "\r\x1b[2K" if is_terminal(sys.stderr) and is_terminal(sys.stdout) else ""
    with contextlib.suppress(OSError):  # nobody may read it any more
        sys.stderr.writelines(clear + line for line in lines)
        sys.stderr.flush()


class RankProcesses:
    """mpirun or srun with its ranks, in a process group of its own, where a terminal's Ctrl-C does not reach it.

    variables: its environment.  output: where the ranks' standard output goes, as for subprocess.Popen; None for that
    of this process.  write: called with the lines that they print on standard error.
    errors: hands these on, and tells whether mpirun has reported that it could not start.
    """

    def __init__(
        self,
        command: Sequence[str],
        variables: Mapping[str, str],
        output: int | None = None,
        write: Write = write_lines,
    ) -> None:
        libc = ctypes.CDLL(None)  # loaded before the child is forked

        def prepare_child() -> None:
            """Have the kernel send SIGTERM when the supervisor dies, even by SIGKILL.

            The ranks may also print on the terminal whose foreground is the supervisor's: `stty tostop` would stop
            them.
            """
            libc.prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
            signal.signal(signal.SIGTTOU, signal.SIG_IGN)

        if output is None and is_pipe(1):  # whose reader may leave, which would end mpirun at the first line of a rank
            output = subprocess.PIPE
        self._process = subprocess.Popen(
            command,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            process_group=0,
            preexec_fn=prepare_child,
        )
        assert self._process.stderr
        self.pid, self.send_signal = self._process.pid, self._process.send_signal
        self.errors = Forwarder(self._process.stderr, write)
        self.errors.start()
        self._copier = threading.Thread(target=_copy, args=(self._process.stdout,), daemon=True)
        self._copier.start()

    def wait(self, seconds: float) -> int | None:
        """The exit code, -N where signal N has ended mpirun; None where it has not ended after so many seconds."""
        self.errors.join(seconds)  # its pipe closes when all have ended, and tells so at once
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(0 if self.errors.is_alive() else seconds)
        return None

    def terminate(self) -> None:
        """Have mpirun end its ranks at once, and kill it where it does not end; does not wait for it."""
        if self._process.poll() is None:
            self._process.terminate()
            timer = threading.Timer(PATIENCE, self._process.kill)
            timer.daemon = True  # nobody waits for it when mpirun has ended before
            timer.start()

    def end(self, code: int) -> int:
        """End mpirun, which may wait for ssh to a host that is lost.  Returns `code`."""
        self._process.terminate()
        self.wait(PATIENCE)
        self._process.kill()
        self._process.wait()
        return code

    def remove_folder(self) -> None:
        """Remove what a killed mpirun of Open MPI has left: one with the same process number would be refused."""
        with contextlib.suppress(OSError):  # there may be no folder for temporary files that can be written
            shutil.rmtree(Path(tempfile.gettempdir(), f"ompi.{self.pid}"), ignore_errors=True)

    def drain(self, job: str, has_hosts: bool, has_ended_well: bool) -> None:
        """Wait until all that was printed is forwarded.  job: of the ranks.  has_hosts: whether they were on several.

        mpirun leaves its ssh to a lost host behind, which holds the pipe open until it notices that itself.
        """
        if has_hosts and (self._process.returncode < 0 or not has_ended_well):  # killed, or a host may be lost
            self.errors.join(DRAIN)
            if self.errors.is_alive():
                kill_with_variable(JOB, job)
        self.errors.join(PATIENCE)
        self._copier.join(PATIENCE)


def _copy(stream: IO[str] | None) -> None:
    """Copy what the ranks write to standard output as it comes; where nobody reads it any more, it is dropped."""
    while stream and (written := os.read(stream.fileno(), 65536)):
        with contextlib.suppress(OSError):
            while written:
                written = written[os.write(1, written) :]


def is_pipe(descriptor: int) -> bool:
    """Whether a descriptor is of a pipe."""
    try:
        return stat.S_ISFIFO(os.fstat(descriptor).st_mode)
    except OSError:
        return False


class Forwarder(threading.Thread):
    """Hands mpirun's standard error on line by line, but for mpirun's own report of exit codes.

    write: takes the lines.  never_began: whether mpirun reported that it could not start.
    """

    def __init__(self, stream: IO[str], write: Write) -> None:
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
