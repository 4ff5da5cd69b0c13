"""A word where people expect one: hangs without progress, fractions, ended signals, new machines, unwatched time, faults."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from costguard.guard.alerts.alert import Alert
from costguard.guard.alerts.rules import list_alerts
from costguard.guard.context import GuardConfig
from costguard.guard.evaluation import evaluate_snapshot
from costguard.guard.run_facts import FirstSighting
from costguard.guard.signals import ACTIVE, HUNG, IDLE, UNKNOWN
from costguard.metering.observation import identify_incarnation
from costguard.metering.spending import LiveResource, ScopeCoverage
from costguard.values.agent import Agent
from costguard.values.sample import CPU_UTIL, GPU_BUSY_COUNT, GPU_POWER_BUSIEST, GPU_POWER_LIMIT, GPU_UTIL
from tests.blank import blank_sight
from tests.guard.cases import friday, machine
from tests.guard.test_judging import judged, signal
from tests.guard.traces import machine as traced

NOW = friday(19, 5)


@pytest.mark.parametrize("gpus", [1, 8])
@pytest.mark.parametrize(("minutes", "state"), [(170, ACTIVE), (200, HUNG)])
def test_a_gpu_that_is_busy_at_low_power_for_hours_hangs_although_no_progress_is_measured(
    gpus: int, minutes: int, state: str
) -> None:
    samples = [
        *signal(GPU_UTIL, 100, minutes),
        *signal(GPU_BUSY_COUNT, gpus, minutes),
        *signal(GPU_POWER_BUSIEST, 80, minutes),
        *signal(GPU_POWER_LIMIT, 400, minutes),
    ]
    found = judged(samples, minutes, seen=traced(gpus, NOW - timedelta(days=400)))
    assert found.state == state
    assert (found.confidence == 0.6) is (state == HUNG)


def test_duty_that_lies_between_nothing_and_one_percent_may_be_a_fraction() -> None:
    found = judged([*signal(GPU_UTIL, 0.97, 60), *signal(CPU_UTIL, 0.2, 60)], 60)
    assert found.state == UNKNOWN
    assert "may be a fraction" in " ".join(found.reasons)
    assert judged([*signal(GPU_UTIL, 0, 60), *signal(CPU_UTIL, 0.2, 60)], 60).state == IDLE


@pytest.mark.parametrize(("silent", "state"), [(1, ACTIVE), (4, UNKNOWN)])
def test_a_signal_that_ended_makes_a_busy_machine_unknown_after_two_missed_samples(silent: int, state: str) -> None:
    assert judged(signal(GPU_UTIL, 95, 60), 60 + silent).state == state


def test_a_pod_of_eight_gpus_that_shows_one_whole_percent_of_its_processors_is_no_proof_of_work() -> None:
    quiet = signal(GPU_UTIL, 0, 60)
    assert judged([*quiet, *signal(CPU_UTIL, 1, 60)], 60).state == IDLE
    assert judged([*quiet, *signal(CPU_UTIL, 2, 60)], 60).state == ACTIVE


def told(live: LiveResource, topic: str, **known: object) -> list[Alert]:
    """The alerts of one topic about one machine."""
    rules = GuardConfig(admin_route=True)
    sight = blank_sight(NOW, (live,), **known)
    watched = ScopeCoverage(
        scope=live.scope,
        outcome=str(known.pop("outcome", "complete")),
        at=NOW,
        since=NOW,
        last_complete_at=NOW,
        first_at=NOW - timedelta(days=2),
    )
    return [one for one in list_alerts(evaluate_snapshot(rules, sight), rules, sight, [watched], {}) if one.topic == topic]


@pytest.mark.parametrize(
    ("owner", "ago", "polls", "count"),
    [("", 10, 2, 1), ("", 10, 1, 0), ("ada", 10, 2, 0), ("", 90, 60, 0), ("", 3 * 24 * 60, 99, 0)],
)
def test_a_new_machine_without_an_owner_is_told_of_once_it_was_listed_twice(
    owner: str, ago: int, polls: int, count: int
) -> None:
    live = machine(owner=owner)
    first = FirstSighting(at=NOW - timedelta(minutes=ago), polls=polls)
    found = told(live, "new", known={live.observation.key: first})
    assert len(found) == count
    assert all("$32.7700 an hour" in one.what and one.once for one in found)


def test_time_in_which_nobody_watched_is_told_with_what_it_cost() -> None:
    (found,) = told(machine(), "rail:unwatched", gap_began_at=NOW - timedelta(hours=2))
    assert "nobody watched from 2026-11-20 17:05 UTC to 2026-11-20 19:05 UTC; 1 machines run" in found.what
    assert dict(found.facts)["so far"] == "about $65.54"


def test_a_gpu_that_fell_off_is_told_of_as_still_paid_for() -> None:
    live = machine()
    agent = Agent(
        id="a-1",
        key=live.observation.key,
        life=identify_incarnation(live.observation),
        public_key="k",
        joined_at=NOW - timedelta(hours=1),
        beat_at=NOW,
        troubles=("GPU 0 is lost",),
    )
    (found,) = told(live, "agent", agents=(agent,))
    assert "GPU 0 is lost" in found.what
    assert "paid for as before" in dict(found.facts)["per hour"]
    assert told(live, "agent", agents=(replace(agent, troubles=()),)) == []
