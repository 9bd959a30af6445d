"""What is said of a run while it goes on."""

import json

CONFIG = """
environment: {id: "function:sphere", dimension: 3}
solver: {population: 4}
noise: {size: 10000}
stop: {generations: 3}
"""


def test_the_log_of_a_cloud_gets_one_json_object_a_line(run_mpies, write_config, monkeypatch):
    monkeypatch.setenv("MPIES_LOG", "json")
    path = write_config(CONFIG)
    outcome = run_mpies(0, "train", path, "--out", "run")
    *entries, end = [json.loads(line) for line in outcome.stdout.splitlines()]
    assert end["severity"] == "INFO" and end["reason"] == "generations" and "all generations done" in end["message"]
    assert [entry["generation"] for entry in entries] == [1, 2, 3]
    assert all(entry["severity"] == "INFO" and "return_mean" in entry for entry in entries)
    resumed = run_mpies(0, "train", path, "--out", "run", "stop.generations=4")
    said = [json.loads(line) for line in resumed.stderr.splitlines()]
    assert said == [{"severity": "INFO", "message": "run: going on from generation 3", "rank": 0}]
