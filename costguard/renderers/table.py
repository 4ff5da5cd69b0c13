"""The default format: tables that fit the terminal, aligned text in a pipe.

Example of a pipe: columns are two spaces apart and nothing is cut or wrapped, so that `grep` and `awk` match whole lines.

    #  provider  GPU          $/h
    1  vast      V100-16GB   0.09

On a terminal a table gives way as `table_layout` says, and the last line says what `--wide` would add.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from costguard.errors import to_one_line
from costguard.system.terminal import cut_to_width, fill_lines, measure_width, wrap_text
from costguard.views.columns import ADDRESS, ELLIPSIS
from costguard.views.document import BAD, DIM, DOUBTFUL, GOOD, OVER, Document, PastedLine, TableView

if TYPE_CHECKING:
    from costguard.views.table_layout import TableLayout

OPTIONS = ("wide",)
"""`--wide` shows every column and every cell as it is, however long the lines become."""
UNSTATED_WIDTH = 80
"""Columns of a terminal that states none: serial lines, and pseudo-terminals whose size nobody set."""
UNLIMITED = 1_000_000
"""Columns of a pipe."""
WIDTH_DIGITS = 5
"""Of a width in $COLUMNS: a longer number is no terminal's."""
BOLD, DIMMED = "1", "2"
STYLES: Mapping[str, str] = {GOOD: "32", DOUBTFUL: "33", BAD: "1;31", OVER: "31", DIM: DIMMED}
"""How a tone looks: codes of ECMA-48, Select Graphic Rendition; NO_COLOR, TERM=dumb and pipes leave it out,
and FORCE_COLOR brings it to the last two."""
WORD = re.compile(r"\s*\S+\s*")
Line = tuple[str, str]
"""A text, and how it looks."""


def render(document: Document, *, wide: str = "") -> str:
    """Return text for people; wrapping only on a terminal, as wide as COLUMNS says, and colours there or with FORCE_COLOR.

    `wide`: not empty where `--wide` was given. NO_COLOR goes before FORCE_COLOR.
    """
    if is_terminal():
        return _render_for_terminal(document, _get_width(), wide=bool(wide))
    forced = os.environ.get("FORCE_COLOR") and not os.environ.get("NO_COLOR")
    return _render_for_terminal(document, UNLIMITED, wide=True) if forced else _render_aligned(document)


def is_terminal() -> bool:
    """Return whether the answer goes to a terminal."""
    return sys.stdout.isatty()


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


def _render_for_terminal(document: Document, width: int, *, wide: bool) -> str:
    """Return every part as it fits a terminal of `width` columns."""
    from costguard.views.table_layout import fit_table

    tables = [(one, fit_table(one, None if wide else width, measure_width)) for one in document.tables if one.rows]
    widest = max((sum(c.width + 2 for c in layout.columns) for _, layout in tables), default=0)
    room = max(width, widest) if wide else width
    lines = [line for text in document.lead for line in _wrap_line(text, _choose_line_style(text, plain=""), room)]
    for table, layout in tables:
        lines += [("", ""), *(_wrap_line(table.title, BOLD, room) if table.title else ()), *_draw_table(table, layout, room)]
    if document.notes and tables:
        lines.append(("", ""))
    lines += [line for note in document.notes for line in _wrap_line(note, _choose_line_style(note), room)]
    lines += [line for text in _describe_hidden([layout for _, layout in tables]) for line in _wrap_line(text, DIMMED, room)]
    is_plain = os.environ.get("TERM", "").lower() in ("dumb", "unknown") and not os.environ.get("FORCE_COLOR")
    styled = not os.environ.get("NO_COLOR") and not is_plain
    texts = ((text.rstrip(), look if styled else "") for text, look in lines)
    return "".join(f"\x1b[{look}m{text}\x1b[0m\n" if look and text else f"{text}\n" for text, look in texts)


def _wrap_line(text: str, look: str, width: int) -> list[Line]:
    """Return `text` in lines of at most `width` cells; a line to paste stays whole: the terminal copies it as it is."""
    line = to_one_line(text)
    return [(one, look) for one in ([line] if isinstance(text, PastedLine) else wrap_text(line, width))]


def _draw_table(table: TableView, layout: TableLayout, width: int) -> Iterator[Line]:
    yield from ((line, BOLD) for line in _draw_row([one.heading for one in layout.columns], layout, width))
    for number, tone in enumerate(table.tones or ("",) * len(table.rows)):
        cells = [one.cells[number] for one in layout.columns]
        yield from ((line, STYLES.get(tone, "")) for line in _draw_row(cells, layout, width))


def _draw_row(cells: Sequence[str], layout: TableLayout, width: int) -> Iterator[str]:
    """Yield the lines of a row: a column that wraps may take several, and what has no room is cut."""
    blocks = [
        [_cut_cell(line, column.width) for line in (fill_lines(WORD.findall(cell), column.width) if column.wraps else [cell])]
        for cell, column in zip(cells, layout.columns, strict=True)
    ]
    for texts in zip_longest(*blocks, fillvalue=""):
        pairs = zip(texts, layout.columns, strict=True)
        spaces = ((" " * (column.width - measure_width(text)), text, column.right) for text, column in pairs)
        parts = [f"{space}{text}" if right else f"{text}{space}" for space, text, right in spaces]
        yield _cut_cell("  ".join(parts).rstrip(), width, ending="")


def _cut_cell(text: str, width: int, ending: str = ELLIPSIS) -> str:
    return text if ADDRESS.search(text) else cut_to_width(text, width, ending=ending)


def _choose_line_style(line: str, *, plain: str = DIMMED) -> str:
    return STYLES[BAD] if line.startswith(("WARNING", "BAD ")) else plain


def _describe_hidden(layouts: Sequence[TableLayout]) -> Iterator[str]:
    """Yield a line that says what `--wide` would add; nothing where all is shown."""
    dropped = list(dict.fromkeys(filter(None, (name for layout in layouts for name in layout.dropped))))
    shortened = [name for name in dict.fromkeys(name for layout in layouts for name in layout.shortened) if name not in dropped]
    parts = [f"adds {', '.join(dropped)}"] if dropped else []
    parts += [f"shows {', '.join(shortened)} in full"] if shortened else []
    if parts:
        yield f"--wide {' and '.join(parts)}."


def _get_width() -> int:
    """Return the number of columns: `$COLUMNS` if set, else the terminal's width, else 80 where it does not say."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isascii() and columns.isdigit() and 0 < len(columns) <= WIDTH_DIGITS and int(columns) > 0:
        return int(columns)
    return os.get_terminal_size(sys.stdout.fileno()).columns or UNSTATED_WIDTH
