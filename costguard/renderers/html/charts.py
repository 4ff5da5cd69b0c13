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

from costguard.renderers.html.kept import Kept, keep
from costguard.renderers.html.markup import Markup, element, joined, named
from costguard.renderers.html.numbers import FINE, UNKNOWN, short, tick_texts, ticks, with_unit, written
from costguard.views.document import BARS, HEAT, STACKED, Chart

LONGEST_NAME, LONGEST_LABEL, LONGEST_ROW, LONGEST_UNIT = 36, 10, 12, 12
"""Characters of a name beside a bar or in a legend, of a label under a column, of a row of a grid, of a unit."""

DENSE = 70
"""Columns from which on there is no gap between them."""

WIDEST = 9.0
"""Percent of the width that one column takes at most."""

PLACES = (790.0, 440.0, 210.0)
"""Pixels across a plot of columns in a wide, a middling and a narrow figure, at least (page.css has their edges)."""

LETTER, GAP = 7.2, 12.0
"""Pixels of a letter under a column, and between two labels."""

DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
"""A label that is a day: of one year's days the year is left out below the columns."""

CAPITAL = 1.2
"""How much wider a name may be than as many digits."""

SHADES, MOST_ACROSS = 6, 24
"""Classes of a cell that is not zero, and how many cells beside each other have room for their numbers."""

PATTERNS = 7
"""Kinds of part there are: the last is the grey `p0`."""


def figure(chart: Chart, number: int, table: Callable[[Chart, Kept, str], Markup]) -> Markup:
    """The whole figure. `table` writes its numbers; `number` tells its ids from those of others."""
    chart = replace(chart, title=named(chart.title or "Chart")[0], unit=named(chart.unit, LONGEST_UNIT)[0])
    kept, ident = keep(chart), f"chart-{number}"
    known = [value for one in kept.series for value in one.values if value is not None]
    empty = not kept.labels or not kept.series
    parts = [element("h2", chart.title, id=ident)]
    if chart.note:
        parts.append(element("p", chart.note, class_="note"))
    if empty:
        parts.append(element("p", "There is nothing to draw.", class_="note"))
    else:
        parts += [*DRAWN[chart.kind](chart, kept)] if known else [element("p", "Nothing is known of it.", class_="note")]
        if kept.left_out:
            parts.append(element("p", kept.left_out, class_="note"))
        if chart.kind != BARS or not known:
            parts.append(table(chart, kept, ident))
    return element("figure", *parts, class_=f"chart chart-{chart.kind}", aria_labelledby=ident)


def _stacked(chart: Chart, kept: Kept) -> Iterator[Markup]:
    """Columns of parts that add up: upwards from zero, and what is negative downwards."""
    columns = [[one.values[at] for one in kept.series] for at in range(len(kept.labels))]
    heights = [sum(v for v in column if v is not None and v > 0) for column in columns]
    depths = [sum(v for v in column if v is not None and v < 0) for column in columns]
    at = ticks(min(depths), max(heights))
    classes = [f"p{(n + 1) % PATTERNS}" for n in range(len(kept.series))]
    yield _legend(kept, classes)
    texts = tick_texts(at, chart.unit)
    slot = 100 / len(columns)
    dense = len(columns) > DENSE
    width = slot if dense else min(slot * 0.8, WIDEST)
    lines = [
        joined(
            (
                element("line", x1="0", x2="100%", y1=_up(v, at), y2=_up(v, at), class_="zero" if v == 0 else "rule"),
                element("text", text, x="-8", y=_up(v, at), dy="0.32em", text_anchor="end"),
            )
        )
        for v, text in zip(at, texts, strict=True)
    ]
    bars = [
        element(
            "g",
            element("title", _column_title(chart, kept, n)),
            element("rect", x=_percent(n * slot), width=_percent(slot), y="0", height="100%", class_="spot"),
            *_column(kept, n, at, classes, x=n * slot + (slot - width) / 2, width=width),
        )
        for n in range(len(columns))
    ]
    labels = _labels(kept.labels, slot)
    drawing = element(
        "svg",
        *lines,
        *bars,
        *labels,
        class_="plot dense" if dense else "plot",
        aria_hidden="true",
        style=f"--gutter:{max(map(len, texts)) + 2}ch",
    )
    yield element("div", drawing, role="img", aria_label=_summary(chart, kept, heights))


def _column(kept: Kept, n: int, at: tuple[float, ...], classes: list[str], *, x: float, width: float) -> Iterator[Markup]:
    above = below = 0.0
    place = {"x": _percent(x), "width": _percent(width)}
    for one, class_ in zip(kept.series, classes, strict=True):
        value = one.values[n]
        if value:
            start = above if value > 0 else below
            top, bottom = max(start, start + value), min(start, start + value)
            yield element("rect", **place, y=_up(top, at), height=_share(top - bottom, at), class_=class_)
            above, below = (top, below) if value > 0 else (above, bottom)
    if kept.unknown[n]:
        yield element("rect", **place, y="0", height=_share(at[-1] - above, at), class_="unknown")


def _labels(labels: tuple[str, ...], slot: float) -> Iterator[Markup]:
    """Texts below the columns; of many labels every second, third, ... as far as there is room at each width."""
    years = {label[:5] for label in labels if DAY.fullmatch(label)}
    same = len(years) == 1 and all(map(DAY.fullmatch, labels))
    texts = [(label[5:], label) if same else named(label, LONGEST_LABEL) for label in labels]
    wide = max(sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text) for text, _ in texts) * LETTER + GAP
    steps, step = list[int](), 1
    for place in PLACES:
        step *= max(1, math.ceil(len(labels) * wide / place / step))
        steps.append(step)
    for n, (text, title) in enumerate(texts):
        if n % steps[0] == 0:
            fits = next((name for name, every in zip(("x3", "x2"), (steps[2], steps[1]), strict=True) if n % every == 0), "x1")
            parts = (text, element("title", title)) if title else (text,)
            yield element("text", *parts, x=_percent((n + 0.5) * slot), y="100%", dy="1.5em", text_anchor="middle", class_=fits)


def _column_title(chart: Chart, kept: Kept, n: int) -> str:
    there = [(one, one.values[n]) for one in kept.series]
    parts = [f"{named(one.name, LONGEST_NAME)[0]} {one.texts[n]}" for one, value in there if value]
    total = sum(value for _, value in there if value is not None)
    unknown = kept.unknown[n]
    if len(kept.series) > 1 and len(unknown) < len(kept.series):
        parts.insert(0, f"together {written(total, chart.unit)}")
    if unknown:
        parts.append(f"{UNKNOWN}: {', '.join(named(one, LONGEST_NAME)[0] for one in unknown[:PATTERNS])}")
    return f"{named(kept.labels[n])[0]}: {'; '.join(parts) or with_unit('0', chart.unit)}"


def _legend(kept: Kept, classes: list[str]) -> Markup:
    """What the patterns mean; nothing where there is one part, of which all is known."""
    pairs = [(one.name, class_) for one, class_ in zip(kept.series, classes, strict=True)]
    if any(kept.unknown):
        pairs.append((UNKNOWN, "unknown"))
    if len(pairs) == 1:
        return Markup()
    items = []
    for name, class_ in pairs:
        swatch = element(
            "svg", element("rect", width="100%", height="100%", class_=class_), class_="swatch", aria_hidden="true"
        )
        text, title = named(name, LONGEST_NAME)
        items.append(element("li", swatch, element("span", text, title=title)))
    return element("ul", *items, class_="legend")


def _heat(chart: Chart, kept: Kept) -> Iterator[Markup]:
    """A grid whose cells say their number; where it is narrow, rows and columns change places (page.css)."""
    known = [value for one in kept.series for value in one.values if value is not None]
    at = ticks(0.0, max(known), SHADES, FINE)
    cells = [element("span"), *(_head(label) for label in kept.labels)]
    for one in kept.series:
        cells.append(_head(one.name))
        for label, value, text in zip(kept.labels, one.values, one.texts, strict=True):
            said = f"{named(one.name)[0]}, {named(label)[0]}: {text}"
            cells.append(element("span", "?" if value is None else short(value), class_=_shade(value, at), title=said))
    size = f"--across:{len(kept.labels)};--down:{len(kept.labels) + 1}"
    class_ = "grid across" if len(kept.labels) <= MOST_ACROSS else "grid"
    grid = element("div", *cells, class_=class_, style=size, tabindex="0", role="img", aria_label=_summary(chart, kept))
    yield element("ul", *_scale(at, chart.unit, unknown=any(kept.unknown)), class_="legend")
    yield grid


def _head(label: str) -> Markup:
    text, title = named(label, LONGEST_ROW)
    return element("span", text, class_="head", title=title)


def _shade(value: float | None, at: tuple[float, ...]) -> str:
    """The class of a cell: `h0` for nothing, up to `h6` for the most, of which there are as many as `at` has parts."""
    if value is None:
        return "unknown"
    if value <= 0:
        return "h0"
    parts = len(at) - 1
    part = next((n for n in range(1, parts) if value <= at[n]), parts)
    return f"h{round(part * SHADES / parts)}"


def _scale(at: tuple[float, ...], unit: str, *, unknown: bool) -> Iterator[Markup]:
    texts = tick_texts(at, unit)
    for value, text in zip(at[1:], texts[1:], strict=True):
        yield element("li", element("span", class_=f"swatch {_shade(value, at)}"), element("span", f"up to {text}"))
    if unknown:
        yield element("li", element("span", class_="swatch unknown"), element("span", f"? {UNKNOWN}"))


def _bars(chart: Chart, kept: Kept) -> Iterator[Markup]:
    """One bar a label, with its name before it and its value behind it: the table of the numbers is the picture."""
    (one,) = kept.series
    there = [value for value in one.values if value is not None]
    low, high = min(0.0, *there), max(0.0, *there)
    long = (high - low) or 1.0
    rows = []
    for label, value, text in zip(kept.labels, one.values, one.texts, strict=True):
        start, end = (low, high) if value is None else (min(0.0, value), max(0.0, value))
        place = {"x": _percent((start - low) / long * 100), "width": _percent((end - start) / long * 100)}
        bar = element("rect", **place, y="0", height="100%", class_="unknown" if value is None else "p1")
        drawn = element("td", element("span", element("svg", bar, aria_hidden="true"), _value(text)))
        name, title = named(label, LONGEST_NAME)
        rows.append(element("tr", element("th", name, scope="row", title=title), drawn))
    head = element("tr", element("td"), element("th", one.name, scope="col"))
    texts = [part for text in one.texts for part in text.split(" (")]
    longest, widest = (min(LONGEST_NAME, max(map(len, lines))) for lines in (texts, kept.labels))
    size = f"--value:{longest}ch;--name:{widest * CAPITAL:.0f}ch"
    caption = element("caption", chart.title)
    yield element("table", caption, element("thead", head), element("tbody", *rows), class_="bars", style=size)


def _value(text: str) -> Markup:
    """An amount, and below it its bounds: `$12.00 (11.00 to 13.00)` in two lines."""
    said, title = named(text, LONGEST_NAME)
    amount, gap, bounds = said.partition(" (")
    return element("b", amount, *([element("small", f"{gap}{bounds}")] if bounds else []), title=title)


def _summary(chart: Chart, kept: Kept, sums: list[float] | None = None) -> str:
    """What somebody who cannot see the picture is told of it."""
    title = chart.title
    cells = sums or [value if value is not None else float("-inf") for one in kept.series for value in one.values]
    texts = [written(value, chart.unit) for value in sums or ()] or [text for one in kept.series for text in one.texts]
    most = max(range(len(cells)), key=cells.__getitem__)
    row, column = divmod(most, len(kept.labels))
    where = named(kept.labels[column])[0]
    if chart.kind == HEAT:
        where = f"{named(kept.series[row].name)[0]}, {where}"
    said = [f"{title}.", f"The most: {texts[most]} at {where}."]
    missing = sum(map(len, kept.unknown))
    if missing:
        said.append(f"{missing} values are not known.")
    return " ".join((*said, "All numbers are in the table below."))


def _up(value: float, at: tuple[float, ...]) -> str:
    """Where `value` stands, from the top."""
    return _share(at[-1] - value, at)


def _share(length: float, at: tuple[float, ...]) -> str:
    return _percent(100 * (length / (at[-1] - at[0])))


def _percent(value: float) -> str:
    return f"{max(value, 0.0):.2f}".rstrip("0").rstrip(".") + "%"


DRAWN: Mapping[str, Callable[[Chart, Kept], Iterator[Markup]]] = {STACKED: _stacked, HEAT: _heat, BARS: _bars}
