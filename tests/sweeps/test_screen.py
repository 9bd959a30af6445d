"""The live screen of a sweep on a terminal, and plain lines where there is none."""

import contextlib
import os
import re

from mpies.runs.metrics import read_digests
from mpies.sweeps.folder import SweepFolder
from mpies.sweeps.screen import SweepScreen, open_screen
from mpies.sweeps.trials import SweepOptions, load_sweep
from tests.report.test_display import run_on_terminal
from tests.support import CARTPOLE

HEADER = "generation,seconds,return_mean,eval_mean,eval_std,eval_episodes,steps,ranks"


def open_folder(tmp_path, seeds, halving=None):
    (tmp_path / "config.yaml").write_text(CARTPOLE)
    vary = {"solver.sigma": [0.1, 0.3]}
    sweep = load_sweep(tmp_path / "config.yaml", vary, SweepOptions(seeds, halving=halving))
    folder = SweepFolder(str(tmp_path / "out"), sweep)
    folder.open()
    return folder


def read_screen(leader):
    """What was written to a terminal, which is closed, without control sequences."""
    content = b""
    with contextlib.suppress(OSError):  # how a terminal ends
        while more := os.read(leader, 65536):
            content += more
    os.close(leader)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", content.decode())


def begin(folder, number, rows):
    """Have a trial be trained by this process, with these rows of metrics.csv."""
    taken, lock = folder.take()
    assert taken == number
    run = folder.path / folder.trials[number].name
    (run / "config.yaml").write_text("seed: 1\n")
    (run / "metrics.csv").write_text("\n".join([HEADER, *rows]) + "\n")
    return run, lock


def test_running_trials_are_rows_and_ended_ones_are_lines(tmp_path):
    folder = open_folder(tmp_path, 2)
    run, lock = begin(folder, 0, ["1,0.5,20.5,,,,100,1", "2,1.5,21.5,33.0,1.0,4,200,1"])
    begin(folder, 1, ["1,0.5,20.5,,,,100,1"])
    leader, follower = os.openpty()
    screen = SweepScreen(folder, os.ttyname(follower))
    os.close(follower)
    (run / "finished.yaml").write_text("{reason: solved, generation: 2, steps: 200}\n")
    lock.release()
    folder.record_failure(folder.trials[3], "it broke")
    screen.close()
    shown = read_screen(leader)
    assert re.search(r"sigma=0.1_seed=1 +2 +21.5 +33 +1.5", shown), shown
    assert re.search(r"sigma=0.3_seed=1 +1 +20.5 +- +0.5", shown), shown
    assert "0 of 4 trials ended, 2 in training" in shown
    assert f"[1/4] {folder.name}/sigma=0.1_seed=1: solved, 33.00 +- 0.98; generation 2" in shown
    assert f"[2/4] {folder.name}/sigma=0.3_seed=2: failed after generation 0: it broke" in shown
    assert "2 of 4 trials ended, 1 failed, 1 in training" in shown
    assert "best so far: sigma=0.1, 33.00 +- 0.98" in shown


def test_with_halving_the_best_so_far_may_still_be_in_training(tmp_path):
    folder = open_folder(tmp_path, 1, {"first": 2, "unit": "generations", "eta": 2})
    leader, follower = os.openpty()
    screen = SweepScreen(folder, os.ttyname(follower))
    os.close(follower)
    for number, mean in enumerate((20.0, 30.0)):
        run, lock = begin(folder, number, [f"2,1.5,21.5,{mean},1.0,4,200,1"])
        (run / "finished.yaml").write_text("{reason: generations, generation: 2, steps: 200}\n")
        lock.release()
    screen.close()
    shown = read_screen(leader)
    assert "[1/2]" in shown and "sigma=0.1_seed=1: dropped, 20.00 +- 0.98" in shown
    assert "best so far: sigma=0.3, 30.00 +- 0.98" in shown


def test_without_a_terminal_there_is_no_screen(tmp_path, capsys):
    assert open_screen(open_folder(tmp_path, 1)) is None


def test_a_sweep_on_a_terminal_ends_with_its_table(tmp_path):
    (tmp_path / "config.yaml").write_text(CARTPOLE)
    arguments = ["sweep", "config.yaml", "solver.sigma=0.1,0.3", "--seeds", "2", "--ranks", "2", "--out", "out"]
    shown = run_on_terminal(tmp_path, *arguments)
    for number in range(1, 5):
        assert shown.count(f"[{number}/4] out/sigma=") == 1, shown
    assert "of 4 trials ended" in shown and "best so far: " in shown
    assert shown.index("rank   sigma") > shown.rindex("trials ended")
    assert "4 of 4 trials finished" in shown.splitlines()[-1]
    runs = [run for run in (tmp_path / "out").iterdir() if (run / "metrics.csv").exists()]
    assert [len(read_digests(run)) for run in runs] == [10] * 4
