"""Waste: the part of the compute cost in which nothing worked, as far as it was measured.

Idle is the time of a machine in which no measured signal showed work: no GPU above 5 % duty in any sample, no disk, network or
CPU above the threshold of work, no step, no key pressed. Whole clock hours (UTC) are judged from their sums; in an hour that
also contains work, the stretches between quiet samples are idle (`idle_stretches`). Partly idle is the share of a working
machine's GPUs that did nothing all hour, and a machine that idled while another of its group worked.

Example: $32.77 an hour for 8 GPUs, 6 h with one of them busy: 7/8 x 32.77 x 6 = $172.04 partly idle. At 0 % from 18:05 until it
was stopped at 21:05, with a sample each minute: 18:06 to 21:05 is idle, $97.76.

The result is a lower bound: what lies between a busy sample and the next is not idle, what could not be judged is unknown, and
a machine set up less than 45 minutes before is not judged yet. Of hours whose samples are stored as sums only, those with any
work are not idle at all. So at least this much was wasted, of the share with known activity.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from fractions import Fraction
from functools import reduce
from itertools import pairwise
from typing import NamedTuple, TypeVar

from costguard.guard.signals import (
    ACTIVE,
    AGE,
    ALIVE,
    COUNTER,
    COVERAGE_MIN,
    DUTY,
    IDLE,
    INPUT_COUNTS_FOR,
    POWER,
    SIGNAL_KINDS,
    VOLUMES,
    WORK_BYTES_MIN,
)
from costguard.metering.meter import COMPUTE
from costguard.metering.span import Span, compute_amounts
from costguard.metering.spending import BilledResource
from costguard.reporting.statement.gpu_hours import NO_USE, GpuUse
from costguard.reporting.statement.idle_stretches import (
    GAP_MAX_US,
    PROOFS,
    JudgedStretch,
    SamplePair,
    TimeRange,
    WorkThresholds,
    counts_for_waste,
    find_idle_stretches,
    find_judgement,
    intersect_ranges,
    join_ranges,
    join_stretches,
    subtract_ranges,
)
from costguard.values.instant import DAY_US, HOUR_US, MICROSECOND, SECOND_US, to_micros
from costguard.values.resource import Attribution
from costguard.values.sample import GPU_BUSY_COUNT, GPU_POWER, GPU_POWER_LIMIT

WARMUP_US = timedelta(minutes=45) // MICROSECOND
LEAST_SAMPLES_HOURLY = 4
"""Samples an hour: rarer ones can miss too much."""
HOURS_A_DAY = 24
JOULES_A_KWH = 3.6e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Waste:
    """The judged part of the compute cost of one attribution, and its waste, in expected nano-units.

    `judged`: could be judged. `idle`: the whole machine did nothing; `partly`: a part of it. Both are parts of `judged`.
    `idle_us`: microseconds for which whole machines did nothing. `idle_energy_j`: joules that their GPUs drew in the part of it
    with samples of power, `power_us`. `measured_gpu_us`: GPU-microseconds with samples of duty; `used_gpu_us`: the used
    part of them, at most.
    """

    attribution: Attribution
    currency: str
    judged: int
    idle: int
    partly: int
    idle_us: int = 0
    idle_energy_j: float = 0
    power_us: int = 0
    measured_gpu_us: float = 0
    used_gpu_us: float = 0
    bearer: BilledResource | None = None

    @property
    def charge(self) -> str:
        """Return COMPUTE, the only charge with waste."""
        return COMPUTE

    @property
    def wasted(self) -> int:
        """Return what was paid for whole and for partly idle machines."""
        return self.idle + self.partly

    @property
    def idle_kwh(self) -> float | None:
        """Return the kWh of `idle_energy_j`; None: there was idle time, and no sample of power in it."""
        return None if self.idle_us and not self.power_us else self.idle_energy_j / JOULES_A_KWH

    def add(self, other: Waste) -> Waste:
        """Return the sum of both, with the attribution of this one."""
        return replace(
            self,
            judged=self.judged + other.judged,
            idle=self.idle + other.idle,
            partly=self.partly + other.partly,
            idle_us=self.idle_us + other.idle_us,
            idle_energy_j=self.idle_energy_j + other.idle_energy_j,
            power_us=self.power_us + other.power_us,
            measured_gpu_us=self.measured_gpu_us + other.measured_gpu_us,
            used_gpu_us=self.used_gpu_us + other.used_gpu_us,
        )


def add_wastes(wastes: Iterable[Waste]) -> Waste | None:
    """Return the sum of `wastes`, with the attribution of the first; None: nothing could be judged."""
    parts = list(wastes)
    return reduce(Waste.add, parts[1:], parts[0]) if parts else None


class JudgedHour(NamedTuple):
    """The judgement of an hour of a machine: its `state` (active or idle), and the share of it that did nothing."""

    state: str
    share: Fraction = Fraction(0)


_ACTIVE_HOUR, _IDLE_HOUR = JudgedHour(ACTIVE), JudgedHour(IDLE)


class ComputeRun(NamedTuple):
    """A span of computing, and until when it probably continued, in microseconds since 1970."""

    span: Span
    until_us: int


class PowerRange(NamedTuple):
    """A part of a machine's time with the mean `watts` of all its GPUs."""

    begin_us: int
    end_us: int
    watts: float


class SampledHour(NamedTuple):
    """Aggregates of the samples of one signal in an `hour` (since 1970). Read by position: it may be a plain tuple."""

    hour: int
    samples: int
    total: float
    lowest: float
    highest: float


JudgedHours = Mapping[int, JudgedHour]
"""Hour since 1970 -> what is known of it; what could not be judged is missing."""
SampledHoursBySignal = Mapping[str, Sequence[SampledHour]]
"""Signal -> the hours in which it delivered samples, in order."""
TimePart = TypeVar("TimePart", JudgedStretch, PowerRange)


def judge_hours(measured: SampledHoursBySignal, ran: Sequence[ComputeRun], gpus: float) -> dict[int, JudgedHour]:
    """Return the judgement of each hour of a machine with `gpus` GPUs that ran as in `ran`."""
    signal_rows = {signal: rows for signal, rows in measured.items() if rows and counts_for_waste(signal)}
    running, active, thresholds = _sum_running(ran), set[int](), _build_thresholds(measured, gpus)
    covered, days = dict[str, set[int]](), dict[str, set[int]]()
    longest = max(running.values(), default=0)
    for signal, rows in signal_rows.items():
        active |= _find_working_hours(signal, rows, thresholds)
        numbers, counts, _, _, _ = zip(*rows, strict=True)
        fullest = max(counts)
        due = COVERAGE_MIN * fullest / HOUR_US if fullest >= LEAST_SAMPLES_HOURLY else float("inf")
        if min(counts) >= due * longest:  # so usual that it is worth one question
            covered[signal] = set(numbers)
        else:
            covered[signal] = {
                hour for hour, samples in zip(numbers, counts, strict=True) if samples >= due * running.get(hour, 0)
            }
        days[signal] = {hour // HOURS_A_DAY for hour in numbers}
    proven = set[int]().union(*(hours for signal, hours in covered.items() if SIGNAL_KINDS[signal].family in PROOFS))
    begun = _find_warmed_up(ran)
    quiet = {hour for hour in proven - active if begun.get(hour, False)}
    for signal, hours in covered.items():
        quiet -= {hour for hour in quiet - hours if hour // HOURS_A_DAY in days[signal]}
    judged_hours = dict.fromkeys(active & running.keys(), _ACTIVE_HOUR)
    judged_hours |= _find_spare_hours(
        signal_rows.get(GPU_BUSY_COUNT, ()), judged_hours.keys() & covered.get(GPU_BUSY_COUNT, set()), gpus
    )
    return judged_hours | dict.fromkeys(quiet, _IDLE_HOUR)


def list_undecided_ranges(
    measured: SampledHoursBySignal, hours: JudgedHours, ran: Sequence[ComputeRun], gpus: float
) -> list[TimeRange]:
    """Return the times whose single samples can show more than their hours do: hours with a quiet sample that are not idle.

    They reach as far beyond those hours as two samples may lie apart.
    """
    thresholds, running, candidates = _build_thresholds(measured, gpus), _sum_running(ran), set[int]()
    duties = {hour for signal, rows in measured.items() if _is_of(signal, DUTY) for hour, *_ in rows}
    for signal, rows in measured.items():
        if _is_of(signal, DUTY):
            most = thresholds.find_most_idle(signal)
            candidates |= {hour for hour, _, _, lowest, _ in rows if lowest <= most}
        elif _is_of(signal, *PROOFS):
            candidates |= {hour for hour, *_ in rows} - duties
    undecided = (hour for hour in candidates & running.keys() if hours.get(hour, JudgedHour(ACTIVE)).state != IDLE)
    return join_ranges((hour * HOUR_US - GAP_MAX_US, (hour + 1) * HOUR_US + GAP_MAX_US) for hour in undecided)


def judge_stretches(
    hours: JudgedHours,
    measured: SampledHoursBySignal,
    samples: Mapping[str, Sequence[SamplePair]],
    ran: Sequence[ComputeRun],
    gpus: float,
) -> list[JudgedStretch]:
    """Return the judgement of a machine's time: that of its `hours`, and idle between quiet `samples` of `measured` signals."""
    if not samples:
        return _join_hours(hours)
    days = {signal: {row[0] // HOURS_A_DAY for row in rows} for signal, rows in measured.items()}
    warmed = join_ranges(
        (max(to_micros(one.span.start), to_micros(one.span.anchor) + WARMUP_US), one.until_us)
        for one in ran
        if to_micros(one.span.anchor) + WARMUP_US < one.until_us
    )
    idle_ranges = intersect_ranges(find_idle_stretches(samples, days, _build_thresholds(measured, gpus)), warmed)
    stretches = [JudgedStretch(begin, end, IDLE) for begin, end in idle_ranges]
    for hour, judged in sorted(hours.items()):
        share = judged.share
        for begin, end in subtract_ranges([(hour * HOUR_US, (hour + 1) * HOUR_US)], idle_ranges):
            stretches.append(JudgedStretch(begin, end, judged.state, share.numerator, share.denominator))
    return join_stretches(stretches)


def _join_hours(hours: JudgedHours) -> list[JudgedStretch]:
    """Return hours as stretches; neighbours with the same judgement are joined."""
    stretches, ordered, place = list[JudgedStretch](), sorted(hours), 0
    while place < len(ordered):
        begin, judged = ordered[place], hours[ordered[place]]
        end = begin
        while place < len(ordered) and ordered[place] == end and (hours[end] is judged or hours[end] == judged):
            end, place = end + 1, place + 1
        share = judged.share
        stretches.append(JudgedStretch(begin * HOUR_US, end * HOUR_US, judged.state, share.numerator, share.denominator))
    return stretches


def combine_group_stretches(
    stretches: Mapping[int, Sequence[JudgedStretch]], groups: Iterable[Sequence[int]], ran: Mapping[int, Sequence[ComputeRun]]
) -> dict[int, Sequence[JudgedStretch]]:
    """Return `stretches` by resource, adjusted for `groups` whose members work together (decision 0026).

    Where one member idles while another works, it is partly idle. Where another member ran but could not be judged, nothing is
    known of it.
    """
    by_resource = dict(stretches)
    for members in groups:
        runs = {one: join_ranges((to_micros(of.span.start), of.until_us) for of in ran.get(one, ())) for one in members}
        ranges = {one: [*((of.begin_us, of.end_us) for of in stretches.get(one, ())), *runs[one]] for one in members}
        edges = {one: {edge for part in ranges[one] for edge in part} for one in members}
        for member in members:
            others = [one for one in members if one != member]
            own = [of for of in stretches.get(member, ()) if of.state != IDLE]
            for idle in (of for of in stretches.get(member, ()) if of.state == IDLE):
                cuts = {edge for one in others for edge in edges[one] if idle.begin_us < edge < idle.end_us}
                for begin, end in pairwise(sorted({idle.begin_us, *cuts, idle.end_us})):
                    running = (one for one in others if intersect_ranges([(begin, end)], runs[one]))
                    judgements = [find_judgement(stretches.get(one, ()), begin) for one in running]
                    if all(other is not None and other.state == IDLE for other in judgements):
                        own.append(JudgedStretch(begin, end, IDLE))
                    elif any(other is not None and other.state == ACTIVE for other in judgements):
                        own.append(JudgedStretch(begin, end, ACTIVE, 1))
            by_resource[member] = join_stretches(own)
    return by_resource


def list_power_ranges(
    measured: SampledHoursBySignal, hours: JudgedHours, samples: Mapping[str, Sequence[SamplePair]]
) -> list[PowerRange]:
    """Return when the power of a machine's GPUs is known: in its idle `hours`, and in others between single `samples`.

    An agent's sample is the mean since the one before. The mean of an hour with work says nothing of its idle part.
    """
    rows = measured.get(GPU_POWER, ())
    idle = {hour: total / count for hour, count, total, _, _ in rows if hours.get(hour, _ACTIVE_HOUR).state == IDLE}
    ranges = [PowerRange(hour * HOUR_US, (hour + 1) * HOUR_US, watts) for hour, watts in idle.items()]
    for (begin, _), (end, watts) in pairwise(samples.get(GPU_POWER, ())):
        edge = max(begin, end // HOUR_US * HOUR_US)
        parts = ((begin, edge), (edge, end)) if end - begin <= GAP_MAX_US else ()
        ranges += (PowerRange(*part, watts) for part in parts if part[0] < part[1] and part[0] // HOUR_US not in idle)
    return sorted(ranges)


def sum_waste(
    ran: Sequence[ComputeRun],
    stretches: Sequence[JudgedStretch],
    start_us: int,
    end_us: int,
    power: Sequence[PowerRange] = (),
    *,
    use: GpuUse = NO_USE,
) -> list[Waste]:
    """Return the cost of a machine's judged time from `start_us` to `end_us`, and its use, by attribution and currency."""
    sums: dict[tuple[Attribution, str], Waste] = {}
    judged, wasted = _join_judged(stretches), [one for one in stretches if one.wasted]
    for one in ran:
        first, last = max(to_micros(one.span.start), start_us), min(one.until_us, end_us)
        idle, partly, idle_us, idle_energy_j, power_us = 0, 0, 0, 0.0, 0
        for begin, finish, of in _cut_stretches(wasted, first, last):
            cost = _take_share(of, compute_amounts(one.span, begin, finish)[1])
            if of.state != IDLE:
                partly += cost
                continue
            idle, idle_us = idle + cost, idle_us + finish - begin
            for first_us, last_us, drawn in _cut_stretches(power, begin, finish):
                idle_energy_j += drawn.watts * (last_us - first_us) / SECOND_US
                power_us += last_us - first_us
        measured_us, used_us = use.sum_within(first, last) if first < last else (0.0, 0.0)
        gpus = float(one.span.attribution.gpu_count)
        waste = Waste(
            attribution=one.span.attribution,
            currency=one.span.meter.price.currency,
            judged=sum(compute_amounts(one.span, begin, finish)[1] for begin, finish, _ in _cut_stretches(judged, first, last)),
            idle=idle,
            partly=partly,
            idle_us=idle_us,
            idle_energy_j=idle_energy_j,
            power_us=power_us,
            measured_gpu_us=measured_us * gpus,
            used_gpu_us=used_us * gpus,
        )
        key = waste.attribution, waste.currency
        sums[key] = sums[key].add(waste) if key in sums else waste
    return [waste for waste in sums.values() if waste.judged]


def sum_waste_by_day(
    ran: Sequence[ComputeRun], stretches: Sequence[JudgedStretch], start_us: int, end_us: int
) -> dict[int, tuple[int, int]]:
    """Return, by day (since 1970, UTC), the judged compute cost and the wasted part, in nano-dollars."""
    judged, wasted = _join_judged(stretches), [one for one in stretches if one.wasted]
    costs, idled = defaultdict[int, int](int), defaultdict[int, int](int)
    for one in ran:
        if one.span.meter.price.currency != "USD":
            continue
        first, last = max(to_micros(one.span.start), start_us), min(one.until_us, end_us)
        for begin, finish, _ in _split_at_midnight(_cut_stretches(judged, first, last)):
            costs[begin // DAY_US] += compute_amounts(one.span, begin, finish)[1]
        for begin, finish, of in _split_at_midnight(_cut_stretches(wasted, first, last)):
            idled[begin // DAY_US] += _take_share(of, compute_amounts(one.span, begin, finish)[1])
    return {day: (nano, idled[day]) for day, nano in sorted(costs.items()) if nano}


def _split_at_midnight(stretches: Iterable[tuple[int, int, JudgedStretch]]) -> Iterator[tuple[int, int, JudgedStretch]]:
    """Yield the same stretches, split at the end of each day."""
    for begin, last, of in stretches:
        reached = begin
        while reached < last:
            until = min(last, (reached // DAY_US + 1) * DAY_US)
            yield reached, until, of
            reached = until


def _take_share(of: JudgedStretch, cost: int) -> int:
    """Return the part of `cost` that was wasted in a stretch."""
    return cost if of.state == IDLE else cost * of.numerator // of.denominator


def _cut_stretches(stretches: Sequence[TimePart], first: int, last: int) -> Iterator[tuple[int, int, TimePart]]:
    """Yield the parts of `stretches` within [first, last)."""
    place = bisect_right(stretches, first, key=lambda one: one.end_us)
    while place < len(stretches) and stretches[place].begin_us < last:
        one = stretches[place]
        yield max(first, one.begin_us), min(last, one.end_us), one
        place += 1


def _join_judged(stretches: Sequence[JudgedStretch]) -> list[JudgedStretch]:
    """Return when anything is known, whatever it is."""
    return join_stretches(JudgedStretch(one.begin_us, one.end_us, ACTIVE) for one in stretches)


def _is_of(signal: str, *families: str) -> bool:
    return counts_for_waste(signal) and SIGNAL_KINDS[signal].family in families


def _build_thresholds(measured: SampledHoursBySignal, gpus: float) -> WorkThresholds:
    return WorkThresholds(
        gpus=gpus,
        limit_w=max((row[4] for row in measured.get(GPU_POWER_LIMIT, ())), default=0.0),
        floor_w={signal: min(row[3] for row in rows) for signal, rows in measured.items() if rows and _is_of(signal, POWER)},
    )


def _sum_running(ran: Sequence[ComputeRun]) -> dict[int, int]:
    """Return by hour the microseconds in which the machine computed."""
    running: dict[int, int] = defaultdict(int)
    for one in ran:
        first, last = to_micros(one.span.start), one.until_us
        for number in range(first // HOUR_US, -(-last // HOUR_US)):
            running[number] += min(last, (number + 1) * HOUR_US) - max(first, number * HOUR_US)
    return running


def _find_warmed_up(ran: Sequence[ComputeRun]) -> dict[int, bool]:
    """Return by hour whether its run began at least 45 minutes before it."""
    by_hour = dict[int, bool]()
    for one in ran:
        warm = -(-(to_micros(one.span.anchor) + WARMUP_US) // HOUR_US)
        for number in range(to_micros(one.span.start) // HOUR_US, -(-one.until_us // HOUR_US)):
            by_hour[number] = by_hour.get(number, True) and warm <= number
    return by_hour


def _find_spare_hours(rows: Iterable[SampledHour], hours: Collection[int], gpus: float) -> dict[int, JudgedHour]:
    """Return those of `hours` of a working machine in which some GPUs did nothing: never were all GPUs busy together."""
    spare_hours = dict[int, JudgedHour]()
    for hour, _, _, _, highest in rows if gpus >= 2 else ():  # noqa: PLR2004 - of one GPU no part idles
        share = 1 - Fraction(int(highest), int(gpus))
        if hour in hours and 0 < share < 1:
            spare_hours[hour] = JudgedHour(ACTIVE, share)
    return spare_hours


def _find_working_hours(signal: str, rows: Sequence[SampledHour], thresholds: WorkThresholds) -> set[int]:
    """Return the hours in which a signal shows work."""
    kind = SIGNAL_KINDS[signal]
    if kind.reading == ALIVE:
        return set()
    if kind.reading == COUNTER:
        return {
            hour
            for (hour, _, _, lowest, highest), previous in zip(rows, (None, *rows), strict=False)
            if lowest != highest or (previous and previous[0] == hour - 1 and previous[4] != lowest)
        }
    if kind.reading == AGE:
        return {hour for hour, _, _, lowest, _ in rows if lowest < INPUT_COUNTS_FOR.total_seconds()}
    most = thresholds.find_most_idle(signal)
    working_hours = {hour for hour, _, _, _, highest in rows if highest > most}
    if kind.reading == VOLUMES:
        working_hours |= {hour for hour, samples, total, _, _ in rows if total / samples * HOUR_US / SECOND_US > WORK_BYTES_MIN}
    return working_hours
