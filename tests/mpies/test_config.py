import json
import os
import random

import pytest
import yaml

from mpies import config as configs
from mpies.config import ConfigError, load

CARTPOLE = "environment: {id: CartPole-v1}\n"
SPHERE = "environment: {id: 'function:sphere', dimension: 5}\n"

# What is written; and, after the path of the file, the line that answers.
BAD = [
    ("", "is empty; the least it needs is environment: {id: CartPole-v1}"),
    ("# only a comment", "is empty; the least it needs is environment: {id: CartPole-v1}"),
    ("- a\n- b", "must hold sections such as environment: {id: CartPole-v1}, but is the list [a, b]"),
    ("hello", "must hold sections such as environment: {id: CartPole-v1}, but is the text 'hello'"),
    ("seed: 1", "environment is missing; add environment: {id: CartPole-v1}"),
    ("environment: {}", "environment.id is missing; add id: CartPole-v1"),
    ("enviroment: {id: x}", "enviroment is not a key; did you mean environment?"),
    ("environment: {id: 5}", "environment.id must be a text, but is 5; for instance environment.id: CartPole-v1"),
    (
        CARTPOLE + "solver: [1]",
        "solver must be a section of keys, but is the list [1]; for instance solver: {population: 128}",
    ),
    (
        CARTPOLE + "solver: {population: 101}",
        "solver.population must be even (antithetic pairs), but is 101; use 100 or 102",
    ),
    (CARTPOLE + "solver: {popuation: 100}", "solver.popuation is not a key; did you mean solver.population?"),
    (CARTPOLE + "population: 100", "population is not a key; did you mean solver.population?"),
    (CARTPOLE + "solver: {sigma: -1}", "solver.sigma must be greater than 0, but is -1; the default is 0.02"),
    (CARTPOLE + "solver: {sigma: .inf}", "solver.sigma must be a finite number, but is inf; the default is 0.02"),
    (CARTPOLE + "solver: {sigma: yes}", "solver.sigma must be a number, but is the flag true; the default is 0.02"),
    (CARTPOLE + "solver: {sigma: }", "solver.sigma must be a number, but is empty; the default is 0.02"),
    (
        CARTPOLE + "solver: {optimizer: {learning_rate: .nan}}",
        "solver.optimizer.learning_rate must be a finite number, but is nan; the default is 0.01",
    ),
    (
        CARTPOLE + "solver: {optimizer: {learning_rate: nan}}",
        "solver.optimizer.learning_rate must be a number, but is the text 'nan'; the default is 0.01",
    ),
    (
        CARTPOLE + "solver: {optimizer: {kind: adma}}",
        "solver.optimizer.kind must be one of adam, ",
    ),
    (
        CARTPOLE + "solver: {optimizer: {kind: sgd, beta1: 0.9}}",
        "solver.optimizer.beta1 is not a key; it belongs to kind: adam",
    ),
    (
        CARTPOLE + "policy: {hidden: [3, x]}",
        "policy.hidden[1] must be a number, but is the text 'x'; the default is [64, 64]",
    ),
    (CARTPOLE + "policy: {bias: 1}", "policy.bias must be true or false, but is 1; the default is true"),
    (CARTPOLE + "policy: {kind: none}", "policy.kind none is for functions of parameters only; use kind: mlp"),
    (CARTPOLE + "noise: {size: 1.5}", "noise.size must be a whole number, but is 1.5; the default is 25000000"),
    (
        CARTPOLE + "noise: low_rank\nsolver: {kind: pepg}",
        "noise.kind low_rank is for solvers that need no more of the noise than its weighted sum "
        "(openai_es, ars, novelty_es), but solver.kind is pepg; use noise: {kind: full}",
    ),
    (
        CARTPOLE + "noise: {kind: low_rank}\npolicy: {kind: lstm}",
        "noise.kind low_rank is for policy.kind mlp, whose layers are matrices, but policy.kind is lstm",
    ),
    (CARTPOLE + "noise: {rank: 2}", "noise.rank is not a key; it belongs to kind: low_rank"),
    (
        CARTPOLE + "noise: {kind: low_rnak}",
        "noise.kind must be one of full, low_rank, but is the text 'low_rnak'; did you mean low_rank?",
    ),
    (CARTPOLE + "stop: {steps: 0}", "stop.steps must be at least 1, but is 0; leave it out for none"),
    (CARTPOLE + "seed: 1\nseed: 2", " line 3 is not YAML (key 'seed' stands twice; remove one)"),
    (CARTPOLE + "solver: {sigma: 1, sigma: 2}", " line 2 is not YAML (key 'sigma' stands twice; remove one)"),
    (CARTPOLE + "a: [", " line 2 is not YAML (expected the node content, but found '<stream end>')"),
    (CARTPOLE + '? "a\\nb"\n: 2', r"'a\nb' is not a key; the top level has "),
    (
        "environment: {id: CartPole-v1, kwargs: {max_steps: 3}}",
        "environment.kwargs.max_steps is not for kwargs: use environment.max_steps; remove it",
    ),
    (
        "environment: &a {id: CartPole-v1, kwargs: {b: *a}}",
        "environment.kwargs must hold numbers, texts, flags, lists and sections only; mend or remove it",
    ),
    (
        "environment: {id: 'function:ball', dimension: 5}",
        "environment.id names no test function: 'function:ball'; use one of ",
    ),
    (
        "environment: {id: 'function:sphere'}",
        "environment.dimension is missing: how many parameters function:sphere has",
    ),
    (SPHERE + "policy: {kind: mlp}", "policy must be {kind: none} for a function of parameters, or left out"),
]


@pytest.mark.parametrize(("text", "line"), BAD)
def test_a_bad_config_is_answered_with_one_line_of_place_expectation_finding_and_cure(text, line, write_config):
    path = write_config(text)
    with pytest.raises(ConfigError) as caught:
        load(path)
    said = str(caught.value)
    assert said.startswith(f"{path}: {line}".replace(":  line", ": line"))
    assert "\n" not in said and len(said) < len(str(path)) + 220


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("solver.sigma=-1", "the command line: solver.sigma must be greater than 0, but is -1; the default is 0.02"),
        (
            "solver.population=7",
            "the command line: solver.population must be even (antithetic pairs), but is 7; use 6 or 8",
        ),
        ("solver.sgma=1", "the command line: solver.sgma is not a key; did you mean solver.sigma?"),
        (
            "solver=3",
            "the command line: solver must be a section of keys, but is 3; for instance solver: {population: 128}",
        ),
        ("solver", "the command line: 'solver' must be KEY=VALUE, for instance solver.sigma=0.05"),
        ("=3", "the command line: '=3' must be KEY=VALUE, for instance solver.sigma=0.05"),
        ("solver..sigma=3", "the command line: 'solver..sigma=3' must be KEY=VALUE, for instance solver.sigma=0.05"),
        ("environment.id.x=3", "the command line: environment.id.x is not a key, since environment.id is the text"),
        ("solver.sigma=[1", "the command line, solver.sigma: line 1 is not YAML"),
    ],
)
def test_a_bad_override_is_blamed_on_the_command_line(override, line, write_config):
    with pytest.raises(ConfigError) as caught:
        load(write_config(CARTPOLE), [override])
    assert str(caught.value).startswith(line)


def test_overrides_go_over_the_file_and_the_last_one_holds(write_config):
    path = write_config(CARTPOLE + "solver: {sigma: 0.5, population: 10}\nstop: {target: 3}")
    found = load(path, ["solver.sigma=1e-3", "solver.optimizer.kind=sgd", "policy.hidden=[4, 5]", "stop.target=null"])
    assert (found.solver.sigma, found.solver.population, found.solver.optimizer.kind) == (0.001, 10, "sgd")
    assert (found.policy.hidden, found.stop.target) == ([4, 5], None)
    assert load(path, ["seed=2", "seed=3"]).seed == 3


def test_a_section_that_is_a_word_is_of_that_kind(write_config):
    short, long = (load(write_config(CARTPOLE + text)) for text in ("noise: low_rank", "noise: {kind: low_rank}"))
    assert short == long and short.noise.rank == 1 and short.noise.size == 25_000_000


@pytest.mark.parametrize(
    ("text", "value"), [("1e-3", 0.001), ("1.0e-3", 0.001), ("2", 2.0), ("+.5", 0.5), ("1E2", 100.0)]
)
def test_numbers_may_be_written_as_people_write_them(text, value, write_config):
    assert load(write_config(CARTPOLE + f"solver: {{sigma: {text}}}")).solver.sigma == value


@pytest.mark.parametrize("text", ["25e6", "25_000_000", "25000000", "2.5e7"])
def test_whole_numbers_may_have_an_exponent_or_underscores(text, write_config):
    size = load(write_config(CARTPOLE + f"noise: {{size: {text}}}")).noise.size
    assert size == 25_000_000 and isinstance(size, int)


def test_a_resolved_config_is_a_config_again(write_config):
    for text in (CARTPOLE + "policy: {hidden: []}", SPHERE):
        found = load(write_config(text))
        again = write_config(configs.as_yaml(configs.resolved(found)), "again.yaml")
        assert load(again) == found
        assert configs.differences(configs.resolved(load(again)), configs.resolved(found)) == []


def test_differences_name_what_changes_the_computation_and_leave_out_what_does_not(write_config):
    path = write_config(CARTPOLE)
    old, new = (configs.resolved(load(path, overrides)) for overrides in ([], ["solver.sigma=1", "stop.generations=7"]))
    assert configs.differences(old, new) == [("solver.sigma", 0.02, 1.0)]


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", bytes(range(256)), b"a: \x00"])
def test_a_file_that_is_no_text_is_refused_in_one_line(content, tmp_path):
    path = tmp_path / "x.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"x.yaml: is not "):
        load(path)


def test_a_file_that_cannot_be_read_is_refused_in_one_line(tmp_path):
    for path in (tmp_path, tmp_path / "absent.yaml"):
        with pytest.raises(ConfigError, match=r"cannot be read .*give the path of a YAML file"):
            load(path)


WRONG = [None, True, [], {}, "x", "", -1, 0, 1.5, 1e308, 10**40, ".nan", "1e-3", "1e999", [1], {"a": 1}, float("nan")]
WRONG += [[[[]]], {1: 2}, {None: 3}, "function:sphere", b"\xff", float("-inf"), "sgd", "none", "adam", "mlp", 2**63]


def all_paths(values, prefix=()):
    for key, value in values.items():
        yield (*prefix, key)
        if isinstance(value, dict):
            yield from all_paths(value, (*prefix, key))


def mutant(number):
    """A config with a few random faults, as bytes of YAML."""
    chance = random.Random(number)
    values = {"environment": {"id": chance.choice(["CartPole-v1", "function:sphere"])}, "seed": 3}
    if values["environment"]["id"] != "CartPole-v1":
        values["environment"]["dimension"] = 5
    if chance.random() < 0.7:
        values = json.loads(json.dumps(configs.resolved(configs.validate(values | {"stop": {"steps": 5}}, "x"))))
    for _ in range(chance.choice([1, 1, 2, 5])):
        paths = list(all_paths(values))
        if not paths:
            break
        *sections, key = chance.choice(paths)
        section = values
        for name in sections:
            section = section[name]
        match chance.randrange(5):
            case 0:
                del section[key]
            case 1:
                section[key] = chance.choice(WRONG)
            case 2:
                section[chance.choice([str(key)[:-1], f"{key}s", "", "é\n", "<<", 7, None])] = section.pop(key)
            case 3:
                section[key] = {key: section[key]}
            case 4:
                section[key] = values if chance.random() < 0.3 else [section[key]]
                if section[key] is values:
                    return yaml.dump(values).encode()
    content = bytearray(yaml.dump(values, default_flow_style=chance.choice([None, True, False])).encode())
    if chance.random() < 0.4:  # and now the bytes
        for _ in range(chance.randint(1, 4)):
            place = chance.randrange(len(content) + 1)
            noise = bytes(chance.choice(b"{}[]:,&*!|>%@`'\"-?# \n\t0e._\xff\x00") for _ in range(chance.randint(0, 3)))
            content[place : place + chance.randint(0, 3)] = noise
    return bytes(content)


def test_no_config_however_damaged_gets_anything_but_one_line(tmp_path):
    path, refused = tmp_path / "mutant.yaml", 0
    count = int(os.environ.get("MPIES_FUZZ", "300"))
    for number in range(count):
        path.write_bytes(mutant(number))
        try:
            configs.as_yaml(configs.resolved(load(path)))
        except ConfigError as error:
            refused += 1
            said = str(error)
            assert "\n" not in said and said.startswith(str(path)), f"mutant {number}: {said}"
            assert "pydantic" not in said and "validator" not in said, f"mutant {number}: {said}"
            assert "Input" not in said and "union" not in said and "another type" not in said, (
                f"mutant {number}: {said}"
            )
        except Exception as error:
            raise AssertionError(f"mutant {number} raised {error!r}") from error
    assert 0.3 * count < refused < count
