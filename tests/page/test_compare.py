"""The page where it compares runs: selection, curves, axes, orders and filters of the list."""

import os

import pytest

from tests.page.test_page import INK, append, wait_for_text, zoom
from tests.report.web.served_runs import HEADER, line

pytestmark = pytest.mark.browser

CONFIG = """
seed: {seed}
environment: {{id: {id}}}
solver: {{kind: snes, sigma: {sigma}}}
stop: {{target: {target}}}
evaluation: {{}}
"""


def add_run(folder, name, sigma=0.1, seed=1, lines=(), id="LunarLander-v3", target=200):
    run = folder / name
    run.mkdir(parents=True)
    (run / "config.yaml").write_text(CONFIG.format(sigma=sigma, seed=seed, id=id, target=target))
    (run / "metrics.csv").write_text(HEADER + "".join(lines or map(line, range(1, 41))))
    return run


@pytest.fixture
def sweep(run_folder):
    """Four runs of a sweep: two groups with two seeds."""
    for sigma in (0.1, 0.2):
        for seed in (1, 2):
            rows = [
                line(number).replace(f"{number},3,", f"{number + 100 * sigma + seed},3,") for number in range(1, 41)
            ]
            add_run(run_folder, f"sweep/sigma={sigma}_seed={seed}", sigma, seed, rows)
    (run_folder / "sweep/sweep.yaml").write_text("base: lunar_lander\n")
    return run_folder


def compare(page, *names):
    """Let the page compare these runs."""
    page.goto(page.url.split("#")[0] + "#+" + "+".join(name.replace("/", "%2F").replace("=", "%3D") for name in names))


def test_runs_that_are_checked_are_overlaid_in_groups(open_page, sweep):
    page = open_page("first")
    page.select_option("#sort", "name")
    page.fill("#filter", "sweep")
    wait_for_text(page, "#count", "4 of 7 runs")
    assert page.locator("#runs li:visible .name").first.inner_text() == "sweep/sigma=0.1_seed=1"
    page.click("#all")
    wait_for_text(page, "#name", "4 runs in 2 groups")
    assert page.locator("#panels .chart").count() == 1
    assert page.query_selector("#panels .chart").evaluate(INK) > 2000
    page.focus("#panels .uplot")
    page.keyboard.press("Home")
    told = page.locator("#panels .u-series:visible").all_inner_texts()[1:]
    assert [text.split() for text in told] == [f"sigma {sigma}, seed 1, 2150".split() for sigma in (0.1, 0.2)]
    page.locator("#runs li:visible input").first.click()
    wait_for_text(page, "#name", "3 runs in 2 groups")
    page.click("#none")
    page.wait_for_selector("#shown")


def test_the_newest_run_is_first_and_trials_are_folded_under_their_sweep(open_page, sweep):
    os.utime(sweep / "group/long/metrics.csv")
    page = open_page("first")
    wait_for_text(page, "#count", "3 of 7 runs")
    names = page.locator("#runs li:visible .name")
    assert names.first.inner_text() == "group/long" and "sweep" not in "".join(names.all_inner_texts())
    button = page.get_by_role("button", name="trials")
    button.click()
    wait_for_text(page, "#count", "7 of 7 runs")
    assert button.get_attribute("aria-expanded") == "true"
    button.click()
    wait_for_text(page, "#count", "3 of 7 runs")


def test_curves_are_smoothed_where_the_reader_wants_it(open_page, sweep):
    page = open_page()
    compare(page, "sweep/sigma=0.1_seed=1", "sweep/sigma=0.2_seed=1")
    wait_for_text(page, "#name", "2 runs in 2 groups")
    page.select_option("select[name=drawn]", "return_mean")
    page.wait_for_function("() => compared.drawn === 'return_mean' && panels[0].data[2].length > 10")
    raw = page.evaluate("panels[0].data[2]")
    page.select_option("select[name=smooth]", "5")
    page.wait_for_function("raw => panels[0].data[2][0] !== raw[0]", arg=raw)
    smooth = page.evaluate("panels[0].data[2]")
    assert smooth[0] == pytest.approx(sum(raw[:3]) / 3) and smooth[5] == pytest.approx(sum(raw[3:8]) / 5)


def test_runs_that_are_left_out_are_counted(open_page, sweep):
    add_run(sweep, "again", 0.1, 1, [line(1)])
    page = open_page()
    compare(page, "sweep/sigma=0.1_seed=1", "again", "truncated")
    wait_for_text(page, "#name", "1 run in 1 group")
    words = "1 run without a generation left out. 1 run with the config and seed of another one left out."
    assert words in page.inner_text("#about")


def test_a_comparison_follows_its_runs_and_keeps_its_view(open_page, sweep):
    page = open_page()
    compare(page, "sweep/sigma=0.1_seed=1", "first")
    wait_for_text(page, "#name", "2 runs in 2 groups")
    page.select_option("select[name=drawn]", "return_mean")
    page.wait_for_function("() => compared.drawn === 'return_mean' && panels[0].data[0].at(-1) === 40")
    zoom(page, "panels[0].plot")
    page.focus("#panels .uplot")
    append(sweep / "sweep/sigma=0.1_seed=1", *range(41, 61))
    page.wait_for_function("() => panels[0].data[0].at(-1) === 60")
    assert page.evaluate("[panels[0].plot.scales.x.min, panels[0].plot.scales.x.max]") == [1, 2]
    assert page.evaluate("document.activeElement.classList.contains('uplot')")
    page.select_option("select[name=axis]", "steps")
    page.wait_for_selector("#panels .uplot[aria-label*='environment steps']")
    page.focus(".skip")  # the link past the list keeps the selection
    selected = page.url
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "run" and page.url == selected and "#+" in selected


def test_costs_are_drawn_on_a_logarithmic_axis(open_page, sweep):
    rows = [
        line(n).replace(",150,", f",{-(10 ** (3 - n / 5)):g},").replace(f",{n},3,", f",{-(10 ** (3 - n / 5))},3,")
        for n in range(1, 41)
    ]
    rows = [
        row.replace(f",{n - 5},{n + 5},", f",{-2 * 10 ** (3 - n / 5)},{-(10 ** (3 - n / 5)) / 2},")
        for n, row in enumerate(rows, 1)
    ]
    add_run(sweep, "function", lines=rows, id="function:rastrigin", target=-0.001)
    page = open_page("function")
    wait_for_text(page, "#name", "function")
    kind = "charts[0].scale.distr"
    assert page.evaluate(kind) == 4
    low, high = page.evaluate("[charts[0].plot.scales.y.min, charts[0].plot.scales.y.max]")
    assert low < -500 and high == 0
    page.select_option("select[name=vertical]", "linear")
    assert page.evaluate(f"{kind} === undefined")
    page.select_option("select[name=vertical]", "auto")
    compare(page, "function", "group/long")
    page.wait_for_selector("#panels .uplot")
    assert page.evaluate("panels.filter(panel => panel.scale.distr === 4).map(panel => panel.title)") == ["rastrigin"]
    assert page.evaluate("panels.map(panel => panel.title).sort()") == ["LunarLander-v3", "rastrigin"]


def test_an_axis_has_a_place_for_a_target_of_the_other_sign(open_page, run_folder):
    rows = [line(n).replace(f",{n - 5},{n + 5},", f",{n},{n},") for n in range(1, 301)]
    add_run(run_folder, "other", lines=rows, target=-3)
    page = open_page("other")
    assert page.evaluate("!charts[0].scale.distr && charts[0].plot.scales.y.min < -3")
    compare(page, "other")
    page.select_option("select[name=drawn]", "return_mean")
    page.wait_for_function("() => compared.drawn === 'return_mean' && panels.length === 1")
    assert page.evaluate("!panels[0].scale.distr && panels[0].plot.scales.y.min < -3")


def test_runs_are_ordered_and_filtered_by_result(open_page, sweep):
    add_run(sweep, "best", lines=[line(n).replace(",150,", ",190,") for n in range(1, 11)])
    (sweep / "best" / "finished.yaml").write_text("{reason: solved}")
    page = open_page("first")
    page.select_option("#sort", "eval_mean")
    assert page.locator("#runs .name").first.inner_text() == "best"
    page.fill("#filter", "solved")
    wait_for_text(page, "#count", "1 of 8 runs")
