"""What is done to a ledger while its disk is watched: all that writes, by the product's own doors, and each acknowledged.

    python -m tests.disks.story TASK LEDGER      under the shim

Tasks: "work"; and writers that are broken on purpose: "normal" and "off" (PRAGMA synchronous), "early" (acknowledges before it
commits).

An acknowledgement is a note "ack {json}" in the trace: `sql` with `values` asks the ledger for what it promises and finds a
true value; `file` is a copy that is whole.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from costguard.guard.action_intents import DONE, EXECUTING, VERIFYING
from costguard.guard.alerts.alert import DeliveryResult
from costguard.ledger.db import maintenance
from costguard.ledger.db.connection import PRAGMAS, upgrade_schema
from costguard.ledger.db.schema import HEAD_REVISION
from costguard.ledger.guard.store import GuardStore
from costguard.ledger.spans.books import SpendingReader
from costguard.ledger.spans.writer import LedgerWriter
from costguard.values.instant import to_micros
from costguard.values.resource import ResourceKey
from costguard.values.sample import CPU_UTIL, GPU_UTIL, Sample
from tests.disks.trace import shimmed
from tests.ledger import acts
from tests.ledger.acts import FLEET, HOUR, MINUTE, WIDE, intent, wish
from tests.ledger.fleet import CEILINGS, RULES, START, key, machine, poll
from tests.ledger.test_guardbook import CLIMB, MESSAGE, RUN, TOLD

ROUNDS, REOPENED = 40, (3, 4, 12, 13, 20)
"""Rounds of a life, and after which of them the ledger is closed and opened again; the last stretch is long enough that SQLite
moves its log into the file by itself."""
BACKED_UP = (5, 19)
SETTLED = 7
"""Rounds after which a sent intent is confirmed."""

Question = tuple[str, *tuple[object, ...]]
"""To the ledger, and the values in it."""
Step = tuple[Callable[[], object], Question]
"""What is done, and the question to which the answer is yes from then on."""
ALWAYS = ("SELECT 1",)


def work(url: str, *, early: bool) -> None:
    """All of it."""
    told = shimmed()

    def done(what: Callable[[], object], question: Question = ALWAYS, file: str = "") -> None:
        sql, *values = question
        note = f"ack {json.dumps({'sql': sql, 'values': values, 'file': file})}".encode()
        if early:
            told.disks_note(note)
        what()
        if not early:
            told.disks_note(note)

    done(lambda: upgrade_schema(url), ("SELECT version_num = ? FROM alembic_version", HEAD_REVISION))
    rounds = iter(range(ROUNDS))
    for stretch in (*REOPENED, ROUNDS):
        with LedgerWriter(url, rules=RULES, ceilings=CEILINGS) as ledger, GuardStore(url, rails=WIDE) as book:
            for number in rounds:
                for what, question in _round(number, ledger, book):
                    done(what, question)
                if number in BACKED_UP:
                    copy = f"{url.removeprefix('sqlite:///')}.copy-{number}"
                    done(lambda copy=copy: maintenance.backup_ledger(url, Path(copy)), file=copy)  # type: ignore[misc]  # a default
                if number == stretch:
                    break
        with SpendingReader(url, rules=RULES) as books:  # who reads leaves everything as it is
            books.list_scopes()


def _round(number: int, ledger: LedgerWriter, book: GuardStore) -> Iterator[Step]:
    """A minute of a watchdog's life."""
    now = START + timedelta(days=30, minutes=number)
    machines = [machine(f"i-{n}", "stopped" if (number + n) % 11 == 0 else "running") for n in range(number % 9 + 3)]
    asked = poll(30 * 24 * 60 + number, *machines)
    yield lambda: ledger.record_polls([asked]), ("SELECT max(end_us) >= ? FROM coverage", to_micros(asked.at))
    keys: list[ResourceKey] = [key(f"i-{n}") for n in range(3)]
    samples = [Sample(key=one, signal=signal, at=now, value=0.5) for one in keys for signal in (GPU_UTIL, CPU_UTIL)]
    yield lambda: ledger.record_samples(samples), ("SELECT count(*) = 6 FROM sample WHERE at_us = ?", to_micros(now))
    yield lambda: book.acquire_leader_lease("a", now, HOUR), ("SELECT until_us >= ? FROM turn", to_micros(now + HOUR))
    made = wish(f"w{number}", key=acts.key("kept"), life=acts.life("kept"), at=now, until=now + HOUR)
    yield lambda: book.add_override(made), ("SELECT count(*) = 1 FROM wish WHERE id = ?", made.id)
    if number % 3 == 0:
        yield (
            lambda: book.lift_override(f"w{number}", who="ada", now=now),
            ("SELECT lifted_us IS NOT NULL FROM wish WHERE id = ?", made.id),
        )
    turn = book.load_leader_lease()
    assert turn is not None
    run = replace(RUN, id=f"r{number}", at=now, epoch=turn.epoch, facts=(("round", str(number)),))
    message = replace(MESSAGE, id=f"m{number}", at=now)
    yield (
        lambda: book.record_run(run, climbs=[CLIMB], alert_states=[TOLD], messages=[message]),
        ("SELECT count(*) = 1 FROM guard_run WHERE run_id = ?", run.id),
    )
    yield (
        lambda: book.settle_message(f"m{number}", DeliveryResult(sent=True), now),
        ("SELECT count(*) = 0 FROM outbox WHERE message_id = ? AND sent_us IS NULL", message.id),
    )
    planned = intent(f"i-{number}", id=f"x{number}", created_at=now, moved_at=now, epoch=turn.epoch)
    yield lambda: book.plan_intent(planned), _moved(number, 1)
    yield lambda: book.move_intent(planned, EXECUTING, now, fleet=FLEET), _moved(number, 2)
    if number >= SETTLED:
        late = next(one for one in book.load_open_intents() if one.id == f"x{number - SETTLED}")
        yield lambda: book.move_intent(late, VERIFYING, now), _moved(number - SETTLED, 3)
        sent = next(one for one in book.load_open_intents() if one.id == f"x{number - SETTLED}")
        yield lambda: book.move_intent(sent, DONE, now + MINUTE), _moved(number - SETTLED, 4)


def _moved(number: int, times: int) -> Question:
    return "SELECT count(*) >= ? FROM intent_event WHERE intent_id = ?", times, f"x{number}"


def main(task: str, ledger: str) -> None:
    """One life."""
    if task in ("normal", "off"):
        PRAGMAS["synchronous"] = {"normal": 1, "off": 0}[task]
    work(f"sqlite:///{ledger}", early=task == "early")


if __name__ == "__main__":
    main(*sys.argv[1:])
