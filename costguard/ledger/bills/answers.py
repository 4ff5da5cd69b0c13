"""Read the complete answers that providers gave about their bills: they confirm lines that are stated again, and show gaps.

The ledger writes nothing for a line that is stated again as it was. But a complete answer withdraws what it lacks: so whatever
counts of its account and period was in it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import ColumnElement, literal
from sqlalchemy import select as select_columns
from sqlalchemy.orm import Mapped
from sqlmodel import col

from costguard.bills.bill_line import ASKED
from costguard.bills.bill_schedule import ASKED_BACK_MAX
from costguard.bills.drift import ProviderBill
from costguard.bills.evidence import BillAnswerPeriod, EvidenceLine
from costguard.ledger.bills.reader import UNFINISHED
from costguard.ledger.db.codecs import Query
from costguard.ledger.db.rows import IDS, read_batches
from costguard.ledger.spans.correction_parts import Rows
from costguard.ledger.tables.bills import BillImportRow, BillLineRow
from costguard.values.instant import MICROSECOND

LONGEST_US = ASKED_BACK_MAX // MICROSECOND
"""Lines that begin so long before a period are no more looked for: no answer that a watchdog asks for is longer."""
ResourceNames = Mapping[str, Collection[str]]
"""Account -> ids of resources."""


def confirm_lines(
    lines: Mapping[tuple[str, str, str], list[EvidenceLine]], answers: Mapping[str, Sequence[BillAnswerPeriod]]
) -> None:
    """Let estimated lines be as old as the newest complete answer that has them: what it lacks, it would have withdrawn.

    The ledger writes nothing for a line that is stated again.
    """
    for (account, *_), own_lines in lines.items():
        for number, line in enumerate(own_lines):
            if line.estimated:
                its = (one for one in answers[account] if one.start_us <= line.start_us and line.end_us <= one.end_us)
                own_lines[number] = line._replace(stated_us=max([line.stated_us, *(one.stated_us for one in its)]))


def load_answers(ask: Query, provider: str, statement: ProviderBill, within: tuple[int, int]) -> list[BillAnswerPeriod]:
    """Return the complete answers that had lines of a statement, also such as were replaced since."""
    return [BillAnswerPeriod(*facts) for _, *facts in ask(_select_answers(literal(""), provider, statement, within))]


def load_answers_of_resources(
    ask: Query, provider: str, statements: Mapping[str, ProviderBill], names: ResourceNames, within: tuple[int, int]
) -> dict[tuple[str, str], list[BillAnswerPeriod]]:
    """Return the complete answers that had lines of each resource, also such as were replaced since, by account and id."""
    answers, external_id = defaultdict[tuple[str, str], list[BillAnswerPeriod]](list), col(BillLineRow.external_id)
    for account, statement in statements.items():
        imports = _select_answers(external_id, provider, statement, within).where(external_id.in_(IDS))
        for name, *facts in read_batches(ask, imports, sorted(names[account])):
            answers[account, name].append(BillAnswerPeriod(*facts))
    return answers


def _select_answers(
    name: ColumnElement[str] | Mapped[str], provider: str, statement: ProviderBill, within: tuple[int, int]
) -> Rows:
    """Select `name`, and the facts of the complete answer, of each line of a statement."""
    return (
        select_columns(name, col(BillImportRow.start_us), col(BillImportRow.end_us), col(BillImportRow.stated_us))
        .distinct()
        .join(BillLineRow, col(BillImportRow.id) == BillLineRow.import_id)
        .where(col(BillLineRow.provider) == provider, col(BillLineRow.account) == statement.account)
        .where(col(BillLineRow.statement) == statement.name)
        .where(col(BillLineRow.start_us) >= BillImportRow.start_us, col(BillLineRow.start_us) < BillImportRow.end_us)
        .where(col(BillLineRow.start_us) >= within[0] - LONGEST_US)
        .where(col(BillImportRow.start_us) < within[1], col(BillImportRow.end_us) > within[0])
        .where(
            col(BillImportRow.whole) == 1, col(BillImportRow.source).endswith(ASKED), col(BillImportRow.id).not_in(UNFINISHED)
        )
    )
