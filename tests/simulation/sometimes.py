"""What must have happened at least sometimes over a set of worlds, and what went wrong in them: counted off the clouds' log.

A campaign in which one of these never happened has shown less than it seems to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from tests.simulation.judge_money import HOUR_US, Life, lives
from tests.simulation.reading import Record, instant, micros

GAP_US = 150 * 10**6
"""Longer than this between two whole listings is a gap: worlds poll by the minute."""
SOMETIMES = (
    "ended between a call and its outcome",
    "answer lost, and done",
    "stopped and restarted between two polls",
    "gap over the end of a month",
    "price changed inside a gap",
    "kept between the verdict and the call",
    "turn lost while paused",
    "rails held an act",
    "protecting label missing in one reply",
    "message delivered twice",
    "ended right after a commit",
    "slept for an hour",
)
OF_KIND = {
    "": SOMETIMES,
    "wired": ("gap over the end of a month", "kept between the verdict and the call", "rails held an act"),
    "books": ("gap over the end of a month", "price changed inside a gap", "slept for an hour"),
}
"""What worlds of a kind must meet: over the wire there is one watchdog, which is not ended, and in fleets nobody guards."""


def sometimes(record: Record) -> Counter[str]:
    """How often each of SOMETIMES happened in this world."""
    return Counter(dict.fromkeys(SOMETIMES, 0)) + Counter(_sightings(record))


def effects(record: Record) -> Counter[str]:
    """What went wrong and took effect, by kind: a fault of a listing counts for each poll that it spoilt."""
    found = Counter(str(one["what"]) for one in record.of("fault", "meddled"))
    people = {"lease", "lift", "snooze", "freeze", "disarm", "label", "unlabel"}
    instead = {
        "wire",
        "loops",
        "twice",
        "down",
        "partial",
        "empty",
        "stale",
        "hides",
        "forgets",
        "answers",
        "dies",
        "crash",
    } | people
    found.update(str(one["what"]) for one in record.of("happened") if one["what"] not in instead)
    found.update(f"ended {one['where']}" for one in record.of("ended"))
    return found


def machine_hours(record: Record) -> float:
    """Hours in which machines were there to be watched, summed."""
    first, last = micros(record.start), max((micros(at) for at, _ in record.polls), default=0)
    return sum(max(0, last - max(int(one["at"]), first)) for one in record.of("machine")) / HOUR_US


def _sightings(record: Record) -> Iterator[str]:
    found = lives(record)
    for one in record.of("ended"):
        if one["where"] == "after a call":
            yield SOMETIMES[0]
        if one["where"] == "after a commit":
            yield SOMETIMES[10]
    yield from (SOMETIMES[1] for one in record.asked if one.done and one.said == "unclear")
    yield from (SOMETIMES[5] for one in record.of("meddled") if one["what"] in {"lease", "protect", "label", "freeze"})
    yield from (SOMETIMES[7] for one in record.of("guarded") if "rate" in one["held"])
    yield from (SOMETIMES[9] for count in Counter(one["id"] for one in record.of("message")).values() if count > 1)
    yield from _listings(record, found)
    yield from _pauses(record)
    yield from (SOMETIMES[11] for a, b in pairwise(record.polls) if (b[0] - a[0]).total_seconds() >= 3600)


def _listings(record: Record, found: dict[str, Life]) -> Iterator[str]:
    """What whole listings did not show, or showed too late."""
    yield from _forgotten(record)
    times: dict[str, list[int]] = {}
    for one in record.of("listed"):
        if one["whole"]:
            times.setdefault(one["cloud"], []).append(one["at"])
    for cloud, listed in times.items():
        mine = [life for life in found.values() if life.cloud == cloud]
        for before, after in pairwise(listed):
            yield from _unseen(mine, before, after, gap=after - before >= GAP_US)


def _forgotten(record: Record) -> Iterator[str]:
    """A label that protects was there, was missing in a reply, and was there again."""
    shown: dict[str, list[bool]] = {}
    for one in record.of("listed"):
        for name, labels, _, _ in one["items"]:
            shown.setdefault(name, []).append("costguard" in labels)
    for told in shown.values():
        runs = [here for number, here in enumerate(told) if not number or told[number - 1] != here]
        yield from (
            SOMETIMES[8] for before, here, after in zip(runs, runs[1:], runs[2:], strict=False) if before and after > here
        )


def _unseen(lives_here: list[Life], before: int, after: int, *, gap: bool) -> Iterator[str]:
    """What happened between two whole listings of a cloud."""
    for life in lives_here:
        inside = {state for at, state, _ in life.turns if before < int(at or 0) < after}
        if not gap and "running" in inside and inside & {"stopped", "stopping"}:
            yield SOMETIMES[2]
        if gap and any(before < at <= after for at, _ in life.prices[1:]):
            yield SOMETIMES[4]
    if gap and instant(before).month != instant(after).month:
        yield SOMETIMES[3]


def _pauses(record: Record) -> Iterator[str]:
    """One watchdog stood still in a deed, and the other one acted meanwhile."""
    paused = False
    for one in record.of("meddled", "guarded"):
        if one["e"] == "meddled":
            paused = paused or one["what"] == "paused"
        elif paused:
            paused = False
            if one["who"] == "b" and one["acting"]:
                yield SOMETIMES[6]
