"""What a run on Kubernetes costs, told from its overlay, and which image it asks for."""

import re
import shutil

import pytest

from mpies.core.errors import ConfigError
from mpies.launch import kubernetes
from mpies.launch.cost import predict_run
from tests.launch.examples import CONFIG, CONSTANTS
from tests.launch.test_kubernetes import BASE, KUSTOMIZATION
from tests.support import HOME, assert_refused, invoke

OVERLAYS = HOME / "k8s/mpi-operator/overlays"
needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl")


@pytest.fixture
def folder(write_config, tmp_path, monkeypatch):
    """Where ball.yaml, its constants and a base are."""
    monkeypatch.chdir(tmp_path)
    write_config(CONFIG, "ball.yaml")
    (tmp_path / "constants.yaml").write_text(CONSTANTS)
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "mpijob.yaml").write_text(BASE)
    (tmp_path / "base" / "kustomization.yaml").write_text(KUSTOMIZATION)
    return tmp_path


def launch(*options):
    size = ["--nodes", "5", "--ranks-per-node", "8", "--base", "base", "--dry-run"]
    outcome = invoke("launch", "k8s", "ball.yaml", *size, *options, "seed=4")
    assert outcome.code == 0, outcome.stderr
    return outcome.stdout


@needs_kubectl
def test_simulate_says_what_an_overlay_costs(folder):
    launch()
    outcome = invoke("simulate", "runs/ball_seed=4.k8s", "--constants", "constants.yaml", "--price", "0.05")
    assert outcome.code == 0, outcome.stderr
    line = outcome.stdout.strip().splitlines()[-1]
    found = re.fullmatch(
        r"runs/ball_seed=4.k8s: 5 workers x 8 ranks, 500 generations: (\S+) h and (\S+) of the currency of --price "
        r"with episodes as measured, at most (\S+) h and (\S+); less if the run is solved earlier",
        line,
    )
    seconds = predict_run("ball.yaml", ("seed=4",), "constants.yaml", 5, 8)
    hours = [length / 3600 for length in seconds]
    assert [float(text) for text in found.groups()] == pytest.approx(
        [hours[0], 40 * hours[0] * 0.05, hours[1], 40 * hours[1] * 0.05], rel=0.01, abs=0.005
    )
    assert hours[0] < hours[1]
    assert "cost/500" in outcome.stdout  # the table is for its number of generations, and
    assert re.search(r"^ +40 ", outcome.stdout, re.MULTILINE)  # of ranks


@needs_kubectl
def test_an_environment_of_the_users_has_the_constants_that_were_measured_here(folder, write_config):
    (folder / "own.py").write_text("def value(x):\n    return -float(x @ x)\n")
    write_config(CONFIG.replace("function:sphere", "own.py:value"), "ball.yaml")
    (folder / "constants.yaml").write_text(CONSTANTS.replace("function:sphere", "own.py:value"))
    launch()
    assert "environment.id=/configs/own.py:value" in (folder / "runs/ball_seed=4.k8s/kustomization.yaml").read_text()
    outcome = invoke("simulate", "runs/ball_seed=4.k8s", "--constants", "constants.yaml")
    assert outcome.code == 0 and "5 workers x 8 ranks, 500 generations" in outcome.stdout, outcome.stderr
    assert kubernetes.read_overlay("runs/ball_seed=4.k8s").overrides == ("seed=4",)


@needs_kubectl
def test_generations_and_core_hours(folder):
    launch()
    outcome = invoke("simulate", "runs/ball_seed=4.k8s", "--constants", "constants.yaml", "--generations", "7")
    assert "5 workers x 8 ranks, 7 generations:" in outcome.stdout and " core hours with " in outcome.stdout


@needs_kubectl
@pytest.mark.parametrize("name", sorted(path.name for path in OVERLAYS.iterdir() if path.name != "sweep"))
def test_every_overlay_of_the_repository_can_be_read(name):
    found = kubernetes.read_overlay(OVERLAYS / name)
    assert (HOME / "configs" / f"{found.config}.yaml").exists()
    assert (found.workers, found.ranks_per_worker) == {
        "workstation": (2, 1),
        "gke-minitaur": (5, 62),
        "kueue": (5, 62),
    }.get(name, (17, 62))


@needs_kubectl
def test_a_sweep_is_not_one_run():
    with pytest.raises(
        ConfigError, match=r"trains a sweep; for its cost use mpies sweep \S+lunar_lander_sweep\.yaml --dry-run"
    ):
        kubernetes.read_overlay(OVERLAYS / "sweep")


@needs_kubectl
def test_what_has_no_single_run_or_config_is_refused(folder):
    empty = folder / "empty"
    empty.mkdir()
    (empty / "kustomization.yaml").write_text("configMapGenerator: [{name: x, literals: [a=b]}]\n")
    assert_refused(invoke("simulate", "empty"), "has 0 MPIJobs, but one was expected")
    assert_refused(invoke("simulate", "base"), "its launcher trains 'a', which is neither in this folder nor")
    (empty / "kustomization.yaml").write_text("resources: [absent.yaml]\n")
    with pytest.raises(ConfigError, match=r"empty: kubectl kustomize says: .*absent"):
        kubernetes.read_overlay(empty)
    assert_refused(invoke("simulate", OVERLAYS / "gke-minitaur"), "measure it with mpies bench minitaur --out FILE")


@pytest.mark.parametrize(
    ("image", "asked"),
    [
        ("mpies", "docker.io/library/mpies:latest, unless"),
        ("us/mpies:2", "docker.io/us/mpies:2, unless"),
        ("localhost/mpies:2", "localhost/mpies:2"),
        ("registry:5000/mpies", "registry:5000/mpies:latest"),
        ("europe-docker.pkg.dev/us/mpies@sha256:0a", "europe-docker.pkg.dev/us/mpies@sha256:0a"),
    ],
)
def test_an_image_is_named_as_the_nodes_will_ask_for_it(image, asked):
    line = kubernetes.describe_image(image)
    assert line.startswith(f"image: {image}, which the nodes pull as {asked}")
    assert ("--image REGISTRY/NAME:TAG" in line) == ("unless" in asked)


def test_launch_says_which_image_it_asks_for_unless_one_is_given(folder):
    assert "image: mpies, which the nodes pull as docker.io/library/mpies:latest" in launch()
    assert "image:" not in launch("--image", "registry:5000/us/mpies:2")
    text = KUSTOMIZATION + "images: [{name: mpies, newName: registry/us/mpies, newTag: '3'}]\n"
    (folder / "base" / "kustomization.yaml").write_text(text)
    assert "image: registry/us/mpies:3, which" in launch()
