"""The dashboard over many long runs: time to the first paint, the list, the curves and comparisons; bytes of updates.

    python benchmarks/dashboard.py [--runs 300] [--generations 2000] [--looks 5] [--json FILE]

The runs have the files that training writes, with made-up numbers: a sweep with five seeds of each setting.  One of
them gains a generation a second.  The page is opened several times in a headless Chromium, each time with an empty
cache.  Then 20 runs are compared, and then all.  At the first time, the server has not yet read the runs that are
compared.  `make test-page` installs what it needs.
"""

import argparse
import contextlib
import json
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from urllib.parse import quote

import numpy as np

from mpies.config.loading import as_yaml, load_config, resolved
from mpies.report.web.dashboard import serve
from mpies.runs.files import write_atomically
from mpies.runs.metrics import COLUMNS
from mpies.runs.versions import versions

SOLVER_COLUMNS = ["sigma", "parameter_norm", "gradient_norm", "update_ratio"]
SEEDS = 5  # of each setting
COMPARED = 20  # runs that are overlaid
# Compare runs, and wait until two frames after their curves are there.  Returns milliseconds.
COMPARE = """async (names) => { const began = performance.now(), before = compared; pick(names);
    while (compared === before || !panels.length) await new Promise((resolve) => setTimeout(resolve, 2));
    await new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
    return performance.now() - began; }"""
FIRST_PAINT = """() => performance.getEntriesByName('first-contentful-paint')[0].startTime"""


def make_run(path, seed, generations, config):
    """Write a run directory of made-up numbers.  Returns a function from a generation to its line of metrics.csv."""
    random = np.random.default_rng(seed)
    path.mkdir(parents=True)
    write_atomically(path / "config.yaml", as_yaml({**resolved(config), "versions": versions()}).encode(), sync=False)
    phase = random.normal()

    def line(generation):
        mean = 250 - 550 * np.exp(-generation / 400) + 20 * np.sin(generation / 60 + phase) + random.normal() * 9
        cells = dict.fromkeys(COLUMNS, "") | {
            "generation": generation,
            "seconds": generation * 0.31,
            "episodes": generation * 128,
            "steps": generation * 31_000,
            "return_mean": mean,
            "return_std": 60,
            "return_min": mean - 150 - 30 * random.random(),
            "return_max": mean + 60 + 20 * random.random(),
            "length_mean": 150 + mean / 4 + random.normal() * 5,
            "failures": int(random.random() < 0.01),
            "ranks": 2 if 700 < generation < 900 else 4,
            "digest": f"{generation:064x}",
            "steps_per_second": 100_000 + random.normal() * 4_000,
            "sigma": 0.1 * 0.9995**generation,
            "parameter_norm": 8 + generation**0.5 / 4,
            "gradient_norm": 1 + random.random() / 10,
            "update_ratio": 0.14 * np.exp(-generation / 300) + 0.01,
            "idle_mean": 0.06 + random.random() / 50,
            "idle_max": 0.11 + random.random() / 50,
            "observations": generation * 310,
        }
        if generation % 10 == 0:
            cells |= {"eval_mean": mean + 25, "eval_std": 70, "eval_episodes": 100, "eval_length": 180}
        return ",".join(f"{v:.9g}" if isinstance(v, float) else str(v) for v in cells.values()) + "\n"

    header = ",".join([*COLUMNS, *SOLVER_COLUMNS]) + "\n"
    (path / "metrics.csv").write_text(header + "".join(line(number) for number in range(1, generations + 1)))
    return line


def grow(path, line, generation, stop):
    """Append a line of metrics.csv a second to a run until `stop` is set."""
    while not stop.wait(1):
        generation += 1
        with open(path / "metrics.csv", "a") as file:
            file.write(line(generation))


def measure_page(browser, url, names, seconds):
    """Open the page once and watch it for so many seconds after its curves are drawn; then compare runs.

    names: of all runs.  Returns milliseconds to the first paint, the complete list, the curves and comparisons; bytes
    of the largest update of each, and bytes loaded until the curves were drawn.
    """
    context = browser.new_context()
    page, is_drawn, updates, loaded = context.new_page(), False, [], 0

    def add(response):
        nonlocal loaded
        sizes = response.request.sizes()
        size = sizes["responseBodySize"] + sizes["responseHeadersSize"]
        if is_drawn:
            updates.append((time.monotonic(), size))
        else:
            loaded += size

    page.on("requestfinished", lambda request: add(request.response()))
    began = time.perf_counter()
    page.goto(url)
    page.wait_for_selector("#runs li")
    list_seconds = time.perf_counter() - began
    page.wait_for_selector(".uplot canvas")
    curve_seconds = time.perf_counter() - began
    page.wait_for_timeout(1000)
    is_drawn = True
    page.wait_for_timeout(1000 * seconds)
    while not updates:
        page.wait_for_timeout(1000)
    first_paint = page.evaluate(FIRST_PAINT)
    result = {
        "first_paint_ms": first_paint,
        "list_ms": 1000 * list_seconds,
        "curves_ms": 1000 * curve_seconds,
        "update_bytes": largest_update(updates),
        "loaded_bytes": loaded,
    }
    for count in (min(COMPARED, len(names)), len(names)):
        updates.clear()
        result[f"compare_{count}_ms"] = page.evaluate(COMPARE, names[-count:])  # with the one that grows
        page.wait_for_timeout(1000 * seconds)
        while not updates:
            page.wait_for_timeout(1000)
        result[f"compare_{count}_bytes"] = largest_update(updates)
    context.close()
    return result


def largest_update(updates):
    """Bytes of the largest update: two answers within a second, the list and what is shown.

    updates: (second, bytes) of each answer.
    """
    return max(sum(size for when, size in updates if start <= when < start + 1) for start, _ in updates)


@contextlib.contextmanager
def open_dashboard(folder):
    """Serve the runs below `folder`.  Yields the address of the page and a headless Chromium."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        sys.exit("playwright is not installed; `make test-page` installs it and a browser")

    with serve(folder, "127.0.0.1", 0) as server, sync_playwright() as playwright:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        own = playwright.chromium.executable_path
        program = own if os.path.exists(own) else shutil.which("chromium")
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium's sandbox does not start as root
        browser = playwright.chromium.launch(executable_path=program, args=flags)
        yield server.url, browser
        browser.close()
        server.shutdown()


def measure(folder, names, count):
    """`measure_page` for `count` times, at the last of the runs below `folder`."""
    with open_dashboard(folder) as (url, browser):
        page = f"{url}#={quote(names[-1], safe='')}"
        return [measure_page(browser, page, names, seconds=5) for _ in range(count)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--generations", type=int, default=2000)
    parser.add_argument("--looks", type=int, default=5, help="how often the page is opened")
    parser.add_argument("--json")
    parser.add_argument("--keep", help="only write the runs, into this folder")
    options = parser.parse_args()
    recipe = Path(__file__).parent.parent / "configs" / "lunar_lander.yaml"
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(options.keep or temporary)
        names = []
        for number in range(options.runs):
            settings = [f"solver.sigma={0.01 * (1 + number // SEEDS):.2f}", f"seed={1 + number % SEEDS}"]
            names.append("sweep/" + "_".join(settings))
            line = make_run(folder / names[-1], number, options.generations, load_config(recipe, settings))
        if options.keep:
            return
        stop = threading.Event()
        threading.Thread(target=grow, args=(folder / names[-1], line, options.generations, stop), daemon=True).start()
        results = measure(folder, names, options.looks)
        stop.set()
    print(f"{options.runs} runs of {options.generations} generations; the first, then median and largest of all")
    for name in results[0]:
        values = [one[name] for one in results]
        print(f"{name:18} {values[0]:10,.0f} {statistics.median(values):10,.0f} {max(values):10,.0f}")
    if options.json:
        record = {"runs": options.runs, "generations": options.generations, "looks": results}
        Path(options.json).write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
