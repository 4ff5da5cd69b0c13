"""An act is announced to the present owner, for one episode and one time, and its step is done when the act is proven."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from costguard.guard.action_intents import DONE, EXECUTING, FAILED, READY, UNCONFIRMED, VERIFYING, Intent
from costguard.guard.alerts.alert import PAGE, WARNING, NoticeDelivery
from costguard.guard.alerts.held import list_held_alerts, name_act
from costguard.guard.context import GuardConfig, GuardSnapshot
from costguard.guard.escalation import mark_delivered
from costguard.guard.evaluation import GuardEvaluation, evaluate_snapshot
from costguard.guard.overrides import ARM, FREEZE, Override
from costguard.guard.policy import NEVER, STOP, EscalationState, Proposal
from costguard.guard.run_facts import FirstSighting
from costguard.metering.observation import identify_incarnation
from tests.blank import blank_sight
from tests.guard.cases import friday, machine, minutes, policy, wish
from tests.guard.test_railing import sent
from tests.guard.test_told_first import OURS, TOLD, climb, delivered

RULE = policy(when=OURS, hold=timedelta())
RULES = GuardConfig(admin_route=True, policies=(RULE,))
NOW = friday(19, 30)
LIVE = replace(machine(tier="on-demand", owner="ada"), seen_at=NOW, first_seen_at=NOW - timedelta(days=1))
LIFE = identify_incarnation(LIVE.observation)
ARMING = wish(ARM, LIVE, NOW - timedelta(days=1), NOW + timedelta(days=9), subject="idle-gpu", value=STOP, life=None)
BEGUN = replace(climb(RULE), life=LIFE)


def evaluate(
    *,
    at: datetime = NOW,
    state: EscalationState = BEGUN,
    deliveries: tuple[NoticeDelivery, ...] = (delivered(TOLD, BEGUN.started_at),),
    **more: object,
) -> tuple[GuardSnapshot, GuardEvaluation]:
    """A run at `at` over one machine whose stop was announced at 18:50."""
    key = LIVE.observation.key
    known: dict[str, object] = {"wishes": (ARMING,), "last_run_at": at - minutes(1)}
    sight = blank_sight(
        at,
        (replace(LIVE, seen_at=at),),
        known={key: FirstSighting(at=LIVE.first_seen_at, polls=100)},
        climbs=(state,),
        deliveries={("policy:idle-gpu", "/".join(key)): deliveries},
        **(known | more),
    )
    return sight, evaluate_snapshot(RULES, sight)


def find_stop(found: GuardEvaluation) -> Proposal | None:
    return next((one for one in found.proposals if one.step.do == STOP), None)


def request(state: str, outcome: str = "") -> Intent:
    return replace(sent(TOLD + minutes(16)), life=LIFE, policy=RULE.name, state=state, sends=1, outcome=outcome)


@pytest.mark.parametrize("state", [EXECUTING, VERIFYING, UNCONFIRMED])
def test_a_step_whose_act_is_in_doubt_is_neither_done_nor_due(state: str) -> None:
    _, found = evaluate(intents=(request(state),))
    assert find_stop(found) is None
    assert found.climbs[0].done == (0,)


def test_a_step_is_done_when_its_act_was_proven() -> None:
    _, found = evaluate(intents=(request(DONE),))
    assert find_stop(found) is None
    assert found.climbs[0].done == (0, 1)


def test_what_was_not_sent_is_due_as_before() -> None:
    _, found = evaluate(intents=(replace(request(READY), sends=0, sent_at=None),))
    stop = find_stop(found)
    assert stop is not None
    assert stop.is_ready(NOW)


def test_a_stop_that_counts_as_done_and_was_never_asked_for_begins_anew() -> None:
    done = replace(BEGUN, done=(0, 1))
    _, lost = evaluate(state=done)
    assert (lost.climbs, find_stop(lost)) == ((), None)
    for state in (DONE, VERIFYING):
        _, kept = evaluate(state=done, intents=(request(state),))
        assert kept.climbs[0].done == (0, 1)


def test_a_refused_act_is_held_for_an_hour_and_then_asked_for_again() -> None:
    refused = replace(request(FAILED, "refused: no permission"), moved_at=NOW - minutes(30))
    sight, found = evaluate(intents=(refused,))
    stop = find_stop(found)
    assert stop is not None
    assert [reason for reason, _ in stop.held_by] == ["refused"]
    (alert,) = list_held_alerts(found, RULES, sight)
    assert alert.severity == PAGE
    assert "no permission" in dict(alert.facts)["why"]
    _, later = evaluate(intents=(replace(refused, moved_at=NOW - minutes(61)),))
    assert (again := find_stop(later)) is not None
    assert again.is_ready(NOW)


def test_a_freeze_withdraws_the_announcement_and_afterwards_the_whole_grace_begins_anew() -> None:
    freeze = Override(id="f", what=FREEZE, who="ada", why="", at=TOLD, until=NOW)
    _, held = evaluate(at=NOW - minutes(1), wishes=(ARMING, freeze))
    frozen = replace(held.climbs[0], delivered_at=None)  # as the ledger keeps it
    assert frozen.announced_from == NEVER
    _, thawed = evaluate(state=frozen, wishes=(ARMING, freeze))
    stop, (begun,) = find_stop(thawed), thawed.climbs
    assert stop is not None
    assert (stop.due_at, begun.announced_from) == (NOW + minutes(15), NOW)
    assert begun.episode != frozen.episode == BEGUN.episode
    _, told = evaluate(at=NOW + minutes(10), state=begun, deliveries=(delivered(TOLD, BEGUN.started_at), delivered(NOW, NOW)))
    again = find_stop(told)
    assert again is not None
    assert again.due_at == NOW + minutes(15)


def test_a_new_owner_has_the_whole_grace_from_a_notice_of_his_own() -> None:
    to_ben = replace(delivered(TOLD, BEGUN.started_at), owner="ben")
    assert mark_delivered(BEGUN, [to_ben], "ada").delivered_at is None
    assert mark_delivered(BEGUN, [to_ben], "ben").delivered_at == TOLD
    assert mark_delivered(BEGUN, [replace(to_ben, owner=None)], "ada").delivered_at == TOLD, "of a version that did not say"
    _, found = evaluate(deliveries=(to_ben,))
    stop = find_stop(found)
    assert stop is not None
    assert {reason for reason, _ in stop.held_by} == {"untold", "grace"}
    assert stop.due_at == NOW + minutes(15)


def test_one_listing_that_lacks_a_machine_ends_no_escalation_and_two_do() -> None:
    for ago, kept in ((0, True), (2, False)):
        absent = replace(LIVE, absent_at=NOW - minutes(ago))
        sight, _ = evaluate()
        found = evaluate_snapshot(RULES, replace(sight, live=(absent,)))
        assert [one.done for one in found.climbs] == ([(0,)] if kept else [])
        assert found.proposals == ()


def test_an_act_that_nothing_holds_and_that_is_not_sent_is_paged_in_the_third_run() -> None:
    ready = replace(request(READY, "it cannot be looked up: 503"), sends=0, sent_at=None)
    sight, found = evaluate(intents=(ready,))
    stop = find_stop(found)
    assert stop is not None
    for ago, paged in ((1, False), (2, True)):
        since = {name_act(stop): NOW - minutes(ago)}
        alerts = list(list_held_alerts(found, RULES, replace(sight, ready_since=since)))
        assert bool(alerts) == paged
    assert alerts[0].severity == PAGE
    assert dict(alerts[0].facts)["why"] == "it cannot be looked up: 503"
    after_gap = replace(sight, ready_since=since, gap_ended_at=NOW - minutes(1))
    assert not list(list_held_alerts(found, RULES, after_gap)), "the run before could not act"


def test_owners_of_machines_that_the_limits_hold_are_told_once_for_the_cause() -> None:
    others = [identify_incarnation(machine(f"x-{n}").observation) for n in range(3)]
    full = tuple(replace(sent(NOW - minutes(5)), id=one.key.id, life=one) for one in others)
    sight, found = evaluate(sent=full)
    (alert,) = list_held_alerts(found, RULES, sight)
    assert (alert.severity, alert.owners) == (WARNING, ("ada",))
    assert "costguard approve" in dict(alert.facts)["to do"]
