"""No work on the labelled traces is ever called idle for long enough to be stopped, and waste is found in time."""

from __future__ import annotations

from datetime import timedelta

import pytest

from costguard.guard.activity import classify_activity
from costguard.guard.signals import ACTIVE, HUNG, IDLE, Activity
from costguard.values.sample import GPU_UTIL, Sample
from tests.guard.traces import HANGS, MINUTE, START, VARIANTS, WASTE, WORK, Trace, dice_of, machine, traced

HOLD = timedelta(minutes=45)
WARM = 60
SOON, LATER = 45 + 2, 2 * 45 + 2
"""Minutes. A blip while the work's end is still in the window counts as work, so that blips cost one window more at most."""


def verdicts(trace: Trace, *, only: str = "") -> list[Activity]:
    """The judgement of every minute, with the samples of the 90 minutes before it."""
    said, found = list[list[Sample]](), []
    for minute, samples in enumerate(trace.samples):
        said.append([one for one in samples if only in ("", one.signal)])
        known = [one for later in said[-91:] for one in later]
        now = START + minute * MINUTE
        found.append(classify_activity(machine(), known, now=now, since=START, poll=MINUTE, window=HOLD))
    return found


def stops(found: list[Activity], least: float) -> list[int]:
    """The minutes at which a rule of 45 idle minutes would act."""
    return [
        minute
        for minute, work in enumerate(found)
        if work.state == IDLE and work.confidence >= least and work.since and START + minute * MINUTE - work.since >= HOLD
    ]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("kind", sorted(WORK))
def test_work_is_never_called_idle_while_it_goes_on(kind: str) -> None:
    for variant in range(VARIANTS):
        trace = traced(dice_of(kind, variant), WORK[kind], warm=WARM, length=110)
        found = verdicts(trace)
        assert stops(found, 0) == [], f"variant {variant}"
        assert all(work.state != HUNG for work in found)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("kind", sorted(WASTE))
def test_waste_is_found_within_the_window_and_two_polls(kind: str) -> None:
    late, limit = [], LATER if kind in {"monitoring-blips", "hourly-cron"} else SOON
    for variant in range(VARIANTS):
        found = verdicts(traced(dice_of(kind, variant), WASTE[kind], warm=WARM, length=100))
        acted = stops(found, 0.9)
        late += [] if acted and acted[0] <= WARM + limit else [variant]
        assert not acted or acted[0] >= WARM + 45
    assert late == []


@pytest.mark.parametrize("kind", sorted(HANGS))
def test_a_hang_is_found_and_is_never_idle(kind: str) -> None:
    for variant in range(VARIANTS):
        found = verdicts(traced(dice_of(kind, variant), HANGS[kind], warm=WARM, length=60))
        hung = [minute for minute, work in enumerate(found) if work.state == HUNG]
        assert hung == list(range(WARM + 11, WARM + 60)) or hung == list(range(WARM + 10, WARM + 60))
        assert {work.state for work in found[:WARM]} == {ACTIVE}


def test_by_duty_alone_it_is_wrong_as_often_as_its_confidence_admits() -> None:
    wrong = set()
    for kind in sorted(WORK):
        found = verdicts(traced(dice_of(kind, 0), WORK[kind], warm=WARM, length=110), only=GPU_UTIL)
        assert stops(found, 0.61) == []
        wrong |= {kind} if stops(found, 0.6) else set()
    sighted = {"short-bursts", "data-loading-stalls", "one-of-eight-busy", "duty-not-measured", "a-request-now-and-then"}
    sighted |= {"steps-of-forty-minutes", "search-between-trials", "small-kernels"}
    assert wrong == set(WORK) - sighted


@pytest.mark.parametrize("kind", ["compile-on-one-core", "slow-download", "short-bursts"])
def test_the_clock_starts_when_the_work_ends(kind: str) -> None:
    found = verdicts(traced(dice_of(kind, 0), WORK[kind], warm=10, length=80, after=60))
    acted = stops(found, 0.9)
    assert acted
    assert 90 - 8 + 45 <= acted[0] <= 90 + 47
