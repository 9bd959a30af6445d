"""Every recipe and variant is a valid config that trains, and the pages say what was measured and nothing else."""

import re

import pytest

from mpies.comm.serial import Serial
from mpies.config.loading import differences, load_config, resolved
from mpies.config.recipes import base_of, find_recipes
from mpies.launch.forecast.bench import temporary_run
from mpies.launch.forecast.dry_run import describe_needs
from mpies.report.records import RESULTS, describe_return, has_record, is_finished, is_reached, read_record
from mpies.runs.formats.policy_file import load_policy
from mpies.training.trainer import make_trainer
from tests.support import HOME, load_script

RECIPES = find_recipes()
RECORDED = {path.parent.name for path in RESULTS.glob("*/policy.h5")}
VARIANTS = [name for name in RECIPES if base_of(name) != name]

# Variant without a recorded policy, which would hold it, to the overrides of its recipe that it stands for.  What they
# leave to OpenAI-ES is named, since variants keep it where defaults change.
ADAM = "weight_decay: 0.005, optimizer: {learning_rate: 0.01}"
LINEAR = ["environment.adaptive=null", "policy={hidden: [], initial: zeros, statistics_fraction: 1}"]
OVERRIDES = {
    "ant-ars": [
        *LINEAR,
        "solver={kind: ars, population: 120, top: 20, sigma: 0.025, learning_rate: 0.015, alive_bonus: 1}",
        *("stop.generations=1000", "stop.target=2334", "evaluation.episodes=100"),
    ],
    "ant_bullet-cma": [
        *("environment={id: AntBulletEnv-v0, max_steps: 500}", "stop.generations=1000", "stop.target=900"),
        'policy={hidden: [64, 64], activation: relu, bins: "uniform:11", normalize_observations: false}',
        "solver={kind: cma_es, population: 100, episodes: 5, sigma: 0.1, covariance: diagonal}",
    ],
    "hopper-openai": ["policy={}", f"solver={{population: 256, sigma: 0.02, {ADAM}}}"],
    "pendulum_hidden_velocity-cma_5": [
        *("policy.normalize_observations=false", "evaluation.every=10", "checkpoint.every=10"),
        *("stop.generations=600", "stop.target=-335"),
        "solver={kind: cma_es, population: 50, episodes: 5, sigma: 0.5}",
    ],
    "pong-small": [
        *(f"solver={{population: 32, sigma: 0.005, {ADAM}}}", "evaluation={episodes: 4, every: 10}"),
        "stop.seconds=4560",
    ],
    "walker2d-ars": [
        *(*LINEAR, "stop.target=2994"),
        "solver={kind: ars, population: 80, top: 30, sigma: 0.025, learning_rate: 0.03, alive_bonus: 1}",
    ],
    "walker2d-openai": [
        *("environment.adaptive=null", "stop.target=2994", f"solver={{population: 256, sigma: 0.02, {ADAM}}}"),
    ],
}


def shrink(config):
    """Overrides that leave of a recipe one generation of a few short episodes."""
    small = ["stop={generations: 1}", "evaluation.episodes=1", "noise.size=2_000_000", "solver.episodes=1"]
    small += ["solver.population=4", *(["solver.top=2"] if config.solver.kind == "ars" else [])]
    small += ["solver.timesteps_per_batch=0"] if config.solver.kind == "openai_es" else []
    small += ["solver.interactions=0"] if config.solver.kind == "pgpe" else []
    small += ["policy.reference=4"] if config.policy.kind == "conv" else []
    return small + ([] if config.environment.function else ["environment.max_steps=5"])


@pytest.fixture(scope="module")
def script():
    """docs/build_recipes.py."""
    return load_script("docs/build_recipes.py")


def one_of_each_kind():
    """A recipe of each environment and kind of policy and solver: the others run the same code."""
    found = {}
    for name in RECIPES:
        config = load_config(name)
        found.setdefault((config.environment.id, config.policy.kind, config.solver.kind), name)
    return found.values()


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_has_the_parameters_that_its_heading_says(name, script):
    (count,) = re.findall(r"([\d,]+) parameters|none, (\d+)", script.read_heading(RECIPES[name]).policy)[:1]
    if name in RECORDED:  # without building its environment
        assert "".join(count) == f"{len(load_policy(name).arrays['parameters']):,}"
    else:
        assert re.search(rf"parameters +{''.join(count)}\b", describe_needs(load_config(name), 2))


@pytest.mark.parametrize("name", one_of_each_kind())
def test_a_recipe_trains_a_generation(name, here):
    small, comm = load_config(name, shrink(load_config(name))), Serial()
    with temporary_run(small, comm) as run:
        trainer = make_trainer(small, comm, run)
        trainer.restore()
        trainer.run_generation()
        assert trainer.control.stop_reason(trainer.learner) == "generations"
    assert trainer.learner.clock.generation == 1 and trainer.control.failed_share == 0


@pytest.mark.parametrize("name", sorted({*VARIANTS} - RECORDED | {*OVERRIDES}))
def test_a_variant_is_its_recipe_with_overrides(name):
    variant, recipe = resolved(load_config(name)), resolved(load_config(base_of(name), OVERRIDES[name]))
    assert differences(variant, recipe) == [] and variant == recipe


@pytest.mark.parametrize("name", RECIPES)
def test_a_heading_has_no_measured_text_and_variants_of_openai_es_name_what_defaults_may_change(name):
    head, _, settings = RECIPES[name].read_text().partition("\nenvironment:")
    assert not re.search(r"Status|mpies train|reached here|±|\+-|\bseed \d", head)
    if name in VARIANTS and ("openai" in name or name == "pong-small"):
        assert all(f"{key}: " in settings for key in ("sigma", "weight_decay", "learning_rate"))


def test_the_pages_of_recipes_are_the_generated_ones(script):
    pages = script.make_pages()
    assert {*(HOME / "docs/recipes").iterdir()} == {*pages} - {script.TABLE}
    for path, text in pages.items():
        assert path.read_text() == text, f"{path.name} is out of date: make docs"


def rows_of_the_table(script):
    """Name to row of the table of recipes, without the targets of links, and the targets of those names."""
    lines = [line for line in script.make_table().splitlines() if line.startswith("| [")]
    links = dict(re.match(r"\| \[([^]]+)\]\(([^)]+)\)", line).groups() for line in lines)
    return dict(zip(links, (re.sub(r"\]\([^)]*\)", "]", line) for line in lines), strict=True)), links


def test_the_table_has_a_row_for_each_recipe_that_leads_to_its_page(script):
    rows, links = rows_of_the_table(script)
    names = [name for name in RECIPES if base_of(name) == name]
    assert [name for name in rows if base_of(name) == name] == names
    assert all(links[name] == f"recipes/{name}.md" for name in names)
    for name, row in rows.items():
        assert len(row) <= 180, row  # a screen
        record = read_record(name) if has_record(name) else None
        if record is None:
            assert f"| {script.NOT_RUN} |" in row and "**" not in row
        elif is_finished(record) or is_reached(record):
            assert describe_return(record) in row and ("**" in row) == is_reached(record)
        else:
            assert "| not run to the end |" in row and "**" not in row


def test_variants_that_reached_the_mark_are_in_the_table_where_their_recipe_did_not(script, monkeypatch):
    rows, links = rows_of_the_table(script)
    shown = [name for name in rows if base_of(name) != name]
    assert shown == ["ant_bullet-walking", "bipedal_walker_hardcore-annealed", "pong_linear-deterministic"]
    assert links["ant_bullet-walking"] == "recipes/ant_bullet.md#ant_bullet-walking"
    assert list(rows).index("ant_bullet-walking") == list(rows).index("ant_bullet") + 1
    monkeypatch.setattr(script, "is_reached", lambda record: False)
    assert not any("-" in name for name in script.list_shown())


def test_steps_and_core_hours_of_the_table_include_those_of_the_policies_that_training_starts_from(script):
    assert script.trace_starts("ant_bullet-walking") == ["ant_bullet-light"] and script.trace_starts("rastrigin") == []
    starts = [*("_hardcore-annealed", "_hardcore-steady", "_hardcore-openai"), *("-steady", "-pepg")]
    first, *others = names = [f"bipedal_walker{name}" for name in starts]
    assert script.trace_starts(first) == others
    seeds = [read_record(name)["seeds"][0] for name in names]
    steps, hours = script.measure_cost(first, read_record(first))
    assert steps == sum(seed["steps"] for seed in seeds)
    assert hours == pytest.approx(sum(seed["core_seconds"] for seed in seeds) / 3600)
    assert f"| {steps / 1e6:.3g} M | {hours:.2g} |" in rows_of_the_table(script)[0][first]
    swimmer = read_record("swimmer")
    assert script.measure_cost("swimmer", swimmer)[0] == sorted(seed["steps"] for seed in swimmer["seeds"])[2]


def test_a_page_has_every_seed_also_those_that_failed(script, tmp_path, monkeypatch):
    record = read_record("swimmer")
    good = {**record["seeds"][0], "generation": 20, "seconds": 73.8, "ranks": 1, "core_seconds": 73.8}
    bad = {**good, "seed": 77, "ended": "generations", "reached": False, "steps": 1234567}
    dead = {**bad, "seed": 78, "ended": "not run to its end", "evaluation": None}
    over = {"interquartile_mean": 330.0, "interval_95": [20.0, 335.0]}
    monkeypatch.setattr(script, "read_record", lambda name: record | {"seeds": [good, bad, dead], "over_seeds": over})
    page = script.make_page("swimmer")
    assert "Mean return 330.0 (20.0 to 335.0). It is the interquartile mean" in page
    assert "1 of 3 seeds reached the mark of 325." in page
    assert "| 77 | last generation | not reached | 20 | 1,234,567 |" in page
    assert "| 78 | cut short | not reached |" in page and "| none |  |" in page
    assert "| **330.0 (20.0 to 335.0)** | 1.23 M | 0.021 | 1 of 3 reached |" in script.make_table()


def test_each_recipe_in_the_table_with_a_policy_that_can_be_shown_has_a_small_film(script):
    filmed = {path.parent.name for path in RESULTS.glob("*/*.gif")}
    shown = [name for name in script.list_shown() if (RESULTS / name / "policy.h5").exists()]
    functions = [name for name in shown if load_config(name).environment.function]
    assert set(shown) - set(functions) - filmed == {"ant_bullet"}  # it stands still
    assert all(path.stat().st_size < 300_000 for path in RESULTS.glob("*/film.gif"))
    assert "![The trained policy of walker2d](../../results/walker2d/film.gif)" in script.make_page("walker2d")


def test_a_page_says_what_its_figures_are_of_and_has_notes_pictures_and_commands(script):
    small, ant, lander = map(script.make_page, ("pong", "ant", "lunar_lander_18"))
    assert "It is over 20 held-out episodes, with its 95 % interval. 0 of 1 seed reached the mark of 20." in small
    assert "| 1 | target | reached | 180 |" in ant
    assert "| seed | ended by | generations |" in lander  # of the variants without a mark
    used = re.findall(
        r"^    mpies (?:play|evaluate) .*$", small + "".join(map(script.make_page, ("swimmer", "rastrigin"))), re.M
    )
    assert used == ["    mpies play swimmer", "    mpies play swimmer-ars", "    mpies evaluate rastrigin"]
    page = script.make_page("bipedal_walker")
    assert "## bipedal_walker-steady" in page and "    mpies train bipedal_walker-steady\n" in page
    assert (RESULTS / "bipedal_walker-pepg/notes.md").read_text() in page
    for link in re.findall(r"\]\(([^)]+)\)", page):
        assert (script.PAGES / link).exists(), link
    assert "No run of it is recorded." in script.make_page("walker2d")
