"""Configs of other programs as configs of mpies: of OpenAI's evolution-strategies-starter, es_on_gke and estool.

Settings that have no counterpart are named, so that you can set them yourself.  docs/moving_over.md has the tables.
"""

import ast
import json
import re
from pathlib import Path
from typing import Any

from mpies.config.loading import Values, make_config
from mpies.envs.gymnasium_registry import load_registry
from mpies.errors import ConfigError
from mpies.paths import absolute

# Values of OpenAI's return_proc_mode to those of solver.fitness.
_FITNESS = {"centered_rank": "centred_rank", "sign": "sign", "centered_sign_rank": "centred_sign_rank"}


def import_config(path: str | Path) -> tuple[Values, list[str]]:
    """The config of another program's file as plain values, and a note on each setting that was changed or left out.

    path: a .json of OpenAI's starter, a .gin of es_on_gke, or config.py:GAME of estool, whose file is read and not run.
    Raises ConfigError where the file is not such a config.
    """
    file, _, game = str(path).rpartition(":") if ".py:" in str(path) else (str(path), "", "")
    readers = {".json": _read_openai, ".gin": _read_es_on_gke, ".py": lambda text: _read_estool(text, game)}
    if (suffix := Path(file).suffix) not in readers or (suffix == ".py") != bool(game):
        raise ConfigError(
            f"{path}: must be a .json of OpenAI's starter, a .gin of es_on_gke, or config.py:GAME of estool"
        )
    try:
        values, notes = readers[suffix](absolute(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); give the path of a config") from None
    except (LookupError, TypeError, ValueError, SyntaxError, AttributeError) as error:
        raise ConfigError(f"{path}: is not such a config ({type(error).__name__}: {error})") from None
    make_config(values, [], str(path))
    return values, notes


def _newest_id(environment_id: str, notes: list[str]) -> str:
    """The id with the newest version that gymnasium has of this environment."""
    base = environment_id.rpartition("-v")[0]
    versions = [name for name in load_registry() if re.fullmatch(rf"{re.escape(base)}-v\d+", name)]
    newest = max(versions, key=lambda name: int(name.rpartition("-v")[2]), default=environment_id)
    if newest != environment_id:
        notes.append(f"environment.id is {newest}, the version of {environment_id} that gymnasium has now")
    elif not versions:
        notes.append(f"environment.id: gymnasium has no {environment_id}; see docs/environments.md")
    return newest


def _read_openai(text: str) -> tuple[Values, list[str]]:
    """A file of configurations/ of OpenAI's evolution-strategies-starter."""
    notes: list[str] = []
    whole = json.loads(text)
    config, policy, optimizer = whole["config"], whole["policy"], whole["optimizer"]
    if policy["type"] != "MujocoPolicy":
        raise ValueError(f"policy.type is {policy['type']}; only MujocoPolicy can be imported")
    network, rule = policy["args"], dict(optimizer.get("args", {}))
    environment: Values = {"id": _newest_id(whole["env_id"], notes)}
    mode, _, limits = config.get("episode_cutoff_mode", "env_default").partition(":")
    if mode == "adaptive":
        start, threshold, ratio = limits.split(",")
        environment["adaptive"] = {"start": int(start), "threshold": float(threshold), "ratio": float(ratio)}
    values: Values = {
        "environment": environment,
        "policy": {
            "hidden": network["hidden_dims"],
            "activation": network["nonlin_type"],
            "action_noise": network.get("ac_noise_std", 0.0),
            "statistics_fraction": config["calc_obstat_prob"],
        },
        "solver": {
            "kind": "openai_es",
            "population": config["episodes_per_batch"] + config["episodes_per_batch"] % 2,
            "timesteps_per_batch": config["timesteps_per_batch"],
            "sigma": config["noise_stdev"],
            "weight_decay": config["l2coeff"],
            "fitness": _FITNESS[config["return_proc_mode"]],
            "optimizer": {"kind": optimizer["type"], "learning_rate": rule.pop("stepsize"), **rule},
        },
        "noise": {"size": 250_000_000},
    }
    if not network["ac_bins"].startswith("continuous"):
        values["policy"]["bins"] = network["ac_bins"]
    if "init_from" in policy:
        values["policy"]["init_from"] = policy["init_from"]
    if config.get("snapshot_freq"):
        values["checkpoint"] = {"every": config["snapshot_freq"]}
    notes.append("config.eval_prob: mpies evaluates every 10 generations, see evaluation.every")
    notes.append("the starter trains until it is stopped: set stop.generations or stop.target")
    if network["nonlin_type"] == "lrelu":
        notes.append("policy.activation lrelu has a slope of 0.01 here, and 0.2 there")
    return values, notes


def _read_es_on_gke(text: str) -> tuple[Values, list[str]]:
    """A file of configs/ of es_on_gke."""
    notes: list[str] = []
    lines = [line.partition("#")[0].partition("=") for line in text.splitlines() if "=" in line.partition("#")[0]]
    found: dict[str, Any] = {
        ".".join(key.strip().split(".")[-2:]): value.strip() if value.strip().startswith("@") else _literal(value)
        for key, _, value in lines
    }
    name, package = str(found.pop("load_env.env_name")), str(found.pop("load_env.env_package", "NULL"))
    environment: Values = {"id": "gym:MinitaurBulletEnv-v0" if name == "MinitaurBulletEnv" else _newest_id(name, notes)}
    if package not in ("NULL", "minitaur_gym_env"):
        notes.append(f"load_env.env_package {package}: import it in a file of your own, see docs/environments.md")
    if name.startswith("BipedalWalker"):
        environment["ignored_rewards"] = [-100]  # as its workers do
    solver = re.split(r"[@.]", str(found.pop("ESLearner.solver")))[-1]  # @cma_solver.CMASolver, or @CMASolver
    kinds = {"PEPGSolver": "pepg", "CMASolver": "cma_es"}
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
        if place:
            _put(values, place, value)
        elif key not in ("load_env.render", "create_policy.policy_type"):
            notes.append(f"{key} has no counterpart")
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
            found[line.targets[0].id] = {str(word.arg): ast.literal_eval(word.value) for word in line.value.keywords}
        elif isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Subscript):
            games[ast.literal_eval(line.targets[0].slice)] = found.get(getattr(line.value, "id", ""), {})
    it = games[game]
    if it["rnn_mode"] or it["activation"] not in ("tanh", "passthru", "relu"):
        raise ValueError(f"only feed-forward games with tanh, passthru or relu can be imported, but {game} is not one")
    name = it["env_name"] if "-v" in it["env_name"] else f"{it['env_name']}-v0"
    values: Values = {
        "environment": {"id": name if "Bullet" in name else _newest_id(name, notes)},
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


def _literal(text: str) -> Any:
    return ast.literal_eval(text.strip())


def _put(values: Values, place: str, value: Any) -> None:
    """Set a key such as solver.sigma, or seed, in nested sections."""
    *sections, key = place.split(".")
    for section in sections:
        values = values.setdefault(section, {})
    values[key] = value
