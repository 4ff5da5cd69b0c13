"""Text on a terminal: its width in cells, cut, wrapped, coloured, and in columns.

A wide letter (CJK, most emoji) takes two cells, a combining one none: by Unicode's own tables, as Python has them. `wcwidth`,
which knows more about sequences that fonts join, takes 6 MiB of an install (decision 0081).
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

ELLIPSIS, GAP = "…", 2
LOOKS = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "magenta": 35, "cyan": 36}
"""Words of a look, such as "bold red", and their codes (ECMA-48, Select Graphic Rendition)."""
FIRST_COLOUR = 30
JOINER, EMOJI_FORM = "\u200d", "\ufe0f"
SKIN_TONES, FLAG_LETTERS = range(0x1F3FB, 0x1F400), range(0x1F1E6, 0x1F200)
EMOJI = range(0x1F300, 0x1FB00)
"""Where Unicode puts new pictures: those that Python's tables do not know yet are wide."""
WORD = re.compile(r"\s*\S+\s*")


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


def measure_width(text: str) -> int:
    """Return how many cells of a terminal `text` takes."""
    if text.isascii():
        return len(text)
    return sum(width for _, width in _split_graphemes(text))


def cut_to_width(text: str, width: int, *, ending: str = ELLIPSIS) -> str:
    """Return `text` in at most `width` cells; what is left out is shown by `ending`."""
    if measure_width(text) <= width:
        return text
    room = max(0, width - len(ending))
    return _take_cells(text, room)[0] + ending[:width]


def wrap_text(text: str, width: int, *, fold: bool) -> list[str]:
    """Return `text` in lines of at most `width` cells, broken between words.

    `fold`: a word that is longer than a line is broken, else it is cut.
    """
    lines, line = list[str](), ""
    for word in WORD.findall(text):
        length = measure_width(word.rstrip())
        if measure_width(line) + length <= width:
            line += word
            continue
        if line:
            lines.append(line)
        line = word
        while fold and measure_width(line.rstrip()) > width > 1:
            piece, line = _take_cells(line, width)
            lines.append(piece)
    return [cut_to_width(one.rstrip(), width) for one in (*lines, line)]


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


def _take_cells(text: str, width: int) -> tuple[str, str]:
    """Return the beginning of `text` that takes at most `width` cells, and the rest."""
    taken, used = "", 0
    for piece, cells in _split_graphemes(text):
        if used + cells > width:
            break
        taken, used = taken + piece, used + cells
    return taken, text[len(taken) :]


def _split_graphemes(text: str) -> Iterator[tuple[str, int]]:
    """Yield what is drawn as one, with its cells: a letter with its marks, an emoji with what is joined to it, a flag."""
    piece, width, joins = "", 0, False
    for letter in text:
        code, cells = ord(letter), _measure_letter(letter)
        flag = len(piece) == 1 and ord(piece) in FLAG_LETTERS and code in FLAG_LETTERS
        if piece and (joins or flag or cells == 0 or (code in SKIN_TONES and width)):
            piece += letter
            if flag or letter == EMOJI_FORM:
                width = 2 if width else 0
        else:
            if piece:
                yield piece, width
            piece, width = letter, cells
        joins = letter == JOINER
    if piece:
        yield piece, width


@lru_cache(maxsize=4096)
def _measure_letter(letter: str) -> int:
    code, kind = ord(letter), unicodedata.category(letter)
    if kind in ("Mn", "Me", "Cc", "Cf"):
        return 0
    if code in FLAG_LETTERS:
        return 1
    return 2 if unicodedata.east_asian_width(letter) in "WF" or (kind == "Cn" and code in EMOJI) else 1
