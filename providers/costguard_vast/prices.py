"""The price of a contract: GPU part per hour, disk per GB and month, and traffic.

`dph_base` is the GPU part and `dph_total` adds the disk; neither falls when an instance is stopped. `instance` states what the
contract currently accrues, and is used if it differs (vast.md, section 3, 2026-11-21).

Example: dph_base 0.76, disk_space 64, storage_cost 0.15: $0.76 an hour while it runs, and 64 GB x $0.15 a month of 720 h.

Vast bills traffic in every state. It is counted only if the setting `traffic_unit` states its unit: one public exporter reads
`inet_up_billed` and `inet_down_billed` as GB, another as MB, and the spec has neither field (vast.md, section 3, 2026-11-21).
An error by a factor of a thousand would make an estimate useless.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

from costguard.errors import shorten, to_one_line
from costguard.metering.billing import HIGHEST_PER_GB
from costguard.metering.observation import LARGEST_GB, LARGEST_MB, Disk, Price, TrafficCounter, parse_hourly_rate
from costguard.values.instant import parse_instant
from costguard_vast.wire import (
    MONTH_H,
    NANO,
    AccruedRates,
    Instance,
    PriceIncrease,
    Volume,
    parse_finite,
    parse_positive,
    to_nano,
)

AGREE = Decimal("0.01")
"""Two statements of one price that differ by less are the same, rounded."""
COMPUTING = ("running", "paused", "failed", "stopping", "unknown")
"""The states in which the contract may be charged for its GPU now."""
WHOLE = "dph_total, with a disk that is not stated"
"""Where the price comes from that holds the disk as well."""


def list_compute_prices(one: Instance, state: str, gpus: float, say: Say) -> tuple[Price, ...]:
    """Return the hourly price of all its GPUs while it runs."""
    amount, source = _find_gpu_rate(one, state)
    rate, why = parse_hourly_rate(amount, gpus=gpus, field=source)
    if why:
        say(why)
    return (Price(rate, source=source),)


def is_reserved(one: Instance) -> bool:
    """Return whether it was prepaid: credit is locked to it, or it has a discount for that."""
    return parse_positive(one.credit_balance) is not None or parse_positive(one.credit_discount) is not None


def _find_gpu_rate(one: Instance, state: str) -> tuple[Decimal | None, str]:
    now, base = one.instance or AccruedRates(), parse_positive(one.dph_base)
    disk = _find_disk_rate(one) or parse_positive(now.disk_hour) or Decimal(0)
    if state in COMPUTING:
        discounted = parse_positive(now.discounted_total_per_hour)
        if is_reserved(one) and discounted is not None and discounted > disk:
            return discounted - disk, "instance.discountedTotalPerHour less the disk"
        accrued = parse_positive(now.gpu_cost_per_hour)
        if accrued is not None and (base is None or abs(accrued - base) > AGREE * base):
            return accrued, "instance.gpuCostPerHour"
    total = parse_positive(one.dph_total)
    if one.dph_base is None and total is not None and disk and total > disk:
        return total - disk, "dph_total less the disk"
    if one.dph_base is None and total is not None and not disk and parse_positive(one.disk_space) is None:
        return total, WHOLE
    return one.dph_base, "dph_base"


def list_disks(one: Instance, state: str, say: Say) -> tuple[Disk, ...]:
    """Return the contract's disk: whole GB, with a price that makes the product equal to Vast's cost."""
    size = parse_finite(one.disk_space)
    if size is None or not 0 <= size <= LARGEST_GB:
        within = state in COMPUTING and _find_gpu_rate(one, state)[1] == WHOLE
        say("disk_space is missing or absurd: " + ("its price holds its disk" if within else "what its disk costs is unknown"))
        return () if within else (Disk(None, "disk"),)
    if not size:
        return ()
    hourly = _find_stopped_rate(_find_disk_rate(one), one, state, say)
    if hourly is None:
        say("storage_cost is missing or zero: the cost of its disk is unknown, not zero")
    return (_make_disk("disk", size, hourly, say),)


def list_volume_disks(one: Volume, say: Say) -> tuple[Disk, ...]:
    """Return the disk of a volume."""
    size, hourly = parse_finite(one.disk_space), parse_positive(one.storage_total_cost)
    if size is None or not 0 < size <= LARGEST_GB:
        say("disk_space is missing or implausible: the cost of the volume is unknown")
        return (Disk(None, "volume"),)
    if hourly is None:
        say("storage_total_cost is missing or zero: the cost of the volume is unknown, not zero")
    return (_make_disk("volume", size, hourly, say),)


def _find_disk_rate(one: Instance) -> Decimal | None:
    """Return USD an hour of its disk; computed from its size if the rate is stated, which has the most digits."""
    size, rate = parse_positive(one.disk_space), parse_positive(one.storage_cost)
    return size * rate / MONTH_H if size and rate else parse_positive(one.storage_total_cost)


def _find_stopped_rate(usual: Decimal | None, one: Instance, state: str, say: Say) -> Decimal | None:
    """Return `usual`, or what a stopped contract accrues if its host charges more then and states it."""
    now = parse_positive(one.instance.disk_hour) if one.instance else None
    if usual is None or now is None or state != "stopped":
        return usual or now
    last_digit = Decimal(1).scaleb(int(now.as_tuple().exponent)) if now.as_tuple().exponent else Decimal(0)
    if now <= usual * (1 + AGREE) + last_digit:
        return usual
    say(f"its disk costs ${now:f} an hour now that it is stopped, and ${usual:.4f} while it runs")
    return now


def _make_disk(type_: str, size: Decimal, hourly: Decimal | None, say: Say) -> Disk:
    gb = max(1, round(size))
    if hourly is None:
        return Disk(gb, type_)
    per_gb = round(Fraction(hourly) * MONTH_H * NANO / gb)
    if not 0 < per_gb <= HIGHEST_PER_GB:
        say(f"a {type_} of {gb} GB for ${hourly:.6g} an hour is implausible: its price is unknown")
        return Disk(gb, type_)
    return Disk(gb, type_, per_gb)


def describe_increase(one: PriceIncrease) -> str:
    """Return a sentence about a price increase that a host proposes.

    Costguard never accepts one.
    """
    old, new = parse_positive(one.old_gpu_costpersec), parse_positive(one.new_gpu_costpersec)
    change = f" from ${old * 3600:.4f} to ${new * 3600:.4f} an hour" if old and new else ""
    ends = parse_instant(one.contract_end_date)
    until = f" after {ends:%Y-%m-%d}" if ends else ""
    return (
        f"vast {shorten(to_one_line(str(one.contract_id)), 40)}: its host proposes to raise the price of its "
        f"GPUs{change}{until}"
    )


MB_PER = {"GB": 1000, "MB": 1}
UNCOUNTED = "traffic is stated without a unit and not counted: traffic_unit says whether inet_*_billed is in GB or MB"

Say = Callable[[str], None]


def list_counters(one: Instance, unit: str, say: Say) -> tuple[TrafficCounter, ...]:
    """Return the traffic in and out since the contract began; none if `unit` is "", that is unknown."""
    traffic = (("traffic down", one.inet_down_billed, one.inet_down_cost), ("traffic up", one.inet_up_billed, one.inet_up_cost))
    used = [(name, amount, cost) for name, raw, cost in traffic if (amount := parse_finite(raw)) is not None and amount >= 0]
    if used and not unit:
        say(UNCOUNTED)
        return ()
    return tuple(counter for name, amount, cost in used if (counter := _make_counter(name, amount * MB_PER[unit], cost, say)))


def _make_counter(name: str, mb: Decimal, cost: Decimal | None, say: Say) -> TrafficCounter | None:
    if mb > LARGEST_MB:
        say(f"{name} is {mb:.3g} MB, which is not plausible")
        return None
    price = parse_positive(cost)
    return TrafficCounter(name, int(mb), to_nano(price) if price else None)
