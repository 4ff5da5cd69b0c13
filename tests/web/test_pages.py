"""The pages over a real ledger: who gets in, who may do what, and that what is done is recorded under the person's name."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from costguard.ledger.agents.logins import LoginStore
from costguard.ledger.db.connection import begin_write, open_engine
from costguard.services.guarding.overrides import get_now
from costguard.services.serving.login_key import open_login_key
from costguard.services.serving.person_acts import ACTS, PersonActs
from costguard.services.serving.web_logins import LoginDesk, SessionDesk
from costguard.services.serving.web_pages import PageServices
from costguard.settings import resolve_ledger_url
from costguard.values.web_login import WebSession
from costguard.web.middleware import RequestMiddleware
from costguard.web.pages import build_page_router
from costguard.web.pages.live import LiveRuns
from costguard.web.pages.room import COOKIE, PageRoom
from tests.web.logins import invite
from tests.web.stations import Station, station

HOST = "http://localhost"
PATHS = ("/", "/budgets", "/report", "/quote", "/policies", "/accounts", "/log")


class Silent:
    def error(self, *_: object, **__: object) -> None:
        """Log nothing."""


class Reader:
    """A browser with its cookies."""

    def __init__(self, app: RequestMiddleware) -> None:
        self.client = TestClient(app, base_url=HOST, follow_redirects=False)

    def log_in(self, link: str) -> int:
        return self.client.post(link).status_code

    def find_token(self, page: str) -> str:
        return page.partition('name="token" value="')[2].partition('"')[0]

    def act(self, path: str, do: str, **fields: str) -> tuple[int, str]:
        """Send the form of a machine's page, and return the status and the page after it."""
        token = fields.pop("token", None) or self.find_token(self.client.get("/").text)
        came = self.client.post("/machine", data={"id": path, "do": do, "token": token, **fields})
        return came.status_code, self.client.get(came.headers["location"]).text if came.status_code == 303 else came.text


class House:
    """The pages of a watchdog's ledger."""

    def __init__(self, made: Station, config: Path) -> None:
        config.write_text(f'[ledger]\nurl = "{made.url}"\n')
        self.services = PageServices(config=str(config))
        app = FastAPI(redirect_slashes=False)
        app.include_router(build_page_router(self.services))
        self.app = RequestMiddleware(app, hosts=("localhost",), log=Silent())  # type: ignore[arg-type]  # a log in part
        self.book = LoginStore(resolve_ledger_url(self.services.settings))

    def invite(self, role: str, now: datetime | None = None) -> str:
        return invite(resolve_ledger_url(self.services.settings), f"the-{role}", role, now=now)

    def open(self, role: str) -> Reader:
        reader = Reader(self.app)
        assert reader.log_in(self.invite(role)) == 303
        return reader

    def open_session(self, role: str) -> WebSession:
        """A session without a browser."""
        secret = self.open(role).client.cookies[COOKIE]
        session = SessionDesk(self.book).find_session(secret)
        assert session is not None
        return session

    def machine(self) -> str:
        return self.services.load_fleet().rows[0].path


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("pages")
    with station(folder) as made:
        made.room.run_guard()
        yield House(made, folder / "pages.toml")


def test_no_page_is_shown_without_a_login_and_every_page_with_one(house: House) -> None:
    stranger, viewer = Reader(house.app), house.open("viewer")
    for path in (*PATHS, "/machine?id=x", "/report/export?format=csv", "/live"):
        assert stranger.client.get(path).status_code == 401, path
    for path in (*PATHS, f"/machine?id={house.machine()}"):
        came = viewer.client.get(path)
        assert came.status_code == 200, (path, came.text)
        assert "script-src 'self'" in came.headers["content-security-policy"]
        assert "<script>" not in came.text
        assert "style=" not in came.text


def test_opening_a_login_link_uses_nothing_up_and_its_button_works_once(house: House) -> None:
    link, reader = house.invite("viewer"), Reader(house.app)
    assert "Log in as the-viewer" in reader.client.get(link).text
    assert "Log in as the-viewer" in reader.client.get(link).text
    came = reader.client.post(link)
    assert came.status_code == 303
    cookie = came.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert Reader(house.app).log_in(link) == 403
    assert reader.client.get("/").status_code == 200
    old = house.invite("admin", get_now() - timedelta(hours=25))
    assert Reader(house.app).log_in(old) == 403


@pytest.mark.sampled(2)
@pytest.mark.parametrize("role", ["viewer", "operator"])
@pytest.mark.parametrize("do", sorted(ACTS))
def test_a_viewer_changes_nothing_and_an_operator_does_what_the_command_does(house: House, role: str, do: str) -> None:
    status, page = house.open(role).act(house.machine(), do, length="1h", why="a test of roles", sure="yes")
    assert status == (403 if role == "viewer" else 303), page


def test_arming_a_policy_needs_an_admin(house: House) -> None:
    for role, status in (("viewer", 403), ("operator", 403), ("admin", 303)):
        reader = house.open(role)
        token = reader.find_token(reader.client.get("/").text)
        came = reader.client.post("/policies", data={"policy": "none", "level": "stop", "token": token})
        assert came.status_code == status, role


def test_what_is_done_is_in_the_audit_log_under_the_name_of_the_person(house: House) -> None:
    reader = house.open("operator")
    _, page = reader.act(house.machine(), "protect", why="evaluation runs")
    assert "is protected" in page
    log = reader.client.get("/log?since=").text
    assert "the-operator (page)" in log
    assert 'class="banner good"' in log


def test_an_approval_shows_first_what_it_would_do(house: House) -> None:
    reader = house.open("operator")
    before = len(house.services.load_machine(house.machine()).wishes)
    status, page = reader.act(house.machine(), "approve-stop", why="saved")
    assert status == 200
    assert "Cancel</a>" in page
    assert len(house.services.load_machine(house.machine()).wishes) == before


def test_a_form_of_another_site_or_session_changes_nothing(house: House) -> None:
    reader, other = house.open("admin"), house.open("admin")
    path = house.machine()
    theirs = other.find_token(other.client.get("/").text)
    assert reader.act(path, "protect", why="x", token=theirs)[0] == 403
    mine = reader.find_token(reader.client.get("/").text)
    fields = {"id": path, "do": "protect", "why": "x", "token": mine}
    for origin in ("https://elsewhere.example", "null", "", "http://[", "http://]", "http://localhost@[::1", "//localhost"):
        assert reader.client.post("/machine", data=fields, headers={"origin": origin}).status_code == 403
    assert reader.client.post("/machine", data=fields, headers={"sec-fetch-site": "cross-site"}).status_code == 403


def test_a_session_ends_when_idle_when_old_and_when_it_is_left(house: House) -> None:
    app_now = [get_now()]
    desk_reader = house.open("viewer")
    assert desk_reader.client.get("/accounts").status_code == 200
    desk = SessionDesk(house.book, clock=lambda: app_now[0])
    url = resolve_ledger_url(house.services.settings)
    watchdog = LoginDesk(book=house.book, key=open_login_key(url), clock=lambda: app_now[0])
    secret = watchdog.redeem(house.invite("viewer").rpartition("/")[2])
    app_now[0] += timedelta(minutes=59)
    assert desk.find_session(secret) is not None
    app_now[0] += timedelta(minutes=61)
    assert desk.find_session(secret) is None
    secret = watchdog.redeem(house.invite("viewer", app_now[0]).rpartition("/")[2])
    for _ in range(13):
        app_now[0] += timedelta(minutes=55)
        assert desk.find_session(secret) is not None
    app_now[0] += timedelta(minutes=50)
    assert desk.find_session(secret) is None
    token = desk_reader.find_token(desk_reader.client.get("/").text)
    assert "Logged out" in desk_reader.client.post("/logout", data={"token": token}).text
    assert desk_reader.client.get("/").status_code == 401


def test_old_data_is_called_old(house: House) -> None:
    viewer, before = house.open("viewer"), house.services.clock
    assert "watchdog is down" not in viewer.client.get("/").text
    house.services.clock = lambda: get_now() + timedelta(hours=2)
    house.services.forget_fleet()
    try:
        assert "The last guard run was 12" in viewer.client.get("/").text
    finally:
        house.services.clock = before
        house.services.forget_fleet()


def test_a_name_with_markup_stays_text_on_every_page(house: House) -> None:
    evil = '"><script>alert(1)</script>\u202e\n'
    viewer = house.open("viewer")
    for path in ("/", "/report", "/quote", "/policies", "/log", "/machine"):
        for name in ("q", "id", "month", "by", "model", "gpu", "policy", "text", "since", "next"):
            text = viewer.client.get(path, params={name: evil}).text
            assert "<script>alert" not in text, (path, name)
            assert "\u202e" not in text, (path, name)


def test_an_open_page_is_told_of_a_guard_run_once_it_is_built_and_its_watcher_ends_with_the_last_page(house: House) -> None:
    runs, built, asked = ["one"], ["one"], list[str]()

    class Fleet:
        run_id = property(lambda _: built[-1])

    class Services:
        def read_run_id(self) -> str:
            return runs[-1]

        def load_fleet(self) -> Fleet:
            asked.append(runs[-1])
            if len(asked) > 2:
                built.append(runs[-1])
            return Fleet()

    room = PageRoom(house.services, SessionDesk(house.book), PersonActs(url="", config=None))
    room.services = Services()  # type: ignore[assignment]  # all that a watcher asks
    live, session = LiveRuns(room, look_every_s=0.0), house.open_session("viewer")

    async def follow() -> list[str]:
        stream, told = live.watch(session), []
        told.append(await anext(stream))
        await live.looked.wait()
        runs.append("two")
        told.append(await anext(stream))
        await stream.aclose()
        return told

    assert asyncio.run(follow()) == ["retry: 10000\n\n", "event: run\ndata: two\n\n"]
    assert len(asked) == 3, "told when the fleet was of that run, and not before"
    assert not live.is_watching


def test_a_stream_ends_when_its_login_ends(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("costguard.web.pages.live.BEAT_EVERY_S", 0.05)
    session = house.open_session("viewer")
    live = LiveRuns(PageRoom(house.services, SessionDesk(house.book), PersonActs(url="", config=None)))

    async def follow() -> list[str]:
        events = list[str]()
        async for event in live.watch(session):
            events.append(event)
            if len(events) == 3:
                house.book.revoke_sessions(who="test", now=get_now(), name=session.name)
        return events

    assert asyncio.run(asyncio.wait_for(follow(), 20))[:3] == ["retry: 10000\n\n", ": beat\n\n", ": beat\n\n"]
    assert not live.is_watching


def test_one_person_cannot_take_every_stream(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("costguard.web.pages.live.STREAMS_A_PERSON", 2)
    ada, eve = house.open_session("viewer"), house.open_session("operator")
    live = LiveRuns(PageRoom(house.services, SessionDesk(house.book), PersonActs(url="", config=None)))

    async def open_two() -> list[bool]:
        streams = [live.watch(eve) for _ in range(2)]
        for stream in streams:
            await anext(stream)
        full = [live.is_full(eve.name), live.is_full(ada.name)]
        assert [event async for event in live.watch(eve)] == ["retry: 60000\n\n"], "asked before the others were open"
        for stream in streams:
            await stream.aclose()
        return [*full, live.is_full(eve.name)]

    assert asyncio.run(open_two()) == [True, False, False]


def test_who_guesses_links_takes_no_lock_of_the_writer(house: House) -> None:
    guesser, url = Reader(house.app), resolve_ledger_url(house.services.settings)
    engine = open_engine(url)
    with begin_write(engine):  # somebody writes, and goes on writing until the guess is answered
        came = guesser.client.post("/login/" + "A" * 43)
    assert (came.status_code, "is not known" in came.text) == (403, True), "not that the ledger is locked"
    engine.dispose()


def test_the_money_of_a_machine_has_amounts_with_bounds_whose_sum_is_what_it_cost(house: House) -> None:
    page = house.open("viewer").client.get(f"/machine?id={house.machine()}").text
    found = house.services.load_machine(house.machine())
    (total,), one = found.totals, found.one
    assert one is not None
    assert total.low <= total.expected <= total.high
    assert abs(total.expected.nano - one.live.spent.expected.nano) < 10**9  # the page is some seconds newer than the fleet
    assert total.low.nano > 0
    money = page.partition('<h2 id="money">')[2].partition("</table>")[0]
    for amount in (total.low, total.expected, total.high):
        assert f'<td class="r">{amount.format(2)}' in money
    assert len(re.findall(r"<tr", money)) == 2 + len(found.costs)


def test_the_pages_show_the_use_of_gpus_or_that_it_is_not_known(house: House) -> None:
    client = house.open("viewer").client
    row = next(one for one in house.services.load_fleet().rows if one.path == house.machine())
    assert f'<td data-name="GPU use" class="r">{row.use}</td>' in client.get("/").text
    assert f"<dt>GPU use, 2 h</dt><dd>{row.use}</dd>" in client.get(f"/machine?id={house.machine()}").text


def test_a_report_has_the_charts_of_its_file_and_no_style_of_its_own(house: House) -> None:
    reader = house.open("viewer")
    page, style = reader.client.get("/report").text, reader.client.get("/static/charts.css")
    assert page.count('<figure class="chart') >= 3
    assert 'class="plot' in page
    assert "style=" not in page
    assert (style.status_code, style.headers["content-type"]) == (200, "text/css; charset=utf-8")
    for name, size in re.findall(r'(?<=[ "])(gutter|value|name|across|down)-(\d+)', page):
        assert f".{name}-{size} {{" in style.text


def test_a_report_offers_periods_and_narrower_reports_that_add_up(house: House) -> None:
    client = house.open("viewer").client
    page = client.get("/report?by=gpu,owner").text
    assert '<a class="chip" href="/report?by=gpu%2Cowner" aria-current="true">This month</a>' in page
    assert 'href="/report?from=' in page
    (path,) = re.findall(r'href="(/report\?by=gpu%2Cowner&amp;only=gpu%3DH100[^"]*)">gpu', page)
    narrower = client.get(path.replace("&amp;", "&"))
    assert narrower.status_code == 200
    assert "Only gpu=H100" in narrower.text
    assert ">gpu <bdi>" not in narrower.text, "it is narrowed to one already"
    assert ">provider <bdi>" not in narrower.text, "it is not grouped by providers"
