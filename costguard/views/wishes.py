"""What somebody just told the guard, as a document: `costguard.wish/1`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from costguard.guard.overrides import Override
from costguard.values.text_format import format_instant
from costguard.views.document import Document

OVERRIDE_SCHEMA = "costguard.wish/1"


def build_override_document(
    action: str,
    wishes: Sequence[Override],
    *,
    lead: Sequence[str],
    notes: Sequence[str] = (),
    more: Mapping[str, object] | None = None,
) -> Document:
    """`action`: recorded, lifted, or none where nothing had to be done. `lead`: in words. `more`: further keys of the data."""
    rows = [build_override_data(wish) for wish in wishes]
    data = {"schema": OVERRIDE_SCHEMA, "action": action, "wishes": rows, **(more or {}), "notes": list(notes)}
    return Document(data=data, records=tuple(rows), lead=tuple(lead), notes=tuple(notes))


def build_override_data(wish: Override) -> dict[str, object]:
    """A wish as scripts read it."""
    key = wish.key
    return {
        "id": wish.id,
        "what": wish.what,
        "who": wish.who,
        "why": wish.why,
        "at": format_instant(wish.at),
        "until": format_instant(wish.until) if wish.until else None,
        "provider": key.provider if key else None,
        "account": key.account if key else None,
        "region": key.region if key else None,
        "resource": key.id if key else None,
        "subject": wish.subject or None,
        "value": wish.value or None,
        "lifted_at": format_instant(wish.lifted_at) if wish.lifted_at else None,
        "lifted_by": wish.lifted_by or None,
    }
