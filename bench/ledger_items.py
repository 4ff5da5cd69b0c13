"""What it takes to go through a year of a large fleet item by item, as exports do: seconds, and memory that must not grow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path

from bench import fleet
from bench.ledger_history import UNTIL, written
from bench.measured import Measured, cpu, resident_mib
from costguard.ledger.spans.books import SpendingReader
from costguard.metering.charge_item import ChargeItem
from costguard.providers.plugins import load_sellers
from costguard.renderers import focus
from costguard.values.calendar import Period
from costguard.values.provider import Seller
from costguard.views.document import Document

AS_OF = UNTIL - timedelta(hours=3)
YEAR = Period(start=fleet.START, end=UNTIL)
MONTH = Period(start=UNTIL - timedelta(days=61), end=UNTIL - timedelta(days=31))
MOST_MIB = 16.0
"""Beyond what the process holds after the first items: what is kept of those that have been given."""
EACH = 1000
"""Items between two looks at the memory."""


class _Watched:
    """Items on their way, and the most memory that the process held meanwhile."""

    def __init__(self, books: SpendingReader, period: Period) -> None:
        self._books, self._period = books, period
        self.count, self.nano, self.first, self.most = 0, 0, 0.0, 0.0

    @property
    def sellers(self) -> Mapping[str, Seller]:
        """The seller of every installed provider."""
        return load_sellers()

    def __iter__(self) -> Iterator[ChargeItem]:
        for item in self._books.items(self._period, AS_OF):
            self.count += 1
            self.nano += item.money.expected.nano
            if self.count % EACH == 0:
                self.most = max(self.most, resident_mib())
                self.first = self.first or self.most
            yield item


def items(folder: Path, *, instances: int = 100_000) -> Iterator[Measured]:
    """Every item of a year, and of a month as a FOCUS export, in the order in which the ledger gives them."""
    made = written(folder / "items.db", instances=instances)
    with SpendingReader(made.url, rules=fleet.rules()) as books:
        sums = sum(one.money.expected.nano for one in books.load_spending(YEAR, AS_OF))
    for name, period, rendered in (("a year", YEAR, False), ("a month, as FOCUS", MONTH, True)):
        with SpendingReader(made.url, rules=fleet.rules()) as books:
            watched, size = _Watched(books, period), 0
            if rendered:
                seconds, size = cpu(lambda watched=watched: sum(map(len, focus.render(Document(data={}, items=watched)))))  # type: ignore[misc]  # a lambda with a default
            else:
                seconds, _ = cpu(lambda watched=watched: sum(1 for _ in watched))  # type: ignore[misc]  # same
        if period is YEAR and watched.nano != sums:
            raise SystemExit("the items of a year do not add up to its spending")
        grown = watched.most - watched.first
        each_us = seconds / watched.count * 1e6
        told = f"{watched.count:,} items in {seconds:.0f} s CPU, {each_us:.0f} us each, at {watched.most:.0f} MiB"
        yield Measured(
            what=f"{name} of {instances:,} instances ({made.spans:,} spans), item by item: growth in MiB",
            target=f"< {MOST_MIB:.0f}",
            reached=f"{grown:+.1f} ({told}{f', {size / 1e6:.0f} MB' if size else ''})",
            met=grown < MOST_MIB,
        )
