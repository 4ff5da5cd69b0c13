"""What reconciling asks of the outside: the bills that the ledger holds, and the charges beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from io import BufferedReader
from typing import Protocol, runtime_checkable

from costguard.core.bill_files import BillFiles
from costguard.core.billed import Billed
from costguard.core.charge_item import ChargeItem
from costguard.core.drift import Bill, Stated
from costguard.core.period import Period


@runtime_checkable
class KnowsBillFiles(Protocol):
    """A provider's plug-in that can read its bill from files."""

    @property
    def bill_files(self) -> BillFiles:
        """How they are recognised and read; importing it brings no SDK and no network."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One file of a bill, wherever it stands. `name`: for people. `made_at`: None where nothing says. `opened`: its bytes."""

    name: str
    opened: Callable[[], AbstractContextManager[BufferedReader]]
    made_at: datetime | None = None


class BillReader(Protocol):
    """Reads bills from files as `costguard reconcile --file` does: a provider says where they stand, and no more."""

    def pieces(self, where: str) -> Sequence[Piece]:
        """The files that a path, a folder or a pattern (`/exports/**/*.csv.gz`) names. InputError where there are none."""

    def billed(self, provider: str, pieces: Sequence[Piece], period: Period, now: datetime) -> Billed:
        """The lines of `period` in `pieces`, which together are one bill of `provider`. InputError names file and line."""


class HeldBills(Protocol):
    """Bills as they were taken in."""

    def statements(self, provider: str, period: Period) -> tuple[dict[str, Bill], list[Bill]]:
        """By account the statement that counts in `period`, and those that are set aside."""

    def stated(self, provider: str, one: Bill, period: Period, fine_us: int) -> list[Stated]:
        """The lines of a statement that lie whole in `period`, by resource, kind of charge and cell.

        Cells are numbers of hours since 1970: of each hour from `fine_us` on, before that of the first hour of each day.
        """

    def straddling(self, provider: str, one: Bill, period: Period) -> int:
        """How many lines reach over an edge of `period`."""

    def known_resources(self, provider: str) -> dict[tuple[str, str], int]:
        """(account, id) of all that costguard ever saw there, and in which hour since 1970 it did so first.

        -1 where its provider states since when it is there.
        """

    def accounts_of(self, provider: str) -> list[str]:
        """The accounts that were ever polled."""


class Charges(Protocol):
    """Charges, item by item."""

    def items(self, period: Period, as_of: datetime) -> Iterable[ChargeItem]:
        """What was charged in `period`, as known at `as_of`."""
