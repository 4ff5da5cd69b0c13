"""The large numbers of a report: each with its bounds, its comparison, and what is not known said as that."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from costguard.budgets.spend_forecast import WEEKS, SpendForecast
from costguard.reporting.statement.groups import CostGroup, CurrencySums
from costguard.reporting.statement.savings import Savings
from costguard.reporting.statement.sections import PreviousPeriod, StoppedDiskCost
from costguard.reporting.statement.statement import Statement
from costguard.reporting.statement.waste import Waste
from costguard.values.calendar import Period
from costguard.values.instant import HOUR_US
from costguard.values.money import Money, MoneyInterval
from costguard.values.resource import Attribution
from costguard.views.document import HeadlineFigure
from costguard.views.report import build_report_document
from costguard.views.report_sections import list_headline_figures

OCTOBER = Period(start=datetime(2026, 10, 1, tzinfo=UTC), end=datetime(2026, 11, 1, tzinfo=UTC))
SEPTEMBER = Period(start=datetime(2026, 9, 1, tzinfo=UTC), end=OCTOBER.start)


def money(low: str, expected: str, high: str, currency: str = "USD") -> MoneyInterval:
    return MoneyInterval(
        low=Money.parse(low, currency), expected=Money.parse(expected, currency), high=Money.parse(high, currency)
    )


def sums(total: MoneyInterval, computing: int = 0, waste: Waste | None = None) -> CurrencySums:
    group = CostGroup(by={"owner": "ada"}, money=total, us=1, gpu_milli_us=1, computing=computing, waste=waste)
    return CurrencySums(total=total, groups=(group,))


SPENT = Statement(
    period=OCTOBER,
    label="2026-10",
    zone="UTC",
    as_of=OCTOBER.end,
    by=("owner",),
    usd=sums(money("90", "100", "120")),
    scopes=1,
)
SAME = money("80", "80", "80")
BEFORE = PreviousPeriod(period=SEPTEMBER, label="2026-09", usd=sums(SAME), part=sums(SAME), seen=True, part_seen=True)


def of(statement: Statement, name: str) -> HeadlineFigure:
    (figure,) = (one for one in list_headline_figures(statement) if one.name.startswith(name))
    return figure


def test_what_was_spent_stands_with_its_bounds_and_each_currency_by_itself() -> None:
    figures = list(list_headline_figures(replace(SPENT, others=(sums(money("5", "5", "5", "EUR")),))))
    assert figures == [
        HeadlineFigure(name="Spent", text="$100.00", note="between $90.00 and $120.00"),
        HeadlineFigure(name="Spent", text="EUR 5.00"),
    ]


AHEAD = SpendForecast(total=money("150", "150", "200"), if_unchanged=money("900", "900", "900"), basis=WEEKS)


def test_a_running_period_says_so_far_and_what_it_comes_to() -> None:
    running = replace(SPENT, as_of=datetime(2026, 10, 20, tzinfo=UTC), forecast=(AHEAD,))
    assert of(running, "Spent so far").text == "$100.00"
    assert of(running, "Forecast") == HeadlineFigure(name="Forecast", text="$150.00", note="between $150.00 and $200.00")


@pytest.mark.parametrize(
    ("was", "text", "note"),
    [
        ("80", "+$20.00", "from $80.00; +25%"),
        ("125", "-$25.00", "from $125.00; -20%"),
        ("100", "$0.00", "from $100.00; +0%"),
        ("0.01", "+$99.99", "from $0.01"),
        ("0", "+$100.00", "from $0.00"),
    ],
)
def test_the_change_has_its_sign_and_a_share_that_says_something(was: str, text: str, note: str) -> None:
    then = sums(money(was, was, was))
    figure = of(replace(SPENT, before=replace(BEFORE, usd=then, part=then)), "Against 2026-09")
    assert (figure.text, figure.note) == (text, note)


def test_idle_is_of_what_could_be_judged_and_not_known_where_nothing_was() -> None:
    nano = 10**9
    waste = Waste(
        attribution=Attribution(provider="aws", account="1", region="us", kind="instance"),
        currency="USD",
        judged=50 * nano,
        idle=20 * nano,
        partly=5 * nano,
    )
    judged = replace(SPENT, usd=sums(SAME, computing=80 * nano, waste=waste))
    assert of(judged, "Idle") == HeadlineFigure(
        name="Idle", text="$20.00", note="and $5.00 partly idle, of the 62% with known activity"
    )
    assert of(replace(SPENT, usd=sums(SAME, computing=80 * nano)), "Idle").text == "not known"
    assert [one for one in list_headline_figures(SPENT) if one.name == "Idle"] == [], "nothing computed"


@pytest.mark.parametrize(
    ("power_hours", "text", "kwh"),
    [
        (2, "(2.0 h, GPUs drew 1.20 kWh)", 1.2),
        (1, "(2.0 h, GPUs drew 1.20 kWh in the 1.0 h with samples of power)", 1.2),
        (0, "(2.0 h, kWh of GPUs unknown: no samples of power)", None),
    ],
)
def test_the_energy_of_idle_time_says_what_it_is_of(power_hours: int, text: str, kwh: float | None) -> None:
    waste = Waste(
        attribution=Attribution(provider="aws", account="1", region="us", kind="instance"),
        currency="USD",
        judged=10**9,
        idle=10**9,
        partly=0,
        idle_us=2 * HOUR_US,
        idle_energy_j=1.2 * 3.6e6 if power_hours else 0,
        power_us=power_hours * HOUR_US,
    )
    document = build_report_document(replace(SPENT, usd=sums(SAME, computing=10**9, waste=waste)))
    assert any(text in line for line in document.lead)
    (group,) = document.records
    assert (group["idle_kwh"], group["idle_kwh_hours"]) == (kwh, power_hours)


def test_disks_at_rest_and_what_the_guard_saved() -> None:
    more = replace(
        SPENT, rest=StoppedDiskCost(money=(money("1", "2", "2"),), machines=1), saved=Savings(net=(money("-3", "-1", "4"),))
    )
    assert of(more, "Disks") == HeadlineFigure(
        name="Disks of stopped machines", text="$2.00", note="between $1.00 and $2.00; 1 machine"
    )
    assert of(more, "Saved") == HeadlineFigure(name="Saved by the guard", text="-$1.00", note="between -$3.00 and $4.00")
