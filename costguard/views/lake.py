"""Documents about the lake: `costguard.lake/1`; their key `action` states the command."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from costguard.reporting.lake import CLOSED_AFTER, LakeChanges, LakeSum
from costguard.views.document import Document, TableView

LAKE_SCHEMA = "costguard.lake/1"
PLACES = Decimal("0.01")


def build_lake_changes_document(url: str, changes: LakeChanges) -> Document:
    """Return what `lake write` wrote, left and removed."""
    data = {
        "schema": LAKE_SCHEMA,
        "action": "write",
        "lake": url,
        "written": list(changes.written),
        "unchanged": list(changes.unchanged),
        "removed": list(changes.removed),
        "rows": changes.rows,
    }
    records = [{"file": path, "outcome": "written"} for path in changes.written]
    records += [{"file": path, "outcome": "unchanged"} for path in changes.unchanged]
    records += [{"file": path, "outcome": "removed"} for path in changes.removed]
    lead = (
        f"{url}: {len(changes.written)} files written ({changes.rows:,} rows), {len(changes.unchanged)} unchanged, "
        f"{len(changes.removed)} removed."
    )
    notes = () if records else (f"No month is closed yet: a month is written {CLOSED_AFTER.days} days after its end.",)
    return Document(data=data, records=tuple(records), lead=(lead,), notes=notes)


def build_lake_report_document(url: str, keys: Sequence[str], months: Sequence[str], sums: Sequence[LakeSum]) -> Document:
    """Return the sums by `keys`, and their totals. `months`: those that the sums are of."""
    totals: dict[str, list[Decimal]] = {}
    for one in sums:
        total = totals.setdefault(one.currency, [Decimal(0)] * 3)
        totals[one.currency] = [so_far + more for so_far, more in zip(total, (one.low, one.expected, one.high), strict=True)]
    records = tuple({**dict(zip(keys, one.by, strict=True)), **_build_amounts(one), "rows": one.rows} for one in sums)
    data = {
        "schema": LAKE_SCHEMA,
        "action": "report",
        "lake": url,
        "months": list(months),
        "by": list(keys),
        "groups": list(records),
        "totals": [
            {"currency": currency, "low": f"{low:f}", "expected": f"{expected:f}", "high": f"{high:f}"}
            for currency, (low, expected, high) in totals.items()
        ],
    }
    rows = [
        (*(value or "-" for value in one.by), one.currency, *_format_cells(one.low, one.expected, one.high)) for one in sums
    ]
    rows += [(*("total", *[""] * (len(keys) - 1)), currency, *_format_cells(*total)) for currency, total in totals.items()]
    columns = (*keys, "currency", "low>", "expected>", "high>")
    covered = f"{months[0]} to {months[-1]}, {len(months)} months" if months else "no month"
    table = TableView(title="", columns=columns, rows=tuple(rows), sums=len(totals))
    return Document(data=data, records=records, lead=(f"{url}: {covered}, in UTC.",), tables=(table,) if rows else ())


def _build_amounts(one: LakeSum) -> dict[str, str]:
    return {"currency": one.currency, "low": f"{one.low:f}", "expected": f"{one.expected:f}", "high": f"{one.high:f}"}


def _format_cells(*amounts: Decimal) -> tuple[str, ...]:
    return tuple(f"{amount.quantize(PLACES):,f}" for amount in amounts)
