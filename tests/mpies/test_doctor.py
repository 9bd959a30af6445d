"""mpies doctor: each check on the good and on the bad, and the whole command on this machine."""

import os
import time

import pytest

from mpies.jobs import doctor, allocation
from mpies.jobs.allocation import Allocation

MB = 2**20


def levels(findings):
    return {finding.subject: finding.level for finding in findings}


def test_the_command_finds_the_mpi_of_this_machine(run_mpies):
    ended = run_mpies(0, "doctor")
    lines = {line[6:20].strip(): line for line in ended.stdout.splitlines()}
    assert ended.code == (1 if any(line.startswith("BAD") for line in lines.values()) else 0), ended.stderr
    assert lines["MPI"].startswith("ok") and "behind mpi4py" in lines["MPI"]
    assert "2 ranks of" in lines["mpiexec"] and lines["mpiexec"].endswith("find each other")
    assert set(lines) >= {"place", "ULFM", "shared memory", "memory", "processors", "threads", "hosts", "clock", "disk"}


def test_the_command_says_what_a_config_lacks_and_exits_with_1(run_mpies, write_config):
    config = write_config("environment: {id: 'function:sphere', dimension: 3}")
    ended = run_mpies(0, "doctor", config, "noise.size=1000000000000000")
    assert ended.code == 1
    bad = [line for line in ended.stdout.splitlines() if line.startswith("BAD")]
    assert ["shared memory" in bad[0], "memory" in bad[1]] == [True, True]
    assert "lower noise.size" in bad[0] and "sbatch --mem" in bad[1]


def test_an_mpi_that_is_not_there_is_named_with_its_cure(run_mpies, monkeypatch, tmp_path):
    monkeypatch.setenv("MPI4PY_LIBMPI", str(tmp_path / "libmpi.so"))  # what mpi4py then loads, or fails to
    ended = run_mpies(0, "doctor")
    assert ended.code == 1
    assert 'BAD   MPI             mpi4py finds no MPI library; pip install "mpies[mpi]"' in ended.stdout


def test_shared_memory_must_hold_the_table(tmp_path):
    assert levels(doctor.check_shared_memory(MB, tmp_path)) == {"shared memory": "ok"}
    assert levels(doctor.check_shared_memory(2**60, tmp_path)) == {"shared memory": "BAD"}
    assert levels(doctor.check_shared_memory(MB, tmp_path / "none")) == {"shared memory": "note"}


def test_folders_of_killed_launchers_are_noted(tmp_path):
    (tmp_path / f"ompi.{os.getpid()}").mkdir()
    assert not list(doctor.check_leftovers(tmp_path))
    (tmp_path / "ompi.99999999").mkdir()
    (found,) = doctor.check_leftovers(tmp_path)
    assert found.level == "note" and "ompi.* of 1 mpirun that were killed" in found.text
    assert f"rm -r {tmp_path}/ompi.*" in found.cure


@pytest.mark.parametrize(
    ("limit", "granted", "level", "whose"),
    [
        (None, None, "ok", "are free"),
        (300 * MB, None, "BAD", "300 MB this container may use"),
        (900 * MB, 200 * MB, "BAD", "200 MB --mem grants"),
        (900 * MB, 600 * MB, "ok", "600 MB --mem grants"),
    ],
)
def test_the_narrowest_bound_of_memory_counts(limit, granted, level, whose):
    [finding] = doctor.check_memory(500 * MB, limit, granted, 4000 * MB)
    assert finding.level == level and whose in str(finding)
    assert ("ask for 600 MB" in finding.cure) == (level == "BAD")


@pytest.mark.parametrize(
    ("ranks", "pinned", "quota", "level"),
    [(0, 4, None, "ok"), (4, 4, None, "ok"), (5, 4, None, "note"), (4, 8, 2.5, "note"), (2, 8, 2.5, "ok")],
)
def test_ranks_must_not_take_turns(ranks, pinned, quota, level):
    [finding] = doctor.check_processors(ranks, pinned, 8, quota)
    assert finding.level == level
    assert ("pinned to 4" in finding.text) == (pinned == 4)


def test_threads_of_linear_algebra_are_noticed():
    assert levels(doctor.check_threads({})) == {"threads": "ok"}
    [finding] = doctor.check_threads({"OMP_NUM_THREADS": "8", "MKL_NUM_THREADS": "1"})
    assert finding.level == "note" and "OMP_NUM_THREADS=8:" in finding.text


def test_hosts_must_answer_share_files_and_agree_on_the_time():
    pod = Allocation("pod", ["w-0.job.ns.svc", "w-1", "w-2"])

    def ask(_, host, command):
        return {"w-0.job.ns.svc": f"{time.time()}\nseen\n", "w-1": f"{time.time() + 20}\n", "w-2": None}[host]

    found = {finding.subject: finding for finding in doctor.check_hosts(pod, "/runs", ask)}
    assert [found[name].level for name in ("hosts", "shared files", "clock")] == ["BAD", "note", "BAD"]
    assert "no answer by ssh from w-2 of 3 others" in found["hosts"].text
    assert "/runs is not on w-1" in found["shared files"].text
    assert "differ by up to 20.0 s" in found["clock"].text

    good = doctor.check_hosts(Allocation("pod", pod.hosts[:1]), "/runs", ask)
    assert levels(good) == {"hosts": "ok", "shared files": "ok", "clock": "ok"}
    assert levels(doctor.check_hosts(Allocation("shell"), "/runs", ask)) == {"hosts": "ok"}


def test_a_host_is_asked_by_ssh_without_questions():
    assert doctor.ask_host(Allocation("shell"), "no-such-host.invalid", "date") is None


def test_a_folder_that_cannot_be_written_is_bad(tmp_path):
    assert levels(doctor.check_clock(tmp_path)) == {"clock": "ok"}
    assert levels(doctor.check_clock(tmp_path / "none")) == {"disk": "BAD"}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "hosts", "slots"),
    [
        ("w-0.job.ns.svc slots=4\nw-1.job.ns.svc slots=4\n", ["w-0.job.ns.svc", "w-1.job.ns.svc"], 4),
        ("# mine\n\nnode1:16\nnode2:8\n", ["node1", "node2"], 16),
        ("node1\n", ["node1"], 0),
        ("", [], 0),
    ],
)
def test_hostfiles_of_both_kinds_are_read(text, hosts, slots, tmp_path):
    (tmp_path / "hostfile").write_text(text)
    assert allocation.read_hostfile(tmp_path / "hostfile") == (hosts, slots)


def test_a_place_is_known_by_its_environment(tmp_path):
    (tmp_path / "hostfile").write_text("w-0 slots=2\n")
    pod = allocation.find_allocation({"K_MPI_JOB_ROLE": "launcher"}, tmp_path / "hostfile")
    assert (pod.kind, pod.hosts, pod.ranks) == ("pod", ["w-0"], 2)
    own = allocation.find_allocation({"PRTE_MCA_prte_default_hostfile": str(tmp_path / "hostfile")}, tmp_path / "none")
    assert own.hosts == ["w-0"] and own.kind in ("shell", "container")
    values = {"SLURM_TASKS_PER_NODE": "4(x3),2", "SLURM_MEM_PER_CPU": "512", "SLURM_JOB_CPUS_PER_NODE": "8(x3)"}
    job = allocation.find_allocation({"SLURM_JOB_ID": "7", **values})
    assert (job.kind, job.ranks, job.memory, job.is_slurm) == ("Slurm job 7", 4, 4096 * MB, True)


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
    assert allocation.find_limits(tmp_path / "cgroup", tmp_path / "root") == expected


@pytest.mark.skipif(not os.access("/sys/fs/cgroup/memory/cgroup.procs", os.W_OK), reason="no control groups to make")
def test_the_limit_of_a_real_control_group_is_found(tmp_path):
    from pathlib import Path

    folder = Path("/sys/fs/cgroup/memory/mpies-doctor-test")
    folder.mkdir(exist_ok=True)
    try:
        (folder / "memory.limit_in_bytes").write_text(str(64 * MB))
        (tmp_path / "cgroup").write_text("4:memory:/mpies-doctor-test\n")
        assert allocation.find_limits(tmp_path / "cgroup")[0] == 64 * MB
    finally:
        folder.rmdir()
