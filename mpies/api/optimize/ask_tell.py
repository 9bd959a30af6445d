"""Any solver as a library: ask for a population, evaluate it in any way, tell the values."""

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mpies.api.arguments import read_numbers, read_path, read_whole_number
from mpies.api.optimize.domain import Bounds, Domain, Vector
from mpies.comm.limits import SOLVER, require_memory
from mpies.config.loading import as_plain, validate_config
from mpies.config.trust import find_refusal, sign, trusting
from mpies.core.arrays import FloatArray
from mpies.core.errors import ConfigError, RunError, UserError
from mpies.core.text import counted, describe_value
from mpies.runs.directory import refuse_run_file
from mpies.runs.files import write_atomically, writing
from mpies.runs.formats import hdf5
from mpies.runs.formats.policy_file import select
from mpies.solvers.base import AnySolver
from mpies.solvers.check import check_if_custom
from mpies.solvers.custom_solver import CustomSolver
from mpies.solvers.loop import SolverLoop
from mpies.solvers.registry import find_solver
from mpies.solvers.sampling.noise import build_table

FloatType = type[np.float32] | type[np.float64]

TABLE = 1 << 20  # normals of the noise table, or ten times the parameters where these are many
BEHAVIOUR = 8  # numbers of a member that stand for its behaviour unless others are told, as for functions in training


class AskTell:
    """A solver that is asked for members and told their values.

    >>> es = mpies.AskTell("snes", x0=np.zeros(10), sigma=0.3)
    >>> for _ in range(100):
    ...     X = es.ask()                       # (n, 10)
    ...     es.tell([f(x) for x in X])         # costs: they are minimised, as in pycma and cmaes
    >>> es.mean, es.best_x, es.best_value

    kind: `solver.kind`, such as cma_es, snes, nevergrad:DE or path/to/file.py:Class.  options: the keys of its section
    (docs/solvers.md), such as sigma and population.  sigma is the first step size; pepg calls it sigma_init.
    x0: (d,), where the search begins.
    seed: everything random is a function of it, of the other arguments and of the values told.
    maximize: whether values are returns, the more the better, as in training; by default they are costs.
    bounds: (low, high), each a number, d numbers or None.  Members and the mean lie within them.
    integers: coordinates that are whole numbers, as indices or as a mask (d,).  Members are rounded there; cma_es is
    also told of them.
    dtype: of the solver; default float64, and float32 for custom solvers, which are written for it.  With float32,
    `noise_size` the config's noise.size and the same seed, each step has the bits of training on a function.
    noise_size: normals of the noise table, for solvers that use one; default 2^20, or more for many parameters.

    mean: (d,) of the distribution: of noisy values it is a better choice than the best member.
    best_x, best_value: the best member that was told, (d,), and its value; None before there is one.
    solver: the Solver.  generation: steps taken.  evaluations: values told.
    Raises UserError, in one line, for arguments that are wrong.
    """

    def __init__(
        self,
        kind: str,
        x0: npt.ArrayLike,
        *,
        seed: int = 0,
        maximize: bool = False,
        bounds: Bounds | None = None,
        integers: npt.ArrayLike | None = None,
        dtype: npt.DTypeLike | None = None,
        noise_size: int | None = None,
        **options: Any,
    ) -> None:
        if not isinstance(kind, str):
            raise UserError(
                f"solver must be a text such as 'cma_es', but is {describe_value(kind)}; the step size is sigma="
            )
        self.kind, self.seed, self.maximize = kind, read_whole_number("seed", seed, 0), bool(maximize)
        self._x0 = _read_start(x0)
        dimension = self.dimension = len(self._x0)
        self.domain = Domain.of(dimension, bounds, integers)
        if kind == "cma_es" and len(self.domain.integers):
            options["integers"] = self.domain.integers.tolist()
        self.solver = solver = self._make_solver(options, dtype)
        check_if_custom(solver, BEHAVIOUR)
        self.noise_size = 0
        if solver.options.noise_rows(dimension):
            noise_size = max(TABLE, 10 * dimension) if noise_size is None else noise_size
            self.noise_size = read_whole_number("noise_size", noise_size, dimension)  # a member takes d of these
        size, members = np.dtype(solver.dtype).itemsize, solver.options.members(dimension)
        needs = {"noise_size": size * self.noise_size, SOLVER: size // 4 * solver.options.memory(dimension)}
        require_memory({**needs, "the population": 3 * size * members * dimension})
        solver.start(self.domain.to_solver(self._x0))
        self._loop = SolverLoop(solver, table=build_table(self.noise_size, self.seed, solver.dtype))
        self._members: FloatArray | None = None  # (n, d), those asked for and not told yet
        self._behaviour_size = 0  # b of the behaviours told; 0 before the first
        self.best_x: FloatArray | None = None
        self.best_value: float | None = None
        self.evaluations = 0

    def __repr__(self) -> str:
        best = "" if self.best_value is None else f", best value {self.best_value:g}"
        return f"AskTell({self.kind!r}, {counted(self.dimension, 'parameter')}, generation {self.generation}{best})"

    def _make_solver(self, options: Mapping[str, Any], dtype: npt.DTypeLike | None) -> AnySolver:
        if "episodes" in options:
            raise ConfigError("episodes is for environments; tell the mean of several values of a member")
        options = _name_sigma(self.kind, options)
        environment = {"id": "function:sphere", "dimension": max(2, self.dimension)}  # stands for any function
        values = {"seed": self.seed, "environment": environment, "solver": {"kind": self.kind, **options}}
        config = validate_config(as_plain(values), f"solver {self.kind}")
        if refusal := config.solver.refusal(self.dimension):
            raise ConfigError(refusal)
        self.options = config.solver
        solver = find_solver(self.kind)
        default: FloatType = np.float32 if issubclass(solver, CustomSolver) else np.float64
        return solver(config.solver, self.dimension, self.seed, default if dtype is None else _read_dtype(dtype))

    @property
    def mean(self) -> FloatArray:
        return self.domain.from_solver(self.solver.mean[None])[0]

    @property
    def generation(self) -> int:
        return self.solver.generation

    def report(self) -> dict[str, float]:
        """What the solver has to report, such as its sigma: names to numbers."""
        return self.solver.report()

    def ask(self) -> FloatArray:
        """The members (n, d) to be evaluated; the same until `tell`."""
        if self._members is None:
            self._members = self.domain.from_solver(self._loop.ask())
        return self._members.copy()

    def tell(self, values: npt.ArrayLike, behaviours: npt.ArrayLike | None = None) -> None:
        """Take the step.

        values: (n,) of the members that `ask` returned, in their order.  One that is NaN or infinite stands for a
        member that failed, and ranks worst.
        behaviours: (n, b), for solvers that search for novelty; default the first eight parameters of each member.
        Raises RuntimeError before `ask`, and UserError for wrong shapes.
        """
        if self._members is None:
            raise RuntimeError("tell before ask: call X = ask(), evaluate its rows, and tell their values")
        told = _read_values(values, len(self._members))
        if behaviours is None and self.solver.wants_behaviour:
            behaviours = self._members[:, :BEHAVIOUR]
        if behaviours is not None:
            behaviours = self._read_behaviours(behaviours, len(told))
        with np.errstate(all="ignore"):  # a step may overflow; the values of its members show it
            self._loop.tell(told if self.maximize else -told, behaviours)
        if not np.isnan(told).all():
            best = int(np.nanargmax(told) if self.maximize else np.nanargmin(told))
            value = float(told[best])
            if self.best_value is None or (value > self.best_value if self.maximize else value < self.best_value):
                self.best_x, self.best_value = self._members[best].copy(), value
        self.evaluations += len(told)
        self._members = None

    def _read_behaviours(self, behaviours: npt.ArrayLike, count: int) -> npt.NDArray[np.float64]:
        """The behaviours (n, b) told, with the same b each time.  Raises UserError."""
        told = read_numbers(f"behaviours must be numbers of shape ({count}, b)", behaviours)
        width = self._behaviour_size or (told.shape[1] if told.ndim == 2 else 0)
        if told.shape != (count, width) or not width:
            raise UserError(f"behaviours must have shape ({count}, {width or 'b'}), but have {told.shape}")
        self._behaviour_size = width
        return told

    def save(self, path: str | Path) -> None:
        """Write the state to a file (HDF5), from which `load` goes on bit for bit.

        Raises RunError where it cannot be written, and ConfigError for a file of a run's own.
        """
        path = read_path("path", path, RunError)
        settings = {
            "seed": self.seed,
            "maximize": self.maximize,
            "dtype": np.dtype(self.solver.dtype).name,
            "noise_size": self.noise_size or None,
            "options": self.options.model_dump(mode="json", exclude={"episodes", "integers"}),
            "is_asked": self._members is not None,
            "behaviour_size": self._behaviour_size,
        }
        arrays = {
            **{f"solver/{name}": value for name, value in self.solver.state().items()},
            **{"x0": self._x0, "low": self.domain.low, "high": self.domain.high, "integers": self.domain.integers},
            "evaluations": self.evaluations,
        }
        if self.best_x is not None and self.best_value is not None:
            arrays |= {"best_x": self.best_x, "best_value": self.best_value}
        with writing(path, RunError):
            refuse_run_file(path)
            signature = sign({"solver": settings["options"]})
            write_atomically(path, hdf5.pack(arrays, {"ask_tell": json.dumps(settings), "signature": signature}))

    @classmethod
    def load(cls, path: str | Path, trust: bool = False) -> "AskTell":
        """What `save` wrote, as if there had been no pause.  Raises RunError where the file is absent or damaged.

        trust: whether the code of its solver may run, also where it was not saved here (docs/policies.md).
        """
        arrays, attributes = hdf5.read(read_path("path", path, RunError))
        if "ask_tell" not in attributes:
            raise RunError(
                f"{path}: is not a file of AskTell.save; open runs with mpies.load, policies with Policy.load"
            )
        settings = json.loads(attributes["ask_tell"])
        options, is_asked = settings.pop("options"), settings.pop("is_asked")
        behaviour_size = settings.pop("behaviour_size")
        with trusting(trust):
            if refusal := find_refusal({"solver": options}, attributes.get("signature"), str(path)):
                raise RunError(refusal)
        bounds = arrays["low"], arrays["high"]
        loaded = cls(
            options.pop("kind"), arrays["x0"], bounds=bounds, integers=arrays["integers"], **settings, **options
        )
        loaded.solver.restore(select(arrays, "solver/"))
        loaded.evaluations, loaded._behaviour_size = int(arrays["evaluations"]), behaviour_size
        if "best_x" in arrays:
            loaded.best_x, loaded.best_value = arrays["best_x"], float(arrays["best_value"])
        if is_asked:
            loaded.ask()
        return loaded


def _name_sigma(kind: str, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """The options with `sigma` under the name sigma_init where the solver has that key instead."""
    with contextlib.suppress(ValueError, OSError):  # the config is validated later
        keys = find_solver(kind).Options.model_fields
        if "sigma" in options and "sigma" not in keys and "sigma_init" in keys.keys() - options.keys():
            return {"sigma_init" if name == "sigma" else name: value for name, value in options.items()}
    return options


def _read_dtype(dtype: npt.DTypeLike) -> FloatType:
    with contextlib.suppress(TypeError):
        if (kind := np.dtype(dtype).type) in (np.float64, np.float32):
            return kind
    raise UserError(f"dtype must be float64 or float32, but is {dtype!r}")


def _read_start(x0: npt.ArrayLike) -> Vector:
    start = read_numbers("x0 must be a vector of numbers", x0)
    if start.ndim != 1 or not len(start):
        raise UserError(f"x0 must be a vector of numbers, such as np.zeros(10), but has shape {start.shape}")
    bad = np.flatnonzero(~np.isfinite(start))
    if len(bad):
        raise UserError(f"x0 must be finite, but is {start[bad[0]]} at coordinate {bad[0]}")
    return start


def _read_values(values: npt.ArrayLike, count: int) -> npt.NDArray[np.float64]:
    """The values (n,) told, NaN for those that are not finite."""
    told = read_numbers(f"values must be {count} numbers, one for each member", values)
    if told.shape != (count,):
        raise UserError(f"tell needs {count} values, one for each member of ask(), but was given shape {told.shape}")
    told[~np.isfinite(told)] = np.nan
    return told
