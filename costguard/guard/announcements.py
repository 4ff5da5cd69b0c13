"""How far each escalation came, from the records of acts and deliveries: which steps are done, and what is announced to whom.

An act is announced to the present owner of the machine, for one episode and one time. A freeze, a lease or a protection
withdraws the announcement, and after it ends the act is announced anew, with its whole grace.

Example: a stop was sent at 19:05 and is not proven: its step is neither done nor due. A listing proves it at 19:07: it is done.
If its second look failed instead, nothing was sent, and it is due as before.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from costguard.guard.action_intents import DONE, DOUBTFUL_STATES, Intent
from costguard.guard.action_plan import PolicyCase, explain_withdrawal, get_first_act, is_question, resolve_step
from costguard.guard.cap_forecast import build_cap_policies
from costguard.guard.context import GuardConfig, GuardSnapshot
from costguard.guard.escalation import (
    announce_earlier,
    find_ended_steps,
    keep_promise,
    mark_delivered,
    mark_step_done,
    update_announcement,
)
from costguard.guard.policy import DESTRUCTIVE, HOLDS, EscalationState, Proposal
from costguard.guard.timed_stops import TIMED_STOP
from costguard.values.resource import RUNNING, Incarnation, is_same_life


def update_announcements(cases: list[PolicyCase], proposals: Iterable[Proposal], now: datetime) -> None:
    """Record in each escalation whether its act stays announced, and the announced time, before which no later run acts."""
    acts: dict[tuple[str, Incarnation], list[Proposal]] = {}
    for one in proposals:
        if one.step.do in DESTRUCTIVE:
            acts.setdefault((one.verdict.policy.name, one.verdict.life), []).append(one)
    for n, case in enumerate(cases):
        climb, coming = case.climb, acts.get((case.verdict.policy.name, case.verdict.life))
        if climb is None or not climb.done or not coming:
            continue
        first = get_first_act(coming)
        climb = update_announcement(climb, withdrawn=bool(explain_withdrawal(first)), now=now)
        if first is not None and climb.announced_from != now:
            climb = announce_earlier(climb, first.expected_at or first.due_at, now)
        for one in coming:
            climb = keep_promise(climb, one.step.do, one.due_at)
        if climb is not case.climb:
            cases[n] = replace(case, climb=climb)


def end_lost_escalations(cases: list[PolicyCase], intents: Iterable[Intent]) -> None:
    """End escalations whose act counts as done although nothing asked for it and the machine runs: they begin anew.

    Versions before 2026-12 stored a step as done after a failed look.
    """
    acted = {(one.policy, one.life.key, one.act) for one in intents if one.state in (DONE, *DOUBTFUL_STATES)}
    for n, case in enumerate(cases):
        policy, climb = case.verdict.policy, case.climb
        if climb is None or case.verdict.finding != HOLDS or case.live.observation.state != RUNNING:
            continue
        steps = [policy.then[number] for number in climb.done if number < len(policy.then)]
        acts = [resolve_step(step, case).do for step in steps if not is_question(step, case)]  # an approved question is due
        if any(act in DESTRUCTIVE and (policy.name, climb.life.key, act) not in acted for act in acts):
            cases[n] = replace(case, climb=None)


def mark_executed_steps(rules: GuardConfig, snapshot: GuardSnapshot) -> list[EscalationState]:
    """Mark the steps in `snapshot` whose act was proven, or whose hook ran, as done, and those whose act is in doubt as that.

    A step is done when a listing proves its act. An act that was sent and is not proven is neither done nor due, and one that
    was not sent is due, whatever was tried.
    """
    by_name = {policy.name: policy for policy in (*rules.policies, *build_cap_policies(rules.budgets), TIMED_STOP)}
    climbs = []
    for climb in snapshot.climbs:
        policy, new_climb, doubtful = by_name.get(climb.policy), climb, set[int]()
        if policy is None:
            continue
        for intent in snapshot.intents:
            is_match = intent.policy == climb.policy and is_same_life(intent.life, climb.life)
            if not is_match or intent.created_at < climb.started_at or intent.state not in (DONE, *DOUBTFUL_STATES):
                continue
            for number, step in enumerate(policy.then):
                if step.do == intent.act and intent.state == DONE:
                    new_climb = mark_step_done(new_climb, policy, number, intent.sent_at or intent.moved_at)
                elif step.do == intent.act:
                    doubtful.add(number)
        for number, began_at in find_ended_steps(climb, policy, snapshot.hooks).items():
            new_climb = mark_step_done(new_climb, policy, number, began_at)
        climbs.append(replace(new_climb, in_doubt=tuple(sorted(doubtful - {*new_climb.done}))))
    return climbs


def apply_deliveries(
    climb: EscalationState | None, owner: str, rules: GuardConfig, snapshot: GuardSnapshot
) -> EscalationState | None:
    """Set when `owner`, whose machine it is, received the announcement."""
    if climb is None:
        return None
    received = snapshot.deliveries.get((f"policy:{climb.policy}", "/".join(climb.life.key)), ())
    return mark_delivered(climb, [one for one in received if one.channel not in rules.journals], owner)
