"""What each machine surely cost since midnight, since the first of the month, and in its present run: to the nano-unit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings

from costguard.guard.context import GuardConfig
from costguard.guard.policy_evaluation import (
    NO_COST_FACTS,
    FactInputs,
    add_cost_facts,
    build_facts,
    compute_price_age,
    compute_runways,
    find_spending_starts,
)
from costguard.guard.signals import Activity
from costguard.ledger.spans.books import SpendingReader
from costguard.ledger.spans.writer import LedgerWriter
from costguard.metering.inventory import Poll
from costguard.metering.observation import Disk, Price
from costguard.metering.span import compute_charge
from costguard.services.guarding.guard_snapshot import load_cost_facts
from costguard.settings import load_zone
from costguard.values.calendar import Period
from costguard.values.money import Money, PrepaidBalance, Rate
from costguard.values.resource import ENDED
from tests.campaign import examples
from tests.guard.cases import policy
from tests.ledger.fleet import CEILINGS, HOUR, MINUTE, RULES, START, asked, copies, histories, key, machine, poll
from tests.ledger.spans import all_spans
from tests.ledger.test_reading import reaches

MIDNIGHT = START + 2 * HOUR
BERLIN = load_zone("Europe/Berlin", "zone")
FEW = settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def fresh(url: str) -> Iterator[Callable[[], str]]:
    with copies(url) as copy:
        yield copy


def told(url: str, *polls: Poll) -> str:
    with LedgerWriter(url, rules=RULES, ceilings=CEILINGS) as ledger:
        for one in polls:
            ledger.record_polls([one])
    return url


def since(url: str, as_of: datetime, *names: str, name: str = "i-1") -> dict[str, str]:
    """What `name` cost since the start of each of `names`: "3.50 USD"."""
    with SpendingReader(url, rules=RULES) as books:
        found = books.load_paid_since(find_spending_starts(names, UTC, as_of), as_of).get(key(name), {})
    return {fact: f"{money.format()} {money.currency}" for fact, money in found.items()}


EVERY = ("spent_run", "spent_day", "spent_month")


def test_a_run_a_day_and_a_month_are_cut_where_they_begin(url: str) -> None:
    seen = machine(started_at=START, created_at=START)
    told(url, poll(0, seen), *(poll(minutes, seen) for minutes in range(60, 241, 60)))
    now = START + 4 * HOUR + MINUTE  # sure until 30 s before the last listing, as old as one of this provider may be
    assert since(url, now, *EVERY) == {"spent_run": "7.98 USD", "spent_day": "3.98 USD", "spent_month": "3.98 USD"}


def test_what_nobody_priced_is_missing_and_a_priced_disk_beside_it_counts(url: str) -> None:
    bare = machine(usd=None, started_at=MIDNIGHT, created_at=MIDNIGHT)
    with_disk = machine("i-2", usd=None, started_at=MIDNIGHT, created_at=MIDNIGHT, disks=(Disk(7200, "ssd"),))
    told(url, poll(120, bare, with_disk), poll(180.5, bare, with_disk))
    assert since(url, START + 181 * MINUTE, *EVERY) == {}
    assert since(url, START + 181 * MINUTE, "spent_day", name="i-2") == {"spent_day": "0.80 USD"}


def test_another_currency_is_told_as_it_is_and_two_of_them_are_not_added(url: str) -> None:
    def priced(text: str, currency: str) -> tuple[Price, ...]:
        return (Price(Rate.parse(text, currency)),)

    euros = machine(prices=priced("2", "EUR"), started_at=START, created_at=START)
    dollars = machine(prices=priced("2", "USD"), started_at=START, created_at=START)
    told(url, poll(0, euros), poll(60.5, euros))
    assert since(url, START + 60.5 * MINUTE, "spent_run") == {"spent_run": "2.00 EUR"}
    told(url, *(poll(minutes, euros) for minutes in (116, 119)), poll(120, dollars), poll(180.5, dollars))
    assert since(url, START + 181 * MINUTE, *EVERY) == {"spent_day": "2.00 USD", "spent_month": "2.00 USD"}


def test_the_day_is_that_of_the_zone() -> None:
    at = datetime(2026, 10, 31, 23, 30, tzinfo=UTC)
    starts = find_spending_starts(EVERY, BERLIN, at)
    assert starts == {
        "spent_run": None,
        "spent_day": datetime(2026, 10, 31, 23, tzinfo=UTC),
        "spent_month": datetime(2026, 10, 31, 23, tzinfo=UTC),
    }
    assert find_spending_starts(("runway",), BERLIN, at) == {}


@FEW
@given(polls=histories())
def test_each_sum_is_what_its_spans_say_one_by_one(fresh: Callable[[], str], polls: list[Poll]) -> None:
    url = told(fresh(), *polls)
    as_of = max(one.seen_at for one in polls) + MINUTE
    start = as_of - 30 * HOUR
    with SpendingReader(url, rules=RULES) as books:
        found = books.load_paid_since({"x": start}, as_of)
        living = {one.observation.key for one in books.load_live(as_of) if one.observation.state != ENDED}
    reach, slow = reaches(url, as_of), defaultdict[tuple[object, str], int](int)
    for kept in asked(url, all_spans):
        span = kept.span
        touches = span.end is None or span.end > start
        if span.key in living and span.meter.price.known and touches:
            money = compute_charge(span, Period(start=start, end=as_of), None if span.end else reach(kept))
            slow[span.key, span.meter.price.currency] += money.low.nano
    assert {(one, money.currency): money.nano for one, of in found.items() for money in of.values()} == dict(slow)


def test_since_when_it_is_stopped_is_when_the_ledger_first_saw_it_so(url: str) -> None:
    stopped = machine(state="stopped")
    renamed = machine(state="stopped", owner="ada")
    told(url, poll(0, machine()), poll(60, stopped), poll(120, renamed), poll(180), poll(240, renamed))
    with SpendingReader(url, rules=RULES) as books:
        assert books.load_stopped_since() == {key("i-1"): START + HOUR}
    told(url, poll(300, machine()), poll(360, stopped))
    with SpendingReader(url, rules=RULES) as books:
        assert books.load_stopped_since() == {key("i-1"): START + 6 * HOUR}


def test_conditions_get_what_they_name_and_nobody_is_asked_for_the_rest(url: str) -> None:
    seen = machine(usd="60", started_at=MIDNIGHT, created_at=MIDNIGHT)
    told(url, poll(120, seen), poll(180.5, seen))
    now = START + 181 * MINUTE
    with SpendingReader(url, rules=RULES) as books:
        live = books.load_live(now)
        none = load_cost_facts(GuardConfig(admin_route=True, policies=(policy(),)), books, live, (), now)
        assert none == NO_COST_FACTS
        rules = GuardConfig(admin_route=True, policies=(policy(when={"spent_day": 1, "price_age": 2}),))
        found = load_cost_facts(rules, books, live, (), now)
    assert {name: money.format() for name, money in found.paid[key("i-1")].items()} == {"spent_day": "60.00"}
    facts = build_facts(
        live[0], Activity(), add_cost_facts(FactInputs(), live[0], found, now), now, ("spent_day", "spent_run", "price_age")
    )
    assert facts == {"spent_day": Money.parse("60.00"), "price_age": timedelta(seconds=30)}


def test_a_price_is_as_old_as_its_date_or_the_listing_that_stated_it(url: str) -> None:
    dated = machine("i-2", prices=(Price(Rate.parse("2"), since=START - HOUR, source="spot history"),))
    undated = machine("i-3", prices=(Price(Rate.parse("2"), source="catalogue"),))
    bare = machine("i-4", usd=None)
    told(url, poll(0, machine(), dated, undated, bare))
    with SpendingReader(url, rules=RULES) as books:
        live = {one.observation.key.id: one for one in books.load_live(START + HOUR)}
    ages = {name: compute_price_age(one, START + HOUR) for name, one in live.items()}
    assert ages == {"i-1": HOUR, "i-2": 2 * HOUR, "i-3": None, "i-4": None}


def test_a_runway_is_known_where_the_balance_and_every_price_are(url: str) -> None:
    told(url, poll(0, machine(started_at=START)))
    with SpendingReader(url, rules=RULES) as books:
        live = books.load_live(START)
    full = PrepaidBalance(provider="acme", account="lab", at=START, amount=Money.parse("7"))
    silent = PrepaidBalance(provider="acme", account="lab", at=START, amount=None, why="403")
    assert compute_runways([full], live, START) == {("acme", "lab"): 3.5 * HOUR}
    assert compute_runways([silent], live, START) == {}
