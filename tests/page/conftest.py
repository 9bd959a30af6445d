"""What the tests in a browser share: a server of the dashboard over a few run directories, and a browser."""

import pytest

from tests.page.browser import NoBrowser, open_browser
from tests.report.web.served_runs import run_folder, server  # noqa: F401 (fixtures)


@pytest.fixture(scope="module")
def browser():
    """A Browser of playwright; the tests are skipped where there is none."""
    try:
        with open_browser() as browser:
            yield browser
    except NoBrowser as reason:
        pytest.skip(str(reason))
