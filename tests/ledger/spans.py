"""Every span of a ledger as a value, with its corrections: what tests reckon from, the slow way."""

from __future__ import annotations

from dataclasses import dataclass, replace

from costguard.ledger.db.codecs import SPAN_COLUMNS, Query, decode_span
from costguard.ledger.spans.scope_state import load_attributions
from costguard.metering.span import Span
from costguard.values.resource import ResourceKey


@dataclass(frozen=True, slots=True)
class Kept:
    """A span as it counts now, its rows, and what the ledger says that it came to."""

    id: int
    attribution_id: int
    span: Span
    stored: tuple[int | None, int | None, int | None]


def all_spans(ask: Query) -> list[Kept]:
    """Every span, in the order in which it was written."""
    attributions = load_attributions(ask)
    keys = {n: ResourceKey(*k) for n, *k in ask("SELECT id, provider, account, region, external_id FROM resource", ())}
    corrections = {
        row[0]: row[1:] for row in ask("SELECT span_id, presence, low, expected, high FROM correction ORDER BY id", ())
    }
    found = []
    for number, resource_id, attribution_id, low, expected, high, *columns in ask(
        f"SELECT s.id, s.resource_id, s.attribution_id, s.low, s.expected, s.high, {SPAN_COLUMNS} FROM span AS s ORDER BY s.id",  # noqa: S608 - our own names
        (),
    ):
        span, stored = decode_span(keys[resource_id], attributions[attribution_id], columns), (low, expected, high)
        if number in corrections:
            presence, *stored_now = corrections[number]
            span, stored = replace(span, presence=presence), tuple(stored_now)
        found.append(Kept(number, attribution_id, span, stored))
    return found
