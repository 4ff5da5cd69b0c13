"""The market as a document: `costguard.offers/1`, one record an offer.

Which prices are in use and how old they are, as a document: `costguard.prices/1`, one record a provider.

Buy or rent as a document: `costguard.breakeven/1`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import date
from typing import Protocol

from costguard.quoting.breakeven import BreakEven, PurchaseAnswer
from costguard.quoting.offer import Offer, OfferListing
from costguard.views.document import Document, TableView

OFFERS_SCHEMA = "costguard.offers/1"


def build_offers_document(
    offers: Sequence[Offer],
    market: Mapping[str, object],
    *,
    today: date,
    warnings: Sequence[str] = (),
    live: Collection[Offer] | None = None,
) -> Document:
    """`market`: facts about the file the offers come from. `live`: those that were asked for just now, None: nobody was."""
    records = tuple(_build_offer_record(o, today) | ({} if live is None else {"live": o in live}) for o in offers)
    data = {"schema": OFFERS_SCHEMA, "market": dict(market), "offers": list(records), "warnings": list(warnings)}
    rows = tuple(_build_offer_row(o, today, live=live is not None and o in live) for o in offers)
    table = TableView(
        title="",
        columns=("provider", "region", "instance type", "GPU", "tier", "$/h>", "$/GPU-h>", "price"),
        rows=rows,
    )
    return Document(
        data=data, records=records, tables=(table,), notes=(*(f"Warning: {w}." for w in warnings), f"{len(offers)} offers.")
    )


def _build_offer_record(o: Offer, today: date) -> dict[str, object]:
    return {
        "provider": o.provider,
        "region": o.region,
        "instance_type": o.instance_type,
        "gpu": o.gpu,
        "gpu_count": o.gpu_count,
        "tier": o.tier,
        "usd_per_hour": o.rate.format() if o.rate else None,
        "observed_at": o.observed_on.isoformat(),
        "age_days": o.count_age_days(today),
        "stale": o.is_stale(today),
        "source": o.source,
        "vcpus": o.vcpus,
        "ram_gb": o.ram_gb,
        "disk_gb": o.disk_gb,
    }


def _build_offer_row(o: Offer, today: date, *, live: bool) -> tuple[str, ...]:
    each = f"{o.rate.nano_per_hour / o.gpu_count / 1e9:.3f}" if o.rate else "unknown"
    age = "live" if live else o.format_staleness(today) or f"{o.count_age_days(today)}d old"
    return (
        o.provider,
        o.region,
        o.instance_type,
        f"{o.gpu} x{o.gpu_count}",
        o.tier,
        o.rate.format() if o.rate else "unknown",
        each,
        age,
    )


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


BREAKEVEN_SCHEMA = "costguard.breakeven/1"


def build_breakeven_document(p: PurchaseAnswer) -> Document:
    """Hours before power and resale, and after them."""
    rows = (("price / rent", p.plain), ("with power and resale", p.full))
    data = {
        "schema": BREAKEVEN_SCHEMA,
        "gpu": p.gpu.name if p.gpu else None,
        "count": p.count,
        "price_usd": p.price.format(),
        "usd_per_hour": p.rent.format(),
        "rented_from": p.rented_as.provider if p.rented_as else None,
        "power_w": p.power_w,
        "usd_per_kwh": p.usd_per_kwh,
        "resale_usd": p.resale.format() if p.resale else None,
        "hours_per_week": p.hours_week,
        "hours": {
            "before_power_and_resale": round(p.plain.plain_hours, 3),
            "with_power_and_resale": _round_hours(p.full.hours),
        },
        "weeks": {"before_power_and_resale": _round_hours(p.plain.weeks), "with_power_and_resale": _round_hours(p.full.weeks)},
        "months": {
            "before_power_and_resale": _round_hours(p.plain.months),
            "with_power_and_resale": _round_hours(p.full.months),
        },
        "warnings": list(p.warnings),
    }
    table = TableView(
        title="",
        columns=("counting", "hours>", "weeks>", "months>", "how"),
        rows=tuple((name, *_build_breakeven_row(b), b.explain[0]) for name, b in rows),
    )
    what = f"{p.gpu.name} x{p.count}" if p.gpu else "the machine"
    after = (
        "never breaks even once power is included"
        if p.full.never
        else f"{_format_breakeven_hours(p.full)} with power and resale"
    )
    even = f"{_format_breakeven_hours(p.plain)} before power and resale, {after}"
    return Document(
        data=data,
        records=tuple({"counting": name, "hours": b.hours, "weeks": b.weeks, "months": b.months} for name, b in rows),
        lead=(f"Buying {what} for ${p.price.format()} against ${p.rent.format()} an hour: {even}.",),
        tables=(table,),
        notes=tuple(f"Warning: {w}." for w in p.warnings),
    )


def _format_breakeven_hours(b: BreakEven) -> str:
    return "never" if b.hours is None else f"{b.hours:,.0f} hours"


def _build_breakeven_row(b: BreakEven) -> tuple[str, str, str]:
    return (
        "never" if b.hours is None else f"{b.hours:,.0f}",
        "-" if b.weeks is None else f"{b.weeks:,.1f}",
        "-" if b.months is None else f"{b.months:,.1f}",
    )


def _round_hours(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
