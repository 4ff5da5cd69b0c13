"""Overrides in the ledger; what a guard run leaves to the next one; and the leader lease.

An override is written once and lifted once; listings never touch it. One with a `life` is read back with the key of that life.
The leader lease is one row with an epoch that only rises. Example: A takes epoch 1 until 12:03 and is suspended. At 12:04 B
takes epoch 2. When A resumes, its intents are refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple

from costguard.errors import InputError
from costguard.guard.audit import LIFTED, WISHED
from costguard.guard.overrides import Override
from costguard.guard.policy import EscalationState
from costguard.guard.run_facts import GuardRun, ProtectionSighting
from costguard.ledger.db.codecs import (
    KEY_COLUMNS,
    Execute,
    Query,
    SqlRow,
    TableShape,
    decode_life,
    decode_list,
    decode_optional_instant,
    encode_life,
    encode_life_columns,
    encode_list,
    encode_optional_instant,
    replace_rows,
    upsert_rows,
)
from costguard.ledger.db.row_digests import remove_seals, seal_rows
from costguard.ledger.guard import audit_log
from costguard.values.checks import require
from costguard.values.instant import MICROSECOND, from_micros, to_micros
from costguard.values.resource import ResourceKey, make_storable

OVERRIDE_COLUMNS = f"id, what, who, why, at_us, until_us, {KEY_COLUMNS}, life, subject, value, lifted_us, lifted_by"
NO_KEY = ResourceKey("", "", "", "")


def load_open_overrides(ask: Query, now: datetime) -> list[Override]:
    """Return the overrides that count at `now`, oldest first."""
    sql = f"""
SELECT {OVERRIDE_COLUMNS} FROM wish
WHERE at_us <= ? AND (lifted_us IS NULL OR lifted_us > ?) AND (until_us IS NULL OR until_us > ?) ORDER BY at_us, id
"""  # noqa: S608 - our own column names
    return [_decode_override(row) for row in ask(sql, (to_micros(now),) * 3)]


def load_overrides_since(ask: Query, at: datetime) -> list[Override]:
    """Return every override made at or after `at`, in force or not, oldest first, for example to count lease renewals."""
    sql = f"SELECT {OVERRIDE_COLUMNS} FROM wish WHERE at_us >= ? ORDER BY at_us, id"  # noqa: S608 - our own column names
    return [_decode_override(row) for row in ask(sql, (to_micros(at),))]


def add_override(ask: Query, tell: Execute, wish: Override) -> None:
    """Write `wish`; an override whose id already exists stays as it is.

    Raises InputError if `wish` is contradictory.
    """
    key = wish.life.key if wish.life else wish.key
    require(wish.key in (None, key), f"wish {wish.id}", "names two resources", "leave key or life out")
    require(wish.lifted_at is None, f"wish {wish.id}", "is lifted before it is made", "lift it afterwards")
    row = (
        make_storable(wish.id),
        wish.what,
        make_storable(wish.who),
        make_storable(wish.why),
        to_micros(wish.at),
        encode_optional_instant(wish.until),
        *(key or NO_KEY),
        encode_life(wish.life) if wish.life else "",
        make_storable(wish.subject),
        make_storable(wish.value),
    )
    names = OVERRIDE_COLUMNS.removesuffix(", lifted_us, lifted_by")
    sql = f"INSERT INTO wish ({names}) VALUES ({', '.join('?' * len(row))}) ON CONFLICT DO NOTHING"  # noqa: S608 - our own column names
    if tell(sql, [row]) == 1:
        audit_log.audit_row(ask, tell, ("wish", row[0]), WISHED, to_micros(wish.at))


def lift_override(ask: Query, tell: Execute, wish_id: str, *, who: str, now: datetime) -> Override:
    """Lift an override, and return it.

    A lifted one stays as it is. Raises InputError if there is none.
    """
    rows = ask(f"SELECT {OVERRIDE_COLUMNS} FROM wish WHERE id = ?", (wish_id,))  # noqa: S608 - our own column names
    if not rows:
        raise InputError("is not a wish of this ledger", field=f"wish {wish_id}", hint="costguard status lists the open ones")
    wish = _decode_override(rows[0])
    if wish.lifted_at is not None:
        return wish
    tell("UPDATE wish SET lifted_us = ?, lifted_by = ? WHERE id = ?", [(to_micros(now), make_storable(who), wish_id)])
    audit_log.audit_row(ask, tell, ("wish", wish_id), LIFTED, to_micros(now))
    return replace(wish, lifted_at=now, lifted_by=make_storable(who))


def _decode_override(row: SqlRow) -> Override:
    wish_id, what, who, why, at_us, until_us, *columns, life, subject, value, lifted_us, lifted_by = row
    key = ResourceKey(*columns)
    return Override(
        id=wish_id,
        what=what,
        who=who,
        why=why,
        at=from_micros(at_us),
        until=decode_optional_instant(until_us),
        key=None if key == NO_KEY else key,
        life=decode_life((*key, life)) if life else None,
        subject=subject,
        value=value,
        lifted_at=decode_optional_instant(lifted_us),
        lifted_by=lifted_by or "",
    )


RUNS_KEPT = 10_000
"""A week of one a minute."""

_PROTECTION_TABLE = TableShape("protection_seen", tuple(KEY_COLUMNS.split(", ")), ("at_us", "how"))
_ESCALATION_TABLE = TableShape(
    "climb",
    ("policy", *_PROTECTION_TABLE.keys, "life"),
    ("since_us", "started_us", "done", "left_polls", "meaning", "promised", "announced_us"),
)
_ESCALATION_COLUMNS = f"{', '.join((*_ESCALATION_TABLE.keys, *_ESCALATION_TABLE.columns))}"
_RUN_COLUMNS = "run_id, at_us, epoch, interval_us, skew_us, outcome, notes, facts"


def load_escalations(ask: Query) -> list[EscalationState]:
    """Return every escalation, by policy and resource."""
    rows = ask(f"SELECT {_ESCALATION_COLUMNS} FROM climb ORDER BY {_ESCALATION_COLUMNS}", ())  # noqa: S608 - our own column names
    return [
        EscalationState(
            policy=policy,
            life=decode_life(life),
            since=from_micros(since_us),
            started_at=from_micros(started_us),
            done=decode_list(done),
            left_polls=left_polls,
            meaning=meaning,
            promised=tuple((act, from_micros(at_us)) for act, at_us in decode_list(promised)),
            announced_from=decode_optional_instant(announced_us),
        )
        for policy, *life, since_us, started_us, done, left_polls, meaning, promised, announced_us in rows
    ]


def replace_escalations(ask: Query, tell: Execute, found: Iterable[EscalationState]) -> None:
    """Replace all stored escalations by `found`."""
    rows: dict[SqlRow, SqlRow] = {
        (make_storable(one.policy), *encode_life_columns(one.life)): (
            to_micros(one.since),
            to_micros(one.started_at),
            encode_list(one.done),
            one.left_polls,
            make_storable(one.meaning),
            encode_list([(act, to_micros(at)) for act, at in one.promised]),
            encode_optional_instant(one.announced_from),
        )
        for one in found
    }
    changed, gone = replace_rows(ask, tell, _ESCALATION_TABLE, rows)
    seal_rows(tell, "climb", _ESCALATION_COLUMNS, [(*key, *row) for key, row in changed.items()])
    remove_seals(tell, "climb", gone)


def load_protections(ask: Query) -> dict[ResourceKey, ProtectionSighting]:
    """Return when each resource was last seen protected, for those that ever were."""
    rows = ask(f"SELECT {KEY_COLUMNS}, at_us, how FROM protection_seen", ())  # noqa: S608 - our own column names
    return {
        ResourceKey(*key): ProtectionSighting(key=ResourceKey(*key), at=from_micros(at_us), how=how)
        for *key, at_us, how in rows
    }


def record_protections(ask: Query, tell: Execute, seen: Iterable[ProtectionSighting]) -> None:
    """Store `seen`.

    A sighting that is not newer than the stored one changes nothing.
    """
    there = load_protections(ask)
    rows: dict[SqlRow, SqlRow] = {
        tuple(one.key): (to_micros(one.at), make_storable(one.how))
        for one in seen
        if one.key not in there or there[one.key].at < one.at
    }
    upsert_rows(tell, _PROTECTION_TABLE, rows)
    seal_rows(tell, "protection_seen", f"{KEY_COLUMNS}, at_us, how", [(*key, *row) for key, row in rows.items()])


def load_last_run(ask: Query) -> GuardRun | None:
    """Return the newest guard run; None before the first one."""
    return next(iter(load_last_runs(ask, 1)), None)


def load_last_runs(ask: Query, most: int) -> list[GuardRun]:
    """Return the newest guard runs, at most `most`, newest first."""
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
    """Write `run`, and delete all but the last `RUNS_KEPT` runs.

    A run whose id already exists stays as it is.
    """
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
    audit_log.audit_settings(ask, tell, dict(run.facts).get("settings", ""), to_micros(run.at))
    sql = f"INSERT INTO guard_run ({_RUN_COLUMNS}) VALUES ({', '.join('?' * len(row))}) ON CONFLICT DO NOTHING"  # noqa: S608 - our own column names
    added = tell(sql, [row]) == 1
    ((newest,),) = ask("SELECT max(id) FROM guard_run", ())
    if added:
        seal_rows(tell, "guard_run", f"id, {_RUN_COLUMNS}", [(newest, *row)])
    gone = ask("SELECT id FROM guard_run WHERE id <= ?", (newest - RUNS_KEPT,))
    if gone:
        tell("DELETE FROM guard_run WHERE id = ?", list(gone))
        remove_seals(tell, "guard_run", gone)


LEASE_MAX = timedelta(hours=6)
"""A turn that seems to go on for longer was taken by a clock that was wrong: it is free."""


class LeaderLease(NamedTuple):
    """The leader lease.

    `rounds`: how often it was taken or renewed, which numbers the guard runs.
    """

    epoch: int
    rounds: int
    holder: str
    until: datetime

    def is_held(self, now: datetime) -> bool:
        """Return whether a process holds it at `now`."""
        return bool(self.holder) and now < self.until <= now + LEASE_MAX


def load_leader_lease(ask: Query) -> LeaderLease | None:
    """Return the leader lease; None before the first one."""
    rows = ask("SELECT epoch, rounds, holder, until_us FROM turn", ())
    for epoch, rounds, holder, until_us in rows:
        return LeaderLease(epoch, rounds, holder, from_micros(until_us))
    return None


def is_leader(turn: LeaderLease | None, epoch: int, now: datetime) -> bool:
    """Return whether `epoch` may act at `now`."""
    return turn is not None and turn.epoch == epoch and turn.is_held(now)


def acquire_leader_lease(ask: Query, tell: Execute, holder: str, now: datetime, lasts: timedelta) -> int | None:
    """Take or renew the lease for `holder` until `now + lasts`; return its epoch, or None if another holder has it.

    `holder` names one process, never a machine. Renewing keeps the epoch.
    """
    require(bool(holder), "holder", "is empty", "name the process")
    require(timedelta() < lasts <= LEASE_MAX, "turn", f"cannot last {lasts}", "three guard runs are enough")
    turn, until_us = load_leader_lease(ask), to_micros(now + lasts)
    holder = make_storable(holder)
    if turn is None:
        tell("INSERT INTO turn (id, epoch, rounds, holder, until_us) VALUES (1, 1, 1, ?, ?)", [(holder, until_us)])
        _seal_turn(ask, tell)
        return 1
    own = turn.holder == holder
    if turn.is_held(now) and not own:
        return None
    epoch = turn.epoch if own else turn.epoch + 1
    tell("UPDATE turn SET epoch = ?, rounds = rounds + 1, holder = ?, until_us = ? WHERE id = 1", [(epoch, holder, until_us)])
    _seal_turn(ask, tell)
    return epoch


def release_leader_lease(ask: Query, tell: Execute, epoch: int) -> None:
    """Release the lease of `epoch`.

    Nothing changes if another epoch holds it by now.
    """
    if tell("UPDATE turn SET holder = '', until_us = 0 WHERE id = 1 AND epoch = ?", [(epoch,)]) == 1:
        _seal_turn(ask, tell)


def _seal_turn(ask: Query, tell: Execute) -> None:
    """Seal the row of the lease, which was just written."""
    columns = "id, epoch, rounds, holder, until_us"
    seal_rows(tell, "turn", columns, ask(f"SELECT {columns} FROM turn", ()))  # noqa: S608 - our own column names
