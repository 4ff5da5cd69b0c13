"""Measures that come rarely and late: they prove idleness, the last look sees work in them, and nothing looks broken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from costguard_aws import provider as aws
from costguard_gcp import provider as gcp

from costguard.guard.activity import classify_activity, find_probe_start, probe_activity
from costguard.guard.context import GuardConfig, GuardSnapshot, estimate_interval_of_samples
from costguard.guard.evaluation import evaluate_snapshot
from costguard.guard.signals import ACTIVE, UNKNOWN, build_columns
from costguard.metering.spending import LiveResource
from costguard.values.provider import ProviderManifest
from costguard.values.sample import GPU_UTIL, Sample
from tests.blank import blank_sight
from tests.guard.cases import machine, policy

S, MINUTE, DAY = timedelta(seconds=1), timedelta(minutes=1), timedelta(days=1)
START = datetime(2026, 11, 21, 6, tzinfo=UTC)
NOW = START + timedelta(hours=3)
BUSY, QUIET = 97.0, 0.0
FLEET = tuple(machine(f"i-{number}", created_at=START - DAY, started_at=START - DAY) for number in range(8))
LATE = pytest.mark.parametrize("late", [aws.manifest, gcp.manifest], ids=lambda one: one.name)
INTERVALS = pytest.mark.parametrize("interval", [S, MINUTE], ids=lambda one: f"{one.total_seconds():g}s")
RULE = policy(hold=45 * MINUTE)


def there(
    late: ProviderManifest, now: datetime, *, of: LiveResource = FLEET[0], until: datetime | None = None, value: float = QUIET
) -> list[Sample]:
    """What can be known at `now` of a machine that is measured from START on, and no more after `until`."""
    newest, at, found = min(now - late.measures_late, until or now), START, list[Sample]()
    while at <= newest:
        found.append(Sample(key=of.observation.key, signal=GPU_UTIL, at=at, value=value))
        at += late.measures_every
    return found


@LATE
@pytest.mark.parametrize("minutes", [10, 12, 15, 20, 45, 60])
def test_what_works_is_never_idle_however_short_the_window_is(late: ProviderManifest, minutes: int) -> None:
    for seconds in range(0, 600, 7):
        now = NOW + seconds * S
        of, poll = there(late, now, value=BUSY), max(MINUTE, late.measures_every)
        window, lag = minutes * MINUTE, late.measures_late
        work = classify_activity(FLEET[0].observation, of, now=now, since=START, poll=poll, window=window, lag=lag)
        assert work.state in (ACTIVE, UNKNOWN), (now, work.reasons)


@LATE
def test_the_last_look_sees_the_work_of_the_newest_measure_there_is(late: ProviderManifest) -> None:
    for seconds in range(0, 600, 7):
        now = NOW + seconds * S
        of = [one for one in there(late, now) if one.at >= find_probe_start(now, late.measures_late)]
        rhythm = estimate_interval_of_samples(of, MINUTE)
        assert rhythm == late.measures_every
        assert probe_activity(of, now, rhythm, lag=late.measures_late) == ""
        of[-1] = replace(of[-1], value=BUSY)
        assert probe_activity(of, now, rhythm, lag=late.measures_late) == "GPU duty 97 % just now"


def seen(late: ProviderManifest, of: Sequence[list[Sample]], now: datetime) -> GuardSnapshot:
    samples = {one.observation.key: build_columns(mine) for one, mine in zip(FLEET, of, strict=True) if mine}
    live = tuple(replace(one, seen_at=now) for one in FLEET)
    lags = {live[0].observation.key.provider: late.measures_late}
    return blank_sight(now, live, samples=samples, lags=lags)


@LATE
@INTERVALS
def test_a_fleet_that_works_and_is_measured_late_opens_no_breaker_at_any_moment(
    late: ProviderManifest, interval: timedelta
) -> None:
    rules = GuardConfig(admin_route=True, policies=(RULE,), interval=interval)
    for seconds in range(0, 600, 13):
        now = NOW + seconds * S
        at_work = [there(late, now, of=one, value=BUSY) for one in FLEET]
        found = evaluate_snapshot(rules, seen(late, at_work, now))
        assert {work.state for work in found.works.values()} == {ACTIVE}
        assert found.breaker is None


@LATE
def test_a_fleet_that_falls_silent_opens_it(late: ProviderManifest) -> None:
    rules, until = GuardConfig(admin_route=True, policies=(RULE,), interval=MINUTE), NOW
    silent = NOW + 2 * late.measures_every + late.measures_late + 30 * MINUTE
    few = [there(late, silent, of=one, until=until) for one in FLEET]
    found = evaluate_snapshot(rules, seen(late, few, silent)).breaker
    assert found is not None
    assert len(found.keys) == len(FLEET)
