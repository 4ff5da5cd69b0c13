"""The world's own bill as costguard asks for one: a line a day for each kind of charge of each resource, to the nano-dollar."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from costguard.bills.bill_line import BillLine, BillLines
from costguard.values.money import Money
from costguard.values.period import Period
from costguard_sim.bill import NANO, charge_resource
from costguard_sim.world import Resource, to_us

DAY = timedelta(days=1)
SETTLES = timedelta(hours=1)
SOURCE = "the simulated clouds' own bill"


def make_billed(resources: Iterable[Resource], period: Period, now: datetime) -> BillLines:
    """What came to be owed in `period`, as far as it has passed, by days in UTC."""
    end = min(period.end, now)
    return BillLines(lines=tuple(line for resource in resources for line in _make_lines(resource, period.start, end, now)))


def _make_lines(resource: Resource, start: datetime, end: datetime, now: datetime) -> Iterable[BillLine]:
    while start < end:
        midnight = start.replace(hour=0, minute=0, second=0, microsecond=0) + DAY
        until = min(midnight, end)
        for owed in charge_resource(resource, to_us(start), to_us(until)):
            yield BillLine(
                id=f"{owed.region}/{owed.id}/{start:%Y-%m-%d}/{owed.charge}/{owed.part}",
                provider=owed.provider,
                account=owed.account,
                start=start.replace(hour=0, minute=0, second=0, microsecond=0),
                end=midnight,
                amount=Money(nano=round(owed.amount * NANO), currency=owed.currency),
                charge=owed.charge,
                resource_id=owed.id,
                region=owed.region,
                estimated=now < midnight + SETTLES,
                source=SOURCE,
                description=owed.part,
            )
        start = until
