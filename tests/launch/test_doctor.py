"""mpies doctor: each check on good and on bad values, and the whole command on this machine."""

import os
import socket

from mpies.launch import doctor
from mpies.launch.doctor import Allocation
from mpies.launch.forecast.cost import NodeMemory
from mpies.launch.hosts import Host
from mpies.launch.placement import Answer
from tests.support import assert_refused, invoke, write_program

MB = 2**20


def test_the_command_finds_the_mpi_of_this_machine_or_names_the_cure(run_mpies, monkeypatch, tmp_path):
    ended = run_mpies(0, "doctor")
    lines = {line[6:20].strip(): line for line in ended.stdout.splitlines()}
    assert ended.code == (1 if any(line.startswith("BAD") for line in lines.values()) else 0), ended.stderr
    assert lines["MPI"].startswith("ok") and "behind mpi4py" in lines["MPI"]
    assert "2 ranks of" in lines["mpiexec"] and lines["mpiexec"].endswith("find each other")
    assert set(lines) >= {"place", "shared memory", "memory", "processors", "threads", "hosts", "clock"}
    monkeypatch.setenv("MPI4PY_LIBMPI", str(tmp_path / "libmpi.so"))  # what mpi4py then loads, or fails to
    ended = run_mpies(0, "doctor", code=1)
    assert 'BAD   MPI             mpi4py finds no MPI library; pip install "mpies[mpi]"' in ended.stdout


def test_the_command_exits_with_1_if_a_config_needs_more_than_there_is(write_config, monkeypatch):
    monkeypatch.setattr(doctor, "check_mpi", lambda allocation: iter(()))  # which starts ranks
    config = write_config("environment: {id: 'function:sphere', dimension: 3}")
    ended = invoke("doctor", config, "noise.size=1000000000000000", code=1)
    bad = {line[6:20].strip(): line for line in ended.stdout.splitlines() if line.startswith("BAD")}
    assert "the noise table needs 3,725,290 GB; lower noise.size" in bad["shared memory"]
    assert "need about 3,725,29" in bad["memory"] and "sbatch --mem" in bad["memory"]
    assert_refused(invoke("doctor", "--out", "absent"), "--out absent: is not a folder")


def test_all_checks_are_made_with_the_ranks_of_the_allocation(monkeypatch, tmp_path):
    monkeypatch.setattr(doctor, "find_allocation", lambda: Allocation("shell", ranks=3))
    monkeypatch.setattr(doctor, "check_mpi", lambda allocation: iter(()))
    monkeypatch.setattr(doctor, "find_limits", lambda: (400 * MB, None))
    memory = NodeMemory(table=100 * MB, rank=90 * MB, root=20 * MB)
    found = {finding.subject: finding for finding in doctor.examine(memory, str(tmp_path))}
    assert ", 1 host, 3 ranks on this node" in found["place"].text
    assert "400 MB this container may use, this node's ranks need about 390 MB" in found["memory"].text
    assert "the noise table needs 100 MB" in found["shared memory"].text
    assert set(found) >= {"processors", "threads", "inner loop", "hosts", "clock"}


def test_an_allocation_is_known_by_its_environment(tmp_path):
    (tmp_path / "hostfile").write_text("w-0 slots=2\n")
    pod = doctor.find_allocation({"K_MPI_JOB_ROLE": "launcher"}, tmp_path / "hostfile")
    assert (pod.kind, pod.hosts, pod.ranks) == ("pod", ["w-0"], 2)
    own = doctor.find_allocation({"PRTE_MCA_prte_default_hostfile": str(tmp_path / "hostfile")}, tmp_path / "none")
    assert own.hosts == ["w-0"] and own.kind in ("shell", "container") and not own.is_slurm
    values = {"SLURM_TASKS_PER_NODE": "4(x3),2", "SLURM_MEM_PER_CPU": "512", "SLURM_JOB_CPUS_PER_NODE": "8(x3)"}
    job = doctor.find_allocation({"SLURM_JOB_ID": "7", **values})
    assert (job.kind, job.ranks, job.memory, job.is_slurm) == ("Slurm job 7", 4, 4096 * MB, True)
    for given, megabytes in (("1000", 1000), ("", 4096)):  # some empty it, as srun refuses both together
        values["SLURM_MEM_PER_NODE"] = given
        assert doctor.find_allocation({"SLURM_JOB_ID": "7", **values}).memory == megabytes * MB


def of_memory(limit=None, granted=None):
    return doctor.check_memory(500 * MB, limit, granted, 4000 * MB)


def of_processors(ranks, pinned, quota=None):
    return doctor.check_processors(ranks, pinned, 8, quota)


def test_what_is_good_and_what_is_not(tmp_path):
    for subject, level, findings, words in (
        ("shared memory", "ok", doctor.check_shared_memory(MB, tmp_path), ""),
        ("shared memory", "BAD", doctor.check_shared_memory(2**60, tmp_path), ""),
        ("shared memory", "note", doctor.check_shared_memory(MB, tmp_path / "none"), ""),
        ("memory", "ok", of_memory(), "are free"),
        ("memory", "BAD", of_memory(300 * MB), "300 MB this container may use"),
        ("memory", "BAD", of_memory(400 * MB), "ask for 600 MB"),
        ("memory", "BAD", of_memory(900 * MB, 200 * MB), "200 MB --mem grants"),
        ("memory", "ok", of_memory(900 * MB, 600 * MB), "600 MB --mem grants"),
        ("processors", "ok", of_processors(0, 4), "pinned to 4"),
        ("processors", "ok", of_processors(4, 4), ""),
        ("processors", "note", of_processors(5, 4), ""),
        ("processors", "note", of_processors(4, 8, 2.5), "start 2"),
        ("processors", "ok", of_processors(2, 8, 2.5), "2.5 of 8 usable, time"),
        ("threads", "ok", doctor.check_threads({"MKL_NUM_THREADS": "1"}), ""),
        ("threads", "note", doctor.check_threads({"OMP_NUM_THREADS": "8", "MKL_NUM_THREADS": "1"}), "S=8:"),
        ("inner loop", "ok", doctor.check_kernels(doctor), ""),
        ("inner loop", "note", doctor.check_kernels(None), ""),
        ("clock", "ok", doctor.check_clock(tmp_path), ""),
        ("disk", "BAD", doctor.check_clock(tmp_path / "none"), ""),
    ):
        [finding] = findings
        assert (finding.subject, finding.level) == (subject, level) and bool(finding.cure) == (level != "ok")
        assert words in str(finding)
    assert list(tmp_path.iterdir()) == []


def test_ranks_must_be_able_to_run_on_all_hosts(monkeypatch):
    """This one is not asked, and need not run an sshd: mpirun needs none for it."""
    for name in ("localhost", "127.0.0.1", socket.gethostname()):
        assert [one.level for one in doctor.check_hosts(Allocation("shell", [name]))] == ["ok"]
    pod = Allocation("pod", ["w-0.job.ns.svc", "w-1"])
    monkeypatch.setattr(doctor, "ask_hosts", lambda hosts, way: [Answer(host) for host in hosts])
    [finding] = doctor.check_hosts(pod)
    assert (finding.level, finding.text) == ("ok", "2 others answer through ssh")
    silent = [Answer(Host("w-0.job.ns.svc", 1)), Answer(Host("w-1", 1), "w-1: there is no answer")]
    monkeypatch.setattr(doctor, "ask_hosts", lambda hosts, way: silent)
    [finding] = doctor.check_hosts(pod)
    assert finding.level == "BAD" and "no ranks on 1 of 2 others: w-1: there is no answer; try ssh" in str(finding)


def test_the_kinds_of_pmi_are_found_wherever_srun_prints_them(tmp_path, monkeypatch):
    """Versions before 22.05 print them on standard error."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    for stream in (1, 2):
        write_program(tmp_path / "srun", f"printf 'MPI types are...\\nnone\\npmi2\\npmix\\n' >&{stream}")
        found = {finding.subject: finding for finding in doctor.check_mpi(Allocation("Slurm job 7"))}
        assert found["starting ranks"].text.startswith("srun has pmix and pmi2, mpirun is ")
