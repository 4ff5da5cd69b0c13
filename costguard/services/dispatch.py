"""Messages go out: those that are due in the outbox, side by side within a deadline, pages first; what came of each is kept.

A message is sent at least once: a crash between its sending and its settling sends it again, under the same id. Where the
ledger cannot be written, what came of it is kept here until it can be, so that nobody is told the same every minute. A message
that was given up (no try can help, too many failed, or it is too old) goes through the second channel, the console. Nobody
waits for this: the guard runs elsewhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Protocol

from costguard.guard.alerts.alert import SEVERITIES, DeliveryResult, Notification
from costguard.services.concurrency import run_all
from costguard.services.ports import Notifier
from costguard.system.clock import Clock

GIVE_UP_AFTER = timedelta(hours=24)
"""For each of a message's `days`."""
DISPATCH_LIMIT_S = 15.0
"""Seconds for all messages of a round; a channel has 10 s of its own for each."""
CHANNEL_MESSAGES_MAX = 8
DISPATCH_MESSAGES_MAX = 32
"""Messages of one channel and of a round, so that one that hangs holds up no other; the rest is due in the next round."""


class MessageOutbox(Protocol):
    """Messages that were written together with what they tell of."""

    def due_messages(self, now: datetime) -> list[Notification]:
        """Those to be tried at `now`, the oldest first."""

    def settle(self, message_id: str, delivery: DeliveryResult, now: datetime) -> None:
        """Write what came of one try, and date the next one if there is to be one. LedgerError where it cannot be written."""

    def undelivered(self, since: datetime) -> list[tuple[Notification, str]]:
        """Those that were given up at or after `since`, with why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchResult:
    """What came of one round. `later`: to be tried again. `given_up`: went through the second channel, with why."""

    sent: tuple[Notification, ...] = ()
    later: tuple[tuple[Notification, str], ...] = ()
    given_up: tuple[tuple[Notification, str], ...] = ()


class OutboxDispatcher:
    """Sends what is due, one round a call. `notifiers`: by the names of channels. `second`: for what cannot be sent."""

    def __init__(
        self,
        outbox: MessageOutbox,
        notifiers: Mapping[str, Notifier],
        *,
        clock: Clock,
        second: Notifier,
        limit_s: float = DISPATCH_LIMIT_S,
    ) -> None:
        self._outbox, self._notifiers, self._clock, self._second = outbox, notifiers, clock, second
        self._limit_s = limit_s
        self._unsettled = dict[str, DeliveryResult]()

    def deliver(self) -> DispatchResult:
        """One round, at most `limit_s` long. LedgerError where the outbox cannot be read or written."""
        began, owed = self._clock.now(), bool(self._unsettled)
        self._settle_all(began)
        messages = _choose_messages(self._outbox.due_messages(began))
        asked = {one.id: partial(_send_message, self._notifiers.get(one.channel), one) for one in messages}
        answers = run_all(asked, limit_s=self._limit_s, most=DISPATCH_MESSAGES_MAX)
        now = self._clock.now()
        came = [(one, _end_old_retries(_to_delivery(answers[one.id]), one, now)) for one in messages]
        self._unsettled |= {one.id: delivery for one, delivery in came}
        self._settle_all(now)
        failed = owed or not all(delivery.sent for _, delivery in came)
        given_up = tuple(self._outbox.undelivered(began if owed else now)) if failed else ()
        for message, why in given_up:
            self._second(replace(message, title=f"[not sent to {message.channel}: {why}] {message.title}"))
        gone = {message.id for message, _ in given_up}
        return DispatchResult(
            sent=tuple(one for one, delivery in came if delivery.sent),
            later=tuple((one, delivery.why) for one, delivery in came if not delivery.sent and one.id not in gone),
            given_up=given_up,
        )

    def _settle_all(self, now: datetime) -> None:
        """Each is forgotten here once it is written there."""
        for message_id, delivery in list(self._unsettled.items()):
            self._outbox.settle(message_id, delivery, now)
            del self._unsettled[message_id]


def _choose_messages(due: list[Notification]) -> list[Notification]:
    """Pages first, then the oldest; of each channel so many, and of all."""
    chosen, of_one = list[Notification](), Counter[str]()
    for message in sorted(due, key=lambda one: -SEVERITIES.index(one.severity)):
        of_one[message.channel] += 1
        if of_one[message.channel] <= CHANNEL_MESSAGES_MAX:
            chosen.append(message)
    return chosen[:DISPATCH_MESSAGES_MAX]


def _send_message(notifier: Notifier | None, message: Notification) -> DeliveryResult:
    if notifier is None:
        return DeliveryResult(sent=False, why="no channel of this name is in the settings", again=False)
    return notifier(message)


def _to_delivery(answer: DeliveryResult | BaseException) -> DeliveryResult:
    """What came of it; an exception's own words are left out, as they may hold an address."""
    if isinstance(answer, DeliveryResult):
        return answer
    why = "no answer in time" if isinstance(answer, TimeoutError) else f"the channel failed ({type(answer).__name__})"
    return DeliveryResult(sent=False, why=why)


def _end_old_retries(delivery: DeliveryResult, message: Notification, now: datetime) -> DeliveryResult:
    """No other try for a message that is so old: whoever is told so late is told through the second channel."""
    return (
        replace(delivery, again=False) if not delivery.sent and now - message.at >= message.days * GIVE_UP_AFTER else delivery
    )
