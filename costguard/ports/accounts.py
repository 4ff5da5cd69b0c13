"""What a report asks of the ledger beside its sums."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Protocol

from costguard.core.drift import Held
from costguard.core.hold import Hold
from costguard.core.metering.span import Reach, Span
from costguard.core.period import Period
from costguard.core.spending import Bearer
from costguard.core.statement.further import Outlay
from costguard.core.statement.history import DaySum, HourRates
from costguard.core.statement.saved import Act
from costguard.core.statement.waste import HourRow
from costguard.ports import Books


class Accounts(Books, Protocol):
    """The books, resource by resource. A resource goes by a number that means nothing elsewhere."""

    def at_one_instant(self) -> AbstractContextManager[object]:
        """Within it every answer is of one state of the ledger."""

    def outlays(self, period: Period, as_of: datetime) -> list[Outlay]:
        """What each line of each resource came to in `period`."""

    def burning(self, as_of: datetime) -> list[tuple[tuple[Span, ...], tuple[Span, ...], bool]]:
        """What bills at `as_of`, resource by resource: open spans, what may bill beside them, and whether listings lack it."""

    def bearers(self, numbers: Collection[int], *, labels: Collection[str] = ()) -> dict[int, Bearer]:
        """Those resources, as they were last seen; with all their labels where they carry any of `labels`."""

    def lines(
        self, numbers: Collection[int], period: Period, as_of: datetime
    ) -> Iterator[tuple[int, list[tuple[Span, Reach | None]]]]:
        """What each of them billed in `period`, an open span with how far it is known to reach."""

    def measured(self, numbers: Collection[int], period: Period) -> dict[int, dict[str, list[HourRow]]]:
        """Of each of them the hours that begin in `period` and hold samples, by signal; who has none is left out."""

    def days(self, period: Period, as_of: datetime, by: str) -> Iterable[DaySum]:
        """What `period` was expected to cost in dollars, by day and the key `by`; the days add up to it."""

    def rates(self, period: Period, as_of: datetime) -> dict[int, HourRates]:
        """What began and ended to burn in each hour of `period`."""

    def acts(self, since: datetime, until: datetime) -> list[Act]:
        """The acts that were confirmed within [since, until), with what each machine billed around them."""

    def held(self, period: Period) -> list[Held]:
        """How bills were held against the charges of `period` last."""

    def committed(self, period: Period) -> list[Hold]:
        """The runs admitted with money set aside that ended in `period`."""
