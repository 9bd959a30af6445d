"""Which hosts there are, and which of them answer: texts, files, programs, and a real sshd on this machine."""

import getpass
import json
import os
import shutil
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

from mpies.comm import mpiexec
from mpies.core.errors import ConfigError
from mpies.launch import placement
from mpies.launch.answers import ask_hosts, end_leftovers, judge_answer
from mpies.launch.hosts import GivenHosts, Host, Hostfile, SlurmHosts, count_slots, expand_counts, find_source
from mpies.launch.placement import Placement, TooFewHosts
from mpies.runs.machine import versions
from tests.support import CARTPOLE, assert_refused

SSHD = shutil.which("sshd") or "/usr/sbin/sshd"
needs_sshd = pytest.mark.skipif(
    not os.path.exists(SSHD) or shutil.which("ssh-keygen") is None, reason="there is no sshd: openssh-server"
)
# Hosts other than this one, all of them this machine.
NAMES = ["127.0.0.11", "127.0.0.12", "127.0.0.13"]


def test_hosts_are_read_as_they_are_written(tmp_path):
    assert GivenHosts("h1:8,h2").hosts() == [Host("h1", 8), Host("h2", 1)]
    (tmp_path / "hosts").write_text("# mine\nw-0.job.ns.svc slots=4\nnode2:8\nnode3\n")
    file = Hostfile(tmp_path / "hosts", slots=2)
    assert file.hosts() == [Host("w-0.job.ns.svc", 4), Host("node2", 8), Host("node3", 2)]
    (tmp_path / "hosts").write_text("w-1 slots=3\n")  # as the operator does when workers are added
    assert file.hosts() == [Host("w-1", 3)]


def test_a_host_that_is_repeated_takes_as_many_ranks(tmp_path):
    """PBS, LSF and SGE write a host once for each rank."""
    assert GivenHosts("h1,h2,h1").hosts() == [Host("h1", 2), Host("h2", 1)]
    (tmp_path / "hosts").write_text("h1\nh1\nh2\nh1 slots=4\n")
    assert Hostfile(tmp_path / "hosts").hosts() == [Host("h1", 6), Host("h2", 1)]
    assert Hostfile(tmp_path / "hosts", slots=2).hosts() == [Host("h1", 8), Host("h2", 2)]
    (tmp_path / "hosts").write_text("h1 slots=0\nh2:0\nh3 slots=2\n")  # as somebody does who empties hosts
    assert Hostfile(tmp_path / "hosts", slots=2).hosts() == [Host("h3", 2)]
    (tmp_path / "hosts").write_text("h1 max_slots=16 slots=8\nh2 max-slots=16\nh3 slots=4 max_slots=16\n")
    assert Hostfile(tmp_path / "hosts").hosts() == [Host("h1", 8), Host("h2", 1), Host("h3", 4)]
    (tmp_path / "hosts").write_text("h1 4 all.q@h1 UNDEFINED\nh2 12 all.q@h2 UNDEFINED\nh3 10.0.0.3\n")  # $PE_HOSTFILE
    assert Hostfile(tmp_path / "hosts").hosts() == [Host("h1", 4), Host("h2", 12), Host("h3", 1)]


def test_a_program_tells_hosts_and_the_operator_their_slots(tmp_path):
    script = tmp_path / "discover_hosts.sh"
    script.write_text("#!/bin/sh\necho w-0.job.ns.svc\necho w-1.job.ns.svc:5\n")
    script.chmod(0o755)
    source = find_source(None, str(script), {"OMPI_MCA_orte_set_default_slots": "3"})
    assert source.hosts() == [Host("w-0.job.ns.svc", 3), Host("w-1.job.ns.svc", 5)]
    script.write_bytes(b"#!/bin/sh\necho '\xe9n1 slots=2'\n")  # in another encoding: the host will not answer
    assert source.hosts() == [Host("\ufffdn1", 2)]
    script.write_text("#!/bin/sh\necho no API server >&2\nexit 3\n")
    with pytest.raises(ConfigError, match="ended with code 3: no API server"):
        source.hosts()


def test_a_hostfile_on_a_file_system_where_all_can_be_executed_is_no_program(tmp_path):
    (tmp_path / "hosts").write_text("w-0 slots=3\n")
    (tmp_path / "hosts").chmod(0o755)
    assert Hostfile(tmp_path / "hosts").hosts() == [Host("w-0", 3)]


def test_a_slurm_job_tells_its_nodes_but_for_those_that_it_lost(tmp_path, monkeypatch):
    for name, text in {
        "scontrol": "for n in 1 2 3; do case $3 in *$n*) echo n$n;; esac; done",
        "squeue": "echo n1,n3",
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1,n2,n3", "SLURM_TASKS_PER_NODE": "4(x2),2"}
    assert SlurmHosts(job).hosts() == [Host("n1", 4), Host("n3", 2)]
    assert expand_counts("16(x3),8") == [16, 16, 16, 8]
    with pytest.raises(ConfigError, match="SLURM_JOB_ID is not set"):
        SlurmHosts({})


@pytest.mark.parametrize(
    ("hosts", "hostfile", "expected"),
    [
        ("h1:8,,h2", None, "'' is not a host; write NAME or NAME:SLOTS"),
        ("h1:0", None, "'h1:0' is not a host"),
        (None, "/no/such/file", "/no/such/file: cannot be read"),
        (None, "/", r"--hostfile /: cannot be read \(Is a directory\); a line is NAME slots=N"),
        ("h1", "hosts.txt", "cannot be used together"),
    ],
)
def test_a_mistake_is_one_line(hosts, hostfile, expected):
    with pytest.raises(ConfigError, match=expected):
        find_source(hosts, hostfile, {})


@pytest.mark.parametrize(
    ("text", "ranks", "least", "expected"),
    [
        ("h1:2,h2:2", 5, 1, "--ranks 5 is more than the 4 slots of h1, h2"),
        ("h1:2", None, 3, "--min-ranks 3 is more than the 2 slots of h1"),
        ("h1:8", 2, 4, "--min-ranks 4 is more than --ranks 2"),
    ],
)
def test_too_few_slots_are_refused(text, ranks, least, expected):
    with pytest.raises(ConfigError, match=expected):
        Placement(GivenHosts(text), ranks, least)
    with pytest.raises(ConfigError, match=expected):
        count_slots(text, None, ranks, least)


def test_an_answer_tells_other_versions():
    own = versions()
    host = Host("h1", 2)
    assert judge_answer(host, own, json.dumps(own), "").problem == ""
    answer = judge_answer(host, own, "Welcome!\n" + json.dumps(own | {"mpies": "9.9", "cma": own["cma"]}), "")
    assert answer.is_mismatch and answer.problem.startswith(f"h1 has mpies 9.9 (here {own['mpies']})")
    other = {"torch": "9.9", "gym": "1.0"}
    absent = {name: version for name, version in own.items() if name not in other}
    assert judge_answer(host, absent, json.dumps(absent | other), "").problem == ""  # few runs use them
    answer = judge_answer(host, absent | {"torch": "9.8"}, json.dumps(absent | other), "")
    assert answer.is_mismatch and answer.problem.startswith("h1 has torch 9.9 (here 9.8);")
    answer = judge_answer(host, own, "", "root@h1: Permission denied (publickey,password).\n")
    assert "asks for a password" in answer.problem and not answer.is_mismatch


def test_what_a_killed_mpirun_left_is_removed_and_nothing_else(tmp_path):
    """Also where its number is another program's by now: in a pod started again, every number has been there before."""
    dead = subprocess.Popen(["true"])
    dead.wait()
    program = shutil.copy(shutil.which("sleep"), tmp_path / "prted")
    alive = subprocess.Popen([program, "60"])
    try:
        shared = f"ompi.node7.{dead.pid}"  # Open MPI 4 has all jobs of a user in ompi.HOST.USER
        kept = {f"prted.{alive.pid}", "ompi.mine", "prted", "prted.1x", shared}
        for name in (f"ompi.{dead.pid}", f"prted.{dead.pid}", f"prted.{os.getpid()}", *kept - {"prted"}):
            (tmp_path / name / "pmix").mkdir(parents=True)
        while Path(f"/proc/{alive.pid}/comm").read_text() != "prted\n":
            time.sleep(0.01)
        mpiexec.remove_leftovers(tmp_path)
        assert {path.name for path in tmp_path.iterdir()} == kept
    finally:
        alive.kill()
        alive.wait()


@pytest.fixture
def sshd(tmp_path, monkeypatch):
    """Start sshd on some of NAMES; what ssh needs to find it is in the environment.  Returns its Popen."""
    port = free_port()
    for name in ("key", "other"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / name], check=True)
    config = f"-p {port} -i {tmp_path}/key -o IdentitiesOnly=yes -o StrictHostKeyChecking=no -o LogLevel=ERROR"
    monkeypatch.setenv(mpiexec.SSH_ARGUMENTS, f"{config} -o UserKnownHostsFile=/dev/null -l {getpass.getuser()}")
    if os.geteuid() == 0:
        os.makedirs("/run/sshd", exist_ok=True)
    started = []

    def start(names, key="key"):
        options = {"HostKey": f"{tmp_path}/key", "AuthorizedKeysFile": f"{tmp_path}/{key}.pub", "StrictModes": "no"}
        options |= {"PidFile": "none", "UsePAM": "no", "PermitRootLogin": "yes", "PasswordAuthentication": "no"}
        words = [f"-o{name}={value}" for name, value in options.items()]
        words += [f"-oListenAddress={name}:{port}" for name in names]
        started.append(subprocess.Popen([SSHD, "-D", "-e", "-f", "/dev/null", *words], stderr=subprocess.PIPE))
        for name in names:
            end = time.monotonic() + 20
            while socket.socket().connect_ex((name, port)) and time.monotonic() < end:
                time.sleep(0.02)
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@needs_sshd
def test_hosts_that_answer_are_found_and_the_others_named(sshd):
    sshd(NAMES[:2])
    answers = ask_hosts([Host(name, 2) for name in NAMES])
    assert [answer.problem for answer in answers[:2]] == ["", ""]
    assert answers[2].problem.startswith(f"{NAMES[2]}: ") and "refused" in answers[2].problem


@needs_sshd
def test_a_job_begins_on_those_that_answer_and_finds_the_one_that_comes(sshd, monkeypatch):
    sshd(NAMES[:2])
    said = []
    source = GivenHosts(",".join(f"{name}:2" for name in NAMES))
    chosen = Placement(source, min_ranks=3)
    hosts = chosen.choose(lambda *words: said.append(words), is_first=True)
    assert hosts == [Host(NAMES[0], 2), Host(NAMES[1], 2)]
    ((severity, line),) = said
    assert severity == "WARNING" and line.startswith(f"no ranks on {NAMES[2]}: ")
    assert chosen.find_larger(hosts) == []
    sshd(NAMES[2:])
    assert chosen.find_larger(hosts) == [Host(name, 2) for name in NAMES]
    assert Placement(source, ranks=3).limit(source.hosts()) == [Host(NAMES[0], 2), Host(NAMES[1], 1)]
    monkeypatch.setattr(placement, "AGAIN", 0.05)
    with pytest.raises(TooFewHosts, match=r"no host answers, but --min-ranks is 3; 127.0.0.14: .*refused"):
        Placement(GivenHosts("127.0.0.14:4"), min_ranks=3, wait=0.1).choose(lambda *words: None, is_first=False)


def test_a_hostfile_that_is_gone_when_ranks_are_started_again_is_waited_for(tmp_path, monkeypatch):
    """It is a mistake at the first start alone: later somebody may be writing it."""
    monkeypatch.setattr(placement, "AGAIN", 0.05)
    file = tmp_path / "hosts"
    file.write_text("localhost slots=2\n")
    chosen = Placement(Hostfile(file), wait=0.1)
    file.unlink()
    with pytest.raises(TooFewHosts, match=r"but --min-ranks is 1; --hostfile \S+/hosts: cannot be read"):
        chosen.choose(lambda *words: None, is_first=False)
    with pytest.raises(ConfigError, match=r"^--hostfile \S+/hosts: cannot be read"):
        chosen.choose(lambda *words: None, is_first=True)
    file.write_text("")
    with pytest.raises(TooFewHosts, match=r"no host answers, but --min-ranks is 1; no hosts are named$"):
        chosen.choose(lambda *words: None, is_first=False)
    chosen.wait = 60
    threading.Timer(0.2, file.write_text, ["localhost slots=2\n"]).start()
    assert chosen.choose(lambda *words: None, is_first=False) == [Host("localhost", 2)]


@needs_sshd
def test_a_host_that_asks_for_a_password_is_named_in_one_line(sshd, run_mpies, write_config):
    sshd(NAMES[:1], key="other")
    ended = run_mpies(0, "train", write_config(CARTPOLE), "--hosts", f"{NAMES[0]}:2")
    assert ended.code == 2 and ended.stdout == ""
    last = ended.stderr.strip().splitlines()[-1]
    assert last.startswith("mpies: no host answers, but --min-ranks is 1; ") and "ssh-copy-id" in last


def test_ranks_of_another_mpi_than_mpirun_are_refused(tmp_path, write_config, run_mpies, monkeypatch):
    """As MPICH's mpirun starts them: each is alone, and knows by a variable that there are others."""
    monkeypatch.setenv("PMI_SIZE", "3")
    for rank, lines in (("0", 1), ("1", 0)):
        monkeypatch.setenv("PMI_RANK", rank)
        ended = run_mpies(0, "train", write_config(CARTPOLE), "--out", "run")
        assert ended.code == 2 and len(ended.stderr.strip().splitlines()) == lines
        assert not lines or "mpirun started 3 ranks, but they cannot find each other" in ended.stderr
    assert not (tmp_path / "run").exists()


def test_ranks_without_an_mpi_library_are_refused_in_one_line(tmp_path, write_config, run_mpies, monkeypatch):
    monkeypatch.setenv("MPI4PY_LIBMPI", "/no/such/libmpi.so")
    ended = run_mpies(0, "train", write_config(CARTPOLE), "--out", "run", "--ranks", "2")
    assert_refused(ended, "mpi4py finds no MPI library (", "/no/such/libmpi.so", 'pip install "mpies[mpi]"')
    assert not (tmp_path / "run").exists()


def test_ranks_that_a_job_has_left_are_ended_and_others_are_not():
    left, other = (
        subprocess.Popen(["sleep", "60"], env=os.environ | {"MPIES_JOB": name}) for name in ("this-one", "another")
    )
    try:
        end_leftovers("this-one")
        assert left.wait(10) == -9 and other.poll() is None
    finally:
        other.kill()
        other.wait()
