"""The default format: tables with lines on a terminal, aligned text in a pipe.

Example of a pipe: columns are two spaces apart and nothing is cut or wrapped, so that `grep` and `awk` match whole lines.

    #  provider  GPU          $/h
    1  vast      V100-16GB   0.09

rich is imported only for a terminal: the import takes a third of the time of a quote, and a pipe does not need it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

from costguard.errors import to_one_line
from costguard.views.document import Document, TableView


def render(document: Document) -> str:
    """Return text for people; colours and wrapping only on a terminal (NO_COLOR and COLUMNS are respected)."""
    return _render_with_rich(document) if sys.stdout.isatty() else _render_aligned(document)


def _render_aligned(document: Document) -> str:
    """Return every part as plain lines, with an empty line around each table."""
    parts = [_split_lines(document.lead), *(_align_table(t) for t in document.tables if t.rows), _split_lines(document.notes)]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _split_lines(texts: Iterable[str]) -> list[str]:
    """Return each text as one line."""
    return [to_one_line(text).rstrip() for text in texts]


def _align_table(table: TableView) -> list[str]:
    heads = tuple(c.removesuffix(">") for c in table.columns)
    rows = [heads, *(tuple(map(to_one_line, row)) for row in table.rows)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(heads))]
    right = [c.endswith(">") for c in table.columns]
    cells = [[c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True)] for row in rows]
    return [*([table.title] if table.title else []), *("  ".join(row).rstrip() for row in cells)]


def _render_with_rich(document: Document) -> str:
    """Return every part as rich renders it for this terminal."""
    import io

    from rich.console import Console
    from rich.text import Text

    out = io.StringIO()
    colours = None if os.environ.get("NO_COLOR") else True
    console = Console(file=out, width=_get_width(), force_terminal=colours, highlight=False, emoji=False, markup=False)
    for line in document.lead:
        console.print(Text(to_one_line(line)))
    for table in document.tables:
        if table.rows:
            console.print(_build_rich_table(table))
    for note in document.notes:
        console.print(Text(to_one_line(note), style="dim"))
    return out.getvalue()


def _build_rich_table(table: TableView) -> object:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=table.title or None, title_justify="left", title_style="bold")
    for column in table.columns:
        drawn.add_column(column.removesuffix(">"), justify="right" if column.endswith(">") else "left", overflow="fold")
    for row in table.rows:
        drawn.add_row(*(Text(to_one_line(cell)) for cell in row))
    return drawn


def _get_width() -> int:
    """Return the number of columns: `$COLUMNS` if set, else the terminal's width."""
    stated = os.environ.get("COLUMNS", "")
    if stated.isdigit() and int(stated) > 0:
        return int(stated)
    return os.get_terminal_size(sys.stdout.fileno()).columns
