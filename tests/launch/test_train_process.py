"""Training in processes of its own: what is started, and what is said when it fails."""

import subprocess
import sys

import pytest

from mpies.comm import mpiexec
from mpies.core.errors import ConfigError
from mpies.launch.train_process import require_mpiexec, train


@pytest.fixture
def started(monkeypatch):
    """The commands that would have been run; they end with `started.result`."""

    class Started(list):
        result = subprocess.CompletedProcess([], 0, "", "")

    commands = Started()
    monkeypatch.setattr(mpiexec, "find", lambda: "/opt/mpiexec")
    monkeypatch.setattr(mpiexec, "run", lambda command: commands.append(command) or commands.result)
    return commands


def test_one_rank_needs_no_mpi(started):
    train(1, ["a.yaml"])
    train(2, ["a.yaml"])
    serial = [sys.executable, "-m", "mpies", "train", "--log-format", "text", "a.yaml"]
    assert started == [serial, ["/opt/mpiexec", "-n", "2", *serial]]


def test_without_mpiexec_one_rank_works_and_several_are_refused(started, monkeypatch):
    monkeypatch.setattr(mpiexec, "find", lambda: None)
    train(1, ["a.yaml"])
    for refused in (require_mpiexec, lambda: train(2, ["a.yaml"])):
        with pytest.raises(ConfigError, match=r'needs? mpiexec; pip install "mpies\[mpi\]"'):
            refused()
    assert len(started) == 1


@pytest.mark.parametrize(
    ("stderr", "expected"),
    [
        ("noise\nmpies: a.yaml: is empty\nTraceback\n", "mpies: a.yaml: is empty"),
        ("one\ntwo\nthree\nValueError: four\n", "two three ValueError: four"),
        ("mpies: a: one\nmpies: b: two\n", "mpies: b: two"),
        ("mpies: a: it failed, expected:\n", "mpies: a: it failed, expected:"),
        (
            "mpies: rank 1 on a failed:\nTraceback (most recent call last):\n  File x\nValueError: five\n\n---\nx\n",
            "mpies: rank 1 on a failed: ValueError: five",
        ),
    ],
)
def test_a_failure_is_told_in_one_line(stderr, expected, started):
    started.result = subprocess.CompletedProcess([], 3, "", stderr)
    with pytest.raises(ConfigError) as refused:
        train(2, ["a.yaml"])
    assert str(refused.value) == f"training on 2 ranks ended with code 3: {expected}"


def test_the_reason_is_the_same_where_the_log_is_json(tmp_path, monkeypatch):
    monkeypatch.setenv("MPIES_LOG", "json")
    config = tmp_path / "config.yaml"
    config.write_text("environment: {id: CartPole-v1}\npolicy: {init_from: absent.h5}\n")
    with pytest.raises(ConfigError, match=r"ended with code 2: mpies: policy\.init_from: absent\.h5: cannot be read"):
        train(1, [str(config), "--out", str(tmp_path / "run")])
