"""Read bills from the ledger: lines by resource and time cell, how far they reach, and past reconciliations.

Where an account has two statements for the same time (Cost Explorer and an export), one is used: the one that names resources,
else the one that covers more days, else the newer. The other is named, and never added.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self

from sqlalchemy import ColumnElement, Executable, and_, bindparam, case, func, or_
from sqlalchemy import select as select_columns
from sqlalchemy.orm import aliased
from sqlmodel import col, select

from costguard.bills.bill_schedule import ASKED_BACK_MAX, DoubtfulCharge
from costguard.bills.drift import BilledLines, ProviderBill, ReconciliationRecord
from costguard.ledger.db.codecs import Query, pick_fields
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.spans.correction_parts import Rows, join_last_correction
from costguard.ledger.tables.bills import BillImportRow, BillImportUnfinishedRow, BillLineRow, ReconciliationRow
from costguard.ledger.tables.spans import CorrectionRow, ObservationRow, ResourceRow, ScopeRow, SpanRow
from costguard.values.calendar import Period
from costguard.values.instant import DAY_US, HOUR_US, MICROSECOND, from_micros, to_micros
from costguard.values.money import NANO

RECENT_US = timedelta(days=2) // MICROSECOND
"""An estimated line that ends so near to the newest one counts as late: it is not all there yet. An assumption, 2026-11."""
UNFINISHED = select(BillImportUnfinishedRow.import_id).where(col(BillImportUnfinishedRow.undone) >= bindparam("least", 0))
"""The imports that are being written, or whose process died (`unfinished`)."""
STATED = and_(
    or_(col(BillLineRow.replaced_us).is_(None), col(BillLineRow.replaced_by).in_(UNFINISHED)),
    col(BillLineRow.import_id).not_in(UNFINISHED),
)
"""The condition under which a row of `bill_line` counts: it is stated, whatever an unfinished import did."""

RESULT_COLUMNS = ("provider", "account", "currency", "billed", "unexplained", "allowed", "outcome", "tolerance")
"""What a reconciliation's row has as its result has it."""
ROW_STEPS = (10_000_000, 1_000_000, 100_000)
"""Nano-units: a cent, a tenth and a hundredth of one."""


def count_own_import(ask: Query) -> Query:
    """Return `ask` as the ledger will answer once the present import counts. For whoever holds the lock of imports."""
    return lambda statement, values=(): ask(statement, {**dict(values), "least": 1})


class BillLedgerReader:
    """Read the bills of the ledger at `url`.

    Use it in a `with` statement.
    """

    def __init__(self, url: str) -> None:
        self._reader = LedgerReader(url)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._reader.close()

    def _query(self, statement: Executable) -> Sequence[Any]:
        with self._reader.snapshot() as ask:
            return ask(statement)

    def load_statements(self, provider: str, period: Period) -> tuple[dict[str, ProviderBill], list[ProviderBill]]:
        """Return the statement that counts for each account, and the list of those set aside."""
        with self._reader.snapshot() as ask:
            return load_statements(ask, provider, period)

    def load_billed_lines(self, provider: str, one: ProviderBill, period: Period, fine_us: int) -> list[BilledLines]:
        """Return the lines of a statement that lie entirely in `period`, summed by resource, kind of charge and cell.

        Cells are hours since 1970: each hour from `fine_us` on; before that, the first hour of each day.
        """
        lines = (is_of_statement(provider, one), _is_within(period))
        rows = self._query(_sum_cells(fine_us, one.end_us - RECENT_US).where(*lines))
        over = {tuple(row[:3]): row[3] for row in self._query(_count_lines_across(*lines))}
        billed_lines = list[BilledLines]()
        for region, resource, charge, currency, first, last, high, low, lines, late, *steps, note in rows:
            step = next((size for size, count in zip(ROW_STEPS, steps, strict=True) if count == lines), 0)
            over_here = over.pop((resource, charge, currency), 0)
            nano = int(high) * NANO + int(low)
            cell = (one.account, region, resource, charge, currency, int(first), int(last))
            billed_lines.append(BilledLines(*cell, nano, lines, int(late), step, over_here, note))
        return billed_lines

    def count_straddling(self, provider: str, one: ProviderBill, period: Period) -> int:
        """Return how many lines cross an edge of `period`: they are compared in neither of the two periods."""
        start, end = to_micros(period.start), to_micros(period.end)
        crosses = or_(col(BillLineRow.start_us) < start, col(BillLineRow.end_us) > end)
        touches = and_(col(BillLineRow.start_us) < end, col(BillLineRow.end_us) > start)
        count: int = self._query(select(func.count()).where(is_of_statement(provider, one), touches, crosses))[0]
        return count

    def load_last_import_time(self, provider: str, account: str, *, who: str, until: datetime) -> datetime | None:
        """Return when `who` last took in a current line of an account, by `until`; None: never.

        An import that changed no line of the account is not counted.
        """
        own = and_(col(BillLineRow.provider) == provider, col(BillLineRow.account) == account, STATED)
        imports = select(func.max(BillImportRow.at_us)).join(BillLineRow, col(BillLineRow.import_id) == BillImportRow.id)
        taken_by = and_(col(BillImportRow.who) == who, col(BillImportRow.at_us) <= to_micros(until))
        at_us: int | None = self._query(imports.where(own, taken_by))[0]
        return None if at_us is None else from_micros(at_us)

    def load_doubtful_charges(self, provider: str, account: str, now: datetime) -> list[DoubtfulCharge]:
        """Return the closed spans of an account that a bill may still bound, and that ended not too long before `now`."""
        spans = select_columns(col(SpanRow.id), col(SpanRow.start_us), col(SpanRow.end_us)).join(
            ResourceRow, col(ResourceRow.id) == SpanRow.resource_id
        )
        low, high = (func.coalesce(getattr(CorrectionRow, name), getattr(SpanRow, name)) for name in ("low", "high"))
        doubtful = join_last_correction(spans).where(
            col(ResourceRow.provider) == provider,
            col(ResourceRow.account) == account,
            col(SpanRow.end_us) > to_micros(now - ASKED_BACK_MAX),
            col(SpanRow.charge) != "traffic",
            low < high,
        )
        return [DoubtfulCharge(*row) for row in self._query(doubtful)]

    def load_known_resources(self, provider: str) -> dict[tuple[str, str], int]:
        """Return (account, id) of every resource ever seen -> the hour since 1970 in which it was first seen.

        The hour is -1 where the provider states since when the resource exists.
        """
        created = func.replace(ObservationRow.detail, '"created_at":', "") != ObservationRow.detail
        states = select(ObservationRow.id).where(
            col(ObservationRow.resource_id) == ResourceRow.id, or_(col(ObservationRow.started_us).is_not(None), created)
        )
        hour = case((states.exists(), -1), else_=col(ResourceRow.first_seen_us) // HOUR_US)
        statement = select(ResourceRow.account, ResourceRow.external_id, hour).where(col(ResourceRow.provider) == provider)
        return {(account, external_id): since for account, external_id, since in self._query(statement)}

    def list_accounts_of(self, provider: str) -> list[str]:
        """Return the accounts of `provider` that were ever polled."""
        accounts = select(ScopeRow.account).where(col(ScopeRow.provider) == provider).distinct()
        return list(self._query(accounts.order_by(col(ScopeRow.account))))

    def list_billed_providers(self, period: Period) -> list[str]:
        """Return the providers with lines in `period`."""
        start, end = to_micros(period.start), to_micros(period.end)
        begins = and_(col(BillLineRow.start_us) >= start, col(BillLineRow.start_us) < end)
        providers = select(BillLineRow.provider).where(STATED, begins).distinct()
        return list(self._query(providers.order_by(col(BillLineRow.provider))))

    def load_reconciliations(self, period: Period) -> list[ReconciliationRecord]:
        """Return the last reconciliations of `period`: see the function `load_reconciliations`."""
        with self._reader.snapshot() as ask:
            return load_reconciliations(ask, period)


def load_statements(ask: Query, provider: str, period: Period) -> tuple[dict[str, ProviderBill], list[ProviderBill]]:
    """Return the statement that counts for each account in `period`, and the list of those set aside."""
    bills = defaultdict[str, list[ProviderBill]](list)
    for account, name, lines, resources, days, micros, start_us, end_us, newest in ask(
        _select_statements(col(BillLineRow.provider) == provider, STATED, _is_within(period))
    ):
        counts = {"lines": int(lines), "resources": int(resources), "days": days, "newest": newest, "micros": int(micros)}
        bills[account].append(ProviderBill(account=account, name=name, start_us=start_us, end_us=end_us, **counts))
    best = {account: max(every, key=lambda one: (one.resources > 0, one.days, one.newest)) for account, every in bills.items()}
    return best, [one for every in bills.values() for one in every if one is not best[one.account]]


def load_reconciliations(ask: Query, period: Period) -> list[ReconciliationRecord]:
    """Return the last reconciliation per provider, account and currency that covers at least half of `period`."""
    overlaps = and_(
        col(ReconciliationRow.start_us) < to_micros(period.end), col(ReconciliationRow.end_us) > to_micros(period.start)
    )
    rows: Sequence[ReconciliationRow] = ask(select(ReconciliationRow).where(overlaps).order_by(col(ReconciliationRow.id)))
    records = dict[tuple[str, str, str], ReconciliationRecord]()
    for row in rows:
        its = Period(start=from_micros(row.start_us), end=from_micros(row.end_us))
        part = its.intersect(period)
        if part is None or 2 * part.length < period.length:
            continue
        records[row.provider, row.account, row.currency] = ReconciliationRecord(
            **pick_fields(row, RESULT_COLUMNS),
            period=its,
            at=from_micros(row.at_us),
            charged=(row.low, row.expected, row.high),
            told=bool(row.told),
        )
    return [records[key] for key in sorted(records)]


def is_of_statement(provider: str, one: ProviderBill) -> ColumnElement[bool]:
    """Return whether a line is a current one of this statement."""
    names = ((BillLineRow.provider, provider), (BillLineRow.account, one.account), (BillLineRow.statement, one.name))
    return and_(*(col(column) == value for column, value in names), STATED)


def _is_within(period: Period) -> ColumnElement[bool]:
    start, end = to_micros(period.start), to_micros(period.end)
    return and_(col(BillLineRow.start_us) >= start, col(BillLineRow.start_us) < end, col(BillLineRow.end_us) <= end)


def count_where(condition: ColumnElement[bool]) -> ColumnElement[int]:
    """Return the number of rows for which `condition` holds."""
    return func.sum(case((condition, 1), else_=0))


def sum_amounts() -> tuple[ColumnElement[int], ColumnElement[int]]:
    """Return the sum of amounts as whole units and nano-units, because it may exceed 64 bits."""
    return func.sum(col(BillLineRow.nano) // NANO), func.sum(col(BillLineRow.nano) % NANO)


def _select_statements(*where: ColumnElement[bool]) -> Executable:
    """Return the statements of such lines, by account.

    A statement reaches as far as every import from the sources that its lines came from, those that changed nothing, too.
    """
    names = (col(BillLineRow.account), col(BillLineRow.statement))
    resources = count_where(col(BillLineRow.external_id) != "")
    days = func.count(func.distinct(col(BillLineRow.start_us) // DAY_US))
    by_import = (
        select_columns(
            *names,
            col(BillLineRow.import_id),
            func.sum(func.count()).over(partition_by=names).label("lines"),
            func.sum(resources).over(partition_by=names).label("resources"),
            func.max(days).over(partition_by=names).label("days"),
            func.sum(func.sum(col(BillLineRow.nano) // 1000)).over(partition_by=names).label("micros"),
        )
        .where(*where)
        .group_by(*names, col(BillLineRow.import_id))
        .subquery()
    ).c
    own, same = aliased(BillImportRow), BillImportRow
    of_source = and_(col(same.provider) == own.provider, col(same.source) == own.source, col(same.id).not_in(UNFINISHED))
    sums = (func.max(one) for one in (by_import.lines, by_import.resources, by_import.days, by_import.micros))
    extent = (func.min(same.start_us), func.max(same.end_us), func.max(same.id))
    return (
        select_columns(by_import.account, by_import.statement, *sums, *extent)
        .join(own, col(own.id) == by_import.import_id)
        .join(same, of_source)
        .group_by(by_import.account, by_import.statement)
        .order_by(by_import.account, by_import.statement)
    )


def _sum_cells(fine_us: int, late_us: int) -> Rows:
    """Return the sums of lines by resource, charge and cell; those that end after `late_us` may be late."""
    start, end = col(BillLineRow.start_us), col(BillLineRow.end_us)
    line = (col(BillLineRow.region), col(BillLineRow.external_id), col(BillLineRow.charge), col(BillLineRow.currency))
    region, resource, charge, currency = line
    first = case((start >= fine_us, start // HOUR_US), else_=start // DAY_US * 24).label("first_cell")
    last = case((end > fine_us, (end - 1) // HOUR_US), else_=(end - 1) // DAY_US * 24).label("last_cell")
    late = count_where(and_(col(BillLineRow.estimated) == 1, end > late_us))
    steps = (count_where(col(BillLineRow.nano) % size == 0) for size in ROW_STEPS)
    cells = select_columns(
        *line, first, last, *sum_amounts(), func.count(), late, *steps, func.min(BillLineRow.description)
    ).group_by(*line, "first_cell", "last_cell")
    return cells.order_by(resource, charge, currency, region, "first_cell", "last_cell")


def _count_lines_across(*where: ColumnElement[bool]) -> Executable:
    """Count lines that begin before one before them ends, and are not of the same time as the last one.

    They are hours beside their day.
    """
    start, end = col(BillLineRow.start_us), col(BillLineRow.end_us)
    names = (col(BillLineRow.external_id), col(BillLineRow.charge), col(BillLineRow.currency))
    window: Any = {
        "partition_by": (*names, col(BillLineRow.region), col(BillLineRow.description)),
        "order_by": (start, end.desc()),
    }
    line = (
        select_columns(
            *names,
            start,
            end,
            func.lag(start).over(**window).label("start_before"),
            func.lag(end).over(**window).label("end_before"),
            func.max(end).over(**window, rows=(None, -1)).label("reached"),
        )
        .where(*where, col(BillLineRow.external_id) != "", col(BillLineRow.charge).not_in(("tax", "credit")))
        .subquery()
    ).c
    same_time = and_(line.start_before == line.start_us, line.end_before == line.end_us)
    by = (line.external_id, line.charge, line.currency)
    return select_columns(*by, func.count()).where(line.reached > line.start_us, ~same_time).group_by(*by)
