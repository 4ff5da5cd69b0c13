"""Overrides in the ledger; what a guard run leaves to the next one; and the leader lease.

An override is written once and lifted once; listings never touch it. One with a `life` is read back with the key of that life.
The leader lease is one row with an epoch that only rises. Example: A takes epoch 1 until 12:03 and is suspended. At 12:04 B
takes epoch 2. When A resumes, its intents are refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple

from sqlalchemy import delete, func, insert, or_, text, update
from sqlmodel import col, select

from costguard.errors import InputError
from costguard.guard.audit import LIFTED, WISHED
from costguard.guard.overrides import Override
from costguard.guard.policy import EscalationState
from costguard.guard.run_facts import GuardRun, ProtectionSighting
from costguard.ledger.db.codecs import (
    Execute,
    Query,
    SqlRow,
    decode_life,
    decode_list,
    decode_optional_instant,
    encode_life,
    encode_life_columns,
    encode_list,
    encode_optional_instant,
)
from costguard.ledger.db.rows import insert_new, replace_rows, upsert_rows
from costguard.ledger.guard import audit_log
from costguard.ledger.tables.guard import ClimbRow, GuardRunRow, ProtectionSeenRow, TurnRow
from costguard.ledger.tables.overrides import OverrideRow
from costguard.values.checks import require
from costguard.values.instant import MICROSECOND, from_micros, to_micros
from costguard.values.resource import ResourceKey, make_storable

NO_KEY = ResourceKey("", "", "", "")


def load_open_overrides(ask: Query, now: datetime) -> list[Override]:
    """Return the overrides that count at `now`, oldest first."""
    now_us = to_micros(now)
    lifted_us, until_us = col(OverrideRow.lifted_us), col(OverrideRow.until_us)
    counting = select(OverrideRow).where(
        col(OverrideRow.at_us) <= now_us,
        or_(lifted_us.is_(None), lifted_us > now_us),
        or_(until_us.is_(None), until_us > now_us),
    )
    return list(map(_decode_override, ask(counting.order_by(*_OVERRIDE_ORDER))))


def load_overrides_since(ask: Query, at: datetime) -> list[Override]:
    """Return every override made at or after `at`, in force or not, oldest first, for example to count lease renewals."""
    since = select(OverrideRow).where(col(OverrideRow.at_us) >= to_micros(at))
    return list(map(_decode_override, ask(since.order_by(*_OVERRIDE_ORDER))))


def add_override(ask: Query, tell: Execute, override: Override) -> None:
    """Write `override`; an override whose id already exists stays as it is.

    Raises InputError if `override` is contradictory.
    """
    key = override.life.key if override.life else override.key
    require(override.key in (None, key), f"wish {override.id}", "names two resources", "leave key or life out")
    require(override.lifted_at is None, f"wish {override.id}", "is lifted before it is set", "lift it afterwards")
    provider, account, region, external_id = key or NO_KEY
    row = OverrideRow(
        id=make_storable(override.id),
        what=override.what,
        who=make_storable(override.who),
        why=make_storable(override.why),
        at_us=to_micros(override.at),
        until_us=encode_optional_instant(override.until),
        provider=provider,
        account=account,
        region=region,
        external_id=external_id,
        life=encode_life(override.life) if override.life else "",
        subject=make_storable(override.subject),
        value=make_storable(override.value),
    )
    if tell(insert_new(OverrideRow), [row.model_dump()]) == 1:
        audit_log.audit_row(ask, tell, ("wish", row.id), WISHED, to_micros(override.at))


def lift_override(ask: Query, tell: Execute, wish_id: str, *, who: str, now: datetime) -> Override:
    """Lift an override, and return it.

    A lifted one stays as it is. Raises InputError if there is none.
    """
    rows = ask(select(OverrideRow).where(col(OverrideRow.id) == wish_id))
    if not rows:
        raise InputError(
            "is not an override in this ledger", field=f"wish {wish_id}", hint="costguard status lists the open ones"
        )
    override = _decode_override(rows[0])
    if override.lifted_at is not None:
        return override
    end = {"lifted_us": to_micros(now), "lifted_by": make_storable(who)}
    tell(update(OverrideRow).where(col(OverrideRow.id) == wish_id).values(end))
    audit_log.audit_row(ask, tell, ("wish", wish_id), LIFTED, to_micros(now))
    return replace(override, lifted_at=now, lifted_by=make_storable(who))


_OVERRIDE_ORDER = (col(OverrideRow.at_us), col(OverrideRow.id))


def _decode_override(row: OverrideRow) -> Override:
    key = ResourceKey(row.provider, row.account, row.region, row.external_id)
    return Override(
        id=row.id,
        what=row.what,
        who=row.who,
        why=row.why,
        at=from_micros(row.at_us),
        until=decode_optional_instant(row.until_us),
        key=None if key == NO_KEY else key,
        life=decode_life((*key, row.life)) if row.life else None,
        subject=row.subject,
        value=row.value,
        lifted_at=decode_optional_instant(row.lifted_us),
        lifted_by=row.lifted_by or "",
    )


RUNS_KEPT = 10_000
"""A week of one a minute."""


def load_escalations(ask: Query) -> list[EscalationState]:
    """Return every escalation, by policy and resource."""
    rows: Sequence[ClimbRow] = ask(select(ClimbRow).order_by(*(text(name) for name in ClimbRow.model_fields)))
    return [
        EscalationState(
            policy=row.policy,
            life=decode_life((row.provider, row.account, row.region, row.external_id, row.life)),
            since=from_micros(row.since_us),
            started_at=from_micros(row.started_us),
            done=decode_list(row.done),
            left_polls=row.left_polls,
            meaning=row.meaning,
            promised=tuple((act, from_micros(at_us)) for act, at_us in decode_list(row.promised)),
            announced_from=decode_optional_instant(row.announced_us),
        )
        for row in rows
    ]


def replace_escalations(ask: Query, tell: Execute, escalations: Iterable[EscalationState]) -> None:
    """Replace all stored escalations by `escalations`."""
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
        for one in escalations
    }
    replace_rows(ask, tell, ClimbRow, rows)


def load_protections(ask: Query) -> dict[ResourceKey, ProtectionSighting]:
    """Return when each resource was last seen protected, for those that ever were."""
    rows: Sequence[ProtectionSeenRow] = ask(select(ProtectionSeenRow))
    keys = [ResourceKey(row.provider, row.account, row.region, row.external_id) for row in rows]
    return {
        key: ProtectionSighting(key=key, at=from_micros(row.at_us), how=row.how) for key, row in zip(keys, rows, strict=True)
    }


def record_protections(ask: Query, tell: Execute, sightings: Iterable[ProtectionSighting]) -> None:
    """Store `sightings`.

    A sighting that is not newer than the stored one changes nothing.
    """
    stored = load_protections(ask)
    rows: dict[SqlRow, SqlRow] = {
        tuple(one.key): (to_micros(one.at), make_storable(one.how))
        for one in sightings
        if one.key not in stored or stored[one.key].at < one.at
    }
    upsert_rows(tell, ProtectionSeenRow, rows)


def load_last_run(ask: Query) -> GuardRun | None:
    """Return the newest guard run; None before the first one."""
    return next(iter(load_last_runs(ask, 1)), None)


def load_last_runs(ask: Query, most: int) -> list[GuardRun]:
    """Return the newest guard runs, at most `most`, newest first."""
    rows: Sequence[GuardRunRow] = ask(select(GuardRunRow).order_by(col(GuardRunRow.id).desc()).limit(most))
    return [
        GuardRun(
            id=row.run_id,
            at=from_micros(row.at_us),
            epoch=row.epoch,
            interval=timedelta(microseconds=row.interval_us),
            clock_skew=timedelta(microseconds=row.skew_us),
            outcome=row.outcome,
            notes=decode_list(row.notes),
            facts=decode_list(row.facts),
        )
        for row in rows
    ]


def record_guard_run(ask: Query, tell: Execute, run: GuardRun) -> None:
    """Write `run`, and delete all but the last `RUNS_KEPT` runs.

    A run whose id already exists stays as it is.
    """
    row = {
        "run_id": make_storable(run.id),
        "at_us": to_micros(run.at),
        "epoch": run.epoch,
        "interval_us": run.interval // MICROSECOND,
        "skew_us": run.clock_skew // MICROSECOND,
        "outcome": make_storable(run.outcome),
        "notes": encode_list([make_storable(note) for note in run.notes]),
        "facts": encode_list([(make_storable(name), make_storable(value)) for name, value in run.facts]),
    }
    audit_log.audit_settings(ask, tell, dict(run.facts).get("settings", ""), to_micros(run.at))
    tell(insert_new(GuardRunRow), [row])
    (newest,) = ask(select(func.max(GuardRunRow.id)))
    tell(delete(GuardRunRow).where(col(GuardRunRow.id) <= newest - RUNS_KEPT))


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
    rows: Sequence[TurnRow] = ask(select(TurnRow))
    return next((LeaderLease(row.epoch, row.rounds, row.holder, from_micros(row.until_us)) for row in rows), None)


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
        tell(insert(TurnRow), [{"id": 1, "epoch": 1, "rounds": 1, "holder": holder, "until_us": until_us}])
        return 1
    own = turn.holder == holder
    if turn.is_held(now) and not own:
        return None
    epoch = turn.epoch if own else turn.epoch + 1
    tell(update(TurnRow).values(epoch=epoch, rounds=col(TurnRow.rounds) + 1, holder=holder, until_us=until_us))
    return epoch


def release_leader_lease(tell: Execute, epoch: int) -> None:
    """Release the lease of `epoch`.

    Nothing changes if another epoch holds it by now.
    """
    tell(update(TurnRow).where(col(TurnRow.epoch) == epoch).values(holder="", until_us=0))
