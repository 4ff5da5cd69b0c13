"""The facts that one listing states of one resource, translated from the provider's terms.

A missing value is None or empty, and never zero. Times are the provider's own. An observation with an impossible time (a start
in the future, a stop before the start) loses that time, with a note, and keeps the rest: see `drop_impossible_times`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from fractions import Fraction

from costguard.errors import InputError, to_one_line
from costguard.metering.meter import GB, LARGEST_PRICE, MEASURES
from costguard.values.checks import describe_value, require, require_one_of
from costguard.values.instant import EARLIEST
from costguard.values.money import NANO, Rate
from costguard.values.resource import (
    GROUPED_LABELS,
    INSTANCE,
    STATES,
    TIERS,
    Attribution,
    Incarnation,
    ResourceKey,
    is_storable,
    make_storable,
)

PROVIDER_CLOCK_AHEAD_MAX = timedelta(minutes=5)
"""How far a provider's clock may run ahead of ours before its times are not believed: an assumption, 2026-11."""

HIGHEST_PER_GPU = Decimal(1000)
"""USD an hour. Nothing on sale costs it for one GPU (the dearest of the shipped market is near 15); more is a wrong unit."""

MOST_GPUS = 1000
"""GPUs of one resource: a rack of the largest holds 72."""

LARGEST_GB, LARGEST_MB = 10**7, 10**11
"""10 PB in one disk, 100 PB through one counter: more is a wrong unit, and would not fit 64 bits as money."""


SURCHARGED, LAST_KNOWN, TYPE_STATED, SAME_TYPE, SAME_TYPE_ELSEWHERE, MACHINE_RATE, GPU_MEDIAN, UNPRICED = ESTIMATE_STEPS = (
    "surcharged",
    "last-known",
    "type-stated",
    "same-type",
    "same-type-elsewhere",
    "machine-rate",
    "gpu-median",
    "unpriced",
)
"""The steps of the price ladder below a stated price, best first: a stated price that leaves something out (`widen_price`);
what the resource cost when its price was last stated; what others of its type in its region cost; the market's price of its
type in its region, and in other regions; the public rates of its machine family; the market's median for its GPU; nothing."""


LIST, AGREED, LEARNED, ESTIMATED = PRICE_BASES = ("list", "agreed", "learned", "estimate")
"""Whose a price is: as its provider lists it, of an agreement, as settled bills state it, or an estimate."""
SUSTAINED = "sustained use"
"""The step, and how the source begins, of a list price that falls with the use of the month (`price_sustained_use`)."""
POWER_RANGE = "power"
"""The step of a price between what a machine of one's own draws idle and under load, as its owner states."""
LIST_PRICE = re.compile(r"; list (\d+\.\d+) [A-Z]{3}: ")
"""In the source of a price that is not the listed one: what its provider lists."""


def find_price_basis(source: str) -> str:
    """Return whose a price is, by its source: one of `PRICE_BASES`."""
    start = source.partition(",")[0].partition(":")[0]
    return start if start in (AGREED, LEARNED) else ESTIMATED if start in (ESTIMATED, "unpriced") else LIST


def find_list_price(source: str) -> Decimal | None:
    """Return the list price that the source of another price states; None: it is the list price, or that is unknown."""
    prices = LIST_PRICE.findall(source)
    return Decimal(prices[-1]) if prices else None


def is_agreed_alone(source: str) -> bool:
    """Return whether an agreement states a price and the provider does not: what it lists was unknown, or an estimate."""
    return find_price_basis(source) == AGREED and ("; list unknown: " in source or f": {ESTIMATED}, " in source)


def is_stated_by_bills(source: str) -> bool:
    """Return whether a bill says which price of its range a time had: one that was learned, or falls with the month's use."""
    return find_price_basis(source) == LEARNED or SUSTAINED in source


@dataclass(frozen=True, slots=True)
class Estimate:
    """How sure a price is that its provider does not state for the resource.

    `low`, `high`: nano-units an hour between which it lies. `step`: one of `ESTIMATE_STEPS`. `observed_on`: the day on which
    the prices behind it were seen; None: there is none.
    """

    low: int
    high: int
    step: str
    observed_on: date | None = None

    def __post_init__(self) -> None:
        require_one_of(self.step, (*ESTIMATE_STEPS, LEARNED, SUSTAINED, POWER_RANGE), "estimate.step")


@dataclass(frozen=True, slots=True)
class Price:
    """The price of computing per hour, for the whole resource.

    `rate` None: unknown. `since`: stated by the provider, or None. `prepaid`: it was paid in advance as a whole (a capacity
    block), so an hour costs nothing more; such a price has no rate, and is not unknown. `source` becomes part of a span, so it
    is stored in a form that a database accepts.

    `estimate`: None where a provider states the price; set by the price ladder (`metering.price_ladder`) and `widen_price`.
    `special`: its terms are not those of a list (a dedicated host, a reservation), so list prices of the type say nothing about
    it. `surcharged`: it costs more than the plain machine of a list (paid software, its place). Both matter only while
    the ladder is climbed, and are not stored.
    """

    rate: Rate | None
    since: datetime | None = None
    source: str = "listing"
    prepaid: bool = False
    estimate: Estimate | None = None
    special: bool = field(default=False, compare=False)
    surcharged: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        require(not (self.prepaid and self.rate), "price", "is paid in advance and has a rate", "leave out one of them")
        if self.estimate is not None:
            expected = self.rate.nano_per_hour if self.rate else 0
            order = 0 <= self.estimate.low <= expected <= self.estimate.high <= LARGEST_PRICE
            require(order, "price", "is outside its own bounds", "0 <= low <= rate <= high")
        if not is_storable(self.source):
            object.__setattr__(self, "source", make_storable(self.source))


def widen_price(price: Price, left_out: str, most: int) -> Price:
    """Return `price` of a machine that costs more by `left_out`, at most `most` nano-units an hour: never an exact price."""
    if price.rate is None:
        return replace(price, surcharged=True)
    nano = price.rate.nano_per_hour
    estimate = Estimate(nano, max(nano, min(nano + most, LARGEST_PRICE)), SURCHARGED)
    return replace(price, source=f"{price.source}, without {left_out}", estimate=estimate, surcharged=True)


def price_sustained_use(
    price: Price, shares: Sequence[Fraction], run: tuple[datetime | None, datetime], month: tuple[datetime, datetime]
) -> tuple[Price, ...]:
    """Return the prices of a machine that costs `shares` of `price` in equal parts of the month that it is used.

    `run`: its start (None: not known, so no part is surely used up) and the present. `month`: start and end. Expected is the
    share of the part, for this run alone. Low is the least of that and the average, because the provider adds up machines that
    run one after another. High is `price`. Example: a machine at $1 and shares of 1, 0.8, 0.6 and 0.4 that runs since before
    November costs $1 until November 8, $0.80 until November 16 ...; all of November at the average of $0.70.
    """
    if price.rate is None or price.estimate is not None:
        return (price,)
    nano, currency, least = price.rate.nano_per_hour, price.rate.currency, sum(shares) / len(shares)
    started, at = run
    first = max(started or at, month[0])
    prices = list[Price]()
    for number, share in enumerate(shares):
        since = first + (month[1] - month[0]) * number / len(shares)
        if since > at:
            break
        rate, low = max(1, round(nano * share)), max(1, int(nano * min(share, least)))
        source = f"{SUSTAINED}, {float(share):.2%} of the price; list {price.rate.format(9)} {currency}: {price.source}"
        prices.append(
            Price(
                Rate(nano_per_hour=rate, currency=currency),
                since=since if number else None,
                source=source,
                estimate=Estimate(min(low, rate), nano, SUSTAINED),
                special=price.special,
            )
        )
    if started is not None and started < month[0]:
        prices.insert(1, replace(prices[0], since=month[0]))
    return tuple(prices)


@dataclass(frozen=True, slots=True)
class Disk:
    """Storage that bills with the resource, or what is provisioned for it and bills by itself.

    `gb` None: its size is not stated, so its cost is unknown. `nano_per_gb_month`: as stated by the provider; None: the price
    of the billing rule. `type` names a line, so it is stored in a form that a database accepts.

    `measure`: one of `MEASURES`; other than GB, `gb` is the number of IOPS or MiB/s that cost extra, and the price is of one of
    them. `source`: where the stated price comes from ("AWS price list"), "": the listing itself.
    """

    gb: int | None
    type: str = ""
    nano_per_gb_month: int | None = None
    measure: str = GB
    source: str = ""

    def __post_init__(self) -> None:
        require_one_of(self.measure, MEASURES, "disk.measure")
        sound = self.gb is None or (type(self.gb) is int and 0 <= self.gb <= LARGEST_GB)
        require(sound, "disk.gb", f"must be a whole number of GB, not {describe_value(self.gb)}", "from 0 to 10 PB")
        for name in ("type", "source"):
            if not is_storable(getattr(self, name)):
                object.__setattr__(self, name, make_storable(getattr(self, name)))


IN_PLACE = "@"
"""What stands in the type of a disk before its place, where it is outside of its region's prices: gp3@us-west-2-lax-1."""


def mark_place(disks: Iterable[Disk], where: str) -> tuple[Disk, ...]:
    """Return `disks`, which stand in `where`: a billing rule's price of their region is only an estimate for them."""
    return tuple(
        disk if disk.nano_per_gb_month is not None else replace(disk, type=f"{disk.type}{IN_PLACE}{where}") for disk in disks
    )


@dataclass(frozen=True, slots=True)
class TrafficCounter:
    """Traffic billed by amount: `mb` counted by the provider since the resource was created, never falling.

    `nano_per_gb`: as stated by the provider; None: the price of the billing rule. `charge` names a line, so it is stored in a
    form that a database accepts.
    """

    charge: str
    mb: int
    nano_per_gb: int | None = None

    def __post_init__(self) -> None:
        sound = type(self.mb) is int and 0 <= self.mb <= LARGEST_MB
        require(sound, "counter.mb", f"must be a whole number of MB, not {describe_value(self.mb)}", "from 0 to 100 PB")
        if not is_storable(self.charge):
            object.__setattr__(self, "charge", make_storable(self.charge))


@dataclass(frozen=True, slots=True, kw_only=True)
class Handling:
    """The effects of a stop or a termination of an instance, as far as its provider states them.

    `controller`: what would start it again, and must be changed instead ("auto-scaling group train"); "": nothing. `stops`,
    `terminates`, `starts`: whether the provider offers that action in its present state; None: not stated. `protected`:
    actions that the provider refuses until the protection is lifted ("stop", "terminate"); costguard never lifts it.
    `stop_loses`, `terminate_loses`: what would be lost for good, in words ("1900 GB of local disk"). `restart_doubtful`: it may
    find no capacity after a stop. `committed`: why it is paid for whether it runs or not, so that stopping saves nothing, in
    words. `ends_at`: when it ends by itself. `start_waits`: it is stopped, and its provider starts it, and bills it, as soon as
    it can: a start was taken and waits for a GPU.
    """

    controller: str = ""
    stops: bool | None = None
    terminates: bool | None = None
    protected: tuple[str, ...] = ()
    stop_loses: tuple[str, ...] = ()
    terminate_loses: tuple[str, ...] = ()
    restart_doubtful: bool = False
    committed: str = ""
    ends_at: datetime | None = None
    starts: bool | None = None
    start_waits: bool = False


UNKNOWN_HANDLING = Handling()


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One resource as one listing described it.

    `created_at`: when it was created. `started_at`: when its present or last run started. `stopped_at`: when its last run
    ended; in state "ended", when it was gone. `prices`: of computing, oldest first, the last one is the present one; a provider
    that states a history gives several, each with `since`. `labels` are sorted pairs. `why` is the provider's word for the
    state. `handling` matters for actions alone and bills nothing, so it is ignored when two observations are compared.

    `vcpus`, `ram_gb`: of an instance; 0: not stated. They bound an unknown price, and change only with the type, so they are
    ignored when two observations are compared too.
    """

    key: ResourceKey
    state: str
    kind: str = INSTANCE
    name: str = ""
    instance_type: str = ""
    gpu: str = ""
    gpu_count: float = 0
    tier: str = "on-demand"
    owner: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    created_at: datetime | None = None
    started_at: datetime | None = None
    stopped_at: datetime | None = None
    prices: tuple[Price, ...] = ()
    disks: tuple[Disk, ...] = ()
    counters: tuple[TrafficCounter, ...] = ()
    why: str = ""
    handling: Handling = field(default=UNKNOWN_HANDLING, compare=False)
    vcpus: float = field(default=0, compare=False)
    ram_gb: float = field(default=0, compare=False)

    def __post_init__(self) -> None:
        if not (self.key.provider and self.key.account and self.key.id):
            raise InputError("needs a provider, an account and an id", field=f"resource {self.key.id or '?'}")
        if not all(map(is_storable, (*self.key, self.gpu))):
            hint = "an id, a region and a GPU are text without NUL and half characters"
            raise InputError("has an id, a region or a GPU that cannot be stored", field=f"resource {self.key.id}", hint=hint)
        if self.state not in STATES or self.tier not in TIERS:
            field = f"resource {self.key.id}"
            raise InputError(f"has state '{self.state}' and tier '{self.tier}', and one is unknown", field=field)
        if not 0 <= self.gpu_count <= MOST_GPUS:
            raise InputError(f"has {self.gpu_count} GPUs", field=f"resource {self.key.id}", hint=f"from 0 to {MOST_GPUS}")
        for at in (self.created_at, self.started_at, self.stopped_at):
            if at is not None and at.tzinfo is not UTC:
                raise InputError(f"has a time that is not in UTC: {at!r}", field=f"resource {self.key.id}")

    @property
    def attribution(self) -> Attribution:
        """The values by which its spending is grouped."""
        return Attribution(
            self.key.provider,
            self.key.account,
            self.key.region,
            self.kind,
            self.gpu,
            round(self.gpu_count, 3),
            self.tier,
            self.owner,
            self.instance_type,
            tuple((k.lower(), v) for k, v in self.labels if k.lower() in GROUPED_LABELS) if self.labels else (),
        )


def drop_impossible_times(observation: Observation, at: datetime) -> tuple[Observation, tuple[str, ...]]:
    """Return `observation` at `at` without its impossible times, and a note for each of them."""
    notes: list[str] = []
    latest = at + PROVIDER_CLOCK_AHEAD_MAX

    def held(name: str, when: datetime | None) -> datetime | None:
        if when is None or EARLIEST <= when <= latest:
            return when
        where = "before 2000" if when < EARLIEST else "in the future"
        notes.append(
            f"{observation.key.provider} {observation.key.id}: {name} {when:%Y-%m-%d %H:%M} is {where}, so it is ignored"
        )
        return None

    created, started = held("created_at", observation.created_at), held("started_at", observation.started_at)
    stopped = held("stopped_at", observation.stopped_at)
    if observation.state in ("stopped", "ended") and started and stopped and stopped < started:
        notes.append(f"{observation.key.provider} {observation.key.id}: stopped_at is before started_at, so it is ignored")
        stopped = None
    if (created, started, stopped) == (observation.created_at, observation.started_at, observation.stopped_at):
        return observation, ()
    return replace(observation, created_at=created, started_at=started, stopped_at=stopped), tuple(notes)


def parse_hourly_rate(
    value: object, *, gpus: float = 1, currency: str = "USD", field: str = "price"
) -> tuple[Rate | None, str]:
    """Return the hourly rate stated as a decimal string or int, and "" or the reason why it is unknown.

    Missing, zero, negative, NaN, unreadable, above `HIGHEST_PER_GPU` for each GPU or `LARGEST_PRICE` for all: unknown, never 0.
    """
    if value is None or value == "":
        return None, f"{field} is missing"
    try:
        amount = Decimal(str(value)) if not isinstance(value, bool) else Decimal("NaN")
    except (InvalidOperation, ValueError):  # ValueError: an int of more digits than Python writes
        return None, f"{field} is not a number: {to_one_line(describe_value(value))}"
    if not amount.is_finite() or amount <= 0:
        return None, f"{field} is {to_one_line(describe_value(value))}: unknown, not free"
    highest = min(HIGHEST_PER_GPU * (int(gpus) if 1 <= gpus <= MOST_GPUS else 1), Decimal(LARGEST_PRICE) / NANO)
    if amount > highest:
        return None, f"{field} is {to_one_line(describe_value(value))}: more than any machine costs, so it is ignored"
    nano = int((amount.scaleb(9)).to_integral_value())
    return (Rate(nano_per_hour=nano, currency=currency), "") if nano else (None, f"{field} is less than a nano-dollar an hour")


def identify_incarnation(observation: Observation) -> Incarnation:
    """Return the incarnation that `observation` belongs to: its key, start and creation."""
    return Incarnation(observation.key, observation.started_at, observation.created_at)
