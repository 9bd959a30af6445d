"""Which hosts answer, and on which of them a job starts: a real sshd on this machine, and programs in its place."""

import getpass
import json
import os
import shutil
import socket
import subprocess
import threading
import time

import pytest

from mpies.comm import mpiexec
from mpies.comm.mpiexec import JOB
from mpies.core.errors import ConfigError
from mpies.launch import placement
from mpies.launch.hosts import GivenHosts, Host, Hostfile
from mpies.launch.placement import (
    LOCAL_RANK,
    LOCAL_SIZE,
    Answer,
    Placement,
    TooFewHosts,
    ask_hosts,
    command_on,
    end_leftovers,
    has_all_ranks,
    judge_answer,
)
from mpies.runs.machine import versions
from tests.support import CARTPOLE, assert_refused, write_program

SSHD = shutil.which("sshd") or "/usr/sbin/sshd"
needs_sshd = pytest.mark.skipif(
    not os.path.exists(SSHD) or shutil.which("ssh-keygen") is None, reason="there is no sshd: openssh-server"
)
# Hosts other than this one, all of them this machine.
NAMES = ["127.0.0.11", "127.0.0.12", "127.0.0.13"]


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
        options["SetEnv"] = f"HOME={tmp_path}"  # the shell reads no ~/.bashrc, which may wait for something
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
def test_a_job_begins_on_those_that_answer_and_finds_the_one_that_comes(sshd, monkeypatch):
    sshd(NAMES[:2])
    said = []
    source = GivenHosts(",".join(f"{name}:2" for name in NAMES))
    chosen = Placement(source, min_ranks=3, report=lambda *words: said.append(words))
    hosts = chosen.choose(is_first=True)
    assert hosts == [Host(NAMES[0], 2), Host(NAMES[1], 2)]
    ((severity, line),) = said
    assert severity == "WARNING" and line.startswith(f"no ranks on {NAMES[2]}: ") and "refused" in line
    assert chosen.find_larger(hosts) == []
    sshd(NAMES[2:])
    assert chosen.find_larger(hosts) == [Host(name, 2) for name in NAMES]
    assert Placement(source, ranks=3).limit(source.hosts()) == [Host(NAMES[0], 2), Host(NAMES[1], 1)]
    monkeypatch.setattr(placement, "AGAIN", 0.05)
    with pytest.raises(TooFewHosts, match=r"no host answers, but --min-ranks is 3; 127.0.0.14: .*refused"):
        Placement(GivenHosts("127.0.0.14:4"), min_ranks=3, wait=0.1).choose(is_first=False)


def test_a_hostfile_that_is_gone_when_ranks_are_started_again_is_waited_for(tmp_path, monkeypatch):
    """It is a mistake at the first start alone: later somebody may be writing it."""
    monkeypatch.setattr(placement, "AGAIN", 0.05)
    file = tmp_path / "hosts"
    file.write_text("localhost slots=2\n")
    source = Hostfile(file)
    chosen, patient = Placement(source, wait=0.1), Placement(source, wait=60)
    file.unlink()
    with pytest.raises(TooFewHosts, match=r"but --min-ranks is 1; --hostfile \S+/hosts: cannot be read"):
        chosen.choose(is_first=False)
    with pytest.raises(ConfigError, match=r"^--hostfile \S+/hosts: cannot be read"):
        chosen.choose(is_first=True)
    file.write_text("")
    with pytest.raises(TooFewHosts, match=r"no host answers, but --min-ranks is 1; no hosts are named$"):
        chosen.choose(is_first=False)
    threading.Timer(0.2, file.write_text, ["localhost slots=2\n"]).start()
    assert patient.choose(is_first=False) == [Host("localhost", 2)]


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


@pytest.fixture
def start_rank():
    """Start a process with the variables of a rank."""
    processes = []

    def start_rank(job, rank, size):
        variables = {JOB: job, LOCAL_RANK: str(rank), LOCAL_SIZE: str(size)}
        processes.append(subprocess.Popen(["sleep", "100"], env=os.environ | variables))
        time.sleep(0.1)  # it has the variables when the program has begun
        return processes[-1]

    yield start_rank
    for process in processes:
        process.kill()
        process.wait()


def test_a_host_has_all_ranks_until_one_has_ended_and_the_others_are_ended_then(start_rank):
    job = f"test-{os.getpid()}"
    assert has_all_ranks(job)  # none is there yet
    first, left, other = start_rank(job, 0, 2), start_rank(job, 1, 2), start_rank("another", 0, 9)
    assert has_all_ranks(job)
    first.kill()
    first.wait()
    assert not has_all_ranks(job)
    end_leftovers(job)
    assert left.wait(10) == -9 and other.poll() is None


def test_a_host_that_does_not_answer_is_known_and_this_one_is_not_asked():
    hosts = [Host("localhost", 2), Host("not-there.invalid", 2)]
    assert Placement(GivenHosts("h1"), job="a job").look_for_ranks(hosts) == {"not-there.invalid": None}


def test_a_host_whose_shell_prints_something_answers(tmp_path, monkeypatch):
    """Another host is this machine's shell here."""
    write_program(tmp_path / "ssh", 'echo Welcome!\nfor word; do :; done\nsh -c "$word"\necho 0')
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    host = Host("h1", 2)
    assert Placement(GivenHosts("h1"), job="a job").look_for_ranks([host]) == {"h1": True}
    assert ask_hosts([host]) == [Answer(host)]


def test_a_host_is_asked_by_ssh_or_in_a_slurm_job_by_srun(monkeypatch):
    monkeypatch.setenv("PRTE_MCA_plm_ssh_args", "-o ConnectionAttempts=10")
    by_ssh = command_on("w-1", ["sh", "-c", "date; id"])
    assert by_ssh[:3] == ["ssh", "-o", "BatchMode=yes"] and by_ssh[-4:-1] == ["-o", "ConnectionAttempts=10", "w-1"]
    assert by_ssh[-1].endswith(" sh -c 'date; id'")
    by_srun = command_on("n2", ["sh", "-c", "date; id"], "srun")
    assert by_srun[0] == "srun" and "--nodelist=n2" in by_srun and by_srun[-3:] == ["sh", "-c", "date; id"]
