"""What a sweep varies, the names of its trials, and mistakes in it: each is one line, and nothing is written."""

import math
import shlex

import pytest

from mpies.config.loading import load_config, parse_value
from mpies.core.errors import ConfigError
from mpies.sweeps.settings import Distribution, as_text, list_settings, read_override, read_seeds, read_values
from mpies.sweeps.trials import SweepOptions, check_trials, load_sweep, read_sweep
from tests.support import CARTPOLE, assert_refused, invoke, read_files


def settings_of(vary, trials=None, draw_seed=1):
    return list_settings(vary, trials, draw_seed)


def test_lists_make_a_grid_whose_last_key_changes_fastest():
    found = settings_of({"a": [1, 2], "b": ["x", [8, 8]]})
    assert found == [{"a": 1, "b": "x"}, {"a": 1, "b": [8, 8]}, {"a": 2, "b": "x"}, {"a": 2, "b": [8, 8]}]


def test_draws_depend_on_the_seed_the_trial_and_the_key_alone():
    one = {"a": {"log_uniform": [0.001, 1]}}
    both = {"b": {"integer": [1, 3]}, **one}
    few, many = settings_of(one, 5), settings_of(both, 20)
    assert [trial["a"] for trial in many[:5]] == [trial["a"] for trial in few]
    assert settings_of(one, 5, draw_seed=2) != few
    assert len(settings_of({**one, "c": [1, 2]}, 5)) == 10  # each draw with each value of the list


@pytest.mark.parametrize(
    ("given", "low", "high"),
    [({"uniform": [2, 3]}, 2, 3), ({"log_uniform": [0.0001, 1]}, 0.0001, 1), ({"integer": [-2, 4]}, -2, 4)],
)
def test_draws_cover_their_range(given, low, high):
    assert isinstance(read_values("a", given), Distribution)
    drawn = [trial["a"] for trial in settings_of({"a": given}, 7 if "integer" in given else 300)]
    if "integer" in given:
        assert sorted(drawn) == list(range(-2, 5))
        return
    assert all(low <= value <= high and float(f"{value:.4g}") == value for value in drawn)
    shares = sorted(math.log(value / low) / math.log(high / low) if low < 1 else value - low for value in drawn)
    # The largest gap to the straight line that 300 uniform numbers have: 0.094 in one of a hundred samples.
    assert max(abs(share - (number + 0.5) / 300) for number, share in enumerate(shares)) < 0.094


def test_a_choice_draws_its_values_and_no_trial_is_drawn_twice():
    drawn = [trial["a"] for trial in settings_of({"a": {"choice": ["x", [8], None]}}, 3)]
    assert sorted(map(str, drawn)) == ["None", "[8]", "x"]
    with pytest.raises(ConfigError, match="trials is 4, but only 3 different ones"):
        settings_of({"a": {"choice": ["x", [8], None]}}, 4)


@pytest.mark.parametrize("value", [0.1, 1e-5, 1e30, 3, True, None, "text", "5", "a: b", [8, [1, 2]], {"kind": "adam"}])
def test_a_value_as_text_reads_back_as_the_same(value):
    assert parse_value(as_text(value), "here") == value and "\n" not in as_text(value)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a.b=0.02,0.05", [0.02, 0.05]),
        ("a.b=[8],[8,8]", [[8], [8, 8]]),
        ("a.b=x", ["x"]),
        ("a.b={kind: adam, learning_rate: 0.1}", [{"kind": "adam", "learning_rate": 0.1}]),
        ("a.b={log_uniform: [1e-3, 1e-1]}", [0.001, 0.1]),
        ("a.b={uniform: [0, 1e2]}", [0, 100]),
        ("a.b={integer: [1, 1e3]}", [1, 1000]),
    ],
)
def test_values_of_the_command_line(text, values):
    key, found = read_override(text)
    assert key == "a.b" and (found if isinstance(found, list) else read_values(key, found).values) == values


@pytest.mark.parametrize(
    ("given", "seeds"), [(3, [1, 2, 3]), ("3", [1, 2, 3]), ("6..8", [6, 7, 8]), ([5, 2], [5, 2]), ([0], [0])]
)
def test_seeds(given, seeds):
    assert read_seeds(given) == seeds


@pytest.mark.parametrize("given", [20240101, "20240101"])
def test_a_seed_that_is_taken_for_a_number_of_seeds_is_refused(given):
    with pytest.raises(ConfigError, match=r"seeds: 1..20240101 are 20,240,101 seeds, .* give 20240101..20240101"):
        read_seeds(given)
    assert read_seeds("20240101..20240102") == [20240101, 20240102]


@pytest.mark.parametrize("given", [0, -1, True, 1.5, "x", "3..1", "1,3", "", [], [1, 1], [-1], ["1"]])
def test_seeds_that_are_none_are_refused(given):
    words = "seeds must be a number such as 5, a range such as 6..10, or in a file or in Python a list such as"
    with pytest.raises(ConfigError, match=words):
        read_seeds(given)


@pytest.mark.parametrize(
    "given",
    [
        *(3, "x", [], [1, 1], {"normal": [0, 1]}, {"uniform": [1]}, {"uniform": [2, 1]}, {"uniform": [True, 2]}),
        *({"log_uniform": [0, 1]}, {"integer": [0.5, 2]}, {"uniform": [0, math.inf]}, {"choice": 3}, {"choice": []}),
        *({"integer": [1, 2**63]}, {"integer": [-(2**63) - 1, 1]}, [object()]),
    ],
)
def test_values_that_make_no_sense_are_refused(given):
    with pytest.raises(ConfigError, match=r"vary: a\.b") as caught:
        read_values("a.b", given)
    assert "\n" not in str(caught.value)


def names(vary, **options):
    sweep = read_sweep({"base": {}, "vary": vary}, "sweep.yaml", options=SweepOptions(**options))
    return [trial.name for trial in sweep.list_trials()]


def test_names_are_short_and_say_what_differs():
    assert names({"solver.sigma": [0.1, 0.2], "stop.generations": [5]}) == ["sigma=0.1_seed=1", "sigma=0.2_seed=1"]
    assert names({}, seeds="4..5") == ["seed=4", "seed=5"]
    assert names({"a.size": [1, 2], "b.size": [3]}, seeds=[7]) == ["size=1_seed=7", "size=2_seed=7"]
    assert names({"a.size": [1, 2], "b.size": [3, 4]})[0] == "a.size=1_b.size=3_seed=1"
    assert names({"policy.hidden": [[8], [8, 8]]}) == ["hidden=8_seed=1", "hidden=8,8_seed=1"]
    assert names({"a.b": ["x/../y", -1]}) == ["b=x-..-y_seed=1", "b=-1_seed=1"]


def test_names_that_are_too_long_or_the_same_are_told_apart_and_do_not_depend_on_other_trials():
    long = names({"a.b": ["x" * 300, "x" * 301, "a/b", "a-b"]})
    assert len({*long}) == 4 and max(map(len, long)) < 120
    assert names({"a.b": ["y", "x" * 301]})[1] == long[1]


def test_the_configs_are_those_of_mpies_train(write_config):
    path = write_config(CARTPOLE)
    sweep = load_sweep(path, {"solver.sigma": [0.1, 1e-5], "policy.hidden": [[8], [4, 4]]}, SweepOptions("2"))
    trials = sweep.list_trials()
    assert len(trials) == 8 and len({trial.name for trial in trials}) == 8
    for trial in trials:
        config = load_config(path, trial.overrides)
        assert sweep.config(trial) == config
        assert (config.seed, config.solver.sigma) == (trial.seed, trial.settings["solver.sigma"])


def test_a_section_in_short_or_in_full_does_not_replace_its_keys_that_vary():
    configs = []
    for vary in (
        {"solver.sigma": [0.1, 0.2], "solver": [{"kind": "snes", "population": 8}]},
        {"noise": ["full", "low_rank"], "noise.size": [1000, 2000]},
    ):
        sweep = read_sweep({"base": "cartpole", "vary": vary}, "sweep.yaml")
        configs += [sweep.config(trial) for trial in sweep.list_trials()]
    solvers, noises = [one.solver for one in configs[:2]], [one.noise for one in configs[2:]]
    assert [(one.kind, one.population, one.sigma) for one in solvers] == [("snes", 8, 0.1), ("snes", 8, 0.2)]
    assert [f"{one.kind} {one.size}" for one in noises] == ["full 1000", "full 2000", "low_rank 1000", "low_rank 2000"]


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
    options, given = (values, {}) if isinstance(values, SweepOptions) else (SweepOptions(), values)
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
