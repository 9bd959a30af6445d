"""A Job as a batch script of Slurm."""

import math
import re
import shlex
import sys
from pathlib import Path

from mpies.core.errors import ConfigError
from mpies.core.text import unbroken
from mpies.launch.cluster.submit import HOME, Echo, Job, launch_script


def batch_script(job: Job, library: str, environment: str) -> str:
    """The text of a batch script.

    library: the shell functions of slurm/train.sh.  environment: folder of the virtual environment.
    """
    request = job.request
    days, hours, minutes = job.seconds // 86400, job.seconds // 3600 % 24, job.seconds // 60 % 60
    options = {
        "job-name": Path(job.out).name,
        "nodes": request.nodes,
        "ntasks-per-node": request.ranks_per_node,
        "cpus-per-task": 1,
        "mem": f"{math.ceil(job.memory / 2**20)}M",
        "time": f"{days}-{hours:02}:{minutes:02}:{job.seconds % 60:02}",
        "signal": f"B:USR1@{job.warning}",
        "open-mode": "append",
        "output": f"{job.out.replace('%', '%%')}-%j.out",
        "account": request.account,
        "partition": request.partition,
    }
    header = [f"#SBATCH --{name}={_quoted(str(value))}" for name, value in options.items() if value is not None]
    return "\n".join(
        [
            "#!/bin/bash",
            f"# Made by mpies launch slurm for {job.config}; it may be changed and submitted again.",
            *header,
            "#SBATCH --requeue",
            "#SBATCH --no-kill",
            *list_options(request.sbatch or ""),
            "set -uo pipefail",
            f"MPIES_VENV=${{MPIES_VENV:-{shlex.quote(unbroken(environment, 'MPIES_VENV'))}}}",
            f"MPIES_RUN=${{MPIES_RUN:-{shlex.quote(job.out)}}}",
            "",
            library.rstrip("\n"),
            "",
            shlex.join([job.command, job.config, *job.options, *request.overrides]),
            "",
        ]
    )


def list_options(text: str) -> list[str]:
    """Lines of a batch script for options of sbatch, such as "--qos=long --constraint zen4".  Raises ConfigError."""
    lines: list[str] = []
    try:
        for word in shlex.split(text):
            name, equals, value = word.partition("=")
            if re.fullmatch("-[a-zA-Z]|--[a-z-]+", name):
                lines.append(f"#SBATCH {name}{equals}{_quoted(value)}")
            else:
                lines[-1] += f" {_quoted(word)}"
    except (ValueError, IndexError):
        raise ConfigError(f"--sbatch must hold options such as --qos=long, but is {text!r}") from None
    return lines


def _quoted(value: str) -> str:
    """A value as sbatch reads it in a script: between quotes, a backslash stands before a quote or a backslash."""
    if re.fullmatch(r"[\w@%+=:,./-]*", value):
        return value
    return '"' + re.sub(r'(["\\])', r"\\\1", value) + '"'


def launch_batch_job(job: Job, is_wanted: bool, echo: Echo) -> int:
    """Write a Job's batch script beside its run and, where that is wanted, submit it.  Returns the exit code."""
    script, text = Path(f"{job.out}.sbatch"), batch_script(job, (HOME / "slurm/train.sh").read_text(), sys.prefix)
    return launch_script(job, script, text, ["sbatch", str(script)], is_wanted, echo)
