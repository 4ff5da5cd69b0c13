"""What must never be asked of a cloud, read off the clouds' own log and the ledger. It knows nothing of costguard."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

from tests.simulation import judge_due, judge_ledger, judge_money
from tests.simulation.reading import Asked, Record, instant, micros

MINUTE, TEN_MINUTES, DAY = timedelta(minutes=1), timedelta(minutes=10), timedelta(days=1)
EXPIRES = timedelta(seconds=30)
FIRST_SEEN = timedelta(minutes=15)
MOST_SENDS = 8
"""Of one intent: four, and those after which a watchdog ended abruptly."""
CALM = "calm"


def violations(record: Record) -> list[str]:
    """Everything that must not be, a sentence each."""
    found = [f"{one.at:%H:%M:%S} {one.act} {one.name}: {why}" for one in record.asked for why in _wrong(one, record)]
    acts = [*found, *_rails(record), *_sends(record), *_twice(record), *_late(record)]
    return [*acts, *judge_money.violations(record), *judge_ledger.violations(record), *judge_due.violations(record)]


def _wrong(one: Asked, record: Record) -> Iterator[str]:
    started = None if one.started_at is None else micros(one.started_at)
    mine = [row for row in one.rows if row["act"] == one.act]
    if not mine:
        yield "no committed intent for it"
        return
    row = mine[0]
    life, _, born = row["life"].partition("/")
    if life != str(started) and not (life == "-" and born == str(record.unstarted.get(one.name))):
        yield f"its intent is of the life {row['life']}, and it is in {started}"
    if row["expires_us"] is None or micros(one.clock_at) >= row["expires_us"]:
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
    if len(seen) < 3 or one.at - seen[0] < FIRST_SEEN - record.slack:
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
    """It was seen to be idle for long enough, in this life, by samples that were really told.

    A listing that repeats an older one tells of it as well where its cloud does not date what it measures.
    """
    cloud = next(machine["cloud"] for machine in record.of("machine") if machine["name"] == one.name)
    repeated = {instant(fault["at"]) for fault in record.of("fault") if (fault["name"], fault["what"]) == (cloud, "stale")}
    lag = record.lag.get(one.name, timedelta())
    answers = record.measured.get(one.name, set()) | (set() if lag else repeated)
    told = sorted(at for at in answers if one.at - record.hold < at <= one.at)
    needed = 0.75 * ((record.hold - lag) / MINUTE)
    whole = [at for at in told if one.started_at is None or at >= one.started_at]
    if len(whole) < needed:
        yield f"only {len(whole)} samples of this life in the last {record.hold}"
    if one.at - max(told, default=record.start) > 3 * MINUTE + lag + record.slack:
        yield "nothing was measured lately"
    since = one.at - record.hold - record.grace + 2 * MINUTE
    truly = record.measured.get(one.name, set()) - record.lied.get(one.name, set())
    busy = [at for at in truly if since < at <= one.at and _did(record, one.name, at) and _was_told(record, one, at)]
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


def _was_told(record: Record, one: Asked, at: datetime) -> bool:
    """Whether the sample at `at` had been told when the request came."""
    return record.heard.get((one.name, at), at) <= one.at


def _did(record: Record, name: str, at: datetime) -> bool:
    """Whether it worked."""
    return next((kind for since, kind in reversed(record.activity[name]) if since <= at), "silent") in {"busy", "io", "cpu"}


def _rails(record: Record) -> Iterator[str]:
    runs = Counter(one.run for one in record.asked)
    yield from (f"{count} acts in the run {run}" for run, count in runs.items() if count > record.acts_run)
    fleet = max((count + len({one.name for one in record.asked if one.at < at}) for at, count in record.polls), default=0)
    for last in record.asked:
        before = [one for one in record.asked if last.at - TEN_MINUTES + record.transit < one.at <= last.at]
        acts, machines = {(one.name, one.started_at) for one in before}, {one.name for one in before}
        if len(acts) > record.acts_10m or len(machines) > max(1, int(fleet * record.share_10m)):
            yield f"{last.at:%H:%M}: {len(acts)} acts on {len(machines)} of {fleet} machines in ten minutes"
    machines = {one.name for one in record.asked}
    if len(machines) > max(1, int(fleet * record.share_day)):
        yield f"{len(machines)} of {fleet} machines in a day"


def _sends(record: Record) -> Iterator[str]:
    """No more requests came than the ledger says it let go."""
    sql = "SELECT intent_id, count(*) FROM intent_event WHERE moved_to = 'executing' GROUP BY intent_id"
    let_go = dict(record.rows(sql))
    came = Counter(row["id"] for one in record.asked for row in one.rows[:1])
    for name, count in came.items():
        if count > let_go.get(name, 0) or count > MOST_SENDS:
            yield f"intent {name} was let go {let_go.get(name, 0)} times, and {count} requests came"


def _twice(record: Record) -> Iterator[str]:
    """One effective stop for a life, and none that was asked for after it was down."""
    done = Counter((one.name, one.started_at) for one in record.asked if one.done)
    yield from (f"{name} was stopped {count} times in one life" for (name, _), count in done.items() if count > 1)


def _late(record: Record) -> Iterator[str]:
    """In a calm world what is idle is stopped as soon as the rails have room."""
    if record.kind != CALM:
        return
    stopped = {one.name: one.at for one in reversed(record.asked)}
    for name, since in _eligible(record):
        due = max(since, record.start) + record.hold + record.grace + 2 * MINUTE
        waited = [at for at, fleet in record.polls if due < at <= stopped.get(name, record.end) and _room(record, at, fleet)]
        if waited and waited[0] < stopped.get(name, record.end + DAY):
            yield f"{name} idles since {since:%H:%M}, was due at {due:%H:%M}, and there was room at {waited[0]:%H:%M}"


def _eligible(record: Record) -> Iterator[tuple[str, datetime]]:
    """What must be stopped in a calm world, and since when it idles."""
    for one in record.of("machine"):
        since, what = record.activity[one["name"]][-1]
        if what == "quiet" and one["name"] not in record.untouchable and not one["few"]:
            yield one["name"], since


def _room(record: Record, at: datetime, fleet: int) -> bool:
    lately = {one.name for one in record.asked if at - TEN_MINUTES - MINUTE <= one.at <= at}
    today = {one.name for one in record.asked if one.at <= at}
    most = min(record.acts_10m, max(1, int(fleet * record.share_10m)))
    return len(lately) < most and len(today) < max(1, int(fleet * record.share_day))
