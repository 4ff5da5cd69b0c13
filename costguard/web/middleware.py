"""Checks on every request before it is parsed, and headers on every response.

    host known -> rate limit -> body small, not compressed, JSON or a form, in time -> the route, in time -> headers

A form is accepted outside `/v1` only, where pages are. An event stream may last as long as its reader stays. A header that the
response has already, such as a page's Content-Security-Policy, is left as it is.

A body is read completely here, so that routes get one that is small and complete. A refusal is one sentence: JSON, or outside
`/v1` a page for a browser. An internal error is logged with its name, and the client learns only that there was one.

Rate limits use a token bucket for each client, which fills with time. No request waits: a refusal states when to try again.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import lru_cache
from html import escape
from http import HTTPStatus
from ipaddress import IPv4Address, IPv6Address
from typing import TYPE_CHECKING

from costguard_agent.protocol import BODY_MOST, JOIN_PATH

from costguard.agents.messages import (
    BROKEN,
    ENCODED,
    NOT_ALLOWED,
    NOT_FOUND,
    REFUSALS,
    TOO_LARGE,
    TOO_OFTEN,
    TOO_SLOW,
    WRONG_HOST,
    MessageRefusedError,
)
from costguard.settings.web import parse_host_header
from costguard.web.watchdog_client import end_without_memory

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from costguard.watchdog import Log

BODY_S, WHOLE_S = 10.0, 60.0
"""Seconds that a body may take to come, and a request to be answered."""
STREAM_FLAG = "is_event_stream"
"""In the state of a request whose answer has no end."""
SECRET_PATHS = ("/ask/", "/login/")
"""Paths that end in a secret, which no log may hold."""
PER_ADDRESS, BURST = 300.0, 600.0
"""Requests a second of one address, behind which a whole fleet may stand."""
JSON_TYPE, FORM_TYPE, STREAM_TYPE = "application/json", "application/x-www-form-urlencoded", b"text/event-stream"
FORM_TYPES = frozenset((FORM_TYPE, ""))
"""A form without a field has no type."""
FORM_MOST = 16 * 1024
"""Bytes of a form."""
API_PATH = "/v1/"
PLAIN_ENCODINGS = frozenset(("", "identity"))
HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


ERROR_PAGE_POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
ERROR_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>{title} - costguard</title>
<link rel="icon" href="/static/icon.svg" type="image/svg+xml"><link rel="stylesheet" href="/static/page.css"></head>
<body><header class="top"><a class="mark" href="/">costguard</a></header>
<main id="main"><h1>{title}</h1><p class="lead">{says}</p>
<p class="alone"><a class="button" href="/">Go to the first page</a></p></main>
</body></html>
"""
"""The page of a refusal: no template, because it is sent before any route, and where there are no pages."""
IPV6_SITE_BITS = 64
"""RFC 6177: a site has at least this prefix, so that its host part can be chosen freely."""
LOOPBACK = "loopback"


@lru_cache(maxsize=4096)
def name_client(address: str) -> str:
    """Return the name under which the limits count an address: all of loopback is one, and so is an IPv6 /64."""
    try:
        ip = parse_address(address)
    except ValueError:  # a Unix-domain socket, or what a proxy stated
        return address[:64]
    if ip.is_loopback:
        return LOOPBACK
    if isinstance(ip, IPv6Address):
        return str(ipaddress.ip_network((int(ip) >> IPV6_SITE_BITS << IPV6_SITE_BITS, IPV6_SITE_BITS)))
    return str(ip)


def parse_address(address: str) -> IPv4Address | IPv6Address:
    """Parse an address without its zone, and an IPv4-mapped IPv6 address as IPv4. Raises ValueError."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    return getattr(ip, "ipv4_mapped", None) or ip


class PeerFilter:
    """ASGI middleware that answers this machine and `peer` alone: the proxy that speaks TLS, where the server does not."""

    def __init__(self, app: ASGIApp, peer: str) -> None:
        self._app, self._peer = app, parse_address(peer)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] == "http" and not self.may(scope.get("client")):
            await _send_refusal(scope, send, MessageRefusedError(NOT_ALLOWED, "this address is served only through its proxy"))
            return
        await self._app(scope, receive, send)

    def may(self, client: tuple[str, int] | None) -> bool:
        """Return whether requests of a client are answered; None: it came by a Unix socket of this user."""
        if not client:
            return True
        address = parse_address(client[0])
        return address.is_loopback or address == self._peer


class RequestMiddleware:
    """ASGI middleware around `app`.

    `hosts`: the accepted host names, without a port.
    """

    def __init__(self, app: ASGIApp, *, hosts: Iterable[str], log: Log, secure: bool = False) -> None:
        self._app, self._hosts, self._log = app, frozenset(hosts), log
        self._headers = (*HEADERS, *([(b"strict-transport-security", b"max-age=31536000")] if secure else []))
        self._rates = RateLimiter(PER_ADDRESS, BURST)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, who = False, name_client(str((scope.get("client") or ("?",))[0]))

        async def sending(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                headers = dict(message.get("headers", ()))
                if headers.get(b"content-type", b"").startswith(STREAM_TYPE):
                    limit.reschedule(None)
                    scope.setdefault("state", {})[STREAM_FLAG] = True
                added = [one for one in self._headers if one[0] not in headers]
                message["headers"] = [*message.get("headers", ()), *added]
            await send(message)

        try:
            async with asyncio.timeout(WHOLE_S) as limit:
                await self._pass(scope, receive, sending, who)
        except MessageRefusedError as refused:
            await _send_refusal(scope, sending, refused)
        except MemoryError:
            end_without_memory()
        except Exception as error:  # noqa: BLE001 - the last net: nobody outside sees what broke
            self._log.error("web_broke", error=f"{type(error).__name__}: {error}", path=_hide_secret(scope["path"])[:200])
            if not begun:
                name = TOO_SLOW if isinstance(error, TimeoutError) else BROKEN
                await _send_refusal(scope, sending, MessageRefusedError(name))

    async def _pass(self, scope: Scope, receive: Receive, send: Send, who: str) -> None:
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if len(hosts) != 1 or parse_host_header(hosts[0].decode("latin-1")) not in self._hosts:
            raise MessageRefusedError(WRONG_HOST)
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        wait_s = self._rates.take(who)
        if wait_s and scope["path"] != JOIN_PATH:  # whoever has a code gets in beside a flood from the same address
            raise MessageRefusedError(TOO_OFTEN, wait_s=wait_s)
        body = await _read_body(headers, scope["path"], receive) if scope["method"] in ("POST", "PUT", "PATCH") else b""
        is_answered = False

        async def once() -> Message:
            nonlocal is_answered
            if is_answered:
                return await receive()
            is_answered = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._app(scope, once, send)


async def _read_body(headers: dict[bytes, str], path: str, receive: Receive) -> bytes:
    """Return the whole body; raises MessageRefusedError if it is too large, too slow, or neither JSON nor a page's form."""
    if headers.get(b"content-encoding", "").strip().lower() not in PLAIN_ENCODINGS:
        raise MessageRefusedError(ENCODED)
    kind = headers.get(b"content-type", "").partition(";")[0].strip().lower()
    if kind != JSON_TYPE and (kind not in FORM_TYPES or path.startswith(API_PATH)):
        raise MessageRefusedError(ENCODED)
    most = BODY_MOST if kind == JSON_TYPE else FORM_MOST
    length = headers.get(b"content-length", "")
    if length.isdecimal() and (len(length) > len(str(most)) or int(length) > most):
        raise MessageRefusedError(TOO_LARGE)
    parts, size = list[bytes](), 0
    try:
        async with asyncio.timeout(BODY_S):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise MessageRefusedError(TOO_SLOW)
                part = message.get("body", b"")
                size += len(part)
                if size > most:
                    raise MessageRefusedError(TOO_LARGE)
                parts.append(part)
                if not message.get("more_body", False):
                    return b"".join(parts)
    except TimeoutError:
        raise MessageRefusedError(TOO_SLOW) from None


def _hide_secret(path: str) -> str:
    """Return the path for a log: without what follows a prefix of `SECRET_PATHS`."""
    return next((f"{start}..." for start in SECRET_PATHS if path.startswith(start)), path)


async def _send_refusal(scope: Scope, send: Send, refused: MessageRefusedError) -> None:
    """Send a refusal and close the connection, because the request's body may not have been read."""
    accept = b",".join(value for name, value in scope["headers"] if name == b"accept").decode("latin-1")
    status, headers, body = build_refusal(refused, is_page=is_for_browser(scope["path"], accept))
    every = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": [*every, (b"connection", b"close")]})
    await send({"type": "http.response.body", "body": body})


def is_for_browser(path: str, accept: str) -> bool:
    """Return whether a refusal is shown as a page: to a browser, outside the interface for programs."""
    return "text/html" in accept.lower() and not path.startswith(API_PATH)


def build_refusal(refused: MessageRefusedError, *, is_page: bool = False) -> tuple[int, dict[str, str], bytes]:
    """Return a refusal as status, headers and body: one sentence of JSON, or a page for a browser (`is_page`)."""
    headers = {"content-type": "application/json"}
    body = json.dumps({"error": refused.name, "says": refused.says}).encode()
    if is_page:
        says = "There is no page at this address." if refused.name == NOT_FOUND else refused.says
        body = ERROR_PAGE.format(title=HTTPStatus(refused.status).phrase, says=escape(says)).encode()
        headers = {"content-type": "text/html; charset=utf-8", "content-security-policy": ERROR_PAGE_POLICY}
    headers["content-length"] = str(len(body))
    if refused.wait_s is not None or refused.name == TOO_OFTEN:
        headers["retry-after"] = str(max(1, round(refused.wait_s or 1)))
    if REFUSALS[refused.name].status == REFUSALS["no_token"].status:
        headers["www-authenticate"] = "Bearer" if refused.name == "no_token" else "Costguard-Signature"
    return refused.status, headers, body


class RateLimiter:
    """Token buckets by name: `per_s` tokens a second, at most `burst`.

    The `most` most recently used names are kept.
    """

    def __init__(self, per_s: float, burst: float, *, most: int = 20_000, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_s, self._burst, self._most, self._clock = per_s, burst, most, clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, name: str) -> float:
        """Take a token and return 0; without a token return the seconds to wait."""
        left = self.left(name)
        if left < 1:
            return (1 - left) / self._per_s
        self._put(name, left - 1)
        return 0.0

    def left(self, name: str) -> float:
        """Return the tokens that `name` has now."""
        tokens, at = self._buckets.get(name, (self._burst, self._clock()))
        return min(self._burst, tokens + (self._clock() - at) * self._per_s)

    def _put(self, name: str, left: float) -> None:
        self._buckets[name] = (left, self._clock())
        self._buckets.move_to_end(name)
        while len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
