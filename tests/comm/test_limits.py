"""Limits of memory and processors, as control groups describe them."""

import os

import pytest

from mpies.comm import limits


@pytest.mark.parametrize(
    ("group", "files", "expected"),
    [
        (
            "0::/a/b\n",
            {"a/memory.max": "1000\n", "a/b/memory.max": "max\n", "a/b/cpu.max": "250000 100000\n"},
            (1000, 2.5),
        ),
        ("0::/\n", {"memory.max": "max\n", "cpu.max": "max 100000\n"}, (None, None)),
        (
            "4:memory:/j\n2:cpu,cpuacct:/j\n",
            {
                "memory/j/memory.limit_in_bytes": "2000\n",
                "memory/memory.limit_in_bytes": "9223372036854771712\n",
                "cpu/j/cpu.cfs_quota_us": "50000\n",
                "cpu/j/cpu.cfs_period_us": "100000\n",
                "cpu/cpu.cfs_quota_us": "-1\n",
                "cpu/cpu.cfs_period_us": "100000\n",
            },
            (2000, 0.5),
        ),
        (None, {}, (None, None)),
    ],
)
def test_limits_of_control_groups_are_read_in_both_versions(group, files, expected, tmp_path):
    if group is not None:
        (tmp_path / "cgroup").write_text(group)
    for name, text in files.items():
        (tmp_path / "root" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "root" / name).write_text(text)
    assert limits.find_limits(tmp_path / "cgroup", tmp_path / "root") == expected


def test_available_memory_is_less_than_what_the_machine_has():
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert total / 1000 < limits.available_memory() < total


@pytest.mark.parametrize(
    ("gigabytes", "text"),
    [(0.25, "256 MB"), (1, "1.0 GB"), (9.5, "9.5 GB"), (10, "10 GB"), (10.9, "10 GB"), (2500, "2,500 GB")],
)
def test_how_sizes_are_shown(gigabytes, text):
    assert limits.describe_size(int(gigabytes * 2**30)) == text
