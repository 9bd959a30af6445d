"""Logs of ranks: standard error as text or JSON, and the run's log.txt."""

import contextlib
import json
import logging
import sys
from types import SimpleNamespace

from mpies.training.logs import JsonFormatter, LogFile, print_error
from mpies.training.progress import describe_generation


def make_record(message, who="rank 0"):
    return logging.makeLogRecord({"levelname": "WARNING", "msg": message, "who": who})


def test_with_json_every_line_of_a_run_is_an_object(run_mpies, monkeypatch, tmp_path):
    monkeypatch.setenv("MPIES_LOG", "json")
    small = "environment.dimension=3", "solver.population=4", "noise.size=10000"
    command = "train", "function:sphere", *small, "--out", "run"
    outcome = run_mpies(0, *command, "stop.generations=3")
    lines = [json.loads(line) for line in outcome.stdout.splitlines()]
    *entries, last = [line for line in lines if "phase" not in line]  # a busy machine takes its time
    assert [entry["generation"] for entry in entries] == [1, 2, 3]
    assert all(entry["severity"] == "INFO" and "return_mean" in entry for entry in entries)
    assert last["severity"] == "INFO" and last["message"].startswith("run: all generations done; generation 3, ")
    assert (last["reason"], last["run"]) == ("generations", "run")
    assert last["message"] in (tmp_path / "run" / "log.txt").read_text()
    resumed = run_mpies(0, *command, "stop.generations=4")
    records = [json.loads(line) for line in resumed.stderr.splitlines()]
    assert records == [{"severity": "INFO", "message": "run: continuing from generation 3", "rank": 0}]
    (refused,) = run_mpies(0, *command, "solver.sigma=-1").stderr.splitlines()
    refused = json.loads(refused)
    assert refused["severity"] == "ERROR" and "solver.sigma" in refused["message"]


def test_a_log_file_grows_by_a_line_for_each_record_but_those_that_the_disk_refuses(tmp_path):
    log_file = LogFile(tmp_path / "absent" / "log.txt")
    log_file.emit(make_record("lost"))
    (tmp_path / "absent").mkdir()
    log_file.emit(make_record("first"))
    log_file.emit(make_record("second", "rank 7"))
    row = {"generation": 5, "return_mean": 2.0, "return_std": 1.25, "return_min": -1.0, "return_max": 4.5}
    log_file.append(describe_generation(row, with_spread=True))
    first, second, third = log_file.path.read_text().splitlines()
    assert first.endswith(" WARNING rank 0: first") and second.endswith(" WARNING rank 7: second")
    assert third.endswith(" INFO rank 0: generation 5: return 2.00 (-1.00 to 4.50, deviation 1.25)")


def test_records_name_the_newest_number_of_their_rank():
    comm = SimpleNamespace(rank=3)
    formatter = JsonFormatter(comm)
    comm.rank = 2  # another rank was lost
    entry = json.loads(formatter.format(make_record("a message")))
    assert entry == {"severity": "WARNING", "message": "a message", "rank": 2}


def test_an_error_is_one_line_on_standard_error_and_raises_nothing_where_it_cannot_be_printed(capsys, monkeypatch):
    monkeypatch.delenv("MPIES_LOG", raising=False)
    print_error("no such file")
    monkeypatch.setenv("MPIES_LOG", "json")
    print_error("no such file")
    text, entry = capsys.readouterr().err.splitlines()
    assert text == "mpies: no such file"
    assert json.loads(entry) == {"severity": "ERROR", "message": "no such file"}
    with open("/dev/full", "w", buffering=1) as full, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", full)
        print_error("no such file")  # the caller still has to end all ranks
        with contextlib.suppress(OSError):
            full.close()
