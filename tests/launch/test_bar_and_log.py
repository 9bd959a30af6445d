"""With `--ranks` on a terminal the bar is live, and what the ranks log stands on lines of its own above it."""

import re
import termios

from tests.support import FAULTY_MODULE, run_on_terminal

TRAIN = "train", "config.yaml", "--out", "run", "--ranks", "2"

# Three of ten episodes fail, each with another message, so that a generation logs several lines.  Episodes take so long
# that the bar is drawn between generations.  The episode of the evaluation at the end does not fail.
CONFIG = """
environment: {id: "faulty:Faulty-v0", kwargs: {share: 0.3}}
policy: {hidden: []}
solver: {population: 16}
noise: {size: 1000}
stop: {generations: 13, max_failures: 0.9}
evaluation: {every: 0, episodes: 1}
"""
MODULE = FAULTY_MODULE.replace('"out of balance"', 'f"out of balance by {self.bad_by:.6f}"').replace(
    "self.bad =", "time.sleep(0.05)\n        self.bad_by = np.random.default_rng(seed).normal()\n        self.bad ="
)
REGISTRATION = "\nimport time\ngymnasium.register('Faulty-v0', 'faulty:Faulty')\n"


def screen(written):
    """The lines that a terminal shows after this text, of which it knows the control sequences that rich uses."""
    lines, row, column = [""], 0, 0
    for sequence, parameter, command, letter in re.findall(r"(\x1b\[\??([\d;]*)([A-Za-z]))|(.)", written, re.DOTALL):
        if command == "K" and parameter == "2":
            lines[row] = ""
        elif command == "A":
            row -= int(parameter or 1)
        elif sequence:
            continue
        elif letter == "\r":
            column = 0
        elif letter == "\n":
            row += 1
            if row == len(lines):
                lines.append("")
        else:
            lines[row] = lines[row][:column].ljust(column) + letter + lines[row][column + 1 :]
            column += 1
    return lines


def test_no_line_of_the_log_is_in_the_bar(tmp_path):
    """`stty tostop` stops no rank that prints: they are not in the foreground, so that Ctrl-C does not reach them."""
    (tmp_path / "faulty.py").write_text(MODULE + REGISTRATION)
    (tmp_path / "config.yaml").write_text(CONFIG)
    text = run_on_terminal(tmp_path, *TRAIN, mode=termios.TOSTOP).decode(errors="replace")
    assert "all generations done" in text
    first = re.search("generation [1-5]: ", text)  # a busy machine may draw the bar late
    assert first and first.start() < text.index("generation 6, member") < text.rindex("generation 11: "), text
    lines = screen(text)
    logged = [line for line in lines if "out of balance" in line]
    assert len(logged) > 20, lines
    assert [line for line in logged if not line.startswith(("WARNING", "ERROR")) or "━" in line] == []
