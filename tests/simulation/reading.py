"""What a judge has to go by: the log that the clouds wrote while a world played, and what costguard said and kept.

Lines of JSON in `clouds.jsonl`, each with what it is (`e`) and when, in microseconds since 1970; `ledger.db` beside it. Nothing
here or in any judge knows costguard (tests/simulation/test_judge.py).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

EPOCH, MICRO = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
LOG, LEDGER = "clouds.jsonl", "ledger.db"
COLUMNS = ("id", "life", "act", "policy", "rule", "state", "expires_us", "irreversible", "sends")
Entry = Mapping[str, Any]


class Told(NamedTuple):
    """One machine in one listing."""

    at: datetime
    name: str
    labels: Mapping[str, str]
    started_at: datetime | None
    state: str


class Asked(NamedTuple):
    """One request as it came. `at`: truly; `clock_at`: by the watchdog's clock. `rows`: the machine's open intents then.

    `said`: what was answered; `done`: whether it was really done.
    """

    at: datetime
    clock_at: datetime
    run: int
    name: str
    act: str
    started_at: datetime | None
    rows: tuple[Mapping[str, Any], ...]
    said: str = ""
    done: bool = False


class Wished(NamedTuple):
    """Something that people want from `at` on and before `until`. `name` "": of all; `started_at`: of this life only."""

    what: str
    at: datetime
    until: datetime
    name: str = ""
    started_at: datetime | None = None


class Witness:
    """Reads a ledger's file from beside, so it sees what is committed and nothing else."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection: sqlite3.Connection | None = None

    def intents(self, name: str) -> Iterator[dict[str, Any]]:
        """Those of the machine that are about to be sent."""
        sql = f"SELECT {', '.join(COLUMNS)} FROM intent WHERE external_id = ? AND state = 'executing'"  # noqa: S608 - our own
        for row in self.ask(sql, name):
            yield dict(zip(COLUMNS, row, strict=True))

    def ask(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """Whatever is there."""
        if self._connection is None:
            self._connection = sqlite3.connect(self.path, check_same_thread=False)
        return self._connection.execute(sql, values).fetchall()

    def close(self) -> None:
        """Let go of the file."""
        if self._connection is not None:
            self._connection.close()


@dataclass(slots=True, kw_only=True)
class Record:
    """All that a judge has to go by. `activity`: what each machine truly did from when on, in order.

    `untouchable`: machines that must never be asked anything, with why. `disarmed`: policies that may not act, and since when.
    `polls`: when it was polled truly, with how many machines ran then. `gaps`: when each ended. `odd_runs`: those in which
    nothing may be done, with why. `cap`: "" or dollars; `shown`: the worst overshoots that were shown, in dollars.
    `slack`: how far clocks jumped. `lag`: how late a provider may measure. `healed`: since when nothing is wrong any more.
    `lied`: the samples of `measured` that were told as rest whatever the machine did. `unstarted`: when each machine came
    whose provider does not say when it started, so that it has one life. `transit`: for so long a request may
    be on its way once the ledger let it go. `heard`: when the sample of a machine at a time was told.
    """

    path: Path
    entries: Sequence[Entry]
    start: datetime
    end: datetime
    healed: datetime
    hold: timedelta
    grace: timedelta
    acts_run: int
    acts_10m: int
    share_10m: float
    share_day: float
    kind: str
    cap: str
    untouchable: Mapping[str, str]
    lag: Mapping[str, timedelta]
    told: Sequence[Told]
    asked: Sequence[Asked]
    measured: Mapping[str, set[datetime]]
    activity: Mapping[str, Sequence[tuple[datetime, str]]]
    wished: Sequence[Wished]
    disarmed: Mapping[str, datetime]
    polls: Sequence[tuple[datetime, int]]
    gaps: Sequence[datetime] = ()
    odd_runs: Mapping[int, str] = field(default_factory=dict)
    shown: Sequence[float] = ()
    slack: timedelta = timedelta()
    lied: Mapping[str, set[datetime]] = field(default_factory=dict)
    unstarted: Mapping[str, int] = field(default_factory=dict)
    heard: Mapping[tuple[str, datetime], datetime] = field(default_factory=dict)
    transit: timedelta = timedelta()
    _by: dict[str, list[Entry]] = field(default_factory=dict)

    def of(self, *kinds: str) -> Iterator[Entry]:
        """The entries of `kinds`, in order."""
        if len(kinds) > 1:
            return (one for one in self.entries if one["e"] in kinds)
        if not self._by:
            for one in self.entries:
                self._by.setdefault(one["e"], []).append(one)
        return iter(self._by.get(kinds[0], ()))

    def rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """What the ledger's file holds in the end."""
        with closing(sqlite3.connect(self.path)) as connection:
            return connection.execute(sql, values).fetchall()


def instant(us: int) -> datetime:
    """Microseconds since 1970 as a time."""
    return EPOCH + us * MICRO


def micros(at: datetime) -> int:
    """A time as microseconds since 1970."""
    return (at - EPOCH) // MICRO


def _or_none(us: int | None) -> datetime | None:
    return None if us is None else instant(us)


def read(folder: Path) -> Record:
    """What was written in `folder`."""
    entries = [json.loads(line) for line in (folder / LOG).read_text(encoding="utf-8").splitlines()]
    by: dict[str, list[Entry]] = {}
    for one in entries:
        by.setdefault(one["e"], []).append(one)
    first, last = by["world"][0], by["end"][0]
    return Record(
        path=folder / LEDGER,
        entries=entries,
        start=instant(first["at"]),
        end=instant(last["at"]),
        healed=instant(by["healed"][0]["at"]),
        hold=first["hold_us"] * MICRO,
        grace=first["grace_us"] * MICRO,
        acts_run=first["rails"].get("acts_per_run", 1),
        acts_10m=first["rails"]["acts_per_10m"],
        share_10m=first["rails"]["fleet_share_10m"],
        share_day=first["rails"]["fleet_share_day"],
        kind=first["kind"],
        cap=first["cap"],
        untouchable=first["untouchable"],
        lag={name: us * MICRO for name, us in first["lag"].items()},
        told=[
            Told(instant(one["at"]), name, labels, _or_none(started), state)
            for one in by.get("listed", ())
            for name, labels, started, state in one["items"]
        ],
        asked=[_asked(one) for one in by.get("asked", ())],
        measured=_measured([*by.get("measured", ()), *by.get("lied", ())]),
        lied=_measured(by.get("lied", ())),
        heard={
            (one["name"], instant(us)): instant(one["at"]) for one in reversed(by.get("measured", [])) for us in one["times"]
        },
        transit=first.get("transit_us", 0) * MICRO,
        unstarted={one["name"]: one["at"] for one in by.get("machine", ()) if one["name"] in first.get("unstarted", ())},
        activity=_activity(by.get("does", ())),
        wished=_wished(entries),
        disarmed={"watched": instant(first["at"])} | {one["policy"]: instant(one["at"]) for one in by.get("disarmed", ())},
        polls=[(instant(one["at"]), one["fleet"]) for one in by.get("polled", ())],
        gaps=[instant(one["at"]) for one in by.get("gap", ())],
        odd_runs={one["run"]: one["why"] for one in reversed(by.get("odd", ()))},
        shown=[one["over"] for one in by.get("shown", ())],
        slack=sum((abs(one["by_us"]) * MICRO for one in by.get("jumped", ())), timedelta()),
    )


def _asked(one: Entry) -> Asked:
    rows = tuple(one["rows"])
    at, clock_at, started = instant(one["at"]), instant(one["clock_at"]), _or_none(one["started"])
    return Asked(at, clock_at, one["run"], one["name"], one["act"], started, rows, one["said"], one["done"])


def _measured(entries: Sequence[Entry]) -> dict[str, set[datetime]]:
    found: dict[str, set[datetime]] = {}
    for one in entries:
        found.setdefault(one["name"], set()).update(instant(us) for us in one["times"])
    return found


def _activity(entries: Sequence[Entry]) -> dict[str, list[tuple[datetime, str]]]:
    found: dict[str, list[tuple[datetime, str]]] = {}
    for one in entries:
        found.setdefault(one["name"], []).append((instant(one["at"]), one["what"]))
    return found


def _wished(entries: Sequence[Entry]) -> list[Wished]:
    found: dict[str, Wished] = {}
    for one in entries:
        if one["e"] == "wish":
            wish = Wished(one["what"], instant(one["at"]), instant(one["until"]), one["name"], _or_none(one["started"]))
            found[one["id"]] = wish
        elif one["e"] == "lifted":
            found[one["id"]] = found[one["id"]]._replace(until=instant(one["at"]))
    return list(found.values())
