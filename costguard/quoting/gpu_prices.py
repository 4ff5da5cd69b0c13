"""What an hour of each GPU costs now: the range of the on-demand offers of a market, for each of their GPUs.

Example: H100-SXM is offered at $2.29 an hour by one provider and as 8 GPUs for $98.32 by another: $2.29 to $12.29. Spot and
reserved machines do not count. Where every price is too old to be ranked, the range is of those, and says that it is old.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date

from costguard.quoting.offer import Offer
from costguard.quoting.price_drift import AgedPrice, PriceDrift, age_price
from costguard.values.gpu import Gpu
from costguard.values.money import Rate

BY_THE_HOUR_EXCLUDES = ("spot", "reserved")
"""Tiers that are not what an hour costs somebody who rents by the hour: one may be taken away, one is paid for a year."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPrices:
    """The lowest and the highest expected rate of one GPU by the hour, and of how many providers.

    `age_days`: since the lowest was seen. `too_old`: no price is young enough to be ranked.
    """

    low: Rate
    high: Rate
    providers: int
    age_days: int
    too_old: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedGpu:
    """A GPU of the data, and what it costs; `prices` None: nobody in the market offers it by the hour."""

    gpu: Gpu
    prices: GpuPrices | None


def collect_gpu_prices(offers: Iterable[Offer], drift: Mapping[str, PriceDrift], today: date) -> dict[str, GpuPrices]:
    """Return the range of each GPU in `offers` by its name."""
    priced: dict[str, list[tuple[Offer, AgedPrice]]] = defaultdict(list)
    for offer in offers:
        if offer.tier not in BY_THE_HOUR_EXCLUDES and (price := age_price(offer, drift, today)) is not None:
            priced[offer.gpu].append((offer, price))
    return {gpu: _measure_range(pairs) for gpu, pairs in priced.items()}


def _measure_range(pairs: list[tuple[Offer, AgedPrice]]) -> GpuPrices:
    ranked = [pair for pair in pairs if not pair[1].unranked]
    each = sorted((round(price.expected.nano_per_hour / offer.gpu_count), price.age_days) for offer, price in ranked or pairs)
    return GpuPrices(
        low=Rate(nano_per_hour=each[0][0]),
        high=Rate(nano_per_hour=each[-1][0]),
        providers=len({offer.provider for offer, _ in ranked or pairs}),
        age_days=each[0][1],
        too_old=not ranked,
    )
