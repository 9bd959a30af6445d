"""What tests of submitting share."""

import pytest

from tests.launch.cluster.examples import CONFIG


@pytest.fixture
def ball(write_config, here):
    """The working directory, with CONFIG in ball.yaml."""
    write_config(CONFIG, "ball.yaml")
    return here
