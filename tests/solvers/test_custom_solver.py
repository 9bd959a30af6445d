"""A custom solver in a run: the same bits as ever, and whatever is wrong with it ends the run with one line."""

import re

import pytest

from mpies.config.loading import load_config
from mpies.runs.formats.metrics import read_digests, read_metrics
from mpies.training.task import Task
from tests.solvers.test_check import RIGHT, WRONG, class_of, read_cases

CONFIG = """
environment: {{id: "function:sphere", dimension: 6, shift: 1}}
solver: {{kind: "wrong.py:{name}", population: 8}}
noise: {{size: 1000}}
evaluation: {{every: 0}}
stop: {{generations: 20}}
"""
FAILS_LATER = """
def update(self, proposal, results, moments):
    super().update(proposal, results, moments)
    1 / (self.generation - 16)
"""


def write_solver(folder, body="", name="Wrong", base="Right"):
    """Write wrong.py with the class Wrong, and config.yaml for the class `name` of that file."""
    (folder / "wrong.py").write_text(RIGHT + class_of(body, base))
    (folder / "config.yaml").write_text(CONFIG.format(name=name))
    return folder / "config.yaml"


def assert_line(outcome, line):
    """The command ended with exit code 2, and with this line alone on standard error."""
    assert outcome.code == 2, (outcome.code, outcome.stderr[-2000:])
    pattern = re.escape(f"mpies: solver.kind wrong.py:Wrong: {line}").replace(r"\.\.\.", ".+")
    assert re.fullmatch(pattern, outcome.stderr.strip()), outcome.stderr[-2000:]
    assert "Traceback" not in outcome.stdout


@pytest.mark.parametrize("command", [("check",), ("train", "--out", "run"), ("train", "--out", "run", "--ranks", "2")])
def test_a_solver_is_tried_out_before_a_run_begins(command, run_mpies, tmp_path):
    body, line = next(case for case in read_cases(WRONG) if "self.stalled == 10" in case[0])
    outcome = run_mpies(0, command[0], write_solver(tmp_path, body), *command[1:], "stop.generations=2")
    assert_line(outcome, line)


def test_a_solver_that_is_right_trains_and_goes_on_to_the_same_bits(run_mpies, tmp_path):
    config = write_solver(tmp_path, name="RightExternal")
    for ranks, out, generations in ((0, "whole", 40), (2, "parts", 20), (0, "parts", 40)):
        run_mpies(ranks, "train", config, "--out", out, f"stop.generations={generations}", code=0)
    assert read_digests(tmp_path / "parts") == read_digests(tmp_path / "whole")


def test_what_was_finished_before_is_on_disk_and_the_traceback_is_in_the_log(run_mpies, tmp_path):
    config = write_solver(tmp_path, FAILS_LATER)
    line = "update raised ZeroDivisionError: division by zero (wrong.py, line 63)"
    assert_line(run_mpies(0, "train", config, "--out", "run"), line)
    assert [row["generation"] for row in read_metrics(tmp_path / "run")] == [str(number) for number in range(1, 17)]
    text = (tmp_path / "run" / "log.txt").read_text()
    assert "DEBUG rank 0: Traceback" in text and "1 / (self.generation - 16)" in text
    write_solver(tmp_path, 'state_fields = ("mean", "sigma", "momentum")\nmomentum = 0.0')
    assert_line(run_mpies(0, "train", config, "--out", "run"), "the state has no 'momentum';...")
    write_solver(tmp_path, FAILS_LATER.replace("- 16", "+ 1"))
    assert run_mpies(0, "train", config, "--out", "run").code == 0
    assert len(read_metrics(tmp_path / "run")) == 20


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ('def report(self): return {"steps": 5}', "report must name columns of its own, but every run..."),
        ("rows = 1\nclass Options(RightOptions): overlaps = True", "overlap does not work with rows;..."),
    ],
)
def test_what_does_not_fit_the_run_is_one_line(body, line, run_mpies, tmp_path):
    overlap = f"overlap={0.5 if 'overlaps' in body else 0}"
    assert_line(run_mpies(0, "train", write_solver(tmp_path, body), "--out", "run", overlap), line)


MINE = """
environment: {{id: CartPole-v1, max_steps: 60}}
policy: {{hidden: [8]}}
solver: {{kind: "{kind}", population: 16, sigma: 0.1}}
noise: {{kind: low_rank, size: 100000}}
evaluation: {{every: 0, episodes: 5}}
overlap: 1
stop: {{generations: 6}}
"""


def test_with_overlap_and_low_rank_a_subclass_trains_as_its_base(run_mpies, write_config, trained, tmp_path):
    (tmp_path / "mine.py").write_text("from mpies.solvers.openai_es import OpenAIES\nclass Mine(OpenAIES): pass\n")
    run_mpies(0, "train", write_config(MINE.format(kind="mine.py:Mine")), "--out", "run", code=0)
    expected = read_digests(trained(MINE.format(kind="openai_es")))
    assert read_digests(tmp_path / "run") == expected and len(expected) == 6


def test_groups_may_have_any_order(here):
    groups = "def groups(self, dimension): return (np.arange(8) % 3).astype(np.uint8)"
    seeds = Task(load_config(write_solver(here, f"class Options(RightOptions):\n    {groups}"))).training_seeds(2, 1)
    assert len(set(seeds.tolist())) == 3 and seeds.tolist() == seeds[[0, 1, 2, 0, 1, 2, 0, 1]].tolist()
