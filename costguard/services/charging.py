"""Charge items for the formats that are made of them: the ledger is opened when they are gone through, and not before."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from costguard.ledger.spans.books import SpendingReader
from costguard.metering.charge_item import ChargeItem
from costguard.values.period import Period
from costguard.values.provider import Seller


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerChargeItems:
    """The items of `period` as known at `as_of`. Each time they are gone through the ledger is read anew, as it is then."""

    books: Callable[[], SpendingReader]
    period: Period
    as_of: datetime

    @property
    def sellers(self) -> Mapping[str, Seller]:
        """What every installed provider says of itself; its package is imported now, and not for a report without items."""
        from costguard.providers.plugins import load_sellers

        return load_sellers()

    def __iter__(self) -> Iterator[ChargeItem]:
        """One resource after the other; the ledger is closed after the last, or when no more are asked for."""
        with self.books() as books:
            yield from books.items(self.period, self.as_of)
