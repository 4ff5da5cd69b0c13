"""Ladders and grace: when a step is due, and when a climb begins anew."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from costguard.guard.escalation import (
    DueStep,
    HookProgress,
    HookRun,
    advance_escalation,
    compute_grace,
    find_ended_steps,
    list_due_steps,
    summarize_hook_runs,
)
from costguard.guard.policy import (
    CAP_RULE,
    HOLDS,
    HOOK,
    NOT_YET,
    NOTIFY,
    SCHEDULE_RULE,
    STOP,
    EscalationState,
    Policy,
    PolicyStep,
)
from costguard.guard.signals import ACTIVE, Activity
from costguard.metering.observation import identify_incarnation
from costguard.metering.spending import LiveResource
from tests.guard.cases import friday, idle, judged, machine, mark_told, minutes, policy

ENDED = friday(18, 5)


def ahead(
    one: LiveResource, rule: Policy, work: Activity, now: datetime, climb: EscalationState | None = None
) -> tuple[DueStep, ...]:
    found = judged(one, rule, work, now, climb)
    return list_due_steps(found, advance_escalation(climb, found, stopped=False), stopped=False)


def started(one: LiveResource, rule: Policy, work: Activity, now: datetime) -> EscalationState:
    climb = advance_escalation(None, judged(one, rule, work, now), stopped=False)
    assert climb is not None
    return mark_told(climb, rule, 0, now)


def test_story_1_idle_since_18_05_is_told_at_18_50_and_stopped_at_19_05() -> None:
    one, rule = machine(), policy()
    assert judged(one, rule, idle(ENDED), friday(18, 49)).finding == NOT_YET
    assert judged(one, rule, idle(ENDED), friday(18, 50)).finding == HOLDS
    assert ahead(one, rule, idle(ENDED), friday(18, 50))[0].at == friday(18, 50)
    climb = started(one, rule, idle(ENDED), friday(18, 50))
    (stop,) = ahead(one, rule, idle(ENDED), friday(18, 51), climb)
    assert (stop.number, stop.at, stop.unsent) == (1, friday(19, 5), False)


def test_a_notice_that_goes_out_late_after_a_hook_gives_its_whole_grace() -> None:
    rule = policy(PolicyStep(do=HOOK, run="save"), PolicyStep(do=NOTIFY), PolicyStep(do=STOP, after=minutes(15)))
    climb = mark_told(started(machine(), rule, idle(ENDED), friday(18, 50)), rule, 1, friday(18, 58))
    (stop,) = ahead(machine(), rule, idle(ENDED), friday(19), climb)
    assert (stop.at, stop.asks_at) == (friday(19, 13), friday(19, 13))


@pytest.mark.parametrize(
    ("rule", "after", "attended", "least"),
    [("idle", 0, False, 5), ("idle", 0, True, 10), ("idle", 15, True, 30), ("cap", 0, False, 1), ("cap", 0, True, 1)],
)
def test_no_policy_gives_less_than_the_floor(rule: str, after: int, attended: bool, least: int) -> None:  # noqa: FBT001 - a case
    stop = PolicyStep(do=STOP, after=minutes(after))
    assert compute_grace(policy(PolicyStep(do=NOTIFY), stop, rule=rule), stop, attended=attended) == minutes(least)


def test_a_stop_waits_until_somebody_was_told_however_late_it_is() -> None:
    rule = policy(PolicyStep(do="record"), PolicyStep(do=NOTIFY, after=minutes(5)), PolicyStep(do=STOP, after=minutes(20)))
    climb = started(machine(), rule, idle(ENDED), friday(18, 50))
    stop = ahead(machine(), rule, idle(ENDED), friday(20), climb)[-1]
    assert stop.unsent
    told = mark_told(climb, rule, 1, friday(20))
    stop = ahead(machine(), rule, idle(ENDED), friday(20), told)[-1]
    assert (stop.at, stop.unsent) == (friday(20, 15), False)


def test_a_stop_waits_for_the_hook_before_it() -> None:
    hook, stop = PolicyStep(do=HOOK, run="checkpoint", after=minutes(15)), PolicyStep(do=STOP, after=minutes(15))
    rule = policy(PolicyStep(do=NOTIFY), hook, stop)
    climb = started(machine(), rule, idle(ENDED), friday(18, 50))
    assert ahead(machine(), rule, idle(ENDED), friday(19, 5), climb)[-1].hook == "its hook checkpoint has not ended"
    assert not ahead(machine(), rule, idle(ENDED), friday(19, 6), mark_told(climb, rule, 1, friday(19, 6)))[-1].hook


def test_two_runs_in_which_it_does_not_hold_end_a_climb_and_one_does_not() -> None:
    one, rule = machine(), policy()
    climb = started(one, rule, idle(ENDED), friday(18, 50))
    busy = judged(one, rule, Activity(state=ACTIVE, confidence=0.9, since=friday(18, 52)), friday(18, 52))
    once = advance_escalation(climb, busy, stopped=False)
    assert once is not None
    assert once.left_polls == 1
    assert advance_escalation(once, busy, stopped=False) is None
    again = advance_escalation(once, judged(one, rule, idle(ENDED), friday(18, 53)), stopped=False)
    assert again == climb


def test_story_4_after_a_lease_the_ladder_starts_anew() -> None:
    one, rule = machine(), policy()
    climb = started(one, rule, idle(ENDED), friday(18, 50))
    found = judged(one, rule, idle(friday(21)), friday(21, 46), climb)
    fresh = advance_escalation(climb, found, stopped=False, fresh_since=friday(21))
    assert fresh is not None
    assert fresh.done == ()
    assert list_due_steps(found, fresh, stopped=False)[0].at <= friday(21, 46)
    capped = replace(found, policy=replace(rule, rule=CAP_RULE))
    kept = advance_escalation(climb, capped, stopped=False, fresh_since=friday(21))
    assert kept is not None
    assert kept.done == (0,)


def test_story_25_a_schedule_is_announced_and_done_when_the_watchdog_wakes() -> None:
    one, off = machine(), friday(19)
    rule = policy(when={"scheduled_on": False}, rule=SCHEDULE_RULE, hold=minutes(0), name="nights")

    def found(now: datetime, climb: EscalationState | None = None) -> tuple[DueStep, ...]:
        seen = judged(one, rule, Activity(), now, climb, scheduled_on=now < off, off_since=off)
        return list_due_steps(seen, advance_escalation(climb, seen, stopped=False), stopped=False)

    assert found(friday(18, 44)) == ()
    first, stop = found(friday(18, 45))
    assert (first.at, stop.at) == (friday(18, 45), off)
    seen = judged(one, rule, Activity(), friday(18, 45), scheduled_on=True, off_since=off)
    begun = advance_escalation(None, seen, stopped=False)
    assert begun is not None
    told = mark_told(begun, rule, 0, friday(18, 45))
    (stop,) = found(friday(19, 41), told)
    assert (stop.at, stop.unsent) == (off, False)
    unannounced = found(friday(19, 41))
    assert unannounced[1].at == friday(19, 56)


def test_a_hook_that_went_wrong_holds_its_stop_back_for_one_grace_and_no_longer() -> None:
    hook, stop = PolicyStep(do=HOOK, run="checkpoint", after=minutes(15)), PolicyStep(do=STOP, after=minutes(15))
    rule, one = policy(PolicyStep(do=NOTIFY), hook, stop), machine()
    climb = started(one, rule, idle(ENDED), friday(18, 50))
    run = HookRun(
        id="a", life=climb.life, policy=rule.name, rule="idle", number=1, hook="checkpoint",
        began_at=friday(19, 5), until=friday(19, 10),
    )  # fmt: skip

    def stop_at(now: datetime, run: HookRun) -> DueStep:
        done = mark_told(climb, rule, 1, now) if run.ended_at else climb
        found = judged(one, rule, idle(ENDED), now, done)
        return list_due_steps(found, done, stopped=False, hooks=summarize_hook_runs(done, [run]))[-1]

    assert stop_at(friday(19, 6), run).hook == "its hook checkpoint has not ended"
    bad = replace(run, state="failed", ended_at=friday(19, 7), why="it ended with status 3")
    assert stop_at(friday(19, 7), bad).at == friday(19, 12)
    assert stop_at(friday(19, 7), bad).hook == "its hook checkpoint failed: it ended with status 3"
    assert stop_at(friday(19, 12), bad).hook == ""
    good = replace(run, state="succeeded", ended_at=friday(19, 7))
    assert (stop_at(friday(19, 7), good).at, stop_at(friday(19, 7), good).hook) == (friday(19, 5), "")


def test_a_hook_of_an_earlier_climb_is_not_taken_for_one_of_this_but_no_second_one_begins_beside_it() -> None:
    rule = policy(
        PolicyStep(do=NOTIFY), PolicyStep(do=HOOK, run="checkpoint", after=minutes(15)), PolicyStep(do=STOP, after=minutes(15))
    )
    climb = started(machine(), rule, idle(ENDED), friday(18, 50))
    old = HookRun(
        id="a", life=climb.life, policy=rule.name, rule="idle", number=1, hook="checkpoint",
        began_at=friday(12), until=friday(19, 10),
    )  # fmt: skip
    assert summarize_hook_runs(climb, [old]).running == {1}
    ended = replace(old, state="lost", ended_at=friday(12, 5))
    assert summarize_hook_runs(climb, [ended]) == HookProgress()
    assert find_ended_steps(climb, rule, [ended]) == {}


OURS = {"tier": "on-demand"}
"""A condition that holds for both lives alike, and that no work changes."""


def test_who_was_told_before_a_restart_is_told_again_and_has_its_whole_grace() -> None:
    rule = policy(when=OURS, hold=timedelta())
    old, new = machine(started_at=friday(9)), machine(started_at=friday(18, 52))
    before = advance_escalation(None, judged(old, rule, idle(friday(9)), friday(18, 50)), stopped=False)
    assert before is not None
    told = mark_told(before, rule, 0, friday(18, 50))
    now = friday(19, 5)
    found = judged(new, rule, idle(friday(18, 52)), now, told)
    after = advance_escalation(told, found, stopped=False)
    assert after is not None
    assert (after.life, after.done) == (identify_incarnation(new.observation), ())
    (stop,) = [due for due in list_due_steps(found, after, stopped=False) if due.step.do == STOP]
    assert stop.unsent
    assert stop.at >= now + minutes(15)
