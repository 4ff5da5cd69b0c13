"""Reads `[[policy]]` tables, with their `schedule` and their escalation steps `then`.

Rules for every escalation: a stop comes at least five minutes after a notice about it, and a terminate only if the policy
allows the loss of data.

    [policy.schedule]                               # when the machines should be off
    timezone = "Europe/Berlin"                      # default: [defaults] timezone
    off = ["20:00-08:00", "sat-sun"]                # days, hours or both ("mon-fri 20:00-08:00"); the days are its first days
    holidays = [2026-12-25]                         # off all day
    exemptions = [{ start = 2026-11-24T18:00:00, end = 2026-11-26, why = "release" }]
    start = true                                    # start what it stopped when the off period ends; or a table:
                                                    # { within = "2h", price_rise = "10%" }, with these defaults

A time without an offset is in the schedule's zone. A date without a time is the whole day: the exemption above ends at the end
of the 26th.

    [[policy]]
    name = "idle-gpu"                               # required; unique
    arm = "stop"                                    # observe (default), notify, stop, terminate: the strongest act allowed
    match = { gpu = true }                          # default: everything; also ids, names, and all keys of a budget's match
    when = 'state == "idle" && confidence >= 0.9'   # required without a schedule; see condition_syntax
    for = "45m"                                     # how long `when` must hold first
    needs = ["duty", "cpu"]                         # families of signals; default: all that its provider can deliver
    then = [{ do = "notify", to = "owner" }, { after = "15m", do = "stop" }]
    lease = { max = "24h", renewals = 3 }
    rule = "idle"                                   # "limit": on a lease or an age, applied without evidence of idleness
    warmup = "45m"
    alone = false                                   # true: a member of a group is evaluated on its own

`after` counts from the first step. Errors name the file, the number of the table, its name and the field.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from fractions import Fraction

from costguard.budgets.budget import MATCH_ALL
from costguard.errors import InputError, UnknownNameError
from costguard.guard.alerts.alert import SEVERITIES, WARNING
from costguard.guard.cap_acceptance import CAP_SUBJECT
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
    SCHEDULE_RULE,
    START,
    STEP_LEVELS,
    STOP,
    TERMINATE,
    Exemption,
    OffWindow,
    Policy,
    PolicyStep,
    PolicyTarget,
    Schedule,
    ScheduledStartRule,
)
from costguard.guard.signals import SIGNAL_FAMILIES
from costguard.guard.timed_stops import TIMED_STOP
from costguard.settings.budgets import MATCH_KEYS, read_match
from costguard.settings.conditions import CompiledCondition, read_condition
from costguard.settings.fields import (
    SettingsTable,
    format_duration,
    parse_duration,
    read_flag,
    read_inner,
    read_name,
    read_tables,
    read_text,
    read_texts,
    require_unique_names,
)
from costguard.settings.sections import load_zone
from costguard.values.checks import (
    describe_value,
    find_nearest_names,
    require,
    require_known_keys,
    require_one_of,
    require_whole_number,
)
from costguard.values.instant import EARLIEST, LATEST

STEPS = tuple(do for do in STEP_LEVELS if do != START)
"""What a step may do. A start is no step: it undoes a stop."""
STEP_KEYS = ("do", "after", "to", "severity", "run", "timeout", "act")
KEY_ACTIONS = {"to": (NOTIFY, ASK), "severity": (NOTIFY, ASK), "run": (HOOK,), "timeout": (HOOK,), "act": (ASK,)}
"""Which steps a key belongs to, where not to all."""
RECIPIENTS = ("owner", "admin")
AFTER_MAX, TIMEOUT_MAX, STEPS_MAX = timedelta(days=365), timedelta(hours=1), 32
THEN_HINT = 'write then = [{ do = "notify" }, { after = "15m", do = "stop" }]'


def read_steps(stated: object, field: str, *, hooks: tuple[str, ...], allow_irreversible: bool) -> tuple[PolicyStep, ...]:
    """Return the steps in their order.

    `hooks`: the names of the hooks that exist.
    """
    if stated is None:
        raise InputError("is missing", field=field, hint=THEN_HINT)
    if not isinstance(stated, list) or not all(isinstance(one, dict) for one in stated):
        raise InputError(f"must be a list of steps, not {describe_value(stated)}", field=field, hint=THEN_HINT)
    require(0 < len(stated) <= STEPS_MAX, field, f"has {len(stated) or 'no'} steps", THEN_HINT)
    steps = tuple(_read_step(table, f"{field} {number}", hooks) for number, table in enumerate(stated, 1))
    _check_escalation(steps, field, allow_irreversible=allow_irreversible)
    return steps


def find_stop_action(steps: tuple[PolicyStep, ...]) -> str:
    """Return the action of the first step that stops or terminates a machine; "" if there is none."""
    return next((step.do for step in steps if step.do in DESTRUCTIVE), "")


def _read_step(table: SettingsTable, field: str, hooks: tuple[str, ...]) -> PolicyStep:
    require_known_keys(table, STEP_KEYS, field)
    if "do" not in table:
        raise InputError("is missing", field=f"{field}.do", hint=f"write one of: {', '.join(STEPS)}")
    do = require_one_of(table["do"], STEPS, f"{field}.do")
    for key, deeds in KEY_ACTIONS.items():
        require(key not in table or do in deeds, f"{field}.{key}", f"belongs to {' and '.join(deeds)}", "remove it")
    if do == HOOK:
        _require_known_hook(table.get("run"), f"{field}.run", hooks)
    require(do != ASK or "act" in table, f"{field}.act", "is missing", 'write act = "terminate" or act = "stop"')
    least = timedelta(seconds=1)
    return PolicyStep(
        do=do,
        after=parse_duration(table.get("after", "0s"), f"{field}.after", most=AFTER_MAX),
        to=require_one_of(table.get("to", "owner"), RECIPIENTS, f"{field}.to"),
        severity=require_one_of(table.get("severity", WARNING), SEVERITIES, f"{field}.severity"),
        run=read_text(table.get("run", ""), f"{field}.run"),
        timeout=parse_duration(table.get("timeout", "5m"), f"{field}.timeout", least=least, most=TIMEOUT_MAX),
        act=require_one_of(table["act"], (STOP, TERMINATE), f"{field}.act") if do == ASK else "",
    )


def _require_known_hook(stated: object, field: str, hooks: tuple[str, ...]) -> None:
    if not isinstance(stated, str) or not stated:
        raise InputError("is missing", field=field, hint='write run = "checkpoint", and a [[hook]] of that name')
    cure = f'write a [[hook]] with name = "{stated}" and its command'
    require(bool(hooks), field, f"there is no hook named {describe_value(stated)}", cure)
    require_one_of(stated, hooks, field)


def _check_escalation(steps: tuple[PolicyStep, ...], field: str, *, allow_irreversible: bool) -> None:
    """Raise InputError for steps out of order, a stop without notice or grace, or a terminate that is not allowed."""
    told: timedelta | None = None
    for number, step in enumerate(steps, 1):
        place, before = f"{field} {number}", steps[max(number - 2, 0)].after
        if number == 1:
            what = "the first step cannot wait"
            require(not step.after, f"{place}.after", what, "use `for` to set how long the condition must hold")
        earlier = f"is earlier than the step before it, at {format_duration(before)}"
        require(step.after >= before, f"{place}.after", earlier, "`after` counts from the first step, in rising order")
        if step.do in DESTRUCTIVE:
            what, hint = f"{step.do} has no notification before it", 'write { do = "notify" } as the first step'
            if told is None:
                raise InputError(what, field=place, hint=hint)
            least = format_duration(told + GRACE_MIN)
            early = f"is within the grace of {format_duration(GRACE_MIN)} after the notification"
            require(step.after - told >= GRACE_MIN, f"{place}.after", early, f'write after = "{least}" or more')
        if step.do == TERMINATE:
            hint = 'write allow_irreversible = true in this policy, or { do = "ask", act = "terminate" }'
            require(allow_irreversible, f"{place}.do", "terminate deletes data permanently, and that was not allowed", hint)
        if step.do in (NOTIFY, ASK) and told is None:
            told = step.after


SCHEDULE_KEYS = ("timezone", "off", "holidays", "exemptions", "start")
START_KEYS = ("within", "price_rise")
START_HINT = 'write start = true, or start = { within = "2h", price_rise = "10%" }'
PRICE_RISE_MAX = 1000
DAY_NAMES = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
OFF_PATTERN = re.compile(r"(?:([a-z,\s-]+?)\s*)?(?:(\d{1,2}):(\d{2})\s*-\s*(\d{1,2}):(\d{2}))?", re.IGNORECASE)
OFF_HINT = 'write "20:00-08:00", "sat-sun" or "mon-fri 20:00-08:00"'
ENTRIES_MAX, ENTRY_CHARS_MAX = 1000, 100
"""Days of a list; characters of a text."""


def read_schedule(stated: object, field: str, zone: tzinfo) -> Schedule:
    """Return the schedule that `stated` defines.

    `zone`: the zone if it states none.
    """
    table = read_inner(stated, field, '{ off = ["20:00-08:00"] }')
    require_known_keys(table, SCHEDULE_KEYS, field)
    if "timezone" in table:
        zone = load_zone(read_text(table["timezone"], f"{field}.timezone"), f"{field}.timezone")
    off = tuple(_parse_off(text, f"{field}.off") for text in read_texts(table.get("off", []), f"{field}.off"))
    holidays = frozenset(
        _parse_date(day, f"{field}.holidays") for day in _read_list(table.get("holidays", []), f"{field}.holidays")
    )
    require(bool(off or holidays), f"{field}.off", "is missing", OFF_HINT)
    exemptions = read_tables(table.get("exemptions", []), field.rpartition(".")[0], "schedule.exemptions")
    return Schedule(
        zone=zone,
        off=off,
        holidays=holidays,
        exemptions=tuple(_read_exemption(one, f"{field}.exemptions {n}", zone) for n, one in enumerate(exemptions, 1)),
    )


def read_start_rule(stated: object, field: str) -> ScheduledStartRule | None:
    """Return how a schedule starts what it stopped; None for `false` and for no value."""
    if stated is None or stated is False:
        return None
    if stated is True:
        return ScheduledStartRule()
    if not isinstance(stated, Mapping):
        raise InputError(f"must be true, false or a table, not {describe_value(stated)}", field=field, hint=START_HINT)
    require_known_keys(stated, START_KEYS, field)
    usual = ScheduledStartRule()
    within, rise = stated.get("within", "2h"), stated.get("price_rise")
    return ScheduledStartRule(
        within=parse_duration(within, f"{field}.within", least=MINUTE, most=DAY),
        price_rise=usual.price_rise if rise is None else _parse_percent(rise, f"{field}.price_rise"),
    )


def _find_stated_start(table: SettingsTable) -> object:
    schedule = table.get("schedule")
    return schedule.get("start") if isinstance(schedule, Mapping) else None


def _parse_percent(stated: object, field: str) -> Fraction:
    found = re.fullmatch(r"\s*(\d{1,4}(?:\.\d{1,3})?)\s*%\s*", stated) if isinstance(stated, str) else None
    if found is None or Fraction(found[1]) > PRICE_RISE_MAX:
        raise InputError(f"must be a percentage, not {describe_value(stated)}", field=field, hint='write "10%"')
    return Fraction(found[1]) / 100


def _read_list(stated: object, field: str) -> list[object]:
    if not isinstance(stated, list) or len(stated) > ENTRIES_MAX:
        raise InputError(f"must be a list of days, not {describe_value(stated)}", field=field, hint="write [2026-12-25]")
    return stated


def _parse_off(text: str, field: str) -> OffWindow:
    found = OFF_PATTERN.fullmatch(text.strip()) if len(text) <= ENTRY_CHARS_MAX else None
    if found is None or not text.strip():
        raise InputError(f"has no time: {describe_value(text)}", field=field, hint=OFF_HINT)
    days = _parse_days(found[1], field) if found[1] else frozenset(range(7))
    if found[2] is None:
        return OffWindow(start=time(), end=time(), days=days)
    start, end = _parse_clock(found[2], found[3], field), _parse_clock(found[4], found[5], field)
    whole_day = (found[2], found[4]) in (("00", "24"), ("0", "24"))
    require(start != end or whole_day, field, f"ends at its start: {describe_value(text)}", 'write "00:00-24:00" for a day')
    return OffWindow(start=start, end=end, days=days)


def _parse_clock(hours: str, minutes: str, field: str) -> time:
    """Return the time of day; 24:00 is the midnight at the end of a day."""
    said = f"{hours}:{minutes}"
    require(said == "24:00" or (int(hours) < 24 and int(minutes) < 60), field, f"there is no {said}", OFF_HINT)  # noqa: PLR2004 - a clock
    return time(int(hours) % 24, int(minutes))


def _parse_days(text: str, field: str) -> frozenset[int]:
    days = set[int]()
    for part in text.lower().split(","):
        first, _, last = part.strip().partition("-")
        start, end = _parse_day(first, field), _parse_day(last or first, field)
        days |= {(start + number) % 7 for number in range((end - start) % 7 + 1)}
    return frozenset(days)


def _parse_day(text: str, field: str) -> int:
    name = text.strip()[:3]
    if name not in DAY_NAMES:
        raise UnknownNameError(
            "day", text.strip(), field=field, nearest=find_nearest_names(text.strip(), DAY_NAMES), hint=OFF_HINT
        )
    return DAY_NAMES.index(name)


def _parse_date(stated: object, field: str) -> date:
    try:
        day = date.fromisoformat(stated) if isinstance(stated, str) else stated
    except ValueError:
        day = None
    if not isinstance(day, date) or isinstance(day, datetime):
        raise InputError(f"must be a day, not {describe_value(stated)}", field=field, hint="write 2026-12-25")
    return day


def _read_exemption(table: Mapping[str, object], field: str, zone: tzinfo) -> Exemption:
    require_known_keys(table, ("start", "end", "why"), field)
    start = _parse_instant(table.get("start"), f"{field}.start", zone, after=timedelta())
    end = _parse_instant(table.get("end"), f"{field}.end", zone, after=timedelta(days=1))
    require(start < end, f"{field}.end", "must be after its start", "exchange them")
    return Exemption(start=start, end=end, why=read_text(table.get("why", ""), f"{field}.why"))


def _parse_instant(stated: object, field: str, zone: tzinfo, *, after: timedelta) -> datetime:
    """Return the instant that `stated` gives; for a date without a time, its midnight plus `after`."""
    if stated is None:
        raise InputError("is missing", field=field, hint="write start = 2026-11-24T18:00:00 and end = 2026-11-26")
    try:
        at = datetime.fromisoformat(stated) if isinstance(stated, str) else stated
        if isinstance(stated, str) and "T" not in stated and ":" not in stated:
            at = date.fromisoformat(stated)
        if isinstance(at, date) and not isinstance(at, datetime):
            at = datetime.combine(at, time()) + after
        if isinstance(at, datetime):
            at = (at if at.tzinfo else at.replace(tzinfo=zone)).astimezone(UTC)
    except (ValueError, OverflowError):
        at = None
    if not isinstance(at, datetime) or not EARLIEST <= at <= LATEST:
        raise InputError(f"must be an instant, not {describe_value(stated)}", field=field, hint="write 2026-11-24T18:00:00")
    return at


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
DIGEST_CHARS = 16
HOLD_MAX, LEASE_MAX, RENEWALS_MAX, PRIORITY_MAX = 90 * DAY, 30 * DAY, 100, 1000


def read_policies(stated: object, where: str, *, zone: tzinfo, poll: timedelta, hooks: tuple[str, ...]) -> tuple[Policy, ...]:
    """Return the policies of the file `where` in their order.

    `zone`: the zone of schedules that state none. `poll`: the interval between polls. `hooks`: the names of the hooks that
    exist.
    """
    tables = read_tables(stated, where, "policy")
    places = (f"{where}: policy {number}" for number in range(1, len(tables) + 1))
    policies = tuple(_read_policy(table, place, zone, poll, hooks) for table, place in zip(tables, places, strict=True))
    require_unique_names([policy.name for policy in policies], where, "policy")
    return policies


def _read_policy(table: SettingsTable, place: str, zone: tzinfo, poll: timedelta, hooks: tuple[str, ...]) -> Policy:
    name = read_name(table.get("name"), f"{place}.name", "idle-gpu")
    ours = name == TIMED_STOP.name or name.startswith(CAP_SUBJECT)
    require(not ours, f"{place}.name", f"'{name}' is the name of a policy of costguard's own", "choose another name")
    place = f"{place} ({name})"
    require_known_keys(table, POLICY_KEYS, place)
    schedule = read_schedule(table["schedule"], f"{place}.schedule", zone) if "schedule" in table else None
    rule = _classify_rule(table, schedule, f"{place}.rule")
    when = _read_when(table, schedule, f"{place}.when")
    allow = read_flag(table.get("allow_irreversible", False), f"{place}.allow_irreversible")
    if rule == LIMIT_RULE and (names := sorted(when.names & ACTIVITY_FACTS)):
        what = f"asks for {', '.join(names)}, and a limit needs no evidence of work"
        raise InputError(what, field=f"{place}.when", hint='write rule = "idle", or a condition such as age > duration("72h")')
    then = read_steps(table.get("then"), f"{place}.then", hooks=hooks, allow_irreversible=allow)
    if rule == IDLE_RULE and "for" not in table and find_stop_action(then) and when.names & ACTIVITY_FACTS:
        what = f"is missing, and a {find_stop_action(then)} by {', '.join(sorted(when.names & ACTIVITY_FACTS))} needs it"
        raise InputError(what, field=f"{place}.for", hint='write for = "45m"')
    start = read_start_rule(_find_stated_start(table), f"{place}.schedule.start")
    _check_start_rule(start, rule, then, f"{place}.schedule.start")
    lease_max, renewals = _read_lease(table["lease"], f"{place}.lease") if "lease" in table else (DAY, 3)
    policy = Policy(
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
        start=start,
    )
    return replace(policy, digest=compute_policy_digest(policy))


def _check_start_rule(start: ScheduledStartRule | None, rule: str, then: tuple[PolicyStep, ...], field: str) -> None:
    if start is None:
        return
    require(rule == SCHEDULE_RULE, field, f"belongs to a schedule, and the rule is {rule}", "remove `rule` or `start`")
    stops = any(step.do == STOP for step in then)
    require(stops, field, "has no stop that it could undo", 'write { after = "5m", do = "stop" } in `then`')


def compute_policy_digest(policy: Policy) -> str:
    """Return 16 hex digits of SHA-256 over all fields that decide on which machines `policy` acts, when and how.

    An arming applies to one digest. Name, `arm`, priority and leases are not included: they make no other machine stop, and
    none earlier.
    """
    meaning = (policy.target, policy.when.text, policy.hold, policy.then, policy.needs, policy.allow_irreversible, policy.rule)
    # policies without a start keep the digest that they were accepted by
    starts = (policy.start,) if policy.start else ()
    parts = (*map(repr, meaning), _describe_schedule(policy.schedule), *map(repr, (policy.warmup_max, policy.alone, *starts)))
    return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()[:DIGEST_CHARS]


def _describe_schedule(schedule: Schedule | None) -> str:
    """Return `repr(schedule)` with its holidays in order: the order of a set of dates differs in each process."""
    if schedule is None:
        return repr(None)
    holidays = f"frozenset({{{', '.join(map(repr, sorted(schedule.holidays)))}}})"
    return repr(schedule).replace(repr(schedule.holidays), holidays) if schedule.holidays else repr(schedule)


def _classify_rule(table: SettingsTable, schedule: Schedule | None, field: str) -> str:
    usual = IDLE_RULE if schedule is None else SCHEDULE_RULE
    if table.get("rule") == CAP_RULE:
        raise InputError("cap rules come from budgets", field=field, hint="write hard = true in a [[budget]]")
    rule = require_one_of(table.get("rule", usual), (IDLE_RULE, SCHEDULE_RULE, LIMIT_RULE), field)
    require(
        rule != SCHEDULE_RULE or schedule is not None, field, "needs a schedule", 'write schedule = { off = ["20:00-08:00"] }'
    )
    return rule


def _read_when(table: SettingsTable, schedule: Schedule | None, field: str) -> CompiledCondition:
    if "when" not in table and schedule is None:
        raise InputError("is missing", field=field, hint="""write when = 'state == "idle" && confidence >= 0.9'""")
    when = read_condition(read_text(table.get("when", SCHEDULE_CONDITION), field), field)
    unscheduled = schedule is None and "scheduled_on" in when.names
    require(not unscheduled, field, "uses scheduled_on, but the policy has no schedule", "write a [policy.schedule]")
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
