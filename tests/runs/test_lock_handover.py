"""A lock that another lock of the same job takes over."""

import pytest

from mpies.core.errors import RunLocked
from mpies.runs.lock import Lock


def test_a_claim_is_taken_over_by_its_own_job_only_and_then_removes_nothing(tmp_path):
    claim, stranger, run = Lock(tmp_path, "group 1"), Lock(tmp_path, "group 2"), Lock(tmp_path, "group 1")
    claim.acquire()
    with pytest.raises(RunLocked):
        stranger.acquire()
    run.acquire()
    claim.release()
    run.check()
    assert (tmp_path / "writer.json").exists()
    run.release()
    assert list(tmp_path.iterdir()) == []


def test_a_claim_that_nobody_took_over_is_released(tmp_path):
    claim = Lock(tmp_path, "group 1")
    claim.acquire()
    claim.release()
    assert list(tmp_path.iterdir()) == []
