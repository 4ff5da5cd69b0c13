"""Each fault of the proxy really happens: what a plain socket sees of it. Without these, a zero elsewhere would say nothing."""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.fakes.server import serving
from tests.networks.plan import BODY, CONNECT, DOWN, UP, Fault
from tests.networks.proxy import NOISE, Proxy, port_of, proxied
from tests.providers.transport.wires import Told

ASK = b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody"
RIGHT = b'{"ok": true}'
WAIT_S = 20.0
SOON_S = 0.3
"""Seconds for which nothing comes where nothing may come."""


@contextmanager
def before(cloud: Told, *plan: Fault) -> Iterator[Proxy]:
    with serving(cloud) as base, proxied(port_of(base), plan, cloud.line) as proxy:
        yield proxy


def heard(proxy: Proxy, *, asks: int = 1, wait_s: float = WAIT_S) -> bytes | str:
    """All that comes on one connection until it ends; the name of the error that ends it, or "silence"."""
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=wait_s) as line:
        said = b""
        try:
            for number in range(asks):
                line.sendall(ASK)
                while said.count(RIGHT) <= number:
                    piece = line.recv(65536)
                    if not piece:
                        return said
                    said += piece
        except TimeoutError:
            return said or "silence"
        except OSError as broken:
            return errno.errorcode[broken.errno or 0]
        return said


def test_an_answer_is_cut_at_the_byte_that_the_plan_names() -> None:
    with before(Told(), Fault(kind="cut", part=BODY, at=5)) as proxy:
        said = heard(proxy)
        assert isinstance(said, bytes)
        assert said.endswith(b"\r\n\r\n" + RIGHT[:5])
        assert isinstance(heard(proxy), bytes), "once"
    assert [(number, name) for number, name, _ in proxy.struck] == [(1, "POST /a")]


def test_a_request_is_cut_and_the_fake_counts_it_and_never_answers_it() -> None:
    cloud = Told()
    with before(cloud, Fault(kind="cut", side=UP, part=BODY, at=2)) as proxy:
        assert heard(proxy) == b""
        while not cloud.cut_short:
            time.sleep(0.001)
    assert cloud.asked == []


def test_a_reset_is_a_reset_and_no_end() -> None:
    with before(Told(), Fault(kind="reset", part=BODY, at=5)) as proxy:
        assert heard(proxy) == "ECONNRESET"


def test_half_a_connection_ends_and_the_other_half_does_not() -> None:
    cloud = Told()
    with (
        before(cloud, Fault(kind="half", part=BODY, at=5)) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port), timeout=WAIT_S) as line,
    ):
        line.sendall(ASK)
        said = b""
        while piece := line.recv(65536):
            said += piece
        line.sendall(ASK)
        while len(cloud.asked) < 2:
            time.sleep(0.001)
    assert said.endswith(RIGHT[:5])


@pytest.mark.parametrize("side", [UP, DOWN, CONNECT])
def test_out_of_a_black_hole_nothing_comes(side: str) -> None:
    cloud = Told()
    with before(cloud, Fault(kind="hole", side=side)) as proxy:
        assert heard(proxy, wait_s=SOON_S) == "silence"
    assert len(cloud.asked) == (side == DOWN)


def test_a_drip_and_a_delay_come_whole_and_late() -> None:
    with before(Told(), Fault(kind="drip", part=BODY, seconds=0.02), Fault(kind="delay", seconds=0.3, skip=1)) as proxy:
        for least_s in (0.02 * (len(RIGHT) - 1), 0.3):
            began = time.monotonic()
            said = heard(proxy)
            assert isinstance(said, bytes)
            assert said.endswith(RIGHT)
            assert time.monotonic() - began >= least_s


def test_a_byte_is_changed_and_no_other() -> None:
    with before(Told(), Fault(kind="corrupt", part=BODY, at=2)) as proxy:
        said = heard(proxy, wait_s=SOON_S)
        assert isinstance(said, bytes)
        body = said.partition(b"\r\n\r\n")[2]
    assert [n for n, (got, right) in enumerate(zip(body, RIGHT, strict=True)) if got != right] == [2]


def test_garbage_comes_first() -> None:
    with before(Told(), Fault(kind="garbage", side=CONNECT)) as proxy:
        said = heard(proxy)
        assert isinstance(said, bytes)
        assert said.startswith(NOISE)
        assert said.endswith(RIGHT)


def test_a_full_backlog_answers_no_connection() -> None:
    with before(Told()) as proxy:
        proxy.fill()
        with pytest.raises(TimeoutError):
            socket.create_connection(("127.0.0.1", proxy.port), timeout=SOON_S)
        proxy.heal()
        assert isinstance(heard(proxy), bytes)


def test_bytes_that_are_no_http_are_struck_by_what_they_say_and_by_connection() -> None:
    cloud = Told()
    plan = (Fault(kind="cut", side=UP, mark="POST /a", connections=(2,)),)
    with serving(cloud) as base, proxied(port_of(base), plan) as proxy:
        assert isinstance(heard(proxy), bytes)
        assert heard(proxy) == b""
        said = heard(proxy)
        assert isinstance(said, bytes)
        assert said.endswith(RIGHT)
    assert [number for number, _, _ in proxy.struck] == [2]
