"""Billing rules: which lines of a resource bill in its observed state.

There is one rule per provider, as data (`billing.toml` in its package). Example: a stopped RunPod pod with 200 GB of volume
disk. RunPod's rule states that computing is free in `stopped` and that this disk costs $0.20 per GB-month of 730 h there. So
one meter runs: storage, part "volume", 200 GB. Ten days of it are 200 * 0.20 * 240 / 730 = $13.15.

Where it is unknown whether a state bills, the price is a range from 0. Where nobody states the price, the price ladder
(`metering.price_ladder`) may have estimated it. Where nothing is known, nothing is expected: the price lies between 0 and the
highest that such a machine can cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import ceil

from costguard.metering.meter import (
    ADDRESS_CHARGE,
    COMPUTE,
    GB,
    GB_MONTH,
    GB_MONTH_730,
    GB_MONTH_PACIFIC,
    GB_MONTHS,
    IOPS,
    LARGEST_PRICE,
    MIBPS,
    STORAGE,
    Line,
    Meter,
    PriceRange,
    make_month_unit,
)
from costguard.metering.observation import (
    HIGHEST_PER_GPU,
    IN_PLACE,
    LEARNED,
    POWER_RANGE,
    SURCHARGED,
    SUSTAINED,
    Disk,
    Observation,
    Price,
    TrafficCounter,
)
from costguard.quoting.machine_rates import NO_FACTORS, OTHER_REGION_FACTOR, RegionFactors
from costguard.values.checks import require, require_one_of
from costguard.values.money import NANO
from costguard.values.resource import ADDRESS, ENDED, INSTANCE, RUNNING, STATES, VOLUME

RESTART_KINDS = ("stated", "unstated", "never")
GB_UNITS = GB_MONTHS
AT_WORK, AT_REST = ("running", "paused"), ("stopped", "suspended")
"""The states in which a disk surely takes its running price, and those in which it takes its stopped price."""

CEILING_PER_GPU = int(HIGHEST_PER_GPU) * NANO
"""Nano-units an hour that one GPU costs at most, where the market holds no price of it."""

GB_PER_VCPU_MAX = 32
"""GB of memory of a vCPU where only the vCPUs are known: x1e and u7in have 30.5 to 36, and no other family more."""

CEILINGS_PER_MONTH = {GB: NANO, IOPS: NANO // 5, MIBPS: NANO}
"""Nano-units a month of a GB, of an IOPS and of a MiB/s that storage of a type without a price costs at most. The dearest known
are under $1, $0.12 (io2 in Sao Paulo) and $0.25 (Hyperdisk Throughput); list prices of 2026-11."""

LICENCE_PER_VCPU, CEILING_VCPUS_MIN = 450_000_000, 4
CEILING_PER_VCPU, CEILING_PER_GB = 350_000_000 + LICENCE_PER_VCPU, 30_000_000
"""Nano-units an hour of a vCPU and of a GB of memory that a machine without a GPU costs at most, and the least vCPUs counted.
Twice the dearest machine per vCPU and GB in the price lists at hand (AWS us-east-1 of 2026-01-19: r7iz, d2, u7i; Google
us-central1: z3, h4d) is $0.35 and $0.03; $0.45 more a vCPU, for four at least, is for a licence of SQL Server Enterprise on
Windows, the dearest software sold by the hour ($0.40 and $0.05 a vCPU). The licence is an assumption of 2026-11."""

HIGHEST_PER_GB = 10 * NANO
"""Nano-units a GB, or a GB-month. No storage and no traffic on sale costs it (the dearest known is under $1); more is a wrong
unit and not believed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRule:
    """The states in which a line bills, and how its time is counted.

    `bills`, `free`: states that surely bill, or surely do not. `probably_free`: states that may bill and are expected not to. A
    state in none of the three may bill and is expected to. Nothing bills in `ended`. `quantum_s`, `minimum_s`: as in `Meter`.
    """

    bills: tuple[str, ...]
    free: tuple[str, ...] = ()
    probably_free: tuple[str, ...] = ()
    quantum_s: int = 1
    minimum_s: int = 0

    def __post_init__(self) -> None:
        states = (*self.bills, *self.free, *self.probably_free)
        for state in states:
            require_one_of(state, STATES, "states")
        require(len(set(states)) == len(states), "states", f"share a state: {', '.join(states)}", "put each in one list")
        require(ENDED not in self.bills, "states", "must not contain 'ended'", "an ended machine is not billed")
        require(self.quantum_s >= 1 and self.minimum_s >= 0, "time", "has a negative step or minimum")

    def apply_price(self, state: str, price: PriceRange) -> PriceRange | None:
        """Return `price` as it applies in `state`; None if nothing bills."""
        if state == ENDED or state in self.free or not price.high:
            return None
        if state in self.bills:
            return price
        return replace(price, low=0, expected=0 if state in self.probably_free else price.expected)


ALWAYS_BILLS = TimeRule(bills=tuple(state for state in STATES if state != ENDED))
"""Every second from the first to the last, whatever the state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageRule:
    """The price of one type of disk per GB-month.

    The price is `running` while the machine runs and `stopped` in its states `at_rest`; in other states it is one of the two.
    `type` "*" applies to every type that no other rule names. `running`, `stopped`: None where only the provider states the
    price. `region`: the region that the prices are stated for, "" for all; `regions`, `provider`: where the factors of other
    regions are found. Only GB from `from_gb` to `to_gb` (None: no upper end) count, so two rules make a price in steps.
    """

    part: str
    type: str
    running: PriceRange | None = None
    stopped: PriceRange | None = None
    at_rest: tuple[str, ...] = AT_REST
    unit: str = GB_MONTH_730
    time: TimeRule = ALWAYS_BILLS
    region: str = ""
    provider: str = ""
    regions: RegionFactors = NO_FACTORS
    from_gb: int = 0
    to_gb: int | None = None
    source: str = ""

    def __post_init__(self) -> None:
        require_one_of(self.unit, GB_UNITS, "unit")
        require(self.from_gb >= 0 and (self.to_gb is None or self.from_gb < self.to_gb), "from_gb", "is not below to_gb")

    def find_price(self, disk: Disk, state: str, region: str) -> PriceRange | None:
        """Return the price of a GB-month in `state`: as stated with the disk, else by this rule; None if unknown.

        A type of disk that nobody prices is bounded by `CEILINGS_PER_MONTH`. A disk that would cost more than `LARGEST_PRICE`
        an hour has a wrong price or a wrong size; its price is treated as unknown.
        """
        price = self._find_listed_price(disk, state, region)
        if price is None and disk.nano_per_gb_month is None and (state not in self.at_rest or self.running is None):
            price = PriceRange(0, 0, CEILINGS_PER_MONTH[disk.measure], known=False)
        return price if price and price.fits(self.unit, self.count_gb(disk)) else None

    def _find_listed_price(self, disk: Disk, state: str, region: str) -> PriceRange | None:
        if disk.nano_per_gb_month is not None:
            is_plausible = 0 < disk.nano_per_gb_month <= HIGHEST_PER_GB
            return PriceRange.exactly(disk.nano_per_gb_month) if is_plausible else None
        price = self.stopped if state in self.at_rest else self.running
        if price and self.stopped and state not in (*self.at_rest, *AT_WORK):
            price = replace(price, low=min(price.low, self.stopped.low), high=max(price.high, self.stopped.high))
        if price is None or not self.region or (region.startswith(self.region) and IN_PLACE not in disk.type):
            return price
        return self._move_price(price, region)

    def _move_price(self, price: PriceRange, region: str) -> PriceRange:
        """Return `price` as it is likely to be in another region: from the cheapest region's to twice as much."""
        factor = self.regions.find_factor(self.provider, self.region).expected
        low = min(self.regions.find_cheapest(self.provider) / factor, 1.0)
        expected = max(low, self.regions.find_factor(self.provider, region).expected / factor)
        high = max(expected, OTHER_REGION_FACTOR)
        return replace(
            price,
            low=round(price.low * low),
            expected=round(price.expected * expected),
            high=min(round(price.high * high), LARGEST_PRICE),
            known=False,
        )

    def count_gb(self, disk: Disk) -> int:
        """Return the GB of `disk` that this rule counts; 0 if the size of the disk is unknown."""
        gb = disk.gb or 0
        return max(0, (gb if self.to_gb is None else min(gb, self.to_gb)) - self.from_gb)


ON_DOUBT, DAILY = "doubt", "daily"
BILL_OCCASIONS = (ON_DOUBT, DAILY)
"""When a watchdog asks for a bill: when there are charges that it could settle, or once a day."""
BILL_ZONES = {"UTC": GB_MONTH, "America/Los_Angeles": GB_MONTH_PACIFIC}
"""Time zone of a bill's months -> the unit with the same months, which is computed without data of time zones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BillTerms:
    """How a provider states its bill: `asked`: when a watchdog asks for it (one of `BILL_OCCASIONS`).

    Its lines are of `step_s` seconds in UTC, and are final `settles_s` seconds after their end. `zone`: in which its month is a
    calendar month, one of `BILL_ZONES`.

    An estimated line contains the usage of up to `estimated_lag_s` seconds before it was stated, and the amount of that may
    still change by `estimated_percent`; None: it is no evidence. `states_all`: whatever ran has a line in a complete answer.
    """

    asked: str
    step_s: int
    settles_s: int
    zone: str = "UTC"
    estimated_lag_s: int | None = None
    estimated_percent: int = 0
    states_all: bool = False

    def __post_init__(self) -> None:
        require_one_of(self.asked, BILL_OCCASIONS, "bill.asked")
        require_one_of(self.zone, BILL_ZONES, "bill.zone")
        require(self.step_s >= 1 and self.settles_s >= 0, "bill", "has a negative step or time to settle")


@dataclass(frozen=True, slots=True, kw_only=True)
class BillingRule:
    """How one provider bills.

    `source`, `observed_on`: where that is documented, how certain it is, and when it was observed.

    `lag_s`: how many seconds its listing may lag behind. `restarts`: "stated" (one id runs again, and its start is stated),
    "unstated" (one id runs again, and its start is not stated), "never" (one id is one run). `address`: the price of an hour of
    one address, `traffic`: the price of a GB, where the listing states none; None: unknown. `not_counted`: charges of the
    provider that costguard does not see, in sentences.

    `bill`: how it states its bill; None: a watchdog does not ask for it. `longest_boot_s`: billing of a machine begins at most
    so many seconds after its creation, and not before it; None: unknown.
    """

    provider: str
    source: str
    observed_on: str
    lag_s: int
    restarts: str
    compute: TimeRule
    storage: tuple[StorageRule, ...] = ()
    address: PriceRange | None = None
    traffic: PriceRange | None = None
    not_counted: tuple[str, ...] = ()
    bill: BillTerms | None = None
    longest_boot_s: int | None = None

    def __post_init__(self) -> None:
        require_one_of(self.restarts, RESTART_KINDS, "restarts")
        require(self.lag_s >= 0, "lag_s", "is negative", "write seconds, or 0")

    @property
    def words(self) -> str:
        """The source with its date."""
        return f"{self.source}, {self.observed_on}"

    def find_storage_rules(self, type_: str) -> tuple[StorageRule, ...]:
        """Return the rules of one type of disk; if there is none, the rules of type "*", else a rule without a price."""
        rules = tuple(rule for rule in self.storage if rule.type == type_.partition(IN_PLACE)[0])
        return rules or tuple(rule for rule in self.storage if rule.type == "*") or (UNNAMED_DISK,)


UNNAMED_DISK = StorageRule(part="", type="*")

UNPRICED_SOURCE = "unpriced: nobody states a price, and the high figure is what such a machine costs at most"

CAREFUL_RULE = BillingRule(
    provider="",
    source="assumption for a provider without a billing rule",
    observed_on="2026-11",
    lag_s=60,
    restarts="unstated",
    compute=TimeRule(bills=("running",), free=("stopped", "suspended"), probably_free=("pending",)),
    not_counted=("this provider has no billing rule: disks and addresses without a price, and rounding",),
)
"""On the high side: what is not surely at rest is expected to bill, to the second."""


def get_billing_rule(rules: Mapping[str, BillingRule], provider: str) -> BillingRule:
    """Return the rule of `provider`, or `CAREFUL_RULE` if it has none."""
    return rules.get(provider) or replace(CAREFUL_RULE, provider=provider)


def list_meters(
    observation: Observation, rule: BillingRule, ceilings: Mapping[str, int], *, price: Price | None = None
) -> dict[Line, Meter]:
    """Return the meters that run while the resource is as `observation`, by line.

    `ceilings`: canonical GPU -> the highest known nano-units per GPU-hour. `price`: the price of computing; None: the last one
    observed. A line that costs nothing has no meter.
    """
    if observation.kind == ADDRESS:
        return _index_by_line([_make_address_meter(observation, rule, price)])
    if observation.kind == VOLUME:
        return _index_by_line(_list_storage_meters(observation, rule))
    return _index_by_line([_make_compute_meter(observation, rule, ceilings, price), *_list_storage_meters(observation, rule)])


def make_traffic_meter(counter: TrafficCounter, rule: BillingRule) -> Meter | None:
    """Return the meter of all traffic that `counter` has counted, in MB; None if its price is unknown."""
    price = _find_traffic_price(counter, rule)
    source = rule.words if counter.nano_per_gb is None else "listing"
    return Meter(counter.charge, price, unit=GB, quantity=counter.mb, source=source) if price and price.high else None


def list_unpriced_parts(observation: Observation, rule: BillingRule) -> tuple[str, ...]:
    """List the parts of `observation` that surely cost something but have no known price, each as a sentence for people."""
    if observation.state == ENDED:
        return ()
    lacking = [
        f"traffic '{c.charge}': its price is not known" for c in observation.counters if not _find_traffic_price(c, rule)
    ]
    if observation.kind == INSTANCE and _is_prepaid(observation, None):
        lacking.append("prepaid computing: the prepaid amount is not in these figures")
    if observation.kind == ADDRESS and _find_address_price(observation, rule, None)[0] is None:
        lacking.append("an address: its price is not known")
    state = _get_disk_state(observation)
    for disk in observation.disks if observation.kind in (INSTANCE, VOLUME) else ():
        for storage in rule.find_storage_rules(disk.type):
            if state in storage.time.free:
                continue
            if disk.gb is None:
                lacking.append(f"disk '{disk.type}' while {observation.state}: its size is not known")
                break
            if storage.count_gb(disk) and storage.find_price(disk, state, observation.key.region) is None:
                lacking.append(
                    f"{disk.gb} {disk.measure} of disk '{disk.type}' while {observation.state}: its price is not known"
                )
    return tuple(lacking)


def _index_by_line(running: Iterable[Meter | None]) -> dict[Line, Meter]:
    return {meter.line: meter for meter in running if meter}


def _make_compute_meter(
    observation: Observation, rule: BillingRule, ceilings: Mapping[str, int], price: Price | None
) -> Meter | None:
    if _is_prepaid(observation, price):
        return None
    cost, source = _find_stated_price(observation, price) or (bound_unknown_price(observation, ceilings), UNPRICED_SOURCE)
    time, applies = rule.compute, rule.compute.apply_price(observation.state, cost)
    return Meter(COMPUTE, applies, quantum_s=time.quantum_s, minimum_s=time.minimum_s, source=source) if applies else None


def bound_unknown_price(observation: Observation, ceilings: Mapping[str, int]) -> PriceRange:
    """Return the range of an unknown price: from 0 to the highest on the market, and nothing expected.

    A machine without a GPU is bounded by its vCPUs and memory, where they are stated.
    """
    if not observation.gpu and not observation.gpu_count and observation.vcpus > 0:
        vcpus = max(ceil(observation.vcpus), CEILING_VCPUS_MIN)
        gb = ceil(observation.ram_gb or vcpus * GB_PER_VCPU_MAX)
        most = vcpus * CEILING_PER_VCPU + gb * CEILING_PER_GB
    else:
        most = ceilings.get(observation.gpu, CEILING_PER_GPU) * _count_gpus(observation)
    return PriceRange(0, 0, min(most, _bound_machine_price(observation)), known=False)


def _find_stated_price(observation: Observation, price: Price | None) -> tuple[PriceRange, str] | None:
    """Return `price`, else the last one observed, with its source; None if unstated or above any machine's price."""
    price = price or (observation.prices[-1] if observation.prices else None)
    if price is None:
        return None
    expected, currency = (price.rate.nano_per_hour, price.rate.currency) if price.rate else (0, "USD")
    if price.estimate is not None:
        is_stated = price.estimate.step in (SURCHARGED, LEARNED, SUSTAINED, POWER_RANGE)
        return PriceRange(price.estimate.low, expected, price.estimate.high, currency, known=is_stated), price.source
    if price.rate is None or expected > _bound_machine_price(observation):
        return None
    return PriceRange.exactly(expected, currency), price.source


def _is_prepaid(observation: Observation, price: Price | None) -> bool:
    price = price or (observation.prices[-1] if observation.prices else None)
    return price is not None and price.prepaid


def _bound_machine_price(observation: Observation) -> int:
    """Return the upper bound of the price of such a machine, in nano-units an hour."""
    return min(CEILING_PER_GPU * _count_gpus(observation), LARGEST_PRICE)


def _count_gpus(observation: Observation) -> int:
    return max(1, ceil(observation.gpu_count))


def _list_storage_meters(observation: Observation, rule: BillingRule) -> Iterator[Meter]:
    """Yield the meters of the disks in a fixed order, because listings have none."""
    state, counts = _get_disk_state(observation), dict[str, int]()
    for disk in sorted(observation.disks, key=lambda d: (d.type, d.gb is None, d.gb or 0, d.nano_per_gb_month or 0)):
        counts[disk.type] = nth = counts.get(disk.type, 0) + 1
        for storage in rule.find_storage_rules(disk.type):
            price, gb = storage.find_price(disk, state, observation.key.region), storage.count_gb(disk)
            applies = storage.time.apply_price(state, price) if price and gb else None
            name = storage.part if storage.type == disk.type else disk.type
            if applies:
                yield Meter(
                    STORAGE,
                    applies,
                    unit=make_month_unit(disk.measure, storage.unit),
                    quantity=gb,
                    quantum_s=storage.time.quantum_s,
                    minimum_s=storage.time.minimum_s,
                    part=name if nth == 1 else f"{name}#{nth}",
                    source=_get_storage_source(disk, storage, rule, applies),
                )


def _get_storage_source(disk: Disk, storage: StorageRule, rule: BillingRule, price: PriceRange) -> str:
    if price.unpriced and not price.expected:
        return UNPRICED_SOURCE
    return (disk.source or "listing") if disk.nano_per_gb_month is not None else storage.source or rule.words


def _get_disk_state(observation: Observation) -> str:
    """Return the state that decides the storage price: a volume counts as running until it has ended."""
    return RUNNING if observation.kind == VOLUME and observation.state != ENDED else observation.state


def _make_address_meter(observation: Observation, rule: BillingRule, price: Price | None) -> Meter | None:
    cost, source = _find_address_price(observation, rule, price)
    return Meter(ADDRESS_CHARGE, cost, source=source) if cost and cost.high and observation.state != ENDED else None


def _find_address_price(observation: Observation, rule: BillingRule, price: Price | None) -> tuple[PriceRange | None, str]:
    """Return the price of an hour, as stated with the address, else by the rule, and its source."""
    return _find_stated_price(observation, price) or (rule.address, rule.words)


def _find_traffic_price(counter: TrafficCounter, rule: BillingRule) -> PriceRange | None:
    """Return the price of a GB of `counter`: as stated, else by the rule; None if unknown."""
    if counter.nano_per_gb is None:
        return rule.traffic
    return PriceRange.exactly(counter.nano_per_gb) if 0 < counter.nano_per_gb <= HIGHEST_PER_GB else None
