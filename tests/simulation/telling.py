"""A channel that writes down what arrived, and an outbox whose watchdog may end between a message and its settling."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from costguard.guard.alerts.alert import DeliveryResult, Notification
from costguard.ledger.guard.store import GuardStore
from costguard.services.guarding.dispatch import OutboxDispatcher
from costguard.testing import FakeClock
from tests.simulation.clouds import EndedAbruptly, Log
from tests.simulation.troubles import Troubles

TOLD = "told"


@dataclass(slots=True)
class Channel:
    """The people's. It is called from threads, so what arrived is written down in order once the round is over."""

    log: Log
    troubles: Troubles
    clock: FakeClock
    arrived: list[Notification] = field(default_factory=list)

    def postman(self, book: GuardStore) -> OutboxDispatcher:
        """Who brings what is in `book`."""
        return OutboxDispatcher(
            _Outbox(book, self), {"people": self._take}, clock=self.clock, second=lambda _: DeliveryResult(sent=True)
        )

    def written(self) -> None:
        """Write down what arrived."""
        for one in sorted(self.arrived, key=lambda message: message.id):
            topics = sorted({f"{notice.topic} {notice.subject}" for notice in one.notices})
            self.log.write("message", id=one.id, title=one.title, why=one.why_now, topics=topics)
        self.arrived.clear()

    def _take(self, message: Notification) -> DeliveryResult:
        until = self.troubles.mute_until
        if until is not None and self.log.truth.now() < until:
            return DeliveryResult(sent=False, why="nobody answers")
        self.arrived.append(message)
        return DeliveryResult(sent=True)


@dataclass(slots=True)
class _Outbox:
    book: GuardStore
    channel: Channel

    def due_messages(self, now: datetime) -> list[Notification]:
        return self.book.due_messages(now)

    def settle(self, message_id: str, delivery: DeliveryResult, now: datetime) -> None:
        self.channel.written()
        if self.channel.log.end == TOLD and delivery.sent:
            self.channel.log.write("ended", where=TOLD)
            raise EndedAbruptly
        self.book.settle_message(message_id, delivery, now)

    def undelivered(self, since: datetime) -> list[tuple[Notification, str]]:
        return self.book.undelivered(since)
