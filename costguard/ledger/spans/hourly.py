"""What closed spans cost by hour (UTC), for the chart of the burn: written with the daily sums, from the same spans.

Each span's expected cost is spread evenly over it. A row of `hourly` holds what spans cost in the hours that they fill in part
(`cost`), and by how much the cost of whole hours changes with that hour (`step`): so a span takes at most three rows, however
long it is, and the cost of an hour is its own `cost` and the sum of all `step`s up to it.

Example: $3 from 09:30 to 12:30 is a cost of $0.50 at 09:00, a step of $1 at 10:00, and a cost of $0.50 with a step of -$1 at
12:00. All are whole nano-units that add up to the span's cost, so a correction subtracts exactly what its span added.

An hour's row exists once for each of `LANES` lanes, and an account writes into one of them: on PostgreSQL two accounts whose
spans end in the same hour rarely wait for each other's row. Readers add the lanes up.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache
from zlib import crc32

from sqlalchemy import func
from sqlmodel import col, select

from costguard.ledger.db.codecs import Query
from costguard.ledger.db.rows import RowSums
from costguard.ledger.tables.rollups import HourlyRow
from costguard.metering.span import Span
from costguard.values.instant import HOUR_US, from_micros, to_micros

LANES = 16
"""So many rows an hour has at most: of two accounts that write at once one in 16 pairs meets; more make `hourly` larger."""


class HourlyRollup:
    """The amounts that one transaction adds to each row of `hourly`: `sums` has the cost and the step of each."""

    def __init__(self) -> None:
        self.sums = RowSums(HourlyRow)

    def add(self, span: Span, expected: int, sign: int = 1) -> None:
        """Add a closed `span` that is expected to cost `expected` nano-units; subtract it if `sign` is -1."""
        if span.end is None or not expected:
            return
        currency, lane = span.meter.price.currency, find_lane(span.key.provider, span.key.account)
        for hour, cost, step in split_by_hour(to_micros(span.start), to_micros(span.end), expected):
            self.sums.add((hour, currency, lane), (cost, step), sign)


@lru_cache(maxsize=4096)
def find_lane(provider: str, account: str) -> int:
    """Return the lane of an account."""
    return crc32(f"{provider}/{account}".encode()) % LANES


def split_by_hour(start_us: int, end_us: int, expected: int) -> list[tuple[int, int, int]]:
    """Return (hour since 1970 in UTC, cost, step) of `expected` nano-units spread over [start_us, end_us): at most three.

    They add up to `expected`. Where the time is empty, nothing is spread.
    """
    if end_us <= start_us:
        return []
    first, last = start_us // HOUR_US, (end_us - 1) // HOUR_US
    if first == last:
        return [(first, expected, 0)]
    length, whole_hours = end_us - start_us, last - first - 1
    head = expected * ((first + 1) * HOUR_US - start_us) // length
    if not whole_hours:
        return [(first, head, 0), (last, expected - head, 0)]
    step = expected * HOUR_US // length
    return [(first, head, 0), (first + 1, 0, step), (last, expected - head - whole_hours * step, -step)]


def load_hours(ask: Query, first: int, last: int, currency: str) -> tuple[int, list[tuple[int, int, int]]]:
    """Return the nano-units that fill the hour before `first` whole, and (hour, cost, step) of the hours in [first, last)."""
    hour, in_currency = col(HourlyRow.hour), col(HourlyRow.currency) == currency
    steps = select(func.coalesce(func.sum(HourlyRow.step), 0)).where(in_currency, hour < first)
    sums = select(HourlyRow.hour, func.sum(HourlyRow.cost), func.sum(HourlyRow.step)).where(in_currency, hour >= first)
    rows = ask(sums.where(hour < last).group_by(hour).order_by(hour))
    return int(ask(steps)[0]), [(int(hour), int(cost), int(step)) for hour, cost, step in rows]


def check_hours(ask: Query, added: HourlyRollup) -> Iterator[str]:
    """Yield the hours whose sums differ from what every closed span, with its correction, has `added`."""
    hours = select(HourlyRow.hour, HourlyRow.currency, func.sum(HourlyRow.cost), func.sum(HourlyRow.step))
    hours = hours.group_by(col(HourlyRow.hour), col(HourlyRow.currency))
    stored_hours = {(hour, currency): [int(cost), int(step)] for hour, currency, cost, step in ask(hours)}
    summed = defaultdict[tuple[int, str], list[int]](lambda: [0, 0])  # over lanes: rows of an older version are in the first
    for (hour, currency, _), (cost, step) in added.sums.raw.items():
        summed[hour, currency][0] += cost
        summed[hour, currency][1] += step
    for place in sorted({*stored_hours, *summed}):
        says, adds_up_to = stored_hours.get(place, [0, 0]), summed.get(place, [0, 0])
        if says != adds_up_to:
            hour, currency = place
            which = f"{from_micros(hour * HOUR_US):%Y-%m-%d %H:%M} in {currency}"
            yield (
                f"the roll-up of the hour {which} says {format_sums(says)} and its spans add up to {format_sums(adds_up_to)}"
                " (cost / step in nano-units)"
            )


def format_sums(values: list[int]) -> str:
    """Return sums for people."""
    return " / ".join(str(value) for value in values)
