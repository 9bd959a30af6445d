"""Recipes: the configs that come with mpies, which commands take by name in place of a path."""

import difflib
from pathlib import Path

from mpies.errors import ConfigError
from mpies.paths import absolute

RECIPES = Path(__file__).resolve().parents[1] / "configs"  # in a checkout, a link to its configs/


def find_recipes() -> dict[str, Path]:
    """Name to file of every recipe, by name."""
    return {path.stem: path for path in sorted(RECIPES.glob("*.yaml"))}


def find_config(name_or_path: str | Path) -> Path:
    """The file of a config: a path that exists, as it was given, or else the recipe of this name.

    Raises ConfigError, with the nearest names, where it is neither.
    """
    path, recipes = Path(name_or_path), find_recipes()
    try:
        exists, is_folder = absolute(path).exists(), absolute(path).is_dir()
    except OSError:  # such as a name that is too long: reading the file tells
        return path
    if str(path) in recipes and (is_folder or not exists):
        return recipes[str(path)]
    if exists:
        return path
    beside = {file.stem: str(path.with_name(file.name)) for file in sorted(absolute(path).parent.glob("*.y*ml"))}
    known = {name: name for name in recipes} | beside
    near = [known[name] for name in difflib.get_close_matches(path.stem.lower(), known)]
    cure = f"the nearest are {', '.join(near)}" if len(near) > 1 else f"the nearest is {near[0]}" if near else ""
    cure = cure or f"give the path of a YAML file, or the name of a recipe: {', '.join(recipes)}"
    raise ConfigError(f"{path}: cannot be read (No such file or directory); {cure}")
