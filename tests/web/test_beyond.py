"""Beyond loopback: TLS by itself, and a proxy whose word on who asks is believed, where nobody else's is."""

from __future__ import annotations

import http.client
import json
import ssl
from pathlib import Path
from threading import Thread

import trustme

from costguard.services.serving.web_backend import build_web_services
from costguard.web.keeper import is_health_answered
from costguard.web.server import build_server
from costguard.web.watchdog_client import WatchdogClient
from costguard.web.watchdog_socket import bind_private_socket
from tests.web.stations import JSON, Station, station
from tests.web.test_adversary import tls


def test_it_speaks_tls_with_a_certificate_of_its_own(tmp_path: Path) -> None:
    authority = trustme.CA()
    made = authority.issue_cert("localhost", "127.0.0.1")
    made.private_key_pem.write_to_path(tmp_path / "key.pem")
    for number, blob in enumerate(made.cert_chain_pems):
        blob.write_to_path(tmp_path / "cert.pem", append=number > 0)
    web = f'tls_cert = "{tmp_path}/cert.pem"\ntls_key = "{tmp_path}/key.pem"\nurl = "https://localhost"'
    with station(tmp_path, web=web) as watchdog:
        watchdog.room.run_guard()
        context = ssl.create_default_context()
        authority.configure_trust(context)
        wire = http.client.HTTPSConnection("localhost", watchdog.at.port, context=context, timeout=30)
        wire.request("GET", "/healthz")
        came = wire.getresponse()
        assert came.status == 200
        assert came.headers["Strict-Transport-Security"].startswith("max-age=")
        came.read()
        wire.close()


def test_the_watchdog_asks_for_health_without_tls_at_a_socket_of_its_own(tmp_path: Path) -> None:
    web = f"{tls(tmp_path)}\nurl = 'https://localhost'"
    with station(tmp_path, web=web) as watchdog:
        path = tmp_path / "own" / "health"
        with bind_private_socket(path) as bound:
            assert not is_health_answered(str(tmp_path / "nobody"))
            made = build_server(build_web_services(watchdog.room.settings), [bound], WatchdogClient(None))
            thread = Thread(target=made.run)
            thread.start()
            try:
                assert is_health_answered(str(path))
            finally:
                made.end()
                thread.join()


def guesses(watchdog: Station, count: int, **headers: str) -> list[int]:
    said = json.dumps({"code": "AAAA", "public_key": "A" * 43 + "=", "version": "1"}).encode()
    return [
        watchdog.ask("POST", "/v1/agents/join", said, {**JSON, "X-Forwarded-For": f"203.0.113.{number}", **headers}).status
        for number in range(count)
    ]


def test_who_asks_is_believed_of_the_named_proxy_alone(tmp_path: Path) -> None:
    for proxy, expected in (
        ("", {403, 429}),
        ('behind_proxy = "127.0.0.1"', {403}),
        ('behind_proxy = "192.0.2.1"', {403, 429}),
    ):
        folder = tmp_path / f"of-{proxy[-4:-1]}"
        folder.mkdir()
        with station(folder, web=proxy) as watchdog:
            assert set(guesses(watchdog, 40)) == expected, proxy
