"""A Job as an overlay of Kustomize over an MPIJob, and what such an overlay costs."""

import hashlib
import math
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from mpies.config.loading import as_yaml, flatten, flatten_settings, load_config, read_config, resolved
from mpies.config.recipes import find_recipes
from mpies.core.errors import ConfigError
from mpies.core.text import counted
from mpies.launch.cost import predict_run
from mpies.launch.images import describe_image, own_images, replace_image, set_images
from mpies.launch.submit import Echo, Job, describe, repository_file, submit, write_file
from mpies.launch.submit_sweep import as_sweep_file
from mpies.runs.files import default_out
from mpies.sweeps.settings import Distribution, read_values
from mpies.sweeps.trials import Sweep

SLACK = 64 * 2**20  # bytes of shared memory beside the noise table, for MPI
OWN_FILES = "environment.id", "policy.module", "solver.kind"  # keys whose value may be file.py:name
LARGEST = 900_000  # bytes of a file beside the others in a ConfigMap
HELD = 2**20  # bytes of all files of a ConfigMap, as the API server counts them: of binary ones before base64
RECIPES = "mpies-configs"  # the ConfigMap of the base, which holds all recipes
CONFIGS = "/configs"  # where pods find the config
DEFAULT_BASE = (
    "base: k8s/mpi-operator/base, whose volume many nodes must be able to write (ReadWriteMany); on a cluster of one "
    "node add --base k8s/mpi-operator/overlays/workstation, on GKE --base k8s/mpi-operator/overlays/gke-minitaur"
)
KUSTOMIZATIONS = "kustomization.yaml", "kustomization.yml", "Kustomization"  # names of the file that kubectl looks for
NAME_LENGTH = 40  # of an MPIJob at most: pods are called NAME-worker-N, which must be a name of DNS


def overlay(
    job: Job, base: str, mpijob: Mapping[str, Any], image: str | None, own: Mapping[str, str] | None = None
) -> str:
    """The kustomization.yaml of a folder that holds the config too.

    base: the path from there to the folder that it changes.  mpijob: the MPIJob found there.
    image: name of the container image, or None for the base's own.
    own: as `find_own_files` has them; the folder holds these files, too.
    Raises ConfigError where the MPIJob's pods have no volume for the config, or its workers none for shared memory.
    """
    own = own or {}
    files = [Path(job.config).name, *sorted({_split(value)[0].name for value in own.values()})]
    no_recipes = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": RECIPES}, "$patch": "delete"}
    kustomization: dict[str, Any] = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [base],
        "configMapGenerator": [{"name": config_map_name(job), "files": files}],
        "generatorOptions": {"disableNameSuffixHash": True},
        "patches": [
            {
                "target": {"kind": "MPIJob", "name": mpijob["metadata"]["name"]},
                "patch": _to_yaml(_make_patch(job, base, mpijob, own)),
                "options": {"allowNameChange": True},
            },
            # Other jobs may use it, and a sweep's file in it would be lost.
            {"target": {"kind": "ConfigMap", "name": RECIPES}, "patch": _to_yaml(no_recipes)},
        ],
    }
    if image:
        kustomization["images"] = [replace_image(known, image) for known in own_images(mpijob)]
    return _to_yaml(kustomization)


def _make_patch(job: Job, base: str, mpijob: Mapping[str, Any], own: Mapping[str, str]) -> list[dict[str, Any]]:
    """The changes of the MPIJob, as a JSON patch.  The arguments are those of `overlay`."""
    shared_memory = _path_of_volume(base, mpijob, "Worker", "shared-memory", "an emptyDir with medium: Memory")
    configs = [_path_of_volume(base, mpijob, role, RECIPES, "this ConfigMap") for role in ("Launcher", "Worker")]
    parts = {key: _split(value) for key, value in own.items()}
    launcher, workers = "/spec/mpiReplicaSpecs/Launcher", "/spec/mpiReplicaSpecs/Worker"
    resources = {"cpu": str(job.ranks_per_node), "memory": _mebibytes(job.memory)}
    values = {
        "/metadata/name": job_name(job),
        "/spec/slotsPerWorker": job.ranks_per_node,
        f"{workers}/replicas": job.nodes,
        f"{workers}/template/spec/containers/0/resources": {"requests": resources, "limits": dict(resources)},
        f"{shared_memory}/emptyDir/sizeLimit": _mebibytes(job.shared + SLACK),
        **{f"{path}/configMap/name": config_map_name(job) for path in configs},
        f"{launcher}/template/spec/containers/0/args": [
            f"{CONFIGS}/{Path(job.config).name}",
            "--out",
            f"/runs/{Path(job.out).name}",
            *job.options,
            *job.overrides,
            *(f"{key}={CONFIGS}/{file.name}{rest}" for key, (file, rest) in parts.items()),
        ],
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


def find_own_files(settings: Mapping[str, Any]) -> dict[str, str]:
    """The settings that name a file of the user's: file.py:name, or a policy to begin with.

    Raises ConfigError where a file cannot be sent beside the others.
    """
    own = {key: str(settings.get(key, "")) for key in OWN_FILES}
    own = {key: value for key, value in own.items() if _names_file(value)}
    if (first := settings.get("policy.init_from")) and Path(first).exists():  # another one is in the image
        if Path(first).is_dir():
            raise ConfigError(f"policy.init_from: {first} is a folder; name a file in it, such as {first}/best.h5")
        own["policy.init_from"] = first
    sources: dict[str, Path] = {}
    for key, value in own.items():
        file = _split(value)[0]
        if not _is_valid(file.name) or sources.setdefault(file.name, file.resolve()) != file.resolve():
            raise ConfigError(
                f"{key}: {file} needs a name of its own in a ConfigMap: letters, digits, - . _; rename it"
            )
        if (size := file.stat().st_size if file.exists() else 0) > LARGEST:
            raise ConfigError(
                f"{key}: {file} has {size / 1e6:.1f} MB, but a ConfigMap holds 1 MB; put it into your image"
            )
    return own


def find_files_of_sweep(sweep: Sweep) -> dict[str, str]:
    """What `find_own_files` returns for the settings that all trials share.  Raises ConfigError where files vary."""
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
            if name == "policy.init_from" or (name in OWN_FILES and _names_file(str(value))):
                raise ConfigError(
                    f"{name}: files that vary cannot be sent to the pods; launch a sweep for each of them"
                )
    return find_own_files(settings)


def _names_file(value: str) -> bool:
    """Whether the value of one of OWN_FILES is file.py:name."""
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


def launch(
    job: Job, base: str | None, image: str | None, is_wanted: bool, echo: Echo, sweep: Sweep | None = None
) -> int:
    """Write a Job's overlay beside its run and, where that is wanted, apply it.  Returns the exit code.

    base: a folder of Kustomize to build on, or None for the repository's own.  image: as for `overlay`.
    sweep: what the job trains, if that is no run.
    """
    summary = describe(job)  # it names the config as the user does
    if sweep:
        own = find_files_of_sweep(sweep)
        job, text = as_sweep_file(job, sweep)
    else:
        own = find_own_files(flatten_settings(resolved(load_config(job.config, job.overrides))))
        file = Path(job.config)
        text = file.read_text(encoding="utf-8") if file.is_file() else as_yaml(read_config(file))
        if not file.is_file():  # an environment, such as room.py:Room
            job = replace(job, config=f"{default_out(file, ()).name}.yaml")
    base_folder = Path(base) if base else repository_file("k8s/mpi-operator/base")
    if not _is_valid(Path(job.config).name):
        raise ConfigError(
            f"{job.config}: the name of the file must be valid in a ConfigMap; use only letters, digits, - . _"
        )
    if Path(job.config).name in KUSTOMIZATIONS:
        raise ConfigError(f"{job.config}: the overlay beside it has a file of this name; rename the config")
    folder = Path(f"{job.out}.k8s")
    path_to_base = os.path.relpath(base_folder.resolve(), folder.resolve())
    mpijob = read_mpijob(base_folder)
    kustomization = overlay(job, path_to_base, mpijob, image, own)
    files = {Path(job.config).name: text.encode()}
    files |= {source.name: source.read_bytes() for source in {_split(value)[0] for value in own.values()}}
    if (size := sum(map(len, files.values()))) > HELD:
        raise ConfigError(
            f"{job.config}: it and the files that it names have {size / 1e6:.1f} MB together, but a ConfigMap holds "
            "1 MB; put some of them into your image"
        )
    for name, content in files.items():
        write_file(folder / name, content)
    write_file(folder / "kustomization.yaml", kustomization)
    echo(f"{folder}: {summary}")
    if not base:
        echo(DEFAULT_BASE)
    if not image:
        echo(describe_image(own_images(mpijob)[0]))
    delete = ["kubectl", "delete", "mpijob", job_name(job), "--ignore-not-found"]  # its pods cannot be changed in place
    # Without --server-side, kubectl copies each object into an annotation, which holds a quarter of a mebibyte.
    apply = ["kubectl", "apply", "--server-side", "--force-conflicts", "--kustomize", str(folder)]
    return submit([delete, apply], is_wanted, echo)


def read_mpijob(folder: str | Path) -> dict[str, Any]:
    """The MPIJob among the resources of a folder of Kustomize, with the images that the folders on the way there say.

    Its patches are not applied.  Raises ConfigError where there is none.
    """
    folder = Path(folder)
    try:
        kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text(encoding="utf-8"))
        for resource in kustomization["resources"]:
            path = folder / resource
            found: Iterable[Any] = ()
            if path.is_dir() and (path / "kustomization.yaml").exists():
                try:
                    found = [read_mpijob(path)]
                except ConfigError:
                    continue
            elif path.is_file():
                found = yaml.safe_load_all(path.read_text(encoding="utf-8"))
            for document in found:
                if document and document.get("kind") == "MPIJob":
                    mpijob: dict[str, Any] = document
                    set_images(mpijob, kustomization.get("images", ()))
                    return mpijob
    except (OSError, yaml.YAMLError, KeyError, TypeError):
        pass
    raise ConfigError(f"{folder}: contains no MPIJob; give a folder such as k8s/mpi-operator/overlays/workstation")


@dataclass(frozen=True)
class Overlay:
    """What a folder of Kustomize with an MPIJob asks of a cluster.

    config: path of the config, or the name of a recipe.  overrides: KEY=VALUE that its launcher adds.
    """

    folder: str
    config: str
    overrides: tuple[str, ...]
    workers: int
    ranks_per_worker: int

    @property
    def ranks(self) -> int:
        return self.workers * self.ranks_per_worker


def read_overlay(folder: str | Path) -> Overlay:
    """The Overlay in a folder as kubectl renders it.  Raises ConfigError."""
    if shutil.which("kubectl") is None:
        raise ConfigError(
            f"{folder}: kubectl is not on the path, and it is needed to read the folder; install it, or give a config"
        )
    done = subprocess.run(["kubectl", "kustomize", str(folder)], capture_output=True, text=True)
    if done.returncode:
        raise ConfigError(f"{folder}: kubectl kustomize says: {done.stderr.strip()}")
    jobs = [part for part in yaml.safe_load_all(done.stdout) if part and part["kind"] == "MPIJob"]
    if len(jobs) != 1:
        raise ConfigError(f"{folder}: has {len(jobs)} MPIJobs, but one was expected; give an overlay of one run")
    spec = jobs[0]["spec"]
    replicas = spec["mpiReplicaSpecs"]
    launcher = replicas["Launcher"]["template"]["spec"]["containers"][0]
    arguments = launcher.get("args") or [""]
    name = Path(arguments[0]).name
    own = Path(folder) / name
    if "sweep" in launcher.get("command", ()):
        raise ConfigError(f"{folder}: trains a sweep; for its cost use mpies sweep {shlex.quote(str(own))} --dry-run")
    if not own.is_file() and Path(name).stem not in find_recipes():
        raise ConfigError(
            f"{folder}: its launcher trains {arguments[0]!r}, which is neither in this folder nor among the recipes"
        )
    config = str(own) if own.is_file() else Path(name).stem
    # Without those that only say where a pod finds a file that the config names.
    given = [word for word in arguments[1:] if re.match(r"[\w.]+=", word)]
    overrides = tuple(word for word in given if not word.partition("=")[2].startswith(f"{CONFIGS}/"))
    workers = replicas["Worker"].get("replicas", 1)
    return Overlay(str(folder), config, overrides, workers, spec.get("slotsPerWorker", 1))


def describe_cost(
    found: Overlay, overrides: Sequence[str], constants: str | Path, generations: int | None, price: float | None
) -> str:
    """What the run of an Overlay takes and costs, in one line.

    overrides: all KEY=VALUE.  constants: the file that `mpies bench` wrote.
    generations: of the run; None for the config's stop.generations.  price: of a core hour; None shows core hours.
    """
    generations = generations or load_config(found.config, overrides).stop.generations
    seconds = predict_run(found.config, overrides, constants, found.workers, found.ranks_per_worker, generations)
    usual, most = (
        f"{length / 3600:,.3g} h and {found.ranks * length / 3600 * (1 if price is None else price):,.2f}"
        for length in seconds
    )
    unit = "core hours" if price is None else "of the currency of --price"
    return (
        f"{found.folder}: {counted(found.workers, 'worker')} x {counted(found.ranks_per_worker, 'rank')}, "
        f"{counted(generations, 'generation')}: {usual} {unit} with episodes as measured, at most {most}; "
        "less if the run is solved earlier"
    )
