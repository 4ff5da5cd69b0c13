"""A statement's groups add up to its totals to the nano-unit, and currencies stay apart."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costguard.errors import InputError
from costguard.metering.inventory import find_coverage_gaps, find_uncovered_scopes
from costguard.metering.spending import BilledResource, Spending
from costguard.reporting.statement.groups import (
    DEFAULT_GROUP_KEYS,
    GROUP_KEYS,
    needs_resources,
    parse_group_keys,
    sum_by_currency,
)
from costguard.values.calendar import Period
from costguard.values.money import Money, MoneyInterval, sum_intervals
from costguard.values.resource import ResourceKey
from tests.books import AWS, HOUR_US, at, attribution, money, spent, stretch

NOVEMBER = Period(start=at(1), end=at(1, month=12))
PAUSE = timedelta(minutes=5)

some_money = (
    st.lists(st.integers(0, 10**15), min_size=3, max_size=3)
    .map(sorted)
    .map(lambda ends: MoneyInterval(low=Money(nano=ends[0]), expected=Money(nano=ends[1]), high=Money(nano=ends[2])))
)
spendings = st.builds(
    Spending,
    attribution=st.builds(
        attribution,
        st.sampled_from(("aws", "gcp")),
        owner=st.sampled_from(("", "ada", "bob")),
        gpu_count=st.sampled_from((0.125, 1, 8)),
    ),
    charge=st.sampled_from(("compute", "storage")),
    money=some_money,
    us=st.integers(0, 10**13),
    known=st.booleans(),
)


@given(st.lists(spendings, max_size=20), st.lists(st.sampled_from(GROUP_KEYS), min_size=1, unique=True))
def test_groups_add_up_to_the_total_however_they_are_made(parts: list[Spending], by: list[str]) -> None:
    usd, others = sum_by_currency(parts, by)
    assert others == ()
    assert usd.total == sum_intervals(part.money for part in parts) == sum_intervals(group.money for group in usd.groups)
    assert sum(group.us for group in usd.groups) == sum(part.us for part in parts if part.charge == "compute")


def test_what_is_grouped_by_makes_a_group_and_nothing_else_does() -> None:
    parts = [
        spent(money("3"), attribution(owner="ada", region="us-east-1")),
        spent(money("4"), attribution(owner="ada", region="eu-west-1")),
        spent(money("10"), attribution(owner="bob")),
    ]
    usd, _ = sum_by_currency(parts, ("provider", "owner"))
    assert [(dict(group.by), group.money) for group in usd.groups] == [
        ({"provider": "aws", "owner": "bob"}, money("10")),
        ({"provider": "aws", "owner": "ada"}, money("7")),
    ]


def test_a_label_groups_what_carries_it() -> None:
    parts = [spent(money("1"), attribution(labels=(("team", "vision"),))), spent(money("2"))]
    usd, _ = sum_by_currency(parts, ("team",))
    assert [group.by["team"] for group in usd.groups] == ["", "vision"]


def test_hours_are_those_of_instances_and_gpu_hours_count_their_gpus() -> None:
    parts = [
        spent(money("3"), attribution(gpu_count=8), hours=2),
        spent(money("1"), attribution(gpu_count=0.125), hours=4),
        spent(money("1"), hours=5, charge="storage"),
    ]
    (group,) = sum_by_currency(parts, ("provider",))[0].groups
    assert group.us == 6 * HOUR_US
    assert group.gpu_milli_us == (8000 * 2 + 125 * 4) * HOUR_US
    assert group.money == money("5")


def test_another_currency_has_sums_of_its_own() -> None:
    usd, others = sum_by_currency(
        [spent(money("3")), spent(money("4", currency="EUR")), spent(money("5", currency="CHF"))], ("owner",)
    )
    assert usd.total == money("3")
    assert [(other.currency, other.total.expected.format()) for other in others] == [("CHF", "5.00"), ("EUR", "4.00")]


def test_what_only_may_have_been_spent_stays_in_the_upper_bound() -> None:
    perhaps = spent(money("0", "0", "5"), hours=0, charge="storage")
    usd, _ = sum_by_currency([spent(money("1")), perhaps], ("charge",))
    assert (usd.total, [group.by["charge"] for group in usd.groups]) == (money("1", "1", "6"), ["compute", "storage"])


def test_a_price_that_nobody_stated_stays_visible_in_its_group() -> None:
    (group,) = sum_by_currency([spent(money("3")), spent(money("0", "8", "16"), known=False)], ("owner",))[0].groups
    assert group.money == money("3", "11", "19")
    assert group.unknown == money("0", "8", "16")


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        (None, DEFAULT_GROUP_KEYS),
        ("owner", ("owner",)),
        (" Owner , gpu,,owner", ("owner", "gpu")),
        ("project,team", ("project", "team")),
        ("resource,JOB,name", ("resource", "job", "name")),
        ("label:Run, LABEL:run,label:a:b", ("label:Run", "label:run", "label:a:b")),
        ("label:Team,team", ("team",)),
    ],
)
def test_keys_are_read_as_they_are_typed(text: str | None, keys: tuple[str, ...]) -> None:
    assert parse_group_keys(text) == keys


@pytest.mark.parametrize("text", ["label:", "label: ", "tag:owner", f"label:{301 * 'k'}"])
def test_what_names_no_label_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="--by: ") as refused:
        parse_group_keys(text)
    assert "label:KEY" in (refused.value.hint or "")


def test_what_is_told_of_a_resource_groups_what_it_spent() -> None:
    one = BilledResource(
        key=ResourceKey("aws", "123", "r", "i-1"), name="box", labels=(("Run", "7"), ("run", "8")), job="exp-7"
    )
    other = replace(one, key=one.key._replace(id="i-2"), labels=(("run", "8"),), job="")
    parts = [replace(spent(money("3")), bearer=one), replace(spent(money("4")), bearer=other), spent(money("5"))]
    for key, values in {
        "resource": ["", "aws/123/r/i-2", "aws/123/r/i-1"],
        "name": ["box", ""],
        "job": ["", "exp-7"],
        "label:Run": ["8", "", "7"],
        "label:RUN": ["", "8", "7"],
        "label:none": [""],
    }.items():
        usd, _ = sum_by_currency(parts, (key,))
        assert usd.total == money("12")
        assert sorted(group.by[key] for group in usd.groups) == sorted(values), key
    assert needs_resources(("provider", "label:Run"))
    assert not needs_resources(("provider", "team", "charge"))


def test_failed_listings_between_complete_ones_are_a_hole_with_the_last_reason() -> None:
    polls = [
        stretch(at(1), at(3, 12)),
        stretch(at(3, 12, 5), at(3, 12, 10), "failed", why="refused"),
        stretch(at(3, 12, 15), at(3, 14, 59), "failed", why="timeout"),
        stretch(at(3, 15), at(30, 23, 59)),
    ]
    (hole,) = find_coverage_gaps(polls, NOVEMBER, PAUSE)
    assert (hole.period, hole.why) == (Period(start=at(3, 12), end=at(3, 15)), "timeout")


def test_partial_listings_leave_a_hole_where_none_was_complete() -> None:
    polls = [stretch(at(1), at(2)), stretch(at(2), at(1, month=12), "partial")]
    (hole,) = find_coverage_gaps(polls, NOVEMBER, PAUSE)
    assert (hole.period.start, hole.why) == (at(2), "partial")


def test_the_time_before_the_first_look_and_after_the_last_are_holes() -> None:
    first, last = find_coverage_gaps([stretch(at(5), at(20))], NOVEMBER, PAUSE)
    assert (first.period, first.why) == (Period(start=at(1), end=at(5)), "")
    assert last.period == Period(start=at(20), end=at(1, month=12))


def test_a_scope_is_judged_only_as_far_as_the_period_has_passed() -> None:
    assert find_uncovered_scopes([AWS], [stretch(at(1), at(10))], NOVEMBER, as_of=at(10, 0, 4), pause=PAUSE) == ()
    (late,) = find_uncovered_scopes([AWS], [stretch(at(1), at(10))], NOVEMBER, as_of=at(10, 3), pause=PAUSE)
    assert (late.length, late.never) == (timedelta(hours=3), False)
    assert find_uncovered_scopes([AWS], [], NOVEMBER, as_of=at(1, month=10), pause=PAUSE) == ()
