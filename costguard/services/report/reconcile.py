"""Reconcile: fetch the bill of every account, then compare each bill with the ledger's charges by resource."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING

from costguard.bills.bill_line import ASKED, BillImport, BillLines
from costguard.bills.drift import (
    AFTER,
    BEFORE,
    INSIDE,
    BilledLines,
    CauseContext,
    ChargedCell,
    DriftResult,
    ProviderBill,
    Tolerance,
)
from costguard.bills.reconciliation import compare_bills, explain_drift
from costguard.errors import CostguardError, InputError, to_one_line
from costguard.ledger.bills.staging import StagedStatement
from costguard.ledger.bills.store import BillStore, GatheredStatement
from costguard.metering.billing import BILL_ZONES, BillingRule, get_billing_rule
from costguard.metering.charge_item import ChargeItem
from costguard.metering.meter import COMPUTE, find_billing_month
from costguard.providers.ports import ChargeSource, InstanceSource
from costguard.services.poll.concurrency import run_all
from costguard.system.progress import report_progress
from costguard.values.calendar import Period
from costguard.values.instant import DAY_US, HOUR_US, MICROSECOND, from_micros, to_micros
from costguard.values.money import NANO, USD, ExchangeRate, divide_half_even, find_exchange_rate

if TYPE_CHECKING:  # types and no more
    from costguard.ledger.bills.reader import BillLedgerReader
    from costguard.ledger.spans.books import SpendingReader

BILLS_LIMIT_S = 300.0
"""Seconds for all bills: a month of Vast is 30 questions, one a second."""
HOURLY_SPAN = timedelta(days=1)
"""The day in which a statement ends, and this long before, are compared hour by hour: what is late is late by the hour, and of
a machine that ran for a day, days say little of a rate."""
DAY_HOURS = DAY_US // HOUR_US
_Place = tuple[str, str, str]
BILL_SETTLES_AFTER = timedelta(days=1)
"""How long an account of which a bill says nothing may still be late: bills lag by up to 24 h (providers/aws.md, 2026-11)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BillAnswer:
    """Answer of one account of `name`: `billed`, or why it failed. `period`: the time that it covers, up to now.

    `providers`: those that the account reports, usually `name` alone.
    """

    name: str
    providers: tuple[str, ...]
    period: Period
    billed: BillLines | None = None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BillComparison:
    """The comparison. `results`: by provider, account and currency.

    `unstated`: (provider, account) with charges and without a bill. `set_aside`: (provider, statement, the one that
    replaces it). `straddling`: by provider, lines that cross an edge of the period. `rates`: labels of the exchange
    rates at which lines were converted.
    """

    results: tuple[DriftResult, ...]
    unstated: tuple[tuple[str, str], ...]
    set_aside: tuple[tuple[str, ProviderBill, ProviderBill], ...]
    straddling: Mapping[str, int]
    rates: tuple[str, ...] = ()


def find_bill_month(rules: Mapping[str, BillingRule], provider: str, period: Period) -> Period:
    """Return the bill's month of `provider` for a month in UTC: Google's are months in Los Angeles."""
    terms = get_billing_rule(rules, provider).bill
    unit = BILL_ZONES["UTC" if terms is None else terms.zone]
    _, start_us, length_us = find_billing_month(unit, to_micros(period.start + period.length / 2))
    return Period(start=from_micros(start_us), end=from_micros(start_us + length_us)) if unit != BILL_ZONES["UTC"] else period


def ask_for_bills(
    sources: Sequence[tuple[str, InstanceSource]],
    period: Period,
    now: datetime,
    *,
    limit_s: float = BILLS_LIMIT_S,
    rules: Mapping[str, BillingRule] | None = None,
) -> list[BillAnswer]:
    """Fetch the bill of each account in parallel; a provider without a billing API is reported as such.

    `rules`: `period` is a month in UTC, and each account is asked for the month of its own bill.
    """
    months = [find_bill_month(rules or {}, "".join(source.providers[:1]), period) for _, source in sources]
    reaches = [Period(start=one.start, end=min(one.end, max(now, one.start))) for one in months]
    questions = {number: partial(_fetch_bill, source, reaches[number]) for number, (_, source) in enumerate(sources)}
    answers = run_all(questions, limit_s=limit_s, doing="fetching bills")
    return [
        _to_bill_answer(name, tuple(source.providers), reaches[number], answers[number])
        for number, (name, source) in enumerate(sources)
    ]


def import_answers(bills: BillStore, answers: Sequence[BillAnswer], *, who: str, now: datetime) -> list[BillImport]:
    """Take in the bills that accounts answered with, in one transaction."""
    with ExitStack() as stack:
        statements = list[GatheredStatement]()
        for one in answers:
            if one.billed is None:
                continue
            staged = stack.enter_context(StagedStatement())
            staged.add((line, Decimal(0)) for line in one.billed.lines)
            place = (one.providers, one.period)
            stated_at = one.billed.made_at or now
            statements.append(
                GatheredStatement(staged=staged, source=f"{one.name}{ASKED}", stated_at=stated_at, asked=place, why=one.why)
            )
        return bills.import_statements(statements, who=who, now=now) if statements else []


def reconcile_bills(
    *,
    bills: BillLedgerReader,
    charges: SpendingReader,
    providers: Iterable[str],
    period: Period,
    now: datetime,
    tolerance: Tolerance,
    missing: Mapping[str, str],
    periods: Mapping[str, Period],
    rules: Mapping[str, BillingRule],
    rates: Sequence[ExchangeRate] = (),
) -> BillComparison:
    """Compare the bills of `providers` in the ledger with the charges of `period`, a month in UTC.

    `rules`: they state of which zone a provider's month is. `missing`: by provider, what its bill leaves out. `periods`:
    accounts that answered completely, and for which period. `rates`: for bills in another currency than their charges.
    """
    results, unstated = list[DriftResult](), list[tuple[str, str]]()
    converted_at = set[str]()
    aside, over, utc_month = list[tuple[str, ProviderBill, ProviderBill]](), dict[str, int](), period
    for provider in providers:
        report_progress(f"comparing the bills of {provider} with its charges")
        period = find_bill_month(rules, provider, utc_month)
        best, others = bills.load_statements(provider, period)
        aside += [(provider, one, best[one.account]) for one in others]
        over[provider] = sum(bills.count_straddling(provider, one, period) for one in best.values())
        windows = {account: _clip_window(one, period) for account, one in best.items()}
        billed_lines = [
            line
            for account, one in best.items()
            for line in bills.load_billed_lines(provider, one, period, _find_hourly_start_us(windows[account]))
        ]
        view = _ChargeWindows(
            provider=provider,
            period=period,
            now=now,
            windows=windows,
            quiet=_find_settled_window(periods.get(provider), now),
        )
        charged, silent = _cut_charges(charges, view)
        billed_lines = list(_convert_lines(billed_lines, {one.currency for one in charged}, rates, converted_at))
        unstated += [(provider, account) for account in sorted(silent)]
        known_resources = bills.load_known_resources(provider)
        judging = CauseContext(
            provider=provider,
            period=period,
            at=now,
            tolerance=tolerance,
            known=known_resources,
            accounts=bills.list_accounts_of(provider),
            others=_find_currency_mismatches(billed_lines, charged),
            cells=DAY_HOURS,
            why=missing.get(provider, ""),
        )
        results += [explain_drift(one, judging) for one in compare_bills(billed_lines, charged, known_resources)]
    return BillComparison(
        results=tuple(results),
        unstated=tuple(unstated),
        set_aside=tuple(aside),
        straddling=over,
        rates=tuple(sorted(converted_at)),
    )


def _convert_lines(
    lines: Iterable[BilledLines], charged_in: Collection[str], rates: Sequence[ExchangeRate], converted_at: set[str]
) -> Iterator[BilledLines]:
    """Yield the lines; those in a currency in which nothing is charged in USD, at the rate of their day, if there is one."""
    for line in lines:
        at = from_micros(line.first * HOUR_US)
        rate = None if line.currency in charged_in or USD not in charged_in else find_exchange_rate(rates, line.currency, at)
        if rate is None:
            yield line
        else:
            converted_at.add(rate.label)
            yield line._replace(currency=USD, nano=divide_half_even(line.nano * NANO, rate.nano), step=0)


def _fetch_bill(source: InstanceSource, period: Period) -> BillLines:
    if not isinstance(source, ChargeSource):
        error = getattr(source, "error", None)  # of what stands for an account that could not be opened
        if isinstance(error, CostguardError):
            raise error
        return BillLines(lines=(), why="it has no billing API")
    return source.fetch_bill_lines(period)


def _to_bill_answer(name: str, providers: tuple[str, ...], period: Period, answer: BillLines | BaseException) -> BillAnswer:
    billed, why = None, ""
    if isinstance(answer, BillLines) and all(line.provider in providers for line in answer.lines):
        billed, why = answer if answer.lines or not answer.why else None, answer.why
    elif isinstance(answer, BillLines):
        why = "it returned a bill of other accounts; it was ignored"
    elif isinstance(answer, CostguardError):
        what = f"{to_one_line(answer.field)} {answer.what}" if isinstance(answer, InputError) and answer.field else answer.what
        why = f"{what} ({to_one_line(answer.hint)})" if answer.hint else what
    else:
        why = "no answer in time" if isinstance(answer, TimeoutError) else f"unexpected {type(answer).__name__}"
    return BillAnswer(name=name, providers=providers, period=period, billed=billed, why=why)


def _find_hourly_start_us(window: Period) -> int:
    """Return from when on cells are hours: the midnight that is HOURLY_SPAN before the day in which `window` ends."""
    return (to_micros(window.end) - 1) // DAY_US * DAY_US - HOURLY_SPAN // MICROSECOND


def _clip_window(one: ProviderBill, period: Period) -> Period:
    """Return the part of `period` that a statement covers."""
    start = min(max(period.start, from_micros(one.start_us)), period.end)
    return Period(start=start, end=min(period.end, max(start, from_micros(one.end_us))))


def _find_settled_window(period: Period | None, now: datetime) -> Period | None:
    """Return for which time a complete answer also covers accounts without a line in it."""
    if period is None:
        return None
    return Period(start=period.start, end=max(period.start, min(period.end, now - BILL_SETTLES_AFTER)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _ChargeWindows:
    """How charges are cut. `windows`: by account, the time its statement covers; `quiet`: for accounts without one."""

    provider: str
    period: Period
    now: datetime
    windows: Mapping[str, Period]
    quiet: Period | None


def _cut_charges(charges: SpendingReader, view: _ChargeWindows) -> tuple[list[ChargedCell], set[str]]:
    """Return a provider's charges, cut at the edges of its statements; and the accounts that no statement covers."""
    cells, silent = list[ChargedCell](), set[str]()
    nothing = Period(start=view.period.start, end=view.period.start)
    for window in {*view.windows.values(), *([view.quiet] if view.quiet else [])} or {nothing}:
        fine_us = _find_hourly_start_us(window)
        for part, where in _cut_period(window, view.period):
            for item in charges.items(part, view.now):
                if item.key.provider != view.provider:
                    continue
                its = view.windows.get(item.key.account, view.quiet)
                if its is None:
                    silent.add(item.key.account)
                elif its == window:
                    cells.append(_to_charged(item, where, fine_us))
    return cells, silent


def _cut_period(window: Period, period: Period) -> Iterator[tuple[Period, str]]:
    """Yield the parts of `period` before, inside (its end hour by hour) and after `window`."""
    yield Period(start=period.start, end=window.start), BEFORE
    fine = max(window.start, from_micros(_find_hourly_start_us(window)))
    yield Period(start=window.start, end=fine), INSIDE
    while fine < window.end:
        until = min(window.end, from_micros((to_micros(fine) // HOUR_US + 1) * HOUR_US))
        yield Period(start=fine, end=until), INSIDE
        fine = until
    yield Period(start=window.end, end=period.end), AFTER


def _to_charged(item: ChargeItem, where: str, fine_us: int) -> ChargedCell:
    money, key, start_us = item.counted or item.money, item.key, to_micros(item.start)
    return ChargedCell(
        key.account,
        key.region,
        key.id,
        item.charge,
        item.price.currency,
        start_us // HOUR_US if start_us >= fine_us else start_us // DAY_US * DAY_HOURS,
        money.low.nano,
        money.expected.nano,
        money.high.nano,
        where,
        _describe_sku(item),
        item.price.expected,
        item.unit,
        item.source,
    )


def _describe_sku(item: ChargeItem) -> str:
    """Return what is priced: `p5.48xlarge, on-demand`, or the kind of a disk."""
    its = item.attribution
    if item.charge != COMPUTE:
        return item.part or item.unit
    gpus = f"{its.gpu} x{its.gpu_count:g}" if its.gpu else its.kind
    return ", ".join(filter(None, (its.instance_type or gpus, its.tier)))


def _find_currency_mismatches(
    billed_lines: Iterable[BilledLines], charged: Iterable[ChargedCell]
) -> Mapping[tuple[str, str, str], set[str]]:
    """Return (account, resource, charge) that is billed and charged in different currencies, with the currencies.

    If no line of a kind of charge names a resource, its lines are compared with all charges of that kind.
    """
    billed, owed = defaultdict[_Place, set[str]](set), defaultdict[_Place, set[str]](set)
    pools = defaultdict[tuple[str, str], set[str]](set)
    for line in billed_lines:
        billed[line.account, line.resource, line.charge].add(line.currency)
    detailed_charges = {(account, charge) for account, resource, charge in billed if resource}
    for one in charged:
        pooled = (one.account, one.charge) not in detailed_charges and (one.account, "", one.charge) in billed
        owed[one.account, "" if pooled else one.resource, one.charge].add(one.currency)
        if pooled:
            pools[one.account, one.charge].add(one.resource)
    others = {place: billed[place] | owed[place] for place in billed.keys() & owed.keys() if not billed[place] & owed[place]}
    of_pools = {
        (account, resource, charge): others[account, "", charge]
        for (account, charge), resources in pools.items()
        if (account, "", charge) in others
        for resource in resources
    }
    return others | of_pools
