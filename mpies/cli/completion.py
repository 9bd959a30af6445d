"""What a shell offers when TAB is pressed: recipes, runs, and the keys of overrides with their values."""

import os
from pathlib import Path
from typing import Any

import click
from click.shell_completion import BashComplete, CompletionItem, ZshComplete, add_completion_class, split_arg_string

Items = list[CompletionItem[str]]


def complete_config(_context: click.Context, _argument: click.Parameter, incomplete: str) -> Items:
    """The recipes, besides the files that the shell offers."""
    from mpies.config.recipes import find_recipes

    files: CompletionItem[str] = CompletionItem(incomplete, type="file")
    return [files, *(CompletionItem(name) for name in find_recipes() if name.startswith(incomplete))]


def complete_run(_context: click.Context, _argument: click.Parameter, incomplete: str) -> Items:
    """The runs below `runs`, or below the folder that was typed; where there is none, files."""
    from mpies.runs.reader import find_runs

    folder = os.path.dirname(incomplete) or "runs"
    names = [str(Path(folder, name)) for name in find_runs(folder)]
    found = [CompletionItem(name) for name in names if name.startswith(incomplete)]
    return found or [CompletionItem(incomplete, type="file")]


def complete_policy(context: click.Context, argument: click.Parameter, incomplete: str) -> Items:
    """The runs or files that `complete_run` offers, and the recipes whose trained policy comes with mpies."""
    from mpies.config.recipes import find_recorded_policies

    recipes = [CompletionItem(name) for name in find_recorded_policies() if name.startswith(incomplete)]
    return [*complete_run(context, argument, incomplete), *recipes]


def complete_override(context: click.Context, _argument: click.Parameter, incomplete: str) -> Items:
    """The keys of the config that was typed, or after KEY= the values that the key may have."""
    from mpies.config.loading import load_config
    from mpies.config.reference import list_keys
    from mpies.core.errors import UserError

    config, values = context.params.get("config") or context.params.get("task"), context.params.get("overrides") or ()
    try:
        keys = list_keys(load_config(config, values) if config else None)
    except UserError:  # what was typed so far is no config
        keys = list_keys()
    key, equals, _ = incomplete.partition("=")
    offered = [f"{key}={value}" for value in keys.get(key, ())] if equals else [f"{name}=" for name in keys]
    return [CompletionItem(text) for text in offered if text.startswith(incomplete)]


class _Bash(BashComplete):
    """Bash takes KEY=VALUE for three words; so the line is split here, and only what follows "=" or ":" is replaced."""

    source_template = BashComplete.source_template.replace(
        'COMP_WORDS="${COMP_WORDS[*]}"', 'COMP_WORDS="${COMP_LINE:0:COMP_POINT}"'
    ).replace("    return 0\n", "    [[ ${COMPREPLY[0]} == *= ]] && compopt -o nospace\n    return 0\n")
    _known = 0  # letters of the word that bash leaves as they are

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ["COMP_WORDS"]
        words = split_arg_string(line)[1:]
        incomplete = "" if line[-1:].isspace() else words.pop() if words else ""
        self._known = max(incomplete.rfind("="), incomplete.rfind(":")) + 1
        return words, incomplete

    def format_completion(self, item: CompletionItem[Any]) -> str:
        return f"{item.type},{item.value[self._known :] if item.type == 'plain' else item.value}"


class _Zsh(ZshComplete):
    """Zsh adds no space after KEY=."""

    source_template = ZshComplete.source_template.replace(
        "compadd -U -V unsorted -a completions",
        "local -a suffix\n        [[ $completions[1] == *= ]] && suffix=(-S '')\n"
        '        compadd "${suffix[@]}" -U -V unsorted -a completions',
    )


def register() -> None:
    """Have click answer Bash and Zsh in these ways.  (Fish is answered as click does.)"""
    add_completion_class(_Bash)
    add_completion_class(_Zsh)
