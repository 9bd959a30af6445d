"""Sweeps as the page gets them: found and grouped; and how much each setting matters."""

import pytest

from mpies.report.web.sweep_table import find_sweeps, read_sweep_table

COLUMNS = (
    "solver.sigma,stop.generations,seed,state,{}generations,steps,core_seconds,eval_mean,eval_interval,rank,name,reason"
)


def make_sweep(folder, rows, more=""):
    folder.mkdir(parents=True)
    (folder / "sweep.yaml").write_text("base: cartpole\n")
    (folder / "trials.csv").write_text("\n".join([COLUMNS.format(more), *rows]) + "\n")


@pytest.mark.parametrize("name", ["../outside", "{folder}/outside", "linked", "\0"])
def test_a_sweep_outside_the_folder_is_not_read(tmp_path, name):
    make_sweep(tmp_path / "outside", [])
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "linked").symlink_to(tmp_path / "outside")
    assert read_sweep_table(tmp_path / "runs", name.format(folder=tmp_path)) is None


def test_settings_are_grouped_over_seeds_with_the_best_first(tmp_path):
    rows = [
        *("0.1,5,1,finished,5,100,1.5,10,2,2,sigma=0.1_seed=1,generations", "0.3,5,1,solved,5,100,1.5,40,3,1,a,solved"),
        *("0.1,5,2,finished,5,100,1.5,20,2,2,sigma=0.1_seed=2,generations", "0.3,5,2,running,2,50,0.5,99,3,1,b,"),
        *("0.2,5,1,new,0,0,0.000,,,,c,", "0.2,5,2,failed,0,0,0.000,,,,d,it broke"),
    ]
    make_sweep(tmp_path / "runs" / "first", rows)
    (tmp_path / "runs" / "lone").mkdir()
    (tmp_path / "runs" / "lone" / "config.yaml").write_text("")
    assert find_sweeps(tmp_path) == ["runs/first"] and find_sweeps(tmp_path / "runs" / "first") == ["."]
    found = read_sweep_table(tmp_path, "runs/first")
    assert found["keys"] == [{"key": "solver.sigma", "short": "sigma"}]
    ranked = [(group["settings"]["solver.sigma"], group["rank"], group["mean"]) for group in found["groups"]]
    assert ranked == [("0.3", 1, 40.0), ("0.1", 2, 15.0), ("0.2", None, None)]
    assert found["groups"][1]["interval"] == pytest.approx(12.706 * 5.0) and found["groups"][0]["interval"] == 3.0
    assert [trial["name"] for trial in found["groups"][0]["trials"]] == ["runs/first/a", "runs/first/b"]
    assert found["groups"][2]["trials"][1]["reason"] == "it broke" and found["groups"][2]["ended"] == 1
    assert read_sweep_table(tmp_path, "runs/lone") is None and read_sweep_table(tmp_path, "../x") is None


def test_steps_are_counted_to_the_last_one_and_what_came_to_a_later_rung_counts_while_it_is_trained(tmp_path):
    rows = ["0.1,5,1,running,1,5,12345678901,1.5,40,2,1,a,", "0.2,5,1,running,0,5,100,1.5,30,2,,b,"]
    make_sweep(tmp_path / "sweep", rows, "rung,")
    groups = read_sweep_table(tmp_path, "sweep")["groups"]
    assert [(group["settings"]["solver.sigma"], group["mean"]) for group in groups] == [("0.1", 40.0), ("0.2", None)]
    assert groups[0]["trials"][0]["steps"] == 12345678901
    (tmp_path / "sweep" / "trials.csv").unlink()  # not there yet
    assert read_sweep_table(tmp_path, "sweep")["groups"] == []
