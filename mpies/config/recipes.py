"""What commands take in place of a config's path: the name of a recipe, or the id of an environment.

Recipes are the configs that come with mpies.  An id such as LunarLander-v3 stands for a config that names this
environment and nothing else.
"""

import difflib
import os
import re
from pathlib import Path

from mpies.envs.own import is_own
from mpies.errors import ConfigError
from mpies.paths import absolute

RECIPES = Path(__file__).resolve().parents[1] / "configs"  # in a checkout, a link to its configs/
_ID = re.compile(r"([\w.-]+[/:])*[\w.-]+-v\d+")


def find_recipes() -> dict[str, Path]:
    """Name to file of every recipe, by name."""
    return {path.stem: path for path in sorted(RECIPES.glob("*.yaml"))}


def is_environment_id(name_or_path: str | Path) -> bool:
    """Whether a text that is neither a file nor a recipe has the form of an environment's id.

    These are gymnasium's, NAME-v0, with a namespace or a module before it; and the user's own, path/to/file.py:name.
    """
    folder = Path(name_or_path).parent
    is_path = folder.name != "" and os.path.isdir(absolute(folder))
    return is_own(str(name_or_path)) or (not is_path and bool(_ID.fullmatch(str(name_or_path))))


def find_config(name_or_path: str | Path) -> Path:
    """The file of a config: a path that exists, as it was given, or else the recipe of this name.

    An environment's id is returned as it was given.  Raises ConfigError, with the nearest names, for anything else.
    """
    path, recipes = Path(name_or_path), find_recipes()
    try:
        exists, is_folder = absolute(path).exists(), absolute(path).is_dir()
    except OSError:  # such as a name that is too long: reading the file tells
        return path
    if str(path) in recipes and (is_folder or not exists):
        return recipes[str(path)]
    if exists or is_environment_id(path):
        return path
    beside = {file.stem: str(path.with_name(file.name)) for file in sorted(absolute(path).parent.glob("*.y*ml"))}
    known = {name: name for name in recipes} | beside
    stem = path.stem.lower()
    matches = difflib.get_close_matches(stem, known)
    near = [known[name] for name in matches if len(stem) <= 2 * len(name) - 1]  # "absent" does not mean "ant"
    cure = f"the nearest are {', '.join(near)}" if len(near) > 1 else f"the nearest is {near[0]}" if near else ""
    cure = cure or f"give the path of a YAML file, an environment's id, or a recipe's name: {', '.join(recipes)}"
    raise ConfigError(f"{path}: cannot be read (No such file or directory); {cure}")
