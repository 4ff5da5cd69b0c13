"""Does the audit hold? The chain itself, heads that were noted elsewhere, and what each row tells beside what is there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from costguard.guard.audit import HASH_DIGITS_SHOWN, AuditAnchor, AuditEntry, AuditFinding, AuditRecord, format_anchor
from costguard.ledger.db.asking import Query
from costguard.ledger.guard.audit import AUDITED_TABLES, EVENT_COLUMNS, hash_event, hash_row, parse_settings_mark
from costguard.ledger.guard.audit_log import find_break_after, iterate_entries, parse_entry


@dataclass(slots=True)
class AuditScan:
    """What going through the audit once found. `broken`: the first row that does not fit.

    `hashes`: of the rows that anchors name. `rows`: (table, id) -> the row that told of it last, and the hash that it holds.
    `moves`: intent -> hashes of its moves. `settings`: the fingerprint told last.
    """

    rows_read: int = 0
    last: AuditEntry | None = None
    broken: AuditFinding | None = None
    ledger: str = ""
    settings: str = ""
    hashes: dict[int, str] = field(default_factory=dict)
    rows: dict[tuple[str, str], tuple[int, str]] = field(default_factory=dict)
    moves: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))


def check_audit(ask: Query, anchors: Sequence[AuditAnchor] = ()) -> tuple[AuditScan, list[AuditFinding]]:
    """The audit, and all that does not fit: where the chain breaks first, then anchors, then what it tells."""
    chain = _scan_audit(ask, {anchor.seq for anchor in anchors})
    broken = [chain.broken] if chain.broken else []
    told_of = (*_check_rows(ask, chain), *_check_moves(ask, chain), *_check_settings(ask, chain))
    return chain, [*broken, *_check_ledger_id(ask, chain), *_check_anchors(chain, anchors), *told_of]


def _scan_audit(ask: Query, noted: set[int]) -> AuditScan:
    chain = AuditScan()
    for entry in iterate_entries(ask):
        chain.broken = chain.broken or find_break_after(chain.last, entry)
        chain.rows_read, chain.last = chain.rows_read + 1, entry
        if entry.seq in noted:
            chain.hashes[entry.seq] = entry.hash
        _scan_entry(chain, parse_entry(entry))
    return chain


def _scan_entry(chain: AuditScan, row: AuditRecord) -> None:
    """What one row tells."""
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
    """Whether it is this ledger's."""
    ((ledger_id,),) = ask("SELECT ledger_id FROM ledger_state", ())
    if chain.last is None:
        yield AuditFinding(1, "row 1 is missing: the audit is empty, and every ledger has its first row")
    elif chain.ledger != ledger_id:
        yield AuditFinding(1, f"row 1 tells of ledger {chain.ledger or 'none'}, and this is {ledger_id}")


def _check_anchors(chain: AuditScan, anchors: Sequence[AuditAnchor]) -> Iterator[AuditFinding]:
    """Whether the chain passes through what was noted."""
    for seq, noted in anchors:
        shown, found = format_anchor(seq, noted), chain.hashes.get(seq)
        if found is None:
            ends = f"it ends at row {chain.last.seq}: later rows were removed" if chain.last else "it is empty"
            missing = ends if chain.last is None or chain.last.seq < seq else f"row {seq} is missing"
            yield AuditFinding(seq, f"the audit does not reach {shown}: {missing}, or this is an older copy")
        elif not found.startswith(noted):
            says = f"row {seq} has {found[: max(HASH_DIGITS_SHOWN, len(noted))]} there: it or a row before it was written anew"
            yield AuditFinding(seq, f"the audit does not pass through {shown}: {says}")


def _check_rows(ask: Query, chain: AuditScan) -> Iterator[AuditFinding]:
    """Whether each row that is told of is as it was told, and no other is there."""
    left = dict(chain.rows)
    for table, audited in AUDITED_TABLES.items():
        for values in ask(f"SELECT {', '.join(audited.columns)} FROM {table} ORDER BY id", ()):  # noqa: S608 - our own names
            name = f"{_describe_table(table)} {values[0]}"
            if (table, values[0]) not in left:
                yield AuditFinding(None, f"{name} is there, and no row of the audit tells of it")
                continue
            seq, noted = left.pop((table, values[0]))
            if hash_row(table, values) != noted:
                yield AuditFinding(seq, f"{name} is not as row {seq} tells it: it was changed without the audit")
    for (table, row_id), (seq, _) in left.items():
        yield AuditFinding(seq, f"{_describe_table(table)} {row_id}, of which row {seq} tells, is not there")


def _check_moves(ask: Query, chain: AuditScan) -> Iterator[AuditFinding]:
    """Whether each intent made the moves that are told of, in that order."""
    there: dict[str, list[str]] = defaultdict(list)
    for values in ask(f"SELECT {', '.join(EVENT_COLUMNS)} FROM intent_event ORDER BY id", ()):  # noqa: S608 - our own names
        there[values[0]].append(hash_event(values))
    for name in sorted({*there, *chain.moves}):
        made, noted = there.get(name, []), chain.moves.get(name, [])
        if made == noted:
            continue
        seq = chain.rows.get(("intent", name), (None, ""))[0]
        if len(made) != len(noted):
            yield AuditFinding(seq, f"intent {name} made {len(made)} moves, and the audit tells of {len(noted)}")
        else:
            number = next(n for n, (one, other) in enumerate(zip(made, noted, strict=True), 1) if one != other)
            yield AuditFinding(seq, f"move {number} of intent {name} is not as the audit tells it")


def _check_settings(ask: Query, chain: AuditScan) -> Iterator[AuditFinding]:
    """Whether the settings that the last run acted by were told of."""
    for (facts,) in ask("SELECT facts FROM guard_run ORDER BY id DESC LIMIT 1", ()):
        mark = parse_settings_mark(facts)
        if mark not in ("", chain.settings):
            yield AuditFinding(
                None, f"the last run has settings {mark} in force, and the audit tells of {chain.settings or 'none'}"
            )


def _describe_table(table: str) -> str:
    return table.replace("_", " ")
