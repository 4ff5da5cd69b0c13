"""Policies as documents: `costguard.policy/1` (lint, explain, test; see `action`) and overrides (`costguard.wish/1`)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from types import MappingProxyType

from costguard.budgets.budget import ResourceFilter
from costguard.guard.context import ACTIVITY_WINDOW_MIN
from costguard.guard.evaluation import NO_ADMIN_ROUTE
from costguard.guard.facts import find_fact
from costguard.guard.overrides import ARM, ARMED_FOR, LEASE, ArmedLevel, Override, split_arming
from costguard.guard.policy import (
    ASK,
    CAP_GRACE_MIN,
    CAP_RULE,
    DAYS_AROUND,
    DESTRUCTIVE,
    GRACE_MIN,
    HOOK,
    IDLE_RULE,
    LIMIT_RULE,
    NOTIFY,
    OBSERVE,
    SCHEDULE_RULE,
    STEP_LEVELS,
    STOP,
    ConditionResult,
    Policy,
    PolicyStep,
    PolicyTarget,
    Rails,
    Schedule,
    evaluate_schedule,
    reaches_level,
)
from costguard.guard.reach import describe_provider_reach
from costguard.guard.signals import ACTIVE, IDLE
from costguard.values.provider import ProviderManifest
from costguard.values.resource import RUNNING, list_short_ids
from costguard.values.text_format import format_instant, format_length, format_local_time
from costguard.views.document import Column, Document, build_table

SCHEMA = "costguard.policy/1"
RULE_TEXTS = {
    IDLE_RULE: "in doubt the machine keeps running",
    CAP_RULE: "in doubt the cost counts, and the limit stops the machine",
    SCHEDULE_RULE: "on and off times",
    LIMIT_RULE: "a limit, which acts on busy machines too",
}
WORKING_MACHINE_FACTS = {"state": ACTIVE, "group_state": ACTIVE, "power": RUNNING}
"""What is known of a machine that works, whatever else is."""
MEASURES_LEAST, MINUTE = 3, timedelta(minutes=1)
CHANGES_SHOWN = 3
ANSWERS = {True: "yes", False: "no", None: "unknown"}


def build_policy_lint_document(
    where: str,
    policies: Sequence[Policy],
    *,
    problems: Sequence[str] = (),
    hard: Sequence[str] = (),
    accepted: Collection[str] = (),
    shorts: Mapping[str, str] = MappingProxyType({}),
    rails: Rails | None = None,
    configured: Sequence[ProviderManifest] = (),
    admin_route: bool,
    machines: Sequence[str] = (),
) -> Document:
    """Return remarks about settings that are valid but may not be intended.

    - `problems`: what cannot work as the settings are today, such as a route whose variable is not set.
    - `hard`: the names of hard budgets; `accepted`: those that a person accepted; `shorts`: how the limits delay the stops of
      one, by name. `configured`: the providers that are watched. `admin_route`: see GuardConfig.
    - `machines`: sentences about what the policies can do on the machines in the ledger.
    """
    acting = bool(hard) or any(reaches_level(policy.arm, STOP) for policy in policies)
    remarks = [*problems, *([NO_ADMIN_ROUTE] if acting and not admin_route else [])]
    limits = rails or Rails()
    if not (limits.acts_per_run and limits.acts_per_10m):
        remarks.append("[rails] acts allows no acts: per_run and per_10m must be 1 or more for a policy to act")
    remarks += [
        remark
        for policy in policies
        for remark in (*_list_remarks(policy), *_list_start_remarks(policy), *_list_late_metric_remarks(policy, configured))
    ]
    reach = [
        reach_remark
        for policy in policies
        for one in configured
        if (reach_remark := describe_provider_reach(policy, one.name, one.measures))
    ]
    remarks += [*reach, *machines]
    remarks += [f"budget {name}: {short} (at the last guard run)" for name, short in shorts.items()]
    remarks += [_format_acceptance_remark(name, limits) for name in hard if name not in accepted]
    counts = f"{len(policies)} {'policy' if len(policies) == 1 else 'policies'}"
    lead = f"{where}: {counts}, {len(problems) or 'no'} problem{'' if len(problems) == 1 else 's'} found."
    rows = tuple(
        {"policy": policy.name, "arm": policy.arm, "rule": policy.rule, "digest": policy.digest} for policy in policies
    )
    data = {"schema": SCHEMA, "action": "lint", "policies": list(rows), "remarks": remarks}
    kinds = (f"{policy.name}: {policy.rule}: {RULE_TEXTS[policy.rule]}" for policy in policies)
    return Document(data=data, records=rows, lead=(lead, *kinds), notes=tuple(remarks))


def _format_acceptance_remark(name: str, rails: Rails) -> str:
    """Return what it means that nobody accepted a hard cap yet."""
    most = rails.limit_unaccepted().acts_per_10m
    return (
        f"budget {name}: this cap is not accepted yet, so it acts within [rails] acts: {most} stops in 10 min, "
        f"{rails.irreversible_per_h} an hour that loses data; costguard plan shows how to accept it"
    )


def build_policy_explanation_document(
    policies: Sequence[Policy], armed: Mapping[str, tuple[ArmedLevel, datetime | None]], now: datetime
) -> Document:
    """Return each policy in words.

    `armed`: for each policy, its level today and the time until which it holds. `now`: next times of schedules are after it.
    """
    explanations = {policy.name: list(_explain_policy(policy, *armed[policy.name], now)) for policy in policies}
    data = {
        "schema": SCHEMA,
        "action": "explain",
        "policies": [
            {
                "name": policy.name,
                "rule": policy.rule,
                "arm": policy.arm,
                "level": armed[policy.name][0].level,
                "digest": policy.digest,
                "when": policy.when.text,
                "for_seconds": int(policy.hold.total_seconds()),
                "steps": [_build_step_data(step) for step in policy.then],
                "told": explanations[policy.name],
            }
            for policy in policies
        ],
    }
    lines = [
        line for policy in policies for line in (f"{policy.name}", *(f"  {line}" for line in explanations[policy.name]), "")
    ]
    records = tuple({"policy": name, "told": line} for name, lines in explanations.items() for line in lines)
    return Document(data=data, records=records, lead=tuple(lines[:-1]) or ("The settings have no [[policy]].",))


def build_policy_test_document(policy: Policy, facts: Mapping[str, str], truth: ConditionResult) -> Document:
    """Return the result of `policy` for `facts`, as they were typed."""
    answer = ANSWERS[truth.value]
    data = {
        "schema": SCHEMA,
        "action": "test",
        "policy": policy.name,
        "when": policy.when.text,
        "facts": dict(facts),
        "holds": truth.value,
        "missing": list(truth.missing),
        "why": truth.why,
    }
    missing = [f"missing: {name} ({fact.told})" for name in truth.missing if (fact := find_fact(name))]
    because = [truth.why] if truth.why and not missing else []
    then = f"after {format_length(policy.hold)}: {format_step(policy.then[0])}" if policy.hold else format_step(policy.then[0])
    lead = [
        f"{policy.name}: {answer}",
        f"when {policy.when.text}",
        *missing,
        *because,
        *([f"then {then}"] if truth.value else []),
    ]
    notes = ("An idle rule never acts on unknown activity.",) if truth.value is None else ()
    record = {"policy": policy.name, "holds": answer, "missing": " ".join(truth.missing)}
    return Document(data=data, records=(record,), lead=tuple(lead), notes=notes)


def format_step(step: PolicyStep) -> str:
    """Return a step as text: `notify the owner`; `run the hook checkpoint (at most 5 min)`; `ask whether to terminate`."""
    if step.do == NOTIFY:
        return f"{'page' if step.severity == 'page' else 'notify'} {step.to if '@' in step.to else f'the {step.to}'}"
    if step.do == ASK:
        return f"ask for approval to {step.act}"
    if step.do == HOOK:
        return f"run the hook {step.run} (at most {format_length(step.timeout)})"
    return {"deny": "deny new holds", "record": "record it", "scale-controller": "scale its controller down"}.get(
        step.do, step.do
    )


def _format_target(target: PolicyTarget) -> str:
    """Return the target as text: `machines with a GPU; provider aws or gcp; team=vision`."""
    match = target.match
    parts = [] if target.gpu is None else ["machines with a GPU" if target.gpu else "machines without a GPU"]
    for word, values in _list_selectors(match, target):
        parts.append(f"{word} {' or '.join(values)}" if values else f"no {word}: it selects nothing")
    for key, values in match.labels or ():
        parts.append(f"{key}={' or '.join(values)}")
    return "; ".join(parts) or "everything"


def _list_selectors(match: ResourceFilter, target: PolicyTarget) -> Iterator[tuple[str, tuple[str, ...]]]:
    pairs = (
        ("provider", match.providers),
        ("account", match.accounts),
        ("region", match.regions),
        ("owner", match.owners),
        ("GPU", match.gpus),
        ("tier", match.tiers),
        ("kind", match.kinds),
        ("id", target.ids),
        ("name", target.names),
    )
    return ((word, values) for word, values in pairs if values is not None)


def _explain_policy(policy: Policy, armed: ArmedLevel, until: datetime | None, now: datetime) -> Iterator[str]:
    level = armed.level
    yield f"selects: {_format_target(policy.target)}"
    duration = f", for {format_length(policy.hold)}" if policy.hold else ""
    yield f"when: {policy.when.text}{duration}"
    if policy.until is not None:
        ahead = format_length(policy.until.ahead_max)
        yield f"until label: {policy.until.label}; a date more than {ahead} ahead counts as missing"
    if policy.schedule is not None:
        yield f"next times: {', '.join(_list_changes(policy.schedule, now)) or f'none in {DAYS_AROUND} days'}"
    if policy.alone:
        yield "members of a group are judged one by one"
    if policy.needs:
        yield f"needs signals: {', '.join(policy.needs)}"
    for step in policy.then:
        moment = f"{format_length(step.after)} after the first step" if step.after else "at once"
        short = "" if reaches_level(level, STEP_LEVELS[step.do]) else f"  (not while it is armed for {level})"
        yield f"{moment}: {format_step(step)}{short}"
    lasts = f" until {format_local_time(until)}, then notify" if until and not armed.why else ""
    yield f"armed for: {level}{lasts}{f': {armed.explain()}' if armed.why else ''}"
    yield f"rule: {policy.rule}: {RULE_TEXTS.get(policy.rule, policy.rule)}"
    if any(step.do in DESTRUCTIVE for step in policy.then):
        floor = CAP_GRACE_MIN if policy.rule == CAP_RULE else GRACE_MIN
        yield f"grace: at least {format_length(floor)} between the first notice and an act, twice that with open sessions"
        lost = "may lose data (allow_irreversible)" if policy.allow_irreversible else "never lose data without an approval"
        yield f"its acts {lost}"
    if policy.start is not None:
        rise = f"{float(100 * policy.start.price_rise):g} %"
        yield (
            f"starts what it stopped, at most {format_length(policy.start.within)} after the end of the off period, "
            f"if nobody else changed it, no budget is exceeded and its price increased by at most {rise}"
        )
    yield f"leases: up to {format_length(policy.lease_max)}, renewed {policy.renewals_max} times"


def _list_changes(schedule: Schedule, now: datetime) -> Iterator[str]:
    """Yield the next times at which the schedule changes, in its zone: `off Fri 2026-12-04 20:00 CET`."""
    for _ in range(CHANGES_SHOWN):
        state = evaluate_schedule(schedule, now)
        if state.until is None:
            return
        now = state.until
        yield f"{'on' if state.off else 'off'} {now.astimezone(schedule.zone):%a} {format_local_time(now, schedule.zone)}"


def _list_remarks(policy: Policy) -> Iterator[str]:
    furthest = [step.do for step in policy.then if not reaches_level(policy.arm, STEP_LEVELS[step.do])]
    if policy.arm == OBSERVE:
        yield f"{policy.name} is not armed: it only records what it would do. costguard policy arm {policy.name} notify"
    elif furthest:
        yield f"{policy.name} is armed for {policy.arm}: it will not {', '.join(dict.fromkeys(furthest))}."
    if reaches_level(policy.arm, STOP):
        yield (
            f"{policy.name} acts after a person accepts it, for {ARMED_FOR.days} days: costguard policy accept {policy.digest}"
        )
    if policy.hold == timedelta() and policy.rule == IDLE_RULE:
        yield f"{policy.name} has no `for`: one evaluation is enough for its first step."
    ends = dict.fromkeys(step.act or step.do for step in policy.then if step.do in (*DESTRUCTIVE, ASK))
    if policy.rule == IDLE_RULE and ends and policy.when.evaluate(WORKING_MACHINE_FACTS).value is not False:
        yield (
            f"{policy.name} may match active machines, but does not {' or '.join(ends)} them, nor unmeasured ones: "
            'rule = "limit", a [[budget]] with hard = true or a schedule does.'
        )


ANY_MONDAY = datetime(2026, 1, 5)  # noqa: DTZ001 - a wall time, placed into the zone of each schedule
"""Schedules are by weekday: the off periods that end in the week from it stand for every week."""


def _list_start_remarks(policy: Policy) -> Iterator[str]:
    """Yield a remark where a day off ends at midnight and other off periods later: a start at 00:00 is hardly meant."""
    if policy.start is None or policy.schedule is None:
        return
    zone = policy.schedule.zone
    hours = (ANY_MONDAY.replace(tzinfo=zone) + timedelta(hours=number) for number in range(7 * 24))
    states = (evaluate_schedule(policy.schedule, hour.astimezone(UTC)) for hour in hours)
    ends = sorted({state.until.astimezone(zone) for state in states if state.off and state.until is not None})
    at_midnight = [end for end in ends if end.time() == time()]
    if at_midnight and len({end.time() for end in ends}) > 1:
        yield (
            f"{policy.name} starts machines at 00:00 on {at_midnight[0]:%A}, when a day off ends, but not on other days: "
            'add the night before, such as off = ["20:00-08:00", "sat-sun"]'
        )


def _list_late_metric_remarks(policy: Policy, configured: Sequence[ProviderManifest]) -> Iterator[str]:
    """Yield a remark for each provider whose metrics are too infrequent and too late for the policy's `for`.

    Example: AWS metrics come every 5 min, 10 min late. The last 20 min contain two of them; 25 min contain three.
    """
    if (
        policy.when.evaluate(WORKING_MACHINE_FACTS).value is not False
        or policy.when.evaluate({"power": RUNNING}).value is False
        or policy.when.evaluate({"power": RUNNING, "state": IDLE}).value is False
    ):
        return  # it does not rest on measures of work, or waits for a hang, which only the agent sees
    window, providers = max(policy.hold, ACTIVITY_WINDOW_MIN), policy.target.match.providers
    for one in configured:
        needed = one.measures_late + MEASURES_LEAST * one.measures_every
        if window < needed and (providers is None or one.name in providers):
            yield (
                f"{policy.name}: samples of {one.name} arrive every {format_length(one.measures_every)} and "
                f"{format_length(one.measures_late)} late, so fewer than {MEASURES_LEAST} of them are in "
                f"{format_length(window)}: "
                f'write for = "{-(-needed // MINUTE)}m" or more, or its machines may never be classified as idle.'
            )


def _build_step_data(step: PolicyStep) -> dict[str, object]:
    return {"after_seconds": int(step.after.total_seconds()), "do": step.do, "told": format_step(step)}


OVERRIDE_SCHEMA = "costguard.wish/1"


def build_override_document(
    action: str,
    overrides: Sequence[Override],
    *,
    lead: Sequence[str],
    notes: Sequence[str] = (),
    more: Mapping[str, object] | None = None,
) -> Document:
    """Return the document of a recorded override.

    `action`: recorded, lifted, or none if nothing had to be done. `lead`: the result in words. `more`: further keys of the
    data.
    """
    rows = [build_override_data(override) for override in overrides]
    data = {"schema": OVERRIDE_SCHEMA, "action": action, "wishes": rows, **(more or {}), "notes": list(notes)}
    return Document(data=data, records=tuple(rows), lead=tuple(lead), notes=tuple(notes))


def build_kept_document(overrides: Sequence[Override], now: datetime) -> Document:
    """Return the document of the leases and protections in force at `now`."""
    columns: tuple[Column[Override], ...] = (
        Column("", "machine", lambda one: one.key.path if one.key else one.subject),
        Column("", "is", lambda one: "kept" if one.what == LEASE else "protected"),
        Column("", "for", lambda one: format_length(one.until - now) if one.until else "until lifted"),
        Column("", "by", lambda one: one.who),
        Column("", "why", lambda one: one.why),
    )
    document = build_override_document("listed", overrides, lead=(f"{len(overrides)} kept or protected by hand.",))
    ids = list_short_ids([one.key for one in overrides if one.key]) if all(one.key for one in overrides) else ()
    return replace(document, tables=(replace(build_table(columns, overrides), ids=ids),) if overrides else ())


def build_override_data(override: Override) -> dict[str, object]:
    """Return an override as data for scripts."""
    key, (value, digest) = override.key, split_arming(override.value) if override.what == ARM else (override.value, "")
    return {
        "id": override.id,
        "what": override.what,
        "who": override.who,
        "why": override.why,
        "at": format_instant(override.at),
        "until": format_instant(override.until) if override.until else None,
        "provider": key.provider if key else None,
        "account": key.account if key else None,
        "region": key.region if key else None,
        "resource": key.id if key else None,
        "subject": override.subject or None,
        "value": value or None,
        **({"digest": digest} if digest else {}),
        "lifted_at": format_instant(override.lifted_at) if override.lifted_at else None,
        "lifted_by": override.lifted_by or None,
    }
