"""Send one stop, terminate or start to a provider, once, after a new look at the machine, and confirm the outcome.

This is the only module that requests a provider to stop, terminate or start anything (tests/test_acting_wall.py). Each state is
committed before the step that it allows:

    READY -> look, may it? -> commit EXECUTING -> look again, may it? -> not late? -> send once -> commit VERIFYING

Example: 19:05:00 READY; 19:05:01 the machine runs, nobody keeps it, EXECUTING until 19:05:31; 19:05:02 the second look agrees
and one request is sent; 19:05:03 VERIFYING. A process that was suspended before the request and resumed at 19:20 sends nothing.
An adapter may take long between that check and its request; 10 s after the check the transport refuses the first byte
(`send_deadline`). For providers without conditional requests, the time after that is unguarded.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from costguard.errors import CostguardError, LedgerError, to_one_line
from costguard.guard.action_intents import (
    CANCELLED,
    DOUBTFUL_STATES,
    EXECUTING,
    FAILED,
    READY,
    SEND_WITHIN,
    SETTLING_TIME,
    UNCONFIRMED,
    VERIFYING,
    Intent,
    confirm_outcome,
    describe_difference,
    explain_refusal,
    is_send_due,
)
from costguard.guard.policy import START, STOP
from costguard.metering.observation import Observation, drop_impossible_times
from costguard.providers.ports import Inspector, ParallelActor, Starter, Stopper, Terminator
from costguard.services.poll.ports import Intents
from costguard.system.clock import Clock, limit_sending
from costguard.values.money import Rate
from costguard.values.provider import POSTPONED, REFUSED, UNCLEAR, ActionResponse
from costguard.values.resource import ResourceKey

LOOK_AGE_MAX_S = 5.0
"""How old the look may be at the moment of the send, counted from when it was asked for."""
SEND_LIMIT_S = 10.0
"""How long after the last check its adapter may begin to send: it may look for itself (8 s at most) and has to connect."""

UNANSWERED, LATE, UNRELEASED = "unanswered", "late", "unreleased"
"""Kinds of faults, beside what the provider said (REFUSED, UNCLEAR, POSTPONED): the look failed; the answer came too late to
send; the ledger did not release the act (a limit, the leader lease, another process)."""

ReadSeconds = Callable[[], float]
FindObjection = Callable[[Observation], str]
"""Derived anew from this look and from what people wish at this moment: why it must not be done (any more), "" to go on."""


def read_boot_time_s() -> float:
    """Return the seconds since boot, including suspend; this clock cannot be set back."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionPorts:
    """The acts that one account supports; None for an unsupported one. `at_once`: how many may be under way, 1 or more."""

    inspector: Inspector | None = None
    stopper: Stopper | None = None
    terminator: Terminator | None = None
    starter: Starter | None = None
    at_once: int = 1


def find_action_ports(source: object) -> ActionPorts:
    """Return the acts of an account, by the ports that it implements."""
    return ActionPorts(
        inspector=source if isinstance(source, Inspector) else None,
        stopper=source if isinstance(source, Stopper) else None,
        terminator=source if isinstance(source, Terminator) else None,
        starter=source if isinstance(source, Starter) else None,
        at_once=source.acts_at_once if isinstance(source, ParallelActor) else 1,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionResult:
    """Outcome of one attempt. `intent`: as last committed. `sent`: whether a request was sent now.

    `held`: why nothing was sent or settled although the intent stays open. `again`: it should be sent once more. `broken`: why
    the ledger could not be read or written; after that only observing is allowed. `fault`: what may fail likewise for other
    machines of the account: UNANSWERED, LATE, UNRELEASED, REFUSED, UNCLEAR or POSTPONED; "" for an objection to this one.
    """

    intent: Intent
    sent: bool = False
    held: str = ""
    again: bool = False
    broken: str = ""
    fault: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshLook:
    """A new observation `seen`, or `why` it failed; requested at `at_s`. `fault`: UNANSWERED if there was no answer."""

    at_s: float
    seen: Observation | None
    why: str = ""
    fault: str = ""


def send_action(
    intent: Intent,
    hands: ActionPorts,
    intents: Intents,
    clock: Clock,
    still: FindObjection,
    *,
    epoch: int | None = None,
    seconds: ReadSeconds = read_boot_time_s,
) -> ActionResult:
    """Perform `intent` if it is due: at most one request, and none if anything is in doubt.

    `epoch`: of the leader lease; None: the intent's own. `seconds`: a monotonic clock for the expiry. `still` returns why the
    act is no longer wanted, "" if it is; its exceptions are not caught, but a LedgerError of it is returned as `broken`.
    """
    if not is_send_due(intent, clock.now()):
        return ActionResult(intent=intent, held=f"it is {intent.state}, and not due")
    send = _choose_request(intent, hands)
    try:
        if send is None or hands.inspector is None:
            return _drop_intent(
                intent, intents, clock, f"its provider cannot {intent.act} it, or cannot look it up individually"
            )
        deed = _PendingAction(
            intent=intent,
            send=send,
            inspector=hands.inspector,
            intents=intents,
            clock=clock,
            still=still,
            seconds=seconds,
            epoch=intent.epoch if epoch is None else epoch,
        )
        first = deed.look()
        if first.seen is None:
            return _note_unsent(deed, first)
        against = explain_refusal(intent, first.seen) or still(first.seen)
        if against:
            return _drop_intent(intent, intents, clock, against)
    except LedgerError as error:
        return ActionResult(intent=intent, broken=str(error))
    return _execute(deed, first.seen)


@dataclass(frozen=True, slots=True, kw_only=True)
class _PendingAction:
    """An intent with everything needed to perform it."""

    intent: Intent
    send: Callable[[], ActionResponse]
    inspector: Inspector
    intents: Intents
    clock: Clock
    still: FindObjection
    seconds: ReadSeconds
    epoch: int

    def look(self) -> FreshLook:
        return look_at_resource(self.inspector, self.intent.life.key, self.clock, self.seconds)


def _execute(deed: _PendingAction, old_observation: Observation) -> ActionResult:
    """Commit EXECUTING, look again, send once, and commit the provider's response."""
    intent, seconds, now = deed.intent, deed.seconds, deed.clock.now()
    until, until_s = now + SEND_WITHIN, seconds() + SEND_WITHIN.total_seconds()
    executing, sent = None, False
    try:
        executing = deed.intents.move_intent(
            intent, EXECUTING, now, sends=intent.sends + 1, sent_at=now, expires_at=until, epoch=deed.epoch
        )
        if executing is None:
            return ActionResult(
                intent=intent,
                held="another process changed it, this watchdog no longer leads, or a limit in [rails] is reached",
                fault=UNRELEASED,
            )
        look = deed.look()
        if look.seen is None:
            return _move_back(deed, executing, look.why, fault=look.fault)
        against = explain_refusal(intent, look.seen) or describe_difference(old_observation, look.seen) or deed.still(look.seen)
        if against:
            return _move_back(deed, executing, against, drop=True)
        at_s = seconds()
        if at_s >= until_s or at_s - look.at_s > LOOK_AGE_MAX_S or deed.clock.now() >= until:
            return _move_back(deed, executing, "its provider answered too late, so no request was sent", fault=LATE)
        sent = True
        with limit_sending(min(until_s, at_s + SEND_LIMIT_S), seconds):
            reception = _send_request(deed.send)
        return _record_reception(deed, executing, reception)
    except LedgerError as error:
        return ActionResult(intent=executing or intent, sent=sent, broken=str(error))


def confirm_action(
    intent: Intent,
    observation: Observation | None,
    intents: Intents,
    still: FindObjection,
    *,
    absences: int,
    asked_at: datetime,
    now: datetime,
    settling: timedelta = SETTLING_TIME,
) -> ActionResult:
    """Update `intent`, which is in doubt, by a listing or look requested at `asked_at`; sends nothing.

    `observation` None: the machine was missing from `absences` complete listings in a row. `still` is called if the act had no
    effect and the intent would become READY again: a reason cancels it.
    """
    finding = confirm_outcome(intent, observation, absences=absences, asked_at=asked_at, now=now, settling=settling)
    try:
        if finding.state == READY and observation is not None and (against := still(observation)):
            return _move_intent(intent, intents, CANCELLED, now, f"{finding.why}, and {against}")
        if finding.state:
            return _move_intent(intent, intents, finding.state, now, finding.why, again=finding.again)
    except LedgerError as error:
        return ActionResult(intent=intent, broken=str(error))
    return ActionResult(intent=intent, held=finding.why, again=finding.again)


def settle_action(
    intent: Intent,
    hands: ActionPorts,
    intents: Intents,
    clock: Clock,
    still: FindObjection,
    *,
    settling: timedelta = SETTLING_TIME,
) -> ActionResult:
    """Look once at the machine of an act left in doubt by a dead process, and update the intent.

    If the look fails, the intent is unchanged.
    """
    if intent.state not in DOUBTFUL_STATES or hands.inspector is None:
        return ActionResult(intent=intent, held="it cannot be looked up individually, or nothing is pending")
    asked_at = clock.now()
    look = look_at_resource(hands.inspector, intent.life.key, clock, lambda: 0.0)
    if look.seen is None:
        return ActionResult(intent=intent, held=look.why, fault=look.fault)
    return confirm_action(intent, look.seen, intents, still, absences=0, asked_at=asked_at, now=clock.now(), settling=settling)


def _choose_request(intent: Intent, hands: ActionPorts) -> Callable[[], ActionResponse] | None:
    """Return the one request that `intent` allows. A stop never becomes a terminate."""
    key, stopper, terminator, starter = intent.life.key, hands.stopper, hands.terminator, hands.starter
    if intent.act == START:
        return None if starter is None else lambda: starter.start_instance(key)
    if intent.act == STOP:
        return None if stopper is None else lambda: stopper.stop(key, lose=frozenset(intent.lose))
    return None if terminator is None else lambda: terminator.terminate(key)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartPrice:
    """What a start would cost an hour as its provider says now; None: it does not say, because of `why`."""

    rate: Rate | None
    why: str = ""


def fetch_start_price(hands: ActionPorts, key: ResourceKey) -> StartPrice:
    """Ask what the machine would cost an hour if it started now. Raises nothing."""
    if hands.starter is None:
        return StartPrice(rate=None, why="its provider cannot start it")
    try:
        price = hands.starter.fetch_start_price(key)
    except CostguardError as error:
        return StartPrice(rate=None, why=f"its price cannot be queried: {error.what}")
    except Exception as error:  # noqa: BLE001 - a broken adapter is one that cannot be asked, whatever it raises
        return StartPrice(rate=None, why=f"its price cannot be queried: {to_one_line(repr(error))}")
    return StartPrice(rate=price.rate, why="" if price.rate else "its provider states no price for it")


def look_at_resource(inspector: Inspector, key: ResourceKey, clock: Clock, seconds: ReadSeconds) -> FreshLook:
    """Look up one instance. Raises nothing."""
    at_s = seconds()
    try:
        observation = inspector.look_up(key)
    except CostguardError as error:
        return FreshLook(at_s=at_s, seen=None, why=f"it cannot be looked up: {error.what}", fault=UNANSWERED)
    except Exception as error:  # noqa: BLE001 - a broken adapter is one that cannot be asked, whatever it raises
        why = f"it cannot be looked up: {to_one_line(repr(error))}"
        return FreshLook(at_s=at_s, seen=None, why=why, fault=UNANSWERED)
    if observation is None:
        return FreshLook(at_s=at_s, seen=None, why="its provider says it does not exist, which is no proof that it ended")
    if observation.key != key:
        return FreshLook(at_s=at_s, seen=None, why="its provider answered with another machine")
    return FreshLook(at_s=at_s, seen=drop_impossible_times(observation, clock.now())[0])


def _send_request(send: Callable[[], ActionResponse]) -> ActionResponse:
    try:
        return send()
    except Exception as error:  # noqa: BLE001 - it may have worked or not, whatever broke on our side of it
        return ActionResponse(said=UNCLEAR, why=to_one_line(repr(error)))


def _record_reception(deed: _PendingAction, executing: Intent, reception: ActionResponse) -> ActionResult:
    """Record the response. A refusal is a failure only if no earlier request may have worked.

    A machine that is stopping refuses a second stop. What its provider postponed had no effect: it is as if nothing was sent.
    """
    if reception.said == POSTPONED:
        return _move_back(deed, executing, f"{reception.said}: {reception.why}", fault=POSTPONED)
    waits = UNCONFIRMED if deed.intent.state == UNCONFIRMED else VERIFYING  # what was paged stays so until it is proven
    state = FAILED if reception.said == REFUSED and not deed.intent.sends else waits
    outcome = f"{reception.said}: {reception.why}" if reception.why else reception.said
    result = _move_intent(executing, deed.intents, state, deed.clock.now(), outcome)
    fault = reception.said if reception.said in {REFUSED, UNCLEAR} else ""
    return ActionResult(intent=result.intent, sent=True, held=result.held, fault=fault)


def _drop_intent(intent: Intent, intents: Intents, clock: Clock, why: str) -> ActionResult:
    """Give up an intent: one that was sent is still watched, any other is cancelled."""
    if intent.state != READY:
        return ActionResult(intent=intent, held=why)
    return _move_intent(intent, intents, CANCELLED, clock.now(), why)


def _note_unsent(deed: _PendingAction, look: FreshLook) -> ActionResult:
    """Record why a due intent was not sent, so that people can be told; it stays as it is, and is tried in the next run."""
    intent, why = deed.intent, look.why
    if intent.state != READY:
        return ActionResult(intent=intent, held=why, fault=look.fault)
    return replace(_move_intent(intent, deed.intents, READY, deed.clock.now(), why), held=why, fault=look.fault)


def _move_back(deed: _PendingAction, executing: Intent, why: str, *, drop: bool = False, fault: str = "") -> ActionResult:
    """Return to the state before, since nothing was sent; a dropped READY intent is cancelled. The send is taken back."""
    intent = deed.intent
    state = CANCELLED if drop and intent.state == READY else intent.state
    moved_intent = deed.intents.move_intent(executing, state, deed.clock.now(), unsent=intent, outcome=why)
    return ActionResult(intent=moved_intent or executing, held=why, fault=fault)


def _move_intent(intent: Intent, intents: Intents, state: str, now: datetime, why: str, *, again: bool = False) -> ActionResult:
    moved_intent = intents.move_intent(intent, state, now, outcome=why)
    if moved_intent is None:
        return ActionResult(intent=intent, held="another process changed it in the meantime")
    return ActionResult(intent=moved_intent, again=again)
