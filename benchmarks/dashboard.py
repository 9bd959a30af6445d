"""The live page over many long runs: time to the first paint, to the list and to the curves, and bytes of an update.

    python -m benchmarks.dashboard [--runs 200] [--generations 2000] [--json FILE]

The runs are made up, in the files that training writes.  One of them gains a generation a second.  The page is opened
in a headless Chromium, five times, each with an empty cache; needs the extra `page` and a Chromium.
"""

import argparse
import json
import statistics
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from mpies.config.loading import as_yaml, load_config, resolved
from mpies.views.dashboard import serve
from mpies.runs.metrics import COLUMNS
from mpies.runs.writer import versions
from mpies.runs.files import write_atomically
from tests.page.browser import open_browser

SOLVER = ["sigma", "parameter_norm", "gradient_norm", "update_ratio"]
PAINTS = """() => { const [first] = performance.getEntriesByName('first-contentful-paint'); return first.startTime }"""


def make_run(path, seed, generations, config):
    """A run directory of made-up numbers.  Returns a function of a generation that gives its line of metrics.csv."""
    chance = np.random.default_rng(seed)
    path.mkdir(parents=True)
    write_atomically(path / "config.yaml", as_yaml({**resolved(config), "versions": versions()}).encode(), sync=False)
    bump = chance.normal()

    def line(generation):
        mean = 250 - 550 * np.exp(-generation / 400) + 20 * np.sin(generation / 60 + bump) + chance.normal() * 9
        cells = dict.fromkeys(COLUMNS, "") | {
            "generation": generation,
            "seconds": generation * 0.31,
            "episodes": generation * 128,
            "steps": generation * 31_000,
            "return_mean": mean,
            "return_std": 60,
            "return_min": mean - 150 - 30 * chance.random(),
            "return_max": mean + 60 + 20 * chance.random(),
            "length_mean": 150 + mean / 4 + chance.normal() * 5,
            "failures": int(chance.random() < 0.01),
            "ranks": 2 if 700 < generation < 900 else 4,
            "digest": f"{generation:064x}",
            "steps_per_second": 100_000 + chance.normal() * 4_000,
            "sigma": 0.1 * 0.9995**generation,
            "parameter_norm": 8 + generation**0.5 / 4,
            "gradient_norm": 1 + chance.random() / 10,
            "update_ratio": 0.14 * np.exp(-generation / 300) + 0.01,
        }
        for name, value in {"idle_mean": 0.06, "idle_max": 0.11, "observations": generation * 310}.items():
            cells |= {name: value + chance.random() / 50} if name in COLUMNS else {}
        if generation % 10 == 0:
            of_evaluation = {"eval_mean": mean + 25, "eval_std": 70, "eval_episodes": 100, "eval_length": 180}
            cells |= {name: value for name, value in of_evaluation.items() if name in COLUMNS}
        return ",".join(f"{v:.9g}" if isinstance(v, float) else str(v) for v in cells.values()) + "\n"

    header = ",".join([*COLUMNS, *SOLVER]) + "\n"
    (path / "metrics.csv").write_text(header + "".join(line(number) for number in range(1, generations + 1)))
    return line


def grow(path, line, generation, stop):
    """Append a line a second to a run until `stop` is set."""
    while not stop.wait(1):
        generation += 1
        with open(path / "metrics.csv", "a") as file:
            file.write(line(generation))


def look(browser, url, seconds):
    """Milliseconds to the first paint, the whole list and the drawn curves; bytes of the largest update; bytes loaded.

    seconds: that the page is watched after it is drawn.
    """
    context = browser.new_context()
    page, drawn, moved, loaded = context.new_page(), False, [], [0]

    def note(response):
        size = response.request.sizes()
        size = size["responseBodySize"] + size["responseHeadersSize"]
        if drawn:
            moved.append((time.monotonic(), size))
        else:
            loaded[0] += size

    page.on("requestfinished", lambda request: note(request.response()))
    began = time.perf_counter()
    page.goto(url)
    page.wait_for_selector("#runs li")
    listed = time.perf_counter() - began
    page.wait_for_selector(".uplot canvas")
    curves = time.perf_counter() - began
    page.wait_for_timeout(1000)
    drawn = True
    page.wait_for_timeout(1000 * seconds)
    paint = page.evaluate(PAINTS)
    context.close()
    # The list and the run that is shown are one update.
    largest = max(sum(size for when, size in moved if start <= when < start + 1) for start, _ in moved)
    return {
        "first_paint_ms": paint,
        "list_ms": 1000 * listed,
        "curves_ms": 1000 * curves,
        "update_bytes": largest,
        "loaded_bytes": loaded[0],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--generations", type=int, default=2000)
    parser.add_argument("--json")
    parser.add_argument("--keep", help="make the runs in this folder and leave them there")
    options = parser.parse_args()
    config = load_config(Path(__file__).parent.parent / "configs" / "lunar_lander.yaml")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(options.keep or temporary)
        for number in range(options.runs):
            path = folder / f"lander-{number:03}"
            line = make_run(path, number, options.generations, config)
        if options.keep:
            return
        stop = threading.Event()
        threading.Thread(target=grow, args=(path, line, options.generations, stop), daemon=True).start()
        with serve(folder, "127.0.0.1", 0) as server, open_browser() as browser:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            found = [look(browser, f"{server.url}#={path.name}", seconds=8) for _ in range(5)]
            server.shutdown()
        stop.set()
    print(f"{options.runs} runs of {options.generations} generations; the first, then median and largest of all")
    for name in found[0]:
        values = [one[name] for one in found]
        print(f"{name:16} {values[0]:10,.0f} {statistics.median(values):10,.0f} {max(values):10,.0f}")
    if options.json:
        kept = {"runs": options.runs, "generations": options.generations, "looks": found}
        Path(options.json).write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
