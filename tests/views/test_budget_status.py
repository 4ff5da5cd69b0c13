"""Budgets as people read them: what is spent, what is left, and the day on which the cap is reached."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction

from costguard.budgets.budget import MONTH, Budget
from costguard.budgets.budget_status import BudgetStatus, list_budget_warnings
from costguard.budgets.spend_forecast import WEEKS
from costguard.values.calendar import Period
from costguard.values.money import Money, MoneyInterval, parse_exchange_rate
from costguard.views.budget_status import build_budget_data, build_budget_table, describe_budget_spend
from costguard.views.document import DOUBTFUL, OVER, PLAIN


def exact(dollars: str) -> MoneyInterval:
    money = Money.parse(dollars)
    return MoneyInterval(low=money, expected=money, high=money)


NOON = datetime(2026, 11, 2, 12, tzinfo=UTC)
STANDING = BudgetStatus(
    budget=Budget(name="all", cap=Money.parse("200"), period=MONTH),
    period=Period(start=datetime(2026, 11, 1, tzinfo=UTC), end=datetime(2026, 12, 1, tzinfo=UTC)),
    spent=exact("150"),
    burn=exact("10"),
    holds=Money.parse("20"),
    forecast=exact("199"),
    if_unchanged=exact("250"),
    basis=WEEKS,
    fraction=Fraction(3, 4),
    pace=None,
    time_to_cap_hours=Fraction(5),
)


def test_the_table_has_the_worst_case_only_where_it_was_asked_for() -> None:
    asked, plain = build_budget_table((STANDING,), {}, NOON), build_budget_table((STANDING,), None, NOON)
    assert set(asked.columns) - set(plain.columns) == {"overshoot max>"}
    assert "2026-11-02 17:00 UTC" in plain.rows[0]
    assert "30.00" in plain.rows[0]


def test_a_row_has_the_tone_of_its_budget() -> None:
    over = replace(STANDING, spent=exact("250"), fraction=Fraction(5, 4))
    calm = replace(STANDING, time_to_cap_hours=None, pace=Fraction(0), forecast=exact("160"))
    tones = build_budget_table((over, STANDING, calm), None, NOON).tones
    assert tones[0] == OVER
    assert set(tones) <= {OVER, DOUBTFUL, PLAIN}


def test_a_cap_in_euros_is_shown_with_its_spending_in_euros_and_its_data_in_dollars() -> None:
    rate = parse_exchange_rate("1 USD = 0.5 EUR on 2026-11-01 (ECB)", "rates")
    budget = replace(STANDING.budget, cap_stated=Money.parse("100", "EUR"), rate=rate)
    standing = replace(STANDING, budget=budget)
    table = build_budget_table((standing,), {"all": Money.parse("8")}, NOON)
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert table.title == "Budgets, at 0.5 EUR to the dollar on 2026-11-01 (ECB)"
    assert [row[name] for name in ("cap>", "spent>", "holds>", "left>")] == ["100.00 EUR", "75.00", "10.00", "15.00"]
    data = build_budget_data(standing)
    assert (data["cap"], data["currency"], data["left"]) == ("200.00", "USD", "30.00")
    assert data["cap_stated"] == {
        "amount": "100.00",
        "currency": "EUR",
        "rate": "at 0.5 EUR to the dollar on 2026-11-01 (ECB)",
    }
    assert build_budget_data(STANDING)["cap_stated"] is None
    assert describe_budget_spend(standing).endswith(", at 0.5 EUR to the dollar on 2026-11-01 (ECB)")
    (warning,) = list_budget_warnings(standing)
    assert warning.says.startswith("the cap of 100.00 EUR (200.00 USD at 0.5 EUR to the dollar on 2026-11-01 (ECB)) is reached")
