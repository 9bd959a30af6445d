"""The machines that a run records."""

import os

from mpies.config.loading import make_config
from mpies.runs.directory import open_run
from mpies.runs.machine import describe_machine, find_processor, machines_of
from mpies.runs.reader import RunView

CONFIG = make_config({"environment": {"id": "function:sphere", "dimension": 3}}, [], "config.yaml")


def test_the_machine_is_described_in_one_line():
    own = describe_machine()
    assert own.endswith((f", {os.cpu_count()} CPUs", ", 1 CPU")) and "(R)" not in own and "\n" not in own
    assert find_processor()
    assert describe_machine(3) == f"3 hosts, rank 0 on {own}"


def test_a_run_lists_the_machines_of_its_starts_once_each(tmp_path):
    for hosts in (1, 2, 1):
        open_run(tmp_path / "run", CONFIG, hosts=hosts).close()
    assert machines_of(RunView(tmp_path / "run").config()) == [describe_machine(), describe_machine(2)]


def test_a_run_that_recorded_no_machine_is_continued(tmp_path):
    open_run(tmp_path / "run", CONFIG).close()
    file = tmp_path / "run/config.yaml"
    text = file.read_text()
    start = text.index("  machines:")
    file.write_text(text[:start] + text[text.index("\n", text.index("CPU")) + 1 :])
    assert machines_of(RunView(tmp_path / "run").config()) == []
    open_run(tmp_path / "run", CONFIG).close()
    assert file.read_text() == text
