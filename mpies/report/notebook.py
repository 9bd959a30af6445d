"""The progress of a run in a notebook: one line with a bar, which is replaced as the run goes on."""

import html
import sys
import time
from collections.abc import Mapping
from typing import Any

from mpies.config.schema import StopSection
from mpies.report.progress import describe_time_left
from mpies.runs.metrics import Row
from mpies.training.progress import Phase, Progress, describe_generation

INTERVAL = 0.25  # seconds between two changes at least


def is_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and getattr(ipython.get_ipython(), "kernel", None) is not None


class NotebookProgress(Progress):
    """A live bar below the cell that trains."""

    def __init__(self) -> None:
        from IPython.display import HTML, display

        self._html = HTML
        self._stop: StopSection | None = None  # until the config has been read
        self._evaluations: list[tuple[float, float]] = []  # seconds of training, mean return
        self._text, self._generation, self._changed_at = "starting", 0.0, 0.0
        self._display = display(self._draw(), display_id=True)

    def set_stop(self, stop: StopSection) -> None:
        self._stop = stop
        self._refresh(now=True)

    def show(self, row: Row) -> None:
        self._generation, seconds = float(row["generation"] or 0), float(row["seconds"] or 0)
        if row["eval_mean"] is not None:
            self._evaluations.append((seconds, float(row["eval_mean"])))
        self._text = describe_generation(row)
        if self._stop:
            self._text += f"; {describe_time_left(row, self._evaluations, self._stop)}"
        self._refresh()

    def show_phase(self, phase: Phase) -> None:
        if not self._generation:
            self._text = phase.describe()
            self._refresh()

    def show_outcome(self, message: str, values: Mapping[str, Any]) -> None:
        self._text = message
        self._refresh(now=True)

    def close(self) -> None:
        self._refresh(now=True)

    def _refresh(self, now: bool = False) -> None:
        if self._display and (now or time.monotonic() - self._changed_at > INTERVAL):
            self._changed_at = time.monotonic()
            self._display.update(self._draw())

    def _draw(self) -> Any:
        bar = ""
        if self._stop:
            bar = f'<progress value="{self._generation:.0f}" max="{self._stop.generations}"></progress>'
        return self._html(f"<div>{bar} {html.escape(self._text)}</div>")
