"""Each cause of drift is named where it was put in on purpose, and not where it was not; the parts add up to the difference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.widths import describe_widths
from costguard.bills import reconciliation as causes
from costguard.bills.bill_line import COMPUTE, CREDIT, STORAGE, TAX
from costguard.bills.bill_line import OTHER as OTHER_CHARGE
from costguard.bills.drift import (
    AFTER,
    BEFORE,
    BEYOND,
    DEFAULT_TOLERANCE,
    INSIDE,
    UNSURE,
    WITHIN,
    BilledLines,
    CauseContext,
    ChargedCell,
    DriftPart,
    DriftResult,
    Tolerance,
    parse_tolerance,
)
from costguard.bills.reconciliation import compare_bills, explain_drift
from costguard.bills.simulated_bill import CloudBillCheck, ResourceBillCheck, SimulatedBillCheck
from costguard.errors import InputError
from costguard.values.calendar import Period
from costguard.values.money import NANO, Money, MoneyInterval
from costguard.values.resource import ResourceKey
from costguard.views.bills import OUTSIDE_STATEMENT, Reconciliation, build_reconciliation_document

MONTH = Period(start=datetime(2026, 11, 1, tzinfo=UTC), end=datetime(2026, 12, 1, tzinfo=UTC))
PENNY = 10**7
RATE = 690_000_000
HOURS = 12


def line(nano: int = RATE, **more: Any) -> BilledLines:  # noqa: ANN401 - any field
    said: dict[str, Any] = {
        "account": "main",
        "region": "eu",
        "resource": "pod-1",
        "charge": COMPUTE,
        "currency": "USD",
        "first": 0,
        "last": more.get("first", 0),
        "nano": nano,
        "lines": 1,
        "estimated": 0,
        "step": 0,
        "overlapping": 0,
        "told": "",
    }
    return BilledLines(**said | more)


def owed(nano: int = RATE, **more: Any) -> ChargedCell:  # noqa: ANN401 - any field
    said: dict[str, Any] = {
        "account": "main",
        "region": "eu",
        "resource": "pod-1",
        "charge": COMPUTE,
        "currency": "USD",
        "cell": 0,
        "low": nano,
        "expected": nano,
        "high": nano,
        "where": INSIDE,
        "sku": "4090, secure",
        "price": RATE,
        "unit": "Hours",
        "source": "listing",
    }
    return ChargedCell(**said | more)


def day(count: int = HOURS, **more: Any) -> list[ChargedCell]:  # noqa: ANN401 - any field
    return [owed(cell=hour, **more) for hour in range(count)]


def bill(nano: int = RATE, count: int = HOURS, **more: Any) -> list[BilledLines]:  # noqa: ANN401 - any field
    return [line(nano, first=hour, **more) for hour in range(count)]


def held(stated: Sequence[BilledLines], charged: Sequence[ChargedCell], **more: Any) -> DriftResult:  # noqa: ANN401 - any field
    """The one result in US dollars."""
    (found,) = [one for one in every(stated, charged, **more) if one.currency == "USD"]
    return found


def every(stated: Sequence[BilledLines], charged: Sequence[ChargedCell], **more: Any) -> list[DriftResult]:  # noqa: ANN401 - any field
    billed = {(s.account, s.resource, s.charge): s.currency for s in stated}
    others = {
        place: {currency, c.currency}
        for c in charged
        for place, currency in billed.items()
        if place == (c.account, c.resource, c.charge) and currency != c.currency
    }
    said: dict[str, Any] = {
        "provider": "runpod",
        "period": MONTH,
        "at": MONTH.end,
        "tolerance": DEFAULT_TOLERANCE,
        "known": dict.fromkeys([*((c.account, c.resource) for c in charged), ("main", "pod-known")], -100),
        "accounts": ["main"],
        "others": others,
        "cells": 24,
    }
    judging = CauseContext(**said | more)
    return [explain_drift(one, judging) for one in compare_bills(stated, charged, judging.known)]


def cause(found: DriftResult, name: str) -> DriftPart:
    (part,) = [part for part in found.parts if part.cause == name]
    return part


def names(found: DriftResult) -> set[str]:
    return {part.cause for part in found.parts}


def test_a_bill_that_says_what_was_charged_has_no_drift() -> None:
    found = held(bill(), day())
    assert (found.outcome, found.drift, found.unexplained, found.parts) == (WITHIN, 0, 0, ())


def test_a_bill_within_doubt_is_no_drift() -> None:
    wide = day(low=RATE // 2, high=RATE * 2)
    found = held(bill(RATE * 3 // 2), wide)
    assert (found.outcome, found.unexplained, names(found)) == (WITHIN, 0, {causes.DOUBT})


def test_a_wrong_rate_is_named_with_the_rate_that_would_fit() -> None:
    found = held(bill(760_000_000), day())
    part = cause(found, causes.RATE)
    assert found.outcome == BEYOND
    assert "1.1014 times" in part.reason
    assert "0.7600 an hour would fit, 0.6900 was counted (listing)" in part.reason
    assert (part.sku, part.nano, part.off) == ("4090, secure", HOURS * 70_000_000, HOURS * 70_000_000)


def test_a_wrong_rate_of_one_machine_is_named_where_another_of_its_kind_is_billed_right() -> None:
    stated = [*bill(RATE * 103 // 100), *bill(resource="pod-2"), *bill(RATE * 2, resource="pod-3")]
    found = held(stated, [*day(), *day(resource="pod-2"), *day(resource="pod-3")])
    assert {part.named: part.reason.split(",")[0].split(" in all")[0] for part in found.parts} == {
        ("pod-1",): "the bill is 1.0300 times the charges",
        ("pod-3",): "the bill is 2.0000 times the charges",
    }
    assert names(found) == {causes.RATE}


def test_the_rows_of_a_table_add_up_to_the_account() -> None:
    stated = [*bill(), line(-PENNY, charge=CREDIT, resource=""), line(3 * PENNY, charge=TAX, resource="")]
    found = held(stated, [*day(), owed(where=BEFORE), owed(where=AFTER)])
    told = Reconciliation(period=MONTH, label="2026-11", at=MONTH.end, tolerance=DEFAULT_TOLERANCE, results=(found,))
    rows = build_reconciliation_document(told).records
    assert sum(Decimal(str(row["billed"])) for row in rows) == Decimal(found.billed).scaleb(-9)
    for end, name in enumerate(("low", "expected", "high")):
        assert sum(Decimal(str(row[name])) for row in rows) == Decimal(found.charged[end]).scaleb(-9)
    assert [row["cause"] for row in rows] == [causes.DOUBT, TAX, CREDIT, OUTSIDE_STATEMENT]


@pytest.mark.parametrize(
    "amounts",
    [[RATE] * 11 + [2 * RATE], [0.8 * RATE, 1.2 * RATE, 1.3 * RATE], [2 * RATE]],
    ids=["one hour", "no one ratio", "once"],
)
def test_a_drift_in_no_one_ratio_is_no_wrong_rate(amounts: list[float]) -> None:
    stated = [line(int(nano), first=hour) for hour, nano in enumerate(amounts)]
    found = held(stated, day(len(amounts)))
    assert (names(found), found.outcome) == ({causes.OTHER}, BEYOND)


def test_too_much_of_one_machine_does_not_pay_for_too_little_of_another_of_its_kind() -> None:
    stated = [*bill(), line(), *bill(resource="pod-2")[1:], line(0, resource="pod-2")]
    found = held(stated, [*day(), *day(resource="pod-2")])
    assert (found.drift, found.unexplained, found.outcome) == (0, 2 * RATE, BEYOND)
    assert cause(found, causes.OTHER).off == 2 * RATE


@pytest.mark.parametrize(("kind", "nano"), [(TAX, 19 * PENNY), (CREDIT, -5 * 10**9)])
def test_tax_and_credits_stand_apart(kind: str, nano: int) -> None:
    found = held([*bill(), line(nano, charge=kind, resource="", first=0, last=719)], day())
    part = cause(found, kind)
    assert (part.nano, part.explained, found.outcome, found.unexplained) == (nano, True, WITHIN, 0)


def test_rounding_to_the_cent_is_no_drift_and_more_than_that_is() -> None:
    exactly = 693_400_000
    none = Tolerance(millionths=0, nano=0)
    rounded = held(bill(690_000_000, step=PENNY), day(low=exactly, expected=exactly, high=exactly), tolerance=none)
    assert (names(rounded), rounded.outcome) == ({causes.ROUNDING}, WITHIN)
    more = held(bill(680_000_000, step=PENNY), day(low=exactly, expected=exactly, high=exactly), tolerance=none)
    assert (names(more), more.outcome) == ({causes.RATE}, BEYOND)


def test_lines_that_will_change_and_charges_after_them_are_late() -> None:
    stated = [*bill(count=11), line(RATE // 3, first=11, estimated=1)]
    found = held(stated, [*day(), owed(cell=12, where=AFTER)])
    part = cause(found, causes.LATE)
    assert (part.explained, part.nano, found.outcome) == (True, RATE // 3 - 2 * RATE, WITHIN)
    assert "1 lines are estimated" in part.reason
    settled = held([*bill(count=11), line(RATE // 3, first=11)], day(), tolerance=Tolerance(millionths=0, nano=0))
    assert (names(settled), settled.outcome) == ({causes.OTHER}, BEYOND)


def test_a_machine_that_costguard_never_saw_is_named_with_its_id() -> None:
    found = held([*bill(), line(resource="pod-unseen")], day())
    part = cause(found, causes.UNSEEN)
    assert (part.named, part.nano, found.outcome) == (("pod-unseen",), RATE, BEYOND)
    assert "of an account" not in part.reason
    elsewhere = every([line(account="other")], day())
    assert (
        "that costguard does not poll (other)"
        in next(p for one in elsewhere for p in one.parts if one.account == "other").reason
    )


def test_what_was_billed_before_anybody_looked_stands_apart() -> None:
    known = {("main", "pod-1"): 6}
    found = held(bill(), [owed(cell=hour) for hour in range(6, 12)], known=known)
    part = cause(found, causes.UNWATCHED)
    assert (part.nano, part.explained, found.outcome, found.unexplained) == (6 * RATE, True, WITHIN, 0)
    started = held(bill(2 * RATE), day(), known=known)
    assert names(started) == {causes.RATE}, "where it is known since when it ran, all of it is judged"
    later = held(bill(), [owed(cell=hour) for hour in range(6)], known=known)
    assert (names(later), later.outcome) == ({causes.OTHER, causes.UNWATCHED}, BEYOND)


def test_what_costguard_knows_and_did_not_charge_is_told_apart_from_what_it_never_saw() -> None:
    found = held([*bill(), line(resource="pod-known", told="pods compute")], day())
    assert "knows, without charges at that time: pods compute" in cause(found, causes.NOT_CHARGED).reason


def test_a_line_of_no_resource_is_named_where_other_lines_have_theirs() -> None:
    found = held([*bill(), line(resource="", told="serverless compute")], day())
    part = cause(found, causes.NO_RESOURCE)
    assert (part.nano, part.explained, found.outcome) == (RATE, False, BEYOND)
    assert "serverless compute" in part.reason


def test_a_bill_of_one_amount_for_all_of_a_resource_is_held_against_all_its_charges() -> None:
    """RunPod's v1 states one amount for a pod and its disks, or for all pods of a type of GPU."""
    charged = [*day(), *day(charge=STORAGE)]
    found = held(bill(2 * RATE, charge=OTHER_CHARGE), charged)
    assert (found.drift, found.outcome, found.parts) == (0, WITHIN, ())
    beside = held([*bill(2 * RATE, charge=OTHER_CHARGE), line(charge=STORAGE, first=3)], charged)
    assert beside.outcome == BEYOND, "a resource whose storage has lines of its own is compared by kind"
    pooled = held([line(2 * HOURS * RATE, resource="", charge=OTHER_CHARGE, last=HOURS - 1, region="")], charged)
    assert (pooled.drift, pooled.outcome) == (0, WITHIN)


def test_a_statement_that_names_no_resources_is_held_against_the_region() -> None:
    stated = [line(2 * RATE, resource="", first=0, last=23, told="BoxUsage:g5.xlarge")]
    charged = [owed(cell=cell, resource=f"pod-{n}") for n in range(2) for cell in (3,)]
    found = held(stated, charged)
    assert (found.drift, found.outcome, found.parts) == (0, WITHIN, ())
    other = held([line(RATE, resource="", region="us")], charged)
    assert {causes.NO_RESOURCE, causes.UNBILLED} == names(other)
    unnamed = held([line(2 * RATE, resource="", region="", first=3)], charged)
    assert unnamed.drift == 0


def test_a_charge_without_a_line_is_named_where_it_surely_billed() -> None:
    found = held(bill(), [*day(), owed(resource="pod-2")])
    part = cause(found, causes.UNBILLED)
    assert (part.named, part.nano, found.outcome) == (("pod-2",), -RATE, BEYOND)
    perhaps = held(bill(), [*day(), owed(resource="pod-2", low=0)])
    assert (names(perhaps), perhaps.outcome) == ({causes.DOUBT}, WITHIN)


def test_another_currency_is_never_added() -> None:
    both = every(bill(currency="EUR"), day())
    assert {one.currency for one in both} == {"EUR", "USD"}
    for one in both:
        assert one.outcome == UNSURE
        assert "currencies are not added" in one.why
    euros = next(one for one in both if one.currency == "EUR")
    assert (euros.billed, euros.charged) == (HOURS * RATE, (0, 0, 0))


def test_lines_that_lie_over_each_other_are_named() -> None:
    stated = [*bill(), line(HOURS * RATE, first=0, last=23, overlapping=HOURS)]
    found = held(stated, day())
    assert (names(found), found.outcome) == ({causes.OVERLAP}, BEYOND)
    assert f"{HOURS} lines overlap others" in cause(found, causes.OVERLAP).reason


def test_a_bill_that_is_not_whole_and_does_not_fit_says_nothing() -> None:
    found = held(bill(count=6), day(), why="page 2 was lost")
    assert (found.outcome, found.why) == (UNSURE, "the bill is incomplete: page 2 was lost")
    assert held(bill(), day(), why="page 2 was lost").outcome == WITHIN


KINDS = st.sampled_from([COMPUTE, STORAGE, TAX, CREDIT])
NANOS = st.integers(-(10**10), 10**12)
LINES = st.builds(
    line,
    NANOS,
    account=st.sampled_from(["main", "lab"]),
    resource=st.sampled_from(["pod-1", "pod-2", "pod-unseen", ""]),
    region=st.sampled_from(["eu", "us", ""]),
    charge=KINDS,
    currency=st.sampled_from(["USD", "USD", "EUR"]),
    first=st.integers(0, 40),
    estimated=st.integers(0, 1),
    step=st.sampled_from([0, PENNY]),
).map(lambda one: one._replace(last=one.first + one.nano % 3))
CHARGES = st.builds(
    owed,
    st.integers(0, 10**12),
    account=st.sampled_from(["main", "lab"]),
    resource=st.sampled_from(["pod-1", "pod-2", "pod-3"]),
    charge=st.sampled_from([COMPUTE, STORAGE]),
    currency=st.sampled_from(["USD", "USD", "EUR"]),
    cell=st.integers(0, 40),
    where=st.sampled_from([INSIDE, INSIDE, BEFORE, AFTER]),
    sku=st.sampled_from(["a", "b"]),
).map(lambda one: one._replace(low=one.expected // 2, high=one.expected * 2))


@given(st.lists(LINES, max_size=25), st.lists(CHARGES, max_size=25))
def test_the_parts_of_every_result_add_up_to_its_drift(stated: list[BilledLines], charged: list[ChargedCell]) -> None:
    results = every(stated, charged)
    for one in results:
        assert sum(part.nano for part in one.parts) == one.drift
        assert one.charged[0] <= one.charged[1] <= one.charged[2]
        assert one.unexplained == sum(part.off for part in one.parts if not part.explained) >= 0
    for currency in ("USD", "EUR"):
        mine = [one for one in results if one.currency == currency]
        assert sum(one.billed for one in mine) == sum(s.nano for s in stated if s.currency == currency)
        assert sum(one.charged[1] for one in mine) == sum(c.expected for c in charged if c.currency == currency)


@pytest.mark.parametrize(
    ("text", "bill_nano", "allowed"),
    [("2%", 10**11, 2 * 10**9), ("0.50", 10**11, 5 * 10**8), ("1%, 0.10", 10**9, 10**8), ("0.10,1%", -(10**12), 10**10)],
)
def test_a_tolerance_is_a_part_an_amount_or_both(text: str, bill_nano: int, allowed: int) -> None:
    assert parse_tolerance(text, "--tolerance").compute_allowed(bill_nano) == allowed


@pytest.mark.parametrize("text", ["", "x", "-1%", "1,5", "200%", "1%, 2%", "0.1, 0.2", "1e3", "%", "٣%"])
def test_what_is_no_tolerance_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"tolerance|whole bill"):
        parse_tolerance(text, "--tolerance")


def _check(low: str, high: str, billed: str) -> ResourceBillCheck:
    money = MoneyInterval(low=Money.parse(low), expected=Money.parse(low), high=Money.parse(high))
    return ResourceBillCheck(key=ResourceKey("sim-aws", "a", "r", "i"), money=money, billed=Fraction(billed), spans=1)


def _played(*resources: ResourceBillCheck) -> SimulatedBillCheck:
    period = Period(start=datetime(2026, 11, 1, tzinfo=UTC), end=datetime(2026, 11, 15, tzinfo=UTC))
    clouds = (CloudBillCheck(provider="sim-aws", resources=resources),)
    return SimulatedBillCheck(seed=1, period=period, scopes=1, listings=1, faults={}, met={}, clouds=clouds)


def test_the_width_is_a_share_of_the_bill_and_unknown_where_nothing_was_billed() -> None:
    assert _check("1.00", "1.50", "1.25").width == Fraction(2, 5)
    assert _check("0.00", "1.50", "0").width is None


def test_the_median_leaves_out_what_was_not_billed() -> None:
    played = _played(_check("1", "1", "1"), _check("1", "2", "1"), _check("1", "4", "1"), _check("0", "9", "0"))
    assert played.width_median == 1
    assert _played(_check("0", "9", "0")).width_median is None


def test_the_bench_says_what_makes_intervals_wide() -> None:
    causes: Counter[tuple[str, ...]] = Counter(
        {("sim-aws", "compute", "edge", "stated"): 3 * NANO, ("sim-aws", "storage", "gap", "stated"): NANO}
    )
    told = describe_widths([_played(_check("1", "1", "1"), _check("1", "2", "1"), _check("1", "4", "1"))], causes)
    assert told[0] == "seed 1: median width 100.00% of the bill"
    assert "3 resources: median 100.00%" in told[1]
    assert " 75.0% of the width in dollars: sim-aws, compute, edge, stated" in told
