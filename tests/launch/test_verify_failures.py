"""mpies verify: a number of ranks on which training fails, and a run that does not resume to the same bits."""

from tests.support import invoke

CONFIG = """
environment: {id: "value.py:value", dimension: 6}
solver: {population: 8}
noise: {size: 1000}
"""

# Raises from the second generation on where there are two ranks.
FAILS_ON_TWO = """
import os
evaluations = 0

def value(x):
    global evaluations
    evaluations += 1
    if int(os.environ.get("OMPI_COMM_WORLD_SIZE", 1)) > 1:
        os._exit(7)
    return -(x @ x)
"""

# Returns depend on how many members this process has played before.
COUNTS = """
evaluations = 0

def value(x):
    global evaluations
    evaluations += 1
    return -(x @ x) * evaluations
"""


def test_it_is_printed_why_a_number_of_ranks_failed(write_config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "value.py").write_text(FAILS_ON_TWO)
    write_config(CONFIG)
    outcome = invoke("verify", "config.yaml", "--ranks", "1,2", "--generations", "2")
    assert outcome.code == 1, outcome.stderr
    _, one, two, resumed, last = outcome.stdout.splitlines()
    assert one.endswith("same") and "same, stopped after generation 1 and resumed" in resumed
    assert two.startswith("   2 ranks  failed with code ") and two.partition(": ")[2]
    assert last == "NOT proven: training failed on 2 ranks"


def test_the_reason_is_the_users_mistake_that_training_told_of(write_config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(
        "import os\nfrom mpies.solvers.snes import SNES\n\n"
        "class Mine(SNES):\n"
        "    def update(self, proposal, results, moments):\n"
        "        super().update(proposal, results, moments)\n"
        "        assert os.environ.get('OMPI_COMM_WORLD_SIZE', '1') == '1', 'one rank only'\n"
    )
    write_config(
        'environment: {id: "function:sphere", dimension: 6}\nsolver: {kind: "mine.py:Mine"}\nnoise: {size: 1000}'
    )
    outcome = invoke("verify", "config.yaml", "--ranks", "1,2", "--generations", "1")
    assert outcome.code == 1, outcome.stderr
    assert outcome.stdout.splitlines()[2] == (
        "   2 ranks  failed with code 2: mpies: solver.kind mine.py:Mine: update raised AssertionError: one rank only "
        "(mine.py, line 7)"
    )


def test_a_run_that_does_not_resume_to_the_same_bits_is_found(write_config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "value.py").write_text(COUNTS)
    write_config(CONFIG)
    outcome = invoke("verify", "config.yaml", "--ranks", "1", "--generations", "4")
    assert outcome.code == 1, outcome.stderr
    _, one, resumed, last = outcome.stdout.splitlines()
    assert one.endswith("  same")
    assert resumed.endswith("  differs from generation 3 on, stopped after generation 2 and resumed")
    assert last.startswith("NOT the same bits after a stop")


def test_other_stop_rules_do_not_end_it(write_config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = write_config(CONFIG.replace("value.py:value", "function:sphere") + "stop: {target: -100, steps: 8}\n")
    outcome = invoke("verify", config, "--ranks", "1", "--generations", "4")
    assert outcome.code == 0, (outcome.stdout, outcome.stderr)
    assert outcome.stdout.splitlines()[-1] == "the same bits on all"
