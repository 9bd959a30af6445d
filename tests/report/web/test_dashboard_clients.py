"""The dashboard and clients that leave, dawdle or send nonsense: everyone is answered, and nothing is printed."""

import http.client
import io
import random
import re
import signal
import socket
import struct
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.report.web.served_runs import known_to
from tests.support import wait_for

PATHS = ["/", "/uPlot.js", "/api/runs", "/api/run?name=group/long", "/file?run=first&file=best.h5", "/absent"]


@pytest.fixture
def dashboard(run_folder, start_mpies):
    """Port and token of `mpies dashboard` over `run_folder`.  It must end at Ctrl-C with nothing on standard error."""
    (run_folder / "first" / "best.h5").write_bytes(bytes(30_000_000))  # more than the buffers of a connection hold
    process = start_mpies(0, "dashboard", run_folder, "--port", "0")
    port, token = re.search(r"http://127.0.0.1:(\d+)/\?token=(\S+)", process.stdout.readline()).groups()
    yield int(port), token
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 0 and errors == ""


def make_request(path="/", method="GET", host="localhost", token=""):
    path += f"{'&' if '?' in path else '?'}token={token}" if token else ""
    return f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()


def exchange(port, content, pause=0.0):
    """Send `content`, with a pause after each byte if one is given.  Returns the answer's head and body."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        for part in [content[i : i + 1] for i in range(len(content))] if pause else [content]:
            connection.sendall(part)
            time.sleep(pause)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    return head.decode(), body


def leave(port, content, wait):
    """Send `content` and close the connection after a while with a reset, whatever has been answered."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(content)
        time.sleep(wait)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def test_clients_that_leave_at_any_moment_are_no_error(dashboard):
    port, token = dashboard
    random_, cuts = random.Random(1), []
    for _ in range(120):
        content = make_request(random_.choice(PATHS), token=token)
        cuts.append((content[: random_.choice([0, 7, len(content), len(content)])], random_.uniform(0, 0.1)))
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda cut: leave(port, *cut), cuts))
    head, body = exchange(port, make_request("/api/runs", token=token))
    assert " 200 " in head and b"group/long" in body


@pytest.mark.flaky(reruns=1, reason="an answer must come within 5 s, while 200 threads of the test itself want to run")
def test_200_slow_clients_are_answered_and_hold_up_nobody(dashboard):
    port, token = dashboard
    slow = make_request("/page.css", token=token)
    with ThreadPoolExecutor(200) as pool:
        answers = pool.map(lambda _: exchange(port, slow, pause=0.02)[0].splitlines()[0], range(200))
        began = time.monotonic()
        assert " 200 " in exchange(port, make_request("/api/runs", token=token))[0]
        assert time.monotonic() - began < 5  # a fraction of the time that the others take, also on a busy machine
    assert [*answers] == ["HTTP/1.1 200 OK"] * 200


@pytest.mark.parametrize("path", PATHS)
def test_head_answers_like_get_without_the_content(path, server):
    answers = []
    for method in ("GET", "HEAD"):
        connection = http.client.HTTPConnection(*server.server_address[:2], timeout=10)
        for _ in range(2):  # a second request on the same connection: nothing is left over from the first
            connection.request(method, path, headers=known_to(server) | {"Accept-Encoding": "gzip"})
            answer = connection.getresponse()
            content = answer.read()
        connection.close()
        headers = {name: value for name, value in answer.getheaders() if name != "Date"}
        answers.append((answer.status, headers, content))
    (status, headers, content), (head_status, head_headers, nothing) = answers
    assert (status, headers) == (head_status, head_headers) and nothing == b""
    assert int(headers["Content-Length"]) == len(content) > 0


def test_nonsense_is_refused_in_one_line(dashboard):
    url = "malformed address or Host: Invalid IPv6 URL"
    for content, status, words in [
        (make_request(host="["), 400, url),
        (make_request(host="[::1"), 400, url),
        (make_request("http://[/"), 400, url),
        (make_request(method="POST"), 501, "Unsupported method"),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", 400, "Bad request syntax"),
        (b"GET / HTTP/9.9\r\n\r\n", 505, "Invalid HTTP version"),
        (b"GET / HTTP/1.1\r\n" + b"X: 1\r\n" * 200 + b"\r\n", 431, "Too many headers"),
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n", 414, "Request-URI Too Long"),
        (b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n", 403, "open it as localhost"),
    ]:
        head, body = exchange(dashboard[0], content)
        assert head.startswith(f"HTTP/1.1 {status} "), content
        assert words in body.decode() and body.count(b"\n") == 1 and body.endswith(b"\n"), content


def test_a_mistake_of_the_dashboard_is_an_answer_and_is_reported(server, monkeypatch, capsys):
    monkeypatch.setattr(server.runs, "summaries", lambda: 1 // 0)
    head, body = exchange(server.server_address[1], make_request("/api/runs", token=server.token))
    assert " 500 " in head and body.count(b"\n") == 1
    report = io.StringIO()
    wait_for(lambda: report.write(capsys.readouterr().err) and "ZeroDivisionError" in report.getvalue(), seconds=10)
    assert "Traceback" in report.getvalue()
