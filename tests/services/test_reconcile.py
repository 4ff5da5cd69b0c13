"""The simulated clouds' own bill, which shares nothing with costguard, held against what polls of them came to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from costguard_sim.bill import charge_resource
from costguard_sim.clouds import SimClouds
from costguard_sim.world import Rate, World, make_world, to_us

from costguard.bills.bill_line import COMPUTE, BillLine
from costguard.bills.drift import BEYOND, DEFAULT_TOLERANCE, UNSURE, WITHIN, DriftResult
from costguard.bills.reconciliation import RATE, UNBILLED, UNSEEN
from costguard.data import ShippedFacts
from costguard.ledger.bills.reader import BillLedgerReader
from costguard.ledger.bills.staging import StagedStatement
from costguard.ledger.bills.store import BillStore, GatheredStatement
from costguard.ledger.spans.books import SpendingReader
from costguard.ledger.spans.writer import LedgerWriter
from costguard.metering.billing import DAILY, BillTerms
from costguard.services.poll.poll import poll_sources
from costguard.services.report.reconcile import (
    BillAnswer,
    BillComparison,
    _convert_lines,
    _find_currency_mismatches,
    ask_for_bills,
    reconcile_bills,
)
from costguard.testing import FakeClock
from costguard.values.calendar import Period
from costguard.values.money import Money, parse_exchange_rate
from tests.bills.test_drift import HOURS as HOURS_BILLED
from tests.bills.test_drift import RATE as PRICE
from tests.bills.test_drift import bill, day, every, line

START = datetime(2026, 11, 3, tzinfo=UTC)
MONTH = Period(start=datetime(2026, 11, 1, tzinfo=UTC), end=datetime(2026, 12, 1, tzinfo=UTC))
RULES = ShippedFacts().get_billing_rules()
CLOUDS = ("sim-aws", "sim-gcp", "sim-lambda", "sim-runpod", "sim-vast")
DAY = timedelta(days=1)
EVERY, HOURS = timedelta(minutes=20), 74


@pytest.fixture(scope="module")
def world() -> World:
    return make_world(7, start=START, days=4, size=12)


@pytest.fixture(scope="module")
def polled(world: World, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A ledger that saw the world every twenty minutes for three days."""
    url, clock = f"sqlite:///{tmp_path_factory.mktemp('sim')}/ledger.db", FakeClock(START)
    sim = SimClouds(clock=clock, world=world)
    with LedgerWriter(url, rules=RULES, ceilings={}) as ledger:
        while clock.now() < START + timedelta(hours=HOURS):
            poll_sources([sim], ledger, clock)
            clock.advance(EVERY)
    return url


def held(url: str, world: World, now: datetime) -> tuple[BillComparison, list[BillAnswer]]:
    """The bill of `world` asked for at `now` and held against the ledger."""
    asked = ask_for_bills([("sim", SimClouds(clock=FakeClock(now), world=world))], MONTH, now)
    statements = list[GatheredStatement]()
    with BillStore(url) as bills:
        for one in asked:
            staged = StagedStatement()
            staged.add((line, Decimal(0)) for line in (one.billed.lines if one.billed else ()))
            of = (one.providers, one.period)
            statements.append(GatheredStatement(staged=staged, source="sim, asked", stated_at=now, asked=of))
        bills.import_statements(statements, who="a test", now=now)
    for statement in statements:
        statement.staged.__exit__(None, None, None)
    with BillLedgerReader(url) as books, SpendingReader(url, rules=RULES) as charges:
        found = reconcile_bills(
            bills=books,
            charges=charges,
            providers=CLOUDS,
            period=MONTH,
            now=now,
            tolerance=DEFAULT_TOLERANCE,
            missing={},
            periods=dict.fromkeys(CLOUDS, asked[0].period),
            rules=RULES,
        )
    return found, asked


def causes(results: Sequence[DriftResult]) -> set[str]:
    return {part.cause for one in results for part in one.parts if not part.explained}


def test_the_bill_of_a_world_that_was_watched_is_within_tolerance(polled: str, world: World) -> None:
    found, _ = held(polled, world, START + timedelta(hours=HOURS))
    assert {one.provider for one in found.results} == set(CLOUDS)
    assert {one.outcome for one in found.results} == {WITHIN}
    assert causes(found.results) == set()
    assert found.unstated == ()


def test_a_bill_of_days_and_months_in_los_angeles_is_the_charges(polled: str, world: World) -> None:
    """Its days reach over two days in UTC, and its month begins at 07:00 UTC, before which nothing is of it."""
    now, lines = START + timedelta(hours=HOURS), list[BillLine]()
    cloud = [one for one in world.resources if one.cloud == "sim-gcp"]
    for number in range(5):
        start = datetime(2026, 11, 2, 8, tzinfo=UTC) + number * DAY
        end = min(start + DAY, now)
        for resource in cloud if start < now else ():
            for part in charge_resource(resource, to_us(start), to_us(end)):
                lines.append(
                    BillLine(
                        id=f"{resource.id}/{start}/{part.charge}/{len(lines)}",
                        provider="sim-gcp",
                        account=resource.account,
                        start=start,
                        end=end,
                        amount=Money(nano=round(part.amount * 10**9)),
                        charge=part.charge,
                        resource_id=resource.id,
                        statement="Pacific days",
                    )
                )
    pacific = BillTerms(asked=DAILY, step_s=86_400, settles_s=86_400, zone="America/Los_Angeles")
    rules = {"sim-gcp": replace(RULES["sim-gcp"], bill=pacific)}
    staged = StagedStatement()
    staged.add((line, Decimal(0)) for line in lines)
    with BillStore(polled) as bills:
        bills.import_statements([GatheredStatement(staged=staged, source="days", stated_at=now)], who="a test", now=now)
    staged.__exit__(None, None, None)
    with BillLedgerReader(polled) as books, SpendingReader(polled, rules=RULES) as charges:
        found = reconcile_bills(
            bills=books,
            charges=charges,
            providers=("sim-gcp",),
            period=MONTH,
            now=now,
            tolerance=DEFAULT_TOLERANCE,
            missing={},
            periods={},
            rules=rules,
        )
    (one,) = found.results
    assert (one.outcome, one.unexplained) == (WITHIN, 0)
    assert (one.period.start.isoformat(), one.period.length) == ("2026-11-01T07:00:00+00:00", timedelta(hours=721))


@pytest.mark.sampled(4, first=2)
@pytest.mark.parametrize("cloud", ["sim-aws", "sim-gcp", "sim-lambda", "sim-runpod"])
def test_a_cloud_that_bills_another_rate_is_found_and_no_other(polled: str, world: World, cloud: str) -> None:
    def dearer(rates: tuple[Rate, ...]) -> tuple[Rate, ...]:
        return tuple(replace(rate, nano=rate.nano * 5 // 4) for rate in rates)

    resources = tuple(replace(one, rates=dearer(one.rates)) if one.cloud == cloud else one for one in world.resources)
    found, _ = held(polled, replace(world, resources=resources), START + timedelta(hours=HOURS))
    outcomes = {one.provider: one.outcome for one in found.results}
    assert outcomes == {name: BEYOND if name == cloud else WITHIN for name in CLOUDS}
    wrong = [part for one in found.results for part in one.parts if part.cause == RATE]
    assert bool(wrong) == (cloud == "sim-lambda"), "the others ran for less than two days that are known exactly"
    assert all("1.2500 times" in part.reason and "would fit" in part.reason for part in wrong)


def test_a_bill_without_a_machine_and_one_with_a_strange_one_are_found(polled: str, world: World) -> None:
    (gone, *_) = sorted((one for one in world.resources if one.cloud == "sim-aws" and one.runs), key=lambda one: one.created_us)
    resources = tuple(replace(gone, id="i-strange") if one is gone else one for one in world.resources)
    found, _ = held(polled, replace(world, resources=resources), START + timedelta(hours=HOURS))
    (aws,) = [one for one in found.results if one.provider == "sim-aws"]
    named = {part.cause: part.named for part in aws.parts}
    assert aws.outcome == BEYOND
    assert named[UNSEEN] == ("i-strange",)
    assert named[UNBILLED] == (gone.id,)


def test_sources_that_answer_for_others_or_have_no_bill_are_said(world: World) -> None:
    clock = FakeClock(START + DAY)

    class Odd(SimClouds):
        @property
        def providers(self) -> Sequence[str]:
            return ("odd",)

    class Silent:
        providers = ("silent",)

    sources = [("odd", Odd(clock=clock, world=world)), ("silent", Silent())]
    asked = ask_for_bills(sources, MONTH, clock.now())  # type: ignore[arg-type]  # on purpose
    assert [(one.name, one.billed) for one in asked] == [("odd", None), ("silent", None)]
    assert ["of other accounts" in asked[0].why, "no bill" in asked[1].why] == [True, True]


def test_a_bill_of_no_resources_in_another_currency_is_never_added() -> None:
    """Google's standard export names no machine: all of it stands beside all that was charged of its kind."""
    billed = line(PRICE * HOURS_BILLED, resource="", last=HOURS_BILLED - 1, currency="EUR")
    owed_for = [*day(HOURS_BILLED), *day(HOURS_BILLED, resource="pod-2")]
    others = _find_currency_mismatches([billed], owed_for)
    assert set(others) == {("main", resource, COMPUTE) for resource in ("", "pod-1", "pod-2")}
    results = every([billed], owed_for, others=others)
    assert {(one.currency, one.outcome) for one in results} == {("EUR", UNSURE), ("USD", UNSURE)}
    assert {part.reason for one in results for part in one.parts} == {
        "in EUR, and the charges or the bill in USD: currencies are not added",
        "in USD, and the charges or the bill in EUR: currencies are not added",
    }
    assert _find_currency_mismatches([billed, billed._replace(currency="USD")], owed_for) == {}
    named = [billed, *bill(count=HOURS_BILLED)]
    assert _find_currency_mismatches(named, owed_for) == {}, "where lines name resources, one without is of none"


def test_a_bill_in_another_currency_is_compared_at_the_rate_of_its_day() -> None:
    rates = [parse_exchange_rate(text, "rates") for text in ("1 USD = 0.5 EUR on 1970-01-01", "1 USD = 0.8 EUR on 1970-01-02")]
    labels = set[str]()
    euros = [line(PRICE, currency="EUR"), line(PRICE, first=24, currency="EUR")]
    converted = list(_convert_lines(euros, {"USD"}, rates, labels))
    assert [(one.currency, one.nano) for one in converted] == [("USD", 2 * PRICE), ("USD", PRICE * 10 // 8)]
    assert len(labels) == 2
    assert list(_convert_lines(euros, {"USD"}, (), labels)) == euros, "without a rate it is named, not guessed"
    assert list(_convert_lines(euros, {"USD", "EUR"}, rates, labels)) == euros, "what is charged in EUR is compared in EUR"
