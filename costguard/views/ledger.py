"""What `costguard db` says of the ledger as a file, as a document: `costguard.db/1`, whose `action` tells the four apart."""

from __future__ import annotations

from collections.abc import Sequence

from costguard.views.document import Document

DB_SCHEMA = "costguard.db/1"


def build_ledger_path_document(ledger: str) -> Document:
    """Where it is, and nothing else: `sqlite3 -readonly "$(costguard db path)"` opens it."""
    return Document(
        data={"schema": DB_SCHEMA, "action": "path", "ledger": ledger}, records=({"ledger": ledger},), lead=(ledger,)
    )


def build_backup_document(ledger: str, file: str, size: int) -> Document:
    """A copy of `size` bytes was made in `file`."""
    record = {"ledger": ledger, "file": file, "bytes": size}
    lead = (f"Copied {ledger} to {file}: {size:,} bytes, checked.",)
    return Document(data={"schema": DB_SCHEMA, "action": "backup", **record}, records=(record,), lead=lead)


def build_check_document(ledger: str, findings: Sequence[str]) -> Document:
    """What is wrong with it, a sentence each."""
    data = {"schema": DB_SCHEMA, "action": "check", "ledger": ledger, "sound": not findings, "findings": list(findings)}
    lead = f"{ledger} is sound: every span, correction and daily sum was worked out anew." if not findings else ledger
    records = tuple({"finding": finding} for finding in findings)
    return Document(data=data, records=records, lead=(lead,), notes=tuple(f"- {finding}." for finding in findings))


def build_upgrade_document(ledger: str, *, before: str | None, after: str, copy: str | None) -> Document:
    """From which schema to which. `before` None: there was no ledger; `copy` None: nothing had to be kept."""
    record = {"ledger": ledger, "before": before, "after": after, "copy": copy}
    if before is None:
        lead = f"Made {ledger}, schema {after}."
    elif before == after:
        lead = f"{ledger} has schema {after}, which is this version's."
    else:
        lead = f"Brought {ledger} from schema {before} to {after}."
    kept = (f"As it was before: {copy}.",) if copy else ()
    return Document(data={"schema": DB_SCHEMA, "action": "upgrade", **record}, records=(record,), lead=(lead,), notes=kept)
