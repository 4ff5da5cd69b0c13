"""What an hour of hardware of your own costs: electricity and wear.

    rate = watts / 1000 * usd_per_kwh + price / (years * 8,760 h)

Example: a machine of $1,600 that lasts 3 years and draws 450 W at $0.30 per kWh costs $0.135 + $0.0609 = $0.196 an hour. Wear
is that of the hours of the run alone: who uses the machine one hour a day pays 24 times as much, which `breakeven` counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from fractions import Fraction

from costguard.errors import InputError
from costguard.quoting.offer import OWN, Offer
from costguard.quoting.price_drift import AgedPrice
from costguard.values.gpu import Gpu
from costguard.values.money import Money, Rate

LOCAL = "local"
"""The provider of own hardware, and its table `[providers.local]`."""
YEARS = 3.0
"""Life of a machine where none is stated: usual for the depreciation of computers. An assumption, said in each answer."""
HOURS_PER_YEAR = 8760


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnCosts:
    """The costs of a machine of your own. `watts` (under load) and `price` are of the whole machine; None: as its GPUs'."""

    usd_per_kwh: Money
    watts: float | None = None
    price: Money | None = None
    years: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnOffer:
    """The machine as an offer at the rate of one hour, and sentences on what that rate assumes."""

    offer: Offer
    price: AgedPrice
    notes: tuple[str, ...]


def build_own_offer(costs: OwnCosts, gpu: Gpu, count: int, today: date) -> OwnOffer:
    """Return the offer of one machine with `count` of `gpu`. Raises InputError if neither power nor price is known."""
    watts, price, years = costs.watts, costs.price, costs.years or YEARS
    assumed = list[str]()
    if watts is None and gpu.tdp_w is not None:
        watts = gpu.tdp_w * count
        assumed.append(f"{watts:.0f} W, without the host")
    elif watts is not None and gpu.tdp_w is not None and watts < gpu.tdp_w * count / 2:
        assumed.append(f"that {watts:.0f} W are all that {count} x {gpu.name} draw, which have {gpu.tdp_w * count:.0f} W")
    if price is None and gpu.price_usd is not None:
        price = Money.parse(round(gpu.price_usd) * count, field="price")
        assumed.append(f"${price.format()} of the GPUs' list price")
    if watts is None and price is None:
        hint = f"write watts = 60 (under load) in [providers.local], or price = 4000: none is known of {gpu.name}"
        raise InputError("says neither power nor price of this hardware", field="providers.local", hint=hint)
    if price is not None and costs.years is None:
        assumed.append(f"{YEARS:g} years")
    power = Fraction(watts or 0) / 1000 * costs.usd_per_kwh.nano
    wear = Fraction(price.nano if price else 0) / (Fraction(years) * HOURS_PER_YEAR)
    rate = Rate(nano_per_hour=round(power + wear))
    parts = [f"{watts:.0f} W at ${costs.usd_per_kwh.format()} per kWh"] if watts is not None else ["no power counted"]
    parts += [f"${price.format()} over {years:g} years of {HOURS_PER_YEAR:,} h"] if price else ["no wear counted"]
    assumptions = f" (assumed: {'; '.join(assumed)})" if assumed else ""
    return OwnOffer(
        offer=Offer(
            provider=LOCAL,
            region="here",
            instance_type=f"{gpu.name} x{count}",
            gpu=gpu.name,
            gpu_count=count,
            tier=OWN,
            rate=rate,
            observed_on=today,
            source="[providers.local]",
        ),
        price=AgedPrice(age_days=0, low=rate, expected=rate, high=rate, fresh=True),
        notes=(f"own hardware: {', and '.join(parts)}{assumptions}",),
    )
