"""The path of a search and the return around its end."""

import shutil
from importlib.util import find_spec

import imageio.v3
import numpy as np
import pytest

from mpies.report import trajectory as landscape
from mpies.report.evaluate import evaluate_policy
from mpies.report.trajectory import play_slice, principal_axes, read_trajectory
from mpies.runs.formats import hdf5
from mpies.runs.formats.ledger import find_end, read_records
from mpies.training.replay import load_member
from tests import support
from tests.report.conftest import CONFIG
from tests.support import assert_refused, invoke

QUICK = "--trajectory", "--grid", "3", "--episodes", "1"


def test_a_trajectory_ends_at_the_final_policy_and_its_slice_goes_through_it(run):
    invoke("plot", run, "--trajectory", "--grid", "3", "--episodes", "2", code=0)
    for name in ("trajectory.png", "landscape.png"):
        assert imageio.v3.imread(run / name).shape[:2] == (504, 960)
    trajectory = read_trajectory(run)
    final, _ = hdf5.read(run / "policy.h5")
    assert len(trajectory.means) == 7
    assert trajectory.means[-1].tobytes() == final["parameters"].tobytes()
    axes, _ = principal_axes(trajectory.means)
    _, returns = play_slice(trajectory, axes, 3, 2)
    assert returns[1, 1] == evaluate_policy(run / "policy.h5", 2)["mean"] and len(np.unique(returns)) > 1


@pytest.mark.parametrize("key", ["seed: 1", "overlap: 1"], ids=["in turn", "overlapping"])
def test_members_of_a_trajectory_are_those_that_were_played(key, trained):
    run = trained(f"{key}\n{CONFIG}")
    trajectory = read_trajectory(run)
    returns = [record["returns"] for record in read_records(run / "ledger.bin")]
    assert trajectory.mean_returns[:-1] == pytest.approx([one.mean() for one in returns])
    played = []  # of the third generation, all members with what they returned
    for number in range(8):
        member = load_member(run, 3, number)
        parameters = np.empty_like(trajectory.means[0])
        member.batch.write(member.rollouts[0], parameters)
        played.append((parameters.tobytes(), member.recorded_return))
    shown = [part.tobytes() for part in trajectory.members[8:12]]  # four of each generation
    assert set(zip(shown, trajectory.returns[8:12], strict=True)) <= set(played) and len(set(shown)) == 4


def test_a_long_run_is_shown_at_evenly_spaced_generations_with_as_many_members_as_are_wanted(run, monkeypatch):
    assert [len(read_trajectory(run, count).members) for count in (1, 5, 100)] == [6, 30, 6 * 8]  # of 8
    everything = read_trajectory(run)
    monkeypatch.setattr(landscape, "MAX_MEANS", 3)
    thinned = read_trajectory(run)
    assert thinned.means.tobytes() == everything.means[[0, 2, 5, 6]].tobytes()
    assert thinned.members[4:8].tobytes() == everything.members[8:12].tobytes()


def test_principal_axes_are_those_of_the_singular_values():
    means = np.random.default_rng(0).standard_normal((6, 20)) * np.linspace(3, 0.1, 20)
    axes, shares = principal_axes(means)
    assert axes @ axes.T == pytest.approx(np.eye(2), abs=1e-9)
    _, values, directions = np.linalg.svd(means - means.mean(axis=0))
    assert np.abs(axes @ directions[:2].T) == pytest.approx(np.eye(2), abs=1e-9)
    assert shares == pytest.approx((values**2 / (values**2).sum())[:2])
    axes, shares = principal_axes(np.array([[0.0], [1.0], [3.0]]))  # on a line
    assert np.abs(axes).tolist() == [[1], [0]] and shares == pytest.approx([1, 0])


def test_runs_that_are_too_short_or_whose_mean_never_moves_have_no_trajectory(run, trained, tmp_path):
    still = trained(CONFIG.replace("CartPole-v1", "MountainCar-v0").replace("40", "20"))
    assert_refused(invoke("plot", still, *QUICK), "the mean has not moved in 6 generations")
    assert not list(still.glob("*.png"))
    short = shutil.copytree(run, tmp_path / "short")
    ledger = short / "ledger.bin"
    ledger.write_bytes(ledger.read_bytes()[: find_end(ledger, 2)[1]])
    ended = invoke("plot", short, run, *QUICK, code=0)
    assert (run / "trajectory.png").exists() and not (short / "trajectory.png").exists()
    words = "a trajectory needs at least 3 generations, but the ledger has 2\n"
    assert ended.stderr == f"left out: {short}: {words}"
    assert_refused(invoke("plot", short, f"{short}/", *QUICK), words)  # named twice, it is one run


def test_the_environment_of_a_run_is_closed_before_the_next_one_is_drawn(tmp_path, monkeypatch):
    """As each may need the only licence.  A function is evaluated once at each point."""
    monkeypatch.setenv("LICENCES", str(tmp_path / "licences"))
    shared = "solver: {population: 8}\nnoise: {size: 1000}\nstop: {generations: 4}\nenvironment: "
    licensed = "{id: 'tests.envs.licensed:Licensed', kwargs: {licences: 1}, instances: 1}\npolicy: {hidden: []}"
    function = "{id: 'function:sphere', dimension: 3, shift: 1}"
    environments = {"one": licensed, "two": licensed, "function": function}
    folders = [support.train(tmp_path, shared + environment, name) for name, environment in environments.items()]
    invoke("plot", *folders, *QUICK, "--format", "svg", code=0)
    assert (tmp_path / "two/landscape.svg").exists()
    assert "return around the final mean, 1 held-out episode -->" in (folders[2] / "landscape.svg").read_text()


def test_a_generation_in_which_all_members_failed_is_drawn_without_a_warning(tmp_path, recwarn):
    (tmp_path / "faulty.py").write_text(support.FAULTY_MODULE)
    config = support.FAULTY.format(share=0.5).replace('"faulty:Faulty-v0"', f"'{tmp_path}/faulty.py:Faulty'")
    config = config.replace("kwargs", "seeds: generation, kwargs")  # all members of a generation fail, or none
    (tmp_path / "faulty.yaml").write_text(config.replace("generations: 3", "generations: 8, max_failures: 1"))
    invoke("train", tmp_path / "faulty.yaml", "--out", tmp_path / "run")  # its last evaluation fails
    trajectory = read_trajectory(tmp_path / "run")
    assert 0 < np.isnan(trajectory.mean_returns[:-1]).sum() < 8
    assert not [one for one in recwarn.list if issubclass(one.category, RuntimeWarning)]


def test_umap_is_drawn_where_it_is_installed_and_else_named(run):
    assert_refused(invoke("plot", run, "--members", "7"), "--members needs --trajectory")
    ended = invoke("plot", run, *QUICK, "--umap", "--members", "7")
    if find_spec("umap"):
        assert ended.code == 0 and imageio.v3.imread(run / "trajectory_umap.png").shape[:2] == (504, 960)
    else:
        assert ended.code == 2 and 'pip install "mpies[umap]"' in ended.stderr
