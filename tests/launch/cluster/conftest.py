"""A config, its measured constants and a Job, for the tests of submitting."""

import pytest

from mpies.launch.cluster.submit import Job, Request

CONFIG = """
environment: {id: "function:sphere", dimension: 5}
noise: {size: 50000000}
stop: {generations: 500, grace: 10}
"""

# Episodes of 3 s at most, and half a second of a generation besides.
CONSTANTS = """
machine: {core_streaming: 1.0e+12, node_streaming: 1.0e+12, generation: 0.5}
task: {environment: "function:sphere", parameters: 9, rows: 9, episodes: 9, seconds: 0.1, longest: 3.0}
"""

OVERRIDES = ("solver.sigma=0.2", "environment.id=function:sphere")
JOB = Job(
    Request("configs/my pole.yaml", OVERRIDES, nodes=3, ranks_per_node=16, partition="long"),
    config="configs/my pole.yaml",
    configs=[],
    out="runs/pole",
    memory=5 * 2**30,
    shared=2**30,
    seconds=26 * 3600 + 60,
    warning=120,
)


@pytest.fixture
def ball(write_config, here):
    """The working directory, with CONFIG in ball.yaml."""
    write_config(CONFIG, "ball.yaml")
    return here
