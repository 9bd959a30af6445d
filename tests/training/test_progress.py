"""The phases of a run: their seconds add up, a thread shows the newest one, and a generation is told in words."""

import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

from mpies.comm.serial import Serial
from mpies.config.loading import validate_config
from mpies.rollouts.batch import evaluation_batch
from mpies.rollouts.queue import RolloutQueue
from mpies.training import progress
from mpies.training.evaluation.generation import QueueKey
from mpies.training.progress import Phase, Phases, Progress, describe_generation, process_age
from mpies.training.trainer import make_trainer
from tests.support import wait_for

ROW = {"generation": 3, "return_mean": -1.5, "eval_mean": None}


class Recorded(Progress):
    """Keeps the phases that it is asked to show."""

    def __init__(self):
        self.shown, self.is_closed = [], False

    def show(self, row):
        self.shown.append(row)

    def show_phase(self, phase):
        self.shown.append((phase.name, phase.played and phase.played()))

    def close(self):
        self.is_closed = True


def queue_of(count):
    return RolloutQueue(evaluation_batch(np.zeros(1, np.float32), np.arange(count)))


def test_the_seconds_of_all_phases_add_up_and_the_bar_is_closed_where_a_run_fails(monkeypatch):
    clock = SimpleNamespace(seconds=1000.0)
    clock.advance = lambda seconds: setattr(clock, "seconds", clock.seconds + seconds)
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: clock.seconds))
    phases = Phases(Recorded(), SimpleNamespace(is_root=False, size=1), clock.seconds - 1.5)
    for name in ("reading the config", "building the environment"):
        phases.begin(Phase(name))
        clock.advance(2)
    for generation in (0, 1):
        phases.begin_play(QueueKey(generation, "training", 0), [queue_of(4)])
        clock.advance(10)
    phases.begin_play(QueueKey(2, "evaluation", 0), [queue_of(4)])
    clock.advance(4)
    phases.show(ROW)
    clock.advance(0.5)
    assert phases.describe() == "this job took 30.0 s: 5.5 s start-up, 20.5 s generations, 4.0 s evaluations"
    with pytest.raises(ZeroDivisionError), phases:
        1 / 0  # noqa: B018
    assert phases.progress.is_closed


def test_a_thread_shows_the_newest_phase_and_ends_with_the_run(monkeypatch):
    monkeypatch.setattr(progress, "INTERVAL", 0.01)
    shown, queue = Recorded(), queue_of(8)
    with Phases(shown, SimpleNamespace(is_root=True, size=2), time.monotonic()) as phases:  # its share is 4 of the 8
        phases.begin_play(QueueKey(6, "training", 1), [queue])
        for finished in range(6):
            queue.take(1)
            queue.finish(finished, 1.0, 1.0, 10)
            before = len(shown.shown)
            while len(shown.shown) < before + 2:
                time.sleep(0.001)
    assert shown.is_closed and not [thread for thread in threading.enumerate() if thread is phases._thread]
    assert {name for name, _ in shown.shown} == {"generation 7, batch 2"}
    shares = [share for _, share in shown.shown]
    assert shares == sorted(shares) and set(shares) >= {0.25, 0.5, 0.75, 1.0} and max(shares) == 1.0


def test_a_rank_that_is_not_the_root_shows_nothing_until_it_is(monkeypatch):
    monkeypatch.setattr(progress, "INTERVAL", 0.001)
    shown, comm = Recorded(), SimpleNamespace(is_root=False, size=3)
    with Phases(shown, comm, time.monotonic()) as phases:
        phases.begin_play(QueueKey(0, "training", 0), [queue_of(3)])
        time.sleep(0.05)
        assert shown.shown == []
        comm.is_root, comm.size = True, 2  # rank 0 was lost
        phases.begin_play(QueueKey(0, "training", 0), [queue_of(3)])
        wait_for(lambda: shown.shown, seconds=10)


def test_the_evaluator_names_each_queue_that_it_plays_once():
    values = {"environment": {"id": "CartPole-v1", "max_steps": 20}, "policy": {"hidden": []}, "noise": {"size": 1000}}
    values |= {"solver": {"population": 8}, "evaluation": {"every": 1, "episodes": 3}, "stop": {"generations": 2}}
    played = []

    def on_play(key, queues):
        played.append((*key[:2], len(queues[0].pending), queues[0].is_finished.any()))

    trainer = make_trainer(validate_config(values, "x"), Serial(), on_play=on_play)
    trainer.restore()
    for _ in range(2):
        trainer.run_generation()
    first = [(0, "training", 8, False), (1, "evaluation", 3, False)]
    assert played == [*first, (1, "training", 8, False), (2, "evaluation", 3, False)]


def test_the_age_of_a_process_begins_with_it():
    program = "import time; time.sleep(0.3); from mpies.training.progress import process_age; print(process_age())"
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert 0.25 < float(done.stdout) < time.monotonic() - began + 0.1
    assert process_age() > 0


def test_a_generation_is_told_with_its_evaluation_and_an_interval_where_there_is_one():
    assert describe_generation(ROW) == "generation 3: return -1.50"
    single = ROW | {"eval_mean": 2.0, "eval_std": 0.0, "eval_episodes": 1}
    assert describe_generation(single) == "generation 3: return -1.50, evaluation 2.00"
