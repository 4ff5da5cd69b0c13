"""Serve the webhook over TLS: `python -m costguard_kubernetes`. The environment names costguard and the certificate.

connection -> a thread is free? -> TLS (certificate of the client, if COSTGUARD_CLIENT_CA is set) -> one review -> closed
"""

from __future__ import annotations

import json
import os
import socket
import ssl
import sys
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from costguard_admission import AdmissionClient

from costguard_kubernetes import review, review_unread

BODY_MOST = 1 << 20
"""Bytes of a review that is read; a larger one is answered by its head."""
HEAD_MOST = 64 << 10
DISCARDED_WITHIN_S = 5
"""How long the rest of a larger one is read and forgotten, so that the answer arrives."""
THREADS_MOST = 32
"""Connections at once; others are closed. An answer takes 20 ms, or the 5 s that the client waits for costguard."""
READ_WITHIN_S = 10
LENGTH_DIGITS_MAX = 12
PATH, HEALTH_PATH = "/validate", "/healthz"


def main() -> None:
    """Serve until a signal ends it."""
    try:
        client, tls = AdmissionClient.from_environment(), build_tls(os.environ)
        server = build_server(int(os.environ.get("COSTGUARD_PORT", "8443")), tls=tls)
    except (OSError, ValueError) as error:
        raise SystemExit(f"costguard_kubernetes: {error}") from None
    server.client = client
    clients = (
        "clients with a certificate"
        if tls.verify_mode == ssl.CERT_REQUIRED
        else "every client (COSTGUARD_CLIENT_CA is not set)"
    )
    sys.stderr.write(f"costguard_kubernetes: asks {client.url}, fails {client.fails}, answers {clients}\n")
    server.serve_forever()


def build_tls(environ: Mapping[str, str]) -> ssl.SSLContext:
    """Return the server's side of TLS. With COSTGUARD_CLIENT_CA only a client with a certificate of that authority is answered.

    Raises OSError for files that cannot be read, or are no certificates.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    folder = environ.get("COSTGUARD_TLS", "/tls")
    context.load_cert_chain(f"{folder}/tls.crt", f"{folder}/tls.key")
    if environ.get("COSTGUARD_CLIENT_CA"):
        context.load_verify_locations(environ["COSTGUARD_CLIENT_CA"])
        context.verify_mode = ssl.CERT_REQUIRED
    return context


class WebhookServer(ThreadingHTTPServer):
    """Answers reviews, each in one of THREADS_MOST threads. `client`: what asks costguard."""

    daemon_threads = True
    request_queue_size = THREADS_MOST
    client: AdmissionClient

    def __init__(self, *words: Any) -> None:  # noqa: ANN401 - the base's
        super().__init__(*words)
        self._free = threading.BoundedSemaphore(THREADS_MOST)

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - the base's
        """Answer in a thread of its own, or close if none is free."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread can be started
            self._free.release()
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - the base's
        """Answer, and free the thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: socket.socket | tuple[bytes, socket.socket], client_address: Any) -> None:  # noqa: ANN401 - the base's
        """Write one line about a client that TLS refuses, and none about one that goes away, as a probe does."""
        error = sys.exc_info()[1]
        if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
            sys.stderr.write(f"costguard_kubernetes: {client_address[0]}: {error.reason or type(error).__name__}\n")
        elif not isinstance(error, OSError):
            super().handle_error(request, client_address)


def build_server(port: int, host: str = "", tls: ssl.SSLContext | None = None) -> WebhookServer:
    """Return the server, bound. `tls`: None serves without, for tests."""
    server = WebhookServer((host, port), _Reviewer)
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    return server


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
        if not self.path.startswith(PATH) or not length.isdecimal() or len(length) > LENGTH_DIGITS_MAX:
            self._answer(400, b"not a review\n")
            return
        try:
            answer = self._review(int(length))
        except ValueError:
            self._answer(400, b"not a review\n")
            return
        self._answer(200, json.dumps(answer).encode(), "application/json")

    def _review(self, length: int) -> dict[str, object]:
        """Return the answer to a review of `length` bytes. Raises ValueError if it is none."""
        if length > BODY_MOST:
            head = self.rfile.read(HEAD_MOST)
            self._discard(length - len(head))
            return review_unread(head, f"its review has more than {BODY_MOST >> 20} MiB; put what is large into a ConfigMap")
        body = self.rfile.read(length)
        try:
            return review(json.loads(body), self.server.client)
        except (ValueError, RecursionError, AttributeError, TypeError, LookupError) as error:
            return review_unread(body[:HEAD_MOST], f"it has another form ({type(error).__name__})")

    def _discard(self, length: int) -> None:
        until = time.monotonic() + DISCARDED_WITHIN_S
        while length > 0 and time.monotonic() < until and (part := self.rfile.read(min(length, 64 << 10))):
            length -= len(part)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Write no line for each request."""

    def _answer(self, status: int, body: bytes, kind: str = "text/plain") -> None:
        """Answer and close: a connection that is kept would keep a thread."""
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    main()
