"""One machine of a fake cloud that was found late, and its bill: played over loopback, with a clock that is set."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from costguard_sim.bill import charge_resource
from costguard_sim.world import Resource, to_us

from costguard.data import ShippedFacts
from costguard.ledger.bills.staging import StagedStatement
from costguard.ledger.bills.store import BillStore, GatheredStatement
from costguard.ledger.spans.books import SpendingReader
from costguard.ledger.spans.writer import LedgerWriter
from costguard.providers.ports import InstanceSource
from costguard.providers.transport import TokenBucket
from costguard.services.poll.poll import poll_sources
from costguard.services.report.reconcile import ask_for_bills
from costguard.values.calendar import Period
from tests.contract.rig import Rig

RULES = ShippedFacts().get_billing_rules()
YEAR = Period(start=datetime.fromisoformat("2026-01-01T00:00:00Z"), end=datetime.fromisoformat("2027-01-01T00:00:00Z"))
ASKED = timedelta(days=4)


class Amounts(NamedTuple):
    """Low, expected and high nano-units."""

    low: int
    expected: int
    high: int

    @property
    def width(self) -> int:
        """What is in doubt."""
        return self.high - self.low


class PlayedAccount:
    """A ledger at `url` that polls the account `source` of `rig`."""

    def __init__(self, rig: Rig, url: str, source: InstanceSource) -> None:
        self.rig, self.url, self.source = rig, url, source

    def poll(self, **passed: float) -> None:
        """Let time pass, and look."""
        self.rig.clock.at += timedelta(**passed)
        with LedgerWriter(self.url, rules=RULES, ceilings={}) as ledger:
            poll_sources([self.source], ledger, self.rig.clock)

    def read_bill(self) -> None:
        """Ask the account for its bill, as `costguard reconcile` does, and take it in."""
        now = self.rig.clock.now()
        asked = ask_for_bills([(self.rig.provider, self.source)], Period(start=now - ASKED, end=now), now)
        with ExitStack() as stack, BillStore(self.url, rules=RULES) as bills:
            for one in asked:
                assert one.billed is not None, one.why
                staged = stack.enter_context(StagedStatement())
                staged.add((line, Decimal(0)) for line in one.billed.lines)
                of = (one.providers, one.period)
                statement = GatheredStatement(staged=staged, source="asked", stated_at=now, asked=of, why=one.why)
                bills.import_statements([statement], who="a test", now=now)

    def compute_spent(self) -> Amounts:
        """What everything came to as far as it is known now."""
        with SpendingReader(self.url, rules=RULES) as books:
            money = [one.money for one in books.load_spending(YEAR, self.rig.clock.now())]
        return Amounts(*(sum(getattr(one, end).nano for one in money) for end in Amounts._fields))

    def compute_truth(self, resource: Resource) -> int:
        """The nano-dollars that a resource of the fake cost until now, by the world's own bill."""
        lines = charge_resource(resource, 0, to_us(self.rig.clock.now()))
        return round(sum(line.amount for line in lines) * 10**9)


@contextmanager
def playing(rig: Rig, folder: Path, url: str) -> Iterator[PlayedAccount]:
    """`rig` served on loopback, with a ledger at `url`. Requests are not paced: the clock of the paces is the real one."""
    with patch.object(TokenBucket, "acquire", return_value=True), rig.opened(folder) as source:
        yield PlayedAccount(rig, url, source)
