"""The records of guard runs and overrides: within one snapshot, or each in a transaction of its own (`GuardStore`)."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import datetime

from costguard.guard.action_intents import Intent
from costguard.ledger.db.codecs import Query
from costguard.ledger.db.session import read_by
from costguard.ledger.guard import guard_state, intents, outbox
from costguard.ledger.spans import observations
from costguard.values.resource import ResourceKey

StartHistory = tuple[list[Intent], datetime | None, intents.MovesById]


def _load_start_history(ask: Query, key: ResourceKey, since: datetime) -> StartHistory:
    """Return the intents on `key` since `since`, when it was last listed as at work, and the moves of its stops."""
    start_intents = intents.load_intents_on(ask, key, since)
    return start_intents, observations.load_last_awake(ask, key), intents.load_stop_moves(ask, start_intents)


class GuardRecords:
    """What is read of the guard's part of the ledger; each method is the function of its name."""

    load_open_overrides = read_by(guard_state.load_open_overrides)
    load_overrides_since = read_by(guard_state.load_overrides_since)
    load_open_intents = read_by(intents.load_open_intents)
    load_intents_since = read_by(intents.load_intents_since)
    load_sends_since = read_by(intents.load_sends_since)
    load_start_history = read_by(_load_start_history)
    load_restarts = read_by(intents.load_restarts)
    load_reactions = read_by(intents.load_reactions)
    load_hook_runs = read_by(intents.load_hook_runs)
    load_last_run = read_by(guard_state.load_last_run)
    load_escalations = read_by(guard_state.load_escalations)
    load_protections = read_by(guard_state.load_protections)
    load_deliveries = read_by(outbox.load_deliveries)
    load_columns_since = read_by(observations.load_columns_since)
    load_first_polls = read_by(observations.load_first_seen)


class SnapshotRecords(GuardRecords):
    """The guard's records in addition to those of polls. `ask`: queries within a snapshot, while it is open."""

    def __init__(self, ask: Query) -> None:
        self._ask = ask

    def _begin_read(self) -> nullcontext[Query]:
        return nullcontext(self._ask)
