"""What a policy finds, and the facts it finds it by: missing is never zero, unknown is never idle."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from costguard.budgets.budget import ResourceFilter
from costguard.guard.facts import FACTS
from costguard.guard.overrides import LEASE
from costguard.guard.policy import CANNOT_SAY, DOES_NOT, HOLDS, NOT_YET, EscalationState, PolicyTarget
from costguard.guard.policy_evaluation import (
    FactInputs,
    build_facts,
    find_tightest_budget,
    matches_pattern,
    matches_target,
)
from costguard.guard.signals import UNKNOWN, Activity
from costguard.metering.meter import GB_MONTH_730, STORAGE
from costguard.metering.observation import identify_incarnation
from costguard.values.money import Money, Rate
from tests.books import live, meter
from tests.guard.cases import A100, friday, idle, judged, machine, minutes, policy, wish

ENDED = friday(18, 5)


def test_story_1_62_min_of_idleness_cost_33_86_and_the_rate_has_its_disk() -> None:
    disk = meter(80_000_000, charge=STORAGE, unit=GB_MONTH_730, quantity=500)
    one = live("i-1", meter(A100), disk)
    facts = build_facts(one, idle(ENDED), FactInputs(), friday(19, 7))
    waste, rate = facts["waste"], facts["rate"]
    assert isinstance(waste, Money)
    assert isinstance(rate, Rate)
    assert waste.format() == "33.86"
    assert rate.format() == "32.8248"
    assert facts["time_in_state"] == minutes(62)


def test_every_fact_has_a_known_name_and_none_that_is_missing_is_there() -> None:
    bare = build_facts(live("i-1", started_at=None), Activity(), FactInputs(), friday(18))
    assert set(bare) <= set(FACTS)
    assert not {"rate", "confidence", "time_in_state", "waste", "stopped_for", "age", "uptime", "lease_left"} & set(bare)
    assert bare["state"] == UNKNOWN


def test_times_are_counted_to_now() -> None:
    one = machine(state="stopped", stopped_at=friday(12), created_at=friday(9))
    lease = wish(LEASE, one, friday(18), friday(20))
    facts = build_facts(one, Activity(), FactInputs(lease=lease), friday(19))
    assert facts["stopped_for"] == timedelta(hours=7)
    assert facts["age"] == timedelta(hours=10)
    assert (facts["leased"], facts["lease_left"]) == (True, timedelta(hours=1))
    assert "uptime" not in facts
    assert find_tightest_budget([], one.observation.attribution) is None


@pytest.mark.parametrize(
    ("target", "meant"),
    [
        (PolicyTarget(), True),
        (PolicyTarget(gpu=True), True),
        (PolicyTarget(gpu=False), False),
        (PolicyTarget(ids=("i-1",)), True),
        (PolicyTarget(ids=()), False),
        (PolicyTarget(names=("train-*",)), True),
        (PolicyTarget(names=("*-eval", "exam?")), False),
        (PolicyTarget(match=ResourceFilter(owners=("resolved",))), True),
        (PolicyTarget(match=ResourceFilter(owners=("ada",))), False),
        (PolicyTarget(match=ResourceFilter(labels=(("stage", ("dev",)),))), True),
        (PolicyTarget(match=ResourceFilter(labels=(("stage", ("prod",)),))), False),
        (PolicyTarget(match=ResourceFilter(labels=())), False),
        (PolicyTarget(match=ResourceFilter(providers=())), False),
    ],
)
def test_h25_a_policy_concerns_what_fits_all_that_is_stated_and_nothing_where_it_is_empty(
    target: PolicyTarget,
    meant: bool,  # noqa: FBT001 - a case
) -> None:
    one = machine(name="train-7", labels=(("Stage", "dev"), ("team", "vision")))
    assert matches_target(target, one.observation, "resolved") is meant


def test_a_dot_and_a_bracket_stand_for_themselves() -> None:
    assert not matches_pattern("a.c", "abc")
    assert not matches_pattern("[ab]", "a")
    assert not matches_pattern("*" * 50 + "b", "a" * 2000)


def found(work: Activity, at: Any, climb: EscalationState | None = None, **stated: Any) -> str:  # noqa: ANN401 - any argument
    return judged(machine(), policy(**stated), work, at, climb).finding


def test_unknown_work_cannot_be_said_and_never_counts_as_idle() -> None:
    verdict = judged(machine(), policy(), Activity(), friday(20))
    assert (verdict.finding, verdict.truth.missing) == (CANNOT_SAY, ("state",))
    assert "no activity data yet: enrol an agent" in verdict.reasons


def test_what_is_false_whatever_the_work_is_false_where_work_is_unknown() -> None:
    assert found(Activity(), friday(20), when={"state": "idle", "power": "stopped"}) == DOES_NOT
    assert found(Activity(), friday(20), when={"state": UNKNOWN}, hold=minutes(0)) == HOLDS


def test_a_family_that_a_policy_needs_and_nobody_measured_cannot_be_said() -> None:
    assert found(idle(ENDED, families=("duty",)), friday(20), needs=("duty", "agent")) == CANNOT_SAY
    assert found(idle(ENDED, families=("duty", "agent")), friday(20), needs=("duty", "agent")) == HOLDS


def test_a_condition_without_work_holds_since_it_first_did() -> None:
    life, asks = identify_incarnation(machine().observation), {"power": "running"}
    assert found(Activity(), friday(20), when=asks) == NOT_YET
    pending = EscalationState(policy="idle-gpu", life=life, since=friday(19), started_at=friday(19))
    assert found(Activity(), friday(20), pending, when=asks) == HOLDS
    elder = replace(pending, life=life._replace(started_at=friday(1)))
    assert found(Activity(), friday(20), elder, when=asks) == NOT_YET


def test_h17_nothing_holds_since_before_a_gap_or_a_lease() -> None:
    verdict = judged(machine(), policy(), idle(ENDED), friday(20), not_before=friday(19, 30))
    assert (verdict.finding, verdict.since) == (NOT_YET, friday(19, 30))
