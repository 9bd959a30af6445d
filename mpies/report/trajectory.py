"""The path of a search in two dimensions: the means of all generations, and the return around the last one."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from mpies.core.errors import RunError, import_extra
from mpies.core.streams import PICTURES, stream
from mpies.core.text import counted
from mpies.report.compare.curves import Floats
from mpies.report.evaluate import HELD_OUT
from mpies.report.figures import WIDE, new_panels, paper_style, write_figure
from mpies.rollouts.batch import RolloutBatch
from mpies.rollouts.queue import play_alone
from mpies.runs.formats import ledger
from mpies.training.replay import Replay
from mpies.training.task import Task

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Parameters = npt.NDArray[np.float32]

MAX_MEANS = 400  # of the path, evenly spaced over the generations
MEMBERS = 4  # that are shown of each of these generations, unless the user wants another number


@dataclass(frozen=True)
class Trajectory:
    """The path of a run's mean, and some members beside it.

    replay: of the run, after its last generation.
    means: (p, d) after evenly spaced generations, the last one too.
    mean_returns: (p,) of the members that were sampled around each mean; NaN where all of them failed, and for the last
    one, around which none was sampled.
    members: (m, d).  returns: (m,) of each.
    """

    replay: Replay
    means: Parameters
    mean_returns: Floats
    members: Parameters
    returns: Floats


def read_trajectory(path: str | Path, shown_members: int = MEMBERS) -> Trajectory:
    """The Trajectory of a run, recomputed from its first checkpoint and its ledger.

    shown_members: of each generation, at most; of a generation of several populations, from the first one.
    Raises RunError for a run of fewer than three generations, or one whose mean never moved.
    """
    path = Path(path)
    replay = Replay(path)
    start = replay.generation
    records = list(ledger.read_records(path / "ledger.bin", after=start))
    if len(records) < 3:
        raise RunError(f"{path}: a trajectory needs at least 3 generations, but the ledger has {len(records)}")
    shown = sorted(set(np.linspace(0, len(records) - 1, min(len(records), MAX_MEANS), dtype=int).tolist()))
    learner, config = replay.learner, replay.config
    solver = learner.solver
    means: list[Parameters] = []
    mean_returns: list[float] = []
    members: list[Parameters] = []
    returns: list[float] = []
    for number in shown:
        generation, record = start + number, records[number]
        replay.run_until(generation)
        means.append(solver.mean.copy())
        works = np.isfinite(record["returns"])
        mean_returns.append(float(record["returns"][works].mean()) if works.any() else np.nan)
        candidates = record["returns"][: config.solver.members(solver.dimension)]  # the first population
        parts, indices = replay.next_parts(), solver.population_indices(generation, 0)
        random = stream(config.seed, PICTURES, generation)
        for member in random.choice(len(candidates), min(shown_members, len(candidates)), replace=False):
            members.append(np.empty(solver.dimension, np.float32))
            part = next(part for part in parts if part.start <= member < part.stop)
            solver.write(part.spec.proposal, indices, int(member), members[-1])
            returns.append(float(candidates[member]))
    replay.run_until(start + len(records))
    means.append(solver.mean.copy())
    if not np.isfinite(means).all():
        raise RunError(f"{path}: the mean has become NaN or infinite, so there is no trajectory to draw")
    if all((mean == means[0]).all() for mean in means):
        raise RunError(f"{path}: the mean has not moved in {len(records)} generations, so there is no trajectory")
    mean_returns.append(np.nan)
    return Trajectory(replay, np.array(means), np.array(mean_returns), np.array(members), np.array(returns))


def principal_axes(means: Parameters) -> tuple[Parameters, Parameters]:
    """The two orthonormal directions (2, d) of largest variance of the means (p, d), and their shares (2,) of it.

    Means on a straight line have only one such direction; the other one is 0.
    """
    centred = means - means.mean(axis=0)
    values, vectors = np.linalg.eigh(centred @ centred.T)  # (p, p): usually there are fewer means than parameters
    values, vectors = values[::-1][:2], vectors[:, ::-1][:, :2]
    axes = (centred.T @ vectors).T
    lengths = np.linalg.norm(axes, axis=1, keepdims=True)
    is_known = lengths > 1e-6 * lengths[0]
    return np.where(is_known, axes / np.where(is_known, lengths, 1), 0), values / np.trace(centred @ centred.T)


@paper_style()
def draw_trajectory(trajectory: Trajectory, points: Parameters, labels: Sequence[str], width: float = WIDE) -> "Figure":
    """A plot of the path of the means and of the members beside it, coloured by return.

    points: (p + m, 2) of the means and the members.  labels: of the two axes.
    """
    config = trajectory.replay.config
    figure, [axes] = new_panels(width, f"{config.environment.id}, {config.solver.kind}: where the search went")
    path, members = np.split(points, [len(trajectory.means)])
    low, high = np.nanpercentile(np.concatenate([trajectory.mean_returns, trajectory.returns]), [5, 95])
    colours: dict[str, Any] = {"cmap": "viridis", "vmin": low, "vmax": max(high, low + 1e-9)}
    x, y = members.T
    axes.scatter(x, y, c=trajectory.returns, s=7, alpha=0.6, linewidths=0, **colours)
    x, y = path.T
    axes.plot(x, y, color="black", linewidth=0.8)
    dots = axes.scatter(
        x[:-1], y[:-1], c=trajectory.mean_returns[:-1], s=22, edgecolors="black", linewidths=0.4, **colours
    )
    box = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.8}
    for name, point in (("start", path[0]), ("end", path[-1])):
        axes.annotate(name, point, textcoords="offset points", xytext=(7, 7), fontweight="bold", bbox=box)
    figure.colorbar(dots, label="return of an episode", extend="both")
    axes.set_xlabel(labels[0])
    axes.set_ylabel(labels[1])
    return figure


def play_slice(trajectory: Trajectory, axes: Parameters, grid: int, episodes: int) -> tuple[npt.NDArray[Any], Floats]:
    """Mean returns (grid, grid) of held-out episodes on the plane of `axes` (2, d) through the last mean.

    The plane reaches a tenth farther than the path of the means.  All points share their environment seeds.
    Returns the coordinates along each axis (2, grid), and the mean returns.
    """
    learner, final = trajectory.replay.learner, trajectory.means[-1]
    reach = np.abs((trajectory.means - final) @ axes.T).max(axis=0)
    steps = np.linspace(-1.1, 1.1, grid)[None] * np.maximum(reach, 1e-6)[:, None]

    def write(rollout: int, out: Parameters) -> Sequence[float]:
        """Write the parameters of a point of the grid; the points follow one another row by row."""
        row, column = divmod(rollout // episodes, grid)
        out[:] = final + steps[0, column] * axes[0] + steps[1, row] * axes[1]
        return ()

    with closing(Task(trajectory.replay.config, learner.constants)) as task:
        seeds = np.tile(task.evaluation_seeds(HELD_OUT, 0, episodes), grid * grid)
        batch = RolloutBatch(
            seeds=seeds,
            write=write,
            sampled=np.zeros(len(seeds), bool),
            normalization=learner.normalizer.mean_and_deviation() if task.observation_size else None,
        )
        rows, _ = play_alone(task.player, batch)
    return steps, rows["total"].reshape(grid, grid, episodes).mean(axis=2)


@paper_style()
def draw_slice(trajectory: Trajectory, axes: Parameters, grid: int, episodes: int, width: float = WIDE) -> "Figure":
    """A plot of the mean returns of `play_slice`, and of the path of the means projected onto its plane."""
    steps, returns = play_slice(trajectory, axes, grid, episodes)
    task, played = trajectory.replay.config.environment.id, counted(episodes, "held-out episode")
    figure, [plane] = new_panels(width, f"{task}: return around the final mean, {played}")
    contours = plane.contourf(steps[0], steps[1], returns, levels=15, cmap="viridis")
    x, y = ((trajectory.means - trajectory.means[-1]) @ axes.T).T
    plane.plot(x, y, color="white", linewidth=1.5)
    plane.plot(x, y, color="black", linewidth=0.7, label="path of the mean, projected")
    plane.plot(
        0, 0, marker="*", color="white", markeredgecolor="black", markersize=13, linestyle="", label="final mean"
    )
    figure.colorbar(contours, label="mean return of an episode")
    plane.set_xlabel("along the first axis (parameters)")
    plane.set_ylabel("along the second axis (parameters)")
    figure.legend(loc="outside lower center", ncols=2)
    return figure


def write_landscape(
    path: str | Path,
    with_umap: bool,
    grid: int,
    episodes: int,
    width: float = WIDE,
    formats: Sequence[str] = ("png",),
    shown_members: int = MEMBERS,
) -> Iterator[Path]:
    """Write trajectory.png and landscape.png into a run; yields the path of each file as soon as it is written.

    with_umap: also write trajectory_umap.png.  grid: points along each side of the slice.  episodes: at each point.
    formats: png, pdf or svg.  shown_members: of each generation.
    """
    trajectory, path = read_trajectory(path, shown_members), Path(path)
    points = np.concatenate([trajectory.means, trajectory.members])
    axes, shares = principal_axes(trajectory.means)
    labels = [
        f"principal axis {number} ({share:.0%} of the variance)" for number, share in zip((1, 2), shares, strict=True)
    ]
    plots = {"trajectory": ((points - trajectory.means[-1]) @ axes.T, labels)}
    if with_umap:
        umap = import_extra("umap", "--umap needs a package that is not installed", "umap")
        embedding = umap.UMAP(n_components=2, random_state=trajectory.replay.config.seed, n_jobs=1)
        plots["trajectory_umap"] = embedding.fit_transform(points), ["UMAP 1", "UMAP 2"]
    for name, (flat, labels) in plots.items():
        yield from write_figure(path / name, draw_trajectory(trajectory, flat, labels, width), formats)
    if trajectory.replay.config.environment.function is not None:  # it is evaluated once
        episodes = 1
    yield from write_figure(path / "landscape", draw_slice(trajectory, axes, grid, episodes, width), formats)
