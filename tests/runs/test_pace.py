"""How fast a run is, and whether a restart on more ranks pays."""

import pytest

from mpies.config.schema import StopSection
from mpies.runs.pace import growth_pays, recent_pace


@pytest.mark.parametrize(
    ("left", "generation", "expected"),
    [
        # 3 of 6 ranks come back: half of the rest's time is saved, twice 10 s is what the restart must save.
        (41.0, 1.0, True),
        (39.0, 1.0, False),
        # Generations longer than the grace of 30 s: so much play is thrown away.
        (200.0, 40.0, True),
        (120.0, 40.0, False),
        (0.0, 0.0, False),
    ],
)
def test_growth_pays_where_it_saves_twice_what_it_costs(left, generation, expected):
    assert growth_pays(left, generation, ranks=3, more=6, start_up=10.0, grace=30.0) is expected


def test_the_pace_is_that_of_the_newest_generations(tmp_path):
    lines = ["generation,seconds,steps,ranks,starts", "1,9,10,6,1", "2,10,20,3,2", "3,12,30,3,2", "4,14,40,3,2"]
    file = tmp_path / "metrics.csv"
    file.write_text("\n".join(lines) + "\n")
    assert recent_pace(tmp_path, StopSection(generations=100)) == (2.0, 192.0, 3)
    assert recent_pace(tmp_path, StopSection(generations=100, seconds=20)) == (2.0, 6.0, 3)
    assert recent_pace(tmp_path, StopSection(generations=100, steps=60)) == (2.0, 4.0, 3)
    file.write_text("\n".join(lines[:3]) + "\n")
    assert recent_pace(tmp_path, StopSection()) is None
    file.write_text("\n".join([*lines[:-1], "4,x,40,3,2"]) + "\n")
    assert recent_pace(tmp_path, StopSection()) is None
