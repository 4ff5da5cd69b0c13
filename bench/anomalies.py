"""Anomalies staged in simulated quarters: `python -m bench.anomalies [SEEDS]` (6 quarters, some minutes).

Each quarter is a lab drawn from a seed (`bench.anomaly_labs`), looked at every hour and one poll (60 s) after each start from
the sixth week on: once as it is, where each alert is a false one, and once with twelve kinds of anomalies staged in it. The
constants of `guard.anomalies` were chosen on seeds 100 to 105; scored ones begin at 0. What is usual is learnt anew every six
hours.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from statistics import median

from bench.anomaly_labs import HOURS, KINDS, QUIET_WEEKS, SMALL_MAX, LabLine, StagedAnomaly, draw_lab, stage_anomalies
from costguard.guard.anomalies import (
    DAY,
    FINDING_KEPT_FOR,
    HOURS_BACK,
    Anomaly,
    BurningLine,
    PastCost,
    SpendHistory,
    Subject,
    find_anomalies,
    learn_usual_spend,
    list_subjects,
)
from costguard.metering.meter import STORAGE
from costguard.values.instant import HOUR_US, to_micros
from costguard.values.money import NANO
from costguard.values.resource import ResourceKey

BEGUN = datetime(2026, 6, 1, tzinfo=UTC)  # a Monday
FIRST = to_micros(BEGUN) // HOUR_US
POLL, FLOOR, LEARN_EVERY = 1 / 60, 20, 6
MONTHS = (HOURS / 168 - QUIET_WEEKS) * 7 / 30.4


@dataclass(slots=True, kw_only=True)
class Finding:
    """An alert: when it was told, and whether a machine of a staged anomaly was in it."""

    at: float
    last: float
    anomaly: Anomaly
    kinds: frozenset[str]
    told: bool


def watch_lab(lab: Sequence[LabLine], *, since: int = QUIET_WEEKS * 168) -> list[Finding]:
    """Return what is told of `lab` from the hour `since` on, one alert a subject while it lasts and for a day more."""
    lines = sorted(lab, key=lambda one: one.start)
    burning_of, past_of = {id(one): _to_burning(one) for one in lines}, {id(one): _to_past(one) for one in lines}
    events = sorted(
        {*map(float, range(since, HOURS)), *(one.start + POLL for one in lines if since < one.start + POLL < HOURS)}
    )
    findings, present = list[Finding](), dict[Subject, Finding]()
    usual, learnt_at, active, place = None, 0.0, list[LabLine](), 0
    for at in events:
        while place < len(lines) and lines[place].start <= at:
            active.append(lines[place])
            place += 1
        active = [one for one in active if one.end > at]
        now, burning = BEGUN + timedelta(hours=at), [burning_of[id(one)] for one in active]
        if usual is None or (at - learnt_at >= LEARN_EVERY and at == int(at)):
            ended = [one for one in lines[:place] if one.end <= at]
            history = SpendHistory(
                costs=[past_of[id(one)] for one in ended if one.end > at - HOURS_BACK],
                first_days={one.attribution: (FIRST + int(one.start)) // 24 for one in reversed(ended)},
                disks=_list_grown(ended, at),
            )
            usual, learnt_at = learn_usual_spend(history, burning, now=now, zone=UTC, floor_per_day=FLOOR), at
        for anomaly in find_anomalies(usual, burning, now=now):
            kinds = _list_kinds(anomaly, active, [one for one in lines[:place] if one.kind and at - 24 < one.end])
            before = present.get(anomaly.subject)
            is_same = before is not None and at - before.last <= FINDING_KEPT_FOR
            if before is not None and is_same:
                before.last = at
                kinds -= before.kinds
                before.kinds |= kinds
            if kinds or not is_same:
                findings.append(Finding(at=at, last=at, anomaly=anomaly, kinds=kinds, told=not is_same))
            if not is_same:
                present[anomaly.subject] = findings[-1]
    return findings


def _list_kinds(anomaly: Anomaly, active: Sequence[LabLine], recent: Sequence[LabLine]) -> frozenset[str]:
    """Return the kinds of staged anomalies that an alert is about: of its machines, or of the subject's last 24 hours."""
    if anomaly.kind != DAY:
        numbers = {one.key.id for one in anomaly.lines}
        return frozenset(one.kind for one in active if one.kind and str(one.number) in numbers)
    return frozenset(one.kind for one in recent if one.kind and anomaly.subject in list_subjects(one.attribution, "USD"))


def _list_grown(lines: Sequence[LabLine], at: float) -> dict[tuple[ResourceKey, str], int]:
    ended = [one for one in lines if one.charge == STORAGE and at - 168 < one.end]
    return {(_to_burning(one).key, "disk"): one.quantity for one in sorted(ended, key=lambda one: -one.quantity)}


def _to_burning(line: LabLine) -> BurningLine:
    where = line.attribution
    return BurningLine(
        key=ResourceKey(where.provider, where.account, where.region, str(line.number)),
        name=f"m-{line.number}",
        attribution=where,
        charge=line.charge,
        part="disk" if line.charge == STORAGE else "",
        currency="USD",
        rate=round(line.rate * NANO),
        quantity=line.quantity,
        since=BEGUN + timedelta(hours=line.start),
    )


def _to_past(line: LabLine) -> PastCost:
    first = FIRST + int(line.start)
    last = max(first, FIRST + int(line.end - 1e-9))
    length = line.end - line.start
    return PastCost(
        line.attribution, line.charge, "USD", first, last, round(line.rate * length * NANO), round(line.rate * NANO)
    )


def score_seed(seed: int) -> tuple[list[Finding], dict[str, tuple[StagedAnomaly, float | None]]]:
    """Return the false alerts of the quarter as it is, and each staged anomaly with its delay in hours; None: never told."""
    false = watch_lab(draw_lab(seed).lines)
    lab = draw_lab(seed)
    staged = stage_anomalies(seed, lab)
    findings = watch_lab(lab.lines)
    delays = dict[str, tuple[StagedAnomaly, float | None]]()
    for one in staged:
        ats = (finding.at - one.start for finding in findings if one.kind in finding.kinds and finding.at <= one.end + 1)
        delays[one.kind] = one, next(ats, None)
    return false, delays


def main(arguments: Sequence[str]) -> None:
    """Score the seeds and print a row for each kind."""
    seeds = range(int(arguments[0]) if arguments else 6)
    delays, false = defaultdict[str, list[tuple[StagedAnomaly, float | None]]](list), list[Finding]()
    with ProcessPoolExecutor(2) as pool:
        for more, of in pool.map(score_seed, seeds):
            false += more
            for kind, staged in of.items():
                delays[kind].append(staged)
    rows = []
    for kind in KINDS:
        seen = [delay for _, delay in delays[kind] if delay is not None]
        at_once = sum(delay <= 2 * POLL for delay in seen)
        share, middle = median(one.share for one, _ in delays[kind]), f"{median(seen) * 60:.0f} min" if seen else "-"
        rows.append((kind, f"{share:.0%}", f"{len(seen)} of {len(delays[kind])}", str(at_once), middle))
    for row in (("kind", "of a day", "told", "in the next poll", "median delay"), *rows):
        print("".join(f"{cell:<18}" for cell in row).rstrip())
    every = [one for of in delays.values() for one in of]
    told, small = sum(delay is not None for _, delay in every), sum(one.share < SMALL_MAX for one, _ in every)
    months = MONTHS * len(seeds)
    print(f"\ntold {told} of {len(every)}, of which {small} below {SMALL_MAX:.0%} of a day's spend")
    print(f"false alerts: {len(false)} in {months:.1f} months, {len(false) / months:.2f} a month")


if __name__ == "__main__":
    main(sys.argv[1:])
