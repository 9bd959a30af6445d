"""Callbacks: what they get, how they stop a run, and what happens when one raises."""

import numpy as np
import pytest
import yaml

import mpies
from mpies.runs.formats.checkpoint import newest_checkpoint
from mpies.runs.formats.metrics import COLUMNS, as_numbers, read_digests, read_metrics
from tests.support import CARTPOLE

VALUES = yaml.safe_load(CARTPOLE)
IN_PROCESS_OR_JOB = pytest.mark.parametrize("ranks", [None, 1])  # a job calls back whatever its ranks
pytestmark = pytest.mark.usefixtures("here")


def train(*overrides, config=VALUES, **options):
    return mpies.train(config, *overrides, **{"out": "run", "progress": False} | options)


@IN_PROCESS_OR_JOB
def test_what_a_callback_gets_and_may_do(ranks, tmp_path, monkeypatch):
    """Its row is the line of metrics.csv as numbers, and the run that of its generation.  It may change the folder."""
    (tmp_path / "elsewhere").mkdir()
    rows, members, kept = [], [], []

    def note(run, row):
        monkeypatch.chdir(tmp_path / "elsewhere")
        found = run.members(row["generation"])
        members.append((found.returns.mean(), run.play(row["generation"], 0).played, found.returns[0]))
        assert run.generation == run.policy().generation == row["generation"] == run.metrics["generation"][-1]
        rows.append(row)
        kept.append(run)

    run = train("stop.generations=4", callbacks=note, ranks=ranks)
    assert (run.path, run.status) == (tmp_path / "run", "finished") and not list((tmp_path / "elsewhere").iterdir())
    recorded = [as_numbers(row) for row in read_metrics(run.path)]
    assert len(rows) == 4
    for row, expected in zip(rows, recorded, strict=True):
        assert set(COLUMNS) - {"digest"} <= row.keys() == expected.keys()
        assert {type(value) for value in row.values()} <= {int, float, type(None)}
        for name, value in row.items():
            assert value == (expected[name] if value is None else pytest.approx(expected[name], rel=1e-8)), name
            assert type(value) is type(expected[name]), name
    assert [row["eval_mean"] is None for row in rows] == [True, False] * 2
    assert [mean for mean, _, _ in members] == pytest.approx(run.metrics["return_mean"])
    assert all(played == first for _, played, first in members)
    assert (kept[0].generation, kept[0].status) == (4, "finished")  # a run that was kept is later what is on disk
    monkeypatch.chdir(tmp_path)
    further = train("stop.generations=6")
    assert kept[0].generation == kept[0].policy().generation == further.generation == 6
    assert len(kept[0].metrics["generation"]) == 6


def test_the_policy_of_a_callback_is_that_of_its_generation():
    policies, lengths = [], []

    def note(run, row):
        policies.append(run.policy())
        if row["generation"] == 6:
            policies[2] = run.policy(3)  # any of the past as well
            lengths.append([len(run.metrics["generation"]), run.generation, run.best.generation])

    run = train(callbacks=note)
    for generation, policy in enumerate(policies, 1):
        expected = run.policy(generation)
        assert policy.generation == generation and np.array_equal(policy.parameters, expected.parameters)
        assert np.array_equal(policy(np.ones((3, 4))), expected(np.ones((3, 4))))
    assert lengths[0][:2] == [6, 6] and lengths[0][2] in (2, 4, 6)


@IN_PROCESS_OR_JOB
def test_a_callback_that_returns_true_stops_the_run_and_it_can_go_on(ranks, digests_of):
    called = []
    # As a job it may make further generations until it gets the word.
    run = train(
        "stop.generations=1000000", callbacks=lambda run, row: called.append(row) or len(called) == 3, ranks=ranks
    )
    made = run.generation
    assert len(called) == 3 and (made == 3 or (ranks and made > 3))
    assert (run.status, run.reason) == ("finished", "callback")
    ending = yaml.safe_load((run.path / "finished.yaml").read_text())
    assert ending == {"reason": "callback", "generation": made, "steps": int(read_metrics(run.path)[-1]["steps"])}
    assert newest_checkpoint(run.path, pytest.fail)[1]["generation"] == made
    assert read_digests(run.path)[:10] == digests_of(CARTPOLE)[:made]
    further = train(f"stop.generations={made + 2}")
    assert (further.generation, further.reason) == (made + 2, "generations")


def test_generations_that_overlap_go_on_behind_a_callbacks_stop(digests_of):
    config = VALUES | {"overlap": 1}
    assert train(config=config, callbacks=lambda run, row: row["generation"] == 3).generation == 3
    assert read_digests(train(config=config).path) == digests_of(CARTPOLE + "overlap: 1\n")


def test_only_true_itself_and_that_of_numpy_stop():
    answers = iter([1, "yes", np.float64(1), np.False_, None, False, np.True_])
    run = train(callbacks=lambda run, row: next(answers))
    assert (run.generation, run.reason) == (7, "callback")


@IN_PROCESS_OR_JOB
def test_what_a_callback_raises_comes_out_and_the_run_is_saved(ranks, digests_of):
    def fail(run, row):
        if row["generation"] == 5:
            raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        train(callbacks=fail, ranks=ranks)
    run = mpies.load("run")
    made = run.generation
    assert newest_checkpoint(run.path, pytest.fail)[1]["generation"] == made
    if not ranks:
        assert made == 5 and run.status == "stopped" and run.reason == ""
    assert read_digests(train().path) == digests_of(CARTPOLE)


def test_all_callbacks_are_called_in_turn_each_with_a_row_of_its_own():
    order = []

    def first(run, row):
        row.clear()
        order.append("first")

    train("stop.generations=2", callbacks=[first, lambda run, row: order.append(row["generation"])])
    assert order == ["first", 1, "first", 2]


def test_a_run_whose_newest_row_is_damaged_goes_on():
    metrics = train("stop.generations=4").path / "metrics.csv"
    *lines, newest = metrics.read_text().splitlines()
    metrics.write_text("\n".join([*lines, f"x{newest}\n"]))
    assert mpies.load("run").generation == mpies.load("run").policy().generation == 3
    rows = []
    assert train("stop.generations=6", callbacks=lambda run, row: rows.append(row), ranks=1).generation == 6
    assert rows[-1]["generation"] == 6
