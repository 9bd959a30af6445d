"""Configs of other programs as configs of mpies.

They are OpenAI's evolution-strategies-starter, Uber's deep-neuroevolution, es_on_gke and estool.

Settings that have no counterpart are named, so that you can set them yourself.  docs/moving_over.md has the tables.
"""

import ast
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mpies.config.loading import Values, make_config
from mpies.core.errors import ConfigError
from mpies.core.paths import absolute
from mpies.envs import envpool_env, gym_env
from mpies.envs.gymnasium_registry import load_registry

# Values of OpenAI's return_proc_mode to those of solver.fitness.
_FITNESS = {"centered_rank": "centred_rank", "sign": "sign", "centered_sign_rank": "centred_sign_rank"}

# What a file must be, by the end of its name.
_EXPECTED = {
    ".json": "a .json of OpenAI's starter or Uber's deep-neuroevolution",
    ".gin": "a .gin of es_on_gke",
    ".py": "config.py:GAME of estool",
}


class _ForeignProblem(Exception):
    """What is wrong in the file of another program: the key, what was expected, what was found."""


def import_config(path: str | Path) -> tuple[Values, list[str]]:
    """The config of another program's file as plain values, and a note on each setting that was changed or left out.

    path: a .json of OpenAI's starter or of deep-neuroevolution, a .gin of es_on_gke, or config.py:GAME of estool, whose
    file is read and not run.
    Raises ConfigError where the file is not such a config.
    """
    file, _, game = str(path).rpartition(":") if ".py:" in str(path) else (str(path), "", "")
    readers = {".json": _read_openai, ".gin": _read_es_on_gke, ".py": lambda text: _read_estool(text, game)}
    if (suffix := Path(file).suffix) not in readers or (suffix == ".py") != bool(game):
        raise ConfigError(f"{path}: must be {', or '.join(_EXPECTED.values())}")
    expected = f"expected {_EXPECTED[suffix]}"
    try:
        values, notes = readers[suffix](absolute(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); give the path of a config") from None
    except _ForeignProblem as error:
        raise ConfigError(f"{path}: {error}") from None
    except (json.JSONDecodeError, SyntaxError) as error:
        raise ConfigError(f"{path}: line {error.lineno} cannot be read ({error.msg}); {expected}") from None
    except KeyError as error:
        raise ConfigError(f"{path}: {error.args[0]} is missing; {expected}") from None
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError):
        raise ConfigError(f"{path}: a value in it has another form than in such a file; {expected}") from None
    make_config(values, [], str(path))
    return values, notes


class _Section:
    """A section of a JSON file that names a missing key, and knows which keys nobody has taken.

    name: its dotted name in the file, "" for the top level.
    """

    def __init__(self, values: Any, name: str = "") -> None:
        if not isinstance(values, dict):
            raise _ForeignProblem(f"{name or 'the file'} must be a JSON object {{...}}, but is {json.dumps(values)}")
        self.prefix = f"{name}." if name else ""
        self.left: dict[str, Any] = dict(values)

    def take(self, key: str, kind: type = object, expected: str = "") -> Any:
        """The value of a key.  kind: the type that it must have; expected: the same in words."""
        if key not in self.left:
            raise KeyError(f"{self.prefix}{key}")
        value = self.left.pop(key)
        if not isinstance(value, kind):
            raise _ForeignProblem(f"{self.prefix}{key} must be {expected}, but is {json.dumps(value)}")
        return value

    def take_choice(self, key: str, choices: Iterable[str]) -> str:
        """The value of a key, one of the choices."""
        value: str = self.take(key)
        if value not in list(choices):
            raise _ForeignProblem(f"{self.prefix}{key} must be {' or '.join(choices)}, but is {json.dumps(value)}")
        return value

    def section(self, key: str) -> "_Section":
        """The section of a key."""
        return _Section(self.take(key), f"{self.prefix}{key}")

    def notes(self) -> list[str]:
        """A note on each key that was not taken."""
        return [f"{self.prefix}{key} has no counterpart" for key in self.left]


def _newest_id(environment_id: str, notes: list[str]) -> str:
    """The id with the newest version that gymnasium has of this environment, or pybullet's own id."""
    if "Bullet" in environment_id:
        known = [name for name in gym_env.load_registry() if gym_env.offers(name)]
        if known and environment_id not in known:  # none is known where pybullet is not installed
            notes.append(f"environment.id: pybullet has no {environment_id}; see docs/environments.md")
        return environment_id
    base = environment_id.rpartition("-v")[0]
    versions = [name for name in load_registry() if re.fullmatch(rf"{re.escape(base)}-v\d+", name)]
    newest = max(versions, key=lambda name: int(name.rpartition("-v")[2]), default=environment_id)
    if newest != environment_id:
        notes.append(f"environment.id is {newest}, the version of {environment_id} that gymnasium has now")
    elif not versions:
        notes.append(f"environment.id: gymnasium has no {environment_id}; see docs/environments.md")
    return newest


def _atari_id(environment_id: str, notes: list[str]) -> str:
    """EnvPool's id of an Atari game such as FrostbiteNoFrameskip-v4, or ale-py's where EnvPool is not installed."""
    game = re.sub(r"(NoFrameskip|Deterministic)?-v\d+$", "-v5", environment_id)
    name = game if envpool_env.is_atari(game) else f"ALE/{game}"
    notes.append(f"environment.id is {name}: the game {environment_id} with 4 frames a step, as there")
    return name


def _read_openai(text: str) -> tuple[Values, list[str]]:
    """A file of configurations/ of OpenAI's evolution-strategies-starter, or of Uber's deep-neuroevolution."""
    notes: list[str] = []
    whole = _Section(json.loads(text))
    config, policy = whole.section("config"), whole.section("policy")
    network = policy.section("args")
    kind = policy.take_choice("type", ("MujocoPolicy", "ESAtariPolicy", "GAAtariPolicy"))
    environment = _openai_environment(whole, config, kind != "MujocoPolicy", notes)
    values: Values = {
        "environment": environment,
        "policy": _openai_policy(config, network, kind, notes),
        "solver": _openai_solver(whole, config, environment, kind, notes),
        "noise": {"size": 250_000_000},
    }
    if "init_from" in policy.left:
        values["policy"]["init_from"] = policy.take("init_from")
    if frequency := config.left.pop("snapshot_freq", 0):
        values["checkpoint"] = {"every": frequency}
    if config.left.pop("eval_prob", 0):
        notes.append("config.eval_prob: mpies evaluates every 10 generations, see evaluation.every")
    notes.append("training there goes on until it is stopped: set stop.generations or stop.target")
    return values, notes + [note for section in (whole, config, policy, network) for note in section.notes()]


def _openai_environment(whole: _Section, config: _Section, is_atari: bool, notes: list[str]) -> Values:
    """The section environment.  Its time limit is a number, or grows: adaptive:start,threshold,ratio[,maximum]."""
    name = whole.take("env_id", str, "the id of an environment")
    environment: Values = {"id": (_atari_id if is_atari else _newest_id)(name, notes)}
    mode = config.left.pop("episode_cutoff_mode", "env_default")
    if isinstance(mode, int):
        environment["max_steps"] = mode
    elif mode != "env_default":
        number = r"\s*(\d*\.?\d+)\s*"
        numbers = re.fullmatch(rf"adaptive:\s*(\d+)\s*,{number},{number}(?:,{number})?", str(mode))
        if not numbers:
            raise _ForeignProblem(
                "config.episode_cutoff_mode must be env_default, a number of steps or "
                f"adaptive:start,threshold,ratio, but is {json.dumps(mode)}"
            )
        start, threshold, ratio, maximum = numbers.groups()
        environment["adaptive"] = {"start": int(start), "threshold": float(threshold), "ratio": float(ratio)}
        if maximum:
            environment["max_steps"] = int(float(maximum))
    return environment


def _openai_policy(config: _Section, network: _Section, kind: str, notes: list[str]) -> Values:
    """The section policy.  kind: the class of the policy there."""
    fraction = config.take("calc_obstat_prob")
    if kind == "ESAtariPolicy":
        return {"kind": "conv", "reference": 128}
    activation = network.take("nonlin_type")
    if activation == "lrelu":
        notes.append("policy.activation lrelu has a slope of 0.01 here, and 0.2 there")
    if kind == "GAAtariPolicy":
        return {"kind": "conv", "activation": activation, "batch_normalization": False}
    if "connection_type" in network.left:
        network.take_choice("connection_type", ("ff",))
    policy: Values = {
        "hidden": network.take("hidden_dims"),
        "activation": activation,
        "action_noise": network.left.pop("ac_noise_std", 0.0),
        "statistics_fraction": fraction,
    }
    bins = network.take("ac_bins", str, "continuous:, uniform:N or custom:v1,v2,...")
    return policy if bins.startswith("continuous") else policy | {"bins": bins}


def _openai_solver(whole: _Section, config: _Section, environment: Values, kind: str, notes: list[str]) -> Values:
    """The section solver: of the genetic algorithm, which has no optimizer, of novelty search, or of OpenAI-ES.

    environment: its section; novelty search adds the behaviour.  kind: the class of the policy there.
    """
    episodes = config.take("episodes_per_batch", int, "a number of episodes")
    if "num_elites" in whole.left:
        return _uber_ga(whole, config, episodes, notes)
    variant = whole.take_choice("algo_type", ("es", "ns", "nsr", "nsra")) if "algo_type" in whole.left else "es"
    optimizer = whole.section("optimizer")
    arguments = optimizer.section("args")
    rule = {"kind": optimizer.take("type"), "learning_rate": arguments.take("stepsize"), **arguments.left}
    notes += optimizer.notes()
    population = episodes + episodes % 2  # whole pairs
    shared: Values = {"sigma": config.take("noise_stdev"), "weight_decay": config.take("l2coeff")}
    fitness = config.take_choice("return_proc_mode", _FITNESS)
    if variant == "es":
        limits = {"population": population, "timesteps_per_batch": config.take("timesteps_per_batch")}
        return {"kind": "openai_es", **limits, **shared, "fitness": _FITNESS[fitness], "optimizer": rule}
    if fitness != "centered_sign_rank":  # the ranks of novelty, as nses.py calls them
        notes.append(f"config.return_proc_mode {fitness}: novelty_es takes ranks of novelty, centered_sign_rank there")
    search = whole.section("novelty_search")
    means, neighbours = search.take("population_size"), search.take("k")
    method = search.left.pop("selection_method", "novelty_prob")
    if method != "novelty_prob":
        notes.append(f"novelty_search.selection_method {method}: novelty_es trains novel means more often")
    notes += search.notes()
    if kind != "MujocoPolicy":
        notes.append("environment.behaviour: novelty there compares the emulator's memory, here the last images")
    elif environment["id"].startswith(("Ant-", "Humanoid-")):
        environment["behaviour"] = ["x_position", "y_position"]
    else:
        notes.append("environment.behaviour: novelty there compares x and y of the centre of mass at the end")
    own = {"variant": variant, "population": population, "means": means, "neighbours": neighbours}
    return {"kind": "novelty_es", **own, **shared, "optimizer": rule}


def _uber_ga(whole: _Section, config: _Section, episodes: int, notes: list[str]) -> Values:
    """The section solver of the genetic algorithm.  episodes: mutants of a generation, each with one episode."""
    for key in ("l2coeff", "return_proc_mode"):  # its files have them, and it does not use them
        config.left.pop(key, None)
    if (elites := whole.take("num_elites")) != 1:
        notes.append(f"num_elites {elites}: deep_ga has one elite")
    notes.append("solver.population is config.episodes_per_batch and the elite, which plays again in each generation")
    notes.append("solver.initial_sigma: the first members there are new policies, here mutants of one")
    return {
        "kind": "deep_ga",
        "population": episodes + 1,
        "parents": whole.take("population_size"),
        "sigma": config.take("noise_stdev"),
    }


def _read_es_on_gke(text: str) -> tuple[Values, list[str]]:
    """A file of configs/ of es_on_gke."""
    notes: list[str] = []
    lines = [line.partition("#")[0].partition("=") for line in text.splitlines() if "=" in line.partition("#")[0]]
    found: dict[str, Any] = {
        ".".join(key.strip().split(".")[-2:]): value if value.startswith("@") else _literal(value, key.strip())
        for key, value in ((key, value.strip()) for key, _, value in lines)
    }
    name, package = str(found.pop("load_env.env_name")), str(found.pop("load_env.env_package", "NULL"))
    environment: Values = {"id": "gym:MinitaurBulletEnv-v0" if name == "MinitaurBulletEnv" else _newest_id(name, notes)}
    if package not in ("NULL", "minitaur_gym_env"):
        notes.append(f"load_env.env_package {package}: import it in a file of your own, see docs/environments.md")
    if name.startswith("BipedalWalker"):
        environment["ignored_rewards"] = [-100]  # as its workers do
    solver = re.split(r"[@.]", str(found.pop("ESLearner.solver")))[-1]  # @cma_solver.CMASolver, or @CMASolver
    kinds = {"PEPGSolver": "pepg", "CMASolver": "cma_es"}
    if solver not in kinds:
        raise _ForeignProblem(f"ESLearner.solver must be {' or '.join(kinds)}, but is {solver}")
    values: Values = {
        "environment": environment,
        "policy": {"normalize_observations": False, "output": "scale"},
        "solver": {"kind": kinds[solver]},
    }
    words = {"init_sigma": "sigma", "l2_coefficient": "weight_decay"} if kinds[solver] == "cma_es" else {}
    places = {
        "RolloutServicer.max_steps": "environment.max_steps",
        "MLP.layers": "policy.hidden",
        "MLP.activation": "policy.activation",
        "ESLearner.max_iters": "stop.generations",
        "ESLearner.target_reward": "stop.target",
        "ESLearner.population_size": "solver.population",
        "ESLearner.n_repeats": "solver.episodes",
        "ESLearner.eval_every_n_iters": "evaluation.every",
        "ESLearner.eval_n_episodes": "evaluation.episodes",
        "ESLearner.warm_start_from": "policy.init_from",
        f"{solver}.seed": "seed",
    }
    for key, value in found.items():
        owner, _, word = key.partition(".")
        place = places.get(key) or (f"solver.{words.get(word, word)}" if owner == solver else "")
        if owner == "load_env" and word not in ("render", "renders") and package != "NULL":
            place = f"environment.kwargs.{word}"
        if place == "stop.target" and value <= 0:
            continue  # no target there
        if place:
            _put(values, place, value)
        elif key not in ("load_env.render", "load_env.renders", "create_policy.policy_type"):
            ignored = owner == "load_env"  # built-in environments get no arguments there
            notes.append(f"{key} has no {'effect there, as env_package is NULL' if ignored else 'counterpart'}")
    if values["policy"].get("activation") not in ("tanh", "relu"):
        values["policy"]["activation"] = "linear"
    if values["solver"].get("average_baseline") is False:
        values["solver"]["population"] -= 1  # there the mean counts as a member
    return values, notes


def _read_estool(text: str, game: str) -> tuple[Values, list[str]]:
    """A game of estool's config.py: a call of Game with literal values, stored as games['NAME']."""
    notes = [
        "solver: as of train.py -o pepg -n 8 -t 4; set solver.population (-n times -t). Without -o, it takes cma: "
        "set solver: {kind: cma_es, population: 32, sigma: 0.1, weight_decay: 0.01}"
    ]
    found: dict[str, dict[str, Any]] = {}
    games: dict[str, dict[str, Any]] = {}
    for line in ast.parse(text).body:
        if isinstance(line, ast.Assign) and isinstance(line.value, ast.Call) and isinstance(line.targets[0], ast.Name):
            found[line.targets[0].id] = {
                str(word.arg): _literal(word.value, f"{line.targets[0].id}: {word.arg}") for word in line.value.keywords
            }
        elif isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Subscript):
            games[ast.literal_eval(line.targets[0].slice)] = found.get(getattr(line.value, "id", ""), {})
    if game not in games:
        raise _ForeignProblem(f"the file has no game of this name; its games are {', '.join(games) or 'none'}")
    it = games[game]
    if it["rnn_mode"] or it["activation"] not in ("tanh", "passthru", "relu"):
        raise _ForeignProblem(
            "only feed-forward games with tanh, passthru or relu can be imported, and this is not one"
        )
    if not it["output_noise"]:
        raise _ForeignProblem("output_noise must have a value for each layer, such as [False, False, True], but is []")
    name = it["env_name"] if "-v" in it["env_name"] else f"{it['env_name']}-v0"
    values: Values = {
        "environment": {"id": _newest_id(name, notes)},
        "policy": {
            "hidden": [units for units in it["layers"] if units],
            "activation": "relu" if it["activation"] == "relu" else "tanh",
            "output": "scale" if it["activation"] == "tanh" else "clip",
            "normalize_observations": False,
        },
        "solver": {
            "kind": "pepg",
            "population": 32,
            "sigma_init": 0.1,
            "sigma_limit": 0.02,
            "learning_rate_decay": 1,
            "weight_decay": 0.005,
        },
        "evaluation": {"every": 25},
    }
    if name.startswith("BipedalWalker"):
        values["environment"]["ignored_rewards"] = [-100]  # as its model.py does in training
    if it["time_factor"]:
        values["policy"]["time_input"] = it["time_factor"]
    if it["output_noise"][-1]:
        values["policy"]["sampling"] = "gaussian"
    if it.get("noise_bias"):
        notes.append(f"noise_bias {it['noise_bias']} has no counterpart")
    if any(it["output_noise"][:-1]):
        notes.append("output_noise of hidden layers has no counterpart")
    return values, notes


def _literal(source: str | ast.expr, name: str) -> Any:
    """The value of a Python literal.  name: of its key, for the message."""
    try:
        return ast.literal_eval(source)
    except (ValueError, SyntaxError, TypeError):
        shown = source if isinstance(source, str) else ast.unparse(source)
        raise _ForeignProblem(f"{name} must be a literal such as 2, 'text' or [64, 64], but is {shown}") from None


def _put(values: Values, place: str, value: Any) -> None:
    """Set a key such as solver.sigma, or seed, in nested sections."""
    *sections, key = place.split(".")
    for section in sections:
        values = values.setdefault(section, {})
    values[key] = value
