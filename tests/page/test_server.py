"""What the live page's server says, and what it refuses."""

import gzip
import hashlib
import http.client
import json
import signal
import subprocess
import sys
import time
from urllib.parse import quote

import numpy as np
import pytest

from mpies.config import ConfigError
from mpies.dashboard import POINTS, serve, thin
from tests.page.conftest import line


def get(server, path, **headers):
    """Status and content of an answer, the path sent as it is."""
    connection = http.client.HTTPConnection(*server.server_address[:2], timeout=10)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, gzip.decompress(content) if answer.headers["Content-Encoding"] == "gzip" else content


def ask(server, path):
    status, content = get(server, path)
    assert status == 200, content
    return json.loads(content)


def test_the_list_names_every_run_with_its_newest_numbers(server):
    listed = {one["name"]: one for one in ask(server, "/api/runs")}
    assert list(listed) == ["first", "group/long", "torn"]
    long = listed["group/long"]
    assert (long["generation"], long["return_mean"], long["eval_mean"], long["state"]) == (2000, 2000, 150, "stopped")
    assert listed["torn"]["environment"] is None and "generation" not in listed["torn"]


def test_a_long_run_is_thinned_and_then_only_grows(server, folder):
    said = ask(server, "/api/run?name=group/long")
    assert said["again"] and said["rows"] == 2000 and len(said["columns"]["generation"]) == POINTS
    assert said["columns"]["generation"][-1] == 2000 and said["columns"]["return_min"][0] == -4
    assert said["columns"]["return_max"][0] == 10 and said["columns"]["return_mean"][0] == 3
    assert said["newest"]["return_mean"] == 2000 and said["newest"]["eval_mean"] == 150  # not the mean of several
    assert said["columns"]["eval_interval"][0] == pytest.approx(1.96 * 20 / 10)
    since = f"/api/run?name=group/long&version={said['version']}&after={said['rows']}&log={said['log']['end']}"
    with open(folder / "group/long/metrics.csv", "a") as file:
        file.write(line(2001) + line(2002)[:20])
    with open(folder / "group/long/log.txt", "a") as file:
        file.write("more\n")
    news = ask(server, since)
    assert not news["again"] and news["columns"]["generation"] == [2001] and news["log"]["text"] == "more\n"
    (folder / "group/long/metrics.csv").write_text("generation,seconds\n1,2\n")
    again = ask(server, since)
    assert again["again"] and again["columns"] == {"generation": [1], "seconds": [2]}


def test_half_written_and_missing_files_are_no_error(server, folder):
    assert ask(server, "/api/run?name=torn")["rows"] == 0
    (folder / "torn" / "metrics.csv").unlink()
    assert ask(server, "/api/run?name=torn")["columns"] == {}
    assert ask(server, "/api/run?name=first&version=0&after=99&log=9999")["again"]
    assert ask(server, "/api/run?name=first&version=x&after=-1&log=1e9")["again"]


@pytest.mark.parametrize(
    "path",
    [
        "/../secret.txt",
        "/%2e%2e/secret.txt",
        "//etc/passwd",
        "/page/../../secret.txt",
        "/download?run=first&file=../../secret.txt",
        "/download?run=..&file=secret.txt",
        "/download?run=first/../..&file=log.txt",
        "/download?run=first&file=/etc/passwd",
        "/download?run=/etc&file=passwd",
        "/download?run=outside&file=log.txt",
        "/download?run=first&file=report.html",
        "/api/run?name=../outside",
        "/api/run?name=outside",
        "/api/run",
    ],
)
def test_nothing_outside_the_folder_is_served(path, server, folder):
    outside = folder.parent / "outside"
    outside.mkdir()
    for name in ("config.yaml", "log.txt"):
        (outside / name).write_text("a secret")
    (folder / "outside").symlink_to(outside)
    (folder / "first" / "report.html").symlink_to(folder.parent / "secret.txt")
    status, content = get(server, path)
    assert status == 404 and b"secret" not in content and b"root:" not in content


def test_links_inside_a_run_show_nothing(server, folder):
    for name in ("config.yaml", "log.txt", "metrics.csv", "best.h5"):
        (folder / "first" / name).unlink()
        (folder / "first" / name).symlink_to(folder.parent / "secret.txt")
    for path in ("/api/runs", "/api/run?name=first", "/download?run=first&file=best.h5"):
        assert b"a secret" not in get(server, path)[1]


def test_only_gets_from_this_machine_are_answered(server):
    assert get(server, "/api/runs", Host="evil.example")[0] == 403
    assert get(server, "/api/runs", Host="localhost:8050")[0] == 200
    connection = http.client.HTTPConnection(*server.server_address[:2], timeout=10)
    connection.request("POST", "/api/runs", body=b"{}")
    assert connection.getresponse().status == 501


def test_looking_changes_nothing(server, folder):
    def state():
        return {
            str(path): (path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest())
            for path in folder.rglob("*")
            if path.is_file()
        }

    before = state()
    for path in ("/", "/api/runs", "/api/run?name=first", "/download?run=first&file=best.h5"):
        assert get(server, path)[0] == 200
    assert state() == before


def test_an_update_is_small_and_packed(server):
    connection = http.client.HTTPConnection(*server.server_address[:2], timeout=10)
    connection.request("GET", "/api/run?name=" + quote("group/long"), headers={"Accept-Encoding": "gzip"})
    assert len(connection.getresponse().read()) < 50_000


def test_mistakes_are_one_line(tmp_path, server):
    with pytest.raises(ConfigError, match="is no folder"):
        serve(tmp_path / "absent", "127.0.0.1", 0)
    with pytest.raises(ConfigError, match="cannot be listened on"):
        serve(tmp_path, "127.0.0.1", server.server_address[1])
    with pytest.raises(ConfigError, match="cannot be listened on"):
        serve(tmp_path, "no.such.host.invalid", 0)


def test_the_command_listens_on_loopback_and_ends_at_ctrl_c(tmp_path):
    command = [sys.executable, "-m", "mpies", "dashboard", str(tmp_path), "--port", "0"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    # A shell's background jobs, of which this may be one, ignore it.
    heeding = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
    process = subprocess.Popen(command, **pipes, **heeding)
    try:
        assert "http://127.0.0.1:" in process.stdout.readline()
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
        assert process.returncode == 0 and errors == ""
    finally:
        process.kill()


def test_thinning_keeps_extremes_and_gaps():
    values = np.array([3.0, np.nan, 1.0, np.nan, np.nan])
    columns = thin({"return_min": values, "return_max": values, "sigma": values, "steps": np.arange(5.0)}, 2)
    np.testing.assert_array_equal(columns["return_min"], [3, 1, np.nan])
    np.testing.assert_array_equal(columns["return_max"], [3, 1, np.nan])
    np.testing.assert_array_equal(columns["sigma"], [3, 1, np.nan])
    np.testing.assert_array_equal(columns["steps"], [1, 3, 4])
