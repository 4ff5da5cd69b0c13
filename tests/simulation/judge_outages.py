"""What a day with an outage came to, held against the same day without one: read off both logs, without knowing costguard.

Where a cloud dates what happened, the outage must leave no trace: the same amounts, to the nano-dollar. Elsewhere the doubt
may be so wide as decision 0014 says and no wider, reckoned here anew from when each cloud was looked at, and saw what.

Example: a machine at 2.99 dollars an hour ended at 10:40, its cloud was out from 00:40 to 24:40 and dates no end. It was last
seen at 00:40, less a minute that a listing may lag, and is lacking at 24:40: between 0 and 24 h 1 min x 2.99 = 71.81 dollars.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from tests.simulation.judge import violations
from tests.simulation.judge_money import ALLOWED_US, BILLS, HOUR_US, MINUTE_US, ROUNDED
from tests.simulation.reading import Entry, Record, instant, micros

LAG_US = MINUTE_US
"""So far a listing of each of the five may lag behind, as the shipped billing rules assume."""
TICKS = 2
REPEATS_H = (4, 24)
"""A notice that goes on is repeated after so many hours."""
NOTICED_US = 15 * MINUTE_US
"""So long an outage is not worth a word."""
LIES = ("empty", "stale")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """`stops`: acts while the outage lasted, and those that are wrong. `exact`, `bounded`: machines that must be so, and are.

    `ticks`: polls until all is as it will stay. `notices`: messages that an outage began, was still there, was over. `width`:
    dollars of doubt that it left. `wrong`: what must not be, a sentence each.
    """

    stops: tuple[int, int]
    exact: tuple[int, int]
    bounded: tuple[int, int]
    ticks: int
    notices: tuple[int, int, int]
    width: float
    wrong: tuple[str, ...]


def judged(record: Record, calm: Record) -> Outcome:
    """`calm`: the same day without an outage."""
    out = next(iter(record.of("outage")))
    stops = [one for one in record.asked if out["from"] <= micros(one.at) < out["until"]]
    wrong = violations(record)
    bad = [one for one in wrong if " stop " in one or " terminate " in one]
    now, before = _last(record), _last(calm)
    exact, bounded = [0, 0], [0, 0]
    for name, (low, high) in now.items():
        if _turns(record)[name] != _turns(calm)[name]:
            continue  # it was stopped at another time than it would have been, and cost something else
        more, width = _doubt(record, name) - _doubt(calm, name), high - low
        if not more:
            exact[0] += 1
            exact[1] += (low, high) == before[name]
            if (low, high) != before[name]:
                wrong.append(f"{name} came to {_dollars(low, high)}, and without an outage to {_dollars(*before[name])}")
            continue
        bounded[0] += 1
        grown, same = width - (before[name][1] - before[name][0]), out["how"] == "down"
        fits = abs(grown - more) <= 4 * ROUNDED if same else grown <= more + 4 * ROUNDED
        bounded[1] += fits
        if not fits:
            wrong.append(f"{name} is {grown / 1e9:.6f} dollars wider for the outage, and {float(more) / 1e9:.6f} is its bound")
    ticks, notices = _ticks(record, out), _notices(record)
    if ticks > TICKS:
        wrong.append(f"all was as it stays after {ticks} polls")
    wrong += [*_unfit(notices, out), *_noise(record, calm, out)]
    return Outcome(
        stops=(len(stops), len(bad)),
        exact=(exact[0], exact[1]),
        bounded=(bounded[0], bounded[1]),
        ticks=ticks,
        notices=notices,
        width=sum(high - low for low, high in now.values()) / 1e9 - sum(high - low for low, high in before.values()) / 1e9,
        wrong=tuple(wrong),
    )


def _last(record: Record) -> dict[str, tuple[int, int]]:
    return {name: (low, high) for name, low, high in list(record.of("said"))[-1]["money"]}


def _doubt(record: Record, name: str) -> Fraction:
    """Nano-dollars of doubt that what was told of a machine leaves, by decision 0014."""
    tells = next(one for one in record.of("role") if one["name"] == name)
    rate = next(one["nano"] for one in record.of("machine") if one["name"] == name)
    acts = {micros(one.at) for one in record.asked if one.name == name}  # each came after the listing of its instant
    turns = [(int(at) + (int(at) in acts), str(state)) for at, state, _ in _turns(record)[name]]
    unsure, settled = 0, 0
    for a, b in pairwise(_looks(record, tells["cloud"])):
        begins, ends, settled = _between(a, b, settled, turns, tells)
        unsure += max(0, ends - begins)
    return Fraction(rate * unsure, HOUR_US)


def _turns(record: Record) -> dict[str, Sequence[Sequence[int | str]]]:
    return {one["name"]: one["turns"] for one in record.of("turns")}


def _looks(record: Record, cloud: str) -> list[int]:
    """When it told all that there was."""
    lies = {one["at"] for one in record.of("fault") if one["name"] == cloud and one["what"] in LIES}
    return [one["at"] for one in record.of("listed") if one["cloud"] == cloud and one["whole"] and one["at"] not in lies]


def _between(a: int, b: int, settled: int, turns: Sequence[tuple[int, str]], tells: Entry) -> tuple[int, int, int]:
    """From when to when nobody can say whether it billed, between two looks; and until when all is settled then.

    `settled`: until when it was before.
    """
    was = [state for at, state in turns if at <= a][-1:]
    came = [(at, state) for at, state in turns if a < at <= b]
    since, wide, never = max(a - LAG_US, settled), b - a + LAG_US > ALLOWED_US, tells["cloud"] == "lambda"
    if not came:
        unsaid = bool(was) and wide and not tells["started"] and not never and was[0] != "ended"
        return (since, b, b) if unsaid else (b, b, settled)
    at, state = came[-1]
    if not was:
        begins = b if tells["started"] else at if tells["created"] else since
        return begins, b, at if tells["started"] else b
    if state == "ended":
        return (at, at, at) if tells["ended"] and b - at < HOUR_US else (since, b, b)
    if state not in BILLS:
        return (at, at, at) if tells["stopped"] else (since, b, b)
    if not tells["started"]:
        return since, b, b
    return (since, at, at) if wide or was[0] in BILLS else (at, at, at)


def _ticks(record: Record, out: Entry) -> int:
    """Polls after the outage until each machine's doubt is as it stays."""
    quiet = {name for name, turns in _turns(record).items() if all(int(at) <= out["until"] for at, *_ in turns)}
    last = {name: high - low for name, (low, high) in _last(record).items() if name in quiet}
    after = [one for one in record.of("said") if one["at"] >= out["until"]]
    for number, one in enumerate(after, start=1):
        if all(abs(high - low - last[name]) <= ROUNDED for name, low, high in one["money"] if name in last):
            return number
    return len(after) + 1


def _notices(record: Record) -> tuple[int, int, int]:
    """Messages on providers that cannot be asked: that it began, that it goes on, that it is over."""
    whys = Counter(
        "first" if one["why"] in {"first", "new_in_group", "new in group"} else one["why"]
        for one in record.of("message")
        for topic in one["topics"]
        if topic.split(" ")[0] == "provider"
    )
    other = sum(count for why, count in whys.items() if why not in {"first", "resolved"})
    return whys["first"], other, whys["resolved"]


def _unfit(notices: tuple[int, int, int], out: Entry) -> Iterator[str]:
    """One message for each cloud that is out, one that it is over, and repeats as often as people are promised."""
    told = 0 if out["how"] == "stale" else len(out["out"])
    repeats = sum((out["until"] - out["from"] - NOTICED_US) > hours * HOUR_US for hours in REPEATS_H)
    if notices[0] != told or notices[2] != told or notices[1] > told * repeats:
        yield f"{notices} messages told of {told} outages since {instant(out['from']):%H:%M}"


def _noise(record: Record, calm: Record, out: Entry) -> Iterator[str]:
    """Messages that the same day without an outage does not have, and that neither tell of it nor of what was done later.

    Of an old listing nobody can be told but this: machines stand in it as running that nothing measures. A stop that was
    announced for a time within the outage is not done then, which is told besides (held:stale).
    """
    subjects = {topic.split(" ")[0] for one in calm.of("message") for topic in one["topics"]} | {"provider", "held:stale"}
    subjects |= {"blind"} if out["how"] == "stale" else set()
    noise = {topic for one in record.of("message") for topic in one["topics"] if topic.split(" ")[0] not in subjects}
    if noise:
        yield f"the outage was told of in {len(noise)} other words as well: {min(noise)}"


def _dollars(low: int, high: int) -> str:
    return f"{low / 1e9:.9f} to {high / 1e9:.9f}"
