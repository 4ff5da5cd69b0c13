"""Alerts of acts that are due and not done: what holds them, until when, and what to do. One alert a cause, not one a machine.

Everybody who was told that an act is due is told once it is late by more than a run. What withdraws an announcement (a freeze,
a lease, a protection) is told by the alert of the machine itself, and an act whose outcome is in doubt by the alert of the act.

Example: 24 machines are due for a hard cap at 11:00, and `[rails]` lets three go in ten minutes: at 11:02 one page says "21 due
stops are held: the limits in [rails] allow no more acts now", with the machines, what they cost an hour, and the command.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from costguard.guard.action_intents import CANCELLED, OPEN_STATES, Intent
from costguard.guard.action_plan import DELAYING_HOLDS, PolicyCase, explain_withdrawal
from costguard.guard.alerts.alert import PAGE, WARNING, Alert, format_alert_rate, format_alert_sum
from costguard.guard.alerts.fleet import join_names
from costguard.guard.cap_acceptance import name_cap_policy
from costguard.guard.context import GuardConfig, GuardSnapshot
from costguard.guard.policy import CAP_GRACE_MIN, CAP_RULE, DESTRUCTIVE, HOLD_REASONS, NEVER, Proposal
from costguard.guard.policy_evaluation import compute_burn_rate
from costguard.values.money import Rate
from costguard.values.resource import Incarnation
from costguard.values.text_format import format_local_time, quote_shell_word

if TYPE_CHECKING:
    from costguard.guard.evaluation import GuardEvaluation

UNSENT = "unsent"
"""The cause of an act that nothing in the plan holds, and that was not sent when it was due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldAct:
    """An act that is due since `since` and held, by `why`."""

    proposal: Proposal
    case: PolicyCase
    since: datetime
    why: str


def list_held_alerts(survey: GuardEvaluation, rules: GuardConfig, sight: GuardSnapshot) -> Iterator[Alert]:
    """Yield one alert for each cause that holds due acts for longer than a run: apart for hard caps, and by when they were due.

    So an act that becomes due later is told of, and none is told of again as others are done.
    """
    causes = defaultdict[tuple[str, bool, datetime], list[HeldAct]](list)
    for reason, act in _list_held_acts(survey, rules, sight):
        causes[reason, act.proposal.verdict.policy.rule == CAP_RULE, act.since].append(act)
    for (reason, cap, _), acts in sorted(causes.items()):
        yield _build_held_alert(reason, acts, rules, survey, cap=cap)


def build_acceptance_alert(survey: GuardEvaluation, *, why: str, owners: Sequence[str]) -> Alert:
    """Build the page that new settings hold every act of a policy until a person accepts the plan. `owners`: see Alert."""
    facts = (
        ("why", why),
        ("next", "no policy acts until then; hard caps act within [rails] acts"),
        ("to read it", "costguard plan"),
        ("to accept it", f"costguard plan --accept {survey.plan_hash[:12]}"),
    )
    what = "new settings wait for a person: all acts of policies are held"
    subject, owner = "the settings", owners[0] if len(owners) == 1 else ""
    return Alert(
        topic="rail:accept",
        subject=subject,
        owner=owner,
        severity=PAGE,
        what=what,
        at=survey.at,
        facts=facts,
        owners=tuple(owners),
    )


def _list_held_acts(survey: GuardEvaluation, rules: GuardConfig, sight: GuardSnapshot) -> Iterator[tuple[str, HeldAct]]:
    cases = {(case.verdict.policy.name, case.verdict.life): case for case in survey.cases}
    for one in survey.proposals:
        case, reasons = cases[one.verdict.policy.name, one.verdict.life], [reason for reason, _ in one.held_by]
        if one.step.do not in DESTRUCTIVE or case.climb is None or not case.climb.done or explain_withdrawal(one):
            continue
        intent = _find_intent(sight.intents, one.verdict.life, one)
        since, cap = one.due_at, one.verdict.policy.rule == CAP_RULE
        if cap and "untold" in reasons:  # its time is never reached before somebody is told
            since, reasons = case.climb.started_at + CAP_GRACE_MIN, ["untold"]
        elif intent is not None and one.step.do in case.approved:
            since = intent.created_at
        if not DELAYING_HOLDS.issuperset(reasons) and reasons != ["untold"]:
            continue
        reason, says = next((hold for hold in one.held_by if hold[0] in reasons), (UNSENT, _explain_unsent(intent)))
        if reason == UNSENT:
            since = sight.ready_since.get(name_act(one), survey.at)
        if reason != "not_accepted" and _is_late(reason, since, rules, sight):  # the settings are told at once
            yield reason, HeldAct(proposal=one, case=case, since=since, why=says)


def name_act(proposal: Proposal) -> str:
    """Return what an act is known by from run to run: its policy, step and machine."""
    return f"{proposal.verdict.policy.name} {proposal.step.do} {'/'.join(proposal.verdict.life.key)}"


def _is_late(reason: str, since: datetime, rules: GuardConfig, sight: GuardSnapshot) -> bool:
    """Return whether the act was due in an earlier run that could act.

    One failed look is not told, since the next one follows in this run.
    """
    if sight.last_run_at is None or (sight.gap_ended_at is not None and sight.gap_ended_at >= sight.last_run_at):
        return False
    since = max(since, sight.gap_ended_at or since)
    return since <= sight.last_run_at - (rules.interval / 2 if reason == UNSENT else timedelta())


def _explain_unsent(intent: Intent | None) -> str:
    return (intent.outcome if intent is not None else "") or "it was due in the last run, and no request was sent"


def _find_intent(intents: Iterable[Intent], life: Incarnation, proposal: Proposal) -> Intent | None:
    """Return the newest intent for the act: an open one, or one that its last check cancelled after it was due."""
    mine = [
        one
        for one in intents
        if one.life == life
        and one.act == proposal.step.do
        and one.policy == proposal.verdict.policy.name
        and (one.state in OPEN_STATES or (one.state == CANCELLED and one.moved_at >= proposal.due_at))
    ]
    return max(mine, key=lambda one: one.moved_at, default=None)


def _build_held_alert(reason: str, acts: Sequence[HeldAct], rules: GuardConfig, survey: GuardEvaluation, *, cap: bool) -> Alert:
    names = [f"{one.case.live.observation.name or one.case.live.observation.key.id}" for one in acts]
    owners = tuple(dict.fromkeys(one.case.owner for one in acts))
    first, act = min(acts, key=lambda one: one.since), acts[0].proposal.step.do
    rates = [rate for one in acts if (rate := compute_burn_rate(one.case.live, survey.at)) and rate.currency == "USD"]
    burn = Rate(nano_per_hour=sum(rate.nano_per_hour for rate in rates), currency="USD") if rates else None
    count = f"the {act} of {names[0]} is" if len(acts) == 1 else f"{len(acts)} due acts are"
    said = HOLD_REASONS.get(reason, "it could not be sent")
    facts = (
        ("machines", join_names(names)),
        ("due since", format_local_time(first.since, rules.zone)),
        ("why", "; ".join(dict.fromkeys(one.why for one in acts[:3]))),
        ("per hour", format_alert_rate(burn)),
        *((("the cap", over),) if cap and (over := _explain_overshoot(acts, survey)) else ()),
        ("until", _explain_end(reason, acts, rules)),
        ("to do", _explain_cure(reason, acts, survey)),
    )
    severe = cap or reason in {UNSENT, "refused"}
    return Alert(
        topic=f"held:{reason}",
        subject=f"{'hard caps' if cap else 'policies'}, due at {first.since.isoformat(timespec='minutes')}",
        owner=owners[0] if len(owners) == 1 else "",
        owners=owners,
        severity=PAGE if severe else WARNING,
        what=f"DUE AND HELD: {count} not done: {said}",
        at=survey.at,
        facts=facts,
        once=not severe,
        ahead=True,
    )


def _explain_overshoot(acts: Sequence[HeldAct], survey: GuardEvaluation) -> str:
    """Explain by how much the caps that wait can be exceeded, if they act in this moment; "" if they cannot."""
    caps = {one.proposal.verdict.policy.name for one in acts}
    over = [one for one in survey.foresights if one.overshoot.nano and name_cap_policy(one.standing.budget) in caps]
    return "; ".join(
        f"budget {one.standing.budget.name} can be exceeded by up to {format_alert_sum(one.overshoot)}, if it acts now"
        for one in over
    )


def _explain_end(reason: str, acts: Sequence[HeldAct], rules: GuardConfig) -> str:
    last = max((one.proposal.expected_at or one.proposal.due_at for one in acts), default=NEVER)
    if reason == "rate":
        return f"about {format_local_time(last, rules.zone)}, when the limits let the last one go" if last < NEVER else "never"
    if reason == "untold":
        return "a channel confirms the notice, and 60 s after that"
    if reason == "stale":
        return "its provider can be asked again"
    return "its provider takes the request; it is tried again" + ("" if reason == "refused" else " in every run")


def _explain_cure(reason: str, acts: Sequence[HeldAct], survey: GuardEvaluation) -> str:
    new_cap = any(
        one.proposal.verdict.policy.rule == CAP_RULE and one.proposal.verdict.policy.name not in survey.accepted_caps
        for one in acts
    )
    if reason == "rate" and new_cap:
        return f"costguard plan --accept {survey.plan_hash[:12]} lets the cap stop all of them"
    if reason == "rate":
        one = acts[0].proposal
        key = quote_shell_word("/".join(one.verdict.life.key))
        return f"costguard approve {key} {one.step.do}, or more in [rails] acts"
    if reason == "untold":
        return "costguard notify test says which channel fails; costguard stop stops it now"
    return "stop it in its provider's console; costguard doctor shows whether the provider can be asked"
