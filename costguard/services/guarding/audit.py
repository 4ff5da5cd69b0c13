"""`costguard audit`: verify and show the tamper-evident log, and adopt a ledger that the rollback marker refuses.

`costguard db import` is here as well: the rollback marker comes over with the ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256

from costguard.errors import InputError, NoAnswerError
from costguard.guard.audit import BULK_KINDS, AuditAnchor, AuditFinding, format_anchor, parse_anchor
from costguard.guard.overrides import ACCEPT
from costguard.ledger.db.address import SQLITE_PREFIX, parse_ledger_address
from costguard.ledger.db.codecs import Query
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.guard.audit_check import AuditScan, check_audit
from costguard.ledger.guard.audit_log import RollbackMarker, iterate_entries, parse_entry, read_head_text
from costguard.services import CommandAnswer
from costguard.settings import Settings, expand_path, get_data_path, read_settings, resolve_ledger_url
from costguard.settings.fields import parse_duration
from costguard.values.instant import to_micros
from costguard.views import ledger as documents
from costguard.views.policy import build_override_document

AuditCheck = Callable[[Query, Sequence[AuditAnchor]], tuple[AuditScan, list[AuditFinding]]]


def verify_audit(anchors: Sequence[str] = (), *, config: str | None = None, check: AuditCheck = check_audit) -> CommandAnswer:
    """Answer `costguard audit verify`; if there are findings, print them and end with a refusal.

    `check`: checks the log; a server remembers what it verified before.
    """
    noted, settings = [parse_anchor(one) for one in anchors], read_settings(config)
    with LedgerReader(resolve_ledger_url(settings)) as reader, reader.snapshot() as ask:
        chain, findings = check(ask, noted)
        shown = reader.where.shown
    head = format_anchor(chain.last.seq, chain.last.hash) if chain.last else ""
    doubt = find_rollback_marker(settings).describe_doubt()
    findings += [AuditFinding(None, f"{doubt} (if this is intended: costguard audit adopt)")] if doubt else []
    refusal = None
    if findings:
        hint = "copy the ledger, freeze acts (costguard freeze), and find out which program wrote to it"
        refusal = NoAnswerError(f"the audit log does not verify: {findings[0].what}", field=shown, hint=hint)
    document = documents.build_audit_verification_document(
        shown, rows=chain.rows_read, head=head, anchors=noted, findings=findings
    )
    return CommandAnswer(document=document, refusal=refusal)


def show_audit(*, since: str | None = None, rows: bool = False, config: str | None = None) -> CommandAnswer:
    """Answer `costguard audit show`: the rows of the log, from `since` on.

    `rows`: those that record digests of rows as well, of which a poll may write one.
    """
    since_us = None if since is None else to_micros(_parse_since(since, datetime.now(UTC)))
    with LedgerReader(resolve_ledger_url(read_settings(config))) as reader, reader.snapshot() as ask:
        shown = [parse_entry(entry) for entry in iterate_entries(ask, since_us) if rows or entry.kind not in BULK_KINDS]
        head = read_head_text(ask)
    return CommandAnswer(document=documents.build_audit_log_document(reader.where.shown, shown, head))


def _parse_since(text: str, now: datetime) -> datetime:
    """Parse an instant in ISO form, a day (UTC), or a duration before now."""
    try:
        instant = datetime.fromisoformat(text.strip())
    except ValueError:
        try:
            return now - parse_duration(text, "--since", least=timedelta(seconds=1))
        except InputError as error:
            hint = 'write how long ago ("24h", "7d"), or since when ("2026-11-21", "2026-11-21T12:00Z")'
            raise InputError(error.what, field="--since", hint=hint) from None
    return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)


def find_rollback_marker(settings: Settings) -> RollbackMarker:
    """Return the rollback marker of the ledger of `settings`."""
    return locate_rollback_marker(resolve_ledger_url(settings))


def locate_rollback_marker(url: str) -> RollbackMarker:
    """Return the rollback marker: beside the ledger's file; for a server's ledger, in this user's data folder."""
    where = parse_ledger_address(url)
    server = get_data_path(f"seen-{sha256(where.shown.encode()).hexdigest()[:16]}.json")
    return RollbackMarker(url, server if where.path is None else where.make_sibling_path(".seen"))


def adopt_ledger(*, why: str | None, config: str | None = None) -> CommandAnswer:
    """Answer `costguard audit adopt`: continue with this ledger although the marker refuses it.

    The user and the reason are logged.
    """
    from costguard.services.guarding import overrides

    settings = read_settings(config)
    mark = find_rollback_marker(settings)
    doubt, head = mark.describe_doubt(), mark.read_noted_head()
    if not doubt or head is None:
        return CommandAnswer(
            document=build_override_document("none", (), lead=("The ledger is the one used last here: nothing to adopt.",))
        )
    reason = overrides.require_reason(why, "costguard audit adopt")
    override = overrides.make_override(ACCEPT, reason, overrides.get_now(), subject=f"audit {format_anchor(*head.anchor)}")
    with overrides.open_guard_store(settings) as book:
        book.add_override(override)
    mark.advance()
    lead = "The guard continues with this ledger. It lacks leases and protections made since it was copied: repeat them."
    return CommandAnswer(document=build_override_document("recorded", (override,), lead=(f"Reason: {doubt}.", lead)))


def answer_db_import(source: str, *, config: str | None = None) -> CommandAnswer:
    """Answer `costguard db import`. `source`: a path or a URL. A source that its marker doubts is doubted in its new place."""
    from costguard.ledger.db.ledger_import import import_ledger

    url = resolve_ledger_url(read_settings(config))
    source_url = source if "://" in source else f"{SQLITE_PREFIX}{expand_path(source).absolute()}"
    result = import_ledger(source_url, url)
    locate_rollback_marker(url).copy_from(locate_rollback_marker(source_url))
    document = documents.build_import_document(result.target, source=result.source, revision=result.revision, rows=result.rows)
    return CommandAnswer(document=document)
