"""Random changes of a ledger by somebody who owns its file, and how many of them `costguard audit verify` finds.

    COSTGUARD_EDITS=10000 python -m tests.security            tries, what was found, bounds, controls, commit and seed
    COSTGUARD_EDITS_SEED=23 COSTGUARD_EDITS_ONE=4711 python -m tests.security    that one change again, in words

Each change starts from the same ledger, and is made by plain SQL with the guards taken down. Nothing here reads the chain with
costguard's code: hashes are made good again by the few lines of docs/LEDGER.md.
"""

from __future__ import annotations

import hashlib
import json
import random
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from costguard.guard.action_intents import DONE, EXECUTING, VERIFYING
from costguard.ledger.guard.store import GuardStore
from costguard.services.guarding import audit
from tests.ledger.acts import FLEET, HOUR, NOON, WIDE, life, planned, wish
from tests.ledger.test_audit import HOOK_RUN, RUN

COLUMNS = ("at_us", "kind", "body", "previous", "hash")
TOLD = ("wish", "intent", "hook_run", "intent_event")
Row = tuple[Any, ...]
Change = Callable[[sqlite3.Connection, random.Random], str]


@dataclass(slots=True)
class Tally:
    """`missed`: (number of the change, in words). `kinds`: how many of each kind were made."""

    tried: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    missed: list[tuple[int, str]] = field(default_factory=list)


def made(folder: Path) -> Path:
    """A ledger with some forty rows of audit, of every kind; its guards taken down. Its settings lie beside it."""
    file = folder / "ledger.db"
    (folder / "costguard.toml").write_text('[ledger]\nurl = "sqlite:///ledger.db"\n')
    with GuardStore(f"sqlite:///{file}", rails=WIDE) as book:
        assert book.acquire_leader_lease("a", NOON, HOUR) == 1
        for number in range(8):
            book.add_override(wish(f"w{number}", why=f"reason {number}"))
        book.lift_override("w2", who="ben", now=NOON)
        for number in range(3):
            one = planned(book, f"i-{number + 5}")
            for state in (EXECUTING, VERIFYING, DONE):
                moved = book.move_intent(one, state, NOON, fleet=FLEET, run=f"{number} {state}")
                assert moved
                one = moved
        for number in range(3):
            run = replace(HOOK_RUN, id=f"h{number}", life=life(f"i-{number + 20}"))
            assert book.begin_hook(run, NOON)
        for number in range(4):
            book.record_run(replace(RUN, id=f"r{number}", facts=(("settings", f"{number:016x}"),)))
        for number in range(5):
            book.add_override(wish(f"last {number}"))
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f'DROP TRIGGER "{name}"')
        connection.execute("PRAGMA journal_mode = DELETE")
    return file


def found(folder: Path, *anchors: str) -> list[str]:
    """What `costguard audit verify` says is wrong; it ends with exit 3 where that is anything."""
    answer = audit.verify_audit(anchors, config=str(folder / "costguard.toml"))
    wrong = [str(one["finding"]) for one in answer.document.records]
    assert bool(wrong) == (answer.refusal is not None)
    assert answer.refusal is None or answer.refusal.exit_code == 3
    return wrong


def tally(folder: Path, changes: int, seed: int, *, only: int | None = None) -> Tally:
    """That many random changes, each of the same ledger; `only`: the one of this number alone."""
    file = made(folder)
    assert found(folder) == []
    whole, came = file.read_bytes(), Tally()
    for number in range(changes):
        dice = random.Random(f"{seed} {number}")  # noqa: S311 - drawn, not secret
        if only is not None and number != only:
            continue
        with closing(sqlite3.connect(file)) as connection:
            change = dice.choice(CHANGES)
            told = change(connection, dice)
            connection.commit()
        came.tried += 1
        came.kinds[change.__name__] += 1
        if not found(folder):
            came.missed.append((number, told))
        file.write_bytes(whole)
    assert found(folder) == []
    return came


def link(previous: str, row: Row) -> str:
    """As docs/LEDGER.md has it."""
    seq, at_us, kind, body = row[:4]
    return hashlib.sha256(json.dumps([previous, seq, at_us, kind, body], separators=(",", ":")).encode()).hexdigest()


def chain(file: sqlite3.Connection) -> list[Row]:
    return file.execute("SELECT seq, at_us, kind, body, previous, hash FROM audit ORDER BY seq").fetchall()


def put(file: sqlite3.Connection, rows: list[Row]) -> None:
    """These rows in place of all."""
    file.execute("DELETE FROM audit")
    file.executemany("INSERT INTO audit (seq, at_us, kind, body, previous, hash) VALUES (?, ?, ?, ?, ?, ?)", rows)


def other(dice: random.Random, value: Any) -> Any:  # noqa: ANN401 - a number, a text or NULL
    """Something else than `value`."""
    if value is None:
        return dice.choice((0, "x"))
    if isinstance(value, int):
        return value + dice.choice((-1, 1, 10**6, -(10**9)))
    if not value:
        return "x"
    place = dice.randrange(len(value))
    return value[:place] + dice.choice([c for c in "0f{}x " if c != value[place]]) + value[place + 1 :]


def an_edit(file: sqlite3.Connection, dice: random.Random) -> str:
    """A cell of a row that is not the last; in half of them that row's own hash is made good again."""
    rows = chain(file)
    at, column = dice.randrange(len(rows) - 1), dice.randrange(len(COLUMNS)) + 1
    row = list(rows[at])
    row[column] = other(dice, row[column])
    if column < 5 and dice.random() < 0.5:
        row[5] = link(row[4], tuple(row))
    put(file, [*rows[:at], tuple(row), *rows[at + 1 :]])
    return f"row {at + 1}, {COLUMNS[column - 1]}: {row[column]!r}"


def a_removal(file: sqlite3.Connection, dice: random.Random) -> str:
    """A row that is not the last; in half of them the gap is closed."""
    rows = chain(file)
    at, closed = dice.randrange(len(rows) - 1), dice.random() < 0.5
    later = [(row[0] - 1, *row[1:]) for row in rows[at + 1 :]] if closed else rows[at + 1 :]
    put(file, [*rows[:at], *later])
    return f"row {at + 1} taken out{', the gap closed' if closed else ''}"


def a_swap(file: sqlite3.Connection, dice: random.Random) -> str:
    """Two rows, each in the other's place."""
    rows = chain(file)
    one, two = sorted(dice.sample(range(len(rows)), 2))
    rows[one], rows[two] = (one + 1, *rows[two][1:]), (two + 1, *rows[one][1:])
    put(file, rows)
    return f"rows {one + 1} and {two + 1} swapped"


def an_insertion(file: sqlite3.Connection, dice: random.Random) -> str:
    """A row more that follows the one before it as it should, with all later numbers moved on."""
    rows = chain(file)
    at = dice.randrange(1, len(rows))
    body = json.dumps({"what": "freeze", "who": "eve"}, sort_keys=True, separators=(",", ":"))
    fresh = (at + 1, rows[at][1], "wished", body, rows[at - 1][5])
    put(file, [*rows[:at], (*fresh, link(fresh[4], fresh)), *((row[0] + 1, *row[1:]) for row in rows[at:])])
    return f"a row put in before row {at + 1}"


def rows_of(file: sqlite3.Connection, table: str) -> tuple[list[str], list[Row]]:
    names = [column[1] for column in file.execute(f"PRAGMA table_info({table})")]
    return names, file.execute(f"SELECT rowid, * FROM {table} ORDER BY rowid").fetchall()  # noqa: S608 - our own names


def a_tampering(file: sqlite3.Connection, dice: random.Random) -> str:
    """A cell of a row that the audit tells of: any that the database itself takes."""
    file.execute("PRAGMA ignore_check_constraints = ON")
    while True:
        table = dice.choice(TOLD)
        names, rows = rows_of(file, table)
        row, column = dice.choice(rows), dice.choice([name for name in names if (table, name) != ("intent_event", "id")])
        value = other(dice, row[names.index(column) + 1])
        with suppress(sqlite3.IntegrityError):  # of another type, or another row's
            file.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (value, row[0]))  # noqa: S608 - our own names
            return f"{table} {row[1]}, {column}: {value!r}"


def a_theft(file: sqlite3.Connection, dice: random.Random) -> str:
    """A row that the audit tells of, gone."""
    table = dice.choice(TOLD)
    _, rows = rows_of(file, table)
    row = dice.choice(rows)
    file.execute(f"DELETE FROM {table} WHERE rowid = ?", (row[0],))  # noqa: S608 - our own names
    return f"{table} {row[1]} taken out"


def a_forgery(file: sqlite3.Connection, dice: random.Random) -> str:
    """A wish that nobody made."""
    names, rows = rows_of(file, "wish")
    row = list(dice.choice(rows)[1:])
    row[names.index("id")], row[names.index("who")] = f"forged {dice.random()}", "eve"
    file.execute(f"INSERT INTO wish ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})", row)  # noqa: S608 - our own names
    return "a wish put in"


CHANGES: tuple[Change, ...] = (an_edit, an_edit, a_removal, a_swap, an_insertion, a_tampering, a_tampering, a_theft, a_forgery)


def cut_off(file: sqlite3.Connection, rows: int) -> None:
    """The last wishes with the rows that tell of them: what no chain shows by itself."""
    last = [json.loads(row[3])["id"] for row in chain(file)[-rows:]]
    put(file, chain(file)[:-rows])
    file.executemany("DELETE FROM wish WHERE id = ?", [(one,) for one in last])


def write_anew(file: sqlite3.Connection) -> None:
    """Somebody else made the last wish; every hash that this changes is made good again."""
    file.execute("UPDATE wish SET who = 'eve' WHERE id = 'last 4'")
    file.row_factory = sqlite3.Row
    row = dict(file.execute("SELECT * FROM wish WHERE id = 'last 4'").fetchone())
    file.row_factory = None
    rows = chain(file)
    body = json.loads(rows[-1][3])
    names = (
        *("id", "what", "who", "why", "at_us", "until_us", "provider", "account", "region", "external_id", "life", "subject"),
        *("value", "lifted_us", "lifted_by"),
    )
    told = json.dumps({name: row[name] for name in names}, sort_keys=True, separators=(",", ":"))
    body |= {"who": "eve", "row": hashlib.sha256(told.encode()).hexdigest()}
    last = (*rows[-1][:3], json.dumps(body, sort_keys=True, separators=(",", ":")), rows[-1][4])
    put(file, [*rows[:-1], (*last, link(last[4], last))])


def head_of(file: Path) -> str:
    """The head, as messages have it."""
    with closing(sqlite3.connect(file)) as connection:
        seq, *_, row_hash = chain(connection)[-1]
    return f"{seq}:{row_hash[:16]}"
