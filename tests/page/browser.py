"""A headless Chromium: the one that playwright installs, or the system's."""

import contextlib
import os
import shutil


class NoBrowser(Exception):
    """There is none here; the message says how to get one."""


@contextlib.contextmanager
def open_browser():
    """A Browser of playwright, closed at the end.  Raises NoBrowser."""
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError:
        raise NoBrowser("there is no playwright: make test-page installs it") from None
    system = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    # The sandbox of Chromium does not start as root.
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        own = os.path.exists(playwright.chromium.executable_path)
        if not own and not system:
            raise NoBrowser("there is no Chromium: make test-page installs one")
        try:
            browser = playwright.chromium.launch(executable_path=None if own else system, args=flags)
        except Error as error:
            raise NoBrowser(f"Chromium does not start: {str(error).splitlines()[0]}") from None
        yield browser
        browser.close()
