"""Reports by themselves, over a real ledger, a real mail server and a real web server: once, late rather than never."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from costguard.data import ShippedFacts
from costguard.errors import CostguardError
from costguard.guard.alerts.alert import Notification
from costguard.guard.policy import Rails
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.guard.store import GuardStore
from costguard.ledger.reports.store import ReportStore
from costguard.ledger.spans.writer import LedgerWriter
from costguard.reporting.schedule import DueReport, ReportSchedule
from costguard.services.guarding.dispatch import OutboxDispatcher, open_dispatcher
from costguard.services.report.report_delivery import QueuedReports, compose_report_messages, queue_due_reports
from costguard.settings import Settings, check_settings
from costguard.values.instant import from_micros
from tests.fakes.server import Hands
from tests.golden.test_golden import polls
from tests.smtp import PASSWORD, Post, post_office

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
"""What Apprise's plug-ins do when they are imported is theirs."""

BERLIN = ZoneInfo("Europe/Berlin")
SEEN = datetime(2026, 10, 20, 12, tzinfo=UTC)
DUE = datetime(2026, 11, 1, 7, tzinfo=UTC)
HOUR, MINUTE, DAY = timedelta(hours=1), timedelta(minutes=1), timedelta(days=1)
MAILED = """
[defaults]
timezone = "Europe/Berlin"
[notify]
mail = "env:MAIL_URL"
[[report]]
every = "month"
to = ["lead@lab.org"]
"""


@dataclass
class Office:
    """One watchdog's part in it: what it puts out and sends, at a time that somebody sets."""

    url: str
    settings: Settings
    book: ReportStore
    guard: GuardStore
    hands: Hands
    holder: str = "this:1"
    made: int = 0

    def look(self) -> QueuedReports:
        """What the job `reports` does."""
        return queue_due_reports(
            self.settings.reports,
            book=self.book,
            now=self.hands.now(),
            zone=self.settings.defaults.timezone,
            compose=self.compose,
        )

    def compose(self, schedule: ReportSchedule, owed: DueReport) -> Sequence[Notification]:
        self.made += 1
        return compose_report_messages(self.settings, schedule, owed, self.hands.now())

    def postman(self) -> OutboxDispatcher:
        """What the job `outbox` calls; a new one has forgotten everything."""
        return open_dispatcher(self.settings, self.guard, self.hands, self.holder)

    def outbox(self) -> list[tuple[object, ...]]:
        with LedgerReader(self.url) as reader, reader.snapshot() as ask:
            return [
                tuple(row) for row in ask("SELECT channel, sent_us, gave_up_us, tries, payload FROM outbox ORDER BY id", ())
            ]

    def next_try(self) -> datetime:
        with LedgerReader(self.url) as reader, reader.snapshot() as ask:
            [(us,)] = ask("SELECT next_us FROM outbox", ())
        return from_micros(us)

    def again(self, holder: str = "that:2") -> Office:
        """Another process on the same ledger."""
        return replace(self, holder=holder, made=0)


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    """A ledger of two days up to the first of November, seen since the twentieth of October."""
    url = f"sqlite:///{tmp_path}/ledger.db"
    with LedgerWriter(url, rules=ShippedFacts().get_billing_rules(), ceilings={"RTX-4090": 2 * 10**9}) as books:
        books.record_polls(polls())
    settings = check_settings(f"{MAILED}[ledger]\nurl = '{url}'\n", "costguard.toml")
    with ReportStore(url) as book, GuardStore(url, rails=Rails()) as guard:
        made = Office(url, settings, book, guard, Hands(SEEN))
        assert made.look().put == ()
        yield made


@pytest.fixture
def post(monkeypatch: pytest.MonkeyPatch) -> Iterator[Post]:
    with post_office(Post()) as made:
        monkeypatch.setenv("MAIL_URL", made.url)
        yield made


def text_of(post: Post, number: int = 0) -> str:
    body = post.read[number][1].get_body()
    assert body is not None
    return str(body.get_content()).replace("\r\n", "\n")


def test_last_months_report_comes_on_the_first_at_its_hour_once(office: Office, post: Post) -> None:
    office.hands.at = DUE - MINUTE
    assert office.look().put == ()
    office.hands.at = DUE
    [(_, owed)] = office.look().put
    assert owed.of.label == "2026-10"
    assert len(office.postman().deliver().sent) == 1
    for _ in range(40):
        office.hands.at += DAY / 2
        assert office.look().put == ()
        assert office.postman().deliver().sent == ()
    [(whom, letter)] = post.read
    assert whom == ("lead@lab.org",)
    assert letter["Subject"].startswith("costguard: GPU spending in 2026-10: $")
    assert "Sent now because it is due, at 2026-11-01 08:00 CET." in text_of(post)
    assert [one.get_filename() for one in letter.iter_attachments()] == ["costguard-2026-10.html"]
    assert office.made == 1


def test_a_watchdog_that_was_down_sends_it_late_and_says_so(office: Office, post: Post) -> None:
    office.hands.at = DUE + 3 * DAY
    [(_, owed)] = office.look().put
    assert owed.is_late(office.hands.at)
    office.postman().deliver()
    text = text_of(post)
    assert "Sent now because it is overdue, at 2026-11-04 08:00 CET." in text
    assert "It was due at 2026-11-01 08:00 CET and is late" in text


def test_after_a_long_while_it_says_how_many_it_leaves_out(office: Office, post: Post) -> None:
    office.settings = replace(office.settings, reports=(replace(office.settings.reports[0], name="d", every="day"),))
    office.look()
    office.hands.at = SEEN + 12 * DAY
    assert len(office.look().put) == 7
    assert len(office.postman().deliver().sent) == 7
    texts = {str(letter["Subject"])[27:37]: text_of(post, number) for number, (_, letter) in enumerate(post.read)}
    assert sorted(texts) == [f"2026-10-{day}" for day in range(25, 32)]
    told = "5 earlier reports of a day were due too and will not be sent: costguard report --day prints any."
    assert [day for day, text in texts.items() if told in text] == ["2026-10-25"]


def test_a_crash_before_it_is_in_the_outbox_leaves_nothing_and_it_is_made_again(office: Office, post: Post) -> None:
    """Between making it and writing it, and in the middle of the transaction that writes it."""
    office.hands.at = DUE

    class Ended(BaseException):
        """The process is gone."""

    def dies(*_: object) -> Sequence[Notification]:
        raise Ended

    with pytest.raises(Ended):
        queue_due_reports(office.settings.reports, book=office.book, now=DUE, zone=BERLIN, compose=dies)

    class Half(list[Notification]):
        def __iter__(self) -> Iterator[Notification]:
            yield from super().__iter__()
            raise Ended

    def half(schedule: ReportSchedule, owed: DueReport) -> Sequence[Notification]:
        return Half(compose_report_messages(office.settings, schedule, owed, DUE))

    with pytest.raises(Ended):
        queue_due_reports(office.settings.reports, book=office.book, now=DUE, zone=BERLIN, compose=half)
    assert office.outbox() == []
    assert len(office.again().look().put) == 1
    office.postman().deliver()
    assert len(post.letters) == 1


def test_a_crash_after_that_sends_it_and_one_before_it_is_recorded_sends_it_again(office: Office, post: Post) -> None:
    office.hands.at = DUE
    office.look()
    after = office.again()
    assert after.look().put == ()
    message = after.guard.due_messages(DUE)[0]
    sends = after.postman()
    sends._notifiers[message.channel](message)  # and here it ends: nothing of it is written
    assert len(after.again().postman().deliver().sent) == 1
    assert after.again().postman().deliver().sent == ()
    first, second = (letter for _, letter in post.read)
    assert first["Subject"] == second["Subject"]
    assert first.get_body().get_content() == second.get_body().get_content()  # type: ignore[union-attr]


@pytest.mark.parametrize("days", [1, 3])
def test_a_channel_that_is_down_for_days_gets_it_once_when_it_is_back(
    office: Office, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    with post_office(Post()) as post:
        monkeypatch.setenv("MAIL_URL", post.url)
    office.hands.at = DUE
    office.look()
    sends, tries = office.postman(), 0
    while office.hands.at < DUE + days * DAY:
        before, tries = office.hands.at, tries + len(sends.deliver().later)
        office.hands.at = office.next_try()
        assert office.hands.at > before, "it is not given up yet"
    assert 8 <= tries <= 8 + 4 * days
    with post_office(post):
        assert len(sends.deliver().sent) == 1
        office.hands.at += DAY
        assert sends.deliver().sent == ()
    assert len(post.letters) == 1
    assert "at 2026-11-01 08:00 CET." in text_of(post)


def test_one_that_no_channel_takes_for_a_week_is_given_up_in_so_many_tries_and_said_on_the_console(
    office: Office, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with post_office(Post(no="554 never")) as post:
        monkeypatch.setenv("MAIL_URL", post.url)
        office.hands.at = DUE
        office.look()
        sends, given_up = office.postman(), 0
        while not given_up:
            given_up += len(sends.deliver().given_up)
            office.hands.at = max(office.hands.at, office.next_try())
        assert given_up == 1
        assert sends.deliver().given_up == ()
    [(_, sent, gave_up, tries, payload)] = office.outbox()
    assert sent is None
    assert gave_up
    assert 20 < int(str(tries)) <= 32
    said = capsys.readouterr().err
    assert said.startswith(
        "costguard: [not sent to mail:lead@lab.org: the server did not accept the letter (554)] GPU spending in 2026-10: $"
    )
    assert PASSWORD not in said + str(payload)


def test_what_was_sent_keeps_no_copy_of_the_page_and_no_secret_in_the_ledger(office: Office, post: Post) -> None:
    assert PASSWORD in post.url
    office.hands.at = DUE
    office.look()
    before = len(str(office.outbox()[0][4]))
    office.postman().deliver()
    [(channel, sent, _, _, payload)] = office.outbox()
    assert (channel, bool(sent)) == ("mail:lead@lab.org", True)
    assert len(str(payload)) < before / 2
    assert "GPU spending in 2026-10" in str(payload)
    assert PASSWORD not in str(payload)


def test_one_that_cannot_be_made_stops_no_other_and_is_tried_again(office: Office) -> None:
    [report] = office.settings.reports
    office.settings = replace(office.settings, reports=(replace(report, name="first"), report))
    office.look()
    office.book.record_schedules(office.settings.reports, office.hands.at)
    office.hands.at = DUE

    def compose(schedule: ReportSchedule, owed: DueReport) -> Sequence[Notification]:
        if schedule.name == "first":
            raise CostguardError("the disk is full")
        return compose_report_messages(office.settings, schedule, owed, DUE)

    came = queue_due_reports(office.settings.reports, book=office.book, now=DUE, zone=BERLIN, compose=compose)
    assert [schedule.name for schedule, _ in came.put] == ["month"]
    assert [schedule.name for schedule, _ in came.failed] == ["first"]
    assert [schedule.name for schedule, _ in office.look().put] == ["first"]


def test_a_mark_of_a_wrong_clock_does_not_hold_reports_back_for_a_year(office: Office) -> None:
    office.hands.at = DUE + 365 * DAY
    office.look()
    office.hands.at = DUE + 3 * HOUR
    office.look()
    office.hands.at = datetime(2026, 12, 1, 7, tzinfo=UTC)
    assert [owed.of.label for _, owed in office.look().put] == ["2026-11"]
