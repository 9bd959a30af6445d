"""A Job as an overlay of Kustomize over an MPIJob."""

import math
import os
import re
from pathlib import Path

import yaml

from mpies.jobs import submit
from mpies.errors import ConfigError


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
        "patches": [{"target": {"kind": "MPIJob", "name": "mpies"}, "patch": _yaml(patch)}],
    }
    if image:
        new, _, tag = image.rpartition(":")
        named = {"newName": new, "newTag": tag} if new and "/" not in tag else {"newName": image}
        kustomization["images"] = [{"name": "mpies", **named}]
    return _yaml(kustomization)


class _Blocks(yaml.SafeDumper):
    """Writes a text of several lines as one."""


def _represent(dumper, text):
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Blocks.add_representer(str, _represent)


def _yaml(value):
    return yaml.dump(value, Dumper=_Blocks, sort_keys=False, width=100)


def _mebibytes(count):
    return f"{math.ceil(count / 2**20)}Mi"


def launch(job, base, image, wanted, say):
    """Write a Job's overlay over `base`, a folder, and where that is wanted apply it.  Returns the exit code."""
    base = Path(base) if base else submit.part_of_repository("k8s/mpi-operator/base")
    if not re.fullmatch(r"[-._a-zA-Z0-9]+", Path(job.config).name):
        raise ConfigError(
            f"{job.config}: the name of the file must do for a ConfigMap; use letters, digits, - . _ only"
        )
    folder = Path(f"{job.out}.k8s")
    text = overlay(job, os.path.relpath(base.resolve(), folder.resolve()), read_mpijob(base), image)
    submit.write(folder / Path(job.config).name, Path(job.config).read_text())
    submit.write(folder / "kustomization.yaml", text)
    say(f"{folder}: {submit.describe(job)}")
    replace = ["kubectl", "delete", "mpijob", "mpies", "--ignore-not-found"]  # its pods cannot be changed in place
    return submit.run([replace, ["kubectl", "apply", "--kustomize", str(folder)]], wanted, say)


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
