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


@pytest.fixture
def open_page(browser, server):  # noqa: F811
    """Open the page, at a run where one is named.  Returns playwright's Page; its errors fail the test."""
    contexts, problems, hosts = [], [], set()

    def open_at(run="", **options):
        contexts.append(browser.new_context(**options))
        page = contexts[-1].new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.on("request", lambda request: hosts.add(request.url.split("/")[2]))
        page.goto(server.url + (f"#={run}" if run else ""))
        page.wait_for_selector(".uplot canvas")
        return page

    open_at.problems = problems
    yield open_at
    for context in contexts:
        context.close()
    assert not problems
    assert hosts == {"{}:{}".format(*server.server_address[:2])}  # and none on the network
