"""Text on a terminal: coloured, and in columns. How wide it is: `values/cell_width.py`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from costguard.values.cell_width import cut_to_width, measure_width, wrap_text

GAP = 2
LOOKS = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "magenta": 35, "cyan": 36}
"""Words of a look, such as "bold red", and their codes (ECMA-48, Select Graphic Rendition)."""
FIRST_COLOUR = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table: `width` cells; `wraps`: what is longer takes several lines, else it ends in an ellipsis."""

    width: int
    right: bool = False
    wraps: bool = False


@dataclass(frozen=True, slots=True)
class Styled:
    """A text and its look: words of `LOOKS`, empty: as it is."""

    text: str
    look: str = ""


def format_styled(text: str, look: str, *, colours: bool = True) -> str:
    """Return `text` in its look; without `colours` bold and dim are left."""
    codes = [LOOKS[word] for word in look.split()]
    shown = ";".join(str(code) for code in codes if colours or code < FIRST_COLOUR)
    return f"\x1b[{shown}m{text}\x1b[0m" if shown and text else text


def has_styles() -> bool:
    """Return whether the terminal draws colours and bold: all do but those that say so (TERM=dumb)."""
    return os.environ.get("TERM", "").lower() not in ("dumb", "unknown")


def format_row(cells: Sequence[Styled], columns: Sequence[Column], *, gap: int = GAP) -> Iterator[list[Styled]]:
    """Yield the lines of a row, each a list of texts to be written one after the other, `gap` spaces apart."""
    blocks = [
        wrap_text(cell.text, column.width, fold=False) if column.wraps else [cut_to_width(cell.text, column.width)]
        for cell, column in zip(cells, columns, strict=True)
    ]
    for number in range(max(map(len, blocks), default=0)):
        line = list[Styled]()
        for place, (block, cell, column) in enumerate(zip(blocks, cells, columns, strict=True)):
            text = block[number] if number < len(block) else ""
            space = " " * (column.width - measure_width(text))
            after = " " * gap if place < len(columns) - 1 else ""
            line.append(Styled(f"{space}{text}{after}" if column.right else f"{text}{space}{after}", cell.look))
        yield line


def cut_line(line: Sequence[Styled], width: int) -> list[Styled]:
    """Return the part of a line that has room in `width` cells."""
    kept, left = list[Styled](), width
    for one in line:
        text = cut_to_width(one.text, left, ending="")
        kept.append(Styled(text, one.look))
        left -= measure_width(text)
    return kept
