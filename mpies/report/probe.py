"""Find out whether the episodes of an environment are reproducible, and whether it leaks memory.

Episodes are played in a new instance, in a used one, in one that is rebuilt for each episode, and in another process.
"""

import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

import click

from mpies.config.environment import EnvironmentSection
from mpies.config.loading import load_config, validate_config
from mpies.config.recipes import find_recipes
from mpies.core.errors import ConfigError, EnvironmentProblem
from mpies.core.paths import start_folder
from mpies.core.text import counted
from mpies.envs.base import VectorEnv
from mpies.envs.trial import SEED, memory_growth, seeds_do_nothing, trace, trace_used
from mpies.runs.directory import find_backend, with_backend
from mpies.training.task import find_endless_episodes, make_task_env

SEEDS = (SEED, SEED + 1)
SHORT = 20  # steps of the episodes over which the memory is watched: leaks happen at resets
REPRODUCIBLE, WHEN_REBUILT, NOT_REPRODUCIBLE = "reproducible", "reproducible when rebuilt", "not reproducible"
FAILING = "every episode fails"

PlayTrace = Callable[[VectorEnv, int, int, list[str]], str]  # of (environment, seed, steps, failures)


@dataclass(frozen=True)
class Probe:
    """What was found out about an environment.

    verdict: REPRODUCIBLE, WHEN_REBUILT, NOT_REPRODUCIBLE or FAILING.
    failures: the messages of episodes that failed.  growth: bytes by which the memory grew, None if not measured.
    has_one_episode: whether different seeds gave the same episode.  endless: a warning if episodes do not end, or ''.
    """

    backend: str
    verdict: str
    failures: Sequence[str] = ()
    growth: int | None = None
    has_one_episode: bool = False
    endless: str = ""


def judge(fresh: list[str], elsewhere: list[str], used: list[str], rebuilt: list[str]) -> str:
    """The verdict on traces of the same episodes: in a new instance, in another process, and after other episodes.

    used, rebuilt: both after other episodes, the latter in an instance that is rebuilt for each.
    """
    if not fresh == elsewhere == rebuilt:
        return NOT_REPRODUCIBLE
    return REPRODUCIBLE if used == fresh else WHEN_REBUILT


def section_of(environment: str) -> EnvironmentSection:
    """The EnvironmentSection of an id, a config file or a recipe's name.  Raises ConfigError for a function."""
    is_config = Path(environment).suffix in (".yaml", ".yml") or environment in find_recipes()
    section = {"environment": {"id": environment}}
    config = load_config(environment, trains=False) if is_config else validate_config(section, environment)
    if config.environment.function is not None:
        raise ConfigError(f"{environment}: is a function of parameters, which has no episodes to probe")
    return with_backend(config, find_backend(None, config)).environment


def play_traces(
    section: EnvironmentSection, play: PlayTrace, steps: int, rebuild: bool, failures: list[str]
) -> list[str]:
    """The trace of each of SEEDS, each in an environment of its own.  failures: gets what went wrong."""
    traces = []
    for seed in SEEDS:
        with closing(make_task_env(section, rebuild)) as env:
            traces.append(play(env, seed, steps, failures))
    return traces


def probe(environment: str, steps: int, episodes: int) -> Probe:
    """Probe an environment.

    environment: an id or the path of a config.  steps: of an episode, at most.
    episodes: over which the memory is watched; 0 does not measure it.
    Raises EnvironmentProblem where the other process does not play to its end.
    """
    section = section_of(environment)
    with closing(make_task_env(section, rebuild=False)) as env:
        backend = env.backend
        try:
            env.try_out()
        except EnvironmentProblem as error:
            return Probe(backend, FAILING, [str(error).removeprefix(f"{section.id}: ")])
    failures: list[str] = []
    command = [sys.executable, "-P", "-m", "mpies", "probe", "--fresh", "--steps", str(steps), environment]
    # The environment may print anything.
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, errors="replace", cwd=start_folder()
    ) as other_process:
        try:
            printed = None
            if section.instances_per == "node":  # the two processes must not play at the same time
                printed = other_process.communicate()[0]
            fresh = play_traces(section, trace, steps, False, failures)
            used = play_traces(section, trace_used, steps, False, failures)
            rebuilt = play_traces(section, trace_used, steps, True, failures)
            printed = other_process.communicate()[0] if printed is None else printed
        finally:
            other_process.kill()
    if other_process.returncode:
        raise EnvironmentProblem(
            f"{environment}: works in this process, but another one that played it ended with exit code "
            f"{other_process.returncode}; what it wrote says why"
        )
    if len(failures) == len(fresh + used + rebuilt):
        return Probe(backend, FAILING, failures)
    elsewhere = re.findall(r"\b[0-9a-f]{64}\b", printed)[-len(SEEDS) :]
    growth = None
    if episodes:
        lasting = section.model_copy(update={"rebuild_every": None})
        with closing(make_task_env(lasting, rebuild=used != fresh)) as env:
            growth = memory_growth(env, episodes, min(steps, SHORT))
    with closing(make_task_env(section, rebuild=False)) as env:
        has_one_episode = seeds_do_nothing(env, steps)
    verdict, endless = judge(fresh, elsewhere, used, rebuilt), find_endless_episodes(section)
    return Probe(backend, verdict, failures, growth, has_one_episode, endless)


def print_traces(environment: str, steps: int) -> None:
    """Print the traces of a new instance, for the process that runs `probe`."""
    with suppress(KeyboardInterrupt):  # that process reports it
        click.echo("\n" + " ".join(play_traces(section_of(environment), trace, steps, False, [])))


def print_probes(environments: Sequence[str], steps: int, episodes: int) -> bool:
    """Probe environments and print a line for each.

    Returns whether all are reproducible, at least when rebuilt, and can be played.
    """
    are_reproducible = True
    for environment in environments:
        found = probe(environment, steps, episodes)
        are_reproducible = are_reproducible and found.verdict not in (NOT_REPRODUCIBLE, FAILING)
        line = f"{environment} ({found.backend}): {found.verdict}"
        if found.verdict == FAILING:
            click.echo(f"{line}: {found.failures[0]}")
            continue
        some = f"; {len(found.failures)} of its episodes fail: {found.failures[0]}" if found.failures else ""
        some += "; different seeds give the same episode" if found.has_one_episode else ""
        memory = "memory not measured"
        if found.growth is not None:
            memory = f"memory over {counted(episodes, 'episode')} {found.growth / 2**20:+.1f} MB"
        click.echo("\n".join(filter(None, [f"{line}; {memory}{some}", found.endless])))
    return are_reproducible
