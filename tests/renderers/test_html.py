"""`--format html`: one whole page of text that nobody's name can turn into anything else."""

from __future__ import annotations

import re
from collections import Counter
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costguard.renderers.html import MOST_ROWS, render
from costguard.views.document import BARS, HEAT, STACKED, ChartSeries, Document, TableView
from tests.notifiers.hostile import CORPUS
from tests.renderers.pages import ANYTHING, MONTH, chart, hostile, series

TAGS = frozenset(
    "html head meta title style body header main footer section figure details summary p h1 h2 ul li div dl dt dd "  # noqa: SIM905
    "span b small time table caption thead tbody tr th td svg pattern path rect line text g".split()
)
ATTRIBUTES = frozenset(
    "lang dir charset http-equiv content name class id style title role scope colspan tabindex x y x1 x2 y1 y2 dy d "  # noqa: SIM905
    "width height text-anchor patternunits aria-label aria-labelledby aria-hidden".split()
)
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


class Read(HTMLParser):
    """The elements of a page, its texts, and what stands in its attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags = Counter[str]()
        self.attributes = dict[str, set[str]]()
        self.texts = list[str]()
        self._open = list[str]()
        self.feed(text)
        assert self._open == [], "every element is closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._begin(tag, attrs)
        if tag != "meta":
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._begin(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open[-1:] != ["style"]:
            self.texts.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)

    def _begin(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        for name, value in attrs:
            self.attributes.setdefault(name, set()).add(value or "")


def shape(tags: Counter[str]) -> dict[str, int]:
    """How many of each element there are; a long name has a title besides, a column without a name no head, no note no line."""
    return {tag: n for tag, n in tags.items() if tag not in {"title", "td", "th", "p"}} | {"cells": tags["td"] + tags["th"]}


@pytest.fixture(scope="module")
def plain() -> Counter[str]:
    """The elements of a page whose every name is plain."""
    return Read(render(hostile("x"))).tags


@pytest.mark.parametrize("number", range(4))
def test_no_name_adds_an_element_an_attribute_or_a_control_character(plain: Counter[str], number: int) -> None:
    for name in CORPUS[number::4]:
        text = render(hostile(name))
        read = Read(text)
        assert text.isascii()
        assert shape(read.tags) == shape(plain)
        assert set(read.tags) <= TAGS
        assert set(read.attributes) <= ATTRIBUTES
        shown = "".join(read.texts) + "".join(v for values in read.attributes.values() for v in values)
        assert all(letter == "\n" or letter.isprintable() for letter in shown), ascii(name[:80])
        assert len(text) < 300_000, "a long name is cut"


@given(st.text(max_size=30))
def test_any_text_is_text(name: str) -> None:
    read = Read(render(hostile(name)))
    assert set(read.tags) <= TAGS
    assert set(read.attributes) <= ATTRIBUTES


def test_the_page_may_load_and_run_nothing() -> None:
    text = render(MONTH)
    read = Read(text)
    assert POLICY in read.attributes["content"]
    assert text.index("Content-Security-Policy") < text.index("<style>")
    assert not set(read.tags) & {"script", "a", "img", "link", "iframe", "object", "form", "base"}
    assert not re.search(r"@import|https?:|//[a-z]", text)
    assert {found for found in re.findall(r"url\(([^)]*)\)", text) if not found.startswith("#")} == set()


def test_every_table_has_a_caption_and_heads_of_columns_and_rows() -> None:
    read, text = Read(render(MONTH)), render(MONTH)
    assert read.tags["table"] == read.tags["caption"] == len(MONTH.charts) + len(MONTH.tables)
    assert read.attributes["scope"] == {"col", "row"}
    assert re.search(r'<th class="r" scope="col">GPU-hours</th>', text)


def test_what_is_not_known_is_hatched_and_never_zero() -> None:
    for kind, many in ((STACKED, 1), (BARS, 1), (HEAT, 1)):
        text = render(
            Document(data={}, charts=(chart(kind, ("a", "b"), ChartSeries(name="x", values=(2.0, None), texts=("$2", ""))),))
        )
        body = text[text.index("<main>") :]
        assert len(re.findall(r'class="unknown"', body)) - (kind == STACKED) == many
        assert "not known" in body
        assert "$0.00" not in body


def test_parts_stand_on_each_other_and_negative_ones_hang() -> None:
    one = chart(STACKED, ("a",), series("x", 6.0), series("y", 2.0), series("z", -2.0))
    rects = re.findall(r'y="([\d.]+)%" height="([\d.]+)%" class="(p\d)"', render(Document(data={}, charts=(one,))))
    assert rects == [("32", "48", "p1"), ("16", "16", "p2"), ("80", "16", "p3")], "from -2.5 to 10"


def test_series_beyond_the_seventh_are_drawn_as_one_that_holds_their_sum() -> None:
    many = chart(STACKED, ("a",), *(series(f"s{n}", float(n)) for n in range(10)))
    text = render(Document(data={}, charts=(many,)))
    assert [f"s{n}" in text for n in range(10)] == [False] * 4 + [True] * 6
    assert '<td class="r">$6.00</td>' in text
    assert "4 others" in text


@pytest.mark.parametrize("one", ANYTHING, ids=lambda one: f"{one.kind} {one.title[:20]}")
def test_every_chart_is_drawn_within_its_frame(one: object) -> None:
    text = render(Document(data={}, charts=(one,)))  # type: ignore[arg-type]
    Read(text)
    assert "nan" not in text.lower().replace("chart", "")
    assert "inf%" not in text
    for x, width in re.findall(r'<rect x="([\d.]+)%" width="([\d.]+)%"', text):
        assert 0 <= float(x) <= 100
        assert float(x) + float(width) <= 100.1
    for y, height in re.findall(r' y="([\d.]+)%" height="([\d.]+)%"', text):
        assert float(y) + float(height) <= 100.1


def test_a_long_table_is_cut_before_its_sums_and_says_so() -> None:
    rows = (*((f"r{n}", "1") for n in range(1500)), ("total", "1500"))
    text = render(Document(data={}, tables=(TableView(title="t", columns=("a", "b>"), rows=rows, sums=1),)))
    assert text.count("<tr>") == 1 + MOST_ROWS + 1 + 1
    assert "and 1,100 more rows: the JSON or CSV output has all" in text
    assert text.index("more rows") < text.index('<tbody class="sums">') < text.index("total")


def test_a_name_of_many_marks_covers_no_other_line() -> None:
    text = render(Document(data={}, lead=("a" + "\u0301" * 2000,)))
    assert text.count("&#769;") == 8, "four in the title and four in the heading"
