"""Who means harm, or is odd, at the desk where agents report: no working machine may come to look idle by it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import trustme

from costguard.agents.messages import MessageRefusedError
from costguard.agents.requests import AgentVerdict
from costguard.errors import InputError
from costguard.web import listener
from costguard.web.middleware import PeerFilter
from tests.web.desks import MIN, NOON, Rig, S, beat, envelope, keys, ledger_at, record, rig
from tests.web.stations import station

ONE = keys()[0]
HOUR = 60 * MIN


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Rig]:
    with rig(ledger_at(tmp_path)) as made:
        yield made


def says(desk: Rig, agent: str, start: str, *, gpu: float) -> str:
    """What a process of the agent is answered: "taken", or what refuses it. A quarter of a minute goes by."""
    now = desk.clock.advance(15 * S)
    said = beat(record(now, gpu_util=gpu, agent_alive=1.0))
    said["agent"] = {"version": "0.1.0", "boot_id": start}
    try:
        desk.send(envelope(agent, desk.agent(agent).seq + 1, now, said))
    except MessageRefusedError as refused:
        return refused.name
    return "taken"


def test_of_two_boxes_with_one_disk_neither_is_heard_and_both_are_silent(desk: Rig) -> None:
    """A disk was copied: the copy idles under the key of a machine that works. Its key, numbers and clock are all right."""
    agent = desk.joined(ONE)
    for _ in range(8):
        assert says(desk, agent, "one", gpu=100.0) == "taken"
    assert says(desk, agent, "copy", gpu=0.0) == "taken", "it could be the same machine, started anew"
    heard = desk.agent(agent).beat_at
    found = {says(desk, agent, start, gpu=gpu) for _ in range(8) for start, gpu in (("one", 100.0), ("copy", 0.0))}
    assert found == {"doubled"}
    assert {says(desk, agent, "copy", gpu=0.0) for _ in range(4)} == {"doubled"}, "nor the one that goes on alone"
    assert [one.value for one in desk.samples(ONE) if one.signal == "gpu_util" and one.value < 50] == []
    assert desk.agent(agent).beat_at == heard, "what is not heard is silent, and that is told as blind"


def test_a_machine_that_is_started_again_and_again_is_heard_and_a_late_message_is_a_replay(desk: Rig) -> None:
    agent = desk.joined(ONE)
    assert {says(desk, agent, f"start-{number // 3}", gpu=7.0) for number in range(90)} == {"taken"}
    late = beat(record(desk.clock.now(), gpu_util=0.0))
    late["agent"] = {"version": "0.1.0", "boot_id": "start-28"}
    desk.desk.forget(agent)
    delayed = replace(desk.desk.check_message(envelope(agent, 91, desk.clock.now(), late)), seq=90)
    with pytest.raises(MessageRefusedError, match="replayed"):
        desk.taken(delayed)
    assert says(desk, agent, "start-29", gpu=7.0) == "taken"


def test_a_message_that_waited_to_be_written_is_dated_by_when_it_came(desk: Rig) -> None:
    agent = desk.joined(ONE)
    desk.clock.advance(MIN)
    at = desk.clock.now()
    incoming = desk.desk.check_message(envelope(agent, 1, at, beat(record(at, 60.0, gpu_util=3.0))))
    desk.clock.advance(40 * S)  # the ledger was locked
    desk.taken(incoming)
    assert [one.at for one in desk.samples(ONE)] == [at]


def test_a_watchdog_whose_clock_ran_an_hour_ahead_hears_its_agents_once_it_is_right(desk: Rig) -> None:
    """Else their records, all older than the last one, count for nothing for an hour, and nobody is told."""
    agent = desk.joined(ONE)
    desk.clock.advance(HOUR)
    for _ in range(10):  # the agent goes by the watchdog's clock, as it is told to
        assert says(desk, agent, "one", gpu=0.0) == "taken"
    desk.clock.jump(-HOUR)
    for _ in range(8):
        assert says(desk, agent, "one", gpu=99.0) == "taken"
    now = desk.clock.now()
    assert [one.value for one in desk.samples(ONE) if one.signal == "gpu_util" and one.at <= now] == [99.0, 99.0]


def test_an_agent_that_joins_with_records_of_another_machine_brings_none_of_them(desk: Rig) -> None:
    desk.clock.advance(HOUR)
    agent, now = desk.joined(ONE), desk.clock.now()
    elsewhere = [record(NOON + MIN * k, 60.0, gpu_util=0.0) for k in range(60)]
    desk.send(envelope(agent, 1, now, beat(*elsewhere)))
    assert desk.samples(ONE) == []


def test_a_guard_that_hangs_tells_no_agent_that_it_may_be_ended(desk: Rig) -> None:
    agent = desk.joined(ONE)
    desk.guarded.update_verdicts({ONE: AgentVerdict(state="idle", protected=False)}, NOON + 3 * MIN)
    assert desk.send(envelope(agent, 1, NOON, beat()))["protected"] is False
    desk.clock.advance(timedelta(minutes=3, seconds=1))
    answer = desk.send(envelope(agent, 2, desk.clock.now(), beat()))
    assert (answer["protected"], answer["state"], answer["kept_until"]) == (None, "unknown", None)


def test_a_body_with_a_length_and_in_chunks_is_refused_and_nothing_after_it_is_read(tmp_path: Path) -> None:
    """What a proxy took for the body of one request could else be a request of its own here."""
    hidden = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    head = b"POST /v1/agents/join HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with station(tmp_path) as watchdog, socket.create_connection((watchdog.at.host, watchdog.at.port), 20) as wire:
        wire.sendall(head + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden)
        said = b""
        with suppress(ConnectionResetError):
            while part := wire.recv(65536):
                said += part
    assert (said.count(b"HTTP/1.1 "), said.startswith(b"HTTP/1.1 400 "), b"malformed" in said) == (1, True, True)


def test_plain_http_is_spoken_with_the_named_proxy_and_this_machine_alone() -> None:
    """`behind_proxy` lets it listen anywhere without TLS: tokens of whoever came past the proxy would be read on the way."""
    peers = PeerFilter(lambda *_: None, "10.0.0.5")  # type: ignore[arg-type]  # it is not called
    assert peers.may(None), "a Unix socket of this user"
    good = ("10.0.0.5", "::ffff:10.0.0.5", "127.0.0.1", "::1", "::ffff:127.0.0.1")
    assert [peers.may((one, 1)) for one in good] == [True] * 5
    assert [peers.may((one, 1)) for one in ("10.0.0.6", "203.0.113.9", "fe80::1%eth0", "::ffff:10.0.0.6")] == [False] * 4


def test_who_comes_past_the_proxy_is_not_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with station(tmp_path, web='behind_proxy = "10.0.0.5"') as watchdog:
        assert watchdog.ask("GET", "/healthz").status == 503
        monkeypatch.setattr(PeerFilter, "may", lambda *_: False)
        assert watchdog.ask("GET", "/healthz", headers={"X-Forwarded-For": "127.0.0.1"}).status == 403


def test_a_key_of_tls_that_others_can_read_is_refused_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    web = tls(tmp_path)
    monkeypatch.setattr(listener, "describe_exposure", lambda path: "everybody can read it" if path.name == "tls.key" else "")
    with pytest.raises(InputError, match=r"tls\.key") as refused, station(tmp_path, web=web):
        pass
    assert f"chmod 600 {tmp_path}/tls.key" in str(refused.value)


def tls(folder: Path) -> str:
    """The settings of a server that speaks TLS; ca.pem has its authority."""
    authority = trustme.CA()
    made = authority.issue_cert("localhost", "127.0.0.1")
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    for one in made.cert_chain_pems:
        one.write_to_path(str(folder / "tls.crt"), append=True)
    made.private_key_pem.write_to_path(str(folder / "tls.key"))
    (folder / "tls.key").chmod(0o600)
    return f'tls_cert = "{folder}/tls.crt"\ntls_key = "{folder}/tls.key"'
