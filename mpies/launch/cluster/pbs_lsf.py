"""A Job as a batch script of PBS Pro or LSF, which submits itself again until the run is complete."""

import math
import shlex
import sys
from pathlib import Path

from mpies.core.text import unbroken
from mpies.launch.cluster.submit import Echo, Job, launch_script

# Of each system: lines for it, of which those without a value are left out; its variables with the number of a job, the
# folder in which it was submitted and the hosts of the ranks; and the command that reads a script.
SYSTEMS = {
    "pbs": (
        """\
#PBS -N {name}
#PBS -l select={nodes}:ncpus={ranks}:mpiprocs={ranks}:mem={memory}mb
#PBS -l walltime={hours}:{minutes:02}:00
#PBS -r y
#PBS -A {account}
#PBS -q {queue}""",
        *("PBS_JOBID", "PBS_O_WORKDIR", "PBS_NODEFILE", "qsub -V"),
    ),
    "lsf": (
        """\
#BSUB -J {name}
#BSUB -n {all_ranks}
#BSUB -R "span[ptile={ranks}] rusage[mem={memory}/host]"
#BSUB -W {hours}:{minutes:02}
#BSUB -r
#BSUB -P {account}
#BSUB -q {queue}""",
        *("LSB_JOBID", "LS_SUBCWD", "LSB_DJOB_HOSTFILE", "bsub"),
    ),
}

# `timeout` tells all ranks to finish their generation and write a checkpoint, before the system ends the job.
SCRIPT = """\
#!/bin/bash
{header}
# Made by mpies launch {kind} for {config}; it may be changed and submitted again.
set -uo pipefail
cd "${folder}" || exit 1
exec >>{log}-"${{{number}%%.*}}".out 2>&1
export PATH={programs}:"$PATH" OMP_NUM_THREADS=1 PYTHONUNBUFFERED=1
export MPIES_SUCCESSORS="${{MPIES_SUCCESSORS:-20}}" # how many jobs may follow one after the other
timeout --preserve-status --signal=USR1 {seconds} {command} --hostfile "${hosts}"
code=$?
if [ "$code" = 75 ] && [ "$MPIES_SUCCESSORS" -gt 0 ]; then # it was stopped, and has lost nothing
    MPIES_SUCCESSORS=$((MPIES_SUCCESSORS - 1)) {submit} <{script}
fi
exit "$code"
"""


def batch_script(job: Job, kind: str, programs: str) -> str:
    """The text of a batch script.  kind: of SYSTEMS.  programs: the folder that contains mpies."""
    request, (header, number, folder, hosts, command) = job.request, SYSTEMS[kind]
    values = {"name": Path(job.out).name, "nodes": request.nodes, "ranks": request.ranks_per_node}
    values |= {"all_ranks": request.ranks, "memory": math.ceil(job.memory / 2**20)}
    values |= {"hours": job.seconds // 3600, "minutes": job.seconds // 60 % 60}
    values |= {"account": shlex.quote(request.account or ""), "queue": shlex.quote(request.partition or "")}
    lines = [line.format(**values) for line in header.splitlines()]
    return SCRIPT.format(
        header="\n".join(line for line in lines if not line.endswith(" ''")),
        **{"kind": kind, "number": number, "folder": folder, "hosts": hosts, "submit": command, "config": job.config},
        log=shlex.quote(job.out),
        programs=shlex.quote(unbroken(programs, "the folder of mpies")),
        seconds=job.seconds - job.warning,
        command=shlex.join(["mpies", job.command, job.config, "--out", job.out, *job.options, *request.overrides]),
        script=shlex.quote(f"{job.out}.{kind}"),
    )


def launch_self_submitting_job(job: Job, kind: str, is_wanted: bool, echo: Echo) -> int:
    """Write a Job's batch script beside its run and, where that is wanted, submit it.  Returns the exit code."""
    text = batch_script(job, kind, str(Path(sys.executable).parent))
    return launch_script(job, Path(f"{job.out}.{kind}"), text, SYSTEMS[kind][-1].split(), is_wanted, echo)
