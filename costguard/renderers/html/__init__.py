"""`--format html`: one file that can be forwarded: it loads nothing, runs nothing, and reads well on a screen and on paper."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib.resources import files

from costguard.renderers.html.charts import figure
from costguard.renderers.html.kept import Kept
from costguard.renderers.html.markup import Markup, element, named, page
from costguard.renderers.html.patterns import PATTERNS
from costguard.views.document import Chart, Document, Figure, TableView

MOST_ROWS = 400
"""Rows of one table that are written out: about eight pages of paper."""

DAY = re.compile(r"(\d{4}-\d\d-\d\d)", re.ASCII)
NEEDS = "charts"
FOOTER = "Written by costguard. This page is whole: it loads nothing from elsewhere and runs no script."


def render(document: Document) -> str:
    """A whole page in ASCII, about 40 kB for a team's month."""
    style = (files(__package__) / "page.css").read_text(encoding="ascii")
    first, *further = document.lead or ("costguard",)
    header = element(
        "header",
        element("p", "costguard", class_="mark"),
        element("h1", *_days(first)),
        *(element("p", line, class_="lead") for line in further),
    )
    figures = [_figure(one) for one in document.figures]
    charts = [figure(chart, number, _numbers) for number, chart in enumerate(document.charts, 1)]
    tables = [_section(table, number) for number, table in enumerate((t for t in document.tables if t.rows), 1)]
    main = element(
        "main",
        *([element("dl", *figures, class_="figures")] if figures else []),
        *([element("div", *charts, class_="charts")] if charts else []),
        *tables,
        *([_notes(document.notes)] if document.notes else []),
    )
    return page(style, first, PATTERNS, header, main, element("footer", FOOTER))


def _days(line: str) -> tuple[str, ...]:
    """`line` in pieces, so that no day of a calendar is broken at its hyphens."""
    return tuple(element("time", piece) if DAY.fullmatch(piece) else piece for piece in DAY.split(line))


def _figure(one: Figure) -> Markup:
    note = [element("dd", one.note)] if one.note else []
    return element("div", element("dt", one.name), element("dd", *named(one.text)[:1]), *note)


def _section(table: TableView, number: int) -> Markup:
    ident, titled = f"table-{number}", replace(table, title=table.title or "In numbers")
    head = element("h2", named(titled.title)[0], id=ident)
    return element("section", head, _scrolled(_table(titled), ident), aria_labelledby=ident)


def _numbers(chart: Chart, kept: Kept, ident: str) -> Markup:
    """The table under a chart: a row a label, a column a series. Closed on a screen, open on paper."""
    rows = tuple((label, *(one.texts[n] for one in kept.series)) for n, label in enumerate(kept.labels))
    table = TableView(title=chart.title, columns=("", *(f"{one.name}>" for one in kept.series)), rows=rows)
    return element("details", element("summary", "The numbers"), _scrolled(_table(table), ident))


def _scrolled(table: Markup, ident: str) -> Markup:
    """A table wider than the page is moved within its own frame, with the keyboard too."""
    return element("div", table, class_="scroll", role="region", aria_labelledby=ident, tabindex="0")


def _table(table: TableView) -> Markup:
    """The first rows, a line that says how many more there are, and the sums."""
    right = tuple(column.endswith(">") for column in table.columns)
    heads = (
        _cell("th" if name else "td", name, right=r, scope="col" if name else None)
        for name, r in zip((column.removesuffix(">") for column in table.columns), right, strict=True)
    )
    end = len(table.rows) - table.sums
    rows = [_row(row, right) for row in table.rows[: min(end, MOST_ROWS)]]
    if end > MOST_ROWS:
        said = f"and {end - MOST_ROWS:,} more rows: the same answer as JSON or CSV holds them all"
        rows.append(element("tr", element("td", said, colspan=len(right), class_="more")))
    parts = [element("caption", named(table.title)[0]), element("thead", element("tr", *heads)), element("tbody", *rows)]
    if table.sums:
        parts.append(element("tbody", *(_row(row, right) for row in table.rows[end:]), class_="sums"))
    return element("table", *parts)


def _row(row: tuple[str, ...], right: tuple[bool, ...]) -> Markup:
    first, *cells = zip(row, right, strict=True)
    return element("tr", _cell("th", first[0], right=first[1], scope="row"), *(_cell("td", text, right=r) for text, r in cells))


def _cell(tag: str, text: str, *, right: bool, scope: str | None = None) -> Markup:
    said, title = named(text)
    return element(tag, said, class_="r" if right else None, scope=scope, title=title)


def _notes(notes: tuple[str, ...]) -> Markup:
    lines = (element("li", note) for note in notes)
    return element(
        "section", element("h2", "Notes", id="notes"), element("ul", *lines), class_="notes", aria_labelledby="notes"
    )
