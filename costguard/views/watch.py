"""The content of `costguard watch`, and the changes since the last output, as plain values and lines.

A terminal shows the whole view repeatedly (`cli/watching_view.py`); a pipe gets one line for each fact that changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from costguard.errors import shorten, to_one_line
from costguard.guard.signals import Activity
from costguard.reporting.status import ScopeStatus
from costguard.values.money import Money, MoneyInterval
from costguard.values.resource import ResourceKey
from costguard.values.text_format import (
    RATE_PLACES,
    format_interval,
    format_length,
    format_local_time,
    format_near_time,
    format_scope,
    get_currency_sign,
)

LONGEST = 60
"""Characters of a name on a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedMachine:
    """A machine.

    `rate`: cost per hour; None: unknown. `next_act`: the next act ("": none), due at `next_at` unless `held_by` blocks it.
    `power`: the provider's state in costguard's terms.
    """

    key: ResourceKey
    name: str
    owner: str
    told: str
    power: str
    rate: Money | None
    work: Activity
    next_act: str = ""
    next_at: datetime | None = None
    held_by: tuple[str, ...] = ()

    @property
    def called(self) -> str:
        """Return the machine's name, or its id: `train-1`."""
        return shorten(to_one_line(self.name or self.key.id), LONGEST)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedBudget:
    """A budget. `unit`: "/h" of a rate cap, whose amounts are money an hour.

    `time_to_cap`: None if the cap is not reached in this period. `overshoot`: the most by which acts may come too late to keep
    it.
    """

    name: str
    cap: Money
    spent: MoneyInterval
    time_to_cap: timedelta | None = None
    overshoot: Money | None = None
    unit: str = ""

    @property
    def share(self) -> float:
        """Return the upper bound of the spent share of the cap; 1 is the whole cap."""
        return self.spent.high.nano / self.cap.nano


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedAction:
    """An intent, or a step that was done.

    `state`: the state of the intent ("verifying", "done" ...).
    """

    at: datetime
    subject: str
    act: str
    state: str
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedNotice:
    """An alert. `id`: its kind, subject and stage, but not its text, whose amounts change with each poll."""

    id: str
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchView:
    """The whole view at the time `at`.

    - `mode`: "acting", "dry run" or "observing" (another process acts on this ledger, or this is the first run after a
        start).
    - `month`: cost of the month so far. `frozen`: who froze all acts and why; "" if nobody did.
    - `committed`: whether the run was recorded.
    """

    at: datetime
    mode: str
    burn: Money
    month: MoneyInterval
    scopes: tuple[ScopeStatus, ...] = ()
    machines: tuple[WatchedMachine, ...] = ()
    budgets: tuple[WatchedBudget, ...] = ()
    acts: tuple[WatchedAction, ...] = ()
    notices: tuple[WatchedNotice, ...] = ()
    frozen: str = ""
    committed: bool = True


def format_next_action(machine: WatchedMachine, at: datetime) -> str:
    """Return `stop in 12 min`, `stop now`, `stop held: it has a lease`, or `-`."""
    if not machine.next_act:
        return "-"
    if machine.held_by:
        return f"{machine.next_act} held: {', '.join(machine.held_by)}"
    due = machine.next_at
    return f"{machine.next_act} {'now' if due is None or due <= at else f'in {format_length(due - at)}'}"


def format_rate(money: Money | None) -> str:
    """Return `$2.9900` or `unknown`."""
    return "unknown" if money is None else f"{get_currency_sign(money.currency)}{money.format(RATE_PLACES)}"


def list_changes(old: WatchView | None, now: WatchView) -> tuple[str, ...]:
    """Return one line for each fact that changed; with `old` None, all facts."""
    return tuple(f"{format_local_time(now.at)}  {to_one_line(line)}" for line in _list_all_changes(old, now))


def _list_all_changes(old: WatchView | None, now: WatchView) -> Iterator[str]:
    if old is None or old.burn != now.burn or old.mode != now.mode:
        yield f"burns {format_rate(now.burn)} an hour, {now.mode}; the month so far ${format_interval(now.month)}"
    if (old.frozen if old else "") != now.frozen:
        yield f"all acts are frozen: {now.frozen}" if now.frozen else "acts are no longer frozen"
    if not now.committed and (old is None or old.committed):
        yield "the run could not be recorded: no acts until the ledger can be written"
    yield from _list_scope_changes(old, now)
    yield from _list_machine_changes(old, now)
    old_ids = {notice.id for notice in (old.notices if old else ())}
    yield from (notice.what for notice in now.notices if notice.id not in old_ids)
    old_states = {(act.subject, act.act): act.state for act in (old.acts if old else ())}
    for act in now.acts:
        if old_states.get((act.subject, act.act)) != act.state:
            yield f"{act.act} of {act.subject}: {act.state}{f', {act.why}' if act.why else ''}"


def _list_scope_changes(old: WatchView | None, now: WatchView) -> Iterator[str]:
    was = {scope.now.scope: scope.state for scope in (old.scopes if old else ())}
    for scope in now.scopes:
        if was.get(scope.now.scope, "complete") != scope.state:
            why = f": {scope.now.why}" if scope.now.why else ""
            yield f"{format_scope(scope.now.scope)} is {'read again' if scope.seen else f'no longer read ({scope.state}){why}'}"


def _list_machine_changes(old: WatchView | None, now: WatchView) -> Iterator[str]:
    old_machines = {machine.key: machine for machine in (old.machines if old else ())}
    for machine in now.machines:
        old_machine = old_machines.pop(machine.key, None)
        if old_machine is None or _get_compared_facts(old_machine) != _get_compared_facts(machine):
            work = f"{machine.work.state} ({machine.work.confidence:.2f})"
            reasons = f", held: {', '.join(machine.held_by)}" if machine.held_by else ""
            due = machine.next_at if machine.next_act else None
            act = f", {machine.next_act} at {format_near_time(due, now.at)}" if due else ""
            new = "new: " if old_machine is None and old is not None else ""
            rate = f"{format_rate(machine.rate)}/h"
            yield f"{new}{machine.called} {machine.key.id}: {machine.power}, {work}, {rate}{act}{reasons}"
    for machine in old_machines.values():
        yield f"gone: {machine.called} {machine.key.id}"


def _get_compared_facts(machine: WatchedMachine) -> tuple[object, ...]:
    """Return the facts whose change is reported; small changes of the confidence are not."""
    return machine.power, machine.work.state, machine.rate, machine.next_act, machine.next_at, machine.held_by
