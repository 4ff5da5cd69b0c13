"""Scaleway's HTTP requests, their pages, and the meaning of its errors.

Lists have pages by number; `X-Total-Count` (of block volumes: `total_count`) states how many items there are, so a listing that
ends early is known to be incomplete. Source: the vendor's Python SDK 2.12.0 (paths, fields, paging). The bodies of errors are
from memory, 2026-12: `{"type": "permissions_denied", "message": ..., "details": [{"resource": "instance", "action": "read"}]}`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Generic, TypeVar

from costguard.errors import InvalidAnswerError, ProviderError, shorten, to_one_line
from costguard.providers.transport import Deadline, HttpResponse, ProviderChannel, make_status_fault_reader
from costguard_scaleway import NAME
from costguard_scaleway.wire import Address, Server, ServerType, Volume, read_item

T = TypeVar("T")

OK, NO_CONTENT, NOT_FOUND = 200, 204, 404
GONE = ("unknown_resource", "not_found")
"""Types of a 404 about one resource. Any other 404 is a proxy's, or of a wrong address (from memory, 2026-12)."""
PER_PAGE = 100
"""Items of a page, the most that a listing gives (SDK 2.12.0)."""
MOST_ITEMS = 10_000
"""Of one listing: a longer one is cut, and is incomplete."""
LONGEST_TASK = 60


@dataclass(slots=True, kw_only=True)
class Listing(Generic[T]):
    """The items of one list by id. `why`: what it lacks, "" if it is whole. `notes`: a sentence for each odd item."""

    items: dict[str, T] = field(default_factory=dict)
    why: str = ""
    notes: list[str] = field(default_factory=list)


class ScalewayApi:
    """One account's requests."""

    def __init__(self, channel: ProviderChannel) -> None:
        self.channel = channel

    def list_servers(self, zone: str, deadline: Deadline) -> Listing[Server]:
        """Return every Instance of `zone`, stopped ones included."""
        return self._list_pages(f"/instance/v1/zones/{zone}/servers", "servers", Server, deadline)

    def list_local_volumes(self, zone: str, deadline: Deadline) -> Listing[Volume]:
        """Return the volumes of the Instance API, attached or not."""
        return self._list_pages(f"/instance/v1/zones/{zone}/volumes", "volumes", Volume, deadline)

    def list_block_volumes(self, zone: str, deadline: Deadline) -> Listing[Volume]:
        """Return the volumes of Block Storage, attached or not."""
        return self._list_pages(f"/block/v1/zones/{zone}/volumes", "volumes", Volume, deadline, size="page_size")

    def list_addresses(self, zone: str, deadline: Deadline) -> Listing[Address]:
        """Return the flexible IPs, attached or not."""
        return self._list_pages(f"/instance/v1/zones/{zone}/ips", "ips", Address, deadline)

    def list_types(self, zone: str, deadline: Deadline) -> Listing[ServerType]:
        """Return the catalogue of `zone` by the names of its types."""
        return self._list_pages(f"/instance/v1/zones/{zone}/products/servers", "servers", ServerType, deadline)

    def list_shortages(self, zone: str, deadline: Deadline) -> frozenset[str]:
        """Return the types of which `zone` has none now."""
        path, query = f"/instance/v1/zones/{zone}/products/servers/availability", {"per_page": str(PER_PAGE)}
        servers = self._decode(self.channel.read(path, query, scope=path, deadline=deadline), "the availability").get("servers")
        if not isinstance(servers, dict):
            raise self._make_odd("the availability has no servers")
        return frozenset(n for n, one in servers.items() if isinstance(one, dict) and one.get("availability") == "shortage")

    def check_list(self, path: str, deadline: Deadline) -> None:
        """Ask for one item of the list at `path`; raises a ProviderError if it is not given."""
        self._decode(self.channel.read(path, {"page": "1"}, scope=path, deadline=deadline), "a list")

    def fetch_server(self, zone: str, id_: str, deadline: Deadline) -> Server:
        """Return one Instance; raises MissingError if there is none."""
        path = f"/instance/v1/zones/{zone}/servers/{id_}"
        body = self._decode(self.channel.read(path, scope="server", deadline=deadline), "an Instance")
        server, why = read_item(body.get("server"), Server)
        if server is None or server.id != id_:
            raise self._make_odd(f"asked for Instance {id_}, it answered with another ({why or 'another id'})")
        return server

    def send_action(self, zone: str, id_: str, action: str) -> bool:
        """Send one action, and return whether the answer is a task that did not fail."""
        path = f"/instance/v1/zones/{zone}/servers/{id_}/action"
        task = self._decode(self.channel.act("POST", path, body={"action": action}), "the answer to an action").get("task")
        return isinstance(task, dict) and isinstance(task.get("id"), str) and task.get("status") != "failure"

    def delete_server(self, zone: str, id_: str) -> bool:
        """Delete a stopped Instance, and return whether the answer confirms it."""
        return self.channel.act("DELETE", f"/instance/v1/zones/{zone}/servers/{id_}").status == NO_CONTENT

    def _list_pages(self, path: str, name: str, kind: type[T], deadline: Deadline, *, size: str = "per_page") -> Listing[T]:
        """Read page after page, until as many items as the list states are known, or a page brings none."""
        listing, unreadable, total = Listing[T](), 0, None
        for page in range(1, MOST_ITEMS // PER_PAGE + 1):
            try:
                query = {"page": str(page), size: str(PER_PAGE)}
                reply = self.channel.read(path, query, scope=path, deadline=deadline)
                body = self._decode(reply, f"the list of {name}")
                rows = self._take_rows(body, name)
            except ProviderError as broken:
                if page == 1:
                    raise
                listing.why = f"page {page} of {name} failed: {to_one_line(broken.what)}"
                return listing
            count_before = len(listing.items) + unreadable
            for id_, row in rows:
                item, why = read_item(row, kind)
                if item is None or not id_:
                    unreadable += 1
                    listing.notes.append(f"{name}: an item cannot be read: {why}")
                    continue
                if why and id_ not in listing.items:
                    listing.notes.append(f"{to_one_line(shorten(id_, LONGEST_TASK))}: a field cannot be read: {why}")
                listing.items.setdefault(id_, item)
            count, total = len(listing.items) + unreadable, _read_total(reply, body)
            if not rows or count == count_before or (total is not None and count >= total):
                break
        else:
            listing.why = f"the list holds more than {MOST_ITEMS} {name}"
        count = len(listing.items) + unreadable
        if not listing.why and total is not None and count < total:
            listing.why = f"the list states {total} {name}, and {count} came"
        if not listing.why and unreadable:
            listing.why = f"{unreadable} of {name} cannot be read"
        return listing

    def _take_rows(self, body: Mapping[str, Any], name: str) -> list[tuple[str, object]]:
        """Return (id, row): of a list by the field `id`, of the catalogue by the key."""
        rows = body.get(name)
        if isinstance(rows, dict):
            return [(key, row) for key, row in rows.items() if isinstance(row, dict)]
        if not isinstance(rows, list):
            raise self._make_odd(f"the list of {name} has another form")
        ids = [row.get("id") if isinstance(row, dict) else None for row in rows]
        return [(id_ if isinstance(id_, str) else "", row) for id_, row in zip(ids, rows, strict=True)]

    def _decode(self, reply: HttpResponse, what: str) -> dict[str, Any]:
        """Return the JSON object; half surrogate pairs in names are kept, and numbers stay exact."""
        try:
            body = json.loads(reply.body, parse_float=Decimal)
        except (ValueError, RecursionError):
            page = reply.body[:64].lstrip()[:1] == b"<"
            raise self._make_odd(f"{what} {'is a web page, not JSON' if page else 'is not valid JSON'}") from None
        if not isinstance(body, dict):
            raise self._make_odd(f"{what} is not a JSON object")
        return body

    def _make_odd(self, what: str) -> InvalidAnswerError:
        return InvalidAnswerError(what, provider=NAME, account=self.channel.account, status=OK)


def _read_total(reply: HttpResponse, body: Mapping[str, Any]) -> int | None:
    """Return how many items the list has in all; None if it does not say."""
    total = next((value for name, value in reply.headers.items() if name.lower() == "x-total-count"), body.get("total_count"))
    text = str(total)
    return int(text) if text.isascii() and text.isdigit() and len(text) < len(str(10**9)) else None


def _parse_error(reply: HttpResponse) -> tuple[str, str]:
    """Return type and message of an error, with the rights that are missing; "" and "" if the body has another form."""
    try:
        body = json.loads(reply.body)
    except (ValueError, RecursionError):
        return "", ""
    if not isinstance(body, dict):
        return "", ""
    details = body.get("details")
    missing = [
        f"{one.get('resource')}:{one.get('action')}"
        for one in (details if isinstance(details, list) else ())
        if isinstance(one, dict)
    ]
    message = to_one_line(str(body.get("message") or ""))
    return shorten(str(body.get("type") or "")), f"{message} ({', '.join(missing[:4])})" if missing else message


_by_status = make_status_fault_reader(NAME, _parse_error)


def read_fault(reply: HttpResponse) -> ProviderError | None:
    """Return the error of `reply`; a 404 that is not about a resource is of a wrong address."""
    error = _by_status(reply)
    if error is not None and reply.status == NOT_FOUND and error.code not in GONE:
        what = f"has no API at this address ({reply.status}); check base_url and zones"
        return InvalidAnswerError(what, provider=NAME, status=reply.status, code=error.code)
    return error
