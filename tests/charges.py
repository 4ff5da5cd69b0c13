"""Charge items made by hand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from costguard.metering.charge_item import ChargeItem
from costguard.metering.meter import COMPUTE, GB_MONTH, HOUR, STORAGE, PriceRange
from costguard.providers.plugins import load_sellers
from costguard.values.money import Money, MoneyInterval
from costguard.values.provider import Seller
from costguard.values.resource import Attribution, ResourceKey

START = datetime(2026, 11, 2, tzinfo=UTC)
ADA = Attribution(
    *("aws", "123456789012", "us-east-1", "instance", "H100-SXM", 8, "on-demand", "ada", "p5.48xlarge", (("team", "vision"),))
)


@dataclass(frozen=True, slots=True)
class Given:
    """Charge items as an answer has them, and what the installed providers say of themselves."""

    items: Iterable[ChargeItem]

    @property
    def sellers(self) -> Mapping[str, Seller]:
        return load_sellers()

    def __iter__(self) -> Iterator[ChargeItem]:
        return iter(self.items)


def charges(items: Iterable[ChargeItem]) -> Given:
    return Given(items)


def item(
    expected: str = "295.44",
    *,
    low: str | None = None,
    high: str | None = None,
    usd: str = "98.48",
    hours: str = "3",
    **more: Any,  # noqa: ANN401 - any field
) -> ChargeItem:
    """Three hours of a p5.48xlarge on the second of November 2026, unless stated otherwise."""
    ends = [Money.parse(text, more.get("currency", "USD")) for text in (low or expected, expected, high or expected)]
    nano = Money.parse(usd).nano
    start = more.pop("start", START)
    stated: dict[str, Any] = {
        "key": ResourceKey("aws", "123456789012", "us-east-1", "i-0a1b"),
        "attribution": ADA,
        "charge": COMPUTE,
        "part": "",
        "unit": HOUR,
        "price": PriceRange.exactly(nano, more.pop("currency", "USD")),
        "source": "listing",
        "start": start,
        "end": start + timedelta(hours=3),
        "money": MoneyInterval(low=ends[0], expected=ends[1], high=ends[2]),
        "quantity_pico": int(Decimal(hours) * 10**12),
        "us": 3 * 3600 * 10**6,
        "name": "train-1",
        "tags": (("team", "vision"),),
    }
    return ChargeItem(**stated | more)


def disk(**more: Any) -> ChargeItem:  # noqa: ANN401 - any field
    """720 GB-hours of a gp3 at $0.08 per GB-month: a month has 720 h."""
    stated: dict[str, Any] = {"charge": STORAGE, "part": "gp3", "unit": GB_MONTH, "us": 720 * 3600 * 10**6}
    return item("0.08", usd="0.08", hours="1", **stated | more)
