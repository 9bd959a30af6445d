"""A run whose nodes are lost and come back: three nodes with an sshd each, one killed and one cut off the network."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from tests.support import HOME

pytestmark = [
    pytest.mark.nodes,
    pytest.mark.skipif("MPIES_TEST_NODES" not in os.environ, reason="takes minutes, as root: make test-nodes"),
    pytest.mark.skipif(os.geteuid() != 0, reason="nodes in network namespaces need root"),
    pytest.mark.skipif(shutil.which("sshd") is None, reason="there is no sshd: apt-get install openssh-server"),
]


def test_a_run_goes_on_without_lost_nodes_and_with_those_that_come_back(tmp_path):
    outcome, log = tmp_path / "outcome.json", tmp_path / "log.txt"
    script, options = HOME / "benchmarks/lost_nodes.py", ["--losses", "2", "--cut-at-stop", "--rank-at-start"]
    command = [sys.executable, script, *options, "--json", outcome, "--log", log]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{log.read_text()[-6000:]}"
    found = json.loads(outcome.read_text())
    assert found["summary"]["digests equal"] and found["summary"]["played once"]
    assert found["summary"]["exit code"] == 75 and found["summary"]["stop"] < 40  # though mpirun waits for a lost node
    assert sorted(event["how"] for event in found["events"] if event["event"] == "loss") == ["cut", "killed"]
    said = log.read_text()
    assert "ERROR supervisor: a rank of n3 ended before all ranks were connected" in said
    for event in found["events"]:
        word = {"loss": "the loss of", "return": "the return of"}[event["event"]]
        assert f"INFO supervisor: {word} {event['node']} cost " in said
    assert "continuing from generation" in said
