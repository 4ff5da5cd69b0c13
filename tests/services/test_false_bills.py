"""A hard cap counts what is sure. A bill that is wrong makes nothing sure, so it makes the guard stop nothing."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from functools import partial
from pathlib import Path

import pytest

from costguard.budgets.budget import Budget
from costguard.guard.context import GuardConfig
from costguard.guard.policy import Rails
from costguard.ledger.guard.store import GuardStore
from costguard.ledger.spans.books import SpendingReader
from costguard.ledger.spans.writer import LedgerWriter
from costguard.metering.price_ladder import PriceLadder
from costguard.services.guarding.guard import GuardRunner, GuardRunResult
from costguard.testing import FakeClock
from costguard.values.money import Money
from tests.blank import blank_latest
from tests.ledger.fleet import CEILINGS, DAY, HOUR, RULES, START, machine, poll
from tests.ledger.test_evidence import BAD, FIRST, NOW, line, take_in

CAP = Budget(name="all", cap=Money.parse("20"), hard=True)
MINUTES = (NOW - START).total_seconds() / 60


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """A ledger with a machine at $2 an hour that was found late and runs now: from $0 to $200 in November."""
    found = f"sqlite:///{tmp_path}/ledger.db"
    with LedgerWriter(found, rules=RULES, ceilings=CEILINGS) as ledger, GuardStore(found, rails=Rails()):
        seen = machine(created_at=START)
        ledger.record_polls([poll(1800, seen), poll(1801, seen), poll(MINUTES - 2, seen), poll(MINUTES - 1, seen)])
        yield found


def run_guard(url: str, cap: Budget = CAP, now: datetime = NOW) -> GuardRunResult:
    with GuardStore(url, rails=Rails()) as book:
        return GuardRunner(
            book=book,
            books=partial(SpendingReader, url, rules=RULES),
            rules=GuardConfig(admin_route=True, budgets=(cap,)),
            latest=blank_latest,
            clock=FakeClock(now),
            holder="one",
            holds=lambda _: (),
        ).run()


def list_proposed(run: GuardRunResult) -> set[str]:
    """The machines that the hard cap would do anything to."""
    assert run.survey is not None, run.broken
    return {one.verdict.life.key.id for one in run.survey.proposals}


def test_a_true_bill_makes_the_cap_act(url: str) -> None:
    """So the tests below could fail."""
    assert list_proposed(run_guard(url)) == set()
    take_in(url, line(0, "24"))
    assert list_proposed(run_guard(url)) == {"i-1"}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", BAD)
def test_a_false_bill_makes_nobody_act(url: str, name: str) -> None:
    lines, _ = BAD[name]
    take_in(url, *lines())
    assert list_proposed(run_guard(url)) == set()


def test_a_bill_that_is_taken_back_takes_back_what_it_made_sure(url: str) -> None:
    take_in(url, line(0, "24"))
    take_in(url, line(0, "0.5"), at=NOW.replace(hour=1))
    assert list_proposed(run_guard(url)) == set()


def test_a_cap_of_a_month_follows_bills_at_a_discount(tmp_path: Path) -> None:
    """$2 an hour by the list, 0.58 of it by every settled bill, under a cap of $200.

    The list price reaches it after 100 hours, of which $116 are due. The bills reach it after 172.
    """
    url, runs = f"sqlite:///{tmp_path}/ledger.db", machine(started_at=START + 2 * HOUR)
    cap = Budget(name="all", cap=Money.parse("200"), hard=True)

    def list_stopped(days: float) -> set[str]:
        return list_proposed(run_guard(url, cap, FIRST + days * DAY))

    def see(days: float, until: float) -> None:
        ledger.record_polls([poll(120 + at, runs) for at in range(round(days * 1440), round(until * 1440), 4)])

    def bill(days: int) -> None:
        now = FIRST + (days + 0.4) * DAY
        take_in(url, *(line(day, "27.84", id=f"i-1:{day}") for day in range(days)), at=now, now=now)

    with (
        GuardStore(url, rails=Rails()),
        LedgerWriter(url, rules=RULES, ceilings=CEILINGS, ladder=PriceLadder(drift={})) as ledger,
    ):
        see(0, 4)
        assert list_stopped(4) == set(), "$192 by the list"
        see(4, 5.4)
        assert list_stopped(5.4) == {"i-1"}, "$259.20 by the list, and no bill says otherwise"
        bill(5)
        assert list_stopped(5.4) == set(), "$139.20 billed, and $19.20 at the list price"
        see(5.4, 7)
        bill(6)
        assert list_stopped(7) == set(), "$336 by the list; $167.04 billed, and a day at the price that bills show, from 5.4 on"
        see(7, 7.5)
        bill(7)
        assert list_stopped(7.5) == {"i-1"}, "$194.88 billed, and half a day at that price"
