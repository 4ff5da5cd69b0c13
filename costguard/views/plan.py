"""The plan as a document: `costguard.plan/1`.

For each policy and machine it contains the finding, the acts, their time, and the reasons that hold them back.

There is one record per proposal. A policy that finds something about a machine without proposing an act also has one record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from costguard.errors import shorten
from costguard.guard.policy import CANNOT_SAY, DOES_NOT, HOLDS, NOT_YET, OBSERVE, STEP_LEVELS, Proposal, Verdict
from costguard.guard.signals import Activity
from costguard.values.money import Money
from costguard.values.text_format import (
    RATE_PLACES,
    format_exact,
    format_instant,
    format_length,
    format_local_time,
    get_currency_sign,
    limit_lines,
)
from costguard.views.document import Document, TableView
from costguard.views.policy import format_step

SCHEMA = "costguard.plan/1"
LONGEST_NAME = 48
RESULT_ORDER = {HOLDS: 0, NOT_YET: 1, CANNOT_SAY: 2, DOES_NOT: 3}
RESULT_TEXTS = {HOLDS: "holds", NOT_YET: "not yet", CANNOT_SAY: "cannot say", DOES_NOT: "no"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRow:
    """A verdict and its consequences.

    - `rate`: cost per hour; None: unknown. `waste`: cost since the condition has held, if known.
    - `level`: how far its policy is armed today. `agent`: state of the machine's agent; "" if it has none.
    """

    verdict: Verdict
    proposals: tuple[Proposal, ...] = ()
    level: str = OBSERVE
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


def build_plan_document(plan: PlanView) -> Document:
    """Return the whole plan.

    Conditions that hold, or nearly hold, come first. Machines about which no policy finds anything are only counted.
    """
    rows = sorted(plan.rows, key=_get_sort_key)
    shown = [row for row in rows if row.verdict.finding != DOES_NOT or row.proposals]
    data = {
        "schema": SCHEMA,
        "at": format_instant(plan.at),
        "hash": plan.hash,
        "accepted": not plan.unaccepted,
        "rows": [_build_row_data(row, plan.at) for row in rows],
        "notes": list(plan.notes),
    }
    lead = [f"WARNING: {plan.unaccepted}. Accept it with: costguard plan --accept {plan.hash}"] if plan.unaccepted else []
    return Document(
        data=data,
        records=tuple(record for row in rows for record in _list_step_records(row, plan.at)),
        lead=(*lead, _format_summary(plan, rows)),
        tables=(_build_table(shown, plan.at),) if shown else (),
        notes=(*limit_lines(_list_reasons(shown), "reasons"), *limit_lines(plan.notes, "notes")),
    )


def _get_sort_key(row: PlanRow) -> tuple[int, int, str, tuple[str, ...]]:
    return (
        RESULT_ORDER[row.verdict.finding],
        -(row.rate.nano if row.rate else 0),
        row.verdict.policy.name,
        tuple(row.verdict.life.key),
    )


def _format_summary(plan: PlanView, rows: Sequence[PlanRow]) -> str:
    lives = {row.verdict.life for row in rows}
    going = sum(proposal.is_ready(plan.at) for row in rows for proposal in row.proposals)
    held = sum(bool(proposal.held_by) for row in rows for proposal in row.proposals)
    later = sum(len(row.proposals) for row in rows) - going - held
    told = f"{len(lives)} machines, {going} steps would be done now, {later} are due later, {held} are held back"
    return f"{format_local_time(plan.at)}: {told}."


def _build_row_data(row: PlanRow, at: datetime) -> dict[str, object]:
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
        "goes": proposal.is_ready(at),
        "held_by": [{"reason": reason, "says": says} for reason, says in proposal.held_by],
    }


def _list_step_records(row: PlanRow, at: datetime) -> Iterator[Mapping[str, object]]:
    """Yield the machine and its verdict, once for each step."""
    whole = _build_row_data(row, at)
    flat = {key: whole[key] for key in ("provider", "account", "region", "id", "name", "owner", "usd_per_hour")}
    flat |= {key: whole[key] for key in ("policy", "level", "finding", "since")}
    flat |= {"work": row.verdict.work.state, "confidence": row.verdict.work.confidence}
    for step in (*(_build_step_data(proposal, at) for proposal in row.proposals), *(() if row.proposals else (_NO_STEP,))):
        held = " ".join(reason for reason, _ in _list_hold_reasons(step))
        yield flat | {"do": step["do"], "due_at": step["due_at"], "goes": step["goes"], "held_by": held}


_NO_STEP: Mapping[str, object] = {"do": None, "due_at": None, "goes": False, "held_by": []}


def _list_hold_reasons(step: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    held = step["held_by"]
    return ((str(one["reason"]), str(one["says"])) for one in (held if isinstance(held, list) else []))


def _build_table(rows: Sequence[PlanRow], at: datetime) -> TableView:
    return TableView(
        title="",
        columns=("machine", "owner", "$/h>", "policy", "finding", "work", "since", "step", "when", "held back by"),
        rows=tuple(cells for row in rows for cells in _list_row_cells(row, at)),
    )


def _list_row_cells(row: PlanRow, at: datetime) -> Iterator[tuple[str, ...]]:
    verdict = row.verdict
    work = f"{verdict.work.state} ({verdict.work.confidence:.2f})"
    since = format_length(at - verdict.since) if verdict.since else "-"
    finding = RESULT_TEXTS[verdict.finding]
    if verdict.finding == CANNOT_SAY and verdict.truth.missing:
        missing = verdict.truth.missing
        finding = "no activity data yet" if missing == ("state",) else f"unknown: no data for {', '.join(missing)}"
    head = (
        _format_machine_name(row),
        shorten(row.owner or "-", LONGEST_NAME),
        _format_rate(row),
        verdict.policy.name,
        finding,
        work,
        since,
    )
    for number, proposal in enumerate(row.proposals):
        when = "now" if proposal.due_at <= at else f"in {format_length(proposal.due_at - at)}"
        held = ", ".join(says for _, says in proposal.held_by) or "-"
        yield (*(head if number == 0 else ("",) * len(head)), format_step(proposal.step), when, held)
    if not row.proposals:
        yield (*head, "-", "-", "-")


def _format_machine_name(row: PlanRow) -> str:
    key = row.verdict.life.key
    name = f"{row.name} ({key.id})" if row.name and row.name != key.id else key.id
    return f"{key.provider} {shorten(name, LONGEST_NAME)}"


def _format_rate(row: PlanRow) -> str:
    if row.rate is None:
        return "unknown"
    return f"{'' if row.rate.currency == 'USD' else get_currency_sign(row.rate.currency)}{row.rate.format(RATE_PLACES)}"


def _list_reasons(rows: Sequence[PlanRow]) -> Iterator[str]:
    """Yield the reasons of each activity state, one line for each machine and policy that would act."""
    for row in rows:
        does = any(STEP_LEVELS[proposal.step.do] != OBSERVE for proposal in row.proposals)
        reasons = "; ".join(row.verdict.work.reasons[:3])
        if does and reasons:
            yield f"{_format_machine_name(row)}: {row.verdict.work.state} because {reasons}."
