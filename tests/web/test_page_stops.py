"""A stop that a person confirms on a page: the watchdog looks the session up again, and does what `costguard stop` does."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from costguard.ledger.agents.logins import LoginStore
from costguard.services.guarding.overrides import get_now
from costguard.services.serving.door_messages import ActOffer, PersonOffer, PersonReply, decode_offer, encode_message
from costguard.services.serving.person_acts import PersonActs
from costguard.services.serving.web_pages import PageServices
from costguard.web.middleware import RequestMiddleware
from costguard.web.pages import build_page_router
from tests.cli.test_stop import Lab, lab
from tests.web.logins import invite
from tests.web.test_pages import Reader, Silent

__all__ = ["lab"]


class Link:
    """The channel to a watchdog in this process: what is offered goes as it does between the processes."""

    def __init__(self, stops: PersonActs) -> None:
        self.stops, self.offers = stops, list[ActOffer]()

    async def ask(self, act: PersonOffer, _: type[PersonReply]) -> PersonReply:
        offer = decode_offer(type(act), encode_message(act))
        assert isinstance(offer, PersonOffer)
        if isinstance(offer, ActOffer):
            self.offers.append(offer)
        return self.stops.answer(offer)


class Desk:
    """The pages beside a lab of fake clouds."""

    def __init__(self, lab: Lab) -> None:
        self.link = Link(PersonActs(url=lab.ledger, config="costguard.toml"))
        services = PageServices(config="costguard.toml")
        app = FastAPI(redirect_slashes=False)
        app.include_router(build_page_router(services, self.link))  # type: ignore[arg-type]  # a part of it
        self.app = RequestMiddleware(app, hosts=("localhost",), log=Silent())  # type: ignore[arg-type]  # a log in part
        self.ledger, self.book = lab.ledger, LoginStore(lab.ledger)

    def open(self, role: str) -> Reader:
        reader = Reader(self.app)
        assert reader.log_in(invite(self.ledger, f"the-{role}", role)) == 303
        return reader


@pytest.fixture
def desk(lab: Lab) -> Desk:
    return Desk(lab)


def whole(pod: dict[str, Any]) -> str:
    return "/".join(str(pod[name]) for name in ("provider", "account", "region", "id"))


def test_a_confirmed_stop_is_sent_once_proven_and_in_the_audit_log_under_the_persons_name(lab: Lab, desk: Desk) -> None:
    path, admin = whole(lab.pod()), desk.open("admin")
    status, page = admin.act(path, "stop", why="the run is over")
    assert (status, lab.stops, [one.act for one in desk.link.offers]) == (200, 0, ["preview-stop"])
    assert "Permanently lost: " in page
    assert "an hour" in page
    assert 'name="sure" value="yes"' in page
    status, page = admin.act(path, "stop", why="the run is over", sure="yes")
    assert (status, lab.stops) == (303, 1)
    assert "done; verified after" in page
    said = lab.run("audit", "show").out
    assert "the-admin (page)" in said, said


def test_who_is_no_admin_stops_nothing(lab: Lab, desk: Desk) -> None:
    for role in ("viewer", "operator"):
        status, _ = desk.open(role).act(whole(lab.pod()), "stop", why="x", sure="yes")
        assert (status, lab.stops, desk.link.offers) == (403, 0, []), role


def test_a_protected_machine_is_not_stopped_and_the_page_says_why(lab: Lab, desk: Desk) -> None:
    pod = lab.pod()
    assert lab.run("protect", str(pod["id"]), "--why", "mine").code == 0
    admin = desk.open("admin")
    _, page = admin.act(whole(pod), "stop", why="x")
    assert "mine; nothing was sent" in page
    assert 'name="sure"' not in page
    _, page = admin.act(whole(pod), "stop", why="x", sure="yes")
    assert lab.stops == 0
    assert "protect" in page


def test_the_watchdog_believes_no_session_that_the_ledger_does_not_have_or_that_ended(lab: Lab, desk: Desk) -> None:
    path, stops = whole(lab.pod()), desk.link.stops
    assert stops.answer(ActOffer("0" * 64, "stop", path)).refused == "not_allowed"
    desk.open("admin").act(path, "stop", why="x")
    offers = list[ActOffer]()
    for role in ("operator", "admin"):
        reader = desk.open(role)
        offers.append(ActOffer(reader.client.cookies["costguard"], "stop", path, why="x"))
    operator, admin = offers
    assert stops.answer(operator).refused == "not_allowed"
    assert desk.book.revoke_sessions(who="test", now=get_now(), name="the-admin")
    assert stops.answer(admin).refused == "not_allowed"
    late = PersonActs(url=lab.ledger, config="costguard.toml", clock=lambda: get_now() + timedelta(days=2))
    assert late.answer(operator).refused == "not_allowed"
    assert lab.stops == 0


def test_more_stops_than_may_wait_are_refused_at_once(lab: Lab) -> None:
    stops, replies = PersonActs(url=lab.ledger, config="costguard.toml"), list[PersonReply]()
    for _ in range(stops.stops.waiting.maxsize + 1):
        stops.take(ActOffer("0" * 64, "stop", "a/b/c/d"), replies.append)
    assert [one.refused for one in replies] == ["too_often"]


def test_an_admin_sends_a_test_message_to_a_route_of_the_file(lab: Lab) -> None:
    config = Path("costguard.toml")
    config.write_text(config.read_text() + '\n[[notify.route]]\nname = "team"\nto = ["console"]\n')
    desk = Desk(lab)
    for role, status in (("operator", 403), ("admin", 303)):
        reader = desk.open(role)
        shown = reader.client.get("/accounts").text
        assert ("Send a test message" in shown) == (role == "admin")
        token = reader.find_token(shown)
        assert reader.client.post("/accounts", data={"token": token, "route": "team"}).status_code == status
    assert "team (console): delivered" in reader.client.get("/accounts").text
    reader.client.post("/accounts", data={"token": token, "route": "nobody"})
    assert "unknown" in reader.client.get("/accounts").text


def test_without_a_watchdog_no_page_offers_a_stop(lab: Lab) -> None:
    app = FastAPI(redirect_slashes=False)
    app.include_router(build_page_router(PageServices(config="costguard.toml")))
    guarded = RequestMiddleware(app, hosts=("localhost",), log=Silent())  # type: ignore[arg-type]  # a log in part
    reader = Reader(guarded)
    assert reader.log_in(invite(lab.ledger, "ada", "admin")) == 303
    path = whole(lab.pod())
    assert 'value="stop"' not in reader.client.get(f"/machine?id={path}").text.replace('"approve-stop"', "")
    status, page = reader.act(path, "stop", why="x", sure="yes")
    assert (status, "no watchdog is running" in page, lab.stops) == (303, True, 0)
