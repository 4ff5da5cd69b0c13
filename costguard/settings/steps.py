"""The ladder of a policy: `then`, step by step, and what no ladder may do, whatever it says.

A stop comes at least five minutes after a notice that tells of it, and a terminate only where data may be lost.
"""

from __future__ import annotations

from datetime import timedelta

from costguard.errors import InputError
from costguard.guard.alerts.alert import SEVERITIES, WARNING
from costguard.guard.policy import ASK, DESTRUCTIVE, GRACE_MIN, HOOK, NOTIFY, STEP_LEVELS, STOP, TERMINATE, PolicyStep
from costguard.settings.fields import SettingsTable, read_text
from costguard.settings.lasting import format_duration, parse_duration
from costguard.values.checks import describe_value, require, require_known_keys, require_one_of

STEP_KEYS = ("do", "after", "to", "severity", "run", "timeout", "act")
KEY_ACTIONS = {"to": (NOTIFY, ASK), "severity": (NOTIFY, ASK), "run": (HOOK,), "timeout": (HOOK,), "act": (ASK,)}
"""Which steps a key belongs to, where not to all."""
RECIPIENTS = ("owner", "admin")
AFTER_MAX, TIMEOUT_MAX, STEPS_MAX = timedelta(days=365), timedelta(hours=1), 32
THEN_HINT = 'write then = [{ do = "notify" }, { after = "15m", do = "stop" }]'


def read_steps(stated: object, field: str, *, hooks: tuple[str, ...], allow_irreversible: bool) -> tuple[PolicyStep, ...]:
    """The steps in their order. `hooks`: the names there are."""
    if stated is None:
        raise InputError("is missing", field=field, hint=THEN_HINT)
    if not isinstance(stated, list) or not all(isinstance(one, dict) for one in stated):
        raise InputError(f"must be a list of steps, not {describe_value(stated)}", field=field, hint=THEN_HINT)
    require(0 < len(stated) <= STEPS_MAX, field, f"has {len(stated) or 'no'} steps", THEN_HINT)
    steps = tuple(_read_step(table, f"{field} {number}", hooks) for number, table in enumerate(stated, 1))
    _check_escalation(steps, field, allow_irreversible=allow_irreversible)
    return steps


def find_stop_action(steps: tuple[PolicyStep, ...]) -> str:
    """What the first step that stops anything does; "" where none does."""
    return next((step.do for step in steps if step.do in DESTRUCTIVE), "")


def _read_step(table: SettingsTable, field: str, hooks: tuple[str, ...]) -> PolicyStep:
    require_known_keys(table, STEP_KEYS, field)
    if "do" not in table:
        raise InputError("is missing", field=f"{field}.do", hint=f"write one of: {', '.join(STEP_LEVELS)}")
    do = require_one_of(table["do"], STEP_LEVELS, f"{field}.do")
    for key, deeds in KEY_ACTIONS.items():
        require(key not in table or do in deeds, f"{field}.{key}", f"belongs to {' and '.join(deeds)}", "take it out")
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
    """InputError for steps out of order, a stop without notice or before its grace, a terminate that nobody allowed."""
    told: timedelta | None = None
    for number, step in enumerate(steps, 1):
        place, before = f"{field} {number}", steps[max(number - 2, 0)].after
        if number == 1:
            what = "the first step has nothing to wait for"
            require(not step.after, f"{place}.after", what, "say in `for` how long the condition must hold")
        earlier = f"comes before the step above it, at {format_duration(before)}"
        require(step.after >= before, f"{place}.after", earlier, "`after` counts from the first step, in rising order")
        if step.do in DESTRUCTIVE:
            what, hint = f"{step.do} comes without a notice before it", 'write { do = "notify" } as the first step'
            if told is None:
                raise InputError(what, field=place, hint=hint)
            least = format_duration(told + GRACE_MIN)
            early = f"is before the grace of {format_duration(GRACE_MIN)} after the notice has run out"
            require(step.after - told >= GRACE_MIN, f"{place}.after", early, f'write after = "{least}" or more')
        if step.do == TERMINATE:
            hint = 'write allow_irreversible = true in this policy, or { do = "ask", act = "terminate" }'
            require(allow_irreversible, f"{place}.do", "terminate loses data for good, and nobody allowed that", hint)
        if step.do in (NOTIFY, ASK) and told is None:
            told = step.after
