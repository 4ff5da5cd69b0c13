"""Judging anything: what is missing never makes work idle, and neither order nor the hour matters."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costguard.guard.activity import classify_activity
from costguard.guard.signals import ACTIVE, HUNG, IDLE, UNKNOWN, Activity
from costguard.values.sample import (
    CPU_CORES,
    DISK,
    GPU_POWER_BUSIEST,
    GPU_POWER_LIMIT,
    GPU_UTIL,
    NETWORK,
    QUEUE_JOBS,
    STEP,
    Sample,
)
from tests.campaign import examples
from tests.guard.traces import HANGS, MINUTE, START, VARIANTS, WASTE, WORK, Trace, dice_of, machine, sample, traced

LEVELS = {
    GPU_UTIL: (0.0, 4.0, 60.0),
    CPU_CORES: (0.01, 0.1, 1.0),
    NETWORK: (0.0, 9e5, 2e6, 9e7),
    DISK: (0.0, 4e7),
    GPU_POWER_BUSIEST: (55.0, 100.0, 130.0, 300.0),
    QUEUE_JOBS: (0.0, 1.0),
}
LONG = 90


class History(list[Sample]):
    """Samples that hypothesis need not print one by one."""

    def __repr__(self) -> str:
        odd = [(s.signal, (s.at - START) / MINUTE, s.value) for s in self if s.value != LEVELS.get(s.signal, (0,))[0]]
        return f"History({str(odd)[:2000]})"


@st.composite
def histories(draw: st.DrawFn) -> History:
    """A minute each: mostly quiet, with a few busy ones at random places, of some of the signals."""
    said = History()
    for name in LEVELS:
        if name != GPU_UTIL and not draw(st.booleans()):
            continue
        if name == GPU_POWER_BUSIEST:
            said += [sample(GPU_POWER_LIMIT, m + 0.5, 400) for m in range(LONG)]
        busy = dict(draw(st.lists(st.tuples(st.integers(0, LONG - 1), st.sampled_from(LEVELS[name][1:])), max_size=14)))
        said += [sample(name, m + 0.5, busy.get(m, LEVELS[name][0])) for m in range(LONG)]
    moved = draw(st.integers(-1, LONG))
    return History([*said, *(sample(STEP, m + 0.5, float(m >= moved)) for m in range(LONG if moved >= 0 else 0))])


def judged(samples: list[Sample], shift: timedelta = timedelta()) -> Activity:
    now = START + LONG * MINUTE + shift
    seen = machine(8, START + shift - timedelta(days=3))
    return classify_activity(seen, samples, now=now, since=START + shift, poll=MINUTE, window=timedelta(minutes=45))


@settings(max_examples=examples(250), deadline=None)
@given(histories(), st.data())
def test_dropping_samples_never_makes_work_or_doubt_idle(samples: list[Sample], data: st.DataObject) -> None:
    """The newest of each signal stays: without any nobody could know that there was one, and the newest are the probe's."""
    before = judged(samples)
    last = {one.signal: one.at for one in samples}
    top = {one.signal: max(s.value for s in samples if s.signal == one.signal) for one in samples}
    some, all_busy = data.draw(st.sets(st.integers(0, len(samples) - 1), max_size=12)), data.draw(st.booleans())
    gone = {k for k, one in enumerate(samples) if one.value == top[one.signal]} if all_busy else some
    fixed = {k for k, one in enumerate(samples) if one.signal == GPU_POWER_LIMIT or one.at == last[one.signal]}
    kept = [one for k, one in enumerate(samples) if k not in gone or k in fixed]
    after = judged(kept)
    if before.state in (ACTIVE, UNKNOWN):
        assert after.state != IDLE
    if before.state == after.state == IDLE:
        assert before.since is not None
        assert after.since is not None
        assert after.since >= before.since


@settings(max_examples=examples(30), deadline=None)
@given(histories(), st.randoms(use_true_random=False))
def test_the_order_of_samples_does_not_matter(samples: History, dice: object) -> None:
    shuffled = samples[:]
    dice.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis hands in a random.Random
    assert judged(shuffled) == judged(samples)


@settings(max_examples=examples(30), deadline=None)
@given(histories(), st.timedeltas(min_value=timedelta(days=-400), max_value=timedelta(days=400)))
def test_a_shift_in_time_shifts_the_judgement_and_changes_nothing(samples: list[Sample], shift: timedelta) -> None:
    shifted = judged([replace(one, at=one.at + shift) for one in samples], shift)
    straight = judged(samples)
    assert (shifted.state, shifted.confidence, shifted.coverage) == (straight.state, straight.confidence, straight.coverage)
    assert shifted.since == (straight.since + shift if straight.since else None)


@settings(max_examples=examples(30), deadline=None)
@given(histories(), st.integers(1, 60))
def test_what_lies_before_since_changes_nothing(samples: list[Sample], minutes: int) -> None:
    since = START + minutes * MINUTE
    now = START + LONG * MINUTE
    both = [
        classify_activity(machine(8, START), some, now=now, since=since, poll=MINUTE, window=timedelta(minutes=45))
        for some in (samples, [one for one in samples if one.at >= since])
    ]
    assert both[0] == both[1]


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
