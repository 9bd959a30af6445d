"""evaluations.csv: a row for each held-out episode that evaluated the mean.  metrics.csv has their mean alone."""

from pathlib import Path

from mpies.runs.files import AppendOnlyFile
from mpies.runs.metrics import Row
from mpies.runs.snapshot import Evaluation

HEADER = "generation,seconds,return,length\n"


class EvaluationsFile:
    """Appends evaluations to the file at `path`.  What somebody else removes of it meanwhile is not written again.

    generation: what the file has of later ones is cut off.
    """

    def __init__(self, path: Path, generation: int) -> None:
        self._path = path
        self._open(generation)

    def _open(self, generation: int) -> None:
        end = _find_end(self._path.read_bytes(), generation) if self._path.exists() else 0
        self._file, self._is_empty = AppendOnlyFile(self._path, end), not end

    def append(self, row: Row, evaluation: Evaluation) -> None:
        """Add the episodes that evaluated a generation, unless they were added last; those that failed are left out.

        row: of the generation in metrics.csv.  Raises OSError.
        """
        generation = int(row["generation"] or 0)
        if not self._file.is_intact():
            self._open(generation - 1)
        start = f"{generation},{row['seconds']:.9g}"
        episodes = zip(evaluation.returns.tolist(), evaluation.lengths.tolist(), strict=True)
        lines = "".join(f"{start},{total:.9g},{length}\n" for total, length in episodes)
        self._file.append((HEADER + lines if self._is_empty else lines).encode(), key=generation)
        self._is_empty = False


def _find_end(content: bytes, generation: int) -> int:
    """The length of what a file has until this generation; 0 where it is not such a file.  Its end may be cut off."""
    lines = content.splitlines(keepends=True)
    if not lines or lines[0] != HEADER.encode():
        return 0
    end = len(lines[0])
    for line in lines[1:]:
        number = line.partition(b",")[0]
        if not line.endswith(b"\n") or not number.isdigit() or int(number) > generation:
            break
        end += len(line)
    return end
