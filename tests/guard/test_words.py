"""A word where people expect one: hangs without progress, fractions, ended signals, new machines, unwatched time, faults."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from costguard.guard.action_intents import DONE, Intent
from costguard.guard.alerts.alert import Alert
from costguard.guard.alerts.rules import ActCost, list_alerts
from costguard.guard.context import GuardConfig
from costguard.guard.evaluation import evaluate_snapshot
from costguard.guard.policy import STOP
from costguard.guard.policy_evaluation import evaluate_policy
from costguard.guard.run_facts import FirstSighting
from costguard.guard.signals import ACTIVE, HUNG, IDLE, UNKNOWN
from costguard.metering.burn import compute_hourly_burn
from costguard.metering.meter import STORAGE, Meter, PriceRange
from costguard.metering.observation import identify_incarnation
from costguard.metering.spending import LiveResource, ScopeCoverage
from costguard.values.agent import Agent
from costguard.values.money import Rate
from costguard.values.sample import (
    AGENT_ALIVE,
    CPU_CORES,
    CPU_UTIL,
    GPU_BUSY_COUNT,
    GPU_POWER_BUSIEST,
    GPU_POWER_LIMIT,
    GPU_UTIL,
    NETWORK,
    Sample,
)
from tests import books
from tests.blank import blank_sight
from tests.guard.cases import friday, machine, policy
from tests.guard.test_judging import judged, signal
from tests.guard.traces import START
from tests.guard.traces import machine as traced

NOW, MINUTE = friday(19, 5), timedelta(minutes=1)


@pytest.mark.parametrize("gpus", [1, 8])
@pytest.mark.parametrize(("minutes", "state"), [(170, ACTIVE), (200, HUNG)])
def test_a_gpu_that_is_busy_at_low_power_for_hours_hangs_although_no_progress_is_measured(
    gpus: int, minutes: int, state: str
) -> None:
    samples = [
        *signal(GPU_UTIL, 100, minutes),
        *signal(GPU_BUSY_COUNT, gpus, minutes),
        *signal(GPU_POWER_BUSIEST, lambda m: 70 + 25 * (m % 2), minutes),  # flat power would hang after ten minutes
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
    assert found.what == "no guard run from 17:05 UTC to 19:05 UTC; 1 machine runs"
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
    assert "it is billed as before" in dict(found.facts)["next"]
    assert told(live, "agent", agents=(replace(agent, troubles=()),)) == []


def stopped_lately(**changes: object) -> Intent:
    """A stop of the machine that was confirmed a minute ago."""
    usual: dict[str, object] = {"id": "one", "life": identify_incarnation(machine().observation), "act": STOP, "state": DONE}
    usual |= {"policy": "p", "rule": "idle", "why": "", "evidence": "{}", "sends": 1}
    times = dict.fromkeys(("created_at", "sent_at"), NOW - 5 * MINUTE) | {"moved_at": NOW - MINUTE}
    return Intent(**{**usual, **times, **changes})  # type: ignore[arg-type]  # a test's own fields


DISK = books.meter(50_000_000, charge=STORAGE)
OTHER = replace(DISK, price=replace(DISK.price, currency="EUR"))
NO_PRICE = replace(DISK, price=PriceRange(0, 0, 70_000_000, known=False))


@pytest.mark.parametrize(
    ("meters", "says"),
    [
        ((DISK,), "$0.0500"),
        ((DISK, DISK), "$0.1000"),
        ((DISK, OTHER), "EUR 0.0500 and $0.0500"),
        ((NO_PRICE,), "unpriced, at most $0.07"),
        ((), "nothing"),
    ],
)
def test_what_still_bills_after_a_stop_is_what_the_status_says(meters: tuple[Meter, ...], says: str) -> None:
    live = books.live("i-1", *meters, state="stopped")
    (found,) = told(live, "act:stop", intents=(stopped_lately(),))
    assert dict(found.facts)["still per hour"] == says
    burns = {burn.currency: burn.stated.format(4) for burn in compute_hourly_burn(live, NOW)}
    assert all(burn in says for burn in burns.values()) or "unpriced" in says


def test_a_stop_that_was_looked_up_is_told_with_the_next_listing_or_after_a_quarter_of_an_hour() -> None:
    before = replace(machine(), seen_at=NOW - 6 * MINUTE)  # it still ran then, at $32.77
    assert told(before, "act:stop", intents=(stopped_lately(),)) == []
    (late,) = told(
        replace(before, seen_at=NOW - 20 * MINUTE), "act:stop", intents=(stopped_lately(moved_at=NOW - 16 * MINUTE),)
    )
    assert dict(late.facts)["still per hour"] == "not listed since (costguard status)"
    (gone,) = told(books.live("i-9"), "act:stop", intents=(stopped_lately(),))
    assert dict(gone.facts)["still per hour"] == "nothing"


def test_a_cap_that_stops_a_busy_machine_does_not_call_its_price_unknown() -> None:
    busy = machine(state="stopped")
    rules, sight = GuardConfig(admin_route=True), blank_sight(NOW, (busy,), intents=(stopped_lately(),))
    costs = {"one": ActCost(saves=Rate.parse("32.77"))}
    (done,) = list_alerts(evaluate_snapshot(rules, sight), rules, sight, (), costs)
    assert (dict(done.facts)["cost while idle"], dict(done.facts)["saved per hour"]) == ("not known to be idle", "$32.7700")


def quiet_but(frozen_from: int, *, network: float = 900.5) -> list[Sample]:
    """A machine at rest for 60 min, whose source repeats its last values from that minute on."""

    def move(base: float, minute: float) -> float:
        return base * (1 + 0.013 * (min(minute, frozen_from) * 7 % 11))

    return [
        *signal(GPU_UTIL, 0, 60),
        *signal(GPU_POWER_BUSIEST, lambda m: move(70.25, m), 60),
        *signal(CPU_CORES, lambda m: move(0.0123, m), 60),
        *signal(CPU_UTIL, lambda m: move(0.07, m), 60),
        *signal(NETWORK, lambda m: network if m < 59 else 900.5, 60),
        *signal(AGENT_ALIVE, 1, 60),
    ]


@pytest.mark.parametrize(
    ("samples", "state"),
    [
        (quiet_but(60), IDLE),
        (quiet_but(50), UNKNOWN),
        (quiet_but(50, network=901.5), IDLE),
        (quiet_but(-1), UNKNOWN),
        ([*signal(GPU_UTIL, 0, 60), *signal(CPU_UTIL, 0.2, 60), *signal(NETWORK, 900, 60)], IDLE),
    ],
    ids=["varied", "frozen", "one still moves", "frozen since its start", "rounded"],
)
def test_values_that_a_source_repeats_to_the_last_digit_are_no_proof_of_idleness(samples: list[Sample], state: str) -> None:
    found = judged(samples, 60)
    assert found.state == state
    assert ("to the last digit" in " ".join(found.reasons)) is (state == UNKNOWN)


@pytest.mark.parametrize(("watts", "state"), [(8.0, IDLE), (0.07, UNKNOWN), (0.0, UNKNOWN)])
def test_a_gpu_that_draws_less_than_any_gpu_is_measured_wrongly(watts: float, state: str) -> None:
    samples = [*signal(GPU_UTIL, 0, 60), *signal(CPU_UTIL, 0.2, 60), *signal(GPU_POWER_BUSIEST, watts, 60)]
    assert judged(samples, 60).state == state


@pytest.mark.parametrize(
    ("processors", "network", "state"),
    [(0.2, 900, IDLE), (0.0, 900, UNKNOWN), (0.2, 0.0, UNKNOWN), (0.0, 0.0, UNKNOWN)],
)
def test_where_no_gpu_is_measured_zeros_are_no_rest(processors: float, network: float, state: str) -> None:
    """No machine that runs uses no processor and sends no byte: the source fails."""
    samples = [*signal(CPU_UTIL, 0.2, 200), *signal(CPU_UTIL, processors, 300, since=201)]
    samples += [*signal(NETWORK, 900, 200), *signal(NETWORK, network, 300, since=201)]
    assert judged(samples, 300, needs=("cpu", "io"), window=timedelta(hours=4)).state == state


@pytest.mark.parametrize(
    ("needs", "hold", "when", "short"),
    [
        (("cpu", "io"), timedelta(hours=4), {"confidence": 0.55}, False),
        (("cpu", "io"), timedelta(hours=4), {}, True),
        (("cpu", "io"), timedelta(minutes=119), {"confidence": 0.55}, True),
        (("cpu",), timedelta(hours=4), {"confidence": 0.55}, None),
        ((), timedelta(hours=4), {"confidence": 0.55}, True),
    ],
    ids=["named, for long", "no confidence", "named, too short", "half of it", "not named"],
)
def test_without_gpu_and_agent_only_a_policy_that_names_its_evidence_over_hours_may_stop(
    needs: tuple[str, ...], hold: timedelta, when: dict[str, float], *, short: bool | None
) -> None:
    """`short`: it may only ask; None: it cannot be judged."""
    samples = [*signal(CPU_UTIL, 0.2, 300), *signal(NETWORK, 900, 300)]
    rule = replace(policy(when={"state": "idle", **when}, hold=hold), needs=needs)
    work = judged(samples, 300, needs=needs, window=hold)
    now = START + 300 * MINUTE
    facts = {"state": work.state, "confidence": work.confidence}
    verdict = evaluate_policy(rule, identify_incarnation(traced(8, now - timedelta(days=1))), facts, work, now)
    if short is None:
        assert work.state == UNKNOWN
        return
    assert (work.state, work.confidence, verdict.short) == (IDLE, 0.55, short)
