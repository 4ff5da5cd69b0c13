"""The models of `[[policy]]` tables, with their `schedule` and their escalation steps `then`.

Rules for every escalation: a stop comes at least five minutes after a notice about it, and a terminate only if the policy
allows the loss of data.

`after` counts from the first step. Errors name the file, the number of the table, its name and the field.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import timedelta, tzinfo
from typing import Annotated, Self

from pydantic import model_validator

from costguard.errors import InputError
from costguard.guard.alerts.alert import SEVERITIES, WARNING
from costguard.guard.cap_acceptance import CAP_SUBJECT
from costguard.guard.facts import select_measured
from costguard.guard.policy import (
    ASK,
    CAP_RULE,
    DESTRUCTIVE,
    GRACE_MIN,
    HOOK,
    IDLE_RULE,
    LEVELS,
    LIMIT_RULE,
    NOTIFY,
    OBSERVE,
    PASSED,
    SCHEDULE_RULE,
    START,
    STEP_LEVELS,
    STOP,
    TERMINATE,
    UNTIL_MISSING,
    Policy,
    PolicyStep,
    PolicyTarget,
    Schedule,
    ScheduledStartRule,
    UntilRule,
)
from costguard.guard.signals import SIGNAL_FAMILIES
from costguard.guard.timed_stops import TIMED_STOP
from costguard.settings.budgets import MatchTable, make_filter
from costguard.settings.conditions import CompiledCondition, read_condition
from costguard.settings.fields import format_duration, read_name, read_text
from costguard.settings.model import (
    CheckFirst,
    Flag,
    OptionalFlag,
    OptionalTexts,
    ReadAs,
    SettingsModel,
    Text,
    choose,
    choose_many,
    count,
    describe_flag,
    describe_key,
    limit_duration,
    list_keys,
    read_models,
    refuse,
    require_table,
)
from costguard.settings.schedules import ScheduleTable, make_schedule
from costguard.values.checks import describe_value, require, require_one_of

STEPS = tuple(do for do in STEP_LEVELS if do != START)
"""What a step may do. A start is no step: it undoes a stop."""
KEY_ACTIONS = {"to": (NOTIFY, ASK), "severity": (NOTIFY, ASK), "run": (HOOK,), "timeout": (HOOK,), "act": (ASK,)}
"""Which steps a key belongs to, where not to all."""
SECOND, MINUTE, DAY = timedelta(seconds=1), timedelta(minutes=1), timedelta(days=1)
AFTER_MAX, TIMEOUT_MAX, STEPS_MAX = 365 * DAY, 60 * MINUTE, 32
THEN_HINT = 'write then = [{ do = "notify" }, { after = "15m", do = "stop" }]'


class StepTable(SettingsModel):
    """A step of `then`."""

    do: Annotated[str, choose(*STEPS)] = describe_key(..., ", ".join(STEPS), "notify")
    after: Annotated[timedelta, limit_duration(most=AFTER_MAX)] = describe_key(
        timedelta(), "Counts from the first step.", "15m"
    )
    to: Annotated[str, choose("owner", "admin")] = describe_key("owner", "Of notify and ask: owner or admin.", "owner")
    severity: Annotated[str, choose(*SEVERITIES)] = describe_key(WARNING, "Of notify and ask.", "warning")
    run: Text = describe_key("", "Of hook: its name.", "checkpoint")
    timeout: Annotated[timedelta, limit_duration(SECOND, TIMEOUT_MAX)] = describe_key(5 * MINUTE, "Of hook.", "5m")
    act: Annotated[str, choose(STOP, TERMINATE)] = describe_key("", "Of ask: stop or terminate.", "terminate")

    @model_validator(mode="after")
    def _check(self) -> Self:
        for key, deeds in KEY_ACTIONS.items():
            fits = key not in self.model_fields_set or self.do in deeds
            refuse(require, fits, f".{key}", f"belongs to {' and '.join(deeds)}", "remove it")
        asks_for = self.do != ASK or self.act
        refuse(require, bool(asks_for), ".act", "is missing", 'write act = "terminate" or act = "stop"')
        return self


def _check_steps_list(value: object, field: str) -> object:
    """Return `value` if it is a list of tables, not too long."""
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise InputError(f"must be a list of steps, not {describe_value(value)}", field=field, hint=THEN_HINT)
    require(0 < len(value) <= STEPS_MAX, field, f"has {len(value) or 'no'} steps", THEN_HINT)
    return value


def find_stop_action(steps: tuple[PolicyStep, ...]) -> str:
    """Return the action of the first step that stops or terminates a machine; "" if there is none."""
    return next((step.do for step in steps if step.do in DESTRUCTIVE), "")


def _require_known_hook(name: str, field: str, hooks: tuple[str, ...]) -> None:
    if not name:
        raise InputError("is missing", field=field, hint='write run = "checkpoint", and a [[hook]] of that name')
    cure = f'write a [[hook]] with name = "{name}" and its command'
    require(bool(hooks), field, f"there is no hook named {describe_value(name)}", cure)
    require_one_of(name, hooks, field)


def _check_escalation(steps: tuple[PolicyStep, ...], field: str, *, allow_irreversible: bool) -> None:
    """Raise InputError for steps out of order, a stop without notice or grace, or a terminate that is not allowed."""
    notified_after: timedelta | None = None
    for number, step in enumerate(steps, 1):
        place, previous_after = f"{field} {number}", steps[max(number - 2, 0)].after
        if number == 1:
            what = "the first step cannot wait"
            require(not step.after, f"{place}.after", what, "use `for` to set how long the condition must hold")
        earlier = f"is earlier than the step before it, at {format_duration(previous_after)}"
        require(step.after >= previous_after, f"{place}.after", earlier, "`after` counts from the first step, in rising order")
        if step.do in DESTRUCTIVE:
            what, hint = f"{step.do} has no notification before it", 'write { do = "notify" } as the first step'
            if notified_after is None:
                raise InputError(what, field=place, hint=hint)
            least = format_duration(notified_after + GRACE_MIN)
            early = f"is within the grace of {format_duration(GRACE_MIN)} after the notification"
            require(step.after - notified_after >= GRACE_MIN, f"{place}.after", early, f'write after = "{least}" or more')
        if step.do == TERMINATE:
            hint = 'write allow_irreversible = true in this policy, or { do = "ask", act = "terminate" }'
            require(allow_irreversible, f"{place}.do", "terminate deletes data permanently, and that was not allowed", hint)
        if step.do in (NOTIFY, ASK) and notified_after is None:
            notified_after = step.after


SCHEDULE_CONDITION, UNTIL_CONDITION = 'scheduled_on == false && power == "running"', 'power == "running"'
"""The condition of a schedule or an until label that states none."""
DIGEST_CHARS = 16
HOLD_MAX, LEASE_MAX, RENEWALS_MAX, PRIORITY_MAX = 90 * DAY, 30 * DAY, 100, 1000


def _read_policy_name(value: object, field: str) -> str:
    name = read_name(value, field)
    is_reserved = name == TIMED_STOP.name or name.startswith(CAP_SUBJECT)
    require(not is_reserved, field, f"'{name}' is the name of a policy of costguard's own", "choose another name")
    return name


def _read_when(value: object, field: str) -> CompiledCondition:
    return read_condition(read_text(value, field), field)


def _read_rule(value: object, field: str) -> str:
    if value == CAP_RULE:
        raise InputError("cap rules come from budgets", field=field, hint="write hard = true in a [[budget]]")
    return require_one_of(value, (IDLE_RULE, SCHEDULE_RULE, LIMIT_RULE), field)


class TargetTable(MatchTable):
    """`match` of a policy: a budget's keys, and four more."""

    gpu: OptionalFlag = None
    ids: OptionalTexts = None
    names: OptionalTexts = None
    until_label: Annotated[str | None, choose(PASSED, UNTIL_MISSING)] = None


class LeaseTable(SettingsModel):
    """`lease` of a policy."""

    max: Annotated[timedelta, limit_duration(MINUTE, LEASE_MAX)] = describe_key(DAY, "", "24h")
    renewals: Annotated[int, count(0, RENEWALS_MAX)] = describe_key(3, "", 3)


class PolicyTable(SettingsModel):
    """A `[[policy]]` table."""

    name: Annotated[str, ReadAs(_read_policy_name)] = describe_key(..., "Unique.", "idle-gpu")
    arm: Annotated[str, choose(*LEVELS)] = describe_key(
        OBSERVE,
        "The strongest act allowed: observe (record only), notify, stop, terminate. More than notify counts once somebody "
        "accepted what the policy means (`costguard policy accept DIGEST`, which `costguard policy lint` prints), for 90 days. "
        "A policy that is edited only observes until it is accepted again.",
        "notify",
    )
    match: Annotated[TargetTable | None, require_table("{ gpu = true }")] = describe_key(
        None,
        'The machines it applies to (default: all). A budget\'s keys, and gpu = true, ids, and names such as "train-*"; '
        'until_label = "passed" or "missing" by the date in the label costguard:until (2026-12-01T18:00Z), before which people '
        "are notified.",
        {"gpu": True, "names": ["train-*"], "ids": ["i-0abc"], "providers": ["aws"]},
    )
    when: Annotated[CompiledCondition | None, ReadAs(_read_when)] = describe_key(
        None,
        "The condition; a schedule and an until_label need none. Facts, && || ! and brackets, == != < <= > >=, in; text in "
        'quotes, 0.9, duration("45m"), usd(12.50), usd_per_hour(0.30), gpu_util.mean("2h"). A missing fact makes it unknown; '
        "then the policy does not act.",
        'state == "idle" && confidence >= 0.9 && rate >= usd_per_hour(0.30)',
    )
    hold: Annotated[timedelta | None, limit_duration(most=HOLD_MAX)] = describe_key(
        None, "How long it must hold first.", "45m", key="for"
    )
    then: Annotated[tuple[StepTable, ...], CheckFirst(_check_steps_list)] = describe_key(
        ...,
        "The steps; `after` counts from the first one. A stop comes 5 minutes after a notice or later.",
        [
            {"do": "notify", "to": "owner", "severity": "warning"},
            {"after": "15m", "do": "hook", "run": "checkpoint", "timeout": "5m"},
            {"after": "15m", "do": "stop"},
            {"after": "7d", "do": "ask", "act": "terminate"},
        ],
    )
    needs: Annotated[tuple[str, ...], choose_many(*SIGNAL_FAMILIES)] = describe_key(
        (),
        f"Signals that must be measured ({', '.join(SIGNAL_FAMILIES)}); default: all available.",
        ["duty", "cpu"],
    )
    allow_irreversible: Flag = describe_flag("It may lose data permanently.")
    priority: Annotated[int, count(-PRIORITY_MAX, PRIORITY_MAX)] = describe_key(
        0, "At a hard cap the lowest is stopped first.", 0
    )
    schedule: Annotated[ScheduleTable | None, require_table('{ off = ["20:00-08:00"] }')] = describe_key(
        None, "When it should be off; a policy that has one needs no `when`.", None
    )
    rule: Annotated[str | None, ReadAs(_read_rule)] = describe_key(
        None,
        '"idle" (keeps running if unsure), "schedule" (a desired state) or "limit" (on a lease or an age, without evidence of '
        "idleness); default: derived.",
        "idle",
    )
    until_max: Annotated[timedelta, limit_duration(MINUTE, LEASE_MAX)] = describe_key(
        7 * DAY, "Of until_label: a date further ahead counts as missing.", "7d"
    )
    lease: Annotated[LeaseTable | None, require_table('{ max = "24h", renewals = 3 }')] = describe_key(
        None, "Maximum length and renewals of a lease against it.", {"max": "24h", "renewals": 3}
    )
    warmup: Annotated[timedelta, limit_duration(MINUTE, DAY)] = describe_key(
        45 * MINUTE, "How long a machine may be set up.", "45m"
    )
    alone: Flag = describe_flag("true: each machine of a group (see group_from) is evaluated on its own.")


POLICY_KEYS = list_keys(PolicyTable)


def read_policies(value: object, where: str, *, zone: tzinfo, poll: timedelta, hooks: tuple[str, ...]) -> tuple[Policy, ...]:
    """Return the policies of the file `where` in their order.

    `zone`: the zone of schedules that state none. `poll`: the interval between polls. `hooks`: the names of the hooks that
    exist.
    """
    return read_models("policy", PolicyTable, value, where, lambda table: _make_policy(table, zone, poll, hooks))


def _make_policy(table: PolicyTable, zone: tzinfo, poll: timedelta, hooks: tuple[str, ...]) -> Policy:
    schedule = None if table.schedule is None else make_schedule(table.schedule, zone)
    until = _make_until_rule(table)
    rule = table.rule or (LIMIT_RULE if until else IDLE_RULE if schedule is None else SCHEDULE_RULE)
    hint = 'write schedule = { off = ["20:00-08:00"] }'
    require(rule != SCHEDULE_RULE or schedule is not None, ".rule", "needs a schedule", hint)
    when = _choose_condition(table, rule)
    for number, step in enumerate(table.then, 1):
        if step.do == HOOK:
            _require_known_hook(step.run, f".then {number}.run", hooks)
    then = tuple(PolicyStep(**dict(step)) for step in table.then)
    _check_escalation(then, ".then", allow_irreversible=table.allow_irreversible)
    activity = ", ".join(select_measured(when.names))
    if rule == IDLE_RULE and table.hold is None and find_stop_action(then) and activity:
        what = f"is missing, and a {find_stop_action(then)} by {activity} needs it"
        raise InputError(what, field=".for", hint='write for = "45m"')
    if table.hold is not None:
        what = f"is shorter than the interval between two polls, {format_duration(poll)}"
        hint = f'write for = "{format_duration(max(2 * poll, 5 * MINUTE))}", or leave it out'
        require(table.hold >= poll, ".for", what, hint)
    start = None if table.schedule is None else table.schedule.start
    _check_start_rule(start, rule, then)
    lease = table.lease or LeaseTable.model_construct()
    policy = Policy(
        name=table.name,
        when=when,
        then=then,
        arm=table.arm,
        target=_make_target(table.match) if table.match else PolicyTarget(),
        hold=table.hold or timedelta(),
        needs=table.needs,
        allow_irreversible=table.allow_irreversible,
        rule=rule,
        priority=table.priority,
        schedule=schedule,
        lease_max=lease.max,
        renewals_max=lease.renewals,
        warmup_max=table.warmup,
        alone=table.alone,
        start=start,
        until=until,
    )
    return replace(policy, digest=compute_policy_digest(policy))


def _choose_condition(table: PolicyTable, rule: str) -> CompiledCondition:
    """Return the condition that is stated, else that of a schedule."""
    until = table.match.until_label if table.match else None
    if until is None and table.when is None and table.schedule is None:
        raise InputError("is missing", field=".when", hint="""write when = 'state == "idle" && confidence >= 0.9'""")
    when = table.when or read_condition(SCHEDULE_CONDITION if until is None else UNTIL_CONDITION, ".when")
    unlabelled = until is None and "until_label" in when.names
    require(not unlabelled, ".when", "uses until_label, but match has none", 'write match = { until_label = "passed" }')
    if until is not None:
        condition = f"({table.when.text})" if table.when else when.text
        when = read_condition(f'until_label == "{until}" && {condition}', ".when")
    unscheduled = table.schedule is None and "scheduled_on" in when.names
    require(not unscheduled, ".when", "uses scheduled_on, but the policy has no schedule", "write a [policy.schedule]")
    names = select_measured(when.names) if rule == LIMIT_RULE else ()
    what = f"asks for {', '.join(names)}, and a limit needs no evidence of work"
    require(not names, ".when", what, 'write rule = "idle", or a condition such as age > duration("72h")')
    return when


def _make_until_rule(table: PolicyTable) -> UntilRule | None:
    """Return the rule of `until_label`; raises InputError where it meets a schedule or an idle rule; None without one."""
    label = table.match.until_label if table.match else None
    if label is None:
        return None
    require(table.schedule is None, ".match.until_label", "cannot be combined with a schedule", "write two policies")
    limits = table.rule in (None, LIMIT_RULE)
    require(limits, ".rule", f"is {table.rule}, and an until label is a limit", "remove `rule`")
    return UntilRule(label=label, ahead_max=table.until_max)


def _check_start_rule(start: ScheduledStartRule | None, rule: str, then: tuple[PolicyStep, ...]) -> None:
    if start is not None:
        field, stops = ".schedule.start", any(step.do == STOP for step in then)
        require(rule == SCHEDULE_RULE, field, f"belongs to a schedule, and the rule is {rule}", "remove `rule` or `start`")
        require(stops, field, "has no stop step before the start", 'write { after = "5m", do = "stop" } in `then`')


def _make_target(table: TargetTable) -> PolicyTarget:
    return PolicyTarget(match=make_filter(table), gpu=table.gpu, ids=table.ids, names=table.names)


def compute_policy_digest(policy: Policy) -> str:
    """Return 16 hex digits of SHA-256 over all fields that decide on which machines `policy` acts, when and how.

    An arming applies to one digest. Name, `arm`, priority and leases are not included: they make no other machine stop, and
    none earlier.
    """
    meaning = (policy.target, policy.when.text, policy.hold, policy.then, policy.needs, policy.allow_irreversible, policy.rule)
    # policies without a start and an until label keep the digest that they were accepted by
    starts = tuple(one for one in (policy.start, policy.until) if one)
    parts = (*map(repr, meaning), _describe_schedule(policy.schedule), *map(repr, (policy.warmup_max, policy.alone, *starts)))
    return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()[:DIGEST_CHARS]


def _describe_schedule(schedule: Schedule | None) -> str:
    """Return `repr(schedule)` with its holidays in order: the order of a set of dates differs in each process."""
    if schedule is None:
        return repr(None)
    holidays = f"frozenset({{{', '.join(map(repr, sorted(schedule.holidays)))}}})"
    return repr(schedule).replace(repr(schedule.holidays), holidays) if schedule.holidays else repr(schedule)
