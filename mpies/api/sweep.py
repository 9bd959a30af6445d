"""`mpies.sweep`: many runs whose settings vary, in this process, on all ranks of mpirun, or as a job of its own."""

import signal
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mpies.api.arguments import name_environment, read_mapping, read_optional_number, read_path
from mpies.api.job import Messages
from mpies.api.run import Run, load, make_frame
from mpies.api.train import ranks_of_this_job
from mpies.config.loading import as_plain, as_yaml
from mpies.config.mistakes import quoted
from mpies.config.schema import Config
from mpies.core.errors import FINISHED, REQUEUE, ConfigError
from mpies.core.paths import absolute, fixed_start_folder
from mpies.core.text import counted
from mpies.launch.sweep_job import supervise_sweep
from mpies.report.compare.ranking import Standing, rank_settings
from mpies.runs.files import default_out
from mpies.sweeps.folder import SweepFolder
from mpies.sweeps.table import ResultReader, print_result
from mpies.sweeps.train_sweep import SweepRequest, train_sweep
from mpies.sweeps.trials import SweepOptions, load_sweep, read_sweep

if TYPE_CHECKING:  # pandas is an extra, and takes long to import
    import pandas


@dataclass(frozen=True, repr=False)
class SweepResult:
    """What a sweep has found so far.

    path: of its folder.  standings: each of the settings with the results of its trials, the best first.
    """

    path: Path
    standings: list[Standing]

    def __repr__(self) -> str:
        finished = sum(result.is_finished for standing in self.standings for result in standing.results)
        return f"SweepResult({str(self.path)!r}, {counted(finished, 'trial')} finished, best: {self.best})"

    @property
    def best(self) -> dict[str, Any]:
        """The settings with the best mean evaluation; {} where no trial has finished."""
        first = self.standings[0] if self.standings else None
        return dict(first.settings) if first and first.rank else {}

    @property
    def trials(self) -> list[dict[str, Any]]:
        """Name, settings, seed, state and results of each trial, the best settings first."""
        rows = []
        for standing in self.standings:
            for result in standing.results:
                values = {key: value for key, value in asdict(result).items() if key != "trial"}
                trial = {"name": result.trial.name, **result.trial.settings, "seed": result.trial.seed}
                rows.append({**trial, **values, "rank": standing.rank or None})
        return rows

    def run(self, name: str) -> Run:
        """The run of a trial.  Raises RunError where it has not begun."""
        return load(self.path / name)

    def to_pandas(self) -> "pandas.DataFrame":
        """`trials` as a DataFrame.  Raises ConfigError without pandas."""
        return make_frame(self.trials)


def sweep(
    config: str | Path | Mapping[str, Any] | Config,
    vary: Mapping[str, Any] | None = None,
    *,
    seeds: int | str | Sequence[int] | None = None,
    trials: int | None = None,
    draw_seed: int | None = None,
    out: str | Path | None = None,
    halving: Mapping[str, Any] | None = None,
    sampler: Mapping[str, Any] | None = None,
    ranks: int | None = None,
    ranks_per_run: int | None = None,
    retry: bool = False,
    progress: bool = True,
) -> SweepResult:
    """Train a config once for each of the settings and each seed, or continue a sweep that exists.

    Each of these runs is a trial.  It returns when all trials have ended.  Ctrl-C, SIGTERM and SIGUSR1 stop the running
    ones after their current generation; after Ctrl-C it returns the results so far.  A trial that fails is recorded
    with its reason, and the others continue.

    config: the path of a YAML file or of a sweep file, a recipe's name, a mapping, or a Config.
    vary: keys such as "solver.sigma" to lists of values, which make a grid, or to distributions that `trials` values
    are drawn from: {"log_uniform": [0.01, 0.1]}, "uniform", "integer" (both ends included), or {"choice": [...]}.
    seeds: 5 for 1 to 5, "6..10", or a list; by default the config's own.  draw_seed: seed of what is drawn.
    out: the folder of the sweep; by default runs/NAME_sweep with the keys.
    halving: {"first": 100_000, "eta": 3} trains all settings for 100,000 steps, the best third of them for three times
    as many, and so on; the last ones to their end.  With "unit": "generations", `first` counts generations.
    sampler: {"kind": "tpe", "batch": 10} has Optuna propose `trials` settings, ten at a time; "cma" is the other kind.
    ranks: start a job of this many ranks with mpirun, and wait for its end.  ranks_per_run: how many of them train a
    run together; by default one, or, with fewer trials than ranks, as many as leave none idle.
    retry: whether failed trials are trained again.
    progress: whether to print a line for each trial that ends.

    Raises ConfigError before anything is trained, with all mistakes at once, and TrainingFailed where the ranks of a
    job end without a reason.

    >>> found = mpies.sweep("cartpole", {"solver.sigma": [0.05, 0.1]}, seeds=3)                   # doctest: +SKIP
    >>> found.best, found.to_pandas()                                                             # doctest: +SKIP
    """
    if not (vary is None or (isinstance(vary, Mapping) and all(isinstance(key, str) for key in vary))):
        example = 'vary must be a mapping such as {"solver.sigma": [0.1, 0.2]}'
        raise ConfigError(f"{example}, but is {quoted(as_plain(vary))}")
    ranks = read_optional_number("ranks", ranks, 1)
    ranks_per_run = read_optional_number("ranks_per_run", ranks_per_run, 1)
    trials, draw_seed = read_optional_number("trials", trials, 1), read_optional_number("draw_seed", draw_seed, 0)
    with fixed_start_folder():
        seeds = as_plain([*seeds] if isinstance(seeds, Iterable) and not isinstance(seeds, str) else seeds)
        options = SweepOptions(seeds, trials, draw_seed, as_plain(halving), as_plain(sampler))
        varied = as_plain(vary or {})
        if isinstance(config, str | Path):
            described = load_sweep(config, varied, options)
        else:
            values = read_mapping(config)
            values = values if "base" in values else {"base": values}
            described = read_sweep(values, "config", varied, options)
        name = str(config) if isinstance(config, str | Path) else name_environment(described.base)
        folder = str(read_path("out", out) if out else default_out(name, ["sweep", *described.vary]))
        report = print_result if progress else SweepRequest.report
        request = SweepRequest(lambda: described, folder, ranks_per_run, retry, report)
        if ranks is None:
            with ranks_of_this_job() as (comm, signals):
                train_sweep(comm, request, signals)
        else:
            _sweep_as_job(request, ranks, progress)
        found = ResultReader(SweepFolder(folder, described)).refresh()
        return SweepResult(absolute(folder), rank_settings(found))


def _sweep_as_job(request: SweepRequest, ranks: int, progress: bool) -> None:
    """Train on ranks of a job of its own.  Raises what the sweep does."""
    described = request.load()
    folder = SweepFolder(request.out, described)
    with tempfile.TemporaryDirectory(prefix="mpies-") as place:
        file = Path(place) / "sweep.yaml"
        file.write_text(as_yaml(described.as_values()))
        messages, output = Messages(), None if progress else subprocess.DEVNULL
        words = ["--", str(file)]
        supervisor = supervise_sweep(words, request, ranks, folder, output=output, write=messages.write)
        code = supervisor.run()
    for number in {*supervisor.received} - {signal.SIGINT}:  # it was meant for the whole process
        signal.raise_signal(number)
    if code not in (FINISHED, REQUEUE) and (messages.error or folder.count_left()):
        raise messages.failure(code)
