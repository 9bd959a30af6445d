import numpy as np

from mpies.core import streams
from mpies.core.streams import EPISODES, MEMBERS, NOISE_TABLE, stream


def test_streams_differ_in_seed_purpose_and_counters_and_repeat_exactly():
    keys = [(1, NOISE_TABLE, 0), (1, MEMBERS, 0), (1, MEMBERS, 0, 0), (1, MEMBERS, 0, 1), (1, EPISODES, 0, 0)]
    keys += [(2, MEMBERS, 0, 0)]
    numbers = [tuple(stream(*key).integers(2**62, size=3)) for key in keys]
    assert len(set(numbers)) == len(keys)
    assert [tuple(stream(*key).integers(2**62, size=3)) for key in keys] == numbers


def test_the_numbers_of_the_purposes_and_of_a_stream_never_change_between_versions():
    first = ["NOISE_TABLE", "MEMBERS", "EPISODES", "EVALUATION", "INITIAL_MEAN", "STATISTICS", "TASK", "SOLVER"]
    later = {"ACTIONS": 8, "REFERENCE": 9, "PICTURES": 16, "SETTINGS": 17, "HELD_OUT_ACTIONS": 18}
    purposes = {name: value for name, value in vars(streams).items() if name.isupper()}
    assert purposes == {name: number for number, name in enumerate(first)} | later
    np.testing.assert_array_equal(stream(1, MEMBERS, 5, 0).integers(1000, size=5), [90, 722, 747, 508, 646])
