"""Bills in the ledger: taken in whole or not at all, and again, in any order and in pieces, without changing anything."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, Engine, event, select
from sqlalchemy.exc import DatabaseError
from sqlmodel import col

from costguard.bills.bill_line import COMPUTE, TAX, BillImport, BillLine
from costguard.bills.drift import BEYOND, WITHIN, DriftPart, DriftResult
from costguard.errors import InputError
from costguard.ledger.bills.reader import STATED, UNFINISHED, BillLedgerReader
from costguard.ledger.bills.staging import BATCH_LINES, StagedStatement
from costguard.ledger.bills.store import BillStore, GatheredStatement
from costguard.ledger.bills.unfinished import HOLD_S, ShortTransactions
from costguard.ledger.db import maintenance
from costguard.ledger.db.codecs import SqlRow
from costguard.ledger.db.connection import begin_write, open_engine
from costguard.ledger.tables.bills import BillImportRow, BillLineRow
from costguard.values.calendar import Period
from costguard.values.instant import DAY_US, HOUR_US, to_micros
from costguard.values.money import Money
from tests.campaign import examples
from tests.ledger.fleet import asked
from tests.processes import BESIDE

START = datetime(2026, 11, 1, tzinfo=UTC)
NOW = datetime(2026, 11, 22, tzinfo=UTC)
MONTH = Period(start=START, end=datetime(2026, 12, 1, tzinfo=UTC))
YEAR = Period(start=START, end=START + timedelta(days=365))
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def line(number: int = 0, nano: int = 690_000_000, **more: Any) -> BillLine:  # noqa: ANN401 - any field
    said: dict[str, Any] = {
        "id": f"pods:pod-1:{number}",
        "provider": "runpod",
        "account": "main",
        "start": START + number * HOUR,
        "end": START + (number + 1) * HOUR,
        "amount": Money(nano=nano),
        "charge": COMPUTE,
        "resource_id": "pod-1",
        "region": "eu",
        "source": "a test",
    }
    return BillLine(**said | more)


def take_in(
    url: str,
    lines: Sequence[BillLine],
    *,
    at: datetime = NOW,
    source: str = "bill.csv",
    period: Period | None = None,
    why: str = "",
    sums: bool = True,
    whole: bool = False,
    hold_s: float = HOLD_S,
    now: datetime = NOW,
) -> list[BillImport]:
    """Take `lines` in as one statement made `at`; `period`: asked for, by the provider runpod."""
    with StagedStatement() as staged, BillStore(url, hold_s=hold_s) as bills:
        staged.add(((one, Decimal(0)) for one in lines), sums=sums)
        of = (("runpod",), period) if period else None
        one = GatheredStatement(staged=staged, source=source, stated_at=at, asked=of, why=why, whole=whole)
        return bills.import_statements([one], who="ada", now=now)


def stated(url: str) -> list[SqlRow]:
    """What the ledger says that the bills say."""
    names = ("provider", "account", "statement", "line_id", "start_us", "end_us", "nano", "currency", "estimated")
    columns = [getattr(BillLineRow, name) for name in names]
    return asked(url, lambda ask: list(ask(select(*columns).where(STATED).order_by(*columns[:4]))))


def count(url: str, table: str) -> int:
    return int(asked(url, lambda ask: ask(f"SELECT count(*) FROM {table}", ())[0][0]))  # noqa: S608 - our own names


def test_a_bill_taken_in_twice_changes_nothing(url: str) -> None:
    lines = [line(number) for number in range(30)]
    (first,) = take_in(url, lines)
    assert (first.lines, first.added, first.replaced) == (30, 30, 0)
    before = stated(url)
    (second,) = take_in(url, lines)
    assert (second.lines, second.added, second.replaced, second.outdated) == (30, 0, 0, 0)
    assert stated(url) == before
    assert (count(url, "bill_line"), count(url, "bill_import")) == (30, 2)
    assert maintenance.check_ledger(url) == []


def test_a_restated_line_replaces_the_older_one_and_says_why(url: str) -> None:
    take_in(url, [line(0), line(1, 100_000_000, estimated=True)])
    (done,) = take_in(url, [line(0), line(1)], at=NOW + HOUR)
    assert (done.added, done.replaced) == (0, 1)
    assert [row[6] for row in stated(url)] == [690_000_000, 690_000_000]
    sql = "SELECT nano, replaced_by, replaced_why FROM bill_line WHERE replaced_us IS NOT NULL"
    assert asked(url, lambda ask: [tuple(row) for row in ask(sql, ())]) == [
        (100_000_000, 2, "another amount, whether it is estimated")
    ]


def test_an_older_statement_does_not_replace_a_newer_one(url: str) -> None:
    take_in(url, [line(0)], at=NOW)
    (done,) = take_in(url, [line(0, 1)], at=NOW - DAY)
    assert (done.added, done.replaced, done.outdated) == (0, 0, 1)
    assert [row[6] for row in stated(url)] == [690_000_000]


def test_what_a_whole_answer_states_no_more_is_withdrawn(url: str) -> None:
    take_in(url, [line(0), line(1), line(2, account="lab")], period=MONTH, source="runpod, asked")
    (partly,) = take_in(url, [line(0)], at=NOW + HOUR, period=MONTH, why="page 2 was lost")
    assert (partly.withdrawn, len(stated(url))) == (0, 3)
    (whole,) = take_in(url, [line(0)], at=NOW + HOUR, period=MONTH)
    assert whole.withdrawn == 1
    assert [(row[1], row[3]) for row in stated(url)] == [("lab", "pods:pod-1:2"), ("main", "pods:pod-1:0")]
    (again,) = take_in(url, [line(0), line(1)], at=NOW + 2 * HOUR, period=MONTH)
    assert (again.added, again.withdrawn) == (1, 0)


OCTOBER, NOVEMBER, OTHERS = "focus|1|2026-10", "focus|1|2026-11", "focus|12|2026-10"


def of_bill(bill: str, number: int = 0, **more: Any) -> BillLine:  # noqa: ANN401 - any field
    """A line of an export that is delivered whole."""
    return line(number, **{"id": f"{bill}|{number}", "bill": bill, "statement": "focus"} | more)


def withdrawn(url: str) -> list[tuple[str, str]]:
    """The names of lines that are stated no more, with why."""
    sql = "SELECT line_id, replaced_why FROM bill_line WHERE replaced_us IS NOT NULL ORDER BY line_id"
    return asked(url, lambda ask: [(str(row[0]), str(row[1])) for row in ask(sql, ())])


def test_what_a_bill_delivered_anew_lacks_is_withdrawn_and_of_no_other_bill(url: str) -> None:
    """An hour that a savings plan came to cover is another line; a correction of it stands in the bill of November."""
    others = [of_bill(NOVEMBER, 0), of_bill(OTHERS, 0), line(5)]
    take_in(url, [of_bill(OCTOBER, 0), of_bill(OCTOBER, 1), of_bill(OCTOBER, 2, account="gone"), *others])
    anew = [of_bill(OCTOBER, 0), of_bill(OCTOBER, 3)]
    (done,) = take_in(url, anew, at=NOW + HOUR, whole=True)
    assert (done.added, done.withdrawn, done.lacking) == (1, 2, 0)
    assert withdrawn(url) == [(f"{OCTOBER}|{number}", "a newer statement no longer contains it") for number in (1, 2)]
    kept = [f"{OCTOBER}|0", f"{OCTOBER}|3", f"{NOVEMBER}|0", f"{OTHERS}|0", "pods:pod-1:5"]
    assert sorted(row[3] for row in stated(url)) == sorted(kept)
    (again,) = take_in(url, anew, at=NOW + HOUR, whole=True)
    assert (again.added, again.replaced, again.withdrawn) == (0, 0, 0)
    (older,) = take_in(url, [of_bill(OCTOBER, 1)], at=NOW - HOUR, whole=True)
    assert (older.added, older.withdrawn, older.outdated) == (0, 0, 1), "an older delivery changes nothing of a newer one"
    assert sorted(row[3] for row in stated(url)) == sorted(kept)
    (newest,) = take_in(url, [*anew, of_bill(OCTOBER, 1)], at=NOW + DAY, whole=True)
    assert newest.added == 1, "what comes back counts again"


def test_a_file_that_nobody_calls_whole_says_what_it_lacks_and_withdraws_nothing(url: str) -> None:
    take_in(url, [of_bill(OCTOBER, number) for number in range(3)])
    (piece,) = take_in(url, [of_bill(OCTOBER, 7)], at=NOW + HOUR)
    assert (piece.lacking, piece.withdrawn) == (0, 0), "it states nothing that was known: it is another piece"
    (less,) = take_in(url, [of_bill(OCTOBER, 0)], at=NOW + HOUR)
    assert (less.lacking, less.withdrawn, len(stated(url))) == (3, 0, 4)


def test_an_export_that_was_asked_of_a_period_withdraws_of_its_bills_what_lies_there(url: str) -> None:
    before = of_bill(OCTOBER, 0, start=START - 2 * DAY, end=START - DAY)
    take_in(url, [before, of_bill(OCTOBER, 1), of_bill(NOVEMBER, 2), line(3)], period=MONTH)
    (partly,) = take_in(url, [of_bill(OCTOBER, 4)], at=NOW + HOUR, period=MONTH, why="a page was lost")
    assert partly.withdrawn == 0
    (done,) = take_in(url, [of_bill(OCTOBER, 4)], at=NOW + HOUR, period=MONTH)
    assert (done.withdrawn, [name for name, _ in withdrawn(url)]) == (1, [f"{OCTOBER}|1"])


def test_parts_of_a_line_are_summed_exactly_and_rounded_once(url: str) -> None:
    with StagedStatement() as staged, BillStore(url) as bills:
        part = line(0, 0)
        staged.add([(part, Decimal("0.0000000004"))] * 5 + [(line(1, 0), Decimal("-0.0000000005"))])
        bills.import_statements([GatheredStatement(staged=staged, source="x", stated_at=NOW)], who="ada", now=NOW)
    assert [row[6] for row in stated(url)] == [2, 0]


def test_a_long_id_is_kept_as_its_hash(url: str) -> None:
    take_in(url, [line(0, id="x" * 5000), line(1, id="x" * 5001)])
    assert [row[3][:7] for row in stated(url)] == ["sha256:", "sha256:"]
    assert take_in(url, [line(0, id="x" * 5000)])[0].added == 0


def test_a_sum_that_no_ledger_holds_is_refused_and_nothing_is_written(url: str) -> None:
    with pytest.raises(InputError, match="nine billion"):
        take_in(url, [line(0, 5 * 10**18)] * 2)
    with pytest.raises(InputError, match="nine billion"):
        take_in(url, [line(0, 10**21)])
    assert (stated(url), count(url, "bill_import")) == ([], 0)


def test_several_statements_are_one_transaction(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    take_in(url, [line(9)])
    with StagedStatement() as good, StagedStatement() as bad, BillStore(url) as bills:
        good.add([(line(0), Decimal(0))])
        bad.add([(line(1), Decimal(0))])
        monkeypatch.setattr(bad, "iterate_batches", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            bills.import_statements(
                [GatheredStatement(staged=one, source="x", stated_at=NOW) for one in (good, bad)], who="ada", now=NOW
            )
    assert [row[3] for row in stated(url)] == ["pods:pod-1:9"]


@settings(max_examples=examples(20), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_pieces_in_any_order_leave_what_the_whole_leaves(sqlite_url: str, data: st.DataObject) -> None:
    numbers = data.draw(st.lists(st.integers(0, 40), unique=True, min_size=1, max_size=12))
    lines = [line(number, 10**8 + number) for number in numbers]
    shuffled = data.draw(st.permutations(lines))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(lines)), max_size=3)))
    pieces = [shuffled[a:b] for a, b in zip([0, *cuts], [*cuts, len(lines)], strict=True)]
    number = len(list(_folder(sqlite_url).glob("*.db")))
    whole, parts = f"{sqlite_url}.{number}.whole.db", f"{sqlite_url}.{number}.parts.db"
    take_in(whole, lines)
    for piece in [*pieces, *pieces[:1]]:
        take_in(parts, piece)
    assert stated(parts) == stated(whole)


def _folder(url: str) -> Any:  # noqa: ANN401 - a path
    from pathlib import Path

    return Path(url.removeprefix("sqlite:///")).parent


MANY = 3 * BATCH_LINES + 20
"""Lines of a bill that takes four transactions at the least, where none is held for longer than a batch."""


def die_in_an_import(url: str, after: int, hold_s: float) -> None:
    """Take a second bill in, and die by SIGKILL after the statement number `after` in the ledger."""
    seen: list[int] = []

    def die(connection: Connection, *_: object) -> None:
        seen.extend([1] if "ledger" in connection.get_execution_options() else [])
        if len(seen) > after:
            os.kill(os.getpid(), signal.SIGKILL)

    event.listen(Engine, "after_cursor_execute", die)
    take_in(url, [line(number, 5) for number in range(MANY)], at=NOW + HOUR, period=YEAR, hold_s=hold_s)


def counting(url: str) -> int:
    """How many imports count."""
    return len(asked(url, lambda ask: ask(select(col(BillImportRow.id)).where(col(BillImportRow.id).not_in(UNFINISHED)))))


@pytest.mark.parametrize("hold_s", [3600.0, 0.0], ids=["one transaction", "a transaction a batch"])
def test_an_import_that_is_killed_leaves_all_or_nothing(url: str, hold_s: float) -> None:
    take_in(url, [line(number) for number in range(MANY - 20)] + [line(MANY + 7)], period=YEAR)
    before, pieces = stated(url), count(url, "bill_line")
    deaths, halves = 0, 0
    for after in (2, 16, 28, 36, 44, 52, 64, 80, 100, 2000):
        process = BESIDE.Process(target=die_in_an_import, args=(url, after, hold_s))
        process.start()
        process.join(timeout=120)
        if process.exitcode == 0:
            break
        deaths += 1
        assert process.exitcode == -signal.SIGKILL
        assert (stated(url), counting(url)) == (before, 1)
        halves += count(url, "bill_line") > pieces
        assert maintenance.check_ledger(url) == []
    assert deaths >= 2
    assert (halves > 0) == (hold_s == 0), "some deaths lay between two transactions"
    assert [row[6] for row in stated(url)] == [5] * MANY, "the last line before is stated no more"
    assert counting(url) == 2
    assert count(url, "bill_line") == pieces + MANY, "nothing is left of the imports that died"
    assert maintenance.check_ledger(url) == []


def test_other_writers_come_in_between_and_readers_see_the_bill_as_it_was(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    take_in(url, [line(0)], now=NOW - DAY)
    before, seen, pause = stated(url), list[int](), ShortTransactions.pause
    engine = open_engine(url, patience_s=1)

    def look(self: ShortTransactions) -> None:
        pause(self)
        with begin_write(engine) as connection:
            connection.exec_driver_sql("UPDATE ledger_state SET revision = revision + 1")
        assert stated(url) == before
        with BillLedgerReader(url) as bills:
            (best, _) = bills.load_statements("runpod", YEAR)
            assert bills.load_last_import_time("runpod", "main", who="ada", until=NOW + DAY) == NOW - DAY
        seen.append(best["main"].lines)
        assert maintenance.check_ledger(url) == []

    monkeypatch.setattr(ShortTransactions, "pause", look)
    take_in(url, [line(number, 5) for number in range(MANY)], at=NOW + HOUR, hold_s=0)
    engine.dispose()
    assert set(seen) == {1}
    assert len(seen) >= 4
    assert len(stated(url)) == MANY


EDITS = (
    "UPDATE bill_line SET nano = 1",
    "UPDATE bill_line SET replaced_us = 2, replaced_by = 1, replaced_why = 'again' WHERE replaced_us IS NOT NULL",
    "UPDATE bill_line SET replaced_us = NULL, replaced_by = NULL, replaced_why = NULL WHERE replaced_us IS NOT NULL",
    *("DELETE FROM bill_line", "UPDATE bill_import SET lines = 0", "DELETE FROM bill_import"),
    *("UPDATE reconciliation SET outcome = 'within'", "DELETE FROM reconciliation"),
    *("UPDATE bill_adjustment SET nano = 0", "DELETE FROM bill_adjustment"),
)


@pytest.mark.parametrize("sql", EDITS)
def test_no_row_of_a_bill_is_edited_or_removed(url: str, sql: str) -> None:
    take_in(url, [line(0), line(1)])
    take_in(url, [line(0, 7)], at=NOW + HOUR)
    with BillStore(url) as bills:
        bills.record_results([result()], who="ada")
    engine = open_engine(url)
    with pytest.raises(DatabaseError, match=r"once|every row"), begin_write(engine) as connection:
        connection.exec_driver_sql(sql)
    engine.dispose()


def result(**more: Any) -> DriftResult:  # noqa: ANN401 - any field
    part = DriftPart(
        cause="rate", charge=COMPUTE, sku="4090", nano=7, off=7, explained=False, resources=1, lines=1, reason="because"
    )
    said: dict[str, Any] = {
        "provider": "runpod",
        "account": "main",
        "currency": "USD",
        "period": MONTH,
        "at": NOW,
        "billed": 10,
        "charged": (1, 3, 5),
        "unexplained": 7,
        "allowed": 1,
        "tolerance": "1%",
        "outcome": BEYOND,
        "parts": (part,),
    }
    return DriftResult(**said | more)


def test_what_holding_a_bill_showed_is_read_back_with_its_reasons(url: str) -> None:
    found = result()
    with BillStore(url) as bills:
        bills.record_results([found, result(account="lab", outcome=WITHIN, parts=())], who="ada", announced=[found])
        bills.record_results([result(at=NOW + HOUR, billed=11)], who="ada")
    with BillLedgerReader(url) as books:
        held = {(one.account, one.at): one for one in books.load_reconciliations(MONTH)}
        assert [(one.account, one.billed, one.outcome, one.told) for one in held.values()] == [
            ("lab", 10, WITHIN, False),
            ("main", 11, BEYOND, False),
        ]
        assert held["main", NOW + HOUR].charged == (1, 3, 5)
        assert books.load_reconciliations(Period(start=MONTH.end, end=MONTH.end + DAY)) == []
    sql = "SELECT reconciliation_id, cause, nano, reason FROM bill_adjustment ORDER BY id"
    assert asked(url, lambda ask: [tuple(row) for row in ask(sql, ())]) == [
        (1, "rate", 7, "because"),
        (3, "rate", 7, "because"),
    ]


def test_lines_come_by_resource_and_cell_with_what_their_amounts_show(url: str) -> None:
    cents = [line(number, 10**7 * (number + 1)) for number in range(48)]
    over = line(2, id="day", end=START + DAY, start=START)
    tax = line(0, id="tax", charge=TAX, resource_id="", start=START, end=MONTH.end)
    take_in(url, [*cents, over, tax, line(47, id="next", start=START - HOUR, end=START + HOUR)])
    with BillLedgerReader(url) as books:
        best, others = books.load_statements("runpod", MONTH)
        one = best["main"]
        assert (others, one.lines, one.resources, one.name) == ([], 50, 49, "")
        assert books.count_straddling("runpod", one, MONTH) == 1
        fine = to_micros(START + DAY)
        found = books.load_billed_lines("runpod", one, MONTH, fine)
    compute = [row for row in found if row.charge == COMPUTE]
    first = fine // HOUR_US
    assert [row.first for row in compute] == [first - 24, *range(first, first + 24)]
    assert (compute[0].lines, compute[0].nano, compute[0].step) == (25, 3_000_000_000 + 690_000_000, 10**7)
    assert (compute[0].overlapping, compute[1].overlapping) == (24, 0)
    assert [(row.first * HOUR_US, row.last - row.first) for row in found if row.charge == TAX] == [
        (to_micros(START) // DAY_US * DAY_US, 29 * 24 + 23)
    ]


def test_of_two_statements_of_one_time_the_one_that_names_resources_counts(url: str) -> None:
    named = [line(number, statement="focus") for number in range(3)]
    nameless = [line(number, id=f"ce{number}", statement="cost explorer", resource_id="") for number in range(40)]
    take_in(url, [*named, *nameless])
    with BillLedgerReader(url) as books:
        best, others = books.load_statements("runpod", MONTH)
    assert (best["main"].name, [one.name for one in others]) == ("focus", ["cost explorer"])
