"""Utilisation facts: means of what was measured, unknown where that is too little, and never a reason to stop what works."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from costguard.guard.action_plan import PolicyCase, list_standing_holds
from costguard.guard.alerts.blind import _is_blind as is_blind
from costguard.guard.context import GuardConfig
from costguard.guard.evaluation import evaluate_snapshot
from costguard.guard.policy import CANNOT_SAY, HOLDS, NOT_YET, STOP, PolicyStep
from costguard.guard.policy_evaluation import FactInputs, build_facts, evaluate_policy, find_needed_confidence
from costguard.guard.signals import ACTIVE, Activity, SampleColumns
from costguard.guard.utilization import JUMPING, STEADY, measure_share, measure_usage
from costguard.metering.observation import identify_incarnation
from costguard.settings.conditions import read_condition
from costguard.values.instant import to_micros
from costguard.values.sample import (
    GPU_MEMORY_USED,
    GPU_POWER,
    GPU_POWER_BUSIEST,
    GPU_POWER_LIMIT,
    GPU_UTIL,
    SM_ACTIVE,
)
from tests.blank import blank_sight
from tests.guard.cases import POLL, around, case, friday, idle, machine, minutes, policy

NOW = friday(20)
MEAN = 'gpu_util.mean("2h")'
LOW = f"{MEAN} < 0.3"


def column(minutes_ago: range, value: Callable[[int], float]) -> tuple[list[int], list[float]]:
    ago = sorted(minutes_ago, reverse=True)
    return [to_micros(NOW - minutes(one)) for one in ago], [value(one) for one in ago]


def share(name: str, columns: SampleColumns, since: timedelta = timedelta(days=1), **stated: Any) -> float | None:  # noqa: ANN401 - any argument
    usual: dict[str, Any] = {"since": NOW - since, "now": NOW, "interval": POLL, "lag": timedelta(), "gpus": 1.0}
    found = measure_share(name, columns, **usual | stated)
    return None if found is None else round(found, 3)


def level(value: float) -> Callable[[int], float]:
    return lambda _: value


def switch(ago: int) -> float:
    """100 % in every third minute, else 0."""
    return 100.0 if ago % 3 == 0 else 0.0


@pytest.mark.parametrize(
    ("name", "columns", "expected"),
    [
        ("gpu_util", {GPU_UTIL: column(range(60), level(31))}, 0.31),
        ("gpu_util", {GPU_UTIL: column(range(5, 60), level(31))}, None),  # the newest sample is five minutes old
        (MEAN, {GPU_UTIL: column(range(200), level(31))}, 0.31),
        (MEAN, {GPU_UTIL: column(range(200), switch)}, 0.333),
        (MEAN, {GPU_UTIL: column(range(200), lambda ago: 100.0 if ago >= 120 else 10.0)}, 0.1),  # before the window
        (MEAN, {GPU_UTIL: column(range(62), level(31))}, 0.31),  # half of the window is enough
        (MEAN, {GPU_UTIL: column(range(50), level(31))}, None),
        (MEAN, {GPU_UTIL: column(range(0, 120, 5), level(31))}, None),  # one sample of five arrived
        (MEAN, {}, None),
        (MEAN, {GPU_UTIL: column(range(200), level(300))}, None),  # no GPU can show it
        (MEAN, {GPU_UTIL: column(range(200), level(-1))}, None),
        (MEAN, {GPU_UTIL: column(range(200), level(0))}, 0.0),
        (MEAN, {GPU_UTIL: column(range(200), lambda ago: 0.9 if ago < 70 else 90.0)}, None),  # the unit became a fraction
        ('gpu_mem.mean("1h")', {GPU_MEMORY_USED: column(range(200), level(80))}, 0.8),
        ('sm_active.mean("1h")', {SM_ACTIVE: column(range(200), level(12))}, 0.12),
        ('sm_active.mean("1h")', {GPU_UTIL: column(range(200), level(12))}, None),
    ],
)
def test_a_mean_is_of_what_was_measured_in_its_window(name: str, columns: SampleColumns, expected: float | None) -> None:
    assert share(name, columns) == expected


@pytest.mark.parametrize(
    ("signal", "watts", "limit", "gpus", "expected"),
    [
        (GPU_POWER, 800, 400, 8, 0.25),
        (GPU_POWER_BUSIEST, 300, 400, 8, 0.75),
        (GPU_POWER, 410, 400, 1, 1.0),
        (GPU_POWER, 0, 400, 1, None),  # a GPU that is on draws more: an error of measurement
        (GPU_POWER, 800, 400, 1, None),
        (GPU_POWER, 100, 0, 1, None),
        (GPU_POWER, 100, None, 1, None),
    ],
)
def test_a_power_share_is_power_by_its_limit_and_0_w_is_an_error(
    signal: str, watts: float, limit: float | None, gpus: float, expected: float | None
) -> None:
    columns = {signal: column(range(60), level(watts))}
    columns |= {GPU_POWER_LIMIT: column(range(60), level(limit))} if limit is not None else {}
    assert share('power_share.mean("30m")', columns, gpus=gpus) == expected


def test_a_burst_of_samples_weighs_no_more_than_its_time() -> None:
    steady_at, steady = column(range(1, 121), level(10))
    burst = [to_micros(NOW) - 1000 * number for number in range(2000, 0, -1)]
    columns = {GPU_UTIL: ([*steady_at, *burst], [*steady, *[100.0] * len(burst)])}
    assert share(MEAN, columns) == pytest.approx(0.107, abs=0.002)


def test_a_mean_counts_nothing_from_before_the_start_or_a_gap() -> None:
    columns = {GPU_UTIL: column(range(200), level(31))}
    assert share(MEAN, columns, since=minutes(50)) is None
    assert share(MEAN, columns, since=minutes(70)) == 0.31


def test_a_provider_that_lags_is_measured_over_the_same_length() -> None:
    columns = {GPU_UTIL: column(range(10, 131), level(31))}
    assert share(MEAN, columns, lag=minutes(10)) == 0.31
    assert share("gpu_util", columns, lag=minutes(10)) == 0.31


@pytest.mark.parametrize(
    ("value", "mean", "pattern"),
    [
        (switch, 0.333, JUMPING),
        (lambda ago: 100.0 if ago // 2 % 3 == 0 else 3.0, 0.353, JUMPING),
        (lambda ago: 31.0 + ago % 5, 0.33, STEADY),
        (lambda ago: 97.0 if ago % 70 < 30 else 0.0, 0.485, ""),  # a job every seventy minutes
        (lambda ago: 100.0 if ago > 80 else 0.0, 0.325, ""),  # it ended
        (lambda ago: 100.0 if ago % 10 else 0.0, 0.9, ""),  # checkpoints
        (lambda ago: float(ago * 37 % 100), 0.49, ""),  # anything between
        (level(0), 0.0, ""),
    ],
)
def test_jumping_and_steady_use_are_told_apart_and_what_is_neither_is_not_named(
    value: Callable[[int], float], mean: float, pattern: str
) -> None:
    columns = {GPU_UTIL: column(range(200), value)}
    usage = measure_usage(columns, since=NOW - timedelta(days=1), now=NOW, interval=POLL, lag=timedelta())
    assert usage is not None
    assert usage.pattern == pattern
    assert usage.mean == pytest.approx(mean, abs=0.01)


def test_the_use_of_a_machine_that_was_measured_for_less_than_an_hour_is_unknown() -> None:
    columns = {GPU_UTIL: column(range(50), switch)}
    assert measure_usage(columns, since=NOW - timedelta(days=1), now=NOW, interval=POLL, lag=timedelta()) is None


def evaluated(when: str, columns: SampleColumns) -> PolicyCase:
    """The case of a machine that runs since ten hours, under a policy that stops after a notice."""
    one = machine(started_at=NOW - minutes(600), created_at=NOW - minutes(600))
    rule = replace(policy(hold=timedelta()), when=read_condition(when, "when"))
    rules = GuardConfig(admin_route=True, policies=(rule,), interval=POLL)
    (found,) = evaluate_snapshot(rules, blank_sight(NOW, (one,), samples={one.observation.key: columns})).cases
    return replace(found, level=STOP, owner="ada", polls=9)


@pytest.mark.parametrize(
    ("columns", "finding", "reason"),
    [
        ({GPU_UTIL: column(range(300), level(12))}, HOLDS, f"{MEAN} is 0.12"),
        ({GPU_UTIL: column(range(50), level(12))}, CANNOT_SAY, f"no data for {MEAN}"),
        ({}, CANNOT_SAY, f"no data for {MEAN}"),
    ],
)
def test_a_verdict_names_the_mean_or_that_it_is_missing(columns: SampleColumns, finding: str, reason: str) -> None:
    verdict = evaluated(LOW, columns).verdict
    assert (verdict.finding, verdict.reasons[0]) == (finding, reason)


def test_a_machine_that_works_at_low_utilisation_is_never_stopped_by_it() -> None:
    found = evaluated(LOW, {GPU_UTIL: column(range(300), level(12))})
    assert (found.verdict.work.state, found.verdict.finding) == (ACTIVE, HOLDS)
    for approved in (frozenset[str](), frozenset((STOP,))):
        holds = dict(list_standing_holds(PolicyStep(do=STOP), replace(found, approved=approved), around(NOW)))
        assert holds["working"] == "it is active: GPU duty up to 12 % in the last 45 min"


@pytest.mark.parametrize(
    ("when", "work", "asks"),
    [
        (LOW, Activity(), True),
        (LOW, idle(friday(18), confidence=0.6, families=("duty",)), True),
        (LOW, idle(friday(18), confidence=0.8, families=("duty", "cpu")), True),
        (LOW, idle(friday(18), confidence=0.9, families=("duty", "cpu", "io")), False),
        (f"{LOW} && confidence >= 0.6", idle(friday(18), confidence=0.6, families=("duty",)), False),
        (LOW, Activity(state=ACTIVE, confidence=0.97, reasons=(), since=friday(18)), False),
    ],
)
def test_little_use_alone_is_no_idleness_so_a_stop_by_it_needs_the_confidence_of_a_stop(
    when: str,
    work: Activity,
    asks: bool,  # noqa: FBT001 - a case
) -> None:
    one, rule = machine(), replace(policy(), when=read_condition(when, "when"))
    facts = build_facts(one, work, FactInputs(shares={MEAN: 0.02}), NOW, ("state", "confidence", *rule.when.names))
    verdict = evaluate_policy(rule, identify_incarnation(one.observation), facts, work, NOW)
    assert (verdict.truth.value, verdict.short) == (True, asks)
    assert find_needed_confidence(rule) == (0.6 if "confidence" in when else 0.9)


def test_what_is_held_by_a_mean_holds_since_it_was_seen_and_not_since_the_machine_became_active() -> None:
    work = Activity(state=ACTIVE, confidence=0.97, reasons=(), since=friday(8))
    rule = replace(policy(), when=read_condition(f'state == "active" && {LOW}', "when"))
    facts = {"state": ACTIVE, MEAN: 0.1}
    verdict = evaluate_policy(rule, identify_incarnation(machine().observation), facts, work, NOW)
    assert (verdict.finding, verdict.since) == (NOT_YET, NOW)


def test_only_a_machine_of_unknown_activity_is_blind_where_a_mean_is_missing() -> None:
    work = Activity(state=ACTIVE, confidence=0.97, reasons=(), since=friday(8))
    rule = replace(policy(), when=read_condition(LOW, "when"))
    assert not is_blind(case(machine(), rule, work, NOW), NOW)
    assert is_blind(case(machine(), rule, Activity(), NOW), NOW)
