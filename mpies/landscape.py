"""Where a search went: the means of all generations in two dimensions, and the return around the last one."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mpies import ledger
from mpies.config import ConfigError
from mpies.evaluate import HELD_OUT
from mpies.plots import WIDE, image, new_figure, write_file
from mpies.replay import Replay
from mpies.rollouts import Work, play_alone
from mpies.task import Task
from solvers.streams import PICTURES, stream

POINTS = 400  # means that are kept at most, evenly over the run
MEMBERS = 4  # of each of these generations


@dataclass(frozen=True)
class Trajectory:
    """means: (p, d) with generations (p,) and their members' mean return (p,); members: (m, d) with returns (m,)."""

    replay: Replay  # after the last generation
    generations: np.ndarray
    means: np.ndarray
    mean_returns: np.ndarray
    members: np.ndarray
    returns: np.ndarray


def follow(path):
    """The Trajectory of a run, rebuilt from its first checkpoint and its ledger, without an environment."""
    path = Path(path)
    replay = Replay(path, 0)
    records = [record for record, _ in ledger.read(path / "ledger.bin")]
    if len(records) < 3:
        raise ConfigError(f"{path}: a trajectory needs at least 3 generations, but the ledger has {len(records)}")
    kept = set(np.linspace(0, len(records) - 1, min(len(records), POINTS), dtype=int))
    solver, seed = replay.solver, replay.config.seed
    means, mean_returns, members, returns = [], [], [], []
    for number, record in enumerate(records):
        if number in kept:
            means.append(solver.mean.copy())
            mean_returns.append(np.nanmean(record["returns"]))
            first = record["returns"][: replay.config.solver.members(solver.dimension)]
            proposal, indices = replay.propose(), replay.indices(0)
            for member in stream(seed, PICTURES, number).choice(len(first), min(MEMBERS, len(first)), replace=False):
                members.append(np.empty(solver.dimension, np.float32))
                solver.write(proposal, indices, int(member), members[-1])
                returns.append(first[member])
        replay.repeat(record)
    means.append(solver.mean.copy())
    mean_returns.append(np.nan)  # nobody has played around it
    generations = np.array([*sorted(kept), len(records)])
    return Trajectory(replay, generations, *map(np.array, (means, mean_returns, members, returns)))


def principal_axes(means):
    """Two orthonormal directions (2, d) along which the means (p, d) lie widest, and the share of variance of each."""
    centred = means - means.mean(axis=0)
    values, vectors = np.linalg.eigh(centred @ centred.T)  # (p, p): there are fewer means than parameters, mostly
    values, vectors = values[::-1][:2], vectors[:, ::-1][:, :2]
    axes = (centred.T @ vectors).T
    return axes / np.linalg.norm(axes, axis=1, keepdims=True), values / np.trace(centred @ centred.T)


def embed(points, seed):
    """Points (n, d) in two dimensions (n, 2), by UMAP."""
    try:
        from umap import UMAP
    except ImportError:
        raise ConfigError('--umap needs a package that is not installed: pip install "mpies[umap]"') from None
    return UMAP(n_components=2, random_state=seed, n_jobs=1).fit_transform(points)


def draw_trajectory(trajectory, places, labels, width=WIDE):
    """The path of the means and the members beside it, coloured by return.  places: (p + m, 2)."""
    config = trajectory.replay.config
    figure, axes = new_figure(width, f"{config.environment.id}, {config.solver.kind}: where the search went")
    count = len(trajectory.means)
    path, beside = places[:count], places[count:]
    everything = np.concatenate([trajectory.mean_returns, trajectory.returns])
    low, high = np.nanpercentile(everything, [5, 95])
    shades = {"cmap": "viridis", "vmin": low, "vmax": max(high, low + 1e-9)}
    axes.scatter(*beside.T, c=trajectory.returns, s=7, alpha=0.6, linewidths=0, **shades)
    axes.plot(*path.T, color="black", linewidth=0.8)
    shown = axes.scatter(
        *path[:-1].T, c=trajectory.mean_returns[:-1], s=22, edgecolors="black", linewidths=0.4, **shades
    )
    around = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.8}
    for name, place in (("start", path[0]), ("end", path[-1])):
        axes.annotate(name, place, textcoords="offset points", xytext=(7, 7), fontweight="bold", bbox=around)
    figure.colorbar(shown, label="return of an episode", extend="both")
    axes.set_xlabel(labels[0])
    axes.set_ylabel(labels[1])
    return figure


def slice_returns(trajectory, axes, grid, episodes):
    """Mean return (grid, grid), of held-out episodes, on the plane of `axes` (2, d) through the last mean.

    Returns the places along each axis (2, grid), which reach as far as the means went, and the returns.
    """
    replay, config = trajectory.replay, trajectory.replay.config
    task, final = Task(config), trajectory.means[-1]
    reach = np.abs((trajectory.means - final) @ axes.T).max(axis=0)
    steps = np.linspace(-1.1, 1.1, grid)[None] * np.maximum(reach, 1e-6)[:, None]
    normalization = replay.normalizer().mean_and_deviation() if task.observation_size else None
    episodes = episodes if task.policy else 1
    seeds = np.tile(task.evaluation_seeds(HELD_OUT, 0, episodes), grid * grid)  # the same luck for all

    def write(rollout, out):
        row, column = divmod(rollout // episodes, grid)
        out[:] = final + steps[0, column] * axes[0] + steps[1, row] * axes[1]

    count = len(seeds)
    work = Work(seeds, np.zeros(count, bool), write, np.zeros((count, 0)))
    rows, _ = play_alone(task.player, work, normalization)
    return steps, rows["total"].reshape(grid, grid, episodes).mean(axis=2)


def draw_slice(trajectory, axes, steps, returns, episodes, width=WIDE):
    """The return surface around the last mean, and the path that led there as it lies above this plane."""
    config = trajectory.replay.config
    figure, plane = new_figure(
        width,
        f"{config.environment.id}: return around the final mean, {episodes} held-out episode{'s' * (episodes > 1)}",
    )
    shown = plane.contourf(*steps, returns, levels=15, cmap="viridis")
    path = (trajectory.means - trajectory.means[-1]) @ axes.T
    plane.plot(*path.T, color="white", linewidth=1.5)
    plane.plot(*path.T, color="black", linewidth=0.7, label="path of the mean, projected")
    plane.plot(
        0, 0, marker="*", color="white", markeredgecolor="black", markersize=13, linestyle="", label="final mean"
    )
    figure.colorbar(shown, label="mean return of an episode")
    plane.set_xlabel("along the first axis (parameters)")
    plane.set_ylabel("along the second axis (parameters)")
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    return figure


def write_landscape(path, umap, grid, episodes, width=WIDE):
    """Write trajectory.png and landscape.png into a run, with `umap` trajectory_umap.png too; yields their paths."""
    trajectory, path = follow(path), Path(path)
    everything = np.concatenate([trajectory.means, trajectory.members])
    axes, shares = principal_axes(trajectory.means)
    labels = [f"principal axis {number} ({share:.0%} of the way)" for number, share in zip((1, 2), shares, strict=True)]
    views = {"trajectory.png": ((everything - trajectory.means[-1]) @ axes.T, labels)}
    if umap:
        views["trajectory_umap.png"] = (embed(everything, trajectory.replay.config.seed), ["UMAP 1", "UMAP 2"])
    for name, (places, labels) in views.items():
        write_file(path / name, image(draw_trajectory(trajectory, places, labels, width)))
        yield path / name
    surface = slice_returns(trajectory, axes, grid, episodes)
    write_file(path / "landscape.png", image(draw_slice(trajectory, axes, *surface, episodes, width)))
    yield path / "landscape.png"
