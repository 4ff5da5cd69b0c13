"""What must never be seen in any world, read off the clouds' own logs and the ledger's file. It knows nothing of costguard."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

MINUTE, TEN_MINUTES, DAY = timedelta(minutes=1), timedelta(minutes=10), timedelta(days=1)
EXPIRES = timedelta(seconds=30)
FIRST_SEEN = timedelta(minutes=15)
MOST_SENDS = 8
"""Of one intent: four, and those after which a watchdog ended abruptly."""
COLUMNS = ("id", "life", "act", "policy", "rule", "state", "expires_us", "irreversible", "sends")


class Told(NamedTuple):
    """One machine in one listing."""

    at: datetime
    name: str
    labels: Mapping[str, str]
    started_at: datetime | None
    state: str


class Asked(NamedTuple):
    """One request as it came. `at`: truly; `clock_at`: by the watchdog's clock. `rows`: the machine's open intents then."""

    at: datetime
    clock_at: datetime
    run: int
    name: str
    act: str
    started_at: datetime | None
    rows: tuple[dict[str, Any], ...]


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
        if self._connection is None:
            self._connection = sqlite3.connect(self.path, check_same_thread=False)
        sql = f"SELECT {', '.join(COLUMNS)} FROM intent WHERE external_id = ? AND state = 'executing'"  # noqa: S608 - our own
        for row in self._connection.execute(sql, (name,)).fetchall():
            yield dict(zip(COLUMNS, row, strict=True))

    def close(self) -> None:
        """Let go of the file."""
        if self._connection is not None:
            self._connection.close()


@dataclass(slots=True)
class Record:
    """All that a judge has to go by. `activity`: what each machine truly did from when on, in order.

    `untouchable`: machines that must never be asked anything, with why. `disarmed`: policies that may not act, and since when.
    `polls`: when it was polled truly, with how many machines ran then. `gaps`: when each ended. `odd_runs`: those in which
    nothing may be done, with why. `eligible`: what must be stopped in a calm world, and since when it idles. `cap`: the cap,
    what was spent, and the worst that was shown. `slack`: how far clocks jumped. `lag`: how late a provider may measure.
    """

    path: Path
    start: datetime
    end: datetime
    hold: timedelta
    grace: timedelta
    acts_10m: int
    share_10m: float
    share_day: float
    calm: bool
    told: Sequence[Told]
    asked: Sequence[Asked]
    measured: Mapping[str, set[datetime]]
    activity: Mapping[str, Sequence[tuple[datetime, str]]]
    untouchable: Mapping[str, str]
    wished: Sequence[Wished]
    disarmed: Mapping[str, datetime]
    polls: Sequence[tuple[datetime, int]]
    gaps: Sequence[datetime] = ()
    odd_runs: Mapping[int, str] = field(default_factory=dict)
    eligible: Sequence[tuple[str, datetime]] = ()
    cap: tuple[float, float, float] | None = None
    slack: timedelta = timedelta()
    lag: Mapping[str, timedelta] = field(default_factory=dict)


def violations(record: Record) -> list[str]:
    """Everything that must not be, a sentence each."""
    found = [f"{one.at:%H:%M:%S} {one.act} {one.name}: {why}" for one in record.asked for why in _wrong(one, record)]
    return [*found, *_rails(record), *_sends(record), *_late(record), *_cap(record)]


def _wrong(one: Asked, record: Record) -> Iterator[str]:
    started = (
        None if one.started_at is None else int((one.started_at - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(microseconds=1))
    )
    mine = [row for row in one.rows if row["act"] == one.act]
    if not mine:
        yield "no committed intent for it"
        return
    row = mine[0]
    if row["life"].split("/")[0] != str(started):
        yield f"its intent is of the life {row['life']}, and it is in {started}"
    if row["expires_us"] is None or _us(one.clock_at) >= row["expires_us"]:
        yield "its intent had expired"
    if one.act != "stop":
        yield "nobody allowed to end it"
    if one.name in record.untouchable:
        yield record.untouchable[one.name]
    yield from _protected(one, record)
    yield from _wishes(one, row["rule"], record)
    if row["policy"] in record.disarmed and one.clock_at >= record.disarmed[row["policy"]]:
        yield f"{row['policy']} is not armed"
    if one.run in record.odd_runs:
        yield f"it was done in a run that must do nothing: {record.odd_runs[one.run]}"
    seen = [told.at for told in record.told if told.name == one.name and told.at <= one.at]
    if len(seen) < 3 or one.at - seen[0] < FIRST_SEEN:
        yield f"it was only just seen: {len(seen)} times"
    if row["rule"] == "idle":
        yield from _evidence(one, record)


def _protected(one: Asked, record: Record) -> Iterator[str]:
    for told in record.told:
        if told.name == one.name and told.at <= one.at < told.at + DAY and protects(told.labels):
            yield f"a label protected it at {told.at:%H:%M}"
            return


def protects(labels: Mapping[str, str]) -> bool:
    """Whether labels protect, exactly or by the slips that these worlds know."""
    return any(
        (key, value) in {("costguard", "never"), ("costguard", "nevr"), ("protcted", "yes")} for key, value in labels.items()
    )


def _wishes(one: Asked, rule: str, record: Record) -> Iterator[str]:
    for wish in record.wished:
        if wish.name not in {"", one.name} or not wish.at <= one.clock_at < wish.until:
            continue
        if wish.started_at is not None and wish.started_at != one.started_at:
            continue
        if rule == "cap" and wish.what in {"lease", "phase"}:
            continue
        yield f"a {wish.what} holds from {wish.at:%H:%M:%S} until {wish.until:%H:%M:%S}"


def _evidence(one: Asked, record: Record) -> Iterator[str]:
    """It was seen to be idle for long enough, in this life, by samples that were really told."""
    told = sorted(at for at in record.measured.get(one.name, ()) if one.at - record.hold < at <= one.at)
    lag = record.lag.get(one.name, timedelta())
    needed = 0.75 * ((record.hold - lag) / MINUTE)
    whole = [at for at in told if one.started_at is None or at >= one.started_at]
    if len(whole) < needed:
        yield f"only {len(whole)} samples of this life in the last {record.hold}"
    if one.at - max(told, default=record.start) > 3 * MINUTE + lag + record.slack:
        yield "nothing was measured lately"
    since = one.at - record.hold - record.grace + 2 * MINUTE
    busy = [at for at in record.measured.get(one.name, ()) if since < at <= one.at and _did(record, one.name, at)]
    if len(busy) > 2:
        yield f"it worked at {max(busy):%H:%M}, and {len(busy)} samples said so"
    if any(one.at - at < MINUTE for at in busy):
        yield "it worked just now"
    for gap in record.gaps:
        if gap <= one.at < gap + record.hold + record.grace - MINUTE:
            yield f"its evidence lies before the gap that ended at {gap:%H:%M}"
    for wish in record.wished:
        over = wish.until <= one.clock_at < wish.until + record.hold + record.grace - MINUTE
        mine = wish.name == one.name and wish.started_at in {None, one.started_at}
        if wish.what == "lease" and mine and over and wish.until > wish.at:
            yield f"its evidence lies before the end of the lease at {wish.until:%H:%M}"


def _did(record: Record, name: str, at: datetime) -> bool:
    """Whether it worked."""
    return next((kind for since, kind in reversed(record.activity[name]) if since <= at), "silent") in {"busy", "io", "cpu"}


def _rails(record: Record) -> Iterator[str]:
    runs = Counter(one.run for one in record.asked)
    yield from (f"{count} acts in the run {run}" for run, count in runs.items() if count > 1)
    fleet = max((count + len({one.name for one in record.asked if one.at < at}) for at, count in record.polls), default=0)
    for last in record.asked:
        before = [one for one in record.asked if last.at - TEN_MINUTES < one.at <= last.at]
        acts, machines = {(one.name, one.started_at) for one in before}, {one.name for one in before}
        if len(acts) > record.acts_10m or len(machines) > max(1, int(fleet * record.share_10m)):
            yield f"{last.at:%H:%M}: {len(acts)} acts on {len(machines)} of {fleet} machines in ten minutes"
    machines = {one.name for one in record.asked}
    if len(machines) > max(1, int(fleet * record.share_day)):
        yield f"{len(machines)} of {fleet} machines in a day"


def _sends(record: Record) -> Iterator[str]:
    """No more requests came than the ledger says it let go."""
    sql = "SELECT intent_id, count(*) FROM intent_event WHERE moved_to = 'executing' GROUP BY intent_id"
    with closing(sqlite3.connect(record.path)) as connection:
        let_go = dict(connection.execute(sql).fetchall())
    came = Counter(row["id"] for one in record.asked for row in one.rows[:1])
    for name, count in came.items():
        if count > let_go.get(name, 0) or count > MOST_SENDS:
            yield f"intent {name} was let go {let_go.get(name, 0)} times, and {count} requests came"


def _late(record: Record) -> Iterator[str]:
    """In a calm world what is idle is stopped as soon as the rails have room."""
    if not record.calm:
        return
    stopped = {one.name: one.at for one in reversed(record.asked)}
    for name, since in record.eligible:
        due = max(since, record.start) + record.hold + record.grace + 2 * MINUTE
        waited = [at for at, fleet in record.polls if due < at <= stopped.get(name, record.end) and _room(record, at, fleet)]
        if waited and waited[0] < stopped.get(name, record.end + DAY):
            yield f"{name} idles since {since:%H:%M}, was due at {due:%H:%M}, and there was room at {waited[0]:%H:%M}"


def _room(record: Record, at: datetime, fleet: int) -> bool:
    lately = {one.name for one in record.asked if at - TEN_MINUTES - MINUTE <= one.at <= at}
    today = {one.name for one in record.asked if one.at <= at}
    most = min(record.acts_10m, max(1, int(fleet * record.share_10m)))
    return len(lately) < most and len(today) < max(1, int(fleet * record.share_day))


def _cap(record: Record) -> Iterator[str]:
    if record.cap is not None:
        cap, spent, bound = record.cap
        if spent > cap + bound + 1e-6:
            yield f"{spent:.2f} was spent of {cap:.2f}, and the worst that was shown was {bound:.2f} over"


def _us(at: datetime) -> int:
    return int((at - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(microseconds=1))
