from __future__ import annotations

import gzip
import logging
import re
import socket
import ssl
import threading
import time
import traceback
import tracemalloc
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import costguard
from costguard.errors import InputError, InvalidAnswerError, ProviderError, UnreachableError
from costguard.providers.transport import Deadline, HttpRequest, HttpResponse, Transport
from tests.fakes.server import Answer, serving
from tests.providers.transport.wires import CANARY, Told, authority_of, raw, request_of

MIB = 2**20
KEY = {"Authorization": f"Bearer {CANARY}"}
SOON_S = 45
"""Seconds within which a deadline of half a second must have ended, however busy the machine: the servers here hang for 60."""


@pytest.fixture
def transport() -> Iterator[Transport]:
    made = Transport()
    yield made
    made.close()


def get(
    transport: Transport, url: str, *, seconds: float = 20, most: int = MIB, headers: Mapping[str, str] = KEY
) -> HttpResponse:
    request = HttpRequest(method="GET", url=url, headers=headers)
    return transport.exchange(request, provider="cloud", deadline=Deadline(seconds), most_bytes=most)


def broken(
    transport: Transport, url: str, kind: type[ProviderError], seconds: float = 20, headers: Mapping[str, str] = KEY
) -> ProviderError:
    """The error of asking, without the key in anything that it could be shown by."""
    with pytest.raises(kind) as caught:
        get(transport, url, seconds=seconds, headers=headers)
    shown = "".join(traceback.TracebackException.from_exception(caught.value, capture_locals=True).format())
    assert CANARY not in re.sub(r"(?s)File \"[^\"]*tests/.*?(?=File \"|\Z)", "", shown), shown
    assert caught.value.__context__ is None or caught.value.__suppress_context__
    return caught.value


def test_a_reply_is_its_status_headers_in_lower_case_and_body(transport: Transport) -> None:
    with serving(Told(Answer(status=418, headers={"X-Tea": "Pot"}, body=b"short"))) as base:
        reply = get(transport, f"{base}/x")
    assert (reply.status, reply.headers["x-tea"], reply.body) == (418, "Pot", b"short")


def test_method_query_headers_and_body_arrive_as_they_were_given(transport: Transport) -> None:
    cloud = Told()
    with serving(cloud) as base:
        request = HttpRequest(method="POST", url=f"{base}/a/b?q=1%2F2&r=%20", headers={**KEY, "X-A": "b"}, body=b"\0\xff")
        transport.exchange(request, provider="cloud", deadline=Deadline(20))
    (asked,) = cloud.asked
    assert (asked.line, asked.body) == ("POST /a/b?q=1%2F2&r=%20", b"\0\xff")
    assert (asked.headers["x-a"], asked.headers["authorization"]) == ("b", f"Bearer {CANARY}")


@pytest.mark.parametrize("name", ["gzip", "GZIP", "x-gzip"])
def test_a_packed_body_is_unpacked(transport: Transport, name: str) -> None:
    body = bytes(range(256)) * 3000
    with serving(Told(Answer(headers={"Content-Encoding": name}, body=gzip.compress(body, mtime=0)))) as base:
        assert get(transport, base).body == body


def test_an_empty_body_that_says_it_is_packed_is_empty(transport: Transport) -> None:
    with serving(Told(Answer(headers={"Content-Encoding": "gzip"}))) as base:
        assert get(transport, base).body == b""


@pytest.mark.parametrize(
    ("packing", "body"),
    [
        ("gzip", gzip.compress(b"x" * 5000, mtime=0)[:-9]),
        ("gzip", b"no gzip at all"),
        ("gzip", gzip.compress(b"a", mtime=0) + gzip.compress(b"b", mtime=0)),
        ("gzip", gzip.compress(b"a", mtime=0) + b"more"),
        ("br", b"x"),
        ("gzip, gzip", gzip.compress(gzip.compress(b"a", mtime=0), mtime=0)),
        ("deflate", b"x"),
        ("zstd", b"x"),
    ],
    ids=str,
)
def test_a_packing_that_was_not_asked_for_or_is_broken_is_odd(transport: Transport, packing: str, body: bytes) -> None:
    with serving(Told(Answer(headers={"Content-Encoding": packing}, body=body))) as base:
        broken(transport, base, InvalidAnswerError)


def test_a_body_above_the_cap_is_odd_and_one_at_the_cap_is_not(transport: Transport) -> None:
    with serving(Told(Answer(body=b"x" * MIB))) as base:
        assert len(get(transport, base).body) == MIB
        with pytest.raises(InvalidAnswerError, match="more than"):
            get(transport, base, most=MIB - 1)


def test_a_gzip_bomb_costs_little_memory(transport: Transport) -> None:
    cloud = Told()
    cloud.fault(".", "bomb")
    with serving(cloud) as base:
        broken(transport, base, InvalidAnswerError)
        tracemalloc.start()
        broken(transport, base, InvalidAnswerError)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 16 * MIB


def test_a_redirect_is_handed_out_and_not_followed(transport: Transport) -> None:
    other = Told()
    with serving(other) as elsewhere, serving(Told(Answer(status=307, headers={"Location": elsewhere}))) as base:
        assert get(transport, base).status == 307
    assert other.asked == []


def test_no_cookie_is_kept_or_sent(transport: Transport) -> None:
    cloud = Told(Answer(headers={"Set-Cookie": "session=1; Path=/"}))
    with serving(cloud) as base:
        for _ in range(3):
            get(transport, base)
    assert not any("cookie" in asked.headers for asked in cloud.asked)


@pytest.mark.parametrize("kind", ["drip", "delay"])
def test_a_slow_body_and_a_slow_head_end_at_the_deadline(transport: Transport, kind: str) -> None:
    cloud = Told()
    cloud.fault(".", kind, seconds=60)
    with serving(cloud) as base:
        began = time.monotonic()
        told = broken(transport, base, UnreachableError, seconds=0.5)
        assert 0.4 < time.monotonic() - began < SOON_S
    assert "no complete answer in time" in str(told)


def test_headers_that_drip_end_at_the_deadline(transport: Transport) -> None:
    def drip(connection: socket.socket) -> None:
        request_of(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\n")
        for n in range(10_000):
            connection.sendall(f"X-{n}: 1\r\n".encode())
            time.sleep(0.02)

    with raw(drip) as place:
        began = time.monotonic()
        broken(transport, f"http://{place}/", UnreachableError, seconds=0.5)
        assert time.monotonic() - began < SOON_S


def silent(connection: socket.socket) -> None:
    """Take one byte, and then nothing, until somebody hangs up."""
    connection.recv(1)
    gone = threading.Event()
    while not gone.wait(0.02):
        connection.getpeername()


def test_a_handshake_that_never_ends_ends_at_the_deadline(transport: Transport) -> None:
    with raw(silent) as place:
        began = time.monotonic()
        broken(transport, f"https://{place}/", UnreachableError, seconds=0.5)
        assert time.monotonic() - began < SOON_S


def test_a_body_that_nobody_takes_ends_at_the_deadline(transport: Transport) -> None:
    with raw(silent) as place:
        request = HttpRequest(method="POST", url=f"http://{place}/", body=b"x" * (64 * MIB))
        began = time.monotonic()
        with pytest.raises(UnreachableError):
            transport.exchange(request, provider="cloud", deadline=Deadline(0.5))
        assert time.monotonic() - began < SOON_S


def test_a_deadline_that_has_passed_asks_nothing(transport: Transport) -> None:
    cloud = Told()
    with serving(cloud) as base:
        broken(transport, base, UnreachableError, seconds=0)
    assert cloud.asked == []


def test_a_name_that_is_resolved_slowly_ends_at_the_deadline(transport: Transport, monkeypatch: pytest.MonkeyPatch) -> None:
    hang = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: hang.wait(30) and [])
    began = time.monotonic()
    told = broken(transport, "https://slow.example/", UnreachableError, seconds=0.5)
    assert time.monotonic() - began < SOON_S
    assert "no connection in time" in str(told)
    hang.set()
    for thread in threading.enumerate():
        if thread.name == "costguard-resolver":
            thread.join()


def test_a_name_that_does_not_exist_is_unreachable(transport: Transport, monkeypatch: pytest.MonkeyPatch) -> None:
    def no(*_: object, **__: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", no)
    broken(transport, "https://nowhere.example/", UnreachableError)


def test_a_second_address_is_tried_when_the_first_refuses(transport: Transport, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Told()) as base:
        port = int(base.rpartition(":")[2])
        both = [(0, 0, 0, "", ("127.0.0.9", port)), (0, 0, 0, "", ("127.0.0.1", port))]
        real = socket.getaddrinfo
        monkeypatch.setattr(socket, "getaddrinfo", lambda host, *a, **k: both if host == "localhost" else real(host, *a, **k))
        assert get(transport, f"http://localhost:{port}/").status == 200


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"garbage\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X-Long: " + b"y" * (2 * MIB) + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"".join(b"X-%d: y\r\n" % n for n in range(50_000)) + b"\r\n",
        b"HTTP/1.1 200 OK\r\nX: a\0b\r\n\r\n",
    ],
    ids=lambda answer: str(answer[:30]),
)
def test_what_is_not_http_is_an_error(transport: Transport, answer: bytes) -> None:
    def serve(connection: socket.socket) -> None:
        request_of(connection)
        connection.sendall(answer)
        connection.shutdown(socket.SHUT_WR)

    with raw(serve) as place:
        kind = UnreachableError if not answer else ProviderError
        broken(transport, f"http://{place}/", kind)


def test_a_connection_that_was_closed_while_idle_is_opened_anew(transport: Transport) -> None:
    cloud = Told()
    cloud.fault(".", "reset", skip=1, times=1)
    with serving(cloud) as base:
        get(transport, base)
        broken(transport, base, UnreachableError)
        assert get(transport, base).status == 200


@pytest.mark.parametrize(
    "url", ["http://192.0.2.1/", "http://127.0.0.1@192.0.2.1/", "HTTP://cloud.example/v2", "ftp://127.0.0.1/"]
)
def test_plain_http_to_another_machine_is_refused_before_anything_is_sent(transport: Transport, url: str) -> None:
    assert "is plain http: no request was sent" in str(broken(transport, url, InvalidAnswerError, seconds=2))


@pytest.mark.parametrize(
    "url",
    [
        "https://user:pass@127.0.0.1/",
        "http://2130706433/",
        "//127.0.0.1/",
        "",
        "https://",
        "https://[::1",
        "https://a:b/",
        "https://a b/",
        "https://a.example/\n",
    ],
)
def test_an_address_that_cannot_be_read_is_not_asked(transport: Transport, url: str) -> None:
    broken(transport, url, ProviderError, seconds=2)


@pytest.mark.parametrize("value", ["a\nb", "a\r\nX: y", "sch\u00f6n", "a\0b", "\U0001f4b8"])
def test_a_header_that_cannot_be_sent_is_an_error_that_does_not_show_it(transport: Transport, value: str) -> None:
    cloud = Told()
    with serving(cloud) as base:
        told = broken(transport, base, ProviderError, headers={"Authorization": f"Bearer {CANARY}{value}"})
    assert cloud.asked == []
    assert value not in str(told)


@pytest.mark.parametrize(
    "content", [None, b"", b"no certificate", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
def test_a_file_without_authorities_is_bad_input_that_names_it(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(InputError, match=r"ca\.pem"):
        Transport(ca_file=file)


def test_nothing_in_the_house_turns_verification_off() -> None:
    home = Path(costguard.__file__).parent
    off = re.compile(
        r"CERT_NONE|check_hostname\s*=\s*False|verify\s*=\s*False|_create_unverified|InsecureRequestWarning|trust_env\s*=\s*True"
    )
    sources = [*home.rglob("*.py"), *(home.parent / "providers").rglob("*.py")]
    assert [str(file) for file in sources if off.search(file.read_text())] == []


def test_tls_older_than_1_2_is_not_spoken(tmp_path: Path) -> None:
    transport = Transport(ca_file=authority_of(tmp_path)[1])
    context = transport._client._transport._pool._ssl_context  # type: ignore[attr-defined]
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2
    transport.close()


def test_the_environments_proxy_and_netrc_are_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password them\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    proxy = Told()
    cloud = Told()
    with serving(proxy) as wrong, serving(cloud) as base:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, wrong)
        made = Transport()
        request = HttpRequest(method="GET", url=base)
        assert made.exchange(request, provider="cloud", deadline=Deadline(20)).status == 200
        made.close()
    assert proxy.asked == []
    assert "authorization" not in cloud.asked[0].headers


def test_a_proxy_that_is_stated_is_asked_to_connect_and_never_sees_the_key() -> None:
    heads = list[bytes]()

    def proxy(connection: socket.socket) -> None:
        heads.append(request_of(connection))
        connection.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")

    with raw(proxy) as place:
        transport = Transport(proxy=f"http://me:proxy-pass@{place}")
        told = broken(transport, "https://api.example/v2", UnreachableError)
        transport.close()
    assert heads[0].startswith(b"CONNECT api.example:443")
    assert CANARY.encode() not in b"".join(heads)
    assert "proxy-pass" not in str(told)


def test_this_machine_is_asked_without_the_proxy() -> None:
    with serving(Told()) as base:
        transport = Transport(proxy="http://127.0.0.1:9")
        assert get(transport, base).status == 200
        transport.close()


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:1", "127.0.0.1:8080", "http://[::1", "", "ftp://user:proxy-pass@x"])
def test_what_is_no_http_proxy_is_bad_input_that_does_not_show_it(proxy: str) -> None:
    with pytest.raises(InputError) as refused:
        Transport(proxy=proxy)
    assert "proxy-pass" not in str(refused.value)


def test_nothing_is_logged_at_any_level(transport: Transport, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    for name in ("httpx2", "httpcore2", "httpcore2.http11", "httpcore2.connection"):
        caplog.set_level(logging.DEBUG, logger=name)
    with serving(Told()) as base:
        get(transport, f"{base}/x?api_key={CANARY}")
        broken(transport, "http://127.0.0.1:9/", UnreachableError)
    assert caplog.text == ""


def test_a_request_and_a_reply_show_neither_headers_nor_body() -> None:
    request = HttpRequest(method="GET", url="https://a.example/x?token=1", headers=KEY, body=CANARY.encode())
    reply = HttpResponse(status=200, headers={"echo": CANARY}, body=CANARY.encode())
    assert CANARY not in f"{request!r}{request}{reply!r}{reply}"
    assert request.place == "GET https://a.example/x"


def test_one_threads_deadline_is_not_anothers(transport: Transport) -> None:
    slow, quick = Told(), Told()
    slow.fault(".", "delay", seconds=60)
    with serving(slow) as base, serving(quick) as other:
        late = threading.Thread(target=lambda: broken(transport, base, UnreachableError, seconds=1))
        late.start()
        for _ in range(20):
            assert get(transport, other).status == 200
        late.join()
