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
from collections.abc import Callable, Sequence
from multiprocessing.connection import Client, Connection
from typing import Any

import numpy as np
import numpy.typing as npt

from mpies.api.arguments import read_whole_number
from mpies.comm import Communicator, connect, is_launched, mpiexec
from mpies.core.arrays import FloatArray
from mpies.core.errors import ConfigError, UserError
from mpies.core.text import counted, describe_error
from mpies.envs.functions import FunctionEnv
from mpies.rollouts.batch import RolloutBatch
from mpies.rollouts.function_player import FunctionPlayer
from mpies.rollouts.queue import PlayingRanks, RolloutQueue, gather_failures

LONGEST = 80  # bytes of a folder's path, so that the system accepts the path of a socket in it
PATIENCE = 10.0  # seconds that mpiexec has to end before it is told to, and again before it is killed
CURE = "; define it in a module, create what it uses inside of it, or leave ranks out"

Function = Callable[[npt.NDArray[np.float64]], Any]
Evaluated = tuple[npt.NDArray[np.float64], str]  # values (n,), NaN where the function failed, and why most of those did


class FunctionRanks:
    """Evaluates a function of d parameters on all ranks of a communicator; each takes the next member that is left.

    Rank 0 calls `evaluate`, and `release` at the end; all others call `serve`.
    """

    def __init__(self, function: Function, dimension: int, comm: Communicator) -> None:
        self._comm, self._dimension = comm, dimension
        name = getattr(function, "__name__", type(function).__name__)
        env = FunctionEnv(name, dimension, np.zeros(dimension), function)
        self._player = FunctionPlayer(env, np.float64)

    def evaluate(self, members: FloatArray) -> Evaluated:
        """Evaluate the members (n, d).  On rank 0."""
        self._comm.broadcast([members.ravel()])
        return self._evaluate(members)

    def serve(self) -> Any:
        """Evaluate what rank 0 asks for until it calls `release`; returns the outcome that it gave.  Not on rank 0."""
        while True:
            vector = self._comm.broadcast(None)[0]
            if vector.dtype == np.uint8:
                return json.loads(vector.tobytes())
            self._evaluate(vector.reshape(-1, self._dimension))

    def release(self, outcome: Any = None) -> None:
        """End `serve` on the other ranks.  outcome: what it returns there, of lists, texts and numbers.  On rank 0."""
        self._comm.broadcast([np.frombuffer(json.dumps(outcome).encode(), np.uint8)])

    def _evaluate(self, members: FloatArray) -> Evaluated:
        """The values of members (n, d), the same on every rank, and on rank 0 the reason.  Collective.

        Raises KeyboardInterrupt on rank 0 where Ctrl-C has told any rank to stop.
        """
        comm, count = self._comm, len(members)

        def write(rollout: int, out: npt.NDArray[Any]) -> Sequence[float]:
            out[:] = members[rollout]
            return ()

        batch = RolloutBatch(np.zeros(count, np.int64), write, np.zeros(count, bool))
        queue = RolloutQueue(batch, counter=comm.work_counter(count))
        is_interrupted = False
        try:
            self._player.play([queue], ranks=PlayingRanks(comm.size))
        except KeyboardInterrupt:
            is_interrupted = True
        records, numbers = comm.allgather(queue.finished(), (len(queue.failures), is_interrupted))
        values = np.full(count, np.nan)
        values[records["rollout"]] = records["total"]
        values[~np.isfinite(values)] = np.nan
        groups = gather_failures(comm, queue.failures) if numbers[:, 0].any() else []
        if numbers[:, 1].any() and comm.is_root:  # which lets the others go
            raise KeyboardInterrupt
        return values, groups[0].message if groups else ""


class FunctionJob:
    """Evaluates a function of d parameters on N ranks, which run in a `with` block.

    Raises UserError where the function cannot be sent to another process, and ConfigError where no ranks can be
    started.
    """

    def __init__(self, function: Function, dimension: int, ranks: int) -> None:
        import cloudpickle

        ranks = read_whole_number("ranks", ranks, 1)
        if is_launched():
            raise ConfigError("ranks starts ranks of its own, but this process is a rank already; leave it out")
        program = mpiexec.require("ranks")
        self._command = [program, "-n", str(ranks), sys.executable, "-P", "-m", "mpies.api.optimize.function_job"]
        self._ranks = counted(ranks, "rank")
        path = [place for place in sys.path if isinstance(place, str)]  # imports ignore others, such as a Path
        head = json.dumps({"dimension": dimension, "path": path}).encode()
        try:
            self._function = head, cloudpickle.dumps(function)
        except Exception as error:  # the user's objects may raise anything
            raise UserError(f"the function cannot be sent to other processes ({describe_error(error)}){CURE}") from None

    def __enter__(self) -> "FunctionJob":
        for _ in range(mpiexec.ATTEMPTS):
            if self._start():
                break
        else:
            raise self._lost()
        if answer := self._ask(*self._function).decode():
            self._close()
            raise UserError(f"the function cannot be loaded by other processes ({answer}){CURE}")
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._close(at_once=kind is not None)

    def evaluate(self, members: FloatArray) -> Evaluated:
        """Evaluate the members (n, d)."""
        values = self._ask(np.ascontiguousarray(members, np.float64).tobytes())
        return np.frombuffer(values, np.float64), self._ask().decode()

    def _start(self) -> bool:
        """Start the ranks.  Returns whether rank 0 has connected; where not, mpiexec has ended before."""
        parent = tempfile.gettempdir() if len(os.fsencode(tempfile.gettempdir())) < LONGEST else "/tmp"
        with tempfile.TemporaryDirectory("", "mpies-", parent) as folder, socket.socket(socket.AF_UNIX) as listener:
            address = os.path.join(folder, "socket")
            listener.bind(address)
            listener.listen(1)
            listener.settimeout(0.1)
            self._process = subprocess.Popen(
                [*self._command, address],
                env=mpiexec.environment() | {"PYTHONUNBUFFERED": "1"},  # what the function prints is seen at once
                stdin=subprocess.DEVNULL,
                stdout=2,  # standard error: standard output is this process's own
                process_group=0,  # a terminal's Ctrl-C is for this process alone
            )
            try:
                while self._process.poll() is None:
                    with contextlib.suppress(TimeoutError):
                        self._connection = Connection(listener.accept()[0].detach())
                        return True
            except BaseException:  # Ctrl-C
                self._end(at_once=True)
                raise
        return False

    def _ask(self, *messages: bytes) -> bytes:
        """Send messages to rank 0, and receive one."""
        try:
            for message in messages:
                self._connection.send_bytes(message)
            return self._connection.recv_bytes()
        except (EOFError, OSError):
            self._close()
            raise self._lost() from None
        except BaseException:  # Ctrl-C
            self._close(at_once=True)
            raise

    def _close(self, at_once: bool = False) -> None:
        """End the ranks: when they have done what they are doing, or at once."""
        self._connection.close()
        self._end(at_once)

    def _end(self, at_once: bool) -> None:
        if at_once:
            self._process.terminate()
        for end in (self._process.terminate, self._process.kill):  # mpiexec ends its ranks on the first
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(PATIENCE)
                return
            end()
        self._process.wait()

    def _lost(self) -> UserError:
        code = self._process.returncode
        return UserError(f"{self._ranks} that evaluated the function ended with code {code}; their output says why")


def main(address: str) -> None:
    """A rank of the job.  address: of the socket where rank 0 meets the process that has started it."""
    import cloudpickle

    comm = connect()
    vectors = None
    if comm.is_root:
        caller = Client(address)
        vectors = [np.frombuffer(caller.recv_bytes(), np.uint8) for _ in range(2)]
    head, body = (vector.tobytes() for vector in comm.broadcast(vectors))
    settings = json.loads(head)
    sys.path[:], dimension = settings["path"], settings["dimension"]  # as in the process that has sent the function
    function: Any = None
    problem = ""
    try:
        function = cloudpickle.loads(body)
    except BaseException as error:  # the user's modules may raise anything
        problem = describe_error(error)
    problem = comm.first_error(problem)
    if comm.is_root:
        caller.send_bytes(problem.encode())
    if not problem:
        ranks = FunctionRanks(function, dimension, comm)
        if comm.is_root:
            with contextlib.suppress(EOFError, OSError):  # until the caller closes the connection
                while True:
                    members = np.frombuffer(caller.recv_bytes(), np.float64).reshape(-1, dimension)
                    values, reason = ranks.evaluate(members)
                    caller.send_bytes(values.tobytes())
                    caller.send_bytes(reason.encode())
            ranks.release()
        else:
            ranks.serve()
    comm.finalize(0)


if __name__ == "__main__":
    main(sys.argv[1])
