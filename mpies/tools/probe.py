"""Is an environment reproducible: fresh, used, rebuilt and in another process; and does it fill the memory?"""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import click

from mpies.envs.probe import SEED, memory_growth, trace, trace_used
from mpies.errors import ConfigError
from mpies.config.loading import load_config, validate_config
from mpies.training.task import make_task_env

SEEDS = (SEED, SEED + 1)
SHORT = 20  # steps of the episodes over which the memory is watched: what leaks, leaks at resets
WORDS = ("reproducible", "reproducible when rebuilt", "not reproducible")


@dataclass(frozen=True)
class Probe:
    """What was found of an environment.

    fresh, elsewhere, used, rebuilt: traces of the same episodes in a new instance, in another process, after other
    episodes, and after those in an instance built anew.  growth: bytes, or None where it was not measured.
    """

    backend: str
    fresh: list
    elsewhere: list
    used: list
    rebuilt: list
    growth: int | None

    @property
    def verdict(self):
        """One of WORDS."""
        if not self.fresh == self.elsewhere == self.rebuilt:
            return WORDS[2]
        return WORDS[0] if self.used == self.fresh else WORDS[1]


def section_of(environment):
    """The EnvironmentSection of an id or of a config file.  Raises ConfigError for a function."""
    is_file = Path(environment).suffix in (".yaml", ".yml")
    config = load_config(environment) if is_file else validate_config({"environment": {"id": environment}}, environment)
    if config.environment.function is not None:
        raise ConfigError(f"{environment}: is a function of parameters, which has no episodes to probe")
    return config.environment


def traces(section, play, steps, rebuild):
    """The trace of each of SEEDS, each in a world of its own.  play: envs.probe.trace or trace_used."""
    found = []
    for seed in SEEDS:
        env = make_task_env(section, rebuild)
        found.append(play(env, seed, steps))
        env.close()
    return found


def probe(environment, steps, episodes):
    """Probe an id or the environment of a config.  Returns a Probe."""
    section = section_of(environment)
    command = [sys.executable, "-m", "mpies", "probe", "--fresh", "--steps", str(steps), environment]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        fresh = traces(section, trace, steps, False)
        used, rebuilt = (traces(section, trace_used, steps, rebuild) for rebuild in (False, True))
        elsewhere = other.communicate()[0].split()
    env = make_task_env(section.model_copy(update={"rebuild_every": None}), used != fresh)
    growth = memory_growth(env, episodes, min(steps, SHORT)) if episodes else None
    env.close()
    return Probe(env.backend, fresh, elsewhere, used, rebuilt, growth)


def print_probes(environments, steps, episodes, markdown, fresh):
    """Probe and print one after the other.  Returns whether all are reproducible, be it when rebuilt."""
    if markdown:
        click.echo(f"| environment | backend | episodes are | memory, {episodes:,} episodes |\n|---|---|---|---|")
    good = True
    for environment in environments:
        if fresh:
            click.echo(" ".join(traces(section_of(environment), trace, steps, False)))
            continue
        found = probe(environment, steps, episodes)
        good = good and found.verdict != WORDS[2]
        growth = "not measured" if found.growth is None else f"{found.growth / 2**20:+.1f} MB"
        if markdown:
            click.echo(f"| `{environment}` | {found.backend} | {found.verdict} | {growth} |")
        else:
            click.echo(f"{environment} ({found.backend}): {found.verdict}; memory over {episodes:,} episodes {growth}")
    return good
