"""`costguard watch` as a process of its own, with the simulated cloud: it answers while it watches, and ends as it is told."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import time
from contextlib import closing, suppress
from pathlib import Path

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
