"""Messages going out: side by side, tried again, given up through the second channel, and never twice without need."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial

import pytest

from costguard.errors import LedgerError
from costguard.guard.alerts.alert import PAGE, WARNING, DeliveryResult, Notification
from costguard.notifiers import Channel
from costguard.notifiers.webhook import notify
from costguard.services.guarding.dispatch import CHANNEL_MESSAGES_MAX, OutboxDispatcher
from costguard.services.poll.ports import Notifier
from costguard.testing.doubles import RecordingNotifier
from tests.fakes.server import Answer, Hands, serving
from tests.providers.transport.wires import Told

HANDS = Hands()


def message(number: int = 1, channel: str = "slack", **changes: object) -> Notification:
    said: dict[str, object] = {
        "id": f"m{number}", "channel": channel, "why_now": "first", "severity": WARNING, "title": f"m{number} is idle",
        "notices": (), "at": HANDS.at,
    }  # fmt: skip
    return Notification(**(said | changes))  # type: ignore[arg-type]


@dataclass
class Box:
    """An outbox in memory that tries again every minute, five times."""

    messages: list[Notification]
    tries: dict[str, int] = field(default_factory=dict)
    due_at: dict[str, object] = field(default_factory=dict)
    sent: list[str] = field(default_factory=list)
    lost: list[tuple[object, Notification, str]] = field(default_factory=list)
    full: bool = False

    def due_messages(self, now: object) -> list[Notification]:
        gone = {*self.sent, *(one.id for _, one, _ in self.lost)}
        return [one for one in self.messages if one.id not in gone and self.due_at.get(one.id, now) <= now]  # type: ignore[operator]

    def settle(self, message_id: str, delivery: DeliveryResult, now: object) -> None:
        if self.full:
            raise LedgerError("the disk is full")
        self.tries[message_id] = self.tries.get(message_id, 0) + 1
        self.due_at[message_id] = now + timedelta(minutes=1)  # type: ignore[operator]
        if delivery.sent:
            self.sent.append(message_id)
        elif not delivery.again or self.tries[message_id] >= 5:
            self.lost.append((now, next(one for one in self.messages if one.id == message_id), delivery.why))

    def undelivered(self, since: object) -> list[tuple[Notification, str]]:
        return [(one, why) for at, one, why in self.lost if at >= since]  # type: ignore[operator]


@dataclass
class Office:
    box: Box
    hands: Hands = field(default_factory=Hands)
    slack: RecordingNotifier = field(default_factory=RecordingNotifier)
    console: RecordingNotifier = field(default_factory=RecordingNotifier)
    limit_s: float = 30

    def postman(self, **others: Notifier) -> OutboxDispatcher:
        notifiers = {"slack": self.slack, **others}
        return OutboxDispatcher(self.box, notifiers, clock=self.hands, second=self.console, limit_s=self.limit_s)


def test_what_is_due_is_sent_once() -> None:
    office = Office(Box([message(1), message(2)]))
    postman = office.postman()
    assert len(postman.deliver().sent) == 2
    assert postman.deliver().sent == ()
    assert sorted(one.id for one in office.slack.messages) == ["m1", "m2"]


def test_what_fails_is_tried_again_when_it_is_due_and_not_before() -> None:
    office = Office(Box([message()]))
    office.slack.fail(2)
    postman = office.postman()
    told = [(office.hands.at, bool(postman.deliver().sent)) for _ in minutes(office.hands, 4)]
    assert [sent for _, sent in told] == [False, False, True, False]
    assert len(office.slack.tries) == 3
    assert not office.console.messages


def test_where_no_other_try_helps_it_goes_through_the_console_at_once() -> None:
    office = Office(Box([message()]))
    office.slack.fail(1, again=False)
    assert len(office.postman().deliver().given_up) == 1
    [told] = office.console.messages
    assert told.title == "[not sent to slack: the channel was told to fail] m1 is idle"


def test_a_message_that_is_a_day_old_is_given_up() -> None:
    office = Office(Box([message()]))
    office.slack.fail(9)
    office.hands.at += timedelta(hours=24)
    office.postman().deliver()
    assert len(office.console.messages) == 1


def test_a_channel_that_hangs_holds_up_no_other_and_is_tried_again() -> None:
    over = threading.Event()

    def hangs(message: Notification) -> DeliveryResult:  # noqa: ARG001 - the signature is a notifier's
        over.wait(60)
        return DeliveryResult(sent=True)

    office = Office(Box([message(1, "hangs"), message(2)]), limit_s=0.2)
    came = office.postman(hangs=hangs).deliver()
    over.set()
    assert [one.id for one in came.sent] == ["m2"]
    assert [(one.id, why) for one, why in came.later] == [("m1", "no answer in time")]


def test_a_channel_that_raises_is_said_by_its_kind_alone() -> None:
    def broken(message: Notification) -> DeliveryResult:  # noqa: ARG001 - the signature is a notifier's
        raise RuntimeError("https://hooks.example/secret")

    office = Office(Box([message(1, "broken")]))
    assert office.postman(broken=broken).deliver().later[0][1] == "the channel failed (RuntimeError)"


def test_a_ledger_that_cannot_be_written_lets_nobody_be_told_twice() -> None:
    office = Office(Box([message()]))
    office.box.full = True
    postman = office.postman()
    for _ in range(5):
        with pytest.raises(LedgerError):
            postman.deliver()
    office.box.full = False
    postman.deliver()
    assert len(office.slack.messages) == 1
    assert office.box.sent == ["m1"]


def test_what_was_given_up_while_the_ledger_could_not_be_written_still_reaches_the_console() -> None:
    office = Office(Box([message()]))
    office.slack.fail(1, again=False)
    office.box.full = True
    postman = office.postman()
    with pytest.raises(LedgerError):
        postman.deliver()
    office.box.full = False
    postman.deliver()
    assert len(office.console.messages) == 1


def test_a_crash_before_settling_sends_it_again_under_the_same_id() -> None:
    office = Office(Box([message()]))
    office.box.full = True
    with pytest.raises(LedgerError):
        office.postman().deliver()
    office.box.full = False
    office.postman().deliver()
    assert [one.id for one in office.slack.messages] == ["m1", "m1"]


def test_pages_go_first_and_of_one_channel_only_so_many_at_once() -> None:
    many = [message(n) for n in range(40)]
    office = Office(Box([*many, message(99, severity=PAGE), message(100, "mail")]))
    mail = RecordingNotifier()
    office.postman(mail=mail).deliver()
    assert len(office.slack.messages) == CHANNEL_MESSAGES_MAX
    assert "m99" in {one.id for one in office.slack.messages}
    assert len(mail.messages) == 1


def test_a_webhook_that_is_down_for_a_while_gets_each_message_once() -> None:
    answers = iter([503, 503, 200, 200, 200])
    cloud = Told(lambda _: Answer.of({}, status=next(answers)))
    office = Office(Box([message(channel="hook")]))
    with serving(cloud) as address:
        hook = partial(notify, channel=Channel(name="hook", clock=office.hands, address=address))
        postman = office.postman(hook=hook)
        for _ in minutes(office.hands, 6):
            postman.deliver()
    ids = {name.lower(): value for name, value in cloud.asked[0].headers.items()}["costguard-id"]
    assert (len(cloud.asked), ids, office.box.sent) == (3, "m1", ["m1"])


def minutes(hands: Hands, count: int) -> Iterator[int]:
    for number in range(count):
        yield number
        hands.at += timedelta(minutes=1, seconds=1)
