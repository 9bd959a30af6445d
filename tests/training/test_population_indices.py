"""The noise indices of a population are drawn once for each batch of it, also where generations overlap."""

import pytest

from mpies.comm.serial import Serial
from tests.training.evaluation.test_evaluator import Rig


@pytest.mark.parametrize("overlap", [0, 1])
def test_each_batch_of_a_generation_is_drawn_once(overlap):
    rig, drawn = Rig(Serial(), solver={"population": 12, "sigma": 0.5, "timesteps_per_batch": 700}, overlap=overlap), []
    draw = rig.solver.population_indices
    rig.solver.population_indices = lambda *arguments: drawn.append(arguments) or draw(*arguments)
    populations = [rig.evaluate(generation) for generation in range(2)]
    assert len(drawn) == len(set(drawn)) and (0, 1) in drawn  # (generation, batch); the first has two at least
    rig.solver.population_indices = draw
    for generation, population in enumerate(populations):
        batches = 1 + max(batch for made, batch in drawn if made == generation)
        expected = [index for batch in range(batches) for index in draw(generation, batch)]
        assert population.indices.tolist() == expected
