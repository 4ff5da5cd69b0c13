"""What a schedule starts again, held against each thing that must hold it; and what one look says about a start."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction

import pytest

from costguard.budgets.budget import Budget
from costguard.budgets.budget_status import BudgetStatus, compute_budget_status
from costguard.guard.action_intents import (
    CANCELLED,
    DONE,
    EXECUTING,
    FAILED,
    SEND_UNKNOWN,
    UNCONFIRMED,
    VERIFYING,
    Intent,
    confirm_outcome,
    is_send_due,
)
from costguard.guard.context import GuardConfig, ResourceContext
from costguard.guard.policy import (
    PERSON_RULE,
    SCHEDULE_RULE,
    START,
    STOP,
    OffWindow,
    Policy,
    PolicyTarget,
    Schedule,
    ScheduledStartRule,
)
from costguard.guard.run_facts import StartHistory, StopFacts
from costguard.guard.scheduled_starts import (
    RETRY_AFTER,
    ScheduledStart,
    StartPromise,
    explain_start_budget,
    explain_start_price,
    plan_start,
)
from costguard.metering.observation import Handling, Observation, identify_incarnation
from costguard.metering.spending import LiveResource
from costguard.settings.policies import compute_policy_digest
from costguard.values.money import Money, Rate
from costguard.values.resource import Incarnation
from tests.blank import blank_sight
from tests.guard.cases import around, case, idle, machine, minutes, policy

DAY = datetime(2026, 11, 20, tzinfo=UTC)
MORNING, STOPPED_AT = DAY + timedelta(hours=8), DAY - timedelta(hours=4)
BEGAN = DAY - timedelta(hours=20)
PRICE = Rate(nano_per_hour=2_990_000_000)
OFF = Schedule(zone=UTC, off=(OffWindow(start=datetime.min.time().replace(hour=20), end=datetime.min.time().replace(hour=8)),))
RULE = policy(name="nights", rule=SCHEDULE_RULE, schedule=OFF, start=ScheduledStartRule(), hold=minutes(0), digest="d1")


def stopped(**stated: object) -> LiveResource:
    fields: dict[str, object] = {"state": "stopped", "started_at": BEGAN, "handling": Handling(starts=True), **stated}
    one = machine("i-1")
    return replace(one, observation=replace(one.observation, **fields), first_seen_at=BEGAN, seen_at=MORNING)  # type: ignore[arg-type]


def act(one: LiveResource, **stated: object) -> Intent:
    usual: dict[str, object] = {
        "id": "stop", "life": identify_incarnation(one.observation), "act": STOP, "policy": "nights", "rule": SCHEDULE_RULE,
        "why": "", "evidence": "{}", "state": DONE, "created_at": STOPPED_AT, "moved_at": STOPPED_AT + minutes(1), "sends": 1,
        "sent_at": STOPPED_AT,
    }  # fmt: skip
    return Intent(**{**usual, **stated})  # type: ignore[arg-type]


def known(*intents: Intent, awake_at: datetime | None = None, **facts: object) -> StartHistory:
    said: dict[str, object] = {"meaning": "d1", "instance_type": "", "price": PRICE, **facts}
    return StartHistory(intents=intents, facts={"stop": StopFacts(**said)}, awake_at=awake_at)  # type: ignore[arg-type]


def plan(
    one: LiveResource | None = None,
    history: StartHistory | None = None,
    at: datetime = MORNING,
    standings: tuple[BudgetStatus, ...] = (),
    *,
    rule: Policy = RULE,
    policies: tuple[Policy, ...] = (),
) -> ScheduledStart | None:
    one = one or stopped()
    history = history or known(act(one))
    one = replace(one, observation=replace(one.observation, instance_type=""), seen_at=at)
    made = case(one, rule, idle(BEGAN), at, polls=100)
    return plan_start(made, history, standings, around(at), policies)


def held(start: ScheduledStart | None) -> list[str]:
    assert start is not None
    return [reason for reason, _ in start.proposal.held_by]


def test_it_is_due_at_the_end_of_the_off_period_and_ready_then() -> None:
    start = plan()
    assert start is not None
    assert (start.proposal.due_at, start.proposal.held_by, start.window_end) == (MORNING, (), DAY + timedelta(hours=20))
    assert held(plan(at=MORNING - minutes(1))) == ["grace"]


@pytest.mark.parametrize(
    "change",
    [
        {"act": "terminate"}, {"policy": "idle-gpu"}, {"rule": PERSON_RULE}, {"state": UNCONFIRMED}, {"sends": 0},
        {"life": Incarnation(machine("i-1").observation.key, BEGAN - minutes(60))},
    ],
)  # fmt: skip
def test_only_its_own_confirmed_stop_of_this_very_run_is_undone(change: dict[str, object]) -> None:
    assert plan(history=known(act(stopped(), **change))) is None


def test_whoever_touched_it_has_taken_it_over() -> None:
    one = stopped()
    later = act(one, id="later", policy="by hand", rule=PERSON_RULE, created_at=STOPPED_AT + minutes(60))
    assert held(plan(history=known(act(one), later))) == ["touched"]
    assert held(plan(history=known(act(one), awake_at=STOPPED_AT + minutes(30)))) == ["touched"]
    assert held(plan(history=known(act(one), awake_at=STOPPED_AT))) == [], "it ran until its stop"
    assert held(plan(history=known(act(one), instance_type="p5.48xlarge"))) == ["touched"]


@pytest.mark.parametrize(("minute", "reasons"), [(-2, ["not_own"]), (0, []), (1, []), (3, ["not_own"]), (14, ["not_own"])])
def test_a_stop_that_the_provider_dates_elsewhere_is_not_its_own(minute: int, reasons: list[str]) -> None:
    one = stopped(stopped_at=STOPPED_AT + minutes(minute))
    assert held(plan(one, known(act(one)))) == reasons, "sent at 20:00, proven at 20:01"


def test_a_stop_that_was_not_certainly_taken_starts_nothing() -> None:
    assert held(plan(history=known(act(stopped()), unproven="it was not confirmed in time"))) == ["not_own"]


def test_another_schedule_that_wants_it_off_holds_the_start_and_ends_its_window() -> None:
    def other(start: int, end: int) -> Policy:
        hours = OffWindow(start=datetime.min.time().replace(hour=start), end=datetime.min.time().replace(hour=end))
        return replace(RULE, name="other", start=None, schedule=Schedule(zone=UTC, off=(hours,)))

    assert held(plan(policies=(RULE, other(7, 12)))) == ["off"]
    begun = plan(policies=(RULE, other(12, 14)))
    assert begun is not None
    assert (held(begun), begun.window_end) == ([], MORNING + timedelta(hours=4))


def test_it_is_not_started_for_less_than_half_an_hour() -> None:
    rule = replace(RULE, start=ScheduledStartRule(within=timedelta(hours=13)))
    assert held(plan(rule=rule, at=DAY + timedelta(hours=19, minutes=30))) == []
    assert held(plan(rule=rule, at=DAY + timedelta(hours=19, minutes=31))) == ["missed"]


def test_an_edited_policy_and_a_stop_of_an_older_version_start_nothing() -> None:
    assert held(plan(history=known(act(stopped()), meaning="d0"))) == ["edited"]
    assert held(plan(history=known(act(stopped()), meaning=""))) == ["edited"]


def test_it_has_its_time_and_is_said_to_be_missed_after_it() -> None:
    assert held(plan(at=MORNING + timedelta(hours=2))) == ["missed"]
    assert plan(at=MORNING + timedelta(hours=14)) is None


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ({"handling": Handling(starts=False)}, "no_act"),
        ({"handling": Handling()}, "no_act"),
        ({"handling": Handling(starts=True, controller="group x")}, "controller"),
    ],
)
def test_what_cannot_be_started_is_held(how: dict[str, object], reason: str) -> None:
    assert held(plan(stopped(**how))) == [reason]


def test_a_price_that_is_unknown_before_holds_and_one_that_rose_refuses() -> None:
    assert held(plan(history=known(act(stopped()), price=None))) == ["price"]
    rule = ScheduledStartRule()
    most = Rate(nano_per_hour=3_289_000_000)
    assert explain_start_price(PRICE, most, rule) == ""
    assert "more than 10 % above $2.99" in explain_start_price(PRICE, Rate(nano_per_hour=3_289_000_001), rule)
    assert explain_start_price(PRICE, None, rule, "it cannot be asked") == "it cannot be asked"
    assert "EUR" in explain_start_price(PRICE, Rate(nano_per_hour=1, currency="EUR"), rule)
    assert explain_start_price(PRICE, Rate(nano_per_hour=5_980_000_000), ScheduledStartRule(price_rise=Fraction(1))) == ""


@pytest.mark.parametrize(("cap", "reasons"), [(35_880_000_000, []), (35_879_999_999, ["budget"]), (1, ["budget"])])
def test_a_budget_must_last_until_the_next_off_period(cap: int, reasons: list[str]) -> None:
    budget = Budget(name="month", cap=Money(nano=cap), zone=UTC)
    status = compute_budget_status(budget, (), (), holds=Money(nano=0), now=MORNING)
    assert held(plan(standings=(status,))) == reasons, "12 h at $2.99 are $35.88"


def test_starts_that_no_burn_shows_yet_are_counted_by_every_budget_of_theirs() -> None:
    budget = Budget(name="month", cap=Money(nano=2 * 35_880_000_000), zone=UTC)
    status = compute_budget_status(budget, (), (), holds=Money(nano=0), now=MORNING)
    one = stopped().observation

    def explain(*promised: StartPromise) -> str:
        end = MORNING + timedelta(hours=12)
        return explain_start_budget(one, "ada", PRICE, (status,), start=MORNING, end=end, promised=promised)

    first = StartPromise(name="bax", attribution=one.attribution, rate=PRICE)
    assert explain() == explain(first) == ""
    assert "would be exceeded" in explain(first, replace(first, attribution=None))
    assert "the cost of bax" in explain(replace(first, rate=None))


def test_a_start_by_a_schedule_grants_no_lease_and_is_off_when_its_schedule_says_so() -> None:
    night = DAY + timedelta(hours=21)
    began = act(stopped(), id="t", act=START, created_at=night, sent_at=night, moved_at=night + minutes(3))
    seen = replace(machine("i-1"), first_seen_at=BEGAN, seen_at=night + minutes(5))
    seen = replace(seen, observation=replace(seen.observation, started_at=night + minutes(2)))
    rules = GuardConfig(admin_route=True, policies=(replace(RULE, target=PolicyTarget()),))

    def judge(*started: Intent) -> tuple[bool, bool]:
        found = ResourceContext.of(seen, rules, blank_sight(night + minutes(5), (seen,), started=started))
        return found.own_start, found.lease is not None

    assert judge() == (False, True), "a person's"
    assert judge(replace(began, rule=PERSON_RULE)) == (False, True)
    assert judge(replace(began, state=FAILED, outcome="refused: no")) == (False, True)
    assert judge(began) == (True, False)
    assert judge(replace(began, state=VERIFYING, moved_at=night)) == (True, False)


def test_tries_wait_longer_each_time_and_end() -> None:
    one, tries = stopped(), list[Intent]()
    at = MORNING
    for number, wait in enumerate((*RETRY_AFTER, None)):
        tries.append(
            act(one, id=f"t{number}", act=START, state=FAILED, created_at=at, moved_at=at, outcome="refused: no capacity")
        )
        history = known(act(one), *tries)
        if wait is None:
            assert held(plan(history=history, at=at + minutes(40))) == ["tries"]
            break
        assert held(plan(history=history, at=at + wait - timedelta(seconds=1))) == ["retry"]
        assert held(plan(history=history, at=at + wait)) == []
        at += wait


def test_a_start_that_took_effect_and_one_that_may_have_are_not_repeated() -> None:
    one = stopped(started_at=None)
    for state, outcome, why in (
        (DONE, "it is running", "touched"),
        (CANCELLED, f"it is still stopped: {SEND_UNKNOWN}", "tries"),
        (FAILED, "it is still stopped: its provider took the request, and did not start it within 10 min", "tries"),
        (FAILED, "it started and is stopped again", "tries"),
    ):
        tried = act(one, id="t", act=START, state=state, created_at=MORNING, moved_at=MORNING, outcome=outcome)
        assert why in held(plan(one, known(act(one), tried), at=MORNING + minutes(60)))
    unsent = act(one, id="t", act=START, state=CANCELLED, sends=0, created_at=MORNING, moved_at=MORNING)
    assert held(plan(one, known(act(one), unsent), at=MORNING + minutes(30))) == []


def test_a_policy_without_a_start_keeps_the_digest_it_was_accepted_by() -> None:
    plain = replace(RULE, start=None)
    assert compute_policy_digest(plain) != compute_policy_digest(RULE)
    assert compute_policy_digest(RULE) != compute_policy_digest(replace(RULE, start=ScheduledStartRule(within=minutes(5))))


SENT_AT = MORNING


def look(seen: Observation, state: str, after: timedelta) -> tuple[str, bool]:
    one = act(stopped(), act=START, state=state, sent_at=SENT_AT, moved_at=SENT_AT, created_at=SENT_AT)
    at = SENT_AT + after
    found = confirm_outcome(one, seen, absences=0, asked_at=at, now=at, settling=minutes(1))
    assert not found.again, "a start is sent once"
    assert not is_send_due(replace(one, state=VERIFYING), at)
    return found.state, found.again


@pytest.mark.parametrize(
    ("how", "state", "after", "then"),
    [
        ({"state": "running", "started_at": MORNING}, VERIFYING, 2, DONE),
        ({"state": "running", "started_at": BEGAN}, VERIFYING, 2, DONE),
        ({"state": "starting", "started_at": MORNING}, VERIFYING, 2, ""),
        ({"state": "starting", "started_at": MORNING}, VERIFYING, 11, UNCONFIRMED),
        ({"state": "stopped"}, VERIFYING, 0.5, ""),
        ({"state": "stopped"}, VERIFYING, 2, ""),
        ({"state": "stopped"}, VERIFYING, 11, FAILED),
        ({"state": "stopped"}, UNCONFIRMED, 30, FAILED),
        ({"state": "stopped", "handling": Handling(starts=False)}, VERIFYING, 11, UNCONFIRMED),
        ({"state": "stopped", "handling": Handling(starts=False)}, EXECUTING, 2, VERIFYING),
        ({"state": "stopped"}, EXECUTING, 2, CANCELLED),
        ({"state": "stopped", "started_at": MORNING + minutes(1)}, VERIFYING, 3, FAILED),
        ({"state": "ended"}, VERIFYING, 3, FAILED),
    ],
)
def test_one_look_at_a_start(how: dict[str, object], state: str, after: float, then: str) -> None:
    assert look(stopped(**how).observation, state, minutes(after))[0] == then
