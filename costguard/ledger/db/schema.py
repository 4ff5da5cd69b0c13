"""Schema of a ledger: its revision, migrations to this version, and views for people with any SQL tool.

A new ledger is made from the classes of `ledger.tables`. The stored revision is read by one plain query, and Alembic (0.9 s to
import) is loaded only if a migration is due. All migrations between two versions, with triggers and views, are one transaction
on both databases: an upgrade that fails in the middle leaves the ledger as it was.

    SELECT date, provider, gpu, expected, currency FROM v_daily WHERE date >= '2026-11-01' ORDER BY date;

Views show times as ISO text in UTC and money as exact decimal text; columns ending in `_nano` are the same money as integers,
for sums.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a type and no more: whoever only reads a ledger does not pay for importing it
    from sqlalchemy import Connection


NANO = 10**9


def format_money_sql(column: str, dialect: str) -> str:
    """Return SQL for the exact decimal text of nano-units: -1500000000 is '-1.500000000', and NULL is NULL."""
    if dialect == "postgresql":
        return f"({column} * 0.000000001)::text"
    digits = f"printf('%d.%09d', abs({column} / {NANO}), abs({column} % {NANO}))"
    return f"CASE WHEN {column} IS NULL THEN NULL WHEN {column} < 0 THEN '-' || {digits} ELSE {digits} END"


def format_time_sql(column: str, dialect: str) -> str:
    """Return SQL for an instant as text: '2026-11-21T00:00:00.000000Z', and NULL is NULL."""
    if dialect == "postgresql":
        at = f"timestamp '1970-01-01' + {column} * interval '1 microsecond'"
        return f"""to_char({at}, 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')"""
    return f"strftime('%Y-%m-%dT%H:%M:%S', {column} / 1000000, 'unixepoch') || printf('.%06dZ', {column} % 1000000)"


def format_seconds_sql(column: str, dialect: str) -> str:
    """Return SQL for microseconds as exact decimal text of seconds."""
    if dialect == "postgresql":
        return f"({column} * 0.000001)::text"
    return f"CASE WHEN {column} IS NULL THEN NULL ELSE printf('%d.%06d', {column} / 1000000, {column} % 1000000) END"


def format_date_sql(column: str, dialect: str) -> str:
    """Return SQL for a day since 1970 as '2026-11-21'."""
    if dialect == "postgresql":
        return f"to_char(date '1970-01-01' + {column}::integer, 'YYYY-MM-DD')"
    return f"date({column} * 86400, 'unixepoch')"


def format_thousandths_sql(column: str, dialect: str) -> str:
    """Return SQL for thousandths as decimal text: 125 is '0.125'."""
    if dialect == "postgresql":
        return f"({column} * 0.001)::text"
    return f"printf('%d.%03d', {column} / 1000, {column} % 1000)"


def generate_views(dialect: str) -> Iterator[tuple[str, str]]:
    """Yield (name, SELECT) of every view on `dialect`, "sqlite" or "postgresql", in the order of creation."""
    for name, query in (
        ("v_scopes", _format_scopes_view),
        ("v_resources", _format_resources_view),
        ("v_observations", _format_observations_view),
        ("v_spans", _format_spans_view),
        ("v_daily", _format_daily_view),
        ("v_holds", _format_holds_view),
    ):
        yield name, query(dialect)


def _format_columns(dialect: str, *columns: tuple[str, str, str]) -> str:
    """Return (kind, expression, name) as a list of columns.

    The kind selects a function above; '' leaves the expression as it is.
    """
    kinds = {
        "money": format_money_sql,
        "time": format_time_sql,
        "seconds": format_seconds_sql,
        "date": format_date_sql,
        "thousandths": format_thousandths_sql,
    }
    parts = (f"{kinds[kind](text, dialect) if kind else text} AS {name}" for kind, text, name in columns)
    return ",\n    ".join(parts)


def _list_plain_columns(table: str, names: str) -> tuple[tuple[str, str, str], ...]:
    return tuple(("", f"{table}.{name}", name) for name in names.split())


def _format_scopes_view(dialect: str) -> str:
    columns = _format_columns(
        dialect,
        *_list_plain_columns("s", "provider account"),
        ("", "s.name", "scope"),
        *_list_plain_columns("c", "outcome why"),
        ("time", "c.start_us", "since"),
        ("time", "c.end_us", "last_poll_at"),
        *_list_plain_columns("c", "polls"),
        ("time", "(SELECT max(g.end_us) FROM coverage AS g WHERE g.scope_id = s.id AND g.outcome = 'complete')", "complete_at"),
    )
    latest = "c.id = (SELECT max(l.id) FROM coverage AS l WHERE l.scope_id = s.id)"
    return f"SELECT\n    {columns}\nFROM scope AS s LEFT JOIN coverage AS c ON {latest}"


def _format_resources_view(dialect: str) -> str:
    columns = _format_columns(
        dialect,
        *_list_plain_columns("r", "provider account region"),
        ("", "r.external_id", "id"),
        *_list_plain_columns("r", "kind"),
        *_list_plain_columns("o", "state"),
        *_list_plain_columns("d", "name instance_type owner"),
        ("time", "d.started_us", "started_at"),
        ("time", "d.stopped_us", "stopped_at"),
        ("time", "r.first_seen_us", "first_seen_at"),
        ("time", "o.at_us", "said_at"),
        ("", "(SELECT count(*) FROM span AS n WHERE n.resource_id = r.id AND n.end_us IS NULL)", "open_spans"),
        *_list_plain_columns("d", "detail"),
    )
    last_observation = "SELECT max(l.id) FROM observation AS l WHERE l.resource_id = r.id"
    return f"""SELECT
    {columns}
FROM resource AS r
LEFT JOIN observation AS o ON o.id = ({last_observation})
LEFT JOIN observation AS d ON d.id = ({last_observation} AND l.state <> 'absent')"""  # noqa: S608 - our own names


def _format_observations_view(dialect: str) -> str:
    columns = _format_columns(
        dialect,
        ("time", "o.at_us", "said_at"),
        *_list_plain_columns("r", "provider account region"),
        ("", "r.external_id", "id"),
        *_list_plain_columns("o", "state name instance_type owner"),
        ("time", "o.started_us", "started_at"),
        ("time", "o.stopped_us", "stopped_at"),
        ("time", "o.seen_us", "seen_at"),
        *_list_plain_columns("o", "detail"),
    )
    return f"SELECT\n    {columns}\nFROM observation AS o JOIN resource AS r ON r.id = o.resource_id"


def _format_spans_view(dialect: str) -> str:
    amounts = ((kind, name) for name in ("low", "expected", "high") for kind in ("money", ""))
    columns = _format_columns(
        dialect,
        *_list_plain_columns("r", "provider account region"),
        ("", "r.external_id", "id"),
        *_list_plain_columns("a", "kind gpu"),
        ("thousandths", "a.gpu_count_milli", "gpu_count"),
        *_list_plain_columns("a", "tier owner instance_type labels"),
        *_list_plain_columns("s", "charge part"),
        ("time", "s.start_us", "start_at"),
        ("time", "s.end_us", "end_at"),
        ("seconds", "(s.end_us - s.start_us)", "seconds"),
        *_list_plain_columns("s", "why ended_by"),
        ("", "coalesce(c.presence, s.presence)", "presence"),
        ("", "c.reason", "corrected"),
        ("money", "s.price_low", "price_low"),
        ("money", "s.price_expected", "price_expected"),
        ("money", "s.price_high", "price_high"),
        *_list_plain_columns("s", "price_known price_source unit quantity quantum_s minimum_s currency"),
        *((kind, f"coalesce(c.{name}, s.{name})", name if kind else f"{name}_nano") for kind, name in amounts),
        ("", "s.id", "span_id"),
    )
    return f"""SELECT
    {columns}
FROM span AS s
JOIN resource AS r ON r.id = s.resource_id
JOIN attribution AS a ON a.id = s.attribution_id
LEFT JOIN correction AS c ON c.id = (SELECT max(l.id) FROM correction AS l WHERE l.span_id = s.id)"""  # noqa: S608 - our own names


def _format_daily_view(dialect: str) -> str:
    amounts = ((kind, name) for name in ("low", "expected", "high") for kind in ("money", ""))
    columns = _format_columns(
        dialect,
        ("date", "d.day", "date"),
        *_list_plain_columns("a", "provider account region kind gpu"),
        ("thousandths", "a.gpu_count_milli", "gpu_count"),
        *_list_plain_columns("a", "tier owner instance_type labels"),
        *_list_plain_columns("d", "charge currency known"),
        *((kind, f"d.{name}", name if kind else f"{name}_nano") for kind, name in amounts),
        ("seconds", "d.us", "seconds"),
    )
    return f"SELECT\n    {columns}\nFROM daily AS d JOIN attribution AS a ON a.id = d.attribution_id"


def _format_holds_view(dialect: str) -> str:
    columns = _format_columns(
        dialect,
        *_list_plain_columns("h", "id who why"),
        ("money", "h.nano", "amount"),
        ("money", "h.spent_nano", "spent"),
        *_list_plain_columns("h", "currency provider account owner gpu labels"),
        ("time", "h.taken_us", "taken_at"),
        ("time", "h.expires_us", "expires_at"),
        ("time", "h.ended_us", "ended_at"),
        *_list_plain_columns("h", "ended_by"),
        ("", "string_agg(b.budget, ', ')" if dialect == "postgresql" else "group_concat(b.budget, ', ')", "budgets"),
    )
    return f"SELECT\n    {columns}\nFROM hold AS h LEFT JOIN hold_budget AS b ON b.hold_id = h.id\nGROUP BY h.id"


REVISIONS = ("0017", "0018", "0019")
"""Every revision that this version can bring up to date, oldest first. The last one is what it reads and writes."""
EARLIER_REVISIONS = tuple(f"{number:04d}" for number in range(1, 17))
"""Those of before the base, whose migrations are gone."""
IMPORTED_REVISIONS = EARLIER_REVISIONS[-3:]
"""Those of them that `costguard db import` reads."""

HEAD_REVISION = REVISIONS[-1]
APPLICATION_ID = 0x43474C44
"""Marks a SQLite file as a ledger: "CGLD" in ASCII."""

MIGRATIONS_FOLDER = Path(__file__).parent.parent / "migrations"
_migration_lock = threading.Lock()  # Alembic keeps its running environment in a module


def migrate_schema(connection: Connection) -> None:
    """Migrate the schema of `connection`, of an older of `REVISIONS`, to `HEAD_REVISION`, within its transaction."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS_FOLDER).replace("%", "%%"))
    config.attributes["connection"] = connection
    drop_triggers_and_views(connection)
    with _migration_lock:
        command.upgrade(config, "head")
    create_triggers_and_views(connection)


def renew_triggers_and_views(connection: Connection) -> None:
    """Drop and create all triggers and views, whatever their present definition."""
    drop_triggers_and_views(connection)
    create_triggers_and_views(connection)


def drop_triggers_and_views(connection: Connection) -> None:
    """Drop triggers and views, because they refer to columns that a migration may change."""
    from costguard.ledger.db import triggers  # what only reads needs neither these nor what the guard calls its states

    dialect = connection.dialect.name
    for name, table in connection.exec_driver_sql(triggers.LIST_TRIGGERS[dialect]).all():
        connection.exec_driver_sql(triggers.format_drop_trigger(dialect, name, table))
    for name, _ in reversed(list(generate_views(dialect))):
        connection.exec_driver_sql(f"DROP VIEW IF EXISTS {name}")


def create_triggers_and_views(connection: Connection) -> None:
    """Create all triggers and views, of which there are none."""
    from costguard.ledger.db import triggers

    dialect = connection.dialect.name
    for statement in triggers.generate_trigger_statements(dialect):
        connection.exec_driver_sql(statement)
    for name, query in generate_views(dialect):
        connection.exec_driver_sql(f"CREATE VIEW {name} AS {query}")
