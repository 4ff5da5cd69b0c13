"""A real nginx with the shipped configuration (config/nginx.conf) in front of a server on loopback."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import trustme

ROOT = Path(__file__).parents[2]
HOST = "127.0.0.1"
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
STARTS_WITHIN_S = 20.0


@dataclass(frozen=True)
class Proxy:
    """`context`: trusts its certificate, which is of localhost."""

    pid: int
    port: int
    context: ssl.SSLContext

    def connect(self, source: str = HOST) -> ssl.SSLSocket:
        """A connection from an address of loopback."""
        wire = socket.create_connection((HOST, self.port), 20, (source, 0))
        return self.context.wrap_socket(wire, server_hostname="localhost")


@contextmanager
def proxy(folder: Path, server_port: int) -> Iterator[Proxy]:
    """One that answers, until the block ends."""
    authority, context = trustme.CA(), ssl.create_default_context()
    authority.configure_trust(context)
    certificate = authority.issue_cert("localhost")
    certificate.private_key_pem.write_to_path(folder / "guard.key")
    certificate.cert_chain_pems[0].write_to_path(folder / "guard.crt")
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port = int(probe.getsockname()[1])
    text = (ROOT / "config" / "nginx.conf").read_text().replace("/etc/costguard", str(folder))
    text = text.replace("listen 443", f"listen {HOST}:{port}").replace("127.0.0.1:8470", f"{HOST}:{server_port}")
    places = "".join(
        f"{kind}_temp_path {folder}/nginx-{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    path = folder / "nginx.conf"
    path.write_text(
        f"daemon off; worker_processes 1; user root; pid {folder}/nginx.pid; error_log {folder}/nginx.log;\n"
        f"events {{ worker_connections 4096; }}\nhttp {{ access_log off;\n{places}{text}}}\n"
    )
    process = subprocess.Popen([NGINX or "nginx", "-c", str(path)], stderr=subprocess.DEVNULL)
    try:
        ends = time.monotonic() + STARTS_WITHIN_S
        while time.monotonic() < ends:
            assert process.poll() is None, (folder / "nginx.log").read_text()
            with suppress(ConnectionRefusedError), socket.create_connection((HOST, port)):
                break
            time.sleep(0.05)  # another process is waited for
        yield Proxy(process.pid, port, context)
    finally:
        process.terminate()
        process.wait(20)
