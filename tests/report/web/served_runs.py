"""Run directories with made-up numbers, a server of the dashboard over them, and what asks it."""

import http.client
import threading

import pytest

from mpies.report.web.dashboard import serve

HEADER = (
    "generation,seconds,episodes,steps,return_mean,return_std,return_min,return_max,length_mean,eval_mean,eval_std,"
    "failures,ranks,digest,steps_per_second,eval_episodes,idle_mean,idle_max,sigma,update_ratio,parameter_norm\n"
)
CONFIG = (
    "environment: {id: LunarLander-v3}\nsolver: {kind: openai_es}\nstop: {target: 200}\nevaluation: {episodes: 100}\n"
)


def line(generation):
    """A line of metrics.csv."""
    evaluation = ("150", "20", "100") if generation % 5 == 0 else ("", "", "")
    return (
        f"{generation},{generation * 0.5},{generation * 8},{generation * 800},{generation},3,{generation - 5},"
        f"{generation + 5},100,{evaluation[0]},{evaluation[1]},0,2,{'0' * 64},1600,{evaluation[2]},0.1,0.2,0.1,0.02,8\n"
    )


def known_to(server):
    """The header of a browser that has opened the address of the page."""
    return {"Cookie": f"other=1; {server.cookie}={server.token}"}


def ask(server, path, method="GET", **headers):
    """Status, headers and content of an answer; the path is sent as it is."""
    connection = http.client.HTTPConnection(*server.server_address[:2], timeout=10)
    connection.request(method, path, headers=known_to(server) | headers)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, answer.headers, content


def get(server, path, **headers):
    """Status and content of an answer."""
    return ask(server, path, **headers)[::2]


def append(path, *texts):
    """Write texts at the end of a file."""
    with open(path, "a") as file:
        file.writelines(texts)


@pytest.fixture
def run_folder(tmp_path):
    """A folder with the runs `first` (3 generations), `group/long` (2,000) and `truncated`, and a secret beside it."""
    folder = tmp_path / "runs"
    for name, generations in {"first": 3, "group/long": 2000, "truncated": 1}.items():
        run = folder / name
        run.mkdir(parents=True)
        (run / "config.yaml").write_text(CONFIG)
        (run / "metrics.csv").write_text(HEADER + "".join(line(number) for number in range(1, generations + 1)))
        (run / "log.txt").write_text("INFO rank 0: generation 1\n<script>alert('no')</script>\n")
        (run / "best.h5").write_bytes(b"a policy" * 100)
    (folder / "first" / "ranks.json").write_text('{"first": 1, "last": 3, "idle": [0.02, 0.31]}')
    (folder / "truncated" / "config.yaml").write_bytes(b"\xff{[")
    (folder / "truncated" / "metrics.csv").write_text("genera")
    (tmp_path / "secret.txt").write_text("a secret")
    return folder


@pytest.fixture
def server(run_folder):
    """A server of `run_folder` on a free port of this machine."""
    with serve(run_folder, "127.0.0.1", 0) as server:
        seconds = 0.02  # that a stop waits for
        threading.Thread(target=server.serve_forever, args=(seconds,), daemon=True).start()
        yield server
        server.shutdown()
