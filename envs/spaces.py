"""gymnasium's spaces: the Interface that they make, observations as vectors, and actions in an environment's own form.

A policy sees and returns vectors.  An observation becomes one as gymnasium.spaces.utils.flatten has it: the parts of a
Dict or Tuple one after the other, and a Discrete or MultiDiscrete as one-hot vectors.

>>> from gymnasium import spaces
>>> space = spaces.Dict({"gear": spaces.Discrete(3), "pedals": spaces.Box(0, 1, (2,))})
>>> flatten_observation(space, {"gear": 2, "pedals": [0.5, 1.0]})
array([0. , 0. , 1. , 0.5, 1. ], dtype=float32)
>>> make_action(space, np.array([2, 0.5, 1.0], np.float32))
{'gear': 2, 'pedals': array([0.5, 1. ], dtype=float32)}
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from mpies.core.errors import EnvironmentProblem
from mpies.core.text import describe_value
from mpies.envs.base import Action, Binary, Composite, Continuous, Discrete, Interface

if TYPE_CHECKING:
    import gymnasium

    Space = gymnasium.Space[Any]

WriteObservation = Callable[[Any, npt.NDArray[np.float32]], None]
MakeAction = Callable[[Any], Any]

_NEEDED = "needed: Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of them"


def interface_of(environment_id: str, observation_space: Space, action_space: Space) -> Interface:
    """The Interface of an environment with these spaces.  environment_id: for messages.

    Raises EnvironmentProblem for spaces that no policy can serve.
    """
    from gymnasium import spaces

    for space, name in ((observation_space, "observation"), (action_space, "action")):
        if not isinstance(space, spaces.Space) and not _is_of_gym(space):
            raise EnvironmentProblem(
                f"{environment_id}: {name}_space must be a space of gymnasium.spaces, such as Box(-1, 1, (3,)), "
                f"but is {describe_value(space)}"
            )
        for kind, where in _refused(space, name):
            place = f" ({where})" if where != name else ""
            cure = f"{_NEEDED}: wrap it in a factory of your own"
            if kind.startswith("gym."):
                cure = "take it from gymnasium.spaces"
            raise EnvironmentProblem(f"{environment_id} has {name}s of kind {kind}{place}; {cure}")
        if not spaces.flatdim(space):
            raise EnvironmentProblem(f"{environment_id} has {name}s without numbers: its {name}_space is empty")
    size = int(spaces.flatdim(observation_space))
    shape = observation_space.shape or ()
    image = tuple(shape) if observation_space.dtype == np.uint8 and len(shape) == 3 else None
    parts = tuple(_action_parts(action_space))
    action: Action = Composite(parts)
    if isinstance(action_space, (spaces.Discrete, spaces.Box)):
        (action,) = parts  # type: ignore[assignment]  # neither is Binary
    return Interface(size, action, image, observation_space, action_space)


def with_plain_spaces(interface: Interface, hidden: int) -> Interface:
    """An Interface without spaces, as a policy file has it, with spaces of vectors or of images.

    hidden: how many numbers of an observation `environment.hide` leaves out.
    """
    from gymnasium import spaces

    action: Any = interface.action
    shape = interface.shape or (interface.observation_size + hidden,)
    seen = spaces.Box(0, 255, shape, np.uint8) if interface.shape else spaces.Box(-np.inf, np.inf, shape, np.float32)
    done = spaces.Discrete(action.count) if isinstance(action, Discrete) else spaces.Box(action.low, action.high)
    return replace(interface, observation_space=seen, action_space=done)


def pick_parts(environment_id: str, space: Space, names: Sequence[str]) -> Space:
    """The parts with these names of observations that are a Dict.  environment_id: for messages.

    Raises EnvironmentProblem where there are no such parts.
    """
    from gymnasium import spaces

    parts = space.spaces if isinstance(space, spaces.Dict) else {}
    for name in names:
        if name not in parts:
            found = f"has no part {name!r}, only {', '.join(map(repr, parts))}"
            found = found if parts else f"is a {type(space).__name__}, not a Dict"
            raise EnvironmentProblem(f"environment.observations: the observation of {environment_id} {found}")
    return spaces.Dict([(name, part) for name, part in parts.items() if name in names])  # in the same order


def _refused(space: Space, name: str) -> Iterator[tuple[str, str]]:
    """(kind, name) of each part of a space that no policy can serve.  name: of the space."""
    from gymnasium import spaces

    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        for key, part in named_parts(space):
            yield from _refused(part, f"{name}[{key!r}]")
    elif not isinstance(space, (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
        yield f"{'gym.spaces.' if _is_of_gym(space) else ''}{type(space).__name__}", name


def _is_of_gym(space: Any) -> bool:
    """Whether a space is one of gym, whose classes have the names of gymnasium's."""
    return type(space).__module__.partition(".")[0] == "gym"


def named_parts(space: Space) -> list[tuple[str | int, Space]]:
    """The keys or numbers of the parts of a Dict or Tuple, with the parts, in gymnasium's order."""
    parts: Any = space
    return list(parts.spaces.items() if hasattr(parts.spaces, "items") else enumerate(parts.spaces))


def _action_parts(space: Any) -> Iterator[Discrete | Continuous | Binary]:
    """The parts of an action, each of which gets a head of its own."""
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        yield Discrete(int(space.n))
    elif isinstance(space, spaces.Box):
        with np.errstate(over="ignore"):  # a bound that is too large for float32 is none
            low, high = (np.asarray(bound, np.float32).ravel() for bound in (space.low, space.high))
        yield Continuous(low, high)
    elif isinstance(space, spaces.MultiDiscrete):
        yield from (Discrete(count) for count in space.nvec.ravel().tolist())
    elif isinstance(space, spaces.MultiBinary):
        yield Binary(int(np.prod(space.shape)))
    else:
        for _, part in named_parts(space):
            yield from _action_parts(part)


def flatten_observation(space: Space, observation: Any) -> npt.NDArray[np.float32]:
    """An observation of an environment as the vector (o,) that a policy sees, before normalisation.

    space: the environment's observation_space.  Raises ValueError, which names the part, if it is not of that form.
    """
    from gymnasium import spaces

    out = np.zeros(spaces.flatdim(space), np.float32)
    observation_writer(space)(observation, out)
    return out


def observation_writer(space: Any, name: str = "observation") -> WriteObservation:
    """The function that writes an observation of this space into a vector (o,), as `flatten_observation` returns it.

    name: of the observation, for messages.  It raises ValueError for an observation of another form.
    """
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        return _one_hots_writer(np.array([space.n]), np.array([space.start]), name)
    if isinstance(space, spaces.MultiDiscrete):
        return _one_hots_writer(space.nvec.ravel(), space.start.ravel(), name)
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        return _joint_writer(space, name)

    def write(observation: Any, out: npt.NDArray[np.float32]) -> None:
        flat = np.asarray(observation).ravel()
        if flat.shape != out.shape:
            raise ValueError(f"{name} has {flat.size} numbers, but {out.size} were expected")
        out[:] = flat

    return write


def _one_hots_writer(counts: npt.NDArray[Any], first: npt.NDArray[Any], name: str) -> WriteObservation:
    """The writer of numbers (k,), each from first to first + count - 1, as one-hot vectors."""
    offsets = np.cumsum(counts) - counts - first  # from a number to its place in the vector
    low, high = first.tolist(), (first + counts - 1).tolist()

    def write(observation: Any, out: npt.NDArray[np.float32]) -> None:
        numbers = np.asarray(observation).ravel()
        if len(numbers) != len(low):
            raise ValueError(f"{name} has {len(numbers)} numbers, but {len(low)} were expected")
        out[:] = 0
        for number, smallest, largest, offset in zip(numbers.tolist(), low, high, offsets.tolist(), strict=True):
            if not smallest <= number <= largest:
                raise ValueError(f"{name} is {number}, which is not one of {smallest} to {largest}")
            out[int(number) + offset] = 1

    return write


def _joint_writer(space: Any, name: str) -> WriteObservation:
    """The writer of the parts of a Dict or Tuple, one after the other."""
    from gymnasium import spaces

    parts: list[tuple[Any, slice, WriteObservation]] = []
    start = 0
    for key, part in named_parts(space):
        stop = start + spaces.flatdim(part)
        parts.append((key, slice(start, stop), observation_writer(part, f"{name}[{key!r}]")))
        start = stop
    is_dict = isinstance(space, spaces.Dict)
    kinds: Any = Mapping if is_dict else (tuple, list, np.ndarray)
    form = "dict" if is_dict else f"tuple of {len(parts)}"

    def write(observation: Any, out: npt.NDArray[np.float32]) -> None:
        if not isinstance(observation, kinds) or not (is_dict or len(observation) == len(parts)):
            raise ValueError(f"{name} must be a {form}, but is {describe_value(observation)}")
        for key, place, write_part in parts:
            try:
                value = observation[key]
            except KeyError:
                raise ValueError(f"{name} has no {key!r}, only {list(observation)}") from None
            write_part(value, out[place])

    return write


def make_action(space: Space, action: Any) -> Any:
    """What a policy returns, as an action in the environment's own form, ready for its `step`.

    space: the environment's action_space, such as Interface.action_space.
    action: one row of what an Actor (mpies.policies.base) or an exported policy makes of the network's outputs: the
    index of a Discrete action, counted from 0, the numbers (a,) of a Box, or, for any other space, the numbers (a,) of
    its parts as Composite has them.
    Returns an int for Discrete, an array of the space's shape and dtype for Box, MultiDiscrete and MultiBinary, and a
    dict or tuple of these for Dict and Tuple.  Where a space does not count from 0, its `start` is added.
    """
    return action_maker(space)(action)


def action_maker(space: Any) -> MakeAction:
    """The function that is `make_action` for this space."""
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        start = int(space.start)
        return lambda action: int(action) + start
    return _part_maker(space, 0)[0]


def _part_maker(space: Any, start: int) -> tuple[MakeAction, int]:
    """The function from all numbers (a,) of an action to the part with this space, and the first number after it.

    start: the first number of the part.
    """
    from gymnasium import spaces

    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        makers: dict[Any, MakeAction] = {}
        for key, part in named_parts(space):
            makers[key], start = _part_maker(part, start)
        if isinstance(space, spaces.Dict):
            return lambda numbers: {key: make(numbers) for key, make in makers.items()}, start
        return lambda numbers: tuple([make(numbers) for make in makers.values()]), start
    if isinstance(space, spaces.Discrete):
        first = int(space.start)
        return lambda numbers: int(numbers[start]) + first, start + 1
    shape, dtype, stop = space.shape, space.dtype, start + int(np.prod(space.shape))
    if isinstance(space, spaces.MultiDiscrete):
        starts = space.start
        return lambda numbers: numbers[start:stop].reshape(shape).astype(dtype) + starts, stop
    if dtype == np.float32:  # a copy: an environment may keep its action, or change it
        return lambda numbers: numbers[start:stop].reshape(shape).astype(dtype), stop
    # A number in float32 may be outside of the bounds, and as large as 2^31 where the dtype is int32.
    low: Any = getattr(space, "low", dtype.type(0))
    high: Any = getattr(space, "high", dtype.type(1))
    if dtype.kind in "iu":
        return lambda numbers: _to_whole(numbers[start:stop].reshape(shape), low, high), stop
    return lambda numbers: numbers[start:stop].reshape(shape).astype(dtype).clip(low, high), stop


def _to_whole(numbers: npt.NDArray[np.float32], low: npt.NDArray[Any], high: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The whole numbers nearest to `numbers` in the dtype of their bounds, and between these; NaN is `low`."""
    is_low, is_high = ~(numbers > low.astype(np.float32)), numbers >= high.astype(np.float32)
    inside = np.rint(np.where(is_low | is_high, 0, numbers)).astype(low.dtype)
    return np.where(is_high, high, np.where(is_low, low, inside))
