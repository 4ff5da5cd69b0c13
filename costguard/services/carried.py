"""What a guard run carries over in words, beside what has tables of its own: the breaker, and what idling had cost."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime

from costguard.guard.action_intents import Intent
from costguard.guard.alerts.rules import ActCost
from costguard.guard.limits import Breaker
from costguard.values.money import Money, Rate
from costguard.values.resource import ResourceKey


def decode_instant(text: str | None) -> datetime | None:
    """The instant that `isoformat` wrote; None for nothing."""
    return datetime.fromisoformat(text) if text else None


def encode_breaker(found: Breaker | None) -> str:
    """As a text; "" where it is closed."""
    if found is None:
        return ""
    since = found.recovering_since.isoformat() if found.recovering_since else ""
    return json.dumps([found.opened_at.isoformat(), found.keys, found.shared, since])


def decode_breaker(text: str | None) -> Breaker | None:
    """What `breaker_text` wrote."""
    if not text:
        return None
    opened, keys, shared, since = json.loads(text)
    return Breaker(
        opened_at=datetime.fromisoformat(opened),
        keys=tuple(ResourceKey(*key) for key in keys),
        shared=shared,
        recovering_since=decode_instant(since),
    )


def encode_evidence(facts: Mapping[str, object], waste: Money | None, saves: Rate | None = None) -> str:
    """What an act rests on, as JSON: its facts, what idling had cost, and what it saves an hour."""
    cost = {"nano": waste.nano, "currency": waste.currency} if waste else None
    rate = {"nano": saves.nano_per_hour, "currency": saves.currency} if saves else None
    return json.dumps({"waste": cost, "saves": rate, **{name: str(value) for name, value in facts.items()}})


def decode_costs(intents: Iterable[Intent]) -> dict[str, ActCost]:
    """What each act was for, by the id of the intent whose evidence says so."""
    found = {}
    for intent in intents:
        said = json.loads(intent.evidence or "{}")
        waste, saves = said.get("waste"), said.get("saves")
        found[intent.id] = ActCost(
            idled=Money(nano=waste["nano"], currency=waste["currency"]) if waste else None,
            saves=Rate(nano_per_hour=saves["nano"], currency=saves["currency"]) if saves else None,
            name=said.get("name", ""),
            owner=said.get("owner", ""),
        )
    return found
