"""One connection to the watchdog, kept open between messages: bounded in time and size, TLS verified always.

Plain HTTP goes to this machine alone (a tunnel: `ssh -R 8470:127.0.0.1:8470 box`). Redirects are not followed, and a proxy is
used only where joining named one. A connection that the other side closed meanwhile is opened anew before anything is sent.
"""

from __future__ import annotations

import base64
import http.client
import select
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from costguard_agent.diagnostics import AgentError
from costguard_agent.timed import TimedSocketReader, compute_time_left

WATCHDOG_WITHIN_S, ANSWER_MOST, PROXY_PORT = 10.0, 64 * 1024, 3128
LOCAL_HOSTS = ("127.", "localhost", "::1")
KNOWN: Sequence[tuple[type[Exception], str]] = (
    (ConnectionRefusedError, "nobody listens there"),
    (socket.gaierror, "its name cannot be resolved"),
    (http.client.RemoteDisconnected, "it hung up"),
    (http.client.HTTPException, "what answers there speaks no HTTP"),
)
PORTS = {"http": 80, "https": 443}


class WatchdogReply(NamedTuple):
    """What came back. `headers`: names in small letters."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class UnreachedError(Exception):
    """No whole answer came; the message may have arrived all the same. Says why, without address."""


class WatchdogAddress(NamedTuple):
    """Where a watchdog is: only what a URL without path says."""

    scheme: str
    host: str
    port: int


def parse_address(url: str) -> WatchdogAddress:
    """The address in `url`. Raises AgentError with what to write instead."""
    try:
        parts = urlsplit(url if "://" in url else f"https://{url}")
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise AgentError(f"{url!r} is no address ({error}): write https://HOST[:PORT]") from error
    if parts.scheme not in PORTS or not host or parts.path not in {"", "/"} or parts.query or parts.fragment or parts.username:
        raise AgentError(f"{url!r} is no address of a watchdog: write https://HOST[:PORT], and nothing behind it")
    if parts.scheme == "http" and not is_loopback(host):
        raise AgentError(f"plain http only to this machine, not to {host}: write https://, or join through a tunnel (ssh -R)")
    return WatchdogAddress(parts.scheme, host, port or PORTS[parts.scheme])


def is_loopback(host: str) -> bool:
    """Whether it is this machine."""
    return host in LOCAL_HOSTS or (host.startswith("127.") and host.replace(".", "").isdigit())


class WatchdogConnection:
    """A connection to `url`. `ca`: a file of certificates instead of the system's; `proxy`: http://HOST:PORT, "" for none."""

    def __init__(self, url: str, *, ca: str = "", proxy: str = "") -> None:
        self._to, self._ca = parse_address(url), ca
        self._proxy = _parse_proxy(proxy, self._to) if proxy else None
        self._connection: http.client.HTTPConnection | None = None
        self._context: Any = None
        self._until = 0.0

    def post(self, path: str, body: bytes, headers: Mapping[str, str], *, within_s: float = WATCHDOG_WITHIN_S) -> WatchdogReply:
        """The answer to `body`, all of it within so many seconds. Raises UnreachedError."""
        self._until = until = time.monotonic() + within_s
        try:
            connection = self._open(until)
            connection.sock.settimeout(compute_time_left(until))
            every = {"Content-Type": "application/json", "Accept-Encoding": "identity", **headers}
            connection.request("POST", path, body=body, headers=every)
            answer = connection.getresponse()
            data = answer.read(ANSWER_MOST + 1)
        except (OSError, ValueError, http.client.HTTPException) as error:
            self.close()
            raise UnreachedError(_explain_unreached(error, within_s)) from None
        found = {name.lower(): value for name, value in answer.getheaders()}
        if not answer.isclosed():
            self.close()  # there is more than was read
        if len(data) > ANSWER_MOST:
            raise UnreachedError(f"an answer of more than {ANSWER_MOST} bytes (status {answer.status})")
        return WatchdogReply(answer.status, found, data)

    def close(self) -> None:
        """Let go of the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _open(self, until: float) -> http.client.HTTPConnection:
        kept = self._connection
        if kept is not None and (kept.sock is None or select.select([kept.sock], [], [], 0)[0]):
            self.close()  # what can be read before anything was asked is the end of it
        if self._connection is None:
            self._connection = self._connect_socket(until)
        return self._connection

    def _connect_socket(self, until: float) -> http.client.HTTPConnection:
        to, via = self._to, self._proxy
        host, port = (via.hostname or "", via.port or PROXY_PORT) if via else (to.host, to.port)
        if to.scheme == "https":
            made: http.client.HTTPConnection = http.client.HTTPSConnection(
                host, port, timeout=compute_time_left(until), context=self._make_tls_context()
            )
        else:
            made = http.client.HTTPConnection(host, port, timeout=compute_time_left(until))
        made.response_class = self._read_response  # type: ignore[assignment]
        if via:
            made.set_tunnel(to.host, to.port, _build_proxy_headers(via))
        try:
            made.connect()
        except BaseException:
            made.close()
            raise
        made.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made

    def _read_response(self, wire: socket.socket, **named: Any) -> http.client.HTTPResponse:  # noqa: ANN401 - its own arguments
        return http.client.HTTPResponse(TimedSocketReader(wire, self._until), **named)  # type: ignore[arg-type]

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
        raise AgentError(f"--proxy {url!r} is no address ({error}): write http://HOST:PORT") from error
    if parts.scheme != "http" or not parts.hostname or port == 0 or parts.path not in {"", "/"}:
        raise AgentError(f"--proxy {url!r} is no address of a proxy: write http://HOST:PORT or http://USER:PASSWORD@HOST:PORT")
    if to.scheme != "https":
        raise AgentError("a proxy carries https alone: what goes to this machine needs none")
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
        said = getattr(error, "verify_message", "") or "not trusted"
        return f"its certificate cannot be verified ({said}): join with --ca FILE if you made it yourself"
    for kind, text in KNOWN:
        if isinstance(error, kind):
            return text
    return getattr(error, "strerror", None) or f"{type(error).__name__} on the way"
