"""Judging work: from samples to a state of work, how surely it is known, and why. Doubt is never idleness.

Example: an 8xA100 is polled every minute, and its training ends at 18:05. At 18:46 fewer than a tenth of the last 45 samples of
GPU duty are busy, so it is idle since 18:05: with confidence 0.6 if that is all there is, 0.9 if CPU and network are quiet too.
A sample that is missing counts as one that could have been busy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache

from costguard.guard.evidence import AHEAD_US, REACH, Line, Lines, columns_of, counting, counts_from, lines_of
from costguard.guard.hanging import hung
from costguard.guard.signal_summary import Found, Track, Window, clock, power_above, track
from costguard.guard.signals import AGE, CPU_UTIL_LARGE, INPUT_COUNTS, LIMIT, PRESENCE, WORK_SHARE, Kind
from costguard.guard.work import ACTIVE, AGENT, CPU, DUTY, FAMILIES, IDLE, IO, POWER, PROGRESS, UNKNOWN, WARMING, Work
from costguard.metering.observation import Observation
from costguard.values.instant import MICROSECOND, SECOND_US, from_micros, to_micros
from costguard.values.sample import CONNECTIONS, CPU_UTIL, GPU_BUSY_COUNT, GPU_POWER_LIMIT, INPUT_AGE, Sample

WARMUP = timedelta(minutes=45)
PROBED = timedelta(minutes=15)
CAPS = ((DUTY, 0.6), (CPU, 0.8), (IO, 0.9), (AGENT, 0.97), (PROGRESS, 0.99))
"""How surely idleness can be known where all families up to this one are measured: each sees work that those before miss."""
WEIGHTS = {family: weight for weight, family in enumerate((DUTY, CPU, IO, PROGRESS, POWER))}
"""Which family is told of first."""
CAP_WITHOUT_DUTY = 0.8
"""An agent that reports no GPU duty may have lost sight of the GPUs."""
LARGE_GPUS = 4
REASONS = 3


def judge(
    seen: Observation,
    samples: Sequence[Sample],
    *,
    now: datetime,
    since: datetime,
    poll: timedelta,
    window: timedelta,
    warmup_max: timedelta = WARMUP,
    needs: Sequence[str] = (),
    phase_until: datetime | None = None,
    power_limit_w: float | None = None,
    lag: timedelta = timedelta(),
    counted: Lines | None = None,
) -> Work:
    """Whether `seen` works at `now`, by `samples` of it in any order; those before `since` or 48 h ago are not looked at.

    `poll`: how often a sample of each signal is due, by our interval or the provider's, whichever is longer. `lag`: how late
    the provider's newest sample is. `window`: what the shares are of; hand in samples from a poll before it on, and further
    back to know since when. `needs`: families that idleness must be proven by; () for every signal that delivered anything.
    `phase_until`: the end of a declared phase. `power_limit_w`: of one GPU, where no signal says it. `counted`: `counting`
    of the same samples, since and now, for who asks several times.
    """
    start = counts_from(since, now)
    lines, jumped = counted or counting(columns_of(samples), since, now)
    view = _view(start, now, window, poll, lag)
    tracks = _tracks(seen, lines, view, power_limit_w)
    attended = _attended(lines, view.newest - 2 * view.poll)
    if phase_until is not None and phase_until > now:
        why = (f"a phase was declared until {clock(to_micros(phase_until))}",)
        return Work(state=ACTIVE, confidence=0.9, reasons=why, families=_families(tracks), attended=attended)
    found = None if jumped else hung(seen, lines, tracks, view, power_limit_w)
    busy = [one for one in tracks if one.busy]
    if found is None and busy:
        found = _active(seen, busy, lines, view)
    if found is None:
        found = _at_rest(
            seen.started_at or since,
            tracks,
            view,
            warmup_max=warmup_max,
            needs=needs,
            phase_until=phase_until,
            jumped=jumped,
        )
    return Work(
        state=found.state,
        confidence=found.confidence,
        reasons=found.reasons,
        since=None if found.since is None else from_micros(found.since),
        families=_families(tracks),
        coverage=min((one.coverage for one in tracks), default=None),
        attended=attended,
        wasted_share=found.wasted_share,
    )


def _view(start: datetime, now: datetime, window: timedelta, poll: timedelta, lag: timedelta) -> Window:
    start_us, now_us, length, rhythm = to_micros(start), to_micros(now), window // MICROSECOND, poll // MICROSECOND
    span = min(length, now_us - start_us)
    opens = now_us - span if span < now_us - start_us else start_us - 1  # half-open, and a run's first sample is in it
    return Window(start_us, opens, now_us, length, rhythm, max(1, round(span / rhythm)), now_us - lag // MICROSECOND)


def _at_rest(
    started: datetime,
    tracks: Sequence[Track],
    view: Window,
    *,
    warmup_max: timedelta,
    needs: Sequence[str],
    phase_until: datetime | None,
    jumped: bool,
) -> Found:
    """Warming, unknown or idle, where nothing is busy."""
    began = to_micros(started)
    ahead = began > view.now + AHEAD_US
    if view.now - began < warmup_max // MICROSECOND and not ahead and not any(one.worked for one in tracks):
        return Found(WARMING, 0.5, (f"no work was seen since it started at {clock(began)}",), began)
    doubts = _doubts(tracks, view, needs, jumped=jumped or ahead)
    if doubts:
        return Found(UNKNOWN, 0, tuple(doubts[:REASONS]), None)
    return _idle(tracks, view, view.start if phase_until is None else max(view.start, to_micros(phase_until)))


def probed_since(now: datetime, lag: timedelta) -> datetime:
    """From when on a probe needs samples: enough of them to tell how often one comes."""
    return now - PROBED - 2 * lag


def probe(
    samples: Sequence[Sample],
    now: datetime,
    poll: timedelta,
    seen: Observation | None = None,
    *,
    lag: timedelta = timedelta(),
) -> str:
    """Why there is work right now, or "": any one busy sample of the last two intervals, and no window forgives it.

    `lag`: how late the provider's newest sample is, by which the two intervals lie further back.
    """
    now_us, poll_us = to_micros(now), poll // MICROSECOND
    recent = now_us - lag // MICROSECOND - 2 * poll_us
    lines, _ = lines_of(columns_of(samples), to_micros(now - REACH), now_us)
    limit = lines[GPU_POWER_LIMIT].values[-1] if GPU_POWER_LIMIT in lines else 0
    view = Window(recent, recent, now_us, 2 * poll_us, poll_us, 2, now_us)
    for line in lines.values():
        kind = line.kind
        if line.ats[-1] < recent or kind.reading in (LIMIT, PRESENCE) or kind.family == AGENT:
            continue
        above = _above(seen, line, view, limit or None)
        latest = [v for at, v in zip(line.ats, line.values, strict=True) if at >= recent]
        if kind.reading == AGE and min(latest) < INPUT_COUNTS.total_seconds():
            return f"somebody typed {max(0.0, min(latest)) / 60:.0f} min ago"
        changed = kind.family == PROGRESS and len(set(line.values[-len(latest) - 1 :])) > 1
        if changed or (kind.family != PROGRESS and kind.reading != AGE and above is not None and max(latest) > above):
            return f"{kind.told} moved on" if changed else f"{kind.told} {_value(kind, max(latest))} just now"
    return ""


def _tracks(seen: Observation, lines: Mapping[str, Line], view: Window, limit: float | None) -> list[Track]:
    if GPU_POWER_LIMIT in lines:
        limit = lines[GPU_POWER_LIMIT].values[-1]
    found = []
    for line in lines.values():
        if line.kind.reading in (LIMIT, PRESENCE):
            continue
        above = _above(seen, line, view, limit)
        found.append(track(line, view, 1e18 if above is None else above))
    return found


def _above(seen: Observation | None, line: Line, view: Window, limit: float | None) -> float | None:
    """The value above which `line` is busy; None: that is not known."""
    gpus = seen.gpu_count if seen else 0
    if line.kind.family == POWER:
        return power_above(line, view, limit, gpus) if limit and limit > 0 else None
    if line.signal == CPU_UTIL and gpus >= LARGE_GPUS:
        return CPU_UTIL_LARGE
    return line.kind.above


def _attended(lines: Mapping[str, Line], recent: int) -> bool:
    line = lines.get(CONNECTIONS)
    return line is not None and line.ats[-1] >= recent and line.values[-1] > 0


def _active(seen: Observation, busy: Sequence[Track], lines: Mapping[str, Line], view: Window) -> Found:
    why = tuple(_why_busy(one, view) for one in busy[:REASONS])
    began = min(one.began for one in busy if one.began is not None)
    share = 0.0
    counted = lines.get(GPU_BUSY_COUNT)
    if counted is not None and seen.gpu_count > 1 and any(one.kind.family == DUTY for one in busy):
        within = sorted((v for at, v in zip(counted.ats, counted.values, strict=True) if at > view.opens), reverse=True)
        most = within[int(WORK_SHARE * len(within))] if within else seen.gpu_count
        share = min(1.0, max(0.0, 1 - most / seen.gpu_count))
    surely = 0.97 if len({one.kind.family for one in busy}) > 1 else 0.9
    return Found(ACTIVE, surely, why, began, share)


def _why_busy(one: Track, view: Window) -> str:
    if one.line.signal == INPUT_AGE and one.began is not None:
        return f"somebody typed at {clock(one.began)}"
    if one.kind.family == PROGRESS:
        return f"{one.kind.told} moved on in the last {_span(view.now - view.opens)}"
    return f"{one.kind.told} up to {_value(one.kind, one.peak)} in the last {_span(view.now - view.opens)}"


def _doubts(tracks: Sequence[Track], view: Window, needs: Sequence[str], *, jumped: bool) -> list[str]:
    """Why it cannot be called idle, the weightiest first; none: it can."""
    doubts = ["a sample or its start lies in the future: a clock jumped"] if jumped else []
    measured = {one.kind.family for one in tracks}
    if not measured & {DUTY, AGENT}:
        doubts.append("no GPU duty and no agent: nothing measures work" if tracks else "no signals: nothing measures work")
    doubts += [f"{FAMILIES.get(family, family)} is needed and not measured" for family in needs if family not in measured]
    for one in tracks:
        if one.proven or (needs and one.kind.family not in (*needs, *_least(needs, measured))):
            continue
        if not one.fresh:
            doubts.append(f"{one.kind.told} was last heard of at {clock(one.line.ats[-1])}")
        else:
            doubts.append(f"{one.kind.told}: {one.coverage:.0%} of {view.due} samples, and the rest could hide work")
    return doubts


def _least(needs: Sequence[str], measured: set[str]) -> tuple[str, ...]:
    """Duty or else the agent must prove it even where a policy asks for neither."""
    return () if {DUTY, AGENT} & set(needs) else ((DUTY,) if DUTY in measured else (AGENT,))


def _idle(tracks: Sequence[Track], view: Window, earliest: int) -> Found:
    span = min(view.length, view.now - view.start)
    since = max([earliest, *(one.until for one in tracks if one.until is not None)])
    proven = frozenset(one.kind.family for one in tracks if one.proven)
    cap, missing = _cap(proven)
    note = [f"confidence at most {cap:g}: {FAMILIES[missing]} is not measured"] if missing else []
    if span < view.length:
        note = [f"watched for {_span(span)} of {_span(view.length)} only"]
    surely = cap * min(1.0, span / view.length)
    told = [one for one in sorted(tracks, key=_weight) if one.proven and one.kind.family != AGENT]
    when = clock(since)
    reasons = (*(_why_quiet(one, when) for one in told[: REASONS - len(note)]), *note) or (
        "the agent is alive, and sees nothing",
    )
    return Found(IDLE, round(surely, 4), reasons, since)


def _weight(one: Track) -> int:
    return WEIGHTS.get(one.kind.family, len(WEIGHTS))


@lru_cache(maxsize=500)
def _cap(proven: frozenset[str]) -> tuple[float, str]:
    """How surely idleness can be known, and the family that would make it surer."""
    cap = 0.6
    for family, reached in CAPS:
        if family not in proven and family != DUTY:
            return min(cap, 1.0 if DUTY in proven else CAP_WITHOUT_DUTY), family
        cap = reached
    return (cap, "") if DUTY in proven else (CAP_WITHOUT_DUTY, DUTY)


def _why_quiet(one: Track, since: str) -> str:
    if one.line.signal == INPUT_AGE:
        return "nobody typed for 30 min"
    if one.kind.family == PROGRESS:
        return f"{one.kind.told}: no progress since {since}"
    return f"{one.kind.told} at most {_value(one.kind, one.peak)} since {since}"


def _families(tracks: Sequence[Track]) -> tuple[str, ...]:
    return _in_order(frozenset([one.kind.family for one in tracks if one.fresh and one.coverage > 0]))


@lru_cache(maxsize=500)
def _in_order(families: frozenset[str]) -> tuple[str, ...]:
    return tuple(family for family in FAMILIES if family in families)


def _value(kind: Kind, value: float) -> str:
    return f"{value * kind.scale:.3g}{kind.unit}"


def _span(span: int) -> str:
    return f"{span / SECOND_US / 60:.0f} min"
