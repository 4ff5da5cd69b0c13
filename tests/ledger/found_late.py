"""One machine of a fake cloud that was found late, and its bill: played over loopback, with a clock that is set."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from costguard_sim.bill import charge_resource
from costguard_sim.world import SECOND_US, Disk, Rate, Resource, Run, to_us

from costguard.data import ShippedFacts
from costguard.ledger.bills.staging import StagedStatement
from costguard.ledger.bills.store import BillStore, GatheredStatement
from costguard.ledger.spans.books import SpendingReader
from costguard.ledger.spans.writer import LedgerWriter
from costguard.providers.ports import InstanceSource
from costguard.providers.transport import TokenBucket
from costguard.services.poll.poll import poll_sources
from costguard.services.report.bill_duty import BillDuty
from costguard.services.report.reconcile import ask_for_bills
from costguard.values.calendar import Period
from tests.contract.rig import Rig
from tests.fakes.server import START
from tests.fakes.vast import machine as vast_machine
from tests.providers.lambda_.rig import LambdaRig
from tests.providers.lambda_.rig import machine as lambda_machine
from tests.providers.runpod.rig import RunpodRig, plain
from tests.providers.vast.rig import VastRig

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


HOUR_US = 3600 * SECOND_US
NOW_US, BORN_US = to_us(START), to_us(START) - 30 * HOUR_US
NO_VOLUME = (Disk(gb=50, type="container"),)


def make_vast() -> Resource:
    """A contract that has run since it was made, 30 hours ago, at $20 an hour."""
    rates = (Rate(at_us=BORN_US, nano=20 * 10**9),)
    return vast_machine(24815377, created_us=BORN_US, runs=(Run(start_us=BORN_US),), rates=rates)


def make_runpod(*runs: Run, disks: tuple[Disk, ...] = NO_VOLUME) -> Resource:
    """A pod that was made 30 hours ago. Without `runs`, it was started an hour ago, and never before."""
    pod = plain("k3v9x2m0000000", NOW_US, runs=runs or (Run(start_us=NOW_US - HOUR_US),), disks=disks)
    return replace(pod, created_us=BORN_US)


def make_lambda() -> Resource:
    """A machine that has been at work for 30 hours, after nine minutes of booting."""
    return lambda_machine("i-00000", start_us=BORN_US, boot_us=9 * 60 * 10**6)


FOUND_LATE: dict[str, tuple[Callable[[], Rig], Callable[[], Resource]]] = {
    "vast": (VastRig, make_vast),
    "runpod": (RunpodRig, make_runpod),
    "lambda": (LambdaRig, make_lambda),
}
"""Provider -> its fake, and a machine that is 30 hours old when it is seen for the first time."""


class Silent:
    """A log that nobody reads."""

    def info(self, event: str, /, **facts: object) -> None:
        """Drop what is said."""

    warning = error = info


class FoundLate(NamedTuple):
    """What costguard says that a machine cost before and after a watchdog read its bill. `truth`: by the fake's own bill."""

    before: Amounts
    after: Amounts
    truth: int

    def compute_width(self, amounts: Amounts) -> float:
        """Return how wide an interval is, as a share of the truth."""
        return amounts.width / self.truth


def measure_found_late(rig: Rig, resource: Resource, folder: Path, url: str) -> FoundLate:
    """See a machine for the first time, let the watchdog's duty read the bill at once, and return what is known."""
    rig.fake.resources.append(resource)  # type: ignore[attr-defined]  # each fake has its own kind of them
    with playing(rig, folder, url) as played:
        scopes = dict.fromkeys(played.source.list_scopes(), played.source)
        duty = BillDuty(url, rules=RULES, sources=lambda: scopes, leads=lambda: True, clock=rig.clock, log=Silent())
        played.poll()
        played.poll(minutes=1)
        before = played.compute_spent()
        duty.run()
        return FoundLate(before, played.compute_spent(), played.compute_truth(resource))
