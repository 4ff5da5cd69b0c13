"""The status flow: one question a period, and budgets counted with holds and doubt."""

from __future__ import annotations

from datetime import UTC
from zoneinfo import ZoneInfo

from costguard.budgets.budget import Budget, ResourceFilter
from costguard.budgets.hold import Hold
from costguard.services.guarding.status import build_status
from costguard.values.calendar import find_day, find_month
from costguard.values.money import Money
from tests.books import NOW, FakeBooks, at, attribution, live, meter, money, spent

HOLD = Hold(id="h1", money=Money.parse(12), who="ada", why="run", taken_at=at(21, 11), expires_at=at(21, 18))


def test_the_month_is_asked_for_in_the_zone_as_known_now() -> None:
    books, zone = FakeBooks(), ZoneInfo("Europe/Berlin")
    found = build_status(books=books, now=NOW, zone=zone)
    assert books.asked == ((find_month(NOW, zone), NOW),)
    assert found.month == find_month(NOW, zone)


def test_budgets_of_one_period_share_a_question() -> None:
    books = FakeBooks()
    budgets = [Budget(name=n, cap=Money.parse(40), period=p) for n, p in (("a", "day"), ("b", "day"), ("c", "month"))]
    found = build_status(books=books, budgets=budgets, now=NOW, zone=UTC)
    assert [period for period, _ in books.asked].count(find_day(NOW, UTC)) == 1
    assert [standing.budget.name for standing in found.budgets] == ["a", "b", "c"]


def test_a_budget_counts_what_matches_it_with_its_burn_and_its_holds() -> None:
    books = FakeBooks(
        spent=(spent(money("5", "6", "7")), spent(money("100"), attribution(owner="bob"))),
        resources=(live("i-1", meter(2 * 10**9)), live("i-2", meter(50 * 10**9), owner="bob")),
    )
    budget = Budget(name="ada", cap=Money.parse(40), period="day", match=ResourceFilter(owners=("ada",)))
    (found,) = build_status(books=books, budgets=[budget], holds=[HOLD], now=NOW, zone=UTC).budgets
    assert (found.spent, found.burn, found.holds) == (money("5", "6", "7"), money("2"), Money.parse(12))
    assert found.forecast == money("29", "30", "31")
