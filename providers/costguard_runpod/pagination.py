"""Read paged lists: fast if a page is valid, item by item if one item is not, and up to the stated end.

Only a stated end makes a list complete: `hasNextPage` false, no next cursor, or no `pagination` at all, as RunPod answered
until August 2026. The last case does not count if exactly as many items came as were requested, because such a page may just
not state that more follows. An unreadable field is left out and noted; an item without a readable id makes the list partial.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, get_type_hints

import msgspec

from costguard.errors import InvalidAnswerError, ProviderError, RefusedError, shorten, to_one_line
from costguard.providers.transport import Deadline, ProviderChannel
from costguard.values.resource import is_storable
from costguard_runpod.wire import PagedAnswer, Pagination, Pod, Pods, RawPods, RawVolumes, Volume, Volumes

T = TypeVar("T", Pod, Volume)

LIMIT = 1000
"""Items asked for a page; clients of September 2026 ask for 1, 100 and 1000. Its largest is not documented."""
OK = 200
MOST_ITEMS, MOST_PAGES = 10_000, 1_000
LONGEST_ID = 200
"""Characters. RunPod's ids have 10 to 14."""
UNREADABLE = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)


@dataclass(slots=True)
class DecodedPage(Generic[T]):
    """`lost`: the number of items whose id cannot be read.

    `notes`: fields of other items that were left out.
    """

    items: list[T]
    pagination: Pagination | None = None
    lost: int = 0
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class PagedList(Generic[T]):
    """All items received.

    `why`: what is missing, "" if the list was read to its end.
    """

    items: list[T] = field(default_factory=list)
    why: str = ""
    notes: list[str] = field(default_factory=list)


def decode_pods(body: bytes) -> DecodedPage[Pod]:
    """Decode one page of pods; raises msgspec.DecodeError (or RecursionError) if it is no page at all."""
    try:
        sound = _PODS.decode(body)
    except msgspec.ValidationError:
        raw = _RAW_PODS.decode(body)
        return _decode_one_by_one(raw.pods, _find_pagination(raw), Pod)
    return _drop_bad_ids(DecodedPage(sound.pods, _find_pagination(sound)))


def decode_volumes(body: bytes) -> DecodedPage[Volume]:
    """Decode one page of network volumes in the same way."""
    try:
        sound = _VOLUMES.decode(body)
    except msgspec.ValidationError:
        raw = _RAW_VOLUMES.decode(body)
        return _decode_one_by_one(raw.network_volumes, _find_pagination(raw), Volume)
    return _drop_bad_ids(DecodedPage(sound.network_volumes, _find_pagination(sound)))


def _find_pagination(page: PagedAnswer) -> Pagination | None:
    """Return a page's statement about the next page, in `pagination` or beside its items."""
    if page.pagination is None and (page.next_cursor is not None or page.has_next_page is not None):
        return Pagination(next_cursor=page.next_cursor, has_next_page=page.has_next_page)
    return page.pagination


def read_all_pages(
    channel: ProviderChannel, path: str, decode: Callable[[bytes], DecodedPage[T]], deadline: Deadline, **params: str
) -> PagedList[T]:
    """Read every page of `path`.

    Raises a ProviderError if the first cannot be read; a later failure makes the list partial.
    """
    listed, cursor, cursors, limit = PagedList[T](), "", set[str](), LIMIT
    for number in range(1, MOST_PAGES + 1):
        try:
            page_params = {**params, "cursor": cursor} if cursor else params
            page, limit = _read_page(channel, path, decode, deadline, page_params, limit=limit)
        except ProviderError as broken:
            if number == 1:
                raise
            return _mark_partial(listed, f"page {number} of {path}: {broken.what}")
        listed.items += page.items
        listed.notes += page.notes
        if page.lost:
            _mark_partial(listed, f"{page.lost} of page {number} of {path} have no id that can be read")
        if len(listed.items) > MOST_ITEMS:
            del listed.items[MOST_ITEMS:]
            return _mark_partial(listed, f"{path} holds more than {MOST_ITEMS} items; the rest was not read")
        cursor, why = _find_next_cursor(page, limit)
        if why or not cursor:
            return _mark_partial(listed, f"{path} {why}") if why else listed
        if cursor in cursors:
            return _mark_partial(listed, f"{path} repeats pages after page {number}")
        cursors.add(cursor)
    return _mark_partial(listed, f"{path} has more than {MOST_PAGES} pages")


def _read_page(
    channel: ProviderChannel,
    path: str,
    decode: Callable[[bytes], DecodedPage[T]],
    deadline: Deadline,
    params: dict[str, str],
    *,
    limit: int,
) -> tuple[DecodedPage[T], int]:
    """Return one page and the requested number of items; 0 if RunPod refused a limit and used its own page size."""
    page_params = {**params, "limit": str(limit)} if limit else params
    try:
        reply = channel.read(path, page_params, scope="account", deadline=deadline)
    except RefusedError as no:
        if no.status not in (400, 422) or not limit:
            raise
        limit = 0
        reply = channel.read(path, params, scope="account", deadline=deadline)
    if reply.status != OK:
        what = f"GET {path} was answered with {reply.status}, which does not guarantee a complete list"
        raise InvalidAnswerError(what, provider=channel.provider, account=channel.account, status=reply.status)
    try:
        return decode(reply.body), limit
    except UNREADABLE as odd:
        raise make_odd_answer(channel, f"GET {path}", reply.body, odd) from None


def make_odd_answer(channel: ProviderChannel, what: str, body: bytes, odd: Exception) -> InvalidAnswerError:
    """Return the error of an unreadable answer to `what`, without any of its content."""
    page = body[:64].lstrip()[:1] == b"<"
    why = "is a web page, not JSON" if page else f"cannot be read ({shorten(str(odd), 120)})"
    return InvalidAnswerError(f"the answer to {what} {why}", provider=channel.provider, account=channel.account, status=200)


def _find_next_cursor(page: DecodedPage[T], limit: int) -> tuple[str, str]:
    """Return the next page's cursor, "" at the stated end, and what is unexpected."""
    pagination = page.pagination
    if pagination is None:
        full = limit and len(page.items) + page.lost == limit
        return "", f"gave a full page of {limit} and does not say whether more follows" if full else ""
    if pagination.has_next_page is False:
        return "", ""
    if pagination.has_next_page and not pagination.next_cursor:
        return "", "has more pages without a next link"
    return pagination.next_cursor or "", ""


def _mark_partial(listed: PagedList[T], why: str) -> PagedList[T]:
    listed.why = f"{listed.why}; {why}" if listed.why else why
    return listed


def _drop_bad_ids(page: DecodedPage[T]) -> DecodedPage[T]:
    """Return `page` without items whose id is unusable."""
    items = [item for item in page.items if 0 < len(item.id) <= LONGEST_ID and is_storable(item.id)]
    lost = len(page.items) - len(items)
    return DecodedPage(items, page.pagination, page.lost + lost, page.notes) if lost else page


def _decode_one_by_one(items: list[msgspec.Raw], pagination: Pagination | None, kind: type[T]) -> DecodedPage[T]:
    page: DecodedPage[T] = DecodedPage([], pagination)
    for raw in items:
        item, left_out = parse_leniently(raw, kind)
        if item is None:
            page.lost += 1
            continue
        page.items.append(item)
        if left_out:
            page.notes.append(f"{shorten(to_one_line(item.id))}: cannot be read: {', '.join(left_out)}")
    return _drop_bad_ids(page)


def parse_leniently(raw: msgspec.Raw | bytes, kind: type[T]) -> tuple[T | None, list[str]]:
    """Return the item without its unreadable fields, and their names; None if its id is unreadable."""
    try:
        return msgspec.json.decode(raw, type=kind), []
    except UNREADABLE:
        pass
    try:
        fields = _FIELDS.decode(raw)
        msgspec.json.decode(fields.get("id", b"null"), type=str)
    except UNREADABLE:
        return None, []
    values: dict[str, Any] = {}
    left_out: list[str] = []
    hints = get_type_hints(kind)
    for about in msgspec.structs.fields(kind):
        if about.encode_name in fields:
            try:
                values[about.name] = msgspec.json.decode(fields[about.encode_name], type=hints[about.name])
            except UNREADABLE:
                left_out.append(about.encode_name)
    return kind(**values), left_out


_PODS, _RAW_PODS = msgspec.json.Decoder(Pods), msgspec.json.Decoder(RawPods)
_VOLUMES, _RAW_VOLUMES = msgspec.json.Decoder(Volumes), msgspec.json.Decoder(RawVolumes)
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
