"""What a period cost: sums from the ledger, and how much of the period they can speak for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, tzinfo

from costguard.core.coverage import unseen
from costguard.core.metering.billing import BillingRule, rule_for
from costguard.core.metering.inventory import AHEAD
from costguard.core.period import Period
from costguard.core.statement import Statement, providers_of, sums_of
from costguard.ports import Books


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
    spending = books.spending(period, as_of)
    found = books.scopes() if period.start <= as_of else []
    scopes = [scope.scope for scope in found]
    usd, others = sums_of(spending, by)
    return Statement(
        period=period,
        label=label,
        zone=str(zone),
        as_of=as_of,
        by=tuple(by),
        usd=usd,
        others=others,
        not_modelled=tuple(
            (provider, sentence)
            for provider in providers_of(spending, scopes)
            for sentence in rule_for(rules, provider).not_counted
        ),
        unseen=unseen(scopes, books.stretches(period), period, as_of=as_of, pause=pause),
        scopes=len(scopes),
        misdated=tuple(sorted((scope for scope in found if scope.at > as_of + AHEAD), key=lambda s: s.scope)),
    )
