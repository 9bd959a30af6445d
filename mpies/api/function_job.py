"""A job of its own that evaluates a function for this process: N ranks, which mpiexec starts.

This process sends the function once, and then members; rank 0 of the job answers with their values.  All goes through a
socket in a folder that only this user can enter.  (mpiexec's own pipes are for text.)

The function travels as cloudpickle has it: one that can be imported by its name, lambdas and functions of a notebook by
their code.  Nothing that mpies reads from a file is ever unpickled, since whoever can write such a file could run code.
Here nobody gains that: the bytes never touch a file, and they go from this process to children that it has started
itself, under the same user, in order to run a function of its choice.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections import deque
from multiprocessing.connection import Connection
from typing import IO

import numpy as np

from mpies.api.arguments import read_whole_number
from mpies.api.function_ranks import Evaluated, Function, FunctionRanks
from mpies.comm import connect, is_launched, mpiexec
from mpies.core.errors import ConfigError, UserError
from mpies.core.text import counted, describe_error
from mpies.rollouts.queue import FailureGroup
from mpies.solvers.sampling.noise import FloatArray

LONGEST = 80  # bytes of a folder's path, so that the system accepts the path of a socket in it
PATIENCE = 10.0  # seconds that mpiexec has to end before it is told to, and again before it is killed


class FunctionJob:
    """Evaluates a function of d parameters on N ranks.  Use it in a `with` block.

    Raises UserError where the function cannot be sent to another process, and ConfigError where no ranks can be
    started.
    """

    def __init__(self, function: Function, dimension: int, ranks: int) -> None:
        ranks = read_whole_number("ranks", ranks, 1)
        if is_launched():
            raise ConfigError("ranks starts ranks of its own, but this process is a rank already; leave it out")
        program = mpiexec.require("ranks")
        self.ranks, body = ranks, _pack(function)
        self._connection: Connection | None = None
        self._process: subprocess.Popen[bytes] | None = None
        path = [place for place in sys.path if isinstance(place, str)]  # imports ignore others, such as a Path
        head = json.dumps({"dimension": dimension, "path": path}).encode()
        command = [program, "-n", str(ranks), sys.executable, "-m", "mpies.api.function_job"]
        for _ in range(mpiexec.ATTEMPTS):
            try:
                self._start(command)
                self._ranks.send_bytes(head)
                self._ranks.send_bytes(body)
                answer = self._ranks.recv_bytes().decode()
                break
            except (EOFError, OSError):  # they have ended
                self.close()
                if not mpiexec.never_began("".join(self._written)):
                    raise self._lost() from None
            except BaseException:  # Ctrl-C
                self.close(at_once=True)
                raise
        else:
            raise self._lost()
        if answer:
            self.close()
            raise UserError(f"the function cannot be loaded by other processes ({answer}){CURE}")

    def _start(self, command: list[str]) -> None:
        """Start the ranks and wait until rank 0 has connected.  Raises EOFError where they have ended before."""
        self._connection = self._process = None
        self._written: deque[str] = deque(maxlen=20)  # the last lines that they wrote
        parent = tempfile.gettempdir() if len(os.fsencode(tempfile.gettempdir())) < LONGEST else "/tmp"
        with tempfile.TemporaryDirectory("", "mpies-", parent) as folder, socket.socket(socket.AF_UNIX) as listener:
            address = os.path.join(folder, "socket")
            listener.bind(address)
            listener.listen(1)
            listener.settimeout(0.1)
            self._process = process = subprocess.Popen(
                [*command, address],
                env=mpiexec.environment() | {"PYTHONUNBUFFERED": "1"},  # what the function prints is seen at once
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                process_group=0,  # a terminal's Ctrl-C is for this process alone
            )
            self._forwarder = threading.Thread(target=_forward, args=(process.stdout, self._written), daemon=True)
            self._forwarder.start()
            while self._connection is None:
                with contextlib.suppress(TimeoutError):
                    self._connection = Connection(listener.accept()[0].detach())
                if process.poll() is not None:
                    raise EOFError

    @property
    def _ranks(self) -> Connection:
        assert self._connection
        return self._connection

    def __enter__(self) -> "FunctionJob":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(at_once=kind is not None)

    def evaluate(self, members: FloatArray) -> Evaluated:
        """Evaluate the members (n, d)."""
        try:
            self._ranks.send_bytes(np.ascontiguousarray(members, np.float64).tobytes())
            values = np.frombuffer(self._ranks.recv_bytes(), np.float64)
            failures = json.loads(self._ranks.recv_bytes())
        except KeyboardInterrupt:
            self.close(at_once=True)
            return Evaluated(np.full(len(members), np.nan), [], is_interrupted=True)
        except (EOFError, OSError):
            self.close()
            raise self._lost() from None
        return Evaluated(values, [FailureGroup(*group) for group in failures])

    def close(self, at_once: bool = False) -> None:
        """End the ranks: when they have done what they are doing, or at once."""
        process = self._process
        if process is None:
            return
        if self._connection:
            self._connection.close()
        if at_once:
            process.terminate()
        for end in (process.terminate, process.kill):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(PATIENCE)
                break
            end()
        process.wait()
        self._forwarder.join(PATIENCE)

    def _lost(self) -> UserError:
        code = self._process.returncode if self._process else None
        return UserError(
            f"{counted(self.ranks, 'rank')} that evaluated the function ended with code {code}; their output says why"
        )


CURE = "; define it in a module, create what it uses inside of it, or leave ranks out"


def _pack(function: Function) -> bytes:
    """The function as bytes.  Raises UserError where that is impossible."""
    import cloudpickle

    try:
        body: bytes = cloudpickle.dumps(function)
        return body
    except Exception as error:  # the user's objects may raise anything
        raise UserError(f"the function cannot be sent to other processes ({describe_error(error)}){CURE}") from None


def _forward(stream: IO[bytes], written: deque[str]) -> None:
    """Copy what the ranks write to standard error, and remember the last lines."""
    with stream:
        for line in stream:
            written.append(line.decode(errors="replace"))
            sys.stderr.write(written[-1])
            sys.stderr.flush()


def main(address: str) -> None:
    """A rank of the job.  address: of the socket where rank 0 meets the process that has started it."""
    comm = connect()
    vectors = None
    if comm.is_root:
        client = socket.socket(socket.AF_UNIX)
        client.connect(address)
        caller = Connection(client.detach())
        vectors = [np.frombuffer(caller.recv_bytes(), np.uint8) for _ in range(2)]
    head, body = (vector.tobytes() for vector in comm.broadcast(vectors))
    settings = json.loads(head)
    function, error = _unpack(body, settings["path"])
    error = comm.first_error(error)
    if comm.is_root:
        caller.send_bytes(error.encode())
    if not error:
        ranks = FunctionRanks(function, settings["dimension"], comm)
        if comm.is_root:
            _answer(ranks, settings["dimension"], caller)
        else:
            ranks.serve()
    comm.finalize(0)


def _unpack(body: bytes, path: list[str]) -> tuple[Function, str]:
    """The function, and why it cannot be loaded.  path: the sys.path of the process that sent it."""
    import cloudpickle

    sys.path[:] = path
    try:
        return cloudpickle.loads(body), ""
    except BaseException as error:  # the user's modules may raise anything
        return (lambda x: np.nan), describe_error(error)


def _answer(ranks: FunctionRanks, dimension: int, caller: Connection) -> None:
    """On rank 0, evaluate members until the caller closes the connection."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            members = np.frombuffer(caller.recv_bytes(), np.float64).reshape(-1, dimension)
            evaluated = ranks.evaluate(members)
            caller.send_bytes(evaluated.values.tobytes())
            groups = [(group.message, group.count, group.first, group.ranks) for group in evaluated.failures]
            caller.send_bytes(json.dumps(groups).encode())
    ranks.release()


if __name__ == "__main__":
    main(sys.argv[1])
