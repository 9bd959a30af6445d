"""Files that only grow."""

import errno
import os


class Growing:
    """A file that only grows by whole pieces: a piece that was torn is cut off before the next one.

    end: bytes that count; None for all there are.
    """

    def __init__(self, path, end):
        self._path = path
        self._end = path.stat().st_size if end is None else end
        self._newest = None

    def append(self, piece, at=None):
        """Add bytes.  at: a name for the piece; the one added last is not added twice."""
        if at is not None and at == self._newest:
            return
        with open(self._path, "r+b" if self._end else "wb") as file:
            if file.seek(0, os.SEEK_END) < self._end:
                raise OSError(errno.ESTALE, "another file stands in its place")
            file.truncate(self._end)
            file.seek(self._end)
            file.write(piece)
        self._end, self._newest = self._end + len(piece), at
