"""The manifests of a Job over an MPIJob, as kubectl renders them."""

import json
import re
import shutil
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from mpies.core.errors import ConfigError
from mpies.launch.cluster import submit
from mpies.launch.cluster.kubernetes import JobFiles, fit_mpijob, job_name, read_base
from tests.k8s.conftest import render
from tests.launch.cluster.conftest import CONFIG, JOB, OVERRIDES
from tests.support import assert_refused, invoke

BASE = """
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: mpies}
spec:
  slotsPerWorker: 1
  mpiReplicaSpecs:
    Launcher:
      template:
        spec:
          containers: [{name: launcher, image: mpies, command: [mpies, train], args: [a, b]}]
          volumes: [{name: configs, configMap: {name: mpies-configs}}]
    Worker:
      replicas: 2
      template:
        spec:
          containers: [{name: worker, image: mpies, resources: {limits: {cpu: "1"}}}]
          volumes:
          - {name: runs}
          - {name: shared-memory, emptyDir: {medium: Memory, sizeLimit: 512Mi}}
          - {name: configs, configMap: {name: mpies-configs}}
"""
pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl")
FILES = JobFiles("pole.yaml", {"pole.yaml": b""}, [*OVERRIDES])
KUSTOMIZATION = "resources: [mpijob.yaml]\nconfigMapGenerator: [{name: mpies-configs, literals: [other.yaml=x]}]\n"
COST = "def cost(x):\n    return -(x @ x)\n"


def make_base(folder, job=BASE, kustomization=KUSTOMIZATION):
    """Make a folder of Kustomize with an MPIJob."""
    folder.mkdir(exist_ok=True)
    (folder / "mpijob.yaml").write_text(job)
    (folder / "kustomization.yaml").write_text(kustomization)


@pytest.fixture
def folder(ball):
    """The working directory, with ball.yaml and a folder of Kustomize in base."""
    make_base(ball / "base")
    return ball


def launch(*words, base="base", code=None):
    return invoke("launch", "k8s", *words, "--dry-run", "--base", base, code=code)


def launched(*words, base="base"):
    """What a launch into the run `run` prints, and its manifests by kind."""
    said = launch(*words, "--out", "run", base=base, code=0).stdout
    return said, {part["kind"]: part for part in render("run.k8s")}


def pod_of(mpijob, role):
    return mpijob["spec"]["mpiReplicaSpecs"][role]["template"]["spec"]


def sent(*words):
    """The names of the files that a launch sends, and the arguments of its launcher."""
    launcher = pod_of(launched(*words)[1]["MPIJob"], "Launcher")["containers"][0]
    [generated] = yaml.safe_load(Path("run.k8s/kustomization.yaml").read_text())["configMapGenerator"]
    assert launcher["command"] == ["mpies", "sweep" if "--sweep" in words else "train"]
    return generated["files"], launcher["args"]


def test_a_job_changes_what_it_needs():
    mpijob, base = yaml.safe_load(BASE), yaml.safe_load(BASE)
    fit_mpijob(mpijob, JOB, replace(FILES, words=[*OVERRIDES, "a=$(KUBERNETES_SERVICE_HOST) $x"]), "base")
    resources = {"cpu": "16", "memory": "5120Mi"}
    launcher, worker = pod_of(base, "Launcher"), pod_of(base, "Worker")
    base["metadata"]["name"], base["spec"]["slotsPerWorker"] = "mpies-pole", 16
    base["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] = 3
    worker["containers"][0]["resources"] = {"requests": resources, "limits": resources}
    worker["volumes"][1]["emptyDir"]["sizeLimit"] = "1088Mi"
    worker["volumes"][2]["configMap"]["name"] = launcher["volumes"][0]["configMap"]["name"] = "mpies-pole-configs"
    launcher["terminationGracePeriodSeconds"] = JOB.warning
    words = [*OVERRIDES, "a=$$(KUBERNETES_SERVICE_HOST) $$x"]  # of which Kubernetes expands nothing
    launcher["containers"][0]["args"] = ["/configs/pole.yaml", "--out", "/runs/pole", *words]
    assert mpijob == base


@pytest.mark.parametrize(
    ("image", "kept", "known"),
    [
        ("registry:5000/us/mine:2", "newTag: '7'", ":7"),
        (f"us/mine@sha256:{'a' * 64}", f"digest: 'sha256:{'b' * 64}'", f"@sha256:{'b' * 64}"),
    ],
)
def test_an_image_replaces_that_of_the_base(image, kept, known, folder):
    images = f"images: [{{name: mpies, newName: registry:5000/us/mpies, {kept}}}]\n"
    make_base(folder / "over", BASE, f"resources: [../base]\n{images}")
    said, parts = launched("ball.yaml", "--image", image, base="over")
    assert "image:" not in said
    assert [pod_of(parts["MPIJob"], role)["containers"][0]["image"] for role in ("Launcher", "Worker")] == [image] * 2
    named = launch("ball.yaml", base="over").stdout
    assert f"image: registry:5000/us/mpies{known}, which the nodes must have" in named


def test_a_base_needs_a_single_mpijob(folder):
    parts, mpijob = read_base("base")
    assert mpijob["spec"]["mpiReplicaSpecs"] == yaml.safe_load(BASE)["spec"]["mpiReplicaSpecs"] and parts == [mpijob]
    make_base(folder / "base", BASE, "configMapGenerator: [{name: x, literals: [a=b]}]\n")
    with pytest.raises(ConfigError, match="base: has 0 MPIJobs, but one was expected; give a folder such as"):
        read_base("base")
    with pytest.raises(ConfigError, match=r"absent: kubectl kustomize says: .*absent"):
        read_base("absent")


@pytest.mark.parametrize(
    ("part", "changed", "words", "message"),
    [
        ("shared-memory", "other", (), "its MPIJob have no volume shared-memory; add one that is an emptyDir"),
        ("configMap: {name: mpies-configs}", "emptyDir: {}", (), "the launcher pods of its MPIJob have no volume"),
        ("command: [mpies, train], ", "", ("--sweep", "--seeds", "2"), "its MPIJob has no 'command', but k8s/mpi-op"),
    ],
)
def test_a_base_that_lacks_something_is_refused(part, changed, words, message, folder):
    make_base(folder / "base", BASE.replace(part, changed, 1))
    assert_refused(launch("ball.yaml", *words), message)


def test_jobs_of_different_runs_have_different_names():
    assert job_name(replace(JOB, out="runs/ball_seed=4")) == "mpies-ball-seed-4-767e52fc"
    long = "runs/bipedal_walker_hardcore_solver.sigma=0.1_seed="
    outs = [f"{long}{seed}" for seed in range(20)] + ["a_shift=-1", "a_shift=1", "a_shift=0.1", "a_shift=01", "A", "a"]
    names = {job_name(replace(JOB, out=out)) for out in [*outs, "a_b", "a-b", "a=b", "a__b"]}
    assert len(names) == len(outs) + 4
    assert all(re.fullmatch("[a-z]([-a-z0-9]*[a-z0-9])?", name) and len(name) <= 40 for name in names)


@pytest.fixture
def user_files(folder):
    """`folder`, with files of a user and configs that name them."""
    for name in ("own/cost.py", "own/my cost.py", "cost.py", "other.py", "old/best.h5"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(COST)
    for name, file in {"own.yaml": "own/cost.py", "spaced.yaml": "own/my cost.py", "cost.yaml": "cost.py"}.items():
        (folder / name).write_text(f"environment: {{id: '{file}:cost', dimension: 3}}")
    (folder / "pole.yaml").write_text("environment: {id: CartPole-v1}\npolicy: {init_from: old/best.h5}")
    for name in ("my ball.yaml", "kustomization.yaml"):
        (folder / name).write_text(CONFIG)
    return folder


SWEEP = "cost.yaml", "--sweep", "--seeds", "2"
COST_OF_3, OTHER = ["cost.py:cost", "environment.dimension=3"], "environment.id=other.py:cost"
SECTION = 'environment={id: "other.py:cost", dimension: 2}'
VARY = "environment.id: files that vary cannot be sent to the pods; launch a sweep for each"


@pytest.mark.parametrize(
    ("words", "files", "argument"),
    [
        (["own.yaml"], ["cost.py", "own.yaml"], "environment.id=/configs/cost.py:cost"),
        (["pole.yaml"], ["best.h5", "pole.yaml"], "policy.init_from=/configs/best.h5"),
        (SWEEP, ["cost.py", "cost_sweep.yaml"], "environment.id=/configs/cost.py:cost"),
        ([*SWEEP, OTHER], ["cost_sweep.yaml", "other.py"], "environment.id=/configs/other.py:cost"),
        ([*SWEEP, SECTION], ["cost_sweep.yaml", "other.py"], "environment.id=/configs/other.py:cost"),
        (COST_OF_3, ["cost-cost.yaml", "cost.py"], "environment.id=/configs/cost.py:cost"),
    ],
)
def test_files_of_the_user_are_sent(words, files, argument, user_files):
    found, arguments = sent(*words)
    assert found == files and arguments[-1] == argument
    for name in files:
        text = (user_files / "run.k8s" / name).read_text()
        assert name.endswith(".yaml") or text == COST
        assert "sweep" not in name or yaml.safe_load(text)["seeds"] == [1, 2]
        assert name != "cost-cost.yaml" or yaml.safe_load(text) == {"environment": {"id": "cost.py:cost"}}
        assert name != "cost-cost.yaml" or arguments[0] == f"/configs/{name}"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["spaced.yaml"], "environment.id: own/my cost.py needs a name of its own in a ConfigMap"),
        (["pole.yaml", "policy.init_from=old"], "old is a folder; name a file in it, such as old/best."),
        (["my ball.yaml"], "use only letters, digits, - . _"),
        (["kustomization.yaml"], "kustomization.yaml: the job has a file of this name beside it; rename the config"),
        ([*SWEEP, "environment.id=cost.py:cost,other.py:cost"], VARY),
        ([*SWEEP, "environment.id={choice: ['cost.py:cost', 'other.py:cost']}", "--trials", "2"], VARY),
        ([*SWEEP, f"{SECTION},{{id: 'cost.py:cost', dimension: 3}}"], VARY),
    ],
)
def test_files_that_cannot_be_sent_are_refused(words, message, user_files):
    assert_refused(launch(*words), message)


def test_files_that_are_too_much_together_are_refused(folder, write_config):
    """The API server counts bytes as they are; without --server-side, kubectl would copy them to an annotation."""
    write_config("environment: {id: 'own.py:pole'}\npolicy: {init_from: best.h5}", "pole.yaml")
    (folder / "own.py").write_text("import gymnasium\ndef pole():\n    return gymnasium.make('CartPole-v1')\n")
    (folder / "best.h5").write_bytes(b"\x89" * 800_000)
    assert sent("pole.yaml")[0] == ["best.h5", "own.py", "pole.yaml"]
    with open(folder / "own.py", "a") as file:
        file.write("#" * 300_000)
    refused = launch("pole.yaml", "--out", "other")
    assert_refused(refused, "pole.yaml: it and the files that it names have 1.1 MB together, but a ConfigMap holds")
    assert not (folder / "other.k8s").exists()


def test_an_overlay_renders_to_the_job(folder):
    """Whatever the MPIJob of the base is called."""
    make_base(folder / "base", BASE.replace("metadata: {name: mpies}", "metadata: {name: ours}"))
    said = launch("ball.yaml", "--nodes", 5, "--ranks-per-node", 8, "seed=4", code=0).stdout
    applied = "kubectl apply --server-side --force-conflicts --kustomize runs/ball_seed=4.k8s"
    name = "mpies-ball-seed-4-767e52fc"
    assert said.endswith(f"not run: {applied}\n") and f"kubectl delete mpijob {name} " in said
    assert "image: mpies, which the nodes must have" in said
    parts = {part["kind"]: part for part in render("runs/ball_seed=4.k8s")}
    expected, job = yaml.safe_load(BASE), submit.plan_run(submit.Request("ball.yaml", (), "runs/ball_seed=4", 5, 8))
    fit_mpijob(expected, job, JobFiles("ball.yaml", {}, ["seed=4"]), "base")
    assert parts["MPIJob"] == expected and expected["metadata"]["name"] == name
    assert parts["ConfigMap"]["metadata"]["name"] == f"{name}-configs"
    assert parts["ConfigMap"]["data"] == {"ball.yaml": CONFIG}


@pytest.mark.parametrize(
    ("name", "mode", "storage", "words"),
    [
        ("workstation", "ReadWriteOnce", "1Gi", ["ball.yaml"]),
        ("gke-minitaur", "ReadWriteMany", "1Ti", ["ball.yaml"]),
        ("sweep", "ReadWriteMany", "1Ti", ["ball.yaml", "--sweep", "--seeds", "2"]),
    ],
)
def test_a_job_builds_on_the_overlays_that_the_docs_name(name, mode, storage, words, folder):
    """They are found from any folder, and their own ConfigMap is not the one that the job mounts."""
    said, parts = launched(*words, "--nodes", 3, "--ranks-per-node", 6, base=f"k8s/mpi-operator/overlays/{name}")
    assert "base:" not in said
    claim, spec = parts["PersistentVolumeClaim"]["spec"], parts["MPIJob"]["spec"]
    assert (claim["accessModes"], claim["resources"]["requests"]["storage"]) == ([mode], storage)
    assert (spec["mpiReplicaSpecs"]["Worker"]["replicas"], spec["slotsPerWorker"]) == (3, 6)
    container, sent = pod_of(parts["MPIJob"], "Launcher")["containers"][0], f"ball{'_sweep' * (name == 'sweep')}.yaml"
    assert container["command"][:3] == ["mpies", "sweep" if name == "sweep" else "train", "--hostfile"]
    assert container["args"][0] == f"/configs/{sent}"
    assert parts["ConfigMap"]["metadata"]["name"] == "mpies-run-configs" and sent in parts["ConfigMap"]["data"]


def test_a_config_is_sent_in_utf_8_whatever_the_locale(run_mpies, tmp_path, monkeypatch):
    for name, value in {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}.items():
        monkeypatch.setenv(name, value)
    text = "# Gr\u00f6\u00dfe\nenvironment: {id: 'function:sphere', dimension: 3}\n"
    (tmp_path / "ball.yaml").write_text(text, encoding="utf-8")
    run_mpies(0, "launch", "k8s", "ball.yaml", "--dry-run", code=0)
    assert (tmp_path / "runs" / "ball.k8s" / "ball.yaml").read_text(encoding="utf-8") == text


class ApiServer(BaseHTTPRequestHandler):
    """What kubectl asks of a cluster about one MPIJob; a real one cannot be installed here."""

    def answer(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = self.path.partition("?")[0]
        self.server.asked.append((self.command, path))
        kind = {"name": "mpijobs", "singularName": "mpijob", "namespaced": True, "kind": "MPIJob", "verbs": ["get"]}
        group = {"groupVersion": "kubeflow.org/v2beta1", "version": "v2beta1"}
        known = {
            "/api": {"kind": "APIVersions", "versions": ["v1"]},
            "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": []},
            "/apis": {"kind": "APIGroupList", "groups": [{"name": "kubeflow.org", "versions": [group]}]},
            "/apis/kubeflow.org/v2beta1": {"kind": "APIResourceList", **group, "resources": [kind]},
        }
        if path.endswith("/mpijobs/mpies-run") and self.server.condition:
            head = {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": {"name": "mpies-run"}}
            known[path] = {**head, "status": {"conditions": [{"type": self.server.condition, "status": "True"}]}}
        status = {"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404, "message": "not found"}
        if self.command == "DELETE":
            self.server.condition = ""
        self.send_response(200 if path in known else 404)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(known.get(path, status)).encode())

    do_GET = do_DELETE = do_PATCH = answer  # noqa: N815

    def log_message(self, *_):
        pass


@pytest.fixture
def cluster(folder, monkeypatch):
    """A server that kubectl takes for a cluster, as context `lab` with namespace `es`."""
    with ThreadingHTTPServer(("127.0.0.1", 0), ApiServer) as server:
        server.asked, server.condition = [], ""
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = {"server": f"http://127.0.0.1:{server.server_port}"}
        context = {"cluster": "lab", "user": "me", "namespace": "es"}
        known = {"apiVersion": "v1", "kind": "Config", "current-context": "lab"}
        known |= {"clusters": [{"name": "lab", "cluster": address}], "users": [{"name": "me", "user": {}}]}
        (folder / "kubeconfig").write_text(yaml.safe_dump({**known, "contexts": [{"name": "lab", "context": context}]}))
        monkeypatch.setenv("KUBECONFIG", str(folder / "kubeconfig"))
        monkeypatch.setenv("HOME", str(folder))  # where kubectl keeps what a cluster has
        yield server
        server.shutdown()


def send(*words, code=None):
    return invoke("launch", "k8s", "ball.yaml", "--out", "run", "--base", "base", *words, code=code)


def test_a_job_is_replaced_in_the_place_that_is_named_once_it_has_ended(cluster):
    for cluster.condition in ("Created", "Running", "Suspended"):
        said = "mpies: mpies-run: has not ended yet (context lab, namespace es); wait for it, end it"
        assert send(code=2).stderr.startswith(said)
        assert {method for method, _ in cluster.asked} == {"GET"}
    for condition in ("Succeeded", "Failed"):
        cluster.asked, cluster.condition = [], condition
        ended = send("--context", "lab", "--namespace", "other")
        assert "\nto: context lab, namespace other\n" in ended.stdout
        assert "kubectl --context=lab --namespace=other delete mpijob mpies-run --ignore-not-found\n" in ended.stdout
        assert ("DELETE", "/apis/kubeflow.org/v2beta1/namespaces/other/mpijobs/mpies-run") in cluster.asked


def test_no_cluster_is_one_line(folder, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(folder / "absent"))
    said = send("--context", "absent", code=2).stderr
    assert said.count("\n") == 1 and "no job can be sent" in said and "absent" in said and "--dry-run" in said
