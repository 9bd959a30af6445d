"""The manifests of a Job over an MPIJob, as kubectl renders them."""

import re
import shutil
import subprocess
from dataclasses import replace

import pytest
import yaml

from mpies.core.errors import ConfigError
from mpies.launch.cluster import submit
from mpies.launch.cluster.kubernetes import JobFiles, fit_mpijob, job_name, read_base
from tests.launch.cluster.examples import CONFIG, JOB, OVERRIDES
from tests.support import HOME, assert_refused, invoke

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
OVERLAYS = HOME / "k8s/mpi-operator/overlays"
FILES = JobFiles("pole.yaml", {"pole.yaml": b""}, [*OVERRIDES])
KUSTOMIZATION = "resources: [mpijob.yaml]\nconfigMapGenerator: [{name: mpies-configs, literals: [other.yaml=x]}]\n"


def make_base(folder, job=BASE, kustomization=KUSTOMIZATION):
    """Make a folder of Kustomize with an MPIJob."""
    folder.mkdir(exist_ok=True)
    (folder / "mpijob.yaml").write_text(job)
    (folder / "kustomization.yaml").write_text(kustomization)


def test_a_job_changes_what_it_needs():
    mpijob, base = yaml.safe_load(BASE), yaml.safe_load(BASE)
    fit_mpijob(mpijob, JOB, FILES, "base")
    resources = {"cpu": "16", "memory": "5120Mi"}
    launcher, worker = (base["spec"]["mpiReplicaSpecs"][role]["template"]["spec"] for role in ("Launcher", "Worker"))
    base["metadata"]["name"], base["spec"]["slotsPerWorker"] = "mpies-pole", 16
    base["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] = 3
    worker["containers"][0]["resources"] = {"requests": resources, "limits": resources}
    worker["volumes"][1]["emptyDir"]["sizeLimit"] = "1088Mi"
    worker["volumes"][2]["configMap"]["name"] = launcher["volumes"][0]["configMap"]["name"] = "mpies-pole-configs"
    launcher["terminationGracePeriodSeconds"] = JOB.warning
    launcher["containers"][0]["args"] = ["/configs/pole.yaml", "--out", "/runs/pole", *OVERRIDES]
    assert mpijob == base


def test_kubernetes_expands_no_variable_of_a_word():
    mpijob = yaml.safe_load(BASE)
    fit_mpijob(mpijob, JOB, replace(FILES, words=["a=$(KUBERNETES_SERVICE_HOST) $x"]), "base")
    launcher = mpijob["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]
    assert launcher["containers"][0]["args"][-1] == "a=$$(KUBERNETES_SERVICE_HOST) $$x"


@pytest.mark.parametrize("image", ["registry:5000/us/mine:2", "mine", f"us/mine@sha256:{'a' * 64}"])
@pytest.mark.parametrize("kept", ["newTag: '7'", f"digest: 'sha256:{'b' * 64}'"])
def test_an_image_replaces_that_of_the_base(kept, image, write_config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_config(CONFIG, "ball.yaml")
    make_base(tmp_path / "below")
    (tmp_path / "base").mkdir()
    text = f"resources: [../below]\nimages: [{{name: mpies, newName: registry:5000/us/mpies, {kept}}}]\n"
    (tmp_path / "base" / "kustomization.yaml").write_text(text)
    outcome = invoke("launch", "k8s", "ball.yaml", "--base", "base", "--image", image, "--dry-run", "--out", "run")
    assert outcome.code == 0, outcome.stderr
    (job,) = (part for part in render("run.k8s") if part["kind"] == "MPIJob")
    pods = [role["template"]["spec"]["containers"] for role in job["spec"]["mpiReplicaSpecs"].values()]
    assert [container["image"] for containers in pods for container in containers] == [image] * 2
    named = invoke("launch", "k8s", "ball.yaml", "--base", "base", "--dry-run", "--out", "run").stdout
    known = ":7" if "newTag" in kept else f"@sha256:{'b' * 64}"
    assert f"image: registry:5000/us/mpies{known}, which the nodes must have" in named


def test_an_mpijob_may_have_another_name(write_config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_config(CONFIG, "ball.yaml")
    make_base(tmp_path / "base", BASE.replace("metadata: {name: mpies}", "metadata: {name: ours}"))
    outcome = invoke("launch", "k8s", "ball.yaml", "--base", "base", "--dry-run", "--out", "run")
    assert outcome.code == 0, outcome.stderr
    (job,) = (part for part in render("run.k8s") if part["kind"] == "MPIJob")
    launcher = job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]
    assert job["metadata"]["name"] == "mpies-run" and launcher["args"] == ["/configs/ball.yaml", "--out", "/runs/run"]


def test_a_base_needs_a_single_mpijob(tmp_path):
    make_base(tmp_path / "base")
    parts, mpijob = read_base(tmp_path / "base")
    assert mpijob["spec"]["mpiReplicaSpecs"] == yaml.safe_load(BASE)["spec"]["mpiReplicaSpecs"] and parts == [mpijob]
    (tmp_path / "base" / "kustomization.yaml").write_text("configMapGenerator: [{name: x, literals: [a=b]}]\n")
    with pytest.raises(ConfigError, match="base: has 0 MPIJobs, but one was expected; give a folder such as"):
        read_base(tmp_path / "base")
    with pytest.raises(ConfigError, match=r"absent: kubectl kustomize says: .*absent"):
        read_base(tmp_path / "absent")


def test_every_overlay_of_the_repository_has_what_a_job_changes():
    for folder in ["base", *(f"overlays/{path.name}" for path in OVERLAYS.iterdir())]:
        _, mpijob = read_base(HOME / "k8s/mpi-operator" / folder)
        assert "slotsPerWorker" in mpijob["spec"] and "replicas" in mpijob["spec"]["mpiReplicaSpecs"]["Worker"]
        fit_mpijob(mpijob, JOB, FILES, folder)


def test_a_config_needs_a_name_that_a_config_map_takes(write_config, tmp_path, monkeypatch):
    write_config(CONFIG, "my ball.yaml")
    monkeypatch.chdir(tmp_path)
    assert_refused(invoke("launch", "k8s", "my ball.yaml", "--dry-run"), "use only letters, digits, - . _")
    write_config(CONFIG, "kustomization.yaml")
    outcome = invoke("launch", "k8s", "kustomization.yaml", "--dry-run")
    assert_refused(outcome, "kustomization.yaml: the job has a file of this name beside it; rename the config")


def test_jobs_of_different_runs_have_different_names():
    assert job_name(replace(JOB, out="runs/ball_seed=4")) == "mpies-ball-seed-4-767e52fc"
    long = "runs/bipedal_walker_hardcore_solver.sigma=0.1_seed="
    outs = [f"{long}{seed}" for seed in range(20)] + ["a_shift=-1", "a_shift=1", "a_shift=0.1", "a_shift=01", "A", "a"]
    outs += ["a_b", "a-b", "a=b", "a__b"]
    names = [job_name(replace(JOB, out=out)) for out in outs]
    assert len(set(names)) == len(outs)
    assert all(re.fullmatch("[a-z]([-a-z0-9]*[a-z0-9])?", name) and len(name) <= 40 for name in names)


def test_a_base_without_shared_memory_is_refused(write_config, tmp_path, monkeypatch):
    make_base(tmp_path / "base", BASE.replace("shared-memory", "other"))
    write_config(CONFIG, "ball.yaml")
    monkeypatch.chdir(tmp_path)
    outcome = invoke("launch", "k8s", "ball.yaml", "--dry-run", "--base", "base")
    assert_refused(outcome, "its MPIJob have no volume shared-memory; add one that is an emptyDir")


def test_a_sweep_needs_a_base_whose_launcher_has_a_command(write_config, tmp_path, monkeypatch):
    make_base(tmp_path / "base", BASE.replace("command: [mpies, train], ", ""))
    write_config(CONFIG, "ball.yaml")
    monkeypatch.chdir(tmp_path)
    outcome = invoke("launch", "k8s", "ball.yaml", "--sweep", "--seeds", "2", "--dry-run", "--base", "base")
    assert_refused(outcome, "base: its MPIJob has no 'command', but k8s/mpi-operator/base has; add it")


def test_a_base_without_the_configs_is_refused():
    mpijob = yaml.safe_load(BASE.replace("configMap: {name: mpies-configs}", "emptyDir: {}", 1))
    with pytest.raises(ConfigError, match="base: the launcher pods of its MPIJob have no volume mpies-configs; add"):
        fit_mpijob(mpijob, JOB, FILES, "base")


def test_files_of_the_user_are_sent_with_the_config(write_config, tmp_path, monkeypatch):
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "cost.py").write_text("def cost(x):\n    return -(x @ x)\n")
    write_config("environment: {id: 'own/cost.py:cost', dimension: 3}", "ball.yaml")
    monkeypatch.chdir(tmp_path)
    outcome, files, arguments = launch_with(tmp_path / "base", "ball.yaml")
    assert outcome.code == 0 and files == ["ball.yaml", "cost.py"], outcome.stderr
    assert (tmp_path / "base" / "run.k8s" / "cost.py").read_text() == (tmp_path / "own" / "cost.py").read_text()
    assert arguments[-1] == "environment.id=/configs/cost.py:cost"
    (tmp_path / "own" / "cost.py").rename(tmp_path / "own" / "my cost.py")
    write_config("environment: {id: 'own/my cost.py:cost', dimension: 3}", "ball.yaml")
    outcome = invoke("launch", "k8s", "ball.yaml", "--dry-run", "--base", "base")
    assert_refused(outcome, "environment.id: own/my cost.py needs a name of its own in a ConfigMap")


def test_a_config_may_be_an_environment_of_the_user(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cost.py").write_text("def cost(x):\n    return -(x @ x)\n")
    outcome, files, arguments = launch_with(tmp_path / "base", "cost.py:cost", "environment.dimension=3")
    assert outcome.code == 0, outcome.stderr
    assert files == ["cost-cost.yaml", "cost.py"] and "mpies bench cost.py:cost --out FILE" in outcome.stdout
    assert arguments[0] == "/configs/cost-cost.yaml" and arguments[-1] == "environment.id=/configs/cost.py:cost"
    written = yaml.safe_load((tmp_path / "base" / "run.k8s" / "cost-cost.yaml").read_text())
    assert written == {"environment": {"id": "cost.py:cost"}}


def launch_with(base, *words):
    """The outcome of launch k8s on a base of its own; the files and the launcher's arguments in what it wrote."""
    make_base(base)
    outcome = invoke("launch", "k8s", *words, "--dry-run", "--base", base, "--out", base / "run")
    if outcome.code:
        return outcome, [], []
    parts = {part["kind"]: part for part in render(base / "run.k8s")}
    files = sorted({**parts["ConfigMap"].get("data", {}), **parts["ConfigMap"].get("binaryData", {})})
    launcher = parts["MPIJob"]["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]
    return outcome, files, launcher["containers"][0]["args"]


def test_files_of_the_user_are_sent_with_a_sweep(write_config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("cost.py", "other.py"):
        (tmp_path / name).write_text("def cost(x):\n    return -(x @ x)\n")
    write_config("environment: {id: 'cost.py:cost', dimension: 3}", "ball.yaml")
    outcome, files, arguments = launch_with(tmp_path / "base", "ball.yaml", "--sweep", "--seeds", "2")
    assert outcome.code == 0, outcome.stderr
    assert files == ["ball_sweep.yaml", "cost.py"] and arguments[-1] == "environment.id=/configs/cost.py:cost"
    assert (tmp_path / "base" / "run.k8s" / "cost.py").read_text() == (tmp_path / "cost.py").read_text()
    own = "environment.id=other.py:cost"
    outcome, files, arguments = launch_with(tmp_path / "base", "ball.yaml", "--sweep", "--seeds", "2", own)
    assert files == ["ball_sweep.yaml", "other.py"] and arguments[-1] == "environment.id=/configs/other.py:cost"
    section = 'environment={id: "other.py:cost", dimension: 2}'
    outcome, files, arguments = launch_with(tmp_path / "base", "ball.yaml", "--sweep", "--seeds", "2", section)
    assert files == ["ball_sweep.yaml", "other.py"] and arguments[-1] == "environment.id=/configs/other.py:cost"
    both = "environment.id=cost.py:cost,other.py:cost"
    drawn = "environment.id={choice: ['cost.py:cost', 'other.py:cost']}"
    sections = f"{section},{{id: 'cost.py:cost', dimension: 3}}"
    for words in ([both], [drawn, "--trials", "2"], [sections]):
        outcome, *_ = launch_with(tmp_path / "base", "ball.yaml", "--sweep", "--seeds", "2", *words)
        assert_refused(outcome, "environment.id: files that vary cannot be sent to the pods; launch a sweep for each")


def test_a_policy_to_begin_with_is_sent_with_the_config(write_config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_config("environment: {id: CartPole-v1}\npolicy: {init_from: old/best.h5}", "pole.yaml")
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "best.h5").write_bytes(b"\x89HDF")
    outcome, files, arguments = launch_with(tmp_path / "base", "pole.yaml")
    assert outcome.code == 0, outcome.stderr
    assert files == ["best.h5", "pole.yaml"] and arguments[-1] == "policy.init_from=/configs/best.h5"
    assert (tmp_path / "base" / "run.k8s" / "best.h5").read_bytes() == b"\x89HDF"
    outcome, *_ = launch_with(tmp_path / "base", "pole.yaml", "policy.init_from=old")
    assert_refused(outcome, "policy.init_from: old is a folder; name a file in it, such as old/best.h5")


def test_files_that_are_too_much_together_are_refused(write_config, tmp_path, monkeypatch):
    """The API server counts bytes as they are; without --server-side, kubectl would copy them to an annotation."""
    monkeypatch.chdir(tmp_path)
    write_config("environment: {id: 'own.py:pole'}\npolicy: {init_from: best.h5}", "pole.yaml")
    (tmp_path / "own.py").write_text("import gymnasium\ndef pole():\n    return gymnasium.make('CartPole-v1')\n")
    (tmp_path / "best.h5").write_bytes(b"\x89" * 800_000)
    outcome, files, _ = launch_with(tmp_path / "base", "pole.yaml")
    assert outcome.code == 0 and files == ["best.h5", "own.py", "pole.yaml"], outcome.stderr
    assert "apply --server-side " in outcome.stdout
    with open(tmp_path / "own.py", "a") as file:
        file.write("#" * 300_000)
    shutil.rmtree(tmp_path / "base")
    outcome, *_ = launch_with(tmp_path / "base", "pole.yaml")
    assert_refused(outcome, "pole.yaml: it and the files that it names have 1.1 MB together, but a ConfigMap holds")
    assert not (tmp_path / "base" / "run.k8s").exists()


def test_an_overlay_renders_to_the_job(run_mpies, write_config, tmp_path):
    make_base(tmp_path / "base")
    write_config(CONFIG, "ball.yaml")
    size = ["--nodes", 5, "--ranks-per-node", 8, "--image", "registry:5000/us/mpies:2", "--base", "base"]
    ended = run_mpies(0, "launch", "k8s", "ball.yaml", *size, "--dry-run", "seed=4")
    assert ended.code == 0, ended.stderr
    applied = "kubectl apply --server-side --force-conflicts --kustomize runs/ball_seed=4.k8s"
    assert ended.stdout.endswith(f"not run: {applied}\n")
    rendered = subprocess.run(
        ["kubectl", "kustomize", "runs/ball_seed=4.k8s"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    parts = {part["kind"]: part for part in yaml.safe_load_all(rendered.stdout)}
    specs = parts["MPIJob"]["spec"]["mpiReplicaSpecs"]
    worker = specs["Worker"]["template"]["spec"]
    assert (specs["Worker"]["replicas"], parts["MPIJob"]["spec"]["slotsPerWorker"]) == (5, 8)
    expected = submit.plan_run(submit.Request(tmp_path / "ball.yaml", (), None, 5, 8))
    memory = f"{-(-expected.memory // 2**20)}Mi"
    assert worker["containers"][0]["resources"]["limits"] == {"cpu": "8", "memory": memory}
    assert worker["volumes"][1]["emptyDir"] == {"medium": "Memory", "sizeLimit": "255Mi"}
    launcher = specs["Launcher"]["template"]["spec"]["containers"][0]
    assert launcher["args"] == ["/configs/ball.yaml", "--out", "/runs/ball_seed=4", "seed=4"]
    assert launcher["image"] == worker["containers"][0]["image"] == "registry:5000/us/mpies:2"
    assert parts["MPIJob"]["metadata"]["name"] == "mpies-ball-seed-4-767e52fc"
    assert "kubectl delete mpijob mpies-ball-seed-4-767e52fc " in ended.stdout
    assert parts["ConfigMap"]["metadata"]["name"] == "mpies-ball-seed-4-767e52fc-configs"
    assert parts["ConfigMap"]["data"] == {"ball.yaml": CONFIG}
    for role in ("Launcher", "Worker"):
        mounted = [volume for volume in specs[role]["template"]["spec"]["volumes"] if volume["name"] == "configs"]
        assert mounted == [{"name": "configs", "configMap": {"name": "mpies-ball-seed-4-767e52fc-configs"}}]
    assert specs["Launcher"]["template"]["spec"]["terminationGracePeriodSeconds"] == expected.warning


def test_no_job_takes_the_config_of_another(write_config, tmp_path, monkeypatch):
    """Two sweeps of one config, each in a file of the same name, and a job of the repository's overlays."""
    write_config(CONFIG, "ball.yaml")
    monkeypatch.chdir(tmp_path)
    base = HOME / "k8s/mpi-operator/overlays/sweep"
    found = {part["metadata"]["name"]: part for part in render(base) if part["kind"] == "ConfigMap"}
    for key in ("solver.sigma=0.1,0.2", "solver.population=64,128"):
        outcome = invoke("launch", "k8s", "ball.yaml", "--sweep", "--dry-run", "--base", base, key)
        assert outcome.code == 0, outcome.stderr
        made = [part for part in render(outcome.stdout.split()[-1]) if part["kind"] == "ConfigMap"]
        found |= {part["metadata"]["name"]: part for part in made}
    # Applied one after the other: what the jobs mount is still what they were started with.
    kept = [part["data"] for name, part in found.items() if name != "mpies-configs"]
    assert [list(yaml.safe_load(data["ball_sweep.yaml"])["vary"]) for data in kept] == [
        ["solver.sigma"],
        ["solver.population"],
    ]
    assert "lunar_lander_sweep.yaml" in found["mpies-configs"]["data"]


@pytest.mark.parametrize(
    ("name", "mode", "storage"), [("workstation", "ReadWriteOnce", "1Gi"), ("gke-minitaur", "ReadWriteMany", "1Ti")]
)
def test_a_job_builds_on_the_overlays_that_the_docs_name(name, mode, storage, write_config, tmp_path, monkeypatch):
    write_config(CONFIG, "ball.yaml")
    monkeypatch.chdir(tmp_path)
    size = ["--nodes", 3, "--ranks-per-node", 6, "--image", "mpies:local"]
    base = HOME / "k8s/mpi-operator/overlays" / name
    outcome = invoke("launch", "k8s", "ball.yaml", "--dry-run", "--base", base, *size)
    assert outcome.code == 0, outcome.stderr
    assert "base:" not in outcome.stdout
    parts = {part["kind"]: part for part in render("runs/ball.k8s")}
    claim = parts["PersistentVolumeClaim"]["spec"]
    assert (claim["accessModes"], claim["resources"]["requests"]["storage"]) == ([mode], storage)
    spec = parts["MPIJob"]["spec"]
    worker = spec["mpiReplicaSpecs"]["Worker"]
    assert (worker["replicas"], spec["slotsPerWorker"]) == (3, 6)
    assert worker["template"]["spec"]["containers"][0]["resources"]["limits"]["cpu"] == "6"
    assert spec["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]["args"][0] == "/configs/ball.yaml"


def render(folder):
    """The manifests of a folder of Kustomize."""
    done = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, check=True)
    return list(yaml.safe_load_all(done.stdout))


def test_launch_names_the_base_that_it_takes_where_none_is_given(write_config, tmp_path, monkeypatch):
    write_config(CONFIG, "ball.yaml")
    monkeypatch.chdir(tmp_path)
    said = invoke("launch", "k8s", "ball.yaml", "--dry-run").stdout
    assert "base: k8s/mpi-operator/base, whose volume many nodes must be able to write (ReadWriteMany); " in said


def test_a_config_is_sent_in_utf_8_whatever_the_locale(run_mpies, tmp_path, monkeypatch):
    for name, value in {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}.items():
        monkeypatch.setenv(name, value)
    text = "# Gr\u00f6\u00dfe\nenvironment: {id: 'function:sphere', dimension: 3}\n"
    (tmp_path / "ball.yaml").write_text(text, encoding="utf-8")
    ended = run_mpies(0, "launch", "k8s", "ball.yaml", "--dry-run")
    assert ended.code == 0, ended.stderr
    assert (tmp_path / "runs" / "ball.k8s" / "ball.yaml").read_text(encoding="utf-8") == text


@pytest.fixture
def folder(write_config, tmp_path, monkeypatch):
    """Where ball.yaml and a base are."""
    monkeypatch.chdir(tmp_path)
    write_config(CONFIG, "ball.yaml")
    make_base(tmp_path / "base")
    return tmp_path


def launch(*options):
    size = ["--nodes", "5", "--ranks-per-node", "8", "--base", "base", "--dry-run"]
    outcome = invoke("launch", "k8s", "ball.yaml", *size, *options, "seed=4")
    assert outcome.code == 0, outcome.stderr
    return outcome.stdout


def test_launch_says_which_image_it_asks_for_unless_one_is_given(folder):
    assert "image: mpies, which the nodes must have" in launch()
    assert "image:" not in launch("--image", "registry:5000/us/mpies:2")
    text = KUSTOMIZATION + "images: [{name: mpies, newName: registry/us/mpies, newTag: '3'}]\n"
    (folder / "base" / "kustomization.yaml").write_text(text)
    assert "image: registry/us/mpies:3, which" in launch()
