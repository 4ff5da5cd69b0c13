"""Paid, measured and used GPU-hours: an hour without samples is not measured, and never one of no use."""

from __future__ import annotations

from itertools import pairwise

import pytest

from costguard.reporting.statement.gpu_hours import NO_USE, Rows, measure_gpu_use
from costguard.values.instant import HOUR_US

MINUTE_US = HOUR_US // 60


def hour(
    number: int, mean: float, count: int = 60, lowest: float = 0.0, highest: float = 100.0
) -> tuple[int, int, float, float, float]:
    return number, count, mean * count, lowest, highest


@pytest.mark.parametrize(
    ("duty", "busy", "gpus", "minutes", "hours"),
    [
        ([hour(0, 31), hour(1, 31), hour(3, 31)], [], 1, (0, 240), (3, 0.93)),  # the example of the module
        ([hour(0, 31), hour(1, 31), hour(3, 31)], [], 1, (30, 210), (2, 0.62)),  # it ran from the middle to the middle
        ([hour(0, 31)], [], 1, (20, 40), (1 / 3, 0.31 / 3)),
        ([hour(0, 31)], [], 1, (60, 120), (0, 0)),
        ([hour(0, 50), hour(1, 50, count=15)], [], 1, (0, 120), (1.25, 0.625)),  # a quarter of the hour was measured
        ([hour(0, 50), hour(1, 50, count=40)], [], 1, (0, 120), (2, 1)),
        ([hour(0, 90)], [hour(0, 1, lowest=1, highest=1)], 8, (0, 60), (1, 0.125)),  # one of eight ran a kernel
        ([hour(0, 10)], [hour(0, 8, lowest=8, highest=8)], 8, (0, 60), (1, 0.1)),
        ([hour(0, 90)], [], 8, (0, 60), (1, 0.9)),
        ([hour(0, 250, highest=300)], [], 1, (0, 60), (0, 0)),  # no GPU can show it
        ([hour(0, 0.9, lowest=0.8, highest=1)], [], 1, (0, 60), (0, 0)),  # it may be a fraction
        ([hour(0, 0, highest=0)], [], 1, (0, 60), (1, 0)),  # zero was measured
        ([], [], 1, (0, 60), (0, 0)),
    ],
)
def test_the_use_of_a_run_is_that_of_its_measured_time(
    duty: Rows, busy: Rows, gpus: float, minutes: tuple[int, int], hours: tuple[float, float]
) -> None:
    use = measure_gpu_use(duty, busy, gpus)
    measured, used = use.sum_within(*(minute * MINUTE_US for minute in minutes))
    assert (measured / HOUR_US, used / HOUR_US) == pytest.approx(hours)


def test_parts_of_a_run_add_up_to_it() -> None:
    use = measure_gpu_use([hour(n, 10 * n, count=60 - 7 * n) for n in range(8)], [], 1)
    edges = [17 * MINUTE_US, 61 * MINUTE_US, 3 * HOUR_US, 444 * MINUTE_US]
    parts = [use.sum_within(first, last) for first, last in pairwise(edges)]
    whole = use.sum_within(edges[0], edges[-1])
    assert [sum(of) for of in zip(*parts, strict=True)] == [pytest.approx(one) for one in whole]
    assert NO_USE.sum_within(edges[0], edges[-1]) == (0, 0)
