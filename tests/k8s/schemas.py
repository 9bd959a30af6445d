"""What an API server with the MPI Operator would refuse, found without one.

An MPIJob is held against the operator's own CRD and its own rules, Kubeflow Trainer's kinds against the models of its
API that the project publishes, everything else against the schemas of a Kubernetes release; unknown fields are
errors, as with `kubectl apply --validate=strict`.
"""

import hashlib
import os
import re
import urllib.request
from pathlib import Path

import yaml

from tests.support import HOME

KUBERNETES = "1.34"
OPERATOR = "v0.8.2"
CRD_URL = f"https://raw.githubusercontent.com/kubeflow/mpi-operator/{OPERATOR}/manifests/base/kubeflow.org_mpijobs.yaml"
CRD_SHA256 = "78b0131f931fcc8d99f6ce0407281f41b62527e443ec691d26d9634b390ad3bb"
KEPT = (  # of a CRD's keywords those that mean the same in JSON Schema
    *("type", "enum", "pattern", "required", "multipleOf", "uniqueItems", "minimum", "maximum"),
    *("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
)


def read_crd():
    """The operator's CRD as text: from $MPIJOB_CRD, from a folder beside this one, or downloaded.

    Raises OSError where none of these is to be had.
    """
    beside = HOME.parent / "shared/mpi-operator/kubeflow.org_mpijobs.yaml"
    if "MPIJOB_CRD" in os.environ or beside.exists():
        content = Path(os.environ.get("MPIJOB_CRD", beside)).read_bytes()
    else:
        with urllib.request.urlopen(CRD_URL, timeout=10) as answer:
            content = answer.read()
    if hashlib.sha256(content).hexdigest() != CRD_SHA256:
        raise OSError(f"this is not the CRD of MPI Operator {OPERATOR}")
    return content.decode()


def mpijob_schema(crd):
    """The JSON schema of an MPIJob v2beta1 from the CRD's text."""
    (version,) = [v for v in yaml.load(crd, yaml.CSafeLoader)["spec"]["versions"] if v["name"] == "v2beta1"]
    schema = closed(version["schema"]["openAPIV3Schema"])
    schema["properties"]["metadata"] = {"type": "object", "required": ["name"]}
    return schema | {"required": ["apiVersion", "kind", "metadata", "spec"]}


def closed(schema):
    """A node of a CRD's schema as JSON Schema that allows no field it does not name."""
    made = {key: schema[key] for key in KEPT if key in schema}
    if schema.get("x-kubernetes-int-or-string"):
        made = {"type": ["integer", "string"]}
    if "items" in schema:
        made["items"] = closed(schema["items"])
    rest = schema.get("additionalProperties")
    if isinstance(rest, dict):
        made["additionalProperties"] = closed(rest)
    if "properties" in schema:
        made["properties"] = {name: closed(part) for name, part in schema["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            made["additionalProperties"] = False
    return made


def against_crd(job, schema):
    """What is wrong with an MPIJob by the CRD; a list of sentences."""
    import jsonschema

    errors = jsonschema.Draft202012Validator(schema).iter_errors(job)
    found = [f"{'/'.join(map(str, error.absolute_path))}: {error.message[:200]}" for error in errors]
    return found + [f"{path}: {name} stands twice" for path, name in repeated(job)]


def repeated(node, path=""):
    """(path, name) of list entries that share a name, which an API server merges or refuses."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield from repeated(value, f"{path}/{key}")
    elif isinstance(node, list):
        names = [entry["name"] for entry in node if isinstance(entry, dict) and "name" in entry]
        yield from ((path, name) for name in set(names) if names.count(name) > 1)
        for entry in node:
            yield from repeated(entry, path)


def refused_by_operator(job):
    """What the operator itself would complain of, with the job standing still; a list of sentences.

    From its validation.go: the CRD says nothing of these.
    """
    spec, found = job["spec"], []
    replicas = spec["mpiReplicaSpecs"]
    workers = replicas["Worker"].get("replicas", 0)
    last = f"{job['metadata']['name']}-worker-{workers - 1}"
    if not re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", last):
        found.append(f"{last} is no host name")
    if workers < 1 or replicas["Launcher"].get("replicas", 1) != 1:
        found.append("there must be one launcher and at least one worker")
    for role, replica in replicas.items():
        if replica.get("restartPolicy") not in ("Never", "OnFailure"):
            found.append(f"{role}: restartPolicy must be Never or OnFailure")
        if "restartPolicy" in replica["template"]["spec"]:
            found.append(f"{role}: restartPolicy belongs to the replica, not to its pod")
    if spec.get("launcherCreationPolicy", "AtStartup") not in ("AtStartup", "WaitForWorkersReady"):
        found.append("launcherCreationPolicy must be AtStartup or WaitForWorkersReady")
    if spec["runPolicy"].get("cleanPodPolicy", "None") not in ("None", "Running", "All"):
        found.append("runPolicy.cleanPodPolicy must be None, Running or All")
    return found


def against_trainer(document):
    """What is wrong with a manifest of Kubeflow Trainer v2 by the models that its project publishes on PyPI.

    They refuse wrong types and leave out fields that they do not know.  Returns a list of sentences.
    """
    import pydantic
    from kubeflow_trainer_api import models

    try:
        understood = getattr(models, f"TrainerV1alpha1{document['kind']}").from_dict(document).to_dict()
    except pydantic.ValidationError as error:
        return [f"{'/'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in error.errors()]
    return [f"{path}: is not known, or not with this value" for path in missing(document, understood)]


def missing(node, other, path=""):
    """Paths of what `node` says and `other` does not say as well."""
    if isinstance(node, dict) and isinstance(other, dict):
        for key, value in node.items():
            yield from missing(value, other.get(key), f"{path}/{key}")
    elif isinstance(node, list) and isinstance(other, list) and len(node) == len(other):
        for number, (value, counterpart) in enumerate(zip(node, other, strict=True)):
            yield from missing(value, counterpart, f"{path}/{number}")
    elif node != other:
        yield path


def pods(document):
    """The pod templates in a manifest, as Pods of their own."""
    spec = document.get("spec", {})
    templates = [replica["template"] for replica in spec.get("mpiReplicaSpecs", {}).values()]
    if document["kind"] == "ClusterTrainingRuntime":
        templates += [job["template"]["spec"]["template"] for job in spec["template"]["spec"]["replicatedJobs"]]
    if document["kind"] == "Deployment":
        templates.append(spec["template"])
    if document["kind"] == "CronJob":
        templates.append(spec["jobTemplate"]["spec"]["template"])
    pod, name = {"apiVersion": "v1", "kind": "Pod"}, {"name": document["metadata"]["name"]}
    return [pod | {"metadata": name | template["metadata"], "spec": template["spec"]} for template in templates]


def against_kubernetes(document):
    """What is wrong with a manifest of Kubernetes' own kinds; a list of sentences."""
    import kubernetes_validate

    try:
        kubernetes_validate.validate(document, KUBERNETES, strict=True)
    except kubernetes_validate.ValidationError as error:
        return [f"{document['kind']} {'/'.join(map(str, error.path))}: {error.message[:200]}"]
    return []
