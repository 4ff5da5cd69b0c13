"""Write bills to the ledger: a statement is imported as a whole or not at all, and repeating it changes nothing.

A line is identified by (provider, account, statement, id). If the ledger has it as stated now, nothing is written. If it was
different before, that row is marked as replaced, with the import and the reason, and a new row is written; if the known row
comes from a later statement, it stays.

A large statement is written in several transactions, and counts when the last one commits (`bills/unfinished.py`). What settled
lines say of doubtful charges is written in that last one (`bills/evidence.py`).

    with StagedStatement() as staged, BillStore(url) as bills:
        staged.add(parts)
        statement = GatheredStatement(staged=staged, source="bill.csv", stated_at=made)
        bills.import_statements([statement], who="ada@lab", now=now)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from operator import itemgetter
from typing import Any

from sqlalchemy import and_, bindparam, func, insert, tuple_, update
from sqlalchemy import select as select_columns
from sqlmodel import col, select

from costguard.bills.bill_line import INVOICED, OF_USAGE, BillImport
from costguard.bills.drift import DriftPart, DriftResult
from costguard.errors import CostguardError, shorten
from costguard.guard.alerts.alert import Notification
from costguard.ledger.bills.evidence import EvidenceResult, apply_evidence
from costguard.ledger.bills.facts import BillFacts, load_bill_facts
from costguard.ledger.bills.reader import RESULT_COLUMNS, count_own_import
from costguard.ledger.bills.staging import BATCH_LINES, LINE_FACTS, BilledRow, StagedStatement, hash_line_key
from costguard.ledger.bills.unfinished import (
    HOLD_S,
    IMPORT_LOCK_ID,
    IMPORT_LOCK_SUFFIX,
    ShortTransactions,
    remove_unfinished_imports,
)
from costguard.ledger.db.codecs import Query, SqlRow, pick_fields, split_batches
from costguard.ledger.db.connection import hold_named_lock
from costguard.ledger.db.rows import IDS, delete_rows, insert_rows, read_batches
from costguard.ledger.db.store import LedgerStore
from costguard.ledger.guard import outbox
from costguard.ledger.spans.correction_parts import Rows
from costguard.ledger.tables.bills import (
    LINE_KEY_NAMES,
    BillAdjustmentRow,
    BillImportRow,
    BillImportUnfinishedRow,
    BillLineRow,
    ReconciliationRow,
)
from costguard.metering.billing import BillingRule, get_billing_rule
from costguard.values.calendar import Period
from costguard.values.instant import from_micros, to_micros
from costguard.values.resource import make_storable

WHY_CHARS_MAX = 300
COLUMN_LABELS = {"start_us": "period", "end_us": "period", "nano": "amount", "estimated": "whether it is estimated"}
"""Fact -> what people call it, where that is another word."""
WITHDRAWN_REASON = "a newer statement no longer contains it"
FAR_US = 2**62
"""Further than any line reaches."""


@dataclass(slots=True, kw_only=True)
class _Import:
    """One import in progress, and its changes so far.

    `gone_since`: lines that a later statement no longer contains. `gone_us`: when lines that it replaced or withdrew begin and
    end.
    """

    writes: ShortTransactions
    number: int
    now_us: int
    stated_us: int
    last_line_id: int
    gone_since: frozenset[SqlRow] = frozenset()
    added: int = 0
    replaced: int = 0
    withdrawn: int = 0
    outdated: int = 0
    gone_us: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatheredStatement:
    """One statement to import: its staged lines, their source, and when they were stated.

    `asked`: the providers that answered, and the period: lines of that period that are no longer stated are withdrawn, unless
    `why` gives a reason that the answer is incomplete. `whole`: `asked` is None, and the statement contains all of the bills
    that its lines belong to: the ledger's other lines of those bills are withdrawn.
    """

    staged: StagedStatement
    source: str
    stated_at: datetime
    asked: tuple[Sequence[str], Period] | None = None
    why: str = ""
    whole: bool = False


class BillStore(LedgerStore):
    """The bills of the ledger at `url`, which is created if missing.

    Use it in a `with` statement. `rules`: how each provider bills; None: imported lines narrow no charges. `hold_s`: seconds
    after which an import lets other writers go first.
    """

    def __init__(self, url: str, *, rules: Mapping[str, BillingRule] | None = None, hold_s: float = HOLD_S) -> None:
        super().__init__(url)
        self._rules, self._hold_s = rules, hold_s
        self._on_server = self._engine.dialect.name == "postgresql"

    def import_statements(self, statements: Sequence[GatheredStatement], *, who: str, now: datetime) -> list[BillImport]:
        """Write the changes of `statements` in order; return the result of each provider's lines.

        They count all at once, with what they say of doubtful charges, or not at all. What an import that died has left behind
        is undone first.
        """
        with hold_named_lock(self._engine, suffix=IMPORT_LOCK_SUFFIX, number=IMPORT_LOCK_ID):
            remove_unfinished_imports(self._engine, hold_s=self._hold_s)
            try:
                with ShortTransactions(self._engine, hold_s=self._hold_s) as writes:
                    imports = list[tuple[_Import, BillImport]]()
                    for statement in statements:
                        imports += _import_statement(writes, statement, who, now)
                    self._publish(writes, imports, now)
            except BaseException:
                with suppress(CostguardError):  # else the next import does it
                    remove_unfinished_imports(self._engine, hold_s=self._hold_s)
                raise
        return [bill_import for _, bill_import in imports]

    def apply_evidence(self, provider: str, period: Period, *, now: datetime) -> EvidenceResult:
        """Narrow the doubtful charges of `provider` in `period` by the bills in the ledger; return what they say."""
        if self._rules is None:
            return EvidenceResult()
        with self._begin_read() as ask:
            facts = load_bill_facts(ask, provider, period, now, get_billing_rule(self._rules, provider).bill)
        with self._begin_write() as (ask, tell):
            return apply_evidence(
                ask, tell, provider, period, rules=self._rules, now=now, on_server=self._on_server, facts=facts
            )

    def _publish(self, writes: ShortTransactions, imports: Sequence[tuple[_Import, BillImport]], now: datetime) -> None:
        """Make imports count, with what they say of doubtful charges, when the present transaction of `writes` commits."""
        rules, numbers, facts = self._rules, [taking.number for taking, _ in imports], dict[str, BillFacts]()
        changed = {} if rules is None else _find_changed_periods(imports)
        if writes.commits and rules is not None:  # what takes long of a large bill is read before the last transaction
            ask = count_own_import(writes.read)
            for provider, period in changed.items():
                facts[provider] = load_bill_facts(ask, provider, period, now, get_billing_rule(rules, provider).bill)
        delete_rows(writes.tell, BillImportUnfinishedRow, [(number,) for number in numbers])
        context: dict[str, Any] = {"rules": rules or {}, "now": now, "on_server": self._on_server}
        for provider, period in changed.items():
            apply_evidence(writes.ask, writes.tell, provider, period, facts=facts.get(provider), **context)

    def record_results(
        self,
        results: Sequence[DriftResult],
        *,
        who: str,
        messages: Sequence[Notification] = (),
        announced: Collection[DriftResult] = (),
    ) -> None:
        """Write the results of comparing bills with charges, and the messages about them, in one transaction.

        `announced`: the results that `messages` are about.
        """
        with self._begin_write() as (ask, tell):
            for result in results:
                number = _make_next_id(ask, ReconciliationRow.id)
                insert_rows(tell, [_encode_result(number, result, who, is_announced=any(result is one for one in announced))])
                tell(insert(BillAdjustmentRow), [_encode_part(number, part, result.currency) for part in result.parts])
            outbox.enqueue_messages(ask, tell, messages)


def _find_changed_periods(imports: Iterable[tuple[_Import, BillImport]]) -> dict[str, Period]:
    """Return by provider the time of which the imports said anything new, replaced or withdrew anything."""
    edges = defaultdict[str, list[int]](list)
    for taking, one in imports:
        if one.added:
            edges[one.provider] += [to_micros(one.start), to_micros(one.end)]
        edges[one.provider] += taking.gone_us
    return {provider: Period(start=from_micros(min(us)), end=from_micros(max(us))) for provider, us in edges.items() if us}


def _import_statement(
    writes: ShortTransactions, statement: GatheredStatement, who: str, now: datetime
) -> Iterator[tuple[_Import, BillImport]]:
    """Yield the import of each provider's lines once it is written, and its result."""
    staged, request = statement.staged, statement.asked
    for provider in sorted({*staged.list_providers(), *(request[0] if request else ())}):
        lines, start_us, end_us, estimated = staged.compute_extent(provider)
        if request is not None:
            start_us, end_us = to_micros(request[1].start), max(to_micros(request[1].start), end_us)
        stated_us = to_micros(statement.stated_at)
        later = and_(col(BillImportRow.provider) == provider, col(BillImportRow.stated_us) > stated_us)
        gone_since = (
            select(BillLineRow.provider, BillLineRow.account, BillLineRow.statement, BillLineRow.line_id)
            .join(BillImportRow, col(BillImportRow.id) == BillLineRow.replaced_by)
            .where(col(BillLineRow.provider) == provider, col(BillLineRow.replaced_why) == WITHDRAWN_REASON)
            .where(col(BillImportRow.stated_us) > stated_us)
        )
        is_late = writes.ask(select(BillImportRow.id).where(later).limit(1))
        taking = _Import(
            writes=writes,
            number=_make_next_id(writes.ask, BillImportRow.id),
            now_us=to_micros(now),
            stated_us=stated_us,
            last_line_id=_make_next_id(writes.ask, BillLineRow.id) - 1,
            gone_since=frozenset(writes.read(gone_since) if is_late else ()),
        )
        import_row = BillImportRow(
            id=taking.number,
            at_us=to_micros(now),
            who=make_storable(who),
            provider=provider,
            source=make_storable(statement.source),
            start_us=start_us,
            end_us=end_us,
            stated_us=stated_us,
            whole=int(not statement.why),
            why=make_storable(shorten(statement.why, WHY_CHARS_MAX)),
            lines=lines,
        )
        insert_rows(writes.tell, [import_row])
        unfinished = BillImportUnfinishedRow(import_id=taking.number, lines_after=taking.last_line_id, undone=0)
        insert_rows(writes.tell, [unfinished])
        lacking, drafts = 0, _list_drafts(writes.ask, staged, provider)
        for withdrawn in _find_withdrawn(taking, staged, provider, request[1] if request else None, drafts):
            if statement.whole or (request is not None and not statement.why):
                _replace_lines(taking, [(number, WITHDRAWN_REASON, *extent) for number, *extent in withdrawn])
                taking.withdrawn += len(withdrawn)
            else:
                lacking += len(withdrawn)
            writes.pause()
        for batch in staged.iterate_batches(provider):
            final_lines = [line for line in batch if not line["line_id"].startswith(drafts)] if drafts else batch
            taking.outdated += len(batch) - len(final_lines)
            _write_batch(taking, final_lines)
            writes.pause()
        result = BillImport(
            provider=provider,
            source=statement.source,
            start=from_micros(start_us),
            end=from_micros(end_us),
            lines=lines,
            added=taking.added,
            replaced=taking.replaced,
            withdrawn=taking.withdrawn,
            outdated=taking.outdated,
            estimated=estimated,
            lacking=lacking if taking.added < lines else 0,  # a statement of which nothing was known is another piece
            why=statement.why,
        )
        yield taking, result


def _list_drafts(ask: Query, staged: StagedStatement, provider: str) -> tuple[str, ...]:
    """Return how the lines of those bills begin that are drafts of one that the ledger has as invoiced.

    A draft has lines without an invoice, and fewer of usage with one than the ledger: whenever it was copied, it is older.
    """
    drafts = list[str]()
    for (statement, bill), (open_lines, invoiced) in staged.count_invoiced(provider).items():
        stored = select(func.count()).where(
            *(col(BillLineRow.provider) == provider, col(BillLineRow.statement) == statement),
            *(col(BillLineRow.replaced_us).is_(None), col(BillLineRow.source).endswith(INVOICED)),
            col(BillLineRow.charge).in_(OF_USAGE),
            func.substr(BillLineRow.line_id, 1, len(bill) + 1) == f"{bill}|",
        )
        if open_lines and invoiced < ask(stored)[0]:
            drafts.append(f"{bill}|")
    return tuple(drafts)


def _write_batch(taking: _Import, batch: Sequence[BilledRow]) -> None:
    """Write the changes of a batch of lines."""
    stored_rows, ids = dict[SqlRow, SqlRow](), defaultdict[SqlRow, list[str]](list)
    for line in batch:
        ids[line["provider"], line["account"], line["statement"]].append(line["line_id"])
    for place, names in ids.items():
        lines = _CURRENT.where(*(column == value for column, value in zip(_PLACE, place, strict=True)))
        stored_rows |= {(*place, row[2]): row for row in read_batches(taking.writes.ask, lines, names)}
    new, replaced = list[BilledRow](), list[SqlRow]()
    for line in batch:
        key = _get_key(line)
        if key in stored_rows:
            number, stated_us, _, *facts = stored_rows[key]
            changed = _describe_change(facts, _get_facts(line))
            if not changed:
                continue
            if stated_us > taking.stated_us:
                taking.outdated += 1
                continue
            replaced.append((number, f"another {changed}", *facts[:2]))
        elif key in taking.gone_since:
            taking.outdated += 1
            continue
        taking.last_line_id += 1
        new.append({**line, "id": taking.last_line_id, "import_id": taking.number, "stated_us": taking.stated_us})
    _replace_lines(taking, replaced)
    taking.writes.tell(insert(BillLineRow), new)
    taking.added, taking.replaced = taking.added + len(new) - len(replaced), taking.replaced + len(replaced)


def _find_withdrawn(
    taking: _Import, staged: StagedStatement, provider: str, period: Period | None, drafts: Sequence[str]
) -> Iterator[list[SqlRow]]:
    """Yield batches of the (row, start, end) of lines that were stated before and are no longer in `staged`.

    A bill delivered as a whole covers every account that it was ever for. Any other answer covers the accounts and statements
    that it has lines of, and `period` alone.
    """
    start_us, end_us = (to_micros(period.start), to_micros(period.end)) if period else (-FAR_US, FAR_US)
    start, end = col(BillLineRow.start_us), col(BillLineRow.end_us)
    line = (col(BillLineRow.id), *_PLACE, col(BillLineRow.line_id), start, end)
    lines = select_columns(*line).where(
        *(col(BillLineRow.provider) == provider, start < end_us, end > start_us),
        *(col(BillLineRow.replaced_us).is_(None), col(BillLineRow.stated_us) <= taking.stated_us),
    )
    for statement, bill in staged.list_bills(provider):
        name = f"{bill}|"
        if name in drafts:
            continue
        of_bill = (col(BillLineRow.statement) == statement, func.substr(BillLineRow.line_id, 1, len(name)) == name)
        for rows in _page_rows(taking.writes.ask, lines.where(*of_bill), -FAR_US):
            yield _select_missing(staged, rows)
    others = staged.list_accounts(provider) if period else set()
    for rows in _page_rows(taking.writes.ask, lines, start_us) if others else ():
        yield _select_missing(staged, [row for row in rows if row[2:4] in others])


def _page_rows(ask: Query, lines: Rows, start_us: int) -> Iterator[Sequence[SqlRow]]:
    """Yield the rows of `lines` from `start_us` on, in batches in the order of an index, so that each row is read once."""
    last, place = (start_us, 0), (col(BillLineRow.start_us), col(BillLineRow.id))
    page = lines.order_by(*place).limit(BATCH_LINES)
    while rows := ask(page.where(tuple_(*place) > last)):
        last = (rows[-1][5], rows[-1][0])
        yield rows


def _select_missing(staged: StagedStatement, rows: Sequence[SqlRow]) -> list[SqlRow]:
    """Return the (row, start, end) of those `rows` that are not in `staged`."""
    names = [row[1:5] for row in rows]
    digests = {digest for some in split_batches(names) for digest in staged.find_digests(some)}
    return [(row[0], *row[5:7]) for row, name in zip(rows, names, strict=True) if hash_line_key(*name) not in digests]


def _describe_change(old_facts: Sequence[object], new_facts: Sequence[object]) -> str:
    """Return the names of the facts of a line that changed, in words; "" for none. `new_facts`: without the last two."""
    changed = (name for name, old, new in zip(LINE_FACTS, old_facts, new_facts, strict=False) if old != new)
    return ", ".join(dict.fromkeys(COLUMN_LABELS.get(name, name) for name in changed))


def _make_next_id(ask: Query, column: int) -> int:
    number: int = ask(select(func.coalesce(func.max(column), 0) + 1))[0]
    return number


def _replace_lines(taking: _Import, rows: list[SqlRow]) -> None:
    """Mark lines as replaced: rows of line, reason, and when the line begins and ends."""
    if rows:
        replaced = update(BillLineRow).where(col(BillLineRow.id) == bindparam("line")).values(replaced_why=bindparam("reason"))
        replaced = replaced.values(replaced_us=taking.now_us, replaced_by=taking.number)
        taking.writes.tell(replaced, [{"line": number, "reason": why} for number, why, *_ in rows])
        edges = [*taking.gone_us, *(row[2] for row in rows), *(row[3] for row in rows)]
        taking.gone_us = [min(edges), max(edges)]


def _encode_result(number: int, result: DriftResult, who: str, *, is_announced: bool) -> ReconciliationRow:
    low, expected, high = result.charged
    return ReconciliationRow(
        **pick_fields(result, RESULT_COLUMNS),
        id=number,
        at_us=to_micros(result.at),
        who=make_storable(who),
        start_us=to_micros(result.period.start),
        end_us=to_micros(result.period.end),
        low=low,
        expected=expected,
        high=high,
        told=int(is_announced),
    )


def _encode_part(number: int, part: DriftPart, currency: str) -> dict[str, object]:
    facts = pick_fields(part, ("cause", "charge", "sku", "nano", "resources", "lines", "reason"))
    return {**facts, "reconciliation_id": number, "currency": currency, "explained": int(part.explained)}


_get_key, _get_facts = itemgetter(*LINE_KEY_NAMES), itemgetter(*LINE_FACTS[:-2])
_PLACE = (col(BillLineRow.provider), col(BillLineRow.account), col(BillLineRow.statement))
_FACTS = (getattr(BillLineRow, name) for name in LINE_FACTS)
_CURRENT = select_columns(col(BillLineRow.id), col(BillLineRow.stated_us), col(BillLineRow.line_id), *_FACTS).where(
    col(BillLineRow.replaced_us).is_(None), col(BillLineRow.line_id).in_(IDS)
)
