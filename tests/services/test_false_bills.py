"""A hard cap counts what is sure. A bill that is wrong makes nothing sure, so it makes the guard stop nothing."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from costguard.budgets.budget import Budget
from costguard.guard.context import GuardConfig
from costguard.guard.policy import Rails
from costguard.ledger.guard.store import GuardStore
from costguard.ledger.spans.books import SpendingReader
from costguard.ledger.spans.writer import LedgerWriter
from costguard.services.guarding.guard import GuardRunner, GuardRunResult
from costguard.testing import FakeClock
from costguard.values.money import Money
from tests.blank import blank_latest
from tests.ledger.fleet import CEILINGS, RULES, START, machine, poll
from tests.ledger.test_evidence import BAD, NOW, line, take_in

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


def run_guard(url: str) -> GuardRunResult:
    with GuardStore(url, rails=Rails()) as book:
        return GuardRunner(
            book=book,
            books=partial(SpendingReader, url, rules=RULES),
            rules=GuardConfig(admin_route=True, budgets=(CAP,)),
            latest=blank_latest,
            clock=FakeClock(NOW),
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
