"""Whether a budget is over is decided by what is expected; a status of very many machines shows the most expensive ones."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC

import pytest

from costguard.reporting.status import build_fleet_status
from costguard.values.calendar import find_month
from costguard.values.money import Money, MoneyInterval
from costguard.views.status import ROWS_MAX, build_status_document
from costguard.views.status_line import build_over_budget_error
from tests.books import NOW, live, meter
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


@pytest.mark.parametrize("count", [ROWS_MAX, ROWS_MAX + 3])
def test_the_table_has_the_most_expensive_machines_and_the_data_have_all(count: int) -> None:
    machines = [live(f"i-{number}", meter(10**9 + number)) for number in range(count)]
    month = find_month(NOW, UTC)
    status = build_fleet_status(at=NOW, month=month, zone=UTC, spending=(), live=machines, scopes=())
    document = build_status_document(status)
    table, shown = document.tables[0], [f"i-{number}" for number in reversed(range(count))][:ROWS_MAX]
    place = table.columns.index("resource")
    assert [row[place] for row in table.rows] == shown
    assert len(document.records) == count
    assert any(f"of {count} machines are shown" in note for note in document.notes) == (count > ROWS_MAX)
