"""The manifests: every overlay renders, says what it should, and would be taken by an API server and the operator.

The last ones are of the TrainJob and its runtime: what Kubeflow Trainer v2 would take and understand.
"""

import copy
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from mpies.config.loading import load_config
from mpies.sweeps.trials import check_trials, load_sweep
from tests.k8s import schemas
from tests.k8s.conftest import OPERATOR, OVERLAYS, one, render, rendered
from tests.support import HOME

TRAINER = HOME / "k8s/trainer"
STEP = "trainer.kubeflow.org/trainjob-ancestor-step"


def test_every_recipe_travels_in_the_config_map():
    listed = yaml.safe_load((HOME / "configs/Kustomization").read_text())["configMapGenerator"][0]["files"]
    assert listed == sorted(str(path.relative_to(HOME / "configs")) for path in (HOME / "configs").rglob("*.yaml"))


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_launcher_trains_what_is_mounted_and_valid(overlay, tmp_path):
    documents = rendered(overlay)
    container = one(documents, "MPIJob")["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]
    config, out, folder = container["args"]
    command = "sweep" if overlay == "sweep" else "train"
    assert container["command"][:4] == ["mpies", command, "--hostfile", "/etc/mpi/hostfile"]
    assert out == "--out" and Path(folder).parent == Path("/runs")
    text = one(documents, "ConfigMap")["data"][Path(config).relative_to("/configs").name]
    (tmp_path / "config.yaml").write_text(text)
    if command == "train":
        load_config(tmp_path / "config.yaml", ())
    else:
        sweep = load_sweep(tmp_path / "config.yaml")
        trials = sweep.list_trials()
        check_trials(sweep, trials)
        assert len(trials) == 40


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_no_container_may_more_than_it_must(overlay):
    """The one that is root hands over a new share of Filestore."""
    for document in rendered(overlay):
        for pod in schemas.pods(document):
            spec = pod["spec"]
            assert spec["securityContext"]["runAsNonRoot"] and spec["securityContext"]["runAsUser"] == 1000
            for container in [*spec["containers"], *spec.get("initContainers", [])]:
                security = container["securityContext"]
                assert security["readOnlyRootFilesystem"] and not security["allowPrivilegeEscalation"]
                added = security["capabilities"].pop("add", [])
                assert security["capabilities"] == {"drop": ["ALL"]}
                assert added == (["CHOWN"] if container["name"] == "hand-over-runs" else [])
                assert container["resources"]["limits"] and container["resources"]["requests"]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_operator_and_open_mpi_understand_each_other(overlay):
    """Open MPI 5 does not know the operator's variables; all ranks would run in the launcher's pod."""
    spec = one(rendered(overlay), "MPIJob")["spec"]
    env = spec["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]["env"]
    assert {"name": "PRTE_MCA_prte_default_hostfile", "value": "/etc/mpi/hostfile"} in env
    worker = spec["mpiReplicaSpecs"]["Worker"]["template"]["spec"]
    shared = [volume["emptyDir"] for volume in worker["volumes"] if volume["name"] == "shared-memory"]
    assert [volume["medium"] for volume in shared] == ["Memory"]
    container = worker["containers"][0]
    assert int(container["resources"]["limits"]["cpu"]) >= spec["slotsPerWorker"]
    assert container["resources"]["limits"] == container["resources"]["requests"]  # else the first to be evicted


def test_the_overlays_are_what_their_names_say():
    spot = one(rendered("spot"), "MPIJob")["spec"]["mpiReplicaSpecs"]
    assert spot["Worker"]["template"]["spec"]["nodeSelector"]["cloud.google.com/gke-spot"] == "true"
    assert "nodeSelector" not in spot["Launcher"]["template"]["spec"]
    assert one(rendered("spot"), "PodDisruptionBudget")["spec"]["minAvailable"] == 1 + spot["Worker"]["replicas"]
    job, queue = (one(rendered("kueue"), kind) for kind in ("MPIJob", "LocalQueue"))
    assert job["spec"]["runPolicy"]["suspend"] is True
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == queue["metadata"]["name"]


def test_the_dashboard_has_no_public_address():
    documents = rendered("gke-minitaur")
    assert one(documents, "Service")["spec"]["type"] == "ClusterIP"
    assert not [document for document in documents if document["kind"] in ("Ingress", "Gateway")]
    mounts = one(documents, "Deployment")["spec"]["template"]["spec"]["containers"][0]["volumeMounts"]
    assert [mount["readOnly"] for mount in mounts if mount["mountPath"] == "/runs"] == [True]


@pytest.mark.k8s
def test_a_bucket_takes_the_place_of_filestore(tmp_path, mpijob_schema):
    """As docs/gke.md says: another component in the overlay, nothing else."""
    rendered("gke-minitaur")  # skips where nothing renders
    shutil.copytree(OPERATOR, tmp_path / "k8s/mpi-operator")
    shutil.copytree(HOME / "configs", tmp_path / "configs")
    overlay = tmp_path / "k8s/mpi-operator/overlays/gke-minitaur"
    text = (overlay / "kustomization.yaml").read_text()
    (overlay / "kustomization.yaml").write_text(text.replace("components/filestore", "components/bucket"))
    documents = render(overlay)
    assert one(documents, "PersistentVolume")["spec"]["csi"]["driver"] == "gcsfuse.csi.storage.gke.io"
    claim = one(documents, "PersistentVolumeClaim")["spec"]
    assert (claim["volumeName"], claim["storageClassName"]) == ("mpies-runs", "")
    for pod in (pod for document in documents for pod in schemas.pods(document)):
        assert pod["metadata"]["annotations"]["gke-gcsfuse/volumes"] == "true"
        assert pod["spec"]["serviceAccountName"] == "mpies-runs" and "initContainers" not in pod["spec"]
    assert schemas.against_crd(one(documents, "MPIJob"), mpijob_schema) == []


def test_every_container_gets_the_image_that_was_pushed(tmp_path):
    rendered("spot")  # skips where nothing renders
    image = "europe-west4-docker.pkg.dev/some-project/mpies/mpies:v7"
    words = [f"IMAGE={image}", "OVERLAY=spot", f"GKE_BUILD={tmp_path}"]
    subprocess.run(["make", "gke-manifests", *words], cwd=HOME, check=True)
    documents = list(yaml.safe_load_all((tmp_path / "gke.yaml").read_text()))
    specs = [pod["spec"] for document in documents for pod in schemas.pods(document)]
    containers = [entry for spec in specs for entry in [*spec["containers"], *spec.get("initContainers", [])]]
    assert {entry["name"]: entry["image"] == image for entry in containers} == {
        **dict.fromkeys(["launcher", "hand-over-runs", "worker", "dashboard"], True),
        "kubectl": False,
    }


@pytest.fixture(scope="module")
def mpijob_schema():
    try:
        return schemas.mpijob_schema(schemas.read_crd())
    except OSError as error:
        pytest.skip(f"the operator's CRD is not to be had: {error}")


@pytest.mark.k8s
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_an_mpijob_is_taken_by_the_crd_and_the_operator(overlay, mpijob_schema):
    job = copy.deepcopy(one(rendered(overlay), "MPIJob"))
    assert schemas.against_crd(job, mpijob_schema) == schemas.refused_by_operator(job) == []
    job["spec"]["slotPerWorker"] = 2
    job["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] = 0
    assert schemas.against_crd(job, mpijob_schema) and schemas.refused_by_operator(job)


@pytest.mark.k8s
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_kubernetes_takes_everything_else_and_every_pod(overlay):
    """Kueue's kinds and the MPIJob have schemas of their own; the pods in an MPIJob are looked at as pods."""
    pytest.importorskip("kubernetes_validate", reason="make test-k8s installs kubernetes-validate")
    documents = rendered(overlay)
    ours = [d for d in documents if d["apiVersion"].split("/")[0] not in ("kubeflow.org", "kueue.x-k8s.io")]
    pods = [pod for document in documents for pod in schemas.pods(document)]
    assert len(ours) >= 5 and len(pods) >= 3
    assert [error for document in [*ours, *pods] for error in schemas.against_kubernetes(document)] == []
    pods[0]["spec"]["containers"][0]["imagePullPolice"] = "Always"
    assert schemas.against_kubernetes(pods[0])


def test_the_image_holds_the_folders_that_the_package_links_to():
    copied, ignored = (OPERATOR / "Dockerfile").read_text(), (HOME / ".dockerignore").read_text().splitlines()
    launching = {"k8s", "slurm"}  # nothing is launched from the image
    linked = {path.name for path in (HOME / "mpies").iterdir() if path.is_symlink()} - launching
    assert linked == {"configs", "envs", "results", "solvers"}
    assert all(f"\nCOPY {name} {name}\n" in copied and f"!{name}" in ignored for name in linked)


@pytest.mark.k8s
def test_scripts_and_dockerfile_are_clean():
    for name, file in (("shellcheck", HOME / "tests/install.sh"), ("hadolint", OPERATOR / "Dockerfile")):
        program = HOME / ".venv/bin" / name
        if not program.exists():
            pytest.skip(f"make test-k8s installs {name}")
        done = subprocess.run([program, file], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


@pytest.fixture(scope="module")
def trainer():
    """The TrainJob and its runtime, for Kubeflow Trainer v2."""
    rendered("workstation")  # skips where nothing renders
    return render(TRAINER)


def replicated_jobs(trainer):
    jobs = one(trainer, "ClusterTrainingRuntime")["spec"]["template"]["spec"]["replicatedJobs"]
    return {job["name"]: job for job in jobs}


def test_a_train_job_takes_the_place_of_the_mpijob(trainer):
    """Everything else of the workstation's overlay stays."""
    kinds = [document["kind"] for document in trainer]
    others = [document["kind"] for document in rendered("workstation") if document["kind"] != "MPIJob"]
    assert sorted(kinds) == sorted([*others, "ClusterTrainingRuntime", "TrainJob"])
    runtime, job = one(trainer, "ClusterTrainingRuntime"), one(trainer, "TrainJob")
    assert job["spec"]["runtimeRef"] == {"name": runtime["metadata"]["name"]}
    mpijob = one(rendered("workstation"), "MPIJob")["spec"]
    launcher = mpijob["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]
    assert job["spec"]["trainer"] == {
        "numNodes": mpijob["mpiReplicaSpecs"]["Worker"]["replicas"],
        "numProcPerNode": mpijob["slotsPerWorker"],
        "args": launcher["args"],
    }
    assert runtime["spec"]["mlPolicy"]["mpi"]["sshAuthMountPath"] == mpijob["sshAuthMountPath"]


def test_the_pods_of_a_train_job_are_those_of_the_mpijob(trainer):
    """But for their containers' names, and the arguments, which the TrainJob has."""
    replicas = copy.deepcopy(one(rendered("workstation"), "MPIJob"))["spec"]["mpiReplicaSpecs"]
    for role, name in (("Worker", "node"), ("Launcher", "launcher")):
        template = replicas[role]["template"]
        template["spec"]["restartPolicy"] = replicas[role]["restartPolicy"]
        template["spec"]["containers"][0]["name"] = "node"
        if role == "Launcher":
            del template["spec"]["containers"][0]["args"]
        assert replicated_jobs(trainer)[name]["template"]["spec"]["template"] == template


def test_trainer_finds_the_launcher_and_starts_it_once(trainer):
    """Its rules, from pkg/runtime of kubeflow/trainer.

    The job with the label gets the arguments and as many pods as the runtime's numNodes says; the hostfile goes to a
    container named "node" in a job named "launcher"; the TrainJob's numNodes goes to the job named "node".
    """
    jobs = replicated_jobs(trainer)
    labelled = [name for name, job in jobs.items() if job["template"].get("metadata", {}).get("labels", {}).get(STEP)]
    assert set(jobs) == {"node", "launcher"} and labelled == ["launcher"]
    for job in jobs.values():
        assert [entry["name"] for entry in job["template"]["spec"]["template"]["spec"]["containers"]] == ["node"]
    spec = one(trainer, "ClusterTrainingRuntime")["spec"]
    assert spec["mlPolicy"]["numNodes"] == 1
    assert spec["template"]["spec"]["successPolicy"]["targetReplicatedJobs"] == ["launcher"]


@pytest.mark.parametrize("kind", ["ClusterTrainingRuntime", "TrainJob"])
def test_the_published_models_of_trainers_api_take_a_train_job(kind, trainer):
    pytest.importorskip("kubeflow_trainer_api", reason="make test-k8s installs kubeflow-trainer-api")
    document = copy.deepcopy(one(trainer, kind))
    assert schemas.against_trainer(document) == []
    document["spec"]["numNode"] = 2
    assert schemas.against_trainer(document) != []


@pytest.mark.k8s
def test_kubernetes_takes_the_pods_of_a_train_job(trainer):
    pytest.importorskip("kubernetes_validate", reason="make test-k8s installs kubernetes-validate")
    pods = schemas.pods(one(trainer, "ClusterTrainingRuntime"))
    assert len(pods) == 2
    assert [error for pod in pods for error in schemas.against_kubernetes(pod)] == []


def test_an_image_reaches_every_container_of_a_train_job(tmp_path):
    rendered("workstation")  # skips where nothing renders
    wanted = {"resources": [os.path.relpath(TRAINER, tmp_path)], "images": [{"name": "mpies", "newTag": "7"}]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(wanted))
    runtime = one(render(tmp_path), "ClusterTrainingRuntime")
    images = [entry["image"] for pod in schemas.pods(runtime) for entry in pod["spec"]["containers"]]
    assert images == ["mpies:7", "mpies:7"]
