"""Bills that a provider's settings name as files (`focus_export`), read by what `costguard reconcile --file` reads with.

A provider sees no room but the ports: it is handed this, says where the files stand, and gets lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # most who open a provider read no bill
    from costguard.bills.bill_line import BillLines
    from costguard.providers.bills import BillFilePiece
    from costguard.values.period import Period


class BillExportReader:
    """See `ports.bills.BillReader`."""

    def find_pieces(self, where: str) -> Sequence[BillFilePiece]:
        """The files that a path, a folder or a pattern names."""
        from costguard.files.records import find_pieces

        return find_pieces(where)

    def read_bill(self, provider: str, pieces: Sequence[BillFilePiece], period: Period, now: datetime) -> BillLines:
        """The lines of `period` in `pieces`: rows of `provider`, and those that name nobody else who is installed."""
        from costguard.bills.bill_files import sum_bill_lines
        from costguard.services.bill_files import list_installed_kinds, open_bill_pieces

        kinds = list_installed_kinds(provider, "", lambda _: ())
        name = pieces[0].name if len(pieces) == 1 else f"{pieces[0].name} and {len(pieces) - 1} more files"
        bill = open_bill_pieces(name, pieces, kinds, now)
        found = sum_bill_lines(bill.parts, period, sums=bill.sums)
        return replace(found, made_at=bill.stated_at, left_out=tuple(sorted(kinds.left_out.items())))
