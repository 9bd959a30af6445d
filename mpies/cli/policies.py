"""mpies evaluate, play, export: use a trained policy."""

import json
import re

import click

from mpies.cli.parameters import COUNT, POLICY, TRUST, echo, end, end_with_error, refuse_given, user_errors
from mpies.core.errors import FAILED, ConfigError

SEED = click.option(
    "--seed", type=click.IntRange(0), help="Seed of the held-out episodes; default the seed of the run."
)
STOCHASTIC = click.option(
    "--stochastic", is_flag=True, help="Draw actions as in training, by policy.action_noise or policy.sampling."
)
GENERATION = click.option(
    "--generation",
    type=click.IntRange(0),
    help="Instead, take the mean after this generation of a run; 0 is the first.",
)


@click.command()
@POLICY
@click.option("--episodes", default=100, type=COUNT, help="Number of held-out episodes.")
@SEED
@STOCHASTIC
@GENERATION
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on standard output.")
@TRUST
@user_errors
def evaluate(
    policy: str,
    episodes: int,
    seed: int | None,
    stochastic: bool,
    generation: int | None,
    as_json: bool,
) -> None:
    """Play a policy on held-out episodes and print its mean return.

    POLICY is a run directory, which stands for its best policy, a policy file, or the name of a recipe, whose trained
    policy comes with mpies.  Held-out episodes are never used in training.  Exit 1 if episodes fail.
    """
    from mpies.report.evaluate import describe_evaluation, evaluate_policy

    result = evaluate_policy(policy, episodes, seed, not stochastic, generation)
    echo(json.dumps(result) if as_json else describe_evaluation(result))
    end(not result["failures"])


@click.command()
@POLICY
@click.option("--video", metavar="FILE", help="Record to this .mp4 or .gif; without it, a window shows the episodes.")
@click.option("--episodes", default=1, type=COUNT, help="Number of episodes to show.")
@SEED
@STOCHASTIC
@GENERATION
@click.option("--member", metavar="G,K", help="Instead, play member K (from 0) of generation G (from 1) again.")
@TRUST
@user_errors
def play(
    policy: str,
    video: str | None,
    episodes: int,
    seed: int | None,
    stochastic: bool,
    generation: int | None,
    member: str | None,
) -> None:
    """Show or record episodes of a policy.

    POLICY is a run directory, also of a run in progress, which stands for its best policy, a policy file, or the name
    of a recipe.  With --member, play a recorded member of a run again; exit 1 if its return differs from the recorded
    one, or if episodes fail that --video should show.
    """
    if member is None:
        from mpies.report.evaluate import show_policy
        from mpies.runs.formats.metrics import format_return
        from mpies.training.replay import load_policy_of

        played = load_policy_of(policy, generation)
        listed = ", ".join(map(format_return, show_policy(played, episodes, seed, video, not stochastic)))
        echo(f"{video or policy}: generation {played.generation}, return {listed}")
        return
    refuse_given(("episodes", "seed", "stochastic", "generation"), "has no effect with --member; leave it out")
    found = re.fullmatch(r"0*([1-9][0-9]*),([0-9]+)", member)
    if not found:
        raise ConfigError(f"--member must be GENERATION,NUMBER such as 12,3, but is {member!r}")
    of_generation, number = map(int, found.groups())
    from mpies.report.evaluate import show_member

    recorded, replayed, failures = show_member(policy, of_generation, number, video)
    echo(
        f"{policy}: member {number} of generation {of_generation}: recorded {recorded:.6g}, played again {replayed:.6g}"
    )
    for episode, message in failures.items():
        echo(f"episode {episode}: {message}")
    if video and failures:
        end_with_error(f"{video}: not written, since episodes of this member failed; play another --member", FAILED)
    end(recorded == replayed or (recorded != recorded and replayed != replayed))  # NaN, where episodes failed


@click.command()
@POLICY
@click.option(
    "--to",
    metavar="FILE",
    required=True,
    help="File to write; its ending says the format: .npz, .onnx, or .py, which needs only NumPy.",
)
@TRUST
@user_errors
def export(policy: str, to: str) -> None:
    """Write a policy for other programs.

    POLICY is a run directory, which stands for its best policy, a policy file, or the name of a recipe.
    """
    from mpies.api.policy import Policy

    echo(f"{to}: {Policy.load(policy).export(to)}")
