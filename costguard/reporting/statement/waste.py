"""Waste: the part of the compute cost in which nothing worked, as far as it was measured.

Idle is a whole clock hour (UTC) of a machine in which no measured signal showed work: no GPU above 5 % duty in any sample, no
disk, network or CPU above the threshold of work, no step, no key pressed. Partly idle is the share of a working machine's GPUs
that did nothing all hour, and a machine that idled while another of its group worked.

Example: $32.77 an hour for 8 GPUs, 6 h with one of them busy: 7/8 x 32.77 x 6 = $172.04 partly idle. At 0 % from 18:05 until it
was stopped at 21:05: 19:00 to 21:00 is idle, $65.54; the hours from 18:00 and 21:00 contain some work, or were not whole.

The result is a lower bound: an hour with any work is not idle, an hour that could not be judged is unknown, and a machine set
up less than 45 minutes before is not judged yet. So at least this much was wasted, of the share with known activity.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from fractions import Fraction
from typing import NamedTuple

from costguard.guard.signals import (
    ACTIVE,
    AGE,
    AGENT,
    ALIVE,
    COUNTER,
    COVERAGE_MIN,
    CPU_UTIL_LARGE,
    DUTY,
    FLOOR_SHARE,
    IDLE,
    INPUT_COUNTS_FOR,
    LIMIT,
    POWER,
    PRESENCE,
    RISE_SHARE,
    SIGNAL_KINDS,
    VOLUMES,
    WORK_BYTES_MIN,
)
from costguard.metering.meter import COMPUTE
from costguard.metering.span import Span, compute_amounts
from costguard.metering.spending import BilledResource
from costguard.values.instant import DAY_US, HOUR_US, MICROSECOND, SECOND_US, to_micros
from costguard.values.resource import Attribution
from costguard.values.sample import CPU_UTIL, GPU_BUSY_COUNT, GPU_POWER, GPU_POWER_LIMIT

WARMUP_US = timedelta(minutes=45) // MICROSECOND
LEAST_SAMPLES_HOURLY = 4
"""Samples an hour: rarer ones can miss too much."""
LARGE_GPUS = 4
HOURS_A_DAY = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Waste:
    """The judged part of the compute cost of one attribution, and its waste, in expected nano-units.

    `judged`: could be judged. `idle`: the whole machine did nothing; `partly`: a part of it. Both are parts of `judged`.
    """

    attribution: Attribution
    currency: str
    judged: int
    idle: int
    partly: int
    bearer: BilledResource | None = None

    @property
    def charge(self) -> str:
        """Return COMPUTE, the only charge with waste."""
        return COMPUTE

    def add(self, other: Waste) -> Waste:
        """Return the sum of both, with the attribution of this one."""
        return replace(
            self, judged=self.judged + other.judged, idle=self.idle + other.idle, partly=self.partly + other.partly
        )  # fmt: skip


class JudgedHour(NamedTuple):
    """The judgement of an hour of a machine: its `state` (active or idle), and the share of it that did nothing."""

    state: str
    share: Fraction = Fraction(0)


class ComputeRun(NamedTuple):
    """A span of computing, and until when it probably continued, in microseconds since 1970."""

    span: Span
    until_us: int


class SampledHour(NamedTuple):
    """Aggregates of the samples of one signal in an `hour` (since 1970)."""

    hour: int
    samples: int
    total: float
    lowest: float
    highest: float


JudgedHours = Mapping[int, JudgedHour]
"""Hour since 1970 -> what is known of it; what could not be judged is missing."""
SampledHoursBySignal = Mapping[str, Sequence[SampledHour]]
"""Signal -> the hours in which it delivered samples, in order."""


def judge_hours(measured: SampledHoursBySignal, ran: Sequence[ComputeRun], gpus: float) -> dict[int, JudgedHour]:
    """Return the judgement of each hour of a machine with `gpus` GPUs that ran as in `ran`."""
    known = {
        s: rows
        for s, rows in measured.items()
        if rows and s in SIGNAL_KINDS and SIGNAL_KINDS[s].reading not in (LIMIT, PRESENCE)
    }
    running, active = _sum_running(ran), set[int]()
    limits = [row.highest for row in measured.get(GPU_POWER_LIMIT, ())]
    limit = max(limits, default=0.0)
    covered, days = dict[str, set[int]](), dict[str, set[int]]()
    for signal, rows in known.items():
        active |= _find_working_hours(signal, rows, gpus, limit)
        fullest = max(row.samples for row in rows)
        due = COVERAGE_MIN * fullest / HOUR_US if fullest >= LEAST_SAMPLES_HOURLY else float("inf")
        covered[signal] = {hour for hour, samples, _, _, _ in rows if samples >= due * running.get(hour, 0)}
        days[signal] = {hour // HOURS_A_DAY for hour, _, _, _, _ in rows}
    proven = set[int]().union(*(hours for signal, hours in covered.items() if SIGNAL_KINDS[signal].family in (DUTY, AGENT)))
    begun = _find_warmed_up(ran)
    quiet = {hour for hour in proven - active if begun.get(hour, False)}
    for signal, hours in covered.items():
        quiet -= {hour for hour in quiet - hours if hour // HOURS_A_DAY in days[signal]}
    found = dict.fromkeys(active & running.keys(), JudgedHour(ACTIVE))
    found |= _find_spare_hours(known.get(GPU_BUSY_COUNT, ()), found.keys() & covered.get(GPU_BUSY_COUNT, set()), gpus)
    return found | dict.fromkeys(quiet, JudgedHour(IDLE))


def combine_group_hours(
    hours: Mapping[int, JudgedHours], groups: Iterable[Sequence[int]], ran: Mapping[int, Sequence[ComputeRun]]
) -> dict[int, JudgedHours]:
    """Return `hours` by resource, adjusted for `groups` whose members work together (decision 0026).

    If one member idles while another works, the hour is partly idle. If another member ran but could not be judged, the hour
    becomes unknown.
    """
    found = dict(hours)
    for members in groups:
        running = {member: set(_sum_running(ran.get(member, ()))) for member in members}
        for member in members:
            own = dict(hours.get(member, {}))
            for number, hour in hours.get(member, {}).items():
                others = [hours.get(one, {}).get(number) for one in members if one != member and number in running[one]]
                if hour.state != IDLE or all(other is not None and other.state == IDLE for other in others):
                    continue
                if any(other is not None and other.state == ACTIVE for other in others):
                    own[number] = JudgedHour(ACTIVE, Fraction(1))
                else:
                    del own[number]
            found[member] = own
    return found


def sum_waste(ran: Sequence[ComputeRun], hours: JudgedHours, start_us: int, end_us: int) -> list[Waste]:
    """Return the cost of a machine's judged hours from `start_us` to `end_us`, by attribution and currency."""
    sums: dict[tuple[Attribution, str], list[int]] = {}
    judged, wasted = _mark_judged(hours), _select_wasted(hours)
    for one in ran:
        first, last = max(to_micros(one.span.start), start_us), min(one.until_us, end_us)
        place = sums.setdefault((one.span.attribution, one.span.meter.price.currency), [0, 0, 0])
        for begin, finish, _ in _join_equal_hours(judged, first, last):
            place[0] += compute_amounts(one.span, begin, finish)[1]
        for begin, finish, hour in _join_equal_hours(wasted, first, last):
            place[1 if hour.state == IDLE else 2] += _take_share(hour, compute_amounts(one.span, begin, finish)[1])
    return [
        Waste(attribution=attribution, currency=currency, judged=nano, idle=idle, partly=partly)
        for (attribution, currency), (nano, idle, partly) in sums.items()
        if nano
    ]


def sum_waste_by_day(ran: Sequence[ComputeRun], hours: JudgedHours, start_us: int, end_us: int) -> dict[int, tuple[int, int]]:
    """Return, by day (since 1970, UTC), the judged compute cost and the wasted part, in nano-dollars."""
    judged, wasted = _mark_judged(hours), _select_wasted(hours)
    costs, idled = defaultdict[int, int](int), defaultdict[int, int](int)
    for one in ran:
        if one.span.meter.price.currency != "USD":
            continue
        first, last = max(to_micros(one.span.start), start_us), min(one.until_us, end_us)
        for begin, finish, _ in _split_at_midnight(_join_equal_hours(judged, first, last)):
            costs[begin // DAY_US] += compute_amounts(one.span, begin, finish)[1]
        for begin, finish, hour in _split_at_midnight(_join_equal_hours(wasted, first, last)):
            idled[begin // DAY_US] += _take_share(hour, compute_amounts(one.span, begin, finish)[1])
    return {day: (nano, idled[day]) for day, nano in sorted(costs.items()) if nano}


def _split_at_midnight(stretches: Iterable[tuple[int, int, JudgedHour]]) -> Iterator[tuple[int, int, JudgedHour]]:
    """Yield the same stretches, split at the end of each day."""
    for begin, last, hour in stretches:
        reached = begin
        while reached < last:
            until = min(last, (reached // DAY_US + 1) * DAY_US)
            yield reached, until, hour
            reached = until


def _take_share(hour: JudgedHour, cost: int) -> int:
    """Return the part of `cost` that was wasted in `hour`."""
    return cost if hour.state == IDLE else cost * hour.share.numerator // hour.share.denominator


def _join_equal_hours(hours: JudgedHours, first: int, last: int) -> Iterator[tuple[int, int, JudgedHour]]:
    """Yield the parts of [first, last) with equal judgements, joined; hours without a judgement are left out."""
    number, end = first // HOUR_US, -(-last // HOUR_US)
    while number < end:
        begin, hour = number, hours.get(number)
        number += 1
        while number < end and hours.get(number) == hour:
            number += 1
        if hour is not None:
            yield max(first, begin * HOUR_US), min(last, number * HOUR_US), hour


def _mark_judged(hours: JudgedHours) -> JudgedHours:
    """Return all hours with the same state."""
    return dict.fromkeys(hours, JudgedHour(ACTIVE))


def _select_wasted(hours: JudgedHours) -> JudgedHours:
    """Return the hours with any waste."""
    return {number: hour for number, hour in hours.items() if hour.state == IDLE or hour.share}


def _sum_running(ran: Sequence[ComputeRun]) -> dict[int, int]:
    """Return by hour the microseconds in which the machine computed."""
    found: dict[int, int] = defaultdict(int)
    for one in ran:
        first, last = to_micros(one.span.start), one.until_us
        for number in range(first // HOUR_US, -(-last // HOUR_US)):
            found[number] += min(last, (number + 1) * HOUR_US) - max(first, number * HOUR_US)
    return found


def _find_warmed_up(ran: Sequence[ComputeRun]) -> dict[int, bool]:
    """Return by hour whether its run began at least 45 minutes before it."""
    found = dict[int, bool]()
    for one in ran:
        warm = to_micros(one.span.anchor) + WARMUP_US
        for number in range(to_micros(one.span.start) // HOUR_US, -(-one.until_us // HOUR_US)):
            found[number] = found.get(number, True) and warm <= number * HOUR_US
    return found


def _find_spare_hours(rows: Iterable[SampledHour], hours: Collection[int], gpus: float) -> dict[int, JudgedHour]:
    """Return those of `hours` of a working machine in which some GPUs did nothing: never were all GPUs busy together."""
    found = dict[int, JudgedHour]()
    for row in rows if gpus >= 2 else ():  # noqa: PLR2004 - of one GPU no part idles
        share = 1 - Fraction(int(row.highest), int(gpus))
        if row.hour in hours and 0 < share < 1:
            found[row.hour] = JudgedHour(ACTIVE, share)
    return found


def _find_working_hours(signal: str, rows: Sequence[SampledHour], gpus: float, limit: float) -> set[int]:
    """Return the hours in which a signal shows work. `limit`: the watts that one GPU may draw, 0 if unknown."""
    kind = SIGNAL_KINDS[signal]
    if kind.reading == ALIVE:
        return set()
    if kind.reading == COUNTER:
        return {
            row.hour
            for row, before in zip(rows, (None, *rows), strict=False)
            if row.lowest != row.highest or (before and before.hour == row.hour - 1 and before.highest != row.lowest)
        }
    if kind.reading == AGE:
        return {row.hour for row in rows if row.lowest < INPUT_COUNTS_FOR.total_seconds()}
    if kind.family == POWER:
        most = limit * (max(1, gpus) if signal == GPU_POWER else 1)
        floor = min(FLOOR_SHARE * most, *(row.lowest for row in rows)) + RISE_SHARE * most
        return {row.hour for row in rows if row.highest > floor} if most > 0 else set()
    above = CPU_UTIL_LARGE if signal == CPU_UTIL and gpus >= LARGE_GPUS else kind.above
    found = {hour for hour, _, _, _, highest in rows if highest > above}
    if kind.reading == VOLUMES:
        found |= {row.hour for row in rows if row.total / row.samples * HOUR_US / SECOND_US > WORK_BYTES_MIN}
    return found
