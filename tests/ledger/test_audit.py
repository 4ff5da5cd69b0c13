"""The audit: a row beside each wish, move, hook and change of settings, in one chain, and any change of it is found."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, Executable, StaticPool, create_engine, event, text
from sqlalchemy.exc import DatabaseError

from costguard.errors import InputError
from costguard.guard.action_intents import CANCELLED, DONE, EXECUTING, VERIFYING
from costguard.guard.alerts.alert import Notification
from costguard.guard.audit import FIRST_HASH, AuditAnchor, AuditEntry, AuditFinding, describe_audit_row, parse_anchor
from costguard.guard.escalation import BEGUN, SUCCEEDED, HookEnd, HookRun
from costguard.guard.overrides import FREEZE
from costguard.guard.run_facts import GuardRun
from costguard.ledger.db.connection import begin_write, open_engine
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.db.session import open_query
from costguard.ledger.guard.audit_check import WHOLE_EVERY_S, AuditWatch, check_audit
from costguard.ledger.guard.audit_log import (
    encode_canonical_json,
    find_break_after,
    hash_entry,
    iterate_entries,
    parse_entry,
    read_head_text,
)
from costguard.ledger.guard.store import GuardStore
from tests.campaign import examples
from tests.ledger.acts import FLEET, HOUR, MINUTE, NOON, WIDE, intent, life, planned, wish
from tests.processes import BESIDE

EDITS = examples(10_000)
RUN = GuardRun(id="r1", at=NOON, epoch=1, interval=MINUTE, facts=(("settings", "00aa11bb22cc33dd"),))
HOOK_RUN = HookRun(
    id="h1", life=life(), policy="idle-gpu", rule="idle", number=1, hook="save", began_at=NOON, until=NOON + HOUR, epoch=1
)


@pytest.fixture
def book(url: str) -> Iterator[GuardStore]:
    with GuardStore(url, rails=WIDE) as opened:
        assert opened.acquire_leader_lease("a", NOON, HOUR) == 1
        yield opened


def find_first_break(rows: Iterable[AuditEntry]) -> AuditFinding | None:
    """Return the first break of a complete chain; None if there is none."""
    last = None
    for entry in rows:
        found = find_break_after(last, entry)
        if found:
            return found
        last = entry
    return None


def rows(url: str) -> list[AuditEntry]:
    with LedgerReader(url) as reader, reader.snapshot() as ask:
        return list(iterate_entries(ask))


def findings(url: str, *anchors: str) -> list[str]:
    with LedgerReader(url) as reader, reader.snapshot() as ask:
        return [found.what for found in check_audit(ask, [parse_anchor(one) for one in anchors])[1]]


def head(url: str) -> str:
    with LedgerReader(url) as reader, reader.snapshot() as ask:
        return read_head_text(ask)


def live_through(book: GuardStore) -> None:
    """Something of each kind."""
    book.add_override(wish("w1"))
    book.add_override(wish("w2", what=FREEZE, key=None, life=None, until=None))
    book.lift_override("w2", who="ben", now=NOON)
    one = planned(book, "i-5")
    for state in (EXECUTING, VERIFYING, DONE):
        moved = book.move_intent(one, state, NOON, fleet=FLEET)
        assert moved
        one = moved
    assert book.begin_hook(replace(HOOK_RUN, life=life("i-2")), NOON)
    assert book.end_hook("h1", HookEnd(state=SUCCEEDED, status=0, why="it ended", output="AKIA secret"), NOON)
    assert book.record_run(RUN)


def test_each_wish_move_hook_and_change_of_settings_has_its_row(url: str, book: GuardStore) -> None:
    live_through(book)
    found = [parse_entry(row) for row in rows(url)]
    assert [row.kind for row in found] == (
        ["began", "wished", "wished", "lifted", "moved", "moved", "moved", "moved", "hook", "hook", "settings"]
    )
    assert [row.body.get("to") for row in found[4:8]] == ["ready", "executing", "verifying", "done"]
    assert found[3].body["lifted_by"] == "ben"
    assert [row.body["state"] for row in found[8:10]] == [BEGUN, SUCCEEDED]
    assert found[-1].body == {"mark": "00aa11bb22cc33dd", "before": ""}
    assert findings(url) == []


def test_a_watch_reads_new_rows_only_and_finds_what_the_whole_check_finds(url: str, book: GuardStore) -> None:
    live_through(book)
    seconds, read = [0.0], list[int]()
    watch = AuditWatch(seconds=lambda: seconds[0])

    def check() -> list[str]:
        with LedgerReader(url) as reader, reader.snapshot() as ask:

            def counted(statement: str | Executable, values: Sequence[object] = ()) -> Sequence[Any]:
                answer = ask(statement, values)
                read.append(len(answer) if "audit.seq > " in str(statement) else 0)
                return answer

            read.clear()
            return [found.what for found in watch.check(counted)[1]]

    assert check() == []
    assert sum(read) == len(rows(url))
    book.add_override(wish("w9"))
    assert check() == []
    assert sum(read) < 10
    tamper(url, "UPDATE wish SET why = why || 'x' WHERE id = 'w9'")
    assert check() == findings(url) != []
    tamper(url, "UPDATE wish SET why = substr(why, 1, length(why) - 1) WHERE id = 'w9'")
    tamper(url, "UPDATE audit SET body = '{}' WHERE seq = 2")
    assert check() == []  # in front of what was verified: found by the next whole pass
    seconds[0] += WHOLE_EVERY_S
    assert check() == findings(url) != []
    assert check() == findings(url)
    tamper(url, "DELETE FROM audit WHERE seq = (SELECT max(seq) FROM audit)")
    assert check() == findings(url)


def test_what_changes_nothing_has_no_row(url: str, book: GuardStore) -> None:
    live_through(book)
    before = rows(url)
    book.add_override(wish("w1", why="again"))
    book.lift_override("w2", who="eve", now=NOON + MINUTE)
    assert book.move_intent(planned(book, "i-3"), CANCELLED, NOON) is not None
    after = rows(url)
    assert [row.kind for row in after[len(before) :]] == ["moved"] * 2
    assert not book.end_hook("h1", HookEnd(state=SUCCEEDED), NOON)
    for number in range(3):
        assert book.record_run(replace(RUN, id=f"quiet {number}"))
    assert rows(url) == after


def test_no_row_holds_a_reason_evidence_or_what_a_hook_printed(url: str, book: GuardStore) -> None:
    live_through(book)
    held = "\n".join(row.body for row in rows(url))
    for private in ("AKIA secret", "a run", "idle since", '"state":"idle"'):
        assert private not in held


def test_every_message_carries_the_head_of_its_own_transaction(url: str, book: GuardStore) -> None:
    message = Notification(id="m", channel="c", why_now="first", severity="page", title="t", notices=(), at=NOON)
    book.record_run(RUN, messages=[message])
    assert [one.audit for one in book.due_messages(NOON)] == [head(url)]
    book.add_override(wish("later"))
    assert [one.audit for one in book.due_messages(NOON)] != [head(url)]
    assert findings(url, book.due_messages(NOON)[0].audit) == []


def test_a_row_is_checked_by_ten_lines_that_know_nothing_of_us(url: str, book: GuardStore) -> None:
    """As docs/LEDGER.md has them."""
    import hashlib

    live_through(book)
    previous = "0" * 64
    for number, (seq, at_us, kind, body, before, stated) in enumerate(rows(url), start=1):
        hashed = json.dumps([previous, seq, at_us, kind, body], separators=(",", ":")).encode()
        assert (seq, before, stated) == (number, previous, hashlib.sha256(hashed).hexdigest())
        previous = stated


def test_the_audit_takes_no_edit_no_gap_and_no_branch(url: str, book: GuardStore) -> None:
    live_through(book)
    engine = open_engine(url)
    last = rows(url)[-1]
    after = {"seq": last.seq + 1, "previous": last.hash}
    add = "INSERT INTO audit (seq, at_us, kind, body, previous, hash) VALUES (:seq, 1, 'moved', '{}', :previous, 'x')"
    for statement, values, says in (
        ("UPDATE audit SET body = '{}' WHERE seq = 2", {}, "written once"),
        ("DELETE FROM audit WHERE seq = 2", {}, "keeps every row"),
        (add, after | {"seq": last.seq + 2}, "follows the last one"),
        (add, after | {"seq": last.seq}, "follows the last one"),
        (add, after | {"previous": rows(url)[-2].hash}, "follows the last one"),
    ):
        with pytest.raises(DatabaseError, match=says), engine.begin() as connection:
            connection.execute(text(statement), values)
    engine.dispose()
    assert findings(url) == []


TAMPERED = {
    "UPDATE wish SET why = 'other' WHERE id = 'w1'": "wish w1 differs from row 2",
    "UPDATE wish SET lifted_us = NULL, lifted_by = NULL WHERE id = 'w2'": "wish w2 differs from row 4",
    "UPDATE intent SET state = 'cancelled'": "intent stop i-5 differs from row 8",
    "UPDATE hook_run SET output = ''": "hook run h1 differs from row 10",
    "UPDATE intent_event SET why = 'x' WHERE moved_to = 'verifying'": "move 3 of intent stop i-5 differs from the audit log",
    "DELETE FROM intent_event WHERE moved_to = 'verifying'": "intent stop i-5 made 3 moves, and the audit log records 4",
    "DELETE FROM wish WHERE id = 'w2'": "wish w2, recorded by row 4, is missing",
    "INSERT INTO wish SELECT 'w3', what, who, why, at_us, until_us, provider, account, region, external_id, life, subject,"
    " value, lifted_us, lifted_by FROM wish WHERE id = 'w1'": "wish w3 exists, but no row of the audit log records it",
    'UPDATE guard_run SET facts = \'[["settings","ff"]]\'': "the last run has settings ff in force",
    "UPDATE ledger_state SET ledger_id = 'other'": "and this is other",
    "DELETE FROM audit WHERE seq = 11": "and the audit log records none",
    "DELETE FROM audit WHERE seq >= 9": "hook run h1 exists, but no row of the audit log records it",
    "DELETE FROM audit": "row 1 is missing: the audit log is empty",
}


@pytest.mark.parametrize("statement", TAMPERED)
def test_a_row_that_is_not_as_the_audit_tells_it_is_found(url: str, book: GuardStore, statement: str) -> None:
    live_through(book)
    tamper(url, statement)
    assert any(TAMPERED[statement] in found for found in findings(url)), findings(url)


def tamper(url: str, *statements: str) -> None:
    """As whoever owns the ledger can: with the guards taken down."""
    from costguard.ledger.db import schema

    engine = open_engine(url)
    with begin_write(engine) as connection:
        schema.drop_triggers_and_views(connection)
        for statement in statements:
            connection.execute(text(statement))
    engine.dispose()


def test_a_tail_cut_off_with_all_it_tells_of_is_found_only_with_a_head_that_was_noted(url: str, book: GuardStore) -> None:
    book.add_override(wish("w1"))
    early = head(url)
    book.add_override(wish("w2"))
    noted = head(url)
    tamper(url, "DELETE FROM audit WHERE seq = 3", "DELETE FROM wish WHERE id = 'w2'")
    assert findings(url) == []
    assert findings(url, early) == []
    (found,) = findings(url, early, noted)
    assert found.startswith(f"the audit log does not reach {noted}: it ends at row 2")


def test_an_audit_written_anew_is_found_only_with_a_head_that_was_noted(url: str, book: GuardStore) -> None:
    book.add_override(wish("w1"))
    noted = head(url)
    tamper(url, "DELETE FROM audit WHERE seq > 1", "DELETE FROM wish")
    book.add_override(wish("w1", who="eve"))
    assert findings(url) == []
    (found,) = findings(url, f"audit {noted}")
    assert found.startswith(f"the audit log does not contain {noted}: row 2 has ")


@pytest.mark.parametrize(
    "stated", ["", "12", "0:9f86d081884c7d65", "12:9f86d081884c7d6", "12:xyz6d081884c7d65", "12:" + "a" * 65, "-1:" + "a" * 16]
)
def test_what_is_no_head_is_refused(stated: str) -> None:
    with pytest.raises(InputError, match="is not an audit anchor"):
        parse_anchor(stated)
    assert parse_anchor(" AUDIT 12:9F86D081884C7D65 ") == AuditAnchor(12, "9f86d081884c7d65")


def test_hostile_names_make_no_line_of_their_own_and_no_edited_row_stops_the_words() -> None:
    body = {"what": "freeze", "who": "eve\n\x1b[31mroot", "until_us": 2**62, "subject": "\u202e"}
    assert "\n" not in describe_audit_row("wished", body)
    assert "\x1b" not in describe_audit_row("wished", body)
    for kind in ("began", "adopted", "wished", "lifted", "moved", "hook", "settings", "another"):
        assert describe_audit_row(kind, {})


# 10,000 edits inside a chain


def changed(chance: random.Random, value: Any) -> Any:  # noqa: ANN401 - a number or a text
    """Something else than `value`."""
    if isinstance(value, int):
        return value + chance.choice((-1, 1, 10**6))
    place = chance.randrange(len(value))
    return value[:place] + chance.choice([c for c in "0f{}x" if c != value[place]]) + value[place + 1 :]


def edit(file: sqlite3.Connection, chance: random.Random, chain: list[AuditEntry]) -> str:
    """One change of a row that is not the last, by somebody who may or may not make that row's own hash good again."""
    row = chance.choice(chain[:-1])
    column = chance.choice(("at_us", "kind", "body", "previous", "hash"))
    new = row._replace(**{column: changed(chance, getattr(row, column))})
    if column != "hash" and chance.random() < 0.5:
        new = new._replace(hash=hash_entry(new.previous, new.seq, new.at_us, new.kind, new.body))
    put(file, new)
    return column


def delete(file: sqlite3.Connection, chance: random.Random, chain: list[AuditEntry]) -> str:
    row = chance.choice(chain[:-1])
    file.execute("DELETE FROM audit WHERE seq = ?", (row.seq,))
    if chance.random() < 0.5:  # the gap closed, and each row after it given the number before its own
        for later in chain[row.seq :]:
            file.execute("UPDATE audit SET seq = ? WHERE seq = ?", (later.seq - 1, later.seq))
    return "delete"


def swap(file: sqlite3.Connection, chance: random.Random, chain: list[AuditEntry]) -> str:
    one, other = chance.sample(chain, 2)
    put(file, one._replace(seq=other.seq))
    put(file, other._replace(seq=one.seq))
    return "swap"


def insert(file: sqlite3.Connection, chance: random.Random, chain: list[AuditEntry]) -> str:
    """A row more, that follows the one before it as it should."""
    row = chance.choice(chain[1:])
    for later in reversed(chain[row.seq - 1 :]):
        file.execute("UPDATE audit SET seq = ? WHERE seq = ?", (later.seq + 1, later.seq))
    body = encode_canonical_json({"what": "freeze", "who": "eve"})
    made = AuditEntry(
        row.seq, row.at_us, "wished", body, row.previous, hash_entry(row.previous, row.seq, row.at_us, "wished", body)
    )
    file.execute("INSERT INTO audit VALUES (?, ?, ?, ?, ?, ?)", made)
    return "insert"


def put(file: sqlite3.Connection, row: AuditEntry) -> None:
    file.execute("UPDATE audit SET at_us = ?, kind = ?, body = ?, previous = ?, hash = ? WHERE seq = ?", (*row[1:], row.seq))


def test_ten_thousand_edits_inside_the_chain_are_all_found(sqlite_url: str) -> None:
    with GuardStore(sqlite_url, rails=WIDE) as book:
        assert book.acquire_leader_lease("a", NOON, HOUR) == 1
        live_through(book)
        for number in range(9):
            book.add_override(wish(f"more {number}"))
    tamper(sqlite_url)
    chance = random.Random(23)  # noqa: S311 - edits are drawn, not secret
    ways: list[Callable[[sqlite3.Connection, random.Random, list[AuditEntry]], str]] = [edit, edit, delete, swap, insert]
    with closing(sqlite3.connect(Path(sqlite_url.removeprefix("sqlite:///")), isolation_level=None)) as file:
        ask = open_query(create_engine("sqlite://", creator=lambda: file, poolclass=StaticPool).connect())
        chain = list(iterate_entries(ask))
        assert len(chain) == 20
        assert find_first_break(chain) is None
        missed = []
        for number in range(EDITS):
            file.execute("BEGIN")
            way = chance.choice(ways)(file, chance, chain)
            if find_first_break(iterate_entries(ask)) is None:
                missed.append((number, way))
            file.execute("ROLLBACK")
        assert missed == []
        assert find_first_break(iterate_entries(ask)) is None


def test_the_first_row_that_does_not_fit_is_named_with_what_was_expected() -> None:
    chain: list[AuditEntry] = []
    for seq in range(1, 6):
        previous = chain[-1].hash if chain else FIRST_HASH
        chain.append(AuditEntry(seq, seq, "wished", "{}", previous, hash_entry(previous, seq, seq, "wished", "{}")))
    assert find_first_break(chain) is None
    assert find_first_break([*chain[:2], *chain[3:]]) == AuditFinding(3, "row 3 is missing: row 4 follows instead")
    edited = [*chain[:2], chain[2]._replace(body='{"a":1}'), *chain[3:]]
    comes_to = hash_entry(chain[1].hash, 3, 3, "wished", '{"a":1}')
    says = f"its hash is {chain[2].hash[:16]}, but its content has the hash {comes_to[:16]}"
    assert find_first_break(edited) == AuditFinding(3, f"row 3 was changed: {says}")
    edited[2] = edited[2]._replace(hash=comes_to)
    says = f"it names {chain[2].hash[:16]} as the hash of the row before it, and that one's is {comes_to[:16]}"
    assert find_first_break(edited) == AuditFinding(4, f"row 4 does not follow the row before it: {says}")


# Many at once, and deaths


def die_while_writing(url: str, after: int) -> None:
    """Wish, lift, plan and send, and die by SIGKILL right after the statement number `after`."""
    with GuardStore(url, rails=WIDE) as book:
        seen: list[int] = []

        def die(*_: object) -> None:
            seen.append(1)
            if len(seen) > after:
                os.kill(os.getpid(), signal.SIGKILL)

        event.listen(Engine, "after_cursor_execute", die)
        book.add_override(wish(f"w{after}"))
        book.lift_override(f"w{after}", who="ben", now=NOON)
        one = intent(f"i-{after}")
        book.plan_intent(one)
        book.move_intent(one, EXECUTING, NOON, fleet=FLEET, run=str(after))
        book.record_run(replace(RUN, id=f"r{after}", facts=(("settings", f"{after:x}"),)))


def test_after_a_death_at_any_statement_the_audit_holds(url: str, book: GuardStore) -> None:
    assert book.load_leader_lease()
    heads: list[str] = []
    for after in range(1, 90, 6):
        process = BESIDE.Process(target=die_while_writing, args=(url, after))
        process.start()
        process.join(timeout=60)
        assert findings(url, *heads) == []
        heads.append(head(url))
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL
    assert len(heads) > 5
    book.add_override(wish("afterwards"))
    assert findings(url, *heads) == []


def wish_often(url: str, name: str, times: int) -> None:
    with GuardStore(url, rails=WIDE) as book:
        for number in range(times):
            book.add_override(wish(f"{name} {number}"))
            if number % 3 == 0:
                book.lift_override(f"{name} {number}", who=name, now=NOON)


def test_two_processes_that_write_at_once_make_one_chain(url: str, book: GuardStore) -> None:
    processes = [BESIDE.Process(target=wish_often, args=(url, name, 30)) for name in ("a", "b")]
    for process in processes:
        process.start()
    wish_often(url, "c", 30)
    for process in processes:
        process.join(timeout=120)
    assert [process.exitcode for process in processes] == [0, 0]
    assert len(rows(url)) == 1 + 3 * 40
    assert findings(url) == []
    assert book.load_open_overrides(NOON)
