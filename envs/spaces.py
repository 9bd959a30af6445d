"""The Interface of an environment, from the spaces that gymnasium describes it by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mpies.envs.base import Continuous, Discrete, EnvironmentProblem, Interface

if TYPE_CHECKING:
    import gymnasium


def interface_of(
    environment_id: str, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]
) -> Interface:
    """The Interface of an environment with these spaces.  environment_id: for messages.

    A Discrete observation becomes a one-hot vector; a Box or MultiBinary one is flattened.
    Raises EnvironmentProblem for spaces that no policy can serve.
    """
    from gymnasium import spaces

    if not isinstance(observation_space, (spaces.Box, spaces.Discrete, spaces.MultiBinary)):
        raise EnvironmentProblem(
            f"{environment_id} has observations of kind {type(observation_space).__name__}; "
            "a Box or Discrete is needed: wrap it with gymnasium.wrappers.FlattenObservation in a factory of your own"
        )
    size = int(spaces.flatdim(observation_space))
    shape = observation_space.shape or ()
    image = tuple(shape) if observation_space.dtype == np.uint8 and len(shape) == 3 else None
    if isinstance(action_space, spaces.Discrete):
        return Interface(size, Discrete(int(action_space.n)), image)
    if isinstance(action_space, spaces.Box):
        low = np.asarray(action_space.low, np.float32).ravel()
        return Interface(size, Continuous(low, np.asarray(action_space.high, np.float32).ravel()), image)
    raise EnvironmentProblem(
        f"{environment_id} has actions of kind {type(action_space).__name__}; Discrete or Box is needed"
    )
