"""The pages in Debian's Chromium: a login, a protection and an approval by clicking, at 360 px, with nothing on the console."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from costguard.ledger.agents.logins import LoginStore
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.guard.guard_state import load_overrides_since
from costguard.services.overrides import get_now
from costguard.services.web_logins import make_invite
from costguard.services.web_pages import PageServices
from costguard.values.instant import EARLIEST
from costguard.web.demo_server import serve_pages
from tests.web.stations import station

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")
CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as made:
        opened = made.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


def test_a_person_logs_in_protects_and_approves_by_clicking(tmp_path: Path, browser: Any) -> None:  # noqa: ANN401 - playwright's
    with station(tmp_path) as made:
        made.room.run_guard()
        config = tmp_path / "pages.toml"
        config.write_text(f'[ledger]\nurl = "{made.url}"\n')
        with LoginStore(made.url) as book, serve_pages(PageServices(config=str(config))) as address:
            link, _ = make_invite(book, "ada", "operator", who="test", now=get_now())
            page = browser.new_page(viewport={"width": 360, "height": 800})
            wrong = list[str]()
            page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
            page.on("pageerror", lambda error: wrong.append(str(error)))
            page.goto(f"http://{address}{link}")
            page.get_by_role("button", name="Log in as ada").click()
            page.get_by_role("link", name="train-0").click()
            page.get_by_role("button", name="Protect").click()
            assert "is protected" in page.get_by_role("status").inner_text()
            page.get_by_role("button", name="Show what it would do").click()
            page.get_by_role("button", name="Approve stop").click()
            assert "Approved: stop" in page.get_by_role("status").inner_text()
            for path in ("/", "/budgets", "/report", "/quote", "/policies", "/accounts", "/log"):
                page.goto(f"http://{address}{path}")
                wide = page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
                assert not wide, path
            page.close()
        assert wrong == []
        with LedgerReader(made.url) as reader, reader.snapshot() as ask:
            done = [(one.what, one.who) for one in load_overrides_since(ask, EARLIEST)]
    assert done == [("protect", "ada (page)"), ("approve", "ada (page)")]
