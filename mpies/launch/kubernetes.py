"""A Job as an overlay of Kustomize over an MPIJob."""

import hashlib
import math
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from mpies.config.loading import as_yaml, flatten, flatten_settings, load_config, read_config, resolved
from mpies.core.errors import ConfigError
from mpies.core.text import one_line
from mpies.launch.submit import Echo, Job, repository_file, submit, write_job_file
from mpies.runs.files import default_out
from mpies.sweeps.settings import Distribution, read_values
from mpies.sweeps.trials import Sweep

SLACK = 64 * 2**20  # bytes of shared memory beside the noise table, for MPI
CUSTOM_KEYS = "environment.id", "policy.module", "solver.kind"  # keys whose value may be file.py:name
HELD = 2**20  # bytes of all files of a ConfigMap, as the API server counts them: of binary ones before base64
RECIPES = "mpies-configs"  # the ConfigMap of the base, which holds all recipes
CONFIGS = "/configs"  # where pods find the config
DEFAULT_BASE = (
    "base: k8s/mpi-operator/base, whose volume many nodes must be able to write (ReadWriteMany); on a cluster of one "
    "node add --base k8s/mpi-operator/overlays/workstation, on GKE --base k8s/mpi-operator/overlays/gke-minitaur"
)
KUSTOMIZATIONS = "kustomization.yaml", "kustomization.yml", "Kustomization"  # names of the file that kubectl looks for
NAME_LENGTH = 40  # of an MPIJob at most: pods are called NAME-worker-N, which must be a name of DNS


@dataclass(frozen=True)
class JobFiles:
    """What the pods of a job find at CONFIGS, and how its launcher names it.

    config: the name of the config.  contents: of all files, by name.
    words: behind the config and --out: options, and KEY=VALUE, also those that say where the other files are.
    """

    config: str
    contents: dict[str, bytes]
    words: list[str]


def collect_files(job: Job) -> JobFiles:
    """The JobFiles of a job: its config, or all of its sweep in one file, and the user's files that it names.

    Raises ConfigError where a ConfigMap cannot hold them.
    """
    path, words = Path(job.config), [*job.options, *job.request.overrides]
    name = path.name
    if sweep := job.sweep:
        named, text, name = find_files_of_sweep(sweep), as_yaml(sweep.as_values()), f"{path.stem}_sweep.yaml"
        words = [*job.options[job.options.index("--ranks-per-run") :]] if "--ranks-per-run" in job.options else []
    else:
        named = find_custom_files(flatten_settings(resolved(load_config(job.config, job.request.overrides))))
        text = path.read_text(encoding="utf-8") if path.is_file() else as_yaml(read_config(path))
        if not path.is_file():  # an environment, such as room.py:Room
            name = f"{default_out(path, ()).name}.yaml"
    if not _is_valid(name):
        raise ConfigError(
            f"{job.config}: the name of the file must be valid in a ConfigMap; use only letters, digits, - . _"
        )
    if name in KUSTOMIZATIONS:
        raise ConfigError(f"{job.config}: the overlay beside it has a file of this name; rename the config")
    parts = {key: _split(value) for key, value in named.items()}
    contents = {name: text.encode()} | {file.name: file.read_bytes() for file, _ in parts.values()}
    if (size := sum(map(len, contents.values()))) > HELD:
        raise ConfigError(
            f"{job.config}: it and the files that it names have {size / 1e6:.1f} MB together, but a ConfigMap holds "
            "1 MB; put some of them into your image"
        )
    words += [f"{key}={CONFIGS}/{file.name}{rest}" for key, (file, rest) in parts.items()]
    return JobFiles(name, contents, words)


def make_kustomization(job: Job, files: JobFiles, base: str, mpijob: Mapping[str, Any], image: str | None) -> str:
    """The kustomization.yaml of a folder that holds the job's files, too.

    base: the path from there to the folder that it changes.  mpijob: the MPIJob found there.
    image: name of the container image, or None for the base's own.
    Raises ConfigError where the MPIJob's pods have no volume for the config, or its workers none for shared memory.
    """
    no_recipes = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": RECIPES}, "$patch": "delete"}
    kustomization: dict[str, Any] = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [base],
        "configMapGenerator": [{"name": config_map_name(job), "files": sorted(files.contents)}],
        "generatorOptions": {"disableNameSuffixHash": True},
        "patches": [
            {
                "target": {"kind": "MPIJob", "name": mpijob["metadata"]["name"]},
                "patch": _to_yaml(_make_patch(job, files, base, mpijob)),
                "options": {"allowNameChange": True},
            },
            # Other jobs may use it, and a sweep's file in it would be lost.
            {"target": {"kind": "ConfigMap", "name": RECIPES}, "patch": _to_yaml(no_recipes)},
        ],
    }
    if image:
        kustomization["images"] = [replace_image(known, image) for known in images_of(mpijob)]
    return _to_yaml(kustomization)


def _make_patch(job: Job, files: JobFiles, base: str, mpijob: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The changes of the MPIJob, as a JSON patch.  The arguments are those of `make_kustomization`."""
    shared_memory = _path_of_volume(base, mpijob, "Worker", "shared-memory", "an emptyDir with medium: Memory")
    configs = [_path_of_volume(base, mpijob, role, RECIPES, "this ConfigMap") for role in ("Launcher", "Worker")]
    launcher, workers = "/spec/mpiReplicaSpecs/Launcher", "/spec/mpiReplicaSpecs/Worker"
    resources = {"cpu": str(job.request.ranks_per_node), "memory": _mebibytes(job.memory)}
    arguments = [f"{CONFIGS}/{files.config}", "--out", f"/runs/{Path(job.out).name}", *files.words]
    values = {
        "/metadata/name": job_name(job),
        "/spec/slotsPerWorker": job.request.ranks_per_node,
        f"{workers}/replicas": job.request.nodes,
        f"{workers}/template/spec/containers/0/resources": {"requests": resources, "limits": dict(resources)},
        f"{shared_memory}/emptyDir/sizeLimit": _mebibytes(job.shared + SLACK),
        **{f"{path}/configMap/name": config_map_name(job) for path in configs},
        f"{launcher}/template/spec/containers/0/args": arguments,
    }
    if job.command != "train":
        values[f"{launcher}/template/spec/containers/0/command/1"] = job.command
    grace = {"op": "add", "path": f"{launcher}/template/spec/terminationGracePeriodSeconds", "value": job.warning}
    return [*({"op": "replace", "path": path, "value": value} for path, value in values.items()), grace]


def _path_of_volume(base: str, mpijob: Mapping[str, Any], role: str, name: str, kind: str) -> str:
    """The path of a volume of the launcher or the workers, by its name or that of its ConfigMap.

    base, kind: its folder, and what the volume is, for the message.  Raises ConfigError where there is none.
    """
    volumes = mpijob["spec"]["mpiReplicaSpecs"][role]["template"]["spec"].get("volumes", [])
    for index, volume in enumerate(volumes):
        if name in (volume["name"], volume.get("configMap", {}).get("name")):
            return f"/spec/mpiReplicaSpecs/{role}/template/spec/volumes/{index}"
    raise ConfigError(
        f"{base}: the {role.lower()} pods of its MPIJob have no volume {name}; add one that is {kind}, "
        "as in k8s/mpi-operator/base"
    )


def config_map_name(job: Job) -> str:
    """The name of the ConfigMap with the job's files; that of no other job, nor one that the operator makes."""
    return f"{job_name(job)}-configs"


def job_name(job: Job) -> str:
    """The MPIJob's name, from its run directory: jobs of different runs go on beside each other.

    A name that is too long, or has characters other than a-z, 0-9 and _, ends with a hash of the whole name.
    """
    whole = Path(job.out).name
    name = re.sub("[^a-z0-9]", "-", whole.lower()).strip("-")
    plain = f"mpies-{name}"
    if re.fullmatch("[a-z0-9]+(_[a-z0-9]+)*", whole) and len(plain) <= NAME_LENGTH:
        return plain
    ending = hashlib.sha256(whole.encode()).hexdigest()[:8]
    return f"{plain[: NAME_LENGTH - len(ending) - 1].rstrip('-')}-{ending}"


def explain_image(image: str) -> str:
    """A line that says which image the pods of a job will ask for where no other one is given."""
    where = "which the nodes must have, or find under this name; for your own image add --image REGISTRY/NAME:TAG"
    return f"image: {image}, {where}"


def images_of(mpijob: Mapping[str, Any]) -> list[str]:
    """The images of mpies itself, in the first containers of the workers and of the launcher."""
    replicas = mpijob["spec"]["mpiReplicaSpecs"]
    images = [replicas[role]["template"]["spec"]["containers"][0]["image"] for role in ("Worker", "Launcher")]
    return list(dict.fromkeys(images))


def replace_image(known: str, image: str) -> dict[str, str]:
    """An entry of `images` in a kustomization, which puts another image in the place of a known one."""
    name, tag = _split_image(image)
    digest = image.partition("@")[2]
    if not tag and known != _split_image(known)[0]:  # else the known one's would stay
        tag = "latest"
    kept = {"digest": digest} if digest else {"newTag": tag} if tag else {}
    return {"name": _split_image(known)[0], "newName": name, **kept}


def _split_image(image: str) -> tuple[str, str]:
    """The name and the tag of an image, '' without one; its digest is left out."""
    whole = image.partition("@")[0]
    name, _, tag = whole.rpartition(":")
    return (name, tag) if name and "/" not in tag else (whole, "")  # the colon may be that of a registry's port


def find_custom_files(settings: Mapping[str, Any]) -> dict[str, str]:
    """The settings that name a file of the user's, with its path: file.py:name, or a policy to begin with.

    Raises ConfigError where a file cannot be sent beside the others.
    """
    named = {key: str(settings.get(key, "")) for key in CUSTOM_KEYS}
    named = {key: value for key, value in named.items() if _names_file(value)}
    if (first := settings.get("policy.init_from")) and Path(first).exists():  # another one is in the image
        if Path(first).is_dir():
            raise ConfigError(f"policy.init_from: {first} is a folder; name a file in it, such as {first}/best.h5")
        named["policy.init_from"] = first
    sources: dict[str, Path] = {}
    for key, value in named.items():
        file = _split(value)[0]
        if not _is_valid(file.name) or sources.setdefault(file.name, file.resolve()) != file.resolve():
            raise ConfigError(
                f"{key}: {file} needs a name of its own in a ConfigMap: letters, digits, - . _; rename it"
            )
    return named


def find_files_of_sweep(sweep: Sweep) -> dict[str, str]:
    """What `find_custom_files` returns for the settings that all trials share.  Raises ConfigError where files vary."""
    settings = flatten_settings(sweep.base)
    for key in sorted(sweep.vary, key=lambda key: key.count(".")):  # a section comes before its own keys
        given = read_values(key, sweep.vary[key])
        values = given.values if isinstance(given, Distribution) else given
        found = [one for value in values for one in flatten({key: value})]
        settings = {name: value for name, value in settings.items() if not f"{name}.".startswith(f"{key}.")}
        if key not in sweep.varied:
            settings |= dict(found)
            continue
        for name, value in found:
            if name == "policy.init_from" or (name in CUSTOM_KEYS and _names_file(str(value))):
                raise ConfigError(
                    f"{name}: files that vary cannot be sent to the pods; launch a sweep for each of them"
                )
    return find_custom_files(settings)


def _names_file(value: str) -> bool:
    """Whether the value of one of CUSTOM_KEYS is file.py:name."""
    return value.rpartition(":")[0].endswith(".py")


def _split(value: str) -> tuple[Path, str]:
    """The file that a value names, and the rest of the value."""
    file, colon, name = value.rpartition(":")
    return (Path(file), colon + name) if _names_file(value) else (Path(value), "")


def _is_valid(name: str) -> bool:
    """Whether a file of this name can be in a ConfigMap."""
    return re.fullmatch(r"[-._a-zA-Z0-9]+", name) is not None


class _BlockDumper(yaml.SafeDumper):
    """Writes a text of several lines as a block."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_BlockDumper.add_representer(str, _represent_text)


def _to_yaml(value: Any) -> str:
    return yaml.dump(value, Dumper=_BlockDumper, sort_keys=False, width=100)


def _mebibytes(count: int) -> str:
    return f"{math.ceil(count / 2**20)}Mi"


def launch_mpijob(job: Job, base: str | None, image: str | None, is_wanted: bool, echo: Echo) -> int:
    """Write a Job's overlay beside its run and, where that is wanted, apply it.  Returns the exit code.

    base: a folder of Kustomize to build on, or None for the repository's own.  image: as for `make_kustomization`.
    """
    files = collect_files(job)
    base_folder = Path(base) if base else repository_file("k8s/mpi-operator/base")
    folder = Path(f"{job.out}.k8s")
    path_to_base = os.path.relpath(base_folder.resolve(), folder.resolve())
    mpijob = read_mpijob(base_folder)
    kustomization = make_kustomization(job, files, path_to_base, mpijob, image)
    for name, content in files.contents.items():
        write_job_file(folder / name, content)
    write_job_file(folder / "kustomization.yaml", kustomization)
    echo(f"{folder}: {job.summary()}")
    if not base:
        echo(DEFAULT_BASE)
    if not image:
        echo(explain_image(images_of(mpijob)[0]))
    delete = ["kubectl", "delete", "mpijob", job_name(job), "--ignore-not-found"]  # its pods cannot be changed in place
    # Without --server-side, kubectl copies each object into an annotation, which holds a quarter of a mebibyte.
    apply = ["kubectl", "apply", "--server-side", "--force-conflicts", "--kustomize", str(folder)]
    return submit([delete, apply], is_wanted, echo)


def read_mpijob(folder: str | Path) -> dict[str, Any]:
    """The MPIJob of a folder of Kustomize, as kubectl renders it.  Raises ConfigError where there is not just one."""
    if shutil.which("kubectl") is None:
        raise ConfigError(f"{folder}: kubectl is not on the path, and it is needed to read this folder; install it")
    done = subprocess.run(["kubectl", "kustomize", str(folder)], capture_output=True, text=True)
    if done.returncode:
        raise ConfigError(f"{folder}: kubectl kustomize says: {one_line(done.stderr)}")
    jobs: list[dict[str, Any]] = [part for part in yaml.safe_load_all(done.stdout) if part and part["kind"] == "MPIJob"]
    if len(jobs) != 1:
        raise ConfigError(
            f"{folder}: has {len(jobs)} MPIJobs, but one was expected; give a folder such as "
            "k8s/mpi-operator/overlays/workstation"
        )
    return jobs[0]
