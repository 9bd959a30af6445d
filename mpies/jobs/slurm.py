"""A Job as a batch script of Slurm."""

import math
import re
import shlex
import sys
from pathlib import Path

from mpies.jobs import submit


def batch_script(job, library, environment):
    """The text of a batch script.  library: that of slurm/train.sh.  environment: folder of the virtual environment."""
    options = {
        "job-name": Path(job.out).name,
        "nodes": job.nodes,
        "ntasks-per-node": job.ranks_per_node,
        "cpus-per-task": 1,
        "mem": f"{math.ceil(job.memory / 2**20)}M",
        "time": f"{job.seconds // 86400}-{job.seconds // 3600 % 24:02}:{job.seconds // 60 % 60:02}:00",
        "signal": f"B:USR1@{job.warning}",
        "open-mode": "append",
        "output": f"{job.out}-%j.out",
        "account": job.account,
        "partition": job.partition,
    }
    header = [f"#SBATCH --{name}={_quoted(value)}" for name, value in options.items() if value is not None]
    call = shlex.join(["train", job.config, *job.overrides])
    return "\n".join(
        [
            "#!/bin/bash",
            f"# Made by mpies launch slurm for {job.config}; it may be changed and submitted again.",
            *header,
            "#SBATCH --requeue",
            "set -uo pipefail",
            f"MPIES_VENV=${{MPIES_VENV:-{shlex.quote(environment)}}}",
            f"MPIES_RUN=${{MPIES_RUN:-{shlex.quote(job.out)}}}",
            "",
            library.rstrip("\n"),
            "",
            call,
            "",
        ]
    )


def _quoted(value):
    """A value as sbatch reads it in the script: it takes quotes, but no backslashes."""
    text = str(value)
    return text if re.fullmatch(r"[\w@%+=:,./-]*", text) else f'"{text}"'


def launch(job, wanted, say):
    """Write a Job's batch script beside its run and, where that is wanted, submit it.  Returns the exit code."""
    library = submit.part_of_repository("slurm/train.sh").read_text()
    script = Path(f"{job.out}.sbatch")
    submit.write(script, batch_script(job, library, sys.prefix))
    say(f"{script}: {submit.describe(job)}; --time is {job.seconds / 3600:.1f} h, then it goes on by itself")
    return submit.run([["sbatch", str(script)]], wanted, say)
