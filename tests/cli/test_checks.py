"""`mpies check`: prints a config with its costs, the schema, the keys."""

import json

import pytest
import yaml

from tests.support import CARTPOLE, HOME, invoke


def test_check_prints_a_valid_config_and_what_it_costs(write_config):
    outcome = invoke("check", write_config(CARTPOLE), "solver.sigma=0.5", code=0)
    resolved = yaml.safe_load(outcome.stdout.split("\n\n")[0])
    assert resolved["solver"]["sigma"] == 0.5 and resolved["stop"]["generations"] == 10
    needs = outcome.stdout.split("\n\n")[1]
    for line in (
        "parameters              58\n",
        "noise of a generation   1,856 B, 58 normals",
        "memory of a node        ",
    ):
        assert line in needs


def test_the_schema_takes_the_configs_that_mpies_takes():
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads(invoke("check", "--schema").stdout)
    validator = jsonschema.Draft202012Validator(schema)
    recipes = [yaml.safe_load(path.read_text()) for path in sorted((HOME / "configs").rglob("*.yaml"))]
    thermostat = """
    environment: {id: 'thermostat.py:Room', max_steps: 50}
    policy: {hidden: []}
    solver: {population: 32, sigma: 0.3, optimizer: {kind: adam, learning_rate: 0.2}}
    noise: {size: 100000}
    stop: {generations: 20}
    """
    cartpole = {"environment": {"id": "CartPole-v1"}}
    brief = [{"solver": {}}, {"noise": "low_rank", "policy": "lstm"}, {"solver": {"optimizer": "sgd"}}]
    own = [{"solver": {"kind": kind, "population": 8}} for kind in ("nevergrad:PSO", "path/to/file.py:Class")]
    for values in (*recipes, yaml.safe_load(thermostat), *(cartpole | section for section in (*brief, *own))):
        assert [error.message for error in validator.iter_errors(values)] == [], values
    misspelt = [{"policy": {"hiden": []}}, {"noise": "low_rang"}, {"solver": {"kind": "snez"}}, {"solver": "x.py:X"}]
    for wrong in (*misspelt, {"policy": {"kind": "mlp", "units": 3}}, {"solver": {"sigma": "x"}}):
        assert not validator.is_valid(cartpole | wrong), wrong
    assert len(recipes) > 30
