"""Find out whether the episodes of an environment are reproducible, and whether it leaks memory.

Episodes are played in a new instance, in a used one, in one that is rebuilt for each episode, and in another process.
"""

import contextlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from mpies.config.loading import load_config, validate_config
from mpies.config.recipes import find_recipes
from mpies.config.schema import EnvironmentSection
from mpies.core.errors import ConfigError, EnvironmentProblem
from mpies.core.paths import start_folder
from mpies.core.text import counted
from mpies.envs.base import VectorEnv
from mpies.envs.probe import SEED, memory_growth, trace, trace_used
from mpies.training.task import make_task_env

SEEDS = (SEED, SEED + 1)
SHORT = 20  # steps of the episodes over which the memory is watched: leaks happen at resets
REPRODUCIBLE, WHEN_REBUILT, NOT_REPRODUCIBLE = "reproducible", "reproducible when rebuilt", "not reproducible"
FAILING = "every episode fails"

PlayTrace = Callable[[VectorEnv, int, int, list[str]], str]  # of (environment, seed, steps, failures)


@dataclass(frozen=True)
class Probe:
    """What was measured of an environment.

    fresh, elsewhere, used, rebuilt: traces of the same episodes in a new instance, in another process, after other
    episodes, and after other episodes in an instance that is rebuilt for each.
    growth: bytes by which the memory grew, None if it was not measured.
    failures: the messages of episodes that failed, of the three lists `fresh`, `used` and `rebuilt`.
    problem: what makes every episode fail; '' where one works.
    """

    backend: str
    fresh: list[str]
    elsewhere: list[str]
    used: list[str]
    rebuilt: list[str]
    growth: int | None
    failures: Sequence[str] = ()
    problem: str = ""

    @property
    def verdict(self) -> str:
        """REPRODUCIBLE, WHEN_REBUILT, NOT_REPRODUCIBLE or FAILING."""
        if self.problem:
            return FAILING
        if not self.fresh == self.elsewhere == self.rebuilt:
            return NOT_REPRODUCIBLE
        return REPRODUCIBLE if self.used == self.fresh else WHEN_REBUILT


def section_of(environment: str) -> EnvironmentSection:
    """The EnvironmentSection of an id, a config file or a recipe's name.  Raises ConfigError for a function."""
    is_config = Path(environment).suffix in (".yaml", ".yml") or environment in find_recipes()
    section = {"environment": {"id": environment}}
    config = load_config(environment) if is_config else validate_config(section, environment)
    if config.environment.function is not None:
        raise ConfigError(f"{environment}: is a function of parameters, which has no episodes to probe")
    return config.environment


def play_traces(
    section: EnvironmentSection, play: PlayTrace, steps: int, rebuild: bool, failures: list[str]
) -> list[str]:
    """The trace of each of SEEDS, each in an environment of its own.

    steps: of an episode, at most.  failures: gets the messages of those that fail.
    """
    traces = []
    for seed in SEEDS:
        env = make_task_env(section, rebuild)
        traces.append(play(env, seed, steps, failures))
        env.close()
    return traces


def try_out(section: EnvironmentSection) -> tuple[str, str]:
    """The name of the backend, and what makes every episode of an environment fail; '' where nothing does."""
    env = make_task_env(section, rebuild=False)
    problem = ""
    try:
        env.try_out()
    except EnvironmentProblem as error:
        problem = str(error).removeprefix(f"{section.id}: ")
    env.close()
    return env.backend, problem


@contextlib.contextmanager
def other_process(environment: str, steps: int) -> Iterator["subprocess.Popen[str]"]:
    """A process that prints the traces of a new instance; it ends with the `with` block."""
    command = [sys.executable, "-m", "mpies", "probe", "--fresh", "--steps", str(steps), environment]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        errors="replace",  # the environment may print anything
        cwd=start_folder(),
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def probe(environment: str, steps: int, episodes: int) -> Probe:
    """Probe an environment.

    environment: an id or the path of a config.  steps: of an episode, at most.
    episodes: over which the memory is watched; 0 does not measure it.
    Raises EnvironmentProblem where the other process does not play to its end.
    """
    section = section_of(environment)
    backend, problem = try_out(section)
    if problem:
        return Probe(backend, [], [], [], [], None, problem=problem)
    failures: list[str] = []
    with other_process(environment, steps) as other:
        printed = None
        if section.instances_per == "node":  # the two processes must not play at the same time
            printed = other.communicate()[0]
        fresh = play_traces(section, trace, steps, False, failures)
        used = play_traces(section, trace_used, steps, False, failures)
        rebuilt = play_traces(section, trace_used, steps, True, failures)
        printed = other.communicate()[0] if printed is None else printed
    if other.returncode:
        raise EnvironmentProblem(
            f"{environment}: works in this process, but another one that played it ended with exit code "
            f"{other.returncode}; what it wrote says why"
        )
    elsewhere = re.findall(r"\b[0-9a-f]{64}\b", printed)[-len(SEEDS) :]  # the environment may print, too
    if len(failures) == len(fresh + used + rebuilt):
        return Probe(backend, fresh, elsewhere, used, rebuilt, None, failures, problem=failures[0])
    env = make_task_env(section.model_copy(update={"rebuild_every": None}), rebuild=used != fresh)
    growth = memory_growth(env, episodes, min(steps, SHORT)) if episodes else None
    env.close()
    return Probe(backend, fresh, elsewhere, used, rebuilt, growth, failures)


def print_probes(environments: Sequence[str], steps: int, episodes: int, markdown: bool, fresh: bool) -> bool:
    """Probe environments and print a line for each.

    markdown: print a table.  fresh: print the traces of a new instance only, for the other process of `probe`.
    Returns whether all are reproducible, at least when rebuilt, and can be played.
    """
    if markdown:
        click.echo(f"| environment | backend | episodes are | memory, {episodes:,} episodes |\n|---|---|---|---|")
    are_reproducible = True
    for environment in environments:
        if fresh:
            with contextlib.suppress(KeyboardInterrupt):  # the process that started this one reports it
                click.echo("\n" + " ".join(play_traces(section_of(environment), trace, steps, False, [])))
            continue
        result = probe(environment, steps, episodes)
        are_reproducible = are_reproducible and result.verdict not in (NOT_REPRODUCIBLE, FAILING)
        growth = None if result.growth is None else f"{result.growth / 2**20:+.1f} MB"
        if markdown:
            click.echo(f"| `{environment}` | {result.backend} | {result.verdict} | {growth or 'not measured'} |")
        elif result.problem:
            click.echo(f"{environment} ({result.backend}): {result.verdict}: {result.problem}")
        else:
            some = f"; {len(result.failures)} of its episodes fail: {result.failures[0]}" if result.failures else ""
            memory = f"memory over {counted(episodes, 'episode')} {growth}" if growth else "memory not measured"
            click.echo(f"{environment} ({result.backend}): {result.verdict}; {memory}{some}")
    return are_reproducible
