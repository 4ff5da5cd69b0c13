"""The `[[policy]]` tables, as policies.

    [[policy]]
    name = "idle-gpu"                               # required; no two alike
    arm = "stop"                                    # observe (unless stated), notify, stop, terminate: how far it may go
    match = { gpu = true }                          # left out: everything; also ids, names, and all that a budget matches by
    when = 'state == "idle" && confidence >= 0.9'   # required, but for a schedule; see condition_text
    for = "45m"                                     # how long `when` must hold first
    needs = ["duty", "cpu"]                         # families of signals; left out: all that its provider can deliver
    then = [{ do = "notify", to = "owner" }, { after = "15m", do = "stop" }]
    lease = { max = "24h", renewals = 3 }
    warmup = "45m"
    alone = false                                   # true: a member of a group is judged by itself, whatever the group does

`after` counts from the first step. Errors name the file, the number of the table, its name and the field.
"""

from __future__ import annotations

from datetime import timedelta, tzinfo

from costguard.budgets.budget import MATCH_ALL
from costguard.errors import InputError
from costguard.guard.policy import CAP_RULE, IDLE_RULE, LEVELS, OBSERVE, SCHEDULE_RULE, Policy, PolicyTarget
from costguard.guard.schedule import Schedule
from costguard.guard.work import SIGNAL_FAMILIES
from costguard.settings.conditions import CelCondition, read_condition
from costguard.settings.fields import (
    SettingsTable,
    read_flag,
    read_inner,
    read_name,
    read_tables,
    read_text,
    read_texts,
    require_unique_names,
)
from costguard.settings.lasting import format_duration, parse_duration
from costguard.settings.matching import MATCH_KEYS, read_match
from costguard.settings.schedules import read_schedule
from costguard.settings.steps import find_stop_action, read_steps
from costguard.values.checks import require, require_known_keys, require_one_of, require_whole_number

POLICY_KEYS = (
    *("name", "arm", "match", "when", "for", "then", "needs", "allow_irreversible", "priority", "schedule", "rule", "lease"),
    *("warmup", "alone"),
)
TARGET_KEYS = ("gpu", "ids", "names", *MATCH_KEYS)
LEASE_KEYS = ("max", "renewals")
SCHEDULE_CONDITION = 'scheduled_on == false && power == "running"'
"""The condition of a schedule that states none."""
ACTIVITY_FACTS = frozenset(("state", "confidence", "time_in_state", "wasted_share", "waste", "group_state"))
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
HOLD_MAX, LEASE_MAX, RENEWALS_MAX, PRIORITY_MAX = 90 * DAY, 30 * DAY, 100, 1000


def read_policies(stated: object, where: str, *, zone: tzinfo, poll: timedelta, hooks: tuple[str, ...]) -> tuple[Policy, ...]:
    """The policies of `where` (a file) in their order.

    `zone`: of schedules that state none; `poll`: how often anything is seen; `hooks`: the names there are.
    """
    tables = read_tables(stated, where, "policy")
    places = (f"{where}: policy {number}" for number in range(1, len(tables) + 1))
    policies = tuple(_read_policy(table, place, zone, poll, hooks) for table, place in zip(tables, places, strict=True))
    require_unique_names([policy.name for policy in policies], where, "policy")
    return policies


def _read_policy(table: SettingsTable, place: str, zone: tzinfo, poll: timedelta, hooks: tuple[str, ...]) -> Policy:
    name = read_name(table.get("name"), f"{place}.name", "idle-gpu")
    place = f"{place} ({name})"
    require_known_keys(table, POLICY_KEYS, place)
    schedule = read_schedule(table["schedule"], f"{place}.schedule", zone) if "schedule" in table else None
    rule = _classify_rule(table, schedule, f"{place}.rule")
    when = _read_when(table, schedule, f"{place}.when")
    allow = read_flag(table.get("allow_irreversible", False), f"{place}.allow_irreversible")
    then = read_steps(table.get("then"), f"{place}.then", hooks=hooks, allow_irreversible=allow)
    if rule == IDLE_RULE and "for" not in table and find_stop_action(then) and when.names & ACTIVITY_FACTS:
        what = f"is missing, and a {find_stop_action(then)} by {', '.join(sorted(when.names & ACTIVITY_FACTS))} needs it"
        raise InputError(what, field=f"{place}.for", hint='write for = "45m"')
    lease_max, renewals = _read_lease(table["lease"], f"{place}.lease") if "lease" in table else (DAY, 3)
    return Policy(
        name=name,
        when=when,
        then=then,
        arm=require_one_of(table.get("arm", OBSERVE), LEVELS, f"{place}.arm"),
        target=_read_target(table["match"], f"{place}.match") if "match" in table else PolicyTarget(),
        hold=_read_hold(table["for"], f"{place}.for", poll) if "for" in table else timedelta(),
        needs=tuple(
            require_one_of(one, SIGNAL_FAMILIES, f"{place}.needs")
            for one in read_texts(table.get("needs", []), f"{place}.needs")
        ),
        allow_irreversible=allow,
        rule=rule,
        priority=require_whole_number(table.get("priority", 0), f"{place}.priority", least=-PRIORITY_MAX, most=PRIORITY_MAX),
        schedule=schedule,
        lease_max=lease_max,
        renewals_max=renewals,
        warmup_max=parse_duration(table.get("warmup", "45m"), f"{place}.warmup", least=MINUTE, most=DAY),
        alone=read_flag(table.get("alone", False), f"{place}.alone"),
    )


def _classify_rule(table: SettingsTable, schedule: Schedule | None, field: str) -> str:
    usual = IDLE_RULE if schedule is None else SCHEDULE_RULE
    if table.get("rule") == CAP_RULE:
        raise InputError("cap rules come from budgets", field=field, hint="write hard = true in a [[budget]]")
    rule = require_one_of(table.get("rule", usual), (IDLE_RULE, SCHEDULE_RULE), field)
    require(rule == IDLE_RULE or schedule is not None, field, "needs a schedule", 'write schedule = { off = ["20:00-08:00"] }')
    return rule


def _read_when(table: SettingsTable, schedule: Schedule | None, field: str) -> CelCondition:
    if "when" not in table and schedule is None:
        raise InputError("is missing", field=field, hint="""write when = 'state == "idle" && confidence >= 0.9'""")
    when = read_condition(read_text(table.get("when", SCHEDULE_CONDITION), field), field)
    unscheduled = schedule is None and "scheduled_on" in when.names
    require(not unscheduled, field, "asks for scheduled_on, and there is no schedule", "write a [policy.schedule]")
    return when


def _read_hold(stated: object, field: str, poll: timedelta) -> timedelta:
    hold = parse_duration(stated, field, most=HOLD_MAX)
    what = f"is shorter than the interval between two polls, {format_duration(poll)}"
    require(hold >= poll, field, what, f'write for = "{format_duration(max(2 * poll, 5 * MINUTE))}", or leave it out')
    return hold


def _read_lease(stated: object, field: str) -> tuple[timedelta, int]:
    table = read_inner(stated, field, '{ max = "24h", renewals = 3 }')
    require_known_keys(table, LEASE_KEYS, field)
    longest = parse_duration(table.get("max", "24h"), f"{field}.max", least=MINUTE, most=LEASE_MAX)
    return longest, require_whole_number(table.get("renewals", 3), f"{field}.renewals", least=0, most=RENEWALS_MAX)


def _read_target(stated: object, field: str) -> PolicyTarget:
    table = read_inner(stated, field, "{ gpu = true }")
    require_known_keys(table, TARGET_KEYS, field)
    return PolicyTarget(
        match=read_match(table, field) if any(key in table for key in MATCH_KEYS) else MATCH_ALL,
        gpu=read_flag(table["gpu"], f"{field}.gpu") if "gpu" in table else None,
        ids=read_texts(table["ids"], f"{field}.ids") if "ids" in table else None,
        names=read_texts(table["names"], f"{field}.names") if "names" in table else None,
    )
