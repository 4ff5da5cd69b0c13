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
from costguard.guard.action_intents import CANCELLED, DOUBTFUL_STATES, EXECUTING, FAILED, READY, SEND_WITHIN, VERIFYING, Intent
from costguard.guard.policy import STOP
from costguard.guard.proof import SETTLING_TIME, confirm_outcome, describe_difference, explain_refusal, is_send_due
from costguard.metering.observation import Observation, drop_impossible_times
from costguard.providers.ports import Inspector, Stopper, Terminator
from costguard.services.ports import Intents
from costguard.system.clock import Clock
from costguard.system.timely import limit_sending
from costguard.values.acting import REFUSED, UNCLEAR, ActionResponse
from costguard.values.resource import ResourceKey

LOOK_AGE_S = 5.0
"""How old the look may be at the moment of the send, counted from when it was asked for."""
SEND_S = 10.0
"""How long after the last check its adapter may begin to send: it may look for itself (8 s at most) and has to connect."""

Seconds = Callable[[], float]
Still = Callable[[Observation], str]
"""Derived anew from this look and from what people wish at this moment: why it must not be done (any more), "" to go on."""


def boottime_s() -> float:
    """Seconds that also pass while the machine sleeps and that nobody can set back."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@dataclass(frozen=True, slots=True, kw_only=True)
class Hands:
    """What one account can do; None for what it cannot."""

    inspector: Inspector | None = None
    stopper: Stopper | None = None
    terminator: Terminator | None = None


def hands_of(source: object) -> Hands:
    """The hands of an account, by the ports that it keeps."""
    return Hands(
        inspector=source if isinstance(source, Inspector) else None,
        stopper=source if isinstance(source, Stopper) else None,
        terminator=source if isinstance(source, Terminator) else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Acted:
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
class Look:
    """`seen`, or `why` there is nothing to see; asked for at `at_s`."""

    at_s: float
    seen: Observation | None
    why: str = ""


def act(
    intent: Intent,
    hands: Hands,
    intents: Intents,
    clock: Clock,
    still: Still,
    *,
    epoch: int | None = None,
    seconds: Seconds = boottime_s,
) -> Acted:
    """Do what `intent` says, where it `is_due`: one request at most, and none where anything is in doubt.

    `epoch`: of the turn in which it is done; None: the intent's own. `seconds`: a clock that only goes on, for the expiry.
    It raises only what `still` raises; a LedgerError of that, too, is `broken` and nothing is sent after it.
    """
    if not is_send_due(intent, clock.now()):
        return Acted(intent=intent, held=f"it is {intent.state}, and not due")
    send = _send_of(intent, hands)
    try:
        if send is None or hands.inspector is None:
            return _dropped(intent, intents, clock, f"its provider cannot {intent.act} it, or cannot look at it by itself")
        deed = _Deed(
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
            return Acted(intent=intent, held=first.why)
        against = explain_refusal(intent, first.seen) or still(first.seen)
        if against:
            return _dropped(intent, intents, clock, against)
    except LedgerError as error:
        return Acted(intent=intent, broken=str(error))
    return _execute(deed, first.seen)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Deed:
    """An intent with all it takes to do it."""

    intent: Intent
    send: Callable[[], ActionResponse]
    inspector: Inspector
    intents: Intents
    clock: Clock
    still: Still
    seconds: Seconds
    epoch: int

    def look(self) -> Look:
        return looked(self.inspector, self.intent.life.key, self.clock, self.seconds)


def _execute(deed: _Deed, before: Observation) -> Acted:
    """Commit that it is about to be sent, look again, send it once, and commit how it was received."""
    intent, seconds, now = deed.intent, deed.seconds, deed.clock.now()
    until, until_s = now + SEND_WITHIN, seconds() + SEND_WITHIN.total_seconds()
    executing, sent = None, False
    try:
        executing = deed.intents.move_intent(
            intent, EXECUTING, now, sends=intent.sends + 1, sent_at=now, expires_at=until, epoch=deed.epoch
        )
        if executing is None:
            return Acted(intent=intent, held="somebody else moved it, this watchdog acts no more, or the rails have no room")
        look = deed.look()
        if look.seen is None:
            return _back(deed, executing, look.why)
        against = explain_refusal(intent, look.seen) or describe_difference(before, look.seen) or deed.still(look.seen)
        if against:
            return _back(deed, executing, against, drop=True)
        at_s = seconds()
        if at_s >= until_s or at_s - look.at_s > LOOK_AGE_S or deed.clock.now() >= until:
            return _back(deed, executing, "it was late, so nothing was sent: it is looked at anew")
        sent = True
        with limit_sending(min(until_s, at_s + SEND_S), seconds):
            reception = _received(deed.send)
        return _recorded(deed, executing, reception)
    except LedgerError as error:
        return Acted(intent=executing or intent, sent=sent, broken=str(error))


def confirm(
    intent: Intent,
    seen: Observation | None,
    intents: Intents,
    still: Still,
    *,
    absences: int,
    asked_at: datetime,
    now: datetime,
    settling: timedelta = SETTLING_TIME,
) -> Acted:
    """Move `intent`, in doubt, by what a listing or look that was asked for at `asked_at` says; it sends nothing.

    `seen` None: it was not there, as in `absences` complete listings in a row. `still` is asked where nothing was done, and
    it would be READY anew: it is CANCELLED if that says why not.
    """
    finding = confirm_outcome(intent, seen, absences=absences, asked_at=asked_at, now=now, settling=settling)
    try:
        if finding.state == READY and seen is not None and (against := still(seen)):
            return _moved(intent, intents, CANCELLED, now, f"{finding.why}, and {against}")
        if finding.state:
            return _moved(intent, intents, finding.state, now, finding.why, again=finding.again)
    except LedgerError as error:
        return Acted(intent=intent, broken=str(error))
    return Acted(intent=intent, held=finding.why, again=finding.again)


def settle(
    intent: Intent, hands: Hands, intents: Intents, clock: Clock, still: Still, *, settling: timedelta = SETTLING_TIME
) -> Acted:
    """What a process left in doubt that is no more: look once, and move it by that. Where it cannot be seen it stays."""
    if intent.state not in DOUBTFUL_STATES or hands.inspector is None:
        return Acted(intent=intent, held="it cannot be looked at by itself, or there is nothing to settle")
    asked_at = clock.now()
    look = looked(hands.inspector, intent.life.key, clock, lambda: 0.0)
    if look.seen is None:
        return Acted(intent=intent, held=look.why)
    return confirm(intent, look.seen, intents, still, absences=0, asked_at=asked_at, now=clock.now(), settling=settling)


def _send_of(intent: Intent, hands: Hands) -> Callable[[], ActionResponse] | None:
    """The one request that `intent` allows. A stop never becomes a terminate, whatever the provider lacks."""
    key, stopper, terminator = intent.life.key, hands.stopper, hands.terminator
    if intent.act == STOP:
        return None if stopper is None else lambda: stopper.stop(key, lose=frozenset(intent.lose))
    return None if terminator is None else lambda: terminator.terminate(key)


def looked(inspector: Inspector, key: ResourceKey, clock: Clock, seconds: Seconds) -> Look:
    """One look at one instance. It raises nothing."""
    at_s = seconds()
    try:
        seen = inspector.look_up(key)
    except CostguardError as error:
        return Look(at_s=at_s, seen=None, why=f"it cannot be looked at: {error.what}")
    except Exception as error:  # noqa: BLE001 - a broken adapter is one that cannot be asked, whatever it raises
        return Look(at_s=at_s, seen=None, why=f"it cannot be looked at: {to_one_line(repr(error))}")
    if seen is None:
        return Look(at_s=at_s, seen=None, why="its provider says that there is no such thing, which proves nothing")
    if seen.key != key:
        return Look(at_s=at_s, seen=None, why="its provider answered with another machine")
    return Look(at_s=at_s, seen=drop_impossible_times(seen, clock.now())[0])


def _received(send: Callable[[], ActionResponse]) -> ActionResponse:
    try:
        return send()
    except Exception as error:  # noqa: BLE001 - it may have worked or not, whatever broke on our side of it
        return ActionResponse(said=UNCLEAR, why=to_one_line(repr(error)))


def _recorded(deed: _Deed, executing: Intent, reception: ActionResponse) -> Acted:
    """A refusal is a failure only where no earlier request may have worked: one that is stopping refuses a second stop."""
    state = FAILED if reception.said == REFUSED and not deed.intent.sends else VERIFYING
    told = f"{reception.said}: {reception.why}" if reception.why else reception.said
    moved = _moved(executing, deed.intents, state, deed.clock.now(), told)
    return Acted(intent=moved.intent, sent=True, held=moved.held)


def _dropped(intent: Intent, intents: Intents, clock: Clock, why: str) -> Acted:
    """Not to be done. What was sent before goes on being looked at; else it is over."""
    if intent.state != READY:
        return Acted(intent=intent, held=why)
    return _moved(intent, intents, CANCELLED, clock.now(), why)


def _back(deed: _Deed, executing: Intent, why: str, *, drop: bool = False) -> Acted:
    """Nothing was sent: it goes where it was before, but for one that is to be dropped and was READY. It counts as a send."""
    intent = deed.intent
    state = CANCELLED if drop and intent.state == READY else intent.state
    moved = deed.intents.move_intent(executing, state, deed.clock.now(), outcome=why)
    return Acted(intent=moved or executing, held=why)


def _moved(intent: Intent, intents: Intents, state: str, now: datetime, why: str, *, again: bool = False) -> Acted:
    moved = intents.move_intent(intent, state, now, outcome=why)
    if moved is None:
        return Acted(intent=intent, held="somebody else moved it meanwhile")
    return Acted(intent=moved, again=again)
