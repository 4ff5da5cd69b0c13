"""What providers call the accounts of the settings' keys, as the ledger remembers it.

Example: RunPod calls the account of the key `default` `user_a`, which is recorded with its first listing. Later that key is one
of `user_b`. Its pods are not those of the ledger, and those of `user_a` bill on: nothing of it is recorded until a person
accepts it (`costguard doctor --accept-account`), or gives it a name of its own.

An identity is an override of the kind ACCOUNT, so the audit log has it. The last one counts.
"""

from __future__ import annotations

from datetime import datetime
from hashlib import sha256
from shlex import quote

from sqlmodel import col, select

from costguard.guard.overrides import ACCOUNT, Override
from costguard.ledger.db.codecs import Execute, Query
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.guard.guard_state import add_override
from costguard.ledger.tables.overrides import OverrideRow
from costguard.metering.inventory import OTHER_ACCOUNT


def load_identities(ask: Query, provider: str) -> dict[str, str]:
    """Return what `provider` calls the accounts of its keys, by the keys' names, as remembered or accepted last."""
    rows = select(OverrideRow.subject, OverrideRow.value).where(
        col(OverrideRow.what) == ACCOUNT, col(OverrideRow.subject).startswith(f"{provider}/", autoescape=True)
    )
    overrides = ask(rows.order_by(col(OverrideRow.at_us), col(OverrideRow.id)))
    return {subject.removeprefix(f"{provider}/"): value for subject, value in overrides}


def remember_identity(ask: Query, tell: Execute, key: tuple[str, str], identity: str, now: datetime) -> None:
    """Record what the provider calls the account of `key` (the provider, the key's name); a second time changes nothing."""
    number, subject = sha256("\0".join((*key, identity)).encode()).hexdigest()[:16], "/".join(key)
    override = Override(
        id=f"account-{number}", what=ACCOUNT, who="costguard", why="its first key", at=now, subject=subject, value=identity
    )
    add_override(ask, tell, override)


def explain_other_account(key: tuple[str, str], identity: str, remembered: str | None) -> str:
    """Explain that `key` is of another account than the one remembered; "" if it is not, or nothing is known."""
    if not identity or remembered is None or identity == remembered:
        return ""
    accept = f"costguard doctor --accept-account {quote('/'.join(key))} accepts it, and another account name keeps both"
    return f"{OTHER_ACCOUNT}, {identity}, and not of {remembered} as before: nothing of it is recorded. {accept}"


def read_other_account(url: str, key: tuple[str, str], identity: str) -> str:
    """Explain the same by the ledger at `url`. Raises LedgerError if it cannot be read."""
    with LedgerReader(url) as reader, reader.snapshot() as ask:
        return explain_other_account(key, identity, load_identities(ask, key[0]).get(key[1]))
