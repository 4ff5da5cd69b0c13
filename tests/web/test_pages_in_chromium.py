"""The pages in Debian's Chromium: logins, a protection and an approval by clicking, at 360 px, with nothing on the console.

Needs playwright, and axe-playwright-python for what axe finds (pip install both); where they are missing, these are skipped.
"""

from __future__ import annotations

import re
import shutil
import socket
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.guard.guard_state import load_overrides_since
from costguard.services.serving.web_pages import PageServices
from costguard.values.instant import EARLIEST
from costguard.web.demo_server import serve_pages
from tests.fakes.server import serving
from tests.providers.transport.wires import Told
from tests.web.identity import CLIENT, identity_provider
from tests.web.logins import invite
from tests.web.stations import station
from tests.web.test_ask_links import ASKS, links

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
        with serve_pages(PageServices(config=str(config))) as address:
            link = invite(made.url, "ada", "operator")
            page = browser.new_page(viewport={"width": 360, "height": 800})
            wrong = list[str]()
            page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
            page.on("pageerror", lambda error: wrong.append(str(error)))
            page.goto(f"http://{address}{link}")
            page.get_by_role("button", name="Log in as ada").click()
            page.get_by_role("link", name="train-0").click()
            page.get_by_role("button", name="Protect").click()
            assert "is protected" in page.get_by_role("status").inner_text()
            page.get_by_role("button", name="Preview").click()
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


PATHS = ("/", "/budgets", "/report", "/quote?model=Qwen/Qwen3-8B&tokens=20M", "/policies?policy=dear", "/accounts", "/log")
RUN_AXE = """async source => {
    if (!window.axe) (0, eval)(source);
    const found = await axe.run();
    return found.violations.map(one => [location.pathname, one.id, one.impact, one.nodes[0].html.slice(0, 200)]);
}"""
SIZES = ((360, "dark"), (1000, "light"), (1600, "dark"))


def judge(page: Any, axe: str) -> list[Any]:  # noqa: ANN401 - playwright's
    """What axe finds on the page as it is, at each width and in both themes; and whether it is too wide."""
    found = list[Any]()
    for width, theme in SIZES:
        page.set_viewport_size({"width": width, "height": 800})
        page.emulate_media(color_scheme=theme)
        found += [(width, theme, *one) for one in page.evaluate(RUN_AXE, axe)]
        if page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"):
            found.append((width, theme, page.url, "is wider than its window"))
    return found


def test_axe_finds_nothing_on_any_page_and_a_login_at_the_provider_comes_back(
    tmp_path: Path,
    browser: Any,  # noqa: ANN401 - playwright's
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The provider is another site (127.0.0.1) than the pages (localhost): SameSite=Strict is as strict as it will be."""
    pytest.importorskip("axe_playwright_python", reason="axe is not installed: pip install axe-playwright-python")
    axe, chat = (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8"), Told()
    context = browser.new_context(bypass_csp=True)  # axe is put into the page by eval
    page, wrong, found = context.new_page(), list[str](), list[Any]()
    page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    with serving(chat) as hook, identity_provider() as identity, socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        monkeypatch.setenv("CHAT", f"{hook}/hook")
        monkeypatch.setenv("MAIL", f"{hook}/mail")
        monkeypatch.chdir(tmp_path)
        with station(tmp_path, more=ASKS, web='url = "https://guard.example"\nbehind_proxy = "127.0.0.1"') as made:
            config = tmp_path / "costguard.toml"
            config.write_text(
                f'[ledger]\nurl = "{made.url}"\n[web]\nurl = "http://localhost:{port}"\nlisten = "127.0.0.1:{port}"\n'
                f'[web.oidc]\nissuer = "{identity.issuer}"\nclient_id = "{CLIENT}"\noperator = ["leads"]\n{ASKS}'
            )
            made.room.run_guard()
            made.room.postman.deliver()
            ask = next(iter(links("\n".join(one.json()["text"] for one in chat.asked if one.path == "/hook")).values()))
            page.goto(f"http://{made.at.shown}{ask}")
            found += judge(page, axe)
            page.get_by_role("button", name="Approve").click()
            found += judge(page, axe)
            assert page.get_by_role("heading", name="Approved").is_visible()
            held.close()
            with serve_pages(PageServices(config=str(config)), port):
                page.goto(f"http://localhost:{port}/policies")
                found += judge(page, axe)
                assert [re.sub(r".*status of (\d+).*", r"\1", one) for one in wrong] == [
                    "401"
                ]  # the page that asks for a login
                wrong.clear()
                page.get_by_role("link", name="Log in with your").click()
                page.wait_for_url(f"http://localhost:{port}/policies")
                assert page.get_by_role("heading", name="dear").is_visible()
                for path in (*PATHS, "/machine?id=cloud/lab/here/i-0"):
                    page.goto(f"http://localhost:{port}{path}")
                    found += judge(page, axe)
    context.close()
    assert (found, wrong) == ([], [])
