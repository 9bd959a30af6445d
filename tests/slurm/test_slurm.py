"""The batch scripts on a real cluster of three nodes: to the target, and through everything that may break a job off.

Every run must come to the digests of the same config on one rank without Slurm.
"""

import re
import shlex
import shutil
import subprocess
import sys
import time

import pytest
import yaml

from mpies.runs.formats.checkpoint import newest_checkpoint
from mpies.runs.formats.metrics import read_digests, read_metrics
from tests.slurm.conftest import ENDLESS, TO_TARGET, launcher
from tests.support import HOME, invoke


@pytest.fixture(scope="session")
def assert_undisturbed(tmp_path_factory):
    """Function of a run, its config and overrides: it has the digests of a serial run, which are returned."""
    known: dict = {}

    def check(run, text, *overrides):
        found = read_digests(run)
        folder = known.setdefault((text, overrides), tmp_path_factory.mktemp("undisturbed"))
        if len(read_digests(folder / "run")) < len(found):  # it goes on from a shorter one
            (folder / "config.yaml").write_text(text)
            stop = f"stop.generations={len(found)}"
            command = [sys.executable, "-m", "mpies", "train", "config.yaml", "--out", "run", *overrides, stop]
            subprocess.run(command, cwd=folder, check=True, capture_output=True)
        assert found and found == read_digests(folder / "run")[: len(found)]
        return found

    return check


@pytest.mark.parametrize(
    ("mpi", "way", "expected"),
    [
        (None, "auto", "srun --mpi=pmix"),
        (None, "mpirun", "mpirun"),
        ("mpich", "auto", "srun --mpi=pmi2"),
        ("mpich", "mpirun", "mpirun"),
    ],
)
def test_a_run_is_trained_to_its_target(mpi, way, expected, submit, assert_undisturbed, request):
    environment = {"MPIES_LAUNCHER": way} | ({"MPIES_VENV": str(request.getfixturevalue(mpi))} if mpi else {})
    job = submit("train.sbatch", "pole.yaml", environment=environment)
    assert job.finish() == "COMPLETED", job.log()
    run = submit.folder / "runs" / "pole"
    assert yaml.safe_load((run / "finished.yaml").read_text())["reason"] == "solved"
    assert expected in launcher(job)[0]
    assert ("MPICH" if mpi else "Open MPI") in job.log()
    assert {row["ranks"] for row in read_metrics(run)} == {"6"}
    assert_undisturbed(run, TO_TARGET)
    # Before its first start a job lets the doctor look.
    place, ways = f"Slurm job {job.number} on n1, 3 hosts, 2 ranks", "srun has pmix and pmi2"
    assert all(finding in job.log() for finding in (place, ways, "2 others answer through srun")), job.log()
    assert not [line for line in job.log().splitlines() if line.startswith("BAD ")]


@pytest.fixture
def start_endless(submit):
    """Submit ENDLESS and wait until it has made some generations.  Returns its Job and its run directory."""

    def start(**more):
        job, run = submit("train.sbatch", "endless.yaml", **more), submit.folder / "runs" / "endless"
        job.wait_for(lambda: len(read_digests(run)) >= 3)
        return job, run

    return start


def check_resumed(job, run, assert_undisturbed, mend=lambda: None):
    """The job comes back by itself, goes on where it was, and completes to the bits of an undisturbed run.

    mend: what must be done before it can start again.
    """
    job.wait_for(job.is_back_in_the_queue)
    made = len(read_digests(run))
    end = made + 10  # now that it was broken off, let it have an end
    (job.folder / "endless.yaml").write_text(ENDLESS.replace("generations: 1000000", f"generations: {end}"))
    job.start_again()
    mend()
    assert job.finish() == "COMPLETED", job.log()
    assert job.restarts() == 1
    assert f"continuing from generation {made}" in job.log()
    assert len(launcher(job)) == 2, "the log of the first start is lost"
    assert yaml.safe_load((run / "finished.yaml").read_text())["generation"] == end
    assert len(assert_undisturbed(run, ENDLESS)) == end


URGENT = "sbatch --partition=urgent --nodes=3 --exclusive --output=/dev/null '--wrap=sleep 1'"


@pytest.mark.parametrize(
    ("more", "command"),
    [
        ({"environment": {"MPIES_LAUNCHER": "mpirun"}}, "scancel --batch --signal=USR1 {job}"),
        ({"options": ["--time=60", "--signal=B:USR1@120"]}, "scontrol update JobId={job} TimeLimit={soon}"),
        ({}, "scontrol requeue {job}"),
        ({}, URGENT),  # it preempts the job
    ],
)
def test_what_breaks_a_job_off_ends_in_a_resumed_run(more, command, start_endless, assert_undisturbed, cluster):
    job, run = start_endless(**more)
    cluster.run(*shlex.split(command.format(job=job.number, soon=job.minutes() + 2)))
    check_resumed(job, run, assert_undisturbed)
    assert not more or "was stopped and has lost nothing; back into the queue" in job.log()


def test_a_suspended_job_goes_on_and_the_pause_does_not_count(start_endless, assert_undisturbed, cluster):
    job, run = start_endless()
    cluster.run("scontrol", "suspend", job.number)
    time.sleep(6)
    cluster.run("scontrol", "resume", job.number)
    job.wait_for(lambda: any(float(row["paused"]) > 5 for row in read_metrics(run)))
    made = len(read_digests(run))
    job.wait_for(lambda: len(read_digests(run)) >= made + 5)
    assert job.restarts() == 0 and len(launcher(job)) == 1
    assert_undisturbed(run, ENDLESS)


@pytest.mark.parametrize("partition", ["ended", "batch"])
def test_a_site_without_requeue_gets_a_job_that_follows(partition, start_endless, assert_undisturbed, cluster, submit):
    """One that ends what it preempts, and one that forbids it.  What follows completes to the bits of one job."""
    job, run = start_endless(options=[f"--partition={partition}"])
    if partition == "ended":
        cluster.run(*shlex.split(URGENT))
    else:
        cluster.run("scontrol", "update", f"JobId={job.number}", "Requeue=0")
        cluster.run("scancel", "--batch", "--signal=USR1", job.number)
    job.wait_for(lambda: "continues after this one" in job.log())
    [number] = re.findall(r"job (\d+) continues after this one", job.log())
    cluster.run("scontrol", "hold", number)
    following = submit.adopt(number)
    job.finish()
    made = len(read_digests(run))
    (job.folder / "endless.yaml").write_text(ENDLESS.replace("generations: 1000000", f"generations: {made + 10}"))
    cluster.run("scontrol", "release", number)
    first, second = (cluster.job(one.number) for one in (job, following))
    names = ("NumTasks", "TimeLimit", "Partition", "Command")
    assert {name: second[name] for name in names} == {name: first[name] for name in names}
    assert int(second["NumNodes"].partition("-")[0]) == int(first["NumNodes"])
    assert following.finish() == "COMPLETED", following.log()
    assert f"continuing from generation {made}" in following.log() and job.restarts() == 0
    assert len(assert_undisturbed(run, ENDLESS)) == made + 10
    assert "continues after this one" not in following.log()


def test_jobs_do_not_follow_one_another_for_ever(start_endless, cluster):
    job, _ = start_endless(environment={"MPIES_SUCCESSORS": "0"})
    cluster.run("scontrol", "update", f"JobId={job.number}", "Requeue=0")
    cluster.run("scancel", "--batch", "--signal=USR1", job.number)
    job.finish()
    assert "the same sbatch continues from there" in job.log() and "continues after" not in job.log()


def test_the_loss_of_the_node_of_the_batch_script_ends_in_a_resumed_run(start_endless, assert_undisturbed, cluster):
    job, run = start_endless()
    with cluster.without("n1"):
        job.wait_for(lambda: "DOWN" in cluster.state_of("n1"))
        job.wait_for(job.is_back_in_the_queue)
    job.wait_for(cluster.is_idle)  # Slurm still orders a node that comes back to end what ran there
    check_resumed(job, run, assert_undisturbed)


@pytest.mark.parametrize("way", ["auto", "mpirun"])
def test_a_lost_node_is_left_behind_and_the_job_goes_on(way, start_endless, assert_undisturbed, cluster):
    job, run = start_endless(environment={"MPIES_LAUNCHER": way})
    with cluster.without("n3"):
        job.wait_for(lambda: read_metrics(run)[-1]["ranks"] == "4" and len(launcher(job)) == 2)
        assert job.restarts() == 0 and "the loss of n3" in job.log()
        job.wait_for(lambda: " cost " in job.log())
        assert_undisturbed(run, ENDLESS)


def test_too_few_nodes_send_the_job_back_into_the_queue(start_endless, assert_undisturbed, cluster):
    job, run = start_endless(environment={"MPIES_MIN_RANKS": "6"})
    with cluster.without("n3"):
        check_resumed(job, run, assert_undisturbed, mend=lambda: cluster.boot("n3"))
    assert "but --min-ranks is 6" in job.log()


def test_a_node_that_is_lost_before_the_first_start_is_left_out(submit, assert_undisturbed, cluster):
    cluster.wait_until_idle()
    with cluster.without("n3"):  # Slurm notices it after SlurmdTimeout, and gives the node to a job until then
        job = submit("train.sbatch", "pole.yaml")
        assert job.finish() == "COMPLETED", job.log()
    run = submit.folder / "runs" / "pole"
    assert {row["ranks"] for row in read_metrics(run)} == {"4"}
    assert_undisturbed(run, TO_TARGET)


def test_too_few_nodes_at_the_first_start_send_the_job_back_into_the_queue(submit, assert_undisturbed, cluster):
    cluster.wait_until_idle()
    with cluster.without("n3"):
        job = submit("train.sbatch", "pole.yaml", environment={"MPIES_MIN_RANKS": "6"})
        job.wait_for(lambda: "back into the queue" in job.log() and job.is_back_in_the_queue())
    assert "but --min-ranks is 6" in job.log()
    job.wait_for(cluster.is_idle)
    job.start_again()
    assert job.finish() == "COMPLETED", job.log()
    assert_undisturbed(submit.folder / "runs" / "pole", TO_TARGET)


def test_a_cancelled_job_stays_ended_and_loses_nothing(start_endless, assert_undisturbed, cluster):
    job, run = start_endless()
    cluster.run("scancel", job.number)
    assert job.finish() == "CANCELLED"
    assert job.restarts() == 0 and not (run / "finished.yaml").exists()
    assert newest_checkpoint(run, print)[1]["generation"] == len(assert_undisturbed(run, ENDLESS))


def test_a_mistake_ends_the_job_with_code_2(submit):
    job = submit("train.sbatch", "pole.yaml", "solver.sigam=1")
    assert job.finish() == "FAILED"
    assert job.cluster.job(job.number)["ExitCode"] == "2:0"
    assert "did you mean solver.sigma?" in job.log()


ONE_NODE = ["--nodes=1", "--ntasks=2"]


def test_an_array_of_seeds_is_trained_evaluated_and_compared(submit, assert_undisturbed):
    short = "stop.generations=6"
    job = submit("seeds.sbatch", "pole.yaml", short, options=["--array=1-3", *ONE_NODE])
    runs = {seed: submit.folder / "runs" / f"pole_{short}_seed={seed}" for seed in (1, 2, 3)}
    pictures = submit.folder / "runs" / f"pole_{short}_seed=comparison"
    expected = {f"comparison_vs_{axis}.png" for axis in ("iteration", "steps", "time")}
    job.wait_for(lambda: {path.name for path in pictures.glob("*.png")} == expected)
    assert job.log().count("held-out episodes") >= 3
    for seed, run in runs.items():
        assert_undisturbed(run, TO_TARGET, f"seed={seed}")
        assert f"CartPole-v1, runs/{run.name}/best.h5" in job.log()


def test_a_task_of_an_array_comes_back_alone(submit, cluster):
    job = submit("seeds.sbatch", "endless.yaml", options=["--array=1-2", *ONE_NODE])
    runs = [submit.folder / "runs" / f"endless_seed={seed}" for seed in (1, 2)]
    job.wait_for(lambda: all(len(read_digests(run)) >= 3 for run in runs))
    last = cluster.job(f"{job.number}_2")  # this one has the number of the whole array
    assert last["JobId"] == job.number
    cluster.run("scancel", "--batch", "--signal=USR1", f"{job.number}_2")
    job.wait_for(lambda: cluster.job(f"{job.number}_2")["JobState"] == "PENDING")
    assert cluster.job(f"{job.number}_1")["JobState"] == "RUNNING"


def test_the_jobs_of_an_array_share_a_sweep(submit, assert_undisturbed):
    values = ["solver.sigma=0.2,0.4", "stop.generations=4", "--seeds", "2"]
    options = ["--array=1-2", "--output=%x-%A_%a.out", *ONE_NODE]
    job = submit("sweep.sbatch", "pole.yaml", *values, options=options)
    folder = submit.folder / "runs" / "pole_sweep_solver.sigma_stop.generations"
    job.wait_for(lambda: len(list(folder.glob("*/finished.yaml"))) == 4 and job.log().count("nothing is left of") == 2)
    for sigma in ("0.2", "0.4"):
        for seed in ("1", "2"):
            run = folder / f"sigma={sigma}_seed={seed}"
            assert len(assert_undisturbed(run, TO_TARGET, f"solver.sigma={sigma}", f"seed={seed}")) == 4


def test_a_sweep_comes_back_after_a_signal(submit, cluster):
    job = submit("sweep.sbatch", "endless.yaml", "solver.sigma=0.1,0.2,0.3")
    folder = submit.folder / "runs/endless_sweep_solver.sigma"
    job.wait_for(lambda: sum(len(read_digests(table.parent)) >= 3 for table in folder.glob("*/metrics.csv")) >= 2)
    cluster.run("scancel", "--batch", "--signal=USR1", job.number)
    job.wait_for(job.is_back_in_the_queue)
    assert "was stopped and has lost nothing; back into the queue" in job.log()


def test_launch_submits_a_script_that_trains(submit, assert_undisturbed, cluster):
    size = ["--nodes", "3", "--ranks-per-node", "2", "--time", "30", "--sbatch", "--comment=a-site --nice=7"]
    command = [sys.executable, "-m", "mpies", "launch", "slurm", "pole.yaml", *size, "stop.generations=6"]
    said = cluster.run(*command, cwd=submit.folder)
    job = submit.adopt(said.split()[-1])
    assert job.finish() == "COMPLETED", job.log()
    shown = cluster.job(job.number)
    assert (shown["NumNodes"], shown["Comment"], shown["Nice"]) == ("3", "a-site", "7")
    run = submit.folder / "runs" / "pole_stop.generations=6"
    assert {row["ranks"] for row in read_metrics(run)} == {"6"}
    assert len(assert_undisturbed(run, TO_TARGET)) == 6


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="there is no shellcheck")
def test_scripts_pass_shellcheck(here):
    (here / "pole.yaml").write_text(TO_TARGET)
    for more in ([], ["--sweep", "solver.sigma=0.1,0.2", "--seeds", "2"]):
        invoke("launch", "slurm", "pole.yaml", "--dry-run", *more, code=0)
    made = [here / "runs" / f"pole{end}.sbatch" for end in ("", "_sweep_solver.sigma")]
    scripts = [*(HOME / "slurm").iterdir(), HOME / "tests/install.sh", *made]
    done = subprocess.run(["shellcheck", "-x", *scripts], cwd=HOME, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
