"""Which prices are in use and how old they are, as a document: `costguard.prices/1`, one record a provider."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import Protocol

from costguard.quoting.offer import OfferListing
from costguard.views.document import Document, TableView

PRICES_SCHEMA = "costguard.prices/1"


class PriceAnswers(Protocol):
    """What came of asking the providers."""

    @property
    def listings(self) -> Mapping[str, OfferListing]:
        """What each answered."""

    @property
    def failed(self) -> Mapping[str, str]:
        """Why those did not that did not."""


def build_prices_document(
    market: Mapping[str, object],
    providers: Sequence[Mapping[str, object]],
    asked: PriceAnswers | None,
    *,
    today: date,
    warnings: Sequence[str] = (),
) -> Document:
    """`market`: facts of the file in use. `providers`: of each its offers, unpriced ones, oldest and newest day."""
    live = market.get("live")
    refreshed = set(live) if isinstance(live, list) else set()
    records = tuple(_build_price_record(row, refreshed, today) for row in providers)
    data = {
        "schema": PRICES_SCHEMA,
        "market": dict(market),
        "providers": list(records),
        "asked": None if asked is None else list(_list_price_answers(asked)),
        "warnings": list(warnings),
    }
    told = f", refreshed {market['refreshed_at']}" if "refreshed_at" in market else ", as shipped"
    return Document(
        data=data,
        records=records,
        lead=(f"{market['path']}: {market['offers']} offers{told}.", *_format_price_answers(asked)),
        tables=(_build_price_table(records),),
        notes=tuple(f"Warning: {warning}." for warning in warnings),
    )


def _build_price_record(row: Mapping[str, object], refreshed: set[object], today: date) -> dict[str, object]:
    newest = date.fromisoformat(str(row["newest"]))
    source = "live and snapshot" if row["provider"] in refreshed else "snapshot"
    return {**row, "age_days": (today - newest).days, "from": source}


def _list_price_answers(asked: PriceAnswers) -> Iterator[Mapping[str, object]]:
    for name, listing in sorted(asked.listings.items()):
        yield {"provider": name, "offers": len(listing.offers), "why": listing.why, "unnamed": list(listing.unnamed)}
    for name, why in sorted(asked.failed.items()):
        yield {"provider": name, "offers": None, "why": why, "unnamed": []}


def _format_price_answers(asked: PriceAnswers | None) -> Iterator[str]:
    for one in _list_price_answers(asked) if asked else ():
        count = one["offers"]
        yield f"{one['provider']}: {'could not be asked' if count is None else f'{count} live offers'}."


def _build_price_table(records: Sequence[Mapping[str, object]]) -> TableView:
    names = ("provider", "offers", "unpriced", "oldest", "newest", "age_days", "from")
    heads = ("provider", "offers>", "unpriced>", "oldest", "newest", "days old>", "from")
    return TableView(title="", columns=heads, rows=tuple(tuple(str(row[name]) for name in names) for row in records))
