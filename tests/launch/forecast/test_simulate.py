"""Predictions of scaling, against numbers and schedules worked out by hand, and the command that prints them."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpies.core.errors import ConfigError
from mpies.launch.forecast import simulate as model
from mpies.launch.forecast.constants import Constants, Machine, Workload, find_workload, parse_workload
from mpies.launch.forecast.schedule import completion_times
from tests.support import assert_refused, invoke

SPHERE = "environment: {id: 'function:sphere', dimension: 5}\n"


def measured(numbers, environment="function:sphere", **more):
    """Constants with the task of these numbers."""
    task = parse_workload(numbers).model_copy(update={"environment": environment, **more})
    return Constants(task=task)


def test_phases_of_an_update_worked_out_by_hand():
    workload = parse_workload("1000000,1000,1,0")
    costs = {"generation": 0.5, "episode": 1e-6, "parameter": 1e-9, "network": {"latency": 1e-3, "bandwidth": 1e9}}
    machine = Machine(cores=4, core_streaming=1e9, node_streaming=2e9, **costs)
    assert model.update_phases(machine, workload, 8) == pytest.approx(
        {
            "results": 3e-3 + 32_000 / 1e9,  # three levels
            "weights": 1e-3,
            "moments": 500 * 500_000 / 0.5e9,  # an eighth of each row, at a quarter of what the node streams
            "blocks": 3e-3 + 4e-3,
            "step": 0.5 + 1e-3,
            "proposal": 3e-3 + 4e-3,
        }
    )
    alone = model.update_phases(machine, workload, 1)
    assert alone["results"] == alone["blocks"] == alone["proposal"] == 0 and alone["moments"] == 500 * 4e6 / 1e9
    tiny = model.update_phases(machine, parse_workload("64,1000,1,0"), 512)
    assert tiny["moments"] == 500 * 64 / 0.5e9  # no less than a cache line


def test_equal_episodes_waste_what_does_not_divide():
    machine = Machine(cores=8, core_streaming=1e30, node_streaming=1e30)
    prediction = model.predict(machine, parse_workload("16,9,1,0"), 8)
    assert prediction.seconds == pytest.approx(2, rel=1e-3)
    assert prediction.efficiency == pytest.approx(9 / 16, rel=1e-3)
    assert prediction.phases["waiting"] == pytest.approx(2 - 9 / 8, rel=1e-3)


@pytest.mark.parametrize("slow", [0.5, 0.25])
def test_a_slow_node_counts_as_the_part_of_a_node_that_it_is(slow):
    workload, machine = parse_workload("16,4800,1,0.5"), Machine(cores=4, speeds=(1, 1, slow))
    assert model.predict(machine, workload, 12).efficiency > 0.95
    first = model.predict(Machine(cores=4, speeds=(slow,)), workload, 4)
    assert first.seconds == pytest.approx(model.predict(Machine(cores=4), workload, 4).seconds / slow)


def test_drawn_episodes_have_the_mean_the_variation_and_the_limit_of_the_workload_and_depend_on_the_seed():
    workload, machine = parse_workload("1000,500,1,1"), Machine()
    assert model.predict(machine, workload, 40) == model.predict(machine, workload, 40)
    assert model.predict(machine, workload, 40) != model.predict(machine, workload, 40, seed=2)
    workload = parse_workload("1,100000,2,0.5")
    times = workload.draw(seed=1, generation=3)
    assert times.mean() == pytest.approx(2, rel=0.01) and times.std() == pytest.approx(1, rel=0.02) and times.max() > 5
    assert parse_workload("1,100000,2,0.5,4").draw(1, 3).max() == 4


def test_ranks_are_lists_or_powers_of_two():
    assert model.parse_ranks("3,1,36") == [3, 1, 36]
    assert model.parse_ranks("1..10") == [1, 2, 4, 8, 10] and model.parse_ranks("36..36") == [36]
    for wrong in ("0,1", "", "a", "1..b", "0..4", "5..2"):
        with pytest.raises(ConfigError, match="--ranks must be like"):
            model.parse_ranks(wrong)


def test_a_workload_is_of_numbers_or_of_what_was_measured(write_config, tmp_path):
    config = write_config(f"{SPHERE}solver: {{population: 6, episodes: 2}}\n")
    workload = find_workload("10,20,0.5,0.1", (), Constants())
    assert (workload.parameters, workload.rows, workload.episodes, workload.seconds) == (10, 10, 20, 0.5)
    spaced = config.rename(tmp_path / "my config.yaml")
    with pytest.raises(ConfigError, match=rf"mpies bench '{spaced}' --out FILE"):
        find_workload(str(spaced), (), Constants())
    spaced.rename(config)
    of_sphere = measured("1,1,0.5,0.1", largest=3)
    workload = find_workload(str(config), ("solver.population=8",), of_sphere)
    assert (workload.parameters, workload.rows, workload.episodes) == (5, 4, 16)
    assert (workload.seconds, workload.largest, workload.name) == (0.5, 3, "config (function:sphere)")
    with pytest.raises(ConfigError, match="its environment is function:rastrigin, but the constants are for"):
        find_workload(str(config), ("environment.id=function:rastrigin",), of_sphere)


def test_the_longest_episode_is_that_of_the_config_and_not_of_the_one_that_was_measured(write_config):
    config = str(write_config("environment: {id: CartPole-v1}\n"))
    pole = measured("1,1,0.5,0.1,5", environment="CartPole-v1", step=0.01)
    assert find_workload(config, (), pole).longest == 5
    workload = find_workload(config, ("environment.max_steps=30",), pole)
    assert workload.longest == pytest.approx(0.3) and workload.draw(1, 0).max() <= 0.3
    without_step = measured("1,1,0.5,0.1,5", environment="CartPole-v1", step=None)
    assert find_workload(config, ("environment.max_steps=30",), without_step).longest == 5


def test_a_generation_has_all_populations_that_its_solver_asks_for(write_config):
    config = str(
        write_config(f"{SPHERE}solver: {{kind: pgpe, population: 10, interactions: 4000, population_max: 60}}")
    )
    for step, episodes in ((0.005, 40), (0.05, 60), (0.00005, 10)):  # episodes of 100, 10 and 10,000 steps
        workload = find_workload(config, (), measured("1,1,0.5,0.1", step=step))
        assert (workload.episodes, workload.rows) == (episodes, episodes // 2)


def test_ranks_of_a_node_that_do_not_play_make_a_generation_longer():
    machine, alone = Machine(cores=4), parse_workload("10,64,1,0")
    limited = alone.model_copy(update={"players": 1})
    for ranks in (1, 4, 8):
        expected = model.predict(machine, alone, -(-ranks // 4)).seconds
        assert model.predict(machine, limited, ranks).seconds == pytest.approx(expected, rel=0.01)


def test_the_table_has_core_hours_or_their_price():
    workload = parse_workload("1000,72,100,0")
    pairs = model.predict_pairs(Machine(), workload, [1])
    tables = [model.describe_predictions(workload, pairs, 100, price) for price in (None, 0.5, 0)]
    hours, cost, free = (table.splitlines()[3].split()[3] for table in tables)
    assert (hours, cost, free) == ("200", "100", "0")
    assert "cost/100 " in tables[2]


def test_simulate_prints_a_table_or_json():
    command = ("simulate", "1000,200,0.1,0.5", "--ranks", "1,50")
    assert len(invoke(*command, code=0).stdout.splitlines()) == 7
    (one, _), (many, overlapping) = json.loads(invoke(*command, "--json", code=0).stdout)
    assert one["ranks"] == 1 and one["efficiency"] > 0.99
    assert many["efficiency"] < overlapping["efficiency"] <= 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("1,2",), "is not a task"),
        (("10,1e7,1,0",), "'10,1e7,1,0': a generation may have at most 1,000,000 episodes here; give fewer"),
        (("10,10,1,0", "solver.population=5"), "'solver.population=5' is for a config, but the task is the numbers"),
        (("config.yaml",), "measure it with mpies bench"),
        (("10,10,1,0", "--constants", "broken.yaml"), "broken.yaml: machine.cores must be at least 1, but is 0"),
        (("10,10,1,0", "--constants", "misspelt.yaml"), "machine.network.latncy is not a key; did you mean"),
        (
            ("10,10,1,0", "--constants", "config.yaml"),
            "environment is not a key; the top level has machine, task, meas",
        ),
    ],
)
def test_mistakes_are_one_line(arguments, message, write_config, here):
    write_config("environment: {id: CartPole-v1}\n")
    write_config("machine: {cores: 0}\n", "broken.yaml")
    write_config("machine: {network: {latncy: 1}}\n", "misspelt.yaml")
    assert_refused(invoke("simulate", *arguments, "--ranks", "1"), message)


def test_no_overlap_is_recommended_for_a_solver_that_it_does_not_work_with(write_config):
    for kind, is_able in (("cma_es", False), ("openai_es", True)):
        config = write_config(f"{SPHERE}solver: {{kind: {kind}, population: 8}}\n")
        workload = find_workload(str(config), (), measured("1,1,0.5,0.5"))
        ((alone, recommended),) = model.predict_pairs(Machine(), workload, [5])
        assert (recommended.overlap > 0) == is_able
        assert (recommended.seconds < alone.seconds) == is_able


def taking(**bounds):
    return Workload(parameters=1, rows=1, episodes=1, seconds=1, **bounds)


ONE = taking()


def test_a_rank_of_four_takes_a_part_of_its_fair_share_within_bounds():
    for left, schedule, expected in (
        (100, taking(largest=1000), 25),
        (101, taking(largest=1000), 26),
        (100, taking(largest=1000, divisor=2), 13),
        (100, taking(largest=8), 8),
        (3, taking(smallest=2, largest=8), 2),
        (0, taking(), 1),
    ):
        assert schedule.count_to_take(left, 4) == expected


LATE = [[3.0, 1], [1.0, 1], [1.0, 1]]
PAIRS = taking(largest=2, low_water=1)


def test_schedules_worked_out_by_hand():
    for episodes, nodes, update, overlap, schedule, expected in (
        ([[1.0] * 8] * 3, [4], 0, 0, ONE, [2, 4, 6]),  # two each
        ([[1.0] * 9] * 3, [4], 0.5, 0, ONE, [3.5, 7, 10.5]),  # one plays a third, and the others wait
        ([[1.0] * 9], [2, 2], 0, 0, ONE, [3]),  # 4 episodes to one node, 5 to the other
        ([[3.0, 3, 1, 1]], [2], 0, 0, ONE, [4]),
        ([[3.0, 3, 1, 1]], [1, 1], 0, 0, ONE, [6]),  # nodes share no counter
        ([[3.0, 1, 1, 1]], [2], 0, 0, ONE, [3]),  # a rank that is free takes the next one
        ([[3.0, 1], [1.0, 1]], [3], 0, 0, ONE, [3, 4]),  # more ranks than episodes
        # Rank 1 is free at 1: it plays both of generation 1 until 3, when rank 0 ends generation 0.  Generation 2
        # starts from the results of 0, and ends at 4.
        (LATE, [2], 0, 1, ONE, [3, 3, 4]),
        (LATE, [2], 0, 0, ONE, [3, 4, 5]),
        # Generation 2 may not begin before the update of generation 0, half a second after its end.
        (LATE, [2], 0.5, 1, ONE, [3.5, 4, 5]),
        ([[1.0, 3]], [1], 0, 0, PAIRS, [4]),  # side by side, they end at 2 and at 4
        ([[1.0, 1, 3, 3]], [2], 0, 0, PAIRS, [6]),  # nothing is left for the one that is free at 2
        ([[1.0, 1, 3, 3]], [2], 0, 0, ONE, [4]),
        # Both ranks take four at once, as if all were left; the second has 1 + 1 + 5 + 1 seconds to play.
        ([[1.0, 1, 1, 1, 1, 1, 5, 1]], [2], 0, 0, taking(largest=8), [8]),
        # Later it is a part of what is left: at 4, rank 0 takes two of four, and each rank one more when it is free.
        ([[1.0] * 4 + [2.0] * 4 + [3.0] * 4], [2], 0, 0, taking(largest=4), [13]),
    ):
        assert completion_times(episodes, nodes, schedule, update, overlap) == pytest.approx(expected)


def test_nodes_of_different_speed_end_together_from_the_second_generation_on():
    ends = completion_times([[1.0] * 250] * 3, [10, 10, 10], ONE, 0, node_speeds=[1, 1, 0.5])
    assert np.diff([0, *ends]) == pytest.approx([18, 11, 11], abs=1)  # 250 / 3 each, later 100, 100 and 50
    assert np.diff(ends).max() < 250 / 25 / 0.9
    alike = completion_times([[1.0] * 250] * 3, [10, 10, 10], ONE, 0, node_speeds=[0.5])
    assert alike == pytest.approx([18, 36, 54])


def test_a_rank_spends_its_share_of_the_update():
    ends = completion_times([[1.0] * 2] * 20, [2], ONE, 0.1, overlap=1, share=0.1)
    assert np.diff(ends)[5:15] == pytest.approx(1.1, rel=0.01)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.floats(0.1, 5), min_size=1, max_size=30), min_size=1, max_size=4),
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.integers(0, 2),
    st.sampled_from([ONE, taking(largest=4, low_water=3), taking(smallest=2, largest=8, low_water=1)]),
)
def test_no_schedule_beats_the_sum_of_all_episodes_or_the_longest_one(episodes, nodes, overlap, schedule):
    ends = completion_times(episodes, nodes, schedule, 0.25, overlap)
    assert len(ends) == len(episodes) and np.all(np.diff(ends) > 0) and np.isfinite(ends).all()
    assert ends[-1] >= sum(map(sum, episodes)) / sum(nodes)
    assert ends[0] >= max(episodes[0]) + 0.25 - 1e-6
    assert ends[-1] <= sum(map(sum, episodes)) + 0.25 * len(episodes) + 1e-6
