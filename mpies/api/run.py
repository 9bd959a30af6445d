"""A run directory in Python: its metrics, its policies, and what its ledger tells of the past."""

import functools
import html
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mpies.api.arguments import read_path, read_whole_number
from mpies.api.policy import Evaluation, Policy
from mpies.config.schema import Config
from mpies.config.trust import trusting
from mpies.core.errors import ConfigError, RunError, import_extra
from mpies.core.paths import absolute
from mpies.report.compare.curves import name_run_below, read_curves
from mpies.report.document import make_summary, write_report
from mpies.report.evaluate import show_member
from mpies.report.figures import AXES, draw_return, render
from mpies.runs.formats import ledger
from mpies.runs.formats.metrics import COLUMNS
from mpies.runs.reader import Columns, RunView, find_runs, is_run, read_run_config
from mpies.training.replay import Replay

if TYPE_CHECKING:  # extras, which take long to import
    import pandas
    from matplotlib.figure import Figure


class Members(NamedTuple):
    """The members of a generation, in member order.

    returns: (n,) float64 mean return of each member's episodes, NaN where one failed.
    lengths: (n,) float64 mean length of its episodes in steps.
    """

    returns: npt.NDArray[np.float64]
    lengths: npt.NDArray[np.float64]


class PlayedMember(NamedTuple):
    """A member of a past generation that was played again.

    recorded, played: its mean return as it was recorded, and now; NaN where an episode failed.
    failures: number of the episode to what went wrong in it.
    """

    recorded: float
    played: float
    failures: dict[int, str]


class Run:
    """A run directory, which may still be written: everything is read when it is asked for.

    path: the absolute path of the directory.  Raises RunError where it holds no run.
    newest: called before anything is read; the metrics end with the generation that it returns.
    trust: whether code that its config names may run, also where it was not trained here (docs/policies.md).

    >>> run = mpies.load("runs/cartpole")                                                         # doctest: +SKIP
    >>> run.status, run.metrics["eval_mean"], run.best(observation)                               # doctest: +SKIP
    """

    def __init__(self, path: str | Path, newest: Callable[[], float] = lambda: math.inf, trust: bool = False) -> None:
        self.path = absolute(read_path("the path of a run", path, RunError))
        self._newest, self._name, self._trust = newest, str(path), trust
        if problem := _find_problem(self.path):
            raise RunError(f"{path}: {problem}")
        self._view = RunView(self.path)
        self._replay: Replay | None = None
        self._replay_stamp: tuple[int, int, int] | None = None  # of config.yaml when the replay was begun

    @property
    def metrics(self) -> Columns:
        """Names of the columns of metrics.csv to (generations,) float64, NaN where a cell is empty.

        Each access reads the lines that are new.  The digests, which are texts, are left out.  Before the first
        generation, the columns that every run has are there, and empty.
        """
        newest = self._newest()
        columns = self._view.metrics.refresh().columns
        if "generation" not in columns:
            return {name: np.zeros(0) for name in COLUMNS if name != "digest"}
        is_newer = columns["generation"] > newest
        return {name: column[~is_newer] for name, column in columns.items()}  # copies: the caller may change them

    def to_pandas(self) -> "pandas.DataFrame":
        """The metrics as a DataFrame, one row for each generation.  Raises ConfigError without pandas."""
        return make_frame(self.metrics)

    @property
    def config(self) -> Config:
        """The config of the run, with every default filled in.  Raises RunError or ConfigError where it is damaged."""
        with trusting(self._trust):
            return read_run_config(self.path)

    @property
    def status(self) -> str:
        """running, stopped, finished, solved, or stale: the process that wrote it died without shutting down.

        A trial that successive halving has ended is dropped, or waiting for the others of its rung.
        """
        return self._view.status()

    @property
    def reason(self) -> str:
        """What ended the run: solved, generations, steps, ...; '' while it goes on, or where it was stopped."""
        return str(self._view.finished().get("reason", ""))

    @property
    def generation(self) -> int:
        """The newest generation in metrics.csv; 0 before the first."""
        generations = self.metrics.get("generation", np.zeros(0))
        generations = generations[np.isfinite(generations)]  # a cell may be damaged
        return int(generations[-1]) if len(generations) else 0

    @property
    def best(self) -> Policy:
        """The policy of the best evaluation so far; before the first evaluation, that of the newest checkpoint.

        Raises RunError where no policy is saved yet.
        """
        self._newest()
        return Policy.load(self.path, self._trust)

    def evaluate(self, episodes: int = 100, seed: int | None = None) -> Evaluation:
        """Play held-out episodes with the best policy, as `mpies evaluate` does; see `Policy.evaluate`."""
        return self.best.evaluate(episodes, seed)

    def policy(self, generation: int | None = None) -> Policy:
        """The mean as it was after a generation, computed again from the ledger.

        generation: 0 for the first parameters; None for the newest generation.
        Going through generations in ascending order replays each of them once.
        Raises RunError where the ledger does not hold the generation.
        """
        newest = self.generation  # what is not on disk yet is written first
        generation = newest if generation is None else read_whole_number("generation", generation, 0, RunError)
        stamp = self._view.stamp("config.yaml")  # written anew at each start, also of another run in this directory
        if self._replay is None or self._replay.generation > generation or self._replay_stamp != stamp:
            with trusting(self._trust):
                self._replay, self._replay_stamp = Replay(self.path, generation), stamp
        self._replay.run_until(generation)
        return Policy(self._replay.policy_file())

    def members(self, generation: int) -> Members:
        """What the members of a generation returned, as the ledger records it.

        Raises RunError where the ledger does not hold the generation.
        """
        self._newest()
        generation = read_whole_number("generation", generation, 1, RunError)
        record = ledger.read_record(self.path, generation)
        return Members(record["returns"].astype(np.float64), record["steps"] / float(self.config.solver.episodes))

    def play(self, generation: int, member: int, video: str | Path | None = None) -> PlayedMember:
        """Play a member of a past generation again; the returns agree to the bit.

        generation: from 1.  member: from 0.  video: an .mp4 or .gif to record its episodes to.
        Raises RunError where there is no such member.
        """
        self._newest()
        generation = read_whole_number("generation", generation, 1, RunError)
        member = read_whole_number("member", member, 0, RunError)
        file = None if video is None else read_path("video", video, RunError)
        with trusting(self._trust):
            return PlayedMember(*show_member(self.path, generation, member, file))

    def plot(self, axis: str = "steps") -> "Figure":
        """The returns over the training as a figure of matplotlib.

        axis: what is across: steps, iteration or time.
        Raises RunError where the run has no generation yet, ConfigError for another axis and without matplotlib.
        """
        if axis not in AXES:
            raise ConfigError(f"axis must be one of {', '.join(AXES)}, but is {axis!r}")
        self._newest()
        figure = draw_return(read_curves(self._view), axis)
        figure._repr_png_ = functools.partial(render, figure)  # type: ignore[attr-defined]  # notebooks show it
        return figure

    def report(self, out: str | Path | None = None) -> Path:
        """Write a report as one HTML file, by default report.html in the run.  Returns its path.

        Raises RunError where the run has no generation yet, ConfigError without matplotlib.
        """
        self._newest()
        return write_report(self.path, absolute(read_path("out", out, RunError)) if out else None)

    def __repr__(self) -> str:
        return f"Run({self._name!r}: {self.status}, generation {self.generation})"

    def _repr_html_(self) -> str:
        """For notebooks: the newest numbers and the curve, without scripts."""
        self._newest()
        try:
            return make_summary(read_curves(self._view), self.status)
        except (RunError, ConfigError) as error:  # no generation yet
            return f"<div>{html.escape(f'{self!r}: {error}')}</div>"


def make_frame(table: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> "pandas.DataFrame":
    """A DataFrame of columns, or of rows.  Raises ConfigError without pandas."""
    return import_extra("pandas", "to_pandas needs a package that is not installed", "pandas").DataFrame(table)


def _find_problem(path: Path) -> str:
    """Why a path leads to no run, and what to give in its place; '' where it leads to one."""
    try:
        if (path / "config.yaml").is_file() and is_run(path):
            return ""
        if path.is_file():
            return "is a file, not a run; open policy files with mpies.Policy.load"
        if below := name_run_below(path):
            return f"is a folder with runs; give the directory of a run{below}"
        problem = "contains no run" if path.is_dir() else "there is no such directory"
    except OSError as error:  # such as another user's folder
        problem = f"cannot be read ({error.strerror})"
    return f"{problem}; give the directory of a run"


def load(path: str | Path, trust: bool = False) -> Run:
    """The run in a directory, also while it goes on and after it was killed.  Raises RunError where there is none.

    trust: whether code that its config names may run, also where it was not trained here (docs/policies.md).
    """
    return Run(path, trust=trust)


def list_runs(folder: str | Path = "runs") -> list[Run]:
    """The runs below a folder, by name.  Raises RunError where there is no such folder."""
    place = absolute(read_path("the folder of runs", folder, RunError))
    if not os.path.isdir(place):  # false for a name that no folder can have
        raise RunError(f"{folder}: there is no such folder; give the one that contains your runs")
    return [Run(place / name) for name in find_runs(place) if is_run(place / name)]
