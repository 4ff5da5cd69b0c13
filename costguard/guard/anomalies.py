"""Find what is unusual: spending, prices, disks, regions, machine types and accounts that leave their own history.

Spending is compared by owner, GPU, region and account with the median of the same hour of the day on working days or on weekend
days of the past five weeks. By how much each past day was above these medians at most is known, too. An excess is unusual that
is 2.2 times the second highest of these days' and four robust deviations (from the median absolute deviation) above their
median. The last 24 hours of an account are compared likewise. Excesses count from a floor a day on, and from 15 % of the usual
spend of a day.

Example: alice runs 2 H100 on working days at 11:00, at $5.98 an hour. On the second busiest of 35 days it was $5.98 more than
usual. On Tuesday she runs 10 for $29.90: $23.92 more, which is over 2.2 times that. The account and the region are over their
limits as well, but without the eight newest machines they are not: one anomaly is found.

`python -m bench.anomalies` stages twelve kinds of anomalies in simulated quarters. The constants here were chosen on
other seeds than those that it scores.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, tzinfo
from itertools import accumulate
from statistics import median
from typing import NamedTuple, TypeVar

from costguard.budgets.hold import Hold
from costguard.metering.burn import compute_hourly_price
from costguard.metering.meter import COMPUTE, STORAGE
from costguard.metering.spending import LiveResource
from costguard.values.instant import HOUR_US, from_micros, to_micros
from costguard.values.money import NANO
from costguard.values.resource import Attribution, ResourceKey

V = TypeVar("V")

OWNER, GPU, REGION, ACCOUNT, TYPE = "owner", "gpu", "region", "account", "type"
SPEND, DAY, PRICE, DISK, NEW = KINDS = ("spend", "day", "price", "disk", "new")
DAY_HOURS, WEEK_HOURS, WEEKS_BACK = 24, 168, 5
HOURS_BACK = WEEKS_BACK * WEEK_HOURS
HISTORY_LEAST, WATCHED_LEAST, NEW_FOR = 14 * DAY_HOURS, 3 * DAY_HOURS, DAY_HOURS
"""Hours of history before spending is compared; before a name can be new; and for how long it is."""
DAYS_DROPPED, MARGIN, DEVIATIONS, FLEET_SHARE = 1, 2.2, 4, 0.15
"""Of the highest days; above the rest; above the median; the least excess as a share of the fleet's usual day."""
PRICE_DAYS_DROPPED, PRICE_DAYS_LEAST = 0.1, 3
DAY_MARGIN = 2.5
MAD_TO_DEVIATION = 1.4826  # of a normal distribution
PRICE_RISE, DISK_RISE = 1.2, 1.3
SATURDAY, UNNAMED_SHARE = 5, 0.1
HOLD_NAMES = ("provider", "account", "owner", "gpu")
FINDING_KEPT_FOR = 24
"""Hours that an anomaly counts as the same one after it was last found."""


class PastCost(NamedTuple):
    """`nano` that closed spans of one attribution and charge cost in the hours `first` to `last` (since 1970, UTC).

    `price`: the highest price of them an hour; 0 of what is not sold by the hour.
    """

    attribution: Attribution
    charge: str
    currency: str
    first: int
    last: int
    nano: int
    price: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendHistory:
    """What the ledger knows. `costs`: of the last HOURS_BACK. `first_days`: the first day (since 1970) of each attribution.

    `disks`: the least size of each (resource, part) in the past week, of those that changed in it. `holds`: taken in the last
    two days, ended or not. `watched_since`: the hour of the first poll: what began before it was not watched.
    """

    costs: Sequence[PastCost] = ()
    first_days: Mapping[Attribution, int] = field(default_factory=dict)
    disks: Mapping[tuple[ResourceKey, str], int] = field(default_factory=dict)
    holds: Sequence[Hold] = ()
    watched_since: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BurningLine:
    """A line that bills now: `rate` nano-units an hour since `since`, for `quantity` units."""

    key: ResourceKey
    name: str
    attribution: Attribution
    charge: str
    part: str
    currency: str
    rate: int
    quantity: int
    since: datetime


class Subject(NamedTuple):
    """Whose spending is compared. `name`: "" of an owner or a GPU: none."""

    dimension: str
    name: str
    currency: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Anomaly:
    """What is unusual since `since`: `present` instead of `usual`, nano-units an hour (of 24 hours: `kind` DAY).

    `lines`: of the machines that are new or cost more.
    """

    kind: str
    subject: Subject
    present: int
    usual: int
    since: datetime
    lines: tuple[BurningLine, ...] = ()


class Limit(NamedTuple):
    """The median of the past, and what is unusual above it, in nano-units."""

    usual: float
    limit: float


Slot = tuple[bool, int]
"""Whether it is a weekend, and the hour of the day."""


class UsualRate(NamedTuple):
    """What an hour usually costs by its slot, and by how much more it becomes unusual."""

    medians: Mapping[Slot, float]
    excess: float


PriceKey = tuple[str, str, str, float, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class UsualSpend:
    """What is usual in this hour: see `learn_usual_spend`. `days`: (sum of the last 24 hours, limit) of each subject.

    `first_hours`: since when each name has cost anything. `since`: since when anything has.
    """

    rates: Mapping[Subject, UsualRate]
    days: Mapping[Subject, tuple[float, Limit]]
    prices: Mapping[PriceKey, Limit]
    first_hours: Mapping[Subject, int]
    disks: Mapping[tuple[ResourceKey, str], int]
    since: int
    floor: float
    excess_least: float
    zone: tzinfo


def find_anomalies(
    usual: UsualSpend, lines: Sequence[BurningLine], *, now: datetime, holds: Collection[Hold] = ()
) -> list[Anomaly]:
    """Find what is unusual at `now`, one anomaly for what the same machines cause. `holds`: of admitted runs."""
    anomalies, keys, announced = list[Anomaly](), set[ResourceKey](), list_announced(lines, holds)
    for anomaly in (*_find_new_names(usual, lines, now, announced), *_find_changed_lines(usual, lines)):
        if not keys.issuperset(one.key for one in anomaly.lines):
            anomalies.append(anomaly)
            keys.update(one.key for one in anomaly.lines)
    keys |= announced
    by_subject = _group_lines(lines)
    slot: Slot = find_slot(to_micros(now) // HOUR_US, usual.zone)
    for subject, rate in _order_by_dimension(usual.rates):
        median_rate = rate.medians.get(slot, 0.0)
        limit = Limit(median_rate, median_rate + rate.excess)
        high = _find_high_rate(subject, limit, by_subject.get(subject, ()), keys, usual.excess_least)
        if high is not None:
            anomalies.append(high)
            keys.update(one.key for one in high.lines)
    explained = float(sum(max(0, one.present - one.usual) for one in anomalies) * DAY_HOURS)
    subjects = {one.subject for one in anomalies}
    for subject, (spent, limit) in _order_by_dimension(usual.days):
        if subject not in subjects and spent - explained > max(limit.limit, limit.usual + usual.excess_least):
            since = now - timedelta(hours=DAY_HOURS)
            anomalies.append(Anomaly(kind=DAY, subject=subject, present=round(spent), usual=round(limit.usual), since=since))
            explained += spent - limit.usual
    return anomalies


def _order_by_dimension(values: Mapping[Subject, V]) -> list[tuple[Subject, V]]:
    order = (OWNER, GPU, REGION, ACCOUNT)
    return sorted(values.items(), key=lambda item: (order.index(item[0].dimension), item[0]))


def _group_lines(lines: Iterable[BurningLine]) -> dict[Subject, list[BurningLine]]:
    by_subject = defaultdict[Subject, list[BurningLine]](list)
    for line in lines:
        for subject in list_subjects(line.attribution, line.currency):
            by_subject[subject].append(line)
    return by_subject


def _find_high_rate(
    subject: Subject, limit: Limit, lines: Sequence[BurningLine], keys: Collection[ResourceKey], least: float
) -> Anomaly | None:
    """Return the anomaly of a subject that costs more than its limit without the machines `keys`, which are told already."""
    lines = [one for one in lines if one.key not in keys]
    present, most = sum(one.rate for one in lines), max(limit.limit, limit.usual + least / DAY_HOURS)
    if present <= most:
        return None
    youngest, left = list[BurningLine](), present
    for line in sorted(lines, key=lambda one: (one.since, one.key), reverse=True):
        if left <= most and left - limit.usual <= UNNAMED_SHARE * (present - limit.usual):
            break
        youngest.append(line)
        left -= line.rate
    since = min(one.since for one in youngest)
    return Anomaly(kind=SPEND, subject=subject, present=present, usual=round(limit.usual), since=since, lines=tuple(youngest))


def _find_new_names(
    usual: UsualSpend, lines: Iterable[BurningLine], now: datetime, announced: Collection[ResourceKey]
) -> Iterator[Anomaly]:
    """Yield accounts, regions and machine types that cost money for the first time; `announced` ones of accounts only."""
    hour = to_micros(now) // HOUR_US
    by_name = defaultdict[Subject, list[BurningLine]](list)
    for line in lines:
        for name in list_names(line.attribution, line.currency):
            first = min(usual.first_hours.get(name, hour), to_micros(line.since) // HOUR_US)
            if hour - first < NEW_FOR and first - usual.since >= WATCHED_LEAST:
                by_name[name].append(line)
    for name, new_lines in sorted(
        by_name.items(), key=lambda item: ((ACCOUNT, REGION, TYPE).index(item[0].dimension), item[0])
    ):
        unannounced = [one for one in new_lines if name.dimension == ACCOUNT or one.key not in announced]
        rate = sum(one.rate for one in unannounced)
        if unannounced and rate * DAY_HOURS >= usual.floor:
            since = min(one.since for one in unannounced)
            yield Anomaly(kind=NEW, subject=name, present=rate, usual=0, since=since, lines=tuple(unannounced))


def list_announced(lines: Iterable[BurningLine], holds: Iterable[Hold]) -> set[ResourceKey]:
    """Return the machines that admitted runs announced: started after a hold was taken that fits them.

    A hold that names neither provider nor GPU announces nothing, and none announces more an hour than its money.
    """
    groups = defaultdict[tuple[str, ...], list[BurningLine]](list)
    for line in sorted(lines, key=lambda one: (one.since, one.key)) if holds else ():
        groups[tuple(getattr(line.attribution, name) for name in HOLD_NAMES)].append(line)
    announced = set[ResourceKey]()
    for hold in holds:
        hold_values, left = tuple(getattr(hold, name) for name in HOLD_NAMES), hold.money.nano
        fitting = (
            of
            for values, of in groups.items()
            if all(one in ("", value) for one, value in zip(hold_values, values, strict=True))
        )
        for line in (line for of in fitting for line in of) if hold.provider or hold.gpu else ():
            if hold.taken_at <= line.since and line.rate <= left:
                announced.add(line.key)
                left -= line.rate
    return announced


def _find_changed_lines(usual: UsualSpend, lines: Iterable[BurningLine]) -> Iterator[Anomaly]:
    """Yield prices that rose, by machine type and region, and disks that grew."""
    by_price = defaultdict[PriceKey, list[BurningLine]](list)
    for line in lines:
        if line.charge == COMPUTE:
            by_price[name_price(line.attribution, line.currency)].append(line)
        former = usual.disks.get((line.key, line.part)) if line.charge == STORAGE else None
        if former and line.quantity > DISK_RISE * former:
            less = line.rate * former // line.quantity
            if (line.rate - less) * DAY_HOURS >= usual.floor:
                subject = Subject(DISK, line.key.path, line.currency)
                yield Anomaly(kind=DISK, subject=subject, present=line.rate, usual=less, since=line.since, lines=(line,))
    dear = defaultdict[Subject, list[tuple[BurningLine, float]]](list)
    for price, priced_lines in sorted(by_price.items()):
        provider, region, shape, _, currency, _ = price
        if limit := usual.prices.get(price):
            subject = Subject(PRICE, f"{provider}/{region} {shape}", currency)
            dear[subject] += ((one, limit.usual) for one in priced_lines if one.rate > limit.limit)
    for subject, rises in dear.items():
        rising = tuple(line for line, _ in rises)
        present, before_rise = sum(one.rate for one in rising), sum(price for _, price in rises)
        if rising and (present - before_rise) * DAY_HOURS >= usual.floor:
            since = min(one.since for one in rising)
            yield Anomaly(kind=PRICE, subject=subject, present=present, usual=round(before_rise), since=since, lines=rising)


def learn_usual_spend(
    history: SpendHistory, lines: Sequence[BurningLine], *, now: datetime, zone: tzinfo, floor_per_day: float
) -> UsualSpend:
    """Learn what is usual at `now`; `floor_per_day`: the least excess, in units of a currency."""
    hour = to_micros(now) // HOUR_US
    costs, first_hours = _sum_hours(history, lines, hour), _find_first_hours(history, lines)
    slots = [find_slot(one, zone) for one in range(hour - HOURS_BACK, hour + 1)]
    rates, days = dict[Subject, UsualRate](), dict[Subject, tuple[float, Limit]]()
    begun = min(first_hours.values(), default=hour)
    for currency in {subject.currency for subject in costs}:  # people join; machines without an owner are never usual at first
        costs.setdefault(Subject(OWNER, "", currency), [0.0] * HOURS_BACK)
    for subject, hours in costs.items():
        is_unowned = subject[:2] == (OWNER, "")
        age = min(hour - (begun if is_unowned else first_hours[subject]), HOURS_BACK) // DAY_HOURS * DAY_HOURS
        if min(age, hour - history.watched_since) >= HISTORY_LEAST:
            rates[subject] = _learn_rate(hours[-age:], slots[-age - 1 : -1])
            if subject.dimension == ACCOUNT:
                days[subject] = sum(hours[-DAY_HOURS:]), _limit_day(hours[-age:], slots[-age - 1 :])
    fleet = sum(limit.usual for _, limit in days.values())
    return UsualSpend(
        rates=rates,
        days=days,
        prices=_learn_prices(history, hour),
        first_hours=first_hours,
        disks=history.disks,
        since=max(begun, history.watched_since),
        floor=floor_per_day * NANO,
        excess_least=max(floor_per_day * NANO, FLEET_SHARE * fleet),
        zone=zone,
    )


def _learn_rate(hours: Sequence[float], slots: Sequence[Slot]) -> UsualRate:
    """Return the median of each slot, and the limit by the highest hours of past days above it, the last 24 hours included."""
    by_slot = defaultdict[Slot, list[float]](list)
    for slot, cost in zip(slots, hours, strict=True):
        by_slot[slot].append(cost)
    medians = {slot: median(costs) for slot, costs in by_slot.items()}
    above = [cost - medians[slot] for slot, cost in zip(slots, hours, strict=True)]
    highest = [max(above[start : start + DAY_HOURS]) for start in range(0, len(above), DAY_HOURS)]
    return UsualRate(medians, _limit_excess(highest, MARGIN))


def _limit_day(hours: Sequence[float], slots: Sequence[Slot]) -> Limit:
    """Return what 24 hours usually cost that end now, and what is too much."""
    ends = range(len(hours) - DAY_HOURS, DAY_HOURS - 1, -DAY_HOURS)
    sums = {end: sum(hours[end - DAY_HOURS : end]) for end in ends}
    usual = {kind: median(of) for kind in (True, False) if (of := [sums[end] for end in ends if slots[end][0] == kind])}
    now = usual.get(slots[-1][0], 0.0)
    return Limit(now, now + _limit_excess([sums[end] - usual[slots[end][0]] for end in ends], DAY_MARGIN))


def _limit_excess(values: Sequence[float], margin: float) -> float:
    """Return the excess that is unusual after past daily ones: above the highest, and robustly above their median."""
    usual = median(values)
    deviation = MAD_TO_DEVIATION * median(abs(value - usual) for value in values)
    return max(margin * sorted(values)[-1 - DAYS_DROPPED], usual + DEVIATIONS * deviation)


def _find_first_hours(history: SpendHistory, lines: Iterable[BurningLine]) -> dict[Subject, int]:
    """Return since when each subject and each name has cost anything, to the day where it was long ago."""
    first_hours, in_costs = dict[Subject, int](), set[Attribution]()
    costs = [(one.attribution, one.currency, one.first) for one in history.costs]
    costs += [(one.attribution, one.currency, to_micros(one.since) // HOUR_US) for one in lines]
    in_costs.update(attribution for attribution, _, _ in costs)
    earliest = min((first for _, _, first in costs), default=0) // DAY_HOURS
    currencies = {currency for _, currency, _ in costs}
    for attribution, day in history.first_days.items():  # a day that the costs cover says less than they do
        if attribution not in in_costs or day < earliest:
            costs += [(attribution, currency, day * DAY_HOURS) for currency in currencies]
    for attribution, currency, first in costs:
        for name in (*list_subjects(attribution, currency), *list_names(attribution, currency)):
            first_hours[name] = min(first, first_hours.get(name, first))
    return first_hours


def _sum_hours(history: SpendHistory, lines: Iterable[BurningLine], hour: int) -> dict[Subject, list[float]]:
    """Return what each subject cost in each of the HOURS_BACK before `hour`."""
    steps, start = defaultdict[Subject, list[float]](lambda: [0.0] * (HOURS_BACK + 1)), hour - HOURS_BACK
    costs = [
        (one.attribution, one.currency, one.first, one.last + 1, one.nano / (one.last + 1 - one.first)) for one in history.costs
    ]
    costs += [(one.attribution, one.currency, to_micros(one.since) // HOUR_US, hour, float(one.rate)) for one in lines]
    for attribution, currency, first, end, rate in costs:
        if max(first, start) < end:
            for subject in list_subjects(attribution, currency):
                steps[subject][max(0, first - start)] += rate
                steps[subject][min(HOURS_BACK, end - start)] -= rate
    return {subject: list(accumulate(one))[:HOURS_BACK] for subject, one in steps.items()}


def _learn_prices(history: SpendHistory, hour: int) -> dict[PriceKey, Limit]:
    """Return the usual hourly price of each `name_price`, by the highest price of each past day."""
    days = defaultdict[PriceKey, dict[int, int]](dict)
    for row in history.costs:
        if row.charge == COMPUTE and row.price:
            of = days[name_price(row.attribution, row.currency)]
            for day in range(max(row.first, hour - HOURS_BACK) // DAY_HOURS, row.last // DAY_HOURS + 1):
                of[day] = max(row.price, of.get(day, 0))
    limits = dict[PriceKey, Limit]()
    for price, of in days.items():
        if len(of) < PRICE_DAYS_LEAST:
            continue
        values = sorted(of.values())
        usual_prices = values[: len(values) - round(PRICE_DAYS_DROPPED * len(values))]
        limits[price] = Limit(median(values), PRICE_RISE * usual_prices[-1])
    return limits


def list_burning_lines(live: Iterable[LiveResource], now: datetime) -> list[BurningLine]:
    """Return the lines of `live` that bill at `now`; nothing of what complete listings lack."""
    return [
        BurningLine(
            key=one.observation.key,
            name=one.observation.name,
            attribution=span.attribution,
            charge=span.meter.charge,
            part=span.meter.part,
            currency=span.meter.price.currency,
            rate=compute_hourly_price(span.meter, span.meter.price.expected, now),
            quantity=span.meter.quantity,
            since=span.start,
        )
        for one in live
        if one.absent_at is None
        for span in one.open
    ]


def list_subjects(attribution: Attribution, currency: str) -> tuple[Subject, ...]:
    """Return the subjects that what an attribution costs counts for."""
    return (
        Subject(OWNER, attribution.owner, currency),
        Subject(GPU, attribution.gpu, currency),
        Subject(REGION, f"{attribution.provider}/{attribution.region}", currency),
        Subject(ACCOUNT, f"{attribution.provider}/{attribution.account}", currency),
    )


def list_names(attribution: Attribution, currency: str) -> tuple[Subject, ...]:
    """Return the names of an attribution that can be new: of machines with GPUs the GPU, of others the type."""
    shape = attribution.gpu or attribution.instance_type
    _, _, region, account = list_subjects(attribution, currency)
    return (account, region, *((Subject(TYPE, f"{attribution.provider} {shape}", currency),) if shape else ()))


def name_price(attribution: Attribution, currency: str) -> PriceKey:
    """Return what has a usual price: a machine type in a region for one owner, who pays more without spot machines, too."""
    one = attribution
    return one.provider, one.region, one.instance_type or one.gpu, one.gpu_count, currency, one.owner


def find_slot(hour: int, zone: tzinfo) -> Slot:
    """Return the slot of an hour since 1970 (UTC)."""
    local = from_micros(hour * HOUR_US).astimezone(zone)
    return local.weekday() >= SATURDAY, local.hour
