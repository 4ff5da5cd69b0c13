"""A watchdog asks for bills by itself where they could settle a doubt, seldom, and whatever happens polls go on."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest
from costguard_sim.world import Run, to_us
from sqlmodel import select

from costguard.bills.bill_line import BillLine, BillLines
from costguard.bills.bill_schedule import STRETCH_MAX, DoubtfulCharge, Occasion, choose_daily_question, choose_question
from costguard.ledger.bills.reader import STATED
from costguard.ledger.bills.staging import BATCH_LINES
from costguard.ledger.bills.store import BillStore
from costguard.ledger.bills.unfinished import ShortTransactions
from costguard.ledger.db.maintenance import check_ledger
from costguard.ledger.spans.books import SpendingReader
from costguard.ledger.spans.writer import LedgerWriter
from costguard.ledger.tables.bills import BillLineRow
from costguard.metering.billing import BillingRule, BillTerms, get_billing_rule
from costguard.metering.inventory import Poll
from costguard.services.guarding.watchdog_context import open_watchdog_context
from costguard.services.report import bill_duty
from costguard.services.report.bill_duty import BillDuty
from costguard.services.report.reconcile import BillAnswer, import_answers
from costguard.services.watch_loop import watch
from costguard.settings import check_settings
from costguard.values.calendar import Period
from costguard.values.money import Money
from costguard.values.resource import ScopeKey
from tests.contract.rig import Rig
from tests.fakes.server import START, Hands
from tests.ledger.fleet import CEILINGS, asked, key, machine, poll
from tests.ledger.found_late import RULES, PlayedAccount, playing
from tests.ledger.test_evidence import FIRST, line
from tests.processes import BESIDE
from tests.providers.aws.rig import AwsRig
from tests.providers.gcp.rig import GcpRig
from tests.providers.runpod.rig import RunpodRig, plain

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
HOURLY = BillTerms(asked="doubt", step_s=3600, settles_s=3600)
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
DAILY = BillTerms(asked="doubt", step_s=86400, settles_s=86400)
SINCE_NOON = DoubtfulCharge(7, to_us(NOON), to_us(NOON + 380 * MINUTE))


class Told:
    """A log that keeps what it is told."""

    def __init__(self) -> None:
        self.said: list[tuple[str, dict[str, Any]]] = []

    def _keep(self, event: str, /, **facts: object) -> None:
        self.said.append((event, facts))

    info = warning = error = _keep


def test_a_bill_is_asked_for_at_once_and_again_when_its_last_line_is_final() -> None:
    ask = partial(choose_question, [SINCE_NOON], HOURLY)
    first = ask(now=NOON + 381 * MINUTE, asked_at=None)
    assert first is not None
    assert (first.period.start, first.occasions) == (NOON, frozenset({Occasion(7, to_us(NOON + HOUR))}))
    later = partial(ask, asked_at=NOON + 381 * MINUTE, settled=first.occasions)
    assert later(now=NOON + 7 * HOUR + 59 * MINUTE) is None
    last = later(now=NOON + 8 * HOUR)
    assert last is not None
    assert ask(now=NOON + 30 * HOUR, asked_at=NOON + 8 * HOUR, settled=first.occasions | last.occasions) is None


def test_new_doubts_wait_for_an_hour_after_the_last_question() -> None:
    ask = partial(choose_question, [SINCE_NOON], HOURLY, asked_at=NOON + 10 * HOUR)
    assert ask(now=NOON + 10 * HOUR + 59 * MINUTE) is None
    assert ask(now=NOON + 11 * HOUR) is not None
    assert ask(now=NOON + 9 * HOUR) is not None, "a question that a wrong clock dated ahead holds nothing back"


@pytest.mark.parametrize("days", [1, 13.5, 14, 15, 28, 31, 40])
def test_a_long_doubt_is_asked_about_in_stretches_until_all_of_it_is(days: float) -> None:
    now, length = NOON + timedelta(days=60), timedelta(days=days)
    doubts = [
        DoubtfulCharge(1, to_us(now - length), to_us(now - HOUR)),
        DoubtfulCharge(2, to_us(now - 5 * HOUR), to_us(now - HOUR)),
    ]
    periods, settled, more, later = list[Period](), set[Occasion](), True, now + timedelta(days=2)
    while more:
        question = choose_question(doubts, DAILY, now=later, asked_at=None, settled=settled)
        assert question is not None
        assert question.occasions - settled
        settled |= question.occasions
        more = question.more
        periods.append(question.period)
    assert choose_question(doubts, DAILY, now=later, asked_at=None, settled=settled) is None
    assert all(one.length <= STRETCH_MAX for one in periods)
    assert all(before.start < after.start <= before.end < after.end for before, after in pairwise(periods)), "oldest first"
    assert sum((one.length for one in periods), timedelta()) <= timedelta(days=31) + STRETCH_MAX
    assert periods[0].start <= max(now - length, later - timedelta(days=31))
    assert periods[-1].end >= now - HOUR
    assert len(periods) <= 3


def test_a_daily_bill_is_read_once_a_day_with_what_may_be_restated() -> None:
    second = datetime(2026, 12, 2, 9, tzinfo=UTC)
    period = choose_daily_question(now=second, asked_at=second - 24 * HOUR)
    assert period is not None
    assert period.start == datetime(2026, 11, 1, tzinfo=UTC)
    assert choose_daily_question(now=second, asked_at=second - HOUR) is None
    assert choose_daily_question(now=second, asked_at=second - 12 * HOUR) is None


@pytest.fixture
def played(tmp_path: Path) -> Iterator[PlayedAccount]:
    """A pod that was created 40 hours ago and restarted 50 minutes ago."""
    rig, born = RunpodRig(), to_us(START - 40 * HOUR)
    pod = plain("k3v9x2m0000000", to_us(START), runs=(Run(start_us=to_us(START - 50 * MINUTE)),))
    rig.fake.resources.append(replace(pod, created_us=born))
    with playing(rig, tmp_path, f"sqlite:///{tmp_path}/ledger.db") as found:
        yield found


def make_duty(played: PlayedAccount, log: Told, *, leads: bool = True) -> BillDuty:
    (scope,) = played.source.list_scopes()
    return BillDuty(
        played.url,
        rules=RULES,
        sources=lambda: {scope: played.source},
        leads=lambda: leads,
        clock=played.rig.clock,
        log=log,
    )


def count_questions(played: PlayedAccount) -> int:
    return sum(asked.path.startswith("/v2/billing/pods") for asked in played.rig.fake.asked)


def test_a_restarted_pod_is_settled_without_anybody_asking(played: PlayedAccount) -> None:
    log = Told()
    duty = make_duty(played, log)
    played.poll()
    doubt = played.compute_spent().width
    duty.run()
    assert count_questions(played) == 1
    assert played.compute_spent().width < 0.05 * doubt, "but for the last hours, which are not final"
    for _ in range(11):
        played.poll(minutes=5)
        duty.run()
    assert count_questions(played) == 1
    played.poll(hours=2)
    duty.run()
    assert count_questions(played) == 2
    assert played.compute_spent().width < 0.002 * doubt
    assert {event for event, _ in log.said} == {"bill_read"}
    assert check_ledger(played.url) == []


def test_a_bill_that_fails_is_told_once_and_tried_again_while_polls_go_on(played: PlayedAccount) -> None:
    log = Told()
    duty = make_duty(played, log)
    played.poll()
    played.rig.fake.fault("/v2/billing", "html", status=503)
    before = played.compute_spent()
    for _ in range(4):
        duty.run()
        played.poll(minutes=4)
    assert [event for event, _ in log.said] == ["bill_not_read"]
    assert played.compute_spent().width >= before.width
    played.rig.fake.faults.clear()
    played.poll(hours=1)
    duty.run()
    assert log.said[-1][0] == "bill_read"


def test_the_duty_is_there_and_not_offline(tmp_path: Path) -> None:
    settings = check_settings(f'[ledger]\nurl = "sqlite:///{tmp_path}/ledger.db"\n', "costguard.toml")
    for offline in (False, True):
        with open_watchdog_context(settings, offline=offline, open_bills=watch.open_bill_duty) as made:
            duties = watch._build_duties(made, partial(print), timedelta(minutes=1))
        assert ("bills" in [duty.name for duty in duties.others]) == (not offline)


class DailyAccount:
    """An account whose bill is one line a day, of a machine."""

    def __init__(self, account: str, provider: str = "aws") -> None:
        self.account, self.providers = account, (provider,)
        self.stated: list[BillLine] | None = None
        self.asked: list[Period] = []

    @property
    def scope(self) -> ScopeKey:
        return ScopeKey(self.providers[0], self.account, "us-east-1")

    def list_scopes(self) -> list[ScopeKey]:
        return [self.scope]

    def poll(self, scope: ScopeKey) -> Poll:
        raise AssertionError(f"a bill needs no poll of {scope}")

    def fetch_bill_lines(self, period: Period) -> BillLines:
        self.asked.append(period)
        day = (period.end - timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
        return BillLines(lines=tuple(self.make_lines(day) if self.stated is None else self.stated))

    def make_lines(self, day: datetime) -> list[BillLine]:
        return [
            BillLine(
                id=f"{self.account}/{day:%Y-%m-%d}",
                provider=self.providers[0],
                account=self.account,
                start=day,
                end=day + timedelta(days=1),
                amount=Money(nano=10**9),
                charge="compute",
                resource_id="i-1",
                source="test",
            )
        ]


def make_daily_duty(
    url: str, clock: Hands, log: Told, *sources: DailyAccount, rules: Mapping[str, BillingRule] = RULES
) -> BillDuty:
    with BillStore(url):
        pass
    return BillDuty(
        url, rules=rules, sources=lambda: {one.scope: one for one in sources}, leads=lambda: True, clock=clock, log=log
    )


def test_what_one_account_or_a_person_read_keeps_no_other_account_from_being_asked(tmp_path: Path) -> None:
    url, clock, log = f"sqlite:///{tmp_path}/ledger.db", Hands(NOON), Told()
    first, second = DailyAccount("111122223333"), DailyAccount("444455556666")
    make_daily_duty(url, clock, log, first).run()
    duty = make_daily_duty(url, clock, log, first, second)
    old = Period(start=NOON - timedelta(days=90), end=NOON - timedelta(days=60))
    with BillStore(url) as bills:
        told = BillAnswer(name="aws", providers=("aws",), period=old, billed=second.fetch_bill_lines(old))
        import_answers(bills, [told], who="ada@lab", now=NOON)
    second.asked.clear()
    duty.run()
    assert (len(first.asked), len(second.asked)) == (1, 1), "the first one was asked today, before this watchdog started"
    for _ in range(3):
        clock.at += HOUR
        duty.run()
    assert (len(first.asked), len(second.asked)) == (1, 1)
    clock.at += timedelta(days=1)
    duty.run()
    assert (len(first.asked), len(second.asked)) == (2, 2)


@pytest.mark.parametrize("rig", [AwsRig, GcpRig])
def test_an_account_whose_settings_name_no_bill_is_not_asked_for_one(rig: type[Rig], tmp_path: Path) -> None:
    log, url, played = Told(), f"sqlite:///{tmp_path}/ledger.db", rig()
    with BillStore(url), played.opened(tmp_path) as account:
        sources = dict.fromkeys(account.list_scopes(), account)
        duty = BillDuty(url, rules=RULES, sources=lambda: sources, leads=lambda: True, clock=played.clock, log=log)
        for _ in range(3):
            duty.run()
            played.clock.at += timedelta(days=1)
    assert log.said == []


MACHINES = 500
MANY_DAYS = 3 * BATCH_LINES // MACHINES + 1
"""Days of a bill that takes four transactions at the least, where none is held for longer than a batch."""


def state_many_lines(account: DailyAccount) -> None:
    """Let a bill state MACHINES machines for MANY_DAYS days up to FIRST, and acme's machine i-1 for two days after it."""
    others = [
        line(-day, "1", id=f"{day}/{number}", resource_id=f"i-of-{number}")
        for day in range(1, MANY_DAYS + 1)
        for number in range(MACHINES)
    ]
    account.stated = [*others, line(0, "48"), line(1, "1.36")]


def read_many_lines(url: str, after_pause: Callable[[int], None] = lambda _: None) -> Told:
    """Let a duty whose transactions are as short as can be ask for a bill of many lines; return its log.

    `after_pause`: called between two transactions, with their number.
    """
    log, account, pause, pauses = Told(), DailyAccount("lab", "acme"), ShortTransactions.pause, count(1)
    state_many_lines(account)
    terms = BillTerms(asked="daily", step_s=86400, settles_s=86400)
    rules = {**RULES, "acme": replace(get_billing_rule(RULES, "acme"), bill=terms)}

    def look(self: ShortTransactions) -> None:
        pause(self)
        after_pause(next(pauses))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ShortTransactions, "pause", look)
        patch.setattr(bill_duty, "BillStore", partial(BillStore, hold_s=0))
        make_daily_duty(url, Hands(FIRST + timedelta(days=5)), log, account, rules=rules).run()
    return log


def count_counting_lines(url: str) -> int:
    return asked(url, lambda ask: len(ask(select(BillLineRow.id).where(STATED))))


def die_between_transactions(url: str, after: int) -> None:
    """Let a duty take in a bill of many lines, and die by SIGKILL after `after` of its transactions."""

    def die(number: int) -> None:
        if number == after:
            os.kill(os.getpid(), signal.SIGKILL)

    read_many_lines(url, die)


@pytest.fixture
def doubtful(tmp_path: Path) -> str:
    """A ledger in which a machine ran for some 24.7 hours, one of them in a gap."""
    url = f"sqlite:///{tmp_path}/ledger.db"
    with LedgerWriter(url, rules=RULES, ceilings=CEILINGS) as ledger:
        ledger.record_polls([poll(at, machine(started_at=FIRST)) for at in (120, *range(180, 1600, 4))])
        ledger.record_polls([poll(1602), poll(1604), poll(6000)])
    return url


def test_polls_are_recorded_while_the_bill_of_many_lines_is_written(doubtful: str) -> None:
    recorded = list[int]()
    with LedgerWriter(doubtful, rules=RULES, ceilings=CEILINGS) as ledger:

        def look(number: int) -> None:
            ledger.record_polls([poll(6000 + number, machine(key=key("i-new")))])
            assert count_counting_lines(doubtful) == 0, "a bill counts as a whole"
            recorded.append(number)

        log = read_many_lines(doubtful, look)
    assert len(recorded) >= 4
    assert [event for event, _ in log.said] == ["bill_read"]
    assert count_counting_lines(doubtful) == MANY_DAYS * MACHINES + 2
    with SpendingReader(doubtful, rules=RULES) as books:
        stretches = books.load_stretches(Period(start=FIRST, end=FIRST + timedelta(days=5)))
    assert sum(one.polls for one in stretches) > len(recorded)
    assert check_ledger(doubtful) == []


def test_a_watchdog_killed_while_it_writes_a_bill_leaves_nothing_of_it_and_asks_again(doubtful: str) -> None:
    def compute_cost() -> list[Any]:
        with SpendingReader(doubtful, rules=RULES) as books:
            return books.load_spending(Period(start=FIRST, end=FIRST + timedelta(days=5)), FIRST + timedelta(days=5))

    before = compute_cost()
    for after in (1, 3):
        process = BESIDE.Process(target=die_between_transactions, args=(doubtful, after))
        process.start()
        process.join(timeout=120)
        assert process.exitcode == -signal.SIGKILL
        assert (count_counting_lines(doubtful), compute_cost()) == (0, before)
        assert asked(doubtful, lambda ask: ask("SELECT count(*) FROM bill_line", ())[0][0]) > 0, "it died in the middle"
        assert check_ledger(doubtful) == []
    log = read_many_lines(doubtful)
    assert [event for event, _ in log.said] == ["bill_read"]
    assert count_counting_lines(doubtful) == MANY_DAYS * MACHINES + 2
    assert compute_cost() != before, "its lines settle what was in doubt"
    assert check_ledger(doubtful) == []
