"""`--format html`: one self-contained file that can be forwarded; it loads nothing, runs no script, and prints well."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib.resources import files

from costguard.renderers.html.charts import FittedChart, build_size_rules, draw_chart
from costguard.renderers.html.markup import PATTERN_DEFINITIONS, Markup, build_page, make_element, shorten_with_title
from costguard.views.document import Chart, Document, HeadlineFigure, TableView

MOST_ROWS = 400
"""Rows of one table that are written out: about eight pages of paper."""

NOTEBOOK_STYLE = "div.costguard :is(td, th) { text-align: left } div.costguard .r { text-align: right }"

DAY = re.compile(r"(\d{4}-\d\d-\d\d)", re.ASCII)
NEEDS = "charts"
FOOTER = "Written by costguard. This page is self-contained: it loads nothing and runs no script."


def render(document: Document) -> str:
    """Return a whole page in ASCII, about 40 kB for a team's month."""
    first, *others = document.lead or ("costguard",)
    header = make_element(
        "header",
        make_element("p", "costguard", class_="mark"),
        make_element("h1", *_split_at_days(first)),
        *(make_element("p", line, class_="lead") for line in others),
    )
    figures = [_render_figure(one) for one in document.figures]
    charts = draw_charts(document)
    style = f"{_read_style('page.css')}\n{_read_style('charts.css')}{build_size_rules(charts)}"
    tables = [_render_section(table, number) for number, table in enumerate((t for t in document.tables if t.rows), 1)]
    main = make_element(
        "main",
        *([make_element("dl", *figures, class_="figures")] if figures else []),
        *([charts] if charts else []),
        *tables,
        *([_render_notes(document.notes)] if document.notes else []),
    )
    return build_page(style, first, PATTERN_DEFINITIONS, header, main, make_element("footer", FOOTER))


def render_fragment(document: Document, rows: int = MOST_ROWS) -> str:
    """Return the lead, the tables' first `rows` and the notes, closed, as one element for a notebook's cell.

    Its style is what notebooks get wrong: they align all cells to the right, also text.
    """
    tables = [replace(one, rows=one.rows[:rows], tones=one.tones[:rows], sums=0) for one in document.tables if one.rows]
    cut = sum(len(one.rows) > rows for one in document.tables)
    return make_element(
        "div",
        make_element("style", NOTEBOOK_STYLE),
        *(make_element("p", make_element("strong", line)) for line in document.lead),
        *(_render_table(table) for table in tables),
        *([make_element("p", f"the first {rows} rows; .data has all")] if cut else []),
        *([_fold_notes(document.notes)] if document.notes else []),
        class_="costguard",
    )


def draw_charts(document: Document) -> Markup:
    """Return the charts of `document` in one element, for a page with PATTERN_DEFINITIONS and `read_chart_style`."""
    charts = [draw_chart(chart, number, _render_chart_numbers) for number, chart in enumerate(document.charts, 1)]
    return make_element("div", *charts, class_="charts") if charts else Markup()


def read_chart_style() -> str:
    """Return the style of charts for a page of its own style, with every size."""
    return f"{_read_style('charts.css')}{build_size_rules()}"


def _read_style(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="ascii")


def _split_at_days(line: str) -> tuple[str, ...]:
    """Return `line` in pieces, with dates in elements that are not broken at their hyphens."""
    return tuple(make_element("time", piece) if DAY.fullmatch(piece) else piece for piece in DAY.split(line))


def _render_figure(one: HeadlineFigure) -> Markup:
    note = [make_element("dd", one.note)] if one.note else []
    return make_element("div", make_element("dt", one.name), make_element("dd", *shorten_with_title(one.text)[:1]), *note)


def _render_section(table: TableView, number: int) -> Markup:
    ident, titled = f"table-{number}", replace(table, title=table.title or "In numbers")
    head = make_element("h2", shorten_with_title(titled.title)[0], id=ident)
    return make_element("section", head, _wrap_scrolling(_render_table(titled), ident), aria_labelledby=ident)


def _render_chart_numbers(chart: Chart, fitted_chart: FittedChart, ident: str) -> Markup:
    """Return the table under a chart: one row per label, one column per series; collapsed on a screen, open on paper."""
    rows = tuple((label, *(one.texts[n] for one in fitted_chart.series)) for n, label in enumerate(fitted_chart.labels))
    table = TableView(title=chart.title, columns=("", *(f"{one.name}>" for one in fitted_chart.series)), rows=rows)
    return make_element("details", make_element("summary", "The numbers"), _wrap_scrolling(_render_table(table), ident))


def _wrap_scrolling(table: Markup, ident: str) -> Markup:
    """Return the table in a frame that scrolls, also by keyboard, if the table is wider than the page."""
    return make_element("div", table, class_="scroll", role="region", aria_labelledby=ident, tabindex="0")


def _render_table(table: TableView) -> Markup:
    """Return the first rows, a line with the number of further rows, and the sums."""
    right = tuple(column.endswith(">") for column in table.columns)
    heads = (
        _render_cell("th" if name else "td", name, right=r, scope="col" if name else None)
        for name, r in zip((column.removesuffix(">") for column in table.columns), right, strict=True)
    )
    end = len(table.rows) - table.sums
    rows = [_render_row(row, right) for row in table.rows[: min(end, MOST_ROWS)]]
    if end > MOST_ROWS:
        note = f"and {end - MOST_ROWS:,} more rows: the JSON or CSV output has all"
        rows.append(make_element("tr", make_element("td", note, colspan=len(right), class_="more")))
    parts = [
        make_element("caption", shorten_with_title(table.title)[0]),
        make_element("thead", make_element("tr", *heads)),
        make_element("tbody", *rows),
    ]
    if table.sums:
        parts.append(make_element("tbody", *(_render_row(row, right) for row in table.rows[end:]), class_="sums"))
    return make_element("table", *parts)


def _render_row(row: tuple[str, ...], right: tuple[bool, ...]) -> Markup:
    first, *cells = zip(row, right, strict=True)
    return make_element(
        "tr",
        _render_cell("th", first[0], right=first[1], scope="row"),
        *(_render_cell("td", text, right=r) for text, r in cells),
    )


def _render_cell(tag: str, text: str, *, right: bool, scope: str | None = None) -> Markup:
    short_text, title = shorten_with_title(text)
    return make_element(tag, short_text, class_="r" if right else None, scope=scope, title=title)


def _fold_notes(notes: tuple[str, ...]) -> Markup:
    title = f"{len(notes)} note{'s' * (len(notes) > 1)}"
    return make_element(
        "details", make_element("summary", title), make_element("ul", *(make_element("li", one) for one in notes))
    )


def _render_notes(notes: tuple[str, ...]) -> Markup:
    lines = (make_element("li", note) for note in notes)
    return make_element(
        "section", make_element("h2", "Notes", id="notes"), make_element("ul", *lines), class_="notes", aria_labelledby="notes"
    )
