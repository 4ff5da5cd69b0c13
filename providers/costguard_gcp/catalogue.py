"""The price list of Compute Engine: tens of thousands of SKUs, asked once a day and kept as a few thousand prices."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from costguard.errors import InvalidAnswerError, ProviderError, to_one_line
from costguard.providers.ports import Cache
from costguard.providers.transport import Deadline
from costguard.system.clock import Clock
from costguard_gcp.api import BILLING, GoogleApi
from costguard_gcp.price_list import SERVICE, collect_prices
from costguard_gcp.wire import SkuPage

KEEP = timedelta(hours=24)
"""Spot prices change at most once a day, list prices a few times a year (gcp.md, section 3)."""
AGAIN = timedelta(minutes=10)
"""After a failure nothing is asked for so long: the pages are large."""
CACHED_AS = "gcp-prices-1"
MOST_PAGES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceList:
    """`prices`: see `skus`. `why`: why it is empty or not whole, "" where it is."""

    at: datetime
    prices: dict[str, int]
    why: str = ""


class _CachedPrices(msgspec.Struct):
    at: datetime
    prices: dict[str, int]


class PriceCatalogue:
    """The price list of one login; every project has the same."""

    def __init__(self, google: GoogleApi, clock: Clock, cache: Cache) -> None:
        self._google, self._clock, self._cache = google, clock, cache
        self._lock = threading.Lock()
        self._now: PriceList | None = None
        self.keep = KEEP

    def read_current(self, deadline: Deadline, *, anew: bool = False) -> PriceList:
        """Today's prices; `anew`: asked now. Where they cannot be had the list is empty, and says why; it raises nothing."""
        with self._lock:
            now, held = self._clock.now(), self._now
            if not anew and held is not None and now - held.at < (AGAIN if held.why else self.keep):
                return held
            kept = None if anew else self._read_cache(now)
            if kept is None:
                kept = self._fetch(now, deadline)
            self._now = kept
            return kept

    def _read_cache(self, now: datetime) -> PriceList | None:
        data = self._cache.get(CACHED_AS, now - self.keep)
        if data is None:
            return None
        try:
            kept = msgspec.json.decode(data, type=_CachedPrices)
        except (msgspec.DecodeError, RecursionError):
            return None
        sound = kept.prices and kept.at.tzinfo is not None and timedelta(0) <= now - kept.at < self.keep
        return PriceList(at=kept.at, prices=kept.prices) if sound else None

    def _fetch(self, now: datetime, deadline: Deadline) -> PriceList:
        try:
            prices, unread = self._fetch_pages(deadline)
        except ProviderError as broken:
            return PriceList(at=now, prices={}, why=f"the price list cannot be read: {to_one_line(broken.what)}")
        if not prices:
            return PriceList(at=now, prices={}, why="the price list names no machine")
        if not unread:
            self._cache.put(CACHED_AS, msgspec.json.encode(_CachedPrices(at=now, prices=prices)))
        return PriceList(at=now, prices=prices)

    def _fetch_pages(self, deadline: Deadline) -> tuple[dict[str, int], int]:
        """Every price, and how many SKUs could not be read. Half a list could pass a doubtful price for a single one."""
        prices: dict[str, int] = {}
        token, seen, unread = "", set[str](), 0
        for _ in range(MOST_PAGES):
            params = {"pageSize": "5000", "currencyCode": "USD", **({"pageToken": token} if token else {})}
            reply = self._google.read(BILLING, "", f"/v1/services/{SERVICE}/skus", params, deadline=deadline)
            page = self._google.decode(BILLING, "", reply, SkuPage, "the price list")
            unread += collect_prices(page.skus, prices)
            token = page.next_page_token or ""
            if not token:
                return prices, unread
            if token in seen:
                break
            seen.add(token)
        raise InvalidAnswerError("its pages do not end", provider="gcp")
