"""What the web hands over to the watchdog: what a web that was taken over, floods or sleeps can cost it."""

from __future__ import annotations

import http.client
import socket
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

import msgspec
import pytest

from costguard.errors import InputError
from costguard.services.serving.door_messages import (
    BODY_MOST,
    PATHS,
    AdmitOffer,
    AdmitReply,
    BeatOffer,
    BeatReply,
    HoldEndOffer,
    HoldEndReply,
    JoinOffer,
    JoinReply,
    PersonOffer,
    PersonReply,
    Pulse,
    RunNote,
    encode_beats,
    encode_message,
)
from costguard.services.serving.web_backend import build_web_services
from costguard.settings import check_settings
from costguard.web import watchdog_server
from costguard.web.server import serve_http
from costguard.web.watchdog_server import serve_desk
from costguard.web.watchdog_socket import bind_watchdog_socket, find_watchdog_socket
from tests.web.desks import NOON, Rig, beat, carried, envelope, keys, ledger_at, record, rig
from tests.web.stations import JSON, Station, station


class Desk:
    """A desk that counts, and answers when it is told to."""

    def __init__(self) -> None:
        self.pulses, self.open = 0, list[Callable[[BeatReply], object]]()

    def take_pulse(self, _: Pulse) -> RunNote:
        self.pulses += 1
        return RunNote(7, committed=True)

    def take_beat(self, _: BeatOffer, answer: Callable[[BeatReply], object]) -> None:
        self.open.append(answer)

    def take_join(self, _: JoinOffer, answer: Callable[[JoinReply], object]) -> None:
        answer(JoinReply())

    def take_act(self, _: PersonOffer, answer: Callable[[PersonReply], object]) -> None:
        answer(PersonReply())

    def take_admission(self, _: AdmitOffer | HoldEndOffer, answer: Callable[[AdmitReply | HoldEndReply], object]) -> None:
        answer(AdmitReply())


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def path(desk: Desk, tmp_path: Path) -> Iterator[Path]:
    where, bound = bind_watchdog_socket(tmp_path / "own" / "socket")
    with serve_desk(desk, bound):
        yield where


@contextmanager
def wire(path: Path) -> Iterator[http.client.HTTPConnection]:
    made = http.client.HTTPConnection("watchdog")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as made.sock:
        made.sock.settimeout(30)
        made.sock.connect(str(path))
        yield made


def post(path: Path, where: str, body: bytes) -> tuple[int, bytes]:
    with wire(path) as made:
        made.request("POST", where, body)
        came = made.getresponse()
        return came.status, came.read()


def until(ready: Callable[[], bool]) -> None:
    """Wait for another thread."""
    end = time.monotonic() + 30
    while not ready():
        assert time.monotonic() < end
        time.sleep(0.005)  # another thread is waited for


OFFER = BeatOffer("a", 1, 1795219215000, 1795219215000000, "", "", "", [], [], 0, [])
BAD = {
    "no JSON": b"\xc1",
    "too long": b" " * (BODY_MOST + 1),
    "of another kind": encode_message(BeatReply()),
    "a number below its bound": encode_message(OFFER).replace(b'"seq":1', b'"seq":0'),
    "nested without end": b"[" * BODY_MOST,
}


@pytest.mark.parametrize("sent", BAD.values(), ids=BAD.keys())
def test_what_no_verified_message_can_be_is_refused_and_nothing_else(path: Path, desk: Desk, sent: bytes) -> None:
    assert post(path, PATHS[JoinOffer], sent)[0] == 400
    assert post(path, PATHS[BeatOffer], sent)[0] == 400
    status, said = post(path, PATHS[BeatOffer], b"[" + encode_message(BeatReply()) + b"]")
    assert (status, msgspec.json.decode(said)[0]["refused"]) == (200, "malformed")
    assert post(path, "/nothing", b"")[0] == 404
    assert post(path, PATHS[Pulse], encode_message(Pulse())) == (200, encode_message(RunNote(7, committed=True)))
    assert (desk.pulses, desk.open) == (1, [])


def test_a_web_that_floods_gets_its_budget_and_the_rest_waits_in_the_web(path: Path, desk: Desk) -> None:
    began, head = time.monotonic(), b"POST /pulse HTTP/1.1\r\nHost: w\r\nContent-Length: 2\r\n\r\n{}"
    used = time.process_time()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as flood:
        flood.settimeout(0.2)
        flood.connect(str(path))
        data, sent = memoryview(head * 20_000), 0
        while time.monotonic() < began + 3:
            with suppress(TimeoutError):
                sent += flood.send(data[sent : sent + 65536])
        assert sent < len(data), "the kernel holds it back"
    spent = time.process_time() - used
    assert spent < 0.7 * (time.monotonic() - began), "a quarter of a core, and half a second at once"
    assert desk.pulses > 0
    assert post(path, PATHS[Pulse], b"{}")[0] == 200


def test_questions_without_an_answer_are_bounded(desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog_server, "IN_FLIGHT_MOST", 10)
    body = encode_beats([OFFER])
    head = f"POST {PATHS[BeatOffer]} HTTP/1.1\r\nHost: w\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    path, bound = bind_watchdog_socket(tmp_path / "own" / "socket")
    with serve_desk(desk, bound), ExitStack() as stack:
        wires = [stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) for _ in range(15)]
        for number, made in enumerate(wires, 1):
            made.settimeout(30)
            made.connect(str(path))
            made.sendall(head + body)
            taken = partial(lambda most: len(desk.open) == most, min(number, 9))
            until(taken)
        assert [one.recv(12) for one in wires[9:]] == [b"HTTP/1.1 503"] * 6
        for answer in desk.open:
            answer(BeatReply(state="idle"))
        assert wires[0].recv(1000).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("name", ["short", "long" * 40])
def test_the_socket_is_for_this_user_alone_however_long_its_path_is(desk: Desk, tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    settings = check_settings(f'[ledger]\nurl = "sqlite:///{tmp_path}/{name}/ledger.db"\n', "costguard.toml")
    first, bound = bind_watchdog_socket(find_watchdog_socket(settings))
    assert (stat.S_IMODE(first.stat().st_mode), stat.S_IMODE(first.parent.stat().st_mode)) == (0o600, 0o700)
    with serve_desk(desk, bound):
        other, second = bind_watchdog_socket(find_watchdog_socket(settings))
        second.close()
        assert other != first, "a watchdog listens there"
    other.unlink()
    again, bound = bind_watchdog_socket(find_watchdog_socket(settings))
    bound.close()
    assert again == first, "a stale one is replaced"
    again.unlink()


def test_a_folder_that_others_may_enter_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o755)
    with pytest.raises(InputError, match="can be accessed by other users"):
        bind_watchdog_socket(tmp_path / "open" / "socket")


@pytest.mark.parametrize(
    ("changes", "name"),
    [({"agent": "nobody"}, "unknown_agent"), ({"sent_ms": 1795219215000}, "stale"), ({"seq": 1}, "replayed")],
)
def test_the_watchdog_asks_its_ledger_whatever_the_web_says(tmp_path: Path, changes: dict[str, object], name: str) -> None:
    with rig(ledger_at(tmp_path)) as desk:
        agent = desk.joined(keys()[0])
        desk.send(envelope(agent, 1, NOON, beat(record(NOON))))
        packed = desk.desk.check_message(envelope(agent, 2, NOON, beat(record(NOON)))).pack()
        before = desk.state()
        assert ask(desk, msgspec.structs.replace(packed, **changes)).refused == name
        assert desk.state()[0] == before[0]


def ask(desk: Rig, offered: BeatOffer) -> BeatReply:
    """The watchdog's reply."""
    replies, arrived = list[BeatReply](), carried(offered)
    assert isinstance(arrived, BeatOffer)
    desk.guarded.take_beat(arrived, replies.append)
    until(lambda: bool(replies))
    return replies[0]


def test_without_a_watchdog_messages_are_refused_and_readers_are_told_how_old_the_last_run_is(tmp_path: Path) -> None:
    with station(tmp_path) as watchdog:
        watchdog.room.run_guard()
        agent, may = watchdog.joined(), watchdog.token()
        watchdog.enrol("i-1", "W" * 16)
    settings = check_settings(f'[ledger]\nurl = "{watchdog.url}"\n[web]\nlisten = "127.0.0.1:0"\n', "costguard.toml")
    for path in (None, tmp_path / "no-socket"):
        with serve_http(build_web_services(settings), path) as at:
            alone = Station(watchdog.room, at, watchdog.url)
            came = alone.beat(agent, 1, beat())
            assert (came.status, came.data["error"], int(came.headers["retry-after"]) >= 1) == (503, "no_watchdog", True)
            joined = alone.join("W" * 16, bytes(range(1, 33)))
            assert (joined.status, joined.data["error"]) == (503, "no_watchdog")
            status = alone.ask("GET", "/v1/status", headers=may)
            assert (status.status, float(status.headers["costguard-guard-age"]) >= 0) == (200, True)
            assert alone.ask("POST", "/v1/agents/join", b"{}", JSON).status == 400
