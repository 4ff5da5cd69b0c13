"""Webhooks over real sockets: what is signed, what is refused, and what a receiver can do to us."""

from __future__ import annotations

import hashlib
import hmac
import logging
import socket
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

import pytest

from costguard.notifiers import Channel
from costguard.notifiers.webhook import is_allowed, notify
from tests.fakes.server import Answer, Hands, serving
from tests.notifiers.hostile import message_of
from tests.providers.transport.wires import Told, authority_of, https, raw, request_of

SECRET = "canary-secret-0123456789abcdef"  # noqa: S105 - looked for in what is shown
MESSAGE = message_of("m1")


def channel(address: str, **changes: object) -> Channel:
    said: dict[str, object] = {"name": "hook", "clock": Hands(), "address": address, "secret": SECRET}
    return Channel(**(said | changes))  # type: ignore[arg-type]


def test_it_posts_json_that_the_receiver_can_prove_to_be_ours() -> None:
    cloud = Told()
    with serving(cloud) as address:
        assert notify(MESSAGE, channel(f"{address}/hook?team=1")).sent
    [asked] = cloud.asked
    headers = {name.lower(): value for name, value in asked.headers.items()}
    stamp = headers["costguard-timestamp"]
    signed = f"{headers['costguard-id']}.{stamp}.".encode() + asked.body
    assert headers["costguard-signature"] == "v1=" + hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest()
    assert stamp == str(int(Hands().now().timestamp()))
    assert asked.line == "POST /hook?team=1"
    assert asked.json()["schema"] == "costguard.message/1"
    assert SECRET not in str(asked.headers) + asked.body.decode()


def test_every_try_has_the_same_id_and_a_timestamp_of_its_own() -> None:
    cloud, hands = Told(), Hands()
    with serving(cloud) as address:
        for _ in range(2):
            notify(MESSAGE, channel(address, clock=hands))
            hands.at = hands.at.replace(minute=5)
    first, second = ({name.lower(): value for name, value in one.headers.items()} for one in cloud.asked)
    assert first["costguard-id"] == second["costguard-id"]
    assert first["costguard-timestamp"] != second["costguard-timestamp"]


@pytest.mark.parametrize(
    ("status", "again"),
    [(400, False), (401, False), (404, False), (410, False), (408, True), (429, True), (500, True), (503, True)],
    ids=str,
)
def test_what_the_receiver_answers_decides_whether_another_try_helps(status: int, again: bool) -> None:  # noqa: FBT001
    with serving(Told(Answer.of({}, status=status))) as address:
        delivery = notify(MESSAGE, channel(address))
    assert (delivery.sent, delivery.again, delivery.why) == (False, again, f"it answered {status}")


def test_a_redirect_is_not_followed() -> None:
    other = Told()
    with serving(other) as elsewhere:
        with serving(Told(Answer.of({}, status=307, Location=f"{elsewhere}/x"))) as address:
            delivery = notify(MESSAGE, channel(address))
        assert not other.asked
    assert not delivery.again


def test_an_answer_without_end_is_let_go_of() -> None:
    with serving(Told(Answer(body=b"x" * 2**22))) as address:
        assert notify(MESSAGE, channel(address)).sent


def test_a_receiver_that_drips_its_head_is_cut_off() -> None:
    def drip(connection: socket.socket) -> None:
        request_of(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\n")
        while True:
            connection.sendall(b"X: 1\r\n")
            connection.settimeout(0.02)
            try:
                if not connection.recv(1):
                    return
            except TimeoutError:
                continue

    with raw(drip) as place:
        delivery = notify(MESSAGE, channel(f"http://{place}/", within_s=0.3))
    assert (delivery.sent, delivery.again) == (False, True)


REFUSED = (
    *("", "hook", "ftp://example.com", "file:///etc/passwd", "http://example.com/", "http://10.0.0.1/"),
    *("https://10.0.0.1/", "https://172.16.0.1/", "https://192.168.1.1/", "https://169.254.169.254/latest/meta-data"),
    *("https://100.100.100.200/", "https://100.64.0.1/", "https://0.0.0.0/", "https://0/", "https://[::]/"),
    *("https://[fe80::1]/", "https://[fe80::1%25eth0]/", "https://[fd00:ec2::254]/", "https://[fc00::1]/"),
    *("https://[::ffff:10.0.0.1]/", "https://[::ffff:169.254.169.254]/", "https://[::ffff:a9fe:a9fe]/"),
    *("https://[64:ff9b::a9fe:a9fe]/", "https://[64:ff9b::10.0.0.1]/", "https://[2002:a00:1::]/"),
    *("https://[2002:a9fe:a9fe::]/", "https://[2001:0:1::f5ff:fffe]/", "https://[ff02::1]/", "https://224.0.0.1/"),
    *("https://255.255.255.255/", "https://168.63.129.16/", "https://2852039166/", "https://0xa9fea9fe/"),
    *("https://0xa9.0xfe.0xa9.0xfe/", "https://0251.0376.0251.0376/", "https://169.254.43518/"),
    *("https://169.254.169.254./", "https://127.1/", "https://2130706433/", "https://0x7f.1/", "http://127.1/"),
    *("http://127.0.0.1./", "http://2130706433/", "https://user@example.com/", "https://user:pw@example.com/"),
    *("https://10.0.0.1@example.com/", "https://example.com@10.0.0.1/", "https://example.com#@10.0.0.1/"),
    *("https://example.com\\@10.0.0.1/", "https://exa mple.com/", "https://example.com\r\nX: 1/"),
    *("https://ex\u3002ample/", "https://\u2460\u2461\u2466.0.0.1/", "https://[::1", "https://:443/", "https:///x"),
    *("https://example.com:0/", "https://example.com:99999/", "https://-x.example/", "https://%31%30.0.0.1/"),
    *("javascript:alert(1)", "//10.0.0.1/", "https://1.2.3.4.5/", "https://a..b/", "https://[::a9fe:a9fe]/"),
    *("https://[::127.0.0.1]/", "https://[::ffff:0:10.0.0.1]/", "https://[::ffff:0:a9fe:a9fe]/", "https://[fec0::1]/"),
    *("https://[64:ff9b:1::a00:1]/", "https://[64:ff9b:1:2::a9fe:a9fe]/", "https://[fd20:ce::254]/"),
    *("https://[fd00:ec2::23]/", "https://[100::1]/", "https://[5f00::1]/", "https://[3fff::1]/"),
    *("https://[2001:db8::1]/", "https://192.0.0.192/", "https://192.0.2.1/", "https://192.88.99.1/"),
    *("https://198.18.0.1/", "https://240.0.0.1/", "https://169.254.170.2/", "https://169.254.170.23/"),
    *("https://localhost./", "https://127.0.0.1:80:443/", "https://[::1]:443@example.com/", "https://[::1%lo]/"),
    *("https://1.2.3.4%2f@10.0.0.1/", "https://\uff11\uff10.0.0.1/", "https://10\u30020.0.1/"),
    *("https://10.0.0.1\u2024example.com/", "https://ex\u00adample.com/", "\thttps://10.0.0.1/"),
    *("https://0x0a.0x00.0x00.0x01/", "https://012.0.0.1/", "https://10.1/", "https://167772161/"),
    *("https://0xA9FEA9FE./", "https://.example.com/"),
)


@pytest.mark.parametrize("address", [pytest.param(one, id=f"{n:02}") for n, one in enumerate(REFUSED)])
def test_an_address_inside_or_one_that_two_readers_read_differently_is_not_asked(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("httpx2.Client.send", lambda *_, **__: pytest.fail("it was asked"))
    delivery = notify(MESSAGE, channel(address))
    assert (delivery.sent, delivery.again) == (False, False)


def resolving(monkeypatch: pytest.MonkeyPatch, *answers: str) -> list[str]:
    """A resolver whose answers come one a question; what it was asked."""
    asked, left = list[str](), list(answers)

    def getaddrinfo(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in left.pop(0).split()]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return asked


@pytest.mark.parametrize("answer", ["10.0.0.1", "127.0.0.1", "169.254.169.254", "93.184.215.14 10.0.0.1"], ids=str)
def test_a_name_that_leads_inside_is_not_asked(answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    resolving(monkeypatch, answer)
    assert not notify(MESSAGE, channel("https://hook.example/")).again


def test_a_name_is_resolved_once_and_the_connection_goes_to_what_was_looked_at(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    authority, file = authority_of(tmp_path)
    cloud = Told()
    with serving(cloud, https(authority, "hook.example")) as address:
        port = address.rpartition(":")[2]
        monkeypatch.setattr("costguard.notifiers.webhook.is_allowed", lambda one, **_: str(one) == "127.0.0.1")
        real = socket.getaddrinfo
        asked = list[str]()

        def rebinding(host: str, *more: object, **named: object) -> object:
            asked.append(host)
            return real("127.0.0.1" if asked.count("hook.example") == 1 else "10.0.0.1", *more, **named)  # type: ignore[arg-type]

        monkeypatch.setattr(socket, "getaddrinfo", rebinding)
        assert notify(MESSAGE, channel(f"https://hook.example:{port}/x", ca_file=file)).sent
    assert asked.count("hook.example") == 1
    assert {name.lower(): value for name, value in cloud.asked[0].headers.items()}["host"] == f"hook.example:{port}"


def test_a_certificate_of_another_name_or_of_nobody_is_refused(tmp_path: Path) -> None:
    authority, file = authority_of(tmp_path)
    with serving(Told(), https(authority, "other.example")) as address:
        assert not notify(MESSAGE, channel(address, ca_file=file)).sent
        assert not notify(MESSAGE, channel(address)).sent
    with serving(Told(), https(authority)) as address:
        assert notify(MESSAGE, channel(address, ca_file=file)).sent


@pytest.mark.parametrize(
    ("address", "usual", "private"),
    [
        ("93.184.215.14", True, True),
        ("2606:2800:21f:cb07:6820:80da:af6b:8b2c", True, True),
        ("10.1.2.3", False, True),
        ("127.0.0.1", False, True),
        ("fd12::1", False, True),
        ("::ffff:10.0.0.1", False, True),
        ("169.254.169.254", False, False),
        ("::ffff:169.254.169.254", False, False),
        ("64:ff9b::a9fe:a9fe", False, False),
        ("fe80::1", False, False),
        ("0.0.0.0", False, False),  # noqa: S104 - an address, not a place to listen
        ("100.100.100.200", False, False),
        ("fd00:ec2::254", False, False),
        ("fd00:ec2::23", False, False),
        ("fd20:ce::254", False, False),
        ("192.0.0.192", False, False),
        ("::a9fe:a9fe", False, False),
        ("::10.0.0.1", False, True),
        ("::ffff:0:a9fe:a9fe", False, False),
        ("::ffff:0:93.184.215.14", True, True),
        ("fec0::1", False, True),
        ("::1", False, True),
        ("::", False, False),
    ],
    ids=str,
)
def test_private_addresses_may_be_allowed_and_those_that_hand_out_keys_never(
    address: str,
    usual: bool,  # noqa: FBT001 - of a table
    private: bool,  # noqa: FBT001 - of a table
) -> None:
    found = ip_address(address)
    assert (is_allowed(found, allow_private=False), is_allowed(found, allow_private=True)) == (usual, private)


def test_nothing_of_it_is_logged_and_a_channel_shows_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with serving(Told()) as address:
        one = channel(f"{address}/{SECRET}")
        notify(MESSAGE, one)
        notify(MESSAGE, replace(one, address=f"http://127.0.0.1:1/{SECRET}"))
    assert SECRET not in caplog.text
    assert SECRET not in repr(one)
