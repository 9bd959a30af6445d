"""The page of a sweep in a real browser: the table and the curves of the best."""

import pytest

from tests.report.web.served_runs import CONFIG, HEADER, line

pytestmark = pytest.mark.browser

COLUMNS = (
    "solver.sigma,policy.activation,seed,state,generations,steps,core_seconds,eval_mean,eval_interval,rank,name,reason"
)
MEANS = {(0.01, "tanh"): 1.0, (0.01, "relu"): 2.0, (0.1, "tanh"): 9.0, (0.1, "relu"): 8.0, (0.5, "tanh"): 4.0}


def write_sweep(folder):
    """A sweep of five settings with two seeds each; one trial has failed, and one has not begun."""
    rows = []
    ranks = sorted(MEANS.values(), reverse=True)
    for seed in (1, 2):
        for (sigma, activation), mean in MEANS.items():
            name = f"sigma={sigma}_activation={activation}_seed={seed}"
            state = {(0.5, 2): "new", (0.1, 2): "finished"}.get((sigma, seed), "finished")
            state = "failed" if (sigma, activation, seed) == (0.01, "relu", 2) else state
            result = f"{mean},0.5" if state == "finished" else ","
            rank = ranks.index(mean) + 1
            reason = "it broke" if state == "failed" else ""
            rows.append(f"{sigma},{activation},{seed},{state},9,7200,4.5,{result},{rank},{name},{reason}")
            if state != "new":
                run = folder / name
                run.mkdir(parents=True)
                config = CONFIG.replace("openai_es", f"openai_es, sigma: {sigma}")
                (run / "config.yaml").write_text(f"seed: {seed}\npolicy: {{activation: {activation}}}\n{config}")
                (run / "metrics.csv").write_text(HEADER + "".join(map(line, range(1, 12))))
    (folder / "sweep.yaml").write_text("base: lunar_lander\n")
    (folder / "trials.csv").write_text("\n".join([COLUMNS, *rows]) + "\n")


@pytest.fixture
def page(open_page, run_folder):
    """The page of a sweep."""
    write_sweep(run_folder / "lander")
    page = open_page(viewport={"width": 1280, "height": 1500})
    page.click("#sweeps a")
    page.wait_for_selector("#settings tbody tr")
    page.wait_for_selector("#panels .uplot canvas")
    return page


def cells(page, column):
    return page.locator(f"#settings tbody td:nth-child({column})").all_inner_texts()


def test_settings_stand_in_a_table_with_the_best_first_and_curves_have_bands_over_their_seeds(page):
    assert page.inner_text("#name") == "lander"
    assert "10 trials of 5 settings" in page.inner_text("#about") and "1 failed" in page.inner_text("#about")
    assert cells(page, 1) == ["1", "2", "3", "4", "5"]
    assert cells(page, 2) == ["0.1", "0.1", "0.5", "0.01", "0.01"]
    assert cells(page, 4)[2:4] == ["4 ± 0.5", "2 ± 0.5"]
    assert page.inner_text("#progress div:nth-child(1) dd") == "9 ± 0"
    links = page.locator("#settings tbody tr:nth-child(4) td:last-child")
    assert links.inner_text() == "seed 1, 2 (failed)"
    assert links.locator("a").nth(1).get_attribute("title") == "it broke"
    assert page.locator("#panels .uplot").count() == 1
    assert page.evaluate("panels[0].series.length") == 3 * 5
    assert "runs in" not in page.inner_text("#name")


def test_a_trial_that_ends_appears_by_itself(page, run_folder):
    table = run_folder / "lander" / "trials.csv"
    text = table.read_text()
    table.write_text(text.replace("0.5,tanh,2,new,9,7200,4.5,,,", "0.5,tanh,2,finished,9,7200,4.5,6.0,0.5,"))
    page.wait_for_function(
        "() => document.querySelector('#settings tbody tr:nth-child(3)').textContent.includes('2 of 2')"
    )
    assert cells(page, 4)[2].startswith("5 ± 12.7")


def test_the_sweep_is_asked_for_before_the_runs(page):
    """So it is shown before a thousand runs have been read."""
    other, asked = page.context.new_page(), []
    other.on("request", lambda request: asked.append(request.url.partition("/api/")[2].partition("?")[0]))
    other.goto(page.url)
    other.wait_for_selector("#settings tbody tr")
    other.close()
    assert [name for name in asked if name][:2] == ["sweeps", "sweep"]


def test_a_link_leads_to_the_run_and_back(page):
    page.click("#settings tbody tr:nth-child(1) a")
    page.wait_for_selector("#charts .uplot canvas")
    assert page.is_hidden("#swept") and "seed=1" in page.inner_text("#name")
    page.go_back()
    page.wait_for_selector("#settings tbody tr")
    assert page.is_hidden("#shown") and page.is_visible("#swept")


def test_a_sweep_that_has_not_begun_shows_no_other_curves(page, run_folder):
    other = run_folder / "other"
    other.mkdir()
    (other / "sweep.yaml").write_text("base: lunar_lander\n")
    (other / "trials.csv").write_text(f"{COLUMNS}\n0.1,tanh,1,new,0,0,0,,,,a,\n0.2,tanh,1,new,0,0,0,,,,b,\n")
    page.wait_for_selector("#compared")
    page.click("#sweeps a:text('other')")
    page.wait_for_function("() => document.querySelector('#name').textContent === 'other'")
    assert page.is_hidden("#compared")
