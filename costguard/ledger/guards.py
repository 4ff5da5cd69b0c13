"""Triggers that hold what the ledger promises, whoever writes: nothing is edited but the one closing of an open span.

A span's neighbour is found through the index `span_by_line`: of the spans of one line, which never overlap, the last one that
starts before the new one's end is the only one that can reach into it. Closed spans without a length are no neighbours.

The guards are no part of a migration: it takes them down and puts up those of this version, in its own transaction.
"""

from __future__ import annotations

from collections.abc import Iterator

KEPT_FOR_EVER = ("attribution", "coverage", "correction", "ledger_state", "observation", "resource", "scope", "span")
"""Tables whose rows are never removed."""

_NEVER_EDITED = "{table} is written once: a change is a new row"
_NEVER_REMOVED = "{table} keeps every row"
_CLOSED = "a closed span does not change: write a correction"
_OVERLAP = "a span overlaps another one of its resource, charge and part"

EDITS = {
    "attribution": "",
    "correction": "",
    "coverage": "id, scope_id, outcome, why, start_us",
    "observation": "",
    "resource": "id, provider, account, region, external_id",
    "scope": "",
    "span": (
        "id, resource_id, attribution_id, charge, part, unit, quantity, quantum_s, minimum_s, price_low, price_expected, "
        "price_high, currency, price_known, price_source, presence, anchor_us, start_us, why"
    ),
}
"""Table -> the columns that are never edited; '' for all of them."""

FURTHEST_US = 2**63 - 1
"""Where an open span reaches, as far as its neighbours are concerned."""

PREFIX = "costguard_"
"""Of every trigger's name: what starts with it is ours to take down."""

NEIGHBOUR = f"""
SELECT end_us FROM span
WHERE resource_id = NEW.resource_id AND charge = NEW.charge AND part = NEW.part
    AND start_us < coalesce(NEW.end_us, {FURTHEST_US}) AND (end_us IS NULL OR end_us > start_us)
ORDER BY start_us DESC LIMIT 1
"""  # noqa: S608 - ours
_REACHES_IN = f"""(NEW.end_us IS NULL OR NEW.end_us > NEW.start_us)
    AND (SELECT end_us IS NULL OR end_us > NEW.start_us FROM ({NEIGHBOUR}) AS neighbour)"""  # noqa: S608 - ours


THERE = {
    "sqlite": f"SELECT name, tbl_name FROM sqlite_master WHERE type = 'trigger' AND substr(name, 1, 10) = '{PREFIX}'",  # noqa: S608 - ours
    "postgresql": f"""
SELECT t.tgname, c.relname FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid
WHERE NOT t.tgisinternal AND starts_with(t.tgname, '{PREFIX}') AND c.relnamespace = current_schema()::regnamespace
""",  # noqa: S608 - ours
}
"""Dialect -> the query for (trigger, table) of every guard that is up."""


def names(dialect: str) -> list[str]:
    """Of every guard of this version."""
    return [statement.split()[2] for statement in raised(dialect) if statement.startswith("CREATE TRIGGER")]


def lowered(dialect: str, name: str, table: str) -> str:
    """The statement that takes one guard down."""
    return f"DROP TRIGGER {name}" if dialect == "sqlite" else f"DROP TRIGGER {name} ON {table}"


def raised(dialect: str) -> Iterator[str]:
    """The statements that put the guards up on `dialect`, "sqlite" or "postgresql"."""
    return _sqlite() if dialect == "sqlite" else _postgresql()


def _sqlite() -> Iterator[str]:
    for table in KEPT_FOR_EVER:
        yield _sqlite_trigger(f"{table}_stays", f"DELETE ON {table}", _NEVER_REMOVED.format(table=table))
    for table, columns in EDITS.items():
        of = f" OF {columns}" if columns else ""
        yield _sqlite_trigger(f"{table}_is_written_once", f"UPDATE{of} ON {table}", _NEVER_EDITED.format(table=table))
    yield _sqlite_trigger(
        "span_closes_once",
        "UPDATE OF end_us, ended_by, low, expected, high ON span WHEN OLD.end_us IS NOT NULL OR NEW.end_us IS NULL",
        _CLOSED,
    )
    yield _sqlite_trigger("span_overlaps_none", f"INSERT ON span WHEN {_REACHES_IN}", _OVERLAP)


def _sqlite_trigger(name: str, when: str, message: str) -> str:
    return f"CREATE TRIGGER {PREFIX}{name} BEFORE {when} BEGIN SELECT RAISE(ABORT, '{message}'); END"


def _postgresql() -> Iterator[str]:
    yield """
CREATE OR REPLACE FUNCTION costguard_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING MESSAGE = TG_ARGV[0], ERRCODE = 'integrity_constraint_violation';
END $$
"""
    # A plan made while the table was small would go on scanning it while a large import fills it.
    yield f"""
CREATE OR REPLACE FUNCTION costguard_span_overlaps_none() RETURNS trigger LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
    IF {_REACHES_IN} THEN
        RAISE EXCEPTION USING MESSAGE = '{_OVERLAP}', ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NEW;
END $$
"""
    for table in KEPT_FOR_EVER:
        told = _NEVER_REMOVED.format(table=table)
        yield _refusing(f"{table}_stays", f"DELETE ON {table} FOR EACH ROW", told)
        yield _refusing(f"{table}_stays_whole", f"TRUNCATE ON {table} FOR EACH STATEMENT", told)
    for table, columns in EDITS.items():
        of = f" OF {columns}" if columns else ""
        told = _NEVER_EDITED.format(table=table)
        yield _refusing(f"{table}_is_written_once", f"UPDATE{of} ON {table} FOR EACH ROW", told)
    changes = "UPDATE OF end_us, ended_by, low, expected, high ON span FOR EACH ROW"
    yield _refusing("span_closes_once", f"{changes} WHEN (OLD.end_us IS NOT NULL OR NEW.end_us IS NULL)", _CLOSED)
    yield (
        f"CREATE TRIGGER {PREFIX}span_overlaps_none BEFORE INSERT ON span FOR EACH ROW"
        " EXECUTE FUNCTION costguard_span_overlaps_none()"
    )


def _refusing(name: str, when: str, message: str) -> str:
    return f"CREATE TRIGGER {PREFIX}{name} BEFORE {when} EXECUTE FUNCTION costguard_refuse('{message}')"
