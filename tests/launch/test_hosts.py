"""Which hosts there are, which of them answer, and on which a job starts.

Texts, files, programs and Slurm tell them; a real sshd on this machine answers, and programs in its place.
"""

import getpass
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time

import pytest

from mpies.comm import mpiexec
from mpies.comm.mpiexec import JOB
from mpies.core.errors import ConfigError
from mpies.launch import hosts as hosts_module
from mpies.launch import placement
from mpies.launch.hosts import GivenHosts, Host, Hostfile, SlurmHosts, Where, count_slots, expand_counts, find_source
from mpies.launch.placement import Answer, Placement, TooFewHosts, ask_hosts, command_on, has_all_ranks, judge_answer
from mpies.runs.machine import versions
from tests.support import CARTPOLE, assert_refused, wait_for, write_program

SSHD = shutil.which("sshd") or "/usr/sbin/sshd"
needs_sshd = pytest.mark.skipif(
    not os.path.exists(SSHD) or shutil.which("ssh-keygen") is None, reason="there is no sshd: openssh-server"
)
# Hosts other than this one, all of them this machine.
NAMES = ["127.0.0.11", "127.0.0.12", "127.0.0.13"]


def test_hosts_are_read_as_they_are_written(tmp_path):
    for text, slots, expected in (
        ("# mine\nw-0.job.ns.svc slots=4\nnode2:8\nnode3\n", 2, "w-0.job.ns.svc:4 node2:8 node3:2"),
        # PBS, LSF and SGE write a host once for each rank.
        ("h1\nh1\nh2\nh1 slots=4\n", 2, "h1:8 h2:2"),
        ("h1 slots=0\nh2:0\nh3 slots=2\n", 2, "h3:2"),  # as somebody does who empties hosts
        ("h1 max_slots=16 slots=8\nh2 max-slots=16\nh3 slots=4 max_slots=16\n", 1, "h1:8 h2:1 h3:4"),
        ("h1 4 all.q@h1 UNDEFINED\nh2 12 all.q@h2 UNDEFINED\nh3 10.0.0.3\n", 1, "h1:4 h2:12 h3:1"),  # $PE_HOSTFILE
    ):
        file = tmp_path / "hosts"
        file.write_text(text)
        file.chmod(0o755)  # as on a file system on which all can be executed: it is no program
        source = Hostfile(file, slots)
        assert " ".join(f"{host.name}:{host.slots}" for host in source.hosts()) == expected
        file.write_text("w-1 slots=3\n")  # as the operator does when workers are added
        assert source.hosts() == [Host("w-1", 3)]
    assert GivenHosts("h1:8,h2,h3,h2").hosts() == [Host("h1", 8), Host("h2", 2), Host("h3", 1)]


def test_a_program_tells_hosts_and_the_operator_their_slots(tmp_path):
    script = tmp_path / "discover_hosts.sh"
    program = write_program(script, "echo w-0.job.ns.svc\necho w-1.job.ns.svc:5")
    source = find_source(None, program, {"OMPI_MCA_orte_set_default_slots": "3"})
    assert source.hosts() == [Host("w-0.job.ns.svc", 3), Host("w-1.job.ns.svc", 5)]
    script.write_bytes(b"#!/bin/sh\necho '\xe9n1 slots=2'\n")  # in another encoding: the host will not answer
    assert source.hosts() == [Host("\ufffdn1", 2)]
    script.write_text("#!/bin/sh\necho no API server >&2\nexit 3\n")
    with pytest.raises(ConfigError, match="the program failed: no API server"):
        source.hosts()


def test_a_slurm_job_tells_its_nodes_but_for_those_that_it_lost(tmp_path, monkeypatch):
    write_program(tmp_path / "scontrol", "for n in 1 2 3; do case $3 in *$n*) echo n$n;; esac; done")
    write_program(tmp_path / "squeue", "echo n1,n3")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1,n2,n3", "SLURM_TASKS_PER_NODE": "4(x2),2"}
    assert SlurmHosts(job).hosts() == [Host("n1", 4), Host("n3", 2)]
    assert expand_counts("16(x3),8") == [16, 16, 16, 8]
    with pytest.raises(ConfigError, match="SLURM_JOB_ID is not set"):
        SlurmHosts({})


def test_a_mistake_is_one_line(tmp_path):
    for hosts, hostfile, expected in (
        ("h1:8,,h2", None, "'' is not a host; write NAME or NAME:SLOTS"),
        ("h1:0", None, "'h1:0' is not a host"),
        (None, "/no/such/file", "/no/such/file: cannot be read"),
        (None, "/", r"--hostfile /: cannot be read \(Is a directory\); a line is NAME slots=N"),
        ("h1", "hosts.txt", "cannot be used together"),
    ):
        with pytest.raises(ConfigError, match=expected):
            find_source(hosts, hostfile, {})
    for name in ("-vv", "h1\x1b[2J", "h1,h2", "a=b"):  # an option, or more than a word
        (tmp_path / "hosts").write_text(f"{name} slots=2\n")
        with pytest.raises(ConfigError, match=r"is not the name of a host|control character"):
            Hostfile(tmp_path / "hosts")


def test_too_few_slots_are_refused():
    for text, ranks, least, expected in (
        ("h1:2,h2:2", 5, 1, "--ranks 5 is more than the 4 slots of h1, h2"),
        ("h1:2", None, 3, "--min-ranks 3 is more than the 2 slots of h1"),
        ("h1:8", 2, 4, "--min-ranks 4 is more than --ranks 2"),
    ):
        with pytest.raises(ConfigError, match=expected):
            Placement(GivenHosts(text), ranks, least)
        with pytest.raises(ConfigError, match=expected):
            count_slots(Where(text, min_ranks=least), ranks)


def test_a_command_has_an_output_unless_it_fails_hangs_or_is_absent(monkeypatch):
    assert hosts_module.output_of([sys.executable, "-c", "print(input('?') if 0 else 3)"]) == "3\n"
    assert hosts_module.output_of([sys.executable, "-c", "print(3); raise SystemExit(1)"]) is None
    assert hosts_module.output_of(["no-such-program-anywhere"]) is None
    assert hosts_module.output_of([sys.executable, "-c", "import os; print(os.environ['A'])"], {"A": "b"}) == "b\n"
    assert hosts_module.output_of(["printf", r"f\374r"]) == "f\ufffdr"  # as of a greeting in Latin-1
    monkeypatch.setattr(hosts_module, "TIMEOUT", 0.2)
    assert hosts_module.output_of([sys.executable, "-c", "import time; time.sleep(20)"]) is None


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
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
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
        wait_for(lambda: not any(socket.socket().connect_ex((name, port)) for name in names), seconds=20)
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


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


def start_rank(job, rank, size):
    """A process with the variables of a rank."""
    variables = {JOB: job, placement.LOCAL_RANK: str(rank), placement.LOCAL_SIZE: str(size)}
    process = subprocess.Popen(["sleep", "60"], env=os.environ | variables)
    time.sleep(0.1)  # it has the variables when the program has begun
    return process


def test_a_host_has_all_ranks_until_one_has_ended_and_the_others_are_ended_then():
    job = f"test-{os.getpid()}"
    assert has_all_ranks(job)  # none is there yet
    with start_rank(job, 0, 2) as first, start_rank(job, 1, 2) as left, start_rank("another", 0, 9) as other:
        assert has_all_ranks(job)
        first.kill()
        first.wait()
        assert not has_all_ranks(job)
        placement.end_leftovers(job)
        assert left.wait(10) == -9 and other.poll() is None
        other.kill()


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
