"""What several commands share: arguments and options, and how a command ends."""

import contextlib
import errno
import functools
import math
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn, ParamSpec

import click
from click.core import ParameterSource

from mpies.core.errors import FAILED, FINISHED, USER_ERROR, ConfigError, UserError, explain_os_error
from mpies.core.interrupt import interruptible
from mpies.core.text import escape, one_line

Arguments = ParamSpec("Arguments")
Decorator = Callable[[Callable[..., None]], Callable[..., None]]


class NumberRange(click.FloatRange):
    """A number in a range, and not NaN, which click takes to be in every one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return number


class Ranks(click.IntRange):
    """A number of ranks, or auto: as many as there are processors that this process may use."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if value == "auto":
            from mpies.comm.limits import find_limits

            pinned, quota = len(os.sched_getaffinity(0)), find_limits()[1]
            return max(1, int(min(pinned, quota or pinned)))
        return int(super().convert(value, param, ctx))


# How many of something: ranks, episodes, generations.  mpirun and NumPy take no larger numbers.
COUNT = click.IntRange(1, 10_000_000)
RANKS = Ranks(1, 10_000_000)
PATH = click.Path()  # for which shells offer files
CONFIG = click.argument("config", type=PATH)
OPTIONAL_CONFIG = click.argument("config", type=PATH, required=False)
RUN = click.argument("run", type=PATH)
RUNS = click.argument("runs", type=PATH, nargs=-1, required=True, metavar="RUN...")
POLICY = click.argument("policy", type=PATH)
OVERRIDES = click.argument("overrides", nargs=-1, metavar="[KEY=VALUE ...]")
HOST_OPTIONS: list[Decorator] = [
    click.option(
        "--hosts",
        metavar="H1:8,H2:8",
        help="Start this many ranks on each of these hosts; slurm: on the hosts of this job.",
    ),
    click.option("--hostfile", metavar="FILE", help="A file with lines NAME slots=N, or a program that prints them."),
    click.option(
        "--min-ranks", type=COUNT, default=1, help="If hosts are lost, continue with at least this many ranks."
    ),
    click.option(
        "--wait", type=NumberRange(0), default=0.0, help="Seconds to wait for the hosts to answer before a start."
    ),
    click.option(
        "--restarts",
        type=click.IntRange(0),
        default=100,
        help="How many times to start the ranks again if they end early.",
    ),
    click.option(
        "--launcher",
        type=click.Choice(["auto", "srun", "srun:pmix", "srun:pmi2", "mpirun"]),
        default="auto",
        help="With --hosts slurm: what starts the ranks of a Slurm job.",
    ),
]
SWEEP_OPTIONS: list[Decorator] = [
    click.option("--seeds", metavar="N|A..B", help="Train each of the settings with seeds 1 to N, or A to B."),
    click.option("--trials", type=COUNT, help="Number of settings to draw, if values are random."),
    click.option("--draw-seed", type=click.IntRange(0), help="Seed of the values that are drawn.  [default: 1]"),
    click.option(
        "--halving",
        metavar="first=N,eta=3",
        help="Train all settings for N steps, the best 1/eta of them further, and so on.",
    ),
    click.option("--sampler", metavar="kind=tpe,batch=N", help="Have Optuna propose --trials settings in batches."),
]


def _trust(context: click.Context, parameter: click.Parameter, is_given: bool) -> None:
    if is_given:
        from mpies.config.trust import trusting

        context.with_resource(trusting())


TRUST = click.option(
    "--trust",
    is_flag=True,
    expose_value=False,
    callback=_trust,
    help="Run the code that its config names, also where it was not trained here (docs/policies.md).",
)


def add_options(command: Callable[..., None], options: Sequence[Decorator]) -> Callable[..., None]:
    """A command with these options, in this order."""
    for option in reversed(options):
        command = option(command)
    return command


def refuse_given(names: Iterable[str], reason: str) -> None:
    """Raise ConfigError, `OPTION reason`, where one of these parameters is given, since it would have no effect."""
    context = click.get_current_context()
    for parameter in context.command.params:
        name = parameter.name or ""
        if name in names and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise ConfigError(f"{parameter.opts[0]} {reason}")


def host_options(command: Callable[..., None]) -> Callable[..., None]:
    """A command with the options that say on which hosts ranks are started; it gets them as one argument, `where`."""

    @functools.wraps(command)
    def run(*args: Any, hosts: str | None, hostfile: str | None, **kwargs: Any) -> None:
        from mpies.launch.hosts import Where

        for option, value in (("--hosts", hosts), ("--hostfile", hostfile)):
            if value == "":  # as of a variable that is not set; without hosts, one rank would train
                raise ConfigError(f"{option} is empty; name the hosts, or leave it out")
        if not (hosts or hostfile):
            refuse_given(("min_ranks", "wait", "launcher"), "needs several hosts: --hosts or --hostfile")
            if kwargs.get("ranks") is None:
                refuse_given(("restarts",), "needs ranks to start: --ranks, --hosts or --hostfile")
        elif hosts != "slurm":
            refuse_given(("launcher",), "needs --hosts slurm; leave it out")
        rest = {name: kwargs.pop(name) for name in ("min_ranks", "wait", "restarts", "launcher")}
        command(*args, where=Where(hosts, hostfile, **rest), **kwargs)

    return add_options(user_errors(run), HOST_OPTIONS)


def sweep_options(command: Callable[..., None]) -> Callable[..., None]:
    """A command with the options that describe a sweep; it gets them as one argument, `options`."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        from mpies.sweeps.trials import SweepOptions

        given = {name: kwargs.pop(name) for name in ("seeds", "trials", "draw_seed", "halving", "sampler")}
        command(*args, options=SweepOptions(**given), **kwargs)

    return add_options(user_errors(run), SWEEP_OPTIONS)


LOG_FORMAT = click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    envvar="MPIES_LOG",
    show_envvar=True,
    default="text",
    help="json: one JSON object per line, with its severity, for log viewers.",
)


def user_errors(command: Callable[Arguments, None]) -> Callable[Arguments, None]:
    """A command that prints a user's error as one line on standard error and ends with exit code 2.

    Ctrl-C ends it, whatever the environment makes of KeyboardInterrupt.
    """

    @functools.wraps(command)
    def run(*args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
        try:
            with interruptible():
                command(*args, **kwargs)
        except UserError as error:
            end_with_error(str(error), USER_ERROR)
        except MemoryError as error:
            end_with_error(f"there is not enough memory ({error}); see mpies check for what a run needs", FAILED)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT) and error.filename is None:
                end_with_error(f"the output cannot be written ({error.strerror}); make room", FAILED)
            if error.filename is None or isinstance(error, BrokenPipeError):
                raise
            end_with_error(explain_os_error(error), USER_ERROR)

    return run


def echo(text: object) -> None:
    """Print a text on standard output, with escapes for control characters, which the name of a file may hold."""
    click.echo(escape(str(text)))


def end_with_error(message: str, code: int) -> NoReturn:
    """End the process with this exit code and a line on standard error."""
    with contextlib.suppress(OSError):  # standard error may be full or closed
        click.echo(f"mpies: {one_line(message)}", err=True)
    sys.exit(code)


def end(is_good: bool) -> NoReturn:
    """End the process with exit code 0 where the answer of a command is good, else 1."""
    sys.exit(FINISHED if is_good else FAILED)
