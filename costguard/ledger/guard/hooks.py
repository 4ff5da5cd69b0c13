"""Runs of hooks in the ledger: each written before it begins, and once more when it has ended."""

from __future__ import annotations

from datetime import datetime

from costguard.guard.audit import HOOKED
from costguard.guard.hook import BEGUN, HookEnd, HookRun
from costguard.ledger.db.asking import Execute, Query
from costguard.ledger.db.codecs import SqlRow, decode_optional_instant
from costguard.ledger.db.lives import KEY_COLUMNS, decode_life, encode_life_columns, encode_optional_instant
from costguard.ledger.guard import audit
from costguard.values.instant import from_micros, to_micros
from costguard.values.resource import make_storable

HOOK_RUN_COLUMNS = (
    f"id, {KEY_COLUMNS}, life, policy, rule, number, hook, began_us, until_us, epoch, state, ended_us, status, why, output"
)


def load_hook_runs(ask: Query, since: datetime) -> list[HookRun]:
    """Those that have not ended, and all that were begun at or after `since`, the oldest first."""
    sql = f"SELECT {HOOK_RUN_COLUMNS} FROM hook_run WHERE state = ? OR began_us >= ? ORDER BY began_us, id"  # noqa: S608 - our own column names
    return [_decode_hook_run(row) for row in ask(sql, (BEGUN, to_micros(since)))]


def record_hook_begin(ask: Query, tell: Execute, run: HookRun) -> bool:
    """Write `run`; False where its id is used, or one of its life and step has not ended."""
    row = (
        run.id,
        *encode_life_columns(run.life),
        make_storable(run.policy),
        run.rule,
        run.number,
        make_storable(run.hook),
        to_micros(run.began_at),
        to_micros(run.until),
        run.epoch,
        run.state,
        encode_optional_instant(run.ended_at),
        run.status,
        make_storable(run.why),
        make_storable(run.output),
    )
    sql = f"INSERT INTO hook_run ({HOOK_RUN_COLUMNS}) VALUES ({', '.join('?' * len(row))}) ON CONFLICT DO NOTHING"  # noqa: S608 - our own column names
    if tell(sql, [row]) != 1:
        return False
    audit.audit_row(ask, tell, ("hook_run", run.id), HOOKED, to_micros(run.began_at))
    return True


def record_hook_end(ask: Query, tell: Execute, run_id: str, end: HookEnd, now: datetime) -> bool:
    """Write how a run ended; False where it is not there, or its end is."""
    sql = "UPDATE hook_run SET state = ?, ended_us = ?, status = ?, why = ?, output = ? WHERE id = ? AND state = ?"
    row = (end.state, to_micros(now), end.status, make_storable(end.why), make_storable(end.output), run_id, BEGUN)
    if tell(sql, [row]) != 1:
        return False
    audit.audit_row(ask, tell, ("hook_run", run_id), HOOKED, to_micros(now))
    return True


def _decode_hook_run(row: SqlRow) -> HookRun:
    run_id, *life, policy, rule, number, hook, began_us, until_us, epoch, state, ended_us, status, why, output = row
    return HookRun(
        id=run_id,
        life=decode_life(life),
        policy=policy,
        rule=rule,
        number=number,
        hook=hook,
        began_at=from_micros(began_us),
        until=from_micros(until_us),
        epoch=epoch,
        state=state,
        ended_at=decode_optional_instant(ended_us),
        status=status,
        why=why,
        output=output,
    )
