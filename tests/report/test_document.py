"""The report: one HTML file with everything in it."""

import base64
import html
import re
import shlex
import shutil
from html.parser import HTMLParser

import imageio.v3
import numpy as np
import yaml

from mpies.config.loading import resolved, validate_config
from mpies.report.compare.curves import read_curves
from mpies.report.document import make_report, make_summary, shorten_config
from mpies.runs.machine import describe_machine
from tests.report.web.served_runs import append, line
from tests.support import invoke


class Links(HTMLParser):
    """Collects what a page loads, and refuses what needs a network or a script."""

    def __init__(self, page):
        super().__init__()
        self.sources = []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        assert tag not in ("script", "link", "iframe")
        self.sources += [value for name, value in attributes if name in ("src", "srcset", "href")]


def test_a_report_needs_no_other_file_and_a_video_is_recorded_first(run):
    (run / ".film.77.tmp.mp4").touch()  # as a recording that was killed leaves it
    invoke("report", run, code=0)
    text = (run / "report.html").read_text()
    assert [source[:18] for source in Links(text).sources] == ["data:image/svg+xml"]
    mean = read_curves(run)["eval_mean"][-1]
    for words in (
        *(f"mean return {mean:.2f}, 95 % confidence", "final evaluation", "over 4 held-out episodes"),
        *("<td>generations</td>", "learning_rate: 0.2", "; by default weight_decay 0", "numpy ", describe_machine()),
        "There is none yet",
    ):
        assert words in text
    invoke("report", run, "--video", code=0)
    text = (run / "report.html").read_text()
    assert (run / "video.mp4").exists() and "data:video/mp4;base64," in text and "There is none yet" not in text
    poster = base64.b64decode(re.search(r'poster="data:image/jpeg;base64,([^"]+)"', text)[1])
    assert poster.startswith(b"\xff\xd8") and len(poster) > 500  # a picture of JPEG


def test_other_seeds_and_the_film_are_part_of_it(two_runs, tmp_path):
    for name, source in (("seed-1", 1), ("seed-2", 2), ("other", 2)):
        shutil.copytree(two_runs / f"one-seed-{source}", tmp_path / name)
    config = tmp_path / "other/config.yaml"
    config.write_text(config.read_text().replace("sigma: 0.3", "sigma: 0.4"))
    run = tmp_path / "seed-1"
    frames = np.zeros((12, 40, 60, 3), np.uint8)
    imageio.v3.imwrite(run / "film.gif", frames + np.arange(12, dtype=np.uint8)[:, None, None, None] * 20)
    invoke("report", run, code=0)
    text = (run / "report.html").read_text()
    kinds = [source.partition(";")[0] for source in Links(text).sources]
    assert kinds == ["data:image/svg+xml", "data:image/gif"]
    assert "over 2 seeds" in text and text.count("<td>generations</td>") == 3
    shutil.copytree(tmp_path / "seed-2", tmp_path / "seed-2-again")
    invoke("report", run, code=0)
    assert (run / "report.html").read_text() == text
    config.write_text(yaml.safe_dump(yaml.safe_load(config.read_text()) | {"policy": None}))
    odd = config.parent.rename(tmp_path / "caf\udce9")
    invoke("report", odd, code=0)
    assert "<title>caf\\udce9: CartPole-v1" in (odd / "report.html").read_text()


def test_the_config_of_a_report_is_short_and_the_same_run(two_runs):
    curves = read_curves(two_runs / "one-seed-1")
    short = shorten_config(curves.config)
    assert len(str(short)) < len(str(curves.config)) / 2
    assert resolved(validate_config(short, "config.yaml")) == curves.config
    assert shorten_config({"unknown": 1}) == {"unknown": 1}


def test_a_run_that_goes_on_has_a_newest_evaluation_no_end_and_the_numbers_of_ranks_that_it_had(make_curves):
    curves = make_curves([None, 3.0, None], target=5.0)
    curves.columns.update(ranks=np.array([6.0, 4, 6]), nodes=np.array([3.0, 2, 3]))
    text = make_report(curves)
    assert "<th>ranks</th><td>4, 6<" in text and "<th>nodes</th><td>2, 3<" in text
    assert "newest evaluation" in text and "final evaluation" not in text and "not complete" in text
    assert "mean return 3.00, 95 % confidence 1.04 to 4.96, over 4 held-out episodes" in text
    assert "generation 2<" in text and "<th>target</th><td>5</td>" in text
    text = make_report(make_curves([None, None]))
    assert "evaluation</th>" not in text and "<th>target" not in text


def test_a_damaged_number_of_episodes_leaves_the_mean_and_a_single_one_has_no_interval(run_folder):
    append(run_folder / "first/config.yaml", "seed: 1\n")
    for generation, episodes, words in (
        (5, "1x", ", of the search"),
        (10, "1", ", over 1 held-out episode, of the search"),
    ):
        append(run_folder / "first/metrics.csv", line(generation).replace(",100,0.1,", f",{episodes},0.1,"))
        summary = make_summary(read_curves(run_folder / "first"), "running")
        assert f"mean return 150.00{words} distribution's mean, generation {generation}<" in html.unescape(summary)


def test_a_name_with_html_in_it_is_shown_as_text_and_its_commands_can_be_copied(make_curves):
    text = make_report(make_curves([1.0], path="<i>run"))
    assert "<i>" not in text and "<h1>&lt;i&gt;run: " in text and "--out &#x27;&lt;i&gt;run&#x27;<" in text
    text = make_report(make_curves([1.0], path="runs/my run"))
    commands = [shlex.split(html.unescape(found)) for found in re.findall(">(mpies [^<]+ --[^<]+)<", text)]
    assert ["mpies", "report", "runs/my run", "--video"] in commands
    assert ["mpies", "train", "repeat.yaml", "--ranks", "2", "--out", "my run"] in commands
