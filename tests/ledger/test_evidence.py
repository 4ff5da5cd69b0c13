"""Settled bill lines narrow doubtful charges; whatever speaks against a line leaves them as they were."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from costguard_sim.world import Rate, Run, to_us

from costguard.bills import evidence as weighing
from costguard.bills.bill_line import BillLine
from costguard.budgets.agreement import Agreement, apply_agreements
from costguard.ledger.bills import evidence, facts, store
from costguard.ledger.bills.evidence import EvidenceResult
from costguard.ledger.bills.staging import StagedStatement
from costguard.ledger.bills.store import BillStore, GatheredStatement
from costguard.ledger.bills.unfinished import ShortTransactions
from costguard.ledger.db.codecs import Execute, Query, SqlRow
from costguard.ledger.db.maintenance import check_ledger
from costguard.ledger.db.rows import delete_rows
from costguard.ledger.spans.books import SpendingReader
from costguard.ledger.spans.writer import LedgerWriter
from costguard.ledger.types import LedgerRow
from costguard.metering.charge_item import ChargeItem
from costguard.metering.price_ladder import PriceLadder
from costguard.reporting.focus.rows import build_rows
from costguard.values.calendar import Period
from costguard.values.money import Money
from costguard.values.provider import Seller
from tests.fakes.server import START as FAKES_START
from tests.fakes.vast import machine as vast_machine
from tests.ledger.fleet import CEILINGS, DAY, HOUR, RULES, START, asked, machine, poll
from tests.ledger.found_late import Amounts, playing
from tests.providers.lambda_.rig import LambdaRig
from tests.providers.lambda_.rig import machine as lambda_machine
from tests.providers.vast.rig import VastRig

HOUR_US, MINUTE_US = 3600 * 10**6, 60 * 10**6
NOON_US = to_us(FAKES_START)
DOLLAR = 10**9
FIRST = datetime(2026, 11, 1, tzinfo=UTC)
ALL = Period(start=FIRST - 2 * DAY, end=FIRST + 30 * DAY)
NOW = FIRST + 5 * DAY


def test_a_vast_machine_found_after_thirty_hours_costs_what_its_bill_says(tmp_path: Path, url: str) -> None:
    rig, begun = VastRig(), NOON_US - 30 * HOUR_US
    rates = (Rate(at_us=begun, nano=20 * DOLLAR),)
    rig.fake.resources.append(vast_machine(24815377, created_us=begun, runs=(Run(start_us=begun),), rates=rates))
    with playing(rig, tmp_path, url) as played:
        played.poll()
        played.poll(minutes=1)
        rig.fake.let("24815377", "ended")
        played.poll(minutes=1)
        played.poll(minutes=2)
        before = played.compute_spent()
        played.poll(days=2)
        played.read_bill()
        after, cost = played.compute_spent(), played.compute_truth(rig.fake.resources[0])
    assert before.width > 0.99 * cost
    assert after.low <= cost <= after.high
    assert after.width <= 0.01 * cost
    assert check_ledger(url) == []


def line(number: int = 0, dollars: str = "24", **more: Any) -> BillLine:  # noqa: ANN401 - any field
    """What i-1 was billed for the day `number` of November."""
    said: dict[str, Any] = {
        "id": f"i-1:{number}",
        "provider": "acme",
        "account": "lab",
        "start": FIRST + number * DAY,
        "end": FIRST + (number + 1) * DAY,
        "amount": Money(nano=int(Decimal(dollars).scaleb(9))),
        "charge": "compute",
        "resource_id": "i-1",
        "region": "west-1",
        "description": "h1",
    }
    return BillLine(**said | more)


def hours(count: int, dollars: str, **more: Any) -> list[BillLine]:  # noqa: ANN401 - any field
    """What i-1 was billed for the first hours of November."""
    return [
        line(0, dollars, id=f"i-1:hour:{n}", start=FIRST + n * HOUR, end=FIRST + (n + 1) * HOUR, **more) for n in range(count)
    ]


def take_in(url: str, *lines: BillLine, at: datetime = NOW, whole: bool = True, now: datetime = NOW) -> EvidenceResult:
    """Take a bill in, and say what it does."""
    with StagedStatement() as staged, BillStore(url, rules=RULES) as bills:
        staged.add((one, Decimal(0)) for one in lines)
        of = (("acme",), ALL) if whole else None
        bills.import_statements([GatheredStatement(staged=staged, source="a test", stated_at=at, asked=of)], who="ada", now=now)
        return bills.apply_evidence("acme", ALL, now=now)


class _Items(list[ChargeItem]):
    sellers: Mapping[str, Seller] = {}


def spent(url: str, period: Period = ALL) -> Amounts:
    with SpendingReader(url, rules=RULES) as books:
        money = [one.money for one in books.load_spending(period, NOW)]
        items = [one.money for one in books.items(period, NOW)]
    sums = [Amounts(*(sum(getattr(m, end).nano for m in every) for end in Amounts._fields)) for every in (money, items)]
    assert sums[0] == sums[1], "an export says what a report says"
    return sums[0]


@pytest.fixture
def found(url: str) -> str:
    """A ledger in which i-1, at $2 an hour, was found on November 2, 04:00, 30 hours old, and ended a minute later."""
    with LedgerWriter(url, rules=RULES, ceilings=CEILINGS) as ledger:
        ledger.record_polls([poll(1800, machine(created_at=START)), poll(1801, machine(created_at=START))])
        ledger.record_polls([poll(1802), poll(1804), poll(1804 + 4 * 1440)])
    return url


DAY_ONE = Period(start=FIRST, end=FIRST + DAY)


def test_a_days_line_narrows_its_day_and_no_other(found: str) -> None:
    before, beside = spent(found), spent(found, Period(start=FIRST + DAY, end=ALL.end))
    result = take_in(found, line(0, "24"))
    assert spent(found, DAY_ONE) == (24 * DOLLAR - 5_000_000, 24 * DOLLAR, 24 * DOLLAR + 5_000_000), "rounded to cents"
    assert spent(found, Period(start=FIRST + DAY, end=ALL.end)) == beside
    assert before.width - spent(found).width == 48 * DOLLAR - 10_000_000
    assert [(one.lines, one.resources, one.doubt) for one in result.summaries] == [(1, 1, 48 * DOLLAR)]
    assert check_ledger(found) == []


def test_a_part_of_a_billed_day_holds_every_way_in_which_its_bill_can_be_spread(found: str) -> None:
    take_in(found, line(0, "24"))
    half = Period(start=FIRST, end=FIRST + 12 * HOUR)
    assert spent(found, half) == (0, 12 * DOLLAR, 24 * DOLLAR), "twelve of the day's hours, before or after noon"
    take_in(found, line(0, "40"), at=NOW + HOUR)
    assert spent(found, half) == (16 * DOLLAR - 5_000_000, 20 * DOLLAR, 24 * DOLLAR)


def test_the_import_that_withdraws_a_line_takes_back_what_it_narrowed(found: str) -> None:
    """In its own transaction, although no line of the new statement is of that day."""
    before = spent(found, DAY_ONE)
    take_in(found, line(0, "24"))
    with StagedStatement() as staged, BillStore(found, rules=RULES) as bills:
        staged.add([(line(-1, "0.1", id="other", resource_id="i-2"), Decimal(0))])
        of = (("acme",), ALL)
        bills.import_statements([GatheredStatement(staged=staged, source="x", stated_at=NOW, asked=of)], who="ada", now=NOW)
    assert spent(found, DAY_ONE) == before


def test_lines_of_an_unfinished_import_narrow_nothing_and_count_when_it_ends(
    found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bill in two transactions: between them, another process weighs the bills, and spends as before."""
    take_in(found, line(0, "24"))
    before, seen, pause = spent(found), list[Amounts](), ShortTransactions.pause
    load, loads, writing = facts.load_bill_facts, list[bool](), list[bool]()

    def watch(ask: Query, *rest: Any) -> facts.BillFacts:  # noqa: ANN401 - what it is given
        loads.append(bool(writing))
        return load(ask, *rest)

    def look(self: ShortTransactions) -> None:
        pause(self)
        with BillStore(found, rules=RULES) as beside:
            assert beside.apply_evidence("acme", ALL, now=NOW).corrections == 0
        seen.append(spent(found))

    def finish(tell: Execute, row: type[LedgerRow], keys: Sequence[SqlRow]) -> None:
        writing.append(True)
        delete_rows(tell, row, keys)

    monkeypatch.setattr(ShortTransactions, "pause", look)
    monkeypatch.setattr(store, "load_bill_facts", watch)
    monkeypatch.setattr(evidence, "load_bill_facts", watch)
    monkeypatch.setattr(store, "delete_rows", finish)
    with StagedStatement() as staged, BillStore(found, rules=RULES, hold_s=0) as bills:
        staged.add((one, Decimal(0)) for one in (line(0, "30.5"), line(1, "1", id="future", resource_id="i-2")))
        bills.import_statements([GatheredStatement(staged=staged, source="x", stated_at=NOW)], who="ada", now=NOW)
    assert set(seen) == {before}
    assert loads[-1] is False, "the bills are read before the last transaction, and not again in it"
    assert spent(found, DAY_ONE).expected == 30_500_000_000
    assert check_ledger(found) == []


def test_a_restated_line_supersedes_and_a_withdrawn_one_takes_back(found: str) -> None:
    before = spent(found)
    take_in(found, line(0, "24"))
    take_in(found, line(0, "30.5"), at=NOW + HOUR)
    assert spent(found, DAY_ONE).expected == 30_500_000_000
    take_in(found, line(0, "1", resource_id="i-2", id="other"), at=NOW + 2 * HOUR)
    assert spent(found) == before
    assert check_ledger(found) == []


BAD: dict[str, tuple[Callable[[], list[BillLine]], str]] = {
    "another account": (lambda: [line(account="other")], ""),
    "another resource": (lambda: [line(resource_id="i-9")], ""),
    "another currency": (lambda: [line(amount=Money(nano=24 * DOLLAR, currency="EUR"))], weighing.CURRENCY),
    "stated twice": (lambda: [line(), line(id="again")], weighing.TWICE),
    "hours beside their day": (lambda: [line(), *hours(3, "1")], weighing.OVERLAP),
    "of the future": (lambda: [line(9)], weighing.FUTURE),
    "estimated": (lambda: [line(estimated=True)], weighing.LATE),
    "of two days": (lambda: [line(end=FIRST + 2 * DAY)], weighing.LONG),
    "negative": (lambda: [line(0, "-3")], weighing.NEGATIVE),
    "dearer than a day can be": (lambda: [line(0, "48.5")], weighing.ABOVE),
    "of a time when it was gone": (lambda: [line(2, "5")], weighing.ABOVE),
    "beside a contradiction": (lambda: [*hours(2, "1"), *hours(3, "2.5")[2:]], weighing.BLOCKED),
}


@pytest.mark.parametrize("name", BAD)
def test_a_line_that_something_speaks_against_narrows_nothing_and_is_named(found: str, name: str) -> None:
    lines, reason = BAD[name]
    before = spent(found)
    result = take_in(found, *lines())
    assert spent(found) == before
    assert result.summaries == ()
    assert (reason in {one.reason for one in result.findings}) == bool(reason), "what is of no doubtful resource is drift"
    assert check_ledger(found) == []


@pytest.fixture
def seen(url: str) -> str:
    """A ledger in which i-1, at $2 an hour, was seen to run all of November 1, until 26 hours after START or so."""
    with LedgerWriter(url, rules=RULES, ceilings=CEILINGS) as ledger:
        looks = range(120, 1600, 4)
        ledger.record_polls([poll(at, machine(started_at=START + 2 * HOUR)) for at in looks])
        ledger.record_polls([poll(1602), poll(1604), poll(6000)])
    return url


def test_a_bill_at_a_discount_wins_over_the_list_price(seen: str) -> None:
    """0.58 of $48 are $27.84: for a report, a cap (its low end) and the cost of FOCUS, whose list cost stays $48."""
    rest = Period(start=FIRST + DAY, end=ALL.end)
    after = spent(seen, rest)
    result = take_in(seen, line(0, "27.84"))
    assert spent(seen, DAY_ONE) == (27_835_000_000, 27_840_000_000, 27_845_000_000), "rounded to cents"
    assert spent(seen, rest) == after
    assert [(one.repriced, one.counted, one.billed) for one in result.summaries] == [(1, 48 * DOLLAR, 27_840_000_000)]
    assert result.findings == ()
    with SpendingReader(seen, rules=RULES) as books:
        (row,) = build_rows(_Items(list(books.items(DAY_ONE, NOW))))
        (spending,) = books.load_spending(DAY_ONE, NOW)
    costs = {name: str(row[name]) for name in ("BilledCost", "EffectiveCost", "ContractedCost", "ListCost", "ConsumedQuantity")}
    assert costs == {
        "BilledCost": "27.840000000",
        "EffectiveCost": "27.840000000",
        "ContractedCost": "48.000000000",
        "ListCost": "48.000000000",
        "ConsumedQuantity": "24.000000000000",
    }
    assert spending.us == DAY // timedelta(microseconds=1), "it ran all day: the price is another one, not the time"
    assert check_ledger(seen) == []
    take_in(seen, line(0, "1", resource_id="i-2", id="other"), at=NOW + HOUR)
    assert spent(seen, DAY_ONE) == (48 * DOLLAR,) * 3, "withdrawn: the list price again"
    assert check_ledger(seen) == []


def test_an_hour_without_a_line_keeps_its_price(seen: str) -> None:
    """A bill of half a day says nothing of the other half, where it certainly ran: decision 0150."""
    take_in(seen, *hours(12, "1.16"))
    half = 12 * HOUR
    assert spent(seen, Period(start=FIRST, end=FIRST + half)).expected == 13_920_000_000
    assert spent(seen, Period(start=FIRST + half, end=FIRST + DAY)) == (24 * DOLLAR,) * 3


def test_lines_of_one_period_are_taken_for_all_of_it(seen: str) -> None:
    """Of two lines of an hour, a bill that lacks one cannot be told from a lower price: what is documented as its limit."""
    both = (line(0, "0.80", id="a", end=FIRST + HOUR, description="core"), line(0, "1.20", id="b", end=FIRST + HOUR))
    hour = Period(start=FIRST, end=FIRST + HOUR)
    take_in(seen, *both)
    assert spent(seen, hour) == (2 * DOLLAR,) * 3
    take_in(seen, both[0], at=NOW + HOUR)
    assert spent(seen, hour).low <= spent(seen, hour).expected == 800_000_000
    take_in(seen, *both, at=NOW + 2 * HOUR)
    assert spent(seen, hour) == (2 * DOLLAR,) * 3, "the whole bill puts it right"


def test_an_agreed_price_is_the_contracted_cost_and_its_list_price_the_list_cost(url: str) -> None:
    """$2 listed, 25 % off agreed, and the bill says $30 for the day: 48, 36 and 30."""
    agreed = Agreement(name="EDP", source="contract 4711", discount=Fraction(1, 4))
    ladder = PriceLadder(drift={}, agree=partial(apply_agreements, (agreed,)))
    with LedgerWriter(url, rules=RULES, ceilings=CEILINGS, ladder=ladder) as ledger:
        ledger.record_polls([poll(at, machine(started_at=START + 2 * HOUR)) for at in range(120, 1700, 4)])
    assert spent(url, DAY_ONE) == (36 * DOLLAR,) * 3
    take_in(url, line(0, "30"))
    with SpendingReader(url, rules=RULES) as books:
        (row,) = build_rows(_Items(list(books.items(DAY_ONE, NOW))))
    costs = [Decimal(str(row[name])) for name in ("ListCost", "ContractedCost", "BilledCost", "EffectiveCost", "ListUnitPrice")]
    assert costs == [48, 36, 30, 30, 2]
    assert row["x_PriceBasis"] == "agreed"


def test_a_rate_that_bills_state_is_the_low_end_of_every_such_machine_at_once(url: str) -> None:
    """48 hours at $2, each billed $1.16: 0.580 of the price, for every such machine of the account, and for no other."""
    both = (machine(started_at=START + 2 * HOUR), machine("i-2", started_at=FIRST + 5 * DAY), machine("i-3", gpu_count=2))
    with LedgerWriter(url, rules=RULES, ceilings=CEILINGS, ladder=PriceLadder(drift={})) as ledger:
        ledger.record_polls([poll(at, both[0]) for at in range(120, 6000, 4)])
        take_in(url, *(hour_line(n) for n in range(4)))
        ledger.record_polls([poll(6004, both[0])])
        assert open_price(url) == ("listing", 2 * DOLLAR, 2 * DOLLAR, 2 * DOLLAR), "four lines of one day are no rate"
        take_in(url, *(hour_line(n) for n in range(48)))
        ledger.record_polls([poll(7322, *both)])
        source = "learned, 0.580 of the price by settled bills; list 2.000000000 USD: listing"
        assert open_price(url) == open_price(url, "i-2") == (source, 1_160_000_000, 2 * DOLLAR, 2 * DOLLAR)
        assert open_price(url, "i-3")[0] == "listing", "of two GPUs no bill says anything"
    assert check_ledger(url) == []


def test_a_plan_that_covers_one_of_two_machines_teaches_no_rate(url: str) -> None:
    both = (machine(started_at=START + 2 * HOUR), machine("i-2", started_at=START + 2 * HOUR))
    with LedgerWriter(url, rules=RULES, ceilings=CEILINGS, ladder=PriceLadder(drift={})) as ledger:
        ledger.record_polls([poll(at, *both) for at in range(120, 6000, 4)])
        take_in(url, *(hour_line(n) for n in range(48)))
        ledger.record_polls([poll(6004, *both)])
        assert open_price(url) == open_price(url, "i-2") == ("listing", 2 * DOLLAR, 2 * DOLLAR, 2 * DOLLAR)


def test_a_running_machine_at_a_learned_price_costs_its_next_bill(url: str) -> None:
    runs = machine(started_at=START + 2 * HOUR)
    with LedgerWriter(url, rules=RULES, ceilings=CEILINGS, ladder=PriceLadder(drift={})) as ledger:
        ledger.record_polls([poll(at, runs) for at in range(120, 3000, 4)])
        take_in(url, *(hour_line(n) for n in range(46)))
        ledger.record_polls([poll(at, runs) for at in range(3004, 7000, 4)])
        hour = Period(start=FIRST + 72 * HOUR, end=FIRST + 73 * HOUR)
        assert spent(url, hour) == (1_160_000_000, 2 * DOLLAR, 2 * DOLLAR)
        take_in(url, *(hour_line(n) for n in range(80)))
        assert spent(url, hour).expected == 1_160_000_000
        with SpendingReader(url, rules=RULES) as books:
            (spending,) = books.load_spending(hour, NOW)
        assert spending.us == HOUR // timedelta(microseconds=1)
    assert check_ledger(url) == []


def hour_line(number: int) -> BillLine:
    return line(0, "1.16", id=f"h{number}", start=FIRST + number * HOUR, end=FIRST + (number + 1) * HOUR)


def open_price(url: str, name: str = "i-1") -> tuple[str, int, int, int]:
    """Source and price of the open span of a machine."""
    query = (
        "SELECT external_id, price_source, price_low, price_expected, price_high FROM span"
        " JOIN resource ON resource.id = resource_id WHERE end_us IS NULL AND charge = 'compute'"
    )
    (row,) = (tuple(row[1:]) for row in asked(url, lambda ask: ask(query, ())) if row[0] == name)
    return row


def test_a_bill_above_the_list_price_never_raises_what_a_hard_cap_counts(seen: str) -> None:
    take_in(seen, line(0, "60"))
    low, expected, high = spent(seen, DAY_ONE)
    assert (low, expected, high) == (48 * DOLLAR, 60 * DOLLAR, 60_005_000_000)
    parts = [spent(seen, Period(start=FIRST + n * HOUR, end=FIRST + (n + 1) * HOUR)) for n in range(24)]
    assert sum(one.expected for one in parts) == 60 * DOLLAR
    assert sum(one.low for one in parts) <= low
    assert check_ledger(seen) == []


def test_a_machine_that_still_runs_costs_its_bill_until_the_bills_end(url: str) -> None:
    """Its span is closed there and goes on: once for a bill, again for the next day's, and polls continue as before."""
    runs = machine(started_at=START + 2 * HOUR)
    with LedgerWriter(url, rules=RULES, ceilings=CEILINGS) as ledger:
        ledger.record_polls([poll(at, runs) for at in range(120, 3000, 4)])
        take_in(url, line(0, "27.84"))
        assert spent(url, DAY_ONE).expected == 27_840_000_000
        ledger.record_polls([poll(at, runs) for at in range(3000, 6000, 4)])
        take_in(url, line(0, "27.84"), line(1, "12"))
        assert spent(url, DAY_ONE).expected == 27_840_000_000
        assert spent(url, Period(start=FIRST + DAY, end=FIRST + 2 * DAY)).expected == 12 * DOLLAR
        assert spent(url, Period(start=FIRST + 2 * DAY, end=FIRST + 3 * DAY)).expected == 48 * DOLLAR
        ledger.record_polls([poll(6000, machine(state="stopped", started_at=START + 2 * HOUR, stopped_at=FIRST + 4 * DAY))])
    assert check_ledger(url) == []
    take_in(url, line(0, "27.84"), line(1, "12"))
    assert asked(url, lambda ask: ask("SELECT count(*) FROM span", ())[0][0]) == 3
    assert spent(url, Period(start=FIRST + 3 * DAY, end=FIRST + 4 * DAY)).expected == 48 * DOLLAR
    assert check_ledger(url) == []


def test_a_bill_that_shifts_an_hour_states_no_price(seen: str) -> None:
    """It bills the end of the run a bucket late: too little in one hour, and more than possible after the end."""
    before = spent(seen)
    shifted = (line(0, "1", id="a", end=FIRST + HOUR), line(1, "3", id="b", start=FIRST + 26 * HOUR, end=FIRST + 27 * HOUR))
    assert spent(seen).expected == before.expected
    result = take_in(seen, *shifted)
    assert {one.reason for one in result.findings} == {weighing.ABOVE}
    assert spent(seen).expected == before.expected - DOLLAR, "the hour in which it surely ran costs its bill"


def test_a_crash_between_import_and_correction_leaves_neither(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = spent(found)

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(evidence, "encode_parts", fail)
        with pytest.raises(KeyboardInterrupt):
            take_in(found, line(0, "24"))
    assert asked(found, lambda ask: ask("SELECT count(*) FROM bill_line", ())[0][0]) == 0
    assert spent(found) == before
    take_in(found, line(0, "24"))
    assert spent(found, DAY_ONE).expected == 24 * DOLLAR


def test_a_poll_that_corrects_a_billed_span_counts_it_once(url: str) -> None:
    """A machine vanishes, its bill says how long it ran, and then the same run is listed again."""
    seen = machine(started_at=START)
    with LedgerWriter(url, rules=RULES, ceilings=CEILINGS) as ledger:
        ledger.record_polls([poll(1, seen), poll(62, seen), poll(64), poll(66), poll(300)])
        hour = {"start": START + HOUR, "end": START + 2 * HOUR}
        take_in(url, line(0, "0.1", **hour))
        assert check_ledger(url) == []
        narrowed = spent(url)
        ledger.record_polls([poll(302, seen), poll(303, seen)])
    assert check_ledger(url) == []
    assert spent(url).low > narrowed.low
    take_in(url, line(0, "0.1", **hour), at=NOW + timedelta(hours=1))
    assert check_ledger(url) == []


def test_a_lambda_machine_found_after_thirty_hours_has_run_since_its_boot(tmp_path: Path, url: str) -> None:
    """Lambda states no bill and no start; its audit log dates the launch, and its rule bounds the boot."""
    rig, begun = LambdaRig(), NOON_US - 30 * HOUR_US
    rig.fake.resources.append(lambda_machine("i-00000", start_us=begun, boot_us=9 * MINUTE_US))
    with playing(rig, tmp_path, url) as played:
        played.poll()
        played.poll(minutes=1)
        found, cost = played.compute_spent(), played.compute_truth(rig.fake.resources[0])
    assert found.low <= cost <= found.high
    assert found.width <= 0.05 * cost


def test_a_line_that_was_stated_before_its_day_was_over_narrows_nothing_later(found: str) -> None:
    before = spent(found)
    result = take_in(found, line(0, "24"), at=FIRST + 12 * HOUR)
    assert spent(found) == before
    assert {one.reason for one in result.findings} == {weighing.FUTURE}
