"""What a guard run leaves to the next one: climbs on ladders, protections that were seen, and the run itself."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from costguard.guard.run import GuardRun, ProtectionSighting
from costguard.guard.verdict import EscalationState
from costguard.ledger.db.asking import Ask, Tell
from costguard.ledger.db.codecs import Row
from costguard.ledger.db.lives import KEY, Shape, life_columns, life_of, list_text, make_whole, put, text_list
from costguard.ledger.guard import audit
from costguard.values.instant import MICROSECOND, from_micros, to_micros
from costguard.values.resource import ResourceKey, make_storable

RUNS_KEPT = 10_000
"""A week of one a minute."""

_PROTECTIONS = Shape("protection_seen", tuple(KEY.split(", ")), ("at_us", "how"))
_CLIMBS = Shape("climb", ("policy", *_PROTECTIONS.keys, "life"), ("since_us", "started_us", "done", "left_polls"))
_CLIMB = f"{', '.join((*_CLIMBS.keys, *_CLIMBS.columns))}"
_RUN = "run_id, at_us, epoch, interval_us, skew_us, outcome, notes, facts"


def climbs(ask: Ask) -> list[EscalationState]:
    """Every climb, by policy and resource."""
    rows = ask(f"SELECT {_CLIMB} FROM climb ORDER BY {_CLIMB}", ())  # noqa: S608 - our own column names
    return [
        EscalationState(
            policy=policy,
            life=life_of(life),
            since=from_micros(since_us),
            started_at=from_micros(started_us),
            done=text_list(done),
            left_polls=left_polls,
        )
        for policy, *life, since_us, started_us, done, left_polls in rows
    ]


def write_climbs(ask: Ask, tell: Tell, found: Iterable[EscalationState]) -> None:
    """Keep `found` and no other climb."""
    rows: dict[Row, Row] = {
        (make_storable(one.policy), *life_columns(one.life)): (
            to_micros(one.since),
            to_micros(one.started_at),
            list_text(one.done),
            one.left_polls,
        )
        for one in found
    }
    make_whole(ask, tell, _CLIMBS, rows)


def protections(ask: Ask) -> dict[ResourceKey, ProtectionSighting]:
    """When each resource was last seen protected, of those that ever were."""
    rows = ask(f"SELECT {KEY}, at_us, how FROM protection_seen", ())  # noqa: S608 - our own column names
    return {
        ResourceKey(*key): ProtectionSighting(key=ResourceKey(*key), at=from_micros(at_us), how=how)
        for *key, at_us, how in rows
    }


def write_protections(ask: Ask, tell: Tell, seen: Iterable[ProtectionSighting]) -> None:
    """Take down `seen`. An older sight than the one that is there changes nothing."""
    there = protections(ask)
    rows: dict[Row, Row] = {
        tuple(one.key): (to_micros(one.at), make_storable(one.how))
        for one in seen
        if one.key not in there or there[one.key].at < one.at
    }
    put(tell, _PROTECTIONS, rows)


def last_run(ask: Ask) -> GuardRun | None:
    """The newest run; None before the first one."""
    return next(iter(last_runs(ask, 1)), None)


def last_runs(ask: Ask, most: int) -> list[GuardRun]:
    """The newest runs, the newest first."""
    rows = ask(f"SELECT {_RUN} FROM guard_run ORDER BY id DESC LIMIT {int(most)}", ())  # noqa: S608 - our own column names
    return [
        GuardRun(
            id=run_id,
            at=from_micros(at_us),
            epoch=epoch,
            interval=timedelta(microseconds=interval_us),
            clock_skew=timedelta(microseconds=skew_us),
            outcome=outcome,
            notes=text_list(notes),
            facts=text_list(facts),
        )
        for run_id, at_us, epoch, interval_us, skew_us, outcome, notes, facts in rows
    ]


def write_run(ask: Ask, tell: Tell, run: GuardRun) -> None:
    """Write `run`, and drop what is older than the last RUNS_KEPT; one with its id that is there already stays as it is."""
    row = (
        make_storable(run.id),
        to_micros(run.at),
        run.epoch,
        run.interval // MICROSECOND,
        run.clock_skew // MICROSECOND,
        make_storable(run.outcome),
        list_text([make_storable(note) for note in run.notes]),
        list_text([(make_storable(name), make_storable(value)) for name, value in run.facts]),
    )
    audit.tell_settings(ask, tell, dict(run.facts).get("settings", ""), to_micros(run.at))
    tell(f"INSERT INTO guard_run ({_RUN}) VALUES ({', '.join('?' * len(row))}) ON CONFLICT DO NOTHING", [row])  # noqa: S608 - our own column names
    ((newest,),) = ask("SELECT max(id) FROM guard_run", ())
    tell("DELETE FROM guard_run WHERE id <= ?", [(newest - RUNS_KEPT,)])
