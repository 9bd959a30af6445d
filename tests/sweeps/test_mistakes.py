"""Mistakes in what is said of a sweep: each is one line, and nothing is written."""

import shlex

import pytest

from mpies.core.errors import ConfigError
from mpies.sweeps.trials import SweepOptions, check_trials, read_sweep
from tests.support import CARTPOLE, assert_refused, invoke, read_files

HALVE = "solver.sigma=0.1,0.2 --halving"
DRAW = "'solver.sigma={uniform: [0.1, 1]}' --trials 3 --sampler"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("solver.sigmo=1,2", ["sigmo=1, sigmo=2", "solver.sigmo is not a key; did you mean solver.sigma?"]),
        ("solver.sigma=-1,0.1,x", ["2 of 3", "sigma=-1: ", "must be greater than 0", "sigma=x: ", "must be a number"]),
        ("solver.kind=openai_es,snes", ["1 of 2 settings", "kind=snes: ", "solver.sigma_decay"]),  # the base has it
        ("solver.sigma=0.1 solver.sigma=0.2", ["solver.sigma is given twice"]),
        ("seed=1,2", ["--seeds"]),
        ("solver.sigma=0.1 --trials 3", ["trials is for values that are drawn"]),
        ("'solver.sigma={uniform: [1, 2]}'", ["trials is missing"]),
        ("--ranks-per-run 2", ["--ranks-per-run is 2, but the job has 1 rank"]),
        # Halving.
        (f"{HALVE} first=10,unit=generations", ["first is 10, but sigma=0.1 ends after 10 generations anyway"]),
        (f"{HALVE} first=3,eta=1", ["eta must be at least 2"]),
        (f"{HALVE} eta=3", ["first is missing"]),
        ("solver.sigma=1 --seeds 3 --halving first=3", ["halving: there is only one setting, so none can be dropped;"]),
        # A sampler.
        ("solver.sigma=0.1 --trials 3 --sampler kind=tpe", ["nothing varies"]),
        ("solver.sigma=0.1,0.2 --sampler kind=tpe", ["trials is missing"]),
        ("solver.sigma=0.1,0.2 --trials 3 --sampler kind=cma", ["cma can draw only numbers"]),
        (f"{DRAW} kind=cma,batch=1", ["batch must be at least 2"]),
        ("'solver.sigma={uniform: [-1, 1]}' --trials 1 --sampler batch=1", ["sigma=-1: solver.sigma must"]),
        (f"{DRAW} batch=3 --halving first=1", ["sampler and halving cannot be used together"]),
        # A dry run, which also looks at memory.
        ("--dry-run solver.sigma=-1,0.1 policy.activation=tanh,none", ["3 of 4 settings", "sigma", "activation"]),
        ("--dry-run --ranks 2 --ranks-per-run 3", ["--ranks-per-run is 3, but the job has 2 ranks"]),
        ("--dry-run noise.size=100_000_000_000", ["a rank needs at least", "for noise.size, but"]),
        ("--dry-run solver.population=100_000_000_000", ["a rank needs at least", "for solver.population, but"]),
        ("--dry-run --constants none.yaml", ["none.yaml: cannot be read"]),
    ],
)
def test_mistakes_of_the_command_line(arguments, words, write_config, here):
    if "--sampler" in arguments:
        pytest.importorskip("optuna")
    config, before = write_config(CARTPOLE), read_files(here)
    assert_refused(invoke("sweep", config, "--out", "out", *shlex.split(arguments)), *words)
    assert read_files(here) == before


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"varry": {}}, "sweep.yaml: varry is not a key; did you mean vary?"),
        ({"seed": 3}, "sweep.yaml: seed is not a key; did you mean seeds?"),
        ({"stop": {"generations": 5}}, "sweep.yaml: stop is not a key; the top level has base, "),
        ({"base": 3}, "sweep.yaml: base must be a config"),
        ({"base": "cartpol"}, "the nearest"),
        ({"vary": 3}, "sweep.yaml: vary must be a section of keys"),
        # Of a command line, or of Python.
        (SweepOptions(halving="first=9,seed=1"), "the command line: halving.seed is not a key; halving has first, uni"),
        (SweepOptions(halving={"firts": 9}), "the command line: halving.firts is not a key; did you mean halving.fir"),
        (SweepOptions(halving=9), "the command line: halving must be a section of keys, but is 9; leave it out for n"),
        (SweepOptions(sampler=["tpe"]), "the command line: sampler must be a section of keys, but is the list [tpe];"),
    ],
)
def test_mistakes_of_a_file_and_of_python(values, words):
    options = values if isinstance(values, SweepOptions) else SweepOptions()
    given = {} if isinstance(values, SweepOptions) else values
    with pytest.raises(ConfigError) as caught:
        read_sweep({"base": "cartpole", **given}, "sweep.yaml", options=options)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_all_mistakes_are_told_at_once_and_each_once():
    vary = {"solver.population": [7, 8, 9], "solver.sigma": [-1, 0.1]}
    sweep = read_sweep({"base": "cartpole", "vary": vary, "seeds": 5}, "sweep.yaml")
    with pytest.raises(ConfigError, match=r"^5 of 6 settings cannot be trained") as caught:
        check_trials(sweep, sweep.list_trials())
    assert "population=9_sigma=0.1: solver.population must be even" in str(caught.value)
    assert str(caught.value).count("must be greater than 0") == 1
