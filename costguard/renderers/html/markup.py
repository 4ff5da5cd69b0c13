"""Builds HTML that no content can break: text becomes markup only through `make_element`, which escapes it.

    make_element("td", "<b>x</b>", class_="r")  ->  <td class="r">&lt;b&gt;x&lt;/b&gt;</td>

Patterns distinguish the parts of a chart without colour, and mark unknown values. The first part is plain; lines, dots and
squares over the others have the colour of the page (page.css).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from html import escape

from costguard.errors import shorten, to_one_line

LONGEST = 160
"""Characters of one name that are shown; what is longer has more of it in its title."""

LONGEST_TEXT = 600
"""Characters of any text and of any attribute."""

MARKS_MAX = 4
"""Marks on one letter that are kept: no language needs more, and thousands are drawn over the lines above."""

BLOCK_TAGS = frozenset("div dl figure g h1 h2 header li main p section table tbody thead tr ul".split())  # noqa: SIM905 - as one reads them
"""Elements after which a new line of the file begins: it is text that somebody may want to read, or compare."""

EMPTY_TAGS = frozenset(("circle", "line", "path", "rect"))
"""Elements of SVG that hold nothing when they have no title."""


class Markup(str):
    """Complete HTML; only this module creates it."""

    __slots__ = ()


def make_element(tag: str, *parts: str, **attributes: str | float | None) -> Markup:
    """Return one element.

    A part that is not Markup is text. An attribute of None is left out; `class_` becomes `class`, and `_` becomes `-`.
    """
    attribute_text = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{_escape_text(str(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    end = "\n" if tag in BLOCK_TAGS else ""
    if not parts and tag in EMPTY_TAGS:
        return Markup(f"<{tag}{attribute_text}/>{end}")
    return Markup(f"<{tag}{attribute_text}>{join_markup(parts)}</{tag}>{end}")


def join_markup(parts: Iterable[str], between: str = "") -> Markup:
    """Return the parts joined, with texts escaped."""
    return Markup(between.join(part if isinstance(part, Markup) else _escape_text(part) for part in parts))


def build_page(style: str, title: str, *parts: Markup) -> str:
    """Return a whole page in ASCII, so that it is correct in whatever encoding a mail program or a terminal uses."""
    body = join_markup(parts, "\n")
    text = PAGE.format(style=style, title=_escape_text(shorten_with_title(title)[0]), body=body)
    return text.encode("ascii", "xmlcharrefreplace").decode("ascii")


def shorten_with_title(text: str, longest: int = LONGEST) -> tuple[str, str | None]:
    """Return `text` cut to `longest` characters, and a title with more of it; None as title if nothing was cut."""
    plain = _limit_text(text)
    return (plain, None) if len(plain) <= longest else (shorten(plain, longest), plain)


def _limit_text(text: str) -> str:
    """Return `text` cut to LONGEST_TEXT, with at most `MARKS_MAX` combining marks per letter."""
    text = shorten(text, LONGEST_TEXT)
    if text.isascii():
        return text
    letters, marks = list[str](), 0
    for letter in text:
        marks = marks + 1 if unicodedata.category(letter) in ("Mn", "Me") else 0
        if marks <= MARKS_MAX:
            letters.append(letter)
    return "".join(letters)


def _escape_text(text: str) -> str:
    return escape(to_one_line(_limit_text(text)))


PAGE = """<!DOCTYPE html>
<html lang="en" dir="ltr">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<meta name="format-detection" content="telephone=no, date=no, address=no, email=no">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
{body}
</body>
</html>
"""


PATTERN_SIZE = 8
PATTERN_PATHS = {
    "p2": "M-2 2l4-4M0 8l8-8M6 10l4-4",
    "p3": "M2 2h2v2h-2zM6 6h2v2h-2z",
    "p4": "M0 2h8M0 6h8",
    "p5": "M-2 6l4 4M0 0l8 8M6-2l4 4",
    "p6": "M2 0v8M6 0v8",
    "p0": "M0 0l8 8M0 8l8-8",
    "unknown": "M-2 2l4-4M0 8l8-8M6 10l4-4",
}
"""Name of a part -> what is drawn over its colour, in a square of 8 by 8 pixels."""


def _build_pattern(name: str, path: str) -> Markup:
    ground = make_element("rect", width=PATTERN_SIZE, height=PATTERN_SIZE, class_=f"{name}-ground")
    over = make_element("path", d=path, class_=f"{name}-over")
    return make_element(
        "pattern", ground, over, id=name, width=PATTERN_SIZE, height=PATTERN_SIZE, patternUnits="userSpaceOnUse"
    )


PATTERN_DEFINITIONS = make_element(
    "svg", *(_build_pattern(name, path) for name, path in PATTERN_PATHS.items()), class_="patterns", aria_hidden="true"
)
"""What page.css fills rectangles with. It takes no room on the page."""
