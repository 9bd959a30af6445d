"""`mpies launch`: the batch script or the overlay that a config needs on a cluster, worked out from what it will cost.

`batch_script` and `overlay` are functions from a Job to text and know nothing of files or clusters.
"""

import math
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import yaml

from mpies.config import ConfigError, load
from mpies.cost import cost, node_memory
from mpies.launch import default_out
from mpies.store import write_atomically

HOME = Path(__file__).resolve().parent.parent
MARGIN = 1.3  # of memory and time: both are worked out for what is usual
START = 15 * 60  # seconds of the time limit for coming up and the last evaluation
UNKNOWN = 4 * 3600  # seconds of the time limit where nothing was measured
LONGEST = 24 * 3600  # seconds; what takes longer goes on by itself after that
GRACE = 90  # seconds of warning beyond stop.grace, for a checkpoint


@dataclass(frozen=True)
class Job:
    """What a run asks of a cluster.

    memory, shared: bytes of a node, and those of them in shared memory.  seconds: the time limit.
    account, partition: of Slurm, None for the site's default.
    """

    config: str
    overrides: tuple
    out: str
    nodes: int
    ranks_per_node: int
    memory: int
    shared: int
    seconds: int
    warning: int
    account: str | None = None
    partition: str | None = None


def plan(path, overrides, out, nodes, ranks_per_node, constants=None, time=None, **site):
    """The Job of a config.

    constants: file that `mpies bench CONFIG --out` wrote, or None.  time: Slurm's words for a limit that is
    given, or None to work it out.  site: account and partition.
    """
    config = load(path, overrides)
    found = cost(config, nodes * ranks_per_node)
    seconds = _parse_time(time) if time else limit(config.stop, nodes * ranks_per_node, read_task(constants))
    return Job(
        config=str(path),
        overrides=tuple(overrides),
        out=str(out or default_out(path, overrides)),
        nodes=nodes,
        ranks_per_node=ranks_per_node,
        memory=math.ceil(MARGIN * node_memory(found, ranks_per_node)),
        shared=found["table"],
        seconds=seconds,
        warning=math.ceil(config.stop.grace) + GRACE,
        **site,
    )


def read_task(path):
    """What `mpies bench` measured of a config's episodes, as a dict; None without a file."""
    if path is None:
        return None
    try:
        return dict(yaml.safe_load(Path(path).read_text())["task"])
    except (OSError, yaml.YAMLError, KeyError, TypeError, ValueError):
        raise ConfigError(
            f"--constants {path}: must be what bench wrote of a config; mpies bench CONFIG --out {path}"
        ) from None


def limit(stop, ranks, task):
    """Seconds of a time limit: of all generations with episodes as long as they can be, where they were measured."""
    if task is None:
        seconds = UNKNOWN
    else:
        generation = task["episodes"] * (task.get("longest") or task["seconds"]) / ranks
        seconds = START + MARGIN * stop.generations * generation
    if stop.seconds is not None:
        seconds = min(seconds, START + MARGIN * stop.seconds)
    return min(60 * math.ceil(seconds / 60), LONGEST)


def _parse_time(text):
    """Seconds of Slurm's minutes, hours:minutes:seconds or days-hours:minutes:seconds."""
    form = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text)
    if not form or form[1] and not form[4] or not form[1] and form[3] and not form[4]:
        raise ConfigError(f"--time must be minutes, HH:MM:SS or D-HH:MM:SS, but is {text!r}; for instance 4:00:00")
    days, first, minutes, seconds = (int(part or 0) for part in form.groups())
    return 86400 * days + (3600 * first + 60 * minutes + seconds if form[4] else 60 * first)


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
            f"# Made by mpies launch slurm for {job.config}: it is all that runs, and may be changed and submitted again.",
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


def overlay(job, base, mpijob, image):
    """The kustomization.yaml of a folder that holds the config beside it.

    base: the path from there to what it changes.  mpijob: the MPIJob found there, as a mapping.
    image: name of the container image, or None for the base's own.
    """
    worker = mpijob["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]
    volumes = [volume["name"] for volume in worker["volumes"]]
    launcher, workers = "/spec/mpiReplicaSpecs/Launcher", "/spec/mpiReplicaSpecs/Worker"
    resources = {"cpu": str(job.ranks_per_node), "memory": _mebibytes(job.memory)}
    name = Path(job.config).name
    values = {
        "/spec/slotsPerWorker": job.ranks_per_node,
        f"{workers}/replicas": job.nodes,
        f"{workers}/template/spec/containers/0/resources": {"requests": resources, "limits": dict(resources)},
        f"{workers}/template/spec/volumes/{volumes.index('shared-memory')}/emptyDir/sizeLimit": _mebibytes(
            job.shared + 64 * 2**20
        ),
        f"{launcher}/template/spec/containers/0/args": [
            f"/runs/{Path(job.out).name}",
            f"/configs/{name}",
            *job.overrides,
        ],
    }
    patch = [{"op": "replace", "path": path, "value": value} for path, value in values.items()]
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [str(base)],
        "configMapGenerator": [{"name": "mpies-configs", "behavior": "merge", "files": [name]}],
        "patches": [
            {"target": {"kind": "MPIJob", "name": "mpies"}, "patch": _yaml(patch)}
        ],
    }
    if image:
        new, _, tag = image.rpartition(":")
        named = {"newName": new, "newTag": tag} if new and "/" not in tag else {"newName": image}
        kustomization["images"] = [{"name": "mpies", **named}]
    return _yaml(kustomization)


class _Blocks(yaml.SafeDumper):
    """Writes a text of several lines as one."""


_Blocks.add_representer(
    str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)
)


def _yaml(value):
    return yaml.dump(value, Dumper=_Blocks, sort_keys=False, width=100)


def _mebibytes(count):
    return f"{math.ceil(count / 2**20)}Mi"


def launch_on_slurm(job, submit, say):
    """Write a Job's batch script beside its run and submit it.  Returns the exit code."""
    library = _part_of_repository("slurm/train.sh").read_text()
    script = Path(f"{job.out}.sbatch")
    _write(script, batch_script(job, library, sys.prefix))
    say(
        f"{script}: {job.nodes} nodes x {job.ranks_per_node} ranks, {job.memory / 2**30:.1f} GB a node, "
        f"{job.seconds / 3600:.1f} h, then it goes on by itself"
    )
    return _run([["sbatch", str(script)]], submit, say)


def launch_on_kubernetes(job, base, image, submit, say):
    """Write a Job's overlay over `base`, a folder, and apply it.  Returns the exit code."""
    base = Path(base) if base else _part_of_repository("k8s/mpi-operator/base")
    if not re.fullmatch(r"[-._a-zA-Z0-9]+", Path(job.config).name):
        raise ConfigError(f"{job.config}: the name of the file must do for a ConfigMap; use letters, digits, - . _ only")
    folder = Path(f"{job.out}.k8s")
    text = overlay(job, os.path.relpath(base.resolve(), folder.resolve()), read_mpijob(base), image)
    _write(folder / Path(job.config).name, Path(job.config).read_text())
    _write(folder / "kustomization.yaml", text)
    say(f"{folder}: {job.nodes} workers x {job.ranks_per_node} ranks, {job.memory / 2**30:.1f} GB each")
    replace = ["kubectl", "delete", "mpijob", "mpies", "--ignore-not-found"]  # its pods cannot be changed in place
    return _run([replace, ["kubectl", "apply", "--kustomize", str(folder)]], submit, say)


def read_mpijob(folder):
    """The MPIJob that a folder of Kustomize leads to, as a mapping.  Raises ConfigError where there is none."""
    folder = Path(folder)
    try:
        resources = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
        for resource in resources:
            path = folder / resource
            if path.is_dir() and (path / "kustomization.yaml").exists():
                try:
                    return read_mpijob(path)
                except ConfigError:
                    continue
            documents = yaml.safe_load_all(path.read_text()) if path.is_file() else ()
            found = [document for document in documents if document and document.get("kind") == "MPIJob"]
            if found:
                return found[0]
    except (OSError, yaml.YAMLError, KeyError, TypeError):
        pass
    raise ConfigError(f"{folder}: leads to no MPIJob; give a folder such as k8s/mpi-operator/overlays/workstation")


def _part_of_repository(name):
    path = HOME / name
    if not path.exists():
        raise ConfigError(f"{path}: is not there; launch needs a clone of the repository: pip install --editable .")
    return path


def _write(path, text):
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text.encode())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror}); take another --out") from None


def _run(commands, submit, say):
    """Say each command, and run it where that is wanted.  Returns the first exit code that is not 0."""
    for command in commands:
        say(f"{'' if submit else 'not run: '}{shlex.join(command)}")
        if submit:
            if shutil.which(command[0]) is None:
                raise ConfigError(f"there is no {command[0]} on the path; go to where there is, or add --dry-run")
            code = subprocess.run(command).returncode
            if code:
                return code
    return 0
