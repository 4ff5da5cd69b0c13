"""Serve the webhook over TLS: `python -m costguard_kubernetes`. The environment names costguard and the certificate."""

from __future__ import annotations

import json
import os
import ssl
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from costguard_admission import AdmissionClient

from costguard_kubernetes import review

BODY_MOST = 4 << 20
"""Bytes of an AdmissionReview: an object of etcd has at most 1.5 MiB, and a review has two."""
READ_WITHIN_S = 10
PATH, HEALTH_PATH = "/validate", "/healthz"


def main() -> None:
    """Serve until a signal ends it."""
    try:
        client, server = AdmissionClient.from_environment(), build_server(int(os.environ.get("COSTGUARD_PORT", "8443")))
    except (OSError, ValueError) as error:
        raise SystemExit(f"costguard_kubernetes: {error}") from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    folder = os.environ.get("COSTGUARD_TLS", "/tls")
    context.load_cert_chain(f"{folder}/tls.crt", f"{folder}/tls.key")
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    server.client = client
    sys.stderr.write(f"costguard_kubernetes: asks {client.url}, fails {client.fails}\n")
    server.serve_forever()


class WebhookServer(ThreadingHTTPServer):
    """Answers reviews, each in a thread. `client`: what asks costguard."""

    daemon_threads = True
    client: AdmissionClient


def build_server(port: int, host: str = "") -> WebhookServer:
    """Return the server, bound and without TLS."""
    return WebhookServer((host, port), _Reviewer)


class _Reviewer(BaseHTTPRequestHandler):
    server: WebhookServer
    timeout = READ_WITHIN_S
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Say that it runs."""
        self._answer(200 if self.path == HEALTH_PATH else 404, b"ok\n")

    def do_POST(self) -> None:
        """Answer one review."""
        length = self.headers.get("Content-Length", "")
        if not self.path.startswith(PATH) or not length.isdecimal() or int(length) > BODY_MOST:
            self.close_connection = True
            self._answer(400, b"not a review\n")
            return
        try:
            said = json.loads(self.rfile.read(int(length)))
            answer = review(said, self.server.client)
        except (ValueError, RecursionError, AttributeError, TypeError) as odd:
            self._answer(400, f"{type(odd).__name__}\n".encode())
            return
        self._answer(200, json.dumps(answer).encode(), "application/json")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Write no line for each request."""

    def _answer(self, status: int, body: bytes, kind: str = "text/plain") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    main()
