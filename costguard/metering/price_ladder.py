"""The price ladder: estimate the price of an instance whose provider does not state it.

A price list may be off, answer half, or lack a type. Each listed instance without a price then climbs down this ladder, and the
first step that knows something gives an expected price with bounds, a source and a day:

1. the price that the listing, the account's price list or its agreement states: no estimate, and not the concern of this module
2. last known: what the instance cost when its price was last stated, else what others of its type in its region cost
3. the market snapshot: the same type in the same region, the same type in other regions
4. the public rate of its machine family (`quoting.machine_rates`), for machines without a GPU
5. the market's median per GPU
6. nothing: it is *unpriced*. Nothing is expected, and the high end is what such a machine costs at most

Example: AWS's Price List answers 500. An m5.large in eu-west-1 is expected at $0.107 an hour, its family's rate of $0.096 in
us-east-1 times the region's factor of 1.115, and lies between $0.030 and $0.134.

Bounds come from the spread of the prices and from their age: decision 0047's drift by class, as a ledger may rely on it
(`quoting.price_drift.bound_factor`). What the account itself never stated may be discounted: its low end allows for the largest
commitment (DISCOUNT_MOST). An estimate never counts as a stated price: `PriceRange.known` stays False, so no
condition of the guard sees a rate, and a hard cap counts its low end. Decision 0051.

Pure: the market is an argument. Ages are rounded up to whole months, so that an estimate does not change with each day.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from math import ceil
from statistics import median

from costguard.metering.billing import CEILING_VCPUS_MIN, LICENCE_PER_VCPU, UNPRICED_SOURCE, bound_unknown_price
from costguard.metering.meter import LARGEST_PRICE
from costguard.metering.observation import (
    GPU_MEDIAN,
    LAST_KNOWN,
    LEARNED,
    MACHINE_RATE,
    POWER_RANGE,
    SAME_TYPE,
    SAME_TYPE_ELSEWHERE,
    SUSTAINED,
    TYPE_STATED,
    UNPRICED,
    Estimate,
    Observation,
    Price,
    is_agreed_alone,
)
from costguard.metering.scope_state import KnownResource, ScopeState
from costguard.quoting.machine_rates import NO_FACTORS, OTHER_REGION_FACTOR, MachineRates, RatedPrice
from costguard.quoting.offer import BID, Offer, find_drift_class
from costguard.quoting.price_drift import PriceDrift, bound_factor, is_placeholder
from costguard.values.interval import Interval
from costguard.values.money import Rate
from costguard.values.resource import ENDED, INSTANCE, SPOT

AGE_STEP_DAYS = 30
"""Ages of prices count in started months of so many days."""

VCPUS_UNKNOWN = 896
"""vCPUs that a machine of unknown size has at most: u7in-32tb.224xlarge, in AWS's price list of 2026-01-19."""

DISCOUNT_MOST = 0.72
"""The largest share that a commitment takes off a list price, which no listing tells of.

AWS's EC2 Instance Savings Plans: up to 72 %; Google's resource-based commitments: up to 70 % (from memory, 2026-11).
"""

RESERVED = "reserved"
GLOBAL_REGION = "global"
"""The region of an offer whose price is the same everywhere."""

STEP_WORDS = {
    LAST_KNOWN: "last known",
    TYPE_STATED: "as others of its type in its region",
    SAME_TYPE: "market, same type and region",
    SAME_TYPE_ELSEWHERE: "market, same type in other regions",
    MACHINE_RATE: "public rate of its family",
    GPU_MEDIAN: "market, median of its GPU",
}


def _list_no_offers(gpu: str) -> Sequence[Offer]:  # noqa: ARG001 - the signature of `PriceLadder.find_offers`
    return ()


MachineType = tuple[str, str, str, float]
"""Instance type, tier, GPU and GPUs."""


@dataclass(frozen=True, slots=True)
class LearnedRate:
    """What settled bills say of the price of a type of machine: thousandths of it, and from when on that is expected."""

    least: int
    most: int
    expected_from: datetime


def apply_learned_rates(rates: Mapping[MachineType, LearnedRate], observation: Observation, at: datetime) -> Observation:
    """Return `observation` with the doubt that bills put on its price: its low end at once, what is expected from a date on.

    Example: a machine at $2, billed at 0.580 of it in October: $1.16 to $2, expected $2 in October and $1.16 from November on.
    A price above the listed one is never the low end, on which hard caps count.
    """
    one = rates.get((observation.instance_type, observation.tier, observation.gpu, round(observation.gpu_count, 3)))
    if one is None or observation.kind != INSTANCE or observation.state == ENDED:
        return observation
    return replace(observation, prices=tuple(_learn_price(price, one, at) for price in observation.prices))


def _learn_price(price: Price, learned: LearnedRate, at: datetime) -> Price:
    if price.rate is None or price.estimate is not None:
        return price
    nano, currency = price.rate.nano_per_hour, price.rate.currency
    least, most = nano * learned.least // 1000, -(-nano * learned.most // 1000)
    expected = nano if at < learned.expected_from else max(1, (least + most) // 2)
    source = (
        f"{LEARNED}, {(learned.least + learned.most) / 2000:.3f} of the price by settled bills; list {price.rate.format(9)} "
    )
    return replace(
        price,
        rate=Rate(nano_per_hour=expected, currency=currency),
        source=f"{source}{currency}: {price.source}",
        estimate=Estimate(min(least, nano), max(most, nano), LEARNED),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceLadder:
    """What estimates are made of.

    `drift`: how prices move, by class. `find_offers`: the market's offers of a canonical GPU, priced or not; called only where
    a price is missing. `rates`: of machines without a GPU. `ceilings`: canonical GPU -> the highest known nano-units per
    GPU-hour. `agree`: returns a machine as listed at an instant with the prices that are its user's own; its last argument is
    what is known of the machine. `learned`: what settled bills of the account say of prices.
    """

    drift: Mapping[str, PriceDrift]
    find_offers: Callable[[str], Sequence[Offer]] = _list_no_offers
    rates: MachineRates = field(default_factory=lambda: MachineRates(rows={}, regions=NO_FACTORS))
    ceilings: Mapping[str, int] = field(default_factory=dict)
    agree: Callable[[Observation, datetime, KnownResource | None], Observation] = lambda listed, _at, _known: listed
    learned: Mapping[MachineType, LearnedRate] = field(default_factory=dict)


def estimate_missing_prices(
    items: tuple[Observation, ...], state: ScopeState, ladder: PriceLadder, today: date
) -> tuple[Observation, ...]:
    """Return `items`, where each instance without a stated price has an estimate or is marked unpriced.

    `state`: the scope before this listing, from which the last known prices come.
    """
    lacking = {one.key for one in items if _lacks_price(one, state.resources.get(one.key))}
    if not lacking:
        return items
    peers = _collect_stated_prices(items, state, today)
    climb = _Climb(ladder, today, peers)
    return tuple(
        replace(one, prices=(*one.prices[:-1], climb.estimate_price(one, state))) if one.key in lacking else one
        for one in items
    )


def _lacks_price(observation: Observation, resource: KnownResource | None) -> bool:
    """Return whether the price of `observation` must be estimated.

    A listing that states no price at all (a stopped RunPod pod) leaves the one that was stated before in force.
    """
    if observation.kind != INSTANCE or observation.state == ENDED:
        return False
    if observation.prices:
        return observation.prices[-1].rate is None and not observation.prices[-1].prepaid
    old_prices = resource.observation.prices if resource else ()
    return not old_prices or _is_guessed(old_prices[-1]) or (old_prices[-1].rate is None and not old_prices[-1].prepaid)


def _is_guessed(price: Price) -> bool:
    return price.estimate is not None and price.estimate.step not in (LEARNED, SUSTAINED, POWER_RANGE)


_TypeKey = tuple[str, str, str, str, float]
"""What machines of one price share: region, type, tier, GPU and GPUs."""


@dataclass(frozen=True, slots=True)
class _StatedPrice:
    """A price that was stated: `on` the day on which it was last in a listing."""

    rate: Rate
    source: str
    on: date


def _get_type_key(observation: Observation) -> _TypeKey:
    return (observation.key.region, observation.instance_type, observation.tier, observation.gpu, observation.gpu_count)


def _collect_stated_prices(
    items: Iterable[Observation], state: ScopeState, today: date
) -> Mapping[_TypeKey, list[_StatedPrice]]:
    """Return the stated prices of the scope's machines by type: of this listing, else as last logged."""
    prices: dict[_TypeKey, list[_StatedPrice]] = defaultdict(list)
    listed = set()
    for observation in items:
        listed.add(observation.key)
        if price := _get_stated_price(observation, today):
            prices[_get_type_key(observation)].append(price)
    for key, resource in state.resources.items():
        if key not in listed and (price := _get_stated_price(resource.observation, resource.logged_at.date())):
            prices[_get_type_key(resource.observation)].append(price)
    return prices


def _get_stated_price(observation: Observation, on: date) -> _StatedPrice | None:
    price = observation.prices[-1] if observation.prices else None
    if observation.kind != INSTANCE or not observation.instance_type or price is None or price.rate is None:
        return None
    if price.estimate is not None or price.surcharged or is_agreed_alone(price.source):
        return None
    return _StatedPrice(price.rate, price.source, on)


class _Climb:
    """One listing's climb down the ladder; machines of one type share their estimate."""

    def __init__(self, ladder: PriceLadder, today: date, peers: Mapping[_TypeKey, list[_StatedPrice]]) -> None:
        self._ladder, self._today, self._peers = ladder, today, peers
        self._offers: dict[str, Sequence[Offer]] = {}
        self._by_type: dict[tuple[_TypeKey, float, float], Price | None] = {}

    def estimate_price(self, observation: Observation, state: ScopeState) -> Price:
        """Return the estimate of one machine, or a price without a rate and with its ceiling."""
        special = observation.tier == RESERVED or bool(observation.prices and observation.prices[-1].special)
        price = self._keep_last_known(observation, state)
        if price is None and not special:
            key = (_get_type_key(observation), observation.vcpus, observation.ram_gb)
            if key not in self._by_type:
                self._by_type[key] = self._estimate_type(observation)
            price = self._by_type[key]
            if price is not None and observation.prices and observation.prices[-1].surcharged:
                price = _add_surcharge(observation, price)
        if price is not None:
            return price
        most = bound_unknown_price(observation, self._ladder.ceilings).high
        return Price(None, source=UNPRICED_SOURCE, estimate=Estimate(0, most, UNPRICED))

    def _estimate_type(self, observation: Observation) -> Price | None:
        """Return the estimate of a machine by its type; None if nothing is known of it."""
        price = (
            self._average_peers(observation)
            or self._find_in_market(observation)
            or self._add_attached_gpus(observation)
            or self._find_machine_rate(observation)
            or self._find_gpu_median(observation)
        )
        return self._cap_spot(observation, price) if observation.tier == SPOT else price

    def _cap_spot(self, observation: Observation, price: Price | None) -> Price | None:
        """Return a spot price whose high end is at most that of the same machine on demand; unpriced if `price` is None."""
        on_demand = self._estimate_type(replace(observation, tier="on-demand"))
        if on_demand is None or on_demand.estimate is None:
            return price
        most = on_demand.estimate.high
        if price is None or price.rate is None or price.estimate is None:
            return Price(None, source=UNPRICED_SOURCE, estimate=Estimate(0, most, UNPRICED))
        high = max(price.rate.nano_per_hour, min(price.estimate.high, most))
        return replace(price, estimate=replace(price.estimate, high=high))

    def _keep_last_known(self, observation: Observation, state: ScopeState) -> Price | None:
        """Return what this machine cost when its price was last stated, if its type and tier are the same."""
        resource = state.resources.get(observation.key)
        price = resource.observation.prices[-1] if resource is not None and resource.observation.prices else None
        if resource is None or price is None or price.rate is None or is_agreed_alone(price.source):
            return None
        if _get_type_key(resource.observation) != _get_type_key(observation):
            return None
        if not _is_guessed(price):
            on = max(resource.logged_at, resource.seen_at or state.complete_at or resource.logged_at).date()
            samples = [(price.rate.nano_per_hour, self._find_bounds(observation, on))]
            return self._make_estimate(LAST_KNOWN, samples, price.source, on, price.rate.currency)
        if price.estimate is None or price.estimate.step != LAST_KNOWN or price.estimate.observed_on is None:
            return None
        on = price.estimate.observed_on
        aged = self._find_bounds(observation, on)
        low, high = (round(price.rate.nano_per_hour * factor) for factor in (aged.low, aged.high))
        return replace(price, estimate=Estimate(low, min(high, LARGEST_PRICE), LAST_KNOWN, on))

    def _average_peers(self, observation: Observation) -> Price | None:
        """Return the median of what machines of this type in this region are stated to cost."""
        peers = self._peers.get(_get_type_key(observation), []) if observation.instance_type else []
        if not peers:
            return None
        currency, newest = peers[-1].rate.currency, max(one.on for one in peers)
        samples = [
            (one.rate.nano_per_hour, self._find_bounds(observation, one.on)) for one in peers if one.rate.currency == currency
        ]
        return self._make_estimate(TYPE_STATED, samples, peers[-1].source, newest, currency)

    def _find_in_market(self, observation: Observation) -> Price | None:
        """Return the price of the same type in the market: in its region, else in other regions."""
        sold = [one for one in self._list_usable_offers(observation.gpu) if _is_same_type(one, observation)]
        local_offers = _keep_newest([one for one in sold if _covers_region(one.region, observation.key.region)])
        if local_offers:
            return self._make_market_estimate(SAME_TYPE, local_offers, [Interval.exactly(1.0)] * len(local_offers))
        regions = self._ladder.rates.regions
        factor = regions.find_factor(observation.key.provider, observation.key.region)
        newest = [
            offer
            for region in sorted({one.region for one in sold})
            for offer in _keep_newest([one for one in sold if one.region == region])
        ]
        ratios = []
        for offer in newest:
            offer_factor = regions.find_factor(observation.key.provider, offer.region).expected
            ratio = factor.scale(1 / offer_factor)
            high = max(ratio.high, 1.0 * OTHER_REGION_FACTOR / offer_factor)
            ratios.append(Interval(min(ratio.low, 1.0), ratio.expected, high))
        return self._make_market_estimate(SAME_TYPE_ELSEWHERE, newest, ratios) if newest else None

    def _add_attached_gpus(self, observation: Observation) -> Price | None:
        """Return the price of a machine with GPUs attached to any type, as Google sells them: its family's rate and the GPUs'.

        The price of a GPU is what the market's offers with attached GPUs cost beyond the machine that they name.
        """
        rated = self._rate_machine(
            observation.key.provider, observation.instance_type, observation.key.region, observation.vcpus, observation.ram_gb
        )
        if rated is None or observation.gpu_count <= 0 or observation.tier == SPOT:
            return None
        own = rated.nano * rated.factor.expected
        sold = [one for one in self._list_usable_offers(observation.gpu) if _is_attached(one, observation)]
        local_offers = _keep_newest([one for one in sold if _covers_region(one.region, observation.key.region)])
        samples = []
        for offer in local_offers or _keep_newest(sold):
            base = offer.instance_type.partition("+")[0]
            host = self._rate_machine(offer.provider, base, offer.region, offer.vcpus or 0, offer.ram_gb or 0)
            if host is None or offer.rate is None:
                continue
            gpus = (offer.rate.nano_per_hour - host.nano * host.factor.expected) * observation.gpu_count / offer.gpu_count
            if gpus > 0:
                samples.append((round(gpus + own), self._find_offer_bounds(offer)))
        if not samples:
            return None
        newest = max(local_offers or sold, key=lambda one: one.observed_on)
        step = SAME_TYPE if local_offers else SAME_TYPE_ELSEWHERE
        return self._make_estimate(step, samples, newest.source, newest.observed_on)

    def _rate_machine(self, provider: str, instance_type: str, region: str, vcpus: float, ram_gb: float) -> RatedPrice | None:
        return self._ladder.rates.find_price(provider, instance_type, region, vcpus=vcpus, ram_gb=ram_gb)

    def _find_machine_rate(self, observation: Observation) -> Price | None:
        """Return the price of a machine without a GPU on demand, by the public rate of its family."""
        if observation.gpu or observation.gpu_count or observation.tier == SPOT:
            return None
        rated = self._rate_machine(
            observation.key.provider, observation.instance_type, observation.key.region, observation.vcpus, observation.ram_gb
        )
        if rated is None:
            return None
        bounds = rated.factor.multiply(self._find_bounds(observation, rated.row.observed_on))
        return self._make_estimate(MACHINE_RATE, [(rated.nano, bounds)], rated.row.source, rated.row.observed_on)

    def _find_gpu_median(self, observation: Observation) -> Price | None:
        """Return the median per GPU of the market, of the same provider if it sells the GPU, times the machine's GPUs."""
        if not observation.gpu or observation.gpu_count <= 0:
            return None
        alike = [one for one in self._list_usable_offers(observation.gpu) if (one.tier == SPOT) == (observation.tier == SPOT)]
        offers = [one for one in alike if one.provider == observation.key.provider] or alike
        if not offers:
            return None
        samples = []
        for offer in offers:
            assert offer.rate is not None  # noqa: S101 - for the type checker: the usable ones have one
            each = round(offer.rate.nano_per_hour * observation.gpu_count / offer.gpu_count)
            samples.append((each, self._find_offer_bounds(offer)))
        newest = max(offers, key=lambda one: one.observed_on)
        return self._make_estimate(GPU_MEDIAN, samples, newest.source, newest.observed_on)

    def _list_usable_offers(self, gpu: str) -> Sequence[Offer]:
        """Return the offers of `gpu` whose price is one."""
        if not gpu:
            return ()
        if gpu not in self._offers:
            self._offers[gpu] = [
                one
                for one in self._ladder.find_offers(gpu)
                if one.rate is not None and one.drift_class != BID and not is_placeholder(one)
            ]
        return self._offers[gpu]

    def _make_market_estimate(self, step: str, offers: Sequence[Offer], ratios: Sequence[Interval]) -> Price:
        samples = [
            (one.rate.nano_per_hour, ratio.multiply(self._find_offer_bounds(one)))
            for one, ratio in zip(offers, ratios, strict=True)
            if one.rate is not None
        ]
        newest = max(offers, key=lambda one: one.observed_on)
        return self._make_estimate(step, samples, newest.source, newest.observed_on)

    def _make_estimate(
        self, step: str, samples: Sequence[tuple[int, Interval]], source: str, on: date, currency: str = "USD"
    ) -> Price:
        """Return the estimate of `samples` (nano-units an hour seen, what they say about today): their median and extremes."""
        high = min(LARGEST_PRICE, max(round(nano * factor.high) for nano, factor in samples))
        expected = max(1, min(high, round(median(nano * factor.expected for nano, factor in samples))))
        low = min(expected, *(round(nano * factor.low) for nano, factor in samples))
        if step == GPU_MEDIAN:
            low = 1  # other machines with this GPU: it costs something, and a hard cap counts no more than that
        elif step not in (LAST_KNOWN, TYPE_STATED):
            low = min(low, max(1, round(expected * (1 - DISCOUNT_MOST))))
        return Price(
            Rate(nano_per_hour=expected, currency=currency),
            source=f"estimate, {STEP_WORDS[step]}: {source}, {on.isoformat()}",
            estimate=Estimate(low, max(high, expected), step, on),
        )

    def _find_bounds(self, observation: Observation, on: date) -> Interval:
        """Return what a list price of this kind of machine, seen on a day, says about today."""
        terms = self._ladder.drift[find_drift_class(observation.key.provider, observation.tier, observation.gpu)]
        return bound_factor(terms, _round_age((self._today - on).days))

    def _find_offer_bounds(self, offer: Offer) -> Interval:
        return bound_factor(self._ladder.drift[offer.drift_class], _round_age(offer.count_age_days(self._today)))


def _add_surcharge(observation: Observation, plain: Price) -> Price:
    """Return the estimate of a machine with paid software, dedicated hardware or in another place: at least the plain one's.

    What that costs is not known here, so the expected price is that of the plain machine, and the high end has the
    dearest licence.
    """
    assert plain.estimate is not None  # noqa: S101 - for the type checker: the ladder made it
    vcpus = max(ceil(observation.vcpus) or VCPUS_UNKNOWN, CEILING_VCPUS_MIN)
    high = min(LARGEST_PRICE, plain.estimate.high + vcpus * LICENCE_PER_VCPU)
    source = f"{plain.source}, without its paid software, dedicated hardware or place"
    return replace(plain, source=source, estimate=replace(plain.estimate, high=high))


def _is_same_type(offer: Offer, observation: Observation) -> bool:
    """Return whether `offer` is the machine `observation`, in any region.

    A price list names a Google machine with attached GPUs "n1-standard-8+nvidia-tesla-t4x1". Who sells GPUs without type names
    (RunPod, Vast) sells one kind of machine for each GPU and count.
    """
    alike = (offer.provider, offer.tier, offer.gpu, float(offer.gpu_count))
    if alike != (observation.key.provider, observation.tier, observation.gpu, float(observation.gpu_count)):
        return False
    unnamed = offer.instance_type == f"{offer.gpu} x{offer.gpu_count}"
    return unnamed or offer.instance_type.partition("+")[0] == observation.instance_type


def _is_attached(offer: Offer, observation: Observation) -> bool:
    """Return whether `offer` has GPUs attached to a machine of any size, on the terms of `observation`."""
    return "+" in offer.instance_type and (offer.provider, offer.tier) == (observation.key.provider, observation.tier)


def _covers_region(offered: str, region: str) -> bool:
    """Return whether an offer in `offered` is in `region`, which may be a zone of it (us-central1-a)."""
    return offered in (region, GLOBAL_REGION) or region.startswith(f"{offered}-")


def _keep_newest(offers: Sequence[Offer]) -> list[Offer]:
    newest = max((one.observed_on for one in offers), default=None)
    return [one for one in offers if one.observed_on == newest]


def _round_age(days: int) -> int:
    return -(-max(days, 0) // AGE_STEP_DAYS) * AGE_STEP_DAYS
