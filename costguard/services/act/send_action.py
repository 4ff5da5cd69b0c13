"""Acting: one instance is asked to stop or end, once, after a fresh look, and what came of it is proven by looking.

This is the only place that asks a provider to stop or end anything (tests/test_acting_wall.py). Each state is committed before
what it allows is done:

    READY -> look, may it? -> commit EXECUTING -> look again, may it? -> not late? -> send once -> commit VERIFYING

19:05:00 READY; 19:05:01 it runs, nobody keeps it, EXECUTING until 19:05:31; 19:05:02 the second look says the same, one request
goes out; 19:05:03 VERIFYING. Had the process been suspended before the request and gone on at 19:20, nothing would be sent.
What an adapter does between that check and its request (a look of its own, a connection) may take long: its request is refused
at the first byte where it is late by then, 10 s after the check (timely.py). A provider whose act takes no condition leaves the
window after that.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
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
    VERIFYING,
    Intent,
    confirm_outcome,
    describe_difference,
    explain_refusal,
    is_send_due,
)
from costguard.guard.policy import STOP
from costguard.metering.observation import Observation, drop_impossible_times
from costguard.providers.ports import Inspector, Stopper, Terminator
from costguard.services.ports import Intents
from costguard.system.clock import Clock, limit_sending
from costguard.values.provider import REFUSED, UNCLEAR, ActionResponse
from costguard.values.resource import ResourceKey

LOOK_AGE_MAX_S = 5.0
"""How old the look may be at the moment of the send, counted from when it was asked for."""
SEND_LIMIT_S = 10.0
"""How long after the last check its adapter may begin to send: it may look for itself (8 s at most) and has to connect."""

ReadSeconds = Callable[[], float]
FindObjection = Callable[[Observation], str]
"""Derived anew from this look and from what people wish at this moment: why it must not be done (any more), "" to go on."""


def read_boot_time_s() -> float:
    """Seconds that also pass while the machine sleeps and that nobody can set back."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionPorts:
    """What one account can do; None for what it cannot."""

    inspector: Inspector | None = None
    stopper: Stopper | None = None
    terminator: Terminator | None = None


def find_action_ports(source: object) -> ActionPorts:
    """The hands of an account, by the ports that it keeps."""
    return ActionPorts(
        inspector=source if isinstance(source, Inspector) else None,
        stopper=source if isinstance(source, Stopper) else None,
        terminator=source if isinstance(source, Terminator) else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionResult:
    """What came of it. `intent`: as last committed. `sent`: whether a request went out now.

    `held`: why nothing was sent or settled though it stays open. `again`: it is due to be sent once more: `act` on it.
    `broken`: why the ledger could not be written or read; from then on nothing may be done but observing.
    """

    intent: Intent
    sent: bool = False
    held: str = ""
    again: bool = False
    broken: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshLook:
    """`seen`, or `why` there is nothing to see; asked for at `at_s`."""

    at_s: float
    seen: Observation | None
    why: str = ""


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
    """Do what `intent` says, where it `is_due`: one request at most, and none where anything is in doubt.

    `epoch`: of the turn in which it is done; None: the intent's own. `seconds`: a clock that only goes on, for the expiry.
    It raises only what `still` raises; a LedgerError of that, too, is `broken` and nothing is sent after it.
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
            return ActionResult(intent=intent, held=first.why)
        against = explain_refusal(intent, first.seen) or still(first.seen)
        if against:
            return _drop_intent(intent, intents, clock, against)
    except LedgerError as error:
        return ActionResult(intent=intent, broken=str(error))
    return _execute(deed, first.seen)


@dataclass(frozen=True, slots=True, kw_only=True)
class _PendingAction:
    """An intent with all it takes to do it."""

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


def _execute(deed: _PendingAction, before: Observation) -> ActionResult:
    """Commit that it is about to be sent, look again, send it once, and commit how it was received."""
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
            )
        look = deed.look()
        if look.seen is None:
            return _move_back(deed, executing, look.why)
        against = explain_refusal(intent, look.seen) or describe_difference(before, look.seen) or deed.still(look.seen)
        if against:
            return _move_back(deed, executing, against, drop=True)
        at_s = seconds()
        if at_s >= until_s or at_s - look.at_s > LOOK_AGE_MAX_S or deed.clock.now() >= until:
            return _move_back(deed, executing, "it was late, so nothing was sent: it is evaluated again")
        sent = True
        with limit_sending(min(until_s, at_s + SEND_LIMIT_S), seconds):
            reception = _send_request(deed.send)
        return _record_reception(deed, executing, reception)
    except LedgerError as error:
        return ActionResult(intent=executing or intent, sent=sent, broken=str(error))


def confirm_action(
    intent: Intent,
    seen: Observation | None,
    intents: Intents,
    still: FindObjection,
    *,
    absences: int,
    asked_at: datetime,
    now: datetime,
    settling: timedelta = SETTLING_TIME,
) -> ActionResult:
    """Move `intent`, in doubt, by what a listing or look that was asked for at `asked_at` says; it sends nothing.

    `seen` None: it was not there, as in `absences` complete listings in a row. `still` is asked where nothing was done, and
    it would be READY anew: it is CANCELLED if that says why not.
    """
    finding = confirm_outcome(intent, seen, absences=absences, asked_at=asked_at, now=now, settling=settling)
    try:
        if finding.state == READY and seen is not None and (against := still(seen)):
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
    """What a process left in doubt that is no more: look once, and move it by that. Where it cannot be seen it stays."""
    if intent.state not in DOUBTFUL_STATES or hands.inspector is None:
        return ActionResult(intent=intent, held="it cannot be looked up individually, or nothing is pending")
    asked_at = clock.now()
    look = look_at_resource(hands.inspector, intent.life.key, clock, lambda: 0.0)
    if look.seen is None:
        return ActionResult(intent=intent, held=look.why)
    return confirm_action(intent, look.seen, intents, still, absences=0, asked_at=asked_at, now=clock.now(), settling=settling)


def _choose_request(intent: Intent, hands: ActionPorts) -> Callable[[], ActionResponse] | None:
    """The one request that `intent` allows. A stop never becomes a terminate, whatever the provider lacks."""
    key, stopper, terminator = intent.life.key, hands.stopper, hands.terminator
    if intent.act == STOP:
        return None if stopper is None else lambda: stopper.stop(key, lose=frozenset(intent.lose))
    return None if terminator is None else lambda: terminator.terminate(key)


def look_at_resource(inspector: Inspector, key: ResourceKey, clock: Clock, seconds: ReadSeconds) -> FreshLook:
    """One look at one instance. It raises nothing."""
    at_s = seconds()
    try:
        seen = inspector.look_up(key)
    except CostguardError as error:
        return FreshLook(at_s=at_s, seen=None, why=f"it cannot be looked up: {error.what}")
    except Exception as error:  # noqa: BLE001 - a broken adapter is one that cannot be asked, whatever it raises
        return FreshLook(at_s=at_s, seen=None, why=f"it cannot be looked up: {to_one_line(repr(error))}")
    if seen is None:
        return FreshLook(at_s=at_s, seen=None, why="its provider says it does not exist; this alone proves nothing")
    if seen.key != key:
        return FreshLook(at_s=at_s, seen=None, why="its provider answered with another machine")
    return FreshLook(at_s=at_s, seen=drop_impossible_times(seen, clock.now())[0])


def _send_request(send: Callable[[], ActionResponse]) -> ActionResponse:
    try:
        return send()
    except Exception as error:  # noqa: BLE001 - it may have worked or not, whatever broke on our side of it
        return ActionResponse(said=UNCLEAR, why=to_one_line(repr(error)))


def _record_reception(deed: _PendingAction, executing: Intent, reception: ActionResponse) -> ActionResult:
    """A refusal is a failure only where no earlier request may have worked: one that is stopping refuses a second stop."""
    state = FAILED if reception.said == REFUSED and not deed.intent.sends else VERIFYING
    told = f"{reception.said}: {reception.why}" if reception.why else reception.said
    moved = _move_intent(executing, deed.intents, state, deed.clock.now(), told)
    return ActionResult(intent=moved.intent, sent=True, held=moved.held)


def _drop_intent(intent: Intent, intents: Intents, clock: Clock, why: str) -> ActionResult:
    """Not to be done. What was sent before goes on being looked at; else it is over."""
    if intent.state != READY:
        return ActionResult(intent=intent, held=why)
    return _move_intent(intent, intents, CANCELLED, clock.now(), why)


def _move_back(deed: _PendingAction, executing: Intent, why: str, *, drop: bool = False) -> ActionResult:
    """Nothing was sent: it goes where it was before, but for one that is to be dropped and was READY. It counts as a send."""
    intent = deed.intent
    state = CANCELLED if drop and intent.state == READY else intent.state
    moved = deed.intents.move_intent(executing, state, deed.clock.now(), outcome=why)
    return ActionResult(intent=moved or executing, held=why)


def _move_intent(intent: Intent, intents: Intents, state: str, now: datetime, why: str, *, again: bool = False) -> ActionResult:
    moved = intents.move_intent(intent, state, now, outcome=why)
    if moved is None:
        return ActionResult(intent=intent, held="another process changed it meanwhile")
    return ActionResult(intent=moved, again=again)
