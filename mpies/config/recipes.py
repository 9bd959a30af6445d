"""What commands take in place of a config's path: the name of a recipe, or the id of an environment.

Recipes are the configs that come with mpies.  A variant is a recipe with other settings for the same task, such as
those of another publication; its name is RECIPE-VARIANT.  An id such as LunarLander-v3 stands for a config that names
this environment and nothing else.
"""

import difflib
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from mpies.core.errors import ConfigError
from mpies.core.paths import absolute
from mpies.envs.custom_env import is_custom

RECIPES = Path(__file__).resolve().parents[1] / "configs"  # in a checkout, a link to its configs/
RESULTS = RECIPES.with_name("results")  # likewise
_ID = re.compile(r"([\w.-]+[/:])*[\w.-]+-v\d+")


def find_recipes() -> dict[str, Path]:
    """Name to file of every recipe and variant, by name."""
    paths = [*RECIPES.glob("*.yaml"), *(RECIPES / "variants").glob("*.yaml")]
    return {path.stem: path for path in sorted(paths, key=lambda path: path.stem)}


def find_recorded_policies() -> dict[str, Path]:
    """Name to policy file of every recipe and variant whose trained policy comes with mpies, by name."""
    files = {name: RESULTS / name / "policy.h5" for name in find_recipes()}
    return {name: file for name, file in files.items() if file.exists()}


def find_nearest(name: str, known: Iterable[str]) -> list[str]:
    """The known names that are most like a mistyped one, nearest first; of a recipe among them, no further variant."""
    name = name.lower()
    matches = difflib.get_close_matches(name, list(known))
    matches = [one for one in matches if one == matches[0] or base_of(one) not in matches or base_of(one) == one]
    return [one for one in matches if len(name) <= 2 * len(one) - 1]  # "absent" does not mean "ant"


def tell_nearest(near: Sequence[str]) -> str:
    """What an error says of the names that `find_nearest` has found; '' without any."""
    return f"the nearest are {', '.join(near)}" if len(near) > 1 else f"the nearest is {near[0]}" if near else ""


def base_of(name: str) -> str:
    """The name of the recipe that a variant belongs to; of a recipe, its own."""
    return name.partition("-")[0]


def read_task(path: Path) -> str:
    """The task of a recipe in words: what the comment at the beginning of its file says before `Policy:`."""
    heading = path.read_text(encoding="utf-8").partition("# Policy:")[0]
    return " ".join(heading.replace("#", " ").split())


def is_environment_id(name_or_path: str | Path) -> bool:
    """Whether a text that is neither a file nor a recipe has the form of an environment's id.

    These are gymnasium's, NAME-v0, with a namespace or a module before it; and the user's own, path/to/file.py:name.
    """
    folder = Path(name_or_path).parent
    is_path = folder.name != "" and os.path.isdir(absolute(folder))
    return is_custom(str(name_or_path)) or (not is_path and bool(_ID.fullmatch(str(name_or_path))))


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
    near = [known[name] for name in find_nearest(path.stem, known)]
    cure = (
        tell_nearest(near)
        or f"give the path of a YAML file, an environment's id, or a recipe's name: {', '.join(recipes)}"
    )
    raise ConfigError(f"{path}: cannot be read (No such file or directory); {cure}")
