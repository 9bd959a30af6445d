"""What the tests of the manifests share: rendered overlays, and the image built from the project's Dockerfile."""

import functools
import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

HOME = Path(__file__).resolve().parents[2]
OPERATOR = HOME / "k8s/mpi-operator"
OVERLAYS = sorted(path.name for path in (OPERATOR / "overlays").iterdir())
STORE = Path("/var/tmp/mpies-k8s")  # images and what they are built from; kept, so that a second run builds nothing


def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("k8s") and "MPIES_TEST_K8S" not in os.environ:
            item.add_marker(pytest.mark.skip(reason="takes minutes and installs packages: make test-k8s"))


@functools.cache
def rendered(overlay):
    """The manifests of an overlay; skips where there is no kubectl that renders them."""
    if not shutil.which("kubectl"):
        pytest.skip("there is no kubectl")
    version = subprocess.run(["kubectl", "version", "--client", "-o", "json"], capture_output=True, text=True)
    if "kustomizeVersion" not in version.stdout:
        pytest.skip("this kubectl is too old to say which kustomize it has (1.24 does)")
    return render(OPERATOR / "overlays" / overlay)


def render(folder):
    """The manifests that a folder of Kustomize makes."""
    done = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def one(documents, kind):
    """The only manifest of this kind."""
    (found,) = [document for document in documents if document["kind"] == kind]
    return found


@dataclass(frozen=True)
class Image:
    """An image as it was built."""

    size: int  # bytes, unpacked
    seconds: float  # that the build took


@pytest.fixture(scope="session")
def image():
    """localhost/mpies built from the Dockerfile on a Debian 12 made here, as no registry of images is reached."""
    missing = [tool for tool in ("buildah", "podman", "crun", "mmdebstrap") if not shutil.which(tool)]
    if os.geteuid() or missing:
        pytest.skip("needs root" if os.geteuid() else f"needs {', '.join(missing)} (tests/install.sh)")
    STORE.mkdir(exist_ok=True)
    (STORE / "storage.conf").write_text(
        f'[storage]\ndriver = "overlay"\ngraphroot = "{STORE}/graph"\nrunroot = "{STORE}/run"\n'
    )
    (STORE / "containers.conf").write_text(
        '[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n[containers]\ncgroups = "disabled"\n'
    )
    os.environ |= {
        "CONTAINERS_STORAGE_CONF": str(STORE / "storage.conf"),
        "CONTAINERS_CONF": str(STORE / "containers.conf"),
        "BUILDAH_ISOLATION": "chroot",
        "TMPDIR": "/var/tmp",
    }
    import_base()
    began = time.monotonic()
    # The machine's own settings for certificates and pip are lent to the build, not written into the image.
    lent = [path for path in ("/etc/ssl/certs", "/etc/pip.conf") if Path(path).exists()]
    # What a build mounts is gone with it, however it ends.
    command = ["unshare", "--mount", "--propagation", "private", "buildah", "bud", "--layers", "--force-rm"]
    command += ["--network=host", "--build-arg", "BASE=localhost/debian:bookworm"]
    command += [word for path in lent for word in ("-v", f"{path}:{path}:ro")]
    done = call(*command, "-t", "localhost/mpies", "-f", OPERATOR / "Dockerfile", HOME, timeout=1800)
    if done.returncode and is_offline(done.stderr):
        pytest.skip(f"the packages for the image cannot be reached: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr[-4000:]
    size = call("podman", "image", "inspect", "--format", "{{.Size}}", "localhost/mpies").stdout
    return Image(int(size), time.monotonic() - began)


def import_base():
    """localhost/debian:bookworm, with as little in it as Debian's own slim image."""
    if not call("podman", "image", "exists", "localhost/debian:bookworm").returncode:
        return
    archive = STORE / "base.tar"
    command = ["mmdebstrap", "--variant=minbase", "--include=ca-certificates"]
    command += [f"--dpkgopt=path-exclude=/usr/share/{part}/*" for part in ("doc", "man", "locale")]
    command.append('--customize-hook=rm -rf "$1"/var/lib/apt/lists/* "$1"/var/cache/apt/*')
    done = call(*command, "bookworm", archive, timeout=900)
    if done.returncode:
        pytest.skip(f"no Debian can be made here: {done.stderr.splitlines()[-1]}")
    assert call("podman", "import", "-q", archive, "localhost/debian:bookworm").returncode == 0
    archive.unlink()


def call(*command, timeout=300):
    """A command to its end."""
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)


def is_offline(text):
    """Whether a build failed because apt or pip reached nothing."""
    signs = ("Temporary failure resolving", "Could not connect to", "NewConnectionError", "Failed to fetch")
    return any(sign in text for sign in signs)
