"""What a run asks the ledger for the whole fleet: wishes, intents, and what some condition names, nothing that none does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from costguard.guard.action_intents import Intent
from costguard.guard.asked import (
    LOOKED_UP_FACTS,
    NO_COST_FACTS,
    RUNWAY,
    STOPPED_FOR,
    CostFacts,
    compute_runways,
    find_spending_starts,
)
from costguard.guard.context import GuardConfig
from costguard.guard.overrides import Override
from costguard.metering.spending import LiveResource
from costguard.services.ports import GuardRecords, Payments
from costguard.values.balance import PrepaidBalance

OVERRIDES_BACK = timedelta(days=100)
"""Longer than an arming lasts."""
DAY = timedelta(days=1)


def load_cost_facts(
    rules: GuardConfig, books: Payments, live: Sequence[LiveResource], balances: Iterable[PrepaidBalance], now: datetime
) -> CostFacts:
    """What the policies of `rules` ask about `live`."""
    names = frozenset[str]().union(*(policy.when.names for policy in rules.policies)) & LOOKED_UP_FACTS
    if not names:
        return NO_COST_FACTS
    starts = find_spending_starts(names, rules.zone, now)
    return CostFacts(
        paid=books.load_paid_since(starts, now) if starts else {},
        stopped_since=books.load_stopped_since() if STOPPED_FOR in names else {},
        runways=compute_runways(balances, live, now) if RUNWAY in names else {},
    )


def load_recent_overrides(book: GuardRecords, now: datetime) -> tuple[Override, ...]:
    """All that count, and those that have ended lately: a lease that ended starts windows anew."""
    found = {wish.id: wish for wish in (*book.load_open_overrides(now), *book.load_overrides_since(now - OVERRIDES_BACK))}
    return tuple(sorted(found.values(), key=lambda wish: (wish.at, wish.id)))


def load_recent_intents(book: GuardRecords, now: datetime) -> tuple[Intent, ...]:
    """The open ones, and those that ended within a day."""
    found = {one.id: one for one in (*book.load_open_intents(), *book.load_intents_since(now - DAY))}
    return tuple(sorted(found.values(), key=lambda one: (one.created_at, one.id)))
