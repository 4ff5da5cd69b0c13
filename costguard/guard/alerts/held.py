"""Alerts of acts that are due and not done: what holds them, until when, and what to do. One alert a cause, not one a machine.

Everybody who was told that an act is due is told once it is late by more than a run. What withdraws an announcement (a freeze,
a lease, a protection) is told by the alert of the machine itself, and an act whose outcome is in doubt by the alert of the act.

Example: 24 machines are due for a hard cap at 11:00, and `[rails]` lets three go in ten minutes: at 11:02 one page says
"OVERDUE: 21 acts are not done: ...", with what they cost an hour, the command, the machines and what holds them.
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
from costguard.guard.cap_acceptance import explain_cap_cure, name_cap_policy
from costguard.guard.context import GuardConfig, GuardSnapshot
from costguard.guard.policy import CAP_GRACE_MIN, CAP_RULE, DESTRUCTIVE, HOLD_REASONS, NEVER, Proposal
from costguard.guard.policy_evaluation import compute_burn_rate
from costguard.values.money import Rate
from costguard.values.resource import Incarnation
from costguard.values.text_format import format_command, format_near_time

if TYPE_CHECKING:
    from costguard.guard.evaluation import GuardEvaluation

ALERTED_HOLDS = DELAYING_HOLDS | {"clock", "workers_first", "untold"}
"""Holds that these alerts tell. Any other is told by the alert of the machine, the act or the breaker."""
WORKERS_FIRST_FOR = timedelta(minutes=30)
"""How long the head of a group waits for its workers before that is told: they are stopped one after the other."""
NAMED_MAX = 50
"""Machines that one alert names."""
UNSENT = "unsent"
"""The cause of an act that nothing in the plan holds, and that was not sent when it was due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldAct:
    """An act that is due since `since` and held, by `why`."""

    proposal: Proposal
    case: PolicyCase
    since: datetime
    why: str


def list_held_alerts(survey: GuardEvaluation, rules: GuardConfig, snapshot: GuardSnapshot) -> Iterator[Alert]:
    """Yield one alert for each cause that holds due acts for longer than a run, apart for hard caps and for other policies.

    It gets worse, and is told again, when another act becomes due; not when others are done.
    """
    causes = defaultdict[tuple[str, bool], list[HeldAct]](list)
    for reason, act in _list_held_acts(survey, rules, snapshot):
        causes[reason, act.proposal.verdict.policy.rule == CAP_RULE].append(act)
    for (reason, cap), acts in sorted(causes.items()):
        yield _build_held_alert(reason, acts, rules, survey, cap=cap)


def build_acceptance_alert(survey: GuardEvaluation, *, why: str, owners: Sequence[str]) -> Alert:
    """Build the page that new settings hold every act of a policy until a person accepts the plan. `owners`: see Alert."""
    facts = (
        ("to read the plan", "costguard plan"),
        ("to accept it", f"costguard plan --accept {survey.plan_hash[:12]}"),
        ("why", why),
        ("next", "no policy acts until a person accepts the plan; hard caps act within [rails] acts"),
    )
    what = "new settings are not accepted yet: no policy stops anything"
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


def _list_held_acts(survey: GuardEvaluation, rules: GuardConfig, snapshot: GuardSnapshot) -> Iterator[tuple[str, HeldAct]]:
    cases = {(case.verdict.policy.name, case.verdict.life): case for case in survey.cases}
    for one in survey.proposals:
        case, reasons = cases[one.verdict.policy.name, one.verdict.life], [reason for reason, _ in one.held_by]
        if one.step.do not in DESTRUCTIVE or case.climb is None or not case.climb.done or explain_withdrawal(one):
            continue
        intent = _find_intent(snapshot.intents, one.verdict.life, one)
        since, cap = one.due_at, one.verdict.policy.rule == CAP_RULE
        if cap and "untold" in reasons:  # its time is never reached before somebody is told
            since, reasons = (
                max(case.climb.started_at, case.climb.announced_from or case.climb.started_at) + CAP_GRACE_MIN,
                ["untold"],
            )
        elif intent is not None and one.step.do in case.approved:
            since = max(intent.created_at, one.due_at)
        if not ALERTED_HOLDS.issuperset(reasons):
            continue
        reason, says = next((hold for hold in one.held_by if hold[0] in reasons), (UNSENT, _explain_unsent(intent)))
        if reason == UNSENT:
            since = snapshot.ready_since.get(name_act(one), survey.at)
        if reason != "not_accepted" and _is_late(reason, since, rules, snapshot):  # the settings are told at once
            yield reason, HeldAct(proposal=one, case=case, since=since, why=says)


def name_act(proposal: Proposal) -> str:
    """Return what an act is known by from run to run: its policy, step and machine."""
    return f"{proposal.verdict.policy.name} {proposal.step.do} {'/'.join(proposal.verdict.life.key)}"


def _is_late(reason: str, since: datetime, rules: GuardConfig, snapshot: GuardSnapshot) -> bool:
    """Return whether the act was due in an earlier run that could act.

    One failed look is not told, since the next one follows in this run.
    """
    if snapshot.last_run_at is None or (snapshot.gap_ended_at is not None and snapshot.gap_ended_at >= snapshot.last_run_at):
        return False
    since = max(since, snapshot.gap_ended_at or since)
    patience = {UNSENT: rules.interval / 2, "untold": rules.interval / 2, "workers_first": WORKERS_FIRST_FOR}
    return since <= snapshot.last_run_at - patience.get(reason, timedelta())


def _explain_unsent(intent: Intent | None) -> str:
    return (intent.outcome if intent is not None else "") or "it was due in the last run, and no request was sent"


def _find_intent(intents: Iterable[Intent], life: Incarnation, proposal: Proposal) -> Intent | None:
    """Return the newest intent for the act: an open one, or one that its last check cancelled after it was due."""
    candidates = [
        one
        for one in intents
        if one.life == life
        and one.act == proposal.step.do
        and one.policy == proposal.verdict.policy.name
        and (one.state in OPEN_STATES or (one.state == CANCELLED and one.moved_at >= proposal.due_at))
    ]
    return max(candidates, key=lambda one: one.moved_at, default=None)


def _build_held_alert(reason: str, acts: Sequence[HeldAct], rules: GuardConfig, survey: GuardEvaluation, *, cap: bool) -> Alert:
    names = [one.case.live.observation.name or one.case.live.observation.key.id for one in acts]
    owners = tuple(dict.fromkeys(one.case.owner for one in acts))
    first, act = min(acts, key=lambda one: one.since), acts[0].proposal.step.do
    rates = [rate for one in acts if (rate := compute_burn_rate(one.case.live, survey.at)) and rate.currency == "USD"]
    burn = Rate(nano_per_hour=sum(rate.nano_per_hour for rate in rates), currency="USD") if rates else None
    count = f"the {act} of {names[0]} is" if len(acts) == 1 else f"{len(acts)} acts are"
    explanation = HOLD_REASONS.get(reason, "it could not be sent")
    facts = (
        ("per hour", format_alert_rate(burn)),
        ("to do", _explain_cure(reason, acts, survey)),
        ("until", _explain_end(reason, acts, rules, survey.at)),
        ("due since", format_near_time(first.since, survey.at, rules.zone)),
        ("why", "; ".join(dict.fromkeys(one.why for one in acts[:3]))),
        *((("cap", over),) if cap and (over := _explain_overshoot(acts, survey)) else ()),
        *((("machines", ", ".join(names) if len(names) <= NAMED_MAX else join_names(names)),) if len(names) > 1 else ()),
    )
    severe = cap or reason in {UNSENT, "refused"}
    return Alert(
        topic=f"held:{reason}",
        subject="hard caps" if cap else "policies",
        owner="",
        owners=owners,
        severity=PAGE if severe else WARNING,
        what=f"OVERDUE: {count} not done: {explanation}",
        condition=f"overdue {act} of {names[0]}" if len(acts) == 1 else f"{len(acts)} overdue acts",
        at=survey.at,
        facts=facts,
        stage=int(max(one.since for one in acts).timestamp()) // 60,
        ahead=True,
    )


def _explain_overshoot(acts: Sequence[HeldAct], survey: GuardEvaluation) -> str:
    """Explain by how much the caps that wait can be exceeded, if they act in this moment; "" if they cannot."""
    caps = {one.proposal.verdict.policy.name for one in acts}
    over = [one for one in survey.foresights if one.overshoot.nano and name_cap_policy(one.standing.budget) in caps]
    return "; ".join(
        f"budget {one.standing.budget.name} is exceeded by up to {format_alert_sum(one.overshoot)} even if it acts now"
        for one in over
    )


def _explain_end(reason: str, acts: Sequence[HeldAct], rules: GuardConfig, now: datetime) -> str:
    last = max((one.proposal.expected_at or one.proposal.due_at for one in acts), default=NEVER)
    if reason == "rate":
        return (
            f"about {format_near_time(last, now, rules.zone)}, when the limits allow the last one" if last < NEVER else "never"
        )
    if reason == "untold":
        return "a channel confirms the notice, and 60 s after that"
    if reason == "clock":
        return "the clocks agree again"
    if reason == "workers_first":
        return "its workers are stopped"
    if reason == "stale":
        return "its provider can be reached again"
    return "its provider takes the request; it is tried again" + ("" if reason == "refused" else " in every run")


def _explain_cure(reason: str, acts: Sequence[HeldAct], survey: GuardEvaluation) -> str:
    caps = {act.proposal.verdict.policy.name for act in acts if act.proposal.verdict.policy.rule == CAP_RULE}
    if reason == "rate" and caps:
        return explain_cap_cure(caps, accepted=survey.accepted_caps, doubted=survey.doubted_caps, plan_hash=survey.plan_hash)
    one = acts[0].proposal
    approve = format_command("approve", one.verdict.life.key, one.step.do)
    by_loss = "irreversible" in acts[0].why
    return {
        "rate": "more in [rails] acts (irreversible_per_h)" if by_loss else f"{approve}, or more in [rails] acts",
        "untold": "costguard notify test shows which channel fails; costguard stop stops the machine now",
        "clock": "correct the clock of the watchdog",
        "workers_first": "stop the workers, or the whole group, by hand",
    }.get(reason, "stop it in its provider's console; costguard doctor shows whether the provider can be reached")
