"""Intents: the row written before an act on one incarnation of one instance. Its state only moves forward.

    PLANNED -> GRACE -> READY -> EXECUTING -> VERIFYING -> DONE | CANCELLED(why) | FAILED(why) | UNCONFIRMED

PLANNED: it is in the plan. GRACE: its notification was sent and the grace period runs. READY: due. EXECUTING: committed, about
to be sent or sent; after a crash these two cannot be distinguished, so the machine is checked. VERIFYING: the provider accepted
it, and a listing must prove it. UNCONFIRMED: not proven within ten minutes; a page is sent, the machine is checked until
the act is proven, and a stop or termination is sent again every 15 minutes.

A check of the instance decides whether the act may still be sent, and whether it had its effect; in doubt nothing is sent.
Example: a stop was accepted at 19:05. If the machine is running at 19:06: wait; running at 19:08: send again; stopped at 19:07:
done; at 19:07 running since 19:06: done, because a new incarnation runs now.

A start is sent once and never repeated by itself: a machine that starts late bills late. Running: done; stopped 10 min after
the provider took it: failed, or unconfirmed while the provider still waits for a GPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from costguard.errors import InputError
from costguard.guard.policy import START, STOP, TERMINATE
from costguard.metering.observation import Observation, identify_incarnation
from costguard.values.checks import require_one_of
from costguard.values.provider import REFUSED
from costguard.values.resource import ARRIVING_STATES, ENDED, RUNNING, STOPPED, Incarnation, is_same_life

PLANNED, GRACE, READY, EXECUTING, VERIFYING = "planned", "grace", "ready", "executing", "verifying"
DONE, CANCELLED, FAILED, UNCONFIRMED = "done", "cancelled", "failed", "unconfirmed"
TRANSITIONS: dict[str, tuple[str, ...]] = {
    PLANNED: (GRACE, READY, CANCELLED),
    GRACE: (READY, CANCELLED),
    READY: (READY, EXECUTING, CANCELLED),
    EXECUTING: (VERIFYING, READY, DONE, CANCELLED, FAILED, UNCONFIRMED),
    VERIFYING: (EXECUTING, DONE, CANCELLED, FAILED, UNCONFIRMED),
    UNCONFIRMED: (VERIFYING, EXECUTING, DONE, FAILED, CANCELLED),
    DONE: (),
    CANCELLED: (),
    FAILED: (),
}
"""From which state to which. READY stays READY with a new outcome: why it was not sent although it was due.

EXECUTING goes back to READY only where nothing was sent, or a look shows that it had no effect.
"""
OPEN_STATES = (PLANNED, GRACE, READY, EXECUTING, VERIFYING, UNCONFIRMED)
DOUBTFUL_STATES = (EXECUTING, VERIFYING, UNCONFIRMED)
"""Something may have been sent."""

SEND_WITHIN = timedelta(seconds=30)
"""From the commit of EXECUTING to the last moment at which its request may be sent."""
CONFIRM_WITHIN = timedelta(minutes=10)
REFUSED_FOR = timedelta(hours=1)
"""How long an act that its provider refused is not asked for again: a missing permission is not granted within a minute."""
RETRY_DELAYS = (timedelta(minutes=1), timedelta(minutes=2), timedelta(minutes=4))
"""After a send that the listing contradicts: how long until the next one."""
UNCONFIRMED_DELAY = timedelta(minutes=15)
"""The same after the page that it is not confirmed, for as long as it is wanted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """An act that is planned or was done. `act`: stop, terminate or start. `lose`: what may be lost, as worded in its Handling.

    `evidence`: JSON of the facts that it is based on, with their age. `epoch`: of the acting watchdog that wrote it. `sends`:
    how often a request may have been sent; `sent_at`: the last time. A move to EXECUTING counts as one, and is taken back if
    nothing was sent after it. `expires_at`: of the present EXECUTING. `rule`: of its policy.
    """

    id: str
    life: Incarnation
    act: str
    policy: str
    rule: str
    why: str
    evidence: str
    state: str
    created_at: datetime
    moved_at: datetime
    epoch: int = 0
    lose: tuple[str, ...] = ()
    irreversible: bool = False
    sends: int = 0
    sent_at: datetime | None = None
    expires_at: datetime | None = None
    outcome: str = ""

    def __post_init__(self) -> None:
        require_one_of(self.state, tuple(TRANSITIONS), "intent.state")


def require_transition(old: str, new: str) -> None:
    """Raise InputError if an intent cannot go from `old` to `new`."""
    if new not in TRANSITIONS[old]:
        raise InputError(
            f"cannot go from {old} to {new}", field="intent", hint=f"it may go to {', '.join(TRANSITIONS[old]) or 'nothing'}"
        )


STOPPABLE_STATES = (RUNNING, "paused", "failed")
"""States in which a stop has something to stop: the machine is held, and bills."""
STARTABLE_STATES = (STOPPED, "suspended")
PROVING_STATES = {STOP: (STOPPED, "suspended", ENDED), TERMINATE: (ENDED,), START: (RUNNING,)}
"""States that prove an act."""
CONTRADICTING_STATES = {
    STOP: STOPPABLE_STATES,
    TERMINATE: (*STOPPABLE_STATES, STOPPED, "suspended"),
    START: STARTABLE_STATES,
}
"""States in which it may be done, and which contradict that it was."""
SEND_UNKNOWN = "whether the request was sent is not known, and it is not repeated"
"""Ends the outcome of a start that a crash cut off."""
ABSENCES_MIN = 3
"""Complete listings in a row that lack it, before a terminate counts as done: that it is not found proves nothing (H04)."""
SETTLING_TIME = timedelta(seconds=60)
"""How long a listing may go on showing what was before a send, where a provider says nothing better: an assumption, 2026-11."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntentUpdate:
    """The next state of an intent; "" for no change. `again`: send once more, after a new check. `why` is a sentence."""

    state: str = ""
    why: str = ""
    again: bool = False


def explain_refusal(intent: Intent, observation: Observation) -> str:
    """Explain why `intent` must not be sent, given the new `observation`; "" if nothing forbids it."""
    return next(_list_objections(intent, observation), "")


def _list_objections(intent: Intent, observation: Observation) -> Iterator[str]:
    """Yield each objection by itself; an objection that makes later ones meaningless comes before them."""
    handling, act = observation.handling, intent.act
    if identify_incarnation(observation) != intent.life:
        yield "the machine was restarted or replaced: this act was for an earlier run"
    withdraws = act == STOP and handling.start_waits
    if is_proof(act, observation):
        yield f"it is {observation.state} already"
    offered = {STOP: handling.stops, TERMINATE: handling.terminates, START: handling.starts}[act]
    can_arrive = act != START and observation.state in ARRIVING_STATES and offered  # its provider says that it can be stopped
    if observation.state not in CONTRADICTING_STATES[act] and not withdraws and not can_arrive:
        yield f"it is {observation.state}: the act's result would be unknown"
    if handling.controller:
        yield f"{handling.controller} would start it again"
    if act in handling.protected:
        yield f"its provider protects it from {act}"
    if offered is False or (act == START and not offered):  # a start needs a yes: it begins to cost
        yield f"its provider has no {act} for it in its present state"
    if act == TERMINATE and not intent.irreversible:
        yield "it would be deleted permanently, and that was not allowed"
    lost = [loss for loss in handling.stop_loses if loss not in intent.lose]
    if act == STOP and lost:
        yield f"it would lose {', '.join(lost)}, and that was not allowed"


def is_proof(act: str, observation: Observation) -> bool:
    """Return whether `observation` proves `act`. A machine whose start waits is not stopped: it will start by itself."""
    return observation.state in PROVING_STATES[act] and not (act == STOP and observation.handling.start_waits)


def is_send_due(intent: Intent, now: datetime) -> bool:
    """Return whether `intent` may be sent at `now`.

    That is so if it is READY, if it is VERIFYING and the delay of RETRY_DELAYS has passed since it was sent, or if it is
    UNCONFIRMED and nothing was sent for UNCONFIRMED_DELAY. A start is sent once.
    """
    if intent.state == UNCONFIRMED and intent.act != START:
        return _get_time_since_send(intent, now) >= UNCONFIRMED_DELAY and _can_tell_lives_apart(intent)
    if intent.state != VERIFYING or intent.act == START:
        return intent.state == READY
    sent = max(intent.sends, 1) - 1
    waited = sent < len(RETRY_DELAYS) and _get_time_since_send(intent, now) >= RETRY_DELAYS[sent]
    return waited and _can_tell_lives_apart(intent) and not _is_overdue(intent, now)


def describe_difference(first: Observation, second: Observation) -> str:
    """Describe what changed between two observations of a machine and affects the act; "" for nothing."""
    if first.state != second.state:
        return f"it went from {first.state} to {second.state} while it was checked"
    fields = ("name", "owner", "labels", "tier", "handling")
    changed = [what for what in fields if getattr(first, what) != getattr(second, what)]
    return f"its {' and '.join(changed)} changed while it was checked" if changed else ""


def confirm_outcome(
    intent: Intent, observation: Observation | None, *, absences: int, asked_at: datetime, now: datetime, settling: timedelta
) -> IntentUpdate:
    """Return the next state of `intent`, which is in doubt, from a check or listing requested at `asked_at`.

    `observation` None: the machine was not there; `absences`: how many complete listings in a row lack it, all requested after
    the last send. While nothing can be listed, `asked_at` of the last listing only allows it to become UNCONFIRMED after ten
    minutes.
    """
    if intent.state == EXECUTING and intent.expires_at is not None and now < intent.expires_at:
        return IntentUpdate(why="it may be sent at any moment")
    if intent.sent_at is not None and asked_at < intent.sent_at:
        return _keep_waiting(intent, now, "not checked since it was sent", looked=False)
    return (
        _resolve_absent(intent, absences, now) if observation is None else _resolve_present(intent, observation, now, settling)
    )


def _resolve_absent(intent: Intent, absences: int, now: datetime) -> IntentUpdate:
    if absences >= ABSENCES_MIN and intent.act == TERMINATE:
        return IntentUpdate(state=DONE, why=f"{absences} complete listings in a row do not contain it")
    if absences >= ABSENCES_MIN and intent.state == UNCONFIRMED:
        return IntentUpdate(state=FAILED, why=f"its {intent.act} was requested, but it no longer exists")
    return _keep_waiting(intent, now, "it was not found, which is no proof that it ended")


def _resolve_present(intent: Intent, observation: Observation, now: datetime, settling: timedelta) -> IntentUpdate:
    if intent.act == START:
        return _resolve_start(intent, observation, now, settling)
    if _is_later_life(intent.life, observation):
        return IntentUpdate(state=DONE, why="the machine was restarted since: the act was for its earlier run")
    if _is_other_life(intent.life, observation):
        return _keep_waiting(intent, now, "the observation may be of an earlier run or of another machine")
    if is_proof(intent.act, observation):
        return IntentUpdate(state=DONE, why=f"it is {observation.state}")
    if observation.state in CONTRADICTING_STATES[intent.act]:
        return _resolve_contradicted(intent, observation, now, settling)
    return _keep_waiting(intent, now, f"it is {observation.state}")


def _resolve_contradicted(intent: Intent, observation: Observation, now: datetime, settling: timedelta) -> IntentUpdate:
    """Return the update for a machine whose state contradicts the act, as if nothing had been sent."""
    reason = f"it is still {observation.state}"
    if _get_time_since_send(intent, now) < settling:
        return IntentUpdate(why=f"{reason}, and the change may be in progress")
    if intent.state == EXECUTING and not _can_tell_lives_apart(intent):
        return IntentUpdate(state=CANCELLED, why=f"{reason}, or running again: its provider states no start time")
    if intent.state == EXECUTING:
        return IntentUpdate(state=READY, why=reason, again=True)
    if is_send_due(intent, now):
        return IntentUpdate(why=reason, again=True)
    return _keep_waiting(intent, now, reason)


def _resolve_start(intent: Intent, observation: Observation, now: datetime, settling: timedelta) -> IntentUpdate:
    """Return the update of a start. Only a running machine proves it; a stopped one that can be started again disproves it."""
    if _is_other_life(intent.life, observation):
        return _keep_waiting(intent, now, "the observation may be of an earlier run or of another machine")
    if observation.state in PROVING_STATES[START]:
        return IntentUpdate(state=DONE, why=f"it is {observation.state}")
    if observation.state == ENDED:
        return IntentUpdate(state=FAILED, why="it has ended")
    if observation.state not in STARTABLE_STATES:
        return _keep_waiting(intent, now, f"it is {observation.state}")
    return _resolve_unstarted(intent, observation, now, settling)


def _resolve_unstarted(intent: Intent, observation: Observation, now: datetime, settling: timedelta) -> IntentUpdate:
    """Return the update for a machine that is stopped although its start may have been sent."""
    reason = f"it is still {observation.state}" + (
        f" ({observation.why})" if observation.why and observation.why != observation.state else ""
    )
    if _get_time_since_send(intent, now) < settling:
        return IntentUpdate(why=f"{reason}, and may be starting")
    if not observation.handling.starts:  # its provider still works at it, or does not say
        return _keep_waiting(intent, now, reason)
    if _is_later_life(intent.life, observation):
        reason = "it started and is stopped again: by its provider for want of capacity, or by a person"
        return IntentUpdate(state=FAILED, why=reason)
    if intent.state == EXECUTING:
        return IntentUpdate(state=CANCELLED, why=f"{reason}: {SEND_UNKNOWN}")
    if _is_overdue(intent, now):
        return IntentUpdate(state=FAILED, why=f"{reason}: its provider took the request, and did not start it within 10 min")
    return _keep_waiting(intent, now, reason)


def is_without_effect(intent: Intent) -> bool:
    """Return whether an ended start certainly had no effect: it was not sent, or its provider clearly refused it."""
    if intent.state == CANCELLED:
        return not intent.sends or not intent.outcome.endswith(SEND_UNKNOWN)
    return intent.state == FAILED and intent.outcome.split(":")[0] == REFUSED


def _can_tell_lives_apart(intent: Intent) -> bool:
    """Return whether a later incarnation can be distinguished from the intended one; after a terminate none exists."""
    return intent.act == TERMINATE or intent.life.started_at is not None


def _keep_waiting(intent: Intent, now: datetime, why: str, *, looked: bool = True) -> IntentUpdate:
    """Return the update for an unproven act: VERIFYING after a check, and UNCONFIRMED after ten minutes."""
    if intent.state == UNCONFIRMED:
        return IntentUpdate(why=why)
    if _is_overdue(intent, now):
        return IntentUpdate(state=UNCONFIRMED, why=why)
    return IntentUpdate(state=VERIFYING if looked and intent.state == EXECUTING else "", why=why)


def _is_overdue(intent: Intent, now: datetime) -> bool:
    """Return whether ten minutes have passed since the first send.

    The pauses between sends are taken to be those of RETRY_DELAYS.
    """
    return _get_time_since_send(intent, now) + sum(RETRY_DELAYS[: max(intent.sends - 1, 0)], timedelta()) >= CONFIRM_WITHIN


def _get_time_since_send(intent: Intent, now: datetime) -> timedelta:
    return now - (intent.sent_at or intent.moved_at)


def _is_later_life(life: Incarnation, observation: Observation) -> bool:
    pairs = ((life.started_at, observation.started_at), (life.created_at, observation.created_at))
    return any(old is not None and new is not None and new > old for old, new in pairs)


def _is_other_life(life: Incarnation, observation: Observation) -> bool:
    """Return whether `observation` certainly shows another incarnation than `life`.

    A stopped machine that no longer states a start time may be the same incarnation.
    """
    pairs = ((life.started_at, observation.started_at), (life.created_at, observation.created_at))
    stale = life.started_at is not None and observation.stopped_at is not None and observation.stopped_at < life.started_at
    return stale or any(old is not None and new is not None and new < old for old, new in pairs)


def find_open_intent(intents: Iterable[Intent], life: Incarnation, act: str) -> Intent | None:
    """Return the open intent for this incarnation and act, or None."""
    return next((i for i in intents if i.state in OPEN_STATES and i.act == act and is_same_life(i.life, life)), None)
