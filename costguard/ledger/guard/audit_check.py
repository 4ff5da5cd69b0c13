"""Check the audit log: its chain, heads that were noted elsewhere, and the recorded rows against the tables.

`AuditWatch` checks it again and again, as the page of the log does. It remembers the row up to which it verified the chain, and
reads only those behind it. A row in front of it that somebody edits meanwhile is found by the next whole pass.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from threading import Lock
from time import monotonic

from sqlmodel import col, select

from costguard.guard.audit import HASH_DIGITS_SHOWN, AuditAnchor, AuditEntry, AuditFinding, AuditRecord, format_anchor
from costguard.ledger.db.codecs import Query
from costguard.ledger.guard.audit_log import (
    AUDITED_TABLES,
    find_break_after,
    hash_event,
    hash_row,
    iterate_entries,
    load_ledger_id,
    parse_entry,
    parse_settings_mark,
    select_audited,
    select_moves,
)
from costguard.ledger.tables import load_metadata
from costguard.ledger.tables.guard import GuardRunRow
from costguard.ledger.tables.intents import IntentEventRow

WHOLE_EVERY_S = 3600.0
"""Seconds after which `AuditWatch` reads the whole log again: 100,000 rows take about a second."""


@dataclass(slots=True)
class AuditScan:
    """The result of one pass over the audit log.

    `broken`: the first break of the chain. `hashes`: of the rows that anchors name. `rows`: (table, id) -> the row that
    recorded it last, and the hash in it. `moves`: intent -> hashes of its moves. `settings`: the fingerprint recorded last.
    """

    rows_read: int = 0
    last: AuditEntry | None = None
    broken: AuditFinding | None = None
    ledger: str = ""
    settings: str = ""
    hashes: dict[int, str] = field(default_factory=dict)
    rows: dict[tuple[str, str], tuple[int, str]] = field(default_factory=dict)
    moves: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))


def check_audit(
    ask: Query, anchors: Sequence[AuditAnchor] = (), chain: AuditScan | None = None
) -> tuple[AuditScan, list[AuditFinding]]:
    """Check the audit log; return the scan and all findings.

    The first break of the chain comes first, then the id of the ledger, the anchors, and the recorded rows. `chain`: a scan to
    go on with; None: a new one. The anchors are looked for in the rows that are read.
    """
    chain = _scan_audit(ask, {anchor.seq for anchor in anchors}, chain or AuditScan())
    broken = [chain.broken] if chain.broken else []
    told_of = (*_check_rows(ask, chain), *_check_moves(ask, chain), *_check_settings(ask, chain))
    return chain, [*broken, *_check_ledger_id(ask, chain), *_check_anchors(chain, anchors), *told_of]


@dataclass(slots=True)
class AuditWatch:
    """Checks one ledger's audit log repeatedly. Several threads may use it."""

    seconds: Callable[[], float] = monotonic
    _chain: AuditScan | None = None
    _whole_s: float = 0.0
    _lock: Lock = field(default_factory=Lock)

    def check(self, ask: Query, anchors: Sequence[AuditAnchor] = ()) -> tuple[AuditScan, list[AuditFinding]]:
        """Check the rows since the last check, and the recorded rows; the whole chain where that does not follow.

        It is read whole if it was broken, if the row that was the last one is not there unchanged, for anchors, and each
        WHOLE_EVERY_S.
        """
        with self._lock:
            now = self.seconds()
            if anchors or now - self._whole_s >= WHOLE_EVERY_S or not self._continues(ask):
                self._chain, self._whole_s = None, now
            self._chain, findings = check_audit(ask, anchors, self._chain)
            return self._chain, findings

    def _continues(self, ask: Query) -> bool:
        """Return whether the row that was the last one is still there as it was."""
        if self._chain is None or self._chain.broken or self._chain.last is None:
            return False
        last = self._chain.last
        return next(iterate_entries(ask, after_seq=last.seq - 1), None) == last


def _scan_audit(ask: Query, noted: set[int], chain: AuditScan) -> AuditScan:
    for entry in iterate_entries(ask, after_seq=chain.last.seq if chain.last else None):
        chain.broken = chain.broken or find_break_after(chain.last, entry)
        chain.rows_read, chain.last = chain.rows_read + 1, entry
        if entry.seq in noted:
            chain.hashes[entry.seq] = entry.hash
        _scan_entry(chain, parse_entry(entry))
    return chain


def _scan_entry(chain: AuditScan, row: AuditRecord) -> None:
    """Add the content of one row to the scan."""
    body = row.body
    if row.seq == 1:
        chain.ledger = str(body.get("ledger", ""))
    chain.settings = str(body.get("mark", chain.settings))
    if "table" in body:
        chain.rows[str(body["table"]), str(body.get("id"))] = (row.seq, str(body.get("row")))
        events = body.get("events", [])
        if isinstance(events, list) and events:
            chain.moves[str(body.get("id"))] += map(str, events)


def _check_ledger_id(ask: Query, chain: AuditScan) -> Iterator[AuditFinding]:
    """Check that the audit log belongs to this ledger."""
    ledger_id = load_ledger_id(ask)
    if chain.last is None:
        yield AuditFinding(1, "row 1 is missing: the audit log is empty")
    elif chain.ledger != ledger_id:
        yield AuditFinding(1, f"row 1 names ledger {chain.ledger or 'none'}, and this is {ledger_id}")


def _check_anchors(chain: AuditScan, anchors: Sequence[AuditAnchor]) -> Iterator[AuditFinding]:
    """Check that the chain contains the noted heads."""
    for seq, noted in anchors:
        shown, stored_hash = format_anchor(seq, noted), chain.hashes.get(seq)
        if stored_hash is None:
            ends = f"it ends at row {chain.last.seq}: later rows were removed" if chain.last else "it is empty"
            missing = ends if chain.last is None or chain.last.seq < seq else f"row {seq} is missing"
            yield AuditFinding(seq, f"the audit log does not reach {shown}: {missing}, or this is an older copy")
        elif not stored_hash.startswith(noted):
            says = f"row {seq} has {stored_hash[: max(HASH_DIGITS_SHOWN, len(noted))]} there: it or an earlier row was changed"
            yield AuditFinding(seq, f"the audit log does not contain {shown}: {says}")


def _check_rows(ask: Query, chain: AuditScan) -> Iterator[AuditFinding]:
    """Check that each recorded row exists unchanged, and that no unrecorded row exists."""
    left = dict(chain.rows)
    tables = load_metadata().tables
    for table in AUDITED_TABLES:
        for values in ask(select_audited(table).order_by(tables[table].columns["id"])):
            name = f"{_describe_table(table)} {values[0]}"
            if (table, values[0]) not in left:
                yield AuditFinding(None, f"{name} exists, but no row of the audit log records it")
                continue
            seq, noted = left.pop((table, values[0]))
            if hash_row(table, values) != noted:
                yield AuditFinding(seq, f"{name} differs from row {seq}: it was changed outside the audit log")
    for (table, row_id), (seq, _) in left.items():
        yield AuditFinding(seq, f"{_describe_table(table)} {row_id}, recorded by row {seq}, is missing")


def _check_moves(ask: Query, chain: AuditScan) -> Iterator[AuditFinding]:
    """Check that each intent made exactly the recorded moves, in that order."""
    moves_by_name: dict[str, list[str]] = defaultdict(list)
    for values in ask(select_moves().order_by(col(IntentEventRow.id))):
        moves_by_name[values[0]].append(hash_event(values))
    for name in sorted({*moves_by_name, *chain.moves}):
        moves, noted = moves_by_name.get(name, []), chain.moves.get(name, [])
        if moves == noted:
            continue
        seq = chain.rows.get(("intent", name), (None, ""))[0]
        if len(moves) != len(noted):
            yield AuditFinding(seq, f"intent {name} made {len(moves)} moves, and the audit log records {len(noted)}")
        else:
            number = next(n for n, (one, other) in enumerate(zip(moves, noted, strict=True), 1) if one != other)
            yield AuditFinding(seq, f"move {number} of intent {name} differs from the audit log")


def _check_settings(ask: Query, chain: AuditScan) -> Iterator[AuditFinding]:
    """Check that the settings of the last run are recorded."""
    for facts in ask(select(GuardRunRow.facts).order_by(col(GuardRunRow.id).desc()).limit(1)):
        mark = parse_settings_mark(facts)
        if mark not in ("", chain.settings):
            yield AuditFinding(
                None, f"the last run has settings {mark} in force, and the audit log records {chain.settings or 'none'}"
            )


def _describe_table(table: str) -> str:
    return table.replace("_", " ")
