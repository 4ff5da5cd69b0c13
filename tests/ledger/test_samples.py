"""Samples: written once, kept one by one for two days, then an hour a row with their exact number, and 400 days in all."""

from __future__ import annotations

import gc
import math
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, event

from costguard.errors import InputError
from costguard.ledger.db.connection import open_engine
from costguard.ledger.db.maintenance import check_ledger
from costguard.ledger.spans import sample_retention
from costguard.ledger.spans.books import SpendingReader
from costguard.ledger.spans.sample_retention import (
    HOUR_RETENTION,
    ROLL_UP_HOURS,
    SAMPLE_RETENTION,
    keep_samples_bounded,
    roll_up_samples,
)
from costguard.ledger.spans.writer import LedgerWriter, record_samples
from costguard.values.calendar import Period
from costguard.values.instant import HOUR_US, from_micros, to_micros
from costguard.values.sample import Sample, SampleHour
from tests.campaign import examples
from tests.ledger.fleet import CEILINGS, HOUR, MINUTE, RULES, START, copies, key, machine, poll

pytestmark = pytest.mark.usefixtures("without_pauses")
ALWAYS = Period(start=START - timedelta(days=9), end=START + timedelta(days=500))


@pytest.fixture
def known(url: str) -> str:
    """A ledger that knows two machines."""
    with LedgerWriter(url, rules=RULES, ceilings=CEILINGS) as book:
        book.record_polls([poll(0, machine("i-1"), machine("i-2"))])
    return url


@pytest.fixture
def engine(known: str) -> Iterator[Engine]:
    opened = open_engine(known)
    yield opened
    opened.dispose()


def sample(minutes: float, value: float, name: str = "i-1", signal: str = "gpu_duty") -> Sample:
    return Sample(key=key(name), signal=signal, at=START + minutes * MINUTE, value=value)


def raw(url: str, name: str = "i-1", signal: str = "gpu_duty") -> list[Sample]:
    with SpendingReader(url, rules=RULES) as books:
        return books.samples(key(name), signal, ALWAYS)


def hours(url: str, name: str = "i-1", signal: str = "gpu_duty") -> list[SampleHour]:
    with SpendingReader(url, rules=RULES) as books:
        return books.hours(key(name), signal, ALWAYS)


def test_a_sample_told_twice_is_one_and_the_first_stays(engine: Engine, known: str) -> None:
    record_samples(engine, [sample(1, 5), sample(1, 6)])
    record_samples(engine, [sample(1, 7), sample(2, 8)])
    assert [one.value for one in raw(known)] == [5, 8]


def test_samples_of_unknown_resources_are_left_out_and_named(engine: Engine, known: str) -> None:
    assert record_samples(engine, [sample(1, 5), sample(1, 6, "i-9")]) == {key("i-9")}
    assert [one.value for one in raw(known)] == [5]
    assert record_samples(engine, []) == frozenset()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e19])
def test_what_is_no_number_is_no_sample(value: float) -> None:
    with pytest.raises(InputError, match="gpu_duty of i-1"):
        sample(1, value)


def test_an_hour_is_rolled_up_once_it_ended_two_days_ago_and_not_before(engine: Engine, known: str) -> None:
    record_samples(engine, [sample(0, 1), sample(59, 4), sample(60, 2), sample(30, 9, "i-2")])
    assert roll_up_samples(engine, START + HOUR + SAMPLE_RETENTION - MINUTE) == 0
    assert roll_up_samples(engine, START + HOUR + SAMPLE_RETENTION) == 3
    assert roll_up_samples(engine, START + HOUR + SAMPLE_RETENTION) == 0
    assert [one.value for one in raw(known)] == [2]
    assert hours(known) == [
        SampleHour(start=START, count=2, sum=5, lowest=1, highest=4),
        SampleHour(start=START + HOUR, count=1, sum=2, lowest=2, highest=2),
    ]
    assert hours(known, "i-2") == [SampleHour(start=START, count=1, sum=9, lowest=9, highest=9)]


def test_what_waited_for_weeks_is_rolled_up_hours_at_a_time_and_goes_on_where_it_was_killed(
    engine: Engine, known: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sample_retention, "ROLL_UP_LINES", 3)
    signals, now = ("gpu_duty", "power"), START + 8 * 24 * HOUR + SAMPLE_RETENTION
    lines = [(name, signal) for name in ("i-1", "i-2") for signal in signals]
    record_samples(engine, [sample(7 * n, n, *line) for n in range(8 * 24 * 60 // 7) for line in lines])
    before, transactions = [hours(known, *line) for line in lines], list[int]()

    def kill(*seen: Any) -> None:  # noqa: ANN401 - as SQLAlchemy has them
        if str(seen[2]).startswith("DELETE FROM sample"):
            transactions.append(seen[1].rowcount)
            if len(transactions) % 9 == 0:
                raise KeyboardInterrupt

    event.listen(engine, "after_cursor_execute", kill)
    killed = 0
    while any(raw(known, *line) for line in lines):
        with suppress(KeyboardInterrupt):
            roll_up_samples(engine, now)
        gc.collect()  # a death frees the connection that the interrupt left in a cycle of tracebacks
        killed += 1
        assert [hours(known, *line) for line in lines] == before
    assert killed > 5
    assert 1 < max(transactions) <= 3 * ROLL_UP_HOURS * 9  # a sample every seven minutes


def test_hours_are_removed_after_400_days_and_nothing_else(engine: Engine, known: str) -> None:
    record_samples(engine, [sample(60 * hour, hour, name) for hour in range(30) for name in ("i-1", "i-2")])
    now = START + 10 * HOUR + HOUR_RETENTION
    assert keep_samples_bounded(engine, now)[:2] == (60, 20)
    assert keep_samples_bounded(engine, now)[:2] == (0, 0)
    assert [hour.start for hour in hours(known)] == [START + n * HOUR for n in range(10, 30)]
    assert check_ledger(known) == []
    record_samples(engine, [sample(5, 1)])  # comes 400 days late: it is no hour that is kept
    assert keep_samples_bounded(engine, now)[:2] == (1, 1)


def test_an_hour_that_was_rolled_up_is_never_counted_twice(engine: Engine, known: str) -> None:
    said = [sample(0, 1), sample(10, 3)]
    record_samples(engine, said)
    roll_up_samples(engine, START + HOUR + SAMPLE_RETENTION)
    record_samples(engine, [*said, sample(20, 50)])
    assert raw(known) == []
    assert roll_up_samples(engine, START + 9 * HOUR + SAMPLE_RETENTION) == 0
    assert hours(known) == [SampleHour(start=START, count=2, sum=4, lowest=1, highest=3)]


@pytest.mark.parametrize("word", ["INSERT", "DELETE"])
def test_a_crash_in_the_middle_of_a_roll_up_leaves_all_as_it_was(engine: Engine, known: str, word: str) -> None:
    record_samples(engine, [sample(minute, minute) for minute in range(130)])
    before, by_hour = raw(known), hours(known)

    def crash(*seen: object) -> None:
        if str(seen[2]).strip().startswith(word):
            raise KeyboardInterrupt

    event.listen(engine, "after_cursor_execute", crash)
    with pytest.raises(KeyboardInterrupt):
        roll_up_samples(engine, START + 9 * HOUR + SAMPLE_RETENTION)
    assert (raw(known), hours(known)) == (before, by_hour)
    event.remove(engine, "after_cursor_execute", crash)
    assert roll_up_samples(engine, START + 9 * HOUR + SAMPLE_RETENTION) == 130
    assert (raw(known), hours(known)) == ([], by_hour)


@settings(max_examples=examples(15), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    said=st.dictionaries(
        st.tuples(st.sampled_from(["i-1", "i-2"]), st.sampled_from(["gpu_duty", "power", "a b"]), st.integers(0, 50 * 3600)),
        st.integers(-(2**40), 2**40),
        max_size=40,
    ),
    nows=st.lists(st.integers(0, 120), max_size=4),
)
def test_hours_are_the_same_before_and_after_they_are_rolled_up(
    known: str, said: dict[tuple[str, str, int], int], nows: list[int]
) -> None:
    with copies(known) as fresh:
        url = fresh()
        engine = open_engine(url)
        record_samples(engine, [sample(seconds / 60, value, name, signal) for (name, signal, seconds), value in said.items()])
        for now in nows:
            roll_up_samples(engine, START + now * HOUR)
        engine.dispose()
        for name in ("i-1", "i-2"):
            for signal in ("gpu_duty", "power", "a b"):
                places: dict[int, list[int]] = defaultdict(list)
                for (whose, what, seconds), value in said.items():
                    if (whose, what) == (name, signal):
                        places[(to_micros(START) + seconds * 1_000_000) // HOUR_US].append(value)
                assert hours(url, name, signal) == [
                    SampleHour(start=from_micros(hour * HOUR_US), count=len(v), sum=sum(v), lowest=min(v), highest=max(v))
                    for hour, v in sorted(places.items())
                ]
