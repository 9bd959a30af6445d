"""Configs of other programs: what docs/moving_over.md shows is translated to what our recipes say."""

import json
import re

import pytest

from mpies.config.foreign import import_config
from mpies.config.loading import load_config, make_config, parse_value
from mpies.core.errors import ConfigError
from mpies.training.task import Task
from tests.support import HOME

PAGE = (HOME / "docs" / "moving_over.md").read_text()
SHOWN = dict(re.findall(r"`([\w.]+)`:\n\n```\w+\n(.*?)```", PAGE, re.S))


def imported(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    values, notes = import_config(tmp_path / name)
    return make_config(values, [], name), notes


def test_openais_humanoid_becomes_our_recipe(tmp_path):
    config, notes = imported(tmp_path, "humanoid.json", SHOWN["humanoid.json"])
    recipe = load_config("humanoid")
    assert (config.environment, config.policy, config.solver, config.noise) == (
        recipe.environment,
        recipe.policy,
        recipe.solver,
        recipe.noise,
    )
    assert config.checkpoint.every == 20
    assert any("Humanoid-v1" in note for note in notes) and any("eval_prob" in note for note in notes)


def test_es_on_gkes_walker_becomes_our_recipe(tmp_path):
    config, notes = imported(tmp_path, "walker.gin", SHOWN["walker.gin"])
    recipe = load_config("bipedal_walker_hardcore")
    assert (config.environment, config.policy, config.solver, config.evaluation) == (
        recipe.environment,
        recipe.policy,
        recipe.solver,
        recipe.evaluation,
    )
    assert (config.seed, config.stop.generations, config.stop.target) == (0, 100_000, 300)
    assert notes == [
        "environment.id is BipedalWalkerHardcore-v3, the version of BipedalWalkerHardcore-v2 that gymnasium has now"
    ]


def test_pepg_keeps_its_words_and_counts_the_mean_apart(tmp_path):
    gin = SHOWN["walker.gin"].replace("cma_solver.CMASolver", "pepg_solver.PEPGSolver").replace("= 256", "= 257")
    gin = re.sub(r"\S*(init_sigma|l2_coefficient).*", "", gin)
    gin += (
        "algorithm.pepg_solver.PEPGSolver.sigma_init = 0.2\nalgorithm.pepg_solver.PEPGSolver.average_baseline = False\n"
    )
    config, _ = imported(tmp_path, "walker.gin", gin)
    assert (config.solver.kind, config.solver.sigma_init, config.solver.average_baseline) == ("pepg", 0.2, False)
    assert config.solver.population == 256 and config.solver.members(10) == 257


def test_values_are_translated_as_well_as_keys(tmp_path):
    whole = json.loads(SHOWN["humanoid.json"])
    whole["config"] |= {"return_proc_mode": "centered_sign_rank", "episode_cutoff_mode": "adaptive:100,0.4,1.2"}
    whole["config"] |= {"episodes_per_batch": 101}
    whole["policy"]["args"] |= {"ac_bins": "uniform:5", "nonlin_type": "elu"}
    whole["optimizer"] = {"type": "sgd", "args": {"stepsize": 0.1, "momentum": 0.8}}
    config, _ = imported(tmp_path, "other.json", json.dumps(whole))
    assert config.solver.fitness == "centred_sign_rank" and config.solver.population == 102
    assert config.environment.adaptive.model_dump() == {"start": 100, "threshold": 0.4, "ratio": 1.2}
    assert (config.policy.bins, config.policy.activation) == ("uniform:5", "elu")
    assert config.solver.optimizer.model_dump() == {"kind": "sgd", "learning_rate": 0.1, "momentum": 0.8}


GAMES = """
from collections import namedtuple
games = {}
biped = Game(env_name='BipedalWalker-v2', input_size=24, output_size=4, time_factor=0, layers=[40, 40],
  activation='tanh', noise_bias=0.0, output_noise=[False, False, False], rnn_mode=False)
games['biped'] = biped
bullet = Game(env_name='AntBulletEnv-v0', input_size=28, output_size=8, time_factor=1000, layers=[16, 0],
  activation='passthru', noise_bias=0.0, output_noise=[False, False, True], rnn_mode=False)
games['bullet_ant_tiny'] = bullet
noisy = Game(env_name='MinitaurBulletEnv-v0', input_size=28, output_size=8, time_factor=0, layers=[64, 32],
  activation='tanh', noise_bias=-1.0, output_noise=[True, True, True], rnn_mode=False)
games['bullet_minitaur_duck_stoc'] = noisy
"""


def test_a_game_of_estool_becomes_a_config(tmp_path):
    (tmp_path / "config.py").write_text(GAMES)
    values, notes = import_config(f"{tmp_path}/config.py:biped")
    shown = re.search(r"The game `biped`.*?```yaml\n(.*?)```", PAGE, re.S)[1]
    expected = make_config(parse_value(shown, "page"), ["solver.population=32"], "page")
    assert make_config(values, [], "biped") == expected and "BipedalWalker-v2" in notes[1]
    tiny = make_config(import_config(f"{tmp_path}/config.py:bullet_ant_tiny")[0], [], "tiny")
    assert (tiny.environment.id, tiny.policy.hidden, tiny.policy.output) == ("AntBulletEnv-v0", [16], "clip")
    assert (tiny.policy.time_input, tiny.policy.sampling) == (1000, "gaussian")
    others = parse_value(re.search(r"takes cma: set (solver: .*})", notes[0])[1], "note")
    assert make_config(values | others, [], "biped").solver.kind == "cma_es"
    assert not any("noise_bias" in note for note in notes)
    _, notes = import_config(f"{tmp_path}/config.py:bullet_minitaur_duck_stoc")
    assert notes[1:] == ["noise_bias -1.0 has no counterpart", "output_noise of hidden layers has no counterpart"]
    with pytest.raises(ConfigError, match=r"has no game of this name; its games are biped, bullet_ant_tiny, bullet_m"):
        import_config(f"{tmp_path}/config.py:absent")


def test_a_solver_of_es_on_gke_needs_no_module_before_its_name(tmp_path):
    gin = SHOWN["walker.gin"].replace("@algorithm.cma_solver.CMASolver", "@CMASolver")
    assert imported(tmp_path, "short.gin", gin) == imported(tmp_path, "walker.gin", SHOWN["walker.gin"])


ESTOOL_WITHOUT_LAYERS = """
it = Game(env_name="Pendulum", layers=[], activation="tanh", time_factor=0, output_noise=[], rnn_mode=False)
games = {}
games["a"] = it
"""


def without(name, *keys):
    """humanoid.json as text, with a value in place of that of a dotted key, or without the key."""
    whole = json.loads(SHOWN["humanoid.json"])
    *sections, last = name.split(".")
    section = whole
    for key in sections:
        section = section[key]
    section.pop(last)
    section.update((last, value) for value in keys)
    return json.dumps(whole)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.txt", "", "must be a .json of OpenAI's starter or Uber's deep-neuroevolution, or a .gin of es_on_gke, or"),
        ("a.json", "{", "line 1 cannot be read (Expecting property name enclosed in double quotes); expected a .json"),
        ("a.json", "{}", "a.json: config is missing; expected a .json of OpenAI's starter or Uber's deep-neuroevolut"),
        ("a.json", "[1]", "a.json: the file must be a JSON object {...}, but is [1]"),
        ("a.json", without("optimizer"), "a.json: optimizer is missing; expected"),
        ("a.json", without("optimizer.args.stepsize"), "a.json: optimizer.args.stepsize is missing; expected"),
        ("a.json", without("policy.args", 3), "a.json: policy.args must be a JSON object {...}, but is 3"),
        (
            "a.json",
            without("policy.type", "MyPolicy"),
            "policy.type must be MujocoPolicy or ESAtariPolicy or GAAtariPo",
        ),
        (
            "a.json",
            without("config.episodes_per_batch", "2"),
            'episodes_per_batch must be a number of episodes, but is "',
        ),
        (
            "a.json",
            without("config.return_proc_mode", []),
            "return_proc_mode must be centered_rank or sign or centered",
        ),
        (
            "a.json",
            without("config.episode_cutoff_mode", "adaptive:1"),
            "config.episode_cutoff_mode must be env_default",
        ),
        (
            "a.gin",
            "x.y = open('file')",
            "a.gin: x.y must be a literal such as 2, 'text' or [64, 64], but is open('file",
        ),
        ("a.gin", "learner.ESLearner.n_repeats = 2", "a.gin: load_env.env_name is missing; expected a .gin of es_on_"),
        ("a.gin", SHOWN["walker.gin"].replace("CMAS", "S"), "ESLearner.solver must be PEPGSolver or CMASolver, but is"),
        ("a.gin", None, "cannot be read (No such file or directory)"),
        ("a.json", "[" * 100_000, "a.json: a value in it has another form than in such a file; expected a .json of"),
        ("config.py:a", ESTOOL_WITHOUT_LAYERS, "output_noise must have a value for each layer, such as [False, False,"),
        ("config.py:a", "a = (", "line 1 cannot be read ('(' was never closed); expected config.py:GAME of estool"),
    ],
)
def test_a_file_that_is_no_such_config_is_refused_in_one_line(tmp_path, name, text, message):
    if text is not None:
        (tmp_path / name.partition(":")[0]).write_text(text)
    with pytest.raises(ConfigError) as caught:
        import_config(tmp_path / name)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_the_command_writes_a_config_that_check_takes_and_overwrites_nothing(tmp_path, run_mpies):
    (tmp_path / "walker.gin").write_text(SHOWN["walker.gin"])
    done = run_mpies(0, "import", "walker.gin", "--out", "walker.yaml")
    assert done.code == 0 and "note: environment.id is BipedalWalkerHardcore-v3" in done.stderr
    assert load_config(tmp_path / "walker.yaml").solver.kind == "cma_es"
    again = run_mpies(0, "import", "walker.gin", "--out", "walker.yaml")
    assert again.code == 2 and "walker.yaml: exists already; give another --out" in again.stderr


def test_the_linear_policy_of_stable_baselines3_has_no_bias_and_the_steps_end_its_run():
    text = re.search(r"^## Stable-Baselines3's ARS.*?```yaml\n(.*?)```", PAGE, re.S | re.M)[1]
    config = make_config(parse_value(text, "moving_over.md"), [], "moving_over.md")
    assert Task(config).dimension == 11 * 3  # numbers of an observation times those of an action
    assert config.stop.generations * config.solver.population >= config.stop.steps  # even if episodes have one step


UBER = {"algo_type": "nsr", "novelty_search": {"k": 10, "population_size": 5, "selection_method": "novelty_prob"}}


def test_novelty_search_of_deep_neuroevolution_stays_novelty_search(tmp_path):
    whole = json.loads(SHOWN["humanoid.json"]) | UBER
    whole["config"] |= {"return_proc_mode": "centered_sign_rank", "episodes_per_batch": 1001}
    config, notes = imported(tmp_path, "humanoid_nsres.json", json.dumps(whole))
    solver = config.solver
    assert (solver.kind, solver.variant, solver.means, solver.neighbours) == ("novelty_es", "nsr", 5, 10)
    assert (solver.population, solver.sigma, solver.weight_decay) == (1002, 0.02, 0.005)
    assert config.environment.behaviour == ["x_position", "y_position"]
    assert "config.timesteps_per_batch has no counterpart" in notes
    whole["algo_type"] = "quality"
    with pytest.raises(ConfigError, match=r'algo_type must be es or ns or nsr or nsra, but is "quality"'):
        imported(tmp_path, "humanoid_nsres.json", json.dumps(whole))


def test_each_key_that_is_not_translated_has_a_note(tmp_path):
    whole = json.loads(SHOWN["humanoid.json"]) | UBER
    sections = {
        "": whole,
        "config.": whole["config"],
        "policy.": whole["policy"],
        "policy.args.": whole["policy"]["args"],
    }
    sections |= {"optimizer.": whole["optimizer"], "novelty_search.": whole["novelty_search"]}
    for section in sections.values():
        section["extra"] = 1
    _, notes = imported(tmp_path, "humanoid.json", json.dumps(whole))
    assert not {f"{name}extra has no counterpart" for name in sections} - set(notes)


ATARI = json.loads(SHOWN["humanoid.json"]) | {"env_id": "FrostbiteNoFrameskip-v4"}
ATARI["config"] |= {"calc_obstat_prob": 0.0, "episodes_per_batch": 5000, "episode_cutoff_mode": 5000}


def test_atari_of_deep_neuroevolution_has_a_policy_for_images(tmp_path):
    pytest.importorskip("envpool")
    whole = ATARI | {"policy": {"type": "ESAtariPolicy", "args": {}}}
    config, notes = imported(tmp_path, "frostbite_es.json", json.dumps(whole))
    assert (config.environment.id, config.environment.max_steps) == ("Frostbite-v5", 5000)
    assert (config.policy.kind, config.policy.reference, config.policy.batch_normalization) == ("conv", 128, True)
    assert notes[0].startswith("environment.id is Frostbite-v5: the game FrostbiteNoFrameskip-v4")
    novelty, notes = imported(tmp_path, "frostbite_nsres.json", json.dumps(whole | UBER))
    assert novelty.solver.kind == "novelty_es" and any("emulator's memory" in note for note in notes)


def test_the_genetic_algorithm_of_deep_neuroevolution_becomes_deep_ga(tmp_path):
    whole = ATARI | {"policy": {"type": "GAAtariPolicy", "args": {"nonlin_type": "relu"}}}
    whole |= {"population_size": 10, "num_elites": 2}
    del whole["optimizer"]
    config, notes = imported(tmp_path, "frostbite_ga.json", json.dumps(whole))
    solver = config.solver
    assert (solver.kind, solver.population, solver.parents, solver.sigma) == ("deep_ga", 5001, 10, 0.02)
    assert (config.policy.kind, config.policy.activation, config.policy.batch_normalization) == ("conv", "relu", False)
    assert "num_elites 2: deep_ga has one elite" in notes


def test_the_largest_limit_of_an_episode_is_its_time_limit(tmp_path):
    whole = json.loads(SHOWN["humanoid.json"])
    whole["config"]["episode_cutoff_mode"] = "adaptive:100, .4,1.2,1600.0"
    config, _ = imported(tmp_path, "humanoid.json", json.dumps(whole))
    assert config.environment.max_steps == 1600 and config.environment.adaptive.ratio == 1.2


def test_arguments_of_an_environment_of_es_on_gke_are_kept(tmp_path):
    gin = SHOWN["walker.gin"].replace('"BipedalWalkerHardcore-v2"', '"MinitaurBulletEnv"')
    gin += "utility.load_env.motor_velocity_limit = 10.0\nutility.load_env.renders = False\n"
    config, notes = imported(tmp_path, "minitaur.gin", gin.replace('"NULL"', '"minitaur_gym_env"'))
    assert config.environment.kwargs == {"motor_velocity_limit": 10.0} and not notes
    config, notes = imported(tmp_path, "minitaur.gin", gin)
    assert not config.environment.kwargs
    assert notes == ["load_env.motor_velocity_limit has no effect there, as env_package is NULL"]


def test_a_target_of_zero_is_no_target_in_es_on_gke(tmp_path):
    config, _ = imported(
        tmp_path, "walker.gin", SHOWN["walker.gin"].replace("target_reward = 300", "target_reward = 0")
    )
    assert config.stop.target is None


def test_an_environment_that_pybullet_does_not_have_is_named(tmp_path):
    pytest.importorskip("pybullet", reason="pybullet is not installed")
    (tmp_path / "config.py").write_text(GAMES.replace("AntBulletEnv-v0", "NoDeathAntBulletEnv-v0"))
    _, notes = import_config(f"{tmp_path}/config.py:bullet_ant_tiny")
    assert "environment.id: pybullet has no NoDeathAntBulletEnv-v0; see docs/environments.md" in notes
    _, notes = import_config(f"{tmp_path}/config.py:bullet_minitaur_duck_stoc")
    assert not any("pybullet has no" in note for note in notes)
