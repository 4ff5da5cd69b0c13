"""Acts that a listing confirmed, and what each machine billed around them: what a report reckons savings from."""

from __future__ import annotations

from datetime import datetime, timedelta

from costguard.ledger.db.asking import Query
from costguard.ledger.db.codecs import ABSENT_STATE, decode_optional_instant, decode_span
from costguard.ledger.db.lives import KEY_COLUMNS, decode_life
from costguard.ledger.spans.scope_state import load_attributions
from costguard.ledger.spans.sums import CORRECTED_SPAN_COLUMNS, JOIN_CORRECTION
from costguard.reporting.statement.savings import ConfirmedAction, order_actions
from costguard.values.instant import MICROSECOND, from_micros, to_micros
from costguard.values.resource import ResourceKey

LOOKBACK = timedelta(minutes=11)
"""Of what billed before an act, so much is looked at: where nobody states when a machine stopped, its span ended at a poll."""


def load_confirmed_acts(ask: Query, since: datetime, until: datetime) -> list[ConfirmedAction]:
    """The acts that were confirmed within [since, until), in order of time."""
    attributions, found = load_attributions(ask), list[ConfirmedAction]()
    for name, *life, act, policy, sent_us, done_us in ask(_ACTS, (to_micros(since), to_micros(until))):
        key = life[:4]
        spans = tuple(
            decode_span(ResourceKey(*key), attributions[attribution], columns)
            for attribution, *columns in ask(_SPANS_AROUND, (*key, sent_us - LOOKBACK // MICROSECOND))
        )
        ((called, owner, ended_us),) = ask(_RESOURCE_NAME, key) or [("", "", None)]
        made = ConfirmedAction(
            intent_id=name,
            life=decode_life(life),
            act=act,
            policy=policy,
            sent_at=from_micros(sent_us),
            confirmed_at=from_micros(done_us),
            spans=spans,
            ended_at=decode_optional_instant(ended_us),
            name=called or "",
            owner=owner or "",
        )
        found.append(made)
    return order_actions(found)


_LAST_LISTED = f"(SELECT max(x.id) FROM observation AS x WHERE x.resource_id = r.id AND x.state <> '{ABSENT_STATE}')"  # noqa: S608 - our own words

_ACTS = f"""
SELECT i.id, {", ".join(f"i.{name}" for name in KEY_COLUMNS.split(", "))}, i.life, i.act, i.policy, min(sent.at_us), max(done.at_us)
FROM intent AS i
JOIN intent_event AS done ON done.intent_id = i.id AND done.moved_to = 'done'
JOIN intent_event AS sent ON sent.intent_id = i.id AND sent.moved_to = 'executing'
WHERE i.state = 'done' AND i.moved_us >= ? AND i.moved_us < ?
GROUP BY i.id, {", ".join(f"i.{name}" for name in KEY_COLUMNS.split(", "))}, i.life, i.act, i.policy
"""  # noqa: S608 - our own column names

_RESOURCE_ID = "(SELECT id FROM resource WHERE provider = ? AND account = ? AND region = ? AND external_id = ?)"

_SPANS_AROUND = f"""
SELECT s.attribution_id, {CORRECTED_SPAN_COLUMNS} FROM span AS s {JOIN_CORRECTION}
WHERE s.resource_id = {_RESOURCE_ID} AND (s.end_us IS NULL OR s.end_us > ?) ORDER BY s.start_us, s.id
"""  # noqa: S608 - our own column names

_RESOURCE_NAME = f"""
SELECT d.name, d.owner, CASE WHEN l.state IN ('{ABSENT_STATE}', 'ended') THEN l.at_us END
FROM resource AS r
LEFT JOIN observation AS d ON d.id = {_LAST_LISTED}
LEFT JOIN observation AS l ON l.id = (SELECT max(x.id) FROM observation AS x WHERE x.resource_id = r.id)
WHERE r.provider = ? AND r.account = ? AND r.region = ? AND r.external_id = ?
"""  # noqa: S608 - our own column names
