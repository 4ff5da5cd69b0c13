"""Somebody edits a ledger with a SQL tool: what they could do to a row that decides something, drawn from a seed.

`build_ledger` writes rows of every deciding table through the ledger's own writers. `Editor` changes a copy by sqlite3 alone:
it takes the triggers down, edits, and puts the triggers up again.
"""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from costguard.bills.bill_line import BillLine
from costguard.bills.drift import WITHIN, DriftPart, DriftResult
from costguard.budgets.budget import Budget
from costguard.budgets.hold import Hold
from costguard.guard.action_intents import EXECUTING, VERIFYING
from costguard.guard.alerts.alert import Alert, DeliveryResult, Notification
from costguard.guard.overrides import APPROVE, Override
from costguard.guard.policy import EscalationState
from costguard.guard.run_facts import GuardRun, ProtectionSighting
from costguard.ledger.agents.logins import LoginStore
from costguard.ledger.agents.store import AgentStore
from costguard.ledger.bills.staging import StagedStatement
from costguard.ledger.bills.store import BillStore, GatheredStatement
from costguard.ledger.db.codecs import SqlRow
from costguard.ledger.db.deciding_tables import DECIDING_TABLES, DecidingTable
from costguard.ledger.db.row_digests import format_row_key
from costguard.ledger.guard.ask_links import AskLinkStore
from costguard.ledger.guard.store import GuardStore
from costguard.ledger.holds import HoldStore
from costguard.ledger.spans.writer import LedgerWriter
from costguard.metering.observation import Disk, TrafficCounter
from costguard.values.agent import Agent, EnrollmentCode, WebToken
from costguard.values.ask_link import APPROVED, AskLink
from costguard.values.calendar import Period
from costguard.values.money import Money
from costguard.values.resource import ResourceKey, ScopeKey
from costguard.values.web_login import WebInvite
from tests.ledger.acts import FLEET, HOUR, MINUTE, NOON, WIDE, life, planned
from tests.ledger.fleet import CEILINGS, HERE, RULES, START, STRANGE, THERE, key, machine, poll

POLLS = 60


def build_ledger(url: str, seed: int = 1) -> None:
    """Write a ledger with rows in each deciding table; with another `seed`, after other polls."""
    _write_polls(url, random.Random(seed))  # noqa: S311 - polls are drawn, not secret
    _write_bills(url)
    _write_evidence(url)
    _write_holds(url)
    _write_agents(url)
    _write_guard(url)
    _write_ask_links(url)


def _write_polls(url: str, chance: random.Random) -> None:
    minutes = 9.0
    rules = {"acme": replace(RULES["acme"], restarts="never")}
    with LedgerWriter(url, rules=rules, ceilings=CEILINGS) as ledger:
        for at, items in ((1, [machine("i-9")]), (2, []), (3, []), (4, [machine("i-9")])):  # its end is corrected
            ledger.record_polls([poll(at, *items)])
        for _ in range(POLLS):
            minutes += chance.choice([1, 1, 1, 3, 60, 1500])
            scope = chance.choice([HERE, HERE, HERE, THERE, STRANGE])
            items = [
                machine(
                    key=key(name, scope.provider),
                    state=chance.choice(["running", "running", "stopped", "unknown", "ended"]),
                    usd=chance.choice(["2", "2", "3.33", None]),
                    owner=chance.choice(["", "ada"]),
                    name=chance.choice(["100% of it", "trainer, 'quoted'", "größer"]),
                    started_at=chance.choice([None, None, START + timedelta(minutes=minutes - 30)]),
                    disks=chance.choice([(), (Disk(100, "ssd"),)]),
                    counters=chance.choice([(), (TrafficCounter("traffic", 500),)]),
                )
                for name in ("i-1", "i-2", "i-3")
                if chance.random() < 0.7
            ]
            outcome = chance.choice([{}, {}, {}, {"partial": "a page was lost"}, {"failed": "503"}])
            ledger.record_polls([poll(minutes, *items, scope=scope, **outcome)])


def _write_bills(url: str) -> None:
    for amount in (7, 8):  # the second replaces a line of the first
        lines = [
            BillLine(
                id=f"pod:{number}",
                provider="runpod",
                account="main",
                start=NOON + number * HOUR,
                end=NOON + (number + 1) * HOUR,
                amount=Money(nano=amount if number == 0 else 5),
                charge="compute",
                resource_id="pod-1",
                region="eu",
                source="a test",
            )
            for number in range(3)
        ]
        with StagedStatement() as staged, BillStore(url) as bills:
            staged.add((line, Decimal(0)) for line in lines)
            one = GatheredStatement(staged=staged, source="bill.csv", stated_at=NOON + amount * HOUR)
            bills.import_statements([one], who="ada", now=NOON)
    _fail_in_an_import(url, lines)
    part = DriftPart(
        cause="rate", charge="compute", sku="4090", nano=7, off=7, explained=False, resources=1, lines=1, reason="because"
    )
    result = DriftResult(
        provider="runpod",
        account="main",
        currency="USD",
        period=Period(start=NOON, end=NOON + HOUR),
        at=NOON,
        billed=10,
        charged=(1, 2, 3),
        unexplained=7,
        allowed=9,
        tolerance="1 %",
        outcome=WITHIN,
        parts=(part,),
    )
    with BillStore(url) as bills:
        bills.record_results([result], who="ada")


class _BrokenStatement(StagedStatement):
    """Its file breaks after the last batch."""

    def iterate_batches(self, provider: str) -> Iterator[list[SqlRow]]:
        yield from super().iterate_batches(provider)
        raise EOFError


def _fail_in_an_import(url: str, lines: Sequence[BillLine]) -> None:
    """Begin an import that replaces lines of another one, and fail: what it wrote is undone, and its row stays."""
    with _BrokenStatement() as staged, BillStore(url, hold_s=0) as bills, suppress(EOFError):
        staged.add((replace(line, amount=Money(nano=9)), Decimal(0)) for line in lines)
        one = GatheredStatement(staged=staged, source="bill.csv", stated_at=NOON + 9 * HOUR)
        bills.import_statements([one], who="ada", now=NOON)


def _write_evidence(url: str) -> None:
    """A machine that was found 30 hours old and ended, and the bill of its first day, which bounds what it cost."""
    late = ResourceKey("acme", "late", "west-1", "i-7")
    with LedgerWriter(url, rules=RULES, ceilings=CEILINGS) as ledger:
        for minutes in (1800, 1801, 1802, 1804, 1804 + 4 * 1440):
            items = [machine(key=late, created_at=START)] if minutes < 1802 else []
            ledger.record_polls([poll(minutes, *items, scope=ScopeKey("acme", "late", "west-1"))])
    day = START.replace(hour=0) + timedelta(days=1)  # START is 22:00: the machine may have run all of the next day
    line = BillLine(
        id="i-7:1",
        provider="acme",
        account="late",
        start=day,
        end=day + timedelta(days=1),
        amount=Money(nano=24 * 10**9),
        charge="compute",
        resource_id="i-7",
        region="west-1",
    )
    with StagedStatement() as staged, BillStore(url, rules=RULES) as bills:
        staged.add([(line, Decimal(0))])
        one = GatheredStatement(staged=staged, source="a test", stated_at=day + timedelta(days=5))
        bills.import_statements([one], who="ada", now=day + timedelta(days=5))


def _write_holds(url: str) -> None:
    budget = Budget(name="all", cap=Money.parse("1000000000"))
    plain = Hold(id="h1", money=Money.parse("6"), who="ada", why="run", owner="ada", taken_at=NOON, expires_at=NOON + HOUR)
    with HoldStore(url, rules=RULES) as holds:
        for name, lasts in (("h1", 1), ("h2", 9), ("h3", 9), ("h4", 9)):
            one = replace(plain, id=name, taken_at=NOON + lasts * MINUTE, expires_at=NOON + lasts * HOUR)
            assert holds.take(one, [budget], NOON + lasts * MINUTE).admitted
        holds.commit("h2", Money.parse("3"), NOON + 2 * HOUR)
        holds.release("h3", NOON + 2 * HOUR)
        late = replace(plain, id="h5", taken_at=NOON + 3 * HOUR, expires_at=NOON + 4 * HOUR)
        assert holds.take(late, [budget], NOON + 3 * HOUR).admitted  # which marks the first as expired


def _write_agents(url: str) -> None:
    where, nowhere = ResourceKey("aws", "123", "us-east-1", "i-1"), ResourceKey("", "", "", "")
    with AgentStore(url) as agents:
        for name in ("c1", "c2"):
            agents.add_code(EnrollmentCode(hash=name, key=where, who="ada", at=NOON, expires_at=NOON + HOUR, life=None))
        assert isinstance(agents.join("c1", Agent(id="a1", key=nowhere, public_key="k", joined_at=NOON, version="1")), Agent)
        for name in ("grafana", "laptop"):
            agents.add_token(
                WebToken(hash=f"hash of {name}", name=name, role="viewer", who="ada", at=NOON, expires_at=NOON + HOUR)
            )
        agents.revoke_token("laptop", who="ben", now=NOON)
    with LoginStore(url) as logins:
        for name in ("ada", "ben", "cyd"):
            link = f"link of {name}"
            logins.add_invite(WebInvite(hash=link, name=name, role="admin", who="ada", at=NOON, expires_at=NOON + HOUR))
        for name in ("ada", "ben"):
            logins.redeem(f"link of {name}", f"session of {name}", NOON, NOON + HOUR)
        logins.revoke_sessions(who="ada", now=NOON, name="ben")


def _write_ask_links(url: str) -> None:
    """Links of two questions about the machine of an escalation of `_write_guard`, of which one is answered."""
    with GuardStore(url, rails=WIDE) as book:
        climb = book.load_escalations()[-1]
    with AskLinkStore(url) as links:
        for act in ("stop", "terminate"):
            link = AskLink(
                hash=f"a link about {act}",
                addressee="env:CHAT",
                policy=climb.policy,
                key=climb.life.key,
                act=act,
                episode=climb.episode,
                at=NOON,
                expires_at=NOON + HOUR,
            )
            links.add([link, replace(link, hash=f"another link about {act}", addressee="env:MAIL")])
        wish = Override(id="by link", what=APPROVE, who="env:CHAT (link)", why="x", at=NOON, life=climb.life, subject="stop")
        links.settle("a link about stop", APPROVED, wish, NOON)


def _write_guard(url: str) -> None:
    ahead = Alert(topic="policy:idle", subject="i-5", owner="ada", severity="page", what="stops", at=NOON, ahead=True)
    message = Notification(id="m", channel="c", why_now="first", severity="page", title="t", notices=(ahead,), at=NOON)
    climbs = [
        EscalationState(policy="idle", life=life(name), since=NOON, started_at=NOON, done=(0,), left_polls=0)
        for name in ("i-5", "i-6", "i-7")
    ]
    seen = [ProtectionSighting(key=life(name).key, at=NOON, how="a tag") for name in ("i-5", "i-6")]
    with GuardStore(url, rails=WIDE) as book:
        assert book.acquire_leader_lease("a", NOON, HOUR) == 1
        one = planned(book, "i-5")
        for state in (EXECUTING, VERIFYING):
            moved = book.move_intent(one, state, NOON, fleet=FLEET)
            assert moved is not None
            one = moved
        for number in range(3):
            run = GuardRun(id=f"r{number}", at=NOON + number * MINUTE, epoch=1, interval=MINUTE, facts=(("breaker", "closed"),))
            assert book.record_run(run, climbs=climbs[number:], messages=[message], protections=seen)
        book.settle_message("m", DeliveryResult(sent=True), NOON)


@dataclass(frozen=True, slots=True)
class Edit:
    """What was edited: the table, and the keys by which a finding may name the row."""

    table: str
    keys: tuple[str, ...]
    what: str

    def is_named(self, findings: Sequence[str]) -> bool:
        """Return whether a finding names the row."""
        names = [f"{self.table} {key}" for key in self.keys]
        return any(found.startswith((f"{name} ", f"{name},")) for name in names for found in findings)


class Editor:
    """Edits of one copy of the ledger file `source`, drawn from `chance`, each of a fresh copy."""

    def __init__(self, source: Path, folder: Path, chance: random.Random) -> None:
        self._source, self.path, self._chance = source, folder / "edited.db", chance
        self._tables = list(DECIDING_TABLES.values())

    @property
    def url(self) -> str:
        """The ledger that was edited last."""
        return f"sqlite:///{self.path}"

    def edit_value(self) -> Edit:
        """Change one value of one row to another that the schema takes."""
        while True:
            table = self._chance.choice(self._tables)
            with self.open_copy() as file:
                row = self._draw_row(file, table)
                place = self._chance.randrange(len(table.columns))
                column, old = table.columns[place], row[place]
                new = self._draw_other(file, table, column, old)
                if new == old and type(new) is type(old):
                    continue
                where = " AND ".join(f"{name} = ?" for name in table.key)
                width = len(table.key)
                try:
                    file.execute(f"UPDATE {table.name} SET {column} = ? WHERE {where}", (new, *row[:width]))  # noqa: S608 - our own names
                except sqlite3.IntegrityError:  # the schema does not take it
                    continue
                after = tuple(new if name == column else value for name, value in zip(table.key, row, strict=False))
                keys = (
                    format_row_key(row[:width]),
                    *([format_row_key(after)] if column in table.key and None not in after else []),
                )
                return Edit(table.name, keys, f"{column}: {old!r} -> {new!r}")

    def delete_row(self) -> Edit:
        """Remove a row."""
        table = self._chance.choice(self._tables)
        with self.open_copy() as file:
            row = self._draw_row(file, table)
            where = " AND ".join(f"{name} = ?" for name in table.key)
            file.execute(f"DELETE FROM {table.name} WHERE {where}", row[: len(table.key)])  # noqa: S608 - our own names
            return Edit(table.name, (format_row_key(row[: len(table.key)]),), "removed")

    def insert_row(self) -> Edit:
        """Add a copy of a row under another key."""
        while True:
            table = self._chance.choice(self._tables)
            with self.open_copy() as file:
                row = list(self._draw_row(file, table))
                place = len(table.key) - 1
                row[place] = row[place] + 10**6 if isinstance(row[place], int) else f"{row[place]} again"
                names = ", ".join(table.columns)
                marks = ", ".join("?" * len(row))
                try:
                    file.execute(f"INSERT INTO {table.name} ({names}) VALUES ({marks})", row)  # noqa: S608 - our own names
                except sqlite3.IntegrityError:
                    self._make_unique(table, row)
                    try:
                        file.execute(f"INSERT INTO {table.name} ({names}) VALUES ({marks})", row)  # noqa: S608 - our own names
                    except sqlite3.IntegrityError:
                        continue
                return Edit(table.name, (format_row_key(tuple(row[: len(table.key)])),), "added")

    def swap_rows(self) -> Edit:
        """Exchange the keys of two rows that differ in anything else."""
        while True:
            table = self._chance.choice(self._tables)
            if len(table.key) > 1 or not (table.fixed or table.later):
                continue
            with self.open_copy() as file:
                one, other = self._draw_row(file, table), self._draw_row(file, table)
                if one[0] == other[0] or one[1:] == other[1:]:
                    continue
                spare = -1 if isinstance(one[0], int) else "spare"
                for new, old in ((spare, one[0]), (one[0], other[0]), (other[0], spare)):
                    file.execute(f"UPDATE {table.name} SET {table.key[0]} = ? WHERE {table.key[0]} = ?", (new, old))  # noqa: S608 - our own names
                return Edit(table.name, tuple(format_row_key((row[0],)) for row in (one, other)), "swapped")

    def open_copy(self) -> _Unguarded:
        """Return a copy without triggers; they are put up again when the block ends, and the copy is closed."""
        shutil.copy(self._source, self.path)
        return _Unguarded(self.path)

    def _draw_row(self, file: sqlite3.Connection, table: DecidingTable) -> tuple[Any, ...]:
        rows = file.execute(f"SELECT {', '.join(table.columns)} FROM {table.name}").fetchall()  # noqa: S608 - our own names
        return tuple(self._chance.choice(rows))

    def _draw_other(self, file: sqlite3.Connection, table: DecidingTable, column: str, old: object) -> object:
        """Return another value for a column: a little more or less, one of another row, or none."""
        chance = self._chance
        others = [value for (value,) in file.execute(f"SELECT DISTINCT {column} FROM {table.name}")]  # noqa: S608 - our own names
        drawn = [None, chance.choice(others)]
        if isinstance(old, int):
            drawn += [old + step for step in (1, -1, 61, 3600, -60_000_000, 10**9)] + [0, -old, old * 2]
        elif isinstance(old, str):
            place = chance.randrange(len(old) + 1)
            drawn += [
                old + " ",
                old[:place] + "x" + old[place:],
                old[:place] + old[place + 1 :],
                old.swapcase(),
                "",
                "None",
                "0",
            ]
        else:
            drawn += [0, 1, "None", ""]
        return chance.choice(drawn)

    @staticmethod
    def _make_unique(table: DecidingTable, row: list[Any]) -> None:
        """Change a text in `row` that its table has once."""
        for place, name in enumerate(table.columns):
            if name in ("external_id", "name", "run_id", "labels", "part"):
                row[place] = f"{row[place]}+" if name != "labels" else '[["a","b"]]'


class _Unguarded:
    """A connection without triggers, for one block."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> sqlite3.Connection:
        self._file = sqlite3.connect(self._path, isolation_level=None)
        self._file.execute("PRAGMA synchronous = OFF")
        self._file.execute("BEGIN")
        self._triggers = self._file.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in self._triggers:
            self._file.execute(f"DROP TRIGGER {name}")
        return self._file

    def __exit__(self, *_: object) -> None:
        with closing(self._file):
            for _, sql in self._triggers:
                self._file.execute(sql)
            self._file.execute("COMMIT")
