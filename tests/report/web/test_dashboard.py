"""The dashboard's server: what it answers, and what it refuses."""

import gzip
import json
import os
from itertools import product

import pytest

from mpies.core.errors import ConfigError
from mpies.report.web.dashboard import serve
from mpies.report.web.run_update import list_pictures, read_update
from mpies.runs.reader import RunView
from tests.report.web.served_runs import append, ask, get, line
from tests.support import read_files


def test_runs_and_updates_are_answered_as_json_small_and_compressed(server):
    status, content = get(server, "/api/runs")
    assert status == 200 and [run["name"] for run in json.loads(content)] == ["first", "group/long", "truncated"]
    status, headers, content = ask(server, "/api/run?name=group%2Flong", **{"Accept-Encoding": "gzip"})
    assert status == 200 and headers["Content-Encoding"] == "gzip" and len(content) < 50_000
    update = gzip.decompress(content)
    assert len(update) > 2 * len(content) and json.loads(update)["columns"]["generation"][-1] == 2000


def test_what_a_client_has_already_is_not_sent_again(server, run_folder):
    status, headers, content = ask(server, "/api/run?name=first")
    known = {"If-None-Match": headers["ETag"]}
    assert status == 200 and content
    assert get(server, "/api/run?name=first", **known) == (304, b"")
    append(run_folder / "first/metrics.csv", line(4))
    assert get(server, "/api/run?name=first", **known)[0] == 200


def test_the_page_is_part_of_the_package_and_a_download_is_named_after_its_run(server, run_folder):
    page = {"/": b"<title>", "/page.js": b"use strict", "/page.css": b"body", "/uPlot.js": b"uPlot", "/uPlot.css": b"{"}
    download = "/file?run=group/long&file=best.h5"
    for path, words in {**page, download: b"a policy" * 100}.items():
        status, headers, content = ask(server, path)
        assert status == 200 and words in content and "default-src 'self'" in headers["Content-Security-Policy"], path
    assert headers["Content-Disposition"] == "attachment; filename*=UTF-8''group-long-best.h5"
    os.truncate(run_folder / "group/long/best.h5", 2**40)  # more than the memory holds
    assert get(server, download)[0] == 404


@pytest.mark.parametrize(
    "path",
    [
        *("/../secret.txt", "/%2e%2e/secret.txt", "//etc/passwd", "/page/../../secret.txt"),
        *("/file?run=first&file=../../secret.txt", "/file?run=..&file=secret.txt", "/file?run=first&file=/etc/passwd"),
        *("/file?run=first/../..&file=log.txt", "/file?run=/etc&file=passwd", "/file?run=outside&file=log.txt"),
        *("/file?run=first&file=report.html", "/file?run=first&file=ranks.json", "/file?run=first&file=best.h5"),
        *("/api/run?name=../outside", "/api/run?name=outside", "/api/run"),
        *("/api/run?name=first", "/api/runs", "/api/run?name=linked"),
    ],
)
def test_nothing_outside_the_folder_is_served(path, server, run_folder):
    outside, secret = run_folder.parent / "outside", run_folder.parent / "secret.txt"
    outside.mkdir()
    for name in ("config.yaml", "log.txt"):
        (outside / name).write_text("a secret")
    (run_folder / "outside").symlink_to(outside)
    (run_folder / "linked").mkdir()
    for name in ("first/log.txt", "first/metrics.csv", "first/best.h5", "first/report.html", "linked/config.yaml"):
        (run_folder / name).unlink(missing_ok=True)
        (run_folder / name).symlink_to(secret)
    status, content = get(server, path)
    assert status == (200 if path in ("/api/runs", "/api/run?name=first") else 404)
    assert b"a secret" not in content and b"root:" not in content


def test_only_gets_for_this_machine_are_answered(server):
    assert get(server, "/api/runs", Host="evil.example")[0] == 403
    for host in ("localhost:8050", "127.0.0.1", "[::1]:8050", "runs.localhost"):
        assert get(server, "/api/runs", Host=host)[0] == 200
    assert ask(server, "/api/runs", "POST")[0] == 501


@pytest.mark.parametrize("path", ["/", "/page.js", "/api/runs", "/file?run=first&file=best.h5", "/absent"])
def test_who_does_not_know_the_token_sees_nothing(path, server):
    for cookie in ("", f"{server.cookie}=", f"{server.cookie}=x{server.token}", f"x={server.token}", "é"):
        status, content = get(server, path, Cookie=cookie)
        assert status == 403 and content == b"403 open the address with ?token= that mpies dashboard has printed\n"
    assert get(server, f"{path}{'&' if '?' in path else '?'}token=%ff", Cookie="")[0] == 403
    assert server.token not in server.cookie


def test_the_printed_address_hands_over_a_cookie_and_the_cookie_is_enough(server):
    status, headers, content = ask(server, server.url.partition(str(server.server_address[1]))[2], Cookie="")
    assert status == 200 and b"<title>" in content
    cookie, *flags = headers["Set-Cookie"].split("; ")
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(flags)
    assert get(server, "/api/runs", Cookie=cookie)[0] == 200
    assert get(server, f"/api/runs?token={server.token}", Cookie="")[0] == 200  # for scripts


def test_another_site_has_no_answer_even_with_the_cookie(server):
    foreign = [{"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Origin": "https://evil.example"}]
    foreign += [{"Origin": "null"}, {"Origin": "http://localhost:1", "Host": "localhost:2"}]
    for headers, path in product(foreign, ("/api/runs", "/api/compare?run=first", "/file?run=first&file=best.h5")):
        status, content = get(server, path, **headers)
        assert status == 403 and content == b"403 another site has asked; only the page itself may\n"
    own = {"Host": "localhost:2", "Origin": "http://localhost:2", "Sec-Fetch-Site": "same-origin"}
    assert get(server, "/api/runs", **own)[0] == 200
    assert get(server, "/", **{"Sec-Fetch-Site": "cross-site"})[0] == 200  # a link to the page, which holds no data


def test_reading_changes_no_file(server, run_folder):
    def state():
        return {path: (path.stat().st_mtime_ns, content) for path, content in read_files(run_folder).items()}

    before = state()
    for path in ("/", "/api/runs", "/api/run?name=first", "/file?run=first&file=best.h5"):
        assert get(server, path)[0] == 200
    assert state() == before


def test_pictures_and_films_are_listed_and_sent_also_in_parts(server, run_folder):
    run, view, picture = run_folder / "first", RunView(run_folder, "first"), run_folder / "first/reward.png"
    (run / "film.mp4").write_bytes(bytes(range(256)) * 10)
    picture.write_bytes(b"a picture")
    for name in (".unfinished.mp4", "drawing.svg"):
        (run / name).touch()
    (run / "link.png").symlink_to(run_folder.parent / "secret.txt")
    assert [name for name, _ in list_pictures(view)] == ["film.mp4", "reward.png"]
    assert [name for name, _ in read_update(view)["pictures"]] == ["film.mp4", "reward.png"]
    assert get(server, "/file?run=first&file=reward.png") == (200, b"a picture")
    hidden = "link.png ../../secret.txt ranks.json drawing.svg absent.png ..%2Ffirst%2Freward.png %00.png"
    for file in hidden.split():
        assert get(server, f"/file?run=first&file={file}")[0] == 404
    parts = ("bytes=5-9", 206, 5, 5), ("bytes=2550-", 206, 246, 10), ("bytes=9999-", 200, 0, 2560), ("x", 200, 0, 2560)
    for wanted, *answered in parts:
        status, headers, content = ask(server, "/file?run=first&file=film.mp4", Range=wanted)
        assert [status, content[0], len(content)] == answered and headers["Content-Type"] == "video/mp4"
    os.utime(picture, ns=(0, 10**18 + 10**8))
    before = list_pictures(view)
    os.utime(picture, ns=(0, 10**18 + 9 * 10**8))  # drawn twice in a second
    assert list_pictures(view) != before


def test_errors_are_one_line(tmp_path, server):
    with pytest.raises(ConfigError, match="is not a folder; give the one that contains your runs"):
        serve(tmp_path / "absent", "127.0.0.1", 0)
    for host, port in (("127.0.0.1", server.server_address[1]), ("no.such.host.invalid", 0)):
        with pytest.raises(ConfigError, match="cannot be listened on"):
            serve(tmp_path, host, port)
