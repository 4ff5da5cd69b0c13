"""Beyond loopback: TLS by itself, and a proxy whose word on who asks is believed, where nobody else's is."""

from __future__ import annotations

import http.client
import json
import ssl
from pathlib import Path

import trustme

from tests.web.stations import JSON, Station, station


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
