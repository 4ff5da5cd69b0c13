"""A day on the fake: its adapter over real HTTP into a real ledger, held at every step against a bill written by hand.

The bill: EUR 0.75 an hour of an L4 at 1 USD = 0.80 EUR, by the minute, while it runs or stands by; nothing while archived.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

import pytest

from costguard.data import ShippedFacts
from costguard.ledger.spans.books import SpendingReader
from costguard.ledger.spans.writer import LedgerWriter
from costguard.providers.transport import TokenBucket
from costguard.services.poll.poll import poll_sources
from tests.fakes.scaleway import RUNNING, STANDBY, STOPPED, ZONE, block_volume, machine
from tests.providers.scaleway.rig import ScalewayRig

START = datetime(2026, 11, 20, tzinfo=UTC)
STEP, DAY = timedelta(minutes=5), timedelta(days=1)
USD_PER_MINUTE = Decimal("0.75") / Decimal("0.80") / 60
PHASES = {  # machine -> minutes after START at which it enters a state; each is made when it is first there
    1: ((3, RUNNING), (331, STANDBY), (902, STOPPED)),  # forgotten in standby for 9.5 hours, then archived
    2: ((65, RUNNING), (407, STOPPED), (720, RUNNING)),  # archived and started again
    3: ((125, "starting"), (129, RUNNING), (611, "ended")),
    4: ((0, STANDBY),),
}
EUR_PER_GB_MONTH = Decimal("0.0865")


def bill_minutes(number: int, until: int) -> int:
    """Minutes for which the machine is billed, each run rounded up."""
    changes = [*PHASES[number], (10**6, "ended")]
    spans = [(at, min(end, until)) for (at, state), (end, _) in pairwise(changes) if state in BILLED]
    return sum(end - at for at, end in spans if end > at)


BILLED = (RUNNING, STANDBY, "starting")


def test_the_truth_lies_inside_the_interval_at_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TokenBucket, "acquire", lambda *_, **__: True)  # the pace is the day's, not this machine's
    rig, rules, disk_gb = ScalewayRig(), ShippedFacts().get_billing_rules(), 500
    rules = {**rules, "scaleway": rules["scaleway"]}
    url = f"sqlite:///{tmp_path}/ledger.db"
    changes = sorted((at, number, state) for number, phases in PHASES.items() for at, state in phases)
    ids = {number: machine(number, START).id for number in PHASES}
    disk = {**block_volume(1, START, disk_gb), "created_at": START.isoformat()}
    rig.fake.blocks[ZONE] = [disk]
    checked = 0
    with rig.opened(tmp_path) as source, LedgerWriter(url, rules=rules, ceilings={}) as ledger:
        at = START
        while at <= START + DAY:
            while changes and START + timedelta(minutes=changes[0][0]) <= at:
                minute, number, state = changes.pop(0)
                if rig.fake.find(ids[number]) is None:
                    made = machine(number, START + DAY, state=state)  # which makes it a day earlier
                    made.created = START + timedelta(minutes=minute)
                    rig.fake.resources.append(made)
                rig.fake.let(ids[number], state)
            rig.clock.at = at
            polled = poll_sources([source], ledger, rig.clock)
            assert not polled.unseen, polled.unseen
            minutes = round((at - START) / timedelta(minutes=1))
            if minutes and minutes % 60 == 0:
                with SpendingReader(url, rules=rules) as books:
                    spent = {one.key.id: one.money for one in books.spent(at)}
                for number, id_ in ids.items():
                    truth = bill_minutes(number, minutes) * USD_PER_MINUTE
                    low, high = (spent[id_].low.to_decimal(), spent[id_].high.to_decimal()) if id_ in spent else (0, 0)
                    assert low - Decimal("1e-6") <= truth <= high + Decimal("1e-6"), (number, minutes, low, truth, high)
                    checked += bool(truth)
                dollars = EUR_PER_GB_MONTH / Decimal("0.80") * disk_gb * minutes / (730 * 60)
                money = spent[disk["id"]]
                assert money.low.to_decimal() <= dollars <= money.high.to_decimal(), (minutes, money, dollars)
            at += STEP
    assert checked > 60
    assert spent[ids[4]].low.to_decimal() > 20  # a whole day in standby, surely billed but for where its listings lag
