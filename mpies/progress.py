"""What is said of a run: a live bar on a terminal, one aligned line a generation elsewhere, or JSON for a log."""

import contextlib
import json
import logging
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


class Entries:
    """One JSON object a line, for the log of a cloud: a generation's numbers under their names in metrics.csv."""

    def show(self, row, evaluation):
        numbers = {name: value for name, value in row.items() if value is not None and value == value}
        print(entry("INFO", describe(row, evaluation), numbers), flush=True)

    def close(self):
        pass


def describe(row, evaluation):
    """A generation in one line of words."""
    text = f"generation {row['generation']}: return {_number(row['return_mean'])}"
    if evaluation:
        text += f", evaluation {_evaluation(evaluation)}"
    return text


class LogFile(logging.Handler):
    """A run's log.txt: log records of all ranks, and a line a generation; what the disk refuses is left out."""

    def __init__(self, path):
        super().__init__()
        self._path = path
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s rank %(rank)d: %(message)s"))

    def emit(self, record):
        with contextlib.suppress(OSError), open(self._path, "a") as file:  # a rank's host need not see the run
            file.write(self.format(record) + "\n")


class Kept:
    """What is shown is also written to a LogFile."""

    def __init__(self, shown, log_file):
        self._shown, self._log_file = shown, log_file

    def show(self, row, evaluation):
        self._shown.show(row, evaluation)
        said = {"levelname": "INFO", "msg": describe(row, evaluation), "rank": 0}
        self._log_file.emit(logging.makeLogRecord(said))

    def close(self):
        self._shown.close()


class EntryFormatter(logging.Formatter):
    """Log records as JSON objects like those of Entries.  comm: whose rank they name."""

    def __init__(self, comm):
        super().__init__()
        self._comm = comm

    def format(self, record):
        return entry(record.levelname, super().format(record), {"rank": self._comm.rank})


def entry(severity, message, values):
    """A line of JSON with the keys that Google Cloud Logging takes for its own: severity and message."""
    return json.dumps({"severity": severity, "message": message, **values}, default=float)


def say_end(reason, text):
    """Say that a run is complete, and why: as an entry too, where they are wanted."""
    print(entry("INFO", text, {"reason": reason}) if entries_wanted() else text, flush=True)


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
    """Entries where they are wanted, else the Bar on a terminal and Lines elsewhere."""
    if entries_wanted():
        return Entries()
    return Bar(config) if _someone_watches() else Lines(config)


def entries_wanted():
    """Whether the environment asks for JSON: how a log is read belongs to the place, not to the run."""
    return os.environ.get("MPIES_LOG") == "json"


def format_log(comm):
    """Make entries of the log's records too, where they are wanted."""
    if entries_wanted():
        for handler in logging.getLogger().handlers:
            handler.setFormatter(EntryFormatter(comm))


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
