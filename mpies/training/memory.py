"""Whether a run can fit into memory at all, worked out before the memory is asked for."""

from mpies.comm.limits import usable_memory
from mpies.config.schema import Config
from mpies.errors import ConfigError

ROLLOUT = 150  # bytes that a rank keeps of a rollout: its seed, its result, and what all ranks send of theirs


def require_memory(config: Config, dimension: int, slots: int) -> None:
    """Raise ConfigError where a single rank would need more memory than this process may use.

    It counts what a run cannot do without, so what passes may still need more, on several ranks in particular.

    dimension: d.  slots: episodes that a rank plays side by side.
    """
    solver, evaluation = config.solver, config.evaluation
    rollouts = solver.members(dimension) * solver.episodes
    is_function = config.environment.function is not None
    parameters = "environment.dimension" if is_function else f"the policy ({dimension:,} parameters)"
    needs = {
        "noise.size": 4 * config.noise.size if solver.noise_rows(dimension) else 0,
        parameters: 4 * dimension * (min(slots, rollouts) + 2),
        f"solver.kind {solver.kind}": solver.memory(dimension),
        "solver.population" if solver.episodes < solver.members(dimension) else "solver.episodes": ROLLOUT * rollouts,
        "evaluation.episodes": 0 if is_function else ROLLOUT * evaluation.episodes,
    }
    refuse_if_too_large(needs)


def require_memory_for_reference(count: int, observation_size: int) -> None:
    """Raise ConfigError where the observations for policy.reference do not fit.  count: how many."""
    refuse_if_too_large({"policy.reference": count * observation_size})


def refuse_if_too_large(needs: dict[str, int]) -> None:
    """Raise ConfigError where the needs together exceed what this process may use.  needs: names to bytes."""
    usable, total = usable_memory(), sum(needs.values())
    if total > usable:
        largest = max(needs, key=lambda name: needs[name])
        raise ConfigError(
            f"a rank needs at least {describe_size(total)} of memory, {describe_size(needs[largest])} of it for "
            f"{largest}, but {describe_size(usable)} can be used here; make that smaller"
        )


def describe_size(count: int) -> str:
    """Bytes for people, such as 1,490 GB."""
    return f"{count // 2**30:,} GB" if count >= 10 * 2**30 else f"{count / 2**30:.1f} GB"
