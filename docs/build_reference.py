"""Write docs/reference.md, the reference of the Python API, from the docstrings of what it offers.

make docs            # or: python docs/build_reference.py
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import mpies
from mpies.solvers import check_solver

PAGE = Path(__file__).resolve().parent / "reference.md"
HEAD = """# Reference of the Python API

After this page you know every name of `import mpies`: its arguments, what it returns and what it raises.

[mpies in Python](python.md) is the guide, with examples. This page is made from the docstrings by `make docs`.

"""
CONFIG = "`mpies.Config(environment={...}, solver={...})` has the keys and defaults of [every key](keys.md).\n"


def make_page() -> str:
    """The text of docs/reference.md."""
    names = {name: getattr(mpies, name) for name in mpies.__all__}
    is_error = {name: inspect.isclass(value) and issubclass(value, Exception) for name, value in names.items()}
    ordered = sorted((name for name in names if not is_error[name]), key=lambda name: (name[0].isupper(), name))
    parts = [HEAD, *(_describe(name, names[name]) for name in ordered)]
    parts.append(_describe("solvers.check_solver", check_solver))
    parts += ["## Errors\n\n| exception | kind of | meaning |\n|---|---|---|\n"]
    for name in sorted(name for name in names if is_error[name]):
        kinds = ", ".join(f"`{base.__name__}`" for base in names[name].__bases__)
        meaning = " ".join(_docstring(names[name]).partition("\n\n")[0].split())
        parts.append(f"| `mpies.{name}` | {kinds} | {meaning} |\n")
    return "".join(parts)


def _describe(name: str, value: Any) -> str:
    """The section of a function, a class with its public members, or the callable package `mpies.runs`."""
    title = f"## mpies.{name}\n\n"
    if name == "Config":
        return title + CONFIG + "\n"
    if inspect.ismodule(value):
        return title + _function(name, type(value).__call__)
    if inspect.isfunction(value):
        return title + _function(name, value)
    text = title
    if not is_dataclass(value):  # the fields of those are in the docstring
        text += _signature(name, value.__init__)
    text += _prose(_docstring(value))
    for member, found in _members(value):
        text += f"### {name}.{member}\n\n"
        if isinstance(found, property):
            text += _prose(_docstring(found))
        else:
            text += _function(f"{name}.{member}", getattr(found, "__func__", found))
    return text


def _members(kind: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties that a class defines, and its `__call__`, by name."""
    for name, value in vars(kind).items():
        is_member = isinstance(value, property | classmethod | staticmethod) or inspect.isfunction(value)
        if is_member and value.__doc__ and (name == "__call__" or not name.startswith("_")):
            yield name, value


def _function(name: str, function: Callable[..., Any]) -> str:
    return _signature(name, function) + _prose(_docstring(function))


def _signature(name: str, function: Callable[..., Any]) -> str:
    """A block with the arguments and the result of a function, as its source has them, without `self`."""
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function)))).body
    assert isinstance(node, ast.FunctionDef)
    given = node.args
    first = given.posonlyargs or given.args
    if first and first[0].arg in ("self", "cls"):
        del first[0]
    result = f" -> {ast.unparse(node.returns)}" if node.returns and node.name != "__init__" else ""
    arguments = [re.sub(r"^(\w+: [^=]+)=", r"\1 = ", one) for one in _split(ast.unparse(given))]
    text = f"{name}({', '.join(arguments)}){result}"
    if len(text) > 100:  # a line for each argument
        text = f"{name}(\n" + "".join(f"    {one},\n" for one in arguments) + f"){result}"
    quoted = text.replace("'", '"')
    return f"```\n{quoted}\n```\n\n"


def _docstring(value: Any) -> str:
    return re.sub(r" *# doctest: \+SKIP", "", inspect.getdoc(value) or "").replace(".  ", ". ")


def _split(arguments: str) -> list[str]:
    """Arguments at the commas that are in no brackets."""
    found, depth = [""], 0
    for letter in arguments:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and not depth:
            found.append("")
        else:
            found[-1] += letter
    return [one.strip() for one in found if one.strip()]


def _prose(docstring: str) -> str:
    """A docstring as Markdown: examples as code, arguments and attributes as a list, and paragraphs."""
    blocks: list[list[str]] = []
    for paragraph in docstring.split("\n\n"):
        if paragraph.startswith(">>>"):
            blocks.append(["```", *paragraph.splitlines(), "```"])
            continue
        blocks.append([])
        for line in paragraph.splitlines():
            if match := re.match(r"(\*?[a-z]\w*(?:, \w+)*): (.*)", line):
                item = f"- `{match[1]}`: {match[2]}"
                if blocks[-1] and blocks[-1][0].startswith("- "):
                    blocks[-1].append(item)
                else:
                    blocks.append([item])
            elif line.startswith(("Raises ", "Returns ")):
                blocks.append([line])
            else:
                is_item = blocks[-1] and blocks[-1][0].startswith("- ")
                blocks[-1].append(f"  {line}" if is_item else line)
    return "".join("\n".join(block) + "\n\n" for block in blocks if block)


def main() -> None:
    """Write the page."""
    PAGE.write_text(make_page().rstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
