"""The views say exactly what the tables hold, as text that people read, and cannot be written to."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, insert, text
from sqlalchemy.exc import DatabaseError

from costguard.ledger.db.connection import begin_write, open_engine
from costguard.ledger.db.schema import (
    format_money_sql,
    generate_views,
)
from costguard.ledger.tables import load_metadata
from tests.ledger.entries import T0_US, add, begin, open_span, roll_up, span

METADATA = load_metadata()
HOLD = METADATA.tables["hold"]
HOLD_BUDGET = METADATA.tables["hold_budget"]


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    found = open_engine(url)
    begin(found)
    with begin_write(found) as connection:
        add(connection, 1, span())
        add(connection, 2, open_span(after=3))
        roll_up(connection, span())
    yield found
    found.dispose()


def rows(engine: Engine, query: str) -> list[dict[str, object]]:
    with engine.connect() as connection:
        return [dict(row) for row in connection.execute(text(query)).mappings()]


@pytest.mark.parametrize(
    ("nano", "shown"),
    [
        (0, "0.000000000"),
        (1, "0.000000001"),
        (-1, "-0.000000001"),
        (-1_500_000_000, "-1.500000000"),
        (32_772_600_000, "32.772600000"),
        (2**63 - 1, "9223372036.854775807"),
        (-(2**63), "-9223372036.854775808"),
        (None, None),
    ],
)
def test_money_is_shown_to_the_last_nano(engine: Engine, nano: int | None, shown: str | None) -> None:
    stated = "CAST(NULL AS BIGINT)" if nano is None else f"CAST({nano} AS BIGINT)"
    (row,) = rows(engine, f"SELECT {format_money_sql('x', engine.dialect.name)} AS shown FROM (SELECT {stated} AS x) AS one")  # noqa: S608 - ours
    assert row == {"shown": shown}


def test_no_column_of_any_view_is_a_float(engine: Engine) -> None:
    for name, _ in generate_views(engine.dialect.name):
        for row in rows(engine, f"SELECT * FROM {name}"):  # noqa: S608 - ours
            assert not [column for column, value in row.items() if isinstance(value, float)]


def test_spans_are_readable(engine: Engine) -> None:
    closed, going = rows(engine, "SELECT * FROM v_spans ORDER BY span_id")
    shown = (
        *("id", "gpu", "gpu_count", "start_at", "end_at", "seconds", "price_expected", "expected", "expected_nano"),
        "presence",
    )
    assert [closed[name] for name in shown] == [
        *("i-1", "H100-80GB-SXM", "0.125", "2026-11-20T22:00:00.000000Z", "2026-11-21T01:00:00.000000Z", "10800.000000"),
        *("1.234567891", "3.703703673", 3_703_703_673, "seen"),
    ]
    assert [going[name] for name in ("end_at", "seconds", "low", "expected", "high", "high_nano")] == [None] * 6


def test_a_hold_names_its_budgets(engine: Engine) -> None:
    with begin_write(engine) as connection:
        names = ("currency", "who", "why", "provider", "account", "owner", "gpu", "labels")
        hold = {"id": "h1", "nano": 5, "taken_us": T0_US, "expires_us": T0_US} | dict.fromkeys(names, "x")
        connection.execute(insert(HOLD), [hold, hold | {"id": "h2"}])
        connection.execute(insert(HOLD_BUDGET), [{"hold_id": "h1", "budget": name} for name in ("all", "vision")])
    found = rows(engine, "SELECT id, amount, spent, budgets FROM v_holds ORDER BY id")
    assert found == [
        {"id": "h1", "amount": "0.000000005", "spent": None, "budgets": "all, vision"},
        {"id": "h2", "amount": "0.000000005", "spent": None, "budgets": None},
    ]


@pytest.mark.parametrize("name", [name for name, _ in generate_views("sqlite")])
def test_a_view_cannot_be_written_to(engine: Engine, name: str) -> None:
    with pytest.raises(DatabaseError, match=re.compile("view", re.IGNORECASE)), begin_write(engine) as connection:
        connection.execute(text(f"DELETE FROM {name}"))  # noqa: S608 - ours


def test_both_databases_have_the_same_views(engine: Engine) -> None:
    here = [name for name, _ in generate_views(engine.dialect.name)]
    assert here == [name for name, _ in generate_views("sqlite")]
    assert all(name.startswith("v_") for name in here)
