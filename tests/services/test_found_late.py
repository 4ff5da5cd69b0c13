"""A machine that costguard sees late: how narrow a watchdog's reading of its bill makes what it cost, at once."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from costguard_sim.world import Run

from bench.found_late import GOALS
from costguard.bills.bill_line import BillLine, BillLines
from costguard.ledger.bills.store import BillStore
from costguard.ledger.db.maintenance import check_ledger
from costguard.ledger.spans.books import SpendingReader
from costguard.ledger.spans.writer import LedgerWriter
from costguard.metering.billing import BillTerms, get_billing_rule
from costguard.services.report.reconcile import BillAnswer, import_answers
from costguard.values.calendar import Period
from costguard.values.money import Money
from tests.fakes.server import Answer
from tests.ledger.fleet import CEILINGS, HOUR, RULES, START, machine, poll
from tests.ledger.found_late import BORN_US, FOUND_LATE, HOUR_US, NOW_US, Amounts, make_runpod, measure_found_late
from tests.ledger.test_evidence import FIRST
from tests.providers.runpod.rig import RunpodRig


@pytest.mark.parametrize("provider", FOUND_LATE)
def test_a_machine_found_after_thirty_hours_is_narrowed_at_once(provider: str, tmp_path: Path) -> None:
    make_rig, make_resource = FOUND_LATE[provider]
    url = f"sqlite:///{tmp_path}/ledger.db"
    found = measure_found_late(make_rig(), make_resource(), tmp_path, url)
    assert found.compute_width(found.after) <= GOALS[provider]
    assert found.after.low - 2 <= found.truth <= found.after.high + 2
    assert provider == "lambda" or found.before.width > 10 * found.after.width
    assert check_ledger(url) == []


def edit_bill(**metadata: int) -> Callable[[Answer], Answer]:
    def edit(right: Answer) -> Answer:
        body = json.loads(right.body)
        return Answer.of({**body, "metadata": {**body["metadata"], **metadata}})

    return edit


def test_an_answer_that_lacks_records_says_nothing_of_the_hours_without_one(tmp_path: Path) -> None:
    rig = RunpodRig()
    rig.fake.fault("/v2/billing/pods", "edit", edit=edit_bill(recordCount=9))
    found = measure_found_late(rig, make_runpod(), tmp_path, f"sqlite:///{tmp_path}/ledger.db")
    assert found.after == found.before


def test_a_pod_that_ran_before_and_was_started_again_costs_what_its_hours_say(tmp_path: Path) -> None:
    runs = (Run(start_us=BORN_US, stop_us=BORN_US + 10 * HOUR_US), Run(start_us=NOW_US - 50 * 60 * 10**6))
    found = measure_found_late(RunpodRig(), make_runpod(*runs), tmp_path, f"sqlite:///{tmp_path}/ledger.db")
    assert found.compute_width(found.after) < 0.05
    assert found.after.low - 2 <= found.truth <= found.after.high + 2


def test_a_line_without_an_invoice_narrows_once_it_is_stated_again_after_its_lag(tmp_path: Path) -> None:
    """An export of every day, whose month is closed on the 8th: the ledger writes nothing for a line that it has already."""
    url, terms = (
        f"sqlite:///{tmp_path}/ledger.db",
        BillTerms(asked="daily", step_s=3600, settles_s=86400, estimated_lag_s=86400, estimated_percent=5),
    )
    rules = {**RULES, "acme": replace(get_billing_rule(RULES, "acme"), bill=terms)}
    with LedgerWriter(url, rules=rules, ceilings=CEILINGS) as ledger:
        ledger.record_polls([poll(1800, machine(created_at=START)), poll(1801, machine(created_at=START))])
        ledger.record_polls([poll(1802), poll(1804), poll(1804 + 4 * 1440)])
    day = Period(start=FIRST, end=FIRST + timedelta(days=1))
    line = BillLine(
        id="i-1/1",
        provider="acme",
        account="lab",
        start=day.start,
        end=day.end,
        amount=Money.parse("24"),
        charge="compute",
        resource_id="i-1",
        region="west-1",
        estimated=True,
    )

    def read_bill(after: timedelta) -> Amounts:
        now = FIRST + after
        new = replace(line, id=f"i-2/{after}", resource_id="i-2", start=now - HOUR, end=now)
        asked = Period(start=day.start, end=now)
        answer = BillAnswer(name="acme", providers=("acme",), period=asked, billed=BillLines(lines=(line, new)))
        with BillStore(url, rules=rules) as bills:
            (done,) = import_answers(bills, [answer], who="watch", now=now)
            bills.apply_evidence("acme", day, now=now)
            assert done.added == (2 if after < timedelta(days=2) else 1)
        with SpendingReader(url, rules=rules) as books:
            (money,) = (one.money for one in books.load_spending(day, FIRST + timedelta(days=6)))
        return Amounts(money.low.nano, money.expected.nano, money.high.nano)

    early, later = read_bill(25 * HOUR), read_bill(49 * HOUR)
    assert early.low == later.low == int((Decimal(24) * Decimal("0.95")).scaleb(9)) - 5_000_000
    assert (early.high, later.high) == (48 * 10**9, int((Decimal(24) * Decimal("1.05")).scaleb(9)) + 5_000_000)
    assert check_ledger(url) == []
