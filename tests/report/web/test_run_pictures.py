"""What the page shows of a run besides its curves: pictures and films."""

import http.client
import os

import pytest

from mpies.report.web.run_update import list_pictures, read_update
from mpies.runs.reader import RunView
from tests.report.web.served_runs import known_to
from tests.report.web.test_dashboard import get


def test_pictures_and_films_are_listed_and_sent(server, run_folder):
    run, view, picture = run_folder / "first", RunView(run_folder, "first"), run_folder / "first/reward.png"
    (run / "film.mp4").write_bytes(bytes(range(256)) * 10)
    picture.write_bytes(b"a picture")
    for name in (".unfinished.mp4", "drawing.svg"):
        (run / name).touch()
    (run / "link.png").symlink_to(run_folder.parent / "secret.txt")
    assert [name for name, _ in list_pictures(view)] == ["film.mp4", "reward.png"]
    assert [name for name, _ in read_update(view)["pictures"]] == ["film.mp4", "reward.png"]
    assert get(server, "/file?run=first&file=reward.png") == (200, b"a picture")
    hidden = (
        "link.png",
        "../../secret.txt",
        "ranks.json",
        "drawing.svg",
        "absent.png",
        "..%2Ffirst%2Freward.png",
        "%00.png",
    )
    for file in hidden:
        assert get(server, f"/file?run=first&file={file}")[0] == 404
    os.utime(picture, ns=(0, 10**18 + 10**8))
    before = list_pictures(view)
    os.utime(picture, ns=(0, 10**18 + 9 * 10**8))  # drawn twice in a second
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
