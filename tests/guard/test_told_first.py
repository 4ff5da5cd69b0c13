"""Nobody is stopped untold: the grace counts from a confirmed delivery, and what was promised is never shortened."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from costguard.guard.action_plan import build_action_plan
from costguard.guard.alerts.alert import INFO, WARNING, Alert, AlertRoute, NoticeDelivery
from costguard.guard.alerts.dispatch import dispatch_alerts
from costguard.guard.context import GuardConfig
from costguard.guard.escalation import advance_escalation, list_due_steps, mark_delivered, mark_step_done
from costguard.guard.evaluation import NO_ADMIN_ROUTE, evaluate_snapshot
from costguard.guard.overrides import ARM
from costguard.guard.policy import ASK, DOES_NOT, HOLDS, IDLE_RULE, NOTIFY, STOP, EscalationState, Policy, PolicyStep, Proposal
from costguard.guard.run_facts import FirstSighting
from costguard.guard.signals import IDLE
from costguard.metering.observation import identify_incarnation
from tests.blank import blank_sight
from tests.guard.cases import around, case, friday, idle, judged, machine, minutes, policy, wish

ENDED, TOLD = friday(18, 5), friday(18, 50)
ONE = machine()
OURS = {"tier": "on-demand"}


def climb(rule: Policy, at: datetime = TOLD) -> EscalationState:
    """The first notice was written at `at`."""
    begun = advance_escalation(None, judged(ONE, rule, idle(ENDED), at), stopped=False)
    assert begun is not None
    return mark_step_done(begun, rule, 0, at)


def delivered(at: datetime, notice_at: datetime = TOLD, channel: str = "slack") -> NoticeDelivery:
    return NoticeDelivery(channel=channel, notice_at=notice_at, delivered_at=at)


def test_the_grace_begins_when_the_notice_was_delivered() -> None:
    rule = policy()
    now = friday(19, 20)
    (waiting,) = list_due_steps(judged(ONE, rule, idle(ENDED), now, climb(rule)), climb(rule), stopped=False)
    assert waiting.untold
    assert waiting.at == now + minutes(15), "the earliest time that is possible"
    told = mark_delivered(climb(rule), [delivered(friday(19, 10))])
    (stop,) = list_due_steps(judged(ONE, rule, idle(ENDED), now, told), told, stopped=False)
    assert not stop.untold
    assert stop.at == friday(19, 25)


def test_a_notice_of_an_earlier_escalation_tells_nobody_about_this_one() -> None:
    rule = policy()
    assert mark_delivered(climb(rule), [delivered(friday(18, 51), notice_at=friday(18, 49))]).delivered_at is None
    assert mark_delivered(climb(rule), [delivered(friday(18, 51))]).delivered_at == friday(18, 51)


def test_an_edited_policy_begins_again_and_keeps_what_it_promised() -> None:
    rule = policy(digest="aa")
    told = replace(mark_delivered(climb(rule), [delivered(TOLD)]), promised=((STOP, friday(19, 5)),))
    hasty = policy(PolicyStep(do=NOTIFY), PolicyStep(do=STOP, after=minutes(5)), digest="bb")
    again = advance_escalation(told, judged(ONE, hasty, idle(ENDED), friday(18, 52), told), stopped=False)
    assert again is not None
    assert (again.done, again.delivered_at, again.meaning) == ((), None, "bb")
    retold = mark_delivered(mark_step_done(again, hasty, 0, friday(18, 53)), [delivered(friday(18, 53), friday(18, 53))])
    (stop,) = list_due_steps(judged(ONE, hasty, idle(ENDED), friday(18, 54), retold), retold, stopped=False)
    assert stop.at == friday(19, 5), "18:58 by the new grace, and 19:05 was promised"


def stops(rules: GuardConfig, now: datetime, told: EscalationState, *deliveries: NoticeDelivery) -> Proposal:
    """The stop of a machine that idles since 18:05, as a guard run at `now` plans it."""
    live = replace(machine(tier="on-demand"), seen_at=now, first_seen_at=now - timedelta(days=1))
    key = live.observation.key
    arming = wish(ARM, live, now - timedelta(days=1), now + timedelta(days=9), subject="idle-gpu", value=STOP, life=None)
    sight = blank_sight(
        now,
        (live,),
        known={key: FirstSighting(at=live.first_seen_at, polls=100)},
        climbs=(replace(told, life=identify_incarnation(live.observation)),),
        wishes=(arming,),
        deliveries={("policy:idle-gpu", "/".join(key)): deliveries} if deliveries else {},
    )
    (stop,) = [one for one in evaluate_snapshot(rules, sight).proposals if one.step.do == STOP]
    return stop


@pytest.mark.parametrize(
    ("channel", "held"),
    [("slack", ()), ("console", ("untold", "grace")), ("", ("untold", "grace"))],
)
def test_only_a_channel_that_reaches_a_person_ends_the_wait(channel: str, held: tuple[str, ...]) -> None:
    rule = policy(when=OURS, hold=timedelta())
    rules = GuardConfig(admin_route=True, policies=(rule,), journals=frozenset(("console",)))
    told = climb(rule)
    known = [delivered(TOLD, told.started_at, channel)] if channel else []
    stop = stops(rules, friday(19, 5), told, *known)
    assert tuple(reason for reason, _ in stop.held_by) == held
    assert stop.verdict.policy.rule == IDLE_RULE


def test_without_a_route_for_every_owner_nothing_beyond_notify_is_armed() -> None:
    rule = policy(when=OURS, hold=timedelta())
    told = climb(rule)
    stop = stops(GuardConfig(admin_route=False, policies=(rule,)), friday(19, 5), told, delivered(TOLD, told.started_at))
    (held,) = stop.held_by
    assert held[0] == "not_armed"
    assert NO_ADMIN_ROUTE in held[1]


ALICE = AlertRoute(name="alice", channels=("slack",), owners=("alice",))
ADMIN = AlertRoute(name="admin", channels=("mail",), audience=("admin",))


def notice(owner: str, **stated: Any) -> Alert:  # noqa: ANN401 - any field
    usual: dict[str, Any] = {"topic": "policy:idle-gpu", "severity": WARNING}
    return Alert(subject="aws/1/us/i-1", owner=owner, what="idle", at=TOLD, to=("owner",), **{**usual, **stated})


def test_a_warning_that_no_route_takes_stands_in_the_log_where_there_is_no_admin_route() -> None:
    (message,), states = dispatch_alerts([notice("bob"), notice("bob", severity=INFO)], (), now=TOLD, routes=(ALICE,))
    assert (message.channel, message.notices) == ("console", (notice("bob"),))
    assert dispatch_alerts([notice("bob")], states, now=TOLD, routes=(ALICE,))[0] == ()


@pytest.mark.parametrize(
    ("owner", "severity", "channels"),
    [("alice", WARNING, ["slack"]), ("bob", WARNING, ["mail"]), ("", WARNING, ["mail"]), ("bob", INFO, [])],
)
def test_a_warning_that_no_route_takes_goes_to_the_admin_route(owner: str, severity: str, channels: list[str]) -> None:
    messages, _ = dispatch_alerts([notice(owner, severity=severity)], (), now=TOLD, routes=(ALICE, ADMIN))
    assert [one.channel for one in messages] == channels


def test_a_new_escalation_is_told_anew_although_the_last_one_was_told_a_minute_ago() -> None:
    first = notice("alice", episode="a")
    _, states = dispatch_alerts([first], (), now=TOLD, routes=(ALICE,))
    same, states = dispatch_alerts([first], states, now=TOLD + minutes(1), routes=(ALICE,))
    again, _ = dispatch_alerts([replace(first, episode="b")], states, now=TOLD + minutes(2), routes=(ALICE,))
    assert (len(same), len(again)) == (0, 1)


def sure_enough(**stated: Any) -> Proposal:  # noqa: ANN401 - of an activity
    """The stop of a machine that idles, by a policy that acts from a confidence of 1.0 on."""
    rule = policy(when={"state": IDLE, "confidence": 1.0})
    work = idle(ENDED, **stated)
    told = replace(climb(policy()), delivered_at=TOLD)
    one = replace(machine(), seen_at=friday(19, 5), first_seen_at=ENDED - timedelta(days=1))
    (stop,) = [p for p in build_action_plan([case(one, rule, work, friday(19, 5), told)], around(friday(19, 5))) if p.number]
    return stop


def test_an_idle_machine_below_the_confidence_of_its_policy_is_told_of_and_asked_about() -> None:
    asked = sure_enough(confidence=0.6, families=("duty",))
    assert (asked.step.do, asked.step.act, asked.is_ready(friday(19, 5))) == (ASK, STOP, True)
    assert sure_enough(confidence=1.0, families=("duty",)).step.do == STOP


def test_below_half_a_confidence_nobody_is_told() -> None:
    rule, work = policy(when={"state": IDLE, "confidence": 1.0}), idle(ENDED, confidence=0.49, families=("duty",))
    assert judged(ONE, rule, work, friday(19)).finding == DOES_NOT


@pytest.mark.parametrize(("families", "short"), [(("cpu", "io"), True), (("duty",), False), (("agent", "cpu"), False)])
def test_without_gpu_duty_and_agent_no_policy_acts_by_itself(families: tuple[str, ...], short: bool) -> None:  # noqa: FBT001 - a case
    found = judged(ONE, policy(), idle(ENDED, families=families), friday(19))
    assert (found.finding, found.short) == (HOLDS, short)
