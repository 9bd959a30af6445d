"""What the documents name exists: keys, commands, files, imports, links."""

import ast
import importlib
import os
import re
import shlex
import sys
import textwrap

import click
import pytest

import mpies
from mpies.cli.main import main
from mpies.comm import mpiexec
from mpies.config.loading import make_config, parse_value
from mpies.config.reference import describe_keys
from tests.support import HOME, WARM_START, load_script, mpiexec_or_skip, skip_without_programs

SECTIONS = ("environment", "policy", "solver", "noise", "evaluation", "checkpoint", "stop")
README = HOME / "README.md"
FOR_DEVELOPERS = [HOME / name / "README.md" for name in ("benchmarks", "examples", "tests")]
FOR_DEVELOPERS.append(HOME / "CONTRIBUTING.md")
PAGES = [*sorted((HOME / "docs").glob("*.md")), README]
RESULTS = sorted((HOME / "docs" / "recipes").glob("*.md"))  # a page for each recipe


def known_keys():
    """`section.key` of every key in any kind of the section, and `section.key.key` of what lies within."""
    keys, section = set(), ""
    for line in describe_keys().splitlines():
        if heading := re.match(r"###? (.*)", line):
            section = re.sub(r" \(kind: [^)]*\)", "", heading[1])
        elif match := re.match(r"\| `([a-z_0-9]+)` \|", line):
            keys.add(f"{section}.{match[1]}")
    return keys


def test_the_keys_the_reference_and_the_tables_of_figures_are_what_make_docs_writes():
    assert (HOME / "docs" / "keys.md").read_text().rstrip() == describe_keys().rstrip()
    script = load_script("docs/build_reference.py")
    assert script.PAGE.read_text().rstrip() == script.make_page().rstrip()
    pages = load_script("docs/build_tables.py").make_pages()
    assert [path.name for path, text in pages.items() if path.read_text(encoding="utf-8") != text] == []


def test_the_readme_and_the_changes_have_the_version():
    assert README.read_text().startswith(f"# mpies {mpies.__version__}\n")
    assert mpies.__version__ in re.findall(r"^## (.*)$", (HOME / "CHANGELOG.md").read_text(), re.M)


@pytest.mark.parametrize("page", [*PAGES, *RESULTS], ids=lambda p: p.stem)
def test_every_key_that_a_page_names_exists(page):
    named = set(re.findall(rf"`((?:{'|'.join(SECTIONS)})\.[a-z_.]+)(?:=[^`]*)?`", page.read_text()))
    named = {name for name in named if not name.endswith((".csv", ".h5", ".bin", ".yaml", ".py"))}
    assert not named - known_keys()


def shown_files(page):
    """Name to text of the files that a page shows, each in a fence after a line that ends with "`NAME`:"."""
    return dict(re.findall(r"`([\w.]+)`:\n\n```\w+\n(.*?)```", page.read_text(), re.S))


def commands(page):
    """The commands that a page shows behind a prompt, without comments."""
    return [line.strip()[2:].split("  #")[0] for line in page.read_text().splitlines() if line.strip().startswith("$ ")]


# Page to its least commands.
SHOWN = {
    "README.md": 4,
    "docs/command_line.md": 4,
    "docs/how_it_works.md": 2,
    "docs/moving_over.md": 2,
    "docs/reproducibility.md": 4,
    "docs/runs.md": 3,
    "docs/scaling.md": 2,
    "docs/tutorial.md": 13,
}


def shortened(command):
    """The command with fewer generations, repetitions and ranks, into the run that it would write: its words are tried.

    That of the README starts ranks, and stands for the others.
    """
    command = command.removeprefix("mpirun -n 2 ")
    if not command.startswith("mpies train cartpole "):
        command = re.sub(r"^(mpies (?:train|sweep|verify) .*--ranks) (?:1,)?\d+", r"\1 1", command)
    if re.search(r" bench ", command):
        return f"{command} --repeats 1 --generations 1"
    if command.startswith("mpies verify "):
        return f"{command} --generations 1"
    if not re.match(r"mpies (train|sweep) ", command) or "--dry-run" in command:
        return command
    if "stop.generations=" in command:
        return re.sub(r"stop\.generations=(\d+)", lambda found: f"stop.generations={min(int(found[1]), 12)}", command)
    out = "" if "--out " in command else f" --out runs/{command.split()[2].removesuffix('.yaml')}"
    return f"{command} stop.generations=3{out}"


def test_no_page_shows_commands_that_no_test_runs():
    shown = {str(page.relative_to(HOME)) for page in PAGES if commands(page)}
    assert shown - {"docs/sweeps.md"} == set(SHOWN)  # tests/sweeps/test_document.py runs those


@pytest.mark.parametrize("page", SHOWN)
def test_the_commands_of_a_page_run_one_after_the_other(page, tmp_path):
    mpiexec_or_skip()
    for folder in ("configs", "results"):
        os.symlink(HOME / folder, tmp_path / folder)
    for name, text in shown_files(HOME / page).items():
        (tmp_path / name).write_text(text)
    environment = mpiexec.environment() | {"PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"}
    shown = commands(HOME / page)
    assert len(shown) >= SHOWN[page]
    for command in map(shortened, shown):
        skip_without_programs(command.split())
        is_mistake = "solver.sigam" in command  # shown for its message
        if command.startswith("mpies ") and not set(command) & set("*>|;&"):
            code, stdout, stderr = WARM_START.run(shlex.split(command)[1:], tmp_path, environment, timeout=300)
        else:
            done = mpiexec.run(["bash", "-c", command], cwd=tmp_path, env=environment, timeout=300)
            code, stdout, stderr = done.returncode, done.stdout, done.stderr
        assert code == (2 if is_mistake else 0), f"{command}\n{stdout[-2000:]}\n{stderr[-2000:]}"


def test_the_five_lines_of_python_in_the_readme_run(here):
    lines = re.search(r"## Five lines of Python\n\n((?:    .*\n)+)", README.read_text())[1]
    found = {}
    exec(textwrap.dedent(lines).replace("ranks=2", "stop={'generations': 10}"), found)
    assert len(lines.splitlines()) == 5 and found["run"].generation == 10


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_what_a_page_shows_of_python_and_yaml_is_valid(page, here):
    for name, text in shown_files(page).items():
        (here / name).write_text(text)
    for language, text in re.findall(r"```(python|yaml)\n(.*?)```", page.read_text(), re.S):
        if language == "yaml":
            make_config(parse_value(text, page.name), [], page.name)
        elif ".gin" not in page.read_text().partition(text)[0][-100:]:
            ast.parse(text)


def mentioned(page):
    """The commands of mpies that a page mentions, in blocks of code and in the text: their words."""
    text = page.read_text()
    lines = [line.strip().removeprefix("$ ") for line in text.splitlines() if line.startswith("    ")]
    lines += re.findall(r"`(mpies [^`]+)`", re.sub(r"```.*?```", "", text, flags=re.S))
    for line in lines:
        line = re.sub(r"(^| && )(mpirun -n \d+ |(?:[A-Z_]+=\S+ )+)", r"\1", line)
        for part in line.split(" && "):
            part = re.split(r"  #|  +\(|; | \| ", part)[0]
            if re.match(r"mpies [a-z]", part) and " ... " not in part:
                yield shlex.split(part)[1:]


@pytest.mark.parametrize("page", [*PAGES, *RESULTS], ids=lambda p: p.stem)
def test_every_command_that_a_page_mentions_has_these_options(page):
    whole = click.Context(main, **main.context_settings)  # a command keeps the options for help that it had first
    for name, *words in mentioned(page):
        command = main.commands.get(name)
        assert command, f"mpies {name} {words}"
        if isinstance(command, click.Group) and words and words[0] in command.commands:
            command, words = command.commands[words[0]], words[1:]
        try:
            command.make_context(name, list(words), parent=whole).close()  # it empties the list
        except (click.MissingParameter, click.exceptions.NoArgsIsHelpError):
            pass  # the text names the command alone, or an option of it
        except click.BadParameter as error:
            assert re.search(r"\b[A-Z]\b", " ".join(words)), f"mpies {name} {words}: {error}"  # such as --ranks N
        except click.exceptions.Exit as ended:
            assert ended.exit_code == 0  # --help


@pytest.mark.parametrize("page", [*PAGES, *FOR_DEVELOPERS], ids=str)
def test_files_of_the_code_that_a_page_names_exist(page):
    folders = "mpies|solvers|envs|tests|benchmarks|docs|examples|slurm"
    named = re.findall(rf"\b((?:{folders})/[\w/-]+\.\w+)", page.read_text())
    exempt = ".venv", "NAME"  # a folder that is made, and a placeholder
    assert not [name for name in named if not any(word in name for word in exempt) and not (HOME / name).exists()]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_names_that_a_page_imports_from_mpies_exist(page):
    for module, names in re.findall(r"^ *from (mpies[\w.]*) import ([\w, ]+)", page.read_text(), re.M):
        for name in names.split(","):
            assert hasattr(importlib.import_module(module), name.strip()), f"{module}: {name}"
    for module, name in re.findall(r"\b(mpies\.[a-z_]+(?:\.[a-z_]+)*)\.([A-Z]\w+)", page.read_text()):
        assert hasattr(importlib.import_module(module), name), f"{module}: {name}"


def anchors(page):
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_of_pages_lead_to_files_and_headings():
    for page in [*HOME.glob("*.md"), *HOME.glob("docs/**/*.md"), *FOR_DEVELOPERS]:
        for link, anchor in re.findall(r"\]\(([^)#:\s]*)(?:#([^)\s]*))?\)", re.sub(r"`[^`]*`", "", page.read_text())):
            target = page.parent / link if link else page
            assert target.exists(), f"{page.name}: {link}"
            assert not anchor or anchor in anchors(target), f"{page.name}: {link}#{anchor}"


def test_the_readme_leads_to_every_page():
    text = README.read_text()
    assert not [page.name for page in PAGES[:-1] if f"(docs/{page.name}" not in text]
