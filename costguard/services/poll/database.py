"""`costguard db`: path, backup, check and upgrade of the ledger."""

from __future__ import annotations

from costguard.errors import LedgerError
from costguard.ledger.db.address import parse_ledger_address
from costguard.services import CommandAnswer
from costguard.settings import expand_path, read_settings, resolve_ledger_url
from costguard.views import ledger as documents


def answer_db_path(*, config: str | None = None) -> CommandAnswer:
    """Answer `costguard db path`."""
    return CommandAnswer(document=documents.build_ledger_path_document(parse_ledger_address(_read_ledger_url(config)).shown))


def answer_db_backup(file: str, *, config: str | None = None) -> CommandAnswer:
    """Answer `costguard db backup`."""
    from costguard.ledger.db import maintenance

    url, target = _read_ledger_url(config), expand_path(file)
    size = maintenance.backup_ledger(url, target)
    return CommandAnswer(document=documents.build_backup_document(maintenance.describe_ledger_path(url), str(target), size))


def answer_db_check(*, config: str | None = None) -> CommandAnswer:
    """Answer `costguard db check`; findings are printed and end it with an error."""
    from costguard.ledger.db import maintenance

    url = _read_ledger_url(config)
    findings = maintenance.check_ledger(url)
    shown = maintenance.describe_ledger_path(url)
    refusal = None
    if findings:
        hint = "copy it, then restore a backup"
        refusal = LedgerError(f"{len(findings)} findings", field=shown, hint=hint)
    return CommandAnswer(document=documents.build_check_document(shown, findings), refusal=refusal)


def answer_db_upgrade(*, config: str | None = None) -> CommandAnswer:
    """Answer `costguard db upgrade`."""
    from costguard.ledger.db import maintenance

    url = _read_ledger_url(config)
    upgrade = maintenance.upgrade_ledger(url)
    copy = None if upgrade.copy is None else str(upgrade.copy)
    shown = maintenance.describe_ledger_path(url)
    return CommandAnswer(
        document=documents.build_upgrade_document(
            shown, old_revision=upgrade.before, new_revision=upgrade.after, copy=copy, rewritten=upgrade.rewritten
        )
    )


def _read_ledger_url(config: str | None) -> str:
    return resolve_ledger_url(read_settings(config))
