"""The report flow: a period's sums, and how far they can speak for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from costguard.metering.billing import CAREFUL_RULE
from costguard.reporting.statement.groups import DEFAULT_GROUP_KEYS
from costguard.reporting.statement.statement import Statement
from costguard.values.money import Money
from tests.books import AWS, NOW, VAST, FakeBooks, at, money, scope_now, spent, state_month, stretch

RULES = {"aws": replace(CAREFUL_RULE, provider="aws", not_counted=("snapshots",))}
AFTER = at(3, month=12)


def stated(
    books: FakeBooks, *, as_of: datetime = AFTER, of: tuple[int, int] = (2026, 11), by: Sequence[str] = DEFAULT_GROUP_KEYS
) -> Statement:
    return state_month(books, of, by, as_of, RULES)


def test_a_scope_with_a_hole_makes_it_incomplete() -> None:
    found = stated(FakeBooks(known=(scope_now(),), polled=(stretch(at(1), at(9)), stretch(at(10), AFTER))))
    assert found.incomplete
    assert [unseen.length for unseen in found.unseen] == [timedelta(days=1)]


def test_the_running_month_is_judged_as_far_as_it_has_come() -> None:
    found = stated(FakeBooks(known=(scope_now(),), polled=(stretch(at(1), NOW),)), as_of=NOW)
    assert (found.running, found.incomplete) == (True, False)


def test_a_month_that_lies_ahead_is_zero_and_nobody_is_blamed_for_it() -> None:
    found = stated(FakeBooks(known=(scope_now(),), polled=(stretch(at(1), NOW),)), as_of=NOW, of=(2027, 3))
    assert (found.ahead, found.blank, found.incomplete) == (True, False, False)
    assert found.usd.total.high == Money.parse(0)
    assert found.not_modelled == ()


def test_a_month_before_the_first_look_is_blank() -> None:
    found = stated(FakeBooks(known=(scope_now(),), polled=(stretch(at(1), NOW),)), as_of=NOW, of=(2026, 3))
    assert (found.blank, found.incomplete) == (True, True)
    assert found.unseen[0].never


def test_money_that_a_provider_dated_back_is_not_blank() -> None:
    found = stated(FakeBooks(spent=(spent(money("3")),), known=(scope_now(),)), as_of=NOW, of=(2026, 10))
    assert (found.blank, found.incomplete) == (False, True)


def test_each_provider_says_what_its_rule_leaves_out() -> None:
    books = FakeBooks(spent=(spent(money("3")),), known=(scope_now(VAST), scope_now(AWS)))
    found = stated(books).not_modelled
    assert found[0] == ("aws", "snapshots")
    assert [provider for provider, _ in found] == ["aws", "vast"]
    assert found[1][1] == CAREFUL_RULE.not_counted[0]
