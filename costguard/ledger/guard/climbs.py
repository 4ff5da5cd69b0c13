"""What a guard run leaves to the next one: climbs on ladders, protections that were seen, and the run itself."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from costguard.guard.run import GuardRun, ProtectionSighting
from costguard.guard.verdict import EscalationState
from costguard.ledger.db.asking import Execute, Query
from costguard.ledger.db.codecs import SqlRow
from costguard.ledger.db.lives import (
    KEY_COLUMNS,
    TableShape,
    decode_life,
    decode_list,
    encode_life_columns,
    encode_list,
    replace_rows,
    upsert_rows,
)
from costguard.ledger.guard import audit
from costguard.values.instant import MICROSECOND, from_micros, to_micros
from costguard.values.resource import ResourceKey, make_storable

RUNS_KEPT = 10_000
"""A week of one a minute."""

_PROTECTION_TABLE = TableShape("protection_seen", tuple(KEY_COLUMNS.split(", ")), ("at_us", "how"))
_ESCALATION_TABLE = TableShape(
    "climb", ("policy", *_PROTECTION_TABLE.keys, "life"), ("since_us", "started_us", "done", "left_polls")
)
_ESCALATION_COLUMNS = f"{', '.join((*_ESCALATION_TABLE.keys, *_ESCALATION_TABLE.columns))}"
_RUN_COLUMNS = "run_id, at_us, epoch, interval_us, skew_us, outcome, notes, facts"


def load_escalations(ask: Query) -> list[EscalationState]:
    """Every climb, by policy and resource."""
    rows = ask(f"SELECT {_ESCALATION_COLUMNS} FROM climb ORDER BY {_ESCALATION_COLUMNS}", ())  # noqa: S608 - our own column names
    return [
        EscalationState(
            policy=policy,
            life=decode_life(life),
            since=from_micros(since_us),
            started_at=from_micros(started_us),
            done=decode_list(done),
            left_polls=left_polls,
        )
        for policy, *life, since_us, started_us, done, left_polls in rows
    ]


def replace_escalations(ask: Query, tell: Execute, found: Iterable[EscalationState]) -> None:
    """Keep `found` and no other climb."""
    rows: dict[SqlRow, SqlRow] = {
        (make_storable(one.policy), *encode_life_columns(one.life)): (
            to_micros(one.since),
            to_micros(one.started_at),
            encode_list(one.done),
            one.left_polls,
        )
        for one in found
    }
    replace_rows(ask, tell, _ESCALATION_TABLE, rows)


def load_protections(ask: Query) -> dict[ResourceKey, ProtectionSighting]:
    """When each resource was last seen protected, of those that ever were."""
    rows = ask(f"SELECT {KEY_COLUMNS}, at_us, how FROM protection_seen", ())  # noqa: S608 - our own column names
    return {
        ResourceKey(*key): ProtectionSighting(key=ResourceKey(*key), at=from_micros(at_us), how=how)
        for *key, at_us, how in rows
    }


def record_protections(ask: Query, tell: Execute, seen: Iterable[ProtectionSighting]) -> None:
    """Take down `seen`. An older sight than the one that is there changes nothing."""
    there = load_protections(ask)
    rows: dict[SqlRow, SqlRow] = {
        tuple(one.key): (to_micros(one.at), make_storable(one.how))
        for one in seen
        if one.key not in there or there[one.key].at < one.at
    }
    upsert_rows(tell, _PROTECTION_TABLE, rows)


def load_last_run(ask: Query) -> GuardRun | None:
    """The newest run; None before the first one."""
    return next(iter(load_last_runs(ask, 1)), None)


def load_last_runs(ask: Query, most: int) -> list[GuardRun]:
    """The newest runs, the newest first."""
    rows = ask(f"SELECT {_RUN_COLUMNS} FROM guard_run ORDER BY id DESC LIMIT {int(most)}", ())  # noqa: S608 - our own column names
    return [
        GuardRun(
            id=run_id,
            at=from_micros(at_us),
            epoch=epoch,
            interval=timedelta(microseconds=interval_us),
            clock_skew=timedelta(microseconds=skew_us),
            outcome=outcome,
            notes=decode_list(notes),
            facts=decode_list(facts),
        )
        for run_id, at_us, epoch, interval_us, skew_us, outcome, notes, facts in rows
    ]


def record_guard_run(ask: Query, tell: Execute, run: GuardRun) -> None:
    """Write `run`, and drop what is older than the last RUNS_KEPT; one with its id that is there already stays as it is."""
    row = (
        make_storable(run.id),
        to_micros(run.at),
        run.epoch,
        run.interval // MICROSECOND,
        run.clock_skew // MICROSECOND,
        make_storable(run.outcome),
        encode_list([make_storable(note) for note in run.notes]),
        encode_list([(make_storable(name), make_storable(value)) for name, value in run.facts]),
    )
    audit.audit_settings(ask, tell, dict(run.facts).get("settings", ""), to_micros(run.at))
    tell(f"INSERT INTO guard_run ({_RUN_COLUMNS}) VALUES ({', '.join('?' * len(row))}) ON CONFLICT DO NOTHING", [row])  # noqa: S608 - our own column names
    ((newest,),) = ask("SELECT max(id) FROM guard_run", ())
    tell("DELETE FROM guard_run WHERE id <= ?", [(newest - RUNS_KEPT,)])
