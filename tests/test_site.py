"""The site of the documents: it is built from all pages, and its links lead somewhere."""

import subprocess
import sys

from tests.support import HOME, load_script

SCRIPT = load_script("docs/build_site.py")


def test_the_site_is_built_without_broken_links():
    done = subprocess.run([sys.executable, SCRIPT.__file__], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    built = {page.stem for page in SCRIPT.SITE.glob("*.html")}
    assert {page.stem for page in (HOME / "docs").glob("*.md")} | {"index"} <= built
    assert (SCRIPT.SITE / "learning.gif").exists() and (SCRIPT.SITE / "results" / "cartpole" / "return.png").exists()


def test_a_broken_link_is_named(tmp_path):
    good = "other.html", "other.html#here", "https://example.org/x", "#top"
    broken = ["missing.html", "other.html#there", "#bottom"]
    links = "".join(f'<a href="{link}">link</a>' for link in (*good, *broken))
    (tmp_path / "page.html").write_text(f'<h1 id="top">A page</h1>{links}')
    (tmp_path / "other.html").write_text('<h1 id="here">Another</h1>')
    assert sorted(SCRIPT.find_broken_links(tmp_path)) == sorted(f"page.html: {link}" for link in broken)
