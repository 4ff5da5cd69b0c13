"""Charts as figures: a picture that takes whatever width it gets, and its numbers as a table below.

Shapes are in percent of the width and letters in their own size, so that a label is as large on a phone as on a wall.
What is not known is hatched and never drawn as zero; parts differ by pattern as well as by colour.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from costguard.renderers.html.kept import FittedChart, _fit_chart
from costguard.renderers.html.markup import Markup, join_markup, make_element, shorten_with_title
from costguard.renderers.html.numbers import (
    FINE_STEPS,
    UNKNOWN,
    add_unit,
    compute_ticks,
    format_short,
    format_ticks,
    format_value,
)
from costguard.views.document import BARS, HEAT, STACKED, Chart

LONGEST_NAME, LONGEST_LABEL, LONGEST_ROW, LONGEST_UNIT = 36, 10, 12, 12
"""Characters of a name beside a bar or in a legend, of a label under a column, of a row of a grid, of a unit."""

DENSE = 70
"""Columns from which on there is no gap between them."""

WIDEST = 9.0
"""Percent of the width that one column takes at most."""

PLOT_WIDTHS = (790.0, 440.0, 210.0)
"""Pixels across a plot of columns in a wide, a middling and a narrow figure, at least (page.css has their edges)."""

LETTER_WIDTH, GAP = 7.2, 12.0
"""Pixels of a letter under a column, and between two labels."""

DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
"""A label that is a day: of one year's days the year is left out below the columns."""

CAPITAL_WIDTH_FACTOR = 1.2
"""How much wider a name may be than as many digits."""

SHADES, MOST_ACROSS = 6, 24
"""Classes of a cell that is not zero, and how many cells beside each other have room for their numbers."""

PATTERN_COUNT = 7
"""Kinds of part there are: the last is the grey `p0`."""


def draw_chart(chart: Chart, number: int, table: Callable[[Chart, FittedChart, str], Markup]) -> Markup:
    """The whole figure. `table` writes its numbers; `number` tells its ids from those of others."""
    chart = replace(
        chart, title=shorten_with_title(chart.title or "Chart")[0], unit=shorten_with_title(chart.unit, LONGEST_UNIT)[0]
    )
    kept, ident = _fit_chart(chart), f"chart-{number}"
    known = [value for one in kept.series for value in one.values if value is not None]
    empty = not kept.labels or not kept.series
    parts = [make_element("h2", chart.title, id=ident)]
    if chart.note:
        parts.append(make_element("p", chart.note, class_="note"))
    if empty:
        parts.append(make_element("p", "There is nothing to draw.", class_="note"))
    else:
        parts += (
            [*DRAW_BY_KIND[chart.kind](chart, kept)] if known else [make_element("p", "Nothing is known of it.", class_="note")]
        )
        if kept.left_out:
            parts.append(make_element("p", kept.left_out, class_="note"))
        if chart.kind != BARS or not known:
            parts.append(table(chart, kept, ident))
    return make_element("figure", *parts, class_=f"chart chart-{chart.kind}", aria_labelledby=ident)


def _draw_stacked(chart: Chart, kept: FittedChart) -> Iterator[Markup]:
    """Columns of parts that add up: upwards from zero, and what is negative downwards."""
    columns = [[one.values[at] for one in kept.series] for at in range(len(kept.labels))]
    heights = [sum(v for v in column if v is not None and v > 0) for column in columns]
    depths = [sum(v for v in column if v is not None and v < 0) for column in columns]
    at = compute_ticks(min(depths), max(heights))
    classes = [f"p{(n + 1) % PATTERN_COUNT}" for n in range(len(kept.series))]
    yield _draw_legend(kept, classes)
    texts = format_ticks(at, chart.unit)
    slot = 100 / len(columns)
    dense = len(columns) > DENSE
    width = slot if dense else min(slot * 0.8, WIDEST)
    lines = [
        join_markup(
            (
                make_element(
                    "line", x1="0", x2="100%", y1=_get_top(v, at), y2=_get_top(v, at), class_="zero" if v == 0 else "rule"
                ),
                make_element("text", text, x="-8", y=_get_top(v, at), dy="0.32em", text_anchor="end"),
            )
        )
        for v, text in zip(at, texts, strict=True)
    ]
    bars = [
        make_element(
            "g",
            make_element("title", _format_column_title(chart, kept, n)),
            make_element("rect", x=_format_percent(n * slot), width=_format_percent(slot), y="0", height="100%", class_="spot"),
            *_draw_column(kept, n, at, classes, x=n * slot + (slot - width) / 2, width=width),
        )
        for n in range(len(columns))
    ]
    labels = _draw_labels(kept.labels, slot)
    drawing = make_element(
        "svg",
        *lines,
        *bars,
        *labels,
        class_="plot dense" if dense else "plot",
        aria_hidden="true",
        style=f"--gutter:{max(map(len, texts)) + 2}ch",
    )
    yield make_element("div", drawing, role="img", aria_label=_describe_chart(chart, kept, heights))


def _draw_column(
    kept: FittedChart, n: int, at: tuple[float, ...], classes: list[str], *, x: float, width: float
) -> Iterator[Markup]:
    above = below = 0.0
    place = {"x": _format_percent(x), "width": _format_percent(width)}
    for one, class_ in zip(kept.series, classes, strict=True):
        value = one.values[n]
        if value:
            start = above if value > 0 else below
            top, bottom = max(start, start + value), min(start, start + value)
            yield make_element("rect", **place, y=_get_top(top, at), height=_format_length(top - bottom, at), class_=class_)
            above, below = (top, below) if value > 0 else (above, bottom)
    if kept.unknown[n]:
        yield make_element("rect", **place, y="0", height=_format_length(at[-1] - above, at), class_="unknown")


def _draw_labels(labels: tuple[str, ...], slot: float) -> Iterator[Markup]:
    """Texts below the columns; of many labels every second, third, ... as far as there is room at each width."""
    years = {label[:5] for label in labels if DAY.fullmatch(label)}
    same = len(years) == 1 and all(map(DAY.fullmatch, labels))
    texts = [(label[5:], label) if same else shorten_with_title(label, LONGEST_LABEL) for label in labels]
    wide = max(sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text) for text, _ in texts) * LETTER_WIDTH + GAP
    steps, step = list[int](), 1
    for place in PLOT_WIDTHS:
        step *= max(1, math.ceil(len(labels) * wide / place / step))
        steps.append(step)
    for n, (text, title) in enumerate(texts):
        if n % steps[0] == 0:
            fits = next((name for name, every in zip(("x3", "x2"), (steps[2], steps[1]), strict=True) if n % every == 0), "x1")
            parts = (text, make_element("title", title)) if title else (text,)
            yield make_element(
                "text", *parts, x=_format_percent((n + 0.5) * slot), y="100%", dy="1.5em", text_anchor="middle", class_=fits
            )


def _format_column_title(chart: Chart, kept: FittedChart, n: int) -> str:
    there = [(one, one.values[n]) for one in kept.series]
    parts = [f"{shorten_with_title(one.name, LONGEST_NAME)[0]} {one.texts[n]}" for one, value in there if value]
    total = sum(value for _, value in there if value is not None)
    unknown = kept.unknown[n]
    if len(kept.series) > 1 and len(unknown) < len(kept.series):
        parts.insert(0, f"together {format_value(total, chart.unit)}")
    if unknown:
        parts.append(f"{UNKNOWN}: {', '.join(shorten_with_title(one, LONGEST_NAME)[0] for one in unknown[:PATTERN_COUNT])}")
    return f"{shorten_with_title(kept.labels[n])[0]}: {'; '.join(parts) or add_unit('0', chart.unit)}"


def _draw_legend(kept: FittedChart, classes: list[str]) -> Markup:
    """What the patterns mean; nothing where there is one part, of which all is known."""
    pairs = [(one.name, class_) for one, class_ in zip(kept.series, classes, strict=True)]
    if any(kept.unknown):
        pairs.append((UNKNOWN, "unknown"))
    if len(pairs) == 1:
        return Markup()
    items = []
    for name, class_ in pairs:
        swatch = make_element(
            "svg", make_element("rect", width="100%", height="100%", class_=class_), class_="swatch", aria_hidden="true"
        )
        text, title = shorten_with_title(name, LONGEST_NAME)
        items.append(make_element("li", swatch, make_element("span", text, title=title)))
    return make_element("ul", *items, class_="legend")


def _draw_heat(chart: Chart, kept: FittedChart) -> Iterator[Markup]:
    """A grid whose cells say their number; where it is narrow, rows and columns change places (page.css)."""
    known = [value for one in kept.series for value in one.values if value is not None]
    at = compute_ticks(0.0, max(known), SHADES, FINE_STEPS)
    cells = [make_element("span"), *(_draw_head(label) for label in kept.labels)]
    for one in kept.series:
        cells.append(_draw_head(one.name))
        for label, value, text in zip(kept.labels, one.values, one.texts, strict=True):
            said = f"{shorten_with_title(one.name)[0]}, {shorten_with_title(label)[0]}: {text}"
            cells.append(
                make_element("span", "?" if value is None else format_short(value), class_=_choose_shade(value, at), title=said)
            )
    size = f"--across:{len(kept.labels)};--down:{len(kept.labels) + 1}"
    class_ = "grid across" if len(kept.labels) <= MOST_ACROSS else "grid"
    grid = make_element(
        "div", *cells, class_=class_, style=size, tabindex="0", role="img", aria_label=_describe_chart(chart, kept)
    )
    yield make_element("ul", *_draw_scale(at, chart.unit, unknown=any(kept.unknown)), class_="legend")
    yield grid


def _draw_head(label: str) -> Markup:
    text, title = shorten_with_title(label, LONGEST_ROW)
    return make_element("span", text, class_="head", title=title)


def _choose_shade(value: float | None, at: tuple[float, ...]) -> str:
    """The class of a cell: `h0` for nothing, up to `h6` for the most, of which there are as many as `at` has parts."""
    if value is None:
        return "unknown"
    if value <= 0:
        return "h0"
    parts = len(at) - 1
    part = next((n for n in range(1, parts) if value <= at[n]), parts)
    return f"h{round(part * SHADES / parts)}"


def _draw_scale(at: tuple[float, ...], unit: str, *, unknown: bool) -> Iterator[Markup]:
    texts = format_ticks(at, unit)
    for value, text in zip(at[1:], texts[1:], strict=True):
        yield make_element(
            "li", make_element("span", class_=f"swatch {_choose_shade(value, at)}"), make_element("span", f"up to {text}")
        )
    if unknown:
        yield make_element("li", make_element("span", class_="swatch unknown"), make_element("span", f"? {UNKNOWN}"))


def _draw_bars(chart: Chart, kept: FittedChart) -> Iterator[Markup]:
    """One bar a label, with its name before it and its value behind it: the table of the numbers is the picture."""
    (one,) = kept.series
    there = [value for value in one.values if value is not None]
    low, high = min(0.0, *there), max(0.0, *there)
    long = (high - low) or 1.0
    rows = []
    for label, value, text in zip(kept.labels, one.values, one.texts, strict=True):
        start, end = (low, high) if value is None else (min(0.0, value), max(0.0, value))
        place = {"x": _format_percent((start - low) / long * 100), "width": _format_percent((end - start) / long * 100)}
        bar = make_element("rect", **place, y="0", height="100%", class_="unknown" if value is None else "p1")
        drawn = make_element("td", make_element("span", make_element("svg", bar, aria_hidden="true"), _draw_value(text)))
        name, title = shorten_with_title(label, LONGEST_NAME)
        rows.append(make_element("tr", make_element("th", name, scope="row", title=title), drawn))
    head = make_element("tr", make_element("td"), make_element("th", one.name, scope="col"))
    texts = [part for text in one.texts for part in text.split(" (")]
    longest, widest = (min(LONGEST_NAME, max(map(len, lines))) for lines in (texts, kept.labels))
    size = f"--value:{longest}ch;--name:{widest * CAPITAL_WIDTH_FACTOR:.0f}ch"
    caption = make_element("caption", chart.title)
    yield make_element("table", caption, make_element("thead", head), make_element("tbody", *rows), class_="bars", style=size)


def _draw_value(text: str) -> Markup:
    """An amount, and below it its bounds: `$12.00 (11.00 to 13.00)` in two lines."""
    said, title = shorten_with_title(text, LONGEST_NAME)
    amount, gap, bounds = said.partition(" (")
    return make_element("b", amount, *([make_element("small", f"{gap}{bounds}")] if bounds else []), title=title)


def _describe_chart(chart: Chart, kept: FittedChart, sums: list[float] | None = None) -> str:
    """What somebody who cannot see the picture is told of it."""
    title = chart.title
    cells = sums or [value if value is not None else float("-inf") for one in kept.series for value in one.values]
    texts = [format_value(value, chart.unit) for value in sums or ()] or [text for one in kept.series for text in one.texts]
    most = max(range(len(cells)), key=cells.__getitem__)
    row, column = divmod(most, len(kept.labels))
    where = shorten_with_title(kept.labels[column])[0]
    if chart.kind == HEAT:
        where = f"{shorten_with_title(kept.series[row].name)[0]}, {where}"
    said = [f"{title}.", f"The most: {texts[most]} at {where}."]
    missing = sum(map(len, kept.unknown))
    if missing:
        said.append(f"{missing} values are not known.")
    return " ".join((*said, "All numbers are in the table below."))


def _get_top(value: float, at: tuple[float, ...]) -> str:
    """Where `value` stands, from the top."""
    return _format_length(at[-1] - value, at)


def _format_length(length: float, at: tuple[float, ...]) -> str:
    return _format_percent(100 * (length / (at[-1] - at[0])))


def _format_percent(value: float) -> str:
    return f"{max(value, 0.0):.2f}".rstrip("0").rstrip(".") + "%"


DRAW_BY_KIND: Mapping[str, Callable[[Chart, FittedChart], Iterator[Markup]]] = {
    STACKED: _draw_stacked,
    HEAT: _draw_heat,
    BARS: _draw_bars,
}
