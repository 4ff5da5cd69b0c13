"""HTTP requests with limits on time and size: single local or cloud requests, and a connection to the watchdog.

A single request follows no redirects, uses no proxy and is never repeated. It is sent in one piece, so that a process that is
killed meanwhile has sent all of it or nothing that a server would accept as complete.

The connection to the watchdog is kept open between messages; TLS is always verified. Plain HTTP is allowed to this machine only
(a tunnel: `ssh -R 8470:127.0.0.1:8470 box`). Redirects are not followed, and a proxy is used only if `join` named one. A
connection that the other side has closed is reopened before anything is sent.

A socket is read with one deadline for the whole answer, which ends slow answers as well.
"""

from __future__ import annotations

import base64
import http.client
import io
import json
import select
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from costguard_agent.diagnostics import AgentError

REQUEST_WITHIN_S, REPLY_BYTES_MOST = 3.0, 2**20
LOOPBACK_HOSTS = ("127.0.0.1", "::1", "localhost")


class HttpReply(NamedTuple):
    """A status and an unvalidated body."""

    status: int
    body: bytes

    def parse_json(self) -> Any:  # noqa: ANN401 - whatever a server says
        """Return the body parsed as JSON; None if it is not JSON."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None


class UnansweredError(Exception):
    """No answer, with the reason, without address or key.

    `sent`: whether the request may have arrived.
    """

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
    """Return the answer to one request within `within_s` seconds in all; raises UnansweredError.

    `own_certificate`: accept a self-signed certificate, as notebook servers use them; on this machine only.
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
        raise ValueError("a request with invalid characters")
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
        return "no server is listening there"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"{type(error).__name__} on the way"


WATCHDOG_WITHIN_S, ANSWER_MOST, PROXY_PORT = 10.0, 64 * 1024, 3128
LOCAL_HOSTS = ("127.", "localhost", "::1")
KNOWN: Sequence[tuple[type[Exception], str]] = (
    (ConnectionRefusedError, "no server is listening there"),
    (socket.gaierror, "its name cannot be resolved"),
    (BrokenPipeError, "it closed the connection"),
    (ConnectionResetError, "it closed the connection"),  # RemoteDisconnected too
    (http.client.HTTPException, "the server there does not use HTTP"),
)
PORTS = {"http": 80, "https": 443}


class WatchdogReply(NamedTuple):
    """The watchdog's reply.

    `headers`: names in lower case.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes


class UnreachedError(Exception):
    """No complete answer, with the reason, without address; the message may still have arrived."""


class WatchdogAddress(NamedTuple):
    """The address of a watchdog: a URL without a path."""

    scheme: str
    host: str
    port: int


def parse_address(url: str) -> WatchdogAddress:
    """Parse the address in `url`; raises AgentError that states the correct form."""
    try:
        parts = urlsplit(url if "://" in url else f"https://{url}")
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise AgentError(f"{url!r} is not an address ({error}): write https://HOST[:PORT]") from error
    if parts.scheme not in PORTS or not host or parts.path not in {"", "/"} or parts.query or parts.fragment or parts.username:
        raise AgentError(f"{url!r} is not an address of a watchdog: write https://HOST[:PORT] without a path")
    if parts.scheme == "http" and not is_loopback(host):
        raise AgentError(f"plain http only to this machine, not to {host}: write https://, or join through a tunnel (ssh -R)")
    return WatchdogAddress(parts.scheme, host, port or PORTS[parts.scheme])


def is_loopback(host: str) -> bool:
    """Return whether `host` is this machine."""
    return host in LOCAL_HOSTS or (host.startswith("127.") and host.replace(".", "").isdigit())


class WatchdogConnection:
    """A connection to `url`.

    `ca`: a file of certificates, "" for the system's; `proxy`: http://HOST:PORT, "" for none.
    """

    def __init__(self, url: str, *, ca: str = "", proxy: str = "") -> None:
        self._to, self._ca = parse_address(url), ca
        self._proxy = _parse_proxy(proxy, self._to) if proxy else None
        self._connection: http.client.HTTPConnection | None = None
        self._context: Any = None
        self._until = 0.0

    def post(self, path: str, body: bytes, headers: Mapping[str, str], *, within_s: float = WATCHDOG_WITHIN_S) -> WatchdogReply:
        """Return the complete answer to `body` within `within_s` seconds; raises UnreachedError."""
        return self._ask("POST", path, body, headers, within_s)

    def get(self, path: str, *, within_s: float = WATCHDOG_WITHIN_S) -> WatchdogReply:
        """Return the complete answer within `within_s` seconds; raises UnreachedError."""
        return self._ask("GET", path, None, {}, within_s)

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str], within_s: float) -> WatchdogReply:
        self._until = until = time.monotonic() + within_s
        try:
            connection = self._open(until)
            connection.sock.settimeout(compute_time_left(until))
            every = {"Accept-Encoding": "identity", **headers}
            if body is not None:
                every["Content-Type"] = "application/json"
            connection.request(method, path, body=body, headers=every)
            answer = connection.getresponse()
            data = answer.read(ANSWER_MOST + 1)
        except (OSError, ValueError, http.client.HTTPException) as error:
            self.close()
            raise UnreachedError(_explain_unreached(error, within_s)) from None
        answer_headers = {name.lower(): value for name, value in answer.getheaders()}
        if not answer.isclosed():
            self.close()  # there is more than was read
        if len(data) > ANSWER_MOST:
            raise UnreachedError(f"an answer of more than {ANSWER_MOST} bytes (status {answer.status})")
        return WatchdogReply(answer.status, answer_headers, data)

    def _open(self, until: float) -> http.client.HTTPConnection:
        connection = self._connection
        if connection is not None and (connection.sock is None or select.select([connection.sock], [], [], 0)[0]):
            self.close()  # what can be read before anything was asked is the end of it
        if self._connection is None:
            self._connection = self._connect_socket(until)
        return self._connection

    def _connect_socket(self, until: float) -> http.client.HTTPConnection:
        to, via = self._to, self._proxy
        host, port = (via.hostname or "", via.port or PROXY_PORT) if via else (to.host, to.port)
        if to.scheme == "https":
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                host, port, timeout=compute_time_left(until), context=self._make_tls_context()
            )
        else:
            connection = http.client.HTTPConnection(host, port, timeout=compute_time_left(until))
        connection.response_class = self._read_response  # type: ignore[assignment]
        if via:
            connection.set_tunnel(to.host, to.port, _build_proxy_headers(via))
        try:
            connection.connect()
        except BaseException:
            connection.close()
            raise
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def _read_response(self, wire: socket.socket, **options: Any) -> http.client.HTTPResponse:  # noqa: ANN401 - its own arguments
        return http.client.HTTPResponse(TimedSocketReader(wire, self._until), **options)  # type: ignore[arg-type]

    def _make_tls_context(self) -> Any:  # noqa: ANN401 - ssl is imported for https alone
        if self._context is None:
            import ssl

            self._context = ssl.create_default_context(cafile=self._ca or None)
            self._context.minimum_version = ssl.TLSVersion.TLSv1_2
        return self._context


def _parse_proxy(url: str, to: WatchdogAddress) -> SplitResult:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise AgentError(f"--proxy {url!r} is not an address ({error}): write http://HOST:PORT") from error
    if parts.scheme != "http" or not parts.hostname or port == 0 or parts.path not in {"", "/"}:
        raise AgentError(
            f"--proxy {url!r} is not an address of a proxy: write http://HOST:PORT or http://USER:PASSWORD@HOST:PORT"
        )
    if to.scheme != "https":
        raise AgentError("a proxy is only for https: requests to this machine do not use one")
    return parts


def _build_proxy_headers(via: SplitResult) -> dict[str, str]:
    if via.username is None:
        return {}
    words = f"{unquote(via.username)}:{unquote(via.password or '')}".encode()
    return {"Proxy-Authorization": f"Basic {base64.b64encode(words).decode('ascii')}"}


def _explain_unreached(error: Exception, within_s: float) -> str:
    if isinstance(error, (TimeoutError, socket.timeout)):
        return f"no answer within {within_s:g} s"
    if type(error).__name__ == "SSLCertVerificationError":
        reason = getattr(error, "verify_message", "") or "not trusted"
        return f"its certificate cannot be verified ({reason}): join with --ca FILE if you made it yourself"
    for kind, text in KNOWN:
        if isinstance(error, kind):
            return text
    return getattr(error, "strerror", None) or f"{type(error).__name__} on the way"


class TimedSocketReader(io.RawIOBase):
    """Reads `wire` until `until` of the monotonic clock, in seconds; raises TimeoutError after it."""

    def __init__(self, wire: socket.socket, until: float) -> None:
        self._wire, self._until = wire, until
        self._raw = wire.makefile("rb", buffering=0)
        """Keeps the socket open after http.client closed its own reference, as it does for an answer without keep-alive."""

    def makefile(self, _: str) -> io.BufferedReader:
        """Return a buffered reader, as http.client requires."""
        return io.BufferedReader(self)

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, into: Any) -> int:  # noqa: ANN401 - a buffer; its type is named in Python 3.12
        """Read at least one byte into the buffer and return the count; 0 at the end."""
        self._wire.settimeout(compute_time_left(self._until))
        return self._raw.readinto(into) or 0

    def close(self) -> None:
        """Close this reader, and the socket if nothing else uses it."""
        self._raw.close()
        super().close()


def compute_time_left(until: float) -> float:
    """Return the seconds until `until` of the monotonic clock; raises TimeoutError if it has passed."""
    seconds = until - time.monotonic()
    if seconds <= 0:
        raise TimeoutError
    return seconds
