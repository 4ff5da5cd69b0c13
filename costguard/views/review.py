"""The cost of a change as a document: `costguard.review/1`, one record per changed job file, before, after and difference."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from costguard.errors import shorten
from costguard.quoting.job_change import ChangeLimits, JobChange, JobCost, sum_expected
from costguard.views.document import BAD, PLAIN, Document, TableView

SCHEMA = "costguard.review/1"
FILE_CHARS_MAX, PROBLEM_CHARS_MAX = 80, 160
CENT = Decimal("0.01")


def build_review_document(changes: Sequence[JobChange], limits: ChangeLimits, breaches: Sequence[str]) -> Document:
    """Return the document: the sums as its lead, a table of changes, and a table of what each side runs on."""
    old, new = sum_expected(one.before for one in changes), sum_expected(one.after for one in changes)
    records = tuple(_build_record(one) for one in changes)
    data = {
        "schema": SCHEMA,
        "changes": [_build_change_data(one) for one in changes],
        "usd_before": _format_exact(old),
        "usd_after": _format_exact(new),
        "usd_difference": _format_exact(new - old),
        "limits": {"max_usd": _format_exact(limits.usd_max), "max_increase_usd": _format_exact(limits.increase_usd_max)},
        "breaches": list(breaches),
    }
    lead = [_format_sums(changes, old, new), *(f"Over the limit: {one}." for one in breaches)]
    rows = tuple(
        (shorten(one.file, FILE_CHARS_MAX), _format_side(one.before), _format_side(one.after), _format_difference(one))
        for one in changes
    )
    tones = tuple(BAD if one.after is not None and one.after.problem else PLAIN for one in changes)
    tables = [TableView(title="", columns=("job", "before>", "after>", "difference>"), rows=rows, tones=tones)]
    details = tuple(row for one in changes for row in _list_detail_rows(one))
    if details:
        columns = ("job", "side", "cost (80 % interval)", "cheapest now")
        tables.append(TableView(title="Hardware", columns=columns, rows=details))
    return Document(
        data=data,
        records=records,
        lead=tuple(lead),
        tables=tuple(tables) if changes else (),
        notes=tuple(dict.fromkeys(_list_notes(changes))),
    )


def _format_sums(changes: Sequence[JobChange], old: Decimal, new: Decimal) -> str:
    if not changes:
        return "No job file changed."
    jobs = "1 GPU job changes" if len(changes) == 1 else f"{len(changes)} GPU jobs change"
    open_ended = any(side is not None and side.problem for one in changes for side in (one.before, one.after))
    unknown = ", without the jobs that are not quoted" if open_ended else ""
    return f"{jobs}: ${old:.2f} to ${new:.2f} ({_format_signed(new - old)}{unknown})"


def _format_side(side: JobCost | None) -> str:
    if side is None:
        return "-"
    if side.expected is None:
        return "not quoted"
    return f"${side.expected:.2f}{' a month' if side.monthly else ''}{'' if side.hours is None else f', {side.hours:.1f} h'}"


def _format_difference(change: JobChange) -> str:
    if change.difference is None:
        return "unknown"
    word = "new, " if change.before is None else "removed, " if change.after is None else ""
    return word + _format_signed(change.difference)


def _format_signed(amount: Decimal) -> str:
    return f"{'-' if amount.quantize(CENT) < 0 else '+'}${abs(amount):.2f}"


def _list_detail_rows(change: JobChange) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for name, side in (("before", change.before), ("after", change.after)):
        if side is not None:
            cost = "-" if side.low is None or side.high is None else f"${side.low:.2f} to ${side.high:.2f}"
            description = side.place or shorten(side.problem, PROBLEM_CHARS_MAX)
            rows.append((shorten(change.file, FILE_CHARS_MAX), name, cost, description))
    return rows


def _list_notes(changes: Sequence[JobChange]) -> list[str]:
    notes = [f"{shorten(one.file, FILE_CHARS_MAX)}: {note}" for one in changes if one.after for note in one.after.notes]
    return [*notes, "Costs are the cheapest offer's with a fresh price, else the cheapest; taxes and traffic are not included."]


def _build_change_data(change: JobChange) -> dict[str, object]:
    difference = None if change.difference is None else _format_exact(change.difference)
    return {
        "file": change.file,
        "before": _build_side_data(change.before),
        "after": _build_side_data(change.after),
        "usd_difference": difference,
    }


def _build_side_data(side: JobCost | None) -> dict[str, object] | None:
    if side is None:
        return None
    usd = {"low": _format_exact(side.low), "expected": _format_exact(side.expected), "high": _format_exact(side.high)}
    return {
        "usd": None if side.expected is None else usd,
        "per_month": side.monthly,
        "hours": side.hours,
        "place": side.place or None,
        "problem": side.problem or None,
        "notes": list(side.notes),
    }


def _build_record(change: JobChange) -> dict[str, object]:
    sides = {"before": change.before, "after": change.after}
    amounts = {f"usd_{name}": None if side is None else _format_exact(side.expected) for name, side in sides.items()}
    problem = next((side.problem for side in (change.after, change.before) if side is not None and side.problem), None)
    difference = None if change.difference is None else _format_exact(change.difference)
    return {"file": change.file, **amounts, "usd_difference": difference, "problem": problem}


def _format_exact(amount: Decimal | None) -> str | None:
    return None if amount is None else f"{amount:.2f}"
