"""Runs overlaid: what the server answers to a page that compares."""

import gzip
import json
import shutil
from pathlib import Path
from urllib.parse import urlencode

import numpy as np

from mpies.report.web.run_index import RunIndex, overlay
from tests.report.web.served_runs import line
from tests.report.web.test_dashboard import get

CONFIG = """
seed: {seed}
environment: {{id: A-v1}}
solver: {{kind: snes, sigma: {sigma}}}
stop: {{target: 9}}
evaluation: {{}}
"""


def make_run(path, source, sigma, seed):
    shutil.copytree(source, path)
    (path / "config.yaml").write_text(CONFIG.format(sigma=sigma, seed=seed))


def test_seeds_are_a_median_in_a_band(make_curves):
    seeds = [make_curves([float(seed), 3.0 * seed], seed=seed, reason="solved", target=4.0) for seed in (1, 2, 3)]
    found = overlay([*seeds, make_curves([9.0, 8.0], kind="ars")], "generation", "")
    assert found["drawn"] == "eval_mean" and found["groups"] == 2
    (panel,) = found["tasks"]
    assert panel["x"] == [1, 2] and panel["targets"] == [4]
    curves = {curve["label"]: curve for curve in panel["curves"]}
    snes = curves["snes"]
    assert (snes["low"], snes["mid"], snes["high"]) == ([1.5, 4.5], [2, 6], [2.5, 7.5])
    assert snes["seeds"] == [1, 2, 3] and curves["ars"]["mid"] == [9, 8]


def test_repeated_runs_are_counted_those_without_values_not_drawn_and_unfinished_ones_end_a_group(make_curves):
    runs = [make_curves([1.0] * count, path=str(count)) for count in (2, 3, 1)]
    found = overlay([*runs, make_curves([1.0], seed=2)], "generation", "")
    assert found["repeated"] == 2 and found["tasks"][0]["curves"][0]["seeds"] == [1, 2]
    found = overlay([make_curves([None])], "generation", "sigma")
    assert found["drawn"] == "return_mean" and found["groups"] == 1
    assert overlay([], "generation", "")["tasks"] == []
    runs = [make_curves([1.0, 2.0], seed=1), make_curves([1.0, 2.0, 3.0, 4.0], seed=2, reason="generations")]
    (panel,) = overlay(runs, "generation", "")["tasks"]
    assert panel["x"] == [1, 2] and panel["curves"][0]["mid"] == [1, 2]


def test_however_many_runs_are_compared_an_answer_stays_small(make_curves):
    random = np.random.default_rng(0)
    runs = [make_curves(random.normal(size=300).tolist(), seed=k % 5, sigma=k // 5, path=f"s{k}") for k in range(300)]
    found = overlay(runs, "steps", "eval_mean")
    assert found["groups"] == 60
    assert len(gzip.compress(json.dumps(found, separators=(",", ":")).encode(), 5)) < 50_000


def test_the_server_follows_the_runs_and_compares_nothing_outside_the_folder(server, run_folder):
    names = [f"sweep/sigma={sigma}_seed={seed}" for sigma in (0.1, 0.2) for seed in (1, 2)]
    for name, sigma, seed in zip(names, (0.1, 0.1, 0.2, 0.2), (1, 2, 1, 2), strict=True):
        make_run(run_folder / name, run_folder / "first", sigma, seed)
    query = urlencode([("run", name) for name in (*names, "absent", "truncated", "../secret.txt", "/etc")])
    path = f"/api/compare?axis=steps&drawn=return_mean&{query}"
    status, content = get(server, path)
    found = json.loads(content)
    assert status == 200 and (found["runs"], found["groups"]) == (4, 2)
    curves = found["tasks"][0]["curves"]
    assert [curve["label"] for curve in curves] == ["sigma 0.1", "sigma 0.2"] and curves[0]["mid"][-1] == 3
    assert get(server, path)[1] == content
    for name in names[:2]:
        with open(run_folder / name / "metrics.csv", "a") as file:
            file.write(line(4))
    assert json.loads(get(server, path)[1])["tasks"][0]["curves"][0]["mid"][-1] == 4


def test_settings_of_a_sweep_that_differ_in_stop_alone_are_groups(run_folder):
    """A setting that trains for longer must not hide one that ends sooner.  Beside other runs both are one config."""
    rows = ["stop.target,checkpoint.every,seed,state,name"]
    for target in (5, 9):
        for seed in (1, 2):
            run = run_folder / f"sweep/target={target}_seed={seed}"
            make_run(run, run_folder / "first", 0.1, seed)
            (run / "config.yaml").write_text(CONFIG.format(sigma=0.1, seed=seed).replace("9", str(target)))
            rows.append(f"{target},10,{seed},finished,{run.name}")
    (run_folder / "sweep/sweep.yaml").touch()
    (run_folder / "sweep/trials.csv").write_text("\n".join(rows) + "\n")
    index = RunIndex(Path(run_folder))
    names = [one["name"] for one in index.summaries() if one["name"].startswith("sweep/")]
    found = index.read_overlay(names, "generation", "return_mean")
    assert [curve["label"] for curve in found["tasks"][0]["curves"]] == ["target 5", "target 9"]
    assert found["repeated"] == 0
    beside = index.read_overlay([*names, "first"], "generation", "return_mean")
    assert beside["repeated"] == 2 and beside["groups"] == 2
