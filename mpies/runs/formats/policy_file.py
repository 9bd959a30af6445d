"""Policy files: the mean of a run with its config, for other programs and later runs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mpies.config.loading import parse_settings, validate_saved
from mpies.config.recipes import find_nearest, find_recipes, find_recorded_policies
from mpies.config.schema import Config
from mpies.core.errors import ConfigError, RunError
from mpies.core.paths import absolute
from mpies.core.text import describe_error
from mpies.envs.base import Interface
from mpies.policies.base import Architecture
from mpies.runs.files import write_atomically
from mpies.runs.formats import hdf5
from mpies.runs.formats.hdf5 import Arrays
from mpies.runs.reader import find_runs, is_run


@dataclass(frozen=True)
class PolicyFile:
    """A policy as it was saved.

    arrays: `parameters` (d,) float32, `normalization` (2, o) float32, `normalizer/*` (the statistics behind it) and
    `constants/*`, among them the packed Interface of the environment.  attributes: `generation`, `config`, `signature`
    (mpies.config.trust), and of the best policy `eval_mean`, `eval_std`, `eval_episodes`.
    """

    path: Path
    config: Config
    arrays: Arrays
    attributes: dict[str, Any]

    @property
    def generation(self) -> int:
        return int(self.attributes["generation"])

    @property
    def constants(self) -> Arrays:
        """Names to arrays that are no parameters, but part of the policy all the same."""
        return select(self.arrays, "constants/")

    @property
    def interface(self) -> Interface | None:
        """Of the environment, without its own spaces; None in a file of an older mpies, and of a function."""
        packed = self.constants.get("interface")
        return None if packed is None else Interface.unpack(packed)

    def require_size(self, policy: Architecture) -> None:
        """Raise ConfigError where the arrays are not of the size that this policy has in its environment."""
        observations = policy.interface.observation_size if policy.options.normalize_observations else 0
        found = self.arrays["parameters"].size, self.arrays["normalization"].shape[1]
        if found[0] != policy.size or (observations and found[1] != observations):
            raise ConfigError(
                f"{self.path}: has {found[0]:,} parameters and statistics of {found[1]:,} observations, but this "
                f"policy for {self.config.environment.id} has {policy.size:,} and {observations:,}; is it the "
                "environment that the policy was trained in?"
            )

    def save(self, path: str | Path) -> None:
        """Write it to a file.  Raises OSError where that is not possible."""
        write_atomically(path, hdf5.pack(self.arrays, self.attributes))


def find_policy(path: str | Path) -> Path:
    """The policy file of a run directory (the best so far, else the newest), the file itself, or that of a recipe.

    path: a run or file of this name comes before a recipe.
    Raises RunError where there is none, where the run has none yet, and for a folder that is no run.
    """
    path = Path(path)
    place, recorded = absolute(path), find_recorded_policies()
    for name in ("best.h5", "policy.h5"):
        if (place / name).exists():
            return path / name
    if is_run(place):
        raise RunError(f"{path}: contains no policy yet; the first is saved at the first evaluation or checkpoint")
    if str(path) in recorded and (place.is_dir() or not place.exists()):
        return recorded[str(path)]
    if not place.exists():
        raise RunError(_explain_absent(path, recorded))
    if not place.is_dir():
        return path
    below = [str(path / name) for name in find_runs(place, depth=2) if name != "."]
    cure = f"give one of the runs in it, such as {below[0]}" if below else "give a run directory or a policy file"
    raise RunError(f"{path}: is a folder, but not a run; {cure}")


def _explain_absent(path: Path, recorded: Iterable[str]) -> str:
    """The message for a path at which nothing is.  recorded: the recipes that have a policy."""
    if str(path) in find_recipes():
        return f"{path}: no policy of this recipe comes with mpies; train it with mpies train {path}"
    near = find_nearest(path.stem, recorded)
    cure = f"give a run directory, a policy file, or the name of a recipe{f', such as {near[0]}' if near else ''}"
    return f"{path}: cannot be read (No such file or directory); {cure}"


def load_policy(path: str | Path) -> PolicyFile:
    """The policy of a file or a recipe, or the best one of a run directory.  Raises RunError or ConfigError."""
    file = find_policy(path)
    arrays, attributes = hdf5.read(file)
    if "parameters" not in arrays:
        raise RunError(f"{file}: is not a policy; give a run directory, best.h5 or policy.h5")
    try:
        values = dict(parse_settings(attributes["config"]))
        policy = PolicyFile(file, validate_saved(values, attributes.get("signature"), str(file)), arrays, attributes)
        _check(policy)
    except (ConfigError, RunError) as error:
        raise type(error)(f"{file}: {error}" if str(file) not in str(error) else str(error)) from None
    except Exception as error:  # PyYAML raises many kinds; the checksum is right, so a stranger has written it
        raise RunError(f"{file}: is not a policy as mpies writes it ({describe_error(error)})") from None
    return policy


def _check(policy: PolicyFile) -> None:
    """Raise ValueError, or another exception, where a file has not what PolicyFile says."""
    for name, dimensions in (("parameters", 1), ("normalization", 2)):
        found = np.asarray(policy.arrays[name])
        if found.dtype.kind != "f" or found.ndim != dimensions or (dimensions == 2 and len(found) != 2):
            raise ValueError(f"{name} has {found.dtype} of shape {found.shape}")
    if policy.generation < 0 or (policy.interface and policy.interface.observation_size < 1):
        raise ValueError("its generation, or the number of its observations, is below its least")


def select(arrays: Mapping[str, Any], prefix: str) -> Arrays:
    """The arrays whose names begin with `prefix`, without it."""
    return {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}
