"""The client of the integrations against a real server: held, refused, and every way not to get an answer."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from costguard_admission import CLOSED, HELD, OPEN, REFUSED, UNKNOWN, AdmissionClient, SettingsError

from tests.web.stations import Station, station

BUDGET = '[[budget]]\nname = "lab"\ncap = "100 USD"\nmatch = { owners = ["ada"] }\n'


@pytest.fixture(scope="module")
def watchdog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Station]:
    with station(tmp_path_factory.mktemp("integrations"), more=BUDGET) as made:
        made.room.run_guard()
        made.token("cg_sky", name="sky", role="operator")
        yield made


def client(watchdog: Station, *, token: str = "cg_sky", fails: str = OPEN) -> AdmissionClient:  # noqa: S107 - a test's
    return AdmissionClient(url=f"http://{watchdog.at.host}:{watchdog.at.port}", token=token, fails=fails)


def test_an_id_of_a_hold_that_has_ended_is_replaced_and_not_launched_without(watchdog: Station) -> None:
    asks = client(watchdog, fails=CLOSED)
    first = asks.admit({"usd": "1", "owner": "ada", "id": "job-7"})
    assert asks.end(first.hold, started=True)
    again = asks.admit({"usd": "1", "owner": "ada", "id": "job-7"})
    assert (again.outcome, again.hold.startswith("job-7-")) == (HELD, True)
    assert asks.admit({"usd": "1000", "owner": "ada", "id": "job-7"}).outcome == REFUSED
    assert asks.end(again.hold, started=False)


def test_a_run_is_held_refused_and_ended(watchdog: Station) -> None:
    asks = client(watchdog)
    held = asks.admit({"usd": "60", "hours": 1, "owner": "ada"})
    assert (held.outcome, held.may_launch, held.money) == (HELD, True, 60.0)
    refused = asks.admit({"gpu": "H100", "count": 8, "hours": 12, "owner": "ada"})
    assert (refused.outcome, refused.may_launch, refused.hold) == (REFUSED, False, "")
    assert "budget lab: $40.00 of $100.00 left" in refused.says
    assert "Would fit: H100-SXM x" in refused.says
    assert asks.end(held.hold, started=False)
    assert not asks.end(held.hold, started=False)


@pytest.mark.parametrize("fails", [OPEN, CLOSED])
def test_where_costguard_says_neither_the_policy_decides_and_is_said(watchdog: Station, fails: str) -> None:
    nobody = AdmissionClient(url="http://127.0.0.1:9", token="x", fails=fails)  # noqa: S106 - a test's
    answers = [
        nobody.admit({"usd": "1"}),
        client(watchdog, token="wrong", fails=fails).admit({"usd": "1"}),  # noqa: S106 - a test's
        client(watchdog, fails=fails).admit({"gpu": "H100", "count": 7, "hours": 1}),
    ]
    assert [(one.outcome, one.may_launch) for one in answers] == [(UNKNOWN, fails == OPEN)] * 3
    assert all(f"fails {fails}" in one.says for one in answers)
    assert [one.status for one in answers] == [0, 401, 409]
    assert "COSTGUARD_TOKEN" in answers[1].says
    assert answers[2].reason == "no_price"
    assert not nobody.end("x", started=True)


def test_a_request_that_costguard_cannot_take_is_refused_even_where_it_fails_open(watchdog: Station) -> None:
    asks = client(watchdog)
    held = asks.admit({"usd": "1", "owner": "ada", "id": "job-9"})
    answers = [
        asks.admit({"color": "red"}),
        asks.admit({"gpu": "H9000", "count": 1, "hours": 1}),
        asks.admit({"usd": "2", "owner": "ada", "gpu": "T4", "id": "job-9"}),
        asks.admit({"usd": "1", "owner": "x" * 100_000}),
    ]
    assert [(one.outcome, one.may_launch) for one in answers] == [(REFUSED, False)] * 4
    assert [one.status for one in answers] == [400, 400, 400, 0]
    assert "color" in answers[0].says
    assert "is open for a run with another gpu" in answers[2].says
    assert asks.end(held.hold, started=False)


@contextmanager
def answering(*parts: bytes, pause_s: float = 0) -> Iterator[str]:
    """The address of a server that answers each request with these bytes, and then closes."""
    server, ended = socket.create_server(("127.0.0.1", 0)), threading.Event()

    def answer(wire: socket.socket) -> None:
        with wire, suppress(OSError):
            wire.recv(1 << 16)
            for part in parts if not pause_s else itertools.chain(parts, itertools.repeat(b" ")):
                wire.sendall(part)
                if pause_s and ended.wait(pause_s):
                    return

    def serve() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=answer, args=(server.accept()[0],), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
    finally:
        ended.set()
        server.shutdown(socket.SHUT_RDWR)
        server.close()


HELD_ANSWER = {"held": True, "hold": "h-1", "usd": "5", "says": "Held.", "reason": "held"}


def reply(body: object, status: str = "200 OK", *, length: int | None = None, more: str = "") -> bytes:
    """A whole answer. `body`: bytes, or what is written as JSON."""
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(text) if length is None else length}\r\n{more}\r\n".encode() + text


def held(**change: object) -> bytes:
    return reply({**HELD_ANSWER, **change})


BAD = {
    "nothing": b"", "no-http": b"SSH-2.0-OpenSSH_9.2\r\n", "half-status": b"HTTP/1.1 2",
    "odd-status": b"HTTP/1.1 abc OK\r\n\r\n", "status-99": b"HTTP/1.1 99 Odd\r\n\r\n{}",
    "half-head": b"HTTP/1.1 200 OK\r\nContent-Le", "long-line": b"HTTP/1.1 200 OK\r\nx: " + b"y" * 100_000,
    "many-headers": b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 200 + b"\r\n", "head-alone": b"HTTP/1.1 200 OK\r\n\r\n",
    "empty": reply(b""), "204": reply(b"", "204 No Content"), "html": reply(b"<html>"), "list": reply([1]),
    "object": reply({}), "null": reply(None), "text": reply("held"), "number": reply(5), "nan": reply(b"NaN"),
    "cut-off": reply(json.dumps(HELD_ANSWER).encode()[:-9]), "utf-16": reply(json.dumps(HELD_ANSWER).encode("utf-16")),
    "latin": reply(b'{"held": true, "hold": "h-1", "usd": "5", "says": "\xff"}'), "short": reply(HELD_ANSWER, length=9_999),
    "shorter": reply(HELD_ANSWER, length=20),
    "negative-length": reply(HELD_ANSWER, length=-5, more="Connection: close\r\n")[:-40],
    "gzip": reply(gzip.compress(b" " * 50_000_000), more="Content-Encoding: gzip\r\n"),
    "huge": reply(b" " * (3 << 20) + json.dumps(HELD_ANSWER).encode()), "deep": reply(b"[" * 500_000),
    "deep-object": reply(b'{"a":' * 100_000),
    "digits": reply(b'{"held": true, "hold": "h-1", "usd": ' + b"9" * 900_000 + b"}"),
    "bad-chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "cut-chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n{}", "held-text": held(held="true"),
    "held-number": held(held=1), "held-maybe": held(held="maybe"), "held-not": held(held=False), "no-hold": held(hold=None),
    "hold-number": held(hold=7), "hold-list": held(hold=["h"]), "hold-line": held(hold="h\nx"), "usd-list": held(usd=[5]),
    "usd-none": held(usd=None), "usd-text": held(usd="five"), "usd-negative": held(usd="-5"), "usd-nan": held(usd="nan"),
    "usd-NaN": held(usd=float("nan")), "usd-inf": held(usd="1e999"), "usd-true": held(usd=True), "says-number": held(says=5),
    "reason-list": held(reason=[]), "100-flood": b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000,
    "103": reply(HELD_ANSWER, "103 Early Hints"), "302": reply(HELD_ANSWER, "302 Found", more="Location: /v1/admit\r\n"),
    "307": reply({}, "307 Moved", more="Location: http://127.0.0.1:9/\r\n"), "418": reply(HELD_ANSWER, "418 Teapot"),
    "404": reply(b"no", "404 Not Found"), "400-html": reply(b"<html>", "400 Bad"), "400-object": reply({}, "400 Bad"),
    "409-html": reply(b"<html>", "409 Conflict"), "409-held": reply(HELD_ANSWER, "409 Conflict"),
    "409-object": reply({}, "409 Conflict"), "409-number": reply({"held": False, "says": 5}, "409 Conflict"),
    "429": reply({}, "429 Too Many"), "500": reply(b"", "500 Error"), "503": reply(HELD_ANSWER, "503 Error"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_bad_answer_is_no_hold_and_no_refusal_and_the_policy_decides(name: str) -> None:
    with answering(BAD[name]) as url:
        for fails in (OPEN, CLOSED):
            answer = AdmissionClient(url=url, token="x", fails=fails).admit({"usd": "1"})  # noqa: S106 - a test's
            assert (answer.outcome, answer.may_launch, answer.hold) == (UNKNOWN, fails == OPEN, "")
            assert f"fails {fails}" in answer.says
            assert answer.says.isprintable()


@pytest.mark.parametrize(
    "change",
    [{"would_fit": 5}, {"would_fit": [5, {}]}, {"unstated": {"a": 1}}, {"unstated": [None]}, {"says": "\ud800\x1b[2J\n"}],
    ids=str,
)
def test_a_refusal_stays_one_whatever_else_is_wrong_with_it(change: dict[str, object]) -> None:
    with answering(reply({"held": False, "says": "no", **change}, "409 Conflict")) as url:
        answer = AdmissionClient(url=url, token="x").admit({"usd": "1"})  # noqa: S106 - a test's
        assert (answer.outcome, answer.may_launch, answer.says.isprintable()) == (REFUSED, False, True)


HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n"


@pytest.mark.parametrize(
    ("scheme", "parts"),
    [("http", [b""]), ("http", [b"HTTP/1.1 200 OK\r\nx: "]), ("http", [HEAD + b"\r\n"]), ("https", [b"\x16\x03\x03\x40\x00"])],
    ids=["status", "header", "body", "handshake"],
)
def test_a_byte_now_and_then_does_not_outlast_the_deadline(scheme: str, parts: list[bytes]) -> None:
    """Each byte restarts a socket's timeout: the server sends them for as long as the test runs."""
    before = threading.active_count()
    with answering(*parts, pause_s=0.05) as url:
        asks = AdmissionClient(url=url.replace("http", scheme, 1), token="x", fails=CLOSED, timeout_s=0.5)  # noqa: S106 - a test's
        answer = asks.admit_rental({"gpu": "T4", "count": 2})
        assert (answer.outcome, answer.may_launch) == (UNKNOWN, False)
        assert "TimeoutError" in answer.says
        assert not asks.end("h-1", started=True)
    for thread in threading.enumerate()[before:]:
        thread.join(60)
    assert not [one for one in threading.enumerate() if one.name == "costguard-admission"], "the exchange has ended too"


def test_a_resolver_that_does_not_answer_does_not_outlast_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    resolved = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_words, **_named: resolved.wait(600) and [])
    asks = AdmissionClient(url="http://guard.example", token="x", timeout_s=0.2)  # noqa: S106 - a test's
    answer = asks.admit({"usd": "1"})
    resolved.set()
    assert (answer.outcome, answer.may_launch, "TimeoutError" in answer.says) == (UNKNOWN, True, True)


@pytest.mark.parametrize("run", [{"usd": float("nan")}, {"usd": {1}}, {"usd": b"1"}, {(1, 2): "x"}], ids=str)
def test_a_run_that_is_not_json_is_refused_and_nobody_asked(run: Any) -> None:  # noqa: ANN401 - any
    answer = AdmissionClient(url="http://127.0.0.1:9", token="x").admit(run)  # noqa: S106 - a test's
    assert (answer.outcome, answer.may_launch) == (REFUSED, False)


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd?", "ftp://127.0.0.1", "", "http://[", "http://127.0.0.1:99999", "http://a b"]
)
def test_an_address_of_another_kind_is_not_opened(url: str) -> None:
    assert AdmissionClient(url=url, token="x").admit({"usd": "1"}).outcome == UNKNOWN  # noqa: S106 - a test's


def test_settings_of_the_environment_are_checked_and_the_token_is_not_shown(tmp_path: Path) -> None:
    file, fifo = tmp_path / "token", tmp_path / "fifo"
    os.mkfifo(fifo)
    file.write_text("cg_secret\n")
    made = AdmissionClient.from_environment({"COSTGUARD_URL": "https://guard/", "COSTGUARD_TOKEN_FILE": str(file)})
    assert (made.url, made.token, made.fails) == ("https://guard", "cg_secret", OPEN)
    assert "secret" not in repr(made)
    for wrong in (
        {},
        {"COSTGUARD_URL": "guard", "COSTGUARD_TOKEN": "x"},
        {"COSTGUARD_URL": "https://guard"},
        {"COSTGUARD_URL": "https://guard", "COSTGUARD_TOKEN_FILE": str(tmp_path / "none")},
        {"COSTGUARD_URL": "https://guard", "COSTGUARD_TOKEN": "x", "COSTGUARD_FAIL": "maybe"},
        {"COSTGUARD_URL": "https://guard", "COSTGUARD_TOKEN": "x\r\ny: z"},
        {"COSTGUARD_URL": "https://guard", "COSTGUARD_TOKEN_FILE": str(fifo)},
        {"COSTGUARD_URL": "https://guard", "COSTGUARD_TOKEN_FILE": str(tmp_path)},
    ):
        with pytest.raises(SettingsError, match="COSTGUARD_"):
            AdmissionClient.from_environment(wrong)
