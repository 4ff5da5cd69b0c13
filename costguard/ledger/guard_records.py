"""What the guard's runs left and what people wished, read within one snapshot: `status` needs no SQLAlchemy for it."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from costguard.guard.action_intents import Intent
from costguard.guard.alerts.alert import NoticeDelivery
from costguard.guard.context import ConfirmedAct, FirstSighting, GuardRun, ProtectionSighting
from costguard.guard.escalation import HookRun
from costguard.guard.overrides import Override
from costguard.guard.policy import EscalationState
from costguard.guard.signals import SampleColumns
from costguard.ledger.db.codecs import Query
from costguard.ledger.guard import guard_state, intents, outbox
from costguard.ledger.guard import intents as hooks
from costguard.ledger.spans import observations
from costguard.values.resource import ResourceKey


class SnapshotRecords:
    """What the guard knows beside what polls wrote. `ask`: how to ask within a snapshot, for as long as it is open."""

    def __init__(self, ask: Query) -> None:
        self._ask = ask

    def load_open_overrides(self, now: datetime) -> list[Override]:
        """Those that count at `now`, the oldest first."""
        return guard_state.load_open_overrides(self._ask, now)

    def load_overrides_since(self, at: datetime) -> list[Override]:
        """Every wish made at or after `at`, whatever became of it, the oldest first."""
        return guard_state.load_overrides_since(self._ask, at)

    def load_open_intents(self) -> list[Intent]:
        """All that are open, the oldest first."""
        return intents.load_open_intents(self._ask)

    def load_intents_since(self, at: datetime) -> list[Intent]:
        """All that were made or moved at or after `at`, the oldest first."""
        return intents.load_intents_since(self._ask, at)

    def load_sends_since(self, at: datetime) -> list[Intent]:
        """All for which a request may have gone out at or after `at`, by `sent_at`, the oldest first."""
        return intents.load_sends_since(self._ask, at)

    def load_hook_runs(self, since: datetime) -> list[HookRun]:
        """Those that have not ended, and all that were begun at or after `since`, the oldest first."""
        return hooks.load_hook_runs(self._ask, since)

    def load_last_run(self) -> GuardRun | None:
        """The newest run; None before the first one."""
        return guard_state.load_last_run(self._ask)

    def load_escalations(self) -> list[EscalationState]:
        """Every climb."""
        return guard_state.load_escalations(self._ask)

    def load_deliveries(self, since: datetime) -> dict[tuple[str, str], tuple[NoticeDelivery, ...]]:
        """The notices about policies that were delivered at or after `since`, by topic and subject."""
        return outbox.load_deliveries(self._ask, since)

    def load_protections(self) -> dict[ResourceKey, ProtectionSighting]:
        """When each resource was last seen protected, of those that ever were."""
        return guard_state.load_protections(self._ask)

    def load_reactions(self, since: datetime) -> list[ConfirmedAct]:
        """The acts that were confirmed at or after `since`."""
        return intents.load_reactions(self._ask, since)

    def load_columns_since(self, at: datetime, keys: Collection[ResourceKey] | None = None) -> dict[ResourceKey, SampleColumns]:
        """The samples at or after `at` of `keys` (None: of all), in columns."""
        return observations.load_columns_since(self._ask, at, keys)

    def load_first_polls(self, keys: Collection[ResourceKey] | None = None) -> dict[ResourceKey, FirstSighting]:
        """Since when, and through how many complete listings of its scope, each of `keys` (None: all) is known."""
        return observations.load_first_seen(self._ask, keys)
