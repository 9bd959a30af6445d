"""Hosts, ranks and limits, as Slurm, hostfiles and control groups describe them."""

import os
import sys
from pathlib import Path

import pytest

from mpies.comm import limits
from mpies.launch import allocation

MB = 2**20


@pytest.mark.parametrize(
    ("text", "hosts", "slots"),
    [
        ("w-0.job.ns.svc slots=4\nw-1.job.ns.svc slots=4\n", ["w-0.job.ns.svc", "w-1.job.ns.svc"], 4),
        ("# mine\n\nnode1:16\nnode2:8\n", ["node1", "node2"], 16),
        ("node1 slots = 4 max-slots=8\nnode2 slots= 2\n", ["node1", "node2"], 4),
        ("node1\n", ["node1"], 0),
        ("", [], 0),
    ],
)
def test_hostfiles_of_both_kinds_are_read(text, hosts, slots, tmp_path):
    (tmp_path / "hostfile").write_text(text)
    assert allocation.read_hostfile(tmp_path / "hostfile") == (hosts, slots)


def test_a_hostfile_in_another_encoding_is_read(tmp_path):
    (tmp_path / "hostfile").write_bytes(b"\xe9n1 slots=2\n")
    assert allocation.read_hostfile(tmp_path / "hostfile") == (["\ufffdn1"], 2)


def test_an_allocation_is_known_by_its_environment(tmp_path):
    (tmp_path / "hostfile").write_text("w-0 slots=2\n")
    pod = allocation.find_allocation({"K_MPI_JOB_ROLE": "launcher"}, tmp_path / "hostfile")
    assert (pod.kind, pod.hosts, pod.ranks) == ("pod", ["w-0"], 2)
    own = allocation.find_allocation({"PRTE_MCA_prte_default_hostfile": str(tmp_path / "hostfile")}, tmp_path / "none")
    assert own.hosts == ["w-0"] and own.kind in ("shell", "container") and not own.is_slurm
    values = {"SLURM_TASKS_PER_NODE": "4(x3),2", "SLURM_MEM_PER_CPU": "512", "SLURM_JOB_CPUS_PER_NODE": "8(x3)"}
    job = allocation.find_allocation({"SLURM_JOB_ID": "7", **values})
    assert (job.kind, job.ranks, job.memory, job.is_slurm) == ("Slurm job 7", 4, 4096 * MB, True)
    for given, megabytes in (("1000", 1000), ("", 4096)):  # some empty it, as srun refuses both together
        values["SLURM_MEM_PER_NODE"] = given
        assert allocation.find_allocation({"SLURM_JOB_ID": "7", **values}).memory == megabytes * MB


@pytest.mark.parametrize(
    ("group", "files", "expected"),
    [
        (
            "0::/a/b\n",
            {"a/memory.max": "1000\n", "a/b/memory.max": "max\n", "a/b/cpu.max": "250000 100000\n"},
            (1000, 2.5),
        ),
        ("0::/\n", {"memory.max": "max\n", "cpu.max": "max 100000\n"}, (None, None)),
        (
            "4:memory:/j\n2:cpu,cpuacct:/j\n",
            {
                "memory/j/memory.limit_in_bytes": "2000\n",
                "memory/memory.limit_in_bytes": "9223372036854771712\n",
                "cpu/j/cpu.cfs_quota_us": "50000\n",
                "cpu/j/cpu.cfs_period_us": "100000\n",
                "cpu/cpu.cfs_quota_us": "-1\n",
                "cpu/cpu.cfs_period_us": "100000\n",
            },
            (2000, 0.5),
        ),
    ],
)
def test_limits_of_control_groups_are_read_in_both_versions(group, files, expected, tmp_path):
    (tmp_path / "cgroup").write_text(group)
    for name, text in files.items():
        (tmp_path / "root" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "root" / name).write_text(text)
    assert limits.find_limits(tmp_path / "cgroup", tmp_path / "root") == expected


def test_without_control_groups_there_is_no_limit(tmp_path):
    assert limits.find_limits(tmp_path / "none", tmp_path) == (None, None)


@pytest.mark.skipif(not os.access("/sys/fs/cgroup/memory/cgroup.procs", os.W_OK), reason="no control groups to make")
def test_the_limit_of_a_real_control_group_is_found(tmp_path):
    folder = Path("/sys/fs/cgroup/memory/mpies-allocation-test")
    folder.mkdir(exist_ok=True)
    try:
        (folder / "memory.limit_in_bytes").write_text(str(64 * MB))
        (tmp_path / "cgroup").write_text("4:memory:/mpies-allocation-test\n")
        assert limits.find_limits(tmp_path / "cgroup")[0] == 64 * MB
    finally:
        folder.rmdir()


def test_a_command_has_an_output_unless_it_fails_hangs_or_is_absent(monkeypatch):
    assert allocation.output_of([sys.executable, "-c", "print(input('?') if 0 else 3)"]) == "3\n"
    assert allocation.output_of([sys.executable, "-c", "print(3); raise SystemExit(1)"]) is None
    assert allocation.output_of(["no-such-program-anywhere"]) is None
    assert allocation.output_of([sys.executable, "-c", "import os; print(os.environ['A'])"], {"A": "b"}) == "b\n"
    assert allocation.output_of(["printf", r"f\374r"]) == "f\ufffdr"  # as of a greeting in Latin-1
    monkeypatch.setattr(allocation, "TIMEOUT", 0.2)
    assert allocation.output_of([sys.executable, "-c", "import time; time.sleep(20)"]) is None


def test_available_memory_is_less_than_what_the_machine_has():
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert total / 1000 < limits.available_memory() < total
