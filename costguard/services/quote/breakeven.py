"""Answer `breakeven`: the cost to buy and to rent a machine, and after how many hours of use they are equal."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from functools import partial

from costguard.errors import InputError
from costguard.quoting.breakeven import USD_PER_KWH, PurchaseAnswer, compute_break_even
from costguard.quoting.gpu_prices import BY_THE_HOUR_EXCLUDES
from costguard.quoting.offer import Offer, OfferSelection
from costguard.quoting.price_drift import AgedPrice, PriceDrift, age_price, judge_vintage
from costguard.services.poll.ports import OfferSource
from costguard.values.checks import require
from costguard.values.gpu import Gpu
from costguard.values.money import Money, Rate


def compute_purchase(
    *,
    gpu: Gpu | None,
    count: int,
    price: Money | None,
    rate: Rate | None,
    power_w: float | None,
    usd_per_kwh: str | None,
    resale: Money | None,
    hours_week: float | None,
    market: OfferSource,
    drift: Mapping[str, PriceDrift],
    today: date,
) -> PurchaseAnswer:
    """Compute the answer from stated figures; missing ones are assumed, with a warning each.

    They come from the GPU's datasheet and the on-demand offer that is likely to be the cheapest `today`.
    """
    for value, flag in ((usd_per_kwh, "--usd-per-kwh"), (resale.format(9) if resale else None, "--resale")):
        require(value is None or Money.parse(value, field=flag).nano >= 0, flag, "is below zero", "write 0 or more")
    warnings: list[str] = []
    offer = None
    if price is None:
        price = _assume_list_price(gpu, count, warnings)
    if rate is None:
        offer, aged = _find_cheapest_offer(gpu, count, market, drift, today)
        rate = aged.expected
        warnings.append(f"the rental price is {offer.provider}'s {offer.tier} price of {offer.observed_on.isoformat()}")
        warnings += _list_age_warnings(price, aged)
    if power_w is None and gpu is not None and gpu.tdp_w is not None:
        power_w = gpu.tdp_w * count
        warnings.append(f"power was not stated: the GPU's {power_w:.0f} W assumed, without its host")
    if usd_per_kwh is None and power_w is not None:
        warnings.append(f"the price of electricity was not stated: ${USD_PER_KWH} per kWh assumed")
    per_kwh = usd_per_kwh or USD_PER_KWH
    return PurchaseAnswer(
        gpu=gpu,
        count=count,
        price=price,
        rent=rate,
        power_w=power_w,
        usd_per_kwh=per_kwh,
        resale=resale,
        hours_week=hours_week,
        plain=compute_break_even(price, rate, hours_per_week=hours_week),
        full=compute_break_even(price, rate, power_w=power_w, usd_per_kwh=per_kwh, resale=resale, hours_per_week=hours_week),
        rented_as=offer,
        warnings=tuple(warnings),
    )


def _assume_list_price(gpu: Gpu | None, count: int, warnings: list[str]) -> Money:
    if gpu is None or gpu.price_usd is None:
        reason = "no price of this GPU is known" if gpu else "the purchase is not specified"
        raise InputError(reason, field="--price", hint="write --price 15000")
    warnings.append(f"the price was not stated: about ${gpu.price_usd:,.0f} a GPU assumed (gpus.csv)")
    return Money.parse(round(gpu.price_usd) * count, field="--price")


def _list_age_warnings(price: Money, rent: AgedPrice) -> list[str]:
    """Return what an old rental price leaves open: the hours before power and resale at both ends of its 80 % interval."""
    if rent.is_exact:
        return []
    ends = [compute_break_even(price, rate).plain_hours for rate in (rent.high, rent.low)]
    hours = f"{ends[0]:,.0f} to {ends[1]:,.0f} hours before power and resale"
    today = f"today ${rent.low.format()} to ${rent.high.format()} an hour, so {hours}"
    return [f"it {rent.explain_age()}: {today}; costguard prices refresh fetches today's"]


def _find_cheapest_offer(
    gpu: Gpu | None, count: int, market: OfferSource, drift: Mapping[str, PriceDrift], today: date
) -> tuple[Offer, AgedPrice]:
    if gpu is None:
        raise InputError("the rental is not specified", field="--rate", hint="write --rate 4, or --gpu A100-80GB")
    judge = partial(judge_vintage, drift=drift, today=today)
    offers = [o for o in market.find_best(gpu.name, count, OfferSelection(), judge) if o.tier not in BY_THE_HOUR_EXCLUDES]
    priced = [(offer, price) for offer in offers if (price := age_price(offer, drift, today))]
    if not priced:
        raise InputError(f"no offer in the market for {gpu.name} x{count}", field="--rate", hint="write --rate 4")
    return min(priced, key=lambda pair: (bool(pair[1].unranked), pair[1].expected.nano_per_hour))
