"""What a period cost: sums from the ledger, how much of the period they can speak for, and what is said beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, tzinfo

from costguard.metering.billing import BillingRule, rule_for
from costguard.metering.coverage import unseen
from costguard.metering.inventory import AHEAD
from costguard.metering.spending import Spending
from costguard.reporting.statement import Statement, Sums, providers_of, sums_of
from costguard.reporting.statement.groups import tells_apart
from costguard.reporting.statement.period import Asked
from costguard.reporting.statement.sections import Before, Outlay, at_rest, may_rest, priced, quoted, spending_of
from costguard.services.accounts import Accounts, Books
from costguard.services.further import Question, before_of, drawn_of, forecast_of, saved_of, spenders_of, spending_by, wastes_of
from costguard.values.money import Money
from costguard.values.period import Period


def report(
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
    asked = Asked(period=period, label=label)
    question = Question(asked=asked, by=tuple(by), zone=zone, as_of=as_of, pause=pause)
    return _stated(books, books.spending(period, as_of), question, rules)


def full_report(*, accounts: Accounts, question: Question, rules: Mapping[str, BillingRule], beside: bool = True) -> Statement:
    """The same with all that is said `beside` it; all of it as of one instant."""
    with accounts.at_one_instant():
        if not beside or question.period.start > question.as_of:
            return _stated(accounts, accounts.spending(question.period, question.as_of), question, rules)
        outlays = accounts.outlays(question.period, question.as_of)
        spending = spending_of(outlays)
        return _with_further(_stated(accounts, spending, question, rules), spending, outlays, accounts, question)


def _stated(books: Books, spending: Sequence[Spending], question: Question, rules: Mapping[str, BillingRule]) -> Statement:
    period, as_of = question.period, question.as_of
    found = books.scopes() if period.start <= as_of else []
    scopes = [scope.scope for scope in found]
    usd, others = sums_of(spending, question.by)
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
            for provider in providers_of(spending, scopes)
            for sentence in rule_for(rules, provider).not_counted
        ),
        unseen=unseen(scopes, books.stretches(period), period, as_of=as_of, pause=question.pause),
        scopes=len(scopes),
        misdated=tuple(sorted((scope for scope in found if scope.at > as_of + AHEAD), key=lambda s: s.scope)),
    )


def _with_further(
    made: Statement, spending: Sequence[Spending], outlays: Sequence[Outlay], accounts: Accounts, question: Question
) -> Statement:
    period, as_of, by = question.period, question.as_of, question.by
    each, bearers = spending_by(accounts, outlays, question) if tells_apart(by) else (spending, {})
    wastes, idle_days = wastes_of(accounts, outlays, bearers, question)
    usd, others = sums_of(each, by, wastes)
    before = before_of(accounts, question)
    days, burn = drawn_of(accounts, question)
    return replace(
        made,
        usd=_compared(usd, before),
        others=others,
        before=before,
        forecast=forecast_of(accounts, spending, question),
        spenders=spenders_of(accounts, outlays),
        rest=at_rest((lines for _, lines in accounts.lines(may_rest(outlays), period, as_of)), period),
        saved=saved_of(accounts, question),
        quotes=quoted(accounts.committed(period), period),
        prices=priced(outlays),
        days=days,
        burn=burn,
        idle_days=idle_days,
        beside=True,
        held=tuple(accounts.held(period)),
        spent_at=providers_of(spending, ()),
    )


def _compared(usd: Sums, before: Before | None) -> Sums:
    """Each group with what the same one came to before."""
    if before is None or not before.part_seen:
        return usd
    was = {tuple(group.by.values()): group.money.expected for group in before.part.groups}
    groups = (replace(group, before=was.get(tuple(group.by.values()), Money(nano=0))) for group in usd.groups)
    return replace(usd, groups=tuple(groups))
