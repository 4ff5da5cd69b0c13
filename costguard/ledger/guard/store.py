"""Write the guard's part of the ledger; each change is one transaction.

Overrides, intents, leader lease, escalations, outbox.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from datetime import datetime
from typing import Any

from costguard.guard.action_intents import EXECUTING, SEND_WITHIN, Intent, require_transition
from costguard.guard.alerts.alert import Alert, AlertState, Notification
from costguard.guard.escalation import HookRun
from costguard.guard.policy import PERSON_RULE, EscalationState, Rails
from costguard.guard.run_facts import GuardRun, ProtectionSighting
from costguard.ledger.db.connection import WriterLock
from costguard.ledger.db.session import read_by, write_by
from costguard.ledger.db.store import LedgerStore
from costguard.ledger.guard import guard_state, intents, outbox, send_gate
from costguard.ledger.guard.send_gate import SendRefusal
from costguard.ledger.guard_records import GuardRecords
from costguard.ledger.spans import observations
from costguard.values.checks import require

SEND_FIELDS = frozenset(("sends", "sent_at"))
"""What only a move to EXECUTING changes, by itself: what a mover says of it is not asked."""
FIXED_INTENT_FIELDS = SEND_FIELDS | {"id", "life", "act", "policy", "rule", "created_at", "state", "moved_at"}
"""What no mover changes."""


class GuardStore(LedgerStore, GuardRecords):
    """The guard's part of the ledger at `url`, which is created if missing.

    Close it, or use it in a `with` statement. `rails`: the limits that every send must respect. It may be used by several
    threads. Every method raises LedgerError if the ledger cannot be read or written: then nothing was written. What is no more
    than a function of the ledger in a transaction of its own stands here by its name.
    """

    writer_lock = WriterLock.GUARD

    def __init__(self, url: str, *, rails: Rails) -> None:
        super().__init__(url)
        self._rails, self._accepted_caps = rails, frozenset[str]()

    def set_rails(self, rails: Rails) -> None:
        """Use `rails` for all sends from now on."""
        self._rails = rails

    def set_accepted_caps(self, policies: frozenset[str]) -> None:
        """Let the hard caps of `policies` act within the limits of caps, and all others within those of acts."""
        self._accepted_caps = policies

    add_override = write_by(guard_state.add_override)
    lift_override = write_by(guard_state.lift_override)
    load_intent_history = read_by(intents.load_intent_history)
    end_hook = write_by(intents.record_hook_end)
    acquire_leader_lease = write_by(guard_state.acquire_leader_lease)
    load_leader_lease = read_by(guard_state.load_leader_lease)
    load_last_runs = read_by(guard_state.load_last_runs)
    record_protections = write_by(guard_state.record_protections)
    load_alert_states = read_by(outbox.load_alert_states)
    due_messages = read_by(outbox.load_due_messages)
    settle_message = write_by(outbox.settle_message)
    record_part = write_by(outbox.record_part)
    enqueue_messages = write_by(outbox.enqueue_messages)
    undelivered = read_by(outbox.load_undelivered)
    load_samples_since = read_by(observations.load_samples_since)
    load_departure = read_by(observations.load_departure)

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
        new_intent = _apply_move(intent, state, now, changes)
        if unsent is not None:
            require(intent.state == EXECUTING != state, "intent.state", "has no send to take back", "move it out of EXECUTING")
            new_intent = replace(new_intent, sends=intent.sends - 1, sent_at=unsent.sent_at if intent.sends > 1 else None)
        with self._begin_write() as (ask, tell):
            run = intents.load_run_of_send(ask, intent) if unsent is not None else send_gate.build_run_name(ask, run)
            accepted = self._accepted_caps
            if state == EXECUTING and send_gate.find_refusal(
                ask, self._rails, new_intent, now, run=run, fleet=fleet, accepted=accepted
            ):
                return None
            return new_intent if intents.record_move(ask, tell, intent, new_intent, run) else None

    def explain_refusal(
        self, intent: Intent, now: datetime, *, run: str = "", fleet: int | None = None, epoch: int | None = None
    ) -> SendRefusal | None:
        """Return why `intent` would not be moved to EXECUTING at `now`; None if the send gate permits it.

        `epoch`: used instead of that of `intent`; None: its own. Moves by other processes are not checked.
        """
        checked = intent if epoch is None else replace(intent, epoch=epoch)
        with self._begin_read() as ask:
            run = send_gate.build_run_name(ask, run)
            return send_gate.find_refusal(ask, self._rails, checked, now, run=run, fleet=fleet, accepted=self._accepted_caps)

    def begin_hook(self, run: HookRun, now: datetime) -> bool:
        """Record that `run` is about to begin; return False if it must not begin.

        That is the case if its epoch no longer leads, an override forbids it, or a run of its incarnation and step has not
        ended.
        """
        with self._begin_write() as (ask, tell):
            return send_gate.may_begin_hook(ask, run, now) and intents.record_hook_begin(ask, tell, run)

    def release_leader_lease(self, epoch: int) -> None:
        """Release the leader lease of `epoch`.

        Nothing changes if another epoch holds it by now.
        """
        with self._begin_write() as (_, tell):
            guard_state.release_leader_lease(tell, epoch)

    def record_run(
        self,
        run: GuardRun,
        *,
        climbs: Iterable[EscalationState] | None = None,
        alert_states: Iterable[AlertState] | None = None,
        messages: Iterable[Notification] = (),
        protections: Iterable[ProtectionSighting] = (),
        present: Iterable[Alert] = (),
    ) -> bool:
        """Write a run and its results in one transaction; return False and write nothing if its epoch lost the lease.

        `climbs` and `alert_states` replace all stored escalations and alert states (None: those stay). `messages` go to the
        outbox, where those that wait announce what `present` announces. `protections` replace older sightings.
        """
        with self._begin_write() as (ask, tell):
            turn = guard_state.load_leader_lease(ask)
            if turn is None or turn.epoch != run.epoch:
                return False
            if climbs is not None:
                guard_state.replace_escalations(ask, tell, climbs)
            if alert_states is not None:
                outbox.replace_alert_states(ask, tell, alert_states)
            guard_state.record_protections(ask, tell, protections)
            guard_state.record_guard_run(ask, tell, run)
            outbox.refresh_waiting_messages(ask, tell, present)
            outbox.enqueue_messages(ask, tell, messages)
            outbox.delete_settled(tell, run.at)
        return True


def _apply_move(intent: Intent, state: str, now: datetime, changes: Mapping[str, object]) -> Intent:
    """Return `intent` in `state`.

    Raises InputError for an invalid move, or a change of a fixed field.
    """
    require_transition(intent.state, state)
    field_names = {field.name for field in fields(Intent)} - FIXED_INTENT_FIELDS
    for name in changes:
        require(
            name in field_names | SEND_FIELDS,
            f"intent.{name}",
            "does not change in a move",
            f"it may be {', '.join(sorted(field_names))}",
        )
    others: dict[str, Any] = {name: value for name, value in changes.items() if name not in SEND_FIELDS}
    if state != EXECUTING:
        return replace(intent, **{"expires_at": None} | others, state=state, moved_at=now)
    expires_at = min(others.pop("expires_at", None) or now + SEND_WITHIN, now + SEND_WITHIN)
    return replace(intent, **others, state=state, moved_at=now, sends=intent.sends + 1, sent_at=now, expires_at=expires_at)
