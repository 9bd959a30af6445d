"""The command line: `mpies COMMAND ...`.

Commands import what they need when they run, so that `mpies --help` is fast and `limit_threads` comes before NumPy.
"""

import functools
import io
import sys
from collections.abc import Sequence
from typing import Any

import click

from mpies.cli import checks, launch, policies, results, scaling, train
from mpies.cli.options import end_with_error
from mpies.paths import fixed_start_folder
from mpies.threads import limit_threads


class OneLineErrors(click.Group):
    """A group of commands that explains a wrong use in one line, as commands explain a user's other mistakes."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        run = functools.partial(super().main, args, prog_name, complete_var, standalone_mode=False, **extra)
        if not standalone_mode:
            return run()
        try:
            sys.exit(run())  # the exit code of --help, otherwise None
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            sys.exit(error.exit_code)
        except click.ClickException as error:
            context = getattr(error, "ctx", None)
            name = context.command_path if context else "mpies"
            message = error.format_message().rstrip(".")
            end_with_error(f"{message[:1].lower()}{message[1:]}; see {name} --help", error.exit_code)
        except click.Abort:  # Ctrl-C
            click.echo("Aborted!", err=True)
            sys.exit(1)


@click.group(cls=OneLineErrors, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="mpies")
@click.pass_context
def main(context: click.Context) -> None:
    """Train policies by evolution strategies: one YAML file, any number of ranks, the same bits."""
    limit_threads()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # names of files may hold what is no character
    context.with_resource(fixed_start_folder())


for command in (
    *(train.train,),
    *(checks.check, checks.doctor, checks.probe, checks.verify),
    *(policies.evaluate, policies.play, policies.export),
    *(results.plot, results.report, results.compare, results.dashboard, results.replay, results.reproduce),
    *(scaling.bench, scaling.simulate),
    *(launch.launch,),
):
    main.add_command(command)
