"""The configuration of a run: one YAML file, seven sections, every key known.

`load` reads a file, applies KEY=VALUE overrides and returns a Config, or raises ConfigError with one
line: where, what was expected, what was found, how to mend it.
"""

import difflib
from pathlib import Path
from typing import Annotated, Literal, Union

import yaml
from pydantic import Field, ValidationError, model_validator
from solvers import SOLVERS
from solvers.options import Count, Fraction, Options, Positive, Real, Text, WholeNumber

from mpies.policies import MLPOptions, NoPolicyOptions


class ConfigError(ValueError):
    """A user's mistake in a configuration, said in one line."""


class EnvironmentSection(Options):
    """The world the policy acts in."""

    id: Text = Field(description="a gymnasium id such as LunarLander-v3, or function:NAME for a test function")
    backend: Literal["auto", "envpool", "gymnasium"] = Field(
        "auto", description="auto takes EnvPool where it has the id and no kwargs are given, and gymnasium else"
    )
    kwargs: dict[str, object] = Field({}, description="keyword arguments of the environment's constructor")
    max_steps: Count | None = Field(None, description="time limit of an episode, in steps; default the environment's")
    seeds: Literal["pair", "generation"] = Field(
        "pair",
        description="who shares an episode's seed: the two members of an antithetic pair, or all of a generation",
    )
    dimension: Annotated[Count, Field(ge=2)] | None = Field(None, description="function: only; number of parameters")
    shift: Real = Field(
        0.0, description="function: only; the optimum is moved by normals from the run's seed, times this"
    )

    @property
    def function(self):
        """The name of the test function, or None."""
        return self.id.removeprefix("function:") if self.id.startswith("function:") else None

    @model_validator(mode="after")
    def _function_keys(self):
        from envs import FUNCTIONS

        if self.function is None:
            for name in ("dimension", "shift"):
                if name in self.model_fields_set:
                    raise ValueError(f"{name} is for function: environments only; remove it, or use id: function:NAME")
            return self
        if self.function not in FUNCTIONS:
            raise ValueError(
                f"id names no test function: {self.id!r}; use one of function:{', function:'.join(FUNCTIONS)}"
            )
        if self.dimension is None:
            raise ValueError(f"dimension is missing: how many parameters {self.id} has, for instance dimension: 100")
        for name in ("backend", "kwargs", "max_steps"):
            if name in self.model_fields_set:
                raise ValueError(f"{name} is not for function: environments; remove it")
        return self


class NoiseSection(Options):
    """The shared noise table, one per node."""

    size: Annotated[Count, Field(ge=2)] = Field(
        25_000_000, description="float32 numbers; 4 bytes each per node (published size: 250_000_000)"
    )


class EvaluationSection(Options):
    """Held-out episodes of the mean; they train nothing and count in no budget."""

    every: WholeNumber = Field(10, description="generations between evaluations; 0 evaluates at the end only")
    episodes: Count = Field(100, description="episodes of an evaluation, each with a seed of its own")


class CheckpointSection(Options):
    """Complete states on disk."""

    every: Count = Field(10, description="generations between checkpoints")
    keep: Count = Field(3, description="newest checkpoints kept")


class StopSection(Options):
    """When a run is over; the first that holds."""

    generations: Count = Field(1000, description="generations")
    target: Real | None = Field(
        None,
        description="mean return over an evaluation's episodes, and again over as many fresh ones: solved",
    )
    steps: Count | None = Field(None, description="environment steps of training")
    seconds: Positive | None = Field(None, description="seconds of training, all resumes together")
    max_failures: Fraction = Field(
        0.5, description="share of a generation's members that may fail before the run stops with exit code 1"
    )


AnySolver = Annotated[Union[tuple(solver.Options for solver in SOLVERS.values())], Field(discriminator="kind")]  # noqa: UP007


class Config(Options):
    """A whole run."""

    seed: WholeNumber = Field(1, description="everything random in the run is a function of this number")
    environment: EnvironmentSection = Field(description="what is acted in")
    policy: Annotated[MLPOptions | NoPolicyOptions, Field(discriminator="kind")] = Field(
        MLPOptions(), description="what acts"
    )
    solver: AnySolver = Field(SOLVERS["openai_es"].Options(), description="what learns")
    noise: NoiseSection = Field(NoiseSection(), description="where the noise comes from")
    evaluation: EvaluationSection = Field(EvaluationSection(), description="how progress is judged")
    checkpoint: CheckpointSection = Field(CheckpointSection(), description="what is kept")
    stop: StopSection = Field(StopSection(), description="when it ends")

    @model_validator(mode="after")
    def _policy_fits(self):
        if self.environment.function is not None and self.policy.kind != "none":
            raise ValueError("policy must be {kind: none} for a function: environment, or left out")
        if self.environment.function is None and self.policy.kind == "none":
            raise ValueError("policy.kind none is for function: environments only; use kind: mlp")
        return self


# Sections that a resumed run may change: they alter how long and how it is watched, not what it computes.
FREE_SECTIONS = ("evaluation", "checkpoint", "stop")


def load(path, overrides=()):
    """The Config of a YAML file with overrides ("section.key=value", values in YAML) applied."""
    path = Path(path)
    try:
        text = path.read_text()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); give the path of a YAML file") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not a text file; give the path of a YAML file") from None
    values = _parse(text, str(path))
    if values is None:
        raise ConfigError(f"{path}: is empty; the least it needs is environment: {{id: CartPole-v1}}")
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: must hold sections (environment:, solver:, ...), but is {_kind(values)}")
    for override in overrides:
        _apply(values, override)
    return validate(values, str(path))


def validate(values, where):
    """The Config of a mapping; `where` begins the line of an error."""
    environment = values.get("environment")
    if isinstance(environment, dict) and str(environment.get("id", "")).startswith("function:"):
        values = {"policy": {"kind": "none"}, **values}
    values = _fill_kinds(values)
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise ConfigError(_explain(error, values, where)) from None
    except RecursionError:
        raise ConfigError(f"{where}: is nested too deeply") from None


# Tagged sections take a default tag, so that a recipe need not repeat it.
_DEFAULT_KINDS = {("policy",): "mlp", ("solver",): "openai_es", ("solver", "optimizer"): "adam"}


def _fill_kinds(values):
    for path, kind in _DEFAULT_KINDS.items():
        parent = values
        for name in path[:-1]:
            parent = parent.get(name) if isinstance(parent, dict) else None
        section = parent.get(path[-1]) if isinstance(parent, dict) else None
        if isinstance(section, dict) and "kind" not in section:
            section["kind"] = kind
    return values


class _Loader(yaml.SafeLoader):
    """YAML's safe loader, refusing a key that stands twice."""

    def construct_mapping(self, node, deep=False):
        seen = set()
        for key_node, _ in node.value:
            key = key_node.value
            if isinstance(key, str) and key != "<<":
                if key in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"key {key!r} stands twice", key_node.start_mark
                    )
                seen.add(key)
        return super().construct_mapping(node, deep)


def _parse(text, where):
    try:
        return yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = f" line {mark.line + 1}" if mark else ""
        raise ConfigError(f"{where}:{line} is not YAML ({error.problem or error.context})") from None
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise ConfigError(f"{where}: is not YAML ({' '.join(str(error).split())})") from None


def _apply(values, override):
    name, equals, text = override.partition("=")
    if not equals or not name:
        raise ConfigError(f"{override!r} on the command line must be KEY=VALUE, for instance solver.sigma=0.05")
    value = _parse(text, f"the command line, {name}")
    *sections, key = name.split(".")
    for section in sections:
        inner = values.get(section)
        if inner is None:
            inner = values[section] = {}
        if not isinstance(inner, dict):
            raise ConfigError(f"the command line, {name}: {section} has no keys of its own")
        values = inner
    values[key] = value


def _explain(error, values, where):
    """The first problem of a ValidationError in one line: where, what, expected, found, cure."""
    first = error.errors()[0]
    path = [part for part in first["loc"] if not _is_tag(part, first["loc"])]
    name = ".".join(str(part) for part in path)
    if first["type"] == "extra_forbidden":
        section = name.rpartition(".")[0]
        known = _known_keys(values, path[:-1])
        close = difflib.get_close_matches(str(path[-1]), known, n=1, cutoff=0.4)
        hint = f"did you mean {section + '.' if section else ''}{close[0]}?" if close else f"known: {', '.join(known)}"
        return f"{where}: {name} is not a key; {hint}"
    if first["type"] == "missing":
        example = "environment: {id: CartPole-v1}" if name in ("environment", "environment.id") else name
        return f"{where}: {name} is missing; add {example}"
    message = first["msg"].removeprefix("Value error, ").removeprefix("Input ")
    if first["type"] == "value_error" and not message.startswith("must"):
        return f"{where}: {name + '.' if name else ''}{message}"
    message = message.replace("should be", "must be").replace("valid dictionary", "mapping of keys to values")
    message = message.replace("a valid dictionary or instance of", "a section of keys, see")
    if first["type"] in ("model_type", "model_attributes_type", "dict_type"):
        message = "must be a section of keys"
    if first["type"].startswith("union_tag"):
        tags = str(first.get("ctx", {}).get("expected_tags", "")).replace("'", "")
        section = first["input"]
        if not isinstance(section, dict):
            return f"{where}: {name} must be a section of keys, but is {_kind(section)}"
        return f"{where}: {name}.kind must be one of {tags}, but is {section.get('kind')!r}"
    return f"{where}: {name} {message}, but is {_kind(first['input'])}"


def _is_tag(part, location):
    """Whether a part of an error's location is the tag of a tagged section, which the file does not hold."""
    at = location.index(part)
    return (location[0] == "policy" and at == 1 and part in ("mlp", "none")) or (
        location[:2] == ("solver", "optimizer") and at == 2 and part in ("adam", "sgd")
    )


def _known_keys(values, path):
    """The keys that may stand in the section at `path`."""
    model = Config
    section = values
    for name in path:
        section = section.get(name, {}) if isinstance(section, dict) else {}
        model = _model_of(model, name, section)
        if model is None:
            return []
    return list(model.model_fields)


def _model_of(model, name, section):
    annotation = model.model_fields[name].annotation
    candidates = [m for m in getattr(annotation, "__args__", (annotation,)) if isinstance(m, type)]
    candidates = [m for m in candidates if issubclass(m, Options)]
    for candidate in candidates:
        if len(candidates) == 1 or candidate.model_fields["kind"].default == section.get("kind"):
            return candidate
    return None


def _kind(value):
    """A value as an error shows it."""
    text = repr(value)
    names = {list: "the list", dict: "the section", str: "the text", bool: "the flag", type(None): "empty"}
    name = names.get(type(value), "")
    if value is None:
        return name
    return f"{name} {text if len(text) <= 60 else text[:57] + '...'}".strip()


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
    yield prefix, title, model
    for key, field in model.model_fields.items():
        annotation = field.annotation
        models = [m for m in getattr(annotation, "__args__", (annotation,)) if isinstance(m, type)]
        models = [m for m in models if issubclass(m, Options)]
        for inner in models:
            tag = f" (kind: {inner.model_fields['kind'].default})" if "kind" in inner.model_fields else ""
            yield from _sections(inner, f"{prefix + '.' if prefix else ''}{key}{tag}", key)
