"""The page of a sweep with many trials: time to the first paint, the table of settings and the curves of the best.

    python benchmarks/sweep_page.py [--settings 200] [--seeds 5] [--generations 40] [--looks 5]

The trials have the files that training writes, with made-up numbers.  The page is opened several times in a headless
Chromium, each time with an empty cache; the first time, the server has read none of the runs.  `make test-page`
installs what it needs.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from dashboard import FIRST_PAINT, make_run, open_dashboard

from mpies.sweeps.folder import SweepFolder
from mpies.sweeps.table import ResultReader, write_table
from mpies.sweeps.trials import SweepOptions, load_sweep

VARY = {
    "solver.sigma": {"log_uniform": [0.01, 1.0]},
    "solver.optimizer.learning_rate": {"log_uniform": [0.001, 0.3]},
    "solver.population": {"choice": [64, 128, 256]},
}


def make_sweep(path, settings, seeds, generations):
    """Write a sweep all of whose trials have ended."""
    sweep = load_sweep("lunar_lander", VARY, SweepOptions(seeds, settings))
    folder = SweepFolder(str(path), sweep)
    folder.open(lambda trial: True)
    for number, trial in enumerate(folder.trials):
        run = folder.path / trial.name
        make_run(run, number, generations, sweep.config(trial))
        (run / "finished.yaml").write_text(f"{{reason: generations, generation: {generations}, steps: 100}}\n")
    write_table(ResultReader(folder))


def look(browser, url):
    """Open the page once.  Returns milliseconds to the first paint, the table and the curves."""
    context = browser.new_context()
    page = context.new_page()
    began = time.perf_counter()
    page.goto(url)
    page.wait_for_selector("#settings tbody tr")
    table = time.perf_counter() - began
    page.wait_for_selector("#panels .uplot canvas", timeout=120_000)
    curves = time.perf_counter() - began
    found = {"first paint": page.evaluate(FIRST_PAINT), "table": 1000 * table, "curves": 1000 * curves}
    context.close()
    return found


def measure(folder, looks):
    """`look` so many times."""
    with open_dashboard(folder) as (url, browser):
        return [look(browser, f"{url}#~sweep") for _ in range(looks)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--settings", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--generations", type=int, default=40)
    parser.add_argument("--looks", type=int, default=5, help="how often the page is opened")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        make_sweep(Path(folder) / "sweep", options.settings, options.seeds, options.generations)
        results = measure(folder, options.looks)
    print(f"{options.settings * options.seeds} trials; ms: the first, then median and largest of all")
    for name in results[0]:
        values = [one[name] for one in results]
        print(f"{name:12} {values[0]:8,.0f} {statistics.median(values):8,.0f} {max(values):8,.0f}")


if __name__ == "__main__":
    main()
