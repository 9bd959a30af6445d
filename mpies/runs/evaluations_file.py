"""evaluations.csv: a row for each held-out episode that evaluated the mean.  metrics.csv has their mean alone."""

import re
from pathlib import Path

from mpies.runs.files import AppendOnlyFile, write_atomically
from mpies.runs.metrics import Row
from mpies.runs.snapshot import Evaluation

HEADER = "generation,seconds,return,length\n"
_LINE = re.compile(rb"(\d+),[^,\n]+,[^,\n]+,\d+\n")


class EvaluationsFile:
    """Appends evaluations to the file at `path`.

    generation: what the file has of later ones is cut off.  Every method raises OSError where the disk refuses; the
    same call may then be made again.
    """

    def __init__(self, path: Path, generation: int) -> None:
        self._path = path
        self.reopen(generation)

    def reopen(self, generation: float) -> None:
        """Go on with what the file has of the generations up to this one.  What it has lost is not written again."""
        content = self._path.read_bytes() if self._path.exists() else b""
        kept = _keep(content, generation)
        if not content.startswith(kept):
            write_atomically(self._path, kept)
        self._file, self._is_empty = AppendOnlyFile(self._path, len(kept)), not kept

    def append(self, row: Row, evaluation: Evaluation) -> None:
        """Add the episodes that evaluated a generation, unless they were added last; those that failed are left out.

        row: of the generation in metrics.csv.
        """
        start = f"{row['generation']},{row['seconds']:.9g}"
        episodes = zip(evaluation.returns.tolist(), evaluation.lengths.tolist(), strict=True)
        lines = "".join(f"{start},{total:.9g},{length}\n" for total, length in episodes)
        self._file.append((HEADER + lines if self._is_empty else lines).encode(), key=row["generation"])
        self._is_empty = False

    def is_intact(self) -> bool:
        """Whether nobody else has removed, shortened or replaced the file."""
        return self._file.is_intact()

    def sync(self) -> None:
        """Wait until all rows are on disk."""
        self._file.sync()


def _keep(content: bytes, generation: float) -> bytes:
    """What a file has until this generation, without damaged lines; b"" where it is not such a file.

    A spreadsheet may have saved it with other line ends.
    """
    header, *lines = content.replace(b"\r\n", b"\n").splitlines(keepends=True) or [b""]
    if header != HEADER.encode():
        return b""
    return header + b"".join(line for line in lines if (found := _LINE.fullmatch(line)) and int(found[1]) <= generation)
