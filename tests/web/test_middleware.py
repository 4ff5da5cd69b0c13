"""What the middleware lets a page do, and what it refuses: forms, event streams, a policy of its own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest

from costguard.agents.messages import WRONG_HOST, MessageRefusedError
from costguard.services.guarding.ask_links import ASK_PATH
from costguard.services.serving.web_logins import LOGIN_PATH
from costguard.web import middleware
from costguard.web.middleware import FORM_MOST, SECRET_PATHS, RequestMiddleware, _hide_secret, build_refusal, is_for_browser
from costguard.web.pages.room import drop_commands

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

FORM = b"application/x-www-form-urlencoded"
OWN_POLICY = b"default-src 'self'"


class Errors:
    """A log that keeps the errors."""

    def __init__(self) -> None:
        self.events = list[str]()

    def error(self, event: str, /, **fields: object) -> object:  # noqa: ARG002 - the log's signature
        self.events.append(event)
        return None

    info = warning = error


def ask(
    path: str,
    *,
    body: bytes = b"",
    headers: Sequence[tuple[bytes, bytes]] = (),
    answer: Sequence[Message] = (),
    lasts_s: float = 0.0,
    log: Errors | None = None,
) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """One request through the middleware to an application that answers `answer` and goes on for so many seconds."""
    sent, told = list[Any](), list[bytes]()

    async def application(_: Scope, receive: Receive, send: Send) -> None:
        told.append((await receive())["body"])
        for one in answer or ({"type": "http.response.start", "status": 200, "headers": []}, {"type": "http.response.body"}):
            await send(dict(one))
        if lasts_s:
            await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=lasts_s)

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST" if body else "GET",
        "path": path,
        "headers": [(b"host", b"localhost"), *headers],
        "client": ("203.0.113.9", 1),
    }
    asyncio.run(RequestMiddleware(application, hosts=["localhost"], log=log or Errors())(scope, receive, send))
    return sent[0]["status"], sent[0]["headers"], b"".join(told)


def test_a_form_is_accepted_where_pages_are_and_not_by_the_interface_of_agents() -> None:
    form = [(b"content-type", FORM + b"; charset=utf-8")]
    assert ask("/machines/keep", body=b"a=1", headers=form)[::2] == (200, b"a=1")
    assert ask("/v1/agents/join", body=b"a=1", headers=form)[0] == 415
    assert ask("/machines/keep", body=b"a" * (FORM_MOST + 1), headers=form)[0] == 413
    assert ask("/machines/keep", body=b"a", headers=[*form, (b"content-length", b"16385")])[0] == 413
    assert ask("/machines/keep", body=b"a=1", headers=[(b"content-type", b"multipart/form-data; boundary=x")])[0] == 415


def test_a_page_keeps_its_own_content_security_policy_and_has_no_second_one() -> None:
    own: list[Message] = [
        {"type": "http.response.start", "status": 200, "headers": [(b"content-security-policy", OWN_POLICY)]},
        {"type": "http.response.body"},
    ]
    _, headers, _ = ask("/", answer=own)
    assert [value for name, value in headers if name == b"content-security-policy"] == [OWN_POLICY]
    assert (b"x-content-type-options", b"nosniff") in headers
    _, headers, _ = ask("/v1/status")
    (policy,) = [value for name, value in headers if name == b"content-security-policy"]
    assert policy.startswith(b"default-src 'none'")


def test_an_event_stream_outlives_the_time_of_an_answer_and_nothing_else_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(middleware, "WHOLE_S", 0.02)

    def stream(kind: bytes) -> list[Message]:
        return [{"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]}]

    log = Errors()
    ask("/events", answer=stream(b"text/event-stream; charset=utf-8"), lasts_s=0.1, log=log)
    assert log.events == []
    ask("/report", answer=stream(b"text/html"), lasts_s=60.0, log=log)
    assert log.events == ["web_broke"]


def test_a_log_never_holds_what_a_path_ends_in() -> None:
    assert set(SECRET_PATHS) == {ASK_PATH, LOGIN_PATH}
    assert [_hide_secret(f"{start}abc") for start in SECRET_PATHS] == [f"{start}..." for start in SECRET_PATHS]
    assert _hide_secret("/machine") == "/machine"


@pytest.mark.parametrize(
    ("path", "accept", "is_page"),
    [
        ("/nothing", "text/html,application/xhtml+xml,*/*;q=0.8", True),
        ("/nothing", "*/*", False),
        ("/v1/nothing", "text/html", False),
    ],
)
def test_a_refusal_is_a_page_for_a_browser_and_json_for_a_program(path: str, accept: str, *, is_page: bool) -> None:
    assert is_for_browser(path, accept) == is_page
    status, headers, body = build_refusal(MessageRefusedError(WRONG_HOST, "not <here>"), is_page=is_page)
    assert status == 421
    assert int(headers["content-length"]) == len(body)
    if is_page:
        assert "not &lt;here&gt;" in body.decode()
        assert headers["content-type"].startswith("text/html")
    else:
        assert json.loads(body)["says"] == "not <here>"


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("--month: must be a month, not 'x'", "month: must be a month, not 'x'"),
        ("hint: run costguard doctor", ""),
        ("1 old price. --why says more; --all shows 3 more options; costguard prices refresh asks anew.", "1 old price."),
        ("not polled: costguard doctor says why", "not polled"),
        ("costguard asks about each.", "costguard asks about each."),
        ("12 USD/h of 0.5 % at 3:15; nothing due.", "12 USD/h of 0.5 % at 3:15; nothing due."),
    ],
)
def test_pages_have_no_commands_and_flags(line: str, shown: str) -> None:
    assert drop_commands(line) == shown
