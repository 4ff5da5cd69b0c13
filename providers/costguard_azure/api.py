"""Requests to the Azure Resource Manager, page by page, and the meaning of its statuses and codes.

REST over costguard's transport with azure-identity's tokens: azure-mgmt-compute decodes a page as a whole, and one odd item
would hide a subscription (decision 0169). An unreadable item does not fail its listing: it is returned as odd.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar
from urllib.parse import quote, urlsplit

import msgspec

from costguard.errors import (
    CredentialsError,
    ForbiddenError,
    InvalidAnswerError,
    MissingError,
    ProviderError,
    shorten,
    to_one_line,
)
from costguard.providers.transport import (
    Deadline,
    HttpRequest,
    HttpResponse,
    ProviderChannel,
    TokenBucket,
    Transport,
    make_status_fault_reader,
)
from costguard.providers.transport.channel import FaultReader
from costguard.system.secret import scrub_text
from costguard_azure.credentials import FIX, TokenSource
from costguard_azure.wire import ErrorAnswer, ItemIdentity, ItemPage, Listing, Permission, Subscription

T = TypeVar("T")

COMPUTE_VERSION, DISK_VERSION = "2026-04-01", "2026-03-02"
"""API versions of azure-mgmt-compute 39.0.0."""
NETWORK_VERSION, RESOURCES_VERSION, RIGHTS_VERSION = "2024-05-01", "2022-12-01", "2022-04-01"
"""Of public addresses, subscriptions and permissions: from memory, 2026-12."""
PER_S, BURST, KEPT = 5.0, 30.0, 3.0
"""Requests a second to one subscription: well below 250 reads a minute and 25 a second (from memory, 2026-12)."""
GONE = frozenset(("ResourceNotFound", "ResourceGroupNotFound", "NotFound"))
"""With 404: the resource does not exist. Any other 404 is a proxy's, or of a wrong subscription."""
MOST_ITEMS, MOST_PAGES = 10_000, 200
OK, NOT_FOUND, CONFLICT = 200, 404, 409
LONGEST_LINK = 8192
ELSEWHERE = "elsewhere"
UNREADABLE = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
READER = "assign the role Reader, or that of config/iam/azure-reader.json, on the subscription"


class AzureApi:
    """One login's requests; a channel per subscription."""

    def __init__(self, transport: Transport, base: str, tokens: TokenSource) -> None:
        self._transport, self._base, self.tokens = transport, base, tokens
        self._channels: dict[str, ProviderChannel] = {}
        self._lock = threading.Lock()

    def open_channel(self, subscription: str) -> ProviderChannel:
        """Return the channel for `subscription`, "" for requests without one."""
        with self._lock:
            channel = self._channels.get(subscription)
            if channel is None:
                channel = self._channels[subscription] = ProviderChannel(
                    self._transport,
                    provider="azure",
                    account=subscription,
                    base_url=self._base,
                    headers={"Accept": "application/json"},
                    buckets={"": TokenBucket(PER_S, BURST, reserve=KEPT)},
                    fault=_make_fault_reader(self.tokens),
                    advice={
                        CredentialsError: FIX,
                        ForbiddenError: READER,
                        MissingError: "check the subscription's id, and whether its tenant is that of the credentials",
                    },
                    secrets=self.tokens.list_secrets(),
                )
            return channel

    def list_items(
        self, subscription: str, path: str, kind: type[T], deadline: Deadline, params: Mapping[str, str]
    ) -> Listing[T]:
        """Return the items of all pages of `path`. The first page must be readable; what ends the later ones early is `why`."""
        request = self.open_channel(subscription).build_request("GET", path, params)
        items, odd, links = list[T](), list[tuple[str, str, str]](), {request.url}
        why = ""
        while not why:
            try:
                page = self._read_page(subscription, path, request, deadline)
            except ProviderError as broken:
                if len(links) == 1:
                    raise
                why = f"page {len(links)}: {to_one_line(broken.what)}"
                break
            room = MOST_ITEMS - len(items)
            for raw in page.value[:room]:
                try:
                    items.append(msgspec.json.decode(raw, type=kind))
                except UNREADABLE as broken_item:
                    odd.append((*_parse_identity(raw), shorten(str(broken_item))))
            next_url = self._follow_link(page.next_link, path)
            if len(page.value) > room or (next_url and len(page.value) == room):
                why = f"it holds more than {MOST_ITEMS} items"
            elif not next_url:
                break
            elif next_url == ELSEWHERE:
                why = "the next page is at another address, so it is not fetched"
            elif next_url in links or len(links) >= MOST_PAGES:
                why = f"its pages do not end after {len(links)}"
            links.add(next_url)
            request = replace(request, url=next_url)
        return Listing(items=tuple(items), odd=tuple(odd), why=why)

    def fetch_item(
        self, subscription: str, path: str, kind: type[T], deadline: Deadline, params: Mapping[str, str]
    ) -> T | None:
        """Return one resource; None only if Azure names it as not existing."""
        request = self.open_channel(subscription).build_request("GET", path, params)
        try:
            reply = self._send(subscription, request, scope="item", deadline=deadline)
        except MissingError as missing:
            if missing.code in GONE:
                return None
            raise
        return self.open_channel(subscription).decode(reply, kind, "a resource")

    def fetch_answer(self, subscription: str, path: str, kind: type[T], deadline: Deadline, params: Mapping[str, str]) -> T:
        """Return the answer of a read that has no pages."""
        request = self.open_channel(subscription).build_request("GET", path, params)
        reply = self._send(subscription, request, scope=path, deadline=deadline)
        return self.open_channel(subscription).decode(reply, kind, f"the answer of {path.rpartition('/')[2]}")

    def send_act(self, subscription: str, method: str, path: str, deadline: Deadline) -> HttpResponse:
        """Send one request that changes something, once."""
        request = self.open_channel(subscription).build_request(method, path, {"api-version": COMPUTE_VERSION})
        return self._send(subscription, request, scope="act", deadline=deadline, act=True)

    def list_subscriptions(self, deadline: Deadline) -> Listing[Subscription]:
        """Return every subscription that the credentials see."""
        return self.list_items("", "/subscriptions", Subscription, deadline, {"api-version": RESOURCES_VERSION})

    def list_permissions(self, subscription: str, deadline: Deadline) -> Listing[Permission]:
        """Return what the caller may do in `subscription`."""
        path = f"/subscriptions/{subscription}/providers/Microsoft.Authorization/permissions"
        return self.list_items(subscription, path, Permission, deadline, {"api-version": RIGHTS_VERSION})

    def _read_page(self, subscription: str, path: str, request: HttpRequest, deadline: Deadline) -> ItemPage:
        reply = self._send(subscription, request, scope=path, deadline=deadline)
        return self.open_channel(subscription).decode(reply, ItemPage, f"the list of {path.rpartition('/')[2]}")

    def _send(
        self, subscription: str, request: HttpRequest, *, scope: str, deadline: Deadline, act: bool = False
    ) -> HttpResponse:
        authorized = replace(request, headers={**request.headers, **self.tokens.build_header(deadline)})
        try:
            return self.open_channel(subscription).ask(authorized, scope=scope, deadline=deadline, act=act)
        except CredentialsError:
            self.tokens.forget()
            raise

    def _follow_link(self, link: str | None, path: str) -> str:
        """Return the address of the next page, "" if there is none; ELSEWHERE if it is another list or at another address."""
        if not link:
            return ""
        try:
            parts = urlsplit(link) if len(link) <= LONGEST_LINK and link.isascii() and link.isprintable() else urlsplit("")
        except ValueError:
            parts = urlsplit("")
        base = urlsplit(self._base)
        same = (parts.scheme, parts.hostname) == (base.scheme, base.hostname) and _read_port(parts) == _read_port(base)
        if not same or parts.path.lower() != f"{base.path}{path}".lower() or not parts.query:
            return ELSEWHERE
        return f"{self._base}{path}?{quote(parts.query, safe=UNCHANGED)}"


UNCHANGED = "%&=$'(),:+-._~/"
"""Characters of a link's query that are passed on as they are."""


def _read_port(parts: object) -> int | None:
    """Return the port of a split address, the scheme's own as None."""
    try:
        port: int | None = getattr(parts, "port", None)
    except ValueError:
        return -1
    return None if port == {"https": 443, "http": 80}.get(getattr(parts, "scheme", "")) else port


def _parse_identity(raw: msgspec.Raw) -> tuple[str, str]:
    try:
        one = msgspec.json.decode(raw, type=ItemIdentity)
    except UNREADABLE:
        return "", ""
    return one.id, one.location


def make_item_path(subscription: str, group: str, kind: str, *names: str) -> str:
    """Return the path of a resource; `kind`: "Microsoft.Compute/virtualMachines"."""
    tail = "/".join(quote(one, safe="") for one in names)
    return f"/subscriptions/{subscription}/resourceGroups/{quote(group, safe='')}/providers/{kind}/{tail}"


def _make_fault_reader(tokens: TokenSource) -> FaultReader:
    """Return a function that gives the error of a reply, by Azure's code where it says more than the status."""

    def parse_error(reply: HttpResponse) -> tuple[str, str]:
        try:
            error = msgspec.json.decode(reply.body, type=ErrorAnswer).error
        except UNREADABLE:
            return "", ""
        return shorten(scrub_text(error.code or "", tokens.list_secrets())), scrub_text(
            error.message or "", tokens.list_secrets()
        )

    usual = make_status_fault_reader("azure", parse_error)

    def fault(reply: HttpResponse) -> ProviderError | None:
        error = usual(reply)
        code = error.code if error else ""
        if error is None and reply.status not in (OK, 201, 202, 204):
            return InvalidAnswerError(
                f"answered with an unexpected status {reply.status}", provider="azure", status=reply.status
            )
        if isinstance(error, CredentialsError) and "Tenant" in code:
            what = f"the credentials are of another tenant than the subscription ({code})"
            return CredentialsError(what, provider="azure", status=reply.status, code=code)
        if isinstance(error, MissingError) and code in ("SubscriptionNotFound", "InvalidSubscriptionId"):
            what = f"there is no such subscription for these credentials ({code})"
            return ForbiddenError(what, provider="azure", status=reply.status, code=code)
        if isinstance(error, MissingError) and code not in GONE:
            what = f"does not know this address ({reply.status}{f' {code}' if code else ''})"
            return InvalidAnswerError(what, provider="azure", status=reply.status, code=code)
        return error

    return fault
