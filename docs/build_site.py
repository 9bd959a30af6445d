"""Build the site of the documents: gather the pages in build/pages, run Zensical on mkdocs.yml, check all links.

    make site            # or: python docs/build_site.py

README.md becomes the first page.  Files that pages link to, such as recipes and pictures, are copied, so that
the site in build/site stands alone.  The exit code is 1 where a link of the built site leads nowhere.
"""

import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

HOME = Path(__file__).resolve().parents[1]
PAGES, SITE = HOME / "build" / "pages", HOME / "build" / "site"
_LINK = re.compile(r"(\]\()([^)#:\s]+)((?:#[^)\s]*)?\))")


def find_place(file: Path) -> Path:
    """Where a file of the repository is in the site: docs/ is its top, and README.md is index.md."""
    path = file.relative_to(HOME)
    if path == Path("README.md"):
        return Path("index.md")
    return path.relative_to("docs") if path.parts[0] == "docs" else path


def gather() -> None:
    """Write the pages, and every file that they link to, into build/pages."""
    shutil.rmtree(PAGES, ignore_errors=True)
    waiting = [HOME / "README.md", HOME / "docs/site.css", *sorted((HOME / "docs").glob("*.md"))]
    done: set[Path] = set()
    while waiting:
        file = waiting.pop()
        if file in done:
            continue
        done.add(file)
        place = PAGES / find_place(file)
        place.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix != ".md":
            shutil.copyfile(file, place)
            continue

        def move(match: re.Match[str], file: Path = file, place: Path = place) -> str:
            target = (file.parent / match[2]).resolve()
            if not target.is_file():
                return match[0]
            waiting.append(target)
            return match[1] + os.path.relpath(PAGES / find_place(target), place.parent) + match[3]

        place.write_text(_LINK.sub(move, file.read_text()))


class _Page(HTMLParser):
    """The links and the anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if name in ("href", "src") and value and tag in ("a", "img"):
                self.links.append(value)
            if name == "id" and value:
                self.anchors.add(value)


def find_broken_links(site: Path) -> list[str]:
    """`PAGE: LINK` of each link within the site that leads nowhere."""
    pages = {file: _Page(file.read_text(encoding="utf-8")) for file in site.rglob("*.html") if file.name != "404.html"}
    broken = []
    for file, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            target = target / "index.html" if target.is_dir() else target
            anchors = pages[target].anchors if target in pages else set()
            if not target.exists() or (parts.fragment and target in pages and unquote(parts.fragment) not in anchors):
                broken.append(f"{file.relative_to(site)}: {link}")
    return broken


def main() -> int:
    """Build the site.  Returns the exit code."""
    gather()
    program = Path(sys.executable).with_name("zensical")
    if not program.exists():
        print('the site needs a package that is not installed: pip install "mpies[docs]"', file=sys.stderr)
        return 2
    done = subprocess.run([program, "build", "--clean", "--config-file", HOME / "mkdocs.yml"], cwd=HOME, check=False)
    broken = find_broken_links(SITE) if done.returncode == 0 else []
    print("\n".join(broken))
    print(f"{SITE / 'index.html'}: {len(list(SITE.rglob('*.html')))} pages, {len(broken)} broken links")
    return done.returncode or bool(broken)


if __name__ == "__main__":
    sys.exit(main())
