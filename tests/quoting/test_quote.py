"""What a quote says beside its ranking: caps, the assumption that matters most, what is unknown."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest

from costguard.quoting.offer import Offer
from costguard.quoting.quote import (
    CHEAPEST,
    FASTEST,
    PARETO,
    QuoteOption,
    explain_cap_breach,
    explain_uncertainty,
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
HOURS = Interval(8, 10, 13)
SPENT = MoneyInterval(low=Money.parse("16"), expected=Money.parse("20"), high=Money.parse("26"))
PARTS = (("speed", Interval(6, 8, 9)), ("start-up", Interval(0.5, 1, 4.5)), ("certain", Interval(1, 1, 1)))
OPTION = QuoteOption(
    gpu=GPUS["H100-SXM"],
    gpu_count=1,
    offer=TWO_DOLLARS,
    duration=Duration(hours=HOURS, startup_hours=PARTS[1][1], train_hours=PARTS[0][1], parts=PARTS),
    hours=HOURS,
    usd=SPENT,
)


def test_the_assumption_with_the_widest_hours_is_named_with_its_money() -> None:
    said = explain_uncertainty(OPTION)
    assert said is not None
    assert said.startswith("start-up matters most")
    assert "$8.00 (4.00 h)" in said


def test_where_nothing_is_uncertain_nothing_is_named() -> None:
    certain = Duration(hours=HOURS, startup_hours=HOURS, train_hours=HOURS, parts=(("speed", Interval.exactly(3)),))
    assert explain_uncertainty(replace(OPTION, duration=certain)) is None
    assert explain_uncertainty(replace(OPTION, usd=None)) is None


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


def test_money_is_machines_of_all_nodes_and_the_disk_of_each_to_the_nano_dollar() -> None:
    disk = StorageRate(provider="acme", nano_per_gb_month=100_000_000)
    usd, stored = price_option(TWO_DOLLARS, 3, Interval.exactly(7.3), disk, 100)
    assert stored is not None
    assert usd is not None
    assert stored.expected == Money.parse("0.3")  # 3 x 100 GB x $0.10 x 7.3 h / 730 h
    assert usd.expected == Money.parse("44.1")  # 3 x $2 x 7.3 h, and the disk


def test_a_price_that_is_unknown_gives_no_money() -> None:
    assert price_option(replace(TWO_DOLLARS, rate=None), 1, HOURS, None, 0) == (None, None)
    assert price_option(TWO_DOLLARS, 1, None, None, 0) == (None, None)


def test_a_stated_count_scales_the_work_of_the_layers() -> None:
    counted = LLAMA_2_7B.computed_parameters
    layers = sum(b.layers * b.parameters_each for b in LLAMA_2_7B.blocks)
    twice = replace(LLAMA_2_7B, stated_params=counted + layers)
    plain, larger = (count_flops_per_token(a, Recipe(attention="flash")) for a in (LLAMA_2_7B, twice))
    matrices = sum(b.layers * (b.attention_parameters + 3 * 4096 * 11008) for b in LLAMA_2_7B.blocks)
    assert larger.forward - plain.forward == pytest.approx(2 * matrices, rel=1e-6)
