"""`costguard watch` as a process of its own, with the simulated cloud: it answers while it watches, and ends as it is told."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tests.conftest import Command

ROOT = Path(__file__).parents[2]


def free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])


def asked(port: int, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as wire:
        wire.request(method, path, body, headers)
        came = wire.getresponse()
        return came.status, came.read()


def waited(port: int, process: subprocess.Popen[bytes]) -> dict[str, object]:
    """What it says of its health, once a run is in the ledger."""
    for _ in range(300):
        with suppress(OSError, http.client.HTTPException):
            status, body = asked(port, "GET", "/healthz")
            if status == 200:
                return dict(json.loads(body))
        if process.poll() is not None:
            break
        time.sleep(0.2)  # another process is waited for
    return {"state": f"exit {process.poll()}"}


@pytest.mark.parametrize(
    ("web", "words"),
    [
        ('listen = "0.0.0.0:8470"', ("web.listen", "is reachable by others", "behind_proxy")),
        ('listen = "guard.example:8470"', ("web.listen", "is not an IP address")),
        ('listen = "8470"', ("web.listen", "127.0.0.1:8470")),
        ('listen = "127.0.0.1:99999"', ("web.listen", "is not an address to listen at")),
        ('listen = "0.0.0.0:1"\ntls_cert = "a.pem"', ("web.tls_key", "is missing")),
        ('behind_proxy = "proxy"', ("web.behind_proxy", "is not an address")),
        ('url = "http://guard.example"', ("web.url", "is not https")),
        ('url = "https://user@guard.example"', ("web.url", "holds a name or a password")),
        ('hosts = ["a b"]', ("web.hosts", "is not a name of a host")),
        ("listne = 1", ("listne", "listen")),
    ],
)
def test_settings_of_the_web_that_cannot_be_meant_are_refused(
    costguard: Command, tmp_path: Path, web: str, words: tuple[str, ...]
) -> None:
    (tmp_path / "costguard.toml").write_text(f"[web]\n{web}\n")
    costguard("status").says(*words)


def test_a_port_that_is_taken_and_certificates_that_are_none_are_told_at_the_start(costguard: Command, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        base = f'[ledger]\nurl = "sqlite:///{tmp_path}/ledger.db"\n[web]\nlisten = "127.0.0.1:{port}"\n'
        (tmp_path / "costguard.toml").write_text(base)
        costguard("watch").says("cannot listen:", "another port")
    (tmp_path / "a.pem").write_text("no certificate")
    (tmp_path / "costguard.toml").write_text(base.replace(str(port), "0") + 'tls_cert = "a.pem"\ntls_key = "a.pem"\n')
    costguard("watch").says("TLS cannot be used with these files:")
    (tmp_path / "ledger.db.web-key").write_text("no key")
    costguard("watch").says("holds no key")
