"""Merges fresh offers with the rows of a market file: which older rows a listing replaces, and which it leaves.

Example: RunPod's listing of today states H100-SXM in the tiers secure and community. The snapshot's secure and community rows
of that GPU go, and so does its on-demand row, which was "the cheapest of community and secure". Rows of GPUs that the listing
does not name stay, each with its own day.
"""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Collection, Mapping
from datetime import date, datetime
from pathlib import Path

from costguard.ledger.market import MarketReader, write_market
from costguard.quoting.offer import Offer, OfferListing, OfferSelection
from costguard.quoting.price_falls import GLOBAL_REGION, OfferIdentity, identify_offer
from costguard.values.resource import COMMUNITY


def refresh_market(
    target: Path, base: Path, listings: Mapping[str, OfferListing], at: datetime, *, public: Collection[str] = ()
) -> int:
    """Write `target` from the rows of `base`, replaced by those of `listings`; return the number of rows.

    A complete listing replaces every row of its provider in the tiers, GPUs and regions that it names; an incomplete one
    replaces only the rows that it states again. Rows that a provider did not list keep their own date: where the settings name
    some regions, the others were not requested. A row of the region "global" applies to every region. A row seen later than
    the listing's own is kept, and the listing's row of the same machine is dropped: a catalogue may be older than the file.

    Where a listing states a GPU's secure and community machines apart, an on-demand row of that GPU, which mixes both, goes.
    `public`: providers whose listing came from public sources alone. Raises OSError if the file cannot be written, also for
    errors of SQLite.
    """
    fresh = {provider: _FreshRows(listing) for provider, listing in listings.items()}
    with MarketReader(base) as market:
        offers = [one for one in market.list_offers(OfferSelection()) if not _is_replaced(one, fresh)]
        described = market.describe_file()
    latest = {identify_offer(one): one.observed_on for one in offers if one.provider in listings}
    added = [
        one
        for listing in listings.values()
        for one in dict.fromkeys(listing.offers)
        if latest.get(identify_offer(one), date.min) <= one.observed_on
    ]
    new = {name for name, listing in listings.items() if listing.offers}
    facts = {
        "built_from": str(described.get("built_from", "")),
        "refreshed_at": f"{at:%Y-%m-%dT%H:%M:%SZ}",
        "live": ",".join(sorted(_read_names(described.get("live")) | (new - set(public)))),
        "public": ",".join(sorted(_read_names(described.get("public")) | (new & set(public)))),
    }
    try:
        return write_market(target, [*offers, *added], facts)
    except sqlite3.Error as failed:
        raise OSError(errno.EIO, str(failed), str(target)) from failed


def _read_names(value: object) -> set[str]:
    return {str(name) for name in value} if isinstance(value, list) else set()


MIXED_TIER, SPLIT_TIERS = "on-demand", ("secure", COMMUNITY)


class _FreshRows:
    """What one listing states, arranged for the question which older rows it replaces. Days are those of its rows."""

    def __init__(self, listing: OfferListing) -> None:
        self.complete = not listing.why
        self._days: dict[tuple[str, str], dict[str, date]] = {}
        self._counts: set[tuple[str, str, int]] = set()
        self._identities: dict[OfferIdentity, date] = {}
        self._regions = {offer.region for offer in listing.offers}
        for offer in listing.offers:
            regions = self._days.setdefault((offer.tier, offer.gpu), {})
            regions[offer.region] = max(offer.observed_on, regions.get(offer.region, date.min))
            self._counts.add((offer.tier, offer.gpu, offer.gpu_count))
            identity = identify_offer(offer)
            self._identities[identity] = max(offer.observed_on, self._identities.get(identity, date.min))

    def find_replacing_day(self, offer: Offer) -> date | None:
        """Return the day of the rows that replace `offer` if it is not newer; None: it stays."""
        if offer.tier == MIXED_TIER and (MIXED_TIER, offer.gpu) not in self._days:
            counted = any((tier, offer.gpu, offer.gpu_count) in self._counts for tier in SPLIT_TIERS)
            if self.complete or counted:
                return max((self._find_day(tier, offer) or date.min for tier in SPLIT_TIERS), default=None)
        return self._find_day(offer.tier, offer) if self.complete else self._identities.get(identify_offer(offer))

    def _find_day(self, tier: str, offer: Offer) -> date | None:
        """Return the newest day of the tier and GPU, where the listing names the region of `offer` for any GPU."""
        days = self._days.get((tier, offer.gpu))
        is_covered = offer.region in self._regions or GLOBAL_REGION in (offer.region, *self._regions)
        if days is None or not is_covered:
            return None
        return days.get(offer.region) or max(days.values())


def _is_replaced(offer: Offer, fresh: Mapping[str, _FreshRows]) -> bool:
    rows = fresh.get(offer.provider)
    day = rows.find_replacing_day(offer) if rows else None
    return day is not None and day >= offer.observed_on
