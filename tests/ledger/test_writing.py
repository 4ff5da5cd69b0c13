"""Polls become rows: in one transaction, the same in any grouping, and what is remembered can be read again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Insert, Update

from costguard.errors import LedgerError
from costguard.ledger.db.codecs import decode_observation, encode_observation
from costguard.ledger.spans.posting import PollTransaction
from costguard.ledger.spans.scope_state import MEMORY_SPAN, ScopeRecord, load_attributions, load_scopes
from costguard.ledger.spans.writer import LedgerWriter
from costguard.metering.inventory import Poll
from costguard.metering.meter import COMPUTE
from costguard.metering.observation import Disk, Observation, Price, TrafficCounter
from costguard.metering.span import split_by_day
from costguard.values.instant import to_micros
from costguard.values.money import Rate
from costguard.values.resource import INSTANCE, KINDS, STATES, TIERS, ScopeKey, is_storable
from tests.campaign import examples
from tests.ledger.fleet import CEILINGS, DAY, HERE, RULES, START, THERE, asked, copies, histories, key, machine, poll, rows
from tests.ledger.spans import all_spans

FEW = settings(max_examples=examples(20), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def ledger(url: str) -> LedgerWriter:
    return LedgerWriter(url, rules=RULES, ceilings=CEILINGS)


def same_as_read(book: LedgerWriter, url: str) -> None:
    """What `book` remembers is what the ledger says."""
    read = asked(url, load_scopes)
    books = {scope: one for account in book._memory.values() for scope, one in account.books.items()}
    assert sorted(books) == sorted(read)
    for name, account in book._memory.items():
        assert list(account.books) == list(asked(url, lambda ask, name=name: load_scopes(ask, name)))  # type: ignore[misc]
    for scope, found in read.items():
        held = books[scope]
        assert held.state == found.state
        assert (held.id, held.coverage, held.ids) == (found.id, found.coverage, found.ids)
    known = {number: a for account in book._memory.values() for a, number in account.attributions.items()}
    assert known == asked(url, load_attributions)
    opened = {number for account in book._memory.values() for number in account.open_spans.values()}
    assert opened == {number for (number,) in asked(url, lambda ask: ask("SELECT id FROM span WHERE end_us IS NULL", ()))}


def remembered(book: LedgerWriter, scope: ScopeKey) -> ScopeRecord:
    return book._memory[scope.provider, scope.account].books[scope]


@pytest.fixture
def fresh(url: str) -> Iterator[Callable[[], str]]:
    with copies(url) as copy:
        yield copy


@FEW
@given(said=histories())
def test_what_is_remembered_is_what_the_ledger_says_after_each_poll(fresh: Callable[[], str], said: list[Poll]) -> None:
    url = fresh()
    with ledger(url) as book:
        for one in said:
            book.record_polls([one])
            same_as_read(book, url)


@FEW
@given(said=histories(), cuts=st.sets(st.integers(1, 11)))
def test_any_grouping_of_polls_leaves_the_same_rows(fresh: Callable[[], str], said: list[Poll], cuts: set[int]) -> None:
    singly, grouped, anew = fresh(), fresh(), fresh()
    with ledger(singly) as book:
        alone = [book.record_polls([one])[0] for one in said]
    with ledger(grouped) as book:
        edges = [0, *sorted(cut for cut in cuts if cut < len(said)), len(said)]
        together = [found for a, b in pairwise(edges) for found in book.record_polls(said[a:b])]
    for one in said:  # a process that remembers nothing
        with ledger(anew) as book:
            book.record_polls([one])
    assert together == alone
    assert rows(grouped) == rows(singly) == rows(anew)


@FEW
@given(said=histories())
def test_replayed_polls_change_nothing(fresh: Callable[[], str], said: list[Poll]) -> None:
    url = fresh()
    with ledger(url) as book:
        book.record_polls(said)
        before, revision = rows(url), revision_of(url)
        again = book.record_polls(said)
        assert not any(found.fresh for found in again)
        assert (rows(url), revision_of(url)) == (before, revision)


@FEW
@given(said=histories())
def test_roll_ups_and_amounts_are_what_the_spans_come_to(fresh: Callable[[], str], said: list[Poll]) -> None:
    url = fresh()
    with ledger(url) as book:
        book.record_polls(said)
    days: dict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for kept in asked(url, all_spans):
        if kept.span.end is None:
            assert kept.stored == (None, None, None)
            continue
        meter = kept.span.meter
        counts = meter.charge == COMPUTE and kept.span.attribution.kind == INSTANCE
        total = [0, 0, 0]
        for day, money, us in split_by_day(kept.span):
            place = days[day, kept.attribution_id, meter.charge, meter.price.currency, int(meter.price.known)]
            for index, nano in enumerate(money):
                place[index] += nano
                total[index] += nano
            place[3] += us if counts else 0
        assert kept.stored == tuple(total)
    assert rows(url)["daily"] == sorted((*place, *sums) for place, sums in days.items())


def revision_of(url: str) -> int:
    found = asked(url, lambda ask: ask("SELECT coalesce(sum(revision), 0) FROM account_state", ()))
    return int(found[0][0])


def test_a_poll_without_change_is_one_update_of_the_scope_s_coverage(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wrote: list[tuple[str, Any]] = []
    write = PollTransaction._write

    def spied(self: PollTransaction, statement: Insert | Update, values: list[Any]) -> None:
        if values:
            wrote.append((" ".join(str(statement).split()[:2]), values))
        write(self, statement, values)

    with ledger(url) as book:
        book.record_polls([poll(0, machine("i-1"), machine("i-2"))])
        monkeypatch.setattr(PollTransaction, "_write", spied)
        book.record_polls([poll(1, machine("i-1"), machine("i-2"))])
    covered = {"row": 1, "end_us": to_micros(START) + 60_000_000, "polls": 2}
    assert wrote == [("UPDATE coverage", [covered]), ("UPDATE account_state", [{"row": 1, "revision": 2}])]
    (kept,) = rows(url)["coverage"]
    assert kept == (1, 1, "complete", "", to_micros(START), to_micros(START) + 60_000_000, 2)


def test_a_transaction_that_fails_leaves_nothing_and_the_next_try_leaves_all(
    fresh: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = [poll(0, machine()), poll(1, machine(usd="3"), scope=THERE), poll(2, machine(state="stopped"), machine("i-2"))]
    smooth, rough = fresh(), fresh()
    with ledger(smooth) as book:
        for one in said:
            book.record_polls([one])
    with ledger(rough) as book:
        for one in said:
            before = rows(rough)
            with monkeypatch.context() as broken:
                broken.setattr(PollTransaction, "finish", lambda _self: 1 // 0)
                with pytest.raises(ZeroDivisionError):
                    book.record_polls([one])
            assert rows(rough) == before
            book.record_polls([one])
            same_as_read(book, rough)
    assert rows(rough) == rows(smooth)


def test_two_processes_that_write_in_turn_see_what_the_other_wrote(fresh: Callable[[], str]) -> None:
    said = [poll(n, machine(usd=f"{2 + n // 2}"), machine(f"i-{n}")) for n in range(6)]
    one_url, two_url = fresh(), fresh()
    with ledger(one_url) as book:
        book.record_polls(said)
    with ledger(two_url) as first, ledger(two_url) as second:
        for n, one in enumerate(said):
            (first, second)[n % 2].record_polls([one])
    assert rows(two_url) == rows(one_url)


def test_a_resource_that_two_scopes_list_belongs_to_the_one_that_saw_it_first(url: str) -> None:
    both = machine("i-1")
    with ledger(url) as book:
        book.record_polls([poll(0, both)])
        for minute in (1, 2, 3):
            (found,) = book.record_polls([poll(minute, both, machine("i-2"), scope=THERE)])
            assert found.notes == ("i-1: counted under acme/lab/west, which saw it first",)
            same_as_read(book, url)
        book.record_polls([poll(4, machine("i-1", usd="5")), poll(4, machine("i-1", usd="5"), machine("i-2"), scope=THERE)])
        assert set(remembered(book, THERE).state.resources) == {key("i-2")}
    assert [(row[1], row[5]) for row in rows(url)["resource"]] == [(1, "i-1"), (2, "i-2")]


def test_a_ledger_that_was_changed_by_hand_is_refused_and_left_alone(url: str) -> None:
    with ledger(url) as book:
        book.record_polls([poll(0, machine())])
        close = "UPDATE span SET end_us = start_us, ended_by = 'me', low = 0, expected = 0, high = 0"
        with book._pen._engine.begin() as connection:
            connection.exec_driver_sql(close)
        before = rows(url)
        with pytest.raises(LedgerError, match="was changed by another program, nothing was written:"):
            book.record_polls([poll(1, machine(state="stopped"))])
        assert rows(url) == before


def test_memory_stays_flat_while_machines_come_and_go(sqlite_url: str) -> None:
    with ledger(sqlite_url) as book:
        sizes = []
        for day in range(12):
            for part in range(4):
                book.record_polls([poll(1440 * day + 10 * part, machine(f"i-{day}-{part}"), machine("i-0"))])
                book.record_polls([poll(1440 * day + 10 * part + 5, machine(f"i-{day}-{part}", state="ended"), machine("i-0"))])
            held = remembered(book, HERE)
            sizes.append((len(held.state.resources), len(held.ids), len(held.endings)))
        assert sizes[-1] == sizes[-6]
        assert sizes[-1][0] == sizes[-1][1] < 16


NAMES = st.text(max_size=5)
INSTANTS = st.none() | st.datetimes(datetime(1, 1, 1), datetime(9999, 1, 1)).map(lambda at: at.replace(tzinfo=UTC))  # noqa: DTZ001 - made aware here
OBSERVATIONS = st.builds(
    Observation,
    key=st.just(key("i-1")),
    state=st.sampled_from(STATES),
    kind=st.sampled_from(KINDS),
    name=NAMES,
    instance_type=NAMES,
    gpu=NAMES.filter(is_storable),  # another is refused at birth
    gpu_count=st.integers(0, 512) | st.floats(0, 64, allow_nan=False),
    tier=st.sampled_from(TIERS),
    owner=NAMES,
    labels=st.lists(st.tuples(NAMES, NAMES), max_size=3).map(lambda pairs: tuple(sorted(pairs))),
    created_at=INSTANTS,
    started_at=INSTANTS,
    stopped_at=INSTANTS,
    prices=st.lists(
        st.builds(
            Price,
            st.none() | st.builds(Rate, nano_per_hour=st.integers(1, 10**18), currency=st.sampled_from(["USD", "EUR"])),
            INSTANTS,
        )
        | st.builds(Price, st.none(), INSTANTS, prepaid=st.booleans()),
        max_size=3,
    ).map(tuple),
    disks=st.lists(
        st.builds(Disk, st.none() | st.integers(0, 10**6), NAMES, st.none() | st.integers(0, 10**12)), max_size=3
    ).map(tuple),
    counters=st.lists(
        st.builds(TrafficCounter, NAMES, st.integers(0, 10**11), st.none() | st.integers(0, 10**12)), max_size=2
    ).map(tuple),
    why=NAMES,
)


@given(seen=OBSERVATIONS, unproven=st.sets(st.tuples(NAMES, NAMES), max_size=2))
def test_an_observation_comes_back_from_its_text_as_it_was(seen: Observation, unproven: set[tuple[str, str]]) -> None:
    lines = tuple(sorted(unproven))
    text = encode_observation(seen, unproven)
    assert decode_observation(seen.key, text) == (seen, lines)
    assert encode_observation(*decode_observation(seen.key, text)) == text


@pytest.mark.parametrize("gone", ["ended", "absent", "forgotten"])
def test_what_its_first_scope_has_no_more_makes_the_listing_of_another_partial_and_is_said(url: str, gone: str) -> None:
    two = machine("i-2")
    with ledger(url) as book:
        book.record_polls([poll(0, machine(), two), poll(0, machine(), two, scope=THERE)])
        book.record_polls(
            [
                poll(
                    1,
                    two,
                    *([machine(state="ended")] if gone == "ended" else []),
                    gone={"forgotten": [key("i-1")]}.get(gone, []),
                )
            ]
        )
        minute = 2 if gone != "forgotten" else 2 + (MEMORY_SPAN + DAY) // timedelta(minutes=1)
        book.record_polls([poll(minute, two)])
        (found,) = book.record_polls([poll(minute, machine(), two, scope=THERE)])
        same_as_read(book, url)
    why = f"NOT counted: i-1, which belongs to {'/'.join(HERE)}, and is not there any more"
    assert (found.outcome, found.why) == ("partial", why)
    assert found.notes == (f"i-2: counted under {'/'.join(HERE)}, which saw it first", why)
    with ledger(url) as book:
        (again,) = book.record_polls([poll(minute + 1, machine(state="ended"), two, scope=THERE)])
    assert again.outcome == "complete"


def test_a_line_that_no_database_can_hold_is_kept_in_one_that_it_can_and_goes_on_after_a_reload(url: str) -> None:
    price = Price(Rate.parse("2"), source="list\0\ud800")
    item = replace(
        machine(state="running"),
        prices=(price,),
        disks=(Disk(10, "d\0\ud800", nano_per_gb_month=10**8),),
        counters=(TrafficCounter("t\0\ud800", 5, nano_per_gb=10**9),),
    )
    for minute in range(2):
        with ledger(url) as book:
            book.record_polls(
                [poll(minute, replace(item, counters=(TrafficCounter("t\0\ud800", 5 + minute, nano_per_gb=10**9),)))]
            )
            same_as_read(book, url)
    assert {(kept.span.line, kept.span.meter.source) for kept in asked(url, all_spans) if kept.span.end is None} == {
        (("compute", ""), "list\ufffd?"),
        (("storage", "d\ufffd?"), "listing"),
    }


def test_a_name_that_no_database_can_hold_is_kept_in_one_that_it_can(url: str) -> None:
    with ledger(url) as book:
        book.record_polls([poll(0, replace(machine(owner="c\0"), name="a\0b\ud800"))])
        book.record_polls([poll(1, replace(machine(owner="c\0", usd="3"), name="a\0b\ud800"))])
    assert rows(url)["observation"][0][5] == "a\ufffdb?"
    assert len(rows(url)["attribution"]) == 1
