"""A headless Chromium: the one that playwright installs, or the system's."""

import contextlib
import os
import shutil


class NoBrowser(Exception):
    """No browser could be started.  The message says how to get one."""


@contextlib.contextmanager
def open_browser():
    """A Browser of playwright, closed at the end.  Raises NoBrowser."""
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError:
        raise NoBrowser("playwright is not installed: run make test-page") from None
    system = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium's sandbox does not start as root
    with sync_playwright() as playwright:
        has_own = os.path.exists(playwright.chromium.executable_path)
        if not has_own and not system:
            raise NoBrowser("Chromium is not installed: run make test-page")
        try:
            browser = playwright.chromium.launch(executable_path=None if has_own else system, args=flags)
        except Error as error:
            raise NoBrowser(f"Chromium does not start: {str(error).splitlines()[0]}") from None
        yield browser
        browser.close()
