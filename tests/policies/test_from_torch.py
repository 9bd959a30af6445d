import sys

import numpy as np
import pytest

import mpies
from mpies.core.errors import ConfigError
from tests.policies import examples
from tests.policies.examples import PENDULUM, WIDE, act, build_policy, draw_members, draw_observations, torch_or_skip
from tests.support import HOME, assert_refused


def test_members_act_as_the_module_does_with_their_parameters(build):
    torch = torch_or_skip()
    policy = build("torch", action=WIDE)
    stack, observations = draw_members(policy, 3), draw_observations(policy, 4, 3)
    actions = act(policy, stack, observations)
    scope = {}
    exec(examples.MODULE, scope)
    for member in range(3):
        module = scope["make_policy"](6, 2)
        torch.nn.utils.vector_to_parameters(torch.from_numpy(stack[member].copy()), module.parameters())
        with torch.no_grad():
            expected = module(torch.from_numpy(observations[:, member])).numpy()
        np.testing.assert_allclose(actions[:, member], expected, atol=1e-6)


def test_first_parameters_are_the_modules_own_or_zeros(build):
    torch = torch_or_skip()
    before = torch.random.get_rng_state()
    assert build("torch").initial(3).any()
    assert torch.equal(torch.random.get_rng_state(), before)  # the user's own random numbers stay as they were
    assert not build("torch", initial="zeros").initial(3).any()


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ("5", "must return a torch.nn.Module, but returned a int"),
        (
            "torch.nn.Linear(inputs, 9)",
            r"must give a tensor of shape \(1, 2\) for an observation of shape \(1, 6\), but gives \(1, 9\)",
        ),
        ("sys.exit(3)", "raises SystemExit: 3"),
        ("torch.nn.Linear(inputs, units)", "raises TypeError"),
        ("torch.nn.Linear(inputs + 1, 2)", "the module raises RuntimeError: "),
        ("torch.nn.LSTM(inputs, outputs)", "but gives a tuple"),
        ("torch.nn.Identity()", "the module has no parameters, so there is nothing to train"),
    ],
)
def test_modules_that_cannot_be_used_are_refused(made, message, tmp_path, monkeypatch):
    torch_or_skip()
    source = f"import sys, torch\ndef make_policy(inputs, outputs, units): return {made}"
    monkeypatch.setattr(examples, "MODULE", source)
    with pytest.raises(ConfigError, match=message):
        build_policy("torch", tmp_path, kwargs={"units": "many"})


def test_without_pytorch_the_message_says_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setattr(examples, "torch_or_skip", lambda: None)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ConfigError, match=r'pip install "mpies\[torch\]"'):
        build_policy("torch", tmp_path)


def test_the_page_on_policies_shows_a_module_that_works(run_mpies, write_config, tmp_path):
    torch_or_skip()
    page = (HOME / "docs" / "policies.md").read_text()
    (tmp_path / "my_policy.py").write_text(page.partition("```python\n")[2].partition("```")[0])
    line = next(line for line in page.splitlines() if "my_policy.py:make_policy" in line)
    run_mpies(0, "train", write_config(PENDULUM + line.strip()), "--out", "run", code=0)
    assert run_mpies(0, "evaluate", "run", "--episodes", "2").code == 0
    refused = run_mpies(0, "export", "run", "--to", "policy.npz")
    assert_refused(refused, "kind torch cannot be exported, since its network is code")


@pytest.mark.parametrize("ranks", [None, 2])
def test_a_module_that_is_handed_over_is_a_policy(ranks, here):
    """Its own parameters are the first ones, on ranks of a job of its own too."""
    torch = torch_or_skip()
    net = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2))
    overrides = "noise.size=20000", "evaluation.episodes=2"
    run = mpies.train("CartPole-v1", *overrides, policy=net, generations=1, population=8, ranks=ranks, out="run")
    own = torch.nn.utils.parameters_to_vector(net.parameters()).detach().numpy()
    np.testing.assert_array_equal(run.policy(0).parameters, own)
    assert run.config.policy.module.startswith("given_in_python:Sequential")
    (here / "run").rename(here / "other")
    run = mpies.train("CartPole-v1", *overrides, policy=lambda *_: net, generations=1, population=8, out="run")
    np.testing.assert_array_equal(run.policy(0).parameters, own)
