"""What a person sees of a run: a live bar on a terminal, one aligned line a generation elsewhere."""

import os
import sys

from mpies.communicator import LAUNCHED


class Lines:
    """One line a generation, for log files."""

    def __init__(self, config):
        self.config = config
        self._header = False

    def show(self, row, evaluation):
        if not self._header:
            print(
                f"{'generation':>10} {'mean':>10} {'max':>10} {'length':>8} {'evaluation':>18} {'steps':>12} "
                f"{'steps/s':>9} {'seconds':>8}",
                flush=True,
            )
            self._header = True
        print(
            f"{row['generation']:>10} {_number(row['return_mean']):>10} {_number(row['return_max']):>10} "
            f"{_number(row['length_mean']):>8} {_evaluation(evaluation):>18} {row['steps']:>12,} "
            f"{row['steps_per_second']:>9,.0f} {row['seconds']:>8.1f}",
            flush=True,
        )

    def close(self):
        pass


class Bar:
    """A live line: generation, return, speed and the time left to the target or the last generation."""

    def __init__(self, config):
        from rich.progress import BarColumn, Progress, TextColumn

        self.config = config
        self._bar = Progress(TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[state]}"))
        self._task = self._bar.add_task("starting", total=config.stop.generations, state="")
        self._evaluations = []  # (seconds, mean)

    def show(self, row, evaluation):
        if not self._bar.live.is_started:
            self._bar.start()
        target = self.config.stop.target
        if evaluation:
            self._evaluations.append((row["seconds"], evaluation.mean))
            reached = f", target {target:g}" if target is not None else ""
            self._bar.console.print(
                f"generation {row['generation']}: evaluation {_evaluation(evaluation)}{reached}", highlight=False
            )
        left = time_left(row, self._evaluations, self.config.stop)
        self._bar.update(
            self._task,
            completed=row["generation"],
            description=f"generation {row['generation']}",
            state=f"return {_number(row['return_mean'])}  {row['steps_per_second']:,.0f} steps/s  {left}",
        )

    def close(self):
        self._bar.stop()


def time_left(row, evaluations, stop):
    """In words, the time to the target by the slope of the last evaluations, or to the last generation."""
    if stop.target is not None and len(evaluations) >= 2:
        (start, first), (end, newest) = evaluations[-min(5, len(evaluations))], evaluations[-1]
        slope = (newest - first) / max(end - start, 1e-9)
        if slope > 0:
            return f"{_duration((stop.target - newest) / slope)} to the target"
    per_generation = row["seconds"] / row["generation"]
    return f"{_duration(per_generation * (stop.generations - row['generation']))} to the last generation"


def make_progress(config):
    """The Bar on a terminal, Lines elsewhere."""
    return Bar(config) if _someone_watches() else Lines(config)


def _someone_watches():
    """Whether standard output ends at a terminal.

    mpirun gives its ranks a terminal of its own making, so under it its own output is what counts.
    """
    if not sys.stdout.isatty():
        return False
    if not any(name in os.environ for name in LAUNCHED):
        return True
    try:
        target = os.readlink(f"/proc/{os.getppid()}/fd/1")
    except OSError:
        return False
    return target.startswith(("/dev/pts/", "/dev/tty"))


def _duration(seconds):
    seconds = max(0, round(seconds))
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def _number(value):
    return "-" if value is None else f"{value:.2f}" if abs(value) < 1e5 else f"{value:.3e}"


def _evaluation(evaluation):
    return f"{_number(evaluation.mean)} +- {_number(evaluation.interval)}" if evaluation else ""
