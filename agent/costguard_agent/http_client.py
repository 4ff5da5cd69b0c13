"""One HTTP request, bounded in time and size: to servers on this machine, and to whoever ends it.

Redirects are not followed, proxies are not used, nothing is sent again. The request goes out in one piece, so that a process
that is ended in between has sent all of it or nothing that a server would take for a whole one.
"""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from costguard_agent.timed import TimedSocketReader, compute_time_left

REQUEST_WITHIN_S, REPLY_BYTES_MOST = 3.0, 2**20
LOOPBACK_HOSTS = ("127.0.0.1", "::1", "localhost")


class HttpReply(NamedTuple):
    """A status and a body; what it says is not judged here."""

    status: int
    body: bytes

    def parse_json(self) -> Any:  # noqa: ANN401 - whatever a server says
        """The body, read as JSON; None where it is none."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None


class UnansweredError(Exception):
    """No answer, and why, without address or key. `sent`: whether the request may have arrived."""

    def __init__(self, why: str, *, sent: bool = False) -> None:
        super().__init__(why)
        self.sent = sent


def send_request(
    url: str,
    *,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    within_s: float = REQUEST_WITHIN_S,
    most: int = REPLY_BYTES_MOST,
    own_certificate: bool = False,
) -> HttpReply:
    """The answer to one request, within `within_s` seconds in all; raises UnansweredError.

    `own_certificate`: the server made its certificate itself, as notebook servers do; on this machine only.
    """
    until, sent = time.monotonic() + within_s, False
    try:
        parts = urlsplit(url)
        request = _format_request(method, parts.netloc, _quote_path(parts.path, parts.query), headers or {}, body)
        with _connect(parts.scheme, parts.hostname or "", parts.port, until, own_certificate=own_certificate) as wire:
            wire.settimeout(compute_time_left(until))
            sent = True
            wire.sendall(request)
            answer = http.client.HTTPResponse(TimedSocketReader(wire, until), method=method)  # type: ignore[arg-type]
            answer.begin()
            data = answer.read(most + 1)
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise UnansweredError(_explain_unanswered(error, within_s), sent=sent) from None
    if len(data) > most:
        raise UnansweredError(f"an answer of more than {most} bytes", sent=True)
    return HttpReply(answer.status, data)


def _format_request(method: str, host: str, path: str, headers: Mapping[str, str], body: bytes) -> bytes:
    every = {"Host": host, "Accept": "application/json", "Accept-Encoding": "identity", "Connection": "close", **headers}
    if body:
        every["Content-Type"] = "application/json"
    if body or method in ("POST", "PUT"):
        every["Content-Length"] = str(len(body))
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in every.items())]
    if any(ord(sign) < 32 or ord(sign) > 126 for line in lines for sign in line):  # noqa: PLR2004 - printable ASCII
        raise ValueError("a request with signs that do not belong there")
    return "\r\n".join([*lines, "", ""]).encode("ascii") + body


def _quote_path(path: str, query: str) -> str:
    return (path or "/") + (f"?{query}" if query else "")


def _connect(scheme: str, host: str, port: int | None, until: float, *, own_certificate: bool) -> socket.socket:
    secure = scheme == "https"
    if not secure and scheme != "http":
        raise ValueError("an address that is neither http nor https")
    wire = socket.create_connection((host, port or (443 if secure else 80)), timeout=compute_time_left(until))
    if not secure:
        return wire
    import ssl

    context = ssl.create_default_context()
    if own_certificate and host in LOOPBACK_HOSTS:
        # Nobody vouches for a certificate that a server on this machine made itself; plain HTTP to it is no safer.
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        wire.settimeout(compute_time_left(until))
        return context.wrap_socket(wire, server_hostname=host)
    except BaseException:
        wire.close()
        raise


def _explain_unanswered(error: Exception, within_s: float) -> str:
    if isinstance(error, (TimeoutError, socket.timeout)):
        return f"no answer within {within_s:g} s"
    if isinstance(error, ConnectionRefusedError):
        return "nobody listens there"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"{type(error).__name__} on the way"
