"""Folders of sweeps whose trials look as if they had been trained."""

import math

import yaml

from mpies.config.loading import as_yaml, resolved
from mpies.sweeps.folder import SweepFolder
from mpies.sweeps.trials import read_sweep
from tests.support import CARTPOLE

HEADER = (
    "generation,seconds,steps,ranks,episodes,return_min,return_max,return_mean,eval_mean,eval_std,eval_episodes,"
    "failures"
)


def open_sweep(path, vary, base=CARTPOLE, **more):
    """The folder of a new sweep.  base: YAML text.  more: other keys of a sweep file."""
    folder = SweepFolder(path, read_sweep({"base": yaml.safe_load(base), "vary": vary, **more}, "config"))
    folder.open()
    return folder


def add_generation(folder, trial, generation, mean, is_end=True):
    """What a trial leaves that was evaluated in this generation.  is_end: whether its run, or its rung, ended there."""
    run = folder.path / trial.name
    run.mkdir(exist_ok=True)
    (run / "config.yaml").write_text(as_yaml(resolved(folder.sweep.config(trial))))
    with open(run / "metrics.csv", "a") as file:
        cells = f"{generation},{generation}.0,{100 * generation},2,{8 * generation},1.0,1.0,1.0"
        file.write("" if file.tell() else f"{HEADER}\n")
        file.write(f"{cells},{'' if math.isnan(mean) else mean},2.0,4,0\n")
    if is_end:
        ending = f"{{reason: generations, generation: {generation}, steps: {100 * generation}}}\n"
        (run / "finished.yaml").write_text(ending)
