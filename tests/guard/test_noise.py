"""Noise: a few busy samples are no work, unless one that is missing could have been the one that makes them work."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

import pytest

from costguard.guard.activity import classify_activity
from costguard.guard.signals import ACTIVE, IDLE, UNKNOWN, Activity
from costguard.values.sample import GPU_UTIL
from tests.guard.traces import MINUTE, START, machine, sample

NOW = 90
WINDOW = 45 * MINUTE


def judged(busy: Iterable[int], missing: Iterable[int] = ()) -> Activity:
    """GPU duty every minute up to NOW: 98 % in the minutes that are `busy`, and nothing heard in those `missing`."""
    samples = [sample(GPU_UTIL, m, 98 if m in set(busy) else 0) for m in range(NOW + 1) if m not in set(missing)]
    seen = machine(8, START - timedelta(days=1))
    return classify_activity(seen, samples, now=START + NOW * MINUTE, since=START, poll=MINUTE, window=WINDOW)


def test_of_45_samples_five_are_work_and_four_are_noise() -> None:
    assert judged(range(50, 55)).state == ACTIVE
    assert judged(range(50, 54)).state == IDLE


@pytest.mark.parametrize("gap", [(60,), (89,), (46, 70)])
def test_four_of_44_are_neither_since_the_missing_one_could_be_the_fifth(gap: tuple[int, ...]) -> None:
    found = judged(range(50, 54), gap)
    assert found.state == UNKNOWN
    assert "not enough to judge" in " ".join(found.reasons)


def test_a_gap_among_quiet_ones_hides_no_work_where_it_could_not_be_enough() -> None:
    assert judged((), range(60, 64)).state == IDLE
    assert judged((), range(60, 65)).state == UNKNOWN
