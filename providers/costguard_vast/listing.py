"""Pages read to their stated end, or why not: `next_token: null`, or, without any token, a count that is reached."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec
from msgspec import UNSET

from costguard.errors import ProviderError, to_one_line
from costguard_vast.wire import ChargePage, InstancePage

MOST_PAGES, MOST_ITEMS = 1000, 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RowList:
    """What was read. `why`: what is missing, "" where it is whole."""

    items: Sequence[msgspec.Raw]
    why: str = ""


def read_rows(ask: Callable[[str | None], InstancePage | ChargePage]) -> RowList:
    """Every row that `ask`, given a token, has; a ProviderError where not even the first page came."""
    found: list[msgspec.Raw] = []
    token: str | None = None
    tokens: set[str] = set()
    for number in range(1, MOST_PAGES + 1):
        try:
            page = ask(token)
        except ProviderError as broken:
            if token is None:
                raise
            return RowList(items=found, why=f"page {number} was lost: {format_reason(broken)}")
        found += page.instances if isinstance(page, InstancePage) else page.results
        if page.next_token is None or _is_last_page(page, len(found)):
            break
        if not isinstance(page.next_token, str) or not page.next_token:
            return RowList(items=found, why=f"page {number} does not say whether another follows")
        if page.next_token in tokens:
            return RowList(items=found, why=f"page {number} leads to a page that was read already")
        token = page.next_token
        tokens.add(token)
        if len(found) >= MOST_ITEMS:
            return RowList(items=found[:MOST_ITEMS], why=f"there are more than {MOST_ITEMS}, and no more were read")
    else:
        return RowList(items=found, why=f"there are more than {MOST_PAGES} pages, and no more were read")
    return RowList(items=found[:MOST_ITEMS], why=_explain_lacking(page, len(found)))


def _is_last_page(page: InstancePage | ChargePage, held: int) -> bool:
    """Whether a page without any `next_token` says in another way that it is the last: by the count of all instances."""
    return page.next_token is UNSET and isinstance(page, InstancePage) and page.total_instances == held


def _explain_lacking(page: InstancePage | ChargePage, held: int) -> str:
    """Why a list that says it is over is not: the last page counts more than all of them held."""
    total = page.total_instances if isinstance(page, InstancePage) else None
    if held > MOST_ITEMS:
        return f"there are more than {MOST_ITEMS}, and no more were kept"
    return f"Vast counts {total} instances and lists {held}" if total is not None and total > held else ""


def format_reason(broken: ProviderError) -> str:
    """An error on one line."""
    return to_one_line("; ".join(str(broken).splitlines()))
