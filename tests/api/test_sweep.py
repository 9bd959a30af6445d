"""mpies.sweep: in this process, and on ranks of a job of its own."""

import os
import signal
import sys
import threading

import numpy as np
import pytest
import yaml

import mpies
from mpies.api.sweep import SweepResult
from mpies.runs.formats.metrics import read_digests, read_metrics
from tests.support import CARTPOLE, wait_for

VALUES = yaml.safe_load(CARTPOLE.replace("generations: 10", "generations: 3"))
VARY = {"solver.sigma": [0.05, 0.3]}
DRAW = {"solver.sigma": {"uniform": [0.1, 0.2]}}
pytestmark = pytest.mark.usefixtures("here")


def digests(found):
    return {row["name"]: read_digests(found.path / row["name"]) for row in found.trials}


def test_a_sweep_in_this_process_is_that_of_a_job_of_its_own(capsys):
    here = mpies.sweep(VALUES, VARY, seeds=[1, 4], out="here", progress=False)
    assert capsys.readouterr().out == ""
    assert here.best in ({"solver.sigma": 0.05}, {"solver.sigma": 0.3})
    assert here.standings[0].mean >= here.standings[1].mean and here.standings[0].rank == 1
    ended = {(row["seed"], row["state"], row["generations"]) for row in here.trials}
    assert ended == {(1, "finished", 3), (4, "finished", 3)}
    lone = mpies.train(VALUES, "solver.sigma=0.3", "seed=4", out="lone", progress=False)
    assert digests(here)["sigma=0.3_seed=4"] == read_digests(lone.path)
    assert here.run("sigma=0.3_seed=4").metrics["generation"].tolist() == [1, 2, 3]
    assert len(here.to_pandas()) == 4
    one, two = np.int64(1), np.int64(2)  # numbers may be NumPy's
    job = mpies.sweep(VALUES, VARY, seeds=[1, 4], out="job", ranks=two, ranks_per_run=one, progress=False)
    assert digests(job) == digests(here) and job.best == here.best


def test_without_pandas_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)  # which Python takes for a package that is absent
    with pytest.raises(mpies.ConfigError, match=r'pip install "mpies\[pandas\]"'):
        SweepResult(tmp_path, []).to_pandas()


MAPPING = 'vary must be a mapping such as {"solver.sigma": [0.1, 0.2]}, but is '


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"draw_seed": -1}, "draw_seed must be a whole number from 0 on, but is -1"),
        ({"trials": np.int64(0)}, "trials must be a whole number from 1 on, but is 0"),
        ({"ranks": np.bool_(True)}, "ranks must be a whole number from 1 on, but is True"),
        ({"seeds": np.int64(0)}, "seeds must be a number such as 5"),
        ({"vary": "solver.sigma=0.1,0.2"}, f"{MAPPING}the text 'solver.sigma=0.1,0.2'"),
        ({"vary": [("solver.sigma", [0.1, 0.2])]}, f"{MAPPING}the list "),
        ({"vary": {"solver.sigma": [-1, 0.1]}, "trials": None}, "1 of 2 settings cannot be trained"),
        ({"vary": {"solver.sigma": [-1, 0.1]}, "trials": None, "ranks": 2}, "1 of 2 settings cannot be trained"),
        ({"vary": {"solver.sigma": 3}}, "vary: solver.sigma must be a list"),
        ({"ranks_per_run": 0}, "ranks_per_run must be a whole number"),
        ({"vary": {3: [0.1]}}, f"{MAPPING}the section {{3: [0.1]}}"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(arguments, words, tmp_path):
    with pytest.raises(mpies.ConfigError) as caught:
        mpies.sweep(VALUES, out="out", **{"vary": DRAW, "trials": 2} | arguments)
    assert words in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_numbers_of_draws_may_be_numpys():
    numbers = {"trials": np.int64(2), "draw_seed": np.int64(3), "seeds": np.int64(1)}
    numbers |= {"halving": {"first": np.int64(1), "unit": "generations"}}
    assert len(mpies.sweep(VALUES, DRAW, out="out", progress=False, **numbers).trials) == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGUSR1])
def test_a_signal_to_a_job_of_its_own_goes_on_to_its_handler(number):
    values, seen = yaml.safe_load(CARTPOLE.replace("generations: 10", "generations: 1000000")), []
    before = {one: signal.signal(one, lambda one, frame: seen.append(one)) for one in (signal.SIGTERM, signal.SIGUSR1)}

    def send():
        wait_for(lambda: read_metrics("job/sigma=0.05_seed=1"))
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=send)
    try:
        thread.start()
        found = mpies.sweep(values, VARY, seeds=1, out="job", ranks=1, progress=False)
    finally:
        thread.join()
        for one, handler in before.items():
            signal.signal(one, handler)
    assert "stopped" in {row["state"] for row in found.trials}
    assert seen == ([] if number == signal.SIGINT else [number])
