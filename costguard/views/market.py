"""The market as a document: `costguard.offers/1`, one record an offer."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import date

from costguard.quoting.offer import Offer
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
