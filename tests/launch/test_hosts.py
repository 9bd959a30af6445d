"""Which hosts there are: texts, files, programs and Slurm."""

import os
import sys

import pytest

from mpies.core.errors import ConfigError
from mpies.launch import hosts as hosts_module
from mpies.launch.hosts import GivenHosts, Host, Hostfile, SlurmHosts, Where, count_slots, expand_counts, find_source
from mpies.launch.placement import Placement
from tests.support import write_program


@pytest.mark.parametrize(
    ("text", "slots", "expected"),
    [
        ("# mine\nw-0.job.ns.svc slots=4\nnode2:8\nnode3\n", 2, "w-0.job.ns.svc:4 node2:8 node3:2"),
        # PBS, LSF and SGE write a host once for each rank.
        ("h1\nh1\nh2\nh1 slots=4\n", 2, "h1:8 h2:2"),
        ("h1 slots=0\nh2:0\nh3 slots=2\n", 2, "h3:2"),  # as somebody does who empties hosts
        ("h1 max_slots=16 slots=8\nh2 max-slots=16\nh3 slots=4 max_slots=16\n", 1, "h1:8 h2:1 h3:4"),
        ("h1 4 all.q@h1 UNDEFINED\nh2 12 all.q@h2 UNDEFINED\nh3 10.0.0.3\n", 1, "h1:4 h2:12 h3:1"),  # $PE_HOSTFILE
    ],
)
def test_hosts_are_read_as_they_are_written(text, slots, expected, tmp_path):
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
    for name, text in {
        "scontrol": "for n in 1 2 3; do case $3 in *$n*) echo n$n;; esac; done",
        "squeue": "echo n1,n3",
    }.items():
        write_program(tmp_path / name, text)
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
        count_slots(Where(text, min_ranks=least), ranks)


def test_a_command_has_an_output_unless_it_fails_hangs_or_is_absent(monkeypatch):
    assert hosts_module.output_of([sys.executable, "-c", "print(input('?') if 0 else 3)"]) == "3\n"
    assert hosts_module.output_of([sys.executable, "-c", "print(3); raise SystemExit(1)"]) is None
    assert hosts_module.output_of(["no-such-program-anywhere"]) is None
    assert hosts_module.output_of([sys.executable, "-c", "import os; print(os.environ['A'])"], {"A": "b"}) == "b\n"
    assert hosts_module.output_of(["printf", r"f\374r"]) == "f\ufffdr"  # as of a greeting in Latin-1
    monkeypatch.setattr(hosts_module, "TIMEOUT", 0.2)
    assert hosts_module.output_of([sys.executable, "-c", "import time; time.sleep(20)"]) is None


@pytest.mark.parametrize("name", ["-vv", "h1\x1b[2J", "h1,h2", "a=b"])
def test_a_name_that_is_an_option_or_more_than_a_word_is_no_host(name, tmp_path):
    (tmp_path / "hosts").write_text(f"{name} slots=2\n")
    with pytest.raises(ConfigError, match=r"is not the name of a host|control character"):
        Hostfile(tmp_path / "hosts")
