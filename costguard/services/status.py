"""What is so now: what burns, what the month has cost, how each scope is seen, and how each budget stands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta, tzinfo

from costguard.budgets.budget import Budget, period_at
from costguard.budgets.budget_status import Standing, standing
from costguard.budgets.hold import Hold, held, unlisted_spending
from costguard.guard.action_intents import Intent
from costguard.metering.burn import burns_of
from costguard.metering.spending import Live
from costguard.reporting.status import STALE_AFTER, Beside, Status, status_of
from costguard.services.accounts import Books
from costguard.values.balance import Balance
from costguard.values.calendar import month_of
from costguard.values.money import Money
from costguard.values.resource import ResourceKey


def status(
    *,
    books: Books,
    budgets: Sequence[Budget] = (),
    holds: Sequence[Hold] = (),
    now: datetime,
    zone: tzinfo,
    intents: Sequence[Intent] = (),
    beside: Callable[[Sequence[Live]], Mapping[ResourceKey, Beside]] | None = None,
    overshoots: Callable[[Sequence[Live], Sequence[Standing]], Mapping[str, Money]] | None = None,
    stale_after: timedelta = STALE_AFTER,
    live: Sequence[Live] | None = None,
    balances: Sequence[Balance] | None = None,
    stand: Sequence[Standing] | None = None,
) -> Status:
    """The status at `now`, for the month of `zone`. `holds`: those that may still count; `intents`: those that are.

    `beside`: what the guard knows of what lives; `overshoots`: by how much each hard budget could be exceeded at worst. `live`:
    what `books` say lives at `now`, and `stand`: how the budgets stand, for who has asked already. `balances`: what prepaid
    accounts have left, None: not asked.
    """
    month, live = month_of(now, zone), books.live(now) if live is None else live
    stand = standings(books=books, budgets=budgets, holds=holds, live=live, now=now) if stand is None else stand
    return status_of(
        at=now,
        month=month,
        zone=zone,
        spending=books.spending(month, now),
        live=live,
        scopes=books.scopes(),
        budgets=stand,
        beside=beside(live) if beside else None,
        overshoots=overshoots(live, stand) if overshoots and stand else None,
        intents=intents,
        balances=balances,
        stale_after=stale_after,
    )


def standings(
    *, books: Books, budgets: Iterable[Budget], holds: Sequence[Hold], live: Iterable[Live], now: datetime
) -> tuple[Standing, ...]:
    """How each budget stands, in the order in which they are written. Budgets of one period share one question."""
    budgets, burns = tuple(budgets), burns_of(live, now)
    spent = {
        period: [*books.spending(period, now), *unlisted_spending(holds, period)]
        for period in dict.fromkeys(period_at(budget, now) for budget in budgets)
    }
    return tuple(
        standing(budget, spent[period_at(budget, now)], burns, holds=held(budget, holds, now), now=now) for budget in budgets
    )
