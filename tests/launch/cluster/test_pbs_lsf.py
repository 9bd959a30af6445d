"""The scripts for PBS Pro and LSF.  Neither system can be installed here: bash runs the scripts, without a queue."""

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from mpies.launch.cluster.pbs_lsf import SYSTEMS, batch_script
from mpies.runs.formats.metrics import read_digests
from tests.launch.cluster.conftest import JOB
from tests.support import CARTPOLE, invoke, wait_for, write_program

HEADERS = {
    "pbs": [
        "#PBS -N pole",
        "#PBS -l select=3:ncpus=16:mpiprocs=16:mem=5120mb",
        "#PBS -l walltime=26:01:00",
        "#PBS -r y",
        "#PBS -A 'my group'",
        "#PBS -q long",
    ],
    "lsf": [
        "#BSUB -J pole",
        "#BSUB -n 48",
        '#BSUB -R "span[ptile=16] rusage[mem=5120/host]"',
        "#BSUB -W 26:01",
        "#BSUB -r",
        "#BSUB -P 'my group'",
        "#BSUB -q long",
    ],
}


@pytest.mark.parametrize("kind", SYSTEMS)
def test_a_script_asks_for_what_the_job_needs(kind, tmp_path):
    job = replace(JOB, request=replace(JOB.request, account="my group"))
    lines = batch_script(job, kind, "/a venv/bin").splitlines()
    assert lines[0] == "#!/bin/bash" and [line for line in lines if line[:2] in ("#P", "#B")] == HEADERS[kind]
    assert not [line for line in batch_script(JOB, kind, "").splitlines() if line[:8] in ("#PBS -A ", "#BSUB -P")]
    assert f"--signal=USR1 {JOB.seconds - JOB.warning} mpies train 'configs/my pole.yaml' --out runs/pole " in lines[-6]
    if shutil.which("shellcheck"):
        (tmp_path / "job").write_text("\n".join(lines))
        subprocess.run(["shellcheck", tmp_path / "job"], check=True)


@pytest.mark.parametrize("kind", SYSTEMS)
def test_a_script_trains_and_submits_itself_again_until_the_run_is_complete(kind, write_config, here):
    write_config(CARTPOLE, "pole.yaml")
    ended = invoke("launch", kind, "pole.yaml", "--ranks-per-node", 2, "--out", "run", "--time", "10", "--dry-run")
    _, number, folder, hosts, submit = SYSTEMS[kind]
    assert ended.code == 0 and ended.stdout.endswith(f"not run: {submit} < run.{kind}\n"), ended.stderr
    (here / "hosts").write_text("localhost\nlocalhost\n")
    write_program(here / "bin" / submit.split()[0], "cat >again; echo $MPIES_SUCCESSORS >>left")
    variables = {number: "7.server", folder: str(here), hosts: str(here / "hosts")}
    environment = os.environ | variables | {"PATH": f"{here}/bin:{os.environ['PATH']}"}
    script = (here / f"run.{kind}").read_text()
    assert f"PATH={Path(sys.executable).parent}:" in script
    config = (here / "pole.yaml").read_text()

    def stop_when_it_has_made(generations, **variables):
        """The time is over, but not before the ranks are there, which takes long on a busy machine."""
        (here / "pole.yaml").write_text(config.replace("generations: 10", "generations: 1000000"))
        with subprocess.Popen(["bash", "-c", script], env=environment | variables, cwd="/") as job:
            wait_for(lambda: len(read_digests(here / "run")) >= generations, job, seconds=90)
            [started] = [one for one in psutil.Process(job.pid).children() if one.name() == "timeout"]
            started.send_signal(signal.SIGALRM)  # of its own clock: its time is over
            assert job.wait(60) == 75, (here / "run-7.out").read_text()
        return len(read_digests(here / "run"))

    made = stop_when_it_has_made(1)
    assert (here / "again").read_text() == script and (here / "left").read_text() == "19\n"
    if kind == "lsf":  # as the other does
        (here / "pole.yaml").write_text(config.replace("generations: 10", f"generations: {made + 2}"))
        done = subprocess.run(["bash", "-c", script], env=environment, cwd="/")
        assert done.returncode == 0 and len(read_digests(here / "run")) == made + 2
        stop_when_it_has_made(made + 4, MPIES_SUCCESSORS="0")
        assert (here / "left").read_text() == "19\n"
