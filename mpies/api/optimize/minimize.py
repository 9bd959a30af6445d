"""`mpies.minimize` and `mpies.maximize`: any solver on a function of the caller's."""

import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from mpies.api.arguments import call_all, check_callbacks, read_numbers, read_whole_number
from mpies.api.optimize.ask_tell import AskTell
from mpies.api.optimize.domain import Bounds
from mpies.api.optimize.function_job import Evaluated, Function, FunctionJob, FunctionRanks
from mpies.comm import Communicator, connect, is_launched
from mpies.comm.together import CollectiveError, abort_with_traceback, do_together
from mpies.core.arrays import FloatArray
from mpies.core.errors import ConfigError, UserError, error_of_kind
from mpies.core.text import counted, describe_error, describe_value
from mpies.core.threads import warn_of_threads

Row = dict[str, float | int]
Callback = Callable[[AskTell, Row], object]

Search = Callable[[AskTell, Callable[[FloatArray], Evaluated]], dict[str, Any]]  # `_search` with its limits

CONVERGED, ALIKE = 10, 1e-12  # generations in a row whose values differ by no more than this

# What all ranks raise together, so that none has to end the others.
OF_ALL_RANKS: tuple[type[BaseException], ...] = (UserError, KeyboardInterrupt)


@dataclass(frozen=True, repr=False)
class OptimizeResult:
    """What `minimize` and `maximize` found.

    x, value: the best member that was evaluated, (d,) float64, and the function's value there.
    mean: (d,) of the distribution at the end; where values are noisy it is a better choice than `x`.
    generations, evaluations: how many there were.
    reason: why it ended: solved (the target was reached), converged (the values of ten generations in a row differed by
    less than 1e-12, where there is no target), generations, callback, or signal (Ctrl-C).
    history: name to column, an entry for each generation: generation, evaluations and seconds so far, the best value so
    far (best), the mean, the least and the largest value of its members (value_mean, value_min, value_max), how many of
    them failed (failures), and what the solver reports, such as sigma.  pandas.DataFrame(history) is a table of it.
    """

    x: npt.NDArray[np.float64]
    value: float
    mean: npt.NDArray[np.float64]
    generations: int
    evaluations: int
    reason: str
    history: dict[str, npt.NDArray[Any]]

    def __repr__(self) -> str:
        counts = f"{counted(self.generations, 'generation')}, {counted(self.evaluations, 'evaluation')}"
        return f"OptimizeResult(value={self.value:g}, x of {len(self.x)}, {counts}, ended: {self.reason})"


def minimize(
    f: Function,
    x0: npt.ArrayLike,
    solver: str = "cma_es",
    *,
    sigma: float | None = None,
    population: int | None = None,
    bounds: Bounds | None = None,
    integers: npt.ArrayLike | None = None,
    generations: int = 1000,
    target: float | None = None,
    ranks: int | None = None,
    seed: int = 0,
    vectorized: bool = False,
    callbacks: Iterable[Callback] | Callback = (),
    **options: Any,
) -> OptimizeResult:
    """Minimise a function.

    >>> found = mpies.minimize(lambda x: np.sum((x - 3) ** 2), np.zeros(10), sigma=0.5, target=1e-8)
    >>> found.x, found.value

    It runs in this process; under mpirun on all ranks, which all call it and all get the result; or with `ranks=N` on N
    ranks that it starts.  The result has the same bits on any number of ranks.

    f: of a vector (d,) float64 to a number.  A member for which it raises, or whose value is NaN or infinite, ranks
    worst.
    x0: (d,), where the search begins.
    solver: `solver.kind`, such as cma_es, snes or nevergrad:DE.  sigma: the first step size, in the units of x.
    population: members of a generation.  options: other keys of the solver's section (docs/solvers.md).
    bounds: (low, high), each a number, d numbers or None.  integers: coordinates that are whole numbers, as indices or
    as a mask (d,); f gets them rounded.
    generations: how many at most.  target: stop when a value reaches it.
    ranks: start a job of this many ranks with mpirun, which evaluate f; it may be a lambda or a function of a notebook.
    seed: of all random numbers.
    vectorized: f takes all members of a generation, (n, d), and returns (n,) values; in one process alone.
    callbacks: functions c(es, row), called in turn after each generation with the search, an AskTell, and the newest
    row of the history.  Where one returns True, the search stops.  Under mpirun they are called on rank 0.

    Ctrl-C ends the search at once and returns the best so far; before there is one it raises KeyboardInterrupt.
    Raises UserError, in one line, for wrong arguments, for a function that cannot be sent to the ranks, and where all
    members of a generation fail.
    """
    search = {"sigma": sigma, "population": population, "bounds": bounds, "integers": integers, "seed": seed}
    return _optimize(f, x0, solver, False, generations, target, ranks, callbacks, vectorized, **search, **options)


def maximize(f: Function, x0: npt.ArrayLike, solver: str = "cma_es", **options: Any) -> OptimizeResult:
    """Maximise a function; all else is as in `minimize`, whose other arguments it takes, too."""
    return _optimize(f, x0, solver, True, **options)


def _optimize(
    f: Function,
    x0: npt.ArrayLike,
    solver: str,
    is_maximum: bool,
    generations: int = 1000,
    target: float | None = None,
    ranks: int | None = None,
    callbacks: Iterable[Callback] | Callback = (),
    vectorized: bool = False,
    **search: Any,
) -> OptimizeResult:
    """Search in this process, on all ranks of mpirun, or on `ranks` ranks of a job of its own."""
    if not callable(f):
        raise ConfigError(f"f must be a function of a vector, but is {describe_value(f)}")
    if target is not None and not (isinstance(target, int | float | np.number) and np.isfinite(target)):
        raise ConfigError(f"target must be a finite number, or None for no target, but is {target!r}")
    generations = read_whole_number("generations", generations, 1)
    called = check_callbacks(callbacks, "c(es, row)")
    search_within = partial(_search, generations=generations, target=target, callbacks=called)
    given = {name: it for name, it in search.items() if it is not None or name not in ("sigma", "population")}
    make = partial(AskTell, solver, x0, maximize=is_maximum, **given)
    if vectorized:
        if ranks is not None or is_launched():
            raise ConfigError("vectorized evaluates all members by one call in one process; leave ranks and mpirun out")
        fields = _search_alone(f, make(), search_within)
    elif ranks is not None:
        fields = _search_by_job(f, make(), search_within, ranks)
    else:
        comm = connect()
        if comm.node_rank == 0:
            warn_of_threads(comm.node_size)
        try:
            fields = _search_together(f, make, search_within, comm)
        except OF_ALL_RANKS:
            raise
        except BaseException:
            if not comm.is_root:  # which has told the others
                abort_with_traceback(comm)
            raise
        finally:
            comm.close()
    history = {name: np.array(column) for name, column in fields["history"].items()}
    vectors = {name: np.array(fields[name], np.float64) for name in ("x", "mean")}
    return OptimizeResult(**{**fields, **vectors, "history": history})


def _evaluate_all(f: Function, members: FloatArray) -> Evaluated:
    """The values of members (n, d) by one call."""
    values = read_numbers("f must return a number for each member", f(members.astype(np.float64)))
    if values.shape != (len(members),):
        raise UserError(f"f must return {len(members)} numbers, one for each member, but returned {values.shape}")
    return np.where(np.isfinite(values), values, np.nan), "a value that is not finite"


def _search_alone(f: Function, es: AskTell, search: Search) -> dict[str, Any]:
    """Search in this process, with one call of f for each generation."""
    return search(es, partial(_evaluate_all, f))


def _search_by_job(f: Function, es: AskTell, search: Search, ranks: int) -> dict[str, Any]:
    """Search in this process, which has the solver, while `ranks` other ones evaluate."""
    with FunctionJob(f, es.dimension, ranks) as job:
        return search(es, job.evaluate)


def _search_together(f: Function, make: Callable[[], AskTell], search: Search, comm: Communicator) -> dict[str, Any]:
    """Search on all ranks: rank 0 has the solver, and all evaluate.  Returns what `_search` does, on every rank."""
    try:
        es = do_together(comm, lambda: make() if comm.is_root else None)
    except CollectiveError as error:
        raise error.mistake from None
    ranks = FunctionRanks(f, comm.broadcast_int(es.dimension if es else None), comm)
    if es is None:
        outcome = ranks.serve()
        if "error" not in outcome:
            return dict(outcome)
        if outcome["error"] == "KeyboardInterrupt":
            raise KeyboardInterrupt
        raise error_of_kind(outcome["error"], f"the search ended on rank 0: {outcome['message']}")
    outcome = {}
    try:
        outcome = search(es, ranks.evaluate)
        return outcome
    except BaseException as error:
        message = "" if isinstance(error, KeyboardInterrupt) else describe_error(error)
        outcome = {"error": type(error).__name__, "message": message}
        raise
    finally:
        ranks.release(outcome)


def _search(
    es: AskTell,
    evaluate: Callable[[FloatArray], Evaluated],
    generations: int,
    target: float | None,
    callbacks: list[Callback],
) -> dict[str, Any]:
    """Run generations until a limit is reached.  Returns the fields of an OptimizeResult, as lists and numbers.

    Warns of the first members that failed.  Raises UserError where all members of a generation did.
    """
    rows: list[Row] = []
    began, reason, has_warned, alike = time.perf_counter(), "", False, 0
    while not reason:
        try:
            members = es.ask()
            told, why = evaluate(members)
            values = told[~np.isnan(told)]
            count, failed = len(members), len(members) - len(values)
            text = f"of generation {es.generation + 1} failed, by {why}"
            if failed == count:
                cure = f"call the function with a vector of {es.dimension} numbers to see where"
                raise UserError(f"all {count} evaluations {text}; {cure}")
            if failed and not has_warned:
                has_warned = True  # stacklevel: the line that calls minimize or maximize
                warnings.warn(f"{failed} of {count} evaluations {text}; they rank worst", RuntimeWarning, stacklevel=5)
            es.tell(told)
            assert es.best_value is not None
            row: Row = {
                "generation": es.generation,
                "evaluations": es.evaluations,
                "seconds": time.perf_counter() - began,
                "best": es.best_value,
                "value_mean": float(values.mean()),
                "value_min": float(values.min()),
                "value_max": float(values.max()),
                "failures": failed,
                **{
                    name: int(it) if isinstance(it, int | np.integer) else float(it) for name, it in es.report().items()
                },
            }
            rows.append(row)
            alike = alike + 1 if np.ptp(values) <= ALIKE * max(1, abs(es.best_value)) else 0
            has_callback_stopped = call_all(callbacks, es, row)
            if target is not None and (es.best_value >= target if es.maximize else es.best_value <= target):
                reason = "solved"
            elif has_callback_stopped:
                reason = "callback"
            elif target is None and alike >= CONVERGED:
                reason = "converged"
            elif es.generation >= generations:
                reason = "generations"
        except KeyboardInterrupt:
            if es.best_x is None:
                raise
            reason = "signal"
    assert es.best_x is not None
    names = dict.fromkeys(name for row in rows for name in row)
    return {
        "x": es.best_x.tolist(),
        "value": es.best_value,
        "mean": es.mean.tolist(),
        "generations": es.generation,
        "evaluations": es.evaluations,
        "reason": reason,
        "history": {name: [row.get(name, np.nan) for row in rows] for name in names},
    }
