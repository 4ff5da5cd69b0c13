"""What a quote says beside its ranking: caps, the assumption that matters most, what is unknown."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import date

import pytest

from costguard.quoting.offer import Offer
from costguard.quoting.price_drift import AgedPrice
from costguard.quoting.quote import (
    CHEAPEST,
    FASTEST,
    MAYBE_CHEAPER,
    MAYBE_CHEAPEST,
    PARETO,
    QuoteOption,
    choose_advice,
    choose_option,
    explain_cap_breach,
    explain_price_age,
    explain_uncertainty,
    find_cheaper_option,
    list_cap_warnings,
    price_option,
    rank_options,
)
from costguard.quoting.storage import StorageRate
from costguard.sizing.job import JobLimits
from costguard.sizing.recipe import Recipe
from costguard.sizing.speed.duration import Duration
from costguard.sizing.speed.flops import count_flops_per_token
from costguard.values.interval import Interval
from costguard.values.money import Money, MoneyInterval, Rate
from tests.sizing.speeds import GPUS, LLAMA_2_7B

TWO_DOLLARS = Offer(
    provider="acme",
    region="here",
    instance_type="t",
    gpu="H100-SXM",
    gpu_count=1,
    tier="on-demand",
    rate=Rate.parse("2"),
    observed_on=date(2026, 11, 1),
    source="a test",
)
PRICE = AgedPrice(age_days=3, low=Rate.parse("2"), expected=Rate.parse("2"), high=Rate.parse("2"), fresh=True)
OLD_PRICE = AgedPrice(age_days=90, low=Rate.parse("1.6"), expected=Rate.parse("2"), high=Rate.parse("2.5"), fresh=False)
HOURS = Interval(8, 10, 13)
SPENT = MoneyInterval(low=Money.parse("16"), expected=Money.parse("20"), high=Money.parse("26"))
PARTS = (("speed", Interval(6, 8, 9)), ("start-up", Interval(0.5, 1, 4.5)), ("certain", Interval(1, 1, 1)))
OPTION = QuoteOption(
    gpu=GPUS["H100-SXM"],
    gpu_count=1,
    offer=TWO_DOLLARS,
    price=PRICE,
    duration=Duration(hours=HOURS, startup_hours=PARTS[1][1], train_hours=PARTS[0][1], parts=PARTS),
    hours=HOURS,
    usd=SPENT,
)


def test_the_assumption_with_the_widest_hours_is_named_with_its_money() -> None:
    said = explain_uncertainty(OPTION)
    assert said is not None
    assert said.startswith("start-up has the largest effect")
    assert "$8.00 (4.00 h)" in said


@pytest.mark.parametrize(
    ("cap", "broken", "may_break"),
    [("19.99", True, True), ("20", False, True), ("25.99", False, True), ("26", False, False)],
)
def test_a_cap_on_money_is_broken_by_what_is_expected_and_may_be_by_what_is_high(
    cap: str,
    broken: bool,  # noqa: FBT001 - a column of the table
    may_break: bool,  # noqa: FBT001 - a column of the table
) -> None:
    limits = JobLimits(max_usd=Money.parse(cap))
    assert (explain_cap_breach(OPTION, limits) is not None) is broken
    assert bool(list_cap_warnings(SPENT, HOURS, limits)) is may_break


@pytest.mark.parametrize(
    ("cap", "broken", "may_break"), [(9.9, True, True), (10, False, True), (12.9, False, True), (13, False, False)]
)
def test_a_cap_on_hours_is_broken_by_what_is_expected_and_may_be_by_what_is_high(
    cap: float,
    broken: bool,  # noqa: FBT001 - a column of the table
    may_break: bool,  # noqa: FBT001 - a column of the table
) -> None:
    limits = JobLimits(max_hours=cap)
    assert (explain_cap_breach(OPTION, limits) is not None) is broken
    assert bool(list_cap_warnings(SPENT, HOURS, limits)) is may_break


def test_an_option_of_unknown_money_or_hours_is_last_and_bears_no_mark() -> None:
    unknown = replace(OPTION, usd=None)
    endless = replace(OPTION, hours=None)
    best, *rest = rank_options([unknown, OPTION, endless], "usd")
    assert best.marks == (CHEAPEST, FASTEST, PARETO)
    assert [o.marks for o in rest] == [(), ()]


def test_the_option_to_take_is_the_cheapest_that_is_fresh_lasts_and_fits() -> None:
    def price(usd: str) -> MoneyInterval:
        return MoneyInterval(low=Money.parse(usd), expected=Money.parse(usd), high=Money.parse(usd))

    spot = replace(OPTION, offer=replace(TWO_DOLLARS, tier="spot"), usd=price("12"))
    old = replace(OPTION, price=OLD_PRICE, usd=price("10"))
    unknown = replace(OPTION, usd=None)
    assert choose_option((unknown, old, spot, OPTION)) is OPTION
    assert find_cheaper_option((unknown, old, spot, OPTION), OPTION) is old
    assert choose_option((unknown, old, spot)) is spot
    assert choose_option((unknown, old)) is old
    assert choose_option((unknown,)) is None
    assert find_cheaper_option((OPTION, spot, old), old) is None


def test_money_is_machines_of_all_nodes_and_the_disk_of_each_to_the_nano_dollar() -> None:
    disk = StorageRate(provider="acme", nano_per_gb_month=100_000_000)
    usd, stored = price_option(PRICE, 3, Interval.exactly(7.3), disk, 100)
    assert stored is not None
    assert usd is not None
    assert stored.expected == Money.parse("0.3")  # 3 x 100 GB x $0.10 x 7.3 h / 730 h
    assert usd.expected == Money.parse("44.1")  # 3 x $2 x 7.3 h, and the disk


def test_hours_and_price_are_two_errors_that_add_as_squares() -> None:
    usd, _ = price_option(OLD_PRICE, 1, Interval(8, 10, 12.5), None, 0)
    assert usd is not None
    assert usd.expected == Money.parse("20")
    far = math.exp(math.hypot(math.log(1.25), math.log(1.25)))
    assert float(usd.low.format(6)) == pytest.approx(20 / far, rel=1e-6)
    assert float(usd.high.format(6)) == pytest.approx(20 * far, rel=1e-6)


@pytest.mark.parametrize("hours", [Interval.exactly(10), Interval(8, 10, 13), Interval(0, 0, 0), Interval(0, 1e-9, 5)])
@pytest.mark.parametrize("price", [PRICE, OLD_PRICE])
def test_an_old_price_never_narrows_the_cost_and_never_passes_both_high_ends(hours: Interval, price: AgedPrice) -> None:
    usd, _ = price_option(price, 2, hours, None, 0)
    exact, _ = price_option(replace(price, low=price.expected, high=price.expected), 2, hours, None, 0)
    assert usd is not None
    assert exact is not None
    assert usd.low <= exact.low <= exact.expected == usd.expected <= exact.high <= usd.high
    assert usd.high <= price.high.multiply(2).multiply_seconds(math.ceil(hours.high * 3600))


def test_the_marks_go_to_fresh_prices_and_an_older_one_below_them_is_maybe_cheaper() -> None:
    dear = replace(OPTION, usd=MoneyInterval(low=Money.parse("22"), expected=Money.parse("22"), high=Money.parse("22")))
    old = replace(OPTION, price=OLD_PRICE)
    best, fresh = rank_options([dear, old], "usd")
    assert (best.price, best.marks) == (OLD_PRICE, (MAYBE_CHEAPER,))
    assert fresh.marks == (CHEAPEST, FASTEST, PARETO)
    advice = choose_advice((best, fresh))
    assert dict(advice.words) == {1: MAYBE_CHEAPER, 2: "cheapest on-demand, fastest"}


def test_where_no_price_is_fresh_the_first_is_maybe_the_cheapest() -> None:
    old = replace(OPTION, price=OLD_PRICE)
    (only,) = rank_options([old], "usd")
    assert only.marks == (MAYBE_CHEAPEST,)
    assert dict(choose_advice((only,)).words) == {1: "maybe cheapest on-demand, maybe fastest"}


def test_an_old_price_says_what_its_age_alone_may_cost() -> None:
    assert explain_price_age(OPTION) is None
    assert (
        explain_price_age(replace(OPTION, price=OLD_PRICE)) == "was seen 90 d ago, which alone makes its cost $16.00 to $25.00"
    )


def test_a_stated_count_scales_the_work_of_the_layers() -> None:
    counted = LLAMA_2_7B.computed_parameters
    layers = sum(b.layers * b.parameters_each for b in LLAMA_2_7B.blocks)
    twice = replace(LLAMA_2_7B, stated_params=counted + layers)
    plain, larger = (count_flops_per_token(a, Recipe(attention="flash")) for a in (LLAMA_2_7B, twice))
    matrices = sum(b.layers * (b.attention_parameters + 3 * 4096 * 11008) for b in LLAMA_2_7B.blocks)
    assert larger.forward - plain.forward == pytest.approx(2 * matrices, rel=1e-6)
