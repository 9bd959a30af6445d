"""The page where it compares runs, and that of a sweep: selection, curves, axes, orders and filters, and the table."""

import os

import pytest

from tests.page.test_page import INK, append, wait_for_text, zoom
from tests.report.web.served_runs import HEADER, line

pytestmark = pytest.mark.browser

CONFIG = """
seed: {seed}
environment: {{id: {id}}}
policy: {{activation: {activation}}}
solver: {{kind: snes, sigma: {sigma}}}
stop: {{target: {target}}}
evaluation: {{}}
"""


def add_run(folder, name, sigma=0.1, seed=1, lines=(), id="LunarLander-v3", target=200, activation="tanh"):
    run = folder / name
    run.mkdir(parents=True)
    config = CONFIG.format(sigma=sigma, seed=seed, id=id, target=target, activation=activation)
    (run / "config.yaml").write_text(config)
    (run / "metrics.csv").write_text(HEADER + "".join(lines or map(line, range(1, 41))))
    return run


@pytest.fixture
def sweep(run_folder):
    """Four runs of a sweep: two groups with two seeds."""
    for sigma in (0.1, 0.2):
        for seed in (1, 2):
            rows = [line(n).replace(f"{n},3,", f"{n + 100 * sigma + seed},3,") for n in range(1, 41)]
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
    # A browser has no inner text of rows that it has not drawn yet (content-visibility).
    assert page.locator("#runs li:visible .name").first.text_content() == "sweep/sigma=0.1_seed=1"
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
    assert names.first.text_content() == "group/long" and "sweep" not in "".join(names.all_text_contents())
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
    left_out = "1 run without a generation left out. 1 run with the config and seed of another one left out."
    assert left_out in page.inner_text("#about")


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
    costs = {n: 10 ** (3 - n / 5) for n in range(1, 41)}
    rows = [line(n).replace(",150,", f",{-cost:g},") for n, cost in costs.items()]
    for n, cost in costs.items():
        rows[n - 1] = rows[n - 1].replace(f",{n},3,{n - 5},{n + 5},", f",{-cost},3,{-2 * cost},{-cost / 2},")
    add_run(sweep, "function", lines=rows, id="function:rastrigin", target=-0.001)
    page = open_page("function")
    wait_for_text(page, "#name", "function")
    assert page.evaluate("charts[0].scale.distr") == 4
    low, high = page.evaluate("[charts[0].plot.scales.y.min, charts[0].plot.scales.y.max]")
    assert low < -500 and high == 0
    page.select_option("select[name=vertical]", "linear")
    assert page.evaluate("charts[0].scale.distr === undefined")
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


SETTING, RESULT = "solver.sigma,policy.activation,seed", "generations,steps,core_seconds,eval_mean,eval_interval"
COLUMNS = f"{SETTING},state,{RESULT},rank,name,reason"
MEANS = {(0.01, "tanh"): 1.0, (0.01, "relu"): 2.0, (0.1, "tanh"): 9.0, (0.1, "relu"): 8.0, (0.5, "tanh"): 4.0}


def write_sweep(folder):
    """A sweep of five settings with two seeds each; one trial has failed, and one has not begun."""
    rows = []
    ranks = sorted(MEANS.values(), reverse=True)
    others = {(0.5, "tanh", 2): "new", (0.01, "relu", 2): "failed"}
    for seed in (1, 2):
        for (sigma, activation), mean in MEANS.items():
            name = f"sigma={sigma}_activation={activation}_seed={seed}"
            state = others.get((sigma, activation, seed), "finished")
            result = f"{mean},0.5" if state == "finished" else ","
            rank = ranks.index(mean) + 1
            reason = "it broke" if state == "failed" else ""
            rows.append(f"{sigma},{activation},{seed},{state},9,7200,4.5,{result},{rank},{name},{reason}")
            if state != "new":
                add_run(folder, name, sigma, seed, map(line, range(1, 12)), activation=activation)
    (folder / "sweep.yaml").write_text("base: lunar_lander\n")
    (folder / "trials.csv").write_text("\n".join([COLUMNS, *rows]) + "\n")


@pytest.fixture
def sweep_page(open_page, run_folder):
    """The page of a sweep."""
    write_sweep(run_folder / "lander")
    page = open_page(viewport={"width": 1280, "height": 1500})
    page.click("#sweeps a")
    page.wait_for_selector("#settings tbody tr")
    page.wait_for_selector("#panels .uplot canvas")
    return page


def cells(page, column):
    return page.locator(f"#settings tbody td:nth-child({column})").all_inner_texts()


def test_settings_stand_in_a_table_with_the_best_first_and_curves_have_bands_over_their_seeds(sweep_page):
    assert sweep_page.inner_text("#name") == "lander"
    about = sweep_page.inner_text("#about")
    assert "10 trials of 5 settings" in about and "1 failed" in about
    assert cells(sweep_page, 1) == ["1", "2", "3", "4", "5"]
    assert cells(sweep_page, 2) == ["0.1", "0.1", "0.5", "0.01", "0.01"]
    assert cells(sweep_page, 4)[2:4] == ["4 ± 0.5", "2 ± 0.5"]
    assert sweep_page.inner_text("#progress div:nth-child(1) dd") == "9 ± 0"
    links = sweep_page.locator("#settings tbody tr:nth-child(4) td:last-child")
    assert links.inner_text() == "seed 1, 2 (failed)"
    assert links.locator("a").nth(1).get_attribute("title") == "it broke"
    assert sweep_page.locator("#panels .uplot").count() == 1
    assert sweep_page.evaluate("panels[0].series.length") == 3 * 5
    assert "runs in" not in sweep_page.inner_text("#name")


def test_a_trial_that_ends_appears_by_itself(sweep_page, run_folder):
    table = run_folder / "lander" / "trials.csv"
    text = table.read_text()
    table.write_text(text.replace("0.5,tanh,2,new,9,7200,4.5,,,", "0.5,tanh,2,finished,9,7200,4.5,6.0,0.5,"))
    wait_for_text(sweep_page, "#settings tbody tr:nth-child(3)", "2 of 2")
    assert cells(sweep_page, 4)[2].startswith("5 ± 12.7")


def test_the_sweep_is_asked_for_before_the_runs(sweep_page):
    """So it is shown before a thousand runs have been read."""
    other, asked = sweep_page.context.new_page(), []
    other.on("request", lambda request: asked.append(request.url.partition("/api/")[2].partition("?")[0]))
    other.goto(sweep_page.url)
    other.wait_for_selector("#settings tbody tr")
    other.close()
    assert [name for name in asked if name][:2] == ["sweeps", "sweep"]


def test_a_link_leads_to_the_run_and_back(sweep_page):
    sweep_page.click("#settings tbody tr:nth-child(1) a")
    sweep_page.wait_for_selector("#charts .uplot canvas")
    assert sweep_page.is_hidden("#swept") and "seed=1" in sweep_page.inner_text("#name")
    sweep_page.go_back()
    sweep_page.wait_for_selector("#settings tbody tr")
    assert sweep_page.is_hidden("#shown") and sweep_page.is_visible("#swept")


def test_a_sweep_that_has_not_begun_shows_no_other_curves(sweep_page, run_folder):
    other = run_folder / "other"
    other.mkdir()
    (other / "sweep.yaml").write_text("base: lunar_lander\n")
    (other / "trials.csv").write_text(f"{COLUMNS}\n0.1,tanh,1,new,0,0,0,,,,a,\n0.2,tanh,1,new,0,0,0,,,,b,\n")
    sweep_page.wait_for_selector("#compared")
    sweep_page.click("#sweeps a:text('other')")
    sweep_page.wait_for_function("() => document.querySelector('#name').textContent === 'other'")
    assert sweep_page.is_hidden("#compared")
