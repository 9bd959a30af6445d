"""What the page shows of a run besides its curves: pictures and films."""

import http.client
import os

import pytest

from mpies.report.web.run_update import list_pictures, read_update
from mpies.runs.reader import RunView
from tests.report.web.served_runs import known_to
from tests.report.web.test_dashboard import get


def test_pictures_and_films_are_listed_and_sent(server, run_folder):
    run = run_folder / "first"
    (run / "film.mp4").write_bytes(bytes(range(256)) * 10)
    (run / "reward.png").write_bytes(b"a picture")
    (run / ".unfinished.mp4").touch()
    (run / "link.png").symlink_to(run_folder.parent / "secret.txt")
    (run / "drawing.svg").touch()
    assert [name for name, _ in list_pictures(RunView(run_folder, "first"))] == ["film.mp4", "reward.png"]
    assert [name for name, _ in read_update(RunView(run_folder, "first"))["pictures"]] == ["film.mp4", "reward.png"]
    assert get(server, "/file?run=first&file=reward.png") == (200, b"a picture")
    for file in (
        "link.png",
        "../../secret.txt",
        "ranks.json",
        "drawing.svg",
        "absent.png",
        "..%2Ffirst%2Freward.png",
        "%00.png",
    ):
        assert get(server, f"/file?run=first&file={file}")[0] == 404


def test_a_picture_that_is_drawn_twice_in_a_second_is_told_apart(run_folder):
    view, file = RunView(run_folder, "first"), run_folder / "first" / "reward.png"
    file.touch()
    os.utime(file, ns=(0, 10**18 + 10**8))
    before = list_pictures(view)
    os.utime(file, ns=(0, 10**18 + 9 * 10**8))
    assert list_pictures(view) != before


@pytest.mark.parametrize(
    ("wanted", "status", "first", "length"),
    [("bytes=5-9", 206, 5, 5), ("bytes=2550-", 206, 246, 10), ("bytes=9999-", 200, 0, 2560), ("x", 200, 0, 2560)],
)
def test_parts_of_films_are_sent(wanted, status, first, length, server, run_folder):
    (run_folder / "first" / "film.mp4").write_bytes(bytes(range(256)) * 10)
    connection = http.client.HTTPConnection(*server.server_address[:2], timeout=10)
    connection.request("GET", "/file?run=first&file=film.mp4", headers=known_to(server) | {"Range": wanted})
    answer = connection.getresponse()
    content = answer.read()
    assert (answer.status, content[0], len(content)) == (status, first, length)
    assert answer.headers["Content-Type"] == "video/mp4"
