"""A signed webhook: JSON to one https address (or to this machine), with a signature that the receiver can verify.

    Costguard-Id: 6c62...                    the same for every try: drop messages that you have seen
    Costguard-Timestamp: 1795219200          seconds since 1970 at which this try was sent: refuse messages older than 5 min
    Costguard-Signature: v1=hex(HMAC-SHA256(secret, id + "." + timestamp + "." + body))

The host name is resolved once, each of its addresses is checked, and the connection uses one of the checked addresses. A name
that resolves differently later (DNS rebinding) therefore has no effect. Redirects are not followed.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import re
import threading
from base64 import b64encode
from contextlib import suppress
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from pathlib import Path
from time import monotonic
from typing import NamedTuple
from urllib.parse import urlsplit

import httpx2

from costguard.guard.alerts.alert import Attachment, DeliveryResult, Notification
from costguard.guard.alerts.part_delivery import PartDelivery, list_numbers
from costguard.notifiers import Channel, format_answer, format_body, format_title, unpack_enclosure
from costguard.system.network import explain_tls_error, load_context, resolve_addresses
from costguard.values.text_format import encode_plain, format_instant

MOST_NOTICES = 100
JSON = "application/json"
MOST_ANSWER, MOST_ANSWER_KEPT = 64 * 1024, 4096
"""Bytes of an answer that are read before it is let go, and of those that are kept, to be shown."""
URL_CHARACTERS = re.compile(r"[!-~]{1,2000}")
NAME = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)(?:\.(?!-)[A-Za-z0-9_-]{1,63}(?<!-))*")
NUMBER = re.compile(r"(?:0[xX][0-9A-Fa-f]*|[0-9]+)")
"""The last label of a host that some readers take for an address (2130706433, 0x7f.1)."""
HOLD_IPV4 = tuple(map(IPv6Network, ("64:ff9b::/96", "64:ff9b:1::/48", "::/96", "::ffff:0:0:0/96")))
"""Whose last four bytes are an IPv4 address: NAT64, the old "compatible" form, SIIT."""
PRIVATE_NETWORKS = tuple(map(ip_network, ("fec0::/10", "3fff::/20", "5f00::/16", "192.0.0.0/24", "192.88.99.0/24")))
"""Not global by IANA's registries of 2026, which this Python may be too old to know."""
METADATA = frozenset(
    map(
        ip_address,
        ("fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "100.100.100.200", "168.63.129.16", "192.0.0.192"),
    )
)
"""Addresses at which clouds hand out keys, beside the link-local ones: AWS, EKS, Google, Alibaba, Azure, Oracle."""
RETRYABLE_STATUSES = frozenset((408, 409, 425, 429))
OK, REDIRECT, CLIENT_ERROR, SERVER_ERROR = 200, 300, 400, 500

LEAST_S = 0.001

Address = IPv4Address | IPv6Address


class _WebhookUrl(NamedTuple):
    """A strictly parsed address; `path` includes the query, which may hold a secret."""

    scheme: str
    host: str
    port: int
    path: str


class _RefusedError(Exception):
    """The message is not sent to this address; the text gives the reason without showing the address."""


class WebhookAnswer(NamedTuple):
    """The result of one request.

    `status`: HTTP status; None: no answer, for the reason `why`. `said`: the beginning of the answer. `again`: whether another
    try may succeed.
    """

    status: int | None
    why: str = ""
    said: bytes = b""
    again: bool = True


def notify(message: Notification, channel: Channel) -> DeliveryResult:
    """POST `message` once within `channel.within_s`."""
    answer = post_webhook(message.id, build_webhook_body(message), channel)
    if answer.status is None:
        return DeliveryResult(sent=False, why=answer.why, again=answer.again)
    result, text = _classify_status(answer.status), answer.said.decode(errors="replace")
    part = PartDelivery(
        alerts=tuple(list_numbers(message)),
        sent=result.sent,
        why=result.why,
        again=result.again,
        status=answer.status,
        answer=format_answer(answer.status, text, channel.address).removeprefix("" if result.sent else f"{answer.status} "),
    )
    return replace(result, parts=(part,))


def post_webhook(request_id: str, body: bytes, channel: Channel) -> WebhookAnswer:
    """POST the signed `body` once within `channel.within_s`; raise nothing, and show no address in the answer."""
    try:
        place, until = _parse_url(channel.address), monotonic() + channel.within_s
        addresses = _resolve_addresses(place, channel)
        headers = _build_headers(request_id, channel, place, body)
        return _send_once(headers, body, place, addresses[0], ca_file=channel.ca_file, until=until)
    except _RefusedError as no:
        return WebhookAnswer(None, str(no), again=False)
    except (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL, OSError, ValueError, RuntimeError) as broken:
        trouble = explain_tls_error(broken)
        return WebhookAnswer(None, f"{trouble.what}: {trouble.hint}" if trouble else f"no answer ({type(broken).__name__})")


def build_webhook_body(message: Notification) -> bytes:
    """Return the body: the message as fields, and its text as people read it."""
    notices = [
        {
            "topic": encode_plain(one.topic),
            "subject": encode_plain(one.subject),
            "owner": encode_plain(one.owner) or None,
            "severity": one.severity,
            "what": encode_plain(one.what),
            "at": format_instant(one.at),
            "facts": [{"label": encode_plain(label), "text": encode_plain(text)} for label, text in one.facts],
            "keep": encode_plain(one.keep) or None,
            "links": [{"label": label, "url": url} for label, url in one.links],
        }
        for one in message.notices[:MOST_NOTICES]
    ]
    value = {
        "schema": "costguard.message/1",
        "id": message.id,
        "why_now": message.why_now,
        "severity": message.severity,
        "at": format_instant(message.at),
        "title": format_title(message),
        "text": format_body(message),
        "notices": notices,
        "audit": encode_plain(message.audit) or None,
        "notices_left_out": max(0, len(message.notices) - MOST_NOTICES),
        "enclosed": [_build_enclosure_data(one) for one in message.enclosures],
    }
    return json.dumps(value, separators=(",", ":")).encode()


def _build_enclosure_data(enclosure: Attachment) -> dict[str, object]:
    """Return the attachment as data: JSON as it is, other content as text, or as base64 if it is not text."""
    content = unpack_enclosure(enclosure)
    head: dict[str, object] = {"name": encode_plain(enclosure.name), "media": enclosure.media}
    if enclosure.media == JSON:
        return head | {"json": json.loads(content)}
    try:
        return head | {"text": content.decode()}
    except UnicodeDecodeError:
        return head | {"base64": b64encode(content).decode()}


def sign_webhook(secret: str, message_id: str, timestamp: str, body: bytes) -> str:
    """Return the value of the header Costguard-Signature."""
    signed = f"{message_id}.{timestamp}.".encode() + body
    return "v1=" + hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()


def is_allowed(address: Address, *, allow_private: bool) -> bool:
    """Return whether a webhook may connect to `address`.

    Link-local addresses and cloud metadata addresses are never allowed, even if private ones are.
    """
    if isinstance(address, IPv6Address):
        inner = _extract_ipv4(address)
        if inner is not None:
            return is_allowed(inner, allow_private=allow_private)
    never = address.is_link_local or address.is_multicast or address.is_unspecified or address in METADATA
    inside = address.is_private or address.is_loopback or any(address in net for net in PRIVATE_NETWORKS)
    return not never and ((address.is_global and not inside) or (allow_private and inside))


def _extract_ipv4(address: IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address embedded in an IPv6 address; None if there is none."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    holds_ipv4 = any(address in net for net in HOLD_IPV4) and not (address.is_loopback or address.is_unspecified)
    return IPv4Address(int(address) & 0xFFFFFFFF) if holds_ipv4 else None


def _parse_url(text: str) -> _WebhookUrl:
    """Return `text` parsed strictly, so that no two parsers can disagree about its host."""
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise _RefusedError("its address cannot be read") from None
    odd = (
        not URL_CHARACTERS.fullmatch(text)
        or "\\" in text
        or "@" in parts.netloc
        or "#" in text
        or "%" in parts.netloc
        or port == 0
    )
    if odd or not _is_host(host):
        raise _RefusedError("its address cannot be read: write https://host[:port]/path")
    if parts.scheme != "https" and not (parts.scheme == "http" and _is_loopback(host)):
        raise _RefusedError("its address is not https")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return _WebhookUrl(parts.scheme, host, port or (443 if parts.scheme == "https" else 80), path)


def _is_host(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return bool(NAME.fullmatch(host)) and not NUMBER.fullmatch(host.rpartition(".")[2])
    return "%" not in host


def _is_loopback(host: str) -> bool:
    """Return whether `host` is written as this machine; a name that only resolves to it does not count."""
    try:
        return host.lower() == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _resolve_addresses(place: _WebhookUrl, channel: Channel) -> list[Address]:
    """Return every address of the host, all of them allowed; raise OSError if the name cannot be resolved in time."""
    addresses = [ip_address(one.partition("%")[0]) for one in resolve_addresses(place.host, place.port, channel.within_s)]
    is_local, private = _is_loopback(place.host), channel.allow_private
    if not addresses or not all(one.is_loopback if is_local else is_allowed(one, allow_private=private) for one in addresses):
        raise _RefusedError(
            "its address is in a private network or is a cloud's metadata address: set allow_private if this is intended"
        )
    return sorted(addresses, key=lambda one: one.version)


def _send_once(
    headers: dict[str, str], body: bytes, place: _WebhookUrl, address: Address, *, ca_file: Path | None, until: float
) -> WebhookAnswer:
    """Try once; connect to `address`, and check the certificate against the host's name."""
    _silence_loggers()
    left = max(until - monotonic(), LEAST_S)
    to = f"[{address}]" if address.version == 6 else str(address)  # noqa: PLR2004 - the version of the protocol
    client = httpx2.Client(verify=load_context(ca_file), trust_env=False, follow_redirects=False, timeout=left)
    alarm = threading.Timer(left, _close_connection, (client,))
    alarm.daemon = True
    alarm.start()
    try:
        request = client.build_request(
            "POST",
            f"{place.scheme}://{to}:{place.port}{place.path}",
            headers=headers,
            content=body,
            extensions={"sni_hostname": place.host},
        )
        answer = client.send(request, stream=True)
        return WebhookAnswer(answer.status_code, said=_drain_answer(answer, until))
    finally:
        alarm.cancel()
        _close_connection(client)


def _build_headers(request_id: str, channel: Channel, place: _WebhookUrl, body: bytes) -> dict[str, str]:
    host = f"[{place.host}]" if ":" in place.host else place.host
    usual = (place.scheme, place.port) in {("https", 443), ("http", 80)}
    stamp = str(int(channel.clock.now().timestamp()))
    headers = {
        "Host": host if usual else f"{host}:{place.port}",
        "Content-Type": "application/json",
        "User-Agent": "costguard",
        "Accept-Encoding": "identity",
        "Costguard-Id": request_id,
        "Costguard-Timestamp": stamp,
    }
    if channel.secret:
        headers["Costguard-Signature"] = sign_webhook(channel.secret, request_id, stamp, body)
    return headers


def _drain_answer(answer: httpx2.Response, until: float) -> bytes:
    """Read at most MOST_ANSWER bytes, so that the sender is not cut off, and return at most MOST_ANSWER_KEPT of them."""
    size, body = 0, b""
    with suppress(httpx2.HTTPError, httpx2.StreamError):
        for piece in answer.iter_raw():
            size += len(piece)
            body += piece[: MOST_ANSWER_KEPT - len(body)]
            if size > MOST_ANSWER or monotonic() > until:
                break
    return body


def _classify_status(status: int) -> DeliveryResult:
    if OK <= status < REDIRECT:
        return DeliveryResult(sent=True)
    if REDIRECT <= status < CLIENT_ERROR:
        return DeliveryResult(sent=False, why=f"it answered {status}, and redirects are not followed", again=False)
    return DeliveryResult(sent=False, why=f"it answered {status}", again=status >= SERVER_ERROR or status in RETRYABLE_STATUSES)


def _close_connection(client: httpx2.Client) -> None:
    """Close the connection in any state; a timeout per read does not stop a server that sends slowly."""
    with suppress(httpx2.HTTPError, OSError, RuntimeError):
        client.close()


def _silence_loggers() -> None:
    """Disable the loggers of httpx2 and httpcore2, because they log addresses with their secrets (H40)."""
    for name in ("httpx2", *(f"httpcore2.{part}" for part in ("connection", "http11", "http2", "proxy", "socks"))):
        logging.getLogger(name).disabled = True
