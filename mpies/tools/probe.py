"""Find out whether the episodes of an environment are reproducible, and whether it leaks memory.

Episodes are played in a new instance, in a used one, in one that is rebuilt for each episode, and in another process.
"""

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from mpies.config.loading import load_config, validate_config
from mpies.config.schema import EnvironmentSection
from mpies.envs.base import VectorEnv
from mpies.envs.probe import SEED, memory_growth, trace, trace_used
from mpies.errors import ConfigError
from mpies.training.task import make_task_env

SEEDS = (SEED, SEED + 1)
SHORT = 20  # steps of the episodes over which the memory is watched: leaks happen at resets
REPRODUCIBLE, WHEN_REBUILT, NOT_REPRODUCIBLE = "reproducible", "reproducible when rebuilt", "not reproducible"

PlayTrace = Callable[[VectorEnv, int, int], str]  # of (environment, seed, steps)


@dataclass(frozen=True)
class Probe:
    """What was measured of an environment.

    fresh, elsewhere, used, rebuilt: traces of the same episodes in a new instance, in another process, after other
    episodes, and after other episodes in an instance that is rebuilt for each.
    growth: bytes by which the memory grew, None if it was not measured.
    """

    backend: str
    fresh: list[str]
    elsewhere: list[str]
    used: list[str]
    rebuilt: list[str]
    growth: int | None

    @property
    def verdict(self) -> str:
        """REPRODUCIBLE, WHEN_REBUILT or NOT_REPRODUCIBLE."""
        if not self.fresh == self.elsewhere == self.rebuilt:
            return NOT_REPRODUCIBLE
        return REPRODUCIBLE if self.used == self.fresh else WHEN_REBUILT


def section_of(environment: str) -> EnvironmentSection:
    """The EnvironmentSection of an id or of a config file.  Raises ConfigError for a function."""
    is_file = Path(environment).suffix in (".yaml", ".yml")
    config = load_config(environment) if is_file else validate_config({"environment": {"id": environment}}, environment)
    if config.environment.function is not None:
        raise ConfigError(f"{environment}: is a function of parameters, which has no episodes to probe")
    return config.environment


def play_traces(section: EnvironmentSection, play: PlayTrace, steps: int, rebuild: bool) -> list[str]:
    """The trace of each of SEEDS, each in an environment of its own.  steps: of an episode, at most."""
    traces = []
    for seed in SEEDS:
        env = make_task_env(section, rebuild)
        traces.append(play(env, seed, steps))
        env.close()
    return traces


def probe(environment: str, steps: int, episodes: int) -> Probe:
    """Probe an environment.

    environment: an id or the path of a config.  steps: of an episode, at most.
    episodes: over which the memory is watched; 0 does not measure it.
    """
    section = section_of(environment)
    command = [sys.executable, "-m", "mpies", "probe", "--fresh", "--steps", str(steps), environment]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        fresh = play_traces(section, trace, steps, rebuild=False)
        used = play_traces(section, trace_used, steps, rebuild=False)
        rebuilt = play_traces(section, trace_used, steps, rebuild=True)
        elsewhere = other.communicate()[0].split()
    env = make_task_env(section.model_copy(update={"rebuild_every": None}), rebuild=used != fresh)
    growth = memory_growth(env, episodes, min(steps, SHORT)) if episodes else None
    env.close()
    return Probe(env.backend, fresh, elsewhere, used, rebuilt, growth)


def print_probes(environments: Sequence[str], steps: int, episodes: int, markdown: bool, fresh: bool) -> bool:
    """Probe environments and print a line for each.

    markdown: print a table.  fresh: print the traces of a new instance only, for the other process of `probe`.
    Returns whether all are reproducible, at least when rebuilt.
    """
    if markdown:
        click.echo(f"| environment | backend | episodes are | memory, {episodes:,} episodes |\n|---|---|---|---|")
    are_reproducible = True
    for environment in environments:
        if fresh:
            click.echo(" ".join(play_traces(section_of(environment), trace, steps, rebuild=False)))
            continue
        result = probe(environment, steps, episodes)
        are_reproducible = are_reproducible and result.verdict != NOT_REPRODUCIBLE
        growth = "not measured" if result.growth is None else f"{result.growth / 2**20:+.1f} MB"
        if markdown:
            click.echo(f"| `{environment}` | {result.backend} | {result.verdict} | {growth} |")
        else:
            click.echo(
                f"{environment} ({result.backend}): {result.verdict}; memory over {episodes:,} episodes {growth}"
            )
    return are_reproducible
