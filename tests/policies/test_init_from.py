"""A run that starts from the policy of another (policy.init_from)."""

import shutil

import numpy as np

from mpies.config.recipes import RESULTS
from mpies.runs.formats import hdf5
from mpies.runs.formats.metrics import read_metrics
from tests.policies.examples import PENDULUM
from tests.support import assert_refused

CONFIG = PENDULUM.replace("{id", "{hide: [2], id") + "policy: {kind: gru, hidden: 4, action_noise: 0.05}"


def test_a_run_begins_where_another_ended_and_then_needs_its_file_no_more(run_mpies, write_config, trained, tmp_path):
    shutil.copy(trained(CONFIG) / "policy.h5", tmp_path / "first.h5")
    train = "train", write_config(CONFIG), "--out", "second", "policy.init_from=first.h5"
    run_mpies(0, *train, "stop.generations=1", code=0)
    before = hdf5.read(tmp_path / "first.h5")[0]
    first = hdf5.read(tmp_path / "second" / "checkpoints" / "generation-00000000.h5")[0]
    assert np.array_equal(first["solver/mean"], before["parameters"])
    assert np.array_equal(first["normalizer/total"], before["normalizer/total"]) and first["normalizer/count"] > 0
    (tmp_path / "first.h5").unlink()
    run_mpies(0, *train, code=0)
    assert len(read_metrics(tmp_path / "second")) == 2
    run_mpies(0, "play", "second", "--member", "2,3", code=0)


def test_a_run_begins_with_the_policy_of_a_recipe(run_mpies, tmp_path):
    small = "solver.population=2", "stop.generations=1", "evaluation={every: 0, episodes: 1}", "environment.max_steps=5"
    train = "train", "bipedal_walker-steady", *small, "--out", "run"
    run_mpies(0, *train, code=0)
    first = hdf5.read(tmp_path / "run" / "checkpoints" / "generation-00000000.h5")[0]
    recorded = hdf5.read(RESULTS / "bipedal_walker-pepg" / "policy.h5")[0]
    assert first["solver/mean"].tobytes() == recorded["parameters"].tobytes()
    refused = run_mpies(0, *train[:-1], "other", "policy.init_from=bipedal_walkr-pepg")
    words = "policy.init_from: bipedal_walkr-pepg: cannot be read", "name of a recipe, such as bipedal_walker-pepg"
    assert_refused(refused, *words)
