"""The channel between the watchdog and its door: what a door that was taken over, floods or sleeps can cost the watchdog."""

from __future__ import annotations

import socket
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from costguard.services.door_channel import (
    BURST,
    IN_FLIGHT_MOST,
    RATE,
    DoorChannel,
    connect_to_watchdog,
    find_socket,
)
from costguard.services.door_messages import (
    FRAME_MOST,
    LENGTH,
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
    encode_frame,
)
from costguard.services.web_backend import build_web_services
from costguard.settings import check_settings
from costguard.web.server import serve_http
from tests.web.desks import NOON, Rig, beat, carried, envelope, keys, ledger_at, record, rig
from tests.web.stations import JSON, Station


class Desk:
    """A desk that counts, and answers when it is told to."""

    def __init__(self) -> None:
        self.pulses, self.open = 0, list[tuple[int, Callable[[BeatReply], object]]]()
        self.says = ""

    def take_pulse(self, _: Pulse) -> None:
        self.pulses += 1

    def take_beat(self, offer: BeatOffer, answer: Callable[[BeatReply], object]) -> None:
        if self.says:
            answer(BeatReply(offer.number, state=self.says))
        else:
            self.open.append((offer.number, answer))

    def take_join(self, offer: JoinOffer, answer: Callable[[JoinReply], object]) -> None:
        answer(JoinReply(offer.number))

    def take_act(self, offer: PersonOffer, answer: Callable[[PersonReply], object]) -> None:
        answer(PersonReply(offer.number))

    def take_admission(self, offer: AdmitOffer | HoldEndOffer, answer: Callable[[AdmitReply | HoldEndReply], object]) -> None:
        answer(AdmitReply(offer.number))


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def channel(desk: Desk) -> Iterator[DoorChannel]:
    made = DoorChannel(desk)
    made.start()
    yield made
    made.end()


def until(ready: Callable[[], bool]) -> None:
    """Wait for another thread."""
    end = time.monotonic() + 30
    while not ready():
        assert time.monotonic() < end
        time.sleep(0.005)  # another thread is waited for


def offer(number: int) -> BeatOffer:
    return BeatOffer(number, "a", 1, 1795219215000, 1795219215000000, "", "", "", [], [], 0, [])


BAD = {
    "no MessagePack": LENGTH.pack(3) + b"\xc1\xc1\xc1",
    "too long": LENGTH.pack(FRAME_MOST + 1),
    "a type of the watchdog": encode_frame(BeatReply(1)),
    "a number below its bound": encode_frame(offer(1)).replace(b"\xa1a\x01", b"\xa1a\x00"),
    "nested without end": LENGTH.pack(FRAME_MOST) + b"\x91" * FRAME_MOST,
}


@pytest.mark.parametrize("sent", BAD.values(), ids=BAD.keys())
def test_a_frame_that_no_verified_message_can_be_ends_its_connection_and_no_other(
    channel: DoorChannel, desk: Desk, sent: bytes
) -> None:
    (good, theirs), (bad, others) = socket.socketpair(), socket.socketpair()
    kept, gone = channel.attach(theirs), channel.attach(others)
    with closing(good), closing(bad):
        bad.settimeout(30)
        bad.sendall(sent)
        assert bad.recv(10) == b""
        good.sendall(encode_frame(Pulse()))
        until(lambda: desk.pulses == 1)
        assert (kept.open, gone.open) == (True, False)


def test_a_door_that_floods_gets_its_budget_and_the_rest_waits_in_the_door(channel: DoorChannel, desk: Desk) -> None:
    ours, theirs = socket.socketpair()
    door, began = channel.attach(theirs), time.monotonic()
    flood = memoryview(encode_frame(Pulse()) * 200_000)
    with closing(ours):
        ours.settimeout(0.2)
        sent = 0
        while time.monotonic() < began + 1.5:
            try:
                sent += ours.send(flood[sent : sent + 65536])
            except TimeoutError:
                continue
        assert desk.pulses <= BURST + RATE * (time.monotonic() - began) + 100
        assert sent < len(flood), "the kernel holds it back"
        assert door.open
        assert len(door.inbox) < 2 * FRAME_MOST


def test_questions_without_an_answer_are_bounded(channel: DoorChannel, desk: Desk) -> None:
    ours, theirs = socket.socketpair()
    door = channel.attach(theirs)
    with closing(ours):
        ours.sendall(b"".join(encode_frame(offer(number)) for number in range(IN_FLIGHT_MOST + 50)))
        until(lambda: door.throttled)
        assert IN_FLIGHT_MOST <= len(desk.open) < IN_FLIGHT_MOST + 50
        for number, answer in list(desk.open):
            answer(BeatReply(number))
        until(lambda: len(desk.open) == IN_FLIGHT_MOST + 50)


def test_a_door_that_reads_no_answer_is_let_go(channel: DoorChannel, desk: Desk) -> None:
    desk.says = "x" * 60_000
    ours, theirs = socket.socketpair()
    door = channel.attach(theirs)
    with closing(ours):
        ours.sendall(b"".join(encode_frame(offer(number)) for number in range(200)))
        until(lambda: not door.open)


@pytest.mark.parametrize("name", ["short", "long" * 40])
def test_the_socket_is_for_this_user_alone_however_long_its_path_is(channel: DoorChannel, tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    assert channel.listen(folder)
    path = find_socket(folder)
    assert path is not None
    assert (stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(path.parent.stat().st_mode)) == (0o600, 0o700)
    wire = connect_to_watchdog(folder)
    assert wire is not None
    wire.close()
    assert not channel.listen(folder), "a watchdog listens there"


def test_a_folder_that_others_may_enter_is_not_used(channel: DoorChannel, tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o755)
    assert not channel.listen(tmp_path / "open")
    assert connect_to_watchdog(tmp_path / "open") is None


@pytest.mark.parametrize(
    ("changes", "name"),
    [({"agent": "nobody"}, "unknown_agent"), ({"sent_ms": 1795219215000}, "stale"), ({"seq": 1}, "replayed")],
)
def test_the_watchdog_asks_its_ledger_whatever_the_door_says(tmp_path: Path, changes: dict[str, object], name: str) -> None:
    import msgspec

    with rig(ledger_at(tmp_path)) as desk:
        agent = desk.joined(keys()[0])
        desk.send(envelope(agent, 1, NOON, beat(record(NOON))))
        packed = desk.desk.check_message(envelope(agent, 2, NOON, beat(record(NOON)))).pack(1)
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
    from tests.web.stations import station

    with station(tmp_path) as watchdog:
        watchdog.room.run_guard()
        agent, may = watchdog.joined(), watchdog.token()
        watchdog.enrol("i-1", "W" * 16)
    settings = check_settings(f'[ledger]\nurl = "{watchdog.url}"\n[web]\nlisten = "127.0.0.1:0"\n', "costguard.toml")
    with serve_http(build_web_services(settings), lambda: None) as at:
        alone = Station(watchdog.room, at, watchdog.url)
        came = alone.beat(agent, 1, beat())
        assert (came.status, came.data["error"], int(came.headers["retry-after"]) >= 1) == (503, "no_watchdog", True)
        joined = alone.join("W" * 16, bytes(range(1, 33)))
        assert (joined.status, joined.data["error"]) == (503, "no_watchdog")
        status = alone.ask("GET", "/v1/status", headers=may)
        assert (status.status, float(status.headers["costguard-guard-age"]) >= 0) == (200, True)
        assert alone.ask("POST", "/v1/agents/join", b"{}", JSON).status == 400
