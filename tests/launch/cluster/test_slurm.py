"""The batch script of a Job, as sbatch and bash read it."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from mpies.core.errors import ConfigError
from mpies.launch.cluster.slurm import batch_script, list_options
from tests.launch.cluster.conftest import CONFIG, CONSTANTS, JOB
from tests.support import HOME, assert_refused, invoke


def test_a_batch_script_asks_for_what_the_job_needs():
    body = batch_script(JOB, "train() { :; }\n", "/home/u/a venv").splitlines()
    options = {line for line in body if line.startswith("#SBATCH")}
    assert options == {
        "#SBATCH --job-name=pole",
        "#SBATCH --nodes=3",
        "#SBATCH --ntasks-per-node=16",
        "#SBATCH --cpus-per-task=1",
        "#SBATCH --mem=5120M",
        "#SBATCH --time=1-02:01:00",
        "#SBATCH --signal=B:USR1@120",
        "#SBATCH --requeue",
        "#SBATCH --no-kill",
        "#SBATCH --open-mode=append",
        "#SBATCH --output=runs/pole-%j.out",
        "#SBATCH --partition=long",
    }
    assert body[0] == "#!/bin/bash"
    assert body.index("train() { :; }") > max(body.index(option) for option in options), "sbatch stops at a command"
    mine = replace(JOB, request=replace(JOB.request, account="me"))
    assert batch_script(mine, "", "").count("#SBATCH --account=me\n") == 1
    assert "#SBATCH --time=0-00:00:30\n" in batch_script(replace(JOB, seconds=30), "", "")  # all zeros is no limit
    assert "#SBATCH --time=0-01:30:45\n" in batch_script(replace(JOB, seconds=5445), "", "")
    assert '#SBATCH --job-name="a pole"\n' in batch_script(replace(JOB, out="runs/a pole"), "", "")
    # sbatch takes a backslash away, and %j for the number of the job.
    odd = batch_script(replace(JOB, out='runs/5" \\ 50%j'), "", "")
    assert '#SBATCH --job-name="5\\" \\\\ 50%j"\n' in odd
    assert '#SBATCH --output="runs/5\\" \\\\ 50%%j-%j.out"\n' in odd


def test_options_of_sbatch_are_handed_on_and_what_is_none_is_refused():
    assert list_options("") == []
    lines = ["--qos=long", "--constraint zen4", '--comment="a \\"b\\""', "-p x", "-O"]
    given = "--qos=long --constraint zen4 --comment='a \"b\"' -p x -O"
    assert list_options(given) == [f"#SBATCH {line}" for line in lines]
    text = batch_script(replace(JOB, request=replace(JOB.request, sbatch="--qos=long")), "train() { :; }\n", "")
    assert text.index("#SBATCH --qos=long\n") < text.index("train()")
    for text in ("qos=long", "--qos='long", "--", "rm -x"):
        with pytest.raises(ConfigError, match="--sbatch must hold options such as --qos=long, but is"):
            list_options(text)


def test_a_batch_script_hands_words_on_as_they_are():
    library = 'train() { printf \'%s\\n\' "$MPIES_VENV" "$MPIES_RUN" "$@"; }'
    job = replace(JOB, request=replace(JOB.request, overrides=("a=$HOME 'b'",)))
    text = batch_script(job, library, "/home/u/a venv")
    printed = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=True, env={}).stdout
    assert printed.splitlines() == ["/home/u/a venv", "runs/pole", "configs/my pole.yaml", "a=$HOME 'b'"]


def test_a_dry_run_writes_the_script_beside_the_run_and_submits_nothing(ball, write_config):
    write_config(CONSTANTS, "constants.yaml")
    options = ["--nodes", 2, "--ranks-per-node", 3, "--constants", "constants.yaml", "--dry-run"]
    ended = invoke("launch", "slurm", "ball.yaml", *options, "solver.population=12", "seed=4", code=0)
    script = "runs/ball_solver.population=12_seed=4.sbatch"
    assert ended.stdout.splitlines()[-1] == f"not run: sbatch {script}"
    assert "its generations take 0.9 h at most" in ended.stdout
    text = (ball / script).read_text()
    # 15 minutes, and 1.3 times 500 generations of twice 3 s and half a second: 85.4 minutes.
    assert "#SBATCH --time=0-01:26:00\n#SBATCH --signal=B:USR1@100\n" in text
    assert text.endswith("\ntrain ball.yaml solver.population=12 seed=4\n")


@pytest.mark.parametrize("words", [[], ["--sweep", "solver.sigma=0.1,0.2"]])
def test_a_time_limit_that_is_over_with_the_warning_is_refused(words, ball):
    """The job would be told to stop as soon as it starts, and go back into the queue, for ever."""
    for given, seconds, needed in ((["--time", "0:02:40"], 160, 160), (["stop.grace=20000"], 14400, 20150)):
        outcome = invoke("launch", "slurm", "ball.yaml", "--dry-run", *words, *given)
        line = f"the time limit is {seconds} s, but the job is told to stop up to {needed} s before its end (stop.grace"
        assert_refused(outcome, line)
    invoke("launch", "slurm", "ball.yaml", "--dry-run", *words, "--time", "0:02:41", code=0)


def test_a_config_may_have_a_name_that_is_no_text(write_config, here):
    config = os.fsdecode(b"b\xe4ll.yaml")
    write_config(CONFIG, config)
    invoke("launch", "slurm", config, "--out", "ball", "--dry-run", code=0)
    assert (here / "ball.sbatch").read_bytes().endswith(b"\ntrain 'b\xe4ll.yaml'\n")


def test_the_shell_functions_know_the_default_run_directory(ball):
    text = f"""
    . {HOME}/slurm/train.sh; prepare; run_of ball.yaml solver.population=12 seed=4
    command=sweep; run_of ball.yaml solver.population=12,14 --seeds 2 --halving first=3,eta=3 --retry solver.sigma=1,2
    run_of ball.yaml solver.population=12,14 --out mine --seeds 2; run_of ball.yaml --out=mine solver.population=12,14
    """
    environment = os.environ | {"SLURM_JOB_ID": "7", "MPIES_VENV": sys.prefix}
    done = subprocess.run(["bash", "-c", text], env=environment, capture_output=True, text=True)
    expected = ["runs/ball_solver.population=12_seed=4", "runs/ball_sweep_solver.population_solver.sigma"]
    assert done.stdout.splitlines() == [*expected, "mine", "mine"], done.stderr


def test_a_signal_just_before_the_ranks_are_started_is_not_lost(here):
    text = f"""
    . {HOME}/slurm/train.sh
    prepare() {{ :; }}; requeue() {{ echo "$1"; exit 75; }}
    watch() {{ kill -USR1 $$; }}
    start() {{ exec sleep 60; }}
    inside=(true)
    train ball.yaml
    """
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1", "SLURM_NTASKS": "2", "MPIES_RUN": "runs/ball"}
    done = subprocess.run(["bash", "-c", text], env=os.environ | job, capture_output=True, text=True, timeout=30)
    assert done.returncode == 75 and done.stdout.endswith("\nstopped before it began\n"), done.stderr
