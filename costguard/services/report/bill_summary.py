"""Read bills where there is no ledger: say what they hold. Nothing is imported, and no ledger is created."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

from costguard.ledger.bills.staging import StagedStatement
from costguard.services.poll.bill_files import BillFileKinds, open_bill
from costguard.settings import expand_path
from costguard.values.instant import from_micros
from costguard.views.bill_files_read import BillFileReading
from costguard.views.bill_summary import BillSummary

NO_ACCOUNT = "not stated"
"""The account of a file that names none: there is no ledger whose accounts it could be one of."""


def summarize_bills(
    files: Sequence[str], kinds: BillFileKinds, now: datetime
) -> tuple[list[BillSummary], list[BillFileReading]]:
    """Read every file to its end; return its lines by provider, account, month and currency, and what was read."""
    summaries, readings = list[BillSummary](), list[BillFileReading]()
    for name in dict.fromkeys(files):
        bill = open_bill(expand_path(name), kinds, now)
        with StagedStatement() as staged:
            staged.add(bill.parts, sums=bill.sums)
            source = f"{Path(name).name} ({bill.kind})"
            summaries += _summarize_statement(staged, source)
            readings.append(BillFileReading(source=source, lines=staged.sum_amounts(), tally=bill.tally))
    return summaries, readings


def _summarize_statement(staged: StagedStatement, source: str) -> Iterator[BillSummary]:
    groups = dict[tuple[str, str, str, str], BillSummary]()
    for provider in staged.list_providers():
        for batch in staged.iterate_batches(provider):
            for line in batch:
                start_us, end_us, currency = int(line["start_us"]), int(line["end_us"]), str(line["currency"])
                key = (provider, str(line["account"]), f"{from_micros(start_us):%Y-%m}", currency)
                if key not in groups:
                    groups[key] = BillSummary(
                        source=source,
                        provider=provider,
                        account=key[1],
                        month=key[2],
                        currency=currency,
                        start_us=start_us,
                        end_us=end_us,
                    )
                groups[key].add(
                    start_us=start_us,
                    end_us=end_us,
                    nano=int(line["nano"]),
                    charge=str(line["charge"]),
                    estimated=bool(line["estimated"]),
                )
    yield from (groups[key] for key in sorted(groups))
