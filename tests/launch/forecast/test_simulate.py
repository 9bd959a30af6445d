"""Predictions of scaling, against numbers worked out by hand, and the command that prints them."""

import json

import pytest

from mpies.core.errors import ConfigError
from mpies.launch.forecast import simulate as model
from mpies.launch.forecast.constants import Constants, Machine, find_workload, parse_workload
from tests.support import assert_refused, invoke


def test_phases_of_an_update_worked_out_by_hand():
    workload = parse_workload("1000000,1000,1,0")
    machine = Machine(
        cores=4,
        core_streaming=1e9,
        node_streaming=2e9,
        generation=0.5,
        episode=1e-6,
        parameter=1e-9,
        network={"latency": 1e-3, "bandwidth": 1e9},
    )
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


def test_a_prediction_is_a_function_of_its_seed():
    workload, machine = parse_workload("1000,500,1,1"), Machine()
    assert model.predict(machine, workload, 40) == model.predict(machine, workload, 40)
    assert model.predict(machine, workload, 40) != model.predict(machine, workload, 40, seed=2)


def test_drawn_episodes_have_the_mean_the_variation_and_the_limit_of_the_workload():
    workload = parse_workload("1,100000,2,0.5")
    times = workload.draw(seed=1, generation=3)
    assert times.mean() == pytest.approx(2, rel=0.01) and times.std() == pytest.approx(1, rel=0.02)
    assert times.max() > 5
    assert parse_workload("1,100000,2,0.5,4").draw(1, 3).max() == 4


def test_ranks_are_lists_or_powers_of_two():
    assert model.parse_ranks("3,1,36") == [3, 1, 36]
    assert model.parse_ranks("1..10") == [1, 2, 4, 8, 10] and model.parse_ranks("36..36") == [36]
    for wrong in ("0,1", "", "a", "1..b", "0..4", "5..2"):
        with pytest.raises(ConfigError, match="--ranks must be like"):
            model.parse_ranks(wrong)


def test_a_workload_is_of_numbers_or_of_what_was_measured(write_config, tmp_path):
    config = write_config("environment: {id: 'function:sphere', dimension: 5}\nsolver: {population: 6, episodes: 2}\n")
    workload = find_workload("10,20,0.5,0.1", (), Constants())
    assert (workload.parameters, workload.rows, workload.episodes, workload.seconds) == (10, 10, 20, 0.5)
    spaced = config.rename(tmp_path / "my config.yaml")
    with pytest.raises(ConfigError, match=rf"mpies bench '{spaced}' --out FILE"):
        find_workload(str(spaced), (), Constants())
    spaced.rename(config)
    measured = parse_workload("1,1,0.5,0.1").model_copy(update={"environment": "function:sphere", "largest": 3})
    workload = find_workload(str(config), ("solver.population=8",), Constants(task=measured))
    assert (workload.parameters, workload.rows, workload.episodes) == (5, 4, 16)
    assert (workload.seconds, workload.largest, workload.name) == (0.5, 3, "config (function:sphere)")
    with pytest.raises(ConfigError, match="its environment is function:rastrigin, but the constants are for"):
        find_workload(str(config), ("environment.id=function:rastrigin",), Constants(task=measured))


def test_the_longest_episode_is_that_of_the_config_and_not_of_the_one_that_was_measured(write_config):
    config = str(write_config("environment: {id: CartPole-v1}\n"))
    task = parse_workload("1,1,0.5,0.1,5").model_copy(update={"environment": "CartPole-v1", "step": 0.01})
    constants = Constants(task=task)
    assert find_workload(config, (), constants).longest == 5
    workload = find_workload(config, ("environment.max_steps=30",), constants)
    assert workload.longest == pytest.approx(0.3) and workload.draw(1, 0).max() <= 0.3
    without_step = Constants(task=task.model_copy(update={"step": None}))
    assert find_workload(config, ("environment.max_steps=30",), without_step).longest == 5


def test_a_generation_has_all_populations_that_its_solver_asks_for(write_config):
    config = write_config(
        "environment: {id: 'function:sphere', dimension: 5}\n"
        "solver: {kind: pgpe, population: 10, interactions: 4000, population_max: 60}\n"
    )
    measured = parse_workload("1,1,0.5,0.1").model_copy(update={"environment": "function:sphere"})
    for step, episodes in ((0.005, 40), (0.05, 60), (0.00005, 10)):  # episodes of 100, 10 and 10,000 steps
        constants = Constants(task=measured.model_copy(update={"step": step}))
        workload = find_workload(str(config), (), constants)
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
        (("10,10,1,0", "--constants", "other.yaml"), "environment is not a key; the top level has machine, task, meas"),
    ],
)
def test_mistakes_are_one_line(arguments, message, write_config, here):
    write_config("environment: {id: CartPole-v1}\n")
    write_config("machine: {cores: 0}\n", "broken.yaml")
    write_config("machine: {network: {latncy: 1}}\n", "misspelt.yaml")
    write_config("environment: {id: CartPole-v1}\n", "other.yaml")
    assert_refused(invoke("simulate", *arguments, "--ranks", "1"), message)


def test_no_overlap_is_recommended_for_a_solver_that_it_does_not_work_with(write_config):
    task = parse_workload("1,1,0.5,0.5").model_copy(update={"environment": "function:sphere"})
    text = "environment: {{id: 'function:sphere', dimension: 5}}\nsolver: {{kind: {}, population: 8}}\n"
    for kind, is_able in (("cma_es", False), ("openai_es", True)):
        workload = find_workload(str(write_config(text.format(kind))), (), Constants(task=task))
        ((alone, recommended),) = model.predict_pairs(Machine(), workload, [5])
        assert (recommended.overlap > 0) == is_able
        assert (recommended.seconds < alone.seconds) == is_able
