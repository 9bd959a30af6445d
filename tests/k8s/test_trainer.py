"""The TrainJob and its runtime: what Kubeflow Trainer v2 would take and understand, without a cluster."""

import copy
import os

import pytest
import yaml

from tests.k8s import schemas
from tests.k8s.conftest import HOME, one, render, rendered

TRAINER = HOME / "k8s/trainer"
STEP = "trainer.kubeflow.org/trainjob-ancestor-step"


@pytest.fixture(scope="module")
def documents():
    rendered("workstation")  # skips where nothing renders
    return render(TRAINER)


def replicated_jobs(documents):
    return {
        job["name"]: job
        for job in one(documents, "ClusterTrainingRuntime")["spec"]["template"]["spec"]["replicatedJobs"]
    }


def test_a_train_job_takes_the_place_of_the_mpijob(documents):
    """Everything else of the workstation's overlay stays."""
    kinds = [document["kind"] for document in documents]
    others = [document["kind"] for document in rendered("workstation") if document["kind"] != "MPIJob"]
    assert sorted(kinds) == sorted([*others, "ClusterTrainingRuntime", "TrainJob"])
    runtime, job = one(documents, "ClusterTrainingRuntime"), one(documents, "TrainJob")
    assert job["spec"]["runtimeRef"] == {"name": runtime["metadata"]["name"]}
    mpijob = one(rendered("workstation"), "MPIJob")["spec"]
    launcher = mpijob["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]
    assert job["spec"]["trainer"] == {
        "numNodes": mpijob["mpiReplicaSpecs"]["Worker"]["replicas"],
        "numProcPerNode": mpijob["slotsPerWorker"],
        "args": launcher["args"],
    }
    assert runtime["spec"]["mlPolicy"]["mpi"]["sshAuthMountPath"] == mpijob["sshAuthMountPath"]


def test_its_pods_are_those_of_the_mpijob(documents):
    """But for their containers' names, and the arguments, which the TrainJob has."""
    replicas = copy.deepcopy(one(rendered("workstation"), "MPIJob"))["spec"]["mpiReplicaSpecs"]
    for role, name in (("Worker", "node"), ("Launcher", "launcher")):
        template = replicas[role]["template"]
        template["spec"]["restartPolicy"] = replicas[role]["restartPolicy"]
        template["spec"]["containers"][0]["name"] = "node"
        if role == "Launcher":
            del template["spec"]["containers"][0]["args"]
        assert replicated_jobs(documents)[name]["template"]["spec"]["template"] == template


def test_trainer_finds_the_launcher_and_starts_it_once(documents):
    """Its rules, from pkg/runtime of kubeflow/trainer.

    The job with the label gets the arguments and as many pods as the runtime's numNodes says; the hostfile goes to a
    container named "node" in a job named "launcher"; the TrainJob's numNodes goes to the job named "node".
    """
    jobs = replicated_jobs(documents)
    labelled = [name for name, job in jobs.items() if job["template"].get("metadata", {}).get("labels", {}).get(STEP)]
    assert set(jobs) == {"node", "launcher"} and labelled == ["launcher"]
    for job in jobs.values():
        assert [entry["name"] for entry in job["template"]["spec"]["template"]["spec"]["containers"]] == ["node"]
    spec = one(documents, "ClusterTrainingRuntime")["spec"]
    assert spec["mlPolicy"]["numNodes"] == 1
    assert spec["template"]["spec"]["successPolicy"]["targetReplicatedJobs"] == ["launcher"]


@pytest.mark.parametrize("kind", ["ClusterTrainingRuntime", "TrainJob"])
def test_the_published_models_of_the_api_take_it(kind, documents):
    pytest.importorskip("kubeflow_trainer_api", reason="make test-k8s installs kubeflow-trainer-api")
    document = copy.deepcopy(one(documents, kind))
    assert schemas.against_trainer(document) == []
    document["spec"]["numNode"] = 2
    assert schemas.against_trainer(document) != []


@pytest.mark.k8s
def test_kubernetes_takes_its_pods(documents):
    pytest.importorskip("kubernetes_validate", reason="make test-k8s installs kubernetes-validate")
    pods = schemas.pods(one(documents, "ClusterTrainingRuntime"))
    assert len(pods) == 2
    assert [error for pod in pods for error in schemas.against_kubernetes(pod)] == []


def test_an_image_reaches_every_container(tmp_path):
    rendered("workstation")  # skips where nothing renders
    (tmp_path / "kustomization.yaml").write_text(
        yaml.safe_dump(
            {"resources": [os.path.relpath(TRAINER, tmp_path)], "images": [{"name": "mpies", "newTag": "7"}]}
        )
    )
    runtime = one(render(tmp_path), "ClusterTrainingRuntime")
    images = [entry["image"] for pod in schemas.pods(runtime) for entry in pod["spec"]["containers"]]
    assert images == ["mpies:7", "mpies:7"]
