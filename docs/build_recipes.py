"""Write docs/recipes.md, a table of all recipes, and docs/recipes/NAME.md, a page of results for each.

    make docs            # or: python docs/build_recipes.py

All text comes from the headings of configs/, from results/NAME/record.yaml and from results/NAME/notes.md.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mpies.config.loading import load_config
from mpies.config.recipes import base_of, find_recipes, find_recorded_policies
from mpies.core.errors import ConfigError
from mpies.core.text import counted
from mpies.report.records import (
    CUT_SHORT,
    NOT_RUN,
    RESULTS,
    Record,
    RecordedSeed,
    describe_return,
    format_recorded_mean,
    format_result,
    has_record,
    is_finished,
    is_reached,
    read_record,
    shorten,
)

HOME = Path(__file__).resolve().parents[1]
TABLE, PAGES = HOME / "docs" / "recipes.md", HOME / "docs" / "recipes"
COLUMNS = ("recipe", "task", "policy, parameters", "solver", "published", "ours", "steps", "core hours", "seeds")
ENDS = {"solved": "target", "generations": "last generation", "seconds": "time limit", CUT_SHORT: "cut short"}


@dataclass(frozen=True)
class Heading:
    """The comment at the beginning of a recipe.

    task: in words.  published: what others reached, and where it is written.  budget: what a run takes.
    notes: what else to know; often empty.
    """

    task: str
    policy: str
    solver: str
    published: str
    budget: str
    notes: str = ""


def read_heading(path: Path) -> Heading:
    """The Heading of a recipe's file: the task, then `Policy:`, `Solver:`, `Published:`, `Budget:`, perhaps `Notes:`.

    Raises ConfigError where a part is missing or appears twice.
    """
    parts, key = {"task": ""}, "task"
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        text = line[1:].strip()
        if part := re.fullmatch(r"([A-Z][a-z]+): (.*)", text):
            key, text = part[1].lower(), part[2]
            if key in parts or key not in Heading.__dataclass_fields__:
                raise ConfigError(f"{path}: the heading has {part[1]!r} twice, or there is no such part")
        parts[key] = f"{parts.get(key, '')} {text}".strip()
    if missing := [key for key in Heading.__dataclass_fields__ if key != "notes" and not parts.get(key)]:
        raise ConfigError(f"{path}: the heading lacks {', '.join(missing)}")
    return Heading(**parts)


def make_table() -> str:
    """The page docs/recipes.md: a row for each recipe, which links to its page."""
    lines = [
        "# Recipes",
        "",
        "After this page you can choose a recipe, and you know what it reached here.",
        "",
        "A recipe is a config that comes with mpies. `mpies train NAME --ranks N` trains it on N cores.",
        "`mpies reproduce NAME --ranks N` also compares it with the recorded runs. A name below leads to a page with",
        "all seeds, the curves, and variants, which are recipes with other settings for the same task.",
        "",
        "The trained policy of a recipe's first seed comes with mpies, unless it is larger than 100 kB.",
        "`mpies play NAME --video FILE.mp4` shows it, and `mpies evaluate NAME` measures it, without training.",
        "",
        "*Published* is what others reached. *Ours* is the mean return of 100 held-out episodes with its 95 %",
        "interval. For several seeds, it is the interquartile mean with its bootstrap interval. It is bold if it",
        "reached the mark, the return that counts as success. Where it did not, the variants that did come next,",
        "for the same task.",
        "",
        "Steps and core hours are medians over the seeds. They include those of the policies that training",
        "starts from.",
        "",
        _row(COLUMNS),
        _row(["---"] * len(COLUMNS)),
    ]
    lines += [_row(_list_cells(name, read_heading(find_recipes()[name]))) for name in list_shown()]
    return "\n".join(lines) + "\n"


def list_shown() -> list[str]:
    """The names in the table: of each recipe, and of the variants that reached the mark where the recipe did not."""
    reached = {name for name in find_recipes() if has_record(name) and is_reached(read_record(name))}
    return [
        name for name in find_recipes() if base_of(name) == name or (name in reached and base_of(name) not in reached)
    ]


def _list_cells(name: str, heading: Heading) -> list[str]:
    """The cells of a recipe's row."""
    policy = heading.policy.partition(".")[0].removesuffix(" parameters")
    published = re.sub(r"(\d) million", r"\1 M", shorten(heading.published))
    if base_of(name) == name:
        cells = [f"[{name}](recipes/{name}.md)", shorten(heading.task), policy, shorten(heading.solver), published]
    else:  # below the row of its recipe, which says the rest
        cells = [f"[{name}](recipes/{base_of(name)}.md#{name})", "", policy, shorten(heading.solver), ""]
    if not has_record(name):
        return [*cells, NOT_RUN, "", "", ""]
    record = read_record(name)
    ours = f"**{format_result(record)}**" if is_reached(record) else format_result(record)
    steps, core_hours = measure_cost(name, record)
    return [*cells, ours, _describe_steps(steps), describe_core_hours(core_hours), describe_seeds(record)]


def _describe_steps(steps: float) -> str:
    """Steps in millions or thousands."""
    return f"{steps / 1e6:.3g} M" if steps >= 1e6 else f"{steps / 1e3:.3g} k"


def trace_starts(name: str) -> list[str]:
    """The recipes whose trained policies a recipe starts from, and those that these start from, and so on."""
    starts, recipes = [], find_recipes()
    while (name := getattr(load_config(recipes[name]).policy, "init_from", None) or "") in recipes:
        starts.append(name)
    return starts


def measure_cost(name: str, record: Record) -> tuple[float, float]:
    """Steps and core hours of training: medians of the seeds, plus those of the policies that training starts from.

    A recipe's trained policy, from which others start, is that of its first seed.
    """
    seeds, starts = record["seeds"], [read_record(start)["seeds"][0] for start in trace_starts(name)]
    steps = np.median([seed["steps"] for seed in seeds]) + sum(seed["steps"] for seed in starts)
    seconds = np.median([seed["core_seconds"] for seed in seeds]) + sum(seed["core_seconds"] for seed in starts)
    return float(steps), float(seconds) / 3600


def describe_core_hours(hours: float) -> str:
    """Hours of training of all ranks, with two digits."""
    return f"{hours:.2g}" if hours >= 0.01 else "< 0.01"


def count_reached(record: Record) -> int:
    """The number of seeds that reached the mark."""
    return sum(seed["reached"] for seed in record["seeds"])


def describe_seeds(record: Record) -> str:
    """How many seeds reached the mark; without a mark, or where all were cut short before it, how many there are."""
    count = len(record["seeds"])
    if not is_finished(record) and not is_reached(record):
        return f"{count} cut short"
    if record["mark"] is None:
        return counted(count, "seed")
    return f"{count_reached(record)} of {count} reached"


def make_page(name: str) -> str:
    """The page docs/recipes/NAME.md of a recipe and its variants."""
    recipes = find_recipes()
    variants = [other for other in recipes if base_of(other) == name and other != name]
    lines = [f"# {name}", "", f"After this page you know what the recipe {name} trains, and what it reached here.", ""]
    lines += [
        "With `--ranks N`, `mpies train` and `mpies reproduce` use N cores. The [glossary](../glossary.md) explains",
        "the terms, and [solvers](../solvers.md) the solvers.",
        "",
    ]
    lines += _tell(name, recipes[name])
    for variant in variants:
        lines += [f"## {variant}", "", *_tell(variant, recipes[variant])]
    return "\n".join(lines).rstrip() + "\n"


def _tell(name: str, path: Path) -> list[str]:
    """The lines about one recipe or variant: what it is, how to train it, what was recorded."""
    heading = read_heading(path)
    config = f"configs/{'' if base_of(name) == name else 'variants/'}{path.name}"
    facts = {"Task": heading.task, "Policy": heading.policy, "Solver": heading.solver, "Published": heading.published}
    facts |= {"Budget": heading.budget, "Notes": heading.notes, "Config": f"[{config}](../../{config})"}
    lines = [_row(["", ""]), _row(["---", "---"])]
    lines += [_row([f"**{key}**", text[:1].upper() + text[1:]]) for key, text in facts.items() if text]
    lines += ["", f"    mpies train {name}"]
    if not has_record(name):
        return [*lines, "", "No run of it is recorded.", ""]
    lines += [f"    mpies reproduce {name}"]
    if name in find_recorded_policies():
        use = "evaluate" if load_config(path).environment.function else "play"  # a function has nothing to show
        lines += [f"    mpies {use} {name}"]
    return [*lines, "", *_tell_results(name, read_record(name))]


def _tell_results(name: str, record: Record) -> list[str]:
    """The lines about what was recorded: the verdict, every seed, the picture, notes, versions."""
    folder, seeds, mark = f"../../results/{name}", record["seeds"], record["mark"]
    sentences = [f"Mean return {describe_return(record)}."]
    if record["over_seeds"]:
        sentences.append("It is the interquartile mean over seeds, with its 95 % bootstrap interval.")
    elif evaluation := next((seed["evaluation"] for seed in seeds if seed["evaluation"]), None):
        sentences.append(f"It is over {evaluation['episodes']} held-out episodes, with its 95 % interval.")
    if mark is not None:
        plural = "s" * (len(seeds) > 1)
        sentences.append(f"{count_reached(record)} of {len(seeds)} seed{plural} reached the mark of {mark:,g}.")
    if not is_finished(record):
        sentences.append("It was not run to the end.")
    lines = [" ".join(sentences)]
    columns = ["seed", "ended by", *(["mark"] if mark is not None else []), "generations", "steps", "seconds", "ranks"]
    columns += ["mean return", "policy of generation"]
    lines += ["", _row(columns), _row(["---"] * len(columns))]
    lines += [_row(_list_seed(seed, mark)) for seed in seeds]
    lines += ["", f"![Return of {name} against steps]({folder}/return.png)", ""]
    if (RESULTS / name / "published.yaml").exists():
        lines += [f"The picture also shows what others published ([sources]({folder}/published.yaml)).", ""]
    if (RESULTS / name / "film.gif").exists():  # made by learning_film.py of commit 9510d38
        lines += [f"![The trained policy of {name}]({folder}/film.gif)", ""]
    notes = RESULTS / name / "notes.md"
    lines += [notes.read_text(encoding="utf-8").rstrip(), ""] if notes.exists() else []
    packages = ", ".join(f"{package} {version}" for package, version in record["versions"].items())
    lines += [
        f"`mpies reproduce {name}` accepts a learning curve whose mean distance from the recorded ones is at most "
        f"{100 * record['tolerance']:.0f} % of their range. "
        f"Trained with {packages}.",
        "",
    ]
    return lines


def _list_seed(seed: RecordedSeed, mark: float | None) -> list[str]:
    """The cells of a seed's row."""
    evaluation = seed["evaluation"]
    returns = ["none", ""]
    if evaluation:
        returns = [format_recorded_mean(evaluation), str(evaluation["policy_of_generation"])]
        returns[0] += "" if evaluation["episodes"] == 100 else f" ({evaluation['episodes']} episodes)"
    reached = [] if mark is None else ["reached" if seed["reached"] else "not reached"]
    counts = [f"{seed['generation']:,}", f"{seed['steps']:,}", f"{seed['seconds']:,.0f}", str(seed["ranks"])]
    return [str(seed["seed"]), ENDS.get(seed["ended"], seed["ended"]), *reached, *counts, *returns]


def _row(cells: list[str] | tuple[str, ...]) -> str:
    """A row of a table in Markdown."""
    return f"| {' | '.join(cells)} |"


def make_pages() -> dict[Path, str]:
    """Path to text of the table and of every recipe's page."""
    names = [name for name in find_recipes() if base_of(name) == name]
    return {TABLE: make_table(), **{PAGES / f"{name}.md": make_page(name) for name in names}}


def main() -> None:
    """Write the pages, and remove those of recipes that are gone."""
    pages = make_pages()
    PAGES.mkdir(exist_ok=True)
    for path in {*PAGES.glob("*.md")} - pages.keys():
        path.unlink()
    for path, text in pages.items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
