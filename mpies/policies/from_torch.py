"""A PyTorch module of the user's as a policy: path/to/file.py:make_policy returns an nn.Module.

The parameters of the policy are the module's, flattened in the module's order.  The module is evaluated without
gradients, on one thread and one observation at a time, so a member's actions do not depend on other members.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mpies.core.errors import ConfigError, import_extra
from mpies.core.options import Arguments, Text
from mpies.core.text import describe_error
from mpies.policies.base import Architecture, Block, Network
from mpies.policies.keys import PolicyOptions

if TYPE_CHECKING:
    import torch

Array = npt.NDArray[np.float32]


class TorchOptions(PolicyOptions):
    """A PyTorch module; it maps (1, observation) to (1, outputs) and keeps nothing from step to step."""

    kind: Literal["torch"] = "torch"
    module: Text = Field(
        description="path/to/file.py:make_policy, a function of the observation's size and the number of outputs"
    )
    kwargs: Arguments = Field({}, description="keyword arguments of that function")
    initial: Literal["module", "zeros"] = Field(  # type: ignore[assignment]
        "module", description="first parameters: the module's own, with PyTorch's seed set to the run's, or zeros"
    )


class Torch(Architecture):
    """A PyTorch module.  Each of its parameters is a Block of one dimension."""

    Options = TorchOptions
    options: TorchOptions

    def layout(self) -> list[Block]:
        self._module = self._build(0)
        self._shapes = {name: tuple(value.shape) for name, value in self._module.named_parameters()}
        return [Block((int(np.prod(shape)),), 0.0) for shape in self._shapes.values()]

    def _build(self, seed: int) -> "torch.nn.Module":
        """The user's module, with PyTorch's seed set to `seed`.  Raises ConfigError if it cannot be used."""
        torch = import_extra("torch", "policy.kind torch needs PyTorch, which is not installed", "torch")
        from mpies.envs.custom_env import find

        torch.set_num_threads(1)
        factory = find(self.options.module)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed % 2**64)  # PyTorch takes no larger ones
            with self._explain("raises"):
                module = factory(self.inputs, self.outputs, **self.options.kwargs)
        if not isinstance(module, torch.nn.Module):
            raise ConfigError(
                f"{self.options.module} must return a torch.nn.Module, but returned a {type(module).__name__}"
            )
        if not any(True for _ in module.parameters()):
            raise ConfigError(f"{self.options.module}: the module has no parameters, so there is nothing to train")
        with torch.no_grad(), self._explain("the module raises"):
            outputs = module.eval()(torch.zeros(1, self.inputs))
        shape = tuple(outputs.shape) if isinstance(outputs, torch.Tensor) else f"a {type(outputs).__name__}"
        if shape != (1, self.outputs):
            raise ConfigError(
                f"{self.options.module}: the module must give a tensor of shape {(1, self.outputs)} for an observation "
                f"of shape {(1, self.inputs)}, but gives {shape}"
            )
        return module

    @contextlib.contextmanager
    def _explain(self, what: str) -> Iterator[None]:
        """Raise ConfigError for whatever the user's code in the `with` block raises.  what: raises it."""
        try:
            yield
        except BaseException as error:
            raise ConfigError(f"{self.options.module} {what} {describe_error(error)}") from error

    def initial(self, seed: int) -> Array:
        if self.options.initial == "zeros":
            return super().initial(seed)
        values = [value.detach().numpy().ravel() for value in self._build(seed).parameters()]
        stds = [np.full(count, -1.0) for count in self.head.log_stds]
        return np.concatenate([*values, *stds]).astype(np.float32)

    def network(self, views: Sequence[Array]) -> Network:
        return _ModuleNetwork(self._module, self._shapes, views)


class _ModuleNetwork(Network):
    """A module evaluated with the parameters of each member.  shapes: of the module's parameters, by name."""

    def __init__(
        self, module: "torch.nn.Module", shapes: Mapping[str, tuple[int, ...]], views: Sequence[Array]
    ) -> None:
        import torch

        self._torch, self._module = torch, module
        named = zip(shapes.items(), views, strict=True)
        self._tensors = {name: torch.from_numpy(view).view(len(view), *shape) for (name, shape), view in named}

    def __call__(self, inputs: Array) -> Array:
        torch, call = self._torch, self._torch.func.functional_call
        rows, outputs = torch.from_numpy(np.ascontiguousarray(inputs)), []
        with torch.inference_mode():
            for slot in range(len(rows)):
                parameters = {name: tensor[slot] for name, tensor in self._tensors.items()}
                outputs.append(call(self._module, parameters, (rows[slot : slot + 1],)))
            return torch.cat(outputs).numpy()
