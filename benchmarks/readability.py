"""How easy README.md and docs/*.md are to read: Flesch reading ease, and the sentences that are too long.

    python benchmarks/readability.py                        # a table; with --before COMMIT also the figures then
    python benchmarks/readability.py --check                # lists sentences of more than 30 words; exit code 1 if any

Flesch reading ease (textstat, extra readability) is about 60 for plain English, 30 for scientific papers; higher is
easier.  It is that of paragraphs and list items; lengths are also counted in headings and cells of tables.  Blocks of
code are left out, and a piece of inline code counts as one short word.  A sentence ends at `.`, `!` or `?`, and at the
end of its paragraph, item or cell.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

HOME = Path(__file__).resolve().parents[1]
MOST_WORDS = 30
_ABBREVIATIONS = re.compile(r"\b(e\.g|i\.e|et al|vs|approx|etc)\.(?= )")
_MARKS = ("- ", "* ", "+ ", "> ", "|", "#")  # that begin a block of their own


def read_pages() -> dict[str, str]:
    """Name to text of the pages that are checked."""
    paths = [HOME / "README.md", *sorted((HOME / "docs").glob("*.md"))]
    return {str(path.relative_to(HOME)): path.read_text() for path in paths}


def read_earlier(commit: str, name: str) -> str | None:
    """The text of a page in a commit; None where it did not exist."""
    done = subprocess.run(["git", "show", f"{commit}:{name}"], cwd=HOME, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else None


def split_blocks(page: str) -> Iterator[str]:
    """The paragraphs, list items, headings and cells of a page of Markdown, each on one line, without code."""
    page = re.sub(r"<!--.*?-->|^(```|~~~).*?^\1[^\n]*$", "", page, flags=re.S | re.M)
    block: list[str] = []
    after_blank, in_list = True, False
    for line in [*page.splitlines(), ""]:
        text = line.strip()
        is_mark = text.startswith(_MARKS) or re.match(r"\d+\. ", text) is not None
        if not text or is_mark or (after_blank and line.startswith("    ") and not in_list):
            yield " ".join(block)
            block = []
        if text.startswith("|"):
            yield from re.split(r"(?<!\\)\|", text.strip("|"))
        elif text and not (after_blank and line.startswith("    ") and not (is_mark and in_list)):
            block.append(re.sub(r"^([-*+>]|#+|\d+\.) ", "", text))
            in_list = (is_mark and not text.startswith("#")) or (in_list and line.startswith(" "))
            after_blank = False
            continue
        after_blank = after_blank if text else True


def split_sentences(page: str) -> list[str]:
    """The sentences of a page of Markdown, with a short word in place of each piece of inline code."""
    sentences = []
    for block in split_blocks(page):
        text = re.sub(r"(`+).+?\1", "code", block)
        text = re.sub(r"!\[[^]]*\]\([^)]*\)|<[^>]+>|\[!\[.*?\]\(.*?\)\]\(.*?\)", "", text)
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text)
        text = _ABBREVIATIONS.sub(r"\1", re.sub(r"\*\*|\*|__", "", text))
        sentences += [part.strip() for part in re.split(r"(?<=[.!?])[)\"']*\s+(?=\S)", text)]
    return [sentence for sentence in sentences if count_words(sentence)]


def count_words(sentence: str) -> int:
    """Number of words.  Numbers and symbols between spaces count as words where they hold a letter or a digit."""
    return sum(any(letter.isalnum() for letter in word) for word in sentence.split())


def measure(page: str) -> dict[str, float]:
    """`flesch`, `words`, `sentences`, `long` (sentences of more than MOST_WORDS words) and `longest` of a page."""
    try:
        import textstat
    except ImportError:
        sys.exit("textstat is not installed; call pip install --editable '.[readability]'")

    prose = [line for line in page.splitlines() if not line.startswith(("|", "#"))]
    sentences = [sentence for sentence in split_sentences("\n".join(prose)) if count_words(sentence) > 4]
    text = " ".join(sentence.rstrip(".:;") + "." for sentence in sentences)
    lengths = [count_words(sentence) for sentence in split_sentences(page)]
    return {
        "flesch": round(float(textstat.flesch_reading_ease(text)), 1),
        "words": sum(lengths),
        "sentences": len(lengths),
        "long": sum(length > MOST_WORDS for length in lengths),
        "longest": max(lengths, default=0),
    }


def check() -> int:
    """Print the sentences that are too long.  Returns their number."""
    found = 0
    for name, page in read_pages().items():
        for sentence in split_sentences(page):
            if (words := count_words(sentence)) > MOST_WORDS:
                found += 1
                print(f"{name}: {words} words: {sentence}")
    return found


def main() -> None:
    """Print a table of all pages, or the sentences that are too long."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="list the sentences that are too long; exit 1 if any")
    parser.add_argument("--before", metavar="COMMIT", help="also measure the pages of this commit")
    parser.add_argument("--json", metavar="FILE", help="keep the figures in this file")
    arguments = parser.parse_args()
    if arguments.check:
        sys.exit(check() > 0)
    rows = {}
    print(
        f"{'page':28}{'Flesch':>8}{'words':>8}{'over 30':>9}"
        + "   before: Flesch, words, over 30" * bool(arguments.before)
    )
    for name, page in read_pages().items():
        row = rows[name] = {"after": measure(page)}
        line = "{flesch:8.1f}{words:8}{long:9}"
        text = f"{name:28}" + line.format(**row["after"])
        earlier = read_earlier(arguments.before, name) if arguments.before else None
        if earlier is not None:
            row["before"] = measure(earlier)
            text += "  " + line.format(**row["before"])
        print(text)
    for when in ("after", "before"):
        known = [row[when] for row in rows.values() if when in row]
        if known:
            flesch = statistics.median(row["flesch"] for row in known)
            long = sum(row["long"] for row in known)
            print(f"{when}: median Flesch {flesch:.1f}, {long} sentences of more than {MOST_WORDS} words")
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
