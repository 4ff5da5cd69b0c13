"""Aggregated lists: every zone of a project, page by page, and an honest account of what is missing.

A scope appears once on every page, so pages are merged. Zones that could not be reached stand in `unreachables` or as a
warning of theirs: what they hold is unknown, and not nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import msgspec

from costguard.errors import InvalidAnswerError, ProviderError, shorten, to_one_line
from costguard.providers.transport import HttpResponse
from costguard_gcp.wire import ListWarning, Named, Text, WireObject, take_last_part

T = TypeVar("T")

MOST_PAGES, MOST_ITEMS = 1000, 50_000
"""Of one list of one project: more is refused, and said."""
EMPTY = "NO_RESULTS_ON_PAGE"


class AggregatedPage(WireObject):
    """One page of an aggregated list. The items of each scope are read later, one scope at a time."""

    kind: Text = None
    items: dict[str, msgspec.Raw] | None = None
    next_page_token: Text = None
    unreachables: list[str] | None = None
    warning: ListWarning | None = None


@dataclass(slots=True, kw_only=True)
class AggregatedList(Generic[T]):
    """Items with the zone or region they stand in.

    `named`: those of which only the id can be read. `why`: what is missing.
    """

    items: list[tuple[str, T]] = field(default_factory=list)
    named: list[tuple[str, Named]] = field(default_factory=list)
    why: list[str] = field(default_factory=list)
    pages: int = 0


Ask = Callable[[str], HttpResponse]
"""The page that a token names, "" for the first."""


def read_aggregated(ask: Ask, what: str, kind: type[T]) -> AggregatedList[T]:
    """Every page of the list of `what` ("instances"). A ProviderError where the first one fails; later ones leave a reason."""
    found: AggregatedList[T] = AggregatedList()
    token, seen = "", set[str]()
    while True:
        try:
            page = parse_aggregated_page(ask(token), what)
        except ProviderError as broken:
            if not found.pages:
                raise
            found.why.append(f"page {found.pages + 1} of {what}: {to_one_line(broken.what)}")
            return found
        found.pages += 1
        _merge_page(page, what, kind, found)
        if len(found.items) > MOST_ITEMS:
            del found.items[MOST_ITEMS:]
            found.why.append(f"more than {MOST_ITEMS} {what}")
            return found
        token = page.next_page_token or ""
        if not token:
            return found
        if token in seen or found.pages >= MOST_PAGES:
            found.why.append(f"the pages of {what} {'go in a circle' if token in seen else 'do not end'}")
            return found
        seen.add(token)


def parse_aggregated_page(reply: HttpResponse, what: str) -> AggregatedPage:
    """`reply` as a page of the list of `what`; OddAnswerError where it is none."""
    try:
        page = msgspec.json.decode(reply.body, type=AggregatedPage)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as odd:
        told = "is a web page, not JSON" if reply.body[:64].lstrip()[:1] == b"<" else f"cannot be read ({shorten(str(odd))})"
        raise InvalidAnswerError(f"the list of {what} {told}", provider="gcp", status=reply.status) from None
    if page.items is None and not (page.kind or "").endswith("AggregatedList"):
        raise InvalidAnswerError(f"the answer is no list of {what}", provider="gcp", status=reply.status)
    return page


def _merge_page(page: AggregatedPage, what: str, kind: type[T], found: AggregatedList[T]) -> None:
    for scope, raw in (page.items or {}).items():
        where = take_last_part(scope)
        try:
            scoped = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        except (msgspec.DecodeError, RecursionError):
            found.why.append(f"{_shorten_text(where)} cannot be read")
            continue
        _note_warning(scoped.get("warning"), _shorten_text(where), found.why)
        if what in scoped:
            _add_items(scoped[what], where, kind, found)
    dead = sorted({_shorten_text(take_last_part(one)) for one in page.unreachables or ()})
    if dead:
        found.why.append(f"not reached: {', '.join(dead)}")
    if page.warning and page.warning.code not in (None, EMPTY):
        found.why.append(_shorten_text(page.warning.code or ""))


def _note_warning(raw: msgspec.Raw | None, where: str, why: list[str]) -> None:
    """Any warning but that of an empty scope makes the scope unknown."""
    try:
        warning = None if raw is None else msgspec.json.decode(raw, type=ListWarning | None)
    except (msgspec.DecodeError, RecursionError):
        warning = ListWarning(code="a warning that cannot be read")
    if warning is not None and warning.code != EMPTY:
        why.append(f"{where}: {_shorten_text(warning.code or 'a warning without a code')}")


def _add_items(raw: msgspec.Raw, where: str, kind: type[T], found: AggregatedList[T]) -> None:
    """All of them at once where they are as they should be, else one by one."""
    try:
        found.items += [(where, one) for one in msgspec.json.decode(raw, type=list[kind] | None) or ()]  # type: ignore[valid-type]
    except (msgspec.DecodeError, RecursionError):
        try:
            each = msgspec.json.decode(raw, type=list[msgspec.Raw])
        except (msgspec.DecodeError, RecursionError):
            found.why.append(f"what {_shorten_text(where)} holds is no list")
            return
        for one in each:
            _add_item(one, where, kind, found)


def _add_item(raw: msgspec.Raw, where: str, kind: type[T], found: AggregatedList[T]) -> None:
    with suppress(msgspec.DecodeError, RecursionError):
        found.items.append((where, msgspec.json.decode(raw, type=kind)))
        return
    for partly in (raw, _keep_only_id(raw)):
        try:
            found.named.append((where, msgspec.json.decode(partly, type=Named)))
        except (msgspec.DecodeError, RecursionError):
            continue
        return
    found.why.append(f"an item in {_shorten_text(where)} cannot be read, not even its id")


def _keep_only_id(raw: msgspec.Raw) -> bytes:
    """The item without anything but its id, which may be all of it that is sound."""
    try:
        fields = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        return msgspec.json.encode({"id": fields["id"]} if "id" in fields else {})
    except (msgspec.DecodeError, RecursionError):
        return b"{}"


def _shorten_text(text: str) -> str:
    return shorten(to_one_line(text))
