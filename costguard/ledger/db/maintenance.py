"""`costguard db`: path, backup, check and upgrade of a ledger.

The check recomputes all derived values in Python: amounts from the spans' own prices and times, and daily sums from the spans;
monthly sums are compared with both. It compares the audit log with its hashes, and with the
overrides, intents, hooks and agents that it records.
`has_wal_fix` detects SQLite versions with a fault that can damage a file with a write-ahead log.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import func, or_, select
from sqlalchemy.exc import DBAPIError
from sqlmodel import col

from costguard.errors import CostguardError, InputError
from costguard.ledger.db.address import URL_FIELD, parse_ledger_address
from costguard.ledger.db.codecs import Query, SqlRow, decode_attribution, decode_span
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.guard.audit_check import check_audit
from costguard.ledger.spans.correction_parts import (
    PART_COLUMNS,
    RESOURCE,
    SPAN,
    CorrectionPart,
    decode_parts,
    encode_parts,
    join_last_correction,
)
from costguard.ledger.spans.hourly import HourlyRollup, check_hours
from costguard.ledger.spans.monthly import check_months
from costguard.ledger.spans.posting import is_machine_time
from costguard.ledger.tables.rollups import DailyRow
from costguard.ledger.tables.spans import (
    ATTRIBUTION_KEY,
    AttributionRow,
    CorrectionPartRow,
    CorrectionRow,
    CoverageRow,
    ResourceRow,
    ScopeRow,
    SpanRow,
)
from costguard.metering.span import Span, compute_amounts, split_by_day
from costguard.values.instant import from_micros, to_micros
from costguard.values.resource import Attribution, ResourceKey

if TYPE_CHECKING:  # a type and no more: asking for the path imports no SQLAlchemy
    from costguard.ledger.db.connection import Upgrade


FINDINGS_MAX = 20
"""Of one kind; the rest are counted."""

PAGE_ROWS = 5000
"""Spans read at a time."""

SpanAmounts = tuple[int, int, int]
DailyKey = tuple[int, int, str, str, int]
"""Day, attribution, charge, currency, and 1 where the price is known."""


def describe_ledger_path(url: str) -> str:
    """Return the location of the ledger at `url` for people.

    It is a file's absolute path, or a server's address without its password.
    """
    return parse_ledger_address(url).shown


def backup_ledger(url: str, target: Path) -> int:
    """Write a checked copy of a SQLite ledger to `target`, which must not exist; return its size in bytes.

    Raises InputError for a ledger on a server, which has its own backup tool.
    """
    from costguard.ledger.db.backup import copy_ledger

    where = parse_ledger_address(url)
    if where.path is None:
        hint = f"pg_dump --format=custom --file={target} '{where.shown}'"
        raise InputError("is on a PostgreSQL server, use the server's own backup tool", field=URL_FIELD, hint=hint)
    LedgerReader(url).close()  # refuses what is no ledger
    copy_ledger(where, target)
    return target.stat().st_size


def upgrade_ledger(url: str) -> Upgrade:
    """Create the ledger, or copy an older one and upgrade it to this version; rewrite a file that cannot shrink in steps."""
    from costguard.ledger.db.connection import open_engine, upgrade_schema
    from costguard.ledger.db.free_pages import rewrite_file

    upgrade = upgrade_schema(url)
    engine = open_engine(url)
    try:
        return replace(upgrade, rewritten=rewrite_file(engine))
    finally:
        engine.dispose()


def check_ledger(url: str) -> list[str]:
    """Return the faults of the ledger at `url`, a sentence each; empty if there are none.

    Nothing is changed. The schema is compared with that of a new ledger. If the file is damaged, only that is reported, because
    its content cannot be relied on.
    """
    from costguard.ledger.db.schema_check import check_schema

    with LedgerReader(url) as reader, reader.snapshot() as ask:
        server = reader.where.path is None
        damage = [] if server else list(check_file(ask))
        if damage:
            return _limit_findings(damage)
        kinds = (
            () if server else check_references(ask),
            check_schema(reader.connection, reader.where),
            _check_overlaps(ask),
            _check_coverage(ask),
            _check_amounts(ask),
            check_months(ask),
            (finding.what for finding in check_audit(ask)[1]),
        )
        return [sentence for kind in kinds for sentence in _limit_findings(list(kind))]


def _limit_findings(findings: Sequence[str]) -> list[str]:
    more = len(findings) - FINDINGS_MAX
    return [*findings[:FINDINGS_MAX], *([f"and {more} more of this kind"] if more > 0 else [])]


def check_file(ask: Query) -> Iterator[str]:
    """Yield the faults that SQLite reports."""
    try:
        findings = [text for (text,) in ask(f"PRAGMA integrity_check({FINDINGS_MAX})") if text != "ok"]
    except DBAPIError as broken:  # so damaged that it cannot be gone through
        findings = [str(broken.orig)]
    yield from (f"the file is damaged: {text}" for text in findings)


def check_references(ask: Query) -> Iterator[str]:
    """Yield the rows that name a row that is missing; a server checks that itself."""
    for table, row, parent, _ in ask("PRAGMA foreign_key_check"):
        yield f"row {row} of {table} names a row of {parent} that does not exist"


def _check_overlaps(ask: Query) -> Iterator[str]:
    for first, second, provider, external_id, charge in ask(_OVERLAPS):
        yield f"spans {first} and {second} of {provider} {external_id} ({charge}) overlap"


def _check_coverage(ask: Query) -> Iterator[str]:
    for row, provider, account, name in ask(_COVERAGE_OVERLAPS):
        yield f"coverage {row} of {provider}/{account}/{name} starts before the one before it ends"


def _check_amounts(ask: Query) -> Iterator[str]:
    """Yield closed spans, corrections, days and hours whose money differs from the amount computed from times and prices."""
    days, hours = dict[DailyKey, list[int]](), HourlyRollup()
    (attributions, unreadable), parts = _load_attributions(ask), _load_parts_by_correction(ask)
    yield from (f"attribution {number} cannot be read: a value in it is not valid" for number in unreadable)
    for row in _page_closed_spans(ask):
        if row[1] not in attributions:  # it was reported above, or its row is missing
            continue
        try:
            number, attribution_id, span, stored_amounts, corrected = _decode_closed_span(row, attributions)
        except CostguardError as broken:
            yield f"span {row[0]} is invalid: {broken.field} {broken.what}"
            continue
        came_to = _compute_amounts(span)
        if came_to != stored_amounts:
            yield f"span {number} says {_format_amounts(stored_amounts)} and comes to {_format_amounts(came_to)} nano-units"
        counted = [span]
        if corrected is not None:
            correction, presence, money = corrected
            span = replace(span, presence=presence)
            rows = parts.pop(correction, [])
            try:
                decoded = decode_parts(span, rows)
            except CostguardError as broken:
                yield f"a part of correction {correction} is invalid: {broken.field} {broken.what}"
                continue
            yield from _check_parts(correction, span, rows, decoded)
            counted = [part.span for part in decoded] or [span]
            came_to = _sum_amounts(counted)
            if came_to != money:
                yield (
                    f"correction {correction} says {_format_amounts(money)} and comes to {_format_amounts(came_to)} nano-units"
                )
        _add_days(days, attribution_id, counted)
        for one in counted:
            hours.add(one, _compute_amounts(one)[1])
    yield from _check_days(ask, days)
    yield from check_hours(ask, hours)


def _load_parts_by_correction(ask: Query) -> dict[int, list[SqlRow]]:
    """Return the parts of the last correction of each span."""
    parts = defaultdict[int, list[SqlRow]](list)
    for row in ask(_PARTS):
        parts[row[0]].append(row)
    return parts


def _check_parts(correction: int, span: Span, rows: Sequence[SqlRow], parts: Sequence[CorrectionPart]) -> Iterator[str]:
    """Yield the parts whose amounts differ from those computed, and parts that do not cover their span."""
    edges = [(to_micros(span.start),), *((row[1], row[2]) for row in rows), (to_micros(span.end or span.start),)]
    if rows and any(edge[-1] != following[0] for edge, following in pairwise(edges)):
        yield f"the parts of correction {correction} do not cover its span"
    for stored_row, computed in zip(rows, encode_parts(correction, parts), strict=True):
        if tuple(stored_row) != computed:
            came_to = _format_amounts(computed[6:])
            yield f"a part of correction {correction} says {_format_amounts(stored_row[6:])} and comes to {came_to}"


def _sum_amounts(spans: Sequence[Span]) -> SpanAmounts:
    amounts = [_compute_amounts(span) for span in spans]
    return sum(one[0] for one in amounts), sum(one[1] for one in amounts), sum(one[2] for one in amounts)


def _add_days(days: dict[DailyKey, list[int]], attribution_id: int, spans: Sequence[Span]) -> None:
    for span in spans:
        price, price_known = span.meter.price, int(span.meter.price.known)
        for day, money, us in split_by_day(span):
            sums = days.setdefault((day, attribution_id, span.meter.charge, price.currency, price_known), [0, 0, 0, 0])
            for place, value in enumerate((*money, us if is_machine_time(span) else 0)):
                sums[place] += value


def _load_attributions(ask: Query) -> tuple[dict[int, Attribution], list[int]]:
    """Return the attributions by id, and the ids of those that cannot be read."""
    attributions, unreadable = dict[int, Attribution](), list[int]()
    for number, *columns in ask(_ATTRIBUTIONS):
        try:
            attributions[number] = decode_attribution(tuple(columns))
        except (ValueError, TypeError, CostguardError):
            unreadable.append(number)
    return attributions, unreadable


def _check_days(ask: Query, days: dict[DailyKey, list[int]]) -> Iterator[str]:
    stored_days = {tuple(row[:5]): list(row[5:]) for row in ask(_DAILY)}
    for place in sorted({*days, *stored_days}):
        says, adds_up_to = stored_days.get(place, [0, 0, 0, 0]), days.get(place, [0, 0, 0, 0])
        if says != adds_up_to:
            day, attribution_id, charge, currency, _ = place
            which = f"{from_micros(day * 86_400_000_000):%Y-%m-%d}, {charge} of attribution {attribution_id} in {currency}"
            yield f"the roll-up of {which} says {_format_amounts(says)} and its spans add up to {_format_amounts(adds_up_to)}"


def _page_closed_spans(ask: Query) -> Iterator[SqlRow]:
    """Yield the row of every closed span with its last correction."""
    last = 0
    while page := ask(_CLOSED.where(col(SpanRow.id) > last)):
        yield from page
        last = page[-1][0]


def _decode_closed_span(
    row: SqlRow, attributions: dict[int, Attribution]
) -> tuple[int, int, Span, SpanAmounts, tuple[int, str, SpanAmounts] | None]:
    """Return the id of a closed span, its attribution's id, the span, its stored amounts, and its last correction."""
    number, attribution_id, *rest = row
    span = decode_span(ResourceKey(*rest[:4]), attributions[attribution_id], tuple(rest[4:22]))
    amounts, correction = tuple(rest[22:25]), rest[25]
    corrected = None if correction is None else (correction, rest[26], tuple(rest[27:30]))
    return number, attribution_id, span, amounts, corrected


def _compute_amounts(span: Span) -> SpanAmounts:
    """Return the amounts of a whole closed span."""
    return compute_amounts(span, 0, FAR_US)


def _format_amounts(values: Sequence[int]) -> str:
    return " / ".join(str(value) for value in values)


FAR_US = 2**62
"""Later than any span's end."""

_ATTRIBUTIONS = select(*(getattr(AttributionRow, name) for name in ("id", *ATTRIBUTION_KEY))).order_by("id")

_FOREVER_US = 2**63 - 1
"""When a span ends that has not ended."""

_SAME_LINE = (col(SpanRow.resource_id), col(SpanRow.charge), col(SpanRow.part))
_IN_ORDER = (col(SpanRow.start_us), col(SpanRow.id))
_SPANS = (
    select(
        *(col(SpanRow.id), col(SpanRow.resource_id), col(SpanRow.charge), col(SpanRow.start_us)),
        func.lag(SpanRow.id).over(partition_by=_SAME_LINE, order_by=_IN_ORDER).label("before_id"),
        func.lag(func.coalesce(SpanRow.end_us, _FOREVER_US))
        .over(partition_by=_SAME_LINE, order_by=_IN_ORDER)
        .label("before_us"),
    )
    .where(or_(col(SpanRow.end_us).is_(None), col(SpanRow.end_us) > SpanRow.start_us))
    .subquery()
    .c
)
_OVERLAPS = (
    select(_SPANS.before_id, _SPANS.id, col(ResourceRow.provider), col(ResourceRow.external_id), _SPANS.charge)
    .join(ResourceRow, col(ResourceRow.id) == _SPANS.resource_id)
    .where(_SPANS.before_us > _SPANS.start_us)
    .order_by(_SPANS.id)
)

_ENDED_BEFORE = func.lag(CoverageRow.end_us).over(partition_by=col(CoverageRow.scope_id), order_by=col(CoverageRow.id))
_COVERAGE = (
    select(col(CoverageRow.id), col(CoverageRow.scope_id), col(CoverageRow.start_us), _ENDED_BEFORE.label("before_us"))
    .subquery()
    .c
)
_COVERAGE_OVERLAPS = (
    select(_COVERAGE.id, col(ScopeRow.provider), col(ScopeRow.account), col(ScopeRow.name))
    .join(ScopeRow, col(ScopeRow.id) == _COVERAGE.scope_id)
    .where(_COVERAGE.before_us > _COVERAGE.start_us)
    .order_by(_COVERAGE.id)
)

_CORRECTION = tuple(getattr(CorrectionRow, name) for name in ("id", "presence", "low", "expected", "high"))
_CLOSED = (
    join_last_correction(
        select(
            *(col(SpanRow.id), col(SpanRow.attribution_id), *RESOURCE, *SPAN),
            *(col(SpanRow.low), col(SpanRow.expected), col(SpanRow.high), *_CORRECTION),
        )
    )
    .join(ResourceRow, col(ResourceRow.id) == SpanRow.resource_id)
    .where(col(SpanRow.end_us).is_not(None))
    .order_by(col(SpanRow.id))
    .limit(PAGE_ROWS)
)
_PARTS = (
    join_last_correction(select(*(getattr(CorrectionPartRow, name) for name in PART_COLUMNS.split(", "))))
    .join(CorrectionPartRow, col(CorrectionPartRow.correction_id) == CorrectionRow.id)
    .order_by(col(CorrectionPartRow.correction_id), col(CorrectionPartRow.start_us))
)
_DAILY = select(*(getattr(DailyRow, name) for name in DailyRow.model_fields))


FIXED_SINCE = (3, 51, 3)
FIXED_BACKPORTS = {(3, 44): 6, (3, 50): 7}
"""Where the WAL-reset fault was mended (SQLite's own notes, 2026-03-13), which is in every release from 3.7.0 on: two
connections that write and checkpoint at once. costguard's own writers take turns by a lock, so another program must do it."""


def read_sqlite_version() -> str:
    """Return the version of the SQLite library, such as 3.51.3."""
    return sqlite3.sqlite_version


def has_wal_fix(version: str) -> bool:
    """Return whether SQLite `version` has the fix of the WAL-reset fault."""
    major, minor, patch = (int(part) for part in (*version.split("."), "0", "0")[:3])
    least = FIXED_BACKPORTS.get((major, minor))
    return (major, minor, patch) >= FIXED_SINCE or (least is not None and patch >= least)
