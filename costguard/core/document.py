"""An answer ready to be rendered: the same facts as data (for scripts), records (for spreadsheets) and tables (for people).

Flows answer with values; `core/documents/` turns each kind of value into a Document; a renderer in `reports/` turns
any Document into text. So a new format is one file there, and a new answer works in every format at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TableView:
    """A table for people: cells are text already; a column whose name ends in `>` is aligned to the right."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """`data`: the JSON contract. `records`: one flat row per item. `lead` and `notes`: lines around the tables."""

    data: Mapping[str, object]
    records: tuple[Mapping[str, object], ...] = ()
    lead: tuple[str, ...] = ()
    tables: tuple[TableView, ...] = ()
    notes: tuple[str, ...] = ()
