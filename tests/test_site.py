"""The site of the documents: it is built from all pages, and its links lead somewhere."""

import subprocess
import sys

import pytest

from tests.support import HOME, load_script


@pytest.fixture(scope="module")
def script():
    return load_script("docs/build_site.py")


def test_the_site_is_built_without_broken_links(script):
    done = subprocess.run([sys.executable, script.__file__], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    built = {page.stem for page in script.SITE.glob("*.html")}
    assert {page.stem for page in (HOME / "docs").glob("*.md")} | {"index"} <= built
    assert (script.SITE / "learning.gif").exists() and (script.SITE / "results" / "cartpole" / "return.png").exists()


@pytest.mark.parametrize(
    ("link", "is_broken"),
    [
        ("other.html", False),
        ("other.html#here", False),
        ("https://example.org/x", False),
        ("#top", False),
        ("missing.html", True),
        ("other.html#there", True),
        ("#bottom", True),
    ],
)
def test_a_broken_link_is_named(script, tmp_path, link, is_broken):
    (tmp_path / "page.html").write_text(f'<h1 id="top">A page</h1><a href="{link}">link</a>')
    (tmp_path / "other.html").write_text('<h1 id="here">Another</h1>')
    assert script.find_broken_links(tmp_path) == ([f"page.html: {link}"] if is_broken else [])
