import functools

import pytest

from tests.policies.examples import build_policy


@pytest.fixture
def build(tmp_path):
    """build(kind, action, **options): a small policy of this kind."""
    return functools.partial(build_policy, folder=tmp_path)
