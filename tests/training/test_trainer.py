"""Runs of the real command line on one rank: trained, stopped, resumed, damaged, failed."""

import shutil
import signal
import time

import numpy as np
import pytest
import yaml

from mpies.comm.serial import Serial
from mpies.config.loading import validate_config
from mpies.runs.directory import open_run
from mpies.runs.formats import hdf5, ledger
from mpies.runs.formats.checkpoint import list_checkpoints, newest_checkpoint
from mpies.runs.formats.metrics import COLUMNS, read_digests, read_metrics
from mpies.training.control import STOP
from mpies.training.replay import Replay
from mpies.training.trainer import make_trainer
from tests.support import CARTPOLE, FAULTY, FAULTY_MODULE, assert_refused, read_files, wait_for


@pytest.fixture
def undisturbed(trained):
    """A run of ten generations of CARTPOLE."""
    return trained(CARTPOLE)


@pytest.fixture
def train(run_mpies, write_config):
    """Function of overrides: trains CARTPOLE, or the text given, in tmp_path/run.  Returns its Outcome."""
    return lambda *overrides, text=CARTPOLE, code=0: run_mpies(
        0, "train", write_config(text), "--out", "run", *overrides, code=code
    )


@pytest.fixture
def run(undisturbed, tmp_path):
    """A copy of `undisturbed`."""
    return shutil.copytree(undisturbed, tmp_path / "run")


def trainer_here(run, values):
    """A Trainer in this process."""
    config = validate_config({"solver": {"population": 4}, "noise": {"size": 100}} | values, "x")
    return make_trainer(config, Serial(), open_run(run, config))


def train_here(trainer):
    """Why a Trainer stopped, and the evaluations of its run."""
    reason = trainer.train()
    trainer.run.flush()
    trainer.run.close()
    return reason, [row["eval_mean"] for row in read_metrics(trainer.run.path)]


def test_a_run_leaves_the_files_and_columns_that_users_rely_on(undisturbed):
    rows, digests = read_metrics(undisturbed), read_digests(undisturbed)
    assert [int(row["generation"]) for row in rows] == list(range(1, 11))
    assert list(rows[0])[: len(COLUMNS)] == COLUMNS and "sigma" in rows[0]
    assert [bool(row["eval_mean"]) for row in rows] == [False, True] * 5
    assert [int(row["episodes"]) for row in rows] == list(range(16, 176, 16))
    assert len(set(digests)) == 10 and all(len(digest) == 64 for digest in digests)
    assert [path.name for path in list_checkpoints(undisturbed)] == [f"generation-{n:08d}.h5" for n in (10, 8, 6, 0)]
    assert yaml.safe_load((undisturbed / "config.yaml").read_text())["solver"]["population"] == 16
    assert yaml.safe_load((undisturbed / "finished.yaml").read_text())["reason"] == "generations"
    means = {int(row["generation"]): float(row["eval_mean"]) for row in rows if row["eval_mean"]}
    best = max(means, key=means.get)
    for name, generation in (("best.h5", best), ("policy.h5", 10)):
        arrays, attributes = hdf5.read(undisturbed / name)
        assert arrays["parameters"].dtype == np.float32 and np.isfinite(arrays["parameters"]).all()
        assert yaml.safe_load(attributes["config"])["environment"]["id"] == "CartPole-v1"
        assert attributes["generation"] == generation and attributes["eval_mean"] == pytest.approx(means[generation])
        assert attributes["eval_episodes"] == 5
    arrays, attributes = hdf5.read(list_checkpoints(undisturbed)[0])
    assert attributes["generation"] == 10 and arrays["best"] == pytest.approx(means[best])


def test_a_run_stopped_at_five_and_resumed_is_the_undisturbed_one(undisturbed, train, tmp_path):
    run = tmp_path / "run"
    train("stop.generations=5")
    assert read_digests(run) == read_digests(undisturbed)[:5]
    assert "continuing from generation 5" in train("--resume", "must").stderr
    assert read_digests(run) == read_digests(undisturbed)
    resumed, expected = read_metrics(run), read_metrics(undisturbed)
    assert resumed[4]["eval_mean"]  # it was evaluated where it stopped
    resumed[4] |= {"eval_mean": "", "eval_std": ""}
    for column in ("steps", "episodes", "return_mean", "eval_mean", "eval_std", "sigma", "failures"):
        assert [row[column] for row in resumed] == [row[column] for row in expected], column
    assert (run / "policy.h5").exists()


def test_generations_behind_the_newest_undamaged_checkpoint_are_recomputed(undisturbed, run, train):
    newest = run / "checkpoints" / "generation-00000010.h5"
    newest.write_bytes(newest.read_bytes()[:1000])
    with open(run / "metrics.csv", "a") as file:
        file.write("11,3.5,1")
    stderr = train("stop.generations=11").stderr
    assert "generation-00000010.h5: is damaged" in stderr
    assert "continuing from generation 10" in stderr  # 9 and 10 come from the ledger
    assert read_digests(run)[:10] == read_digests(undisturbed)
    assert [int(row["generation"]) for row in read_metrics(run)] == list(range(1, 12))
    newest.unlink()
    (run / "checkpoints" / "generation-00000011.h5").unlink()
    records = list(ledger.read_records(run / "ledger.bin"))
    records[8] |= {"returns": records[8]["returns"][::-1]}  # of generation 9
    (run / "ledger.bin").write_bytes(b"".join(map(ledger.pack_record, records)))
    stderr = train().stderr
    assert "gives another state than recorded; going back to the checkpoint" in stderr
    assert "continuing from generation 8" in stderr
    assert read_digests(run) == read_digests(undisturbed)


@pytest.mark.parametrize("reason", ["signal", "failures"])
def test_a_run_that_is_interrupted_is_not_evaluated(reason, tmp_path):
    values = {"environment": {"id": "function:sphere", "dimension": 3}, "stop": {"max_failures": 0}}
    trainer = trainer_here(tmp_path / "run", values)
    play = trainer.task.player.play

    def play_and_interrupt(queues, *rest):
        play(queues, *rest)
        if reason == "failures":
            queues[0].results["total"][0] = np.nan
        else:
            trainer.control.agree(np.array([STOP]))

    trainer.task.player.play = play_and_interrupt
    assert train_here(trainer) == (reason, [""])


def test_a_signal_makes_no_evaluation_the_last_one_in_which_nothing_may_fail(tmp_path):
    hole = "def value(x):\n    return -float(x @ x) if abs(x).max() > 0.001 else float('nan')"
    (tmp_path / "hole.py").write_text(hole)
    solver = {"population": 4, "sigma": 1.0, "optimizer": {"kind": "adam", "learning_rate": 1e-6}}
    values = {"environment": {"id": f"{tmp_path}/hole.py:value", "dimension": 3}, "solver": solver}
    trainer = trainer_here(tmp_path / "run", values | {"evaluation": {"every": 1}})
    evaluate = trainer.evaluator.evaluate

    def evaluate_and_interrupt(parts, generation, prefetch):
        if generation == 1:
            trainer.control.agree(np.array([STOP]))
        return evaluate(parts, generation, prefetch)

    trainer.evaluator.evaluate = evaluate_and_interrupt
    assert train_here(trainer) == ("signal", ["", ""]) and not trainer.failure


def test_a_run_ends_at_the_first_rule_that_is_reached_and_is_evaluated_there(train, tmp_path):
    train("stop.steps=300", "evaluation.every=0")
    rows = read_metrics(tmp_path / "run")
    assert int(rows[-1]["steps"]) >= 300 > int(rows[-2]["steps"])
    assert [bool(row["eval_mean"]) for row in rows] == [False] * (len(rows) - 1) + [True]
    assert yaml.safe_load((tmp_path / "run" / "finished.yaml").read_text())["reason"] == "steps"


def test_a_run_of_another_config_is_refused_with_the_keys_that_differ(run, train):
    before = read_files(run)
    changes = ["solver.sigma=0.2", "policy.hidden=[9]", "stop.generations=50"]
    words = "solver.sigma: 0.1 there, 0.2 now", "policy.hidden: [8] there, [9] now", "choose another --out"
    for resume in ("auto", "must"):
        outcome = train("--resume", resume, *changes, code=2)
        assert_refused(outcome, *words)
        assert "stop.generations" not in outcome.stderr
    assert_refused(train("--resume", "never", code=2), "contains a run already")
    assert read_files(run) == before
    shutil.rmtree(run)
    assert_refused(train("--resume", "must", code=2), "contains no run to resume")
    assert not run.exists()


def test_a_run_from_before_some_keys_were_added_goes_on(undisturbed, run, train):
    before = yaml.safe_load((run / "config.yaml").read_text())
    del before["overlap"], before["noise"]["kind"], before["environment"]["hide"]
    (run / "config.yaml").write_text(yaml.safe_dump(before))
    assert_refused(train("overlap=1", code=2), "overlap: 0.0 there, 1.0 now")
    train("stop.generations=11")
    assert read_digests(run)[:10] == read_digests(undisturbed) and len(read_digests(run)) == 11


@pytest.mark.parametrize(("share", "code"), [(0.3, 0), (0.75, 1)])
def test_failed_members_are_counted_and_named_and_too_many_end_the_run(share, code, train, tmp_path):
    (tmp_path / "faulty.py").write_text(FAULTY_MODULE)
    stderr, rows = train(text=FAULTY.format(share=share), code=code).stderr, read_metrics(tmp_path / "run")
    lines = [line for line in stderr.splitlines() if line.startswith("WARNING")]
    more = [int(line.partition(" and ")[2].split()[0]) if " more failed" in line else 0 for line in lines]
    assert all("RuntimeError: out of balance" in line for line in lines)
    assert sum(int(row["failures"]) for row in rows) == len(lines) + sum(more) > len(rows) == len(lines)
    assert "Traceback" not in stderr
    if code:
        assert "stop.max_failures" in stderr and len(rows) == 1
        assert newest_checkpoint(tmp_path / "run", print)[1]["generation"] == 1
        assert not (tmp_path / "run" / "finished.yaml").exists()


def test_a_generation_whose_evaluation_is_abandoned_is_trained_again(start_mpies, train, write_config, tmp_path):
    """A signal's grace that ends in an evaluation leaves no gap in metrics.csv or the ledger."""
    long = "evaluation={every: 1, episodes: 300_000}", "stop.grace=0.1"
    job = start_mpies(0, "train", write_config(CARTPOLE), "--out", "run", *long)
    wait_for(lambda: list(tmp_path.glob("run/checkpoints/*0.h5")), job)
    time.sleep(1)
    job.send_signal(signal.SIGUSR1)
    errors = job.communicate(timeout=300)[1]
    assert job.returncode == 75 and "after generation 0;" in errors
    train("stop.generations=2", "evaluation.every=1")
    rows = read_metrics(tmp_path / "run")
    assert [row["generation"] for row in rows] == ["1", "2"] and all(row["eval_mean"] for row in rows)
    assert Replay(tmp_path / "run", 1).generation == 1


@pytest.mark.parametrize("steps", ["1.35E+11", ""])
def test_a_run_whose_newest_row_has_other_numbers_goes_on(steps, run, train):
    """As a spreadsheet writes large ones."""
    *lines, newest = (run / "metrics.csv").read_text().splitlines(keepends=True)
    cells = newest.split(",")
    cells[lines[0].split(",").index("steps")] = steps
    (run / "metrics.csv").write_text("".join([*lines, ",".join(cells)]))
    assert "continuing from generation 10" in train("stop.generations=11").stderr
