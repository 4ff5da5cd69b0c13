"""One try at one request: within a deadline, at most so many bytes once unpacked, no redirect, TLS always verified.

The one place of the process that opens a connection to a provider. What comes back is a Reply with any status, or an
UnreachableError or OddAnswerError; deciding what a status means is the Channel's business.

A deadline for all that one request or one poll does, which no slow sender can stretch.

A timeout for each read is no bound: a server that sends a byte a second keeps every read short. So the network stream itself
looks at the deadline of the thread that reads, before every read and write.

Which addresses a provider may be asked at: https anywhere, plain http on this machine only (tests, tunnels).

An address is read strictly, so that no two readers of it can disagree on which host it names: plain ASCII, no user, no query,
no escapes, and a host that is a name or an IP address in its usual form (not 2130706433, 0x7f.1 or 127.0.0.1.).
"""

from __future__ import annotations

import logging
import re
import ssl
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.cookiejar import CookieJar, DefaultCookiePolicy
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpcore2
import httpx2

from costguard.errors import InputError, InvalidAnswerError, ProviderError, UnreachableError, UnsentError, shorten
from costguard.system.clock import is_too_late_to_send
from costguard.system.clock import read_monotonic as usual
from costguard.system.network import (
    explain_tls_error,
    load_file_context,
    load_system_context,
    load_text_context,
    resolve_addresses,
)

MOST_BYTES = 16 * 2**20
"""Of a body once unpacked (RELIABILITY H47): a page of 1,000 EC2 instances has 3.2 MB."""
CONNECT_S, READ_S = 5.0, 15.0
CONNECTIONS, KEPT_S = 128, 60.0
PIECE_BYTES = 64 * 1024
Network = httpcore2.NetworkBackend
AUTHORITIES_HINT = "name a PEM file of the authorities to trust: ca_file in [network]"
LONGEST_PATH = 200
"""Characters of a path in a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """What is to be sent. Headers hold keys and the body may hold anything: neither is shown.

    `called`: how messages name its address where that is a secret itself; "" where it may be shown.
    """

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes = field(default=b"", repr=False)
    called: str = ""

    @property
    def place(self) -> str:
        """Where it goes, without the query: `GET https://api.runpod.io/v2/pods`."""
        if self.called:
            return self.called
        try:
            parts = urlsplit(self.url)
            port = f":{parts.port}" if parts.port else ""
        except ValueError:
            return f"{self.method} to an address that cannot be read"
        return f"{self.method} {parts.scheme}://{parts.hostname or ''}{port}{shorten(parts.path, LONGEST_PATH)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpResponse:
    """What came back. Header names are in lower case; `body` is unpacked and whole."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes = field(default=b"", repr=False)


class Transport:
    """The one HTTP client. `ca_file`: a file of certificates to trust instead of the system's; `proxy`: an http(s) URL.

    `authorities`: certificates (PEM) to trust instead of both, of a cluster with an authority of its own; "": none.

    `network`: what connects in place of this machine's sockets, for clouds that are played in this process.

    The environment's proxies are not taken: a key must not go where a variable of some shell says. Nor are cookies kept: two
    accounts of one provider would share them.
    """

    def __init__(
        self,
        *,
        ca_file: Path | None = None,
        proxy: str | None = None,
        network: Network | None = None,
        authorities: str = "",
    ) -> None:
        _silence_http_logs()
        context = _load_authorities(authorities) if authorities else None
        context = context or (_load_ca_file(ca_file) if ca_file else load_system_context())
        direct = _TimedTransport(context, None, network)
        through = direct if proxy is None else _connect_proxy(context, proxy)
        self._client = httpx2.Client(
            transport=through,
            mounts={} if proxy is None else dict.fromkeys(LOCAL_HOSTS, direct),
            trust_env=False,
            follow_redirects=False,
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
            headers={"User-Agent": "costguard", "Accept-Encoding": "gzip"},
        )

    def close(self) -> None:
        """Let go of every connection."""
        self._client.close()

    def exchange(
        self, request: HttpRequest, *, provider: str, deadline: Deadline, most_bytes: int = MOST_BYTES
    ) -> HttpResponse:
        """One try. UnreachableError: no whole answer came in time. OddAnswerError: it is too large or cannot be read."""
        outcome = self._try_exchange(request, provider, deadline, most_bytes)
        if isinstance(outcome, ProviderError):
            raise outcome
        return outcome

    def _try_exchange(
        self, request: HttpRequest, provider: str, deadline: Deadline, most_bytes: int
    ) -> HttpResponse | ProviderError:
        """The error is handed out rather than raised here, so that it keeps no frame of httpx2, which hold headers and body."""
        try:
            with bound_network(deadline):
                response = self._send(request, provider, deadline)
                try:
                    body = b"".join(_read_pieces(response, most_bytes, request.place, provider))
                finally:
                    response.close()
        except ProviderError as ours:
            return ours.with_traceback(None)
        except (httpx2.HTTPError, httpx2.StreamError, OSError) as broken:
            return _explain_failure(broken, request, provider)
        except (httpx2.InvalidURL, ValueError, TypeError):
            what = f"{request.place}: the address or a header holds a character that cannot be sent"
            return InvalidAnswerError(what, provider=provider)
        return HttpResponse(status=response.status_code, headers={k.lower(): v for k, v in response.headers.items()}, body=body)

    def _send(self, request: HttpRequest, provider: str, deadline: Deadline) -> httpx2.Response:
        """The reply's head. What is checked is the address as the client itself reads it."""
        timeout = httpx2.Timeout(READ_S, connect=CONNECT_S, pool=max(deadline.compute_left(), LEAST_POOL_S))
        built = self._client.build_request(
            request.method, request.url, headers=dict(request.headers), content=request.body or None, timeout=timeout
        )
        if built.url.scheme != "https" and not (built.url.scheme == "http" and is_loopback(built.url.host)):
            raise InvalidAnswerError(f"{request.place} is plain http: no request was sent", provider=provider)
        if built.url.userinfo:
            raise InvalidAnswerError(f"{request.place} has a user name in its address: no request was sent", provider=provider)
        return self._client.send(built, stream=True)


LEAST_POOL_S = 0.001
LOCAL_HOSTS = ("all://localhost", "all://127.0.0.1", "all://[::1]")
"""Hosts that are this machine, which no proxy can reach."""


def _silence_http_logs() -> None:
    """What httpx2 and httpcore2 log is addresses with their queries, and headers with what a provider echoes (H40)."""
    for name in ("httpx2", *(f"httpcore2.{part}" for part in ("connection", "http11", "http2", "proxy", "socks"))):
        logging.getLogger(name).disabled = True


class _TimedTransport(httpx2.HTTPTransport):
    """httpx2's own transport over a pool whose network looks at the deadline: the one private name that is used of it."""

    def __init__(self, context: ssl.SSLContext, proxy: str | None, network: Network | None = None) -> None:
        limits = httpx2.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS, keepalive_expiry=KEPT_S)
        super().__init__(verify=context, trust_env=False, proxy=proxy, limits=limits)
        self._pool._network_backend = TimedBackend(network)  # noqa: SLF001 - no parameter reaches it through httpx2


def _connect_proxy(context: ssl.SSLContext, proxy: str) -> _TimedTransport:
    """A way through `proxy`, whose address may hold a password: it is shown nowhere."""
    try:
        if urlsplit(proxy).scheme in ("http", "https"):
            return _TimedTransport(context, proxy)
    except (httpx2.InvalidURL, ValueError):
        pass
    raise InputError("is not an address of an http proxy", field="proxy", hint="write http://host:port")


def _load_ca_file(ca_file: Path) -> ssl.SSLContext:
    try:
        return load_file_context(ca_file)
    except FileNotFoundError:
        raise InputError("no such file", field=str(ca_file), hint=AUTHORITIES_HINT) from None
    except (OSError, ValueError):
        raise InputError("holds no certificates", field=str(ca_file), hint=AUTHORITIES_HINT) from None


def _load_authorities(authorities: str) -> ssl.SSLContext:
    try:
        return load_text_context(authorities)
    except ValueError:
        raise InputError("hold no certificates", field="authorities", hint="write certificates in PEM") from None


def _read_pieces(response: httpx2.Response, most_bytes: int, place: str, provider: str) -> Iterator[bytes]:
    """The body, unpacked piece by piece, so that nothing larger than the cap is ever held."""
    size = 0
    for piece in _unpack_pieces(response, place, provider):
        size += len(piece)
        if size > most_bytes:
            raise InvalidAnswerError(
                f"{place} sent a response of more than {most_bytes} bytes", provider=provider, status=response.status_code
            )
        yield piece


def _unpack_pieces(response: httpx2.Response, place: str, provider: str) -> Iterator[bytes]:
    packing = response.headers.get("content-encoding", "identity").strip().lower()
    if packing in ("identity", ""):
        yield from response.iter_raw(PIECE_BYTES)
        return
    if packing not in ("gzip", "x-gzip"):
        what = f"{place} answered in the packing '{shorten(packing)}', which was not requested"
        raise InvalidAnswerError(what, provider=provider, status=response.status_code)
    unpack, has_data = zlib.decompressobj(zlib.MAX_WBITS | 16), False
    try:
        for packed in response.iter_raw(PIECE_BYTES):
            rest, has_data = packed, has_data or bool(packed)
            while rest and not unpack.eof:
                yield unpack.decompress(rest, PIECE_BYTES)
                rest = unpack.unconsumed_tail
            if unpack.eof and (rest or unpack.unused_data):
                raise InvalidAnswerError(f"{place} sent data after the end of its response", provider=provider)
    except zlib.error:
        raise InvalidAnswerError(f"{place} sent a response that cannot be decompressed", provider=provider) from None
    if has_data and not unpack.eof:
        raise InvalidAnswerError(f"{place} sent an incomplete response", provider=provider)


def _explain_failure(broken: Exception, request: HttpRequest, provider: str) -> ProviderError:
    """What happened in words. The exception's own are left out: they may hold a header, or a proxy's password."""
    message = str(broken)
    if isinstance(broken, httpx2.ProtocolError) and "without sending" not in message:
        is_local = isinstance(broken, httpx2.LocalProtocolError)
        what = ": a header holds a character that cannot be sent" if is_local else " did not answer in HTTP"
        return InvalidAnswerError(f"{request.place}{what}", provider=provider)
    kind = UnsentError if isinstance(broken, _UNSENT) else UnreachableError
    trouble = None if isinstance(broken, httpx2.TimeoutException) else explain_tls_error(broken)
    if trouble is not None:
        return kind(f"{request.place}: {trouble.what}", provider=provider, hint=trouble.hint)
    what = next(
        (words for kinds, words in _FAILURE_WORDS if isinstance(broken, kinds)), f": no connection ({type(broken).__name__})"
    )
    if "complete message body" in message:
        what = " closed the connection in the middle of its answer"
    return kind(f"{request.place}{what}", provider=provider)


_UNSENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
"""Raised before the first byte of a request: also while TLS is agreed on."""
_FAILURE_WORDS: tuple[tuple[type[Exception] | tuple[type[Exception], ...], str], ...] = (
    ((httpx2.ConnectTimeout, httpx2.PoolTimeout), ": no connection in time"),
    (httpx2.TimeoutException, ": no complete answer in time"),
    (httpx2.RemoteProtocolError, " closed the connection without an answer"),
    ((httpx2.ReadError, httpx2.WriteError), ": the connection broke"),
)


Monotonic = Callable[[], float]


class Deadline:
    """An instant by which something must be over. `left()` is in seconds, and never negative."""

    __slots__ = ("_monotonic", "until")

    def __init__(self, seconds: float, monotonic: Monotonic = usual) -> None:
        self._monotonic = monotonic
        self.until = monotonic() + seconds

    def compute_left(self) -> float:
        """Seconds that are left."""
        return max(0.0, self.until - self._monotonic())

    def limit_to(self, seconds: float) -> Deadline:
        """The earlier of this one and `seconds` from now."""
        return Deadline(min(seconds, self.compute_left()), self._monotonic)


_thread_deadline = threading.local()


@contextmanager
def bound_network(deadline: Deadline) -> Iterator[None]:
    """In this block no network operation of this thread outlasts `deadline`."""
    previous_deadline: Deadline | None = getattr(_thread_deadline, "deadline", None)
    _thread_deadline.deadline = deadline
    try:
        yield
    finally:
        _thread_deadline.deadline = previous_deadline


def _bound_timeout(timeout: float | None, late: type[Exception]) -> float | None:
    deadline: Deadline | None = getattr(_thread_deadline, "deadline", None)
    if deadline is None:
        return timeout
    left = deadline.compute_left()
    if left <= 0:
        raise late("the deadline has passed")
    return left if timeout is None else min(timeout, left)


class TimedBackend(httpcore2.NetworkBackend):
    """A synchronous network, each of whose operations looks at the deadline. `inner`: None for this machine's sockets."""

    def __init__(self, inner: httpcore2.NetworkBackend | None = None) -> None:
        self._inner = inner or httpcore2.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.NetworkStream:
        """A connection to `host`."""
        until = Deadline(timeout if timeout is not None else LONGEST_CONNECT_S)
        broken: Exception = httpcore2.ConnectError("the name has no address")
        for address in _resolve_addresses(host, port, _bound_timeout(until.compute_left(), httpcore2.ConnectTimeout)):
            bounded = _bound_timeout(until.compute_left(), httpcore2.ConnectTimeout)
            try:
                return _TimedStream(self._inner.connect_tcp(address, port, bounded, local_address, socket_options))
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as why:
                broken = why
        raise broken

    def sleep(self, seconds: float) -> None:
        """Wait."""
        self._inner.sleep(seconds)


LONGEST_CONNECT_S = 30.0


def _resolve_addresses(host: str, port: int, seconds: float | None) -> list[str]:
    """The IP addresses of `host`, in httpcore's errors."""
    try:
        return resolve_addresses(host, port, seconds)
    except TimeoutError as late:
        raise httpcore2.ConnectTimeout(str(late)) from None
    except OSError:
        raise httpcore2.ConnectError("the name cannot be resolved") from None


class _TimedStream(httpcore2.NetworkStream):
    def __init__(self, inner: httpcore2.NetworkStream) -> None:
        self._inner = inner

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max_bytes, _bound_timeout(timeout, httpcore2.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        bounded = _bound_timeout(timeout, httpcore2.WriteTimeout)
        if buffer and is_too_late_to_send():
            raise httpcore2.WriteTimeout("it is too late to send it")
        self._inner.write(buffer, bounded)

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        stream = self._inner.start_tls(ssl_context, server_hostname, _bound_timeout(timeout, httpcore2.ConnectTimeout))
        line = stream.get_extra_info("socket")
        if isinstance(line, ssl.SSLSocket):
            # an end that TLS did not announce is a cut, not the end of an answer
            line.suppress_ragged_eofs = False  # type: ignore[attr-defined]  # the stubs lack it
        return _TimedStream(stream)

    def get_extra_info(self, info: str) -> Any:  # noqa: ANN401 - the shape is httpcore's
        return self._inner.get_extra_info(info)


ADDRESS_CHARACTERS = re.compile(r"[A-Za-z0-9._~:/\[\]-]+")
"""Characters of an address. No `%`, `@`, `\\`, `?`, `#`, blank, and nothing beyond ASCII: a foreign name is written as xn--."""

HOST_NAME = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)(?:\.(?!-)[A-Za-z0-9_-]{1,63}(?<!-))*")
NUMERIC_LABEL = re.compile(r"(?:0[xX][0-9A-Fa-f]*|[0-9]+)")
"""The last label of a host that some readers take for an IP address; no top-level domain is a number."""

HOST_AND_PORT = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[^\[\]:]+)(?::[0-9]{1,5})?")
"""A host, the brackets of an IPv6 one, and a port."""

LONGEST_ADDRESS = 1000
ADDRESS_HINT = "write https://host[:port][/path]"


def check_url(text: str, field: str) -> str:
    """`text` without a trailing slash, if it is a base address that keys may be sent to; InputError otherwise."""
    text = text.strip(" \t\r\n")
    if "@" in text or "?" in text or "#" in text:
        raise InputError("contains a user name, a password or a query", field=field, hint=f"{ADDRESS_HINT} alone")
    try:
        parts = urlsplit(text)
        port, host = parts.port, parts.hostname
    except ValueError:
        raise _make_address_error(text, field) from None
    plain = ADDRESS_CHARACTERS.fullmatch(text) and len(text) <= LONGEST_ADDRESS
    if not plain or parts.scheme not in ("http", "https") or not host or port == 0 or not _is_host(host):
        raise _make_address_error(text, field)
    if re.search(r"/\.{1,2}(?:/|$)|//", parts.path) or not HOST_AND_PORT.fullmatch(parts.netloc):
        raise _make_address_error(text, field)
    if parts.scheme == "http" and not is_loopback(host):
        raise InputError("is plain http, which would send the key unencrypted", field=field, hint="write https://...")
    return text.rstrip("/")


def _make_address_error(text: str, field: str) -> InputError:
    return InputError(f"is not an address: {shorten(text)}", field=field, hint=ADDRESS_HINT)


def _is_host(host: str) -> bool:
    """Whether `host` is a name or an IP address as everybody reads it."""
    try:
        ip_address(host)
    except ValueError:
        return bool(HOST_NAME.fullmatch(host)) and not NUMERIC_LABEL.fullmatch(host.rpartition(".")[2])
    return True


def is_loopback(host: str) -> bool:
    """Whether `host` is this machine, by its name or its address in the usual form."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
