"""Start ranks with mpirun, and end them the way a user expects.

mpirun kills its ranks half a second after Ctrl-C or SIGTERM, in the middle of a generation.  The supervisor is one
process that is no rank.  It keeps mpirun in a process group of its own, where a terminal's Ctrl-C does not reach it,
and hands signals on as SIGUSR1, which mpirun forwards to every rank: they finish the generation and write a checkpoint.
"""

import contextlib
import ctypes
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import FrameType
from typing import IO

from mpies.comm import LAUNCHED, mpiexec
from mpies.errors import FAILED, REQUEUE, ConfigError
from mpies.runs.files import default_out
from mpies.runs.lock import LOCK_FILE

PATIENCE = 5.0  # seconds that mpirun has to end after SIGTERM
POLL = 0.1  # seconds between two looks whether a signal has arrived
_DASHES = re.compile(r"-{60,}\s*")
# How mpirun reports an exit code that is not 0, and a rank that ended the job; the ranks have printed why they end.
_NOISE = ("processes exited with non-zero status", "MPI_ABORT was invoked", '"abort". This may have caused')


class Supervisor:
    """Runs `mpies ARGUMENTS` on `ranks` ranks.  Raises ConfigError where there is no mpirun.

    runs: tells the run directories that the ranks may write.
    """

    def __init__(self, arguments: Sequence[str], ranks: int, runs: Callable[[], Iterable[Path]]) -> None:
        if any(name in os.environ for name in LAUNCHED):
            raise ConfigError("--ranks starts ranks of its own, but this process is a rank already; leave one out")
        program = mpiexec.find()
        if program is None:
            raise ConfigError('--ranks needs mpirun: pip install "mpies[mpi]", or load an MPI')
        self._command = mpiexec.command(program, ranks, arguments)
        self._runs = runs
        self._process: subprocess.Popen[str] | None = None
        self._signals = 0  # that have arrived

    def run(self) -> int:
        """Start the ranks and wait for their end.  Returns the exit code."""
        handled = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
        before = {number: signal.signal(number, self._on_signal) for number in handled}
        try:
            for _ in range(mpiexec.ATTEMPTS):
                code, has_started = self._run_once()
                if has_started or self._signals:
                    break
            return code
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _run_once(self) -> tuple[int, bool]:
        """The exit code, and whether mpirun started ranks at all."""
        self._began = time.time()
        self._process = process = subprocess.Popen(
            self._command,
            env=mpiexec.environment(),
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            process_group=0,
            preexec_fn=_die_with_parent,  # safe: no other thread runs yet
        )
        assert process.stderr
        errors = _Forwarder(process.stderr)
        errors.start()
        code = self._wait(process)
        errors.join()
        return (code if code >= 0 else FAILED), not errors.never_began

    def _wait(self, process: subprocess.Popen[str]) -> int:
        """Wait for mpirun's end, and ask the ranks to stop when a signal has arrived.  Returns the exit code."""
        while not self._signals:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(POLL)
        if not self._is_training():  # nothing is being played, so nothing is lost
            process.terminate()
            process.wait()
            return REQUEUE
        process.send_signal(signal.SIGUSR1)
        return process.wait()

    def _is_training(self) -> bool:
        """Whether rank 0 has taken the lock of a run; by then every rank handles SIGUSR1, which would end it before."""
        for run in self._runs():
            with contextlib.suppress(OSError):
                if (run / LOCK_FILE).stat().st_mtime >= self._began:
                    return True
        return False

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        """The first signal asks the ranks to stop after this generation, the second ends them."""
        self._signals += 1
        process = self._process
        if self._signals == 2 and process and process.poll() is None:
            process.terminate()
            threading.Timer(PATIENCE, process.kill).start()


class _Forwarder(threading.Thread):
    """Copies mpirun's standard error to ours, but for mpirun's own report of exit codes.

    never_began: whether mpirun reported that it could not start.
    """

    def __init__(self, stream: IO[str]) -> None:
        super().__init__(daemon=True)
        self._stream, self.never_began = stream, False

    def run(self) -> None:
        block: list[str] = []  # lines of a report that is not complete yet
        for line in self._stream:
            line = line.replace("\0", "")  # mpirun ends its report of an abort with one
            self.never_began |= mpiexec.never_began(line)
            if _DASHES.fullmatch(line) or block:
                block.append(line)
                if len(block) > 1 and _DASHES.fullmatch(line):
                    self._write([] if any(noise in part for noise in _NOISE for part in block) else block)
                    block = []
            else:
                self._write([line])
        self._write(block)

    @staticmethod
    def _write(lines: Iterable[str]) -> None:
        sys.stderr.writelines(lines)
        sys.stderr.flush()


def _die_with_parent() -> None:
    """In the child: have the kernel send SIGTERM when the supervisor dies, even by SIGKILL."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def supervise_training(
    config: str,
    out: str | None,
    resume: str,
    overrides: Sequence[str],
    seeds: str | None,
    ranks: int,
    log_format: str = "text",
) -> int:
    """`mpies train` with these arguments on `ranks` ranks.  Returns the exit code."""
    given = {"--out": out, "--resume": resume, "--log-format": log_format, "--seeds": seeds}
    flags = [word for flag, value in given.items() if value is not None for word in (flag, value)]
    run = Path(out) if out else default_out(config, overrides)

    def runs() -> Iterable[Path]:
        return run.parent.glob(f"{run.name}-seed-*") if seeds else [run]

    return Supervisor(["train", *flags, "--", config, *overrides], ranks, runs).run()
