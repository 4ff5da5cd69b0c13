"""What a period cost: sums from the ledger, how much of the period they can speak for, and what is said beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, tzinfo

from costguard.metering.billing import BillingRule, get_billing_rule
from costguard.metering.coverage import find_uncovered_scopes
from costguard.metering.inventory import POLL_AHEAD_MAX
from costguard.metering.spending import Spending
from costguard.reporting.statement import CurrencySums, Statement, list_providers, sum_by_currency
from costguard.reporting.statement.groups import needs_resources
from costguard.reporting.statement.period import ReportPeriod
from costguard.reporting.statement.sections import (
    PreviousPeriod,
    ResourceCost,
    compute_stopped_disk_cost,
    find_stopped_with_disks,
    list_quoted_runs,
    sum_by_price_source,
    sum_resource_costs,
)
from costguard.services.accounts import Accounts, Books
from costguard.services.further import (
    ReportQuestion,
    forecast_running_period,
    load_chart_data,
    load_previous_period,
    load_savings,
    load_spending_by,
    load_top_resources,
    measure_waste,
)
from costguard.values.money import Money
from costguard.values.period import Period


def build_statement(
    *,
    books: Books,
    period: Period,
    label: str,
    zone: tzinfo,
    by: Sequence[str],
    rules: Mapping[str, BillingRule],
    as_of: datetime,
    pause: timedelta,
) -> Statement:
    """The statement of `period`, which people call `label` in `zone`, as known at `as_of`. `pause`: see `coverage.unseen`.

    Of a period that lies ahead nothing is asked but what was spent, which is nothing.
    """
    asked = ReportPeriod(period=period, label=label)
    question = ReportQuestion(asked=asked, by=tuple(by), zone=zone, as_of=as_of, pause=pause)
    return _build_plain_statement(books, books.load_spending(period, as_of), question, rules)


def build_full_statement(
    *, accounts: Accounts, question: ReportQuestion, rules: Mapping[str, BillingRule], beside: bool = True
) -> Statement:
    """The same with all that is said `beside` it; all of it as of one instant."""
    with accounts.read_one_snapshot():
        if not beside or question.period.start > question.as_of:
            return _build_plain_statement(accounts, accounts.load_spending(question.period, question.as_of), question, rules)
        outlays = accounts.load_costs(question.period, question.as_of)
        spending = sum_resource_costs(outlays)
        return _add_sections(_build_plain_statement(accounts, spending, question, rules), spending, outlays, accounts, question)


def _build_plain_statement(
    books: Books, spending: Sequence[Spending], question: ReportQuestion, rules: Mapping[str, BillingRule]
) -> Statement:
    period, as_of = question.period, question.as_of
    found = books.list_scopes() if period.start <= as_of else []
    scopes = [scope.scope for scope in found]
    usd, others = sum_by_currency(spending, question.by)
    return Statement(
        period=period,
        label=question.asked.label,
        zone=str(question.zone),
        as_of=as_of,
        by=question.by,
        usd=usd,
        others=others,
        not_modelled=tuple(
            (provider, sentence)
            for provider in list_providers(spending, scopes)
            for sentence in get_billing_rule(rules, provider).not_counted
        ),
        unseen=find_uncovered_scopes(scopes, books.load_stretches(period), period, as_of=as_of, pause=question.pause),
        scopes=len(scopes),
        misdated=tuple(sorted((scope for scope in found if scope.at > as_of + POLL_AHEAD_MAX), key=lambda s: s.scope)),
    )


def _add_sections(
    made: Statement, spending: Sequence[Spending], outlays: Sequence[ResourceCost], accounts: Accounts, question: ReportQuestion
) -> Statement:
    period, as_of, by = question.period, question.as_of, question.by
    each, bearers = load_spending_by(accounts, outlays, question) if needs_resources(by) else (spending, {})
    wastes, idle_days = measure_waste(accounts, outlays, bearers, question)
    usd, others = sum_by_currency(each, by, wastes)
    before = load_previous_period(accounts, question)
    days, burn = load_chart_data(accounts, question)
    return replace(
        made,
        usd=_add_previous_sums(usd, before),
        others=others,
        before=before,
        forecast=forecast_running_period(accounts, spending, question),
        spenders=load_top_resources(accounts, outlays),
        rest=compute_stopped_disk_cost(
            (lines for _, lines in accounts.load_lines(find_stopped_with_disks(outlays), period, as_of)), period
        ),
        saved=load_savings(accounts, question),
        quotes=list_quoted_runs(accounts.load_committed_holds(period), period),
        prices=sum_by_price_source(outlays),
        days=days,
        burn=burn,
        idle_days=idle_days,
        beside=True,
        held=tuple(accounts.load_reconciliations(period)),
        spent_at=list_providers(spending, ()),
    )


def _add_previous_sums(usd: CurrencySums, before: PreviousPeriod | None) -> CurrencySums:
    """Each group with what the same one came to before."""
    if before is None or not before.part_seen:
        return usd
    was = {tuple(group.by.values()): group.money.expected for group in before.part.groups}
    groups = (replace(group, before=was.get(tuple(group.by.values()), Money(nano=0))) for group in usd.groups)
    return replace(usd, groups=tuple(groups))
