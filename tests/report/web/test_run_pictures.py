"""What the page shows of a run besides its curves: pictures, films, and the members of the newest generation."""

import http.client
import os

import numpy as np
import pytest

from mpies.report.curves import read_curves
from mpies.report.web.run_update import MAX_MEMBERS, list_pictures, read_members, read_update
from mpies.runs.ledger import pack_record, read_newest
from mpies.runs.reader import RunView
from tests.report.web.test_dashboard import get


def record(generation, members):
    returns = np.arange(members, dtype=float) / 3
    return pack_record({"generation": generation, "returns": returns, "steps": np.arange(members)[::-1] * 4})


def test_pictures_and_films_are_listed_and_sent(server, run_folder):
    run = run_folder / "first"
    (run / "film.mp4").write_bytes(bytes(range(256)) * 10)
    (run / "reward.png").write_bytes(b"a picture")
    (run / ".unfinished.mp4").touch()
    (run / "link.png").symlink_to(run_folder.parent / "secret.txt")
    (run / "drawing.svg").touch()
    assert [name for name, _ in list_pictures(RunView(run_folder, "first"))] == ["film.mp4", "reward.png"]
    assert [name for name, _ in read_update(RunView(run_folder, "first"), -1, -1, -1)["pictures"]] == [
        "film.mp4",
        "reward.png",
    ]
    assert get(server, "/picture?run=first&file=reward.png") == (200, b"a picture")
    for file in (
        "link.png",
        "../../secret.txt",
        "config.yaml",
        "drawing.svg",
        "absent.png",
        "..%2Ffirst%2Freward.png",
        "%00.png",
    ):
        assert get(server, f"/picture?run=first&file={file}")[0] == 404


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
    connection.request("GET", "/picture?run=first&file=film.mp4", headers={"Range": wanted})
    answer = connection.getresponse()
    content = answer.read()
    assert (answer.status, content[0], len(content)) == (status, first, length)
    assert answer.headers["Content-Type"] == "video/mp4"


def test_the_newest_generation_is_read_from_a_ledger_that_is_being_written(run_folder):
    file, view = run_folder / "first" / "ledger.bin", RunView(run_folder, "first")
    assert read_members(view, 2) is None
    file.write_bytes(record(1, 4) + record(2, 1000) + record(3, 4)[:-5])
    members = read_members(view, 2)
    assert (members["generation"], members["members"], len(members["lengths"])) == (2, 1000, MAX_MEMBERS)
    assert members["lengths"][0] == 0 and members["lengths"][-1] == 1998 and members["returns"][0] == 333
    file.write_bytes(b"no ledger")
    assert read_members(view, 2) is None
    damaged = bytearray(record(1, 4))
    damaged[-1] ^= 1
    file.write_bytes(damaged)
    with open(file, "rb") as opened:
        assert read_newest(opened) is None
    file.write_bytes(pack_record({"generation": 1}))
    assert read_members(view, 2) is None


def test_the_members_of_a_trained_run_are_shown(two_runs):
    view = RunView(two_runs, "one-seed-1")
    members, curves = read_members(view, 1), read_curves(two_runs / "one-seed-1")
    assert members["members"] == 8 and members["generation"] == 6
    assert np.mean(members["lengths"]) == pytest.approx(curves["length_mean"][-1], rel=1e-3)
    assert np.mean(members["returns"]) == pytest.approx(curves["return_mean"][-1], rel=1e-3)
