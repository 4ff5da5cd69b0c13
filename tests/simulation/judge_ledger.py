"""What a ledger must hold once nothing is wrong any more, whether people were told, and whether its audit is whole (I10, I11).

The storm ends, three polls follow: by then each scope is seen as it is, and nothing that was sent before is in doubt. Messages
have their own pace after tries that failed, so the world goes on until none is due.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta

from tests.simulation.reading import Record, instant, micros

POLLS_TO_HEAL = 3
MINUTE = timedelta(minutes=1)
IN_DOUBT = ("executing", "verifying", "unconfirmed")
RUNS = ("running", "stopping")
FIRST = "0" * 64


def violations(record: Record) -> list[str]:
    """What is wrong in the end."""
    return [*_current(record), *_whole(record), *_settled(record), *_done(record), *_told(record), *_chained(record)]


def _current(record: Record) -> Iterator[str]:
    """Each scope was listed whole by the third poll after all was well again, and ever since; clocks may have jumped."""
    due = record.healed + (POLLS_TO_HEAL - 1) * MINUTE
    sql = """
SELECT s.provider, c.outcome, c.start_us, c.end_us FROM coverage AS c JOIN scope AS s ON s.id = c.scope_id
WHERE c.id = (SELECT max(l.id) FROM coverage AS l WHERE l.scope_id = s.id)
"""
    last = {one["cloud"]: instant(one["at"]) for one in record.of("listed")}
    for provider, outcome, since, until in record.rows(sql):
        if outcome != "complete" or instant(since) > due + record.slack:
            well = f"nothing is wrong since {record.healed:%H:%M:%S}"
            yield f"{provider} is {outcome} since {instant(since):%H:%M:%S}, and {well}"
        elif instant(until) < last[provider]:
            yield f"{provider} was last seen at {instant(until):%H:%M:%S}, and it told at {last[provider]:%H:%M:%S}"


def _whole(record: Record) -> Iterator[str]:
    """Nothing counts as seen completely that was not told to its end; where a clock jumped nobody knows when it was told."""
    sql = """
SELECT c.start_us, c.end_us FROM coverage AS c JOIN scope AS s ON s.id = c.scope_id
WHERE s.provider = ? AND c.outcome = 'complete' AND c.start_us <= ? AND ? <= c.end_us
"""
    for one in record.of("unlisted") if not record.slack else ():
        for since, until in record.rows(sql, one["cloud"], one["clock_at"], one["clock_at"]):
            known = f"the ledger has it complete from {instant(since):%H:%M:%S} to {instant(until):%H:%M:%S}"
            yield f"{one['cloud']} did not tell all at {instant(one['clock_at']):%H:%M:%S}, and {known}"


def _settled(record: Record) -> Iterator[str]:
    """Nothing is in doubt that was sent before all was well again.

    What may not be asked again (its reason is gone, or its lives cannot be told apart) stays unconfirmed, and people are told.
    """
    told = [payload for (payload,) in record.rows("SELECT payload FROM outbox") if "NOT CONFIRMED" in payload]
    sql = f"SELECT id, external_id, state, sent_us FROM intent WHERE state IN {IN_DOUBT}"  # noqa: S608 - our own states
    clock_at = next((one["clock_at"] for one in record.of("healed")), 0)
    for number, name, state, sent in record.rows(sql):
        known = state == "unconfirmed" and any(name in payload for payload in told)
        if (sent is None or sent <= clock_at) and not known:
            yield f"the intent {number} of {name} is still {state}, and nothing is wrong since {record.healed:%H:%M:%S}"


def _done(record: Record) -> Iterator[str]:
    """What counts as done was done: it was down, or is in another life."""
    turns = {one["name"]: one["turns"] for one in record.of("turns")}
    for number, name, life in record.rows("SELECT id, external_id, life FROM intent WHERE state = 'done'"):
        began = life.split("/")[0]
        down = any(state not in RUNS or (began != "-" and (started or 0) > int(began)) for _, state, started in turns[name])
        if not down:
            yield f"the intent {number} of {name} is done, and it runs since {began}"


def _told(record: Record) -> Iterator[str]:
    """Every message arrived at least once, and as often at most as somebody ended between its sending and its settling."""
    arrived = Counter(one["id"] for one in record.of("message"))
    ended = sum(one["where"] == "told" for one in record.of("ended"))
    for name, sent, gave_up in record.rows("SELECT message_id, sent_us, gave_up_us FROM outbox"):
        if not arrived[name] and gave_up is None:
            yield f"the message {name} never arrived, and is {'said to have been sent' if sent else 'not sent'}"
        if arrived[name] > 1 + ended:
            yield f"the message {name} arrived {arrived[name]} times, and {ended} watchdogs ended as they told"
    known = {name for (name,) in record.rows("SELECT message_id FROM outbox")}
    yield from (f"the message {name} was told, and is not in the ledger" for name in arrived if name not in known)
    yield from _announced(record)


def _announced(record: Record) -> Iterator[str]:
    """What is stopped for idling was told of before, but where people wanted to hear nothing."""
    hushed = {one["name"] for one in record.of("snoozed")}
    written = record.rows("SELECT at_us, payload FROM outbox ORDER BY at_us")
    for one in record.asked:
        rows = [row for row in one.rows if row["rule"] == "idle"]
        if one.name in hushed or not rows:
            continue
        before = [(at, payload) for at, payload in written if at < micros(one.clock_at)]
        if not any(one.name in payload for _, payload in before):
            yield f"{one.name} was stopped at {one.at:%H:%M:%S}, and nobody was told before"


def _chained(record: Record) -> Iterator[str]:
    """The audit's rows follow each other (docs/LEDGER.md), and it begins as what each watchdog left of it."""
    previous, heads = FIRST, [FIRST]
    for number, (seq, at, kind, body, before, stated) in enumerate(record.rows(_AUDIT), start=1):
        hashed = json.dumps([previous, seq, at, kind, body], separators=(",", ":")).encode()
        if (seq, before, stated) != (number, previous, hashlib.sha256(hashed).hexdigest()):
            yield f"the audit breaks at its row {number}"
            return
        previous = stated
        heads.append(stated)
    for one in record.of("head"):
        if one["seq"] >= len(heads) or heads[one["seq"]] != one["hash"]:
            yield f"the audit had {one['seq']} rows, and what it holds now does not begin with those"


_AUDIT = "SELECT seq, at_us, kind, body, previous, hash FROM audit ORDER BY seq"
