"""Load the acts of the guard that a listing confirmed, with the spans of their machines around them, for a report's savings."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from functools import cache

from sqlalchemy import and_, case, func, or_
from sqlalchemy import select as select_columns
from sqlalchemy.orm import aliased
from sqlmodel import col

from costguard.guard import policy
from costguard.guard.action_intents import DONE
from costguard.guard.signals import HUNG, IDLE
from costguard.ledger.db.codecs import ABSENT_STATE, Query, decode_life, decode_optional_instant, decode_span
from costguard.ledger.guard.intents import LIFE_COLUMNS, is_send
from costguard.ledger.spans.correction_parts import START, Rows, join_parts, select_corrected_span
from costguard.ledger.spans.scope_state import find_last_observation, is_resource, load_attributions, name_resource
from costguard.ledger.tables.intents import IntentEventRow, IntentRow
from costguard.ledger.tables.spans import ObservationRow, ResourceRow, SpanRow
from costguard.reporting.statement.savings import ConfirmedAction, order_actions
from costguard.values.instant import MICROSECOND, from_micros, to_micros
from costguard.values.resource import ENDED, ResourceKey

LOOKBACK = timedelta(minutes=11)
"""Of what billed before an act, so much is looked at: where nobody states when a machine stopped, its span ended at a poll."""


def load_confirmed_acts(ask: Query, since: datetime, until: datetime) -> list[ConfirmedAction]:
    """Return the actions that were confirmed within [since, until), in order of time."""
    attributions, confirmed = load_attributions(ask), list[ConfirmedAction]()
    acts = _ACTS.where(col(IntentRow.moved_us) >= to_micros(since), col(IntentRow.moved_us) < to_micros(until))
    for name, *life, act, of, rule, evidence, sent_us, done_us in ask(acts):
        key = ResourceKey(*life[:4])
        spans = tuple(
            decode_span(key, attributions[attribution], columns)
            for attribution, *columns in ask(
                _select_spans_around(), name_resource(key, start=sent_us - LOOKBACK // MICROSECOND)
            )
        )
        ((called, owner, ended_us),) = ask(_select_last_name(), name_resource(key)) or [("", "", None)]
        confirmed_act = ConfirmedAction(
            intent_id=name,
            life=decode_life(life),
            act=act,
            policy=of,
            sent_at=from_micros(sent_us),
            confirmed_at=from_micros(done_us),
            spans=spans,
            ended_at=decode_optional_instant(ended_us),
            name=called or "",
            owner=owner or "",
            cut=rule == policy.CAP_RULE and json.loads(evidence).get("state") not in (IDLE, HUNG),
        )
        confirmed.append(confirmed_act)
    return order_actions(confirmed)


_DONE = aliased(IntentEventRow)
_ACT = tuple(getattr(IntentRow, name) for name in ("id", *LIFE_COLUMNS, "act", "policy", "rule", "evidence"))
_ACTS = (
    select_columns(*_ACT, func.min(IntentEventRow.at_us), func.max(_DONE.at_us))
    .join(_DONE, and_(col(_DONE.intent_id) == IntentRow.id, col(_DONE.moved_to) == DONE))
    .join(IntentEventRow, and_(col(IntentEventRow.intent_id) == IntentRow.id, is_send(IntentEventRow)))
    .where(
        col(IntentRow.state) == DONE,
        col(IntentRow.rule).not_in((policy.PERSON_RULE, policy.TIMED_RULE)),
        col(IntentRow.act) != policy.START,
    )
    .group_by(*_ACT)
)


@cache
def _select_spans_around() -> Rows:
    end_us = col(SpanRow.end_us)
    spans = join_parts(select_columns(col(SpanRow.attribution_id), *select_corrected_span()))
    with_resources = spans.join(ResourceRow, col(ResourceRow.id) == SpanRow.resource_id).where(is_resource())
    return with_resources.where(or_(end_us.is_(None), end_us > START)).order_by(col(SpanRow.start_us), col(SpanRow.id))


@cache
def _select_last_name() -> Rows:
    """Select the name and the owner that a resource was listed with last, and when it ended."""
    last, is_over = aliased(ObservationRow), case((col(ObservationRow.state).in_((ABSENT_STATE, ENDED)), ObservationRow.at_us))
    resources = select_columns(col(last.name), col(last.owner), is_over).select_from(ResourceRow)
    listed = resources.outerjoin(last, col(last.id) == find_last_observation(listed=True))
    return listed.outerjoin(ObservationRow, col(ObservationRow.id) == find_last_observation()).where(is_resource())
