"""The targets for GKE as make prints them: what they make costs nothing when no run needs it, and is all removed."""

import re
import subprocess

import pytest

from tests.k8s.conftest import OVERLAYS, one, rendered
from tests.support import HOME

ARGUMENTS = ("PROJECT=some-project", "ZONE=europe-west4-b", "CLUSTER=some-cluster", "CONTAINER=podman")


def printed(target, *arguments):
    """The commands of a target, each on one line."""
    command = ["make", "--dry-run", target, *ARGUMENTS, *arguments]
    done = subprocess.run(command, cwd=HOME, capture_output=True, text=True, check=True)
    return done.stdout.replace("\\\n", " ").splitlines()


@pytest.mark.parametrize("overlay", [name for name in OVERLAYS if name != "workstation"])
def test_the_pool_of_workers_scales_to_zero_and_only_they_may_use_it(overlay):
    """Any other pod there would keep its machine alive."""
    (command,) = [line for line in printed("gke-cluster", "NODES=5") if "node-pools create workers" in line]
    assert all(f"{option} " in f"{command} " for option in ("--enable-autoscaling", "--num-nodes 0", "--min-nodes 0"))
    assert "--max-nodes 5 " in command
    key, value, effect = re.search(r"--node-taints ([^= ]+)=([^: ]+):(\w+)", command).groups()
    tolerated = {"key": key, "operator": "Equal", "value": value, "effect": effect}
    documents = rendered(overlay)
    job = one(documents, "MPIJob")["spec"]["mpiReplicaSpecs"]
    worker = job["Worker"]["template"]["spec"]
    assert tolerated in worker["tolerations"] and worker["nodeSelector"]["cloud.google.com/gke-nodepool"] == "workers"
    others = [job["Launcher"]["template"]["spec"], one(documents, "Deployment")["spec"]["template"]["spec"]]
    assert not any("tolerations" in spec for spec in others)


@pytest.mark.parametrize(
    ("image", "name", "tag"),
    [("mpies:local", "mpies", "local"), ("registry:5000/us/mpies", "registry:5000/us/mpies", "latest")],
)
def test_an_image_needs_no_tag(image, name, tag):
    (line,) = [line for line in printed("gke-manifests", f"IMAGE={image}") if "images:" in line]
    assert f'images: [{{name: mpies, newName: {name}, newTag: "{tag}"}}]' in line


def test_the_cost_is_said_before_anything_is_made():
    lines = printed("gke-cluster", "PRICE=0.05", "CONSTANTS=c.yaml", "CONFIG=minitaur", "RANKS=310")
    cost = next(number for number, line in enumerate(lines) if "mpies simulate" in line)
    assert cost < next(number for number, line in enumerate(lines) if line.startswith("gcloud"))
    assert lines[cost].endswith("simulate minitaur --ranks 310 --constants c.yaml --price 0.05")
    assert not any("simulate" in line for line in printed("gke-cluster"))


def test_what_is_made_is_deleted_and_the_rest_is_listed():
    """Each `create` has its `delete`; the volume goes before the cluster whose driver deletes it; the end is a list."""
    made = set(re.findall(r"gcloud ([a-z -]+?) create (\S+)", "\n".join(printed("gke-cluster"))))
    assert made == {
        ("artifacts repositories", "mpies"),
        ("container clusters", "some-cluster"),
        ("container node-pools", "workers"),  # goes with its cluster
    }
    text = "\n".join(printed("gke-delete"))
    assert set(re.findall(r"gcloud ([a-z -]+?) delete ([\w-]+)", text)) == made - {("container node-pools", "workers")}
    assert text.index("kubectl kustomize") < text.index("wait --for=delete") < text.index("clusters delete")
    listed = re.findall(r"^gcloud ([a-z ]+) list --project some-project", text, re.MULTILINE)
    machines, disks = ["container clusters", "compute instances"], ["compute disks", "filestore instances"]
    assert listed[-6:] == [*machines, *disks, "artifacts repositories", "storage buckets"]
    assert text.rindex(" delete ") < text.index("gcloud container clusters list")


@pytest.mark.parametrize(("target", "count"), [("gke-delete", 4), ("gke-train", 2)])
def test_nothing_is_changed_in_another_cluster(target, count):
    """kubectl may be looking elsewhere, so the context is named."""
    commands = re.findall(r"kubectl (?!kustomize)[^|&;}\n]*", "\n".join(printed(target)))
    assert len(commands) == count
    assert all("--context gke_some-project_europe-west4-b_some-cluster" in command for command in commands)
