"""A Document: the same facts as data (for scripts), records (for spreadsheets) and tables (for people).

Services return values, a view turns each kind of value into a Document, and a renderer turns any Document into text. So a new
format is one renderer, and a new answer is available in every format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from costguard.views.columns import ColumnFit

if TYPE_CHECKING:  # a type and no more: a quote does not pay for importing it
    from costguard.metering.charge_item import ChargeItems

T = TypeVar("T")


PLAIN, GOOD, DOUBTFUL, BAD, OVER, DIM = "", "good", "doubtful", "bad", "over", "dim"
TONES = (PLAIN, GOOD, DOUBTFUL, BAD, OVER, DIM)
"""What a row means: nothing special, well, doubtful (stale, unknown), wrong, over its budget, not at work (stopped, ended)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableView:
    """A table for people, with cells as text; a column whose name ends in `>` is right-aligned.

    - `sums`: how many of the last rows are sums of the others.
    - `fits`: how columns give way on a narrow terminal, by heading without `>`, where it is not as in `views.columns`.
    - `short`: shorter cells of a column, one per row, for a terminal on which the whole ones have no room.
    - `ids`: a short id for each row, shown after a name that had to be cut; empty: none.
    - `tones`: what each row means, of TONES; empty: nothing.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    sums: int = 0
    fits: Mapping[str, ColumnFit] = field(default_factory=dict)
    short: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ids: tuple[str, ...] = ()
    tones: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """One field of a record, defined once for all formats.

    `key`: its name in JSON and CSV, where it is `value(record)`; "": only in tables. `heading`: its name in tables, where it is
    `text(record)`, with `>` at the end for numbers; "": only in JSON. `text` None: tables show the value, or `-`.

    Example: Column("usd_per_hour", "$/h>", lambda offer: format_rate(offer.rate)).
    """

    key: str
    heading: str
    value: Callable[[T], object]
    text: Callable[[T], str] | None = None

    def format_cell(self, record: T) -> str:
        """Return the field as text for tables."""
        if self.text is not None:
            return self.text(record)
        value = self.value(record)
        return "-" if value is None else str(value)


def build_record(columns: Iterable[Column[T]], record: T) -> dict[str, object]:
    """Return `record` for JSON and CSV, with keys in the order of `columns`."""
    return {column.key: column.value(record) for column in columns if column.key}


def build_table(
    columns: Iterable[Column[T]], records: Iterable[T], headings: Sequence[str] = (), *, title: str = ""
) -> TableView:
    """Return a table with one row for each of `records`.

    `headings`: the columns to show, in this order; empty: all that have a heading.
    """
    shown = [column for column in columns if column.heading]
    if headings:
        by_heading = {column.heading: column for column in shown}
        shown = [by_heading[heading] for heading in headings]
    rows = tuple(tuple(column.format_cell(record) for column in shown) for record in records)
    return TableView(title=title, columns=tuple(column.heading for column in shown), rows=rows)


STACKED, HEAT, BARS = "stacked", "heat", "bars"
"""Columns of parts that add up; a grid of rows and columns; one bar a label."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartSeries:
    """One series of a chart.

    `values`: one per label, None if unknown. `texts`: the same for people.
    """

    name: str
    values: tuple[float | None, ...]
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A chart of numbers that are also in the tables.

    `kind`: STACKED, HEAT or BARS. `unit`: of all values ("$", "%"). `labels` are the horizontal axis; a series is a part of
    each column (STACKED), a row (HEAT), or the only series (BARS).
    """

    title: str
    kind: str
    unit: str
    labels: tuple[str, ...]
    series: tuple[ChartSeries, ...]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadlineFigure:
    """A number that people look for first: `$1234.56` under `Spent`.

    `note`: its bounds or an explanation.
    """

    name: str
    text: str
    note: str = ""


class PastedLine(str):
    """A line of `Document.lead` or `notes` with a command or a secret to paste: printed whole, however narrow the terminal."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """An answer in a form that every renderer can format.

    - `data`: the JSON contract. `records`: one flat row per item. `lead`, `notes`: lines before and after the tables.
    - `charts`, `figures`: for formats that support drawings or large numbers.
    - `items`: charge items for item-by-item formats, read while they are written; None if the answer is not about
        charges.
    """

    data: Mapping[str, object]
    records: tuple[Mapping[str, object], ...] = ()
    lead: tuple[str, ...] = ()
    tables: tuple[TableView, ...] = ()
    notes: tuple[str, ...] = ()
    charts: tuple[Chart, ...] = ()
    figures: tuple[HeadlineFigure, ...] = ()
    items: ChargeItems | None = None


class Renderer(Protocol):
    """Formats any Document as text in one format."""

    def __call__(self, document: Document) -> str:
        """Return the text, with a final newline; the same document gives the same text on the same terminal."""


class LongRenderer(Protocol):
    """Formats a Document that may be too large for memory, or is not text, as pieces in order.

    `options`: the flags given by the user, of those listed in OPTIONS of the format's module.
    """

    def __call__(self, document: Document, **options: str) -> Iterator[str] | Iterator[bytes]:
        """Return the pieces; errors that can be detected in advance are raised before the first one."""
