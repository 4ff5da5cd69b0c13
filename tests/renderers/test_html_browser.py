"""The page in a real browser: at three widths, in both themes and on paper. Skipped where no Chromium is installed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from costguard.renderers.html import render
from costguard.views.document import Document
from tests.browser import Browser, installed
from tests.notifiers.hostile import CORPUS
from tests.renderers.pages import hostile

pytestmark = pytest.mark.skipif(installed() is None, reason="no Chromium is installed (Debian: chromium-headless-shell)")

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
