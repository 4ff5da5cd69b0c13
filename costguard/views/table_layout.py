"""Fit a table into a terminal: which columns are shown, with which cells, and how wide.

First the shorter cells are taken, then columns are shortened, then columns are dropped by rank, those without one last and from
the right. The column that names the rows never yields: it is cut in its middle, with the row's short id. A table of names and
values keeps both columns: an address that is to be pasted is the point of it. Nothing is broken within a word, a name or a
number: what has no room ends in an ellipsis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from costguard.errors import to_one_line
from costguard.views.columns import ADDRESS, ELLIPSIS, MIDDLE, NAME_LEAST, WORDS, find_fit, find_naming_column
from costguard.views.document import TableView

GAP = 2
"""Spaces between two columns."""
PAIR = 2
"""Columns of a table of names and values."""
NARROWEST = 3
"""Cells of a column that had to give way although it stays: a letter or two and the ellipsis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaidColumn:
    """A column as it is shown.

    `name`: its whole heading. `wraps`: its cells may take several lines. `middle`: they are cut in the middle. `naming`: it
    names the rows.
    """

    name: str
    heading: str
    right: bool
    width: int
    wraps: bool
    middle: bool
    naming: bool
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLayout:
    """The columns shown, in order; `dropped`: the headings of those left out; `shortened`: of those with cells cut."""

    columns: tuple[LaidColumn, ...]
    dropped: tuple[str, ...]
    shortened: tuple[str, ...]


def fit_table(table: TableView, width: int | None, measure: Callable[[str], int] = len) -> TableLayout:
    """Return the layout of `table` in `width` cells; None: as wide as it is. `measure`: how many cells a text takes."""
    full = [_build_column(table, number, measure) for number in range(len(table.columns))]
    if width is None or _measure(full) <= width:
        return TableLayout(columns=tuple(full), dropped=(), shortened=())
    briefs = [_shorten_cells(table, column, measure) for column in full]
    visible, dropped = list(range(len(briefs))), list[int]()
    while len(visible) > 1 and len(briefs) > PAIR and _measure_least(table, [briefs[n] for n in visible]) > width:
        yielding = [n for n in visible if not briefs[n].naming]
        dropped_column = max(yielding, key=lambda n: (find_fit(briefs[n].name, table.fits).rank, n))
        visible.remove(dropped_column)
        dropped.append(dropped_column)
    shown = _fit_widths(table, [briefs[n] for n in visible], width)
    cut = tuple(
        one.name
        for one, n in zip(shown, visible, strict=True)
        if one.cells != full[n].cells or (one.width < full[n].width and not one.wraps)
    )
    return TableLayout(
        columns=tuple(shown), dropped=tuple(full[n].heading for n in sorted(dropped)), shortened=tuple(filter(None, cut))
    )


def cut_text(text: str, width: int, *, middle: bool) -> str:
    """Return `text` in at most `width` characters, with an ellipsis for what is left out; an address whole."""
    if len(text) <= width or ADDRESS.search(text):
        return text
    if width <= 1:
        return ELLIPSIS[:width]
    if not middle:
        return text[: width - 1].rstrip() + ELLIPSIS
    tail = text[-((width - 1) // 2) :].lstrip(f"{ELLIPSIS} ") if width > NARROWEST - 1 else ""
    return text[: width - 1 - len(tail)] + ELLIPSIS + tail


def _cut_cell(cell: str, short_id: str, width: int, column: LaidColumn) -> str:
    """Return `cell` in `width` characters: `train-l\u2026b-a 4f2c9a` for a name that is cut, where its row has a short id."""
    room = width - len(short_id) - 1
    if len(cell) <= width or not short_id or room < NARROWEST:
        return cut_text(cell, width, middle=column.middle)
    return f"{cut_text(cell.removesuffix(f' {short_id}'), room, middle=True)} {short_id}"


def _build_column(table: TableView, number: int, measure: Callable[[str], int]) -> LaidColumn:
    stated_heading = table.columns[number]
    heading = stated_heading.removesuffix(">")
    cells = tuple(to_one_line(row[number]) for row in table.rows)
    how, naming = find_fit(stated_heading, table.fits).how, number == find_naming_column(table.columns)
    return LaidColumn(
        name=heading,
        heading=heading,
        right=stated_heading.endswith(">"),
        width=max(map(measure, (heading, *cells))),
        wraps=how == WORDS,
        middle=naming or how == MIDDLE,
        naming=naming,
        cells=cells,
    )


def _shorten_cells(table: TableView, column: LaidColumn, measure: Callable[[str], int]) -> LaidColumn:
    """Return the column with its shorter cells and heading, if the table has some."""
    cells = tuple(map(to_one_line, table.short.get(column.name, column.cells)))
    heading = find_fit(column.name, table.fits).heading or column.heading
    return replace(column, heading=heading, width=max(map(measure, (heading, *cells))), cells=cells)


def _measure(columns: Sequence[LaidColumn]) -> int:
    return sum(one.width for one in columns) + GAP * (len(columns) - 1)


def _get_least(table: TableView, column: LaidColumn) -> int:
    """Return the least width of a column: its stated one, or its own where it is never shortened."""
    least = find_fit(column.name, table.fits).least or (NAME_LEAST if column.naming else 0)
    return min(column.width, max(least, len(column.heading))) if least else column.width


def _measure_least(table: TableView, columns: Sequence[LaidColumn]) -> int:
    return sum(_get_least(table, one) for one in columns) + GAP * (len(columns) - 1)


def _fit_widths(table: TableView, columns: Sequence[LaidColumn], width: int) -> list[LaidColumn]:
    """Return the columns as wide as `width` allows: the widest of those that may be shortened gives way first."""
    widths = [one.width for one in columns]
    leasts = [_get_least(table, one) for one in columns]
    for floors in (leasts, [min(NARROWEST, one) for one in leasts]):
        while (over := sum(widths) + GAP * (len(widths) - 1) - width) > 0:
            wide = [n for n in range(len(widths)) if widths[n] > floors[n]]
            if not wide:
                break
            widest = max(wide, key=widths.__getitem__)
            second = max((widths[n] for n in wide if n != widest), default=0)
            widths[widest] = max(floors[widest], widths[widest] - over, min(second, widths[widest] - 1))
    return [_set_width(table, one, to) for one, to in zip(columns, widths, strict=True)]


def _set_width(table: TableView, column: LaidColumn, width: int) -> LaidColumn:
    ids = table.ids if column.naming and table.ids else ("",) * len(column.cells)
    pairs = zip(column.cells, ids, strict=True)
    cells = column.cells if column.wraps else tuple(_cut_cell(cell, short_id, width, column) for cell, short_id in pairs)
    return replace(column, heading=cut_text(column.heading, width, middle=False), width=width, cells=cells)
