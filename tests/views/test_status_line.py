"""Whether a budget is over is decided by what is expected, and said with what it may be."""

from __future__ import annotations

from dataclasses import replace

import pytest

from costguard.values.money import Money, MoneyInterval
from costguard.views.status_line import build_over_budget_error
from tests.views.test_budget_status import STANDING


@pytest.mark.parametrize(
    ("low", "expected", "high", "over"),
    [("10", "199", "900", False), ("10", "200", "200", False), ("10", "201", "900", True), ("300", "300", "300", True)],
    ids=["may be over", "at the cap", "expected to be over", "certainly over"],
)
def test_a_budget_is_over_where_more_than_its_cap_is_expected_to_be_spent(
    low: str, expected: str, high: str, *, over: bool
) -> None:
    spent = MoneyInterval(low=Money.parse(low), expected=Money.parse(expected), high=Money.parse(high))
    error = build_over_budget_error((replace(STANDING, spent=spent), STANDING))
    assert (error is not None) == over
    if error is not None:
        assert f"all: ${expected}.00" in str(error)
        assert "of $200.00" in str(error)
        assert (f"({low}.00 to {high}.00)" in str(error)) == (low != high)
