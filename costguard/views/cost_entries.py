"""The result of `costguard add`: `costguard.entries/1`, one record for each entry that is in the ledger now."""

from __future__ import annotations

from collections.abc import Sequence

from costguard.metering.cost_entry import CostEntry
from costguard.values.text_format import format_exact, format_instant
from costguard.views.document import Column, Document, build_record, build_table

SCHEMA = "costguard.entries/1"
ENTRY_COLUMNS: tuple[Column[CostEntry], ...] = (
    Column("id", "entry", lambda one: f"E{one.number}"),
    Column("corrects", "corrects", lambda one: f"E{one.corrects}" if one.corrects else None),
    Column("what", "what", lambda one: one.what),
    Column("month", "month", lambda one: f"{one.start:%Y-%m}"),
    Column("currency", "", lambda one: one.money.currency),
    Column(
        "amount",
        "amount>",
        lambda one: format_exact(one.money),
        lambda one: str(one.money),
    ),
    Column("provider", "provider", lambda one: one.provider),
    Column("owner", "owner", lambda one: one.owner or None),
    Column("labels", "", lambda one: dict(one.labels)),
    Column("who", "who", lambda one: one.who),
    Column("entered_at", "", lambda one: format_instant(one.entered_at)),
)


def build_entries_document(entries: Sequence[CostEntry]) -> Document:
    """Return the document of `entries` as they were stored. The amount of a correction is its difference."""
    records = tuple(build_record(ENTRY_COLUMNS, one) for one in entries)
    many = "1 entry is" if len(entries) == 1 else f"{len(entries)} entries are"
    return Document(
        data={"schema": SCHEMA, "entries": list(records)},
        records=tuple(
            {**one, "labels": " ".join(f"{key}={text}" for key, text in entry.labels)}
            for one, entry in zip(records, entries, strict=True)
        ),
        lead=(f"{many} in the books, with reports, budgets and exports.",),
        tables=(build_table(ENTRY_COLUMNS, entries),),
    )
