"""The plan as a document: `costguard.plan/1`.

For each policy and machine it contains the finding, the acts, their time, and the reasons that hold them back.

There is one record per proposal. A policy that finds something about a machine without proposing an act also has one record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

from costguard.errors import shorten
from costguard.guard.policy import CANNOT_SAY, DOES_NOT, HOLDS, NOT_YET, NOTIFY, OBSERVE, STEP_LEVELS, Proposal, Verdict
from costguard.guard.signals import Activity
from costguard.values.money import Money
from costguard.values.resource import INSTANCE, list_short_ids
from costguard.values.text_format import (
    RATE_PLACES,
    format_exact,
    format_instant,
    format_length,
    format_local_time,
    get_currency_sign,
    limit_lines,
)
from costguard.views.columns import MIDDLE, NAME_LEAST, WORDS, ColumnFit, add_short_ids
from costguard.views.document import Column, Document, TableView, build_table
from costguard.views.policy import format_step

SCHEMA = "costguard.plan/1"
LONGEST_NAME = 48
REASONS_SHOWN = 3
"""Reasons of an activity state that people are shown."""
RESULT_ORDER = {HOLDS: 0, NOT_YET: 1, CANNOT_SAY: 2, DOES_NOT: 3}
RESULT_TEXTS = {HOLDS: "holds", NOT_YET: "not yet", CANNOT_SAY: "no data", DOES_NOT: "no"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRow:
    """A verdict and its consequences.

    - `rate`: cost per hour; None: unknown. `waste`: cost since the condition has held, if known.
    - `level`: how far its policy is armed today. `kind`: of the resource. `agent`: state of its agent; "" if it has none.
    """

    verdict: Verdict
    proposals: tuple[Proposal, ...] = ()
    level: str = OBSERVE
    kind: str = INSTANCE
    name: str = ""
    owner: str = ""
    rate: Money | None = None
    waste: Money | None = None
    agent: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanView:
    """The plan for the fleet at the time `at`.

    `hash`: hash of the planned acts. `unaccepted`: why the plan must be accepted first; "" if it need not.
    """

    at: datetime
    rows: tuple[PlanRow, ...]
    hash: str = ""
    unaccepted: str = ""
    notes: tuple[str, ...] = ()


class PlanGroups(NamedTuple):
    """The verdicts by what follows from them; each verdict is in one.

    `unknown`: nothing can be judged, so no step of it is due, whatever its policy would do.
    """

    going: list[PlanRow]
    blocked: list[PlanRow]
    rest: list[PlanRow]
    unknown: list[PlanRow]


def group_plan_rows(plan: PlanView) -> PlanGroups:
    """Return the rows of a plan by group, as `costguard plan` and the pages show them, without those that find nothing."""
    groups = PlanGroups([], [], [], [])
    for row in sorted(plan.rows, key=_get_sort_key):
        if row.verdict.finding == CANNOT_SAY:
            groups.unknown.append(row)
        elif _list_held_acts(row):
            groups.blocked.append(row)
        elif row.proposals:
            groups.going.append(row)
        elif row.verdict.finding != DOES_NOT:
            groups.rest.append(row)
    return groups


def build_plan_document(plan: PlanView) -> Document:
    """Return the whole plan.

    Conditions that hold, or nearly hold, come first. Machines about which no policy finds anything are only counted.
    """
    rows = sorted(plan.rows, key=_get_sort_key)
    data = {
        "schema": SCHEMA,
        "at": format_instant(plan.at),
        "hash": plan.hash,
        "accepted": not plan.unaccepted,
        "rows": [build_plan_row_data(row, plan.at) for row in rows],
        "notes": list(plan.notes),
    }
    lead = [f"WARNING: {plan.unaccepted}. Accept it with: costguard plan --accept {plan.hash}"] if plan.unaccepted else []
    return Document(
        data=data,
        records=tuple(record for row in rows for record in _list_step_records(row, plan.at)),
        lead=(*lead, _format_summary(plan, rows)),
        tables=tuple(_list_tables(group_plan_rows(plan), plan.at)),
        notes=tuple(limit_lines(plan.notes, "notes")),
    )


def _get_sort_key(row: PlanRow) -> tuple[int, int, str, tuple[str, ...]]:
    return (
        RESULT_ORDER[row.verdict.finding],
        -(row.rate.nano if row.rate else 0),
        row.verdict.policy.name,
        tuple(row.verdict.life.key),
    )


def _format_summary(plan: PlanView, rows: Sequence[PlanRow]) -> str:
    machines = {row.verdict.life for row in rows if row.kind == INSTANCE}
    others = len({row.verdict.life for row in rows} - machines)
    judged = [row for row in rows if row.verdict.finding != CANNOT_SAY]
    unknown = machines - {row.verdict.life for row in judged}
    going = sum(proposal.is_ready(plan.at) for row in judged for proposal in row.proposals)
    held_count = sum(bool(proposal.held_by) for row in judged for proposal in row.proposals)
    later = sum(len(row.proposals) for row in judged) - going - held_count
    fleet = f"{len(machines)} machines{f' and {others} other resources' if others else ''}"
    summary = f"{fleet}, {going} steps would be done now, {later} are due later, {held_count} are held back"
    summary += f", not measured yet: {len(unknown)}" if unknown else ""
    return f"{format_local_time(plan.at)}: {summary}. This is a plan: nothing was done."


def build_plan_row_data(row: PlanRow, at: datetime) -> dict[str, object]:
    """Return a row of `costguard.plan/1`."""
    verdict, key = row.verdict, row.verdict.life.key
    return {
        "provider": key.provider,
        "account": key.account,
        "region": key.region,
        "id": key.id,
        "name": row.name,
        "owner": row.owner or None,
        "usd_per_hour": _format_dollars(row.rate, RATE_PLACES),
        "waste_usd": _format_dollars(row.waste, 2),
        "policy": verdict.policy.name,
        "rule": verdict.policy.rule,
        "level": row.level,
        "finding": verdict.finding,
        "since": format_instant(verdict.since) if verdict.since else None,
        "missing": list(verdict.truth.missing),
        "reasons": list(verdict.reasons),
        "agent": row.agent or None,
        "work": _build_activity_data(verdict.work),
        "steps": [_build_step_data(proposal, at) for proposal in row.proposals],
    }


def _format_dollars(money: Money | None, least: int) -> str | None:
    """Return dollars as text; None: unknown, or in another currency."""
    return format_exact(money, least) if money is not None and money.currency == "USD" else None


def _build_activity_data(work: Activity) -> dict[str, object]:
    return {
        "state": work.state,
        "confidence": work.confidence,
        "reasons": list(work.reasons),
        "since": format_instant(work.since) if work.since else None,
        "coverage": work.coverage,
    }


def _build_step_data(proposal: Proposal, at: datetime) -> dict[str, object]:
    return {
        "number": proposal.number,
        "do": proposal.step.do,
        "told": format_step(proposal.step),
        "due_at": format_instant(proposal.due_at),
        "expected_at": format_instant(proposal.expected_at or proposal.due_at),
        "goes": proposal.is_ready(at),
        "held_by": [{"reason": reason, "says": says} for reason, says in proposal.held_by],
    }


def _list_step_records(row: PlanRow, at: datetime) -> Iterator[Mapping[str, object]]:
    """Yield the machine and its verdict, once for each step."""
    row_data = build_plan_row_data(row, at)
    flat = {key: row_data[key] for key in ("provider", "account", "region", "id", "name", "owner", "usd_per_hour")}
    flat |= {key: row_data[key] for key in ("policy", "level", "finding", "since")}
    flat |= {"work": row.verdict.work.state, "confidence": row.verdict.work.confidence}
    for step in (*(_build_step_data(proposal, at) for proposal in row.proposals), *(() if row.proposals else (_NO_STEP,))):
        reasons = " ".join(reason for reason, _ in _list_hold_reasons(step))
        yield flat | {"do": step["do"], "due_at": step["due_at"], "goes": step["goes"], "held_by": reasons}


_NO_STEP: Mapping[str, object] = {"do": None, "due_at": None, "goes": False, "held_by": []}


def _list_hold_reasons(step: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    reasons = step["held_by"]
    return ((str(one["reason"]), str(one["says"])) for one in (reasons if isinstance(reasons, list) else []))


PLAN_FITS: Mapping[str, ColumnFit] = {
    "machine": ColumnFit(least=NAME_LEAST, how=MIDDLE),
    "policy": ColumnFit(rank=6, least=8),
    "work": ColumnFit(rank=5),
    "since": ColumnFit(rank=7),
    "next": ColumnFit(least=16, how=WORDS),
    "held because": ColumnFit(least=20, how=WORDS),
    "why": ColumnFit(rank=9, least=24),
    "why not": ColumnFit(least=20, how=WORDS),
}


def _list_tables(groups: PlanGroups, at: datetime) -> Iterator[TableView]:
    """Yield a table of what will be done, one of what is held, and one of machines about which nothing is known yet."""
    head: tuple[Column[PlanRow], ...] = (
        Column("", "machine", _format_machine_name),
        Column("", "owner", _format_owner),
        Column("", "$/h>", _format_rate),
        Column("", "policy", lambda row: row.verdict.policy.name),
    )
    state: tuple[Column[PlanRow], ...] = (
        Column("", "work", _format_work),
        Column("", "since", lambda row: _format_age(row.verdict.since, at)),
    )
    steps: Column[PlanRow] = Column("", "next", lambda row: _format_steps(row, at))
    result: Column[PlanRow] = Column("", "next", lambda row: RESULT_TEXTS[row.verdict.finding])
    reasons: Column[PlanRow] = Column("", "why", _format_reasons)
    why_held: Column[PlanRow] = Column("", "held because", _format_holds)
    tables: Sequence[tuple[str, Sequence[PlanRow], Sequence[Column[PlanRow]]]] = (
        ("Will be done", groups.going, (*head, *state, steps, reasons)),
        ("Would be done, but is held", groups.blocked, (*head, *state, steps, why_held, reasons)),
        ("Nothing to do yet", groups.rest, (*head, *state, result, reasons)),
        ("Not measured yet", groups.unknown, (*head, Column("", "why not", _format_missing))),
    )
    for title, of, columns in tables:
        if of:
            names = [shorten(row.name or row.verdict.life.key.id, LONGEST_NAME) for row in of]
            ids = list_short_ids([row.verdict.life.key for row in of])
            short = {"machine": add_short_ids(names, ids)}
            yield replace(build_table(columns, of, title=title), fits=PLAN_FITS, short=short, ids=ids)


def _list_held_acts(row: PlanRow) -> list[Proposal]:
    """Return the acts on the machine, beyond messages, that something holds back."""
    return [one for one in row.proposals if one.held_by and STEP_LEVELS[one.step.do] not in (OBSERVE, NOTIFY)]


def _format_work(row: PlanRow) -> str:
    return f"{row.verdict.work.state} ({row.verdict.work.confidence:.2f})"


def _format_age(since: datetime | None, at: datetime) -> str:
    return format_length(at - since) if since else "-"


def _format_owner(row: PlanRow) -> str:
    return shorten(row.owner or "-", LONGEST_NAME)


def _format_steps(row: PlanRow, at: datetime) -> str:
    """Return the steps and when each is due, and until when the limits delay it: `notify now; stop in 15 min`."""
    steps = []
    for proposal in row.proposals:
        when = "now" if proposal.due_at <= at else f"in {format_length(proposal.due_at - at)}"
        if proposal.expected_at is not None:
            when += f" (the limit of {proposal.limit} delays it until {format_local_time(proposal.expected_at)})"
        steps.append(f"{format_step(proposal.step)} {when}")
    return "; ".join(steps)


def _format_holds(row: PlanRow) -> str:
    """Return each reason for which an act is held, once."""
    return "; ".join(dict.fromkeys(says for one in _list_held_acts(row) for _, says in one.held_by))


def _format_missing(row: PlanRow) -> str:
    """Return what is not known of a machine: no data at all, or the signals that are missing."""
    missing = row.verdict.truth.missing
    if missing and missing != ("state",):
        return f"no data for {', '.join(missing)}"
    return "; ".join(row.verdict.work.reasons[:2]) or "no activity data yet"


def _format_reasons(row: PlanRow) -> str:
    """Return the reasons of the activity state, or of a verdict that rests on no facts."""
    reasons = row.verdict.work.reasons if row.verdict.policy.when.names else row.verdict.reasons
    return "; ".join(reasons[:REASONS_SHOWN])


def _format_machine_name(row: PlanRow) -> str:
    key = row.verdict.life.key
    name = f"{row.name} ({key.id})" if row.name and row.name != key.id else key.id
    return f"{key.provider} {shorten(name, LONGEST_NAME)}"


def _format_rate(row: PlanRow) -> str:
    if row.rate is None:
        return "unknown"
    return f"{'' if row.rate.currency == 'USD' else get_currency_sign(row.rate.currency)}{row.rate.format(RATE_PLACES)}"
