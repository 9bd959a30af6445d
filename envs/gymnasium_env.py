"""A VectorEnv of environments with gymnasium's interface: one Python object for each episode in flight."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from mpies.core.errors import EnvironmentProblem
from mpies.core.interrupt import is_interrupt
from mpies.core.text import describe_error, describe_value
from mpies.envs.base import EpisodeBatch, VectorEnv
from mpies.envs.build_errors import explain_build_errors
from mpies.envs.spaces import action_maker, interface_of, observation_writer
from mpies.envs.trial import SEEDS, carries_history, ignores_seed, play_one_step

if TYPE_CHECKING:
    import gymnasium

log = logging.getLogger(__name__)

LOOK_AGAIN = 0.01  # seconds from an alarm to the one that counts


class GymnasiumEnv(VectorEnv):
    """Episodes in environment objects that `build`, a function without arguments, returns.

    Objects are used for one episode after the other.

    name: of the environment, for messages.
    rebuild: whether each episode gets a new object; None probes whether an episode depends on earlier ones, and gives
    each a new object if so.
    rebuild_every: how many episodes an object serves before it is replaced, for environments that leak memory; None
    for no limit.
    timeout: seconds that the reset and the steps of one episode may take together; None for no limit.  It needs the
    signal SIGALRM and so the main thread; made in another one, it becomes None, and the caller looks between steps.
    instances: how many objects may exist at a time, for instance because each takes a licence; None for no limit.
    is_known: whether its episodes were seen to work, so that `try_out` need not play one.
    Raises EnvironmentProblem if no policy can serve its spaces, and whatever `build` raises.
    """

    # A few slots suffice to spread the cost of the policy's matrix products.  Opening costs nothing, so a rank opens
    # only half of its share of the remaining episodes at a time and leaves the rest to ranks that finish early.
    slots, smallest, largest, low_water, divisor = 8, 1, 8, 0, 2

    def __init__(
        self,
        name: str,
        build: Callable[[], gymnasium.Env[Any, Any]],
        rebuild: bool | None = None,
        rebuild_every: int | None = None,
        timeout: float | None = None,
        backend: str = "gymnasium",
        instances: int | None = None,
        is_known: bool = False,
    ) -> None:
        self.name, self.build, self.backend = name, build, backend
        self._process = os.getpid()
        self.timeout = timeout if threading.current_thread() is threading.main_thread() else None
        self.instances, self._is_known = instances, is_known
        self._rebuild_every: int | None = None
        self._has_close_failed = False
        if instances is not None:
            self.slots = self.largest = min(self.slots, instances)
        try:
            first = build()
        except BaseException:
            self.end_clone()
            raise
        with explain_build_errors(name):
            self.observation_space, self.action_space = first.observation_space, first.action_space
        self.interface = interface_of(name, self.observation_space, self.action_space)
        self.write_observation = observation_writer(self.observation_space)
        self.make_action = action_maker(self.action_space)
        self._idle = [(first, 0)]  # each with the number of episodes it has played
        if rebuild is None and carries_history(self):  # which needs an object that is not replaced meanwhile
            self.close()
            rebuild, self._rebuild_every = True, 1
            self.ignores_seed = ignores_seed(self)
        self._rebuild_every = 1 if rebuild else rebuild_every

    def open(self, seeds: Sequence[int], is_training: bool = False) -> _GymnasiumBatch:
        return _GymnasiumBatch(self, seeds)

    def take(self) -> tuple[gymnasium.Env[Any, Any], int]:
        """An object for an episode, idle or new, and the number of episodes it has played."""
        return self._idle.pop() if self._idle else (self.build(), 0)

    def give_back(self, environment: gymnasium.Env[Any, Any], played: int) -> None:
        """Keep an object for later episodes, or close it once it has played enough.  played: how many by now."""
        if self._rebuild_every is not None and played >= self._rebuild_every:
            self._close(environment)
        else:
            self._idle.append((environment, played))

    def try_out(self) -> None:
        """Play one step of an episode, and of up to four others while they fail.

        Raises EnvironmentProblem when an episode shows what is wrong in all of them, or when every episode fails.
        """
        if self._is_known:
            return
        for seed in SEEDS:
            environment, played = self.take()
            try:
                with _limit_time(self, np.zeros(1), 0):
                    play_one_step(environment, self.interface, seed)
            except BaseException as error:  # a user's environment may raise anything
                self.end_clone()
                self._close(environment)
                message = describe_error(error)
                if isinstance(error, EnvironmentProblem):
                    raise EnvironmentProblem(f"{self.name}: {error}") from error
                if self.timeout and isinstance(error, TimeoutError):  # others would take as long; the run will show it
                    return
            else:
                self.give_back(environment, played + 1)
                return
        raise EnvironmentProblem(
            f"{self.name}: each of {len(SEEDS)} episodes fails within one step, the last by {message}"
        )

    def try_second(self) -> None:
        if self._is_known or self.slots == 1:
            return
        objects: list[tuple[gymnasium.Env[Any, Any], int]] = []
        try:
            while len(objects) < 2:
                objects.append(self.take())
        except BaseException as error:  # the episodes that lack an object will say so
            if is_interrupt(error):
                raise
        for environment, played in objects:
            self.give_back(environment, played)
        if len(objects) == 2 and _innermost(objects[0][0]) is _innermost(objects[1][0]):
            raise EnvironmentProblem(
                f"{self.name} must return a new object each time it is called, but returns the same one again; build "
                "it in the function, and do not keep it"
            )

    def end_clone(self) -> None:
        """End this process if it is a child that the user's code has forked, and that was to run another program."""
        if os.getpid() != self._process:
            os._exit(127)  # as a shell does where a program cannot be run

    def close(self) -> None:
        for environment, _ in self._idle:
            self._close(environment)
        self._idle = []

    def _close(self, environment: gymnasium.Env[Any, Any]) -> None:
        """Close an object.  What that raises harms no episode, so it is only logged, once."""
        try:
            environment.close()
        except BaseException as error:
            text = describe_error(error)
            if not self._has_close_failed:
                log.warning("%s: close raises %s; its episodes are not affected", self.name, text)
            self._has_close_failed = True


def _innermost(environment: gymnasium.Env[Any, Any]) -> Any:
    """The user's own object inside the wrappers of gymnasium and mpies."""
    from mpies.envs.gym_env import GymAdapter

    inner = environment.unwrapped
    return inner.environment if isinstance(inner, GymAdapter) else inner


@contextlib.contextmanager
def _limit_time(env: VectorEnv, spent: npt.NDArray[np.float64], place: int) -> Iterator[None]:
    """Raise TimeoutError inside the `with` block as soon as an episode has used up its time.

    env: has the limit, and the clock that counts.  spent: (k,) seconds of each episode; spent[place] is updated.
    """
    limit, clock = env.timeout, env.clock
    if limit is None:
        yield
        return
    if spent[place] >= limit:  # of many short steps, none is long enough to be interrupted
        raise TimeoutError(f"it took more than {limit:g} s")
    is_second = is_over = False

    def on_alarm(_number: int, _frame: Any) -> None:
        nonlocal is_second
        if is_over:  # it went off as the step ended; started again, the timer would end the process
            return
        is_second = not is_second
        left = limit - spent[place] - (clock() - began)
        if not is_second and left <= 0:
            raise TimeoutError(f"it took more than {limit:g} s")
        # The timer runs on while the process is stopped, and the clock may learn of that only behind this handler.
        signal.setitimer(signal.ITIMER_REAL, LOOK_AGAIN if is_second else left)

    began = clock()
    previous = signal.signal(signal.SIGALRM, on_alarm)
    signal.setitimer(signal.ITIMER_REAL, max(limit - spent[place], 1e-4))  # 0 would switch the timer off
    try:
        yield
    finally:
        is_over = True
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
        spent[place] += clock() - began


class _GymnasiumBatch(EpisodeBatch):
    """An EpisodeBatch that steps its objects one after the other, in `receive`."""

    def __init__(self, env: GymnasiumEnv, seeds: Sequence[int]) -> None:
        self._env = env
        self.failures, self.behaviours = {}, {}
        size = env.interface.observation_size
        self.observations = np.zeros((len(seeds), size), np.float32)
        # Place to the object and the number of episodes it has played, of the episodes that are not over.
        self._environments: dict[int, tuple[gymnasium.Env[Any, Any], int]] = {}
        self._spent = np.zeros(len(seeds))  # seconds in each episode's own reset and steps
        for place, seed in enumerate(seeds):
            try:
                self._environments[place] = environment, _ = env.take()
                with _limit_time(env, self._spent, place):
                    observation, _ = environment.reset(seed=int(seed))
                env.write_observation(observation, self.observations[place])
                if env.watch:
                    env.watch(environment)
            except BaseException as error:  # a user's environment may raise anything
                self._fail(place, error)

    def _fail(self, place: int, error: BaseException) -> None:
        """End an episode as failed; raises the error again where it is a person's Ctrl-C.

        The episode's object is in an unknown state and is not used again.
        """
        self._env.end_clone()
        self.failures[place] = describe_error(error)
        if place in self._environments:
            environment, _ = self._environments.pop(place)
            try:
                environment.close()
            except BaseException as failure:  # nobody expects it to work
                if is_interrupt(failure):
                    raise

    def _read_behaviour(self, info: dict[str, Any]) -> npt.NDArray[np.float64]:
        names = self._env.behaviour
        for name in names:
            if name not in info:
                raise EnvironmentProblem(f"{self._env.name} has no {name!r} in its info, only {sorted(info)}")
            if np.asarray(info[name]).dtype.kind not in "biuf":  # NumPy takes None for NaN
                raise EnvironmentProblem(f"info[{name!r}] must hold numbers, but is {describe_value(info[name])}")
        behaviour = np.concatenate([np.ravel(info[name]).astype(np.float64) for name in names])
        expected = self._env.behaviour_size
        if expected not in (0, len(behaviour)):
            raise EnvironmentProblem(f"the behaviour has {len(behaviour)} numbers, but had {expected} in a first step")
        return behaviour

    def send(self, places: npt.NDArray[np.int32], actions: npt.NDArray[Any]) -> None:
        self._sent = places, actions

    def receive(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
        places, actions = self._sent
        observations = np.zeros((len(places), self._env.interface.observation_size), np.float32)
        rewards = np.full(len(places), np.nan)
        over = np.ones(len(places), bool)
        for row, place in enumerate(places.tolist()):
            if place not in self._environments:  # it failed in its reset
                continue
            environment, played = self._environments[place]
            try:
                action = self._env.make_action(actions[row])
                with _limit_time(self._env, self._spent, place):
                    observation, reward, terminated, truncated, info = environment.step(action)
                self._env.write_observation(observation, observations[row])
                if self._env.behaviour:
                    self.behaviours[place] = self._read_behaviour(info)
                rewards[row] = reward
                over[row] = terminated or truncated
                if self._env.watch:
                    self._env.watch(environment)
            except BaseException as error:
                self._fail(place, error)
                rewards[row], over[row] = np.nan, True
                continue
            if over[row]:
                del self._environments[place]
                self._env.give_back(environment, played + 1)
        return observations, rewards, over

    def close(self) -> None:
        """Give back the objects of episodes that are not over."""
        for environment, played in self._environments.values():
            self._env.give_back(environment, played + 1)
        self._environments = {}
