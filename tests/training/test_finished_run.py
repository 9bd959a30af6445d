"""A run that is complete and is started again: it says so at once, and how to go on."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

from mpies.config.loading import load_config
from mpies.runs.formats.metrics import read_digests, read_metrics
from mpies.training.finished_run import find_finished_run
from tests.support import assert_refused, read_files

# Environments that are built once and for all when the run is trained: without box.py there is none to build.
CONFIG = """
environment: {id: "box.py:Box"}
policy: {hidden: []}
solver: {population: 4}
noise: {size: 10000}
evaluation: {every: 2, episodes: 3}
stop: {generations: 4}
"""
MODULE = """
import gymnasium, numpy as np
class Box(gymnasium.Env):
    observation_space = action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    def reset(self, seed=None, options=None):
        self.start = np.random.default_rng(seed).uniform(-1, 1, 2).astype(np.float32)
        return self.start, {}
    def step(self, action):
        return self.start, 1 - float(np.square(action - self.start).sum()), True, False, {}
"""


@pytest.fixture(scope="module")
def complete(tmp_path_factory):
    """A folder with config.yaml and the run of it that is complete; not to be changed."""
    from tests.support import train

    folder = tmp_path_factory.mktemp("complete")
    (folder / "box.py").write_text(MODULE)
    train(folder, CONFIG)
    return folder


@pytest.fixture
def folder(complete, tmp_path):
    """A copy of the folder, without the environment."""
    shutil.copy(complete / "run.yaml", tmp_path / "config.yaml")
    shutil.copytree(complete / "run", tmp_path / "run")
    return tmp_path


def evaluation_of(run):
    return f"{float(read_metrics(run)[-1]['eval_mean']):.2f} +- "


@pytest.mark.parametrize("ranks", [0, 3])
def test_it_is_one_line_and_nothing_is_built_or_changed(ranks, folder, run_mpies):
    before = read_files(folder)
    outcome = run_mpies(ranks, "train", "config.yaml", "--out", "run")
    assert (outcome.code, outcome.stderr) == (0, "")  # without box.py: nobody has built the environment
    (line,) = outcome.stdout.splitlines()
    assert line.startswith("run: is complete (all generations done; generation 4, evaluation ")
    assert evaluation_of(folder / "run") in line
    assert line.endswith(
        "to train it further, repeat the command with --out run stop.generations=8; for a new run, with another --out"
    )
    assert read_files(folder) == before and (folder / "run" / "finished.yaml").exists()


def test_a_folder_with_a_space_is_quoted(folder):
    config = load_config(folder / "config.yaml")
    complete = find_finished_run(folder / "run", config)
    assert "repeat the command with --out 'my run' stop.generations=8;" in complete.describe(config, Path("my run"))


def test_ranks_of_a_supervisor_end_well_too(folder, run_mpies):
    outcome = run_mpies(0, "train", "config.yaml", "--out", "run", "--ranks", "2")
    assert outcome.code == 0 and outcome.stdout.count("is complete") == 1 and outcome.stderr == ""


def test_for_log_viewers_it_is_an_object(folder, run_mpies):
    outcome = run_mpies(0, "train", "config.yaml", "--out", "run", "--log-format", "json")
    entry = json.loads(outcome.stdout)
    assert "is complete" in entry.pop("message") and entry.pop("eval_mean") == pytest.approx(
        float(read_metrics(folder / "run")[-1]["eval_mean"])
    )
    assert entry == {"severity": "INFO", "reason": "generations", "run": "run", "generation": 4}


@pytest.mark.parametrize(
    ("first", "outcome"),
    [
        ("stop.generations=2", "all generations done"),
        ("stop.steps=8", "all steps done"),
        ("stop.seconds=1e-6", "all seconds done"),
        ("stop.target=-1000", "solved, target -1000"),
    ],
)
def test_what_it_says_leads_further(first, outcome, complete, run_mpies, tmp_path):
    shutil.copy(complete / "box.py", tmp_path)
    shutil.copy(complete / "run.yaml", tmp_path / "config.yaml")
    assert run_mpies(0, "train", "config.yaml", first).code == 0
    (run,) = (tmp_path / "runs").iterdir()  # named after the config and the override
    made = len(read_digests(run))
    again = run_mpies(0, "train", "config.yaml", first)
    assert again.code == 0 and f"is complete ({outcome}; generation {made}, " in again.stdout, again.stdout
    cure = again.stdout.partition("repeat the command with ")[2].partition(";")[0]
    words = cure.replace(" and another stop.target, or", "").split()
    assert words[0] == "--out" and (tmp_path / words[1]) == run
    further = run_mpies(0, "train", "config.yaml", first, *words)
    assert further.code == 0 and f"continuing from generation {made}" in further.stderr, further.stderr
    assert len(read_digests(run)) > made


def test_the_next_seed_goes_on(complete, run_mpies, tmp_path):
    shutil.copy(complete / "box.py", tmp_path)
    shutil.copy(complete / "run.yaml", tmp_path / "config.yaml")
    assert run_mpies(0, "train", "config.yaml", "--out", "many", "--seeds", "1..1").code == 0
    outcome = run_mpies(2, "train", "config.yaml", "--out", "many", "--seeds", "1..2", code=0)
    first, *_, last, took, following = outcome.stdout.splitlines()
    assert first.startswith("many-seed-1: is complete") and " --out many stop.generations=8;" in first
    assert last.startswith("many-seed-2: all generations done") and took.startswith("this job took ")
    assert following == "next: mpies evaluate many-seed-2, mpies play many-seed-2, mpies report many-seed-2"
    assert len(read_digests(tmp_path / "many-seed-2")) == 4


def test_the_config_is_checked_all_the_same(folder, run_mpies):
    (folder / "box.py").write_text(MODULE)
    for arguments, words in {
        ("solver.sigma=-1",): "solver.sigma",
        ("solver.sigma=0.3",): "contains a run of another config",
        ("--resume", "never"): "contains a run already",
        ("absent.key=1",): "absent",
    }.items():
        before = read_files(folder / "run")
        assert_refused(run_mpies(0, "train", "config.yaml", "--out", "run", *arguments), words)
        assert read_files(folder / "run") == before


def find(folder, *overrides):
    return find_finished_run(folder / "run", load_config(folder / "config.yaml", overrides))


def test_a_run_is_complete_where_a_stop_rule_holds(folder):
    assert find(folder).reason == find(folder, "stop.generations=3").reason == "generations"
    assert find(folder, "stop.generations=5") is None
    assert find(folder, "stop.generations=5", "stop.steps=16").reason == "steps"
    assert find(folder, "stop.generations=5", "stop.seconds=1e-9").reason == "seconds"
    assert find(folder, "stop.generations=5", "stop.target=-1000") is None  # the evaluation was not confirmed
    assert find(folder, "evaluation.every=1", "checkpoint.keep=1").clock.generation == 4
    assert find(folder, "solver.population=6") is None


def test_a_target_is_compared_with_the_confirmed_evaluation(folder):
    finished = yaml.safe_load((folder / "run" / "finished.yaml").read_text())
    (folder / "run" / "finished.yaml").write_text(yaml.safe_dump(finished | {"reason": "solved"}))
    mean = float(read_metrics(folder / "run")[-1]["eval_mean"])
    assert find(folder, f"stop.target={mean}").reason == "solved"
    assert find(folder, f"stop.target={mean + 0.1}", "stop.generations=5") is None
    assert find(folder, "stop.target=null", "stop.generations=5") is None


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("finished.yaml", None),
        ("finished.yaml", "{["),
        ("finished.yaml", "generation: 3\nreason: generations\n"),
        ("metrics.csv", None),
        ("metrics.csv", "generation,seconds\n4,\n"),
        ("checkpoints/generation-00000004.h5", None),
        ("checkpoints/generation-00000005.h5", ""),
    ],
)
def test_where_its_files_are_not_as_they_were_left_the_run_is_opened(file, content, folder):
    path = folder / "run" / file
    if content is None:
        path.unlink()
    else:
        path.write_text(content)
    assert find(folder) is None
