"""What a report asks of the ledger beside sums, on both databases, of one small story.

i-1 runs at $2 an hour with a disk, is stopped by the guard at 23:00 and lies there; i-2 runs on; i-3 changed hands in between.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from costguard.budgets.hold import Hold
from costguard.guard.action_intents import DONE, EXECUTING, VERIFYING
from costguard.ledger.db.connection import open_engine
from costguard.ledger.guard.store import GuardStore
from costguard.ledger.holds import HoldStore
from costguard.ledger.reports.reader import ReportReader
from costguard.ledger.spans.sample_retention import roll_up_samples
from costguard.ledger.spans.writer import LedgerWriter, record_samples
from costguard.metering.observation import Disk
from costguard.reporting.statement.groups import LEDGER_KEYS, get_group_value
from costguard.reporting.statement.savings import compute_savings
from costguard.reporting.statement.sections import (
    compute_stopped_disk_cost,
    find_stopped_with_disks,
    list_quoted_runs,
    rank_top_resources,
)
from costguard.reporting.statement.waste import SampledHour
from costguard.values.calendar import Period
from costguard.values.instant import HOUR_US, to_micros
from costguard.values.money import Money, sum_intervals
from costguard.values.resource import GROUPED_LABELS, Incarnation
from costguard.values.sample import GPU_UTIL, Sample
from tests.ledger.acts import WIDE, intent
from tests.ledger.conftest import *  # noqa: F403 - the fixture `url`, for both databases
from tests.ledger.fleet import CEILINGS, HOUR, MINUTE, RULES, START, key, machine, poll

NIGHT = Period(start=START, end=START + 4 * HOUR)
AT = NIGHT.end
WEEK = Period(start=START - timedelta(days=3), end=START + timedelta(days=4))
SENT, DONE_AT = START + HOUR, START + HOUR + MINUTE
DISK = (Disk(730, "ssd"),)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that holds the story."""
    path = tmp_path_factory.mktemp("story") / "ledger.db"
    write_story(f"sqlite:///{path}")
    return path


@pytest.fixture
def accounts(url: str, written: Path) -> str:
    """The story, written down."""
    if url.startswith("sqlite"):
        shutil.copy(written, url.removeprefix("sqlite:///"))
    else:
        write_story(url)
    return url


def write_story(url: str) -> None:
    polls = []
    for minute in range(0, 241, 2):
        state = "running" if minute < 60 else "stopped"
        owner = "ada" if minute < 120 else "bob"
        polls.append(
            poll(
                minute,
                replace(machine("i-1", state, disks=DISK, labels=(("Run", "7"),)), name="box"),
                machine("i-2", usd="3"),
                machine("i-3", usd="1", owner=owner),
            )
        )
    with LedgerWriter(url, rules=RULES, ceilings=CEILINGS) as book:
        book.record_polls(polls)
    engine = open_engine(url)
    values = [Sample(key=key("i-2"), signal=GPU_UTIL, at=START + n * MINUTE, value=float(n % 60 == 0)) for n in range(120)]
    record_samples(engine, values)
    roll_up_samples(engine, START + timedelta(hours=49))
    engine.dispose()
    with GuardStore(url, rails=replace(WIDE, first_polls=0)) as book_:
        assert book_.acquire_leader_lease("a", START, 6 * HOUR) == 1
        made = intent("i-1", life=Incarnation(key("i-1"), None, None), created_at=SENT, moved_at=SENT)
        assert book_.plan_intent(made)
        sent = book_.move_intent(made, EXECUTING, SENT, run="r", fleet=10**9, expires_at=SENT + MINUTE)
        assert sent is not None
        verifying = book_.move_intent(sent, VERIFYING, SENT)
        assert verifying is not None
        assert book_.move_intent(verifying, DONE, DONE_AT, outcome="stopped")
    with HoldStore(url, rules=RULES, ceilings=lambda: CEILINGS) as holds:
        hold = Hold(id="run-7", money=Money.parse(5), who="ada", why="a run", taken_at=START, expires_at=START + 9 * HOUR)
        holds.take(hold, (), START)
        holds.commit("run-7", Money.parse("4.50"), START + 2 * HOUR)


def test_all_of_it_is_answered_as_of_one_instant(accounts: str) -> None:
    with ReportReader(accounts, rules=RULES, ceilings=lambda: CEILINGS) as books, books.read_one_snapshot():
        outlays = books.load_costs(NIGHT, AT)
        spending = books.load_spending(NIGHT, AT)
        whole = sum_intervals(part.money for part in spending)
        assert sum_intervals(one.to_spending(None).money for one in outlays) == whole
        assert sum(one.us for one in outlays if one.computes) == sum(part.us for part in spending)

        places = rank_top_resources(outlays)
        bearers = books.load_billed_resources({number for number, _ in places}, labels=("run",))
        assert [bearers[number].key.id for number, _ in places] == ["i-2", "i-3", "i-1"]
        assert [bearers[number].labels for number, _ in places] == [(), (), (("Run", "7"),)]
        assert {of.labels for of in books.load_billed_resources(bearers, labels=("other",)).values()} == {()}

        days = books.load_daily_costs(NIGHT, AT, "provider")
        assert sum(one.nano for one in days) == whole.expected.nano
        assert {one.day for one in days} == {(START.date() - datetime(1970, 1, 1, tzinfo=UTC).date()).days + n for n in (0, 1)}
        rates = books.load_rate_changes(NIGHT, AT)
        assert max(rates) * 3600 <= AT.timestamp()
        spread = sum(
            (one.began - one.ended) * (to_micros(NIGHT.end) - hour * HOUR_US) - one.began_offset + one.ended_offset + one.cost
            for hour, one in rates.items()
        )
        assert spread == pytest.approx(whole.expected.nano, rel=1e-6), "each span's dollars are spread over it"


def test_a_disk_bills_while_its_machine_lies_there(accounts: str) -> None:
    with ReportReader(accounts, rules=RULES, ceilings=lambda: CEILINGS) as books:
        numbers = find_stopped_with_disks(books.load_costs(NIGHT, AT))
        ((_, lines),) = books.load_lines(numbers, NIGHT, AT)
        rest = compute_stopped_disk_cost([lines], NIGHT)
    assert {span.key.id for span, _ in lines} == {"i-1"}
    (money,) = rest.money
    assert rest.machines == 1
    # 730 GB at $0.16 a month of 730 h in October (744 h) and November (720 h), from 23:00 until 02:00
    assert float(money.expected.to_decimal()) == pytest.approx(730 * 0.16 * (1 / 744 + 2 / 720), abs=0.01)


def test_days_come_to_what_each_value_of_a_key_cost(accounts: str) -> None:
    with ReportReader(accounts, rules=RULES, ceilings=lambda: CEILINGS) as books:
        for by in (*LEDGER_KEYS, *GROUPED_LABELS):
            found, spent = defaultdict[str, int](int), defaultdict[str, int](int)
            for day in books.load_daily_costs(WEEK, AT, by):
                found[get_group_value(day, by)] += day.nano
            for part in books.load_spending(WEEK, AT):
                spent[get_group_value(part, by)] += part.money.expected.nano
            assert found == spent


def test_an_act_is_told_with_what_it_ended(accounts: str) -> None:
    with ReportReader(accounts, rules=RULES, ceilings=lambda: CEILINGS) as books:
        (act,) = books.load_actions(START - HOUR, AT)
        assert books.load_actions(DONE_AT + MINUTE, AT) == []
    assert (act.life.key.id, act.name, act.sent_at, act.confirmed_at, act.ended_at) == ("i-1", "box", SENT, DONE_AT, None)
    found = compute_savings([act], NIGHT, AT)
    assert len(found.counted) == 1
    assert 5.5 < float(found.get_net("USD").expected.to_decimal()) < 6  # three hours at $2, less half a dollar of disk


def test_samples_come_as_hours_whether_rolled_up_or_not(accounts: str) -> None:
    with ReportReader(accounts, rules=RULES, ceilings=lambda: CEILINGS) as books:
        numbers = {one.number for one in books.load_costs(NIGHT, AT)}
        (of,) = books.load_sampled_hours(numbers, NIGHT).values()
    first = int(START.timestamp()) // 3600
    assert of == {GPU_UTIL: [SampledHour(first, 60, 1.0, 0.0, 1.0), SampledHour(first + 1, 60, 1.0, 0.0, 1.0)]}


def test_a_run_that_ended_says_what_it_was_to_cost(accounts: str) -> None:
    with ReportReader(accounts, rules=RULES, ceilings=lambda: CEILINGS) as books:
        (one,) = list_quoted_runs(books.load_committed_holds(NIGHT), NIGHT)
        assert books.load_committed_holds(Period(start=AT, end=AT + HOUR)) == []
    assert (one.hold.id, one.over.format()) == ("run-7", "-0.50")


def test_what_bills_now_is_what_is_open(accounts: str) -> None:
    with ReportReader(accounts, rules=RULES, ceilings=lambda: CEILINGS) as books:
        lines, unobserved = books.load_burning(AT)
    assert sorted(span.meter.charge for span, _ in lines) == ["compute", "compute", "storage"]
    assert not any(absent for _, absent in lines)
    assert not unobserved
