"""When to write checkpoints on machines that may be taken away, how large they are, and what they cost.

    young = sqrt(2 * write / rate)                      J. W. Young, CACM 17 (1974): rate in interruptions per hour of the run
    daly  = young * (1 + sqrt(x) / 3 + x / 9) - write   with x = write * rate / 2; from write >= 2 / rate on it is 1 / rate
    lost  = write / interval + rate * (restart + interval / 2)          hours lost for each hour of work

Daly's is J. T. Daly, Future Generation Computer Systems 22 (2006), equation 37. Example: 112 GB at 0.4 GB/s take 0.078 h to
write; with 0.02 interruptions an hour that is Young 2.79 h and Daly 2.74 h. Each hour of work then loses 0.078 / 2.74 + 0.02 *
(0.25 + 1.37) = 0.061 h.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from costguard.quoting.storage import KEPT_CHECKPOINTS
from costguard.values.money import Money, Rate, divide_half_even

WRITE_GB_S = 0.4
"""From one machine to a disk or bucket, while the run waits. An assumption: as of the download of weights. Each machine of a
sharded run writes its own part."""
SECONDS_PER_HOUR = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectStorage:
    """What it costs to keep checkpoints at a provider. `hours_per_month`: of its billing month. `source`: with its date."""

    store: str
    nano_per_gb_month: int
    hours_per_month: int
    source: str

    def compute_cost(self, gb: float, hours: float) -> Money:
        """Return the cost of `gb` for `hours`."""
        millis = round(gb * hours * 1000)  # of GB-hours
        return Money(nano=divide_half_even(self.nano_per_gb_month * millis, 1000 * self.hours_per_month))


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPlan:
    """Checkpoints of a run on interruptible machines. `interval_hours`: the one that loses least (Daly), `young_hours` Young's.

    `lost_hours`: what the run loses in all at that interval, and `stated_lost_hours` at the job's, `stated_hours`: writing,
    restarts and work done again. `usd`, `stated_usd`: the same in money. `store`, `store_usd`: the newest two checkpoints for
    the hours of the run; None: the provider's price of it is unknown.
    """

    gigabytes: float
    write_hours: float
    interval_hours: float
    young_hours: float
    lost_hours: float
    usd: Money
    stated_hours: float
    stated_lost_hours: float
    stated_usd: Money
    store: ObjectStorage | None = None
    store_usd: Money | None = None


def plan_checkpoints(
    *,
    gigabytes: float,
    machines: int,
    interruptions_per_hour: float,
    restart_hours: float,
    work_hours: float,
    stated_hours: float,
    rate: Rate,
    store: ObjectStorage | None,
) -> CheckpointPlan:
    """Return the plan of a run of `work_hours` on `machines` machines, which together cost `rate`.

    `interruptions_per_hour`: of the whole run, above zero. `stated_hours`: the job's hours between checkpoints.
    """
    write = gigabytes / machines / WRITE_GB_S / SECONDS_PER_HOUR
    young = math.sqrt(2 * write / interruptions_per_hour)
    x = write * interruptions_per_hour / 2
    best = young * (1 + math.sqrt(x) / 3 + x / 9) - write if x < 1 else 1 / interruptions_per_hour

    def lose(interval: float) -> float:
        each = min(interval, work_hours)  # a shorter run writes one at its end
        return work_hours * (write / each + interruptions_per_hour * (restart_hours + each / 2))

    def price(hours: float) -> Money:
        return rate.multiply_seconds(round(hours * SECONDS_PER_HOUR))

    interval = min(best, work_hours)
    return CheckpointPlan(
        gigabytes=gigabytes,
        write_hours=write,
        interval_hours=interval,
        young_hours=young,
        lost_hours=lose(interval),
        usd=price(lose(interval)),
        stated_hours=stated_hours,
        stated_lost_hours=lose(stated_hours),
        stated_usd=price(lose(stated_hours)),
        store=store,
        store_usd=store.compute_cost(KEPT_CHECKPOINTS * gigabytes, work_hours) if store else None,
    )


def read_object_storage(rows: Iterable[Mapping[str, str]]) -> dict[str, ObjectStorage]:
    """Return what a GB-month costs by provider, from `object_storage.csv`."""
    return {
        row["provider"]: ObjectStorage(
            store=row["store"],
            nano_per_gb_month=Money.parse(row["usd_per_gb_month"], field=f"object_storage.csv {row['provider']}").nano,
            hours_per_month=int(row["hours_per_month"]),
            source=f"{row['source']}, {row['observed_on']}",
        )
        for row in rows
    }
