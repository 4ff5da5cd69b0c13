"""What reconciling asks of the outside: the bills that the ledger holds, and the charges beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from io import BufferedReader
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:  # types and no more
    from costguard.bills.bill_files import BillFiles
    from costguard.bills.bill_line import BillLines
    from costguard.values.period import Period


@runtime_checkable
class BillFilePlugin(Protocol):
    """A provider's plug-in that can read its bill from files."""

    @property
    def bill_files(self) -> BillFiles:
        """How they are recognised and read; importing it brings no SDK and no network."""


class BillReader(Protocol):
    """Reads bills from files as `costguard reconcile --file` does: a provider says where they stand, and no more."""

    def find_pieces(self, where: str) -> Sequence[BillFilePiece]:
        """The files that a path, a folder or a pattern (`/exports/**/*.csv.gz`) names. InputError where there are none."""

    def read_bill(self, provider: str, pieces: Sequence[BillFilePiece], period: Period, now: datetime) -> BillLines:
        """The lines of `period` in `pieces`, which together are one bill of `provider`. InputError names file and line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BillFilePiece:
    """One file of a bill, wherever it stands. `name`: for people. `made_at`: None where nothing says. `opened`: its bytes."""

    name: str
    opened: Callable[[], AbstractContextManager[BufferedReader]]
    made_at: datetime | None = None
