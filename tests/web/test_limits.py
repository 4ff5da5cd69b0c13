"""Limits on what anybody may cost: bytes, names of hosts, keys, and processor time of one request."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator

import pytest
from costguard_agent.protocol import AT_HEADER, BEATS_PATH, SEQ_HEADER, SIGNATURE_HEADER, encode_base64
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from costguard.settings.web import parse_host_header
from costguard.web.middleware import LOOPBACK, name_client
from costguard.web.signing import FIELD_PRIME, SMALL_ORDER_Y, WatchdogSeal
from tests.web.desks import CODE
from tests.web.stations import JSON, Station, station

CPU_MOST_S = 0.05
BIG = 64 * 1024


@pytest.fixture(scope="module")
def watchdog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Station]:
    """One that has judged."""
    with station(tmp_path_factory.mktemp("limits")) as made:
        made.room.run_guard()
        yield made


def test_all_of_loopback_is_one_client_and_so_is_an_ipv6_site() -> None:
    assert {name_client(one) for one in ("127.0.0.1", "127.8.9.10", "::1", "::ffff:127.0.0.2")} == {LOOPBACK}
    assert name_client("2001:db8::1") == name_client("2001:db8::ffff:1") != name_client("2001:db8:0:1::1")
    assert name_client("::ffff:203.0.113.9") == name_client("203.0.113.9") == "203.0.113.9"
    assert name_client("") == ""


@pytest.mark.parametrize(
    ("stated", "host"),
    [
        ("guard.example", "guard.example"), ("Guard.Example.:8470", "guard.example"), ("[::1]:8470", "[::1]"),
        ("[::1]", "[::1]"), ("localhost:", "localhost"), ("user@localhost", ""), ("localhost:80@evil.example", ""),
        ("localhost:80a", ""), ("localhost:٨", ""), ("localhost :80", ""), (" localhost", ""), ("localhost/evil", ""),
        ("localhost,evil.example", ""), ("[::1", ""), ("[::1]x", ""), ("[localhost]", ""), ("local\thost", ""), (":80", ""),
        ("a" * 300, ""), ("", ""),
    ],
)  # fmt: skip
def test_a_host_is_a_name_and_at_most_a_port(stated: str, host: str) -> None:
    assert parse_host_header(stated) == host


def test_two_hosts_in_one_request_are_refused(watchdog: Station) -> None:
    with socket.create_connection((watchdog.at.host, watchdog.at.port), 20) as wire:
        wire.sendall(b"GET /healthz HTTP/1.0\r\nHost: localhost\r\nHost: localhost\r\n\r\n")
        assert b" 4" in wire.recv(65536).partition(b"\r\n")[0]


def multiply(point: tuple[int, int], by: int) -> tuple[int, int]:
    """`by` times a point of edwards25519 (RFC 8032, 5.1.4), in affine coordinates."""
    prime = FIELD_PRIME
    d = -121665 * pow(121666, -1, prime) % prime
    total = (0, 1)
    for _ in range(by):
        (x1, y1), (x2, y2) = total, point
        product = d * x1 * x2 * y1 * y2 % prime
        x = (x1 * y2 + x2 * y1) * pow(1 + product, -1, prime) % prime
        y = (y1 * y2 + x1 * x2) * pow(1 - product, -1, prime) % prime
        total = (x, y)
    return total


def recover_x(y: int) -> int | None:
    """The even x of the point with this y; None if there is none."""
    prime = FIELD_PRIME
    d = -121665 * pow(121666, -1, prime) % prime
    square = (y * y - 1) * pow(d * y * y + 1, -1, prime) % prime
    x = pow(square, (prime + 3) // 8, prime)
    if x * x % prime != square:
        x = x * pow(2, (prime - 1) // 4, prime) % prime
    return x if x * x % prime == square else None


def test_the_refused_keys_are_the_eight_points_of_small_order_and_every_other_form_of_them() -> None:
    points = {(x * sign % FIELD_PRIME, y) for y in SMALL_ORDER_Y for x in (recover_x(y),) if x is not None for sign in (1, -1)}
    assert len(points) == 8
    assert {multiply(point, 8) for point in points} == {(0, 1)}
    seal = WatchdogSeal(Ed25519PrivateKey.from_private_bytes(bytes(32)))
    for y in (*SMALL_ORDER_Y, *(one + FIELD_PRIME for one in SMALL_ORDER_Y if one + FIELD_PRIME < 2**255)):
        for sign in (0, 1 << 255):
            assert not seal.is_key(encode_base64((y | sign).to_bytes(32, "little"))), y
    assert seal.is_key(seal.public_key)


def test_a_key_of_small_order_does_not_join(watchdog: Station) -> None:
    watchdog.enrol()
    said = {"code": CODE, "public_key": encode_base64((1).to_bytes(32, "little")), "version": "1"}
    came = watchdog.ask("POST", "/v1/agents/join", json.dumps(said).encode(), JSON)
    assert (came.status, "not an Ed25519 key" in came.data["says"]) == (400, True)
    assert watchdog.join().status == 200, "the code was not used up"


SIGNED = {SEQ_HEADER: "1", AT_HEADER: "1795219215000", SIGNATURE_HEADER: "A" * 86 + "==", **JSON}
COSTLY = {
    "escapes": b'"' + b"\\" * (BIG - 1), "half escapes": (b'"\\' * BIG)[:BIG], "lists": b"[" * BIG,
    "pairs": (b"[]," * BIG)[:BIG], "objects": b'{"a":' * (BIG // 5), "digits": b"1" * BIG,
    "exponent": b"1e" + b"9" * (BIG - 2), "fraction": b"0." + b"9" * (BIG - 2),
    "unicode": (b'"' + b"\\u0000" * BIG)[: BIG - 1] + b'"', "broken text": b'"' + b"\xff" * (BIG - 2) + b'"',
    "blanks": b" " * BIG, "keys": b"{" + b",".join(b'"%d":0' % n for n in range(7000)) + b"}",
    "code": b'{"code": "' + b"A" * 1900 + b'", "public_key": "", "version": ""}',
}  # fmt: skip


@pytest.mark.parametrize(
    "path", ["/v1/agents/join", BEATS_PATH.format("nobody"), "/v1/status", "/v1/admit", "/healthz", "/nothing"]
)
@pytest.mark.parametrize("body", COSTLY.values(), ids=COSTLY.keys())
def test_no_body_of_anybody_costs_more_than_its_share_of_a_second(watchdog: Station, path: str, body: bytes) -> None:
    spent = []
    for _ in range(3):
        began = time.process_time()
        came = watchdog.ask("POST", path, body, SIGNED)
        spent.append(time.process_time() - began)
        assert 400 <= came.status < 500, came.body
    assert min(spent) < CPU_MOST_S, spent


@pytest.mark.parametrize(
    "head",
    [
        b"GET /" + b"a" * 15_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + b"a: b\r\n" * 2500 + b"\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: " + b"a." * 7000 + b"\r\n\r\n",
        b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + b"a" * 15_000 + b"\r\n\r\n",
        b"GET /" + b"%2e" * 5000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\r\n" * 8000,
        b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nContent-Type: application/json\r\n\r\n"
        + b"1\r\na\r\n" * 2000
        + b"0\r\n\r\n",
    ],
    ids=["path", "headers", "host", "token", "escapes", "blank lines", "chunks"],
)
def test_no_head_of_anybody_costs_more_than_its_share_of_a_second(watchdog: Station, head: bytes) -> None:
    spent = []
    for _ in range(3):
        with socket.create_connection((watchdog.at.host, watchdog.at.port), 20) as wire:
            began = time.process_time()
            wire.sendall(head)
            wire.shutdown(socket.SHUT_WR)
            while wire.recv(65536):
                pass
            spent.append(time.process_time() - began)
    assert min(spent) < CPU_MOST_S, spent
