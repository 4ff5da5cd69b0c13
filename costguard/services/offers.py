"""offers: the market, narrowed, in order of price or age."""

from __future__ import annotations

from costguard.quoting.offer import Offer, OfferSelection
from costguard.services.accounts import OfferSource

OFFER_SORTS = ("usd_per_hour", "usd_per_gpu_hour", "age", "provider")


def list_market_offers(
    selection: OfferSelection, *, market: OfferSource, sort: str = "usd_per_hour", limit: int | None = None
) -> tuple[Offer, ...]:
    """Selected offers; those of unknown price come last, whatever the order."""
    return tuple(market.list_offers(selection, sort=sort, limit=limit))
