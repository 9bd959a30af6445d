"""Whether a run can fit into memory at all, worked out before the memory is asked for."""

from collections.abc import Mapping

from mpies.comm.limits import usable_memory
from mpies.core.errors import ConfigError

# What needs memory, in the words of the message.
PARAMETERS, SOLVER = "the parameters", "the state of the solver"


def require_memory(needs: Mapping[str, int]) -> None:
    """Raise ConfigError where the needs together exceed what this process may use.

    needs: names of what needs the memory, to bytes.
    """
    usable, total = usable_memory(), sum(needs.values())
    if total > usable:
        largest = max(needs, key=lambda name: needs[name])
        whole, part = describe_size(total), describe_size(needs[largest])
        share = f", {part} of it" if part != whole else ""
        raise ConfigError(
            f"a rank needs at least {whole} of memory{share} for {largest}, but {describe_size(usable)} can be used "
            "here; make that smaller, or use a machine with more memory"
        )


def describe_size(count: int) -> str:
    """Bytes for people, such as 1,490 GB."""
    return f"{count // 2**30:,} GB" if count >= 10 * 2**30 else f"{count / 2**30:.1f} GB"
