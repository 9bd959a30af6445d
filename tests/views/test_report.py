"""The report: one HTML file with everything in it."""

from html.parser import HTMLParser

from mpies.views.curves import read_curves
from mpies.views.report import make_report


class Links(HTMLParser):
    """Collects what a page loads, and refuses what needs a network or a script."""

    def __init__(self):
        super().__init__()
        self.sources = []

    def handle_starttag(self, tag, attributes):
        assert tag not in ("script", "link", "iframe")
        self.sources += [value for name, value in attributes if name in ("src", "srcset", "href")]


def test_a_report_needs_no_other_file(run, invoke):
    ended = invoke("report", run)
    assert ended.exit_code == 0
    text = (run / "report.html").read_text()
    links = Links()
    links.feed(text)
    assert len(links.sources) == 6 and all(source.startswith("data:image/svg+xml") for source in links.sources)
    mean = read_curves(run)["eval_mean"][-1]
    for words in (
        f"mean return {mean:.2f}, 95 % confidence",
        "final evaluation",
        "over 4 held-out episodes",
        "all generations made",
        "learning_rate: 0.2",
        "numpy ",
    ):
        assert words in text


def test_a_run_that_goes_on_has_a_newest_evaluation_and_no_end(make_curves):
    text = make_report(make_curves([None, 3.0, None], target=5.0))
    assert "newest evaluation" in text and "final evaluation" not in text and "not complete" in text
    assert "mean return 3.00, 95 % confidence 1.04 to 4.96, over 4 held-out episodes" in text
    assert "generation 2<" in text and "<th>target</th><td>5</td>" in text


def test_a_run_without_evaluation_says_nothing_of_one(make_curves):
    text = make_report(make_curves([None, None]))
    assert "evaluation</th>" not in text and "<th>target" not in text


def test_a_name_with_html_in_it_is_shown_as_text(make_curves):
    text = make_report(make_curves([1.0], path="<i>run"))
    assert "<i>" not in text and "<h1>&lt;i&gt;run: " in text and "--out &lt;i&gt;run<" in text


def test_what_is_no_run_is_refused_in_one_line(tmp_path, invoke):
    ended = invoke("report", tmp_path)
    assert ended.exit_code == 2 and "a run?" in ended.stderr and ended.stderr.count("\n") == 1
