"""What `mpies bench` measures, with instruments whose readings are known."""

import json
import time
from types import SimpleNamespace

import numpy as np
import pytest
import yaml

from mpies.comm import connect
from mpies.comm.serial import Serial
from mpies.config.loading import validate_config
from mpies.core.errors import ConfigError
from mpies.launch.forecast import bench, constants
from mpies.launch.forecast.constants import Constants, Machine, parse_workload, read_constants
from mpies.rollouts.batch import evaluation_batch
from mpies.rollouts.queue import RolloutQueue
from mpies.training.trainer import make_trainer
from tests.support import CARTPOLE, assert_refused, invoke, on_one_and_three_ranks, read_files


@on_one_and_three_ranks
def test_idle_ranks_together_finish_what_is_pending_each_rollout_once(ranks):
    comm = connect()
    pending = np.delete(np.arange(1000), [3, 500])
    queue = RolloutQueue(evaluation_batch(np.zeros(2, np.float32), np.zeros(1000, np.int64)), pending)
    bench.IdlePlayer(comm).play([queue])
    records = comm.allgather(queue.finished())[0]
    assert comm.size == ranks
    assert np.array_equal(np.sort(records["rollout"]), pending)
    assert len(np.unique(records["total"])) == len(pending) and np.isfinite(records["total"]).all()
    assert (records["steps"] == 1).all()


def test_the_first_measurement_does_not_count():
    readings = iter([100.0, 3.0, 1.0, 2.0])
    assert bench.median_of(3, lambda: next(readings)) == 2


@pytest.mark.mpi(2)
def test_the_slowest_rank_counts_and_waiting_for_the_start_does_not():
    comm = connect()

    def step():
        bench.barrier(comm)
        time.sleep(0.1 if comm.rank else 0)

    if comm.rank == 0:
        time.sleep(0.3)
    assert 0.1 <= bench.timed(comm, step) < 0.3


@pytest.mark.mpi(3)
def test_latency_is_of_a_level_and_bandwidth_of_the_bytes_beyond_a_small_message(monkeypatch):
    # Three ranks make two levels.  The slowest takes 0.04 s, and 0.02 s more for LARGE bytes, by a clock of its own.
    comm, now = connect(), [0.0]
    monkeypatch.setattr(bench, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    def broadcast(arrays):
        size = arrays[0].nbytes
        now[0] += (0.04 + 0.02 * (size - bench.SMALL) / bench.LARGE) * (comm.rank + 1) / comm.size

    monkeypatch.setattr(comm, "broadcast", broadcast)
    collective = bench.measure_network(comm, repeats=3)
    assert collective.latency == pytest.approx(0.02)
    assert collective.bandwidth == pytest.approx(bench.LARGE / 0.02)


def test_the_workload_is_that_of_the_first_generations():
    config = validate_config(yaml.safe_load(CARTPOLE), "test")
    workload = bench.measure_task(Serial(), config, "pole", generations=2)
    trainer = make_trainer(config, Serial())
    trainer.restore()
    steps = []
    for generation in range(2):
        parts, _ = trainer.updater.next_parts()
        population = trainer.evaluator.evaluate(parts, generation)
        trainer.updater.apply(parts, population)
        steps.append(population.results.steps)
    steps = np.concatenate(steps)
    assert workload.name == "pole (CartPole-v1)" and workload.environment == "CartPole-v1"
    assert (workload.parameters, workload.rows, workload.episodes) == (58, 8, 16)
    assert workload.variation == pytest.approx(steps.std() / steps.mean())
    assert workload.seconds == pytest.approx(workload.step * steps.mean())
    assert workload.longest == pytest.approx(60 * workload.step)
    env = trainer.task.env
    rules = (workload.smallest, workload.largest, workload.low_water, workload.divisor)
    assert rules == (env.smallest, env.largest, env.low_water, env.divisor) and env.largest > 1


def test_a_function_is_an_episode_of_one_step():
    environment = {"id": "function:sphere", "dimension": 5}
    config = validate_config({"environment": environment, "solver": {"population": 8}, "noise": {"size": 1000}}, "test")
    workload = bench.measure_task(Serial(), config, "ball", generations=1)
    assert workload.longest == workload.step == workload.seconds and workload.variation == 0
    assert (workload.largest, workload.episodes) == (1, 8)


def test_the_longest_episode_is_a_time_limit():
    pendulum, own = {"id": "Pendulum-v1"}, {"id": "path/to/own.py:Env"}
    for section, steps in ((pendulum, 200), ({**pendulum, "max_steps": 70}, 70), (own, None)):
        assert constants.longest_episode(validate_config({"environment": section}, "test")) == steps


def test_a_file_holds_what_was_measured_and_is_left_as_it_was_where_that_is_tried(tmp_path):
    workload = parse_workload("10,20,0.5,0.1").model_copy(update={"largest": 8, "step": 0.01})
    measured = Constants(machine=Machine(cores=3, episode=1e-6), task=workload, measured={"ranks": 3})
    constants.write_constants(measured, str(tmp_path / "constants.yaml"))
    assert read_constants(tmp_path / "constants.yaml") == measured
    with pytest.raises(ConfigError, match=r"--out .*: cannot be written"):
        constants.write_constants(measured, str(tmp_path / "absent" / "constants.yaml"))
    before = read_files(tmp_path)
    for name in ("constants.yaml", "new.yaml", "/dev/null"):
        constants.write_constants(None, str(tmp_path / name))
    assert read_files(tmp_path) == before


@pytest.mark.parametrize("ranks", [0, 2])
def test_bench_measures_what_simulate_needs(ranks, run_mpies, write_config, tmp_path):
    config = write_config(CARTPOLE)
    words = ["--out", "constants.yaml", "--repeats", "1", "--generations", "1"]
    measured = run_mpies(ranks, "bench", config, *words, code=0)
    assert "WARNING" not in measured.stderr
    assert measured.stdout == (tmp_path / "constants.yaml").read_text()
    found = yaml.safe_load(measured.stdout)
    assert found["machine"]["cores"] == max(1, ranks) and found["task"]["episodes"] == 16
    assert found["task"]["longest"] == pytest.approx(60 * found["task"]["step"]) and found["task"]["largest"] > 1
    assert 1e8 < found["machine"]["core_streaming"] < 1e12
    shown = run_mpies(0, "simulate", config, "--constants", "constants.yaml", "--ranks", "1,2", "--json", code=0)
    assert 0.05 < json.loads(shown.stdout)[0][0]["efficiency"] <= 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["absent.yaml"], "absent.yaml: cannot be read"),
        (["--out", "absent/c.yaml"], "absent/c.yaml: cannot be written (No such file or directory); it must be a file"),
        (["--out", "folder"], "--out folder: cannot be written (Is a directory); it must be a file"),
    ],
)
def test_mistakes_are_one_line_before_anything_is_measured(words, message, here):
    (here / "folder").mkdir()
    assert_refused(invoke("bench", "--repeats", "1", *words), message)
    assert not list((here / "folder").iterdir())
