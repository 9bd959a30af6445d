"""Why and when a run stops."""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

from mpies.comm.serial import Serial
from mpies.comm.stopwatch import Stopwatch
from mpies.config.schema import StopSection
from mpies.training.control import ABANDON, CONTINUE, STOP, Control, Signals, TrainingStopped
from mpies.training.learner import Clock


def learner_at(solved=-np.inf, **clock):
    """What the stop rules look at."""
    return SimpleNamespace(solved=solved, clock=Clock(**clock))


def signals_of(raised=None, expired=False):
    return SimpleNamespace(raised=raised, is_expired=lambda grace: expired, claim=lambda: None)


STOP_RULES = StopSection(target=10.0, generations=100, steps=1000, seconds=60.0)


@pytest.mark.parametrize(
    ("learner", "reason", "rules"),
    [
        (learner_at(generation=99, steps=999, seconds=59.9, solved=9.9), "", STOP_RULES),
        (learner_at(generation=100), "generations", STOP_RULES),
        (learner_at(steps=1000), "steps", STOP_RULES),
        (learner_at(seconds=60.0), "seconds", STOP_RULES),
        (learner_at(solved=10.0, generation=100), "solved", STOP_RULES),
        (learner_at(generation=100, steps=1000, seconds=60), "generations", STOP_RULES),
        (learner_at(generation=3, steps=10**9, seconds=1e9, solved=1e9), "", StopSection(generations=4)),
    ],
)
def test_the_first_rule_that_holds_is_the_reason(learner, reason, rules):
    assert Control(rules, Serial()).stop_reason(learner) == reason


def test_failures_come_before_rules_signals_before_failures_and_rules_before_signals():
    control = Control(STOP_RULES, Serial())
    control.failed_share = STOP_RULES.max_failures
    assert control.stop_reason(learner_at(generation=100)) == "generations"  # no more than allowed
    control.failed_share += 0.01
    assert control.stop_reason(learner_at(generation=100)) == "failures"
    control.agree(np.array([CONTINUE, STOP]))
    assert control.stop_reason(learner_at(generation=100)) == "signal"
    control.failed_share = 0.0
    assert control.stop_reason(learner_at(solved=10.0)) == "solved"
    assert control.stop_reason(learner_at(generation=100)) == "generations"
    assert control.stop_reason(learner_at()) == "signal"


def test_a_stop_that_was_requested_once_holds_and_a_rank_that_abandons_ends_the_generation_on_all():
    control = Control(STOP_RULES, Serial())
    for request, reason in ((CONTINUE, ""), (STOP, "signal"), (CONTINUE, "signal")):
        control.agree(np.array([request, CONTINUE]))
        assert control.stop_reason(learner_at()) == reason
    control = Control(STOP_RULES, Serial())
    with pytest.raises(TrainingStopped):
        control.agree(np.array([CONTINUE, ABANDON, STOP]))
    assert control.stop_reason(learner_at()) == "signal"


@pytest.mark.parametrize(
    ("signals", "of_another", "request_made"),
    [
        (None, False, CONTINUE),
        (signals_of(), False, CONTINUE),
        (signals_of(raised=1.0), False, STOP),
        (signals_of(raised=1.0, expired=True), False, ABANDON),
        (signals_of(), True, ABANDON),  # another rank of the node abandons
    ],
)
def test_a_rank_requests_what_its_signals_say(signals, of_another, request_made):
    comm = Serial()
    if of_another:
        comm.request_abandon()
    control = Control(STOP_RULES, comm, signals)
    assert control.request() == request_made
    assert control.must_abandon() == comm.abandon_requested == (request_made == ABANDON)


def test_the_first_signal_is_remembered_and_a_second_sigterm_has_its_default_effect():
    signals, before = Signals(), time.monotonic()
    assert signals.raised is None and not signals.is_expired(0.0)
    os.kill(os.getpid(), signal.SIGTERM)
    first = signals.raised
    assert before <= first <= time.monotonic()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) not in (signal.SIG_DFL, signal.default_int_handler)
    time.sleep(0.02)
    os.kill(os.getpid(), signal.SIGINT)
    assert signals.raised == first and signal.getsignal(signal.SIGINT) == signal.SIG_DFL
    assert signals.is_expired(0.01) and not signals.is_expired(60)


def test_sigusr1_may_be_repeated_and_is_ignored_at_the_end():
    signals = Signals()
    for _ in range(3):
        os.kill(os.getpid(), signal.SIGUSR1)
    assert signals.raised is not None
    other = Signals()
    other.close()
    os.kill(os.getpid(), signal.SIGUSR1)
    assert other.raised is None


@pytest.mark.parametrize("start", [Signals, Stopwatch().start])
def test_outside_the_main_thread_no_handler_is_set(start):
    numbers = signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGCONT
    before = [signal.getsignal(number) for number in numbers]
    with ThreadPoolExecutor() as pool:
        pool.submit(start).result()
    assert [signal.getsignal(number) for number in numbers] == before
