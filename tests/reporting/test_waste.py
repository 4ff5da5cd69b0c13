"""Waste is what samples prove, by whole hours and between quiet samples, and nothing else: what is not measured is unknown."""

from __future__ import annotations

from datetime import datetime, timedelta
from fractions import Fraction
from itertools import pairwise

import pytest

from costguard.guard.signals import ACTIVE, IDLE
from costguard.metering.span import Span
from costguard.reporting.statement.idle_stretches import JudgedStretch, SamplePair
from costguard.reporting.statement.waste import (
    ComputeRun,
    JudgedHour,
    JudgedHours,
    SampledHour,
    Waste,
    combine_group_stretches,
    judge_hours,
    judge_stretches,
    list_power_ranges,
    list_undecided_ranges,
    sum_waste,
)
from costguard.values.instant import HOUR_US, to_micros
from costguard.values.money import Money
from costguard.values.sample import (
    CPU_UTIL,
    GPU_BUSY_COUNT,
    GPU_POWER,
    GPU_UTIL,
    INPUT_AGE,
    NETWORK,
    STEP,
)
from tests.books import at, attribution, meter
from tests.reporting.test_saved import KEY

NIGHT = at(6, 0)
FIRST = to_micros(NIGHT) // HOUR_US
RATE = meter(32_770_000_000)


def ran(hours: float = 8, *, start: datetime = NIGHT, anchor: datetime | None = None) -> list[ComputeRun]:
    of = Span(key=KEY, attribution=attribution(), meter=RATE, start=start, anchor=anchor or start - timedelta(hours=1))
    return [ComputeRun(of, to_micros(start + timedelta(hours=hours)))]


def rows(*ranges: tuple[float, float] | None, count: int = 60) -> list[SampledHour]:
    """(lowest, highest) of hour after hour; None: no sample at all."""
    return [
        SampledHour(FIRST + n, count, count * (low + high) / 2, low, high)
        for n, (low, high) in ((n, one) for n, one in enumerate(ranges) if one is not None)
    ]


def states(hours: JudgedHours) -> dict[int, str]:
    return {number - FIRST: hour.state for number, hour in hours.items()}


QUIET, BUSY = (0.0, 2.0), (0.0, 97.0)


def test_an_hour_without_any_work_is_idle_and_one_with_any_is_not() -> None:
    found = judge_hours({GPU_UTIL: rows(QUIET, BUSY, QUIET)}, ran(), 8)
    assert states(found) == {0: IDLE, 1: ACTIVE, 2: IDLE}


def test_what_is_not_measured_is_unknown_and_never_idle() -> None:
    assert states(judge_hours({GPU_UTIL: rows(QUIET, None, QUIET)}, ran(), 8)) == {0: IDLE, 2: IDLE}
    assert judge_hours({}, ran(), 8) == {}
    assert judge_hours({NETWORK: rows(QUIET)}, ran(), 8) == {}, "no GPU duty and no agent: activity is not measured"


def test_one_signal_that_falls_silent_makes_the_hour_unknown() -> None:
    measured = {GPU_UTIL: rows(QUIET, QUIET), CPU_UTIL: rows((0, 0.3), None)}
    assert states(judge_hours(measured, ran(), 1)) == {0: IDLE}


@pytest.mark.parametrize(
    ("signal", "work", "rest"),
    [
        (NETWORK, (0.0, 6.1e6), (0.0, 1000.0)),
        (CPU_UTIL, (0.0, 30.0), (0.0, 0.2)),
        (STEP, (100.0, 220.0), (100.0, 100.0)),
        (INPUT_AGE, (10.0, 3000.0), (7200.0, 10_800.0)),
    ],
)
def test_any_signal_of_work_keeps_the_hour_from_being_idle(
    signal: str, work: tuple[float, float], rest: tuple[float, float]
) -> None:
    measured = {GPU_UTIL: rows(QUIET, QUIET, QUIET), signal: rows(rest, rest, work)}
    assert states(judge_hours(measured, ran(), 1)) == {0: IDLE, 1: IDLE, 2: ACTIVE}


def test_a_step_between_two_hours_is_work_of_the_later_one() -> None:
    measured = {GPU_UTIL: rows(QUIET, QUIET), STEP: rows((5.0, 5.0), (6.0, 6.0))}
    assert states(judge_hours(measured, ran(), 1)) == {0: IDLE, 1: ACTIVE}


def test_one_of_eight_busy_for_six_hours_wastes_seven_eighths() -> None:
    measured = {GPU_UTIL: rows(*[BUSY] * 6), GPU_BUSY_COUNT: rows(*[(1.0, 1.0)] * 6)}
    hours = judge_hours(measured, ran(6), 8)
    assert set(hours.values()) == {JudgedHour(ACTIVE, Fraction(7, 8))}
    (waste,) = sum_waste(
        ran(6), judge_stretches(hours, measured, {}, ran(6), 8), to_micros(NIGHT), to_micros(NIGHT) + 24 * HOUR_US
    )
    assert [Money(nano=nano).format() for nano in (waste.judged, waste.idle, waste.partly)] == ["196.62", "0.00", "172.04"]


def test_waste_is_cut_to_the_period_and_to_what_ran() -> None:
    measured = {GPU_UTIL: rows(*[QUIET] * 8)}
    stretches = judge_stretches(judge_hours(measured, ran(2.5), 1), measured, {}, ran(2.5), 1)
    (waste,) = sum_waste(ran(2.5), stretches, to_micros(NIGHT) + HOUR_US, to_micros(NIGHT) + 100 * HOUR_US)
    assert waste.idle == waste.judged == RATE.price.expected * 3 // 2  # the half hour at its end has samples for all of it


def test_parts_of_a_period_waste_what_the_whole_does() -> None:
    measured = {GPU_UTIL: rows(QUIET, BUSY, QUIET)}
    stretches = judge_stretches(judge_hours(measured, ran(3), 1), measured, {}, ran(3), 1)
    cut = to_micros(NIGHT) + 25 * HOUR_US // 10
    bounds = (to_micros(NIGHT), cut, to_micros(NIGHT) + 3 * HOUR_US)
    parts = [sum_waste(ran(3), stretches, a, b)[0] for a, b in pairwise(bounds)]
    (whole,) = sum_waste(ran(3), stretches, bounds[0], bounds[-1])
    assert sum(part.idle for part in parts) == whole.idle == 2 * RATE.price.expected
    assert parts[0].add(parts[1]) == whole


def minutes(*values: float, every: float = 1, start: float = 0) -> list[SamplePair]:
    """A sample every so many minutes, from so many minutes after NIGHT on."""
    return [(to_micros(NIGHT + timedelta(minutes=start + n * every)), value) for n, value in enumerate(values)]


def stretch(begin: float, end: float, state: str = IDLE, share: int = 0) -> JudgedStretch:
    """From and until so many minutes after NIGHT."""
    first, last = (to_micros(NIGHT + timedelta(minutes=at)) for at in (begin, end))
    return JudgedStretch(first, last, state, share)


def sum_hours(samples: dict[str, list[SamplePair]]) -> dict[str, list[SampledHour]]:
    measured = dict[str, list[SampledHour]]()
    for signal, pairs in samples.items():
        for hour in sorted({at_us // HOUR_US for at_us, _ in pairs}):
            values = [value for at_us, value in pairs if at_us // HOUR_US == hour]
            measured.setdefault(signal, []).append(SampledHour(hour, len(values), sum(values), min(values), max(values)))
    return measured


def judged(samples: dict[str, list[SamplePair]], runs: list[ComputeRun], gpus: float = 8) -> list[JudgedStretch]:
    """What a report makes of single samples: their hours, and in undecided hours themselves."""
    measured = sum_hours(samples)
    hours = judge_hours(measured, runs, gpus)
    asked = list_undecided_ranges(measured, hours, runs, gpus)
    within = {s: [one for one in of if any(a <= one[0] < b for a, b in asked)] for s, of in samples.items()}
    return judge_stretches(hours, measured, within, runs, gpus)


def idle(found: list[JudgedStretch]) -> list[JudgedStretch]:
    return [one for one in found if one.state == IDLE]


def test_a_machine_idles_from_the_minute_after_its_last_work_until_it_is_stopped() -> None:
    duty = minutes(*[97.0] * 66, *[0.0] * 180)  # work until 18:05, as the module's example says it
    found = judged({GPU_UTIL: duty}, ran(4.1))
    assert [one.begin_us for one in idle(found)] == [stretch(66, 67).begin_us]
    (waste,) = sum_waste(ran(4.1), found, to_micros(NIGHT), to_micros(NIGHT) + 24 * HOUR_US)
    assert (waste.idle, waste.judged) == (RATE.price.expected * 3, RATE.price.expected * 246 // 60)


def test_a_poll_every_twenty_minutes_shows_what_lies_between_its_quiet_samples() -> None:
    found = judged({GPU_UTIL: minutes(97, 97, 0, 0, 0, 0, 97, every=20)}, ran(2))
    assert idle(found) == [stretch(40, 100)]


def test_a_hole_in_the_samples_is_not_idle() -> None:
    duty = [*minutes(*[97.0] * 10, *[0.0] * 20), *minutes(*[0.0] * 10, start=50)]
    assert idle(judged({GPU_UTIL: duty}, ran(2))) == [stretch(10, 29), stretch(50, 59)]


def test_every_signal_of_the_day_must_be_quiet_all_the_while() -> None:
    duty, network = minutes(*[97.0] * 10, *[0.0] * 50), minutes(*[0.0] * 30, 5e6, *[0.0] * 29)
    assert idle(judged({GPU_UTIL: duty, NETWORK: network}, ran(2))) == [stretch(10, 29), stretch(31, 59)]
    assert not idle(judged({GPU_UTIL: duty, CPU_UTIL: minutes(0.1, 0.1, start=600)}, ran(12))), "not measured then"
    assert not idle(judged({NETWORK: network}, ran(2))), "no GPU duty and no agent"


def test_steps_and_key_presses_end_a_stretch() -> None:
    duty, step = minutes(97, *[0.0] * 59), minutes(*[5.0] * 30, *[6.0] * 30)
    assert idle(judged({GPU_UTIL: duty, STEP: step}, ran(1))) == [stretch(1, 29), stretch(30, 59)]
    typed = minutes(*[7200.0 + 60 * n for n in range(30)], *[60.0 * n for n in range(30)])
    assert idle(judged({GPU_UTIL: duty, INPUT_AGE: typed}, ran(1))) == [stretch(1, 29)]


def test_a_stretch_begins_after_the_set_up_and_ends_with_the_run() -> None:
    fresh = ran(0.75, anchor=NIGHT - timedelta(minutes=30))
    assert idle(judged({GPU_UTIL: minutes(*[0.0] * 30, 97, *[0.0] * 29)}, fresh)) == [stretch(15, 29), stretch(31, 45)]


def idle_energy(samples: dict[str, list[SamplePair]], runs: list[ComputeRun], *, stored: bool = True) -> Waste:
    """The waste of what samples show; `stored`: one by one."""
    measured = sum_hours(samples)
    hours = judge_hours(measured, runs, 8)
    power = list_power_ranges(measured, hours, samples if stored else {})
    (waste,) = sum_waste(runs, judged(samples, runs), to_micros(NIGHT), to_micros(NIGHT) + 24 * HOUR_US, power)
    return waste


def test_the_energy_of_idle_time_is_what_its_samples_of_power_say() -> None:
    duty, power = minutes(*[97.0] * 30, *[0.0] * 150), minutes(*[4800.0] * 30, *[600.0] * 150)
    waste = idle_energy({GPU_UTIL: duty, GPU_POWER: power}, ran(3))
    assert (waste.idle_us, waste.power_us) == (150 * 60 * 10**6, 150 * 60 * 10**6)
    assert waste.idle_kwh == pytest.approx(0.6 * 2.5), "the 4.8 kW of its work count for nothing"


def test_of_hours_that_are_stored_as_sums_only_idle_ones_have_a_known_power() -> None:
    duty, power = minutes(*[97.0] * 30, *[0.0] * 150), minutes(*[4800.0] * 30, *[600.0] * 150)
    waste = idle_energy({GPU_UTIL: duty, GPU_POWER: power}, ran(3), stored=False)
    assert (waste.idle_us, waste.power_us) == (150 * 60 * 10**6, 120 * 60 * 10**6)
    assert waste.idle_kwh == pytest.approx(0.6 * 2)


def test_without_samples_of_power_the_energy_of_idle_time_is_unknown_and_not_zero() -> None:
    assert idle_energy({GPU_UTIL: minutes(*[0.0] * 60)}, ran(1)).idle_kwh is None
    assert idle_energy({GPU_UTIL: minutes(*[97.0] * 60)}, ran(1)).idle_kwh == 0, "no idle time"


def test_a_machine_that_waits_for_its_group_is_a_part_that_does_nothing() -> None:
    waits, works = [stretch(0, 120)], [stretch(0, 45, ACTIVE), stretch(45, 120)]
    found = combine_group_stretches({1: waits, 2: works}, [[1, 2]], {1: ran(2), 2: ran(2)})
    assert found[1] == [stretch(0, 45, ACTIVE, 1), stretch(45, 120)]
    assert found[2] == works


def test_beside_a_member_that_nobody_could_judge_none_of_a_group_idles() -> None:
    found = combine_group_stretches({1: [stretch(0, 120)]}, [[1, 2]], {1: ran(2), 2: ran(1)})
    assert found[1] == [stretch(60, 120)], "the other one ran for an hour"
