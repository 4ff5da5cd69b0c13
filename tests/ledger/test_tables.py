"""What the tables refuse, whoever writes: on both databases."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from sqlalchemy import Connection, Engine, Executable, Text, delete, insert, text, update
from sqlalchemy.exc import DatabaseError, IntegrityError

from costguard.ledger.db import triggers
from costguard.ledger.db.connection import begin_write, open_engine
from costguard.ledger.tables import load_metadata
from costguard.values.instant import DAY_US, HOUR_US, to_micros
from tests.ledger.acts import write_all
from tests.ledger.entries import T0, T0_US, add, begin, open_span, row_of, scalar, span

METADATA = load_metadata()
BILL_ADJUSTMENT = METADATA.tables["bill_adjustment"]
BILL_IMPORT = METADATA.tables["bill_import"]
BILL_LINE = METADATA.tables["bill_line"]
RECONCILIATION = METADATA.tables["reconciliation"]
CORRECTION = METADATA.tables["correction"]
SPAN = METADATA.tables["span"]

CLOSED = {"end_us": T0_US + DAY_US, "ended_by": "gone", "low": 1, "expected": 2, "high": 3}


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    made = open_engine(url)
    begin(made)
    yield made
    made.dispose()


@pytest.fixture
def connection(engine: Engine) -> Iterator[Connection]:
    """A write transaction."""
    with begin_write(engine) as found:
        yield found


def refused(connection: Connection, statement: str | Executable, words: str) -> None:
    """`statement` fails and says `words`; the transaction goes on."""
    with pytest.raises(DatabaseError, match=words), connection.begin_nested():
        connection.execute(text(statement) if isinstance(statement, str) else statement)


def correct(connection: Connection) -> None:
    """A span and its correction, and what the guard wrote."""
    write_all(connection)
    add(connection, 1, span())
    said = {"id": 1, "span_id": 1, "at_us": 0, "presence": "edge", "reason": "seen again", "low": 0, "expected": 1, "high": 2}
    connection.execute(insert(CORRECTION), [said])
    part = {"correction_id": 1, "start_us": 0, "end_us": 1, "presence": "seen", "price_known": 1, "low": 0, "expected": 1}
    connection.execute(insert(METADATA.tables["correction_part"]), [part | {"high": 2, "us": 1}])
    bill(connection)
    entry = METADATA.tables["cost_entry"]
    row = {c.name: "" if isinstance(c.type, Text) else 1 for c in entry.columns}
    connection.execute(insert(entry), [row | {"corrects": 0}])


def bill(connection: Connection) -> None:
    """A row of each table of the bill, with what its checks want."""
    stated = {
        "id": 1,
        "start_us": 0,
        "end_us": 1,
        "charge": "tax",
        "outcome": "within",
        "replaced_us": None,
        "replaced_by": None,
    }
    for table in (BILL_IMPORT, BILL_LINE, RECONCILIATION, BILL_ADJUSTMENT):
        row = {c.name: "" if isinstance(c.type, Text) else 1 for c in table.columns if c.name != "replaced_why"}
        connection.execute(insert(table), [row | {name: value for name, value in stated.items() if name in row}])
    if connection.dialect.name == "postgresql":
        connection.execute(text("SET CONSTRAINTS ALL IMMEDIATE"))


def test_an_open_span_is_closed_once_and_then_stays(connection: Connection) -> None:
    add(connection, 1, open_span())
    connection.execute(update(SPAN).where(SPAN.c.id == 1).values(**CLOSED))
    refused(connection, "UPDATE span SET high = high + 1", "a closed span does not change")
    refused(
        connection, "UPDATE span SET end_us = NULL, ended_by = NULL, low = NULL, expected = NULL, high = NULL", "closed span"
    )


def test_a_span_is_not_closed_without_all_that_belongs_to_its_end(connection: Connection) -> None:
    add(connection, 1, open_span())
    for missing in ("ended_by", "low", "expected", "high"):
        values = {name: value for name, value in CLOSED.items() if name != missing}
        refused(connection, update(SPAN).values(**values), "span_closed_whole")


def test_no_other_column_of_a_span_is_edited(connection: Connection) -> None:
    add(connection, 1, open_span())
    for column in triggers.list_fixed_columns()["span"]:
        refused(connection, update(SPAN).values({column: SPAN.c[column]}), "span is written once")


def test_what_became_of_messages_never_falls(connection: Connection) -> None:
    write_all(connection)
    for column in ("sent", "gave_up", "tries_failed"):
        refused(connection, f"UPDATE message_count SET {column} = {column} - 1", "is counted once")  # noqa: S608 - our own names


def test_no_row_is_removed(connection: Connection) -> None:
    correct(connection)
    for table in triggers.list_kept_tables():
        refused(connection, delete(METADATA.tables[table]), f"{table} keeps every row")
        if connection.dialect.name == "postgresql":
            refused(connection, f"TRUNCATE {table} CASCADE", "keeps every row")


def test_what_was_said_is_not_edited(connection: Connection) -> None:
    correct(connection)
    for table in (METADATA.tables[name] for name, columns in triggers.list_fixed_columns().items() if not columns):
        column = next(iter(table.primary_key))
        refused(connection, update(table).values({column: column}), f"{table.name} is written once")


def test_a_row_of_coverage_grows_and_nothing_else(connection: Connection) -> None:
    connection.execute(text("UPDATE coverage SET end_us = end_us + 60, polls = polls + 1"))
    refused(connection, "UPDATE coverage SET outcome = 'failed'", "coverage is written once")


@pytest.mark.parametrize(
    ("after", "hours"),
    [(2, 1), (3, 1), (4, 0.25), (4.25, 9), (0, 9), (2.9, 0.2), (3, 2)],
    ids=["its middle reached", "same start", "inside", "its end", "around", "its start", "the same"],
)
def test_spans_of_a_line_do_not_overlap(connection: Connection, after: float, hours: float) -> None:
    add(connection, 1, span(2, after=2.5))
    with pytest.raises(IntegrityError, match="overlaps another"):
        add(connection, 2, span(hours, after=after))


def test_an_open_span_reaches_over_all_that_comes(connection: Connection) -> None:
    add(connection, 1, open_span(after=5))
    add(connection, 2, span(5))
    with pytest.raises(IntegrityError, match="overlaps another"), connection.begin_nested():
        add(connection, 3, span(1, after=90))
    with pytest.raises(IntegrityError), connection.begin_nested():
        add(connection, 4, open_span(after=90))
    with pytest.raises(IntegrityError), connection.begin_nested():
        add(connection, 5, open_span(after=1))


def test_a_random_history_is_taken_as_the_rule_says(connection: Connection) -> None:
    """Every span on a grid of six instants, in an order that mixes them: taken if and only if it overlaps none that was."""
    pairs = [(a, b) for a in range(6) for b in range(a, 6)]
    taken: list[tuple[int, int]] = []
    for number, (start, end) in enumerate(sorted(pairs, key=lambda pair: (pair[0] * 7 + pair[1] * 3) % 11)):
        clear = start == end or all(a == b or end <= a or b <= start for a, b in taken)
        one = span(end - start, after=start)
        if clear:
            add(connection, number, one)
            taken.append((start, end))
        else:
            with pytest.raises(IntegrityError), connection.begin_nested():
                add(connection, number, one)
    assert len(taken) > 6


@pytest.mark.parametrize("wrong", ["'dear'", "x'00'", "1.5"])
def test_sqlite_takes_nothing_but_integers_for_money_and_time(sqlite_url: str, wrong: str) -> None:
    engine = open_engine(sqlite_url)
    begin(engine)
    values = row_of(1, open_span()) | {"price_high": "PLACE"}
    literal = ", ".join("NULL" if v is None else repr(v) for v in values.values()).replace("'PLACE'", wrong)
    with begin_write(engine) as connection:
        statement = f"INSERT INTO span VALUES ({literal})"  # noqa: S608 - written above
        refused(connection, statement, "cannot store (TEXT|BLOB|REAL) value in INTEGER column")
    engine.dispose()


def test_sqlite_does_not_let_replace_remove_a_span(sqlite_url: str) -> None:
    engine = open_engine(sqlite_url)
    begin(engine)
    with begin_write(engine) as connection:
        add(connection, 1, span(after=3))
        values = row_of(1, span(1))
        literal = ", ".join("NULL" if v is None else repr(v) for v in values.values())
        statement = f"REPLACE INTO span VALUES ({literal})"  # noqa: S608 - written above
        refused(connection, statement, "span keeps every row")
    assert scalar(engine, "SELECT start_us FROM span") == T0_US + 3 * HOUR_US
    engine.dispose()


IMPOSSIBLE: tuple[dict[str, object], ...] = (
    {"end_us": to_micros(T0 - timedelta(hours=1))},
    {"anchor_us": T0_US + 1},
    {"presence": "perhaps"},
    {"price_low": 2 * 10**15},
    {"price_low": -1},
    {"quantum_s": 0},
    {"price_known": 2},
    {"low": 9 * 10**18},
    {"resource_id": 77},
    {"attribution_id": 77},
    {"why": None},
)


def test_a_span_that_cannot_be_is_refused(connection: Connection) -> None:
    for wrong in IMPOSSIBLE:
        with pytest.raises(IntegrityError), connection.begin_nested():
            connection.execute(insert(SPAN), [row_of(1, span()) | wrong])
    add(connection, 1, span())


def test_numbers_of_an_agent_never_fall_and_what_is_over_stays_so(connection: Connection) -> None:
    write_all(connection)
    connection.execute(text("UPDATE agent SET seq = 5, record_ms = 7"))
    refused(connection, "UPDATE agent SET seq = 4", "the numbers of an agent never fall")
    refused(connection, "UPDATE agent SET record_ms = 6", "the numbers of an agent never fall")
    refused(connection, "UPDATE agent SET public_key = 'another'", "agent is written once")
    refused(connection, "UPDATE agent_code SET expires_us = 99", "agent_code is written once")
    refused(connection, "UPDATE web_token SET role = 'operator'", "web_token is written once")
    connection.execute(text("UPDATE agent SET revoked_us = 3, revoked_by = 'ada'"))
    connection.execute(text("UPDATE agent_code SET used_us = 3, used_by = 'a'"))
    connection.execute(text("UPDATE web_token SET revoked_us = 3, revoked_by = 'ada'"))
    refused(connection, "UPDATE agent SET revoked_us = NULL, revoked_by = NULL", "a revoked agent does not change")
    refused(connection, "UPDATE agent_code SET used_us = NULL, used_by = NULL", "a code is used once")
    refused(connection, "UPDATE web_token SET revoked_us = NULL, revoked_by = NULL", "a token is revoked once")
