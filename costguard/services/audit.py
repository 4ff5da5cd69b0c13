"""`costguard audit`: does it hold, and what does it tell?"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from costguard.errors import InputError, NoAnswerError
from costguard.guard.audit import AuditFinding, format_anchor, parse_anchor
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.guard.audit_check import check_audit
from costguard.ledger.guard.audit_log import iterate_entries, parse_entry, read_head_text
from costguard.services import CommandAnswer
from costguard.services.marking import find_rollback_marker
from costguard.settings import read_settings, resolve_ledger_url
from costguard.settings.lasting import parse_duration
from costguard.values.instant import to_micros
from costguard.views import audit as documents


def verify_audit(anchors: Sequence[str] = (), *, config: str | None = None) -> CommandAnswer:
    """`costguard audit verify`; what does not fit ends it as a "no", after it has been printed."""
    noted, settings = [parse_anchor(one) for one in anchors], read_settings(config)
    with LedgerReader(resolve_ledger_url(settings)) as reader, reader.snapshot() as ask:
        chain, findings = check_audit(ask, noted)
        shown = reader.where.shown
    head = format_anchor(chain.last.seq, chain.last.hash) if chain.last else ""
    doubt = find_rollback_marker(settings).describe_doubt()
    findings += [AuditFinding(None, f"{doubt} (costguard audit adopt, if that is meant)")] if doubt else []
    refusal = None
    if findings:
        hint = "keep a copy of it, stop what acts on it (costguard freeze), and find out who wrote to it"
        refusal = NoAnswerError(f"the audit does not hold: {findings[0].what}", field=shown, hint=hint)
    document = documents.build_audit_verification_document(
        shown, rows=chain.rows_read, head=head, anchors=noted, findings=findings
    )
    return CommandAnswer(document=document, refusal=refusal)


def show_audit(*, since: str | None = None, config: str | None = None) -> CommandAnswer:
    """`costguard audit show`: the rows, those of `since` on."""
    since_us = None if since is None else to_micros(_parse_since(since, datetime.now(UTC)))
    with LedgerReader(resolve_ledger_url(read_settings(config))) as reader, reader.snapshot() as ask:
        rows = [parse_entry(entry) for entry in iterate_entries(ask, since_us)]
        head = read_head_text(ask)
    return CommandAnswer(document=documents.build_audit_log_document(reader.where.shown, rows, head))


def _parse_since(stated: str, now: datetime) -> datetime:
    """An instant in ISO form, a day (UTC), or so long ago."""
    try:
        found = datetime.fromisoformat(stated.strip())
    except ValueError:
        try:
            return now - parse_duration(stated, "--since", least=timedelta(seconds=1))
        except InputError as error:
            hint = 'write how long ago ("24h", "7d"), or since when ("2026-11-21", "2026-11-21T12:00Z")'
            raise InputError(error.what, field="--since", hint=hint) from None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
