"""The command line: `mpies COMMAND ...`.

Commands import what they need when they run, so that `mpies --help` is fast and `limit_threads` comes before NumPy.
"""

import click

from mpies.cli import checks, launch, policies, results, scaling, train
from mpies.paths import fixed_start_folder
from mpies.threads import limit_threads


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="mpies")
@click.pass_context
def main(context: click.Context) -> None:
    """Train policies by evolution strategies: one YAML file, any number of ranks, the same bits."""
    limit_threads()
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
