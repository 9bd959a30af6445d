"""Trials that fail on one rank of a group: they are recorded with their reason, and all the others go on."""

import pytest

from mpies.runs.formats.metrics import read_digests, read_metrics
from tests.support import environment_module, read_csv, train

# Ranks of a group of two are neighbours, so the second one of each has an odd number.
SECOND = 'self.is_second = int(os.environ.get("OMPI_COMM_WORLD_RANK", 0)) % 2 == 1\n'
ENVIRONMENT = environment_module(
    "Faulty",
    SECOND + 'self.fault = fault\nif fault == "built" and self.is_second: raise RuntimeError("no licence")',
    "self.reward = np.random.default_rng(seed).random()",
    # It sleeps so that no rank has played all before the others begin.
    'time.sleep(0.002)\nif self.fault == "step" and self.is_second: raise RuntimeError("out of balance")\n'
    'action = float("nan") if self.fault == "nan" else self.reward * float(action)',
)
SOLVER = """
import os
import numpy as np
from mpies.solvers.snes import SNES, SNESOptions

IS_SECOND = int(os.environ.get("OMPI_COMM_WORLD_RANK", 0)) % 2 == 1

class MineOptions(SNESOptions):
    kind: str = "mine"
    fault: str = "none"

class Mine(SNES):
    Options = MineOptions
    written = 0
    def write(self, proposal, indices, member, out):
        self.written += IS_SECOND
        if self.options.fault == "write" and self.written == 10:
            raise RuntimeError("no such member")
        return super().write(proposal, indices, member, out)
    def update(self, proposal, results, moments):
        if self.options.fault == "update" and self.generation == 2:
            raise RuntimeError("singular matrix")
        super().update(proposal, results, moments)
        if self.options.fault == "nan" and self.generation == 2:
            self.mean[0] = np.nan
"""
CONFIG = """
environment: {id: "faulty.py:Faulty", kwargs: {fault: none}}
policy: {hidden: [4]}
solver: {kind: "mine.py:Mine", population: 16, fault: none}
noise: {size: 10000}
overlap: 1
evaluation: {every: 2, episodes: 3}
stop: {generations: 6}
"""


@pytest.mark.parametrize(
    ("key", "faults"),
    [
        # `write` raises on the second rank in the midst of a generation, `update` and NaN are rank 0's.
        (
            "solver.fault",
            {
                "write": "write raised RuntimeError: no such member (mine.py, line ",
                "update": "update raised RuntimeError: singular matrix (mine.py, line ",
                "nan": "mean",
            },
        ),
        # It cannot be built there, all of its episodes fail there, or they are not a number anywhere.
        ("environment.kwargs.fault", {"built": "no licence", "step": "out of balance", "nan": "nan"}),
    ],
)
def test_code_of_the_user_that_raises_on_one_rank_ends_its_trial_alone(key, faults, run_mpies, tmp_path):
    for name, text in {"faulty.py": ENVIRONMENT, "mine.py": SOLVER, "config.yaml": CONFIG}.items():
        (tmp_path / name).write_text(text)
    vary, options = f"{key}={','.join(['none', *faults])}", ["--ranks-per-run", "2", "--out", "out"]
    outcome = run_mpies(4, "sweep", "config.yaml", vary, "stop.max_failures=0", *options, code=1)
    assert "1 of 4 trials finished, 3 failed" in outcome.stdout and "Traceback" not in outcome.stderr
    rows = read_csv(tmp_path / "out" / "trials.csv")
    found = {row[key]: (row["state"], row["reason"]) for row in rows}
    assert found["none"] == ("finished", "generations")
    for fault, words in faults.items():
        state, reason = found[fault]
        assert state == "failed" and words in reason, reason
    assert read_digests(tmp_path / "out" / "fault=none_seed=1") == read_digests(train(tmp_path, CONFIG, "alone"))
    assert not [*(tmp_path / "out").rglob("writer.json")]
    if "update" in faults:
        # It fails on a small problem, before the first generation.
        assert read_metrics(tmp_path / "out" / "fault=update_seed=1") == []
        details = (tmp_path / "out" / "failures" / "fault=write_seed=1.txt").read_text()
        assert "Traceback" in details and "of the group on" in details
