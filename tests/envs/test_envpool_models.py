"""MuJoCo models without textures: EnvPool builds environments faster, and episodes keep their bits."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from mpies.envs import envpool_env
from mpies.envs.envpool_models import plain_models, without_textures
from tests.envs.episodes import play

pytest.importorskip("envpool", reason="EnvPool is not installed")

TASKS = ("Ant", "HalfCheetah", "Hopper", "Humanoid", "HumanoidStandup", "InvertedDoublePendulum", "InvertedPendulum")
TASKS += ("Pusher", "Reacher", "Swimmer", "Walker2d")


def bits(env):
    return [episode.bits for episode in play(env, [3, 2**31 - 1], steps=60)]


@pytest.mark.parametrize("name", [*(f"{task}-v5" for task in TASKS), "Ant-v4", "Pusher-v4"])
def test_episodes_have_the_same_bits_without_textures(name):
    env = envpool_env.EnvPoolEnv(name)
    models = list(Path(env._models).rglob("*.xml"))
    assert models and not any(word in model.read_text() for model in models for word in ("texture", "material"))
    without = bits(env)
    env._models = None
    assert bits(env) == without


def test_only_what_pictures_show_is_left_out():
    model = """<mujoco><default><geom material="m" margin="0.001"/></default>
    <asset><texture name="t" builtin="flat"/><material name="m" texture="t"/><mesh file="a.stl"/></asset>
    <worldbody><geom type="plane" size="40 40 40" material="m"/></worldbody></mujoco>"""
    plain = "".join(line.strip() for line in without_textures(model).splitlines())
    assert plain == (
        '<mujoco><default><geom margin="0.001" /></default><asset><mesh file="a.stl" /></asset>'
        '<worldbody><geom type="plane" size="40 40 40" /></worldbody></mujoco>'
    )


def test_envpools_own_model_is_taken_where_the_copy_is_gone_or_cannot_be_made(monkeypatch, tmp_path):
    env = envpool_env.EnvPoolEnv("Hopper-v5")
    expected = bits(env)
    folder = Path(shutil.copytree(env._models, tmp_path / "models"))
    for model in folder.rglob("*.xml"):
        model.unlink()  # as programs do that clean up temporary folders
    for damaged in (folder, tmp_path / "removed"):
        env._models = str(damaged)
        assert bits(env) == expected
    assert plain_models.__wrapped__(str(tmp_path), "hopper.xml") == str(tmp_path)  # it has no models
    own = env._make_pool([0]).config["base_path"]

    def refuse(*_):
        raise OSError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", refuse)
        assert plain_models.__wrapped__(own, "hopper.xml") == own
    monkeypatch.setattr(os, "getuid", lambda: 12345)  # the folder of this user belongs to another one
    assert plain_models.__wrapped__(own, "hopper.xml") == own


def test_processes_share_one_folder_that_is_filled_again_where_a_file_is_gone(monkeypatch, tmp_path):
    own = envpool_env.EnvPoolEnv("Hopper-v5")._make_pool([0]).config["base_path"]
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = plain_models.__wrapped__(own, "hopper.xml")
    texts = {path: path.read_text() for path in Path(folder).rglob("*.xml")}
    assert texts and Path(folder).parent == tmp_path
    next(iter(texts)).unlink()
    assert plain_models.__wrapped__(own, "hopper.xml") == folder
    assert {path: path.read_text() for path in Path(folder).rglob("*") if path.is_file()} == texts
    assert [path.name for path in tmp_path.iterdir()] == [Path(folder).name]


def test_a_model_that_the_user_chose_stays_as_it_is():
    assert envpool_env.EnvPoolEnv("Hopper-v5", xml_file="hopper.xml")._models is None
