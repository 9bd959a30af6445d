"""One rank of a job: its exit codes, and one line for each mistake."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import mpies
from mpies.runs.formats.checkpoint import newest_checkpoint
from mpies.runs.formats.ledger import read_records
from mpies.runs.formats.metrics import read_digests, read_metrics
from tests.support import CARTPOLE, ENDLESS, FAULTY, FAULTY_MODULE, assert_refused, invoke, read_files, wait_for

MISTAKES = [
    (["noise.size=20"], ["noise.size", "58"]),  # parameters of the policy: 4 * 8 + 8 + 8 * 2 + 2
    (["environment.id=CartPool-v1"], ["CartPool-v1", "did you mean CartPole-v"]),
    (["--out", "/proc/nowhere"], ["/proc/nowhere", "choose another --out"]),
]


@pytest.mark.parametrize(("arguments", "words"), MISTAKES)
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
    again = run_mpies(0, "train", config, *options, "stop.generations=3")
    assert again.code == 0 and "is complete" in again.stdout + again.stderr
