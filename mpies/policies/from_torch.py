"""A PyTorch module of the user's as a policy: path/to/file.py:make_policy returns an nn.Module.

Its parameters are flattened in their own order; it is evaluated without gradients, on one thread, an observation
at a time, so that a member acts the same in any company.
"""

from typing import Literal

import numpy as np
from pydantic import Field

from mpies.paths import start_folder
from mpies.policies.base import Block, Network, Policy, PolicyOptions, PolicyProblem
from mpies.solvers.options import Text


class TorchOptions(PolicyOptions):
    """A PyTorch module; it maps (1, observation) to (1, outputs) and keeps nothing from step to step."""

    kind: Literal["torch"] = "torch"
    module: Text = Field(
        description="path/to/file.py:make_policy, a function of the observation's size and the number of outputs"
    )
    kwargs: dict[str, object] = Field({}, description="keyword arguments of that function")
    initial: Literal["module", "zeros"] = Field(  # type: ignore[assignment]
        "module", description="first parameters: the module's own, with PyTorch's seed set to the run's, or zeros"
    )


class Torch(Policy):
    """A module's parameters, flat."""

    Options = TorchOptions

    def layout(self):
        self._module = self._build(0)
        self._shapes = {name: tuple(value.shape) for name, value in self._module.named_parameters()}
        return [Block((int(np.prod(shape)),), 0.0) for shape in self._shapes.values()]

    def _build(self, seed):
        try:
            import torch
        except ImportError:
            raise PolicyProblem('policy.kind torch needs PyTorch; pip install "mpies[torch]"') from None
        from mpies.envs.interrupt import is_interrupt
        from mpies.envs.messages import describe_error
        from mpies.envs.own import find

        torch.set_num_threads(1)
        factory = find(self.options.module, start_folder())
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            try:
                module = factory(self.inputs, self.outputs, **self.options.kwargs)
            except BaseException as error:  # the user's function may raise anything
                if is_interrupt(error):
                    raise
                raise PolicyProblem(f"{self.options.module} raises {describe_error(error)}") from error
        if not isinstance(module, torch.nn.Module):
            raise PolicyProblem(
                f"{self.options.module} must return a torch.nn.Module, but returned a {type(module).__name__}"
            )
        with torch.no_grad():
            found = tuple(module.eval()(torch.zeros(1, self.inputs)).shape)
        if found != (1, self.outputs):
            raise PolicyProblem(
                f"{self.options.module}: the module must give shape {(1, self.outputs)} for an observation of shape "
                f"{(1, self.inputs)}, but gives {found}"
            )
        return module

    def initial(self, seed):
        if self.options.initial == "zeros":
            return super().initial(seed)
        values = [value.detach().numpy().ravel() for value in self._build(seed).parameters()]
        deviations = [np.full(count, -1.0) for count in self.head.deviations]
        return np.concatenate([*values, *deviations]).astype(np.float32)

    def network(self, views):
        return _Modules(self._module, self._shapes, views)


class _Modules(Network):
    def __init__(self, module, shapes, views):
        import torch

        self._torch, self._module = torch, module
        named = zip(shapes.items(), views, strict=True)
        self._tensors = {name: torch.from_numpy(view).view(len(view), *shape) for (name, shape), view in named}
        self._outputs = None

    def __call__(self, inputs):
        torch, call = self._torch, self._torch.func.functional_call
        inputs, found = torch.from_numpy(np.ascontiguousarray(inputs)), []
        with torch.inference_mode():
            for slot in range(len(inputs)):
                parameters = {name: tensor[slot] for name, tensor in self._tensors.items()}
                found.append(call(self._module, parameters, (inputs[slot : slot + 1],)))
            return torch.cat(found).numpy()
