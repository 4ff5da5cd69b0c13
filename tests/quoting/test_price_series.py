"""The price of a machine on a day, and lines that sum up machines without mistaking a new machine for a new price."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta

import pytest

from costguard.errors import InputError
from costguard.quoting.offer import Offer
from costguard.quoting.price_series import (
    LISTED_DAYS,
    PriceLine,
    PriceRun,
    PriceSeries,
    add_offers,
    draw_lines,
    identify_machine,
)
from costguard.values.money import Rate
from tests import shop

DAY = date(2026, 9, 1)


def day(number: int) -> date:
    return DAY + timedelta(days=number)


def seen(usd: str, number: int, **more: object) -> Offer:
    return shop.offer("runpod", "T4", usd, seen=day(number), **more)  # type: ignore[arg-type]


def series(*runs: tuple[int, int, str], **more: object) -> PriceSeries:
    return PriceSeries(
        machine=identify_machine(seen("1", 0, **more)),
        runs=tuple(PriceRun(seen_on=day(first), last_seen_on=day(last), rate=Rate.parse(usd)) for first, last, usd in runs),
    )


def draw(*members: PriceSeries, start: int = 0, end: int = 100) -> list[tuple[int, str]]:
    (line,) = draw_lines(members, day(start), day(end))
    return [((on - DAY).days, rate.format(2)) for on, rate in line.points]


def test_a_price_is_carried_to_the_next_one_and_not_beyond_the_last() -> None:
    one = series((0, 19, "2.99"), (25, 25, "2.69"))
    found = [one.find_rate(day(number)) for number in (-1, 0, 10, 22, 25, 26)]
    assert [None if rate is None else rate.format(2) for rate in found] == [None, "2.99", "2.99", "2.99", "2.69", None]


def test_a_line_is_cut_to_the_days_that_were_asked_for() -> None:
    one = series((0, 19, "2.99"), (20, 40, "2.69"))
    assert draw(one, start=10, end=30) == [(10, "2.99"), (20, "2.69"), (30, "2.69")]
    assert draw_lines([one], day(41), day(50)) == draw_lines([one], day(-9), day(-1)) == ()


def test_a_machine_that_nobody_had_looked_at_before_is_no_cheaper_price() -> None:
    old, new = series((0, 40, "9"), region="us"), series((30, 40, "3"), region="eu")
    assert draw(old, new) == [(0, "3.00"), (40, "3.00")]


def test_a_machine_that_is_no_longer_listed_is_left_out() -> None:
    gone, there = series((0, 10, "1"), region="us"), series((5, 12 + LISTED_DAYS, "3"), region="eu")
    assert draw(gone, there) == [(5, "3.00"), (12 + LISTED_DAYS, "3.00")]


def test_lines_are_apart_by_count_tier_and_drift_class() -> None:
    members = (
        series((0, 1, "1")),
        series((0, 1, "8"), count=8),
        series((0, 1, "2"), tier="secure"),
        replace(series((0, 1, "0.5")), machine=replace(series((0, 1, "1")).machine, drift="bid")),
    )
    assert len(draw_lines(members, day(0), day(1))) == 4


def test_the_figures_of_a_line() -> None:
    (line,) = draw_lines([series((0, 9, "4"), (10, 20, "2"), (21, 40, "5"))], day(0), day(50))
    figures = (line.first, line.last, line.lowest, line.highest)
    assert [rate.format(0) for rate in figures] == ["4", "5", "2", "5"]
    assert line.change == pytest.approx(0.25)


def sample(line: PriceLine, start: int, end: int, count: int) -> list[str | None]:
    return [None if rate is None else rate.format(0) for rate in line.sample_rates(day(start), day(end), count)]


def test_samples_are_the_last_price_of_each_part_and_unknown_outside() -> None:
    (line,) = draw_lines([series((2, 3, "4"), (4, 6, "2"))], day(0), day(50))
    assert sample(line, 0, 9, 10) == [None, None, "4", "4", "2", "2", "2", None, None, None]
    assert sample(line, 0, 9, 5) == [None, "4", "2", "2", None]
    assert sample(line, 2, 6, 10)[-1] == "2"


def test_offers_add_days_of_which_nothing_is_known() -> None:
    offers = [seen("9", 5), seen("7", 20), seen("6", 20), seen("5", 30, region="eu"), replace(seen("1", 40), rate=None)]
    found = add_offers([series((0, 10, "4"))], offers)
    told = [(one.machine.region, [((run.seen_on - DAY).days, run.rate.format(0)) for run in one.runs]) for one in found]
    assert told == [("eu", [(30, "5")]), ("global", [(0, "4"), (20, "6")])]


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InputError):
        series((5, 4, "1"))
    with pytest.raises(InputError):
        series()
