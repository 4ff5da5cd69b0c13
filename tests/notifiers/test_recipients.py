"""Each recipient for himself: who has a message does not get it again, whoever else cannot be reached."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from costguard.guard.alerts.alert import WARNING, Alert, DeliveryResult, Notification
from costguard.ledger.guard import outbox
from costguard.ledger.guard.store import GuardStore
from costguard.notifiers import Channel
from costguard.notifiers.chat import notify
from costguard.services.guarding.dispatch import OutboxDispatcher, open_dispatcher
from costguard.settings import check_settings
from tests.fakes.server import Answer, Asked, Hands, serving
from tests.ledger.acts import WIDE
from tests.notifiers.hostile import AT, message_of
from tests.providers.transport.wires import Told
from tests.smtp import Post, post_office

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
"""What Apprise's plug-ins do when they are imported is theirs."""

HERE, LEFT, BUSY = "here@lab.org", "left@lab.org", "busy@lab.org"
GONE, LATER = "550 5.1.1 no such user", "451 4.7.1 greylisted"


def announce(name: str) -> Alert:
    return Alert(
        topic="policy:idle",
        subject=f"aws/1/us/{name}",
        owner="ann",
        severity=WARNING,
        what=f"{name} stops at 19:05 UTC",
        at=AT,
        facts=(("why", "idle"),),
        ahead=True,
        due=AT + timedelta(minutes=15),
    )


@pytest.fixture
def book(tmp_path: Path) -> Iterator[GuardStore]:
    with GuardStore(f"sqlite:///{tmp_path}/ledger.db", rails=WIDE) as store:
        yield store


class Office:
    """Sends one message of three announcements, try after try, each with a dispatcher that remembers nothing."""

    def __init__(self, book: GuardStore, address: str) -> None:
        self.book, self.hands = book, Hands()
        self.hands.at = AT
        self.notifier = partial(notify, channel=Channel(name="c", clock=self.hands, address=address))
        message = Notification(
            id="m1",
            channel="c",
            why_now="first",
            severity=WARNING,
            title="3 alerts",
            notices=tuple(map(announce, "abc")),
            at=AT,
        )
        with book._begin_write() as (ask, tell):
            outbox.enqueue_messages(ask, tell, [message])

    def try_times(self, count: int) -> None:
        for _ in range(count):
            OutboxDispatcher(
                self.book_outbox, {"c": self.notifier}, clock=self.hands, second=lambda _: DeliveryResult(sent=True),
                record_part=lambda message, part, now: self.book.record_part(message.id, part, now),
            ).deliver()  # fmt: skip
            self.hands.at += timedelta(hours=1)

    @property
    def book_outbox(self) -> GuardStoreOutbox:
        return GuardStoreOutbox(self.book)

    @property
    def delivered(self) -> set[str]:
        return {subject.rpartition("/")[2] for _, subject in self.book.load_deliveries(AT)}


class GuardStoreOutbox:
    def __init__(self, book: GuardStore) -> None:
        self.due_messages, self.settle, self.undelivered = book.due_messages, book.settle_message, book.undelivered


@pytest.mark.parametrize("field", ["to", "cc", "bcc"])
def test_a_mail_reaches_each_one_who_is_there_once(book: GuardStore, field: str) -> None:
    with post_office(Post(refuses={LEFT: GONE, BUSY: LATER})) as post:
        address = f"mailto://127.0.0.1:{post.port}?from=a@lab.org&mode=insecure&to={HERE}" + (
            f",{LEFT},{BUSY}" if field == "to" else f"&{field}={LEFT},{BUSY}"
        )
        office = Office(book, address)
        office.try_times(1)
        assert office.delivered == {"a", "b", "c"}  # one who has it is enough
        office.try_times(2)
        assert [whom for whom, _ in post.letters] == [(HERE,)]
        del post.refuses[BUSY]
        office.try_times(3)
    assert [whom for whom, _ in post.letters] == [(HERE,), (BUSY,)]
    assert sum(LEFT.encode() in line for line in post.heard) == 1


def test_an_admin_is_told_once_of_a_recipient_who_has_left(book: GuardStore, monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = Told()
    with post_office(Post(refuses={LEFT: GONE})) as post, serving(cloud) as address:
        monkeypatch.setenv("MAIL_URL", f"mailto://127.0.0.1:{post.port}?from=a@lab.org&mode=insecure&to={HERE},{LEFT}")
        routes = "[[notify.route]]\nto = ['env:MAIL_URL']\nmatch = { owners = ['ann'] }\n"
        routes += f"[[notify.route]]\nto = ['{address}/admin']"
        settings, hands = check_settings(routes, "costguard.toml"), Hands()
        hands.at = AT
        with book._begin_write() as (ask, tell):
            outbox.enqueue_messages(
                ask, tell, [replace(message_of(f"m{n}"), id=f"m{n}", channel="env:MAIL_URL") for n in range(3)]
            )
        for _ in range(3):
            open_dispatcher(settings, book, hands).deliver()
            hands.at += timedelta(hours=1)
    assert len(post.letters) == 3
    assert [asked.json()["title"] for asked in cloud.asked] == [
        f"costguard: {LEFT} of env:MAIL_URL cannot be reached: the server did not accept the recipient (550)"
    ]


def test_each_chat_of_an_address_is_a_recipient(book: GuardStore) -> None:
    down = {"/two/"}

    def answer(asked: Asked) -> Answer:
        return Answer.of({}, status=503 if any(asked.path.endswith(one) for one in down) else 200)

    cloud = Told(answer)
    with serving(cloud) as address:
        host = address.removeprefix("http://")
        office = Office(book, f"json://{host}/one/, json://{host}/two/, json://{host}/three/")
        office.try_times(2)
        down.clear()
        office.try_times(3)
    assert [asked.path for asked in cloud.asked] == ["/one/", "/two/", "/three/", "/two/", "/two/"]
    assert office.delivered == {"a", "b", "c"}


def test_a_refusal_says_whose_it_is() -> None:
    with post_office(Post(refuses={LEFT: GONE})) as post:
        address = f"mailto://127.0.0.1:{post.port}?from=a@lab.org&mode=insecure&to={HERE},{LEFT}"
        result = notify(message_of("m1"), Channel(name="c", clock=Hands(), address=address))
    assert (result.sent, result.why) == (True, f"{LEFT}: the server did not accept the recipient (550)")
    assert [(one.recipient, one.sent, one.again, one.status) for one in result.parts] == [
        (HERE, True, True, 250),
        (LEFT, False, False, 550),
    ]
