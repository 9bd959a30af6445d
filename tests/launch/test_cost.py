"""The predicted cost of a run, against numbers worked out by hand and what the solvers really send."""

import numpy as np
import pytest

from mpies.comm.serial import Serial
from mpies.config.loading import validate_config
from mpies.launch.cost import PROCESS, NodeMemory, predict_cost, predict_traffic
from mpies.launch.dry_run import describe_needs
from mpies.rollouts.batch import observation_record
from mpies.solvers.loop import SolverLoop
from mpies.training.task import Task
from mpies.training.trainer import make_trainer
from mpies.training.update import make_solver

D = 50


def sphere(**sections):
    return validate_config({"environment": {"id": "function:sphere", "dimension": D}, **sections}, "test")


def test_memory_and_traffic_worked_out_by_hand():
    config = sphere(solver={"population": 20, "episodes": 3}, noise={"size": 1000})
    cost = predict_cost(config, ranks=4)
    assert (cost.parameters, cost.normals) == (D, D)
    assert cost.noise == 4 * D * 10  # a row for each pair
    assert cost.memory.table == 4000
    assert cost.memory.rank == PROCESS + 4 * D * 4  # one candidate at a time
    assert cost.broadcast == 4 * (D + 1)  # the mean and sigma
    assert cost.gathered == 20 * 3 * 32
    assert cost.blocks == 4 * D * 3 // 4


def test_a_node_has_one_table_and_one_rank_0():
    memory = NodeMemory(table=1000, rank=10, root=7)
    assert memory.total(1) == 1017 and memory.total(5) == 1057


def test_a_rank_has_the_parameters_of_every_slot_and_observation_statistics_are_gathered():
    values = {"environment": {"id": "CartPole-v1", "backend": "gymnasium"}, "policy": {"hidden": []}}
    config = validate_config({**values, "solver": {"population": 100}}, "test")
    task, cost = Task(config), predict_cost(config, ranks=2)
    assert task.dimension == 10
    assert cost.memory.rank == PROCESS + 4 * 10 * (task.env.slots + 3)
    assert cost.broadcast == 4 * 11 + 8 * 4  # mean, sigma; mean and deviation of four observations
    assert cost.gathered == 100 * 32 + 10 * observation_record(4).itemsize  # a tenth of the episodes is sampled


@pytest.mark.parametrize("kind", ["openai_es", "snes", "pepg", "sep_cma", "novelty_es", "cr_fm_nes", "cma_es"])
def test_the_traffic_is_what_the_solver_sends(kind):
    config = sphere(solver={"kind": kind, "population": 12}, noise={"size": 10_000})
    traffic = predict_traffic(config, Task(config))
    trainer = make_trainer(config, Serial())
    trainer.restore()
    parts, _ = trainer.updater.next_parts()
    spec = parts[-1].spec
    rows = trainer.updater.solver.ask().rows
    sent = sum(vector.nbytes for vector in spec.proposal.vectors()) + (0 if rows is None else rows.nbytes)
    results = trainer.evaluator.evaluate(parts, 0).results
    weights = trainer.updater.solver.compute_weights(results, spec.proposal)
    assert traffic.proposal == sent
    assert traffic.moments == len(weights.linear) + len(weights.square)
    assert (traffic.payload, traffic.behaviour) == (results.payload.shape[1], results.behaviours.shape[1])


def test_parents_are_sent_once_for_a_chain_of_mutations():
    options = {"kind": "deep_ga", "population": 40, "parents": 6, "snapshot": 4, "sigma": 0.1}
    config = sphere(solver=options, noise={"size": 10_000})
    solver = make_solver(config, D)
    solver.start(np.ones(D))
    loop, sent = SolverLoop(solver, lambda x: -float(x @ x)), []
    for _ in range(60):
        proposal = solver.ask()
        sent.append(sum(vector.nbytes for vector in proposal.vectors()))
        sent[-1] += 0 if proposal.rows is None else proposal.rows.nbytes
        loop.run_generation()
    predicted = predict_traffic(config, Task(config)).proposal
    assert predicted == sent[1] + 4 * D * 6 // 4
    assert predicted == pytest.approx(np.mean(sent), rel=0.1)
    assert predict_cost(config, ranks=1).broadcast == predicted


def test_whole_candidates_are_kept_in_shared_memory_in_place_of_noise():
    cost = predict_cost(sphere(solver={"kind": "cma_es", "population": 12}, noise={"size": 10_000}), ranks=2)
    assert cost.noise == cost.normals == 0
    assert cost.memory.table == 4 * D * 12
    assert cost.blocks == 0


OWN = """
import numpy as np
from mpies.solvers.moments import Weights, no_square
from mpies.solvers.openai_es import OpenAIES


class Mine(OpenAIES):
    def compute_weights(self, results, proposal):
        pairs = results.returns.reshape(self.options.members(self.dimension) // 2, 2)
        return Weights(np.float32(pairs[:, :1] - pairs[:, 1:]).T, no_square(len(pairs)))
"""


def test_an_own_solver_gets_results_of_whole_populations(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    config = sphere(solver={"kind": "mine.py:Mine", "population": 20_000}, noise={"size": 10_000})
    assert predict_traffic(config, Task(config)).moments == 1


def test_the_cost_in_words():
    config = sphere(solver={"population": 20_000, "episodes": 100}, noise={"size": 2**20})
    lines = [line.partition("  ")[::2] for line in describe_needs(config, 4).strip().splitlines()]
    values = {name: value.strip() for name, value in lines}
    assert values["parameters"] == "50"
    assert values["noise of a generation"] == "2,000 kB, 50 normals a direction"
    assert values["defaults of the solver"] == "sigma 0.1, weight_decay 0, optimizer.learning_rate 0.03"
    total = np.ceil(4 + 4 * 130)
    assert values["memory of a node"] == f"{total:.0f} MB with 4 ranks (table 4 MB, each rank about 130 MB)"
    assert values["sent per generation"] == (
        "204 B broadcast to each rank, 64 MB gathered from members, 150 B of the update"
    )
