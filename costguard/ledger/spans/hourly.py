"""What closed spans cost by hour (UTC), for forecasts and for the chart of the burn: written with the daily sums.

Each span's expected cost is spread evenly over it. A row of `hourly` holds what spans cost in the hours that they fill in part
(`cost`), and by how much the cost of whole hours changes with that hour (`step`): so a span takes at most three rows, however
long it is, and the cost of an hour is its own `cost` and the sum of all `step`s up to it.

Example: $3 from 09:30 to 12:30 is a cost of $0.50 at 09:00, a step of $1 at 10:00, and a cost of $0.50 with a step of -$1 at
12:00. All are whole nano-units that add up to the span's cost, so a correction subtracts exactly what its span added.

An hour's row exists once for each of `LANES` lanes, and an account writes into one of them: on PostgreSQL two accounts whose
spans end in the same hour rarely wait for each other's row. Readers add the lanes up.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from zlib import crc32

from sqlalchemy import bindparam, func
from sqlalchemy import select as select_columns
from sqlmodel import col, select

from costguard.budgets.budget import MATCH_ALL, matches_filter
from costguard.budgets.spend_forecast import DAY_HOURS, WEEK_HOURS, WEEKS_BACK, Part, PastHours
from costguard.ledger.db.codecs import Query
from costguard.ledger.db.rows import IDS, RowSums, read_batches
from costguard.ledger.spans.correction_parts import Rows
from costguard.ledger.spans.scope_state import load_attributions
from costguard.ledger.spans.sums import PeriodSums
from costguard.ledger.tables.rollups import DailyRow, HourlyRow
from costguard.metering.span import Span
from costguard.values.instant import HOUR_US, from_micros, to_micros
from costguard.values.money import NANO
from costguard.values.resource import Attribution

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
    """Return the nano-units that fill the hour before `first` whole, and (hour, cost, step) of the hours in [first, last).

    The steps of a closed span add up to 0, so those from `first` on say what fills the hour before it.
    """
    hour, in_currency = col(HourlyRow.hour), col(HourlyRow.currency) == currency
    steps = select(func.coalesce(func.sum(HourlyRow.step), 0)).where(in_currency, hour >= first)
    sums = select(HourlyRow.hour, func.sum(HourlyRow.cost), func.sum(HourlyRow.step)).where(in_currency, hour >= first)
    rows = ask(sums.where(hour < last).group_by(hour).order_by(hour))
    return -int(ask(steps)[0]), [(int(hour), int(cost), int(step)) for hour, cost, step in rows]


def load_past_hours(ask: Query, last: int, parts: Iterable[Part]) -> dict[Part, PastHours]:
    """Return what closed spans cost in the hours before `last`, for each filter and currency of `parts`."""
    past, totals = dict[Part, PastHours](), dict[str, PastHours]()
    attributions, sums_today = dict[int, Attribution](), Counter[tuple[int, str]]()
    for match, currency in parts:
        total = totals[currency] = totals.get(currency) or _load_total_hours(ask, last, currency)
        if match != MATCH_ALL:
            if not attributions:
                attributions = load_attributions(ask)
                sums_today = _sum_last_day(ask, attributions, last)
            numbers = [number for number, one in attributions.items() if matches_filter(match, one)]
            today = sum(sums_today[number, currency] for number in numbers)
            total = _load_part_of_hours(ask, total, currency, numbers, today)
        past[match, currency] = total
    return past


def _load_total_hours(ask: Query, last: int, currency: str) -> PastHours:
    """Return what closed spans cost in the hours before `last`, as far back as forecasts look, from a midnight (UTC) on."""
    first = (last - WEEKS_BACK * WEEK_HOURS) // DAY_HOURS * DAY_HOURS
    running, rows = load_hours(ask, first, last, currency)
    costs = [0] * (last - first)
    changes = {hour: (cost, step) for hour, cost, step in rows}
    for hour in range(first, last):
        cost, step = changes.get(hour, (0, 0))
        running += step
        costs[hour - first] = running + cost
    return PastHours(first=first, costs=tuple(costs))


def _sum_last_day(ask: Query, attributions: dict[int, Attribution], last: int) -> Counter[tuple[int, str]]:
    """Return what closed spans cost by attribution and currency from midnight to the hour `last`.

    The daily sum of that day is of all of it: also of the hour after `last`, and of days to come in a replay.
    """
    sums, amounts = PeriodSums(ask, attributions), Counter[tuple[int, str]]()
    sums.add_edge(last // DAY_HOURS * DAY_HOURS * HOUR_US, last * HOUR_US)
    for place, (_, expected, *_) in sums.raw.items():
        amounts[place.attribution, place.currency] += expected
    return amounts


def _load_part_of_hours(ask: Query, past: PastHours, currency: str, attributions: Sequence[int], today: int) -> PastHours:
    """Return the part of `past` that spans of `attributions` cost: the daily sums, spread over their day as `past` is.

    `today`: what they cost on the last day, which is not over.
    """
    first, last = past.first // DAY_HOURS, (past.first + len(past.costs)) // DAY_HOURS
    days = Counter[int]({last: today})
    for day, units, nano in read_batches(ask, _sum_days(), attributions, first=first, last=last, currency=currency):
        days[day] += int(units) * NANO + int(nano)
    costs = [0] * len(past.costs)
    for day, nano in days.items():
        start = day * DAY_HOURS - past.first
        hours = past.costs[start : start + DAY_HOURS]
        total = sum(hours)
        for place, cost in enumerate(hours, start):
            costs[place] = nano * cost // total if total else nano // len(hours)
    return PastHours(first=past.first, costs=tuple(costs))


@cache
def _sum_days() -> Rows:
    day, nano = col(DailyRow.day), col(DailyRow.expected)
    sums = select_columns(day, func.sum(nano // NANO), func.sum(nano - nano // NANO * NANO)).group_by(day)
    within = sums.where(day >= bindparam("first"), day < bindparam("last"), col(DailyRow.currency) == bindparam("currency"))
    return within.where(col(DailyRow.attribution_id).in_(IDS))


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
