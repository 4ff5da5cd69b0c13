"""What was said and done in one life of a machine counts for nothing in the next, also under a rule that asks of no work."""

from __future__ import annotations

from datetime import timedelta

from costguard.guard.escalation import advance_escalation, list_due_steps
from costguard.guard.policy import STOP
from costguard.metering.observation import identify_incarnation
from tests.guard.cases import friday, idle, judged, machine, mark_told, minutes, policy

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
