"""What the tests of the manifests share: rendered overlays, and the image built from the project's Dockerfile."""

import functools
import os
import shutil
from pathlib import Path

import pytest
import yaml

from tests.k8s.local_job import run
from tests.support import HOME

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
    if "kustomizeVersion" not in run("kubectl", "version", "--client", "-o", "json", check=False).stdout:
        pytest.skip("this kubectl is too old to say which kustomize it has (1.24 does)")
    return render(OPERATOR / "overlays" / overlay)


def render(folder):
    """The manifests that a folder of Kustomize makes."""
    return [document for document in yaml.safe_load_all(run("kubectl", "kustomize", folder).stdout) if document]


def one(documents, kind):
    """The only manifest of this kind."""
    (found,) = [document for document in documents if document["kind"] == kind]
    return found


@pytest.fixture(scope="session")
def image():
    """localhost/mpies built from the Dockerfile on a Debian 12 made here, as no registry of images is reached.

    Its size in bytes, unpacked.
    """
    missing = [tool for tool in ("buildah", "podman", "crun", "mmdebstrap") if not shutil.which(tool)]
    if os.geteuid() or missing:
        pytest.skip("needs root" if os.geteuid() else f"needs {', '.join(missing)} (tests/install.sh)")
    STORE.mkdir(exist_ok=True)
    storage = f'[storage]\ndriver = "overlay"\ngraphroot = "{STORE}/graph"\nrunroot = "{STORE}/run"\n'
    (STORE / "storage.conf").write_text(storage)
    engine = '[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n[containers]\ncgroups = "disabled"\n'
    (STORE / "containers.conf").write_text(engine)
    os.environ |= {
        "CONTAINERS_STORAGE_CONF": str(STORE / "storage.conf"),
        "CONTAINERS_CONF": str(STORE / "containers.conf"),
        "BUILDAH_ISOLATION": "chroot",
        "TMPDIR": "/var/tmp",
    }
    import_base()
    # The machine's own settings for certificates and pip are lent to the build, not written into the image.
    lent = [path for path in ("/etc/ssl/certs", "/etc/pip.conf") if Path(path).exists()]
    # What a build mounts is gone with it, however it ends.
    command = ["unshare", "--mount", "--propagation", "private", "buildah", "bud", "--layers", "--force-rm"]
    command += ["--network=host", "--build-arg", "BASE=localhost/debian:bookworm"]
    command += [word for path in lent for word in ("-v", f"{path}:{path}:ro")]
    command += ["-t", "localhost/mpies", "-f", OPERATOR / "Dockerfile", HOME]
    done = run(*command, check=False, timeout=1800)
    unreached = "Temporary failure resolving", "Could not connect to", "NewConnectionError", "Failed to fetch"
    if done.returncode and any(sign in done.stderr for sign in unreached):  # of apt or pip
        pytest.skip(f"the packages for the image cannot be reached: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr[-4000:]
    return int(run("podman", "image", "inspect", "--format", "{{.Size}}", "localhost/mpies").stdout)


def import_base():
    """localhost/debian:bookworm, with as little in it as Debian's own slim image."""
    if not run("podman", "image", "exists", "localhost/debian:bookworm", check=False).returncode:
        return
    archive = STORE / "base.tar"
    command = ["mmdebstrap", "--variant=minbase", "--include=ca-certificates"]
    command += [f"--dpkgopt=path-exclude=/usr/share/{part}/*" for part in ("doc", "man", "locale")]
    command.append('--customize-hook=rm -rf "$1"/var/lib/apt/lists/* "$1"/var/cache/apt/*')
    done = run(*command, "bookworm", archive, check=False, timeout=900)
    if done.returncode:
        pytest.skip(f"no Debian can be made here: {done.stderr.splitlines()[-1]}")
    run("podman", "import", "-q", archive, "localhost/debian:bookworm")
    archive.unlink()
