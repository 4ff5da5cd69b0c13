"""Build the status: what runs and costs now, the month so far, coverage of each scope, and budget statuses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta, tzinfo

from costguard.budgets.budget import Budget, find_budget_period
from costguard.budgets.budget_status import BudgetStatus, compute_budget_status
from costguard.budgets.hold import Hold, list_unlisted_spending, sum_open_holds
from costguard.guard.action_intents import Intent
from costguard.metering.burn import compute_hourly_burn, list_burns
from costguard.metering.spending import LiveResource, ScopeCoverage
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
) -> FleetStatus:
    """Build the status at `now`, for the month of `zone`.

    `holds`: those that may still count. `intents`: open and recent ones. `annotate`: the guard's annotations of live resources.
    `overshoots`: by how much each hard budget could be exceeded at worst. `live`, `stand`: live resources and budget statuses,
    if the caller has them. `balances`: of prepaid accounts; None: not requested. `unreached`: failed scopes of the last poll
    that the ledger does not know.
    """
    month, live = find_month(now, zone), books.load_live(now) if live is None else live
    stand = load_budget_statuses(books=books, budgets=budgets, holds=holds, live=live, now=now) if stand is None else stand
    return build_fleet_status(
        at=now,
        month=month,
        zone=zone,
        spending=books.load_spending(month, now),
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
    *, books: Books, now: datetime, zone: tzinfo, live: Iterable[LiveResource], unreached: Sequence[ScopeCoverage] = ()
) -> tuple[CurrencyOutlook, tuple[ScopeStatus, ...]]:
    """Return what `build_status` says of dollars and scopes, without a value for each resource."""
    month = find_month(now, zone)
    burning = (burn for one in live for burn in compute_hourly_burn(one, now))
    usd, *_ = build_outlooks(now, month, books.load_spending(month, now), burning)
    return usd, build_scope_statuses((*books.list_scopes(), *unreached), now, SCOPE_STALE_AFTER)


def load_budget_statuses(
    *, books: Books, budgets: Iterable[Budget], holds: Sequence[Hold], live: Iterable[LiveResource], now: datetime
) -> tuple[BudgetStatus, ...]:
    """Return the status of each budget, in the given order. Budgets of one period share one query."""
    budgets = tuple(budgets)
    burns = list_burns(live, now) if budgets else ()
    spent = {
        period: [*books.load_spending(period, now), *list_unlisted_spending(holds, period)]
        for period in dict.fromkeys(find_budget_period(budget, now) for budget in budgets)
    }
    return tuple(
        compute_budget_status(
            budget, spent[find_budget_period(budget, now)], burns, holds=sum_open_holds(budget, holds, now), now=now
        )
        for budget in budgets
    )
