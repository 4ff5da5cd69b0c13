"""`costguard breaker`: show what the breaker holds as of the last guard run, or record that a person closed it."""

from __future__ import annotations

from datetime import datetime

from costguard.errors import InputError
from costguard.guard.limits import Breaker
from costguard.guard.overrides import CLOSE_BREAKER, find_breaker_close
from costguard.guard.policy import Rails
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.guard.guard_state import load_last_run, load_overrides_since
from costguard.services import CommandAnswer, overrides
from costguard.services.guard_snapshot import OVERRIDES_BACK, decode_breaker
from costguard.settings import Settings, read_settings, resolve_ledger_url
from costguard.values.text_format import format_instant, format_length, format_local_time
from costguard.views.document import Document
from costguard.views.policy import build_override_document

SCHEMA = "costguard.breaker/1"


def show_breaker(*, config: str | None = None) -> CommandAnswer:
    """The machines whose idle acts are held, since when, and what ends it."""
    settings = read_settings(config)
    held, at = _load_open_breaker(settings, overrides.get_now())
    data: dict[str, object] = {"schema": SCHEMA, "open": held is not None, "as_of": format_instant(at) if at else None}
    if held is None:
        known = f"as of the last guard run at {format_local_time(at)}" if at else "no guard run is recorded yet"
        return CommandAnswer(document=Document(data=data, records=(), lead=(f"The breaker is closed: {known}.",)))
    rails = settings.rails or Rails()
    asks, ends = held.opened_at + rails.breaker_asks, held.opened_at + rails.breaker_lasts
    records = tuple(dict(zip(("provider", "account", "region", "resource"), key, strict=True)) for key in held.keys)
    data |= {
        "opened_at": format_instant(held.opened_at),
        "asks_from": format_instant(asks),
        "closes_at": format_instant(ends),
        "in_common": held.shared or None,
        "machines": list(records),
    }
    lead = (
        f"Open since {format_local_time(held.opened_at)}: {len(held.keys)} machines turned idle or unknown at once.",
        f"In common: {held.shared or 'nothing found'}.",
        f"Each is asked about from {format_local_time(asks)} on.",
        f"It closes at {format_local_time(ends)}, or {format_length(rails.breaker_recovery)} after most of them work again.",
        *("  " + "/".join(key) for key in held.keys),
    )
    return CommandAnswer(document=Document(data=data, records=records, lead=lead))


def close_breaker(why: str | None, *, config: str | None = None) -> CommandAnswer:
    """Close it: the machines that turned so far are judged as usual from the next run on."""
    settings, now = read_settings(config), overrides.get_now()
    reason = overrides.require_reason(why, "costguard breaker close")
    held, _ = _load_open_breaker(settings, now)
    if held is None:
        return CommandAnswer(document=build_override_document("none", (), lead=("The breaker is closed: nothing to do.",)))
    wish = overrides.make_override(CLOSE_BREAKER, reason, now)
    with overrides.open_guard_store(settings) as book:
        book.add_override(wish)
    lead = (
        f"The breaker is closed for the {len(held.keys)} machines it held: policies act on them as usual from the next run on."
    )
    return CommandAnswer(document=build_override_document("recorded", (wish,), lead=(lead,)))


def _load_open_breaker(settings: Settings, now: datetime) -> tuple[Breaker | None, datetime | None]:
    """The open breaker of the last guard run, and when that was; (None, None) before the first run."""
    try:
        with LedgerReader(resolve_ledger_url(settings)) as reader, reader.snapshot() as ask:
            last, wishes = load_last_run(ask), load_overrides_since(ask, now - OVERRIDES_BACK)
    except InputError as none_yet:
        if "no ledger here yet" in none_yet.what:
            return None, None
        raise
    if last is None:
        return None, None
    held, closed = decode_breaker(dict(last.facts).get("breaker")), find_breaker_close(wishes, now)
    gone = held is None or held.closed_at is not None or (closed is not None and held.opened_at <= closed)
    return (None if gone else held), last.at
