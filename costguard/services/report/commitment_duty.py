"""Charge what a month leaves unused of an agreement's commitment, as a duty of `costguard watch`.

Example: $500 a month are agreed, and the machines of the agreement cost $300 in October. On November 1 the ledger gets an entry
of $200 for October, of its account. If a bill changes what October cost, a correction changes the entry, as a person
would write it. What a person corrects stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo

from costguard.budgets.agreement import Agreement
from costguard.ledger.cost_entries import CostEntryStore
from costguard.ledger.spans.books import SpendingReader
from costguard.metering.cost_entry import AGREEMENT, CostEntry
from costguard.services.report.ledger_answers import open_books
from costguard.settings import Settings, resolve_ledger_url
from costguard.system.logs import get_log
from costguard.values.calendar import find_month

CHECK_EVERY = timedelta(hours=1)
MONTHS_BACK = 2
"""So many months are computed again: bills of a month are settled in the next one."""


@dataclass(slots=True, kw_only=True)
class CommitmentDuty:
    """`settings`: returns those of the watchdog as they are now. `leads`: whether it may write."""

    settings: Callable[[], Settings]
    clock: Callable[[], datetime]
    leads: Callable[[], bool]

    def run(self) -> None:
        """Enter what the months that are over left unused, where that has changed."""
        settings, now = self.settings(), self.clock()
        committed = [one for one in settings.agreements if one.commitment is not None]
        if not committed or not self.leads():
            return
        with open_books(settings) as books:
            entries = list(_list_unused(committed, books, now, settings.defaults.timezone))
        if not entries:
            return
        with CostEntryStore(resolve_ledger_url(settings)) as store:
            for one in store.restate_entries(entries):
                get_log().info("commitment_unused", what=one.what, month=f"{one.start:%Y-%m}", amount=str(one.money))


def _list_unused(agreements: Sequence[Agreement], books: SpendingReader, now: datetime, zone: tzinfo) -> Iterator[CostEntry]:
    """Yield what each month left unused of each agreement: 0, too, so that a former entry is corrected."""
    scopes, month = books.list_scopes(), find_month(now, zone)
    for _ in range(MONTHS_BACK):
        month = find_month(month.start - timedelta(days=1), zone)
        begun, spending = month.start.astimezone(zone), books.load_spending(month, now)
        for one in agreements:
            place = (*(one.match.providers or ()), *(one.match.accounts or ()))
            of = [scope.first_at for scope in scopes if (scope.scope.provider, scope.scope.account)[: len(place)] == place]
            is_watched = bool(of) and all(at is not None and at <= month.start for at in of)
            unused = one.compute_unused(month, spending)
            if unused is not None and is_watched:  # else usage is missing, and too much would seem unused
                yield CostEntry(
                    what=f"unused commitment of {one.name}",
                    month=12 * (begun.year - 1970) + begun.month - 1,
                    money=unused,
                    who=f"{AGREEMENT}{one.name} ({one.source})",
                    entered_at=now,
                    provider="/".join(place),
                )
