"""The mark of the ledger: where it is kept, and a person's word that a ledger that does not fit it is to be gone on with."""

from __future__ import annotations

from hashlib import sha256

from costguard.guard.audit import format_anchor
from costguard.guard.overrides import ACCEPT
from costguard.ledger.db.address import address
from costguard.ledger.guard.seen import Mark
from costguard.services import Answer
from costguard.settings import Settings, data_file, ledger_url, read_settings
from costguard.views.wishes import build_override_document


def mark_of(settings: Settings) -> Mark:
    """Beside the file of a ledger; for a server's, in this user's data folder."""
    url = ledger_url(settings)
    where = address(url)
    server = data_file(f"seen-{sha256(where.shown.encode()).hexdigest()[:16]}.json")
    return Mark(url, server if where.path is None else where.beside(".seen"))


def adopt(*, why: str | None, config: str | None = None) -> Answer:
    """`costguard audit adopt`: go on with the ledger as it is. Who said so, and why, stands in its audit from now on."""
    from costguard.services import overrides

    settings = read_settings(config)
    mark = mark_of(settings)
    doubt, seen = mark.describe_doubt(), mark.seen()
    if not doubt or seen is None:
        return Answer(
            document=build_override_document("none", (), lead=("The ledger is the one that was seen here: nothing to adopt.",))
        )
    reason = overrides.reason_stated(why, "costguard audit adopt")
    wish = overrides.new_wish(ACCEPT, reason, overrides.present(), subject=f"audit {format_anchor(*seen.anchor)}")
    with overrides.guard_book(settings) as book:
        book.add_override(wish)
    mark.advance()
    lead = "The guard goes on with this ledger. Wishes and protections made since it was copied are not in it: make them again."
    return Answer(document=build_override_document("recorded", (wish,), lead=(f"It was so: {doubt}.", lead)))
