"""Read the records of guard runs and overrides within one snapshot.

`status` needs no SQLAlchemy for it.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from costguard.guard.action_intents import Intent
from costguard.guard.alerts.alert import NoticeDelivery
from costguard.guard.escalation import HookRun
from costguard.guard.overrides import Override
from costguard.guard.policy import EscalationState
from costguard.guard.run_facts import ConfirmedAct, FirstSighting, GuardRun, ProtectionSighting
from costguard.guard.signals import SampleColumns
from costguard.ledger.db.codecs import Query
from costguard.ledger.guard import guard_state, intents, outbox
from costguard.ledger.guard import intents as hooks
from costguard.ledger.spans import observations
from costguard.values.resource import ResourceKey


class SnapshotRecords:
    """The guard's records in addition to those of polls.

    `ask`: queries within a snapshot, while it is open.
    """

    def __init__(self, ask: Query) -> None:
        self._ask = ask

    def load_open_overrides(self, now: datetime) -> list[Override]:
        """Return the overrides that count at `now`, oldest first."""
        return guard_state.load_open_overrides(self._ask, now)

    def load_overrides_since(self, at: datetime) -> list[Override]:
        """Return every override made at or after `at`, in force or not, oldest first."""
        return guard_state.load_overrides_since(self._ask, at)

    def load_open_intents(self) -> list[Intent]:
        """Return all open intents, oldest first."""
        return intents.load_open_intents(self._ask)

    def load_intents_since(self, at: datetime) -> list[Intent]:
        """Return all intents that were made or changed at or after `at`, oldest first."""
        return intents.load_intents_since(self._ask, at)

    def load_sends_since(self, at: datetime) -> list[Intent]:
        """Return all intents for which a request may have been sent at or after `at`, by `sent_at`, oldest first."""
        return intents.load_sends_since(self._ask, at)

    def load_hook_runs(self, since: datetime) -> list[HookRun]:
        """Return the hook runs that have not ended, and all that began at or after `since`, oldest first."""
        return hooks.load_hook_runs(self._ask, since)

    def load_last_run(self) -> GuardRun | None:
        """Return the newest guard run; None before the first one."""
        return guard_state.load_last_run(self._ask)

    def load_escalations(self) -> list[EscalationState]:
        """Return every escalation."""
        return guard_state.load_escalations(self._ask)

    def load_deliveries(self, since: datetime) -> dict[tuple[str, str], tuple[NoticeDelivery, ...]]:
        """Return the notices about policies delivered at or after `since`, by topic and subject."""
        return outbox.load_deliveries(self._ask, since)

    def load_protections(self) -> dict[ResourceKey, ProtectionSighting]:
        """Return when each resource was last seen protected, for those that ever were."""
        return guard_state.load_protections(self._ask)

    def load_start_history(self, key: ResourceKey, since: datetime) -> tuple[list[Intent], datetime | None, intents.MovesById]:
        """Return the intents on `key` since `since`, when it was last listed as at work, and the moves of its stops."""
        found = intents.load_intents_on(self._ask, key, since)
        return found, observations.load_last_awake(self._ask, key), intents.load_stop_moves(self._ask, found)

    def load_reactions(self, since: datetime) -> list[ConfirmedAct]:
        """Return the actions that were confirmed at or after `since`."""
        return intents.load_reactions(self._ask, since)

    def load_columns_since(self, at: datetime, keys: Collection[ResourceKey] | None = None) -> dict[ResourceKey, SampleColumns]:
        """Return the samples at or after `at` of `keys` (None: of all), in columns."""
        return observations.load_columns_since(self._ask, at, keys)

    def load_first_polls(self, keys: Collection[ResourceKey] | None = None) -> dict[ResourceKey, FirstSighting]:
        """Return since when, and through how many complete listings of its scope, each of `keys` (None: all) is known."""
        return observations.load_first_seen(self._ask, keys)
