"""One rank of a job: its exit codes, one line for each mistake, what it imports, and one run for each seed."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import mpies
from mpies.config.loading import resolved
from mpies.runs.formats.checkpoint import newest_checkpoint
from mpies.runs.formats.ledger import read_records
from mpies.runs.formats.metrics import read_digests, read_metrics
from mpies.runs.reader import read_run_config
from tests.support import CARTPOLE, ENDLESS, FAULTY, FAULTY_MODULE, HOME, assert_refused, invoke, read_files, wait_for


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["noise.size=20"], ["noise.size", "58"]),  # parameters of the policy: 4 * 8 + 8 + 8 * 2 + 2
        (["environment.id=CartPool-v1"], ["CartPool-v1", "did you mean CartPole-v"]),
        (["--out", "/proc/nowhere"], ["/proc/nowhere", "choose another --out"]),
    ],
)
def test_a_mistake_ends_training_with_one_line_and_nothing_written(arguments, words, write_config, here):
    config, before = write_config(CARTPOLE), read_files(here)
    assert_refused(invoke("train", config, *arguments), *words)
    assert read_files(here) == before
    if "--out" not in arguments:
        assert_refused(invoke("check", config, *arguments), *words)


def test_a_users_mistake_is_one_line_however_many_ranks_there_are(run_mpies, write_config):
    outcome = run_mpies(3, "train", write_config(ENDLESS), "--out", "run", "solver.population=7", code=2)
    assert outcome.stderr.count("solver.population must be even (antithetic pairs), but is 7; use 6 or 8") == 1
    assert "Traceback" not in outcome.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_after_the_generation_with_code_75_and_the_run_goes_on(
    number, digests_of, start_mpies, run_mpies, write_config, tmp_path
):
    config, run = write_config(CARTPOLE.replace("generations: 10", "generations: 1000000")), tmp_path / "run"
    process = start_mpies(0, "train", config, "--out", "run", "--resume", "auto")
    while process.stdout.readline() and not (run / "metrics.csv").exists():
        pass
    os.kill(process.pid, number)
    assert process.wait(60) == 75
    made = len(read_digests(run))
    assert newest_checkpoint(run, print)[1]["generation"] == made
    assert f"stopped by a signal after generation {made}; " in process.stderr.read()
    assert not (run / "finished.yaml").exists() and not (run / "writer.json").exists()
    run_mpies(0, "train", config, "--out", "run", f"stop.generations={max(made + 1, 10)}", code=0)
    assert read_digests(run)[:10] == digests_of(CARTPOLE)


def test_ctrl_c_ends_what_is_no_training_without_a_traceback(tmp_path):
    command = [sys.executable, "-P", "-m", "mpies", "bench", "--repeats", "100000"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    maps = Path(f"/proc/{process.pid}/maps")
    wait_for(lambda: "_multiarray_umath" in maps.read_text(), process)  # the command has begun, as it imports NumPy
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout, stderr.strip()) == (1, "", "Aborted!")


def test_a_generation_that_failed_is_played_again_and_never_finished_without_evaluation(
    run_mpies, write_config, tmp_path
):
    """Ranks whose members fail are not started again."""
    (tmp_path / "faulty.py").write_text(FAULTY_MODULE)
    config, run = write_config(FAULTY.format(share=0.75)), tmp_path / "run"
    for ranks in (["--ranks", "2"], []):
        outcome = run_mpies(0, "train", config, "--out", "run", "stop.generations=1", *ranks, code=1)
        assert "restart" not in outcome.stderr and outcome.stderr.count("more than stop.max_failures") == 1
        assert "Traceback" not in outcome.stderr and len(read_digests(run)) == 1
        assert not (run / "finished.yaml").exists()
    outcome = run_mpies(0, "train", config, "--out", "run", "stop.generations=1", "stop.max_failures=1", code=1)
    assert "so the run has no result" in outcome.stderr  # the evaluation fails as well


@pytest.mark.parametrize("every", [1000000, 5])
def test_an_end_that_lies_behind_is_evaluated(every, digests_of, start_mpies, run_mpies, write_config, tmp_path):
    config, run = write_config(CARTPOLE), tmp_path / "run"
    options = ["--out", "run", "evaluation.every=0", f"checkpoint.every={every}"]
    process = start_mpies(0, "train", config, *options, "stop.generations=1000000")
    wait_for(lambda: run.exists() and len(read_digests(run)) >= 8, process)
    process.kill()
    process.communicate()
    made = max(int(one["generation"]) for one in read_records(run / "ledger.bin"))  # its row may not be on disk yet
    run_mpies(0, "train", config, *options, "stop.generations=3", code=0)
    rows = read_metrics(run)
    assert len(rows) == made and rows[-1]["eval_mean"] and read_digests(run)[:10] == digests_of(CARTPOLE)[:made]
    assert newest_checkpoint(run, print)[1]["generation"] == made
    assert mpies.load(run).policy().generation == mpies.Policy.load(run / "policy.h5").generation == made
    again = run_mpies(0, "train", config, *options, "stop.generations=3", code=0)
    assert "is complete" in again.stdout + again.stderr


def test_seeds_are_runs_of_their_own_the_same_on_two_ranks_and_resume(run_mpies, write_config, tmp_path):
    train = ["train", write_config(CARTPOLE.replace("generations: 10", "generations: 3")), "--out"]
    run_mpies(0, *train, "alone", "--seeds", "2", code=0)
    run_mpies(2, *train, "pair", "--seeds", "1..2", code=0)
    configs = [resolved(read_run_config(tmp_path / f"alone-seed-{seed}")) for seed in (1, 2)]
    assert [config.pop("seed") for config in configs] == [1, 2] and configs[0] == configs[1]
    digests = {run.name: read_digests(run) for run in tmp_path.glob("*-seed-*")}
    first, second = digests["alone-seed-1"], digests["alone-seed-2"]
    assert first == digests["pair-seed-1"] and second == digests["pair-seed-2"] and first[0] != second[0]
    run_mpies(0, *train, "alone", "--seeds", "2..2", "stop.generations=4", code=0)
    longer = read_digests(tmp_path / "alone-seed-2")
    assert longer[:3] == second and len(longer) == 4 and len(read_digests(tmp_path / "alone-seed-1")) == 3
    # A later seed that is there is refused before ranks are started: they would go on with it, as with a run of theirs.
    shutil.rmtree(tmp_path / "alone-seed-1")
    refused = run_mpies(0, *train, "alone", "--seeds", "2", "--resume", "never", "--ranks", "1")
    assert_refused(refused, "alone-seed-2: contains a run already; ")
    assert not (tmp_path / "alone-seed-1").exists()


NOTE = """
import atexit, json, os, sys

def note():
    if "OMPI_COMM_WORLD_RANK" in os.environ and "mpies" in sys.modules:
        with open(os.path.join(os.environ["NOTES"], os.environ["OMPI_COMM_WORLD_RANK"]), "w") as file:
            json.dump(sorted(sys.modules), file)

atexit.register(note)
"""
SHOWN = {"rich", "matplotlib", "IPython", "html", "mpies.report.page"}  # what people look at
WRITTEN = {"h5py", "tensorboard", "wandb", "mpies.solvers.check"}
OF_OTHERS = {"xml.etree", "cma", "nevergrad", "torch", "mpies.launch.supervisor"}  # backends and solvers not in use


def test_a_rank_that_plays_imports_nothing_that_others_show_or_write(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(NOTE)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(HOME)]), "NOTES": str(tmp_path)}
    command = [sys.executable, "-m", "mpies", "train", "cartpole", "--ranks", "2", "stop.generations=1"]
    subprocess.run(command, cwd=tmp_path, env=environment, check=True)
    root, player = (set(json.loads((tmp_path / rank).read_text())) for rank in "01")
    assert "mpies.training.trainer" in player and "h5py" in root
    assert player & (SHOWN | WRITTEN | OF_OTHERS) == set()
    assert root & (SHOWN | OF_OTHERS) == set()
