"""A message that asks carries a link: opening it answers nothing, one click answers once, in the name of who was sent it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlencode

import pytest
from sqlalchemy import delete

from costguard.errors import NoAnswerError
from costguard.guard.alerts.alert import Alert, Notification
from costguard.guard.overrides import APPROVE, LEASE, find_asking_policy, list_answers, list_approved_acts
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.guard.guard_state import load_overrides_since
from costguard.ledger.tables.guard import ClimbRow
from costguard.services.guarding.ask_links import answer_ask, build_linker
from costguard.services.guarding.audit import show_audit, verify_audit
from costguard.services.serving.person_acts import PersonActs
from costguard.services.serving.web_logins import compute_form_token
from costguard.settings import check_settings
from costguard.values.ask_link import ASK_LINK_VALID_FOR
from costguard.values.resource import parse_resource_key
from tests.fakes.server import serving
from tests.providers.transport.wires import Told
from tests.web.stations import Station, station

ASKS = """
[defaults]
protect = []

[[policy]]
name = "dear"
arm = "notify"
when = 'power == "running" && rate > usd_per_hour(0.01)'
then = [{ do = "ask", act = "terminate" }]

[[notify.route]]
to = ["env:CHAT", "env:MAIL", "console"]
"""
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


class House:
    """A watchdog that asks about two machines in a chat."""

    def __init__(self, made: Station, chat: Told) -> None:
        self.made, self.chat = made, chat

    def told(self, path: str = "/hook") -> str:
        self.made.room.run_guard()
        self.made.room.postman.deliver()
        return "\n".join(asked.json()["text"] for asked in self.chat.asked if asked.path == path)

    def click(self, path: str, do: str, *, token: str | None = None, **headers: str) -> tuple[int, str]:
        page = self.made.ask("GET", path).body.decode()
        sent = {"do": do, "token": page.partition('name="token" value="')[2].partition('"')[0] if token is None else token}
        came = self.made.ask("POST", path, urlencode(sent).encode(), {**FORM, **headers})
        return came.status, came.body.decode()

    def approved(self) -> dict[tuple[str, str], frozenset[str]]:
        """By policy and machine: the acts that somebody allowed, in a new run of the guard."""
        found = self.made.room.run_guard().survey
        assert found is not None
        return {(one.verdict.policy.name, one.live.observation.key.id): one.approved for one in found.cases}

    def wishes(self) -> list[tuple[str, str, str, str]]:
        with LedgerReader(self.made.url) as reader, reader.snapshot() as ask:
            found = load_overrides_since(ask, datetime.now(UTC) - timedelta(hours=1))
        return [
            (one.what, one.subject, one.who, one.key.id if one.key else "") for one in found if one.what in (APPROVE, LEASE)
        ]


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    chat = Told()
    with serving(chat) as address:
        monkeypatch.setenv("CHAT", f"{address}/hook")
        monkeypatch.setenv("MAIL", f"{address}/mail")
        monkeypatch.chdir(tmp_path)
        url = "https://guard.example"
        with station(tmp_path, more=ASKS, web=f'url = "{url}"\nbehind_proxy = "127.0.0.1"') as made:
            text = f'[ledger]\nurl = "{made.url}"\n{ASKS}'
            (tmp_path / "costguard.toml").write_text(text)
            yield House(made, chat)


def links(text: str) -> dict[str, str]:
    """Machine -> the path of the link that answers its question."""
    found = re.findall(
        r"to keep it: costguard keep \S+/(\S+) .*\n(?:.+\n)*?to approve or deny: https://guard.example(/ask/[0-9a-f]{64})", text
    )
    return dict(found)


def test_a_message_that_asks_has_links_to_the_machine_and_to_an_answer(
    house: House, capsys: pytest.CaptureFixture[str]
) -> None:
    text = house.told()
    assert "page: https://guard.example/machine?id=cloud/lab/here/i-" in text
    assert set(links(text)) == {"i-0", "i-1"}
    console = capsys.readouterr().err
    assert "page: https://guard.example/machine?id=cloud/lab/here/i-" in console
    assert "/ask/" not in console
    stored = b"".join(one.read_bytes() for one in Path.cwd().glob("ledger.db*") if one.is_file())
    assert not any(path.removeprefix("/ask/").encode() in stored for path in links(text).values())


def test_opening_a_link_answers_nothing_and_a_click_approves_once_under_the_addressees_name(house: House) -> None:
    path = links(house.told())["i-0"]
    for method in ("GET", "GET", "HEAD"):
        came = house.made.ask(method, path)
    page = house.made.ask("GET", path).body.decode()
    assert "Terminate" in page
    assert "dear" in page
    assert "env:CHAT" in page
    assert house.wishes() == []
    status, page = house.click(path, "approve")
    assert (status, "Approved: terminate of" in page) == (200, True), page
    assert house.wishes() == [(APPROVE, "terminate", "env:CHAT (link)", "i-0")]
    status, page = house.click(path, "deny", token="")
    assert status == 403
    came = house.made.ask("GET", path)
    assert (came.status, "was approved already" in came.body.decode()) == (403, True)
    said = "\n".join(str(row) for table in show_audit(since=None).document.tables for row in table.rows)
    assert "a link to answer whether to terminate" in said
    assert "env:CHAT approved by link: terminate" in said
    assert verify_audit().refusal is None


def test_a_denial_keeps_the_machine_and_settles_the_other_links_of_its_question(house: House) -> None:
    chat, mail = links(house.told())["i-1"], links(house.told("/mail"))["i-1"]
    assert chat != mail
    status, page = house.click(mail, "deny")
    assert (status, "is kept until" in page) == (200, True), page
    assert house.wishes() == [(LEASE, "", "env:MAIL (link)", "i-1")]
    assert "was denied already" in house.made.ask("GET", chat).body.decode()
    with pytest.raises(NoAnswerError, match="was denied already"):
        answer_ask(chat.removeprefix("/ask/"), approve=True, url=house.made.url, config=None, now=datetime.now(UTC))


def test_a_guess_at_a_link_never_reaches_the_watchdog(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    house.told()
    asked = list[object]()
    monkeypatch.setattr(PersonActs, "take", lambda _self, offer, _answer: asked.append(offer))
    junk = "f" * 64
    status, _ = house.click(f"/ask/{junk}", "approve", token=compute_form_token(junk))
    assert (status, asked) == (403, [])


def test_an_answer_allows_what_was_asked_and_nothing_else(house: House) -> None:
    path = links(house.told())["i-0"]
    house.click(path, "approve")
    with LedgerReader(house.made.url) as reader, reader.snapshot() as ask:
        (wish,) = load_overrides_since(ask, datetime.now(UTC) - timedelta(hours=1))
    assert wish.life is not None
    assert wish.until is not None
    assert wish.until - wish.at <= ASK_LINK_VALID_FOR
    assert list_approved_acts(wish.life, [wish], datetime.now(UTC)) == frozenset()
    ((question, act),) = list_answers(wish.life, [wish], datetime.now(UTC))
    assert (find_asking_policy(question), act) == ("dear", "terminate")
    guard = house.made.room.guard
    (dear,) = guard.rules.policies
    guard.rules = replace(guard.rules, policies=(dear, replace(dear, name="other")))
    none, yes = frozenset[str](), {"terminate"}
    assert house.approved() == {("dear", "i-0"): yes, ("dear", "i-1"): none, ("other", "i-0"): none, ("other", "i-1"): none}
    with house.made.room.book._begin_write() as (_, tell):
        tell(delete(ClimbRow))
    assert set(house.approved().values()) == {none}, "it is asked anew, and nobody has answered that"


def test_a_form_that_another_page_sends_answers_nothing(house: House) -> None:
    path = links(house.told())["i-0"]
    forms: tuple[tuple[dict[str, str], str | None], ...] = (
        ({}, "0" * 64), ({"Origin": "https://evil.example"}, None), ({"Sec-Fetch-Site": "cross-site"}, None),
    )  # fmt: skip
    for headers, token in forms:
        assert house.click(path, "approve", token=token, **headers)[0] == 403, headers
    assert house.wishes() == []


def test_an_unknown_link_one_of_yesterday_and_one_whose_question_is_over_answer_nothing(house: House) -> None:
    path = links(house.told())["i-0"]
    secret, url, now = path.removeprefix("/ask/"), house.made.url, datetime.now(UTC)
    for tried, at, why in (
        ("0" * 64, now, "is not known"),
        (secret, now + ASK_LINK_VALID_FOR + timedelta(minutes=1), "has expired"),
    ):
        with pytest.raises(NoAnswerError, match=why):
            answer_ask(tried, approve=True, url=url, config=None, now=at)
    assert house.made.ask("GET", f"/ask/{'0' * 64}").status == 403
    with house.made.room.book._begin_write() as (_, tell):
        tell(delete(ClimbRow))
    status, _ = house.click(path, "approve", token=compute_form_token(secret))
    assert status == 403
    with pytest.raises(NoAnswerError, match="no longer open"):
        answer_ask(secret, approve=True, url=url, config=None, now=now)
    assert house.wishes() == []


@pytest.mark.parametrize(("stated", "page", "answer"), [("answer", 1, 1), ("page", 1, 0), ("none", 0, 0)])
def test_the_settings_say_which_links_a_message_carries(tmp_path: Path, stated: str, page: int, answer: int) -> None:
    web = f'listen = "127.0.0.1:0"\nurl = "https://guard.example"\nlinks = "{stated}"'
    settings = check_settings(f'[ledger]\nurl = "sqlite:///{tmp_path}/ledger.db"\n[web]\n{web}\n', "costguard.toml")
    now = datetime.now(UTC)
    asks = Alert(topic="policy:dear", subject="a/b/c/d", owner="", severity="warning", what="Stop d?", at=now, ask="stop")
    sent = Notification(id="m", channel="env:CHAT", why_now="first", severity="warning", title="x", notices=(asks,), at=now)
    (found,) = build_linker(settings)(sent).notices
    labels = [label for label, _ in found.links]
    assert (labels.count("page"), labels.count("to approve or deny")) == (page, answer)


def test_what_is_not_a_machine_has_no_page() -> None:
    assert parse_resource_key("aws/1/us-east-1/arn:x/y") == ("aws", "1", "us-east-1", "arn:x/y")
    for other in ("budget vision", "aws/1/us-east-1", "a/b/c/", "the HTTP server"):
        assert parse_resource_key(other) is None
