"""Limits of a connection: reads, bytes, seconds, and what all connections hold together; and nginx in front."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from http.client import HTTPResponse
from pathlib import Path

import pytest

from costguard.web import middleware, protocol, server
from tests.web.proxies import NGINX, proxy
from tests.web.stations import Station, station

GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /v1/agents/join HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
PLENTY = 60_000


@pytest.fixture(scope="module")
def watchdog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Station]:
    """One that has judged."""
    with station(tmp_path_factory.mktemp("protocol"), web='behind_proxy = "127.0.0.1"') as made:
        made.room.run_guard()
        yield made


def connect(watchdog: Station) -> socket.socket:
    return socket.create_connection((watchdog.at.host, watchdog.at.port), 20)


def read_all(wire: socket.socket) -> bytes:
    """Read until the server closes the connection, in whatever way."""
    parts = list[bytes]()
    with suppress(ConnectionResetError):
        while part := wire.recv(65536):
            parts.append(part)
    return b"".join(parts)


def read_status(wire: socket.socket) -> int:
    answer = HTTPResponse(wire)
    answer.begin()
    answer.read()
    return answer.status


def is_held(watchdog: Station, wire: socket.socket) -> bool:
    """Return whether a process still has the server's end of `wire` open, by the kernel's table."""
    ends = {f":{watchdog.at.port:04X}", f":{wire.getsockname()[1]:04X}"}
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(
        {line[1][8:], line[2][8:]} == ends and line[1].endswith(f":{watchdog.at.port:04X}") and line[9] != "0" for line in lines
    )


def test_a_head_of_too_many_headers_is_refused_by_its_number(watchdog: Station) -> None:
    with connect(watchdog) as wire:
        wire.sendall(GET + b"a: b\r\n" * protocol.HEADERS_MOST + b"\r\n")
        assert b"more than 100 headers" in read_all(wire)


def test_a_request_that_comes_in_too_many_pieces_ends_its_connection(
    watchdog: Station, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "READS_MOST", 20)
    with connect(watchdog) as wire:
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        wire.sendall(POST + b"Content-Length: 60000\r\n\r\n")
        with suppress(ConnectionError):
            for _ in range(PLENTY):
                wire.sendall(b" ")
        assert b"HTTP/1.1 2" not in read_all(wire)
    assert watchdog.ask("GET", "/healthz").status == 200


def test_what_is_sent_beyond_a_request_is_not_kept_and_the_answer_ends_the_connection(watchdog: Station) -> None:
    with connect(watchdog) as wire:
        with suppress(ConnectionError):
            wire.sendall(GET + b"Content-Length: 999999999\r\n\r\n" + b" " * 10_000_000)
        answer = read_all(wire)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 200")


def test_requests_that_are_sent_at_once_are_all_answered(watchdog: Station) -> None:
    with connect(watchdog) as wire:
        wire.sendall((GET + b"\r\n") * 20 + GET + b"Connection: close\r\n\r\n")
        assert read_all(wire).count(b"HTTP/1.1 200") == 21


def test_when_unfinished_requests_hold_all_that_they_may_a_large_one_is_cut_off_and_a_small_one_answered(
    watchdog: Station, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "HELD_MOST", 2 * PLENTY)
    with ExitStack() as stack:
        wires = [stack.enter_context(connect(watchdog)) for _ in range(5)]
        for wire in wires:
            with suppress(ConnectionError):
                wire.sendall(POST + b"Content-Length: 65000\r\n\r\n" + b" " * PLENTY)
        assert read_all(wires[4]) == b"", "the last one was too much"
        assert watchdog.ask("GET", "/healthz").status == 200
    with connect(watchdog) as wire:  # those before have left, and what they held is free again
        wire.sendall(POST + b"Content-Length: 60000\r\n\r\n" + b" " * PLENTY)
        assert read_status(wire) == 400


def test_who_reads_nothing_loses_the_connection_at_the_deadline(watchdog: Station, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "REQUEST_S", 0.5)
    monkeypatch.setattr(middleware, "WHOLE_S", 0.2)
    with socket.socket() as wire:
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        wire.settimeout(20)
        wire.connect((watchdog.at.host, watchdog.at.port))
        wire.sendall((b"GET /costguard-agent.pyz HTTP/1.1\r\nHost: localhost\r\n\r\n") * 50)
        assert watchdog.ask("GET", "/healthz").status == 200
        assert is_held(watchdog, wire)
        ends = time.monotonic() + 20
        while is_held(watchdog, wire) and time.monotonic() < ends:
            time.sleep(0.05)  # the server's thread is waited for
        assert not is_held(watchdog, wire), "what it wrote is the kernel's, and the server has closed it"


def test_connections_beyond_the_limit_and_its_spare_ones_are_closed_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_raise_connection_limit", lambda: 5)
    monkeypatch.setattr(protocol, "SPARE_CONNECTIONS", 5)
    with station(tmp_path) as small, ExitStack() as stack:
        wires = [stack.enter_context(connect(small)) for _ in range(12)]
        assert read_all(wires[11]) == b""
        wires[0].sendall(GET + b"\r\n")
        assert read_status(wires[0]) == 503


@pytest.mark.skipif(NGINX is None, reason="nginx is not installed: apt-get install nginx-light")
def test_the_shipped_nginx_answers_others_beside_one_address_with_unfinished_requests(
    watchdog: Station, tmp_path: Path
) -> None:
    with proxy(tmp_path, watchdog.at.port) as front, ExitStack() as stack:
        for _ in range(110):
            wire = stack.enter_context(front.connect("127.0.0.3"))
            with suppress(ConnectionError, ssl.SSLError):
                wire.sendall(POST + b"Content-Length: 65000\r\n\r\n{")
        with front.connect("127.0.0.3") as wire:
            wire.sendall(GET + b"\r\n")
            assert read_status(wire) == 429
        with front.connect("127.0.0.2") as wire:
            wire.sendall(GET + b"\r\n")
            assert read_status(wire) == 200
            wire.sendall(POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n")
            assert read_status(wire) == 400, "nginx states the length of a body that came in chunks"
