"""Triggers that enforce the ledger's invariants on every writer.

Which rows and columns they hold is what the classes of `ledger.tables` declare: kept tables, tables that are written once, and
columns that change later. An open span is closed once, an override is lifted once, a line of a bill is
replaced once, an intent moves forward, and each of its sends counts.

The overlap check finds a span's neighbour through the index `span_by_line`: of the spans of one line, which never overlap, only
the last one that starts before the new one's end can overlap it. Closed spans of zero length are ignored.

The triggers are not part of a migration: a migration drops them and creates those of this version, in its own transaction.
"""

from __future__ import annotations

from collections.abc import Iterator

from costguard.guard.action_intents import EXECUTING, GRACE, PLANNED, READY, TRANSITIONS
from costguard.guard.audit import FIRST_HASH
from costguard.guard.escalation import BEGUN
from costguard.ledger.tables import load_metadata

_UNFINISHED_IMPORT = "(SELECT import_id FROM bill_import_unfinished)"
KEPT_UNLESS = {"bill_line": f"OLD.import_id IN {_UNFINISHED_IMPORT}"}
"""Kept table -> the condition under which a row may be removed nevertheless: what a dead import left behind."""

_NEVER_EDITED = "{table} is written once: a change is a new row"
_NEVER_REMOVED = "{table} keeps every row"
_CLOSED = "a closed span does not change: write a correction"
_OVERLAP = "a span overlaps another one of its resource, charge and part"

_ALLOWED_MOVES = ", ".join(f"'{old}>{new}'" for old, news in TRANSITIONS.items() for new in (old, *news))
_FINAL_STATES = ", ".join(f"'{state}'" for state, news in TRANSITIONS.items() if not news)

UPDATE_RULES = {
    "agent_seq_rises": (
        "UPDATE OF seq, record_ms ON agent",
        "NEW.seq < OLD.seq OR NEW.record_ms < OLD.record_ms",
        "the numbers of an agent never fall",
    ),
    "agent_stays_revoked": ("UPDATE ON agent", "OLD.revoked_us IS NOT NULL", "a revoked agent does not change"),
    "agent_code_is_used_once": ("UPDATE ON agent_code", "OLD.used_us IS NOT NULL", "a code is used once"),
    "ask_link_is_settled_once": ("UPDATE ON ask_link", "OLD.settled_us IS NOT NULL", "a question is answered once"),
    "web_invite_is_used_once": ("UPDATE ON web_invite", "OLD.used_us IS NOT NULL", "a login link is used once"),
    "web_session_is_revoked_once": ("UPDATE ON web_session", "OLD.revoked_us IS NOT NULL", "a session is revoked once"),
    "web_token_is_revoked_once": ("UPDATE ON web_token", "OLD.revoked_us IS NOT NULL", "a token is revoked once"),
    "message_count_never_falls": (
        "UPDATE ON message_count",
        "NEW.sent < OLD.sent OR NEW.gave_up < OLD.gave_up OR NEW.tries_failed < OLD.tries_failed",
        "what became of messages is counted once",
    ),
    "span_closes_once": (
        "UPDATE OF end_us, ended_by, low, expected, high ON span",
        "OLD.end_us IS NOT NULL OR NEW.end_us IS NULL",
        _CLOSED,
    ),
    "wish_is_lifted_once": (
        "UPDATE OF lifted_us, lifted_by ON wish",
        "OLD.lifted_us IS NOT NULL OR NEW.lifted_us IS NULL",
        "a wish is lifted once",
    ),
    "intent_begins_unsent": (
        "INSERT ON intent",
        f"NEW.state NOT IN ('{PLANNED}', '{GRACE}', '{READY}') OR NEW.sends <> 0",
        "an intent is written before anything is sent",
    ),
    "intent_moves_forward": (
        "UPDATE OF state ON intent",
        f"(OLD.state || '>' || NEW.state) NOT IN ({_ALLOWED_MOVES})",
        "an intent moves forward only",
    ),
    "intent_counts_sends": (
        "UPDATE OF state, sends ON intent",
        f"""NEW.sends <> OLD.sends + CASE WHEN NEW.state = '{EXECUTING}' AND OLD.state <> '{EXECUTING}' THEN 1 ELSE 0 END
        AND NOT (NEW.sends = OLD.sends - 1 AND OLD.state = '{EXECUTING}' AND NEW.state <> '{EXECUTING}')""",
        "each send of an intent counts, once; one that did not take place is taken back when EXECUTING ends",
    ),
    "intent_stays_settled": ("UPDATE ON intent", f"OLD.state IN ({_FINAL_STATES})", "a settled intent does not change"),
    "hook_run_is_written_before_it_begins": ("INSERT ON hook_run", f"NEW.state <> '{BEGUN}'", "a run of a hook begins unended"),
    "hook_run_ends_once": ("UPDATE ON hook_run", f"OLD.state <> '{BEGUN}'", "a run of a hook ends once"),
    "duty_epoch_rises": ("UPDATE OF epoch ON duty", "NEW.epoch < OLD.epoch", "the epoch of a duty never falls"),
    "turn_epoch_rises": ("UPDATE OF epoch ON turn", "NEW.epoch < OLD.epoch", "the epoch of a turn never falls"),
}
"""Guard -> (when, the condition under which it refuses, what it says)."""

INSTANT_US_MAX = 2**63 - 1
"""Where an open span reaches, as far as its neighbours are concerned."""

TRIGGER_PREFIX = "costguard_"
"""Of every trigger's name: what starts with it is ours to take down."""

NEXT_SPAN_END = f"""
SELECT end_us FROM span
WHERE resource_id = NEW.resource_id AND charge = NEW.charge AND part = NEW.part
    AND start_us < coalesce(NEW.end_us, {INSTANT_US_MAX}) AND (end_us IS NULL OR end_us > start_us)
ORDER BY start_us DESC LIMIT 1
"""  # noqa: S608 - ours
_REACHES_IN = f"""(NEW.end_us IS NULL OR NEW.end_us > NEW.start_us)
    AND (SELECT end_us IS NULL OR end_us > NEW.start_us FROM ({NEXT_SPAN_END}) AS neighbour)"""  # noqa: S608 - ours
_BRANCHES = f"""NEW.seq <> coalesce((SELECT max(seq) FROM audit), 0) + 1
    OR NEW.previous <> coalesce((SELECT hash FROM audit ORDER BY seq DESC LIMIT 1), '{FIRST_HASH}')"""  # noqa: S608 - ours

ASKING_RULES = {
    "span_overlaps_none": ("INSERT ON span", _REACHES_IN, _OVERLAP),
    "audit_goes_on": ("INSERT ON audit", _BRANCHES, "a row of the audit follows the last one"),
    "bill_line_is_replaced_once": (
        "UPDATE OF replaced_us, replaced_by, replaced_why ON bill_line",
        f"""(OLD.replaced_us IS NULL AND NEW.replaced_us IS NULL) OR (OLD.replaced_us IS NOT NULL
    AND (NEW.replaced_us IS NOT NULL OR OLD.replaced_by NOT IN {_UNFINISHED_IMPORT}))""",
        "a line of a bill is replaced once",
    ),
    **{
        f"{table}_stays": (f"DELETE ON {table}", f"NOT ({unless})", _NEVER_REMOVED.format(table=table))
        for table, unless in KEPT_UNLESS.items()
    },
}
"""Guard -> (when, the condition under which it refuses, which asks other rows, what it says)."""


LIST_TRIGGERS = {
    "sqlite": f"SELECT name, tbl_name FROM sqlite_master WHERE type = 'trigger' AND substr(name, 1, 10) = '{TRIGGER_PREFIX}'",  # noqa: S608 - ours
    "postgresql": f"""
SELECT t.tgname, c.relname FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid
WHERE NOT t.tgisinternal AND starts_with(t.tgname, '{TRIGGER_PREFIX}') AND c.relnamespace = current_schema()::regnamespace
""",  # noqa: S608 - ours
}
"""Dialect -> the query for (trigger, table) of every guard that is up."""


def list_kept_tables() -> list[str]:
    """Return the tables whose rows are never removed."""
    return [table.name for table in load_metadata().tables.values() if table.info["kept"]]


def list_fixed_columns() -> dict[str, list[str]]:
    """Return, for each table whose rows are written once, the columns that never change; [] for all of them."""
    written_once = [table for table in load_metadata().tables.values() if table.info["written_once"]]
    fixed = {table: [column.name for column in table.columns if not column.info.get("later")] for table in written_once}
    return {table.name: [] if len(names) == len(table.columns) else names for table, names in fixed.items()}


def list_trigger_names(dialect: str) -> list[str]:
    """Return the names of all triggers of this version."""
    return [
        statement.split()[2] for statement in generate_trigger_statements(dialect) if statement.startswith("CREATE TRIGGER")
    ]


def format_drop_trigger(dialect: str, name: str, table: str) -> str:
    """Return the statement that drops one trigger."""
    return f"DROP TRIGGER {name}" if dialect == "sqlite" else f"DROP TRIGGER {name} ON {table}"


def generate_trigger_statements(dialect: str) -> Iterator[str]:
    """Yield the statements that create the triggers on `dialect`, "sqlite" or "postgresql"."""
    return _generate_sqlite() if dialect == "sqlite" else _generate_postgresql()


def _generate_sqlite() -> Iterator[str]:
    for table in list_kept_tables():
        if table in KEPT_UNLESS:
            continue
        yield _format_sqlite_trigger(f"{table}_stays", f"DELETE ON {table}", _NEVER_REMOVED.format(table=table))
    for table, columns in list_fixed_columns().items():
        of = f" OF {', '.join(columns)}" if columns else ""
        yield _format_sqlite_trigger(f"{table}_is_written_once", f"UPDATE{of} ON {table}", _NEVER_EDITED.format(table=table))
    for name, (when, wrong, message) in {**UPDATE_RULES, **ASKING_RULES}.items():
        yield _format_sqlite_trigger(name, f"{when} WHEN {wrong}", message)


def _format_sqlite_trigger(name: str, when: str, message: str) -> str:
    return f"CREATE TRIGGER {TRIGGER_PREFIX}{name} BEFORE {when} BEGIN SELECT RAISE(ABORT, '{message}'); END"


def _generate_postgresql() -> Iterator[str]:
    yield """
CREATE OR REPLACE FUNCTION costguard_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING MESSAGE = TG_ARGV[0], ERRCODE = 'integrity_constraint_violation';
END $$
"""
    for name, (_, wrong, message) in ASKING_RULES.items():
        # A plan made while the table was small would go on scanning it while a large import fills it.
        yield f"""
CREATE OR REPLACE FUNCTION {TRIGGER_PREFIX}{name}() RETURNS trigger LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
    IF {wrong} THEN
        RAISE EXCEPTION USING MESSAGE = '{message}', ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN coalesce(NEW, OLD);
END $$
"""
    for table in list_kept_tables():
        message = _NEVER_REMOVED.format(table=table)
        if table not in KEPT_UNLESS:
            yield _format_postgresql_trigger(f"{table}_stays", f"DELETE ON {table} FOR EACH ROW", message)
        yield _format_postgresql_trigger(f"{table}_stays_whole", f"TRUNCATE ON {table} FOR EACH STATEMENT", message)
    for table, columns in list_fixed_columns().items():
        of = f" OF {', '.join(columns)}" if columns else ""
        message = _NEVER_EDITED.format(table=table)
        yield _format_postgresql_trigger(f"{table}_is_written_once", f"UPDATE{of} ON {table} FOR EACH ROW", message)
    for name, (when, wrong, message) in UPDATE_RULES.items():
        yield _format_postgresql_trigger(name, f"{when} FOR EACH ROW WHEN ({wrong})", message)
    for name, (when, _, _) in ASKING_RULES.items():
        yield f"CREATE TRIGGER {TRIGGER_PREFIX}{name} BEFORE {when} FOR EACH ROW EXECUTE FUNCTION {TRIGGER_PREFIX}{name}()"


def _format_postgresql_trigger(name: str, when: str, message: str) -> str:
    return f"CREATE TRIGGER {TRIGGER_PREFIX}{name} BEFORE {when} EXECUTE FUNCTION costguard_refuse('{message}')"
