"""Collect the lines of a statement in a temporary file.

So at most `BATCH_LINES` of them are in memory at a time. The parts of a line are summed here, exactly (to 1e-18), and rounded
once, half to even. The ledger is written after the whole statement has been read: a file that breaks in the middle writes
nothing, and reading a large file blocks no other writer.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from hashlib import sha256
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self

from sqlalchemy import Column, MetaData, Select, Table, and_, bindparam, case, create_engine, func, inspect, select
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.pool import StaticPool
from sqlalchemy.types import Integer, LargeBinary, Text

from costguard.bills.bill_files import BillLinePart
from costguard.bills.bill_line import CREDIT, INVOICED, OF_USAGE, TAX, BillLine
from costguard.errors import InputError, LedgerError
from costguard.ledger.tables.bills import LINE_KEY_NAMES, BillLineRow
from costguard.values.instant import to_micros
from costguard.values.money import NANO, divide_half_even
from costguard.values.resource import make_storable

BATCH_LINES = 500
"""Lines that are written, read and looked up at a time."""
ID_CHARS_MAX = 120
"""Characters of a line's id that are kept as they are: an export's has hundreds, and PostgreSQL's index takes 2,704 bytes."""
ATTO, ATTO_PER_NANO = 18, 10**9
CACHE_KIB = 32 * 1024

LINE_FACTS = ("start_us", "end_us", "nano", "currency", "charge", "external_id", "region", "estimated", "source", "description")
LINE_COLUMNS = (*LINE_KEY_NAMES, *LINE_FACTS)
BilledRow = dict[str, Any]  # by the names of LINE_COLUMNS


class StagedStatement:
    """The lines of one statement, deleted when the block ends.

    Use it in a `with` statement.
    """

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="costguard-bill-")
        self._file = sqlite3.connect(f"{self._folder.name}/lines.db")
        for pragma in ("journal_mode = OFF", "synchronous = OFF", f"cache_size = -{CACHE_KIB}"):
            self._file.execute(f"PRAGMA {pragma}").fetchall()
        self._engine = create_engine("sqlite://", creator=lambda: self._file, poolclass=StaticPool, hide_parameters=True)
        _LINE.metadata.create_all(self._engine)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._engine.dispose()
        self._folder.cleanup()

    def add(self, parts: Iterable[BillLinePart], *, sums: bool = True) -> None:
        """Store `parts`: each is added to the amount of its line, or replaces the line if `sums` is False."""
        batch = list[dict[str, object]]()
        for line, amount in parts:
            batch.append(_encode_line(line, *divmod(int(amount.scaleb(ATTO).to_integral_value()), ATTO_PER_NANO)))
            if len(batch) == BATCH_LINES:
                self._write(batch, sums=sums)
                batch.clear()
        self._write(batch, sums=sums)

    def list_providers(self) -> list[str]:
        """Return the providers of the lines, sorted."""
        return [name for (name,) in self._ask(select(_LINE.c.provider).distinct().order_by(_LINE.c.provider))]

    def compute_extent(self, provider: str) -> tuple[int, int, int, int]:
        """Return (lines, first start, last end, estimated lines) of one provider, times in microseconds.

        Tax and credits cover whole months, so they do not count for start and end unless there are no other lines.
        """
        start_us, end_us, counts = _LINE.c.start_us, _LINE.c.end_us, _LINE.c.charge.not_in((TAX, CREDIT))
        start = func.coalesce(func.min(case((counts, start_us))), func.min(start_us), 0)
        end = func.coalesce(func.max(case((counts, end_us))), func.max(end_us), 0)
        sums = select(func.count(), start, end, func.coalesce(func.sum(_LINE.c.estimated), 0))
        (extent,) = self._ask(sums.where(_LINE.c.provider == provider))
        return tuple(extent)

    def sum_amounts(self) -> dict[str, Decimal]:
        """Return the sum of all lines by currency."""
        units, nano = func.sum(_LINE.c.nano // NANO), func.sum(_LINE.c.nano % NANO)
        sums = self._ask(select(_LINE.c.currency, units, nano).group_by(_LINE.c.currency))
        return {currency: Decimal(units) + Decimal(nano).scaleb(-9) for currency, units, nano in sums}

    def iterate_batches(self, provider: str) -> Iterator[list[BilledRow]]:
        """Yield the lines of one provider in batches, as the ledger has them."""
        last, names = 0, (_LINE.c[name] for name in LINE_COLUMNS)
        lines = select(_LINE.c.id, _LINE.c.rest, *names).where(_LINE.c.provider == provider, _LINE.c.id > bindparam("last"))
        page = lines.order_by(_LINE.c.id).limit(BATCH_LINES)
        while rows := self._ask(page, {"last": last}):
            last = rows[-1][0]
            yield [_round_sum(row[1], dict(zip(LINE_COLUMNS, row[2:], strict=True))) for row in rows]

    def list_bills(self, provider: str) -> list[tuple[str, str]]:
        """Return (statement, bill) of the bills of its lines that are delivered as a whole."""
        bills = select(_LINE.c.statement, _LINE.c.bill).where(_LINE.c.provider == provider, _LINE.c.bill != "").distinct()
        return [(statement, bill) for statement, bill in self._ask(bills.order_by(_LINE.c.statement, _LINE.c.bill))]

    def count_invoiced(self, provider: str) -> dict[tuple[str, str], tuple[int, int]]:
        """Return (statement, bill) -> the number of its lines without an invoice, and of those of usage with one."""
        invoiced = _LINE.c.source.endswith(INVOICED)
        counts = (func.sum(case((one, 1), else_=0)) for one in (~invoiced, and_(invoiced, _LINE.c.charge.in_(OF_USAGE))))
        bills = select(_LINE.c.statement, _LINE.c.bill, *counts).group_by(_LINE.c.statement, _LINE.c.bill)
        rows = self._ask(bills.where(_LINE.c.provider == provider, _LINE.c.bill != ""))
        return {(statement, bill): (open_lines, final) for statement, bill, open_lines, final in rows}

    def list_accounts(self, provider: str) -> set[tuple[str, str]]:
        """Return (account, statement) of the lines that belong to no such bill."""
        accounts = select(_LINE.c.account, _LINE.c.statement).where(_LINE.c.provider == provider, _LINE.c.bill == "")
        return {(account, statement) for account, statement in self._ask(accounts.distinct())}

    def find_digests(self, names: Sequence[tuple[str, str, str, str]]) -> set[bytes]:
        """Return the digests of those of `names` that the statement has."""
        digests = [hash_line_key(*name) for name in names]
        return {digest for (digest,) in self._ask(_STATED, {"digests": digests})}

    def _ask(self, statement: Select[Any], values: Mapping[str, object] | None = None) -> Sequence[Any]:
        with self._engine.connect() as connection:
            return connection.execute(statement, values).all()

    def _write(self, batch: list[dict[str, object]], *, sums: bool) -> None:
        if batch:
            with _translate_staging_errors(), self._engine.begin() as connection:
                connection.execute(_ADD_TO_LINE if sums else _REPLACE_LINE, batch)


def hash_line_key(provider: str, account: str, statement: str, line_id: str) -> bytes:
    """Return the digest by which a line is looked up."""
    return sha256(f"{provider}\0{account}\0{statement}\0{line_id}".encode()).digest()[:16]


def shorten_line_id(line_id: str, bill: str = "") -> str:
    """Return a line's id as stored in the ledger: itself, or for a long id its hash, prefixed with `bill`."""
    text = make_storable(line_id)
    if len(text) <= ID_CHARS_MAX:
        return text
    hashed = f"sha256:{sha256(text.encode()).hexdigest()}"
    return f"{make_storable(bill)}|{hashed}" if bill else hashed


@contextmanager
def _translate_staging_errors() -> Iterator[None]:
    """Raise LedgerError if lines cannot be stored, and InputError if a line's sum is too large for any bill."""
    try:
        yield
    except (IntegrityError, OverflowError):
        raise InputError("sums to more than nine billion in one line", field="bill", hint="check its currency") from None
    except (DBAPIError, OSError) as broken:
        hint = "free disk space there, or set TMPDIR to another folder"
        what = f"the bill's lines cannot be stored temporarily: {broken.orig if isinstance(broken, DBAPIError) else broken}"
        raise LedgerError(what, field="the folder for temporary files", hint=hint) from None


def _encode_line(line: BillLine, nano: int, rest: int) -> dict[str, object]:
    name = (make_storable(line.provider), make_storable(line.account), line.statement, shorten_line_id(line.id, line.bill))
    return {
        "digest": hash_line_key(*name),
        "bill": make_storable(line.bill),
        **dict(zip(LINE_KEY_NAMES, name, strict=True)),
        "start_us": to_micros(line.start),
        "end_us": to_micros(line.end),
        "nano": line.amount.nano + nano,
        "rest": rest,
        "currency": line.amount.currency,
        "charge": line.charge,
        "external_id": make_storable(line.resource_id),
        "region": make_storable(line.region),
        "estimated": int(line.estimated),
        "source": make_storable(line.source),
        "description": make_storable(line.description),
    }


def _round_sum(rest: int, line: BilledRow) -> BilledRow:
    return {**line, "nano": divide_half_even(line["nano"] * ATTO_PER_NANO + rest, ATTO_PER_NANO)}


_LINE = Table(
    "line",
    MetaData(),
    *(Column("id", Integer, primary_key=True), Column("digest", LargeBinary, nullable=False, unique=True)),
    *(Column("bill", Text, nullable=False), Column("rest", Integer, nullable=False)),
    *(Column(name, inspect(BillLineRow).columns[name].type, nullable=False) for name in LINE_COLUMNS),
    sqlite_strict=True,
)
_STATED = select(_LINE.c.digest).where(_LINE.c.digest.in_(bindparam("digests", expanding=True)))
_INSERT = insert(_LINE)
_NEW = _INSERT.excluded
_ADD_TO_LINE = _INSERT.on_conflict_do_update(
    index_elements=[_LINE.c.digest],
    set_={name: _LINE.c[name] + _NEW[name] for name in ("nano", "rest")}
    | {name: func.max(_LINE.c[name], _NEW[name]) for name in ("end_us", "estimated")},
)
_REPLACE_LINE = _INSERT.on_conflict_do_update(
    index_elements=[_LINE.c.digest],
    set_={name: _NEW[name] for name in ("start_us", "end_us", "nano", "rest", "charge", "external_id", "estimated")},
)
