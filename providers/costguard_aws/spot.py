"""The price that a spot machine pays: the spot price of its type in its zone, which changes while it runs.

The history is fetched once per poll and region, for all types and zones together and only from the end of the last answer;
known prices are kept. Its entries come in no guaranteed order, including the last one before the start.

Example: a g5.xlarge runs in us-east-1a since 10:20; the history has 0.40 at 09:00 and 0.45 at 11:00. Its prices are (0.40 since
09:00, 0.45 since 11:00), oldest first: the first of them was in force when it started.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from costguard.errors import InvalidAnswerError, ProviderError
from costguard.metering.observation import Price, parse_hourly_rate
from costguard.values.money import Rate
from costguard_aws.errors import AwsClients, read_pages

LINUX = "Linux/UNIX"
VPC = " (Amazon VPC)"
"""Some answers carry it behind the product, and mean the same: every machine has stood in a VPC for years."""

LONGEST = timedelta(days=90)
"""How far back the history reaches: botocore's model."""

OVERLAP = timedelta(hours=1)
"""Asked for again each time, as an entry may be published late: an assumption, 2026-11."""

IDLE = timedelta(days=1)
"""How long a market is remembered in which nothing runs."""

SOURCE = "AWS spot history"
MOST_PAGES, PAGE = 100, 1000
MOST_TYPES = 100
"""Types in one request. No limit is documented; a region has 60 types with GPUs."""


class SpotMarket(NamedTuple):
    """The key of a spot price.

    `zone`: us-east-1a. `product`: an instance's PlatformDetails, Linux/UNIX.
    """

    instance_type: str
    zone: str
    product: str = LINUX


@dataclass(slots=True)
class _MarketHistory:
    """The price history of one market, oldest first, complete from `since` to `until`."""

    since: datetime
    until: datetime
    rates: dict[datetime, Rate] = field(default_factory=dict)
    prices: tuple[Price, ...] = ()
    times: tuple[datetime, ...] = ()


class SpotHistory:
    """The spot prices of one account (zone names differ between accounts).

    Different regions may be used from several threads.
    """

    def __init__(self, aws: AwsClients) -> None:
        self._aws = aws
        self._lock = threading.Lock()
        self._known: dict[SpotMarket, _MarketHistory] = {}

    def refresh(self, region: str, starts: Mapping[SpotMarket, datetime], now: datetime) -> str:
        """Fetch the prices of `starts` up to `now`: each market with the earliest start of its running machines.

        Returns "", or why they could not be fetched; then known prices stay available.
        """
        with self._lock:
            self._forget(now)
            request_starts = {market: self._find_start(market, start, now) for market, start in starts.items()}
        if not request_starts:
            return ""
        try:
            entries = self._read_entries(region, request_starts, now)
        except ProviderError as broken:
            return f"spot prices of {region} could not be fetched: {broken.what}"
        with self._lock:
            for market, start in request_starts.items():
                self._learn(market, start, now, entries.get(market, {}))
        silent = [market for market in starts if not self._known[market].prices]
        return f"no spot price of {_format_markets(silent)} in {region}" if silent else ""

    def list_prices(self, market: SpotMarket, start: datetime | None) -> tuple[Price, ...]:
        """Return the prices paid by a machine of `market` since `start`, oldest first; unknown if there are none.

        `start` None: the current price alone. Machines with the same history share one tuple.
        """
        history = self._known.get(market)
        if history is None or not history.prices:
            return (Price(None, None, SOURCE, surcharged=not market.product.startswith(LINUX)),)
        first = bisect_right(history.times, start) - 1 if start is not None else -1
        return history.prices[max(first, 0) :] if start is not None else history.prices[-1:]

    def _find_start(self, market: SpotMarket, start: datetime, now: datetime) -> datetime:
        """Return the start of a market's request: the machines' start if it is new, else the end of the last answer."""
        earliest = max(start.astimezone(UTC), now - LONGEST)
        history = self._known.get(market)
        return earliest if history is None or history.since > earliest else max(history.until - OVERLAP, history.since)

    def _forget(self, now: datetime) -> None:
        """Drop markets that were not requested for a day; they are fetched again when needed."""
        for market in [market for market, history in self._known.items() if now - history.until > IDLE]:
            del self._known[market]

    def _read_entries(
        self, region: str, starts: Mapping[SpotMarket, datetime], now: datetime
    ) -> dict[SpotMarket, dict[datetime, tuple[bool, Rate]]]:
        """Return the history of the markets of `starts`; of two entries of one time the one for VPC is used."""
        entries: dict[SpotMarket, dict[datetime, tuple[bool, Rate]]] = {}
        for entry in self._read_pages(region, starts, now):
            product = str(entry.get("ProductDescription") or "")
            market = SpotMarket(str(entry.get("InstanceType")), str(entry.get("AvailabilityZone")), product.removesuffix(VPC))
            at, (rate, _) = entry.get("Timestamp"), parse_hourly_rate(entry.get("SpotPrice"), gpus=16)
            if market not in starts or rate is None or not isinstance(at, datetime) or at.tzinfo is None or at > now:
                continue
            times = entries.setdefault(market, {})
            old_entry, at = times.get(at.astimezone(UTC)), at.astimezone(UTC)
            if old_entry is None or (product.endswith(VPC), rate.nano_per_hour) > (old_entry[0], old_entry[1].nano_per_hour):
                times[at] = (product.endswith(VPC), rate)
        return entries

    def _read_pages(self, region: str, starts: Mapping[SpotMarket, datetime], now: datetime) -> Iterable[Mapping[str, Any]]:
        """Yield every entry since the earliest start; markets with very different starts are requested separately."""
        for group in _group_markets(starts, now):
            products = sorted({market.product for market in group})
            more: dict[str, Any] = {
                "InstanceTypes": sorted({market.instance_type for market in group}),
                "ProductDescriptions": [*products, *(product + VPC for product in products)],
                "Filters": [{"Name": "availability-zone", "Values": sorted({market.zone for market in group})}],
                "StartTime": min(starts[market] for market in group),
                "EndTime": now,
            }
            yield from read_history(self._aws, region, more)

    def _learn(self, market: SpotMarket, start: datetime, now: datetime, entries: Mapping[datetime, tuple[bool, Rate]]) -> None:
        history = self._known.get(market)
        if history is None or start < history.since:
            history = self._known[market] = _MarketHistory(since=start, until=now, rates=history.rates if history else {})
        history.until = now
        fresh = {at: rate for at, (_, rate) in entries.items() if history.rates.get(at) != rate}
        if fresh:
            history.rates.update(fresh)
            changes = sorted(history.rates.items())
            history.prices = tuple(Price(rate, at, SOURCE) for at, rate in changes)
            history.times = tuple(at for at, _ in changes)


def read_history(aws: AwsClients, region: str, params: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    """Yield every entry of every page of one request; raises InvalidAnswerError if the list is missing or has no end."""
    for page in read_pages(aws, "ec2", region, "describe_spot_price_history", size=PAGE, most=MOST_PAGES, **params):
        if not isinstance(page.get("SpotPriceHistory"), list):
            raise InvalidAnswerError("answered without its SpotPriceHistory", provider="aws", account=aws.account)
        yield from page["SpotPriceHistory"]


def _group_markets(starts: Mapping[SpotMarket, datetime], now: datetime) -> list[list[SpotMarket]]:
    """Group recently fetched markets, and new ones; each group has at most `MOST_TYPES` types."""
    recent = [market for market, start in starts.items() if now - start <= 3 * OVERLAP]
    groups = [sorted(recent), sorted(set(starts) - set(recent))]
    return [group[i : i + MOST_TYPES] for group in groups for i in range(0, len(group), MOST_TYPES)]


def _format_markets(markets: Iterable[SpotMarket]) -> str:
    texts = sorted(f"{market.instance_type} in {market.zone}" for market in markets)
    return ", ".join(texts[:3]) + (f" and {len(texts) - 3} more" if len(texts) > 3 else "")  # noqa: PLR2004 - a sentence's length
