"""The commands stand under headings, and their descriptions fit into 80 columns."""

from click.testing import CliRunner

from mpies.cli.main import SECTIONS, main


def test_each_command_stands_under_one_heading_with_a_description_that_fits():
    text = CliRunner().invoke(main, ["--help"], terminal_width=80).stdout
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    listed = []
    for heading, commands in SECTIONS.items():
        start = lines.index(f"{heading}:") + 1
        for line, command in zip(lines[start:], commands, strict=False):
            name, description = line.split(maxsplit=1)
            assert name == command.name and description.endswith(".") and "..." not in description
            assert line.index(description) == 2 + max(map(len, main.commands)) + 2  # in one column
            listed.append(name)
    assert sorted(listed) == sorted(main.commands)
