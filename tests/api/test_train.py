"""mpies.train, and its callbacks: in this process, in a thread, on ranks of mpirun, in a job of its own."""

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gymnasium  # noqa: F401 (it sets a variable of the process when it is imported)
import numpy as np
import pytest
import yaml

import mpies
from mpies.comm import mpiexec
from mpies.config.loading import validate_config
from mpies.runs.formats.checkpoint import newest_checkpoint
from mpies.runs.formats.metrics import COLUMNS, as_numbers, read_digests, read_metrics
from tests.support import CARTPOLE, FAULTY, FAULTY_MODULE, environment_module, mpiexec_or_skip, read_files, wait_for

VALUES, ENDLESS = yaml.safe_load(CARTPOLE), "stop.generations=1000000"
IN_PROCESS_OR_JOB = pytest.mark.parametrize("ranks", [None, 1])  # a job calls back whatever its ranks
pytestmark = pytest.mark.usefixtures("here")


def train(config, *overrides, **options):
    return mpies.train(config, *overrides, **{"out": "run", "progress": False} | options)


def test_keywords_are_settings_by_the_end_of_their_key():
    run = train(VALUES, seed=3, generations=np.int64(1), hidden=[4], solver={"kind": "snes", "population": 6})
    found = run.config
    assert (found.seed, found.stop.generations, found.policy.hidden, found.solver.kind) == (3, 1, [4], "snes")
    assert repr(run.best.evaluate(2)).startswith("Evaluation(mean ")


ROOM = """
import gymnasium, numpy as np, mpies

class Room(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-99, 99, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, loss=0.99):
        self.loss = loss

    def reset(self, seed=None, options=None):
        self.degrees = np.random.default_rng(seed).uniform(-5, 5, 1)
        return np.float32(self.degrees), {}

    def step(self, heating):
        self.degrees = self.loss * self.degrees + heating
        return np.float32(self.degrees), -float(self.degrees[0] ** 2), False, False, {}
"""
TRAIN_ROOMS = """
if __name__ == "__main__":
    short = lambda: gymnasium.wrappers.TimeLimit(Room(), 5)
    given = {"class": (Room, None), "class1": (Room, 1), "lambda1": (short, 1)}
    given["id"] = {"environment": {"id": "__main__:Room"}}, None
    for name, (environment, ranks) in given.items():
        mpies.train(environment, "environment.max_steps=9", "solver.population=8", "noise.size=20000", ranks=ranks,
                    generations=2, out=name, progress=False)
"""
ROOM_SETTINGS = {"max_steps": 9, "solver": {"population": 8}, "noise": {"size": 20000}}


def test_an_environment_is_handed_over_as_an_object(tmp_path):
    (tmp_path / "room.py").write_text(ROOM + TRAIN_ROOMS)
    subprocess.run([sys.executable, "room.py"], check=True, env=os.environ | mpiexec.environment(), timeout=200)
    found = [read_digests(tmp_path / name) for name in ("class", "class1", "id", "lambda1")]
    assert found[0] == found[1] == found[2] != found[3]
    run = mpies.train(tmp_path / "class1" / "config.yaml", out="class1", generations=3, progress=False)  # by its file
    assert run.generation == 3
    with pytest.raises(mpies.EnvironmentProblem, match="was handed over in Python and is in no file"):
        mpies.train(tmp_path / "lambda1" / "config.yaml", out="lambda1", generations=3, progress=False)


def test_lambdas_and_objects_that_differ_have_runs_of_their_own():
    def make(loss):
        return lambda: room(loss)

    exec(ROOM, namespace := {"__name__": "notebook"})
    room = namespace["Room"]
    given = [make(0.9), make(0.1), make(0.9), room(0.9), room(0.1)]
    runs = [mpies.train(each, progress=False, generations=1, **ROOM_SETTINGS) for each in given]
    assert len({run.path for run in runs}) == 4 and runs[0].path == runs[2].path
    means = [run.best.evaluate(5).mean for run in runs]  # each in its own environment, also after others
    assert means[0] == means[2] == means[3] != means[1] == means[4]


def test_jobs_and_threads_with_runs_of_their_own_train_side_by_side(recipe, digests_of):
    before = process_state()
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(train, recipe, out=out) for out in ("a", "b")]
        assert [read_digests(run.result().path) for run in runs] == [digests_of(CARTPOLE)] * 2
    assert process_state() == before
    exec(ROOM, namespace := {"__name__": "__main__"})
    room = namespace["Room"]
    jobs = [mpies.start(room(loss), out=str(loss), generations=2, ranks=1, **ROOM_SETTINGS) for loss in (0.9, 0.1)]
    assert [job.wait(100).generation for job in jobs] == [2, 2]


def test_an_environment_that_ranks_of_a_job_cannot_get_or_make_is_refused(recipe, tmp_path):
    lock = threading.Lock()
    with pytest.raises(mpies.EnvironmentProblem, match=r"^test_\w+ cannot be sent to other processes \(TypeError"):
        train(lambda: lock, ranks=2)
    with pytest.raises(mpies.EnvironmentProblem, match="did you mean CartPole-v"):
        train(recipe, "environment.id=CartPool-v1", ranks=1)
    assert not (tmp_path / "run").exists()


@IN_PROCESS_OR_JOB
def test_a_run_goes_on_in_the_background_until_it_is_stopped(ranks):
    seen = []
    settings = {"out": "run", "ranks": ranks, "callbacks": lambda run, row: seen.append(row["generation"])}
    job = mpies.start(VALUES, ENDLESS, "evaluation.every=0", **settings)
    try:
        wait_for(lambda: job.run is not None and len(job.run.metrics["generation"]) > 2)
        assert job.is_running and repr(job).startswith("RunInBackground(Run('") and "<img" in job._repr_html_()
        with pytest.raises(TimeoutError):
            job.wait(0.01)
    finally:
        run = job.stop()
    assert (run.status, run.reason, job.is_running) == ("finished", "callback", False)
    assert seen == [*range(1, len(seen) + 1)] and len(seen) > 2


def test_a_mistake_of_the_background_is_raised_by_wait():
    with pytest.raises(mpies.ConfigError, match="the nearest are cartpole"):
        mpies.start("cartpol").wait()


class Threads(set):
    """Those of an earlier test may end meanwhile, so a later state has the same ones or fewer."""

    def __eq__(self, earlier):
        return self <= earlier


def process_state():
    """What training must leave as it was; a later state stands on the left."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
    return {
        "handlers": [signal.getsignal(number) for number in numbers],
        "threads": Threads(threading.enumerate()),
        "variables": dict(os.environ),
        "folder": os.getcwd(),
        "path": list(sys.path),
        "switch": sys.getswitchinterval(),
        "log": [list(logging.getLogger().handlers), logging.getLogger().level],
        "random": np.random.get_state()[1].tobytes(),
    }


@pytest.fixture
def recipe(write_config):
    return write_config(CARTPOLE, "recipe.yaml")


@pytest.mark.parametrize("config", [VALUES, validate_config(VALUES, "config")], ids=["mapping", "config"])
def test_a_config_of_python_gives_the_digests_of_the_command_line(config, digests_of):
    run = train(config, "stop.generations=4")
    assert read_digests(run.path) == digests_of(CARTPOLE)[:4]
    assert (run.status, run.reason, run.generation) == ("finished", "generations", 4)
    assert run.config.stop.generations == 4


def test_training_leaves_the_process_as_it_was(recipe, capsys):
    before = process_state()
    train(recipe)
    with pytest.raises(mpies.ConfigError):
        train(recipe, "noise.size=10", out="other")
    assert process_state() == before
    assert capsys.readouterr() == ("", "")


def test_a_run_goes_on_where_it_ended_and_a_complete_one_is_returned_at_once(recipe, digests_of):
    train(recipe, "stop.generations=3")
    rows = []
    run = train(recipe, callbacks=[lambda run, row: rows.append(row["generation"])], resume="must")
    assert read_digests(run.path) == digests_of(CARTPOLE) and rows == list(range(4, 11))
    files = read_files(run.path)
    assert train(recipe, callbacks=[lambda run, row: rows.append(row)]).status == "finished"
    assert len(rows) == 7 and read_files(run.path) == files


def test_without_out_a_run_is_named_by_its_config_and_overrides(recipe):
    for config, name in ((recipe, "recipe"), (VALUES, "CartPole-v1"), ("cartpole", "cartpole")):
        overrides = ["stop.generations=1", "noise.size=100000"]
        run = train(config, *overrides, out=None)
        assert run.path == Path.cwd() / "runs" / f"{name}_{'_'.join(overrides)}"
        assert run.config.environment.id == "CartPole-v1"


def test_values_of_numpy_and_paths_are_plain_values_in_the_config():
    solver = {**VALUES["solver"], "population": np.int64(16), "sigma": np.float64(0.1)}
    values = {**VALUES, "policy": {"hidden": (8,)}, "solver": solver}
    assert read_digests(train(values, "stop.generations=1").path)
    assert values["policy"]["hidden"] == (8,)
    policy = {"normalize_observations": np.False_, "init_from": Path("x.h5")}
    given = {"seed": np.int64(2**60 + 1), "policy": policy, "environment": {"id": "a", "kwargs": {"n": np.int64(2)}}}
    config = mpies.Config(**given)
    assert (config.seed, config.environment.kwargs) == (2**60 + 1, {"n": 2})
    assert (config.policy.normalize_observations, config.policy.init_from) == (False, "x.h5")


def test_a_mapping_may_have_sections_of_a_config():
    function = mpies.Config(environment={"id": "function:sphere", "dimension": 3}, stop={"generations": 1})
    run = train({"environment": function.environment, "stop": function.stop}, "solver.sigma=0.2", "seed=4")
    assert (run.config.environment.dimension, run.config.policy.kind, run.config.seed) == (3, "none", 4)
    run = train({**dict(function), "seed": 3}, "stop.generations=2", out="other")
    assert (run.config.seed, run.generation) == (3, 2)


MISTAKES = [
    ({"config": {"environment": {"id": "CartPole-v1"}, "solver": {"population": 101}}}, "must be even"),
    ({"config": 3}, "config must be a path, a recipe's name, a mapping, a Config, or an environment"),
    ({"config": "cartpol"}, "cartpole"),
    ({"overrides": ["sigma"]}, "must be KEY=VALUE"),
    ({"overrides": [0.05]}, "overrides must be texts"),
    ({"callbacks": 3}, "callbacks must be a function f(run, row), or a list "),
    ({"resume": "maybe"}, "resume must be one of auto, never, must"),
    ({"resume": "must"}, "contains no run to resume"),
    ({"ranks": 0}, "ranks must be a whole number"),
    ({"out": "/proc/nowhere"}, "/proc/nowhere"),
    ({"episodes": 3}, "episodes: may be solver.episodes or evaluation.episodes; "),
    ({"sigm": 0.1}, "sigm: is no key of a config; "),
    ({"sigma": "wide"}, "solver.sigma must be a number, but is the text 'wide'"),
]


def test_a_mistake_in_a_config_of_python_is_one_line_too():
    environment = {"id": "CartPole-v1"}
    for section in ({"kind": "snes", "sgima": 0.1}, {"kind": "nothing.py:Solver"}):
        with pytest.raises(mpies.ConfigError, match=r"^mpies.Config: solver\.(sgima|kind)[^\n]*$"):
            mpies.Config(environment=environment, solver=section)
    with pytest.raises(mpies.ConfigError, match=r"takes sections by their names, .*, use mpies.Config\(\*\*"):
        mpies.Config({"environment": environment})
    config = mpies.Config(environment=environment, seed=3)
    assert config == validate_config({"environment": environment, "seed": 3}, "config")
    assert config.model_copy(update={"seed": 4}).seed == 4 and isinstance(config, mpies.Config)
    for section, key in [(config, "seed"), (config.solver, "sigma"), (config.solver, "sgima")]:
        with pytest.raises(AttributeError, match=rf"^[^\n]*{key} cannot be set: a config does not change; [^\n]*$"):
            setattr(section, key, 3)


@pytest.mark.parametrize(("given", "words"), MISTAKES)
def test_a_mistake_is_a_config_error_of_one_line_and_nothing_is_written(given, words, tmp_path):
    given = {"config": VALUES, "overrides": []} | given
    config, overrides = given.pop("config"), given.pop("overrides")
    before = process_state()
    with pytest.raises(mpies.ConfigError) as caught:
        train(config, *overrides, **given)
    assert words in str(caught.value) and "\n" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None  # one traceback
    assert read_files(tmp_path) == {} and process_state() == before


def test_a_run_whose_episodes_fail_raises_and_can_be_opened(tmp_path, monkeypatch):
    (tmp_path / "faulty.py").write_text(FAULTY_MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(mpies.TrainingFailed, match=r"of generation 1 failed .*out of balance.*more than stop.max"):
        train(yaml.safe_load(FAULTY.format(share=0.7)))
    assert mpies.load("run").status == "stopped"


@pytest.mark.parametrize(("number", "ranks"), [(signal.SIGINT, None), (signal.SIGTERM, None), (signal.SIGINT, 1)])
def test_ctrl_c_returns_the_run_and_another_signal_goes_on_to_its_handler(number, ranks, recipe, digests_of):
    """In a job of its own, the signal comes to this process alone."""
    seen = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))

    def send(run, row):
        if row["generation"] == 3:
            signal.raise_signal(number)

    try:
        run = train(recipe, ENDLESS, callbacks=send, ranks=ranks)
    finally:
        signal.signal(signal.SIGTERM, before)
    made = run.generation
    assert made in (3, 4) or (ranks and made > 3)
    assert (run.status, run.reason) == ("stopped", "") and len(read_digests(run.path)) == made
    assert seen == ([] if number == signal.SIGINT else [number])
    assert read_digests(train(recipe, f"stop.generations={made + 2}").path)[:10] == digests_of(CARTPOLE)[: made + 2]


def test_a_second_ctrl_c_ends_training_at_once(recipe):
    def twice(run, row):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    before = process_state()
    with pytest.raises(KeyboardInterrupt):
        train(recipe, callbacks=twice)
    assert process_state() == before and mpies.load("run").status == "stopped"


RANKS_PROGRAM = """
import json, os, sys
import numpy as np
import mpies
from mpi4py import MPI
from mpies.core.threads import VARIABLES
world, config = MPI.COMM_WORLD, sys.argv[1]
answers = []
def ask(*overrides, **options):
    try:
        run = mpies.train(config, *overrides, progress=False, **options)
        answers.append([run.generation, run.reason])
    except Exception as error:
        answers.append([type(error).__name__, str(error)])
def wrong(run, row):
    raise KeyError("mine")
ask(out="all")
ask(out="stopped", callbacks=[lambda run, row: row["generation"] == 4])
ask(out="raised", callbacks=[wrong])
ask("solver.population=7", out="mistake")
os.environ.update(dict.fromkeys(VARIABLES, "9999"))
ask("stop.generations=1", out="threads")
mpies.minimize(lambda x: float(x @ x), np.ones(3), generations=1)
everything = world.gather(answers)
if world.rank == 0:
    print(json.dumps(everything))
"""


def test_ranks_of_mpirun_train_together_and_all_get_the_run_or_the_exception(recipe, digests_of):
    """Threads of linear algebra are warned of once for each run."""
    command = [mpiexec_or_skip(), "-n", "2", sys.executable, "-c", RANKS_PROGRAM, str(recipe)]
    done = mpiexec.run(command, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    answers = json.loads(done.stdout)
    for rank, (whole, stopped, raised, mistake, _) in enumerate(answers):
        assert whole == [10, "generations"] and stopped == [4, "callback"]
        others = ["TrainingFailed", "a callback raised KeyError: 'mine'"]
        assert raised == (others if rank else ["KeyError", "'mine'"])
        assert mistake[0] == "ConfigError" and "must be even" in mistake[1]
    assert read_digests("all") == digests_of(CARTPOLE)
    assert read_digests("stopped") == digests_of(CARTPOLE)[:4] and len(read_digests("raised")) == 1
    warning = "each of the 2 ranks of this node starts 9999 threads for linear algebra"
    assert done.stderr.count(warning) == 2, done.stderr


def test_a_job_of_its_own_is_followed_and_leaves_the_process_as_it_was(recipe, digests_of, capfd):
    rows, before = [], process_state()
    run = train(VALUES, ranks=2, callbacks=lambda run, row: rows.append(row))
    assert read_digests(run.path) == digests_of(CARTPOLE) and run.status == "finished"
    assert [row["generation"] for row in rows] == list(range(1, 11))
    assert [row["ranks"] for row in rows] == [2] * 10
    assert process_state() == before
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize(("last", "reason"), [(10**6, ""), (10, "the robot fell")])
def test_an_error_that_an_environment_logs_in_a_job_is_shown_and_not_taken_for_the_end(last, reason, tmp_path, capfd):
    log = 'logging.getLogger("robot").error("the sensor was late")'
    reset = f"self.count += 1\nif self.count == 2:\n    import logging\n    {log}"
    step = f'assert self.count < {last}, "the robot fell"'
    (tmp_path / "room.py").write_text(environment_module("Room", init="self.count = 0", reset=reset, step=step))
    values = {**VALUES, "environment": {"id": "room.py:Room"}, "evaluation": {"every": 0}}
    with pytest.raises(mpies.TrainingFailed, match=reason) if reason else contextlib.nullcontext():
        train(values, "solver.population=8", "stop.generations=3", ranks=1)
    assert "ERROR: the sensor was late\n" in capfd.readouterr().err


def test_a_limit_on_the_seconds_of_an_episode_holds_in_another_thread(tmp_path):
    wait, sleep = "self.wait = 0.3 if seed % 3 == 0 else 0", "time.sleep(self.wait)"
    (tmp_path / "slow.py").write_text(environment_module("Slow", reset=wait, step=sleep, length=3))
    config = {"environment": {"id": "slow.py:Slow", "episode_timeout": 0.25}, "policy": {"hidden": []}}
    config |= {"solver": {"population": 16}, "noise": {"size": 1000}, "stop": {"generations": 1, "max_failures": 1}}
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(train, config, "evaluation.episodes=1", "evaluation.every=0").result()
    assert 0 < run.metrics["failures"][0] == np.isnan(run.members(1).returns).sum() < 16


@IN_PROCESS_OR_JOB
def test_what_a_callback_gets_and_may_do(ranks, tmp_path, monkeypatch):
    """Its row is the line of metrics.csv as numbers, and the run that of its generation.  It may change the folder."""
    (tmp_path / "elsewhere").mkdir()
    rows, members, kept = [], [], []

    def note(run, row):
        monkeypatch.chdir(tmp_path / "elsewhere")
        found = run.members(row["generation"])
        members.append((found.returns.mean(), run.play(row["generation"], 0).played, found.returns[0]))
        assert run.generation == run.policy().generation == row["generation"] == run.metrics["generation"][-1]
        rows.append(row)
        kept.append(run)

    run = train(VALUES, "stop.generations=4", callbacks=note, ranks=ranks)
    assert (run.path, run.status) == (tmp_path / "run", "finished") and not list((tmp_path / "elsewhere").iterdir())
    recorded = [as_numbers(row) for row in read_metrics(run.path)]
    assert len(rows) == 4
    for row, expected in zip(rows, recorded, strict=True):
        assert set(COLUMNS) - {"digest"} <= row.keys() == expected.keys()
        assert {type(value) for value in row.values()} <= {int, float, type(None)}
        for name, value in row.items():
            assert value == (expected[name] if value is None else pytest.approx(expected[name], rel=1e-8)), name
            assert type(value) is type(expected[name]), name
    assert [row["eval_mean"] is None for row in rows] == [True, False] * 2
    assert [mean for mean, _, _ in members] == pytest.approx(run.metrics["return_mean"])
    assert all(played == first for _, played, first in members)
    assert (kept[0].generation, kept[0].status) == (4, "finished")  # a run that was kept is later what is on disk
    monkeypatch.chdir(tmp_path)
    further = train(VALUES, "stop.generations=6")
    assert kept[0].generation == kept[0].policy().generation == further.generation == 6
    assert len(kept[0].metrics["generation"]) == 6


def test_the_policy_of_a_callback_is_that_of_its_generation():
    policies, lengths = [], []

    def note(run, row):
        policies.append(run.policy())
        if row["generation"] == 6:
            policies[2] = run.policy(3)  # any of the past as well
            lengths.append([len(run.metrics["generation"]), run.generation, run.best.generation])

    run = train(VALUES, callbacks=note)
    for generation, policy in enumerate(policies, 1):
        expected = run.policy(generation)
        assert policy.generation == generation and np.array_equal(policy.parameters, expected.parameters)
        assert np.array_equal(policy(np.ones((3, 4))), expected(np.ones((3, 4))))
    assert lengths[0][:2] == [6, 6] and lengths[0][2] in (2, 4, 6)


@pytest.mark.parametrize(("ranks", "overlap"), [(None, ""), (1, ""), (None, "overlap: 1\n")])
def test_a_callback_that_returns_true_stops_the_run_and_it_can_go_on(ranks, overlap, digests_of):
    called, config = [], CARTPOLE + overlap
    values = yaml.safe_load(config)
    # As a job it may make further generations until it gets the word.
    run = train(values, ENDLESS, callbacks=lambda run, row: called.append(row) or len(called) == 3, ranks=ranks)
    made = run.generation
    assert len(called) == 3 and (made == 3 or (ranks and made > 3))
    assert (run.status, run.reason) == ("finished", "callback")
    ending = yaml.safe_load((run.path / "finished.yaml").read_text())
    assert ending == {"reason": "callback", "generation": made, "steps": int(read_metrics(run.path)[-1]["steps"])}
    assert newest_checkpoint(run.path, pytest.fail)[1]["generation"] == made
    assert read_digests(run.path)[:10] == digests_of(config)[:made]
    further = train(values, f"stop.generations={max(made + 2, 10)}")
    assert (further.generation, further.reason) == (max(made + 2, 10), "generations")
    assert read_digests(further.path)[:10] == digests_of(config)


def test_only_true_itself_and_that_of_numpy_stop():
    answers = iter([1, "yes", np.float64(1), np.False_, None, False, np.True_])
    run = train(VALUES, callbacks=lambda run, row: next(answers))
    assert (run.generation, run.reason) == (7, "callback")


@IN_PROCESS_OR_JOB
def test_what_a_callback_raises_comes_out_and_the_run_is_saved(ranks, digests_of):
    def fail(run, row):
        if row["generation"] == 5:
            raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        train(VALUES, callbacks=fail, ranks=ranks)
    run = mpies.load("run")
    made = run.generation
    assert newest_checkpoint(run.path, pytest.fail)[1]["generation"] == made
    if not ranks:
        assert made == 5 and run.status == "stopped" and run.reason == ""
    assert read_digests(train(VALUES).path) == digests_of(CARTPOLE)


def test_all_callbacks_are_called_in_turn_each_with_a_row_of_its_own():
    order = []
    callbacks = [
        lambda run, row: order.append("first") or row.clear(),
        lambda run, row: order.append(row["generation"]),
    ]
    train(VALUES, "stop.generations=2", callbacks=callbacks)
    assert order == ["first", 1, "first", 2]


def test_a_run_whose_newest_row_is_damaged_goes_on():
    metrics = train(VALUES, "stop.generations=4").path / "metrics.csv"
    *lines, newest = metrics.read_text().splitlines()
    metrics.write_text("\n".join([*lines, f"x{newest}\n"]))
    assert mpies.load("run").generation == mpies.load("run").policy().generation == 3
    rows = []
    assert train(VALUES, "stop.generations=6", callbacks=lambda run, row: rows.append(row), ranks=1).generation == 6
    assert rows[-1]["generation"] == 6
