"""Overlapping generations (`overlap` of a config): the first members of a generation begin before it is their turn.

Ranks that have nothing left to play begin with these early members while the last episodes of the generation before
are played.  Early members are sampled around where the mean is expected to be.  Which members are early, and what they
are sampled from, hangs on the number of the generation alone, so it changes no bit how many ranks there are.

Everything that knows of early members is here.  Without overlap their number is 0.
"""

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mpies.config.schema import Config
from mpies.core.arrays import Array, Float32s
from mpies.core.errors import SolverProblem
from mpies.runs.formats.policy_file import select
from mpies.solvers.base import AnySolver, Proposal
from mpies.training.evaluation.generation import GenerationSpec

STATE = "ahead/"  # how the names of an early spec's vectors begin in a checkpoint
FIRST = 2  # the first generation, counted from 0, with early members: statistics and momentum begin with results


def count_early_members(config: Config, solver: AnySolver) -> int:
    """How many members of a generation are early, from number FIRST on.

    Raises SolverProblem where the solver sends rows.
    """
    count: int = config.solver.early_members(config.overlap, solver.dimension)
    if count and solver.rows:  # early members would need the rows of two generations
        raise SolverProblem(
            f"solver.kind {config.solver.kind}: overlap does not work with rows; leave it out, or send what the "
            "members need as vectors of the proposal"
        )
    return count


class EarlySpecs:
    """On rank 0, what early members are sampled from; part of the learner's state.

    ready: of the coming generation, fixed before the newest results; None where it has no early members.
    """

    def __init__(self) -> None:
        self.ready: GenerationSpec | None = None
        self._following: GenerationSpec | None = None  # of the generation after the coming one

    def fix(self, newest: GenerationSpec, expected_mean: Float32s) -> GenerationSpec:
        """The spec of the early members of the generation after the coming one, which `advance` makes ready.

        newest: of members around the newest mean.  expected_mean: (d,) where the mean will be after the coming step.
        """
        expected = replace(newest, proposal=replace(newest.proposal, mean=expected_mean))
        self._following = copy.deepcopy(expected)  # the solver changes its own vectors while these members are played
        return self._following

    def advance(self) -> GenerationSpec | None:
        """The step of a generation is taken.  Returns the spec of its early members."""
        before, self.ready, self._following = self.ready, self._following, None
        return before

    def state(self) -> dict[str, Array]:
        """Names to vectors of what is ready."""
        vectors = self.ready.vectors() if self.ready else []
        return {f"{STATE}{place}": vector for place, vector in enumerate(vectors)}

    def restore(self, arrays: Mapping[str, Any], proposal_type: type[Proposal]) -> None:
        """Continue from what `state` returned, as part of `arrays`."""
        vectors = select(arrays, STATE)
        self.ready, self._following = None, None
        if vectors:
            in_order = [vectors[str(place)] for place in range(len(vectors))]
            self.ready = GenerationSpec.from_vectors(in_order, proposal_type)
