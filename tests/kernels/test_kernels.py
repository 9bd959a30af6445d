"""The compiled inner loop gives the bits of NumPy, whatever vectors the processor has, and also on ARM processors."""

import contextlib
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest

from mpies import kernels
from mpies.envs import make_env
from mpies.envs.base import Interface
from mpies.policies import make_policy
from mpies.policies.exported import aligned_stack
from mpies.policies.mlp import MLPOptions
from mpies.rollouts.batch import NEVER
from mpies.rollouts.player import EpisodePlayer
from tests.kernels.conftest import EXTREMES, compiled, in_numpy
from tests.policies.examples import box
from tests.support import HOME


def test_they_are_built_where_a_compiler_and_pythons_headers_are():
    if shutil.which("cc") is None or not Path(sysconfig.get_path("include"), "Python.h").exists():
        pytest.skip("there is no C compiler, or Python.h is missing")
    assert kernels.compiled


@compiled
@pytest.mark.parametrize("options", [{"output": "scale"}, {"action_noise": 0.1}, {"bins": "uniform:3"}])
def test_actions_that_take_more_than_clipping_are_left_to_numpy(options):
    policy = make_policy(MLPOptions(**options), Interface(3, box(-1, 1, 3)))
    assert policy.bind(aligned_stack(2, policy.size)).compiled is None


def make_players(**options):
    """A player with compiled passes, then one in NumPy."""
    env = make_env("Hopper-v5", "gymnasium")
    for way in (contextlib.nullcontext(), in_numpy()):
        with way:
            player = EpisodePlayer(env, make_policy(MLPOptions(), env.interface), 5.0, **options)
        yield player
    env.close()


@compiled
@pytest.mark.parametrize("normalizes", [True, False])
def test_the_observation_pass_gives_the_bits_of_numpy(normalizes):
    results = []
    for player in make_players():
        random = np.random.default_rng(1)
        player.sampled[::2] = True
        player.centres[:] = random.standard_normal(player.centres.shape)
        player.scales[:] = random.uniform(0.1, 2, player.scales.shape)
        for _ in range(3):
            player.observations[:] = 3 * random.standard_normal(player.observations.shape)
            player.observations[1, :8] = EXTREMES
            with np.errstate(all="ignore"):
                player._observe(player.env.slots - 1, normalizes)
        results.append((player.sums.copy(), player.inputs.copy()))
    for fast, plain in zip(*results, strict=True):
        np.testing.assert_array_equal(fast, plain)
    assert results[0][0].any() and results[0][1].any() == normalizes


@compiled
@pytest.mark.parametrize("counts_signs", [True, False])
def test_the_reward_pass_gives_the_bits_of_numpy(counts_signs):
    results = []
    for player in make_players(counts_signs=counts_signs):
        random, any_over = np.random.default_rng(1), []
        player.limits[:] = NEVER
        player.limits[3:6], player.begun[4] = 2, 1
        for step in range(1, 5):
            player.rewards[:] = random.standard_normal(player.env.slots).astype(np.float32)
            player.rewards[: len(EXTREMES)] = EXTREMES if step % 2 else 0
            player.over[:] = random.random(player.env.slots) < 0.2 * (step > 2)
            with np.errstate(all="ignore"):
                any_over.append(bool(player._score(player.env.slots - 1, step)))
        results.append((player.totals.copy(), player.signs.copy(), player.over.copy(), any_over))
    for fast, plain in zip(*results, strict=True):
        np.testing.assert_array_equal(fast, plain)
    assert results[0][3] == [False, True, True, True] and results[0][1].any() == counts_signs


@compiled
def test_arrays_of_another_type_shape_or_layout_are_refused():
    def observations(slots=4, dtype=np.float32):
        return np.ones((slots, 3), dtype)

    floats = [observations() for _ in range(4)]
    sums, sampled = np.zeros((4, 2, 3)), np.zeros(4, bool)
    compiled_pass = kernels.compiled.ObservationPass(*floats, sums, sampled, 5.0)
    for slots in (-1, 5):
        with pytest.raises(ValueError, match=f"there are 4 slots, not {slots}"):
            compiled_pass(slots, True)
    for number, wrong in enumerate([observations(dtype=np.float64), observations(5), observations(8)[::2]]):
        with pytest.raises(ValueError, match=["dtype mismatch", r"shape \(5, 3\)", "contiguous"][number]):
            kernels.compiled.ObservationPass(*floats[:3], wrong, sums, sampled, 5.0)
    rewards, numbers = [np.zeros(4) for _ in range(3)], [np.zeros(4, np.int64) for _ in range(2)]
    over = np.zeros(4, bool)
    assert kernels.compiled.RewardPass(*rewards, *numbers, over)(4, 1) == 4  # a limit of 0 steps
    with pytest.raises(ValueError, match=r"shape \(3,\), but \(4,\) was expected"):
        kernels.compiled.RewardPass(*rewards, *numbers, over[:3])


OTHER_PROCESSORS = {
    "here": {},
    "without kernels": {"WITHOUT_KERNELS": "1"},
    "without AVX-512": {"OPENBLAS_CORETYPE": "Haswell", "NPY_DISABLE_CPU_FEATURES": "X86_V4"},
    # exp and log of the C library have variants with fused multiply-add, which rarely round in another way
    "without AVX and fused multiply-add": {
        "OPENBLAS_CORETYPE": "Prescott",
        "NPY_DISABLE_CPU_FEATURES": "X86_V4 X86_V3",
        "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-FMA,-AVX2,-FMA4",
    },
}
# The solvers are those of docs/reproducibility.md.
PROGRAM = """
import os, sys
if "WITHOUT_KERNELS" in os.environ:
    sys.modules["mpies.kernels.compiled"] = None  # importing it raises ImportError
import mpies
from mpies import kernels
from mpies.runs.formats.hdf5 import digest
from mpies.runs.formats.metrics import read_digests
from mpies.solvers import SOLVERS
from tests.solvers.single_generation import FunctionLoop, begin, sphere
assert (kernels.compiled is None) == ("WITHOUT_KERNELS" in os.environ)
settings = "solver.population=24", "evaluation={every: 0, episodes: 2}", "noise.size=100_000", "policy.hidden=[16, 16]"
mpies.train("Pendulum-v1", "environment.max_steps=40", *settings, generations=3, out=sys.argv[1], progress=False)
print(*read_digests(sys.argv[1]))
for kind in ("openai_es", "ars", "pepg", "pgpe", "deep_ga", "novelty_es"):
    solver = begin(SOLVERS[kind], 30, seed=3, population=40)
    loop = FunctionLoop(solver, sphere, behaviour=lambda x: x[:2])
    for _ in range(100):
        loop.run_generation()
    print(kind, digest(solver.state()))
"""


def test_training_gives_the_same_bits_on_other_processors_and_without_kernels(tmp_path):
    """Libraries are told to do as on a processor with fewer instructions; features that this one lacks are ignored."""
    printed = {}
    for way, variables in OTHER_PROCESSORS.items():
        command = [sys.executable, "-c", PROGRAM, tmp_path / way]
        ended = subprocess.run(command, env=os.environ | variables, check=True, capture_output=True, text=True)
        printed[way] = ended.stdout.splitlines()
    assert len(printed["here"]) == 7 and printed == dict.fromkeys(printed, printed["here"])


ARM = "aarch64-linux-gnu-gcc"


@pytest.mark.skipif(not (shutil.which(ARM) and shutil.which("qemu-aarch64")), reason="there is no C compiler for ARM")
def test_kernels_on_arm_give_the_bits_of_this_processor(tmp_path):
    """Compiled by Debian's cross compiler, run by qemu."""
    sources = [Path(__file__).with_name("other_processors.c"), HOME / "mpies/kernels/kernels.c"]
    flags, printed = ["-ffp-contract=off", "-static", "-I", HOME / "mpies/kernels"], []
    # For ARM as setup.py does.  Here as the code is written: -O3 takes long for each set of instructions.
    for compiler, level, start in (("gcc", "-O0", []), (ARM, "-O3", ["qemu-aarch64"])):
        program = tmp_path / compiler
        subprocess.run([compiler, level, *flags, *sources, "-o", program, "-lm"], check=True)
        printed.append(subprocess.run([*start, program], capture_output=True, text=True, check=True).stdout)
    assert printed[0] == printed[1] and printed[0].count("\n") == 14
