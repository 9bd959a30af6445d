"""Predictions of scaling, against numbers worked out by hand and the commands that make and use them."""

import json

import pytest
import yaml

from mpies.scaling import model
from mpies.errors import ConfigError

# OpenAI-ES on a humanoid of 256-256; see docs/scaling.md.
HUMANOID = "166673,10000,1,0.5,2"


def test_phases_of_an_update_worked_out_by_hand():
    work = model.parse_work("1000000,1000,1,0")
    machine = model.Machine(
        cores=4,
        core_streaming=1e9,
        node_streaming=2e9,
        generation=0.5,
        episode=1e-6,
        parameter=1e-9,
        broadcast={"latency": 1e-3, "bandwidth": 1e9},
        allgather={"latency": 1e-4, "bandwidth": 1e9},
        gather={"latency": 1e-5, "bandwidth": 1e9},
    )
    assert model.update_phases(machine, work, 8) == pytest.approx(
        {
            "results": 3e-4 + 32_000 / 1e9,  # three levels
            "weights": 1e-3,
            "moments": 500 * 500_000 / 0.5e9,  # an eighth of each row, at a quarter of what the node streams
            "blocks": 3e-5 + 4e-3,
            "step": 0.5 + 1e-3,
            "proposal": 3e-3 + 4e-3,
        }
    )
    alone = model.update_phases(machine, work, 1)
    assert alone["results"] == alone["blocks"] == alone["proposal"] == 0 and alone["moments"] == 500 * 4e6 / 1e9
    tiny = model.update_phases(machine, model.parse_work("64,1000,1,0"), 512)
    assert tiny["moments"] == 500 * 64 / 0.5e9  # no less than a cache line


def test_equal_episodes_waste_what_does_not_divide():
    machine = model.Machine(cores=8, core_streaming=1e30, node_streaming=1e30)
    work = model.parse_work("16,9,1,0")
    found = model.predict(machine, work, 8)
    assert found.seconds == pytest.approx(2, rel=1e-3) and found.efficiency == pytest.approx(9 / 16, rel=1e-3)
    assert found.phases["waiting"] == pytest.approx(2 - 9 / 8, rel=1e-3)


@pytest.mark.parametrize(("ranks", "alone", "overlapping"), [(144, 0.975, 1.0), (8192, 0.45, 0.83)])
def test_a_humanoid_on_many_ranks(ranks, alone, overlapping):
    machine, work = model.Machine(), model.parse_work(HUMANOID)
    assert model.predict(machine, work, ranks).efficiency == pytest.approx(alone, abs=0.03)
    assert model.predict(machine, work, ranks, overlap=1).efficiency == pytest.approx(overlapping, abs=0.03)


def test_a_static_split_is_worse_than_tickets():
    work = model.parse_work("16,640,1,0.5")
    machine = model.Machine(cores=64)
    tickets, static = (model.predict(machine, work, 64, static=static).efficiency for static in (False, True))
    assert 0.65 < static < 0.78 < tickets < 0.90


def test_a_prediction_is_a_function_of_its_seed():
    work, machine = model.parse_work("1000,500,1,1"), model.Machine()
    assert model.predict(machine, work, 40) == model.predict(machine, work, 40)
    assert model.predict(machine, work, 40) != model.predict(machine, work, 40, seed=2)


def test_ranks_are_lists_or_powers_of_two():
    assert model.parse_ranks("3,1,36") == [3, 1, 36]
    assert model.parse_ranks("1..10") == [1, 2, 4, 8, 10] and model.parse_ranks("36..36") == [36]
    for wrong in ("0,1", "", "a", "1..b", "0..4"):
        with pytest.raises(ConfigError, match="--ranks must be like"):
            model.parse_ranks(wrong)


def test_simulate_prints_a_table_a_plot_and_json(run_mpies, tmp_path):
    command = ("simulate", "1000,200,0.1,0.5", "--ranks", "1,50")
    shown = run_mpies(0, *command, "--plot", "scaling.png")
    assert shown.code == 0 and len(shown.stdout.splitlines()) == 8
    assert (tmp_path / "scaling.png").read_bytes().startswith(b"\x89PNG")
    (one, _), (many, overlapping) = json.loads(run_mpies(0, *command, "--json").stdout)
    assert one["ranks"] == 1 and one["efficiency"] > 0.99
    assert many["efficiency"] < overlapping["efficiency"] <= 1


@pytest.mark.parametrize("ranks", [0, 2])
def test_bench_measures_what_simulate_needs(ranks, run_mpies, write_config, tmp_path):
    config = write_config(
        "environment: {id: CartPole-v1, max_steps: 50}\npolicy: {hidden: [8]}\nsolver: {population: 32}\n"
        "noise: {size: 100000}\n"
    )
    found = run_mpies(ranks, "bench", config, "--out", "constants.yaml", "--repeats", "1", "--generations", "1")
    assert found.code == 0 and "an episode" in found.stdout
    constants = yaml.safe_load((tmp_path / "constants.yaml").read_text())
    assert constants["machine"]["cores"] == max(1, ranks) and constants["task"]["episodes"] == 32
    assert constants["task"]["longest"] == pytest.approx(50 * constants["task"]["step"])
    assert 1e8 < constants["machine"]["core_streaming"] < 1e12
    shown = run_mpies(0, "simulate", config, "--constants", "constants.yaml", "--ranks", "1,2", "--json")
    assert shown.code == 0 and 0.05 < json.loads(shown.stdout)[0][0]["efficiency"] <= 1


def test_mistakes_are_one_line(run_mpies, write_config):
    config = write_config("environment: {id: CartPole-v1}\n")
    (config.parent / "broken.yaml").write_text("machine: {cores: 0}\n")
    for arguments, message in [
        (("simulate", "1,2"), "is no task"),
        (("simulate", "absent.yaml"), "cannot be read"),
        (("simulate", config), "measure with mpies bench"),
        (("simulate", "10,10,1,0", "--constants", "broken.yaml"), "machine.cores"),
        (("bench", "absent.yaml"), "cannot be read"),
    ]:
        found = run_mpies(0, *arguments)
        assert found.code == 2 and message in found.stderr and len(found.stderr.splitlines()) == 1
