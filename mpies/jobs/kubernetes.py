"""A Job as an overlay of Kustomize over an MPIJob."""

import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from mpies.errors import ConfigError
from mpies.jobs.submit import Echo, Job, describe, repository_file, submit, write_file

SLACK = 64 * 2**20  # bytes of shared memory beside the noise table, for MPI


def overlay(job: Job, base: str, mpijob: Mapping[str, Any], image: str | None) -> str:
    """The kustomization.yaml of a folder that holds the config too.

    base: the path from there to the folder that it changes.  mpijob: the MPIJob found there.
    image: name of the container image, or None for the base's own.
    """
    worker = mpijob["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]
    volumes = [volume["name"] for volume in worker["volumes"]]
    shared_memory = f"template/spec/volumes/{volumes.index('shared-memory')}"
    launcher, workers = "/spec/mpiReplicaSpecs/Launcher", "/spec/mpiReplicaSpecs/Worker"
    resources = {"cpu": str(job.ranks_per_node), "memory": _mebibytes(job.memory)}
    name = Path(job.config).name
    values = {
        "/metadata/name": job_name(job),
        "/spec/slotsPerWorker": job.ranks_per_node,
        f"{workers}/replicas": job.nodes,
        f"{workers}/template/spec/containers/0/resources": {"requests": resources, "limits": dict(resources)},
        f"{workers}/{shared_memory}/emptyDir/sizeLimit": _mebibytes(job.shared + SLACK),
        f"{launcher}/template/spec/containers/0/args": [
            f"/configs/{name}",
            "--out",
            f"/runs/{Path(job.out).name}",
            *job.overrides,
        ],
    }
    patch = [{"op": "replace", "path": path, "value": value} for path, value in values.items()]
    kustomization: dict[str, Any] = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [base],
        "configMapGenerator": [{"name": "mpies-configs", "behavior": "merge", "files": [name]}],
        "patches": [
            {
                "target": {"kind": "MPIJob", "name": "mpies"},
                "patch": _to_yaml(patch),
                "options": {"allowNameChange": True},
            }
        ],
    }
    if image:
        new, _, tag = image.rpartition(":")
        new_name = {"newName": new, "newTag": tag} if new and "/" not in tag else {"newName": image}
        kustomization["images"] = [{"name": "mpies", **new_name}]
    return _to_yaml(kustomization)


def job_name(job: Job) -> str:
    """The MPIJob's name, from its run directory: jobs of different runs go on beside each other."""
    name = re.sub("[^a-z0-9]+", "-", Path(job.out).name.lower()).strip("-")
    return f"mpies-{name}"[:40].rstrip("-")  # pods are called NAME-worker-N, which must be a name of DNS


class _BlockDumper(yaml.SafeDumper):
    """Writes a text of several lines as a block."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_BlockDumper.add_representer(str, _represent_text)


def _to_yaml(value: Any) -> str:
    return yaml.dump(value, Dumper=_BlockDumper, sort_keys=False, width=100)


def _mebibytes(count: int) -> str:
    return f"{math.ceil(count / 2**20)}Mi"


def launch(job: Job, base: str | None, image: str | None, is_wanted: bool, echo: Echo) -> int:
    """Write a Job's overlay beside its run and, where that is wanted, apply it.  Returns the exit code.

    base: a folder of Kustomize to build on, or None for the repository's own.  image: as for `overlay`.
    """
    base_folder = Path(base) if base else repository_file("k8s/mpi-operator/base")
    if not re.fullmatch(r"[-._a-zA-Z0-9]+", Path(job.config).name):
        raise ConfigError(
            f"{job.config}: the name of the file must do for a ConfigMap; use letters, digits, - . _ only"
        )
    folder = Path(f"{job.out}.k8s")
    path_to_base = os.path.relpath(base_folder.resolve(), folder.resolve())
    text = overlay(job, path_to_base, read_mpijob(base_folder), image)
    write_file(folder / Path(job.config).name, Path(job.config).read_text())
    write_file(folder / "kustomization.yaml", text)
    echo(f"{folder}: {describe(job)}")
    delete = ["kubectl", "delete", "mpijob", job_name(job), "--ignore-not-found"]  # its pods cannot be changed in place
    return submit([delete, ["kubectl", "apply", "--kustomize", str(folder)]], is_wanted, echo)


def read_mpijob(folder: str | Path) -> dict[str, Any]:
    """The MPIJob among the resources of a folder of Kustomize.  Raises ConfigError where there is none."""
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
            for document in documents:
                if document and document.get("kind") == "MPIJob":
                    mpijob: dict[str, Any] = document
                    return mpijob
    except (OSError, yaml.YAMLError, KeyError, TypeError):
        pass
    raise ConfigError(f"{folder}: leads to no MPIJob; give a folder such as k8s/mpi-operator/overlays/workstation")
