"""The keys of a run's configuration, one class for each section: type, default and meaning of each key."""

import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, Union, cast

from pydantic import BaseModel, Field, PrivateAttr, model_validator

from mpies.config.environment import EnvironmentSection
from mpies.config.kinds import kinds_of, with_kinds
from mpies.core.errors import ConfigError, RunError
from mpies.core.options import Count, Flag, Fraction, NonNegative, Options, Positive, Real, Text, WholeNumber
from mpies.envs import shows_images
from mpies.policies import any_policy
from mpies.policies.base import PolicyOptions
from mpies.policies.mlp import MLPOptions
from mpies.solvers import SOLVERS
from mpies.solvers.base import Solver
from mpies.solvers.options import Population


class NoiseTable(Options):
    """The noise table, shared by the ranks of a node."""

    size: Annotated[Count, Field(ge=2)] = Field(
        25_000_000,
        description="count of float32 numbers; each needs 4 bytes of shared memory per node (published size: "
        "250_000_000)",
    )


class NoiseSection(NoiseTable):
    """Independent normals for all parameters, from a table that is shared on each node."""

    kind: Literal["full"] = "full"
    rank: ClassVar[int] = 0  # no products


class LowRankSection(NoiseTable):
    """For matrices of weights, products of vectors of normals, so there is far less noise to read (docs/solvers.md)."""

    kind: Literal["low_rank"] = "low_rank"
    rank: Count = Field(1, description="r: a matrix needs r (rows + columns) normals instead of rows * columns")


class EvaluationSection(Options):
    """Held-out episodes of the mean.  They do not train it, and do not count towards the limits of `stop`."""

    every: WholeNumber = Field(10, description="generations between evaluations; 0 evaluates at the end only")
    episodes: Count = Field(100, description="episodes of an evaluation, each with a seed of its own")


class CheckpointSection(Options):
    """Complete states on disk."""

    every: Count = Field(10, description="generations between checkpoints")
    seconds: Positive | None = Field(None, description="also write a checkpoint whenever this many seconds have passed")
    keep: Count = Field(
        3, description="number of newest checkpoints to keep, besides the first one and the best policy"
    )
    share: Fraction = Field(
        0.02,
        description="maximum share of the run's time for writing checkpoints; a checkpoint beyond it is postponed; "
        "nothing can be lost, since the ledger holds every generation",
    )


class WandbSection(Options):
    """Weights & Biases.  Whatever else it offers is set by its own variables, such as WANDB_MODE=offline."""

    project: Text = Field(description="the project that the run appears in")
    entity: Text | None = Field(None, description="user or team that owns the project; default your own")
    name: Text | None = Field(None, description="name of the run; default that of its directory")
    group: Text | None = Field(None, description="group of the run, such as the name of an experiment")
    tags: list[Text] = Field([], description="tags of the run")


with warnings.catch_warnings():
    warnings.filterwarnings("ignore", 'Field name "json"')  # hides an old method of pydantic's that nobody calls

    class TrackingSection(Options):
        """Output for other tools that follow a run.  None of it can stop or slow training."""

        tensorboard: Flag = Field(
            False, description="TensorBoard events in the run, under the names of OpenAI's starter"
        )
        json: Flag = Field(  # type: ignore[assignment]
            False, description="metrics.jsonl in the run: the rows of metrics.csv as JSON objects, one per line"
        )
        wandb: WandbSection | None = Field(None, description="send the run to Weights & Biases")

        @model_validator(mode="before")
        @classmethod
        def _mlflow_is_a_callback(cls, values: Any) -> Any:
            if not isinstance(values, dict) or "mlflow" not in values:
                return values
            if values["mlflow"] not in (None, False):
                raise ValueError("mlflow is a callback in Python now, as in examples/mlflow_callback.py; remove it")
            return {key: value for key, value in values.items() if key != "mlflow"}  # an earlier default


class StopSection(Options):
    """When a run ends: at the first of these that is reached."""

    generations: Count = Field(1000, description="generations")
    target: Real | None = Field(
        None,
        description="the run is solved when an evaluation's mean return reaches this, and again over at least 100 "
        "fresh episodes",
    )
    steps: Count | None = Field(None, description="environment steps of training")
    seconds: Positive | None = Field(None, description="seconds of training, summed over all resumes")
    grace: NonNegative = Field(
        30.0,
        description="after a signal, the seconds that the current generation may still take before it is abandoned",
    )
    max_failures: Fraction = Field(
        0.5,
        description="share of a generation's members, or of an evaluation's episodes, that may fail before the run "
        "stops with exit code 1; in the last evaluation none may fail",
    )


# The defaults of a config that names neither a policy nor a solver, where an environment shows no images.  Tasks of
# control are solved in a fraction of the steps that OpenAI-ES takes with the defaults of its keys.
QUICK: dict[str, dict[str, Any]] = {
    "environment": {
        "seeds": "generation",
        "reward_shift": "auto",
        "adaptive": {"start": 200, "threshold": 0, "ratio": 1.02},
    },
    "policy": {"hidden": None},
    "solver": {"kind": "cma_es", "population": 24, "sigma": None, "covariance": "auto", "average": 0.2},
    "evaluation": {"every": 20},  # populations are small
}

# Sections that a resumed run may change: they change how long it runs and what is written, not what it computes.
FREE_SECTIONS = ("evaluation", "checkpoint", "tracking", "stop")
FREE_KEYS = ("bind_ranks", "environment.instances", "environment.instances_per")  # likewise
BACKEND = "environment.backend"  # which a run resolves when it begins


def is_free(key: str) -> bool:
    """Whether a resumed run may change a dotted key, as it changes no result."""
    return key in FREE_KEYS or key.partition(".")[0] in FREE_SECTIONS


def any_solver(*custom: type[Solver]) -> Any:
    """The type of the solver section: the Options of any solver in the registry, or of the classes `custom`."""
    options = tuple(solver.Options for solver in (*SOLVERS.values(), *custom))
    return Annotated[Union[options], Field(discriminator="kind")]  # noqa: UP007


if TYPE_CHECKING:  # The unions are built at run time; a type checker sees what their members have in common.

    class PolicySection(PolicyOptions):
        kind: str

    class SolverSection(Population):
        kind: str

else:
    PolicySection = any_policy()
    SolverSection = any_solver()


class ConfigType(type(Options)):  # type: ignore[misc]  # the metaclass of pydantic's models
    """The class of Config, whose arguments are read as the sections of a YAML file are.

    read: makes a Config of a mapping; mpies.config.loading, which needs the schema, sets it.
    """

    read: Callable[[dict[str, Any]], Any]

    def __call__(cls, *unnamed: Any, **values: Any) -> Any:
        """The Config of these sections and keys.  Raises ConfigError, in one line."""
        if unnamed:
            raise ConfigError(
                'mpies.Config takes sections by their names, such as environment={"id": "CartPole-v1"}; for a mapping, '
                "use mpies.Config(**mapping)"
            )
        return ConfigType.read(values)


class Config(Options, metaclass=ConfigType):
    """A whole run."""

    _refusal: str = PrivateAttr("")

    seed: WholeNumber = Field(1, description="seed of all random numbers in the run")
    environment: EnvironmentSection = Field(description="the task")
    policy: PolicySection = Field(
        cast("PolicySection", MLPOptions.model_construct()), description="what maps observations to actions"
    )
    solver: SolverSection = Field(
        cast("SolverSection", SOLVERS["openai_es"].Options.model_construct()),
        description="the algorithm that trains the policy; a config of one line, without policy, solver, overlap and "
        "noise, is trained by cma_es with a small policy (docs/solvers.md)",
    )
    overlap: Fraction = Field(
        0.0, description="share of a generation's members that may start before the previous generation is complete"
    )
    bind_ranks: Flag = Field(
        True, description="keep each rank on a core of its own, where those of a node suffice (docs/scaling.md)"
    )
    noise: Annotated[NoiseSection | LowRankSection, Field(discriminator="kind")] = Field(
        NoiseSection.model_construct(), description="the random numbers that perturb the members"
    )
    evaluation: EvaluationSection = Field(EvaluationSection.model_construct(), description="how progress is measured")
    checkpoint: CheckpointSection = Field(
        CheckpointSection.model_construct(), description="how often the state is saved"
    )
    tracking: TrackingSection = Field(TrackingSection.model_construct(), description="output for other tools")
    stop: StopSection = Field(StopSection.model_construct(), description="when the run ends")

    @property
    def refusal(self) -> str:
        """Why code that it names must not run, in one line; '' where it may (mpies.config.trust)."""
        return self._refusal

    def refuse_code(self, refusal: str) -> None:
        """From now on, this is its refusal."""
        BaseModel.__setattr__(self, "_refusal", refusal)  # no key changes

    def require_trust(self) -> None:
        """Raise RunError where code that it names must not run."""
        if self._refusal:
            raise RunError(self._refusal)

    @model_validator(mode="before")
    @classmethod
    def _fill_kinds(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        environment = values.get("environment")
        if isinstance(environment, dict) and (
            str(environment.get("id", "")).startswith("function:") or environment.get("dimension") is not None
        ):
            values = {"policy": {"kind": "none"}, **values}
        elif isinstance(environment, dict) and "policy" not in values and shows_images(environment):
            values = {"policy": {"kind": "conv"}, **values}
        elif isinstance(environment, dict) and not values.keys() & {"policy", "solver", "overlap", "noise"}:
            for name, keys in QUICK.items():
                if isinstance(given := values.get(name, {}), dict):
                    values = {**values, name: {**keys, **given}}
        return with_kinds(values, cls)

    @model_validator(mode="after")
    def _keys_fit(self) -> Self:
        if self.environment.function is not None and self.policy.kind != "none":
            raise ValueError("policy must be {kind: none} for a function of parameters, or left out")
        if self.environment.function is None and self.policy.kind == "none":
            raise ValueError("policy.kind none is for functions of parameters only; use kind: mlp")
        if self.overlap and not self.solver.overlaps:
            able = ", ".join(kind for kind, solver in SOLVERS.items() if solver.Options.overlaps)
            raise ValueError(
                f"overlap does not work with solver.kind {self.solver.kind}, whose update needs members of the newest "
                f"distribution; leave it out, or use one of {able}"
            )
        if self.noise.kind == "full":
            return self
        if self.policy.kind != "mlp":
            raise ValueError(
                "noise.kind low_rank is for policy.kind mlp, whose layers are matrices, "
                f"but policy.kind is {self.policy.kind}; use noise: {{kind: full}}"
            )
        if not self.solver.takes_low_rank:
            takers = ", ".join(kind for kind, solver in SOLVERS.items() if solver.Options.takes_low_rank)
            raise ValueError(
                "noise.kind low_rank works with solvers that need only the weighted sum of the noise "
                f"({takers}), but solver.kind is {self.solver.kind}; use noise: {{kind: full}}"
            )
        return self


def walk_sections(
    model: type[Options] = Config, path: str = "", kind: str | None = None
) -> Iterator[tuple[str, str | None, type[Options]]]:
    """Every section below `model`, itself included: its dotted path, its kind (None where it has none), its model."""
    yield path, kind, model
    for name, field in model.model_fields.items():
        for inner_kind, inner in kinds_of(field).items():
            yield from walk_sections(inner, f"{path}.{name}".lstrip("."), inner_kind)
