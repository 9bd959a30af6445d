"""The images of an MPIJob: what they are called, and what another one takes the place of."""

import re
from collections.abc import Mapping, Sequence
from typing import Any


def describe_image(image: str) -> str:
    """A line that says which image the pods of a job will ask for where no other one is given."""
    name, tag = _split_image(image)
    first, slash, _ = name.partition("/")
    has_registry = bool(slash) and (first == "localhost" or "." in first or ":" in first)
    path = "" if has_registry else "docker.io/" if slash else "docker.io/library/"
    known = f"{path}{image}" if tag or "@" in image else f"{path}{image}:latest"
    where = "" if has_registry else ", unless they have it already; for your own image add --image REGISTRY/NAME:TAG"
    return f"image: {image}, which the nodes pull as {known}{where}"


def own_images(mpijob: Mapping[str, Any]) -> list[str]:
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


def set_images(mpijob: Mapping[str, Any], images: Sequence[Mapping[str, str]]) -> None:
    """Change the names of images as `images` of a kustomization says."""
    for container in _containers(mpijob):
        for entry in images:
            if match := re.fullmatch(re.escape(entry["name"]) + "([:@][^/]*)?", container["image"]):
                tag = f":{entry['newTag']}" if "newTag" in entry else match[1] or ""
                tag = f"@{entry['digest']}" if "digest" in entry else tag
                container["image"] = entry.get("newName", entry["name"]) + tag


def _containers(mpijob: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The containers of the workers and of the launcher."""
    replicas = mpijob["spec"]["mpiReplicaSpecs"]
    return [
        container for role in ("Worker", "Launcher") for container in replicas[role]["template"]["spec"]["containers"]
    ]


def _split_image(image: str) -> tuple[str, str]:
    """The name and the tag of an image, '' without one; its digest is left out."""
    whole = image.partition("@")[0]
    name, _, tag = whole.rpartition(":")
    return (name, tag) if name and "/" not in tag else (whole, "")  # the colon may be that of a registry's port
