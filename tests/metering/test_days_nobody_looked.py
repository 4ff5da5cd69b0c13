"""A day of a report's chart that nobody looked at is not known; a day that was looked at and cost nothing is zero."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest

from costguard.metering.inventory import CoverageGap, UncoveredScope
from costguard.reporting.statement.history import CostByDay
from costguard.values.calendar import Period
from costguard.values.resource import ScopeKey
from costguard.views.document import STACKED
from costguard.views.report_charts import list_report_charts
from tests.reporting.test_figures import SPENT

FIRST = datetime(2026, 10, 1, tzinfo=UTC)
DAYS = CostByDay(
    by="owner", days=tuple(date(2026, 10, n) for n in range(1, 5)), parts={"ada": (0, 0, 5 * 10**9, 0), "ben": (0,) * 4}
)


def hole(begin: int, end: int, scope: str = "one") -> UncoveredScope:
    """Days `begin` to `end`, the last not among them, of one scope."""
    of = Period(start=FIRST + timedelta(days=begin), end=FIRST + timedelta(days=end))
    return UncoveredScope(scope=ScopeKey("acme", "lab", scope), holes=(CoverageGap(period=of),))


@pytest.mark.parametrize(
    ("scopes", "unseen", "values"),
    [
        (1, (), (0.0, 0.0, 5.0, 0.0)),
        (1, (hole(0, 2),), (None, None, 5.0, 0.0)),
        (1, (hole(0, 4),), (None, None, 5.0, None)),
        (2, (hole(0, 4),), (0.0, 0.0, 5.0, 0.0)),
        (2, (hole(0, 2), hole(1, 4, "two")), (0.0, None, 5.0, 0.0)),
    ],
    ids=["all seen", "two unseen", "what is known stands", "another scope was seen", "both unseen"],
)
def test_a_day_is_unknown_where_no_scope_was_seen_and_nothing_is_known(
    scopes: int, unseen: tuple[UncoveredScope, ...], values: tuple[float | None, ...]
) -> None:
    chart = next(iter(list_report_charts(replace(SPENT, days=DAYS, scopes=scopes, unseen=unseen))))
    assert chart.kind == STACKED
    assert chart.series[0].values == values
    assert [text == "" for text in chart.series[1].texts] == [value is None for value in values]
