"""Lambda's HTTP requests, and the meaning of its statuses and codes.

Every success is `{"data": ...}`, every error `{"error": {"code", "message"}}`. An unreadable item does not fail its listing: it
is returned as odd.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, TypeVar, get_type_hints
from urllib.parse import quote

import msgspec

from costguard.errors import (
    CredentialsError,
    InvalidAnswerError,
    ProviderError,
    ThrottledError,
    UnreachableError,
    shorten,
    to_one_line,
)
from costguard.providers.transport import Deadline, HttpResponse, ProviderChannel, make_status_fault_reader
from costguard_lambda.wire import (
    AuditEvent,
    Envelope,
    ErrorAnswer,
    Filesystem,
    Instance,
    ItemId,
    ItemIdentity,
    ItemPage,
    OfferedType,
    TerminateAnswer,
    UnreadableItem,
)

T = TypeVar("T")

NAME = "lambda"
OK, NOT_FOUND, RETIRED, SERVER = 200, 404, 410, 500
GONE = ("global/object-does-not-exist", "global/not-found")
"""With 404: what Lambda says of an id that it does not know. Any other 404 is a proxy's, or of a wrong address."""
WRONG_KEY = "global/invalid-api-key"
UPSTREAM = "provider/"
"""Begins the codes of trouble behind Lambda's own API, whatever the status: ask again later."""
UNREADABLE = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
MOST_ITEMS = 10_000
"""Of one listing, which has no pages."""


class LambdaApi:
    """One account's requests.

    Each kind of request has its own circuit breaker.
    """

    def __init__(self, channel: ProviderChannel) -> None:
        self.channel = channel

    def list_instances(self, deadline: Deadline) -> ItemPage[Instance]:
        """Return every instance that still exists; the listing has no pages."""
        return self._list("/instances", Instance, "the list of instances", deadline)

    def fetch_instance(self, id_: str, deadline: Deadline) -> Instance:
        """Return one instance; raises MissingError if there is none.

        A terminated one may be returned for a while.
        """
        reply = self.channel.read(f"/instances/{quote(id_, safe='')}", scope="instance", deadline=deadline)
        one = self.channel.decode(reply, Envelope[Instance], "an instance").data
        if one.id != id_:
            raise self.make_odd_answer(f"asked for instance {shorten(id_)}, it answered with another")
        return one

    def list_filesystems(self, deadline: Deadline) -> ItemPage[Filesystem]:
        """Return every filesystem.

        This path has a hyphen; the path for deletion has none.
        """
        return self._list("/file-systems", Filesystem, "the list of filesystems", deadline)

    def list_types(self, deadline: Deadline) -> ItemPage[OfferedType]:
        """Return every type, with the regions that have capacity for one."""
        reply = self.channel.read("/instance-types", scope="types", deadline=deadline)
        what = "the list of instance types"
        raws = self.channel.decode(_mend_surrogates(reply), Envelope[dict[str, msgspec.Raw]], what).data
        return _make_page([raws[name] for name in sorted(raws)], OfferedType)

    def list_events(
        self, deadline: Deadline, *, start: datetime | None, token: str, kind: str = "cloud.instance"
    ) -> ItemPage[AuditEvent]:
        """Return a page of the audit log from `start` (None: its beginning) on, oldest first."""
        params = {"resource_type": kind} if kind else {}
        params |= {"start": start.isoformat().replace("+00:00", "Z")} if start else {}
        params |= {"page_token": token} if token else {}
        return self._list("/audit-events", AuditEvent, "the audit log", deadline, params)

    def terminate(self, id_: str) -> bool:
        """Send one request to terminate an instance, and return whether the answer confirms it."""
        reply = self.channel.act("POST", "/instance-operations/terminate", body={"instance_ids": [id_]})
        ended = self.channel.decode(reply, Envelope[TerminateAnswer], "the answer to a terminate").data
        return any(one.id == id_ for one in ended.terminated_instances)

    def make_odd_answer(self, what: str) -> InvalidAnswerError:
        """Return the error for an unusable answer."""
        return InvalidAnswerError(what, provider=NAME, account=self.channel.account, status=OK)

    def _list(
        self, path: str, kind: type[T], what: str, deadline: Deadline, params: Mapping[str, str] | None = None
    ) -> ItemPage[T]:
        """Decode a list at once; if an item is invalid, item by item."""
        reply = self.channel.read(path, params, scope=path, deadline=deadline)
        try:
            envelope = msgspec.json.decode(reply.body, type=Envelope[list[kind]])  # type: ignore[valid-type]
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            loose = self.channel.decode(_mend_surrogates(reply), Envelope[list[msgspec.Raw]], what)
            return _make_page(loose.data, kind, loose.page_token or "")
        return ItemPage(
            items=tuple(envelope.data[:MOST_ITEMS]), token=envelope.page_token or "", cut=len(envelope.data) > MOST_ITEMS
        )


def _make_page(raws: list[msgspec.Raw], kind: type[T], token: str = "") -> ItemPage[T]:
    items, odd, half_read = list[T](), list[UnreadableItem](), list[str]()
    for raw in raws[:MOST_ITEMS]:
        try:
            items.append(msgspec.json.decode(raw, type=kind))
        except UNREADABLE as broken:
            why = shorten(str(broken))
            item = parse_leniently(raw, kind) if kind in (Instance, Filesystem) else None
            if item is None:
                odd.append(_parse_odd(raw, why))
            else:
                items.append(item)
                half_read.append(f"{_parse_odd(raw, why).id}: a field cannot be read: {why}")
    half = tuple(to_one_line(one) for one in half_read)
    return ItemPage(items=tuple(items), odd=tuple(odd), token=token, cut=len(raws) > MOST_ITEMS, half_read=half)


def parse_leniently(raw: msgspec.Raw, kind: type[T]) -> T | None:
    """Return the item without its unreadable fields; None if a required field is unreadable."""
    values: dict[str, Any] = {}
    try:
        fields, hints = msgspec.json.decode(raw, type=dict[str, msgspec.Raw]), get_type_hints(kind)
        for name in fields.keys() & hints.keys():
            with suppress(*UNREADABLE):
                values[name] = msgspec.json.decode(fields[name], type=hints[name])
        return kind(**values)
    except (*UNREADABLE, TypeError):  # TypeError: one that has no default is not there
        return None


def _parse_odd(raw: msgspec.Raw, why: str) -> UnreadableItem:
    """Return the readable part of an item."""
    kinds: tuple[type[ItemIdentity | ItemId], ...] = (ItemIdentity, ItemId)
    for kind in kinds:
        try:
            mark = msgspec.json.decode(raw, type=kind)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            continue
        return UnreadableItem(id=mark.id, region=mark.region.name if isinstance(mark, ItemIdentity) else "", why=why)
    return UnreadableItem(why=why)


def _mend_surrogates(reply: HttpResponse) -> HttpResponse:
    """Replace every half of a surrogate pair by `?`, because msgspec refuses a whole body that contains one.

    Otherwise one such name would hide an account permanently; numbers keep their digits.
    """
    if b"\\ud" not in reply.body.lower():
        return reply
    try:
        value = json.loads(reply.body, parse_float=str)
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError):
        return reply
    return HttpResponse(status=reply.status, headers=reply.headers, body=text.encode("utf-8", "replace"))


def make_fault_reader(pause_s: float) -> Callable[[HttpResponse], ProviderError | None]:
    """Return a function that gives the error of a reply.

    `pause_s`: seconds to wait after a 429 that states no time.
    """
    usual = make_status_fault_reader(NAME, _parse_error)

    def fault(reply: HttpResponse) -> ProviderError | None:
        error = usual(reply)
        if error is None:
            return (
                None
                if reply.status == OK
                else _make_error(InvalidAnswerError, f"answered with an unexpected status {reply.status}", reply)
            )
        if isinstance(error, ThrottledError):
            error.retry_after_s = pause_s if error.retry_after_s is None else error.retry_after_s
        elif error.code == WRONG_KEY or "auth_error" in error.code:
            return _make_error(CredentialsError, f"refused the key ({error.code})", reply, error.code)
        elif error.code.startswith(UPSTREAM):
            return _make_error(UnreachableError, f"has an internal error ({error.code})", reply, error.code)
        elif reply.status == RETIRED or (reply.status == NOT_FOUND and error.code not in GONE):
            return _make_error(
                InvalidAnswerError, f"has no API at this address ({reply.status}); is base_url right?", reply, error.code
            )
        return error

    return fault


def _parse_error(reply: HttpResponse) -> tuple[str, str]:
    """Return code and message of an error; "" and "" if the body has another form."""
    try:
        error = msgspec.json.decode(reply.body, type=ErrorAnswer).error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return "", ""
    return shorten(error.code), error.message


def _make_error(kind: type[ProviderError], what: str, reply: HttpResponse, code: str = "") -> ProviderError:
    return kind(what, provider=NAME, status=reply.status, code=code)
