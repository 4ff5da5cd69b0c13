"""The server over real connections: what it answers, whom it does not, and how it deals with those who mean it harm."""

from __future__ import annotations

import gzip
import socket
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from http.client import HTTPResponse
from pathlib import Path

import pytest
from costguard_agent import ed25519
from costguard_agent.protocol import AT_HEADER, SIGNATURE_HEADER, build_signed_answer, decode_base64

from costguard.web import middleware, protocol, server
from tests.web.desks import CODE, beat
from tests.web.stations import JSON, Station, station

POST = b"POST /v1/agents/join HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
SECURE = {
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
}


@pytest.fixture
def watchdog(tmp_path: Path) -> Iterator[Station]:
    with station(tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Station]:
    """One that has judged, for questions that change nothing."""
    with station(tmp_path_factory.mktemp("shared")) as made:
        made.room.run_guard()
        yield made


def test_an_agent_joins_reports_and_knows_the_answer_for_the_watchdogs(watchdog: Station) -> None:
    watchdog.enrol()
    joined = watchdog.join()
    assert joined.status == 200
    assert joined.data["name"] == "train-0"
    agent, guard = joined.data["agent"], decode_base64(joined.data["guard_key"])
    came = watchdog.beat(agent, 1, beat())
    assert came.status == 200, came.body
    text = build_signed_answer(agent=agent, seq=1, at_ms=int(came.headers[AT_HEADER.lower()]), body=came.body)
    signature = decode_base64(came.headers[SIGNATURE_HEADER.lower()])
    assert guard is not None
    assert signature is not None
    assert ed25519.verify(guard, text, signature)
    assert (came.data["seq"], came.data["every_s"], came.data["state"]) == (1, 15, "unknown")
    watchdog.room.run_guard()
    assert watchdog.beat(agent, 1, beat()).data == {"error": "replayed", "says": watchdog.beat(agent, 1, beat()).data["says"]}
    (key_file,) = tmp_files(watchdog, "*web-key")
    assert key_file.stat().st_mode & 0o777 == 0o600


def tmp_files(watchdog: Station, pattern: str) -> list[Path]:
    return list(Path(watchdog.url.removeprefix("sqlite:///")).parent.glob(pattern))


def test_the_status_is_read_with_a_token_and_made_once_a_run(watchdog: Station) -> None:
    assert watchdog.ask("GET", "/v1/status").data["error"] == "no_token"
    assert watchdog.ask("GET", "/v1/status", headers={"Authorization": "Bearer wrong"}).status == 401
    may = watchdog.token()
    early = watchdog.ask("GET", "/v1/status", headers=may)
    assert (early.status, early.data["error"]) == (503, "not_ready")
    watchdog.room.run_guard()
    first = watchdog.ask("GET", "/v1/status", headers=may)
    assert first.status == 200, first.body
    assert first.data["schema"] == "costguard.status/1"
    assert [one["name"] for one in first.data["resources"]] == ["train-0", "train-1"]
    assert watchdog.ask("GET", "/v1/status", headers=may).body == first.body
    again = watchdog.ask("GET", "/v1/status", headers={**may, "If-None-Match": first.headers["etag"]})
    assert (again.status, again.body) == (304, b"")
    watchdog.room.run_guard()
    later = watchdog.ask("GET", "/v1/status", headers={**may, "If-None-Match": first.headers["etag"]})
    assert later.status == 200
    assert later.data["at"] >= first.data["at"]


def test_a_token_that_ran_out_or_was_revoked_lets_nobody_in(watchdog: Station) -> None:
    watchdog.room.run_guard()
    gone = watchdog.token("cg_old", name="old", lasts=timedelta(microseconds=1))
    assert watchdog.ask("GET", "/v1/status", headers=gone).status == 401
    may = watchdog.token()
    assert watchdog.ask("GET", "/v1/status", headers=may).status == 200
    from costguard.ledger.agents.store import AgentStore

    with AgentStore(watchdog.url) as book:
        book.revoke_token("ada", who="x", now=watchdog.room.clock.now())
    assert watchdog.ask("GET", "/v1/status", headers=may).status == 401


def test_health_says_how_old_the_last_run_is_and_nothing_else(watchdog: Station) -> None:
    early = watchdog.ask("GET", "/healthz")
    assert (early.status, early.data) == (503, {"state": "never", "guard_age_s": None})
    watchdog.room.run_guard()
    came = watchdog.ask("GET", "/healthz")
    assert (came.status, came.data["state"], set(came.data)) == (200, "ok", {"state", "guard_age_s"})


@pytest.mark.parametrize("path", ["/docs", "/redoc", "/v1", "/v1/agents/x", "/..%2f..%2fetc/passwd", "/v1/status/"])
def test_there_is_nothing_else_and_it_is_said_in_one_sentence(shared: Station, path: str) -> None:
    came = shared.ask("GET", path)
    assert came.status in (404, 405), came.status
    assert set(came.data) == {"error", "says"}
    assert {name: came.headers.get(name) for name in SECURE} == SECURE
    assert "server" not in came.headers


@pytest.mark.parametrize("host", ["evil.example", "guard.example.evil.example", "127.0.0.1.nip.io", ""])
def test_a_host_that_nobody_named_is_misdirected(shared: Station, host: str) -> None:
    assert shared.ask("GET", "/healthz", headers={"Host": host}).status == 421


@pytest.mark.parametrize("host", ["localhost:8470", "127.0.0.1", "LOCALHOST.", "[::1]:80"])
def test_hosts_of_this_machine_are_asked(shared: Station, host: str) -> None:
    assert shared.ask("GET", "/healthz", headers={"Host": host}).status == 200


def test_no_other_page_may_read_it(shared: Station) -> None:
    came = shared.ask(
        "OPTIONS", "/v1/status", headers={"Origin": "https://evil.example", "Access-Control-Request-Method": "GET"}
    )
    assert came.status == 405
    assert not any(name.startswith("access-control") for name in came.headers)


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({**JSON, "Content-Encoding": "gzip"}, gzip.compress(b" " * 10**7), 415),
        ({"Content-Type": "text/plain"}, b"{}", 415), ({}, b"{}", 415), (JSON, b" " * (64 * 1024 + 1), 413),
        ({**JSON, "Content-Length": "9" * 15}, b"", 413), ({**JSON, "Content-Length": "9" * 30}, b"", 400),
        (JSON, b"[" * 60_000, 400), (JSON, b"\xff\xfe{", 400), (JSON, b"1" * 60_000, 400),
    ],
)  # fmt: skip
def test_a_body_that_means_harm_is_refused(shared: Station, headers: dict[str, str], body: bytes, status: int) -> None:
    came = shared.ask("POST", "/v1/agents/join", body, headers)
    assert (came.status, set(came.data)) == (status, {"error", "says"})


@pytest.mark.parametrize("start", [POST, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"], ids=["post", "get"])
def test_a_body_in_chunks_is_refused_before_its_first_chunk_is_read(shared: Station, start: bytes) -> None:
    with socket.create_connection((shared.at.host, shared.at.port), 20) as wire:
        wire.sendall(start + b"Transfer-Encoding: chunked\r\n\r\n")
        answer = wire.recv(65536)
    assert b" 400 " in answer.partition(b"\r\n")[0]
    assert b"must not come in chunks" in answer


def test_guessing_codes_is_slowed_down_and_holds_up_nobody_who_has_one(watchdog: Station) -> None:
    found = [watchdog.join(code=f"{number:016}").status for number in range(40)]
    assert set(found) == {403, 429}
    assert found.index(429) <= 31
    slowed = watchdog.join(code="Q" * 16)
    assert (slowed.status, int(slowed.headers["retry-after"]) >= 1) == (429, True)
    watchdog.enrol()
    assert watchdog.join(CODE).status == 200, "who guesses holds up nobody behind the same address who has a code"


def test_one_who_sends_a_head_byte_by_byte_is_cut_off_and_others_are_answered(
    watchdog: Station, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "HEAD_S", 0.5)
    monkeypatch.setattr(middleware, "BODY_S", 0.5)
    slow = [socket.create_connection((watchdog.at.host, watchdog.at.port)) for _ in range(30)]
    for wire in slow[:15]:
        wire.sendall(b"GET /healthz HTTP/1.1\r\nHost: local")
    for wire in slow[15:]:
        wire.sendall(POST + b"Content-Length: 9\r\n\r\n{")
    watchdog.room.run_guard()
    assert watchdog.ask("GET", "/healthz").status == 200
    for number, wire in enumerate(slow):
        wire.settimeout(20)
        try:
            said = wire.recv(65536)
        except ConnectionResetError:
            said = b""
        assert said == b"" if number < 15 else b" 408 " in said.partition(b"\r\n")[0], said
        wire.close()


def _ask_health(wire: socket.socket) -> int:
    """Ask over `wire`, read the whole answer, and return its status."""
    wire.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    answer = HTTPResponse(wire)
    answer.begin()
    answer.read()
    return answer.status


def test_of_more_connections_than_there_may_be_the_longest_quiet_makes_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_raise_connection_limit", lambda: 10)
    with station(tmp_path) as watchdog:
        watchdog.room.run_guard()
        held = [socket.create_connection((watchdog.at.host, watchdog.at.port), 20) for _ in range(5)]
        assert _ask_health(held[0]) == 200
        assert watchdog.ask("GET", "/healthz").status == 200
        with suppress(ConnectionResetError):
            assert held[1].recv(10) == b"", "it was quiet for the longest"
        assert _ask_health(held[0]) == 200
        for wire in held:
            wire.close()


def test_what_breaks_inside_is_told_without_a_trace(watchdog: Station, monkeypatch: pytest.MonkeyPatch) -> None:
    from costguard.services.report.run_board import RunBoard

    def breaks(_: RunBoard) -> None:
        raise RuntimeError("secret-of-the-house")

    watchdog.room.run_guard()
    may = watchdog.token()
    monkeypatch.setattr(RunBoard, "read", breaks)
    came = watchdog.ask("GET", "/v1/status", headers=may)
    assert (came.status, came.data["error"]) == (500, "broken")
    assert b"secret" not in came.body
