"""What the ledger answers is what its spans say, reckoned one by one, in any period and at any time."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from costguard.errors import InputError
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.reports.reader import ReportReader
from costguard.ledger.spans.books import SpendingReader
from costguard.ledger.spans.scope_state import load_scopes
from costguard.ledger.spans.writer import LedgerWriter
from costguard.metering.accrual import POLL_GAP, find_dearest_meters, find_last_seen, find_unobserved_usage
from costguard.metering.billing import get_billing_rule
from costguard.metering.inventory import Poll
from costguard.metering.meter import COMPUTE, LARGEST_PRICE
from costguard.metering.observation import Observation, Price
from costguard.metering.span import KnownUntil, Span, compute_charge, compute_known_until, count_expected_us
from costguard.metering.spending import PollStretch, ScopeCoverage, Spending
from costguard.reporting.statement.sections import sum_resource_costs
from costguard.values.calendar import Period
from costguard.values.instant import to_micros
from costguard.values.money import Rate
from costguard.values.resource import ENDED, INSTANCE, Attribution, ResourceKey
from tests.campaign import examples
from tests.ledger.fleet import (
    CEILINGS,
    DAY,
    HERE,
    HOUR,
    MINUTE,
    RULES,
    START,
    THERE,
    asked,
    copies,
    histories,
    machine,
    poll,
)
from tests.ledger.spans import Kept, all_spans

FEW = settings(max_examples=examples(20), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
MOMENTS = st.integers(-2 * 86_400_000_000, 20 * 86_400_000_000).map(lambda us: START + timedelta(microseconds=us))
Sums = dict[tuple[Attribution, str, str, bool], tuple[int, int, int, int]]


@pytest.fixture
def fresh(url: str) -> Iterator[Callable[[], str]]:
    with copies(url) as copy:
        yield copy


def recorded(url: str, *polls: Poll) -> str:
    with LedgerWriter(url, rules=RULES, ceilings=CEILINGS) as book:
        book.record_polls(polls)
    return url


def books(url: str) -> SpendingReader:
    return SpendingReader(url, rules=RULES)


def summed(found: list[Spending]) -> Sums:
    """The amounts of each group; a group stands in an answer once."""
    sums = {
        (one.attribution, one.charge, one.money.low.currency, one.known): (
            one.money.low.nano,
            one.money.expected.nano,
            one.money.high.nano,
            one.us,
        )
        for one in found
    }
    assert len(sums) == len(found)
    return sums


def reaches(url: str, as_of: datetime) -> Callable[[Kept], KnownUntil]:
    """How far each open span goes, by what a writer would remember."""
    scopes = asked(url, load_scopes)
    known = {name: (state, one) for book in scopes.values() for state in [book.state] for name, one in state.resources.items()}

    def reach(kept: Kept) -> KnownUntil:
        state, one = known[kept.span.key]
        return compute_known_until(
            start=kept.span.start,
            complete_at=state.complete_at,
            logged_at=one.logged_at,
            seen_at=one.seen_at,
            absent_at=one.absent_at,
            lag=timedelta(seconds=get_billing_rule(RULES, state.scope.provider).lag_s),
            as_of=as_of,
        )

    return reach


def unheard_of(url: str, as_of: datetime) -> dict[ResourceKey, tuple[Span, ...]]:
    """What may have billed beside it, of each resource that a writer would remember."""
    return {
        name: find_unobserved_usage(
            one,
            find_last_seen(one, book.state),
            as_of,
            rule=(rule := get_billing_rule(RULES, book.state.scope.provider)),
            dearest=find_dearest_meters(one.observation, rule, {}),
            gap=POLL_GAP,
        )
        for book in asked(url, load_scopes).values()
        for name, one in book.state.resources.items()
    }


def reckoned(url: str, period: Period, as_of: datetime) -> Sums:
    """The same the slow way: every span of the ledger, one after another."""
    reach = reaches(url, as_of)
    sums: dict[tuple[Attribution, str, str, bool], list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for kept in asked(url, all_spans):
        span, far = kept.span, None if kept.span.end else reach(kept)
        money = compute_charge(span, period, far)
        counts = span.meter.charge == COMPUTE and span.attribution.kind == INSTANCE
        until = to_micros(period.end) if far is None else min(to_micros(period.end), to_micros(far.expected))
        us = count_expected_us(span, to_micros(period.start), until) if counts else 0
        place = sums[span.attribution, span.meter.charge, span.meter.price.currency, span.meter.price.known]
        for index, more in enumerate((money.low.nano, money.expected.nano, money.high.nano, us)):
            place[index] += more
    for span in (span for some in unheard_of(url, as_of).values() for span in some):
        place = sums[span.attribution, span.meter.charge, span.meter.price.currency, span.meter.price.known]
        place[2] += compute_charge(span, period).high.nano
    return {place: (low, expected, high, us) for place, (low, expected, high, us) in sums.items() if high or us}


@FEW
@given(said=histories(), ends=st.tuples(MOMENTS, MOMENTS).map(sorted), as_of=MOMENTS)
def test_spending_is_what_every_span_comes_to(
    fresh: Callable[[], str], said: list[Poll], ends: list[datetime], as_of: datetime
) -> None:
    url, period = recorded(fresh(), *said), Period(start=ends[0], end=ends[1])
    with books(url) as found:
        assert summed(found.load_spending(period, as_of)) == reckoned(url, period, as_of)


@FEW
@given(said=histories(), ends=st.lists(MOMENTS, min_size=2, max_size=5).map(sorted), as_of=MOMENTS)
def test_the_parts_of_a_period_add_up_to_it(
    fresh: Callable[[], str], said: list[Poll], ends: list[datetime], as_of: datetime
) -> None:
    url = recorded(fresh(), *said)
    parts: dict[tuple[Attribution, str, str, bool], list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    with books(url) as found:
        for start, end in pairwise(ends):
            for place, sums in summed(found.load_spending(Period(start=start, end=end), as_of)).items():
                for index, more in enumerate(sums):
                    parts[place][index] += more
        whole = summed(found.load_spending(Period(start=ends[0], end=ends[-1]), as_of))
    assert {place: tuple(sums) for place, sums in parts.items()} == whole


@FEW
@given(said=histories(), as_of=MOMENTS)
def test_what_lives_is_what_a_writer_remembers_as_not_ended(
    fresh: Callable[[], str], said: list[Poll], as_of: datetime
) -> None:
    url = recorded(fresh(), *said)
    reach, spans, silent = reaches(url, as_of), asked(url, all_spans), unheard_of(url, as_of)
    known = {
        name: (book.state.scope, one)
        for book in asked(url, load_scopes).values()
        for name, one in book.state.resources.items()
        if one.observation.state != ENDED
    }
    with books(url) as found:
        living = found.load_live(as_of)
    assert {one.observation.key: one.scope for one in living} == {name: scope for name, (scope, _) in known.items()}
    for one in living:
        _, remembered = known[one.observation.key]
        assert (one.observation, one.first_seen_at, one.absent_at) == (
            remembered.observation,
            remembered.first_seen_at,
            remembered.absent_at,
        )
        assert {span.line: span for span in one.open} == remembered.open
        low = expected = high = 0
        for kept in (kept for kept in spans if kept.span.key == one.observation.key):
            span = kept.span
            money = compute_charge(
                span, Period(start=span.start, end=max(span.start, span.end or as_of)), None if span.end else reach(kept)
            )
            low, expected, high = low + money.low.nano, expected + money.expected.nano, high + money.high.nano
        assert one.unheard == silent[one.observation.key]
        high += sum(compute_charge(span, Period(start=span.start, end=as_of)).high.nano for span in one.unheard)
        assert (one.spent.low.nano, one.spent.expected.nano, one.spent.high.nano) == (low, expected, high)


def test_machines_that_look_alike_are_read_as_one_and_others_by_themselves(url: str) -> None:
    def stopped(number: int, state: str = "stopped", **other: Any) -> Observation:  # noqa: ANN401 - any field
        one = machine(f"i-{number}", state, labels=(("run", str(number)), ("team", "vision")))
        return replace(one, **{"name": f"run {number}"} | other)

    other_price = (Price(Rate.parse("9")),)
    unlike: tuple[dict[str, Any], ...] = (
        {"owner": "eve"},
        {"labels": (("team", "speech"),)},
        {"prices": other_price},
        {"instance_type": "h2"},
    )
    fleet = [*map(stopped, range(3)), *(stopped(3 + number, **other) for number, other in enumerate(unlike))]
    running = stopped(8, "running")
    recorded(url, poll(0, *fleet, stopped(7, "running"), running), poll(2, *fleet, stopped(7, "running"), running))
    recorded(url, poll(3, *fleet[1:], stopped(7), running))  # one is lacking, one stopped since the last look
    as_of, silent = START + DAY, unheard_of(url, START + DAY)
    with ReportReader(url, rules=RULES) as found:
        _, unobserved = found.load_burning(as_of)
        spent = summed(found.load_spending(Period(start=START, end=as_of), as_of))
        costs = found.load_costs(Period(start=START, end=as_of), as_of)
        assert {one.observation.key: one.unheard for one in found.load_live(as_of)} == silent
    assert sorted(len(one.numbers) for one in unobserved) == [1] * 6 + [2]
    assert spent == reckoned(url, Period(start=START, end=as_of), as_of) == summed(sum_resource_costs(costs))
    assert len({one.number for one in costs}) == len(fleet) + 2


def test_an_open_span_reaches_as_far_as_its_scope_and_at_most_until_now(url: str) -> None:
    recorded(url, poll(0, machine(created_at=START, started_at=START)), poll(10, machine(created_at=START, started_at=START)))
    with books(url) as found:
        (one,) = found.load_spending(Period(start=START, end=START + DAY), START + HOUR)
    seconds = (570, 3600, 3600)  # ten minutes less the thirty seconds that the listing may lag; an hour
    assert [one.money.low.nano, one.money.expected.nano, one.money.high.nano] == [
        round(Fraction(2 * 10**9 * s, 3600)) for s in seconds
    ]


@pytest.mark.usefixtures("any_date")
def test_bounds_beyond_64_bits_are_summed_exactly(url: str) -> None:
    fleet = [machine(f"i-{n}", usd=None, gpu="", gpu_count=1000, created_at=START, started_at=START) for n in range(300)]
    recorded(url, poll(0, *fleet), poll(60_000, *(replace(one, state="ended", stopped_at=START + 41 * DAY) for one in fleet)))
    period = Period(start=START + 2 * HOUR, end=START + 2 * HOUR + 40 * DAY)
    with books(url) as found:
        (one,) = found.load_spending(period, START + 50 * DAY)
    assert one.money.high.nano == 300 * 40 * 24 * LARGEST_PRICE > 2**63
    assert not one.known


def test_scopes_say_how_well_they_are_seen(url: str) -> None:
    recorded(
        url,
        poll(0, machine()),
        poll(1, machine()),
        poll(2, failed="503 from the provider"),
        poll(3, failed="503 from the provider"),
        poll(3, machine("i-2"), scope=THERE, partial="page 2 was lost"),
    )
    with books(url) as found:
        there, here = found.list_scopes()
    assert here == ScopeCoverage(
        scope=HERE,
        outcome="failed",
        at=START + 3 * MINUTE,
        since=START + 2 * MINUTE,
        last_complete_at=START + MINUTE,
        why="503 from the provider",
        first_at=START,
    )
    assert (there.scope, there.outcome, there.last_complete_at, there.why) == (THERE, "partial", None, "page 2 was lost")


def test_stretches_are_whole_and_those_that_touch_the_period(url: str) -> None:
    recorded(url, poll(0), poll(5), poll(6, failed="503"), poll(9), poll(20, scope=THERE))
    with books(url) as found:
        assert found.load_stretches(Period(start=START + 2 * MINUTE, end=START + 7 * MINUTE)) == [
            PollStretch(scope=HERE, outcome="complete", start=START, end=START + 5 * MINUTE, polls=2),
            PollStretch(scope=HERE, outcome="failed", start=START + 6 * MINUTE, end=START + 6 * MINUTE, polls=1, why="503"),
        ]
        assert [one.scope for one in found.load_stretches(Period(start=START, end=START + DAY))] == [THERE, HERE, HERE, HERE]


def test_a_snapshot_is_of_one_instant_whatever_is_written_meanwhile(url: str) -> None:
    recorded(url, poll(0, machine()))
    count = "SELECT count(*) FROM resource"
    with LedgerReader(url) as reader:
        with reader.snapshot() as ask:
            assert ask(count, ())[0][0] == 1
            recorded(url, poll(1, machine(), machine("i-2")))
            assert ask(count, ())[0][0] == 1
        with reader.snapshot() as ask:
            assert ask(count, ())[0][0] == 2


def test_nothing_can_be_written_through_a_reader(url: str) -> None:
    recorded(url, poll(0, machine()))
    with LedgerReader(url) as reader, pytest.raises(Exception, match=r"read-?only"), reader.snapshot() as ask:
        ask("UPDATE ledger_state SET revision = 7", ())


def test_a_ledger_that_is_not_there_yet_says_what_makes_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nothing\.db: there is no ledger here yet\n.*run costguard init"):
        books(f"sqlite:///{tmp_path}/nothing.db")
    assert list(tmp_path.iterdir()) == []


def test_reading_starts_without_migrations_and_other_drivers(sqlite_url: str) -> None:
    recorded(sqlite_url, poll(0, machine()))
    program = f"""
import sys
from datetime import UTC, datetime
from costguard.ledger.spans.books import SpendingReader
with SpendingReader({sqlite_url!r}, rules={{}}) as books:
    assert len(books.load_live(datetime(2026, 11, 2, tzinfo=UTC))) == 1
heavy = {{"alembic", "psycopg"}} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", program], check=True)
