"""mpies evaluate, play, export: use a trained policy."""

import json

import click

from mpies.cli.options import COUNT, POLICY, RUN, echo, end, parse_member, refuse_given, user_errors

SEED = click.option(
    "--seed", type=click.IntRange(0), help="Seed of the held-out episodes; default the seed of the run."
)
STOCHASTIC = click.option(
    "--stochastic", is_flag=True, help="Draw actions as in training, by policy.action_noise or policy.sampling."
)


@click.command()
@POLICY
@click.option("--episodes", default=100, show_default=True, type=COUNT, help="Number of held-out episodes.")
@SEED
@STOCHASTIC
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on standard output.")
@user_errors
def evaluate(policy: str, episodes: int, seed: int | None, stochastic: bool, as_json: bool) -> None:
    """Play a policy on held-out episodes and print its mean return.

    POLICY is a run directory, which stands for its best policy, or a policy file.  Held-out episodes are never used in
    training.  Exit 1 if episodes fail.
    """
    from mpies.tools.evaluate import describe_evaluation, evaluate_policy

    result = evaluate_policy(policy, episodes, seed, not stochastic)
    echo(json.dumps(result) if as_json else describe_evaluation(result))
    end(not result["failures"])


@click.command()
@RUN
@click.option("--video", help="Record to this .mp4 or .gif; without it, a window shows the episodes.")
@click.option("--episodes", default=1, show_default=True, type=COUNT, help="Number of episodes to show.")
@SEED
@STOCHASTIC
@click.option("--member", metavar="G,K", help="Instead, play member K (from 0) of generation G (from 1) again.")
@user_errors
def play(run: str, video: str | None, episodes: int, seed: int | None, stochastic: bool, member: str | None) -> None:
    """Show or record episodes of the best policy of RUN.

    RUN is a run directory, also of a run in progress, or a policy file.  With --member, play a recorded member again;
    exit 1 if its return differs from the recorded one.
    """
    if member is None:
        from mpies.runs.metrics import format_return
        from mpies.views.video import play_policy

        generation, returns = play_policy(run, episodes, seed, video, not stochastic)
        listed = ", ".join(map(format_return, returns))
        echo(f"{video or run}: generation {generation}, return {listed}")
        return
    refuse_given(("episodes", "seed", "stochastic"), "has no effect with --member; leave it out")
    generation, number = parse_member(member)
    from mpies.views.video import show_member

    recorded, replayed, failures = show_member(run, generation, number, video)
    echo(f"{run}: member {number} of generation {generation}: recorded {recorded:.6g}, played again {replayed:.6g}")
    for episode, message in failures.items():
        echo(f"episode {episode}: {message}")
    end(recorded == replayed or (recorded != recorded and replayed != replayed))  # NaN, where episodes failed


@click.command()
@POLICY
@click.option(
    "--to",
    required=True,
    help="File to write; its ending says the format: .npz, .onnx, .pt2 (PyTorch), or .py, which needs only NumPy.",
)
@user_errors
def export(policy: str, to: str) -> None:
    """Write a policy for other programs.

    POLICY is a run directory, which stands for its best policy, or a policy file.
    """
    from mpies.tools.export import export_policy

    echo(f"{to}: {export_policy(policy, to)}")
