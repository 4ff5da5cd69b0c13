"""The mark of the ledger: where it is kept, and a person's word that a ledger that does not fit it is to be gone on with."""

from __future__ import annotations

from hashlib import sha256

from costguard.guard.audit import format_anchor
from costguard.guard.overrides import ACCEPT
from costguard.ledger.db.address import parse_ledger_address
from costguard.ledger.guard.seen import RollbackMarker
from costguard.services import CommandAnswer
from costguard.settings import Settings, get_data_path, read_settings, resolve_ledger_url
from costguard.views.wishes import build_override_document


def find_rollback_marker(settings: Settings) -> RollbackMarker:
    """Beside the file of a ledger; for a server's, in this user's data folder."""
    url = resolve_ledger_url(settings)
    where = parse_ledger_address(url)
    server = get_data_path(f"seen-{sha256(where.shown.encode()).hexdigest()[:16]}.json")
    return RollbackMarker(url, server if where.path is None else where.make_sibling_path(".seen"))


def adopt_ledger(*, why: str | None, config: str | None = None) -> CommandAnswer:
    """`costguard audit adopt`: go on with the ledger as it is. Who said so, and why, stands in its audit from now on."""
    from costguard.services import overrides

    settings = read_settings(config)
    mark = find_rollback_marker(settings)
    doubt, seen = mark.describe_doubt(), mark.read_noted_head()
    if not doubt or seen is None:
        return CommandAnswer(
            document=build_override_document("none", (), lead=("The ledger is the one that was seen here: nothing to adopt.",))
        )
    reason = overrides.require_reason(why, "costguard audit adopt")
    wish = overrides.make_override(ACCEPT, reason, overrides.get_now(), subject=f"audit {format_anchor(*seen.anchor)}")
    with overrides.open_guard_store(settings) as book:
        book.add_override(wish)
    mark.advance()
    lead = "The guard goes on with this ledger. Wishes and protections made since it was copied are not in it: make them again."
    return CommandAnswer(document=build_override_document("recorded", (wish,), lead=(f"It was so: {doubt}.", lead)))
