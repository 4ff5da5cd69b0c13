"""The world's own bill, in exact rationals: what each cloud would write on its invoice.

It is written from the clouds' billing rules alone and shares no code with costguard, whose figures are checked against it.

Billing: time is divided into steps (of 1 s, 60 s or 1 h) from the start of a run or, for storage, from the creation of the
stored data. A step is owed in full from its first instant, at the price in force at that instant, whatever happens later in it.
If a run has a minimum, its first step is as long as the minimum.

Example: sim-aws at $3.60 an hour, run from 12:00:00 to 12:00:10: the first step is 60 s long, so $0.06 is owed from 12:00:00.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction

from costguard_sim.world import EPOCH, SECOND_US, SIM_ADDRESS, SIM_INSTANCE, Disk, Rate, Resource, Run, World, to_us

HOUR_S = 3600
NANO = 10**9
NEVER_US = to_us(datetime(2200, 1, 1, tzinfo=UTC))

COMPUTE_S = {"sim-aws": (60, 1), "sim-gcp": (60, 1), "sim-runpod": (1, 1), "sim-lambda": (60, 60), "sim-vast": (1, 1)}
"""Cloud -> seconds of a run's first step and of every later one."""

STORAGE_NANO = {
    ("sim-aws", "gp3"): (80_000_000, 80_000_000),
    ("sim-gcp", "pd-balanced"): (100_000_000, 100_000_000),
    ("sim-runpod", "volume"): (100_000_000, 200_000_000),
    ("sim-runpod", "container"): (100_000_000, 0),
    ("sim-runpod", "network"): (70_000_000, 70_000_000),
    ("sim-lambda", "filesystem"): (200_000_000, 200_000_000),
}
"""(cloud, type) -> nano-USD per GB-month while running and while not. sim-vast's hosts set their own."""

STORAGE_STEP_S = {("sim-runpod", "network"): HOUR_S, ("sim-lambda", "filesystem"): HOUR_S}
"""Storage counted in longer steps than a second."""

MONTH_HOURS = {"sim-gcp": 730, "sim-runpod": 730, "sim-lambda": 730, "sim-vast": 720}
"""Hours in a month of storage; sim-aws goes by the calendar, in UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InvoiceLine:
    """One line of the bill: `amount` of `currency` for one `charge` of one resource.

    `part` distinguishes disks.
    """

    provider: str
    account: str
    region: str
    id: str
    charge: str
    part: str
    amount: Fraction
    currency: str = "USD"


def make_bill(world: World, start: datetime, end: datetime) -> list[InvoiceLine]:
    """Return what became owed in [`start`, `end`): bills of adjoining periods add up exactly."""
    a, b = to_us(start), to_us(end)
    return [line for resource in world.resources for line in charge_resource(resource, a, b)]


def list_owed(world: World, at: datetime) -> list[InvoiceLine]:
    """Return all that was owed before `at`."""
    return make_bill(world, EPOCH, at)


def sum_lines(lines: list[InvoiceLine]) -> Fraction:
    """Return the sum of `lines`, which are all in USD here."""
    return sum((line.amount for line in lines), Fraction(0))


def charge_resource(resource: Resource, a: int, b: int) -> list[InvoiceLine]:
    """Return what one resource owes for steps that begin in [`a`, `b`) (microseconds), without lines of zero."""
    charges: list[tuple[str, str, Fraction]] = []
    if resource.kind == SIM_INSTANCE:
        charges.append(("compute", "", sum((_charge_compute(resource, run, a, b) for run in resource.runs), Fraction(0))))
    if resource.kind == SIM_ADDRESS:
        charges.append(("address", "", _charge_hourly(resource.rates, resource.created_us, resource.ended_us, (1, 1), (a, b))))
    charges += [("storage", part, _charge_storage(resource, disk, a, b)) for part, disk in name_disks(resource.disks)]
    if resource.traffic:
        charges.append(("traffic", "", _charge_traffic(resource, a, b)))
    whose = {"provider": resource.cloud, "account": resource.account, "region": resource.region, "id": resource.id}
    return [InvoiceLine(**whose, charge=charge, part=part, amount=amount) for charge, part, amount in charges if amount]


def name_disks(disks: tuple[Disk, ...]) -> list[tuple[str, Disk]]:
    """Return each disk with its name on the bill: its type, and from the second of a type on also a number."""
    named_disks: list[tuple[str, Disk]] = []
    for i, disk in enumerate(disks):
        earlier_count = sum(other.type == disk.type for other in disks[:i])
        named_disks.append((f"{disk.type}#{earlier_count + 1}" if earlier_count else disk.type, disk))
    return named_disks


def _charge_compute(resource: Resource, run: Run, a: int, b: int) -> Fraction:
    return _charge_hourly(resource.rates, run.start_us, run.stop_us, COMPUTE_S[resource.cloud], (a, b))


def _charge_hourly(
    rates: tuple[Rate, ...], start: int, end: int | None, steps_s: tuple[int, int], window: tuple[int, int]
) -> Fraction:
    """Return the cost of the steps from `start` to `end` that begin in `window`.

    Each step costs the hourly rate in force when it begins.
    """
    first_s, later_s = steps_s
    a, b = window
    end = NEVER_US if end is None else end
    owed = 0  # nano-dollars an hour x seconds
    if a <= start < min(b, end):
        owed += first_s * find_rate(rates, start).nano
    second = start + first_s * SECOND_US
    for i, rate in enumerate(rates):
        until = rates[i + 1].at_us if i + 1 < len(rates) else NEVER_US
        if until > second:
            count = _count_begun_steps(second, later_s, max(a, rate.at_us), min(b, end, until))
            owed += count * later_s * rate.nano
    return Fraction(owed, HOUR_S * NANO)


def _charge_storage(resource: Resource, disk: Disk, a: int, b: int) -> Fraction:
    """Return the cost of a disk from its creation; sim-runpod's container disk is created anew with each run."""
    on, off = STORAGE_NANO[resource.cloud, disk.type] if disk.nano is None else (disk.nano, disk.nano)
    step_s = STORAGE_STEP_S.get((resource.cloud, disk.type), 1)
    end = NEVER_US if resource.ended_us is None else resource.ended_us
    if off == on:
        return _charge_disk_steps(resource, disk, on, step_s, (resource.created_us, max(a, resource.created_us), min(b, end)))
    owed = Fraction(0)
    free_from = resource.created_us
    for run in resource.runs:
        stop = min(end, NEVER_US if run.stop_us is None else run.stop_us)
        born = resource.created_us if off else run.start_us
        owed += _charge_disk_steps(resource, disk, off, step_s, (born, max(a, free_from), min(b, run.start_us)))
        owed += _charge_disk_steps(resource, disk, on, step_s, (born, max(a, run.start_us), min(b, stop)))
        free_from = stop
    return owed + _charge_disk_steps(resource, disk, off, step_s, (resource.created_us, max(a, free_from), min(b, end)))


def _charge_disk_steps(resource: Resource, disk: Disk, nano: int, step_s: int, grid: tuple[int, int, int]) -> Fraction:
    """Return the cost of the steps of a grid (born, from, until) at `nano` per GB-month.

    Each step counts in the month in which it begins.
    """
    born, start, end = grid
    if not nano or end <= start:
        return Fraction(0)
    hours = MONTH_HOURS.get(resource.cloud)
    if hours is not None:
        return Fraction(_count_begun_steps(born, step_s, start, end) * step_s * disk.gb * nano, hours * HOUR_S * NANO)
    owed = Fraction(0)
    while start < end:
        month, next_month = _find_month(start)
        count = _count_begun_steps(born, step_s, start, min(end, next_month))
        owed += Fraction(count * step_s * SECOND_US * disk.gb * nano, (next_month - month) * NANO)
        start = next_month
    return owed


def _charge_traffic(resource: Resource, a: int, b: int) -> Fraction:
    mb = count_traffic_mb(resource, b) - count_traffic_mb(resource, a)
    return Fraction(mb * resource.traffic_nano, 1000 * NANO)


def count_traffic_mb(resource: Resource, us: int) -> int:
    """Return the MB of traffic before `us`."""
    count = bisect_right(resource.traffic, us - 1, key=lambda t: t[0])
    return resource.traffic[count - 1][1] if count else 0


def find_rate(rates: tuple[Rate, ...], us: int) -> Rate:
    """Return the rate at `us`."""
    return rates[max(0, bisect_right(rates, us, key=lambda r: r.at_us) - 1)]


def _count_begun_steps(anchor: int, step_s: int, start: int, end: int) -> int:
    """Return how many of anchor, anchor + step, anchor + 2 steps ... are in [start, end)."""
    step = step_s * SECOND_US
    start = max(start, anchor)
    return max(0, -((anchor - end) // step) + ((anchor - start) // step))


def _find_month(us: int) -> tuple[int, int]:
    """Return start and end of the calendar month (UTC) of `us`."""
    at = EPOCH + timedelta(microseconds=us)
    nxt = datetime(at.year + at.month // 12, at.month % 12 + 1, 1, tzinfo=UTC)
    return to_us(datetime(at.year, at.month, 1, tzinfo=UTC)), to_us(nxt)
