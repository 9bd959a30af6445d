"""Groups of runs: their tasks, short labels, and statistics over seeds."""

import numpy as np
import pytest
from scipy import stats

from mpies.report.compare.ranking import average_seeds
from mpies.report.compare.run_groups import group_by_task, group_runs, label_settings
from mpies.report.compare.statistics import bootstrap_interval, interquartile_mean


def test_different_environments_are_different_tasks_with_labels_of_their_own(make_curves):
    runs = [make_curves([1.0], kind=kind) for kind in ("snes", "ars")]
    for kind in ("snes", "ars"):
        other = make_curves([1.0], kind=kind)
        other.config["environment"] = {"id": "BipedalWalker-v3", "kwargs": {"hardcore": True}}
        runs.append(other)
    by_task = group_by_task(group_runs(runs))
    assert {task: sorted(group.label for group in groups) for task, groups in by_task.items()} == {
        "BipedalWalker-v3, hardcore True": ["ars", "snes"],
        "CartPole-v1": ["ars", "snes"],
    }


def test_a_backend_of_auto_is_that_of_the_runs_it_is_otherwise_equal_to(make_curves):
    def make(backend, seed, **solver):
        run = make_curves([1.0], seed=seed, **solver)
        run.config["environment"] = {"id": "CartPole-v1", "backend": backend}
        return run

    runs = [make("auto", 1), make("envpool", 2), make("gymnasium", 3, sigma=0.5)]
    first, other = sorted(group_runs(runs), key=lambda group: -len(group.runs))
    assert [run.config["seed"] for run in first.runs] == [1, 2] and len(other.runs) == 1
    assert first.settings["environment.backend"] == "envpool"
    assert len(group_runs([make("auto", 1), make("auto", 2)])) == 1
    assert len(group_runs([make("envpool", 1), make("gymnasium", 2)])) == 2
    assert len(group_runs([make("auto", 1), make("envpool", 2), make("gymnasium", 3)])) == 3


def test_a_label_names_as_many_settings_as_tell_it_apart():
    same = {"solver.kind": "snes", "environment.id": "A"}
    found = [{**same, **{f"solver.k{key}": int(key == number) for key in range(6)}} for number in range(6)]
    labels = label_settings(found)
    assert len({*labels}) == 6 and labels[5] == "k0 0, k1 0, k2 0, k3 0, k4 0"
    assert label_settings([same]) == ["snes"]
    two = [{**same, "solver.sigma": sigma, **dict.fromkeys("abcd", sigma)} for sigma in (0.1, 0.25)]
    assert label_settings(two) == ["sigma 0.1, a 0.1, b 0.1", "sigma 0.25, a 0.25, b 0.25"]


@pytest.mark.parametrize("count", [2, 3, 10, 100])
def test_the_interval_over_seeds_is_that_of_students_t(count):
    values = np.random.default_rng(count).normal(size=count)
    low, high = stats.t.interval(0.95, count - 1, values.mean(), values.std(ddof=1) / np.sqrt(count))
    mean, interval = average_seeds(values.tolist(), values.tolist())
    assert mean == values.mean() and interval == pytest.approx((high - low) / 2, rel=2e-3)


@pytest.mark.parametrize("shape", [(2, 1), (4, 2), (11, 2)])
def test_means_and_intervals_over_runs_are_those_of_scipy(shape):
    values = np.random.default_rng(shape).normal(size=shape)
    np.testing.assert_allclose(interquartile_mean(values), stats.trim_mean(values, 0.25), rtol=1e-14)

    def mean(resampled, axis):
        return stats.trim_mean(resampled, 0.25, axis=axis)

    options = {"n_resamples": 2000, "method": "percentile", "batch": 200, "rng": 0}
    interval = stats.bootstrap((values,), mean, axis=0, **options).confidence_interval
    np.testing.assert_allclose(bootstrap_interval(values), (interval.low, interval.high), rtol=1e-12)
    np.testing.assert_allclose(bootstrap_interval(values[:1]), [values[0]] * 2)
