"""mpies verify and mpies reproduce: training again in processes of its own, and comparing."""

import subprocess
import sys
from pathlib import Path

import pytest

from mpies.comm import mpiexec
from mpies.core.errors import ConfigError
from mpies.launch import train_again
from mpies.launch.train_again import Reproduction, compare_curves, recipe_of, reproduce_recipe, train_in_processes
from mpies.report.records import read_record
from mpies.runs.formats.metrics import read_metrics
from tests.support import HOME, WARM_START, assert_refused, invoke

CONFIG = """
environment: {id: "value.py:value", dimension: 6}
solver: {population: 8}
noise: {size: 1000}
"""
SPHERE = CONFIG.replace("value.py:value", "function:sphere")

# A file with a function that counts its calls; VALUE is added to what it returns.
COUNTING = """
import os
evaluations = 0
ranks = int(os.environ.get("OMPI_COMM_WORLD_SIZE", 1))

def value(x):
    global evaluations
    evaluations += 1
    return -(x @ x) + VALUE
"""


@pytest.fixture
def write_function(here, write_config):
    """Make value.py with this VALUE, and config.yaml of it, in the working directory."""
    write_config(CONFIG)
    return lambda value: (here / "value.py").write_text(COUNTING.replace("VALUE", value))


@pytest.fixture
def started(monkeypatch):
    """The commands that would have been run; they end with `started.result`."""

    class Started(list):
        result = subprocess.CompletedProcess([], 0, "", "")

    commands = Started()
    monkeypatch.setattr(mpiexec, "find", lambda: "/opt/mpiexec")
    monkeypatch.setattr(mpiexec, "run", lambda command: commands.append(command) or commands.result)
    return commands


@pytest.fixture(autouse=True)
def forked(monkeypatch):
    """Processes of one rank are forked, which saves their imports; mpirun starts those of several."""
    start = mpiexec.run

    def run(command, **options):
        if command[0] != sys.executable:
            return start(command, **options)
        ended = WARM_START.run(command[command.index("mpies") + 1 :], Path.cwd(), mpiexec.environment(), timeout=120)
        return subprocess.CompletedProcess(command, *ended)

    monkeypatch.setattr(mpiexec, "run", run)


def test_one_rank_needs_no_mpi_and_several_are_refused_at_once_without_it(started, monkeypatch, write_config):
    train_in_processes(1, ["a.yaml"])
    train_in_processes(2, ["a.yaml"])
    serial = [sys.executable, "-P", "-m", "mpies", "train", "--log-format", "text", "a.yaml"]
    assert started == [serial, ["/opt/mpiexec", "-n", "2", *serial]]
    monkeypatch.setattr(mpiexec, "find", lambda: None)
    train_in_processes(1, ["a.yaml"])
    assert_refused(invoke("verify", write_config(SPHERE)), 'needs mpirun: pip install "mpies[mpi]"')
    assert len(started) == 3


def test_a_failure_is_told_in_one_line(started):
    for stderr, expected in (
        ("noise\nmpies: a.yaml: is empty\n[1]\nTraceback\n", "a.yaml: is empty"),
        ("one\ntwo\nthree\nValueError: four\n", "two three ValueError: four"),
        ("mpies: rank 1 failed:\nTraceback:\n  File x\n    y\nValueError: 5\nx\n", "rank 1 failed: ValueError: 5"),
    ):
        started.result = subprocess.CompletedProcess([], 3, "", stderr)
        with pytest.raises(ConfigError) as refused:
            train_in_processes(2, ["a.yaml"])
        assert str(refused.value) == f"training on 2 ranks ended with code 3: {expected}"


def test_equal_bits_are_confirmed_and_other_stop_rules_do_not_end_it(write_config):
    config = write_config(SPHERE + "stop: {target: -100, steps: 8}\n")
    outcome = invoke("verify", config, "--ranks", "1,2", "--generations", "2", "solver.sigma=0.3", code=0)
    first, one, two, resumed, last = outcome.stdout.splitlines()
    assert first == f"{config}: function:sphere, 2 generations" and last == "the same bits on all"
    assert one.split()[:2] == ["1", "rank"] and two.split()[:2] == ["2", "ranks"]
    assert one.split()[2:] == two.split()[2:] and one.split()[3] == "same"
    assert resumed == f"{one}, stopped after generation 1 and resumed"
    other = invoke("verify", config, "--ranks", "1", "--generations", "2", "solver.sigma=0.4").stdout.splitlines()[1]
    assert other.split()[2] != one.split()[2]


def test_bits_that_differ_end_with_exit_code_1(write_function):
    write_function("(ranks - 1) * (evaluations > 2 * 8) * (evaluations % 3)")  # also if one rank plays all
    said = invoke("verify", "config.yaml", "--ranks", "1,2", "--generations", "5", code=1).stdout
    lines = said.splitlines()
    assert "differs from generation" in lines[2] and "differs from generation 1 on" not in said
    assert lines[-1].startswith("NOT the same bits")


def test_a_run_that_does_not_resume_to_the_same_bits_is_found(write_function, here):
    write_function("(evaluations > 2 * 8) * (evaluations % 3)")
    outcome = invoke("verify", "config.yaml", "--ranks", "1", "--generations", "4", code=1)
    _, one, resumed, last = outcome.stdout.splitlines()
    assert one.endswith("  same")
    assert resumed.endswith("  differs from generation 3 on, stopped after generation 2 and resumed")
    assert last.startswith("NOT the same bits after a stop")
    (here / "value.py").unlink()
    failed = invoke("verify", "config.yaml", "--ranks", "1", code=2)
    assert "training on 1 rank ended with code 2: value.py:value: there is no file" in failed.stderr
    assert failed.stderr.count("\n") == 1


def test_no_other_tool_follows_the_runs(started, write_config):
    with pytest.raises(IndexError):  # nothing was trained
        train_again.verify_ranks(write_config(SPHERE), [1], 1, [])
    assert {"tracking.tensorboard=false", "tracking.json=false"} < {*train_again.FORCED} < {*started[0]}


def test_the_reason_is_the_users_mistake_that_training_told_of(write_config, here):
    (here / "mine.py").write_text(
        "import os\nfrom mpies.solvers.snes import SNES\n\nclass Mine(SNES):\n"
        "    def update(self, proposal, results, moments):\n        super().update(proposal, results, moments)\n"
        "        assert os.environ.get('OMPI_COMM_WORLD_SIZE', '1') == '1', 'one rank only'\n"
    )
    write_config(SPHERE.replace("{population: 8}", "{kind: 'mine.py:Mine'}"))
    outcome = invoke("verify", "config.yaml", "--ranks", "1,2", "--generations", "2", code=1)
    _, one, two, resumed, last = outcome.stdout.splitlines()
    assert one.endswith("same") and "same, stopped after generation" in resumed
    assert last == "NOT proven: training failed on 2 ranks"
    assert "failed with code 2: " in two and two.endswith("AssertionError: one rank only (mine.py, line 7)")


def rows(returns, digests=None, steps=10):
    """Rows of metrics.csv whose generations have so many steps each."""
    cells = zip(returns, digests or "." * len(returns), strict=True)
    return [{"return_mean": str(m), "digest": d, "steps": str(steps * k)} for k, (m, d) in enumerate(cells, 1)]


def test_a_recorded_recipe_is_reproduced(tmp_path, monkeypatch):
    monkeypatch.chdir(HOME)
    outcome = invoke("reproduce", "cartpole", "--out", tmp_path / "run", code=0)
    tolerance = read_record("cartpole")["tolerance"]
    assert outcome.stdout.rstrip().endswith(f"range, {tolerance:.0%} allowed: reproduced")
    assert len(read_metrics(tmp_path / "run")) == len(read_metrics(HOME / "results" / "cartpole"))


def test_a_recipe_is_trained_as_it_was_recorded_but_for_no_longer(monkeypatch):
    """Each seed has its run directory."""
    monkeypatch.chdir(HOME)
    record, trained = read_record("cartpole"), []
    first = record["seeds"][0]
    seeds = [{**first, "seed": 7, "generation": 12}, {**first, "seed": 9, "generation": 30}]
    monkeypatch.setattr(train_again, "read_record", lambda name: {**record, "seeds": seeds})
    monkeypatch.setattr(train_again, "read_recorded_metrics", lambda name, record, seed: rows([1.0, 2.0]))
    monkeypatch.setattr(train_again, "read_metrics", lambda run: rows([1.0]))
    monkeypatch.setattr(train_again, "train_in_processes", lambda ranks, words: trained.append((ranks, words)))
    out = "runs/reproduce-hopper-openai"
    for seed, generations, limit, run in (
        (7, None, 12, out),
        (7, 5, 5, out),
        (None, 100, 12, out),
        (9, None, 30, f"{out}-seed-9"),
        (8, None, 30, f"{out}-seed-8"),
        (8, 20, 20, f"{out}-seed-8"),
    ):
        reproduce_recipe("hopper-openai", None, 2, generations, seed)
        words = [str(recipe_of("hopper-openai")), "--out", run, f"seed={seed or 7}", f"stop.generations={limit}"]
        assert trained[-1] == (2, words)
    reproduce_recipe("hopper-openai", "elsewhere", 1, None, 8)
    assert trained[-1][1][2] == "elsewhere"


OLD = rows([0, 5, 10, 10], "abcd")
BAND = {1: rows([0, 0, 0], "abc"), 2: rows([0, 10, 20], "def")}


def test_curves_are_compared_by_digest_and_by_what_they_reach():
    for recorded, seed, curve, expected in (
        ({1: OLD}, 1, rows([0, 5, 6], "abx"), (3, 2, 1, 4 / 3 / 10)),
        ({1: OLD}, 1, rows([0, "", 10, 10], "axcd"), (4, 1, 1, 0)),  # a generation without a return
        ({1: OLD}, 1, rows([0, 5, 10, 10, 99], "abcde"), (4, 4, 1, 0)),
        ({1: rows([0, 10, 20, 30])}, 2, rows([0, 10], steps=20), (2, None, 1, (10 + 20) / 2 / 30)),  # at the same steps
        (BAND, 3, rows([0, 5, 5], "xyz"), (3, None, 2, 0)),  # with the band of all seeds
        (BAND, 2, rows([0, 10, 26], "dex"), (3, 2, 2, 6 / 3 / 20)),
        (BAND, 3, rows([0, 0, -4], "abc"), (3, None, 2, 4 / 3 / 20)),
    ):
        assert compare_curves(recorded, seed, curve) == (*expected[:3], pytest.approx(expected[3]))


def test_a_curve_within_the_tolerance_is_reproduced():
    for result, words in (
        ((9, 3, 1, 0.15, 0.15), ["9 generations, the first 3 with the same bits", " 15% allowed: reproduced"]),
        ((9, 3, 1, 0.151, 0.15), ["differs from the recorded one by 15.1% of the range, 15% allowed: NOT reproduced"]),
        ((1, 1, 1, 0.0, 0.15), ["1 generation, all with the same bits", ": reproduced"]),
        ((9, None, 5, 0.04, 0.06), ["a seed that was not recorded; the curve is outside the band of 5 seeds by 4.0%"]),
        ((9, None, 1, float("nan"), 0.15), [": NOT reproduced"]),  # no return at all
    ):
        found = Reproduction("pole", 1, *result)
        assert all(word in str(found) for word in ["pole, seed 1: ", *words])
        assert found.is_reproduced == ("NOT" not in str(found))
