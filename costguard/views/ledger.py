"""Documents about the ledger: `costguard.db/1` and `costguard.audit/1`; their key `action` states the command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from costguard.guard.audit import (
    UNCOVERED,
    UNPROVEN,
    AuditAnchor,
    AuditFinding,
    AuditRecord,
    describe_audit_row,
    format_anchor,
    format_audit_time,
)
from costguard.values.instant import EARLIEST, LATEST, from_micros, to_micros
from costguard.values.text_format import format_instant
from costguard.views.document import Document, TableView

DB_SCHEMA = "costguard.db/1"


def build_ledger_path_document(ledger: str) -> Document:
    """Return only the path of the ledger, so that `sqlite3 -readonly "$(costguard db path)"` opens it."""
    return Document(
        data={"schema": DB_SCHEMA, "action": "path", "ledger": ledger}, records=({"ledger": ledger},), lead=(ledger,)
    )


def build_backup_document(ledger: str, file: str, size: int) -> Document:
    """Return the document for a backup of `size` bytes in `file`."""
    record = {"ledger": ledger, "file": file, "bytes": size}
    lead = (f"Copied {ledger} to {file}: {size:,} bytes, checked.",)
    return Document(data={"schema": DB_SCHEMA, "action": "backup", **record}, records=(record,), lead=lead)


def build_check_document(ledger: str, findings: Sequence[str]) -> Document:
    """Return the findings of the check, one sentence each."""
    data = {"schema": DB_SCHEMA, "action": "check", "ledger": ledger, "sound": not findings, "findings": list(findings)}
    lead = f"{ledger} is consistent: every span, correction and daily sum was recomputed." if not findings else ledger
    records = tuple({"finding": finding} for finding in findings)
    return Document(data=data, records=records, lead=(lead,), notes=tuple(f"- {finding}." for finding in findings))


def build_upgrade_document(
    ledger: str,
    *,
    old_revision: str | None,
    new_revision: str,
    copy: str | None,
    rewritten: tuple[int, int] | None = None,
) -> Document:
    """Return the schema versions before and after the upgrade.

    `old_revision`: None if there was no ledger. `copy`: the backup of the old version; None if there was nothing to back up.
    `rewritten`: the bytes of the file before and after it was rewritten; None if it was not.
    """
    record = {"ledger": ledger, "before": old_revision, "after": new_revision, "copy": copy}
    if old_revision is None:
        lead = f"Made {ledger}, schema {new_revision}."
    elif old_revision == new_revision:
        lead = f"{ledger} has schema {new_revision}, which is this version's."
    else:
        lead = f"Upgraded {ledger} from schema {old_revision} to {new_revision}."
    notes = [f"Backup of the old version: {copy}."] if copy else []
    if rewritten:
        sizes = "{:,} bytes, then {:,}".format(*rewritten)
        notes.append(f"Rewrote the file ({sizes}): costguard watch now gives unused space back to the disk.")
    data = {"schema": DB_SCHEMA, "action": "upgrade", **record}
    return Document(data=data, records=(record,), lead=(lead,), notes=tuple(notes))


def build_import_document(ledger: str, *, source: str, revision: str, rows: Mapping[str, int]) -> Document:
    """Return what was imported into `ledger`: from where, of which schema, and how many `rows` of each table."""
    record = {"ledger": ledger, "source": source, "revision": revision, "rows": dict(rows)}
    total = sum(rows.values())
    return Document(
        data={"schema": DB_SCHEMA, "action": "import", **record},
        records=tuple({"table": name, "rows": count} for name, count in rows.items()),
        lead=(f"Copied {total} rows of {source} (schema {revision}) into {ledger}.",),
        notes=(
            "The old ledger is unchanged: keep it until costguard db check and costguard report show the expected results.",
        ),
    )


AUDIT_SCHEMA = "costguard.audit/1"
MOST_FINDINGS_SHOWN = 50
"""Findings that are written out for people. JSON holds all of them."""
COVERED_NOTE = (
    "Verified: the chain, and the overrides, acts, hooks and agents that it describes. "
    f"Not covered: {'; '.join(UNCOVERED)}; {UNPROVEN}."
)
NO_ANCHOR_NOTE = (
    "Without --anchor it cannot be detected that the last rows and their records were removed, or that all rows were "
    "rewritten: pass an anchor from an old message."
)


def build_audit_verification_document(
    ledger: str, *, rows: int, head: str, anchors: Sequence[AuditAnchor], findings: Sequence[AuditFinding]
) -> Document:
    """Return whether the audit log verifies.

    `rows`: the number of rows. `head`: the short form of the last row; "" if there is none.
    """
    records = tuple({"seq": finding.seq, "finding": finding.what} for finding in findings)
    data = {
        "schema": AUDIT_SCHEMA,
        "action": "verify",
        "ledger": ledger,
        "whole": not findings,
        "rows": rows,
        "head": head or None,
        "anchors": [format_anchor(*anchor) for anchor in anchors],
        "findings": list(records),
        "not_covered": [*UNCOVERED, UNPROVEN],
    }
    through = f" It contains {', '.join(format_anchor(*anchor) for anchor in anchors)}." if anchors else ""
    summary = f"The audit of {ledger} verifies: {rows:,} rows match the records that they describe.{through}"
    notes = [f"- {finding.what}." for finding in findings[:MOST_FINDINGS_SHOWN]]
    more = len(findings) - MOST_FINDINGS_SHOWN
    notes += [f"and {more} more: --json shows all"] if more > 0 else []
    notes += [f"Head: audit {head}"] if head else []
    notes += [COVERED_NOTE] if not findings else []
    notes += [NO_ANCHOR_NOTE] if not findings and not anchors else []
    lead = f"The audit of {ledger} does not verify:" if findings else summary
    return Document(data=data, records=records, lead=(lead,), notes=tuple(notes))


def build_audit_log_document(ledger: str, rows: Sequence[AuditRecord], head: str) -> Document:
    """Return the rows of the audit log as text, in order."""
    records = tuple(
        {
            "seq": row.seq,
            "at": _format_at(row.at_us),
            "kind": row.kind,
            "what": describe_audit_row(row.kind, row.body),
            "hash": row.hash,
        }
        for row in rows
    )
    data = {
        "schema": AUDIT_SCHEMA,
        "action": "show",
        "ledger": ledger,
        "head": head or None,
        "rows": [record | {"body": row.body} for record, row in zip(records, rows, strict=True)],
    }
    table = TableView(
        title="",
        columns=("row>", "at", "what", "hash"),
        rows=tuple(
            (str(r.seq), format_audit_time(r.at_us), describe_audit_row(r.kind, r.body), format_anchor(r.seq, r.hash))
            for r in rows
        ),
    )
    lead = f"{len(rows):,} rows of the audit of {ledger}." if rows else f"No row in the audit of {ledger} in this period."
    return Document(
        data=data,
        records=records,
        lead=(lead,),
        tables=(table,) if rows else (),
        notes=(f"Head: audit {head}",) if head else (),
    )


def _format_at(at_us: int) -> str | None:
    """Return the instant as text; None if the value was edited and is no valid instant."""
    return format_instant(from_micros(at_us)) if to_micros(EARLIEST) <= at_us < to_micros(LATEST) else None
