"""Doubt a price that fell far: what one source states on one day is the low end of an interval, and nothing more.

    new price >= a third of the known one      believed
    below, and a second source agrees          believed, "confirmed"
    below, stated on an earlier day too        believed down to a 20th, unless another source states the old price again
    else                                       doubted: low is the new price, expected the last believed one, high the known one

The known price is the highest of: the last believed price of this machine, its highest of the last `PEAK_DAYS` days (so that a
feed cannot go down in small steps), and the lowest that the snapshot knows of such a machine, unless a fall was confirmed.

Example: a feed states $0.03 for a machine of $0.52. A quote expects $0.52 (0.03 to 0.52), and a hold of 1,000 h is $520.
The next day the feed states $0.03 again, and no other source states the machine: a quote expects $0.03, as the feed says.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import date, datetime, timedelta

from costguard.quoting.offer import BID, Offer, PriceFall
from costguard.quoting.price_drift import is_placeholder
from costguard.values.money import Rate

FALL_FACTOR = 3
"""A larger fall is doubted: the largest true change in the histories of 2026-11 is 3.4 times in a year (GCP spot)."""
DAY_FACTOR = 20
"""A larger fall below the snapshot is no market's (`ABSURD_FACTOR` of public prices): only two sources confirm it."""
PEAK_DAYS = 30
"""Days for which the highest price counts as known. An assumption: lists were never cut by 3 times within a month."""
CONFIRMED_AFTER = timedelta(hours=12)
"""Two refreshes around midnight are not two days."""
NOTED_FACTOR = 1.5
"""A smaller fall is not remembered: spot prices move by tens of percent a day, and a file would remember all. A larger one
below a doubted price is a new fall, which the days before do not confirm."""
GLOBAL_REGION = "global"
"""The region of a price that is the same everywhere."""

OfferIdentity = tuple[str, str, str, str, int, str]


class FallJudge:
    """Judges the offers of a refresh.

    `market`: the offers in use. `statements`: what each source states now, by its address. `find_lowest`: the lowest known
    price of one GPU of such an offer, nano-dollars an hour, None: unknown. `now`: by the clock of this machine.
    """

    def __init__(
        self,
        market: Iterable[Offer],
        statements: Mapping[str, Iterable[Offer]],
        find_lowest: Callable[[Offer], int | None],
        now: datetime,
    ) -> None:
        self._find_lowest, self._now = find_lowest, now
        priced = sorted((offer for offer in market if offer.rate is not None), key=_get_nano, reverse=True)
        self._believed = {identify_offer(offer): offer for offer in priced}  # of several the cheapest
        self._prices = defaultdict[tuple[str, str, str], dict[tuple[str, str], tuple[float, date]]](dict)
        for source, offers in statements.items():
            for offer in offers:
                prices, key = self._prices[offer.provider, offer.tier, offer.gpu], (source, offer.region)
                price = (_get_nano(offer) / offer.gpu_count, offer.observed_on)
                prices[key] = min(price, prices.get(key, price))

    def judge(self, offer: Offer) -> Offer:
        """Return `offer` as it is to be used: as stated, or with the price that was believed before and `PriceFall.doubted`."""
        if offer.rate is None or offer.drift_class == BID or is_placeholder(offer):  # not ranked, so never held
            return offer
        nano, today, old = _get_nano(offer), self._now.date(), self._believed.get(identify_offer(offer))
        fall, lowest = old.fall if old else None, (self._find_lowest(offer) or 0) * offer.gpu_count
        confirmed = fall is not None and fall.confirmed
        recent = fall if fall and (confirmed or (today - fall.peak_on).days <= PEAK_DAYS) else None
        peak_nano = max(
            _get_nano(old) if old else 0, recent.peak.nano_per_hour if recent else 0, 0 if confirmed else lowest, nano
        )
        peak_on = recent.peak_on if recent and recent.peak.nano_per_hour == peak_nano else today
        peak = PriceFall(peak=Rate(nano_per_hour=peak_nano), peak_on=peak_on, confirmed=confirmed)
        if nano * FALL_FACTOR >= peak_nano:
            is_noted = nano * NOTED_FACTOR < peak_nano or (confirmed and nano * FALL_FACTOR < lowest)
            return replace(offer, fall=peak if is_noted else None)
        is_same = fall and fall.doubted and nano * NOTED_FACTOR >= fall.doubted.nano_per_hour
        since = fall.stated_at if fall and fall.stated_at and is_same else self._now
        agreeing, contrary = self._count_sources(offer, since.date())
        waited = since.date() < today and self._now - since >= CONFIRMED_AFTER and nano * DAY_FACTOR >= max(peak_nano, lowest)
        if agreeing > 1 or (waited and not contrary):
            return replace(offer, fall=PriceFall(peak=offer.rate, peak_on=today, confirmed=True))
        doubt = replace(peak, doubted=offer.rate, stated_at=since, stated_by=offer.source)
        if old is not None and _get_nano(old) * FALL_FACTOR >= peak_nano:
            return replace(old, fall=doubt)
        return replace(offer, rate=doubt.peak, fall=doubt)

    def _count_sources(self, offer: Offer, since: date) -> tuple[int, int]:
        """Return how many sources state such a price of this GPU in this region, and how many state more since `since`."""
        most = _get_nano(offer) / offer.gpu_count * FALL_FACTOR
        prices = [
            (source, price, on)
            for (source, region), (price, on) in self._prices[offer.provider, offer.tier, offer.gpu].items()
            if region == offer.region or GLOBAL_REGION in (region, offer.region)
        ]
        agreeing = {source for source, price, _ in prices if price <= most}
        return len(agreeing), len({source for source, _, on in prices if on >= since} - agreeing)


def describe_doubts(offers: Iterable[Offer]) -> tuple[str, ...]:
    """Return a sentence for each provider with doubted prices among `offers`."""
    doubted = defaultdict[str, list[tuple[float, str]]](list)
    for offer in dict.fromkeys(offers):
        fall = offer.fall
        if fall is not None and fall.doubted is not None and offer.rate is not None:
            times = fall.peak.nano_per_hour / fall.doubted.nano_per_hour
            since = "" if fall.stated_at is None else f" on {fall.stated_at:%Y-%m-%d}"
            text = (
                f"{offer.provider} {offer.gpu} x{offer.gpu_count} {offer.tier} in {offer.region} at ${fall.doubted.format()}, "
                f"{times:,.0f} times below ${fall.peak.format()}, stated{since} by {fall.stated_by}; until another source or "
                f"another day confirms it, ${fall.doubted.format()} is the low end, ${offer.rate.format()} is expected, and "
                f"holds count ${fall.peak.format()}"
            )
            doubted[offer.provider].append((times, text))
    return tuple(
        f"{f'{len(rows)} doubted prices, such as' if len(rows) > 1 else 'doubted price'}: {max(rows)[1]}"
        for _, rows in sorted(doubted.items())
    )


def identify_offer(offer: Offer) -> OfferIdentity:
    """Return what makes an offer the same machine in the same place as an earlier one."""
    return (offer.provider, offer.region, offer.instance_type, offer.gpu, offer.gpu_count, offer.tier)


def encode_fall(fall: PriceFall) -> str:
    """Return `fall` as one text, as the market file holds it."""
    doubted = "" if fall.doubted is None else str(fall.doubted.nano_per_hour)
    instant = "" if fall.stated_at is None else fall.stated_at.isoformat()
    parts = (str(fall.peak.nano_per_hour), fall.peak_on.isoformat(), "confirmed" if fall.confirmed else "", doubted, instant)
    return "|".join((*parts, fall.stated_by))


def decode_fall(text: str) -> PriceFall:
    """Return what `encode_fall` wrote."""
    peak, peak_on, confirmed, doubted, instant, source = text.split("|", 5)
    return PriceFall(
        peak=Rate(nano_per_hour=int(peak)),
        peak_on=date.fromisoformat(peak_on),
        confirmed=bool(confirmed),
        doubted=Rate(nano_per_hour=int(doubted)) if doubted else None,
        stated_at=datetime.fromisoformat(instant) if instant else None,
        stated_by=source,
    )


def _get_nano(offer: Offer) -> int:
    return offer.rate.nano_per_hour if offer.rate else 0
