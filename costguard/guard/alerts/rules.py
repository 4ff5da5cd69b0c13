"""List all alerts that hold after a guard run, computed anew each time.

`dispatch` decides which are sent, and when again.

Hook alerts: `checkpoint` exceeds its 5 min at 19:05: alert at once; the stop, due at 19:05, runs at 19:10 or later.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, tzinfo
from fractions import Fraction

from costguard.guard.action_intents import DONE, UNCONFIRMED, is_proof
from costguard.guard.action_plan import (
    DELAYING_HOLDS,
    RESTING_STATES,
    PolicyCase,
    explain_withdrawal,
    get_first_act,
    resolve_step,
)
from costguard.guard.alerts import alert
from costguard.guard.alerts.alert import WARNING, Alert
from costguard.guard.alerts.blind import index_agents, list_blind_alerts
from costguard.guard.alerts.fleet import build_alert_subject, explain_cap, list_fleet_alerts
from costguard.guard.alerts.held import build_acceptance_alert, list_held_alerts
from costguard.guard.alerts.rates import describe_hourly_cost
from costguard.guard.alerts.starts import (
    UNKNOWN_START,
    StartCost,
    list_missed_start_alerts,
    list_sent_start_alerts,
    list_slow_start_alerts,
)
from costguard.guard.alerts.until import list_until_alerts
from costguard.guard.cap_forecast import CapForecast
from costguard.guard.context import GuardConfig, GuardSnapshot, ResourceContext
from costguard.guard.escalation import BEGUN, SUCCEEDED, HookRun, compute_grace, describe_hook_run
from costguard.guard.evaluation import GuardEvaluation
from costguard.guard.facts import ACTIVITY_FACTS, select_utilization
from costguard.guard.overrides import find_armed_level, find_owner
from costguard.guard.policy import (
    ASK,
    DESTRUCTIVE,
    HOLDS,
    NOT_YET,
    NOTIFY,
    START,
    STOP,
    TERMINATE,
    Proposal,
    reaches_level,
)
from costguard.guard.policy_evaluation import compute_burn_rate, compute_savings_rate, compute_waste
from costguard.guard.signals import ACTIVE, HUNG, IDLE, Activity
from costguard.guard.slow_starts import is_slow_start
from costguard.guard.utilization import describe_usage
from costguard.metering.inventory import COMPLETE
from costguard.metering.spending import LiveResource, ScopeCoverage
from costguard.values.money import Money, Rate, divide_half_even
from costguard.values.resource import ARRIVING_STATES, RUNNING
from costguard.values.text_format import format_command, format_near_time

"""After its stop a machine comes back: the alert of that stop is over."""
DONE_TOLD_FOR, LISTED_AFTER = timedelta(hours=1), timedelta(minutes=15)
"""How long a confirmed act stays an alert, and how long that waits for a listing, which shows what goes on billing."""
WASTE_SHARE_MIN, WASTE_AFTER = 0.5, timedelta(hours=1)
"""Share of idle GPUs in an active machine, and for how long, before it raises an alert."""
UNUSED_AFTER = timedelta(hours=4)
"""How long no GPU works on a machine that only its CPU or a queue keeps active, before it raises an alert."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActCost:
    """Money of an act: `idled` was wasted before it, `saves` per hour since. None: unknown.

    `name`, `owner`: of the resource, which may no longer be listed. `start`: of a start, what it costs.
    """

    idled: Money | None = None
    saves: Rate | None = None
    name: str = ""
    owner: str = ""
    start: StartCost = UNKNOWN_START


NO_ACT_COST = ActCost()


def list_alerts(
    survey: GuardEvaluation,
    rules: GuardConfig,
    snapshot: GuardSnapshot,
    scopes: Iterable[ScopeCoverage],
    costs: Mapping[str, ActCost],
) -> list[Alert]:
    """List all alerts at `survey.at`. `costs`: money of each act by intent id; a missing id means unknown."""
    scopes = tuple(scopes)
    alerts = [
        *_list_case_alerts(survey, rules, snapshot, scopes),
        *_list_waste_alerts(survey, snapshot, rules),
        *_list_hang_alerts(survey, snapshot, rules),
        *_list_intent_alerts(snapshot, rules, costs),
        *_list_start_alerts(survey, snapshot, rules, costs),
        *_list_arming_alerts(rules, snapshot),
        *_list_trouble_alerts(rules, snapshot),
        *list_until_alerts(survey, rules, snapshot),
    ]
    alerts += [*list_hook_alerts(survey, snapshot, rules), *list_fleet_alerts(survey, rules, snapshot, scopes)]
    return [*alerts, *list_held_alerts(survey, rules, snapshot), *_list_acceptance_alerts(survey, snapshot)]


def _list_acceptance_alerts(survey: GuardEvaluation, snapshot: GuardSnapshot) -> Iterator[Alert]:
    """Yield a page if new settings hold the acts of policies, for the owners of machines with an act ahead as well."""
    why = next((says for reason, says in snapshot.held if reason == "not_accepted"), "")
    if why:
        ahead = {one.verdict.life for one in survey.proposals if one.step.do in DESTRUCTIVE}
        owners = dict.fromkeys(case.owner for case in survey.cases if case.verdict.life in ahead)
        yield build_acceptance_alert(survey, why=why, owners=tuple(owners))


def _list_case_alerts(
    survey: GuardEvaluation, rules: GuardConfig, snapshot: GuardSnapshot, scopes: Iterable[ScopeCoverage]
) -> Iterator[Alert]:
    dark = {scope.scope for scope in scopes if scope.outcome != COMPLETE}  # that their provider cannot be asked is told once
    caps = {f"budget:{one.standing.budget.name}": one for one in survey.foresights}
    ahead: dict[tuple[str, object], list[Proposal]] = defaultdict(list)
    for proposal in survey.proposals:
        if proposal.step.do in DESTRUCTIVE:
            ahead[proposal.verdict.policy.name, proposal.verdict.life].append(proposal)
    unannounced_cases = list[PolicyCase]()
    for case in survey.cases:
        policy, climb = case.verdict.policy, case.climb
        if not reaches_level(case.level, NOTIFY):
            continue
        step_numbers = _list_told_steps(case, climb.done if climb else ())
        if step_numbers:
            acts = ahead[policy.name, case.verdict.life]
            act = get_first_act(acts)
            matter = replace(
                build_alert_subject(case.live, case.owner, snapshot.now, rules.zone),
                topic=f"policy:{policy.name}",
                because=(
                    *_explain_verdict(case, caps.get(policy.name), snapshot.now, rules.zone),
                    *_explain_usage(case, rules, snapshot),
                ),
                to=tuple(dict.fromkeys(policy.then[number].to for number in step_numbers)),
            )
            yield _build_escalation_alert(case, matter, step_numbers[-1], act, snapshot.now)
        else:
            unannounced_cases.append(case)
    yield from list_blind_alerts(survey, rules, snapshot, unannounced_cases, dark)


def _list_told_steps(case: PolicyCase, done_numbers: Iterable[int]) -> list[int]:
    """List the done steps that still raise an alert; once the machine is stopped, only those after the stop.

    Nobody is asked for an act that the provider refuses.
    """
    steps, then = case.verdict.policy.then, [n for n in done_numbers if n < len(case.verdict.policy.then)]
    sent = (*then, *(case.climb.in_doubt if case.climb else ()))
    stops = [n for n in sent if steps[n].do == STOP and resolve_step(steps[n], case).do == STOP]
    if stops and case.live.observation.state in (*RESTING_STATES, *ARRIVING_STATES):
        then = [n for n in then if n > stops[-1]]
    asks = () if case.live.observation.handling.protected else (ASK,)
    return [n for n in then if resolve_step(steps[n], case).do in (NOTIFY, *asks) or steps[n].do in asks]


def _explain_verdict(case: PolicyCase, cap: CapForecast | None, now: datetime, zone: tzinfo) -> tuple[str, ...]:
    """Explain a policy that does not rest on the activity alone: cost and time of a hard cap, else the verdict's reasons."""
    verdict = case.verdict
    if cap is not None:
        return explain_cap(cap, now, zone)
    names = verdict.policy.when.names
    alone = bool(names & ACTIVITY_FACTS) and not select_utilization(names)
    return () if alone else (verdict.reasons[:3] or (verdict.policy.when.text,))


def _explain_usage(case: PolicyCase, rules: GuardConfig, snapshot: GuardSnapshot) -> Iterator[str]:
    """Yield how far the GPUs are used and what to try, for a policy on the utilisation; nothing where it is not known."""
    if select_utilization(case.verdict.policy.when.names):
        usage = ResourceContext.of(case.live, rules, snapshot).measure_usage()
        if usage is not None:
            yield describe_usage(usage, case.live.observation.gpu_count)


def _build_escalation_alert(
    case: PolicyCase, matter: alert.AlertSubject, number: int, act: Proposal | None, now: datetime
) -> Alert:
    policy, climb, work = case.verdict.policy, case.climb, case.verdict.work
    assert climb is not None  # noqa: S101 - for the type checker; asked by the caller
    step = resolve_step(policy.then[number], case)
    since, handling = min(climb.since, now), case.live.observation.handling
    so_far = compute_waste(case.live, work, now) if work.state in {IDLE, HUNG} else None
    so_far = compute_cost_since(case.live, since, now) if so_far is None else so_far
    if step.do == ASK:
        loses = handling.terminate_loses if step.act == TERMINATE else handling.stop_loses
        because = f"{policy.name} asks"
        if policy.then[number].do == STOP:
            because = "its provider has no stop for it"
            if step.act == STOP:
                because = case.asks or "the data loss was not allowed"
        yes = format_command("approve", matter.key, step.act)
        notice = alert.build_question_alert(
            matter, work, act=step.act, at=now, since=since, so_far=so_far, loses=loses, because=because, yes=yes, stage=number
        )
        if act is not None and not explain_withdrawal(act):
            notice = _announce_act(notice, act, matter)
    elif act is not None and not explain_withdrawal(act):
        loses = handling.terminate_loses if act.step.do == TERMINATE else handling.stop_loses
        answered = policy.then[act.number].do != act.step.do  # a question that somebody said yes to is told as what it is now
        stage = number + 1 if answered else number
        expected_at = act.expected_at or act.due_at
        if climb.announced_from == now:
            expected_at = max(expected_at, now + compute_grace(policy, act.step, attended=work.attended))
        notice = alert.build_planned_alert(
            matter,
            work,
            act=act.step.do,
            due=expected_at,
            at=now,
            since=since,
            so_far=so_far,
            stage=stage,
            loses=loses,
            limit=act.limit,
            wait=expected_at - max(act.due_at, now),
        )
    elif work.state == HUNG:
        notice = alert.build_hang_alert(matter, work, at=now, since=since, so_far=so_far)
    elif work.state == IDLE and policy.when.names & {"state", "time_in_state"}:
        notice = alert.build_idle_alert(matter, work, at=now, since=since, so_far=so_far)
    else:
        notice = _build_rule_alert(case, matter, since, so_far, now)
    if act is not None and step.do != ASK and (wait_reason := _explain_wait(act, now)):
        notice = replace(notice, facts=(*(fact for fact in notice.facts if fact[0] != "next"), ("next", wait_reason)))
    severity = step.severity if step.do == NOTIFY else notice.severity
    return replace(
        notice,
        severity=severity,
        stage=max(notice.stage, number),
        episode=climb.episode,
        withdraws=bool(explain_withdrawal(act)),
        undelivered=any(reason == "untold" for reason, _ in (act.held_by if act is not None else ())),
    )


def _explain_wait(act: Proposal, now: datetime) -> str:
    """Explain what an act waits for besides its time; "" for nothing."""
    if withdrawal := explain_withdrawal(act):
        return f"no {act.step.do} while it is blocked: {withdrawal}"
    if settings := next((says for reason, says in act.held_by if reason == "not_accepted"), ""):
        return f"{act.step.do} once the settings are accepted (costguard plan): {settings}"
    delay = next((says for reason, says in act.held_by if reason in DELAYING_HOLDS), "") if act.due_at <= now else ""
    return f"{act.step.do} as soon as this ends: {delay}" if delay else ""


def _announce_act(notice: Alert, act: Proposal, matter: alert.AlertSubject) -> Alert:
    """A question that an act follows says when: its answer is not waited for."""
    due = act.expected_at or act.due_at
    coming = ("next", f"{act.step.do} at {matter.format_time(due, notice.at)}, unless somebody keeps it")
    facts = tuple(coming if fact[0] == "next" else fact for fact in notice.facts)
    what = f"{notice.what} Without an answer it {alert.announce_act(act.step.do, due, notice.at, matter.zone)}"
    return replace(notice, what=what, facts=facts, ahead=True, due=due)


def _build_rule_alert(
    case: PolicyCase, matter: alert.AlertSubject, since: datetime, so_far: Money | None, now: datetime
) -> Alert:
    policy = case.verdict.policy
    facts = (
        ("per hour", alert.format_alert_rate(matter.rate)),
        ("so far", alert.format_alert_sum(so_far)),
        ("since", matter.format_time(since, now)),
        ("why", "; ".join(matter.because or case.verdict.reasons[:3]) or policy.when.text),
        ("next", "only this notification"),
    )
    condition = f"{policy.name}: {matter.short_name}"
    return alert.build_alert(matter, WARNING, f"{policy.name}: {matter.called}", now, facts, condition=condition)


def _list_trouble_alerts(rules: GuardConfig, snapshot: GuardSnapshot) -> Iterator[Alert]:
    """One notice per running machine whose agent reports a fault, such as a GPU that fell off the bus and is still paid for."""
    agents_by_key = index_agents(snapshot.agents)
    for live in snapshot.live:
        agent = agents_by_key.get(live.observation.key)
        if agent is None or not agent.troubles or live.observation.state != RUNNING or live.absent_at is not None:
            continue
        owner = find_owner(live.observation, rules.owner_from)
        matter = build_alert_subject(live, owner, snapshot.now, rules.zone, topic="agent")
        facts = (
            ("per hour", alert.format_alert_rate(matter.rate)),
            ("why", "; ".join(agent.troubles)),
            ("next", "nothing automatic, and it is billed as before: check the machine, or replace it"),
        )
        yield alert.build_alert(matter, WARNING, f"{matter.called}: {agent.troubles[0]}", snapshot.now, facts, keep=False)


def _list_arming_alerts(rules: GuardConfig, snapshot: GuardSnapshot) -> Iterator[Alert]:
    """One notice per policy that goes less far than its file says until a person accepts it: edited, run out, or new."""
    for policy in rules.policies:
        armed = find_armed_level(policy, snapshot.wishes, snapshot.now)
        if armed.cure:
            facts = (("why", armed.why), ("next", f"until then it is limited to {armed.level}"), ("to arm it", armed.cure))
            what = f"policy {policy.name} is not armed for {policy.arm}: {armed.why}"
            yield Alert(topic="arming", subject=policy.name, severity=WARNING, what=what, at=snapshot.now, facts=facts)


def _list_waste_alerts(survey: GuardEvaluation, snapshot: GuardSnapshot, rules: GuardConfig) -> Iterator[Alert]:
    """Yield alerts for active machines with at least half of their GPUs idle for an hour, or all of them for four."""
    if not rules.policies:
        return
    for live in snapshot.live:
        work, gpus = survey.works[live.observation.key], round(live.observation.gpu_count)
        if work.state != ACTIVE or not gpus:
            continue
        until, since, idle_gpus = work.get_known_until(survey.at), work.since, round(work.wasted_share * gpus)
        if work.gpu_unused_since is not None and until - work.gpu_unused_since >= UNUSED_AFTER:
            since, idle_gpus = work.gpu_unused_since, gpus
        if since is not None and until - since >= WASTE_AFTER and idle_gpus >= WASTE_SHARE_MIN * gpus:
            owner = find_owner(live.observation, rules.owner_from)
            matter = build_alert_subject(live, owner, survey.at, rules.zone, topic="waste")
            yield build_waste_alert(matter, work, idle_gpus=idle_gpus, gpus=gpus, at=survey.at, since=since)


def build_waste_alert(
    matter: alert.AlertSubject, work: Activity, *, idle_gpus: int, gpus: int, at: datetime, since: datetime
) -> Alert:
    """Build the alert of a machine that uses only part of its GPUs: "7 of 8 GPUs idle since 18:05 UTC, $172.04 wasted"."""
    wasted = compute_wasted_cost(matter.rate, Fraction(idle_gpus, gpus), at - since)
    facts = (
        *alert.list_activity_facts(matter, work, at, since, wasted),
        ("next", "nothing: a busy machine is not stopped"),
    )
    what = f"{matter.called}: {idle_gpus} of {gpus} GPUs idle since {matter.format_time(since, at)}"
    what += "" if wasted is None else f", {alert.format_alert_sum(wasted)} wasted"
    return alert.build_alert(matter, WARNING, what, at, facts, condition=f"idle GPUs of {matter.short_name}")


def compute_wasted_cost(rate: Rate | None, share: Fraction, length: timedelta) -> Money | None:
    """Return the cost of the idle GPUs in `length`: 7/8 of $32.77 an hour over 6 h is $172.04. None: unknown rate."""
    if rate is None:
        return None
    nano = divide_half_even(rate.nano_per_hour * int(length.total_seconds()) * share.numerator, 3600 * share.denominator)
    return Money(nano=nano, currency=rate.currency)


def _list_hang_alerts(survey: GuardEvaluation, snapshot: GuardSnapshot, rules: GuardConfig) -> Iterator[Alert]:
    """Yield an alert for each hung machine that no policy tells of."""
    alerted_keys = {
        case.verdict.life.key
        for case in survey.cases
        if case.verdict.finding in (HOLDS, NOT_YET)
        and HUNG in case.verdict.policy.when.text
        and reaches_level(case.level, NOTIFY)
    }
    for live in snapshot.live:
        key, work = live.observation.key, survey.works[live.observation.key]
        if not rules.policies or work.state != HUNG or work.since is None or key in alerted_keys:
            continue
        owner, so_far = find_owner(live.observation, rules.owner_from), compute_waste(live, work, survey.at)
        matter = build_alert_subject(live, owner, survey.at, rules.zone, topic="hung")
        yield alert.build_hang_alert(matter, work, at=survey.at, since=work.since, so_far=so_far)


def _list_intent_alerts(snapshot: GuardSnapshot, rules: GuardConfig, costs: Mapping[str, ActCost]) -> Iterator[Alert]:
    """Yield alerts for unconfirmed and recently confirmed acts; a confirmed one may be of a vanished machine."""
    by_key = {live.observation.key: live for live in snapshot.live}
    for intent in snapshot.intents:
        live, cost, key = by_key.get(intent.life.key), costs.get(intent.id, NO_ACT_COST), intent.life.key
        if intent.sent_at is None or intent.act == START:
            continue
        subject = alert.AlertSubject(topic="", key=key, owner=cost.owner, name=cost.name, zone=rules.zone)
        if live is not None:
            subject = build_alert_subject(live, find_owner(live.observation, rules.owner_from), snapshot.now, rules.zone)
        matter = replace(subject, topic=f"act:{intent.act}")
        if intent.state == UNCONFIRMED and live is not None:
            spent = compute_cost_since(live, intent.sent_at, snapshot.now)
            yield alert.build_unconfirmed_alert(
                matter, act=intent.act, at=snapshot.now, asked_at=intent.sent_at, sends=intent.sends, so_far=spent
            )
        elif intent.state == DONE and snapshot.now - intent.moved_at < DONE_TOLD_FOR:
            listed = live is None or live.absent_at is not None or is_proof(intent.act, live.observation)
            listed = listed or (live is not None and live.seen_at > intent.moved_at)  # it runs again
            if not listed and snapshot.now - intent.moved_at < LISTED_AFTER:
                continue  # it was looked up by itself: what it bills at rest is known with its next listing
            rest = describe_hourly_cost(live, snapshot.now) if live else "nothing"
            yield alert.build_done_alert(
                matter,
                act=intent.act,
                at=intent.moved_at,
                asked_at=intent.sent_at,
                idle_cost=cost.idled,
                saves=cost.saves,
                afterwards=rest if listed else "not listed since (costguard status)",
            )


def _list_start_alerts(
    survey: GuardEvaluation, snapshot: GuardSnapshot, rules: GuardConfig, costs: Mapping[str, ActCost]
) -> Iterator[Alert]:
    keys = {one.life.key for one in snapshot.intents if one.act == START} | {one.own_stop.life.key for one in survey.starts}
    live = {one.observation.key: one for one in snapshot.live if one.observation.key in keys}
    subjects = {
        key: build_alert_subject(one, find_owner(one.observation, rules.owner_from), snapshot.now, rules.zone)
        for key, one in live.items()
    }
    starts = {name: cost.start for name, cost in costs.items()}
    yield from list_sent_start_alerts(snapshot.intents, live, subjects, starts, snapshot.now)
    yield from list_missed_start_alerts(survey.starts, subjects, snapshot.now)
    starting = (
        (
            one,
            build_alert_subject(one, find_owner(one.observation, rules.owner_from), snapshot.now, rules.zone, topic="starting"),
        )
        for one in snapshot.live
        if is_slow_start(one)
    )
    yield from list_slow_start_alerts(starting, snapshot.now)


def compute_cost_since(live: LiveResource, since: datetime, now: datetime) -> Money | None:
    """Return its compute cost from `since` to `now`, or that of its disks where no computing bills; None: unknown rate."""
    rate = compute_savings_rate(live, now) or compute_burn_rate(live, now)
    return alert.compute_rate_cost(rate, max(now - since, timedelta()))


HOOK_TOLD_FOR = timedelta(hours=1)
"""How long a failed hook stays an alert."""
HOOK_OUTPUT_SHOWN = 400
"""Characters shown from the end of a hook's output; the ledger keeps more."""


def list_hook_alerts(survey: GuardEvaluation, snapshot: GuardSnapshot, rules: GuardConfig) -> Iterator[Alert]:
    """Yield an alert for each hook that failed in the last hour. Its output is untrusted and encoded when shown."""
    live = {one.observation.key: one for one in snapshot.live}
    for run in snapshot.hooks:
        one = live.get(run.life.key)
        bad = run.state not in (BEGUN, SUCCEEDED) and run.ended_at is not None
        if not bad or one is None or run.ended_at is None or snapshot.now - run.ended_at >= HOOK_TOLD_FOR:
            continue
        owner = find_owner(one.observation, rules.owner_from)
        matter = build_alert_subject(one, owner, snapshot.now, rules.zone, topic=f"hook:{run.hook}")
        output_facts = (("output", run.output[-HOOK_OUTPUT_SHOWN:]),) if run.output.strip() else ()
        facts = (
            ("since", matter.format_time(run.began_at, snapshot.now)),
            *output_facts,
            ("next", _format_next_act(run, survey, rules.zone)),
        )
        what = f"hook {run.hook} of {matter.called} {describe_hook_run(run)}"
        yield replace(alert.build_alert(matter, WARNING, what, snapshot.now, facts), once=True)


def _format_next_act(run: HookRun, survey: GuardEvaluation, zone: tzinfo) -> str:
    """Describe the act that follows although the hook failed."""
    acts = [
        one
        for one in survey.proposals
        if one.verdict.policy.name == run.policy and one.verdict.life.key == run.life.key and one.step.do in DESTRUCTIVE
    ]
    first = min(acts, key=lambda one: one.due_at, default=None)
    if first is None:
        return "no later step"
    holds = [words for reason, words in first.held_by if reason not in {"grace", "untold", "hook", "rate"}]
    moment = format_near_time(first.due_at, survey.at, zone)
    return f"no {first.step.do} while {holds[0]}" if holds else f"{first.step.do} at {moment} or later"
