"""The command line: `mpies COMMAND ...`.

Commands import what they need when they run, so that `mpies --help` is fast and `limit_threads` comes before NumPy.
"""

import functools
import io
import itertools
import os
import sys
from typing import Any

import click

from mpies.cli import checks, launch, policies, results, runs, scaling, sweep, train
from mpies.cli.parameters import end_with_error
from mpies.core.paths import fixed_start_folder
from mpies.core.threads import limit_threads


class Commands(click.Group):
    """The commands, under the headings of SECTIONS.

    A wrong use is explained in one line, as commands explain a user's other mistakes.
    """

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, self.commands))
        for heading, commands in SECTIONS.items():
            with formatter.section(heading):
                limit = formatter.width - 6 - width
                formatter.write_dl([(f"{c.name:{width}}", c.get_short_help_str(limit)) for c in commands])

    def main(self, *args: Any, **extra: Any) -> Any:
        try:
            run = functools.partial(super().main, *args, standalone_mode=False)
            sys.exit(run(**extra))  # the exit code of --help, otherwise None
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            sys.exit(error.exit_code)
        except click.ClickException as error:
            context = getattr(error, "ctx", None)
            name = context.command_path if context else "mpies"
            message = error.format_message().rstrip(".").replace(". Did you mean", "; did you mean")
            message = message.replace("is not a valid integer range", "is not a whole number")  # click's words
            message = message.replace("is not a valid float range", "is not a number")
            parameters = context.command.params if context else []
            if isinstance(error, click.NoSuchOption) and any(one.name == "overrides" for one in parameters):
                message += "; settings are KEY=VALUE, such as solver.sigma=0.05"
            text = f"{message[:1].lower()}{message[1:]}; see {name} --help"
            end_with_error(text.replace("?; s", "? S"), error.exit_code)
        except click.Abort:  # Ctrl-C
            click.echo("Aborted!", err=True)
            sys.exit(1)


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True},
    epilog="Begin with: mpies train cartpole --ranks 2",
)
@click.version_option(package_name="mpies")
@click.pass_context
def main(context: click.Context) -> None:
    """Train policies by evolution strategies: one YAML file, any number of ranks, the same bits."""
    limit_threads()
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:  # closed: the next file would take its place, and libraries would write into it
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # names of files may hold what is no character
    context.with_resource(fixed_start_folder())


SECTIONS = {
    "Train": (train.train, sweep.sweep, checks.check, results.recipes),
    "Look at runs": (runs.runs, results.dashboard, results.plot, results.compare, results.report),
    "Use a policy": (policies.evaluate, policies.play, policies.export),
    "Check what is reproducible": (checks.probe, checks.verify, results.replay, results.reproduce),
    "Machines and clusters": (checks.doctor, scaling.bench, scaling.simulate, launch.launch),
}
for command in itertools.chain(*SECTIONS.values()):
    main.add_command(command)
