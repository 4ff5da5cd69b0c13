"""A quote: offers that can run a job, with low, expected and high hours and cost, and the reasons against others.

Example: 10 h expected (8 to 13) on an offer of $2.00 an hour with $0.10 of disk is $20.10 expected ($16.08 to $26.13); an offer
twice as fast at $3.50 is $17.60, cheaper and faster, so the first one is not on the Pareto front.

A price is as old as it is: the cost uses what it is likely to be today (`quoting/price_drift.py`). "Cheapest" and "fastest" go
to prices that are still fresh; an older one that seems cheaper is marked "maybe cheaper".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from costguard.quoting.offer import OWN, Offer
from costguard.quoting.price_drift import AgedPrice
from costguard.quoting.storage import StorageRate
from costguard.sizing.job import Job, JobLimits
from costguard.sizing.memory.footprint import Footprint
from costguard.sizing.placement import Placement
from costguard.sizing.speed.duration import Duration, Throughput
from costguard.values.gpu import GIB, Gpu
from costguard.values.interval import Interval
from costguard.values.money import Money, MoneyInterval, Rate
from costguard.values.resource import SPOT

OVER_CAP, NOT_RANKED = "over the cap", "not ranked"

if TYPE_CHECKING:  # a type and no more: a quote without a server does not pay for importing it
    from costguard.quoting.checkpoints import CheckpointPlan
    from costguard.sizing.speed.serving import ServingPlan


CHEAPEST, FASTEST, PARETO = "cheapest", "fastest", "pareto"
MAYBE_CHEAPER, MAYBE_CHEAPEST = "maybe cheaper", "maybe cheapest"
"""Of a price past its time to live: expected below the cheapest fresh one; and the first, where no price is fresh."""
NO_LIMITS = JobLimits()
ADVISED = 5
"""Options that a quote shows unless it is asked for more."""
SORT_KEYS = ("usd", "hours", "usd_per_hour", "provider")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rental:
    """A plain rental without a model: some hours of given hardware.

    `gpu` is canonical; if `limits.gpus` has several, the first of them. `nodes`: machines of `gpu_count`.
    """

    gpu: str
    gpu_count: int
    hours: float
    nodes: int = 1
    disk_gb: int = 0
    limits: JobLimits = NO_LIMITS


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class QuoteOption:
    """One way to run the job. `offer` None: the given hardware is not in the market.

    `hours` are wall-clock hours of the whole run; None if the number of tokens was not stated. `usd` covers machines and disk;
    None if the price or the hours are unknown. `serving`: the plan of a server, whose `usd` is that of a month. `host_gib`,
    `disk_gb`: what each machine needs of host memory and disk; None: of a plain rental. `checkpoints`: of a job that trains on
    interruptible machines. `price`: what the offer's hourly price is likely to be today, for one node.
    """

    gpu: Gpu
    gpu_count: int
    nodes: int = 1
    offer: Offer | None = None
    price: AgedPrice | None = None
    placement: Placement | None = None
    throughput: Throughput | None = None
    duration: Duration | None = None
    hours: Interval | None = None
    usd: MoneyInterval | None = None
    storage_usd: MoneyInterval | None = None
    serving: ServingPlan | None = None
    host_gib: float | None = None
    disk_gb: int | None = None
    checkpoints: CheckpointPlan | None = None
    marks: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Return one line: "<QuoteOption runpod A100-80GB x1 on-demand: $5.51 (4.01 to 7.83), 4.6 h>"."""
        place = f"{self.offer.provider} " if self.offer else ""
        nodes = f" on {self.nodes} nodes" * (self.nodes > 1)
        tier = f" {self.offer.tier}" if self.offer else ""
        hours = f"{self.hours.expected:.1f} h" if self.hours else "unknown hours"
        return f"<QuoteOption {place}{self.gpu.name} x{self.gpu_count}{nodes}{tier}: {self.usd or 'unknown cost'}, {hours}>"

    @property
    def rate(self) -> Rate | None:
        """Return the hourly rate of all nodes as it was seen; None: unknown."""
        return self.offer.rate.multiply(self.nodes) if self.offer and self.offer.rate else None

    @property
    def is_fresh(self) -> bool:
        """Return whether the price is known and within its time to live."""
        return self.price is not None and self.price.fresh

    @property
    def is_doubtful(self) -> bool:
        """Return whether the job may not fit on this hardware."""
        return self.placement is not None and self.placement.fit == "maybe"

    @property
    def footprint(self) -> Footprint | None:
        """Return the memory content of each GPU; None for a plain rental."""
        return self.placement.footprint if self.placement else None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuoteRefusal:
    """Hardware that was refused, and why. `offer` names one offer; None: all offers of that GPU and count.

    `needs_gpus`: how many of these GPUs would carry the load of a server; None: their number is not the reason.
    """

    gpu: str
    gpu_count: int
    reason: str
    offer: str | None = None
    needs_gib: float | None = None
    has_gib: float | None = None
    needs_gpus: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Quote:
    """The answer to a quote. `options` are ranked; `asked`: the job, or the plain rental.

    `advice`: if there is no option, the smallest changes that would give one.
    """

    asked: Job | Rental
    options: tuple[QuoteOption, ...]
    refused: tuple[QuoteRefusal, ...]
    warnings: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Return one line with the number of options and the first."""
        first = f", first {self.options[0]!r}" if self.options else ""
        return f"<Quote of {len(self.options)} options{first}>"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedPlacement:
    """A job on one class of hardware without a price: its placement, throughput and duration."""

    placement: Placement
    throughput: Throughput
    duration: Duration | None
    notes: tuple[str, ...] = ()
    serving: ServingPlan | None = None


def build_option(
    timed: TimedPlacement,
    offer: Offer | None,
    price: AgedPrice | None = None,
    *,
    duration: Duration | None,
    storage: StorageRate | None,
    gb: int,
    limits: JobLimits = NO_LIMITS,
    notes: tuple[str, ...] = (),
) -> QuoteOption:
    """Build the option of `offer` at `price` for a timed class of hardware.

    `duration`: on that offer, including interruptions; `gb`: disk on each node.
    """
    place, hours = timed.placement, duration.hours if duration else None
    usd, disk = price_option(price, place.nodes, hours, storage, gb)
    if usd and timed.serving:
        usd = _spread_over_machines(usd, timed.serving)
    return QuoteOption(
        gpu=place.gpu,
        gpu_count=place.gpu_count,
        nodes=place.nodes,
        offer=offer,
        price=price,
        placement=place,
        throughput=timed.throughput,
        duration=duration,
        hours=hours,
        usd=usd,
        storage_usd=disk,
        serving=timed.serving,
        notes=(*timed.notes, *notes, *list_cap_warnings(usd, hours, limits)),
    )


def price_option(
    price: AgedPrice | None, nodes: int, hours: Interval | None, storage: StorageRate | None, gb: int
) -> tuple[MoneyInterval | None, MoneyInterval | None]:
    """Return the cost of machines with disk, and of the disk alone, for `hours`; None if a figure is unknown."""
    if price is None or hours is None:
        return None, None
    machines = price_machines(price.multiply(nodes), hours)
    if storage is None or not gb:
        return machines, None
    disk = _price_each(hours, partial(storage.compute_cost, gb * nodes))
    return machines.add(disk), disk


def _spread_over_machines(usd: MoneyInterval, plan: ServingPlan) -> MoneyInterval:
    """Return the cost of a server with the low end of the machines that would do if the speed is at its high end.

    Machines are whole: one that is needed anyway costs the same at every speed, and the interval is that of its price alone.
    """
    fewest, planned = round(plan.machines.low), round(plan.machines.expected)
    if fewest == planned:
        return usd
    alone = Money(nano=usd.expected.nano * fewest // planned, currency=usd.expected.currency)
    return replace(usd, low=_spread(usd.expected, usd.low, alone))


def price_machines(price: AgedPrice, hours: Interval) -> MoneyInterval:
    """Return the cost of `hours` at `price`: two independent errors, so their logarithms add as squares do.

    Example: 10 h (8 to 12.5) at $2.00 (1.60 to 2.50) an hour is $20.00 (14.59 to 27.42), and not 12.80 to 31.25.
    """
    at_expected = _price_each(hours, price.expected.multiply_seconds)
    if price.is_exact:
        return at_expected
    seconds = math.ceil(hours.expected * 3600)
    at_low, at_high = price.low.multiply_seconds(seconds), price.high.multiply_seconds(seconds)
    middle = at_expected.expected
    low = _spread(middle, at_expected.low, at_low)
    high = _spread(middle, at_expected.high, at_high)
    most = price.high.multiply_seconds(math.ceil(hours.high * 3600))
    return MoneyInterval(low=min(low, middle), expected=middle, high=max(middle, min(high, most)))


def _spread(middle: Money, one: Money, other: Money) -> Money:
    """Return the end of an interval around `middle` whose two errors alone would move it to `one` and to `other`."""
    if min(middle.nano, one.nano, other.nano) <= 0:
        return min(one, other)
    far = math.hypot(math.log(one.nano / middle.nano), math.log(other.nano / middle.nano))
    sign = 1 if one.nano + other.nano > 2 * middle.nano else -1
    return Money(nano=round(middle.nano * math.exp(sign * far)), currency=middle.currency)


def explain_cap_breach(option: QuoteOption, limits: JobLimits) -> str | None:
    """Explain why the expected cost or hours exceed a cap; None if they do not."""
    if limits.max_usd and option.usd and limits.max_usd < option.usd.expected:
        return f"{OVER_CAP}: ${option.usd.expected.format()} expected, max_usd is ${limits.max_usd.format()}"
    if limits.max_hours and option.hours and option.hours.expected > limits.max_hours:
        return f"{OVER_CAP}: {option.hours.expected:.1f} h expected, max_hours is {limits.max_hours:g}"
    return None


def list_cap_warnings(usd: MoneyInterval | None, hours: Interval | None, limits: JobLimits) -> tuple[str, ...]:
    """Return notes on caps that the high end of a figure exceeds."""
    notes = []
    if limits.max_usd and usd and limits.max_usd < usd.high:
        notes.append(f"may pass max_usd: up to ${usd.high.format()}")
    if limits.max_hours and hours and hours.high > limits.max_hours:
        notes.append(f"may pass max_hours: up to {hours.high:.1f} h")
    return tuple(notes)


def rank_options(options: Iterable[QuoteOption], sort: str) -> tuple[QuoteOption, ...]:
    """Sort options by `sort`, unknown figures last, and mark the cheapest, the fastest and those on the Pareto front.

    Only fresh prices get these marks, and only hardware that fits, where some does.
    Older ones that are expected to cost less than the cheapest of them are "maybe cheaper".
    """
    ordered = sorted(options, key=_build_sort_key(sort))
    priced = [o for o in ordered if o.usd and o.hours]
    certain = [o for o in priced if not o.is_doubtful] or priced
    fresh = [o for o in certain if o.is_fresh]
    cheapest = min(fresh, key=_get_usd_then_hours, default=None)
    fastest = min(fresh, key=lambda o: (_get_expected_hours(o), _get_expected_usd(o)), default=None)
    front = {id(o) for o in _find_pareto_front(fresh)}
    marks = {CHEAPEST: {id(cheapest)}, FASTEST: {id(fastest)}, PARETO: front, **_mark_maybe(certain, cheapest)}
    marked = {chosen for who in marks.values() for chosen in who}
    return tuple(
        replace(o, marks=tuple(m for m, who in marks.items() if id(o) in who)) if id(o) in marked else o for o in ordered
    )


def _mark_maybe(priced: list[QuoteOption], cheapest: QuoteOption | None) -> dict[str, set[int]]:
    if cheapest is None:
        return {MAYBE_CHEAPEST: {id(min(priced, key=_get_usd_then_hours, default=None))}}
    least = _get_expected_usd(cheapest)
    return {MAYBE_CHEAPER: {id(o) for o in priced if not o.is_fresh and _get_expected_usd(o) < least}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The few options to look at first, in the order of the ranking. `words`: what each is chosen for, by its rank from 1."""

    options: tuple[QuoteOption, ...]
    words: Mapping[int, str]


def choose_advice(options: tuple[QuoteOption, ...], rows: int = ADVISED) -> Advice:
    """Choose `rows` of the ranked `options`: the cheapest on-demand, the cheapest spot, the fastest, and the best others.

    Each of the three is one with a fresh price; where none is, the first of the others with "maybe" before the word. Of the
    others there is one per provider and kind of GPU, so that one machine in four tiers does not fill the list.
    """
    ranked = list(enumerate(options, 1))
    priced = [(rank, one) for rank, one in ranked if one.usd and one.hours and one.offer]
    priced = [pair for pair in priced if not pair[1].is_doubtful] or priced
    lasting = [pair for pair in priced if pair[1].offer and pair[1].offer.tier not in (SPOT, OWN)]
    own = [pair for pair in priced if pair[1].offer and pair[1].offer.tier == OWN]
    spot = [pair for pair in priced if pair[1].offer and pair[1].offer.tier == SPOT]
    chosen: dict[int, list[str]] = {}
    timed = any(one.duration for _, one in priced)  # of a plain rental all take as long
    for word, among, key in (
        ("cheapest on-demand", lasting, _get_usd_then_hours),
        ("cheapest spot", spot, _get_usd_then_hours),
        ("your own", own, _get_usd_then_hours),
        ("fastest", priced if timed else [], lambda one: (_get_expected_hours(one), _get_expected_usd(one))),
    ):
        fresh = [pair for pair in among if pair[1].is_fresh]
        if among:
            rank, _ = min(fresh or among, key=lambda pair, key=key: key(pair[1]))  # type: ignore[misc]  # a bound default
            chosen.setdefault(rank, []).append(word if fresh else f"maybe {word}")
    for rank, one in ranked:
        if MAYBE_CHEAPER in one.marks:
            words = chosen.setdefault(rank, [])
            words += [] if words else [MAYBE_CHEAPER]
            break
    classes = {_get_class(options[rank - 1]) for rank in chosen}
    for rank, one in ranked:
        if len(chosen) >= rows:
            break
        if rank not in chosen and _get_class(one) not in classes:
            chosen[rank] = []
            classes.add(_get_class(one))
    ranks = sorted(chosen)[:rows] if len(chosen) > rows else sorted(chosen)
    return Advice(options=tuple(options[rank - 1] for rank in ranks), words={rank: ", ".join(chosen[rank]) for rank in ranks})


def choose_option(options: tuple[QuoteOption, ...]) -> QuoteOption | None:
    """Return the cheapest option that nothing speaks against; None if no option has a cost.

    It has a fresh price, is not interrupted and fits for certain. Where none is so, interruptions are accepted first, then an
    old price, then hardware on which it may not fit.
    """
    priced = [one for one in options if one.usd and one.hours and one.offer]

    def weigh(one: QuoteOption) -> tuple[bool, bool, bool, tuple[Money | float, ...]]:
        is_spot = one.offer is not None and one.offer.tier == SPOT
        return (one.is_doubtful, not one.is_fresh, is_spot, _get_usd_then_hours(one))

    return min(priced, key=weigh, default=None)


def find_cheaper_option(options: tuple[QuoteOption, ...], chosen: QuoteOption) -> QuoteOption | None:
    """Return the cheapest option that is expected to cost less than `chosen`; first among those that fit for certain."""
    least = _get_expected_usd(chosen)
    cheaper = [one for one in options if one.usd and one.hours and one.offer and _get_expected_usd(one) < least]
    return min(cheaper, key=lambda one: (one.is_doubtful, _get_usd_then_hours(one)), default=None)


def _get_class(option: QuoteOption) -> tuple[str, str]:
    return (option.offer.provider if option.offer else "", option.gpu.name)


def explain_uncertainty(option: QuoteOption) -> str | None:
    """Explain which assumption changes the cost of `option` most, and by how much; None if nothing is uncertain."""
    if option.duration is None or option.usd is None or option.price is None:
        return None
    spreads = {name: i.high - i.low for name, i in option.duration.parts if i.high > i.low}
    if not spreads:
        return None
    name = max(spreads, key=lambda n: spreads[n])
    money = option.price.expected.multiply(option.nodes).multiply_seconds(math.ceil(spreads[name] * 3600))
    return (
        f"{name} has the largest effect: it changes the cost of the first option by ${money.format()} ({spreads[name]:.2f} h)"
    )


def explain_price_age(option: QuoteOption) -> str | None:
    """Explain how much the age of its price may move the cost of `option`; None if the price is taken as it was seen."""
    if option.price is None or option.price.is_exact or option.hours is None:
        return None
    price, seconds = option.price.multiply(option.nodes), math.ceil(option.hours.expected * 3600)
    low, high = price.low.multiply_seconds(seconds), price.high.multiply_seconds(seconds)
    return f"{option.price.explain_age()}, which alone makes its cost ${low.format()} to ${high.format()}"


def refuse_for_memory(placement: Placement) -> QuoteRefusal:
    """Return the refusal of a placement that does not fit into GPU memory."""
    needs, has = placement.needs_gib, placement.gpu.memory_gib
    return QuoteRefusal(
        gpu=placement.gpu.name,
        gpu_count=placement.gpu_count,
        reason=placement.explain_fit() or f"needs {needs:.1f} GiB a GPU, has {has:.1f}",
        needs_gib=needs,
        has_gib=has,
    )


def refuse_for_host_memory(placement: Placement, offer: Offer) -> QuoteRefusal | None:
    """Return the refusal of an offer with too little host memory for offloading; None if it suffices or is unknown."""
    if offer.ram_gb is None or placement.host_gib <= offer.ram_gb * 1e9 / GIB:
        return None
    return QuoteRefusal(
        gpu=placement.gpu.name,
        gpu_count=placement.gpu_count,
        offer=f"{offer.provider} {offer.instance_type} {offer.region}",
        reason=f"needs {placement.host_gib:.0f} GiB of host memory for what is offloaded, has {offer.ram_gb:.0f} GB",
        needs_gib=placement.host_gib,
        has_gib=offer.ram_gb * 1e9 / GIB,
    )


def _price_each(hours: Interval, cost: Callable[[int], Money]) -> MoneyInterval:
    low, expected, high = (cost(math.ceil(h * 3600)) for h in (hours.low, hours.expected, hours.high))
    return MoneyInterval(low=low, expected=expected, high=high)


def _find_pareto_front(priced: list[QuoteOption]) -> list[QuoteOption]:
    """Return the options that no other option beats in both cost and hours."""
    front: list[QuoteOption] = []
    for option in sorted(priced, key=lambda o: (_get_expected_usd(o), _get_expected_hours(o))):
        if not front or _get_expected_hours(option) < _get_expected_hours(front[-1]):
            front.append(option)
    return front


def _build_sort_key(sort: str) -> Callable[[QuoteOption], tuple[object, ...]]:
    def key(o: QuoteOption) -> tuple[object, ...]:
        offer_names = (o.offer.provider, o.offer.region, o.offer.instance_type, o.offer.tier) if o.offer else ("", "", "", "")
        rate = o.price.expected.nano_per_hour * o.nodes if o.price else math.inf
        by = {
            "usd": (_get_expected_usd(o), _get_expected_hours(o)),
            "hours": (_get_expected_hours(o), _get_expected_usd(o)),
            "usd_per_hour": (rate, _get_expected_usd(o)),
            "provider": (offer_names[0], _get_expected_usd(o)),
        }[sort]
        # `rate` is the only order there is where nobody said how many tokens
        return (*by, rate, o.gpu.name, o.gpu_count, o.nodes, *offer_names)

    return key


def _get_usd_then_hours(option: QuoteOption) -> tuple[float, float]:
    return (_get_expected_usd(option), _get_expected_hours(option))


def _get_expected_usd(option: QuoteOption) -> float:
    return option.usd.expected.nano if option.usd else math.inf


def _get_expected_hours(option: QuoteOption) -> float:
    """Return the hours of the job; of a server, those of one request."""
    if option.serving:
        return option.serving.request_s.expected / 3600
    return option.hours.expected if option.hours else math.inf
