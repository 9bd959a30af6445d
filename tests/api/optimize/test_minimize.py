"""minimize and maximize: on any number of ranks, within domains, with functions that fail, and interrupted."""

import itertools
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np
import pytest

import mpies
from mpies import AskTell, ConfigError, TrainingFailed, UserError
from mpies.comm import LAUNCHED, mpiexec
from tests.support import on_one_and_three_ranks, wait_for

CENTER = np.array([0.5, -1.25, 2.0, 3.75])


def bowl(x):
    """Its least value is 0 at CENTER; NaN and errors here and there."""
    if x[0] > 1.5:
        return np.nan
    if x[1] > 0.75:
        raise ArithmeticError("too far")
    return float(np.sum((x - CENTER) ** 2))


def search_by_hand(solver, generations, **options):
    """What minimize should come to, by ask and tell."""
    es = AskTell(solver, np.zeros(4), **options)
    for _ in range(generations):
        es.tell([bowl(x) if x[1] <= 0.75 else np.nan for x in es.ask()])
    return es


def assert_same(found, es):
    assert found.x.tobytes() == es.best_x.tobytes() and found.value == es.best_value
    assert found.mean.tobytes() == es.mean.tobytes()
    assert (found.generations, found.evaluations) == (es.generation, es.evaluations)


@on_one_and_three_ranks
@pytest.mark.filterwarnings("ignore:.*evaluations of generation")
def test_every_number_of_ranks_finds_the_same_bits(ranks):
    options = {"sigma": 0.5, "seed": 5, "bounds": (-4, None), "integers": [2]}
    for solver in ("snes", "cma_es"):
        found = mpies.minimize(bowl, np.zeros(4), solver, generations=30, **options)
        assert_same(found, search_by_hand(solver, 30, **options))
    assert found.reason == "generations" and found.value < 0.3
    assert found.x[2] == 2 and np.allclose(found.x, CENTER, atol=0.5)
    history = found.history
    assert history["generation"].tolist() == list(range(1, 31)) and history["evaluations"][-1] == found.evaluations
    assert history["best"][-1] == found.value and (np.diff(history["best"]) <= 0).all()
    assert (history["value_min"] >= history["best"]).all() and (history["sigma"] > 0).all()
    assert (np.diff(history["seconds"]) > 0).all() and history["failures"].sum() > 0


@pytest.mark.filterwarnings("ignore:.*evaluations of generation")
def test_ranks_of_a_job_of_their_own_find_the_same_bits(capfd):
    here, rows = os.getpid(), []
    center = CENTER + 0  # in a closure

    def noisy(x):
        if os.getpid() == here:
            raise AssertionError("it is evaluated in this process")
        print("hello from", os.environ["OMPI_COMM_WORLD_RANK"])
        time.sleep(0.002)  # leaves some members for the other rank
        return bowl(x) + 0 * center[0]

    found = mpies.minimize(
        noisy, np.zeros(4), sigma=0.5, ranks=2, generations=30, callbacks=lambda es, row: rows.append(row)
    )
    assert_same(found, search_by_hand("cma_es", 30, sigma=0.5))
    assert [row["generation"] for row in rows] == list(range(1, 31)) and rows[-1]["best"] == found.value
    printed = capfd.readouterr().err
    assert "hello from 0\n" in printed and "hello from 1\n" in printed


def test_a_function_of_all_members_is_called_once_for_a_generation():
    def squares(members):
        calls.append(members.shape)
        return np.square(members - 1).sum(axis=1)

    calls = []
    found = mpies.minimize(squares, np.zeros(3), sigma=0.5, generations=20, vectorized=True)
    alone = mpies.minimize(lambda x: np.square(x - 1).sum(), np.zeros(3), sigma=0.5, generations=20)
    np.testing.assert_array_equal(found.x, alone.x)
    assert len(calls) == 20 and len({*calls}) == 1
    with pytest.raises(UserError, match=r"f must return 7 numbers, one for each member, but returned \(7, 3\)"):
        mpies.minimize(lambda members: members, np.zeros(3), vectorized=True)
    with pytest.warns(RuntimeWarning, match="by a value that is not finite; they rank worst") as log:
        mpies.minimize(lambda members: 1 / (members[:, 0] > 0), np.zeros(3), vectorized=True, generations=1)
    assert log[-1].filename == __file__
    with pytest.raises(ConfigError, match="leave ranks and mpirun out"):
        mpies.minimize(squares, np.zeros(3), vectorized=True, ranks=2)


def test_a_search_ends_at_its_target_or_where_nothing_changes_any_more():
    found = mpies.minimize(lambda x: np.square(x).sum(), np.ones(3), sigma=0.5)
    assert found.reason == "converged" and 20 < found.generations < 300 and found.value < 1e-12
    assert mpies.minimize(lambda x: np.square(x).sum(), np.ones(3), sigma=0.5, target=1e-20).reason == "solved"
    found = mpies.minimize(lambda x: np.sum((x - 3) ** 2), np.zeros(10), sigma=0.5, target=1e-8)
    assert found.reason == "solved" and found.value <= 1e-8 < found.history["best"][-2]
    assert found.generations == len(found.history["best"]) < 400
    assert repr(found).startswith(f"OptimizeResult(value={found.value:g}, x of 10, {found.generations} generations, ")
    most = mpies.maximize(lambda x: 1 - x @ x, np.ones(3), "snes", target=0.99)
    least = mpies.minimize(lambda x: x @ x - 1, np.ones(3), "snes", target=-0.99)
    assert most.value == -least.value >= 0.99 and most.x.tobytes() == least.x.tobytes()
    assert (np.diff(most.history["best"]) >= 0).all()


def test_the_function_gets_vectors_of_its_own():
    seen = []

    def spoil(x):
        seen.append((x.dtype, x.shape))
        value = float(x @ x)
        x[:] = np.nan
        return value

    found = mpies.minimize(spoil, [1, 2], generations=5)
    assert set(seen) == {(np.dtype(np.float64), (2,))} and len(seen) == found.evaluations
    assert found.value == float(found.x @ found.x)


def test_a_callback_gets_the_search_and_stops_it():
    seen = []

    def look(es, row):
        seen.append((es.generation, row["best"], es.best_value, float(es.mean[0])))
        return np.bool_(es.generation == 4)

    found = mpies.minimize(bowl, np.zeros(4), callbacks=[lambda es, row: None, look])
    assert found.reason == "callback" and found.generations == len(seen) == 4
    assert all(row_best == best for _, row_best, best, _ in seen) and seen[-1][3] == found.mean[0]


@on_one_and_three_ranks
def test_an_error_of_a_callback_ends_all_ranks(ranks):
    def fail(es, row):
        raise ZeroDivisionError("of mine")

    started_by_mpi = any(name in os.environ for name in LAUNCHED)
    is_root = os.environ.get("OMPI_COMM_WORLD_RANK", "0") == "0"
    with pytest.raises(ZeroDivisionError if is_root else UserError, match="of mine"):
        mpies.minimize(bowl, np.zeros(4), "snes", callbacks=fail)
    with pytest.raises(ConfigError, match=r"solver.sigam is not a key"):
        mpies.minimize(bowl, np.zeros(4), "snes", sigam=1)
    with pytest.raises(UserError, match=r"all 8 evaluations of generation 1 failed, by ZeroDivisionError.*4 numbers"):
        mpies.minimize(lambda x: 1 / 0, np.zeros(4), "snes")
    if started_by_mpi:
        with pytest.raises(ConfigError, match="already; leave it out"):
            mpies.minimize(bowl, np.zeros(4), ranks=2)


def test_failures_are_warned_of_once():
    def fail(x):
        if next(calls) % 2:
            raise ArithmeticError("odd")
        return float(x @ x)

    calls, words = itertools.count(), "4 of 8 evaluations of generation 1 failed, by ArithmeticError: .*; they"
    with pytest.warns(RuntimeWarning, match=words) as log:
        found = mpies.minimize(fail, np.zeros(4), generations=6)
    assert len(log) == 1 and log[0].filename == __file__
    assert found.history["failures"].tolist() == [4] * 6


@pytest.mark.parametrize("stop", [KeyboardInterrupt, signal.SIGINT])
def test_ctrl_c_returns_the_best_so_far(stop):
    calls = []

    def value(x):
        calls.append(float(x @ x))
        if len(calls) == 22:
            calls.pop()
            if stop is KeyboardInterrupt:
                raise KeyboardInterrupt
            signal.raise_signal(stop)
        return 100 - len(calls)

    found = mpies.minimize(value, np.ones(4))
    assert found.reason == "signal" and found.generations == 2 and found.evaluations == 16
    assert found.value == 100 - 16 and float(found.x @ found.x) == calls[15]  # not of the one that was cut short

    def at_once(x):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        mpies.minimize(at_once, np.ones(4))


def test_ctrl_c_ends_the_ranks_of_a_job(tmp_path):
    begun = tmp_path / "begun"

    def slow(x):
        if x[0] != 1.0:
            begun.touch()
            time.sleep(100)
        return 1.0

    def interrupt():
        wait_for(begun.exists)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        mpies.minimize(slow, np.ones(4), ranks=2)
    assert time.monotonic() - began < 60
    commands = subprocess.run(["pgrep", "-P", str(os.getpid()), "-f", "function_job"], capture_output=True, text=True)
    assert commands.stdout == ""


def test_a_solver_may_report_numbers_of_numpys(tmp_path):
    numbers = '{"radius": np.float32(0.5), "restarts": np.int64(3), "share": np.longdouble(0.25)}'
    (tmp_path / "mine.py").write_text(
        "import numpy as np\nfrom mpies.solvers import find_solver\n"
        f"class Mine(find_solver('snes')):\n    def report(self):\n        return {numbers}\n"
    )
    rows = []
    options = {"generations": 2, "sigma": 0.3, "callbacks": lambda es, row: rows.append(row)}
    found = mpies.minimize(lambda x: float(x @ x), np.ones(3), f"{tmp_path}/mine.py:Mine", **options)
    assert found.history["radius"].tolist() == [0.5, 0.5] and found.history["restarts"].tolist() == [3, 3]
    assert {type(value) for row in rows for value in row.values()} <= {int, float}


def test_functions_that_cannot_be_sent_are_refused(tmp_path, monkeypatch):
    lock = threading.Lock()
    with pytest.raises(UserError, match=r"cannot be sent to other processes.*lock.*; define it in a module") as error:
        mpies.minimize(lambda x: lock, np.zeros(2), ranks=2)
    assert "\n" not in str(error.value)
    (tmp_path / "mine.py").write_text("def f(x): return float(sum(x)) if x[0] < 0 else 1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    import mine

    with pytest.warns(RuntimeWarning, match="failed, by ZeroDivisionError: division by zero; they rank worst") as log:
        assert mpies.minimize(mine.f, np.zeros(2), ranks=1, generations=2).reason == "generations"  # by sys.path
    assert log[0].filename == __file__
    (tmp_path / "mine.py").unlink()
    with pytest.raises(UserError, match=r"cannot be loaded by other processes.*No module named 'mine'") as error:
        mpies.minimize(mine.f, np.zeros(2), ranks=2)
    assert "\n" not in str(error.value)


def test_ranks_that_end_are_an_error(tmp_path, monkeypatch):
    deep = tmp_path / ("folder" * 20)  # too long for the path of a socket
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with pytest.raises(UserError, match=r"2 ranks that evaluated the function ended with code"):
        mpies.minimize(lambda x: os._exit(3), np.zeros(2), ranks=2)


def test_ranks_need_an_mpirun(monkeypatch):
    monkeypatch.setattr(mpiexec, "find", lambda: None)
    with pytest.raises(ConfigError, match="ranks needs mpirun: pip install"):
        mpies.minimize(bowl, np.zeros(4), ranks=2)


JOB = """
import gc, os, pathlib, sys
import numpy as np
import mpies

sys.path.append(pathlib.Path.cwd())  # no text: Python's imports ignore it, too
near = lambda es, row: np.sum((es.mean - 3) ** 2) < 1
before = set(os.listdir("/proc/self/fd"))
found = mpies.minimize(lambda x: np.sum((x - 3) ** 2), np.zeros(4), sigma=0.5, callbacks=near, ranks=1)
gc.collect()
left = [os.readlink(f"/proc/self/fd/{each}") for each in set(os.listdir("/proc/self/fd")) - before]
print(found.reason, np.sum((found.mean - 3) ** 2) < 1, found.generations < 100, left)
"""


def test_a_job_takes_odd_paths_and_leaves_no_file_open(tmp_path):
    """In a process of its own: other tests may open files meanwhile."""
    folder = tmp_path / ("é" * max(1, 79 - len(f"{tmp_path}/")))  # almost too long for a socket, of two bytes a letter
    folder.mkdir()
    command = [sys.executable, "-W", "always::ResourceWarning", "-c", JOB]
    environment = mpiexec.environment() | {"TMPDIR": str(folder)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.stdout, done.stderr, done.returncode) == ("callback True True []\n", "", 0)


@pytest.mark.parametrize(
    "arguments, line",
    [
        ({"f": 3}, "f must be a function of a vector, but is 3"),
        ({"generations": 0}, "generations must be a whole number from 1 on, but is 0"),
        ({"target": np.nan}, "target must be a finite number"),
        ({"callbacks": 3}, r"callbacks must be a function c\(es, row\), or a list of such, but is 3"),
        ({"callbacks": [3]}, r"callbacks must be functions c\(es, row\), but one of them is 3"),
        ({"ranks": 0}, "ranks must be a whole number from 1 on"),
        ({"solver": "cmaes"}, "did you mean cma_es"),
        ({"populaton": 5}, "solver.populaton is not a key; did you mean solver.population"),
        ({"seed": None}, "^seed must be a whole number from 0 on, but is None$"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(arguments, line):
    with pytest.raises(UserError, match=line) as error:
        mpies.minimize(**{"f": bowl, "x0": np.zeros(4), **arguments})
    assert "\n" not in str(error.value) and not isinstance(error.value, TrainingFailed)


@pytest.mark.parametrize("solver", ["snes", "pepg", "pgpe", "deep_ga"])
def test_sigma_is_the_first_step_size_whatever_the_solver_calls_it(solver):
    for sigma in (0.01, 3.0):
        members = AskTell(solver, np.zeros(50), sigma=sigma, population=20).ask()
        assert 0.5 * sigma < members.std() < 1.5 * sigma
    assert mpies.minimize(lambda x: float(x @ x), np.ones(3), solver, sigma=0.3, generations=3).generations == 3
    with pytest.raises(ConfigError, match="sigma_init is not a key" if solver != "pepg" else "sigma is not a key"):
        AskTell(solver, np.zeros(2), sigma=0.1, sigma_init=0.2)


def test_one_whole_number_can_be_found():
    found = mpies.minimize(lambda x: float(abs(x[0] - 3)), [1.0], sigma=1.0, integers=[0], generations=30)
    assert found.x.tolist() == [3.0]
