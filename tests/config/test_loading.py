"""Configs are read from YAML files and overrides, validated, and written back; commands find them by name or id too."""

import sys

import pytest

from mpies.config.loading import as_yaml, differences, load_config, make_config, parse_value, resolved, validate_config
from mpies.config.recipes import find_config, find_recipes
from mpies.core.errors import ConfigError
from mpies.runs.formats.metrics import read_metrics
from mpies.sweeps.settings import read_override
from mpies.training.update import make_solver
from tests.config.examples import CARTPOLE, SPHERE
from tests.support import HOME, invoke


def test_an_override_of_a_section_that_is_written_in_short_keeps_its_kind(write_config):
    path = write_config(CARTPOLE + "noise: low_rank\nsolver: snes")
    config = load_config(path, ["noise.size=1000000", "solver.sigma=0.3", "solver.kind=openai_es"])
    assert (config.noise.kind, config.noise.size) == ("low_rank", 1_000_000)
    assert (config.solver.kind, config.solver.sigma) == ("openai_es", 0.3)
    assert load_config(path, ["noise=full", "noise=low_rank", "noise.rank=2", "solver=openai_es"]).noise.rank == 2
    values = {"environment": {"id": "CartPole-v1"}, "noise": "low_rank"}
    assert make_config(values, ["noise.size=1000"], "here").noise.size == 1000 and values["noise"] == "low_rank"
    for override, section in (("noise.size=3", "noise: low_rnak"), ("x.y=3", "x: full"), ("stop.steps=3", "stop: mlp")):
        with pytest.raises(ConfigError, match="and not a section"):
            load_config(write_config(CARTPOLE + section), [override])


def test_overrides_replace_values_of_the_file_and_the_last_one_counts(write_config):
    path = write_config(CARTPOLE + "solver: {sigma: 0.5, population: 10}\nstop: {target: 3}")
    overrides = ["solver.sigma=1e-3", "solver.optimizer.kind=sgd", "policy.hidden=[4, 5]", "stop.target=null"]
    config = load_config(path, overrides)
    assert (config.solver.sigma, config.solver.population, config.solver.optimizer.kind) == (0.001, 10, "sgd")
    assert (config.policy.hidden, config.stop.target) == ([4, 5], None)
    assert load_config(path, ["seed=2", "seed=3"]).seed == 3


def test_an_override_changes_one_section_where_an_alias_stands_for_two(write_config):
    path = write_config(CARTPOLE + "evaluation: &often {every: 5}\ncheckpoint: *often\n")
    config = load_config(path, ["evaluation.every=7"])
    assert (config.evaluation.every, config.checkpoint.every) == (7, 5)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{a: &x {k: 1, m: 2}, b: {<<: *x, k: 3}}", {"k": 3, "m": 2}),
        ("{a: &x {k: 1, m: 2}, b: {k: 3, <<: *x}}", {"k": 3, "m": 2}),
        ("{a: [&x {k: 1}, &y {m: 2}], b: {<<: [*x, *y], m: 5}}", {"k": 1, "m": 5}),
        ("{a: [&x {k: 1}, &y {m: 2}], b: {<<: *x, <<: *y}}", {"k": 1, "m": 2}),
        ("{a: &x {seed: 010}, b: {<<: *x}}", {"seed": 10}),
    ],
)
def test_merge_keys_bring_what_the_section_does_not_have(text, value):
    assert parse_value(text, "x")["b"] == value


def test_a_section_names_its_kind_in_a_word_or_not_at_all(write_config):
    texts = ("noise: low_rank", "noise: {kind: low_rank}")
    short, long = (load_config(write_config(CARTPOLE + text)) for text in texts)
    assert short == long and short.noise.rank == 1 and short.noise.size == 25_000_000
    config = load_config(write_config(CARTPOLE + "solver: {optimizer: {beta1: 0.5}}\nnoise: {size: 100}"))
    assert (config.solver.kind, config.solver.optimizer.kind, config.noise.kind) == ("openai_es", "adam", "full")
    assert (config.solver.optimizer.beta1, config.noise.size) == (0.5, 100)


def test_a_function_needs_no_policy_and_validation_leaves_the_mapping_as_it_is():
    values = {"environment": {"id": "function:sphere", "dimension": 5}, "noise": "low_rank", "solver": {"sigma": 1}}
    with pytest.raises(ConfigError, match=r"noise\.kind low_rank is for policy\.kind mlp"):
        validate_config(values, "x")
    del values["noise"]
    assert validate_config(values, "x").policy.kind == "none"
    assert values == {"environment": {"id": "function:sphere", "dimension": 5}, "solver": {"sigma": 1}}


OWN_SOLVER = """
from mpies.solvers.openai_es import OpenAIES

class Mine(OpenAIES):
    class Options(OpenAIES.Options):
        strength: float = 2.0
"""


def test_a_solver_from_a_file_brings_its_own_keys(write_config, tmp_path):
    (tmp_path / "own_solver.py").write_text(OWN_SOLVER)
    kind = f"{tmp_path}/own_solver.py:Mine"
    config = load_config(write_config(CARTPOLE + f"solver: {{kind: '{kind}', strength: 3}}"))
    assert (config.solver.kind, config.solver.strength) == (kind, 3.0)
    assert resolved(load_config(write_config(as_yaml(resolved(config)), "again.yaml"))) == resolved(config)
    with pytest.raises(ConfigError, match=r"solver\.strngth is not a key; did you mean solver\.strength"):
        load_config(write_config(CARTPOLE + f"solver: {{kind: '{kind}', strngth: 3}}"))
    with pytest.raises(ConfigError, match=r"yaml: solver.kind .*own_solver.py has no Absent; it has OpenAIES, Mine$"):
        load_config(write_config(CARTPOLE + f"solver: {{kind: '{tmp_path}/own_solver.py:Absent'}}"))


def test_a_solver_from_a_file_imports_its_neighbours(tmp_path):
    for number, name in enumerate(("one", "two")):
        (tmp_path / name / "parts").mkdir(parents=True)
        (tmp_path / name / "mine.py").write_text("from parts import STRENGTH\n" + OWN_SOLVER.replace("2.0", "STRENGTH"))
        (tmp_path / name / "parts" / "__init__.py").write_text("from parts.numbers import STRENGTH\n")
        (tmp_path / name / "parts" / "numbers.py").write_text(f"STRENGTH = {number}.5\n")
    before = set(sys.modules)
    for _ in range(2):
        for number, name in enumerate(("one", "two")):
            section = {"kind": f"{tmp_path}/{name}/mine.py:Mine"}
            config = validate_config({"environment": {"id": "CartPole-v1"}, "solver": section}, "x")
            assert config.solver.strength == number + 0.5
            assert make_solver(config, 10).options.strength == number + 0.5
    assert set(sys.modules) - before <= {f"_custom_{tmp_path}/{name}/mine.py" for name in ("one", "two")}


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["solver.sigma=1", "stop.generations=7"], [("solver.sigma", None, 1.0)]),  # the end changes no result
        (["noise={kind: low_rank, rank: 2}"], [("noise.kind", "full", "low_rank"), ("noise.rank", "(absent)", 2)]),
    ],
)
def test_differences_name_keys_that_change_what_is_computed(overrides, expected, write_config):
    path = write_config(CARTPOLE + "policy: {hidden: []}")
    old, new = (resolved(load_config(path, more)) for more in ([], overrides))
    assert differences(old, new) == expected
    assert differences(new, old) == [(key, there, here) for key, here, there in expected]


def test_the_config_of_a_run_is_a_config_too(write_config):
    for text in (SPHERE, CARTPOLE + "policy: {hidden: []}"):
        values = resolved(load_config(write_config(text)))
        path = write_config(as_yaml(values | {"versions": {"python": "3.11", "mpies": "0.1.0", "machines": ["a"]}}))
        assert resolved(load_config(path)) == values
    with pytest.raises(ConfigError, match=r": is the folder of a run; continue it with mpies train .*.yaml --out /"):
        load_config(path.parent)
    with pytest.raises(ConfigError, match="versions is not a key"):
        load_config(write_config(CARTPOLE + "versions: 3"))


def test_a_python_file_needs_the_name_of_what_is_in_it(tmp_path):
    path = tmp_path / "room.py"
    path.write_text("class Room: pass\n")
    with pytest.raises(ConfigError, match=r"/room.py: is a Python file; name the .* in it, such as /.*:NAME$"):
        load_config(path)
    with pytest.raises(ConfigError, match=r"^the command line: solver.kind must name the class .* mine.py:Class$"):
        load_config("cartpole", ["solver.kind=mine.py"])


def test_arguments_of_an_environment_are_the_same_once_they_were_written(write_config):
    text = "[1, -2.5e300, true, null, '0', '1e3', [], {}, {'1': [.5, yes], far: 'inf', n: 2024}]"
    first = load_config(write_config(f"environment: {{id: CartPole-v1, kwargs: {{'all': {text}}}}}"))
    again = load_config(write_config(as_yaml(resolved(first))))
    assert repr(again.environment.kwargs) == repr(first.environment.kwargs)


@pytest.mark.parametrize(("text", "seed"), [("010", 10), ("008", 8), ("0", 0), ("0x10", 16), ("1_000", 1000)])
def test_a_seed_is_decimal_however_many_zeros_it_begins_with(text, seed):
    file = make_config(parse_value(f"environment: {{id: LQR-v0}}\nseed: {text}", "run.yaml"), [], "run.yaml")
    assert file.seed == make_config({"environment": {"id": "LQR-v0"}}, [f"seed={text}"], "run.yaml").seed == seed
    assert read_override(f"seed={text},7") == ("seed", [seed, 7])
    # Numbers of other keys are those of YAML.
    assert parse_value("{x: 010, seeds: [008, 010]}", "run.yaml") == {"x": 8, "seeds": [8, 10]}


@pytest.mark.parametrize("key", ["seed", "noise.size", "solver.sigma", "environment.kwargs.x"])
def test_a_number_that_python_cannot_write_is_refused_in_one_line(key):
    with pytest.raises(ConfigError, match=f"^the command line, {key}: .*1000 characters; make it smaller") as caught:
        make_config({"environment": {"id": "LQR-v0"}}, [f"{key}=0x{'f' * 9000}"], "run.yaml")
    assert len(str(caught.value).splitlines()) == 1
    with pytest.raises(ConfigError, match=r"^run.yaml: seed must be a smaller number, but is 0x1000"):
        make_config({"environment": {"id": "LQR-v0"}, "seed": 1 << 40_000}, [], "run.yaml")


def test_a_file_beside_the_config_is_found_from_another_folder(here):
    """One that is here comes first, and so does what the command line says."""
    (here / "sub").mkdir()
    (here / "sub" / "room.py").write_text("def f(x):\n    return -sum(x**2)\n")
    (here / "sub" / "run.yaml").write_text("environment: {id: 'room.py:f', dimension: 2}")
    assert load_config("sub/run.yaml").environment.id == "sub/room.py:f"
    assert load_config("sub/run.yaml", ["environment.id=function:sphere"]).environment.id == "function:sphere"
    (here / "room.py").write_text((here / "sub" / "room.py").read_text())
    assert load_config("sub/run.yaml").environment.id == "room.py:f"


@pytest.mark.parametrize(
    ("environment", "policy", "kind"),
    [
        ({"id": "ALE/Pong-v5"}, None, "conv"),
        ({"id": "Breakout-v5"}, {"hidden": [8]}, "mlp"),
        ({"id": "Breakout-v5", "backend": "envpool", "kwargs": {"obs_type": "ram"}}, None, "mlp"),
        ({"id": "ALE/Pong-v5", "kwargs": {"blocks": 16}}, None, "mlp"),
    ],
)
def test_a_game_of_images_gets_a_convolutional_policy_where_none_is_named(environment, policy, kind):
    pytest.importorskip("envpool")
    config = validate_config({"environment": environment} | ({"policy": policy} if policy else {}), "x")
    assert config.policy.kind == kind


@pytest.mark.parametrize(
    ("sections", "expected"),
    [
        ({"stop": {"steps": 9}}, ("cma_es", None, "generation", "auto", 200)),
        ({"environment": {"id": "CartPole-v1", "seeds": "pair"}}, ("cma_es", None, "pair", "auto", 200)),
        ({"environment": {"id": "CartPole-v1", "adaptive": None}}, ("cma_es", None, "generation", "auto", None)),
        ({"policy": {}}, ("openai_es", [64, 64], "pair", 0.0, None)),
        ({"solver": {"population": 32}}, ("openai_es", [64, 64], "pair", 0.0, None)),
        ({"overlap": 0.5}, ("openai_es", [64, 64], "pair", 0.0, None)),
        ({"noise": "low_rank"}, ("openai_es", [64, 64], "pair", 0.0, None)),
    ],
)
def test_a_config_without_a_policy_and_a_solver_gets_the_quick_ones(sections, expected):
    config = validate_config({"environment": {"id": "CartPole-v1"}} | sections, "x")
    adaptive = config.environment.adaptive
    episodes = config.environment.seeds, config.environment.reward_shift, adaptive and adaptive.start
    found = config.solver.kind, config.policy.hidden, *episodes
    assert found == expected


def test_a_recipe_is_trained_by_name_into_the_run_of_its_path(run_mpies, tmp_path):
    run_mpies(0, "train", "cartpole", "stop.generations=1", code=0)
    assert len(read_metrics(tmp_path / "runs" / "cartpole_stop.generations=1")) == 1
    by_path = run_mpies(0, "train", HOME / "configs/cartpole.yaml", "stop.generations=1", code=0)
    assert "is complete" in by_path.stdout, by_path.stdout


def test_a_path_that_is_there_comes_before_a_recipe_and_an_id(here):
    for name in ("pong", "CartPole-v1"):
        (here / name).write_text("environment: {id: Acrobot-v1}")
        assert str(find_config(name)) == name and load_config(name).environment.id == "Acrobot-v1"
    (here / "swimmer").mkdir()  # a folder is no config
    assert find_config("swimmer") == find_recipes()["swimmer"]
    with pytest.raises(ConfigError, match="swimmer/second-v2: cannot be read"):
        find_config("swimmer/second-v2")  # no id, as the folder is there


@pytest.mark.parametrize(
    ("given", "nearest"),
    [
        ("cartpol", "the nearest are cartpole, cartpole_swingup"),
        ("Hopper", "the nearest is hopper"),
        ("lunar-lander.yaml", "the nearest are lunar_lander, lunar_lander_18"),
        ("experiments/steep.yml", "the nearest is experiments/steeper.yml"),
        ("absent/hoper.yaml", "the nearest is hopper"),
        ("zzz", "give the path of a YAML file, an environment's id, or a recipe's name: "),
    ],
)
def test_a_mistyped_name_is_answered_with_the_nearest(given, nearest, here):
    (here / "experiments").mkdir()
    (here / "experiments" / "steeper.yml").write_text("environment: {id: CartPole-v1}")
    with pytest.raises(ConfigError) as error:
        find_config(given)
    assert str(error.value).startswith(f"{given}: cannot be read (No such file or directory); {nearest}")


def test_commands_read_a_variant_of_a_recipe_by_name(here):
    name = "hopper-openai"
    checked = invoke("check", name, "seed=9", code=0).stdout
    assert "id: Hopper-v5" in checked and "seed: 9" in checked
    for system in ("slurm", "k8s"):
        assert f"runs/{name}" in invoke("launch", system, name, "--dry-run", code=0).stdout
    recipe = (HOME / "configs/variants/hopper-openai.yaml").read_text()
    assert (here / "runs" / f"{name}.k8s" / f"{name}.yaml").read_text() == recipe


@pytest.mark.parametrize("name", ["LunarLander-v3", "ALE/Pong-v5", "gym:MinitaurBulletEnv-v0", "own.py:Corridor"])
def test_an_id_is_a_config_of_one_line(name):
    assert load_config(name) == load_config(name, [f"environment.id={name}"])
    assert load_config(name, ["seed=3"]).environment.id == name
