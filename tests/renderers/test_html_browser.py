"""The page in a real browser: at three widths, in both themes and on paper. Skipped where no Chromium is installed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from costguard.renderers.html import render
from costguard.views.document import Document
from tests.browser import Browser, installed
from tests.notifiers.hostile import CORPUS
from tests.renderers.pages import EDGES, MONTH, company, hostile

pytestmark = pytest.mark.skipif(installed() is None, reason="no Chromium is installed (Debian: chromium-headless-shell)")
WIDTHS = (400, 1000, 1600)
PAPERS = (688, 710)
"""Pixels across A4 and Letter between margins of 14 mm."""

FAULTS = """(() => {
  const faults = [], wide = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > wide) faults.push(`the page is ${document.documentElement.scrollWidth} wide`);
  const seen = (one) => one.getClientRects().length > 0;
  const box = (one) => one.getBoundingClientRect();
  const over = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1
    && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3;
  for (const svg of document.querySelectorAll("svg.plot")) {
    const card = box(svg.closest("figure")), texts = [...svg.querySelectorAll("text")].filter(seen);
    texts.forEach((text, n) => {
      const at = box(text);
      if (at.left < card.left || at.right > card.right) faults.push(`'${text.textContent}' leaves its card`);
      for (const other of texts.slice(n + 1))
        if (over(at, box(other))) faults.push(`'${text.textContent}' lies over '${other.textContent}'`);
    });
    if (texts.length < 3) faults.push(`a plot of ${texts.length} labels`);
  }
  for (const cell of document.querySelectorAll(".grid > span"))
    if (cell.scrollWidth > cell.clientWidth + 1 && !cell.title) faults.push(`'${cell.textContent}' is cut`);
  for (const cell of document.querySelectorAll(".grid > span:not(.head)"))
    if (cell.scrollWidth > cell.clientWidth + 1) faults.push(`the number '${cell.textContent}' is cut`);
  for (const row of document.querySelectorAll(".bars tbody tr, .legend li, h1, h2, .note, header p, .notes li")) {
    const inside = [...row.children, row].filter(seen), home = box(row.closest("figure") ?? document.body);
    for (const one of inside)
      if (box(one).right > home.right + 1) faults.push(`'${one.textContent.slice(0, 40)}' leaves its frame`);
  }
  for (const cell of document.querySelectorAll(".bars td > span")) {
    const [bar, value] = cell.children;
    if (box(bar).width < 20) faults.push(`no room for the bar of ${value.textContent.slice(0, 40)}`);
    if (over(box(bar), box(value))) faults.push(`a bar lies over ${value.textContent.slice(0, 40)}`);
  }
  for (const cell of document.querySelectorAll("th, td")) {
    const style = getComputedStyle(cell), text = cell.textContent;
    const lines = (cell.clientHeight - parseFloat(style.paddingTop) * 2) / parseFloat(style.lineHeight);
    const most = () => Math.max(...[...cell.parentElement.children].map((one) => one.textContent.length));
    if (lines > 2 && seen(cell) && !cell.closest(".bars") && lines > 2 + most() / 5)
      faults.push(`'${text.slice(0, 40)}' takes ${lines} lines`);
  }
  return faults;
})()"""
CONTRASTS = """(() => {
  const parse = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
  const lum = (rgb) => rgb.slice(0, 3).map((c) => c / 255).map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, n) => sum + c * [0.2126, 0.7152, 0.0722][n], 0);
  const ground = (one) => {
    for (; one; one = one.parentElement) {
      const colour = parse(getComputedStyle(one).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), worst = {};
  while (walk.nextNode()) {
    const one = walk.currentNode.parentElement;
    if (!walk.currentNode.textContent.trim() || !one.getClientRects().length || one.closest("title")) continue;
    const style = getComputedStyle(one), ink = one.closest("svg") ? style.fill : style.color;
    const [dark, light] = [lum(parse(ink)), lum(ground(one))].sort((a, b) => a - b);
    const ratio = (light + 0.05) / (dark + 0.05), name = `${one.tagName}.${one.className.baseVal ?? one.className}`;
    if (ratio < 4.5) worst[name] = Math.round(ratio * 100) / 100;
  }
  return worst;
})()"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for all."""
    found = installed()
    assert found is not None
    with Browser(found) as running:
        yield running


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pages")


def shown(browser: Browser, folder: Path, document: Document, name: str) -> Path:
    """The page of `document`, opened."""
    path = folder / f"{name}.html"
    path.write_text(render(document), encoding="ascii")
    browser.open(path)
    return path


@pytest.mark.parametrize("name", ["month", "edges", "company"])
def test_nothing_overflows_overlaps_or_is_cut_at_any_width(browser: Browser, folder: Path, name: str) -> None:
    document = {"month": MONTH, "edges": EDGES, "company": company()}[name]
    path = shown(browser, folder, document, name)
    for width in (320, *WIDTHS):
        browser.look(width=width, dark=width == 1000)
        assert browser.value(FAULTS) == [], (name, width)
    for width in PAPERS:
        browser.look(width=width, media="print")
        assert browser.value(FAULTS) == [], (name, "print", width)
    assert browser.told == []
    assert browser.asked == [path.as_uri()], "it loads nothing"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_text_is_read_as_the_browser_paints_it(browser: Browser, folder: Path, dark: bool) -> None:  # noqa: FBT001 - both
    shown(browser, folder, MONTH, "contrast")
    browser.look(width=1000, dark=dark)
    browser.value("document.querySelectorAll('details').forEach((one) => one.open = true)")
    ground = browser.value("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(18, 22, 28)" if dark else "rgb(255, 255, 255)")
    assert browser.value(CONTRASTS) == {}


def test_paper_is_white_with_every_table_open_and_nothing_wider_than_it(browser: Browser, folder: Path) -> None:
    shown(browser, folder, MONTH, "paper")
    browser.look(width=PAPERS[0], dark=True, media="print")
    assert browser.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    heights = browser.value("[...document.querySelectorAll('details table')].map((one) => one.getBoundingClientRect().height)")
    assert len(heights) == 3
    assert min(heights) > 200
    assert (
        browser.value("Math.max(...[...document.querySelectorAll('table')].map((t) => t.getBoundingClientRect().right))")
        <= PAPERS[0]
    )
    assert browser.value("[...document.querySelectorAll('summary')].every((one) => !one.getClientRects().length)")
    assert 3 <= len(re.findall(rb"/Type\s*/Page\b", browser.paper())) <= 6


def test_every_chart_and_table_has_a_name_for_who_cannot_see_it(browser: Browser, folder: Path) -> None:
    shown(browser, folder, MONTH, "names")
    nodes: list[dict[str, Any]] = browser.order("Accessibility.getFullAXTree")["nodes"]
    roles = [(one.get("role", {}).get("value"), one.get("name", {}).get("value")) for one in nodes if not one["ignored"]]
    for role, least in (("figure", 5), ("image", 3), ("table", 3), ("heading", 8), ("main", 1)):
        names = [name for found, name in roles if found == role]
        assert len(names) >= least, role
        assert role == "main" or all(names), role


@pytest.mark.parametrize("walled", [True, False], ids=["policy", "no-policy"])
def test_no_hostile_name_runs_or_loads_anything(browser: Browser, folder: Path, walled: bool) -> None:  # noqa: FBT001 - both
    names = [name.encode("utf-8", "replace").decode() for name in CORPUS]
    parts = [hostile(name) for name in names]
    every = Document(
        data={},
        lead=tuple(line for one in parts for line in one.lead),
        charts=tuple(chart for one in parts for chart in one.charts)[::3] + parts[88].charts,
        tables=tuple(table for one in parts for table in one.tables),
        notes=tuple(names),
    )
    text = render(every)
    if not walled:
        text = re.sub(r"<meta http-equiv=[^>]*>", "", text)
    path = folder / f"hostile-{walled}.html"
    path.write_text(text, encoding="ascii")
    browser.open(path)
    assert browser.told == []
    assert browser.asked == [path.as_uri()]
    odd = "[...document.querySelectorAll('script, a, img, iframe, object, embed, form, base, link, animate, set, use')].length"
    assert browser.value(odd) == 0
    attributes = "[...new Set([...document.querySelectorAll('*')].flatMap((one) => [...one.attributes]).map((a) => a.name))]"
    assert [name for name in browser.value(attributes) if name.startswith("on") or "href" in name or "src" in name] == []
    browser.look(width=400)
    assert browser.value("document.documentElement.scrollWidth") == 400


def test_the_browser_of_these_tests_would_tell(browser: Browser, folder: Path) -> None:
    page = folder / "control.html"
    page.write_text("<script>alert(1); console.log(2)</script><img src='http://127.0.0.1:9/x.png'><p style='width:900px'>wide")
    browser.open(page)
    browser.look(width=400)
    assert {one["method"] for one in browser.told} >= {"Page.javascriptDialogOpening", "Runtime.consoleAPICalled"}
    assert "http://127.0.0.1:9/x.png" in browser.asked
    assert browser.value(FAULTS) == ["the page is 908 wide"]
