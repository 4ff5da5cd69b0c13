"""Putting live offers into a market file beside the rows of an older one, each row with its own date and source."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path

from costguard.errors import CostguardError
from costguard.ledger.market import MarketReader
from costguard.ledger.market_file import write_market
from costguard.quoting.offer import Offer, OfferListing, OfferSelection

GLOBAL_REGION = "global"
"""The region of a price that is the same everywhere."""


def select_newest_market(shipped: Path, refreshed: Path) -> Path:
    """`refreshed` where it is there, can be read, and holds nothing older than what is shipped; else `shipped`."""
    if not refreshed.is_file():
        return shipped
    try:
        with MarketReader(refreshed) as ours, MarketReader(shipped) as theirs:
            newer = str(ours.describe_file()["newest"] or "") >= str(theirs.describe_file()["newest"] or "")
    except CostguardError:
        return shipped
    return refreshed if newer else shipped


def refresh_market(target: Path, base: Path, listings: Mapping[str, OfferListing], at: datetime) -> int:
    """Write `target`: the rows of `base` with those of `listings` in their place; how many rows there are.

    A whole listing replaces every row of its provider in the tiers, GPUs and regions that it names; one that lacks something
    only the very rows that it states anew. What a provider did not list stays, with its own date: where the settings name
    some regions, the others were not asked for. A row of the region "global" stands for every region. OSError where it cannot
    be written, whoever says so.
    """
    with MarketReader(base) as market:
        kept = [offer for offer in market.list_offers(OfferSelection()) if not _is_replaced(offer, listings)]
        before = str(market.describe_file().get("built_from", ""))
        live = market.describe_file().get("live")
    known = set(live) if isinstance(live, list) else set()
    fresh = [offer for listing in listings.values() for offer in dict.fromkeys(listing.offers)]
    facts = {
        "built_from": before,
        "refreshed_at": f"{at:%Y-%m-%dT%H:%M:%SZ}",
        "live": ",".join(sorted(known | {name for name, listing in listings.items() if listing.offers})),
    }
    try:
        return write_market(target, [*kept, *fresh], facts)
    except sqlite3.Error as failed:
        raise OSError(errno.EIO, str(failed), str(target)) from failed


def _is_replaced(offer: Offer, listings: Mapping[str, OfferListing]) -> bool:
    listing = listings.get(offer.provider)
    if listing is None:
        return False
    if not listing.why:
        regions = {one.region for one in listing.offers}
        here = offer.region in regions or GLOBAL_REGION in (offer.region, *regions)
        return here and (offer.tier, offer.gpu) in _collect_refreshed(listing.offers)
    return _make_offer_identity(offer) in {_make_offer_identity(one) for one in listing.offers}


def _collect_refreshed(offers: Iterable[Offer]) -> set[tuple[str, str]]:
    return {(offer.tier, offer.gpu) for offer in offers}


def _make_offer_identity(offer: Offer) -> tuple[str, str, str, int, str]:
    return (offer.region, offer.instance_type, offer.gpu, offer.gpu_count, offer.tier)
