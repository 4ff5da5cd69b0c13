"""What a month leaves unused of a commitment is a charge of the agreement's account, once, and follows what the month cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from costguard.budgets.budget import ResourceFilter, matches_filter
from costguard.ledger.cost_entries import CostEntryStore
from costguard.ledger.spans.writer import LedgerWriter
from costguard.metering.charge_item import ChargeItem
from costguard.metering.cost_entry import CostEntry
from costguard.metering.meter import COMPUTE
from costguard.metering.spending import Spending
from costguard.reporting.focus.rows import build_rows
from costguard.services.report.commitment_duty import CommitmentDuty
from costguard.services.report.ledger_answers import open_books
from costguard.settings import Settings, check_settings, resolve_ledger_url
from costguard.values.calendar import make_month
from costguard.values.money import Money
from costguard.values.provider import Seller
from costguard.values.resource import ENTERED
from tests.ledger.fleet import CEILINGS, RULES, machine, poll

NOVEMBER = make_month(2026, 11, UTC)
AGREED = """
[[agreement]]
name = "EDP"
source = "contract 4711"
rate = "2 USD/h"
match = { providers = ["acme"], accounts = ["lab"] }
commitment = "500 USD"
"""


@dataclass
class World:
    """A ledger in which a machine at $2 an hour ran for some days of November; looked at since October 31."""

    folder: Path
    text: str = AGREED
    now: datetime = datetime(2026, 12, 2, 12, tzinfo=UTC)
    leads: bool = True

    def __post_init__(self) -> None:
        with LedgerWriter(resolve_ledger_url(self.settings), rules=RULES, ceilings=CEILINGS) as book:
            book.record_polls([poll(minutes, machine()) for minutes in range(0, 2880, 4)])
            book.record_polls([poll(minutes) for minutes in (2880, 2884, 46000)])

    @property
    def settings(self) -> Settings:
        return check_settings(f'{self.text}[ledger]\nurl = "sqlite:///{self.folder}/ledger.db"\n', "costguard.toml")

    def run(self) -> list[Spending]:
        """What is entered in November after the duty."""
        CommitmentDuty(settings=lambda: self.settings, clock=lambda: self.now, leads=lambda: self.leads).run()
        return [one for one in self.load() if one.charge == ENTERED]

    def load(self) -> list[Spending]:
        with open_books(self.settings) as books:
            return books.load_spending(NOVEMBER, self.now)


@dataclass
class Items:
    items: list[ChargeItem]
    sellers: Mapping[str, Seller] = field(default_factory=dict)

    def __iter__(self) -> Iterator[ChargeItem]:
        return iter(self.items)


def test_what_november_left_unused_is_charged_once_when_it_is_over(tmp_path: Path) -> None:
    world = World(tmp_path)
    used = sum((one.money.expected for one in world.load() if one.charge == COMPUTE), Money(nano=0))
    assert used.nano == pytest.approx(92 * 10**9, rel=0.01)
    (entered,) = world.run()
    assert entered.money.expected == Money.parse("500") - used
    assert matches_filter(ResourceFilter(accounts=("lab",)), entered.attribution), "a budget of the account counts it"
    assert world.run() == [entered], "and not again"
    world.text = AGREED.replace("500", "400")
    assert sum(one.money.expected.nano for one in world.run()) == 400 * 10**9 - used.nano, "an entry follows what is due"
    world.text = AGREED.replace("500", "10")
    assert sum(one.money.expected.nano for one in world.run()) == 0, "all of it was used"


def test_nothing_is_charged_before_the_end_or_of_a_month_that_was_not_watched_or_by_two(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.leads = False
    assert world.run() == []
    world.leads, world.now = True, datetime(2026, 11, 30, 23, tzinfo=UTC)
    assert world.run() == []
    with open_books(world.settings) as books:
        assert books.load_spending(make_month(2026, 10, UTC), world.now)[-1].charge != ENTERED, "October: since its last day"
    world.now = datetime(2026, 12, 2, tzinfo=UTC)
    world.text = AGREED + "from = 2026-12-01\n"
    assert world.run() == []


def test_what_a_person_corrects_stays(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.run()
    waived = CostEntry(corrects=1, what="", month=0, money=Money(nano=0), who="lea", entered_at=world.now)
    with CostEntryStore(resolve_ledger_url(world.settings)) as store:
        store.add_entries([waived], ["line 1"])
    assert sum(one.money.expected.nano for one in world.run()) == 0


def test_the_export_has_it_as_a_purchase_with_all_four_costs(tmp_path: Path) -> None:
    world = World(tmp_path)
    (entered,) = world.run()
    with open_books(world.settings) as books:
        items = [item for item in books.items(NOVEMBER, world.now) if item.charge == ENTERED]
    (row,) = build_rows(Items(items))
    costs = [row[name] for name in ("BilledCost", "EffectiveCost", "ListCost", "ContractedCost")]
    assert costs == [Decimal(entered.money.expected.nano).scaleb(-9)] * 4
    assert (row["ChargeCategory"], row["ChargeFrequency"], row["ConsumedQuantity"]) == ("Purchase", "Recurring", None)
    assert (row["BillingAccountId"], row["ResourceName"]) == ("lab", "unused commitment of EDP")
