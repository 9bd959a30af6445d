"""The dashboard's page in a real browser: curves, updates, downloads, widths, keyboard, light and dark."""

import os
import shutil

import imageio.v3
import numpy as np
import pytest

from tests.report.web.served_runs import HEADER, line

pytestmark = pytest.mark.browser

# How much of a chart's canvas is not empty, in pixels.
INK = """box => { const canvas = box.querySelector('canvas');
    const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
    let ink = 0; for (let i = 3; i < data.length; i += 4) ink += data[i] > 0; return ink; }"""


def wait_for_text(page, selector, text):
    page.wait_for_function("([s, t]) => document.querySelector(s).textContent.includes(t)", arg=[selector, text])


def zoom(page, plot):
    """Zoom in on the first two generations of a curve, as dragging does."""
    page.evaluate(f"{plot}.setScale('x', {{min: 1, max: 2}})")
    page.wait_for_function(f"() => {plot}.scales.x.max === 2")


def append(run, *lines):
    """Let a run have further lines of metrics.csv; a number stands for the line of that generation."""
    with open(run / "metrics.csv", "a") as file:
        file.writelines(line(one) if isinstance(one, int) else one for one in lines)


def test_the_page_draws_the_curves_and_names_the_run(open_page):
    page = open_page("group%2Flong")
    titles = page.locator("#charts .chart h3").all_inner_texts()
    wanted = ["Return", "Episode length", "Sigma", "Parameter norm", "Update ratio", "Speed", "Idle share", "Failures"]
    assert titles == [*wanted, "Ranks alive"]
    for chart in page.query_selector_all("#charts .chart"):
        assert chart.evaluate(INK) > 2000
    assert "LunarLander-v3" in page.inner_text("#about") and "stopped" in page.inner_text("#about")
    assert page.locator("#runs li").count() == 3
    assert page.evaluate("charts[0].plot.axes[0]._splits.every(Number.isInteger)")  # generations have whole ticks
    assert page.evaluate("[1e-4, 1.5e-4, 2e-4].map(labelOf)") == ["1e-4", "1.5e-4", "2e-4"]  # and small ones all digits
    assert "id: LunarLander-v3" in page.text_content("#config")
    assert "5 generations" in page.inner_text("#thinned")
    assert page.inner_text("#numbers div:nth-child(4)").split("\n") == ["mean return", "2,000"]  # not thinned
    assert "mean of members2,000" in page.inner_text("#charts .chart .u-legend")


def test_a_new_generation_appears_by_itself(open_page, run_folder):
    page = open_page("first")
    before = page.query_selector("#charts .chart").evaluate(INK)
    label = page.get_attribute(".uplot", "aria-label")
    append(run_folder / "first", *range(4, 31), line(31)[:30])
    with open(run_folder / "first" / "log.txt", "a") as file:
        file.write("a line that was not there\n")
    wait_for_text(page, "#numbers", "30")
    wait_for_text(page, "#log", "a line that was not there")
    assert page.get_attribute(".uplot", "aria-label") != label
    page.wait_for_timeout(200)
    assert page.query_selector("#charts .chart").evaluate(INK) != before
    assert "<script>" in page.inner_text("#log")  # shown, not run


def test_one_bad_member_does_not_flatten_the_curve(open_page, run_folder):
    append(run_folder / "first", line(4).replace(",-1,9,", ",-90000,9,"), *range(5, 41))
    page = open_page("first")
    low, high = page.evaluate("[charts[0].plot.scales.y.min, charts[0].plot.scales.y.max]")
    assert -50 < low < -2 and 200 < high < 250  # the target is 200


def test_new_runs_and_removed_ones_change_the_list_and_what_is_shown(open_page, run_folder):
    page = open_page()  # at the newest run
    shutil.copytree(run_folder / "first", run_folder / "second")
    page.wait_for_selector("#runs li:nth-child(4)")
    shown = page.locator("#name").inner_text()
    shutil.rmtree(run_folder / shown)
    page.wait_for_function("name => document.getElementById('name').textContent != name", arg=shown)
    assert not page.locator("#trouble").is_visible()
    page = open_page("second")
    page.select_option("#sort", "name")
    shutil.rmtree(run_folder / "second")
    page.wait_for_selector("#trouble:visible")
    assert page.locator("#trouble").inner_text() == "second is not there; it may have been removed. Choose another run."
    left = sorted({"first", "group/long", "truncated"} - {shown})
    assert page.locator("#runs li .name").all_text_contents() == left
    page.goto(page.url.replace("second", left[0]))
    wait_for_text(page, "#name", left[0])
    assert not page.locator("#trouble").is_visible()


def test_what_belongs_to_a_run_is_shown_and_can_be_downloaded_in_the_colours_of_the_reader(open_page, run_folder):
    run = run_folder / "first"
    imageio.v3.imwrite(run / "film.gif", np.zeros((2, 20, 30, 3), np.uint8))
    (run / "episode.mp4").write_bytes(b"no film")
    page = open_page("first", color_scheme="dark")
    paper = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(paper) == "rgb(20, 23, 27)"
    page.emulate_media(color_scheme="light")
    assert page.evaluate(paper) == "rgb(255, 255, 255)"
    page.wait_for_selector(".uplot canvas")
    with page.expect_download() as waiting:
        page.click("text=best policy")
    assert waiting.value.suggested_filename == "first-best.h5"
    assert os.path.getsize(waiting.value.path()) == (run / "best.h5").stat().st_size
    assert page.locator("#downloads a").count() == 4
    page.wait_for_selector("#ranks meter")
    assert page.locator("#ranks b").all_inner_texts() == ["2 %", "31 %"]  # of their time
    page.click("#pictures summary")
    page.wait_for_function("() => document.querySelector('#pictures img').naturalWidth === 30")
    assert page.locator("#pictures figcaption").all_inner_texts() == ["episode.mp4", "film.gif"]


def test_a_page_that_is_opened_before_the_first_generation_follows_the_run(open_page, run_folder):
    """First the curves of the generations come by themselves, then that of the first evaluation."""
    run = run_folder / "first"
    (run / "metrics.csv").write_text(HEADER)
    page = open_page("group%2Flong")
    page.goto(page.url.replace("group%2Flong", "first"))
    page.wait_for_function("() => run.name === 'first' && !run.newest.generation")
    append(run, 1)
    page.wait_for_function("() => run.newest.generation === 1 && charts.length > 5")
    are_points = "charts[1].plot.series[1].points.show(charts[1].plot, 1)"
    assert page.evaluate(are_points) is True  # while the curve is short
    append(run, 2, 3, 4)
    page.wait_for_function("() => charts[1].plot.data[0].length === 4")
    assert page.evaluate(are_points) is False
    drawn = "charts.find((chart) => chart.title === 'Return').shown"
    assert "eval_mean" not in page.evaluate(drawn)
    append(run, 5)
    page.wait_for_function(f"() => {drawn}.includes('eval_mean')")
    assert page.is_hidden("#trouble")


def test_what_the_reader_chooses_stays_when_generations_come(open_page, run_folder):
    """The part that is zoomed in on, and the focus; the time axis changes its unit with its label."""
    page = open_page("first")
    zoom(page, "charts[0].plot")
    append(run_folder / "first", 4)
    page.wait_for_function("() => charts[0].plot.data[0].at(-1) === 4 && charts[1].plot.scales.x.max === 4")
    assert page.evaluate("[charts[0].plot.scales.x.min, charts[0].plot.scales.x.max]") == [1, 2]
    page.select_option("select[name=axis]", "seconds")
    page.wait_for_selector(".uplot[aria-label*='training time, seconds']")
    page.focus(".uplot")
    append(run_folder / "first", *range(5, 701))  # half a second each
    page.wait_for_function("() => run.newest.generation === 700")
    assert page.evaluate("charts[0].plot.axes[0].label") == "training time, minutes"
    assert page.evaluate("document.activeElement.classList.contains('uplot')")


def test_everything_is_reached_by_keyboard(open_page):
    page = open_page("first")
    page.select_option("#sort", "name")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    for _ in range(7):  # past the filter, the order, the button, and the first run with its box
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    wait_for_text(page, "#name", "group/long")
    page.focus("select[name=axis]")
    page.keyboard.press("ArrowDown")
    page.wait_for_selector(".uplot[aria-label*='training time, minutes']")
    page.focus(".uplot")
    page.keyboard.press("Home")
    page.wait_for_timeout(100)
    first = page.inner_text("#charts .chart .u-legend")
    page.keyboard.press("ArrowRight")
    page.wait_for_timeout(100)
    assert page.inner_text("#charts .chart .u-legend") != first
    page.focus("#filter")
    page.keyboard.type("long")
    wait_for_text(page, "#count", "1 of 3 runs")


@pytest.mark.parametrize("width", [360, 800, 1500])
def test_nothing_is_cut_off_at_any_width(width, open_page):
    page = open_page("group%2Flong", viewport={"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    boxes = "#charts .chart:visible, #numbers div:visible, #view label:visible, #downloads a:visible"
    for box in page.query_selector_all(boxes):
        place = box.bounding_box()
        assert place["x"] >= 0 and place["x"] + place["width"] <= width
    for chart in page.query_selector_all("#charts .chart"):
        outer, inner = chart.bounding_box(), chart.query_selector("canvas").bounding_box()
        assert inner["x"] + inner["width"] <= outer["x"] + outer["width"] and inner["width"] > 200
    page.goto(page.url.split("#")[0] + "#+first+group%2Flong")
    page.wait_for_selector("#panels .uplot canvas")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for box in page.query_selector_all("#panels .chart, #view label, nav button, nav select"):
        place = box.bounding_box()
        assert place is None or (place["x"] >= 0 and place["x"] + place["width"] <= width)


def test_a_server_that_is_gone_is_reported_and_comes_back(open_page, server):
    page = open_page("first")
    page.route("**/api/**", lambda route: route.abort())
    page.wait_for_selector("#trouble:not([hidden])")
    assert "trying again" in page.inner_text("#trouble")
    page.unroute("**/api/**")
    page.wait_for_selector("#trouble", state="hidden")
    assert set(open_page.problems) == {"Failed to load resource: net::ERR_FAILED"}
    open_page.problems.clear()
