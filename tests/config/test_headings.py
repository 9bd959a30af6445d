"""The headings of recipes: fixed parts, each once."""

from mpies.config.recipes import base_of, find_recipes, read_task
from tests.support import load_script

DOCS = load_script("docs/build_recipes.py")
Heading, read_heading = DOCS.Heading, DOCS.read_heading

PARTS = {
    "task": "A ball on",
    "Policy": "linear.",
    "Solver": "ARS.",
    "Published": "9 (Them 2018).",
    "Budget": "an hour.",
}


def write(folder, parts, body="environment: {id: CartPole-v1}\n# Status: no part of the heading\n"):
    lines = [text if part == "task" else f"{part}: {text}" for part, text in parts.items()]
    path = folder / "ball.yaml"
    path.write_text("".join(f"# {line}\n" for line in lines) + body)
    return path


def test_a_heading_is_read_by_its_parts(tmp_path):
    path = write(tmp_path, PARTS | {"Notes": "a long\n#   one."})
    assert read_heading(path) == Heading("A ball on", "linear.", "ARS.", "9 (Them 2018).", "an hour.", "a long one.")
    path = write(tmp_path, {"task": "A ball on\n# a plate: round."} | {k: v for k, v in PARTS.items() if k != "task"})
    assert read_heading(path).task == "A ball on a plate: round." and read_heading(path).notes == ""


def test_every_variant_belongs_to_a_recipe():
    recipes = find_recipes()
    assert list(recipes) == sorted(recipes) and len(recipes) > 25
    for name, path in recipes.items():
        is_variant = path.parent.name == "variants"
        assert is_variant == (base_of(name) != name)
        assert recipes[base_of(name)].parent.name == "configs"
        assert read_task(path) == read_heading(path).task
