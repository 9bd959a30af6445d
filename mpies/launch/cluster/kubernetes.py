"""A Job as manifests of Kubernetes: what a folder of Kustomize renders to, with its MPIJob fitted to the job."""

import hashlib
import math
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from mpies.config.loading import as_yaml, flatten_settings, read_config, resolved
from mpies.config.schema import Config
from mpies.core.errors import ConfigError
from mpies.core.text import one_line, unbroken
from mpies.launch.cluster.submit import HOME, Echo, Job, submit, write_job_file
from mpies.runs.files import default_out

SLACK = 64 * 2**20  # bytes of shared memory beside the noise table, for MPI
CUSTOM_KEYS = "environment.id", "policy.module", "solver.kind"  # keys whose value may be file.py:name
HELD = 2**20  # bytes of all files of a ConfigMap, as the API server counts them: of binary ones before base64
RECIPES = "mpies-configs"  # the ConfigMap of the base, which holds all recipes
CONFIGS = "/configs"  # where pods find the config
DEFAULT_BASE = (
    "base: k8s/mpi-operator/base, whose volume many nodes must be able to write (ReadWriteMany); on a cluster of one "
    "node add --base k8s/mpi-operator/overlays/workstation, on GKE --base k8s/mpi-operator/overlays/gke-minitaur"
)
MANIFESTS = "manifests.yaml"
RESERVED = MANIFESTS, "kustomization.yaml", "kustomization.yml", "Kustomization"  # names beside the config
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
    parts = find_custom_files(job.configs)
    if sweep := job.sweep:
        text, name = as_yaml(sweep.as_values()), f"{path.stem}_sweep.yaml"
        words = [*job.options[job.options.index("--ranks-per-run") :]] if "--ranks-per-run" in job.options else []
    else:
        text = path.read_text(encoding="utf-8") if path.is_file() else as_yaml(read_config(path))
        if not path.is_file():  # an environment, such as room.py:Room
            name = f"{default_out(path, ()).name}.yaml"
    if not _is_valid(name):
        raise ConfigError(
            f"{job.config}: the name of the file must be valid in a ConfigMap; use only letters, digits, - . _"
        )
    if name in RESERVED:
        raise ConfigError(f"{job.config}: the job has a file of this name beside it; rename the config")
    contents = {name: text.encode()} | {file.name: file.read_bytes() for file, _ in parts.values()}
    if (size := sum(map(len, contents.values()))) > HELD:
        raise ConfigError(
            f"{job.config}: it and the files that it names have {size / 1e6:.1f} MB together, but a ConfigMap holds "
            "1 MB; put some of them into your image"
        )
    words += [f"{key}={CONFIGS}/{file.name}{rest}" for key, (file, rest) in parts.items()]
    return JobFiles(name, contents, words)


def fit_mpijob(mpijob: dict[str, Any], job: Job, files: JobFiles, base: str | Path) -> None:
    """Change an MPIJob, which the folder `base` renders to, into the job's.

    Raises ConfigError where its pods have no volume for the config, or its workers none for shared memory.
    """
    spec, request = mpijob["spec"], job.request
    worker, launcher = pods_of(mpijob)
    shared_memory = _find_volume(base, worker, "worker", "shared-memory", "an emptyDir with medium: Memory")
    shared_memory["emptyDir"]["sizeLimit"] = _mebibytes(job.shared + SLACK)
    for role, pod in (("launcher", launcher), ("worker", worker)):
        _find_volume(base, pod, role, RECIPES, "this ConfigMap")["configMap"]["name"] = config_map_name(job)
    mpijob["metadata"]["name"] = job_name(job)
    spec["slotsPerWorker"], spec["mpiReplicaSpecs"]["Worker"]["replicas"] = request.ranks_per_node, request.nodes
    resources = {"cpu": str(request.ranks_per_node), "memory": _mebibytes(job.memory)}
    worker["containers"][0]["resources"] = {"requests": resources, "limits": dict(resources)}
    container = launcher["containers"][0]
    words = [f"{CONFIGS}/{files.config}", "--out", f"/runs/{Path(job.out).name}", *files.words]
    container["args"] = [word.replace("$", "$$") for word in words]  # Kubernetes would expand $(NAME)
    if job.command != "train":
        container["command"][1:2] = [job.command]
    launcher["terminationGracePeriodSeconds"] = job.warning


def _find_volume(base: str | Path, pod: Mapping[str, Any], role: str, name: str, kind: str) -> Any:
    """A volume of a pod, by its name or that of its ConfigMap.  Raises ConfigError where there is none."""
    for volume in pod.get("volumes", []):
        if name in (volume["name"], volume.get("configMap", {}).get("name")):
            return volume
    raise ConfigError(
        f"{base}: the {role} pods of its MPIJob have no volume {name}; add one that is {kind}, "
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


def pods_of(mpijob: Mapping[str, Any]) -> list[Any]:
    """What the workers are, and what the launcher is; their first containers are those of mpies itself."""
    return [mpijob["spec"]["mpiReplicaSpecs"][role]["template"]["spec"] for role in ("Worker", "Launcher")]


def replace_images(part: Any, known: Sequence[str], image: str) -> None:
    """Put another image in the place of the known ones, wherever a part of a manifest names them."""
    if isinstance(part, dict) and part.get("image") in known:
        part["image"] = image
    for value in part.values() if isinstance(part, dict) else part if isinstance(part, list) else []:
        replace_images(value, known, image)


def find_custom_files(configs: Sequence[Config]) -> dict[str, tuple[Path, str]]:
    """The settings of a run, or of a sweep's trials, that name a file of the user's: to it, and the rest of the value.

    Raises ConfigError where a file cannot be sent beside the others, or trials have different ones.
    """
    named, *others = [_list_custom_files(flatten_settings(resolved(config))) for config in configs]
    for key in (*CUSTOM_KEYS, "policy.init_from"):
        if any(other.get(key) != named.get(key) for other in others):
            raise ConfigError(f"{key}: files that vary cannot be sent to the pods; launch a sweep for each of them")
    sources: dict[str, Path] = {}
    for key, (file, _) in named.items():
        if not _is_valid(file.name) or sources.setdefault(file.name, file.resolve()) != file.resolve():
            raise ConfigError(
                f"{key}: {file} needs a name of its own in a ConfigMap: letters, digits, - . _; rename it"
            )
    return named


def _list_custom_files(settings: Mapping[str, Any]) -> dict[str, tuple[Path, str]]:
    """`find_custom_files` of one config."""
    values = {key: str(settings.get(key, "")).rpartition(":") for key in CUSTOM_KEYS}
    named = {key: (Path(file), f":{name}") for key, (file, _, name) in values.items() if file.endswith(".py")}
    if (first := settings.get("policy.init_from")) and Path(first).exists():  # another one is in the image
        if Path(first).is_dir():
            raise ConfigError(f"policy.init_from: {first} is a folder; name a file in it, such as {first}/best.h5")
        named["policy.init_from"] = Path(first), ""
    return named


def _is_valid(name: str) -> bool:
    """Whether a file of this name can be in a ConfigMap."""
    return re.fullmatch(r"[-._a-zA-Z0-9]+", name) is not None


def _mebibytes(count: int) -> str:
    return f"{math.ceil(count / 2**20)}Mi"


def check_cluster(kubectl: Sequence[str], name: str) -> str:
    """The context and namespace that kubectl addresses, in words.

    Raises ConfigError where there is no cluster, or where the job of this name has not ended.
    """

    def ask(*words: str) -> str:
        done = subprocess.run([*kubectl, *words], capture_output=True, text=True)
        if done.returncode:
            said = one_line(done.stderr.strip().rpartition("\n")[2])
            raise ConfigError(f"no job can be sent ({said}); see kubectl cluster-info, or write the files by --dry-run")
        return done.stdout

    context, known = ask("config", "view", "--minify", "--output=jsonpath={.current-context} {..namespace}").split(" ")
    named = dict(word.split("=", 1) for word in kubectl[1:]).get("--namespace", known)
    where = f"context {context}, namespace {named or 'default'}"
    conditions = '{.metadata.name} {.status.conditions[?(@.status=="True")].type}'
    found = ask("get", "mpijob", name, "--ignore-not-found", "--request-timeout=15s", f"--output=jsonpath={conditions}")
    if found and not {"Succeeded", "Failed"} & set(found.split()[1:]):
        end = shlex.join([*kubectl, "delete", "mpijob", name])
        raise ConfigError(f"{name}: has not ended yet ({where}); wait for it, end it ({end}), or give another --out")
    return where


def launch_mpijob(
    job: Job, base: str | None, image: str | None, options: Sequence[str], is_wanted: bool, echo: Echo
) -> int:
    """Write a Job's manifests beside its run and, where that is wanted, apply them.  Returns the exit code.

    base: a folder of Kustomize to build on, here or in the repository, or None for the repository's own.
    image: name of the container image, or None for the base's own.
    options: of kubectl, such as --context=NAME.
    """
    unbroken(image or "", "--image")
    files, folder = collect_files(job), Path(f"{job.out}.k8s")
    base_folder = Path(base) if base and Path(base).exists() else HOME / (base or "k8s/mpi-operator/base")
    parts, mpijob = read_base(base_folder)
    try:
        known = [pod["containers"][0]["image"] for pod in pods_of(mpijob)]
        fit_mpijob(mpijob, job, files, base_folder)
    except (KeyError, IndexError) as error:
        raise ConfigError(f"{base_folder}: its MPIJob has no {error}, but k8s/mpi-operator/base has; add it") from None
    if image:
        replace_images(parts, known, image)
    kustomization = {
        "resources": [MANIFESTS],
        "configMapGenerator": [{"name": config_map_name(job), "files": sorted(files.contents)}],
        "generatorOptions": {"disableNameSuffixHash": True},
    }
    for name, content in files.contents.items():
        write_job_file(folder / name, content)
    write_job_file(folder / MANIFESTS, yaml.safe_dump_all(parts, sort_keys=False, width=100))
    write_job_file(folder / "kustomization.yaml", as_yaml(kustomization))
    echo(f"{folder}: {job.summary()}")
    if not base:
        echo(DEFAULT_BASE)
    if not image:
        where = "which the nodes must have, or find under this name; for your own image add --image REGISTRY/NAME:TAG"
        echo(f"image: {known[0]}, {where}")
    kubectl = ["kubectl", *options]
    if is_wanted:
        echo(f"to: {check_cluster(kubectl, job_name(job))}")
    delete = [*kubectl, "delete", "mpijob", job_name(job), "--ignore-not-found"]  # its pods cannot be changed in place
    # Without --server-side, kubectl copies each object into an annotation, which holds a quarter of a mebibyte.
    apply = [*kubectl, "apply", "--server-side", "--force-conflicts", "--kustomize", str(folder)]
    return submit([delete, apply], is_wanted, echo)


def read_base(folder: str | Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """What kubectl renders a folder of Kustomize to, and its MPIJob.  Raises ConfigError where there is not just one.

    The ConfigMap of the recipes is left out: other jobs may use it, and a sweep's file in it would be lost.
    """
    if shutil.which("kubectl") is None:
        raise ConfigError(f"{folder}: kubectl is not on the path, and it is needed to read this folder; install it")
    done = subprocess.run(["kubectl", "kustomize", str(folder)], capture_output=True, text=True)
    if done.returncode:
        raise ConfigError(f"{folder}: kubectl kustomize says: {one_line(done.stderr)}")
    parts: list[dict[str, Any]] = [part for part in yaml.safe_load_all(done.stdout) if part]
    recipes = re.compile(f"ConfigMap {RECIPES}(-[a-z0-9]{{10}})?")  # Kustomize may add a hash
    parts = [part for part in parts if not recipes.fullmatch(f"{part['kind']} {part['metadata']['name']}")]
    jobs = [part for part in parts if part["kind"] == "MPIJob"]
    if len(jobs) != 1:
        raise ConfigError(
            f"{folder}: has {len(jobs)} MPIJobs, but one was expected; give a folder such as "
            "k8s/mpi-operator/overlays/workstation"
        )
    return parts, jobs[0]
