"""`mpies replay` and `mpies play`: the past of a run, again, to the bit."""

from mpies.runs import hdf5
from mpies.runs.checkpoint import list_checkpoints
import shutil
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner

from mpies.runs import ledger
from mpies.cli import main

COMMON = """
evaluation: {every: 3, episodes: 4}
checkpoint: {every: 1, keep: 100, share: 1}
stop: {generations: 10}
"""
CONFIGS = {
    "gymnasium": """
environment: {id: CartPole-v1, backend: gymnasium, max_steps: 60}
policy: {hidden: [8], statistics_fraction: 0.5}
solver: {population: 14, episodes: 2, sigma_decay: 0.95}
noise: {size: 100000}
""",
    "envpool": """
environment: {id: CartPole-v1, backend: envpool, max_steps: 60}
policy: {hidden: [8]}
solver: {population: 16, sigma: 0.2, timesteps_per_batch: 800}
noise: {size: 100000}
""",
    "low_rank": """
environment: {id: CartPole-v1, max_steps: 60}
policy: {hidden: [16, 16], normalize_observations: false}
solver: {population: 12, sigma: 0.2}
noise: {kind: low_rank, size: 100000}
""",
    "overlap": """
overlap: 1
environment: {id: CartPole-v1, max_steps: 60, adaptive: {start: 20}}
policy: {hidden: [8]}
solver: {kind: pgpe, population: 16}
noise: {size: 100000}
""",
    "cma_es": """
environment: {id: "function:rastrigin", dimension: 6, shift: 1}
solver: {kind: cma_es, population: 8}
noise: {size: 100000}
""",
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run of ten generations of each config: name to path."""
    folder = tmp_path_factory.mktemp("runs")
    for name, text in CONFIGS.items():
        (folder / f"{name}.yaml").write_text(text + COMMON)
        command = [sys.executable, "-m", "mpies", "train", f"{name}.yaml", "--out", name]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return {name: folder / name for name in CONFIGS}


def invoke(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.mark.parametrize("name", CONFIGS)
def test_the_mean_of_every_generation_is_rebuilt_to_the_bit(name, runs, tmp_path):
    run = runs[name]
    assert len(list_checkpoints(run)) == 11
    means = set()
    for generation in range(11):
        ended = invoke("replay", run, "--generation", generation, "--out", tmp_path / "policy.h5")
        assert ended.exit_code == 0 and "the recorded one" in ended.stdout, ended.output
        rebuilt, _ = hdf5.read(tmp_path / "policy.h5")
        checkpoint, attributes = hdf5.read(run / "checkpoints" / f"generation-{generation:08d}.h5")
        assert rebuilt["parameters"].tobytes() == checkpoint["solver/mean"].tobytes()
        assert f"digest {attributes['digest'][:16]}" in ended.stdout
        means.add(rebuilt["parameters"].tobytes())
    assert len(means) == 11
    final, _ = hdf5.read(run / "policy.h5")
    assert final["normalization"].tobytes() == rebuilt["normalization"].tobytes()


def test_a_replay_needs_the_first_checkpoint_and_the_ledger_only(runs, tmp_path):
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    for name in ("config.yaml", "ledger.bin", "checkpoints/generation-00000000.h5"):
        shutil.copy(runs["envpool"] / name, run / name)
    assert invoke("replay", run, "--generation", 10).exit_code == 0


def refused(ended, *words):
    assert ended.exit_code == 2, ended.output
    assert ended.stderr.startswith("mpies: ") and ended.stderr.count("\n") == 1 and not ended.stdout
    for word in words:
        assert word in ended.stderr


def test_what_is_not_on_record_is_refused_in_one_line(runs, tmp_path):
    run = runs["cma_es"]
    refused(invoke("replay", run, "--generation", 11), "generation 11 is not in its ledger, which ends at 10")
    refused(invoke("play", run, "--member", "11,0"), "no number 0")
    refused(invoke("play", run, "--member", "3,8"), "has 8 members on record, no number 8")
    refused(invoke("play", run, "--member", "0,1"), "GENERATION,NUMBER")
    refused(invoke("play", run, "--member", "7"), "GENERATION,NUMBER")
    refused(invoke("replay", tmp_path, "--generation", 1), "config.yaml: cannot be read", " a run?")
    copy = shutil.copytree(run, tmp_path / "run")
    content = bytearray((copy / "ledger.bin").read_bytes())
    content[len(content) // 2] ^= 1
    (copy / "ledger.bin").write_bytes(content)
    refused(invoke("replay", copy, "--generation", 9), "is not in its ledger")
    (copy / "checkpoints" / "generation-00000000.h5").unlink()
    refused(invoke("replay", copy, "--generation", 1), "lacks the first checkpoint")


def test_a_replay_that_leads_elsewhere_says_so_and_ends_with_code_1(runs, tmp_path):
    copy = shutil.copytree(runs["envpool"], tmp_path / "run")
    records = [arrays for arrays, _ in ledger.read(copy / "ledger.bin")]
    changed = dict(records[4], returns=records[4]["returns"][::-1])
    pieces = [ledger.pack(changed if number == 4 else arrays) for number, arrays in enumerate(records)]
    (copy / "ledger.bin").write_bytes(b"".join(pieces))
    assert invoke("replay", copy, "--generation", 4).exit_code == 0
    ended = invoke("replay", copy, "--generation", 5)
    assert ended.exit_code == 1 and "NOT the recorded one" in ended.stdout


@pytest.mark.parametrize("name", ["gymnasium", "envpool", "overlap", "low_rank"])
def test_a_member_played_again_returns_what_it_did(name, runs):
    returns = {int(a["generation"]): a["returns"] for a, _ in ledger.read(runs[name] / "ledger.bin")}
    if name == "envpool":  # of a second batch too, where the first had too few steps
        assert len(returns[1]) > 16
    seen = set()
    for generation in (1, 2, 10):
        for member in (0, 5, len(returns[generation]) - 1):
            ended = invoke("play", runs[name], "--member", f"{generation},{member}")
            assert ended.exit_code == 0, ended.output
            expected = f"{returns[generation][member]:.6g}"
            assert f"recorded {expected}, played again {expected}\n" in ended.stdout
            seen.add(expected)
    assert len(seen) > 3


def test_a_member_that_failed_fails_again_with_its_message(tmp_path, run_mpies, write_config):
    from tests.mpies.test_runs import FAULTY, MODULE

    (tmp_path / "faulty.py").write_text(MODULE)
    assert run_mpies(0, "train", write_config(FAULTY.format(share=0.3)), "--out", "run").code == 0
    returns = next(arrays["returns"] for arrays, _ in ledger.read(tmp_path / "run" / "ledger.bin"))
    failed = int(np.flatnonzero(np.isnan(returns))[0])
    ended = run_mpies(0, "play", "run", "--member", f"1,{failed}")
    assert ended.code == 0, ended.stderr
    assert "recorded nan, played again nan" in ended.stdout and "RuntimeError: out of balance" in ended.stdout
