"""Cells of a terminal: how many a text takes, by rich's tables of Unicode, and the text cut and wrapped to a number of them.

A wide letter (CJK, most emoji) takes two cells, a combining one none. rich is imported only for a text that is not ASCII.

Example, 40 cells wide: what is there to be pasted is never broken.

    WARNING: the settings are new. Read it, then run:
    costguard plan --accept 3f9a1c0d2b4e5f60
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

ELLIPSIS = "…"
QUOTED = r"""(?:"[^"]*"|'[^']*')"""
PASTED = re.compile(
    rf"""(?:[A-Z_]+=\S+ )?(?:costguard(?:-agent)?|pip install) (?:(?:{QUOTED}|(?!["'])\S*[^\s;,.:)]) )*(?:{QUOTED}|\S+)|\S*://\S+"""
)
"""An address, or a command as far as its clause goes."""
UNIT = re.compile(rf"\s*(?:{PASTED.pattern}|\S+)\s*")


def measure_width(text: str) -> int:
    """Return how many cells of a terminal `text` takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def cut_to_width(text: str, width: int, *, ending: str = ELLIPSIS) -> str:
    """Return `text` in at most `width` cells; what is left out is shown by `ending`."""
    if measure_width(text) <= width:
        return text
    room = width - len(ending)
    return (_chop_text(text, room)[0] if room > 0 else "") + ending[:width]


def wrap_text(text: str, width: int) -> list[str]:
    """Return `text` in lines of at most `width` cells; a longer word is broken, what is there to be pasted is not."""
    lines = fill_lines(UNIT.findall(text), width)
    return [piece for line in lines for piece in ([line] if PASTED.search(line) else _chop_text(line, width))]


def fill_lines(units: Iterable[str], width: int) -> Iterator[str]:
    """Yield lines of as many units (words with the spaces around them) as have room; a longer unit has a line of its own."""
    line = ""
    for unit in units:
        if line.strip() and measure_width(line) + measure_width(unit.rstrip()) > width:
            yield line.rstrip()
            line = unit.lstrip()
        else:
            line += unit
    yield line.rstrip()


def _chop_text(text: str, width: int) -> list[str]:
    if measure_width(text) <= width:
        return [text]
    if text.isascii():
        return [text[start : start + width] for start in range(0, len(text), width)]
    from rich.cells import chop_cells

    return chop_cells(text, width)
