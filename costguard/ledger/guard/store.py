"""Write the guard's part of the ledger; each change is one transaction.

Overrides, intents, leader lease, escalations, outbox.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from datetime import datetime, timedelta
from typing import Any

from costguard.guard.action_intents import EXECUTING, SEND_WITHIN, Intent, require_transition
from costguard.guard.alerts.alert import Alert, AlertState, DeliveryResult, NoticeDelivery, Notification
from costguard.guard.escalation import HookEnd, HookRun
from costguard.guard.overrides import Override
from costguard.guard.policy import PERSON_RULE, EscalationState, Rails
from costguard.guard.run_facts import ConfirmedAct, DepartureEvidence, FirstSighting, GuardRun, ProtectionSighting
from costguard.guard.signals import SampleColumns
from costguard.ledger.db.codecs import Query
from costguard.ledger.db.connection import WriterLock
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.db.store import LedgerStore
from costguard.ledger.guard import guard_state, intents, outbox, send_gate
from costguard.ledger.guard import guard_state as kept
from costguard.ledger.guard import intents as hooks
from costguard.ledger.guard.send_gate import SendRefusal
from costguard.ledger.spans import observations
from costguard.metering.billing import BillingRule
from costguard.values.checks import require
from costguard.values.resource import ResourceKey
from costguard.values.sample import Sample

SEND_FIELDS = frozenset(("sends", "sent_at"))
"""What only a move to EXECUTING changes, by itself: what a mover says of it is not asked."""
FIXED_INTENT_FIELDS = SEND_FIELDS | {"id", "life", "act", "policy", "rule", "created_at", "state", "moved_at"}
"""What no mover changes."""


class GuardStore(LedgerStore):
    """The guard's part of the ledger at `url`, which is created if missing.

    Close it, or use it in a `with` statement. `rails`: the limits that every send must respect. `rules`: how each provider
    bills (not used yet). It may be used by several threads. Every method raises LedgerError if the ledger cannot be read or
    written: then nothing was written.
    """

    writer_lock = WriterLock.GUARD

    def __init__(self, url: str, *, rails: Rails, rules: Mapping[str, BillingRule] | None = None) -> None:
        super().__init__(url)
        self._rails, self._rules, self._accepted_caps = rails, rules or {}, frozenset[str]()

    def set_rails(self, rails: Rails) -> None:
        """Use `rails` for all sends from now on."""
        self._rails = rails

    def set_accepted_caps(self, policies: frozenset[str]) -> None:
        """Let the hard caps of `policies` act within the limits of caps, and all others within those of acts."""
        self._accepted_caps = policies

    # Wishes

    def load_open_overrides(self, now: datetime) -> list[Override]:
        """Return the overrides that count at `now`, oldest first."""
        with self._begin_read() as ask:
            return guard_state.load_open_overrides(ask, now)

    def load_overrides_since(self, at: datetime) -> list[Override]:
        """Return every override made at or after `at`, in force or not, oldest first."""
        with self._begin_read() as ask:
            return guard_state.load_overrides_since(ask, at)

    def add_override(self, wish: Override) -> None:
        """Record an override; one whose id already exists stays as it is."""
        with self._begin_write() as (ask, tell):
            guard_state.add_override(ask, tell, wish)

    def lift_override(self, wish_id: str, *, who: str, now: datetime) -> Override:
        """Lift an override, and return it.

        A lifted one stays as it is. Raises InputError if there is none.
        """
        with self._begin_write() as (ask, tell):
            return guard_state.lift_override(ask, tell, wish_id, who=who, now=now)

    # Intents

    def plan_intent(self, intent: Intent) -> bool:
        """Record a new intent; return False if an open one for its incarnation and act exists, or its epoch no longer leads."""
        with self._begin_write() as (ask, tell):
            leads = intent.rule == PERSON_RULE or guard_state.is_leader(
                guard_state.load_leader_lease(ask), intent.epoch, intent.moved_at
            )
            return leads and intents.record_intent(ask, tell, intent)

    def move_intent(
        self,
        intent: Intent,
        state: str,
        now: datetime,
        *,
        run: str = "",
        fleet: int | None = None,
        unsent: Intent | None = None,
        **changes: Any,  # noqa: ANN401 - fields of an Intent
    ) -> Intent | None:
        """Move `intent` from its state to `state`, with `changes` of its other fields, commit, and return it.

        Returns None and changes nothing if another process moved it meanwhile, or if a move to EXECUTING is refused
        (`explain_refusal` returns the reason). A move to EXECUTING counts a send at `now` and sets `expires_at`, which any
        other move clears. `run`: the guard run that the send counts in, "" for the present round of the lease. `fleet`: how
        many machines run, None: as counted in the ledger. `unsent`: the intent before it became EXECUTING, if nothing was sent
        since: its send is taken back, and counts for no limit. After a change of leader, `epoch` is one of the `changes`.
        """
        moved = _apply_move(intent, state, now, changes)
        if unsent is not None:
            require(intent.state == EXECUTING != state, "intent.state", "has no send to take back", "move it out of EXECUTING")
            moved = replace(moved, sends=intent.sends - 1, sent_at=unsent.sent_at if intent.sends > 1 else None)
        with self._begin_write() as (ask, tell):
            run = intents.load_run_of_send(ask, intent) if unsent is not None else send_gate.build_run_name(ask, run)
            accepted = self._accepted_caps
            if state == EXECUTING and send_gate.find_refusal(
                ask, self._rails, moved, now, run=run, fleet=fleet, accepted=accepted
            ):
                return None
            return moved if intents.record_move(ask, tell, intent, moved, run) else None

    def explain_refusal(
        self, intent: Intent, now: datetime, *, run: str = "", fleet: int | None = None, epoch: int | None = None
    ) -> SendRefusal | None:
        """Return why `intent` would not be moved to EXECUTING at `now`; None if the send gate permits it.

        `epoch`: used instead of that of `intent`; None: its own. Moves by other processes are not checked.
        """
        asked = intent if epoch is None else replace(intent, epoch=epoch)
        with self._begin_read() as ask:
            run = send_gate.build_run_name(ask, run)
            return send_gate.find_refusal(ask, self._rails, asked, now, run=run, fleet=fleet, accepted=self._accepted_caps)

    def load_open_intents(self) -> list[Intent]:
        """Return all open intents, oldest first."""
        with self._begin_read() as ask:
            return intents.load_open_intents(ask)

    def load_intents_since(self, at: datetime) -> list[Intent]:
        """Return all intents that were made or moved at or after `at`, oldest first."""
        with self._begin_read() as ask:
            return intents.load_intents_since(ask, at)

    def load_sends_since(self, at: datetime) -> list[Intent]:
        """Return all intents for which a request may have been sent at or after `at`, by `sent_at`, oldest first."""
        with self._begin_read() as ask:
            return intents.load_sends_since(ask, at)

    def load_intent_history(self, intent_id: str) -> list[intents.IntentMove]:
        """Return every move of an intent, in order."""
        with self._begin_read() as ask:
            return intents.load_intent_history(ask, intent_id)

    def load_start_history(self, key: ResourceKey, since: datetime) -> tuple[list[Intent], datetime | None, intents.MovesById]:
        """Return the intents on `key`, when it was last at work, and the moves of its stops, in one snapshot."""
        with self._begin_read() as ask:
            found = intents.load_intents_on(ask, key, since)
            return found, observations.load_last_awake(ask, key), intents.load_stop_moves(ask, found)

    def load_reactions(self, since: datetime) -> list[ConfirmedAct]:
        """Return the actions that were confirmed at or after `since`, in order."""
        with self._begin_read() as ask:
            return intents.load_reactions(ask, since)

    # Hooks

    def begin_hook(self, run: HookRun, now: datetime) -> bool:
        """Record that `run` is about to begin; return False if it must not begin.

        That is the case if its epoch no longer leads, an override forbids it, or a run of its incarnation and step has not
        ended.
        """
        with self._begin_write() as (ask, tell):
            return send_gate.may_begin_hook(ask, run, now) and hooks.record_hook_begin(ask, tell, run)

    def end_hook(self, run_id: str, end: HookEnd, now: datetime) -> bool:
        """Record the end of a run; return False if the run does not exist or has ended already."""
        with self._begin_write() as (ask, tell):
            return hooks.record_hook_end(ask, tell, run_id, end, now)

    def load_hook_runs(self, since: datetime) -> list[HookRun]:
        """Return the hook runs that have not ended, and all that began at or after `since`, oldest first."""
        with self._begin_read() as ask:
            return hooks.load_hook_runs(ask, since)

    # Turns and runs

    def acquire_leader_lease(self, holder: str, now: datetime, lasts: timedelta) -> int | None:
        """Take or renew the leader lease for `holder` (one process) until `now + lasts`.

        Returns its epoch, or None if another holder has it.
        """
        with self._begin_write() as (ask, tell):
            return guard_state.acquire_leader_lease(ask, tell, holder, now, lasts)

    def release_leader_lease(self, epoch: int) -> None:
        """Release the leader lease of `epoch`.

        Nothing changes if another epoch holds it by now.
        """
        with self._begin_write() as (_, tell):
            guard_state.release_leader_lease(tell, epoch)

    def load_leader_lease(self) -> guard_state.LeaderLease | None:
        """Return the leader lease; None before the first one."""
        with self._begin_read() as ask:
            return guard_state.load_leader_lease(ask)

    def record_run(
        self,
        run: GuardRun,
        *,
        climbs: Iterable[EscalationState] | None = None,
        told: Iterable[AlertState] | None = None,
        messages: Iterable[Notification] = (),
        protections: Iterable[ProtectionSighting] = (),
        present: Iterable[Alert] = (),
    ) -> bool:
        """Write a run and its results in one transaction; return False and write nothing if its epoch lost the lease.

        `climbs` and `told` replace all stored escalations and alert states (None: those stay as they are). `messages` go to the
        outbox, where those that wait announce what `present` announces. `protections` replace older sightings.
        """
        with self._begin_write() as (ask, tell):
            turn = guard_state.load_leader_lease(ask)
            if turn is None or turn.epoch != run.epoch:
                return False
            if climbs is not None:
                kept.replace_escalations(ask, tell, climbs)
            if told is not None:
                outbox.replace_alert_states(ask, tell, told)
            kept.record_protections(ask, tell, protections)
            kept.record_guard_run(ask, tell, run)
            outbox.refresh_waiting_messages(ask, tell, present)
            outbox.enqueue_messages(ask, tell, messages)
            outbox.delete_settled(tell, run.at)
        return True

    def load_last_run(self) -> GuardRun | None:
        """Return the newest guard run; None before the first one."""
        with self._begin_read() as ask:
            return kept.load_last_run(ask)

    def load_last_runs(self, most: int) -> list[GuardRun]:
        """Return the newest guard runs, at most `most`, newest first."""
        with self._begin_read() as ask:
            return kept.load_last_runs(ask, most)

    def load_escalations(self) -> list[EscalationState]:
        """Return every escalation."""
        with self._begin_read() as ask:
            return kept.load_escalations(ask)

    def load_deliveries(self, since: datetime) -> dict[tuple[str, str], tuple[NoticeDelivery, ...]]:
        """Return the notices about policies delivered at or after `since`, by topic and subject."""
        with self._begin_read() as ask:
            return outbox.load_deliveries(ask, since)

    def load_protections(self) -> dict[ResourceKey, ProtectionSighting]:
        """Return when each resource was last seen protected, for those that ever were."""
        with self._begin_read() as ask:
            return kept.load_protections(ask)

    def record_protections(self, seen: Iterable[ProtectionSighting]) -> None:
        """Store `seen` outside a run.

        A sighting that is not newer than the stored one changes nothing.
        """
        with self._begin_write() as (ask, tell):
            kept.record_protections(ask, tell, seen)

    # Messages

    def load_alert_states(self) -> list[AlertState]:
        """Return the alert states that the last run stored."""
        with self._begin_read() as ask:
            return outbox.load_alert_states(ask)

    def due_messages(self, now: datetime) -> list[Notification]:
        """Return the messages to try at `now`, oldest first."""
        with self._begin_read() as ask:
            return outbox.load_due_messages(ask, now)

    def settle_message(self, message_id: str, delivery: DeliveryResult, now: datetime) -> None:
        """Record the result of one try: sent, to be tried again later, or given up."""
        with self._begin_write() as (ask, tell):
            outbox.settle_message(ask, tell, message_id, delivery, now)

    def undelivered(self, since: datetime) -> list[tuple[Notification, str]]:
        """Return the messages that were given up at or after `since`, with the reason."""
        with self._begin_read() as ask:
            return outbox.load_undelivered(ask, since)

    # The fleet

    def load_samples_since(self, at: datetime, keys: Collection[ResourceKey] | None = None) -> dict[ResourceKey, list[Sample]]:
        """Return the samples at or after `at` of `keys` (None: of all), by signal and time.

        Resources without samples are left out.
        """
        with self._begin_driver_read() as ask:
            return observations.load_samples_since(ask, at, keys)

    def load_columns_since(self, at: datetime, keys: Collection[ResourceKey] | None = None) -> dict[ResourceKey, SampleColumns]:
        """Return the same samples in columns, which is the form that the guard uses for a fleet."""
        with self._begin_driver_read() as ask:
            return observations.load_columns_since(ask, at, keys)

    def load_departure(self, key: ResourceKey, since: datetime) -> DepartureEvidence:
        """Return the evidence for the end of `key`.

        It is the listing of `key` as ended, or the number of complete listings in a row, from `since` on, that lack it.
        """
        with self._begin_read() as ask:
            return observations.load_departure(ask, key, since)

    def load_first_polls(self, keys: Collection[ResourceKey] | None = None) -> dict[ResourceKey, FirstSighting]:
        """Return since when, and through how many complete listings of its scope, each of `keys` (None: all) is known."""
        with self._begin_driver_read() as ask:
            return observations.load_first_seen(ask, keys)

    @contextmanager
    def _begin_driver_read(self) -> Iterator[Query]:
        """Read through the driver, without SQLAlchemy's work on each row, of which there may be millions."""
        with LedgerReader(self._url) as reader, reader.snapshot() as ask:
            yield ask


def _apply_move(intent: Intent, state: str, now: datetime, changes: Mapping[str, object]) -> Intent:
    """Return `intent` in `state`.

    Raises InputError for an invalid move, or a change of a fixed field.
    """
    require_transition(intent.state, state)
    known = {field.name for field in fields(Intent)} - FIXED_INTENT_FIELDS
    for name in changes:
        require(
            name in known | SEND_FIELDS, f"intent.{name}", "does not change in a move", f"it may be {', '.join(sorted(known))}"
        )
    others: dict[str, Any] = {name: value for name, value in changes.items() if name not in SEND_FIELDS}
    if state != EXECUTING:
        return replace(intent, **{"expires_at": None} | others, state=state, moved_at=now)
    expires_at = min(others.pop("expires_at", None) or now + SEND_WITHIN, now + SEND_WITHIN)
    return replace(intent, **others, state=state, moved_at=now, sends=intent.sends + 1, sent_at=now, expires_at=expires_at)
