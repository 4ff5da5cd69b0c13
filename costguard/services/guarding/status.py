"""Build the status: what runs and costs now, the month so far, coverage of each scope, and budget statuses."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta, tzinfo

from costguard.budgets.budget import MATCH_ALL, Budget, ResourceFilter, find_budget_period, list_current_budgets
from costguard.budgets.budget_status import BudgetStatus, compute_budget_status
from costguard.budgets.hold import Hold, list_unlisted_spending, sum_open_holds, sum_open_rates
from costguard.budgets.spend_forecast import PastHours
from costguard.guard.action_intents import Intent
from costguard.guard.overrides import Override
from costguard.guard.timed_stops import get_due_time, index_timed_stops, select_timed_stop
from costguard.metering.burn import AttributedBurn, compute_hourly_burn, list_burns
from costguard.metering.spending import LiveResource, ScopeCoverage, Spending
from costguard.reporting.status import (
    SCOPE_STALE_AFTER,
    CurrencyOutlook,
    FleetStatus,
    ResourceAnnotations,
    ScopeStatus,
    build_fleet_status,
    build_outlooks,
    build_scope_statuses,
)
from costguard.services.poll.ports import Books
from costguard.values.calendar import find_month
from costguard.values.money import Money, PrepaidBalance
from costguard.values.resource import ResourceKey


def build_status(
    *,
    books: Books,
    budgets: Sequence[Budget] = (),
    holds: Sequence[Hold] = (),
    now: datetime,
    zone: tzinfo,
    intents: Sequence[Intent] = (),
    annotate: Callable[[Sequence[LiveResource]], Mapping[ResourceKey, ResourceAnnotations]] | None = None,
    overshoots: Callable[[Sequence[LiveResource], Sequence[BudgetStatus]], Mapping[str, Money]] | None = None,
    stale_after: timedelta = SCOPE_STALE_AFTER,
    live: Sequence[LiveResource] | None = None,
    balances: Sequence[PrepaidBalance] | None = None,
    stand: Sequence[BudgetStatus] | None = None,
    unreached: Sequence[ScopeCoverage] = (),
    ends: Mapping[ResourceKey, datetime] | None = None,
) -> FleetStatus:
    """Build the status at `now`, for the month of `zone`.

    `holds`: those that may still count. `intents`: open and recent ones. `annotate`: the guard's annotations of live resources.
    `overshoots`: by how much each hard budget could be exceeded at worst. `live`, `stand`: live resources and budget statuses,
    if the caller has them. `balances`: of prepaid accounts; None: not requested. `unreached`: failed scopes of the last poll
    that the ledger does not know. `ends`: the planned stops.
    """
    month, live = find_month(now, zone), books.load_live(now) if live is None else live
    stand = load_budget_statuses(books=books, budgets=budgets, holds=holds, live=live, now=now) if stand is None else stand
    spending = books.load_spending(month, now)
    return build_fleet_status(
        at=now,
        month=month,
        zone=zone,
        spending=spending,
        past=load_past_of(books, spending, list_burns(live, now), now),
        ends=ends,
        live=live,
        scopes=(*books.list_scopes(), *unreached),
        budgets=stand,
        annotations=annotate(live) if annotate else None,
        overshoots=overshoots(live, stand) if overshoots and stand else None,
        intents=intents,
        balances=balances,
        stale_after=stale_after,
    )


def build_totals(
    *, books: Books, now: datetime, zone: tzinfo, live: Collection[LiveResource], unreached: Sequence[ScopeCoverage] = ()
) -> tuple[CurrencyOutlook, tuple[ScopeStatus, ...]]:
    """Return what `build_status` says of dollars and scopes, without a value for each resource."""
    month = find_month(now, zone)
    burning, lines = (burn for one in live for burn in compute_hourly_burn(one, now)), list_burns(live, now)
    spending = books.load_spending(month, now)
    past = load_past_of(books, spending, lines, now)
    usd, *_ = build_outlooks(now, month, spending=spending, burning=burning, lines=lines, past=past)
    return usd, build_scope_statuses((*books.list_scopes(), *unreached), now, SCOPE_STALE_AFTER)


def load_past_of(
    books: Books,
    spending: Iterable[Spending],
    burns: Iterable[AttributedBurn],
    now: datetime,
    match: ResourceFilter = MATCH_ALL,
) -> dict[str, PastHours]:
    """Return the past hours of each currency in which something was spent or bills, to forecast what `match` selects."""
    currencies = {part.money.low.currency for part in spending} | {one.hourly.low.currency for one in burns}
    past = books.load_past_hours(now, [(match, currency) for currency in sorted(currencies)])
    return {currency: one for (_, currency), one in past.items()}


def list_planned_stops(
    live: Iterable[LiveResource], overrides: Iterable[Override], now: datetime
) -> dict[ResourceKey, datetime]:
    """Return when people planned to stop machines."""
    planned = index_timed_stops(overrides, now)
    stops = {one.observation.key: select_timed_stop(one.observation, planned) for one in live} if planned else {}
    return {key: get_due_time(plan) for key, plan in stops.items() if plan}


def load_budget_statuses(
    *,
    books: Books,
    budgets: Iterable[Budget],
    holds: Sequence[Hold],
    live: Iterable[LiveResource],
    now: datetime,
    ends: Mapping[ResourceKey, datetime] | None = None,
) -> tuple[BudgetStatus, ...]:
    """Return the status of each budget, in the given order. Budgets of one period share one query. `ends`: planned stops."""
    budgets = list_current_budgets(budgets, now)
    burns = list_burns(live, now, ends) if budgets else ()
    past = books.load_past_hours(now, {(one.match, one.cap.currency) for one in budgets}) if budgets else {}
    spent = {
        period: [*books.load_spending(period, now), *list_unlisted_spending(holds, period)]
        for period in dict.fromkeys(find_budget_period(budget, now) for budget in budgets if not budget.is_rate)
    }
    return tuple(
        compute_budget_status(
            budget,
            () if budget.is_rate else spent[find_budget_period(budget, now)],
            burns,
            holds=sum_open_rates(budget, holds, burns, now) if budget.is_rate else sum_open_holds(budget, holds, now),
            now=now,
            past=past[budget.match, budget.cap.currency],
        )
        for budget in budgets
    )
