"""What the tests in a browser share: a server of the dashboard over a few run directories, and a headless Chromium."""

import contextlib
import os
import shutil

import pytest

from tests.report.web.served_runs import run_folder, server  # noqa: F401 (fixtures)


@contextlib.contextmanager
def open_browser():
    """A Browser of playwright, its own or the system's, which is closed at the end.  Skips where there is none."""
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError:
        pytest.skip("playwright is not installed: run make test-page")
    system = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium's sandbox does not start as root
    with sync_playwright() as playwright:
        has_own = os.path.exists(playwright.chromium.executable_path)
        if not has_own and not system:
            pytest.skip("Chromium is not installed: run make test-page")
        try:
            browser = playwright.chromium.launch(executable_path=None if has_own else system, args=flags)
        except Error as error:
            pytest.skip(f"Chromium does not start: {str(error).splitlines()[0]}")
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def browser():
    with open_browser() as browser:
        yield browser


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
