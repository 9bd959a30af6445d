"""train --seeds: one run for each seed, one after the other."""

import shutil

from mpies.config.loading import resolved
from mpies.runs.formats.metrics import read_digests
from mpies.runs.reader import read_run_config
from tests.support import assert_refused

CONFIG = """
environment: {id: CartPole-v1, backend: gymnasium, max_steps: 40}
policy: {hidden: []}
solver: {population: 8, sigma: 0.3, optimizer: {learning_rate: 0.2}}
noise: {size: 10000}
evaluation: {every: 2, episodes: 4}
stop: {generations: 3}
"""


def test_seeds_are_runs_of_their_own_the_same_on_two_ranks_and_resume(run_mpies, write_config, tmp_path):
    path = write_config(CONFIG)
    assert run_mpies(0, "train", path, "--out", "alone", "--seeds", "2").code == 0
    assert run_mpies(2, "train", path, "--out", "pair", "--seeds", "1..2").code == 0
    configs = [resolved(read_run_config(tmp_path / f"alone-seed-{seed}")) for seed in (1, 2)]
    assert [config.pop("seed") for config in configs] == [1, 2] and configs[0] == configs[1]
    digests = {run.name: read_digests(run) for run in tmp_path.glob("*-seed-*")}
    assert digests["alone-seed-1"] == digests["pair-seed-1"] and digests["alone-seed-2"] == digests["pair-seed-2"]
    assert digests["alone-seed-1"][0] != digests["alone-seed-2"][0]
    assert run_mpies(0, "train", path, "--out", "alone", "--seeds", "2..2", "stop.generations=4").code == 0
    assert read_digests(tmp_path / "alone-seed-2")[:3] == digests["alone-seed-2"]
    assert len(read_digests(tmp_path / "alone-seed-2")) == 4 and len(read_digests(tmp_path / "alone-seed-1")) == 3
    # A later seed that is there is refused before ranks are started: they would go on with it, as with a run of theirs.
    shutil.rmtree(tmp_path / "alone-seed-1")
    refused = run_mpies(0, "train", path, "--out", "alone", "--seeds", "2", "--resume", "never", "--ranks", "1")
    assert_refused(refused, "alone-seed-2: contains a run already; ")
    assert not (tmp_path / "alone-seed-1").exists()
