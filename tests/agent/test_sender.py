"""Beats against a real watchdog over HTTP that verifies, refuses, lies, drips and vanishes."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from costguard_agent import enrollment as joining
from costguard_agent import protocol
from costguard_agent.diagnostics import AgentError
from costguard_agent.http_client import parse_address
from costguard_agent.local_requests import LocalRequestQueue
from costguard_agent.protocol import SEQ_MOST
from costguard_agent.sender import ANSWERED, REFUSED, UNREACHABLE, UNVERIFIED, BeatSender
from costguard_agent.spool import RecordSpool, SequenceNumbers
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.agent.watchdog import AGENT, CODE, Asked, Misbehaviour, Watchdog


class Box:
    """A machine that joined, and what it has to tell."""

    def __init__(self, folder: Path, dog: Watchdog, ca: str = "") -> None:
        self.folder, self.dog = folder, dog
        self.joined = joining.join_watchdog(folder, dog.url, CODE, ca=ca)
        now = self.now_ms()
        self.spool, self.numbers, self.asks = RecordSpool(folder, now), SequenceNumbers(folder), LocalRequestQueue(folder)
        self.sender = BeatSender(self.joined, joining.load_key(folder), self.spool, self.numbers, self.asks)
        self.last = now

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def measure(self, many: int = 1) -> None:
        for _ in range(many):
            self.last += 1
            self.spool.add({"at": self.last, "over_s": 15.0, "signals": {"gpu_util": 99.0}}, self.last)


@pytest.fixture
def dog() -> Iterator[Watchdog]:
    made = Watchdog()
    yield made
    made.close()


@pytest.fixture
def box(tmp_path: Path, dog: Watchdog) -> Iterator[Box]:
    made = Box(tmp_path / "agent", dog)
    yield made
    made.sender.close()


def test_joining_makes_a_key_that_only_its_owner_reads(box: Box) -> None:
    assert box.joined.agent == AGENT
    assert stat.S_IMODE(box.folder.stat().st_mode) == 0o700
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in box.folder.iterdir() if path.is_file()}["key"] == 0o600
    assert joining.load_enrollment(box.folder) == box.joined


def test_a_key_that_others_may_read_is_refused(box: Box) -> None:
    (box.folder / "key").chmod(0o640)
    with pytest.raises(AgentError, match=r"others can read .*key, so the key may be known. Join again"):
        joining.load_key(box.folder)


def test_a_machine_joins_once_unless_it_is_told_again(box: Box) -> None:
    with pytest.raises(AgentError, match=r"has joined .* already: add --again"):
        joining.join_watchdog(box.folder, box.dog.url, CODE)
    before = joining.load_key(box.folder)
    joining.join_watchdog(box.folder, box.dog.url, CODE, again=True)
    assert joining.load_key(box.folder) != before


def test_a_join_that_was_cut_off_is_finished_with_the_same_key(tmp_path: Path, dog: Watchdog) -> None:
    def cut(asked: Asked) -> None:
        asked.close_connection = True
        if asked.command == "GET":
            asked.hello()

    dog.misbehave = cut
    with pytest.raises(AgentError, match="cannot be reached: it closed the connection"):
        joining.join_watchdog(tmp_path / "agent", dog.url, CODE)
    key = joining.load_key(tmp_path / "agent")
    dog.misbehave = None
    joining.join_watchdog(tmp_path / "agent", dog.url, CODE)
    assert joining.load_key(tmp_path / "agent") == key


def test_what_was_answered_is_told_once(box: Box) -> None:
    box.measure(3)
    assert box.sender.send_beat(box.now_ms(), ["no GPU"]).state == ANSWERED
    box.measure()
    assert box.sender.send_beat(box.now_ms(), []).state == ANSWERED
    assert [len(beat["records"]) for beat in box.dog.beats] == [3, 1]
    assert box.dog.beats[0]["troubles"] == ["no GPU"]
    assert len(box.spool) == 0


def test_a_connection_that_was_closed_meanwhile_is_opened_anew(box: Box) -> None:
    def closing(asked: Asked) -> None:
        asked.beat()
        asked.close_connection = True

    box.dog.misbehave = closing
    states = []
    for _ in range(3):
        states.append(box.sender.send_beat(box.now_ms(), []).state)
        time.sleep(0.05)
    assert states == [ANSWERED] * 3


def test_more_than_a_message_holds_is_told_in_several(box: Box) -> None:
    box.measure(1000)
    told = [box.sender.send_beat(box.now_ms(), []) for _ in range(5)]
    assert [one.more for one in told] == [True, True, True, True, False]
    assert len(box.dog.records) == 1000
    assert max(len(beat["records"]) for beat in box.dog.beats) == 240


def test_nobody_there_is_waited_for_ever_longer(box: Box) -> None:
    box.dog.close()
    box.measure()
    told = [box.sender.send_beat(box.now_ms(), []) for _ in range(12)]
    assert {one.state for one in told} == {UNREACHABLE}
    assert "no server is listening there" in told[0].why
    assert told[0].wait_s is not None
    assert told[-1].wait_s is not None
    assert told[0].wait_s <= 1
    assert 150 <= told[-1].wait_s <= 300
    assert len(box.spool) == 1


def slow(asked: Asked) -> None:
    asked.send_response(200)
    asked.send_header("Content-Length", "1000")
    asked.end_headers()
    try:
        for _ in range(40):
            asked.wfile.write(b"x")
            time.sleep(0.1)
    except OSError:
        return


def huge(asked: Asked) -> None:
    asked.send_response(200)
    asked.send_header("Content-Length", str(2**30))
    asked.end_headers()
    try:
        for _ in range(1024):
            asked.wfile.write(bytes(2**20))
    except OSError:
        return


@pytest.mark.parametrize(
    ("misbehave", "state", "why"),
    [
        (slow, UNREACHABLE, "no answer within 0.5 s"),
        (huge, UNREACHABLE, "an answer of more than 65536 bytes"),
        (lambda asked: asked.wfile.write(b"SSH-2.0-OpenSSH\r\n"), UNREACHABLE, "the server there does not use HTTP"),
        (lambda asked: asked.send(200, b"<html>", {}, "text/html"), UNVERIFIED, "its answer is text/html"),
        (lambda asked: asked.answer_signed(7), UNVERIFIED, "does not have the watchdog's key"),
        (
            lambda asked: asked.answer_signed(int(asked.headers["Costguard-Seq"]), Ed25519PrivateKey.generate()),
            UNVERIFIED,
            "does not have the watchdog's key",
        ),
        (lambda asked: asked.send(200, b"{}", {"Costguard-At": "9" * 5000, "Costguard-Signature": "!"}), UNVERIFIED, "key"),
        (
            lambda asked: asked.send(307, b"", {"Location": "https://other.example/"}),
            REFUSED,
            "points to https://other.example/, which is not followed",
        ),
    ],
)
def test_what_is_no_answer_of_the_watchdog_tells_nothing(box: Box, misbehave: object, state: str, why: str) -> None:
    box.measure()
    box.dog.misbehave = misbehave  # type: ignore[assignment]
    told = box.sender.send_beat(box.now_ms(), [], within_s=0.5)
    assert told.state == state
    assert why in told.why
    assert (len(box.spool), told.answer) == (1, {})
    box.dog.misbehave = None
    assert box.sender.send_beat(box.now_ms(), []).state == ANSWERED
    assert len(box.dog.records) == 1


@pytest.mark.parametrize(
    ("status", "name"),
    [
        (401, "unknown_agent"), (403, "foreign"), (410, "revoked"), (410, "another_life"), (404, "not_found"),
        (421, "wrong_host"),
    ],
)  # fmt: skip
def test_what_only_people_can_mend_is_said_and_tried_seldom(box: Box, status: int, name: str) -> None:
    box.dog.misbehave = lambda asked: asked.refuse(status, name)
    told = box.sender.send_beat(box.now_ms(), [])
    assert told.state == REFUSED
    assert f"refused ({status}): it is {name}" in told.why
    assert told.wait_s is not None
    assert told.wait_s >= 200


@pytest.mark.parametrize("status", [429, 503])
def test_a_watchdog_that_is_busy_says_how_long(box: Box, status: int) -> None:
    box.dog.misbehave = lambda asked: asked.refuse(status, "too_often", {"Retry-After": "77"})
    assert box.sender.send_beat(box.now_ms(), []).wait_s == 77
    box.dog.misbehave = lambda asked: asked.refuse(status, "too_often", {"Retry-After": "99999999"})
    assert box.sender.send_beat(box.now_ms(), []).wait_s == 3600


def test_a_message_too_large_is_sent_in_halves(box: Box) -> None:
    def strict(asked: Asked) -> None:
        asked.beat() if len(asked.body) < 1000 else asked.refuse(413, "too_large")

    box.measure(30)
    box.dog.misbehave = strict
    for _ in range(40):
        box.sender.send_beat(box.now_ms(), [])
    assert len(box.dog.records) == 30


def test_a_record_that_is_refused_by_itself_is_dropped_and_the_others_arrive(box: Box) -> None:
    def strict(asked: Asked) -> None:
        asked.refuse(400, "malformed") if b'"step":13.0' in asked.body else asked.beat()

    box.measure(5)
    box.spool.add({"at": box.last + 1, "over_s": 1.0, "signals": {"step": 13.0}}, box.last)
    box.last += 1
    box.measure(5)
    box.dog.misbehave = strict
    for _ in range(25):
        box.sender.send_beat(box.now_ms(), [])
    assert len(box.dog.records) == 10
    assert sum(beat["dropped"] for beat in box.dog.beats) >= 1
    assert len(box.spool) == 0


def test_a_message_that_is_refused_whatever_is_in_it_loses_no_record(box: Box) -> None:
    box.measure(4)
    box.dog.misbehave = lambda asked: asked.refuse(400, "malformed")
    for _ in range(12):
        box.sender.send_beat(box.now_ms(), [])
    box.dog.misbehave = None
    for _ in range(6):
        box.sender.send_beat(box.now_ms(), [])
    assert len(box.dog.records) == 4


def test_an_ask_that_is_refused_stops_no_beats(box: Box) -> None:
    def strict(asked: Asked) -> None:
        asked.refuse(400, "malformed") if b'"name":"odd"' in asked.body else asked.beat()

    box.measure(3)
    box.asks.add_request({"what": "phase", "name": "odd", "for_s": 7200}, box.now_ms(), "x")
    box.dog.misbehave = strict
    told = [box.sender.send_beat(box.now_ms(), []) for _ in range(8)]
    assert [why for one in told for _, why in one.done] == [f"the watchdog at {box.dog.url} refused (400): it is malformed"]
    assert len(box.dog.records) == 3


def test_a_clock_that_is_hours_off_is_measured_by_the_watchdogs(box: Box) -> None:
    box.dog.ahead_ms = -3_600_000
    told = box.sender.send_beat(box.now_ms(), [])
    assert told.state == REFUSED
    assert told.ahead_ms is not None
    assert abs(told.ahead_ms - 3_600_000) < 5000
    assert box.sender.send_beat(box.now_ms() - told.ahead_ms, []).state == ANSWERED


@pytest.mark.parametrize(
    ("misbehave", "alive"),
    [
        (lambda asked: asked.refuse(410, "revoked"), True),
        (lambda asked: asked.refuse(503, "unwritable"), True),
        (lambda asked: asked.refuse(409, "stale"), True),
        (lambda asked: asked.send(502, b"<h1>Bad Gateway</h1>", {}, "text/html"), False),
        (lambda asked: asked.send(503, b"[]", {}), False),
        (lambda asked: asked.send(200, b"<h1>Log in</h1>", {}, "text/html"), False),
        (lambda asked: asked.answer_signed(1, Ed25519PrivateKey.generate()), True),
        (None, False),
    ],
)
def test_what_refuses_as_a_watchdog_does_is_there_and_a_proxy_before_nobody_is_not(
    box: Box,
    misbehave: Misbehaviour | None,
    alive: bool,  # noqa: FBT001 - a case
) -> None:
    box.dog.misbehave = misbehave
    assert box.sender.send_beat(box.now_ms(), []).alive is alive


@pytest.mark.parametrize("said", ["9" * 19, "0", "1", "-5", "4102444800001"])
def test_a_moment_that_cannot_be_is_no_clock_to_go_by(box: Box, said: str) -> None:
    def squats(asked: Asked) -> None:
        asked.refuse(409, "stale", {protocol.AT_HEADER: said})

    box.dog.misbehave = squats
    assert box.sender.send_beat(box.now_ms(), []).ahead_ms is None
    box.dog.misbehave = None
    assert box.sender.send_beat(box.now_ms(), []).state == ANSWERED


def test_who_refuses_for_ever_does_not_use_up_the_numbers(box: Box) -> None:
    """A refusal is not signed: whoever sits at the end of a broken tunnel can send them."""
    box.dog.misbehave = lambda asked: asked.refuse(409, "replayed")
    for _ in range(60):
        box.sender.send_beat(box.now_ms(), [])
    box.dog.misbehave = None
    assert box.sender.send_beat(box.now_ms(), []).state == ANSWERED
    assert box.dog.seqs[-1] < SEQ_MOST // 1000
    assert box.sender.send_beat(box.now_ms(), []).state == ANSWERED


def test_numbers_that_were_used_already_are_passed_by(box: Box) -> None:
    box.dog.seqs.append(box.now_ms() + 10 * 3_600_000)
    states = [box.sender.send_beat(box.now_ms(), []).state for _ in range(6)]
    assert (states[0], states[-1]) == (REFUSED, ANSWERED)


def test_a_newer_watchdog_may_say_more_and_an_odd_one_anything(box: Box) -> None:
    box.dog.answer = {"new": {"deep": [1]}, "notices": 7, "kept_until": "x", "every_s": "soon"}
    told = box.sender.send_beat(box.now_ms(), [])
    assert (told.state, box.sender.every_s) == (ANSWERED, 15)
    box.dog.answer = {"every_s": 10**9}
    box.sender.send_beat(box.now_ms(), [])
    assert box.sender.every_s == 300


def test_an_ask_is_answered_by_name_and_once(box: Box) -> None:
    assert box.asks.add_request({"what": "keep", "for_s": 7200, "why": "a long night"}, box.now_ms(), "x") == ""
    box.dog.why_not = "the budget is spent"
    done = box.sender.send_beat(box.now_ms(), []).done
    assert [(ask.what, ask.reply_to, why) for ask, why in done] == [("keep", "x", "the budget is spent")]
    box.sender.send_beat(box.now_ms(), [])
    assert [len(beat["ask"]) for beat in box.dog.beats] == [1, 0]


def test_tls_is_verified_and_a_stated_authority_is_trusted(tmp_path: Path) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    ca = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(ca))
    dog = Watchdog(context=context)
    try:
        with pytest.raises(AgentError, match=r"certificate cannot be verified .*join with --ca FILE"):
            joining.join_watchdog(tmp_path / "one", dog.url, CODE)
        box = Box(tmp_path / "two", dog, str(ca))
        assert box.sender.send_beat(box.now_ms(), []).state == ANSWERED
        box.sender.close()
        assert box.joined.ca == str(ca)
    finally:
        dog.close()


class Proxy:
    """A small one that lets CONNECT through to loopback, and remembers who asked with what."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://ana:s%20ecret@127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                ours, _ = self._listening.accept()
                threading.Thread(target=self._pass, args=(ours,), daemon=True).start()

    def _pass(self, ours: socket.socket) -> None:
        asked = b""
        while not asked.endswith(b"\r\n\r\n"):
            asked += ours.recv(1)
        self.asked.append(asked.decode())
        host, _, port = asked.split()[1].decode().partition(":")
        with ours, socket.create_connection((host, int(port))) as theirs:
            ours.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            ends = [ours, theirs]
            with contextlib.suppress(OSError):
                while True:
                    for one in select.select(ends, [], [])[0]:
                        data = one.recv(65536)
                        if not data:
                            return
                        ends[1 - ends.index(one)].sendall(data)

    def close(self) -> None:
        self._listening.close()


def test_a_stated_proxy_is_used_and_sees_only_ciphers(tmp_path: Path) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    ca = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(ca))
    dog, proxy = Watchdog(context=context), Proxy()
    try:
        made = joining.join_watchdog(tmp_path / "agent", dog.url, CODE, ca=str(ca), proxy=proxy.url)
        assert made.agent == AGENT
        assert proxy.asked[0].startswith(f"CONNECT 127.0.0.1:{dog.port} ")
        assert "Proxy-Authorization: Basic YW5hOnMgZWNyZXQ=" in proxy.asked[0]
    finally:
        dog.close()
        proxy.close()


@pytest.mark.parametrize("proxy", ["https://p:1", "p:1", "http://", "http://p:99999", "http://p/x"])
def test_a_proxy_that_is_none_says_what_to_write(tmp_path: Path, proxy: str) -> None:
    with pytest.raises(AgentError, match=r"--proxy .*write http://HOST:PORT"):
        joining.join_watchdog(tmp_path / "agent", "https://127.0.0.1:1", CODE, proxy=proxy)


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org", "http://127.example.org:80", "ftp://x", "https://", "https://h/path", "https://u@h",
        "https://h:99999", "https://[::1",
    ],
)  # fmt: skip
def test_an_address_that_is_none_says_what_to_write(url: str) -> None:
    with pytest.raises(AgentError, match=r"https://|http only to this machine"):
        parse_address(url)
