"""However a report is asked for, its parts are the ledger's own sum of the period, to the nano-unit: over simulated worlds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Decimal
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from costguard.ledger.reports.reader import ReportReader
from costguard.ledger.spans.writer import LedgerWriter
from costguard.renderers import json_text
from costguard.reporting.statement.groups import GROUP_KEYS, CurrencySums, get_group_value
from costguard.reporting.statement.period import ReportPeriod
from costguard.reporting.statement.sections import ResourceCost
from costguard.reporting.statement.statement import Statement
from costguard.services.report.report import ReportQuestion, build_full_statement
from costguard.values.calendar import Period
from costguard.values.instant import from_micros, to_micros
from costguard.values.money import MoneyInterval, sum_intervals
from costguard.views.document import STACKED
from costguard.views.report import build_report_document
from tests.campaign import examples
from tests.providers.sim import worlds
from tests.providers.sim.test_worlds_in_databases import polls_of

SEEDS = range(60)
ZONES = (UTC, ZoneInfo("Europe/Berlin"), ZoneInfo("Asia/Kathmandu"))
KEYS = (*GROUP_KEYS, "label:team", "label:Run", "label:nothing")


@pytest.fixture(scope="module")
def accounts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ReportReader, Path, datetime, datetime]]:
    """Sixty worlds in one ledger, and the first and the last instant of them."""
    polls = [poll for seed in SEEDS for poll in polls_of(seed)]
    path = tmp_path_factory.mktemp("worlds") / "ledger.db"
    with LedgerWriter(f"sqlite:///{path}", rules=worlds.rules(), ceilings=worlds.CEILINGS) as ledger:
        ledger.record_polls(polls)
    ats = [to_micros(poll.at) for poll in polls]
    with ReportReader(f"sqlite:///{path}", rules=worlds.rules(), ceilings=lambda: worlds.CEILINGS) as found:
        yield found, path, from_micros(min(ats)), from_micros(max(ats))


def stated(
    books: ReportReader, period: Period, by: list[str], *, as_of: datetime, zone: tzinfo = UTC, drawn: bool = False
) -> Statement:
    question = ReportQuestion(
        asked=ReportPeriod(period=period, label="drawn"),
        by=tuple(by),
        zone=zone,
        as_of=as_of,
        pause=timedelta(minutes=5),
        group_from=("label:run",),
        drawn=drawn,
    )
    return build_full_statement(accounts=books, question=question, rules=worlds.rules())


def sums(statement: Statement) -> dict[str, CurrencySums]:
    return {one.currency: one for one in (statement.usd, *statement.others)}


def nanos(money: MoneyInterval) -> tuple[int, int, int]:
    return money.low.nano, money.expected.nano, money.high.nano


@given(
    by=st.lists(st.sampled_from(KEYS), min_size=1, max_size=5, unique=True),
    when=st.tuples(st.floats(0, 1), st.floats(0.01, 24 * 80), st.floats(0, 1)),
    zone=st.sampled_from(ZONES),
)
@example(by=["provider"], when=(1.0, 1.0, 0.0), zone=UTC)
@settings(max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_groups_add_up_to_the_ledger_by_whatever_they_are_asked_for(
    accounts: tuple[ReportReader, Path, datetime, datetime], by: list[str], when: tuple[float, float, float], zone: tzinfo
) -> None:
    """`when`: where the period begins, how many hours it has, and how late before the last poll it is asked about."""
    (books, _, first, last), (place, hours, late) = accounts, when
    start = from_micros(to_micros(first) + int((to_micros(last) - to_micros(first)) * place))
    period = Period(start=start, end=start + timedelta(hours=hours))
    as_of = max(start, from_micros(to_micros(last) - int(late * 3600 * 10**6)))
    made = stated(books, period, by, as_of=as_of, zone=zone, drawn=True)
    spending, outlays = books.load_spending(period, as_of), books.load_costs(period, as_of)
    for currency, own in sums(made).items():
        mine = [part for part in spending if part.money.low.currency == currency]
        whole = sum_intervals((part.money for part in mine), currency)
        assert nanos(own.total) == nanos(whole)
        assert nanos(sum_intervals((group.money for group in own.groups), currency)) == nanos(whole)
        assert sum(group.us for group in own.groups) == sum(part.us for part in mine if part.charge == "compute")
        each = [one for one in outlays if one.currency == currency]
        assert nanos(sum_intervals((one.to_spending(None).money for one in each), currency)) == nanos(whole)
        priced = [one.money for one in made.prices if one.money.low.currency == currency]
        assert nanos(sum_intervals(priced, currency)) == nanos(whole)
    assert (made.days is None) == (as_of <= start), "of what has not begun nothing is drawn"
    if made.days is not None:
        assert sum(map(sum, made.days.parts.values())) == made.usd.total.expected.nano
    _values_are_those_of_the_outlays(made, outlays)
    _is_told(made)


def _values_are_those_of_the_outlays(made: Statement, outlays: list[ResourceCost]) -> None:
    """Keys that the ledger keeps take the same values whether resources are told apart or not."""
    for key in made.by:
        if key in ("provider", "gpu", "charge", "kind", "tier"):
            known = {get_group_value(one.to_spending(None), key) for one in outlays if one.high or one.computes}
            assert {group.by[key] for own in sums(made).values() for group in own.groups} == known


def _is_told(made: Statement) -> None:
    document = build_report_document(made)
    said = json.loads(json_text.render(document))
    groups = [Decimal(group["usd"]["expected"]) for group in said["groups"]]
    assert sum(groups) == Decimal(said["totals"]["expected"]) == made.usd.total.expected.to_decimal()
    for chart in document.charts:
        assert all(len(series.values) == len(chart.labels) == len(series.texts) for series in chart.series)
        if chart.kind == STACKED and chart.unit == "$":
            drawn = sum(value or 0 for series in chart.series for value in series.values)
            assert drawn == pytest.approx(float(made.usd.total.expected.to_decimal()), abs=1e-5)


def test_burn_by_the_hour_comes_to_what_was_spent(accounts: tuple[ReportReader, Path, datetime, datetime]) -> None:
    """Mean dollars an hour of each hour of the week, times how many there were."""
    books, _, first, last = accounts
    start = first.replace(minute=0, second=0, microsecond=0)
    period = Period(start=start, end=start + timedelta(weeks=4))
    made = stated(books, period, ["provider"], as_of=max(last, period.end), drawn=True)
    assert made.burn is not None
    burnt = sum(4 * (cell or 0.0) for row in made.burn.cells for cell in row)
    assert burnt == pytest.approx(float(made.usd.total.expected.to_decimal()), rel=1e-3, abs=0.05)


@pytest.mark.proof
def test_hours_before_anybody_looked_do_not_thin_the_burn_of_those_after(
    accounts: tuple[ReportReader, Path, datetime, datetime],
) -> None:
    books, _, first, last = accounts
    month, longer = (
        stated(books, Period(start=first - timedelta(weeks=n), end=last), ["provider"], as_of=last, drawn=True) for n in (5, 9)
    )
    assert month.burn is not None
    assert longer.burn is not None
    assert month.burn.cells == longer.burn.cells
