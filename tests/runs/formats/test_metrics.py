"""metrics.csv: what is complete is read, whatever stands beside it."""

import pytest

from mpies.runs.formats.metrics import format_header, format_return, format_row, read_digests, read_metrics


@pytest.mark.parametrize("rest", ["", "3,", "3,4.5", "3,4.5,0.1", "3,4.5,0.1,ab"])
def test_a_line_that_is_cut_off_is_left_out(tmp_path, rest):
    (tmp_path / "metrics.csv").write_text("generation,seconds,mean,digest\n1,2,3,x\n2,3,4,y\n" + rest)
    assert [row["generation"] for row in read_metrics(tmp_path)] == ["1", "2"]
    assert read_digests(tmp_path) == ["x", "y"]


@pytest.mark.parametrize(
    "damaged", ["1;2,3,x", "q,2,3,x", ",2,3,x", "-1,2,3,x", "1,2,3,x,", "\0,2,3,x", "1.0,2,3,x", "9" * 5000 + ",2,3,x"]
)
def test_a_damaged_line_is_left_out(tmp_path, damaged):
    (tmp_path / "metrics.csv").write_text(f"generation,seconds,mean,digest\n{damaged}\n2,3,4,y\n")
    assert [row["generation"] for row in read_metrics(tmp_path)] == ["2"]


def test_without_a_file_or_its_header_there_are_no_metrics(tmp_path):
    assert read_metrics(tmp_path) == []
    for content in ("generation,sec", "genera4ion,seconds,mean,digest\n1,2,3,x\n"):
        (tmp_path / "metrics.csv").write_text(content)
        assert read_metrics(tmp_path) == []


def test_what_is_read_is_what_was_written(tmp_path):
    columns = ["generation", "seconds", "eval_mean", "failures", "ratio", "digest"]
    row = {"generation": 3, "seconds": 0.123456789012, "failures": True, "ratio": float("nan"), "digest": "ab"}
    (tmp_path / "metrics.csv").write_text(format_header(columns) + format_row(columns, row))
    read = {"seconds": "0.123456789", "eval_mean": "", "failures": "1", "ratio": "nan", "digest": "ab"}
    assert read_metrics(tmp_path) == [{"generation": "3", **read}]
    assert format_row(columns, read_metrics(tmp_path)[0]) == format_row(columns, row)


def test_a_return_has_as_many_digits_as_it_needs():
    shown = {-0.0: "0.00", -1e-6: "-1e-06", -0.0012345: "-0.00123", 0.1: "0.10", -123.456: "-123.46", 1e15: "1e+15"}
    assert {value: format_return(value) for value in shown} == shown
