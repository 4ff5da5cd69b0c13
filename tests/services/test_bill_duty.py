"""A watchdog asks for bills by itself where they could settle a doubt, seldom, and whatever happens polls go on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from costguard_sim.world import Run, to_us

from costguard.bills.bill_line import BillLine, BillLines
from costguard.bills.bill_schedule import STRETCH_MAX, DoubtfulCharge, choose_daily_question, choose_question
from costguard.ledger.bills.store import BillStore
from costguard.ledger.db.maintenance import check_ledger
from costguard.ledger.spans.writer import LedgerWriter
from costguard.metering.billing import BillingRule, BillTerms, get_billing_rule
from costguard.metering.inventory import Poll
from costguard.providers.ports import OptionalChargeSource
from costguard.services import bill_duty, watch
from costguard.services.bill_duty import BillDuty
from costguard.services.reconcile import BillAnswer, import_answers
from costguard.services.watchdog_context import open_watchdog_context
from costguard.settings import check_settings
from costguard.values.calendar import Period
from costguard.values.money import Money
from costguard.values.resource import ScopeKey
from tests.contract.rig import Rig
from tests.fakes.server import START, Hands
from tests.ledger.fleet import CEILINGS, machine, poll
from tests.ledger.found_late import RULES, PlayedAccount, playing
from tests.ledger.test_evidence import FIRST, line
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
    assert (first.period.start, first.occasions) == (NOON, frozenset({(7, to_us(NOON + HOUR))}))
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
    periods, settled, more, later = list[Period](), set[tuple[int, int]](), True, now + timedelta(days=2)
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


def test_a_watchdog_asks_for_the_next_stretch_at_its_next_run(played: PlayedAccount) -> None:
    assert isinstance(played.rig, RunpodRig)
    (pod,) = played.rig.fake.resources
    played.rig.fake.resources[:] = [replace(pod, created_us=to_us(START - 40 * 24 * HOUR))]
    log, asked = Told(), list[int]()
    duty = make_duty(played, log)
    played.poll()
    doubt = played.compute_spent().width
    for _ in range(6):
        duty.run()
        asked.append(count_questions(played))
        played.poll(minutes=5)
    assert asked == [2, 4, 6, 6, 6, 6], "RunPod answers a week at a time"
    assert {event for event, _ in log.said} == {"bill_read"}
    assert played.compute_spent().width < 0.4 * doubt


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


def test_a_watchdog_that_does_not_lead_asks_nothing(played: PlayedAccount) -> None:
    played.poll()
    make_duty(played, Told(), leads=False).run()
    assert count_questions(played) == 0


def test_the_duty_is_there_and_not_offline(tmp_path: Path) -> None:
    settings = check_settings(f'[ledger]\nurl = "sqlite:///{tmp_path}/ledger.db"\n', "costguard.toml")
    for offline in (False, True):
        with open_watchdog_context(settings, offline=offline) as made:
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


def test_an_account_of_which_the_bill_says_nothing_is_asked_once_a_day(tmp_path: Path) -> None:
    url, clock, account = f"sqlite:///{tmp_path}/ledger.db", Hands(NOON), DailyAccount("111122223333")
    account.stated = []
    duty = make_daily_duty(url, clock, Told(), account)
    for _ in range(4):
        duty.run()
        clock.at += HOUR
    assert len(account.asked) == 1


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


@pytest.mark.parametrize(("rig", "stated"), [(AwsRig, {"cost_explorer": True}), (GcpRig, {"focus_export": "bill.csv"})])
def test_an_account_whose_settings_name_a_bill_has_one(rig: type[Rig], stated: dict[str, Any], tmp_path: Path) -> None:
    with rig().opened(tmp_path, **stated) as account:
        assert isinstance(account, OptionalChargeSource)
        assert account.has_bill()


def test_a_bill_of_many_lines_is_left_to_reconcile_and_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url, clock, log, account = f"sqlite:///{tmp_path}/ledger.db", Hands(NOON), Told(), DailyAccount("111122223333")
    monkeypatch.setattr(bill_duty, "LINES_MAX", 0)
    duty = make_daily_duty(url, clock, log, account)
    for _ in range(6):
        duty.run()
        clock.at += 12 * HOUR
    assert len(account.asked) == 3, "once a day, as others"
    assert [(event, facts["lines"]) for event, facts in log.said] == [("bill_too_large", 1)]
    assert "costguard reconcile" in log.said[0][1]["do"]
    monkeypatch.setattr(bill_duty, "LINES_MAX", 1)
    duty.run()
    assert [event for event, _ in log.said] == ["bill_too_large", "bill_read"]


def test_a_contradiction_is_logged_once_for_each_resource_and_day(tmp_path: Path) -> None:
    url, clock, log = f"sqlite:///{tmp_path}/ledger.db", Hands(FIRST + timedelta(days=5)), Told()
    with LedgerWriter(url, rules=RULES, ceilings=CEILINGS) as ledger:
        ledger.record_polls([poll(at, machine(started_at=FIRST)) for at in range(120, 1600, 4)])
        ledger.record_polls([poll(1602), poll(1604), poll(6000)])
    account, lines = DailyAccount("lab", "acme"), [line(0, "12")]
    account.stated = lines
    rules = {
        **RULES,
        "acme": replace(get_billing_rule(RULES, "acme"), bill=BillTerms(asked="daily", step_s=86400, settles_s=86400)),
    }
    duty = make_daily_duty(url, clock, log, account, rules=rules)
    told = list[list[str]]()
    for _ in range(4):
        duty.run()
        told.append([facts["first_day"] for event, facts in log.said if event == "bill_contradicts"])
        clock.at += timedelta(days=1)
        lines[1:] = [line(1, "0.1")] if len(told) == 2 else lines[1:]
    assert len(account.asked) == 4
    assert told == [["2026-11-01"]] * 2 + [["2026-11-01", "2026-11-02"]] * 2
    assert "discount" in next(facts["why"] for event, facts in log.said if event == "bill_contradicts")
