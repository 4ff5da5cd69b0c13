"""The default format: tables for a terminal, or plain aligned text where the output is not one."""

from __future__ import annotations

import io
import os
import shutil
import sys

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from costguard.core.document import Document, TableView

PIPED_WIDTH = 200
"""Columns when nobody is looking: wide enough that nothing is cut, so that `grep` finds it."""


def render(document: Document) -> str:
    """Text for people; colours only on a terminal (rich honours NO_COLOR and FORCE_COLOR)."""
    out = io.StringIO()
    console = Console(
        file=out, width=_width(), force_terminal=_colours() or None, highlight=False, emoji=False, markup=False, soft_wrap=False
    )
    for line in document.lead:
        console.print(Text(line))
    for table in document.tables:
        if table.rows:
            console.print(_rich(table))
    for note in document.notes:
        console.print(Text(note, style="dim"))
    # Without a terminal rich still pads each line to the table's width.
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())


def _rich(table: TableView) -> Table:
    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=table.title or None, title_justify="left", title_style="bold")
    for column in table.columns:
        drawn.add_column(column.removesuffix(">"), justify="right" if column.endswith(">") else "left", overflow="fold")
    for row in table.rows:
        drawn.add_row(*(Text(cell) for cell in row))
    return drawn


def _colours() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def _width() -> int:
    stated = os.environ.get("COLUMNS", "")
    if stated.isdigit() and int(stated) > 0:
        return int(stated)
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else PIPED_WIDTH
