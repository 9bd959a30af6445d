"""How ranks are divided among trials, and that a trial which is stopped for more ranks keeps its bits."""

import csv

import pytest

from mpies.runs.metrics import read_digests
from mpies.runs.pace import Pace
from mpies.sweeps.rank_groups import (
    Division,
    DivisionRequest,
    Remaining,
    choose_ranks_per_run,
    division_pays,
    equal_groups,
    group_sizes,
    is_nearly_done,
    share_ranks,
)
from tests.support import train

# Episodes of 3 steps that sleep, so that two cores are enough for any number of ranks.
SLEEPY_MODULE = """
import time
import gymnasium, numpy as np

class Sleepy(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    def reset(self, seed=None, options=None):
        self.left, self.goal = 3, np.random.default_rng(seed).normal()
        return np.ones(2, np.float32), {}
    def step(self, action):
        time.sleep(0.004)
        self.left -= 1
        return np.ones(2, np.float32), -abs(float(action[0]) - self.goal), not self.left, False, {}

gymnasium.register("Sleepy-v0", Sleepy)
"""
SLEEPY = """
environment: {id: "sleepy:Sleepy-v0", backend: gymnasium}
policy: {hidden: [4]}
solver: {population: 16}
noise: {size: 100000}
evaluation: {every: 20, episodes: 3}
stop: {generations: 4}
"""


def test_groups_that_share_no_node_have_these_sizes():
    assert group_sizes(64, 8) == [1, 2, 4, 8, 16, 32, 64]
    assert group_sizes(100, 36) == [1, 2, 3, 4, 6, 9, 12, 18, 36, 72]
    assert group_sizes(3, 8) == [1, 2]


@pytest.mark.parametrize(
    ("trials", "ranks", "node_ranks", "expected"),
    [
        (40, 8, 8, 1),  # a rank for each of eight trials
        (8, 8, 8, 1),
        (4, 8, 8, 2),
        (3, 8, 8, 4),  # groups that share no node
        (1, 8, 8, 8),
        (2, 40, 4, 32),  # five whole nodes are no power of two
    ],
)
def test_ranks_of_a_run_leave_none_idle(trials, ranks, node_ranks, expected):
    assert choose_ranks_per_run(trials, ranks, node_ranks) == expected


def test_groups_share_no_node_where_they_fit_into_one():
    assert equal_groups([6, 6], 4) == [4, 2, 4, 2]
    assert equal_groups([4, 4], 2) == [2, 2, 2, 2]
    assert equal_groups([4, 4], 8) == [8]
    assert equal_groups([4, 4, 4], 8) == [8, 4]


def test_all_ranks_are_given_in_proportion_to_the_work():
    assert share_ranks(8, [1.0], [99]) == [8]
    assert share_ranks(8, [3.0, 1.0], [99, 99]) == [6, 2]
    assert share_ranks(5, [1.0, 1.0], [99, 99]) == [3, 2]
    assert share_ranks(4, [1000.0, 1e-9, 1e-9], [99] * 3) == [2, 1, 1]
    assert share_ranks(4, [], []) == []


def test_no_trial_gets_more_ranks_than_it_can_use():
    assert share_ranks(8, [3.0, 1.0], [2, 99]) == [2, 6]
    assert share_ranks(8, [3.0, 1.0], [2, 1]) == [2, 1]
    assert Remaining(100.0, 2, 0.1).most_ranks == 20 and Remaining(100.0, 2, 0.001).most_ranks == 2
    assert not division_pays([Remaining(100.0, 1, 0.005)], 4, start_up=1.0)


def test_a_rank_finds_its_group():
    division = Division([2, 1, 3], [7, 8, 9])
    assert [division.group(place) for place in range(6)] == [0, 0, 1, 2, 2, 2]


def test_ranks_are_divided_anew_where_that_saves_twice_its_cost():
    long, short = Remaining(100.0, 1, 1.0), Remaining(2.0, 1, 1.0)
    assert division_pays([long], 4, start_up=1.0)  # 75 s less, at the cost of 2 s
    assert not division_pays([short], 4, start_up=1.0)  # 1.5 s less
    assert not division_pays([long, long, long, long], 4, start_up=1.0)  # no rank is idle
    assert not division_pays([Remaining(100.0, 63, 1.0)], 64, start_up=1.0)  # one of 64 ranks is idle
    assert not division_pays([], 4, start_up=1.0)


def test_a_trial_that_ends_sooner_than_it_starts_is_not_stopped():
    assert is_nearly_done(Pace(9, 0.5, 1.0), start_up=1.0)
    assert not is_nearly_done(Pace(5, 0.5, 5.0), start_up=1.0)
    assert not is_nearly_done(None, start_up=1.0)


def test_a_new_division_is_requested_of_one_job_once(tmp_path):
    request, same = DivisionRequest(tmp_path, "job", 1), DivisionRequest(tmp_path, "job", 1)
    others = DivisionRequest(tmp_path, "job", 2), DivisionRequest(tmp_path, "other", 1)
    request.make()
    assert same.is_made and not any(other.is_made for other in others)
    same.end()
    assert not [*tmp_path.iterdir()]


@pytest.fixture(scope="module")
def lone(tmp_path_factory):
    """The run of the longest trial, made alone."""
    folder = tmp_path_factory.mktemp("lone")
    (folder / "sleepy.py").write_text(SLEEPY_MODULE)
    return train(folder, SLEEPY.replace("generations: 4", "generations: 70").replace("0.004", "0"))


def test_the_last_trial_goes_on_with_all_ranks_and_the_same_bits(run_mpies, write_config, tmp_path, lone):
    (tmp_path / "sleepy.py").write_text(SLEEPY_MODULE)
    outcome = run_mpies(
        3, "sweep", write_config(SLEEPY), "stop.generations=4,5,70", "--ranks-per-run", "1", "--out", "out"
    )
    assert outcome.code == 0, outcome.stderr
    with open(tmp_path / "out" / "generations=70_seed=1" / "metrics.csv") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["generation"]) for row in rows] == list(range(1, 71))  # none is lost or played twice
    ranks = [int(row["ranks"]) for row in rows]
    assert ranks[0] == 1 and ranks[-1] == 3 and ranks == sorted(ranks)
    assert [row["digest"] for row in rows] == read_digests(lone)
    assert rows[-1]["starts"] == "2" and outcome.stdout.count("finished, ") == 3
    assert not [*(tmp_path / "out").glob(".division-*")]
