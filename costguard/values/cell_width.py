"""How many cells of a terminal a text takes, and the text cut and wrapped to a number of them.

A wide letter (CJK, most emoji) takes two cells, a combining one none: by Unicode's own tables, as Python has them. `wcwidth`,
which knows more about sequences that fonts join, takes 6 MiB of an install.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

ELLIPSIS = "…"
JOINER, EMOJI_FORM = "\u200d", "\ufe0f"
SKIN_TONES, FLAG_LETTERS = range(0x1F3FB, 0x1F400), range(0x1F1E6, 0x1F200)
EMOJI = range(0x1F300, 0x1FB00)
"""Where Unicode puts new pictures: those that Python's tables do not know yet are wide."""
ADDRESS = "://"
WORD = re.compile(r"\s*\S+\s*")


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

    `fold`: a word that is longer than a line is broken, else it is cut. An address stays whole: it is there to be pasted.
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
        while fold and ADDRESS not in line and measure_width(line.rstrip()) > width > 1:
            piece, line = _take_cells(line, width)
            lines.append(piece)
    return [one.rstrip() if ADDRESS in one else cut_to_width(one.rstrip(), width) for one in (*lines, line)]


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
