"""`mpies replay` and `mpies play --member`: any generation and member of a run again, to the bit.

Also of runs that an earlier version wrote, which resume as well.
"""

import shutil

import numpy as np
import pytest

from mpies.config.loading import as_yaml, resolved
from mpies.core.errors import RunError
from mpies.report.evaluate import show_member
from mpies.runs.formats import hdf5, ledger
from mpies.runs.formats.checkpoint import list_checkpoints, newest_checkpoint
from mpies.runs.formats.metrics import read_digests, read_metrics
from mpies.runs.reader import RunView, read_run_config
from mpies.training import task
from mpies.training.replay import Replay, load_member
from tests.support import FAULTY, FAULTY_MODULE, HOME, assert_refused, invoke

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


@pytest.fixture
def run_of(trained):
    """A function from the name of a config to its run of ten generations."""
    return lambda name: trained(CONFIGS[name] + COMMON)


def test_the_mean_of_every_generation_is_rebuilt_to_the_bit(run_of, tmp_path):
    run, means, saved = run_of("gymnasium"), set(), tmp_path / "policy.h5"
    assert len(list_checkpoints(run)) == 11
    for generation in (0, 1, 7, 10):
        stdout = invoke("replay", run, "--generation", generation, "--out", saved, code=0).stdout
        rebuilt, described = hdf5.read(saved)
        checkpoint, attributes = hdf5.read(run / "checkpoints" / f"generation-{generation:08d}.h5")
        assert described["generation"] == generation and (checkpoint["normalizer/count"] > 0) == (generation > 0)
        assert rebuilt["parameters"].tobytes() == checkpoint["solver/mean"].tobytes()
        for name in ("normalizer/count", "normalizer/total", "normalizer/squares"):
            assert rebuilt[name].tobytes() == checkpoint[name].tobytes()
        assert "the recorded one" in stdout and f"digest {attributes['digest'][:16]}" in stdout
        means.add(rebuilt["parameters"].tobytes())
    assert len(means) == 4
    assert hdf5.digest(rebuilt) == hdf5.digest(hdf5.read(run / "policy.h5")[0])  # as the run saved it
    before = (run / "best.h5").read_bytes()
    refused = invoke("replay", run, "--generation", 1, "--out", run / "best.h5")
    assert_refused(refused, "best.h5: is a file of the run in", "give another file")
    assert (run / "best.h5").read_bytes() == before


def test_a_replay_needs_first_checkpoint_and_ledger_only_and_goes_on_where_the_ledger_has_grown(run_of, tmp_path):
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    for name in ("config.yaml", "checkpoints/generation-00000000.h5"):
        shutil.copy(run_of("cma_es") / name, run / name)
    whole = (run_of("cma_es") / "ledger.bin").read_bytes()
    _, end = ledger.find_end(run_of("cma_es") / "ledger.bin", 4)
    (run / "ledger.bin").write_bytes(whole[: end + 10])  # the next record is half-written
    replay = Replay(run, 4)
    with pytest.raises(RunError, match="generation 5 is not in its ledger, which ends at 4"):
        replay.run_until(5)
    (run / "ledger.bin").write_bytes(whole)
    replay.run_until(10)
    assert replay.digest == read_digests(run_of("cma_es"))[-1]


def test_what_is_not_on_record_is_refused_in_one_line(run_of, tmp_path):
    run = run_of("cma_es")
    words = "generation 11 is not in its ledger, which ends at 10; give that or an earlier one"
    assert_refused(invoke("replay", run, "--generation", 11), words)
    assert_refused(invoke("play", run, "--member", "11,0"), "generation 11 is not in its ledger, which has 1 to 10;")
    with pytest.raises(RunError, match="generation 0 is not in its ledger, which has 1 to 10; give one of these"):
        load_member(run, 0, 0)
    assert_refused(invoke("play", run, "--member", "3,8"), "has no member 8; its members are 0 to 7")
    assert_refused(invoke("replay", tmp_path, "--generation", 1), "config.yaml: cannot be read", " a run?")
    copy = shutil.copytree(run, tmp_path / "run")
    content = bytearray((copy / "ledger.bin").read_bytes())
    content[len(content) // 2] ^= 1
    (copy / "ledger.bin").write_bytes(content)
    assert_refused(invoke("replay", copy, "--generation", 9), "is not in its ledger")
    (copy / "checkpoints" / "generation-00000000.h5").unlink()
    assert_refused(invoke("replay", copy, "--generation", 1), "the first checkpoint, ")


@pytest.mark.parametrize("damage", ["checkpoint", "ledger", "config"])
def test_a_run_whose_parts_do_not_fit_is_refused_in_one_line(damage, run_of, tmp_path):
    run = shutil.copytree(run_of("gymnasium"), tmp_path / "run")
    checkpoint = run / "checkpoints" / "generation-00000000.h5"
    if damage == "checkpoint":
        arrays, attributes = hdf5.read(checkpoint)
        checkpoint.write_bytes(hdf5.pack(arrays | {"normalizer/count": np.zeros(2)}, attributes))
    elif damage == "ledger":
        records = [{**one, "returns": one["returns"][:3]} for one in ledger.read_records(run / "ledger.bin")]
        (run / "ledger.bin").write_bytes(b"".join(map(ledger.pack_record, records)))
    else:
        text = (run / "config.yaml").read_text()
        (run / "config.yaml").write_text(text.replace("population: 14", "population: 1000000000000"))
    for command in (("replay", run, "--generation", 3), ("play", run, "--member", "2,1")):
        assert_refused(invoke(*command), str(run), "is of another config")


def test_a_replay_that_gives_another_state_ends_with_code_1(run_of, tmp_path):
    copy = shutil.copytree(run_of("envpool"), tmp_path / "run")
    records = list(ledger.read_records(copy / "ledger.bin"))
    records[4] |= {"returns": records[4]["returns"][::-1]}
    (copy / "ledger.bin").write_bytes(b"".join(map(ledger.pack_record, records)))
    assert invoke("replay", copy, "--generation", 4).code == 0
    outcome = invoke("replay", copy, "--generation", 5)
    assert outcome.code == 1 and "NOT the recorded one" in outcome.stdout


@pytest.mark.parametrize("name", ["gymnasium", "envpool", "overlap", "low_rank"])
def test_a_member_that_is_played_again_returns_the_same(name, run_of):
    returns = {int(a["generation"]): a["returns"] for a in ledger.read_records(run_of(name) / "ledger.bin")}
    if name == "envpool":  # of a second batch too, where the first had too few steps
        assert len(returns[1]) > 16
    seen = set()
    for generation, member in ((1, 0), (1, 5), (2, 3), (2, len(returns[2]) - 1), (10, 0), (10, len(returns[10]) - 1)):
        outcome = invoke("play", run_of(name), "--member", f"{generation},{member}", code=0)
        expected = f"{returns[generation][member]:.6g}"
        assert f"recorded {expected}, played again {expected}\n" in outcome.stdout
        seen.add(expected)
    assert len(seen) > 2


def test_a_member_that_failed_fails_again_with_its_message(here, write_config):
    (here / "faulty.py").write_text(FAULTY_MODULE)
    config = FAULTY.format(share=0.3).replace("faulty:Faulty-v0", "faulty.py:Faulty")
    invoke("train", write_config(config), "--out", "run")
    returns = next(arrays["returns"] for arrays in ledger.read_records(here / "run" / "ledger.bin"))
    failed = int(np.flatnonzero(np.isnan(returns))[0])
    stdout = invoke("play", "run", "--member", f"1,{failed}", code=0).stdout
    assert "recorded nan, played again nan" in stdout and "RuntimeError: out of balance" in stdout


@pytest.mark.parametrize("name", CONFIGS)
def test_a_replay_steps_forward_generation_by_generation(name, run_of):
    replay = Replay(run_of(name))
    for generation, digest in enumerate(read_digests(run_of(name)), 1):
        replay.run_until(generation)
        assert replay.generation == generation and replay.is_faithful() and replay.digest == digest
    with pytest.raises(RunError, match="generation 11 is not in its ledger, which ends at 10"):
        replay.run_until(11)


def test_the_constants_of_a_policy_are_kept_in_a_replayed_one(trained, tmp_path, monkeypatch):
    run = trained("""
environment: {id: "tests.envs.rover:Images"}
policy: {kind: conv, convolutions: [[3, 4, 2]], hidden: [], reference: 9}
solver: {population: 2, sigma: 0.1}
noise: {size: 100000}
evaluation: {every: 0, episodes: 1}
stop: {generations: 1}
""")
    drawn, draw = [], task.draw_reference
    monkeypatch.setattr(task, "draw_reference", lambda *arguments: drawn.append(arguments) or draw(*arguments))
    invoke("replay", run, "--generation", 1, "--out", tmp_path / "policy.h5", code=0)
    reference = hdf5.read(tmp_path / "policy.h5")[0]["constants/reference"]
    assert reference.tobytes() == hdf5.read(run / "policy.h5")[0]["constants/reference"].tobytes()
    recorded, replayed, failures = show_member(run, 1, 1, tmp_path / "member.gif")
    assert recorded == replayed and not failures and (tmp_path / "member.gif").stat().st_size
    assert not drawn


@pytest.fixture(params=[0, 1], ids=["no overlap", "overlap"])
def earlier_run(request, tmp_path):
    """A copy of a run that commit 9510d38 wrote, before the first release."""
    return shutil.copytree(HOME / "tests" / "data" / f"run-9510d38-overlap-{request.param}", tmp_path / "run")


@pytest.fixture
def fresh_digests(earlier_run, trained):
    """The digests of the config of `earlier_run`, trained for eight generations by this version on this machine.

    Skips where the machine computes other bits than the one that made the run.
    """
    values = resolved(read_run_config(earlier_run))
    values["stop"]["generations"] = 8
    digests = read_digests(trained(as_yaml(values)))
    if digests[0] != read_digests(earlier_run)[0]:
        pytest.skip("this machine, or a package on it, computes other bits than those that were recorded")
    return digests


@pytest.mark.parametrize("lost", [None, "generation-00000006.h5"], ids=["complete", "from the ledger"])
def test_an_earlier_run_resumes(lost, earlier_run, fresh_digests, run_mpies, tmp_path):
    run, before, config = earlier_run, read_metrics(earlier_run), tmp_path / "config.yaml"
    shutil.copy(run / "config.yaml", config)
    if lost:
        (run / "checkpoints" / lost).unlink()
    outcome = run_mpies(0, "train", config, "--out", run, "--resume", "must", "stop.generations=8", code=0)
    assert "continuing from generation 6" in outcome.stderr and "WARNING" not in outcome.stderr
    assert read_metrics(run)[:6] == before
    assert read_digests(run) == fresh_digests  # also those that were recorded
    assert newest_checkpoint(run, print)[1]["generation"] == 8


@pytest.mark.parametrize("generation", [3, 6])
def test_an_earlier_run_replays(generation, earlier_run, fresh_digests, tmp_path):
    run, replay = earlier_run, Replay(earlier_run, generation)
    assert replay.is_faithful() and replay.digest == read_digests(run)[generation - 1]
    outcome = invoke("replay", run, "--generation", generation, "--out", tmp_path / "policy.h5", code=0)
    assert "the recorded one" in outcome.stdout
    if generation == 6:
        invoke("play", run, "--member", "5,3", code=0)
        saved = hdf5.read(tmp_path / "policy.h5")[0]
        assert hdf5.digest(saved) == hdf5.digest(hdf5.read(run / "policy.h5")[0])


def test_an_earlier_run_is_read_and_its_policy_is_played_on_every_machine(earlier_run):
    run, view = earlier_run, RunView(earlier_run)
    assert view.state() == "finished" and view.metrics.refresh().columns["generation"].tolist() == [1, 2, 3, 4, 5, 6]
    for policy in (run, run / "best.h5", run / "policy.h5"):
        invoke("evaluate", policy, "--episodes", 3, code=0)
