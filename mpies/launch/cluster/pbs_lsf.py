"""A Job as a batch script of PBS Pro or LSF, which submits itself again until the run is complete."""

import math
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from mpies.core.text import unbroken
from mpies.launch.cluster.submit import Echo, Job, check_warning, submit, write_job_file


@dataclass(frozen=True)
class System:
    """What a script of a batch system says.

    header: lines for the system; a line whose value is absent is left out.  number, folder, hostfile: its variables.
    submit: the command that reads a script.
    """

    header: tuple[str, ...]
    number: str
    folder: str
    hostfile: str
    submit: str


PBS = System(
    (
        "#PBS -N {name}",
        "#PBS -l select={nodes}:ncpus={ranks}:mpiprocs={ranks}:mem={memory}mb",
        "#PBS -l walltime={hours}:{minutes:02}:00",
        "#PBS -r y",
        "#PBS -A {account}",
        "#PBS -q {queue}",
    ),
    "PBS_JOBID",
    "PBS_O_WORKDIR",
    "PBS_NODEFILE",
    "qsub -V",
)
LSF = System(
    (
        "#BSUB -J {name}",
        "#BSUB -n {all_ranks}",
        '#BSUB -R "span[ptile={ranks}] rusage[mem={memory}/host]"',
        "#BSUB -W {hours}:{minutes:02}",
        "#BSUB -r",
        "#BSUB -P {account}",
        "#BSUB -q {queue}",
    ),
    "LSB_JOBID",
    "LS_SUBCWD",
    "LSB_DJOB_HOSTFILE",
    "bsub",
)
SYSTEMS = {"pbs": PBS, "lsf": LSF}

# `timeout` tells all ranks to finish their generation and write a checkpoint, before the system ends the job.
BODY = """\
set -uo pipefail
cd "${folder}" || exit 1
exec >>{log}-"${{{number}%%.*}}".out 2>&1
export PATH={programs}:"$PATH" OMP_NUM_THREADS=1 PYTHONUNBUFFERED=1
export MPIES_SUCCESSORS="${{MPIES_SUCCESSORS:-20}}" # how many jobs may follow one after the other
timeout --preserve-status --signal=USR1 {seconds} {command} --hostfile "${hostfile}"
code=$?
if [ "$code" = 75 ] && [ "$MPIES_SUCCESSORS" -gt 0 ]; then # it was stopped, and has lost nothing
    MPIES_SUCCESSORS=$((MPIES_SUCCESSORS - 1)) {submit} <{script}
fi
exit "$code"
"""


def batch_script(job: Job, kind: str, programs: str) -> str:
    """The text of a batch script.  kind: of SYSTEMS.  programs: the folder that contains mpies."""
    system, request = SYSTEMS[kind], job.request
    values = {
        "name": Path(job.out).name,
        "nodes": request.nodes,
        "ranks": request.ranks_per_node,
        "all_ranks": request.ranks,
        "memory": math.ceil(job.memory / 2**20),
        "hours": job.seconds // 3600,
        "minutes": job.seconds // 60 % 60,
        "account": request.account and shlex.quote(request.account),
        "queue": request.partition and shlex.quote(request.partition),
    }
    absent = [f"{{{name}}}" for name, value in values.items() if value is None]
    words = ["mpies", job.command, job.config, "--out", job.out, *job.options, *request.overrides]
    body = BODY.format(
        log=shlex.quote(job.out),
        programs=shlex.quote(unbroken(programs, "the folder of mpies")),
        seconds=job.seconds - job.warning,
        command=shlex.join(words),
        script=shlex.quote(f"{job.out}.{kind}"),
        **{key: value for key, value in vars(system).items() if key != "header"},
    )
    header = [line.format(**values) for line in system.header if not any(name in line for name in absent)]
    made = f"# Made by mpies launch {kind} for {job.config}; it may be changed and submitted again."
    return "\n".join(["#!/bin/bash", *header, made, body])


def launch_self_submitting_job(job: Job, kind: str, is_wanted: bool, echo: Echo) -> int:
    """Write a Job's batch script beside its run and, where that is wanted, submit it.  Returns the exit code."""
    check_warning(job)
    script = Path(f"{job.out}.{kind}")
    write_job_file(script, batch_script(job, kind, str(Path(sys.executable).parent)))
    echo(f"{script}: {job.summary()}; --time is {job.seconds / 3600:.1f} h, then it continues by itself")
    return submit([SYSTEMS[kind].submit.split()], is_wanted, echo, script)
