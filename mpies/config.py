"""The configuration of a run: one YAML file, eight sections, every key known.

`load` reads a file, applies KEY=VALUE overrides and returns a Config, or raises ConfigError with one
line: where, what was expected, what was found, how to mend it.
"""

import difflib
import re
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Union

import yaml
from pydantic import Field, ValidationError, create_model, model_validator

from mpies.policies import MLPOptions, any_policy
from solvers import SOLVERS, find_solver
from solvers.options import Count, Flag, Fraction, NonNegative, Options, Positive, Real, Text, WholeNumber


class ConfigError(ValueError):
    """A user's mistake in a configuration, said in one line."""


# What mpies itself hands to the constructors of gymnasium and EnvPool.
_NOT_KWARGS = {"id", "environment_id", "task_id", "backend", "max_steps", "max_episode_steps", "rebuild", "seed"}
_NOT_KWARGS |= {
    "rebuild_every",
    "frame_skip",
    "timeout",
    "num_envs",
    "batch_size",
    "num_threads",
    "env_type",
    "disable_env_checker",
}


class AdaptiveSection(Options):
    """A limit on the length of training episodes that grows as they reach it (OpenAI's episode_cutoff_mode)."""

    start: Count = Field(description="the first limit, in steps")
    threshold: Fraction = Field(0.5, description="share of members reaching it, in all their episodes, that raises it")
    ratio: Annotated[Real, Field(gt=1)] = Field(1.5, description="what it is multiplied by then")


class EnvironmentSection(Options):
    """The world the policy acts in."""

    id: Text = Field(
        description="a gymnasium id such as LunarLander-v3, one of pybullet's such as AntBulletEnv-v0, function:NAME "
        "for a test function, or your own: path/to/file.py:name or module:callable"
    )
    backend: Literal["auto", "envpool", "gymnasium", "gym"] = Field(
        "auto",
        description="auto takes EnvPool where it has the id and no kwargs are given, then gymnasium, then gym",
    )
    kwargs: dict[str, object] = Field({}, description="keyword arguments of the environment's constructor")
    rebuild: Literal["auto", "always", "never"] = Field(
        "auto",
        description="not for EnvPool: a new environment object for each episode; auto where a short probe finds that "
        "it carries history from one episode into the next",
    )
    rebuild_every: Count | None = Field(
        None, description="not for EnvPool: episodes after which an object that fills the memory is built anew"
    )
    episode_timeout: Positive | None = Field(
        None, description="seconds of wall time after which an episode counts as failed; default never"
    )
    max_steps: Count | None = Field(
        None, description="time limit of an episode, in steps of the environment; default the environment's"
    )
    frame_skip: Count | None = Field(
        None, description="Atari, and others that know it: frames that a step lasts; default the environment's"
    )
    action_repeat: Count = Field(1, description="steps of the environment that an action lasts, rewards summed")
    hide: list[WholeNumber] = Field([], description="indices of observations that the policy does not get")
    ignored_rewards: list[Real] = Field(
        [], description="in training, rewards of exactly these values count as 0, such as [-100] of BipedalWalker"
    )
    reward_shift: Real = Field(
        0.0, description="in training, subtracted from the reward of each step: a bonus for surviving"
    )
    behaviour: list[Text] = Field(
        [],
        description="names in the environment's info, such as [x_position], whose last numbers say how an episode "
        "ended, for solvers that look for novelty; [] takes the last observation",
    )
    adaptive: AdaptiveSection | None = Field(None, description="in training, a limit of episodes that grows")
    seeds: Literal["pair", "generation"] = Field(
        "pair",
        description="who shares an episode's seed: the two members of an antithetic pair, or all of a generation",
    )
    dimension: Annotated[Count, Field(ge=2)] | None = Field(
        None, description="number of parameters of a function: function:NAME, or your own"
    )
    shift: Real = Field(
        0.0, description="of a function: the optimum is moved by normals from the run's seed, times this"
    )

    @property
    def function(self):
        """The name of the function of parameters that stands for an environment, or None."""
        if self.id.startswith("function:"):
            return self.id.removeprefix("function:")
        return self.id if self.dimension is not None else None

    @property
    def rebuild_each_episode(self):
        """True, False, or None for auto."""
        return {"auto": None, "always": True, "never": False}[self.rebuild]

    @model_validator(mode="after")
    def _kwargs_are_not_keys(self):
        for name in sorted(_NOT_KWARGS & self.kwargs.keys()):
            cure = f"use environment.{name}" if name in type(self).model_fields else "mpies gives it"
            cure = "use environment.max_steps" if "max" in name else cure
            raise ValueError(f"kwargs.{name} is not for kwargs: {cure}; remove it")
        return self

    @model_validator(mode="after")
    def _function_keys(self):
        from envs import FUNCTIONS
        from envs.own import is_own

        # A resolved config names every key, so a key at its default is as good as absent.
        given = [name for name, field in type(self).model_fields.items() if getattr(self, name) != field.default]
        if not self.id.startswith("function:") and not is_own(self.id):
            for name in ("dimension", "shift"):
                if name in given:
                    raise ValueError(f"{name} is for functions only; remove it, or use id: function:NAME")
            return self
        if self.function is None:
            if "shift" in given:
                raise ValueError("shift is for functions only; remove it, or give the function's dimension")
            return self
        if self.id.startswith("function:") and self.function not in FUNCTIONS:
            raise ValueError(
                f"id names no test function: {self.id!r}; use one of function:{', function:'.join(FUNCTIONS)}"
            )
        if self.dimension is None:
            raise ValueError(f"dimension is missing: how many parameters {self.id} has, for instance dimension: 100")
        for name in given:
            if name not in ("id", "dimension", "shift", "seeds"):
                raise ValueError(f"{name} is not for functions; remove it")
        return self


class NoiseTable(Options):
    """The shared noise table, one per node."""

    size: Annotated[Count, Field(ge=2)] = Field(
        25_000_000, description="float32 numbers; 4 bytes each per node (published size: 250_000_000)"
    )


class NoiseSection(NoiseTable):
    """Independent normals for all parameters, from a table that is shared on each node."""

    kind: Literal["full"] = "full"
    rank: ClassVar[int] = 0  # no products


class LowRankSection(NoiseTable):
    """For matrices of weights, products of vectors of normals: far less noise to read (docs/solvers.md)."""

    kind: Literal["low_rank"] = "low_rank"
    rank: Count = Field(1, description="r: a matrix takes r (rows + columns) normals in place of rows * columns")


class EvaluationSection(Options):
    """Held-out episodes of the mean; they train nothing and count in no budget."""

    every: WholeNumber = Field(10, description="generations between evaluations; 0 evaluates at the end only")
    episodes: Count = Field(100, description="episodes of an evaluation, each with a seed of its own")


class CheckpointSection(Options):
    """Complete states on disk."""

    every: Count = Field(10, description="generations between checkpoints")
    seconds: Positive | None = Field(None, description="a checkpoint also whenever this many seconds have passed")
    keep: Count = Field(3, description="newest checkpoints kept, besides the first and the best policy")
    share: Fraction = Field(
        0.02, description="of the time that checkpoints may take; one that is due waits: the ledger has it all anyway"
    )


class TrackingSection(Options):
    """What else is written for other tools to follow a run."""

    tensorboard: Flag = Field(False, description="TensorBoard events in the run, under the names of OpenAI's starter")


class StopSection(Options):
    """When a run is over; the first that holds."""

    generations: Count = Field(1000, description="generations")
    target: Real | None = Field(
        None,
        description="mean return over an evaluation's episodes, and again over as many fresh ones: solved",
    )
    steps: Count | None = Field(None, description="environment steps of training")
    seconds: Positive | None = Field(None, description="seconds of training, all resumes together")
    grace: NonNegative = Field(
        30.0, description="seconds that a generation may still take after a signal before it is abandoned"
    )
    max_failures: Fraction = Field(
        0.5, description="share of a generation's members that may fail before the run stops with exit code 1"
    )


def any_solver(*own):
    """The type of the solver section: the Options of the registry, and of these classes."""
    options = tuple(solver.Options for solver in (*SOLVERS.values(), *own))
    return Annotated[Union[options], Field(discriminator="kind")]  # noqa: UP007


class Config(Options):
    """A whole run."""

    seed: WholeNumber = Field(1, description="everything random in the run is a function of this number")
    environment: EnvironmentSection = Field(description="what is acted in")
    policy: any_policy() = Field(MLPOptions(), description="what acts")  # type: ignore[valid-type]
    solver: any_solver() = Field(  # type: ignore[valid-type]
        SOLVERS["openai_es"].Options(), description="what learns"
    )
    overlap: Annotated[WholeNumber, Field(le=1)] = Field(
        0, description="generations that may begin before the results of an older one are in: 0 or 1"
    )
    noise: Annotated[NoiseSection | LowRankSection, Field(discriminator="kind")] = Field(
        NoiseSection(), description="where the noise comes from"
    )
    evaluation: EvaluationSection = Field(EvaluationSection(), description="how progress is judged")
    checkpoint: CheckpointSection = Field(CheckpointSection(), description="what is kept")
    tracking: TrackingSection = Field(TrackingSection(), description="who else follows it")
    stop: StopSection = Field(StopSection(), description="when it ends")

    @model_validator(mode="after")
    def _policy_fits(self):
        if self.environment.function is not None and self.policy.kind != "none":
            raise ValueError("policy must be {kind: none} for a function of parameters, or left out")
        if self.environment.function is None and self.policy.kind == "none":
            raise ValueError("policy.kind none is for functions of parameters only; use kind: mlp")
        return self

    @model_validator(mode="after")
    def _solver_overlaps(self):
        if self.overlap and not self.solver.overlaps:
            able = ", ".join(kind for kind, solver in SOLVERS.items() if solver.Options.overlaps)
            raise ValueError(
                f"overlap is not for solver.kind {self.solver.kind}, whose step needs members of its newest "
                f"distribution; leave it out, or use one of {able}"
            )
        return self

    @model_validator(mode="after")
    def _noise_fits(self):
        if not self.noise.rank:
            return self
        if self.policy.kind != "mlp":
            raise ValueError(
                "noise.kind low_rank is for policy.kind mlp, whose layers are matrices, "
                f"but policy.kind is {self.policy.kind}; use noise: {{kind: full}}"
            )
        if not self.solver.takes_low_rank:
            takers = ", ".join(kind for kind, solver in SOLVERS.items() if solver.Options.takes_low_rank)
            raise ValueError(
                f"noise.kind low_rank is for solvers that need no more of the noise than its weighted sum ({takers}), "
                f"but solver.kind is {self.solver.kind}; use noise: {{kind: full}}"
            )
        return self


# Sections that a resumed run may change: they alter how long and how it is watched, not what it computes.
FREE_SECTIONS = ("evaluation", "checkpoint", "tracking", "stop")


def read(path):
    """The mapping in a YAML file, as plain values.  Raises ConfigError."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); give the path of a YAML file") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not a text file; give the path of a YAML file") from None
    values = _parse(text, str(path))
    if values is None:
        raise ConfigError(f"{path}: is empty; the least it needs is environment: {{id: CartPole-v1}}")
    if not isinstance(values, dict):
        raise ConfigError(
            f"{path}: must hold sections such as environment: {{id: CartPole-v1}}, but is {_found(values)}"
        )
    return values


def load(path, overrides=()):
    """The Config of a YAML file with overrides ("section.key=value", values in YAML) applied."""
    values = read(path)
    for override in overrides:
        _apply(values, override)
    return validate(values, str(path), [override.partition("=")[0] for override in overrides])


def config_model(values):
    """Config, or for a mapping whose solver.kind is nevergrad:NAME or path/to/file.py:Class one that knows its keys.

    Raises ValueError where there is no such solver.
    """
    section = values.get("solver")
    kind = section.get("kind") if isinstance(section, dict) else None
    if not isinstance(kind, str) or ":" not in kind:
        return Config
    own, field = find_solver(kind), Config.model_fields["solver"]
    return create_model(
        "Config", __base__=Config, solver=(any_solver(own), Field(field.default, description=field.description))
    )


def validate(values, where, overridden=()):
    """The Config of a mapping.

    where begins the line of an error, unless the key at fault is one of `overridden`.
    """
    environment = values.get("environment")
    if isinstance(environment, dict) and (
        str(environment.get("id", "")).startswith("function:") or environment.get("dimension") is not None
    ):
        values = {"policy": {"kind": "none"}, **values}
    try:
        model = config_model(values)
    except ValueError as error:
        raise ConfigError(f"{where}: solver.kind {_one_line(error)}") from None
    try:
        config = model.model_validate(_with_kinds(values, model))
        resolved(config)  # refuses what cannot be written down again
    except ValidationError as error:
        raise ConfigError(_explain(error, where, overridden, model)) from None
    except (RecursionError, ValueError):
        raise ConfigError(
            f"{where}: environment.kwargs must hold numbers, texts, flags, lists and sections only; mend or remove it"
        ) from None
    return config


def _kinds(field):
    """The sections that may stand at a field: tag to model; the tag is None where there is no choice."""
    annotation = field.annotation
    models = [m for m in getattr(annotation, "__args__", (annotation,)) if isinstance(m, type)]
    return {
        m.model_fields["kind"].default if "kind" in m.model_fields else None: m
        for m in models
        if issubclass(m, Options)
    }


def _with_kinds(values, model):
    """`values` with the default's kind in each section that names none, so that recipes need not repeat it."""
    values = dict(values)
    for key, field in model.model_fields.items():
        section, kinds = values.get(key), _kinds(field)
        if isinstance(section, str) and section in kinds:  # noise: low_rank is short for noise: {kind: low_rank}
            section = values[key] = {"kind": section}
        if isinstance(section, dict) and kinds:
            if None not in kinds:
                section = {"kind": field.default.kind, **section}
            kind = section.get("kind") if None not in kinds else None
            inner = kinds.get(kind) if kind is None or isinstance(kind, str) else None
            values[key] = _with_kinds(section, inner) if inner else section
    return values


class _Loader(yaml.SafeLoader):
    """YAML's safe loader, refusing a key that stands twice."""

    def construct_mapping(self, node, deep=False):
        seen = set()
        for key_node, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            key = key_node.value
            if isinstance(key, str) and key != "<<":
                if key in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"key {key!r} stands twice; remove one", key_node.start_mark
                    )
                seen.add(key)
        return super().construct_mapping(node, deep)


def _parse(text, where):
    try:
        return yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = f" line {mark.line + 1}" if mark else ""
        raise ConfigError(f"{where}:{line} is not YAML ({_one_line(error.problem or error.context)})") from None
    except yaml.reader.ReaderError as error:
        raise ConfigError(f"{where}: is not YAML (character number {error.position + 1}: {error.reason})") from None
    except RecursionError:
        raise ConfigError(f"{where}: is nested too deeply; a config has three levels") from None
    # PyYAML lets through what it meets in a number or a date that is none.
    except (yaml.YAMLError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"{where}: is not YAML ({_one_line(error)})") from None


def _apply(values, override):
    name, equals, text = override.partition("=")
    *sections, key = name.split(".")
    if not equals or not key or not all(sections):
        raise ConfigError(f"the command line: {override!r} must be KEY=VALUE, for instance solver.sigma=0.05")
    value = _parse(text, f"the command line, {name}")
    for number, section in enumerate(sections):
        inner = values.get(section)
        if inner is None:
            inner = values[section] = {}
        if not isinstance(inner, dict):
            path = ".".join(sections[: number + 1])
            raise ConfigError(f"the command line: {name} is not a key, since {path} is {_found(inner)} and no section")
        values = inner
    values[key] = value


def _explain(error, where, overridden, model):
    """The most telling problem of a ValidationError in one line: where, key, expected, found, cure."""
    problem = min(error.errors(), key=_urgency)
    model, field, path, rest = _locate(problem["loc"], model)
    if rest[-1:] == ["[key]"]:  # the key is what was found, and no part of the path
        rest = rest[:-2]
    name = "".join(f"[{part}]" if isinstance(part, int) else f".{_plain(part)}" for part in path + rest).lstrip(".")
    text = _problem(problem, model, field, name)
    subject = text.split(" ", 1)[0]
    if any(f"{key}.".startswith(f"{subject}.") or subject.startswith((f"{key}.", f"{key}[")) for key in overridden):
        where = "the command line"
    return f"{where}: {_one_line(text)}"


def _urgency(problem):
    """A wrong kind explains unknown keys, and a misspelt key explains a missing one."""
    if problem["loc"][-1:] == ("kind",) or problem["type"].startswith("union_tag"):
        return 0
    return 1 if problem["type"] in ("extra_forbidden", "invalid_key") else 2


def _locate(location, model):
    """(model, field, path, rest) of an error: the section and the key that `path` leads to, without tags.

    rest: what follows inside the value of that key.  model is None where there is no such section.
    """
    field, path, parts = None, [], list(location)
    while parts and model:
        field = model.model_fields.get(parts[0])
        path.append(parts.pop(0))
        kinds = _kinds(field) if field else {}
        if not parts or not kinds:
            break
        model = kinds[parts.pop(0)] if len(kinds) > 1 else next(iter(kinds.values()))
    return model, field, path, parts


def _problem(problem, model, field, name):
    """What is wrong with the key `name`, in words; no line breaks but those of the user's own keys."""
    kind, found, context = problem["type"], problem["input"], problem.get("ctx", {})
    message = problem["msg"].removeprefix("Value error, ")
    if kind == "value_error" and not message.startswith("must "):  # a sentence of its own, about keys of this section
        return f"{name}.{message}" if name else message
    if kind in ("extra_forbidden", "invalid_key"):
        return f"{name} is not a key; {_known(model, name)}"
    if kind == "missing":
        example = "{id: CartPole-v1}" if name == "environment" else "CartPole-v1"
        return f"{name} is missing; add {name.rpartition('.')[2]}: {example}"
    if kind.startswith("union_tag") and isinstance(found, dict):
        return _choice(f"{name}.kind", sorted(map(str, _kinds(field))), found.get("kind"))
    if kind == "literal_error":
        return _choice(name, list(field.annotation.__args__), found)
    expected = {
        "value_error": message,
        "greater_than": f"must be greater than {context.get('gt')}",
        "greater_than_equal": f"must be at least {context.get('ge')}",
        "less_than": f"must be less than {context.get('lt')}",
        "less_than_equal": f"must be at most {context.get('le')}",
        "finite_number": "must be a finite number",
        "list_type": "must be a list",
        "float_type": "must be a number",
        "float_parsing": "must be a number",
        "int_type": "must be a whole number",
        "int_parsing": "must be a whole number",
        "int_parsing_size": "must be a smaller number",
    }.get(kind)
    if problem["loc"][-1] == "[key]":
        return f"{name} has the key {_found(found)}, which must be a text; quote or remove it"
    if _kinds(field) or kind == "dict_type":
        expected = "must be a section of keys"
    return f"{name} {expected or 'must be of another type'}, but is {_found(found)}; {_cure(field, name)}"


def _choice(name, choices, found):
    close = difflib.get_close_matches(str(found), choices, n=1)
    listed = f"one of {', '.join(choices)}" if len(choices) > 1 else choices[0]
    cure = f"did you mean {close[0]}?" if close else f"use {choices[0]}, for instance"
    return f"{name} must be {listed}, but is {_found(found)}; {cure}"


def _known(model, name):
    """A hint for an unknown key: the same one of another section or kind, the nearest, or all there are."""
    section, _, key = name.rpartition(".")
    for place, _, other in _sections(Config, "", ""):
        if key in other.model_fields and key != "kind":
            place = re.sub(r" \(kind: \w+\)", "", place)
            if place == section:
                return f"it belongs to kind: {other.model_fields['kind'].default}"
            return f"did you mean {place}.{key}?"
    close = difflib.get_close_matches(key, model.model_fields, n=1)
    if close:
        return f"did you mean {section + '.' if section else ''}{close[0]}?"
    return f"{section or 'the top level'} has {', '.join(model.model_fields)}"


def _cure(field, name):
    if field.is_required():
        return f"for instance {name}: {'{id: CartPole-v1}' if name == 'environment' else 'CartPole-v1'}"
    if isinstance(field.default, Options):
        key = next(key for key in type(field.default).model_fields if key != "kind")
        return f"for instance {name}: {{{key}: {_yaml(getattr(field.default, key))}}}"
    return "leave it out for none" if field.default is None else f"the default is {_yaml(field.default)}"


def _plain(part):
    """A key as it is, or quoted where it would not read as one."""
    return part if isinstance(part, str) and part.replace("-", "_").isidentifier() else repr(part)


def _found(value):
    """A value as an error shows it."""
    if value is None:
        return "empty"
    names = {list: "the list ", dict: "the section ", str: "the text ", bool: "the flag "}
    text = repr(value) if isinstance(value, str) else _yaml(value)
    return names.get(type(value), "") + (text if len(text) <= 60 else text[:57] + "...")


def _yaml(value):
    """A value on one line, as YAML writes it."""
    if isinstance(value, (bool, int, float)):
        return str(value).lower()
    if isinstance(value, str):
        return value
    try:
        return _one_line(yaml.safe_dump(value, default_flow_style=True, width=1000))
    except (yaml.YAMLError, RecursionError):
        return repr(value)


def _one_line(text):
    return " ".join(str(text).split())


def as_yaml(values):
    """A mapping as YAML text, in the order of its keys."""
    return yaml.safe_dump(values, sort_keys=False, default_flow_style=None, width=100)


def resolved(config):
    """The config with every default filled in, as plain values."""
    return config.model_dump(mode="json")


def differences(old, new):
    """The keys in which two resolved configs differ in what is computed: list of (key, old, new)."""

    def flatten(values, prefix=""):
        for key, value in values.items():
            if isinstance(value, dict):
                yield from flatten(value, f"{prefix}{key}.")
            else:
                yield prefix + key, value

    one, two = (
        dict(flatten({key: value for key, value in values.items() if key not in FREE_SECTIONS}))
        for values in (old, new)
    )
    missing = "(absent)"
    return [
        (key, one.get(key, missing), two.get(key, missing))
        for key in sorted(one.keys() | two.keys())
        if one.get(key, missing) != two.get(key, missing)
    ]


def document():
    """All keys as a Markdown page: name, type, default, meaning."""
    lines = ["# Configuration keys", "", "Generated by `mpies check --keys`.", ""]
    for name, title, model in _sections(Config, "", "A run"):
        lines += [f"## {name or 'top level'}", "", (model.__doc__ or title).strip().splitlines()[0], ""]
        lines += ["| key | default | meaning |", "|---|---|---|"]
        for key, field in model.model_fields.items():
            default = "required" if field.is_required() else field.default
            if isinstance(default, Options):
                default = f"see {name + '.' if name else ''}{key}"
            lines.append(f"| `{key}` | {_shown(default)} | {field.description or 'which kind of section this is'} |")
        lines.append("")
    return "\n".join(lines)


def _shown(default):
    return "none" if default is None else f"`{str(default).lower()}`" if isinstance(default, bool) else str(default)


def _sections(model, prefix, title):
    """Every section: its path, the key it stands at, its model."""
    yield prefix, title, model
    for key, field in model.model_fields.items():
        for kind, inner in _kinds(field).items():
            tag = f" (kind: {kind})" if kind else ""
            yield from _sections(inner, f"{prefix + '.' if prefix else ''}{key}{tag}", key)
