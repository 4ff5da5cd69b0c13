"""An answer ready to be rendered: the same facts as data (for scripts), records (for spreadsheets) and tables (for people).

Services answer with values; a view turns each kind of value into a Document; a renderer turns
any Document into text. So a new format is one file there, and a new answer works in every format at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:  # a type and no more: a quote does not pay for importing it
    from costguard.metering.charge_item import ChargeItems

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableView:
    """A table for people: cells are text already; a column whose name ends in `>` is aligned to the right.

    `sums`: how many of the last rows sum up the others.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    sums: int = 0


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """One figure of a record, in every format: a new figure of a record is one more of these.

    `key`: its name in JSON and CSV, where it is `value(record)`; "": it is in tables only. `heading`: its name in tables, where
    it is `text(record)`, with `>` at the end of figures; "": it is in JSON only. `text` None: tables show the value, or `-`.

    Example: Column("usd_per_hour", "$/h>", lambda offer: format_rate(offer.rate)).
    """

    key: str
    heading: str
    value: Callable[[T], object]
    text: Callable[[T], str] | None = None

    def format_cell(self, record: T) -> str:
        """The figure as tables show it."""
        if self.text is not None:
            return self.text(record)
        value = self.value(record)
        return "-" if value is None else str(value)


def build_record(columns: Iterable[Column[T]], record: T) -> dict[str, object]:
    """`record` as JSON and CSV have it: its keys in the order of `columns`."""
    return {column.key: column.value(record) for column in columns if column.key}


def build_table(
    columns: Iterable[Column[T]], records: Iterable[T], headings: Sequence[str] = (), *, title: str = ""
) -> TableView:
    """A row for each of `records`. `headings`: the columns to show, in this order; none: all that have a heading."""
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
    """One part of a chart. `values`: one a label, None where nothing is known; `texts`: the same for people."""

    name: str
    values: tuple[float | None, ...]
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A picture of numbers that the tables hold too. `kind`: STACKED, HEAT or BARS. `unit`: of all values ("$", "%").

    `labels` go across, a series is a part of each column (STACKED), a row (HEAT), or the only one (BARS).
    """

    title: str
    kind: str
    unit: str
    labels: tuple[str, ...]
    series: tuple[ChartSeries, ...]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadlineFigure:
    """A number that people look for first: `$1234.56` under `Spent`. `note`: what bounds or explains it."""

    name: str
    text: str
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """`data`: the JSON contract. `records`: one flat row per item. `lead` and `notes`: lines around the tables.

    `charts`, `figures`: for formats that can draw, or write large. `items`: what item-by-item formats are made of, read while
    they are written; None where the answer is not about charges.
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
    """Turns any answer into text of one format."""

    def __call__(self, document: Document) -> str:
        """The text, ending in a newline. Pure: the same document gives the same text for the same terminal."""


class LongRenderer(Protocol):
    """The same for what can be too long for memory, or is no text: in pieces, in order.

    `options`: of those flags that the format's module names in OPTIONS, the ones that were given.
    """

    def __call__(self, document: Document, **options: str) -> Iterator[str] | Iterator[bytes]:
        """The pieces. What can be known to be wrong is said before the first one."""
