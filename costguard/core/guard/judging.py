"""Judging work: from samples to a state of work, how surely it is known, and why. Doubt is never idleness.

Example: an 8xA100 is polled every minute, and its training ends at 18:05. At 18:46 fewer than a tenth of the last 45 samples of
GPU duty are busy, so it is idle since 18:05: with confidence 0.6 if that is all there is, 0.9 if CPU and network are quiet too.
A sample that is missing counts as one that could have been busy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from costguard.core.guard.evidence import REACH, Lines, counting, counts_from
from costguard.core.guard.signals import (
    AGE,
    AHEAD,
    CPU_UTIL_LARGE,
    INPUT_COUNTS,
    KINDS,
    LIMIT,
    LOW_SHARE,
    PRESENCE,
    WORK_SHARE,
    Line,
    Track,
    Window,
    lines_of,
    power_above,
    track,
)
from costguard.core.guard.work import (
    ACTIVE,
    AGENT,
    CPU,
    DUTY,
    FAMILIES,
    HUNG,
    IDLE,
    IO,
    POWER,
    PROGRESS,
    UNKNOWN,
    WARMING,
    Work,
)
from costguard.core.metering.observation import Observation
from costguard.core.sample import (
    CONNECTIONS,
    CPU_UTIL,
    GPU_BUSY_COUNT,
    GPU_POWER,
    GPU_POWER_BUSIEST,
    GPU_POWER_LIMIT,
    GPU_UTIL,
    INPUT_AGE,
    Sample,
)

WARMUP = timedelta(minutes=45)
HANG_LEAST = timedelta(minutes=10)
"""How long a machine must look busy and do nothing to be called hung, or the window if that is shorter."""
HANG_DUTY = 95
CAPS = ((DUTY, 0.6), (CPU, 0.8), (IO, 0.9), (AGENT, 0.97), (PROGRESS, 0.99))
"""How surely idleness can be known where all families up to this one are measured: each sees work that those before miss."""
CAP_WITHOUT_DUTY = 0.8
"""An agent that reports no GPU duty may have lost sight of the GPUs."""
LARGE_GPUS = 4
INSTANT = timedelta(microseconds=1)
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
    lines, jumped = counted or counting(samples, since, now)
    span = min(window, now - start)
    opens = now - span if span < now - start else start - INSTANT  # a window is half-open, and a run's first sample is in it
    view = Window(start, opens, now, window, poll, max(1, round(span / poll)), now - lag)
    tracks = _tracks(seen, lines, view, power_limit_w)
    attended = _attended(lines, now - lag - 2 * poll)
    if phase_until is not None and phase_until > now:
        why = (f"a phase was declared until {_clock(phase_until)}",)
        return Work(state=ACTIVE, confidence=0.9, reasons=why, families=_families(tracks), attended=attended)
    hung = None if jumped else _hung(seen, lines, tracks, view, power_limit_w)
    busy = [one for one in tracks if one.busy]
    if hung:
        return _told(hung, tracks, attended)
    if busy:
        return _told(_active(seen, busy, lines, view), tracks, attended)
    began = seen.started_at or since
    if now - began < warmup_max and began <= now + AHEAD and not any(one.worked for one in tracks):
        why = (f"no work was seen since it started at {_clock(began)}",)
        return _told(Work(state=WARMING, confidence=0.5, reasons=why, since=began), tracks, attended)
    doubts = _doubts(tracks, view, needs, jumped=jumped or began > now + AHEAD)
    if doubts:
        return _told(Work(state=UNKNOWN, reasons=tuple(doubts[:REASONS])), tracks, attended)
    return _told(_idle(tracks, view, max(start, phase_until or start), span), tracks, attended)


def probe(samples: Sequence[Sample], now: datetime, poll: timedelta, seen: Observation | None = None) -> str:
    """Why there is work right now, or "": any one busy sample of the last two intervals, and no window forgives it."""
    recent = now - 2 * poll
    lines, _ = lines_of(samples, now - REACH, now)
    limit = lines[GPU_POWER_LIMIT].values[-1] if GPU_POWER_LIMIT in lines else 0
    view = Window(recent, recent, now, 2 * poll, poll, 2, now)
    for signal, line in lines.items():
        kind = KINDS[signal]
        if line.ats[-1] < recent or kind.reading in (LIMIT, PRESENCE) or kind.family == AGENT:
            continue
        above = _above(seen, line, view, limit or None)
        latest = [v for at, v in zip(line.ats, line.values, strict=True) if at >= recent]
        if kind.reading == AGE and min(latest) < INPUT_COUNTS.total_seconds():
            return f"somebody typed {max(0.0, min(latest)) / 60:.0f} min ago"
        changed = kind.family == PROGRESS and len(set(line.values[-len(latest) - 1 :])) > 1
        if changed or (kind.family != PROGRESS and kind.reading != AGE and above is not None and max(latest) > above):
            return f"{kind.told} moved on" if changed else f"{kind.told} {_value(line, max(latest))} just now"
    return ""


def _tracks(seen: Observation, lines: Mapping[str, Line], view: Window, limit: float | None) -> list[Track]:
    if GPU_POWER_LIMIT in lines:
        limit = lines[GPU_POWER_LIMIT].values[-1]
    found = []
    for signal, line in lines.items():
        kind = KINDS[signal]
        if kind.reading in (LIMIT, PRESENCE):
            continue
        above = _above(seen, line, view, limit)
        found.append(track(line, view, 1e18 if above is None else above))
    return found


def _above(seen: Observation | None, line: Line, view: Window, limit: float | None) -> float | None:
    """The value above which `line` is busy; None: that is not known."""
    gpus = seen.gpu_count if seen else 0
    if KINDS[line.signal].family == POWER:
        return power_above(line, view, limit, gpus) if limit and limit > 0 else None
    if line.signal == CPU_UTIL and gpus >= LARGE_GPUS:
        return CPU_UTIL_LARGE
    return KINDS[line.signal].above


def _attended(lines: Mapping[str, Line], recent: datetime) -> bool:
    line = lines.get(CONNECTIONS)
    return line is not None and line.ats[-1] >= recent and line.values[-1] > 0


def _hung(
    seen: Observation, lines: Mapping[str, Line], tracks: Sequence[Track], view: Window, limit: float | None
) -> Work | None:
    """Busy by duty, asleep by power and progress. Both must be measured: inference draws little, evaluation takes no step."""
    duty, power = lines.get(GPU_UTIL), lines.get(GPU_POWER_BUSIEST) or lines.get(GPU_POWER)
    progress = [one for one in tracks if one.kind.family == PROGRESS]
    limit = lines[GPU_POWER_LIMIT].values[-1] if GPU_POWER_LIMIT in lines else limit
    if duty is None or power is None or not progress or not limit or duty.values[-1] < HANG_DUTY:
        return None
    whole = LOW_SHARE * limit * (max(1.0, seen.gpu_count) if power.signal == GPU_POWER else 1)
    others = [one for one in tracks if one.kind.family in (PROGRESS, IO)]
    stale = any(view.newest - line.ats[-1] > 2 * view.poll for line in (duty, power, *(one.line for one in others)))
    if stale or any(one.busy for one in others if one.kind.family == IO):
        return None
    turns = [_since(duty, HANG_DUTY, below=True, poll=view.poll), _since(power, whole, below=False, poll=view.poll)]
    turns += [one.until for one in others if one.until is not None]
    turns += [one.line.ats[0] for one in progress if one.until is None]
    turn = max(turns)
    if view.now - turn < min(HANG_LEAST, view.length):
        return None
    why = (
        f"GPU duty at least {HANG_DUTY} %, and power at most {LOW_SHARE:.0%} of its limit since {_clock(turn)}",
        f"{progress[0].kind.told}: no progress since {_clock(turn)}",
    )
    return Work(state=HUNG, confidence=0.97 if len(others) > len(progress) else 0.9, reasons=why, since=turn)


def _since(line: Line, bar: float, *, below: bool, poll: timedelta) -> datetime:
    """Since when `line` has been on its side of `bar` without a break and without a hole of more than two intervals."""
    at = line.ats[-1]
    for k in range(len(line.ats) - 1, -1, -1):
        if (line.values[k] < bar if below else line.values[k] >= bar) or at - line.ats[k] > 2 * poll:
            return at
        at = line.ats[k]
    return at


def _active(seen: Observation, busy: Sequence[Track], lines: Mapping[str, Line], view: Window) -> Work:
    why = tuple(_why_busy(one, view) for one in busy[:REASONS])
    began = min(one.began for one in busy if one.began is not None)
    share = 0.0
    counted = lines.get(GPU_BUSY_COUNT)
    if counted is not None and seen.gpu_count > 1 and any(one.kind.family == DUTY for one in busy):
        within = sorted((v for at, v in zip(counted.ats, counted.values, strict=True) if at > view.opens), reverse=True)
        most = within[int(WORK_SHARE * len(within))] if within else seen.gpu_count
        share = min(1.0, max(0.0, 1 - most / seen.gpu_count))
    surely = 0.97 if len({one.kind.family for one in busy}) > 1 else 0.9
    return Work(state=ACTIVE, confidence=surely, reasons=why, since=began, wasted_share=share)


def _why_busy(one: Track, view: Window) -> str:
    if one.line.signal == INPUT_AGE and one.began is not None:
        return f"somebody typed at {_clock(one.began)}"
    if one.kind.family == PROGRESS:
        return f"{one.kind.told} moved on in the last {_span(view.now - view.opens)}"
    return f"{one.kind.told} up to {_value(one.line, one.peak)} in the last {_span(view.now - view.opens)}"


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
            doubts.append(f"{one.kind.told} was last heard of at {_clock(one.line.ats[-1])}")
        else:
            doubts.append(f"{one.kind.told}: {one.coverage:.0%} of {view.due} samples, and the rest could hide work")
    return doubts


def _least(needs: Sequence[str], measured: set[str]) -> tuple[str, ...]:
    """Duty or else the agent must prove it even where a policy asks for neither."""
    return () if {DUTY, AGENT} & set(needs) else ((DUTY,) if DUTY in measured else (AGENT,))


def _idle(tracks: Sequence[Track], view: Window, earliest: datetime, span: timedelta) -> Work:
    since = max([earliest, *(one.until for one in tracks if one.until is not None)])
    proven = {one.kind.family for one in tracks if one.proven}
    cap, missing = _cap(proven)
    note = [f"confidence at most {cap:g}: {FAMILIES[missing]} is not measured"] if missing else []
    if span < view.length:
        note = [f"watched for {_span(span)} of {_span(view.length)} only"]
    surely = cap * min(1.0, span / view.length)
    told = [one for one in sorted(tracks, key=_weight) if one.proven and one.kind.family != AGENT]
    reasons = (*(_why_quiet(one, since) for one in told[: REASONS - len(note)]), *note) or (
        "the agent is alive, and sees nothing",
    )
    return Work(state=IDLE, confidence=round(surely, 4), reasons=reasons, since=since)


def _weight(one: Track) -> int:
    order = (DUTY, CPU, IO, PROGRESS, POWER)
    return order.index(one.kind.family) if one.kind.family in order else len(order)


def _cap(proven: set[str]) -> tuple[float, str]:
    """How surely idleness can be known, and the family that would make it surer."""
    cap = 0.6
    for family, reached in CAPS:
        if family not in proven and family != DUTY:
            return min(cap, 1.0 if DUTY in proven else CAP_WITHOUT_DUTY), family
        cap = reached
    return (cap, "") if DUTY in proven else (CAP_WITHOUT_DUTY, DUTY)


def _why_quiet(one: Track, since: datetime) -> str:
    if one.line.signal == INPUT_AGE:
        return "nobody typed for 30 min"
    if one.kind.family == PROGRESS:
        return f"{one.kind.told}: no progress since {_clock(since)}"
    return f"{one.kind.told} at most {_value(one.line, one.peak)} since {_clock(since)}"


def _told(work: Work, tracks: Sequence[Track], attended: bool) -> Work:  # noqa: FBT001 - the field's own name
    least = min((one.coverage for one in tracks), default=None)
    return Work(
        state=work.state,
        confidence=work.confidence,
        reasons=work.reasons,
        since=work.since,
        families=_families(tracks),
        coverage=least,
        attended=attended,
        wasted_share=work.wasted_share,
    )


def _families(tracks: Sequence[Track]) -> tuple[str, ...]:
    well = {one.kind.family for one in tracks if one.fresh and one.coverage > 0}
    return tuple(family for family in FAMILIES if family in well)


def _value(line: Line, value: float) -> str:
    kind = KINDS[line.signal]
    return f"{value * kind.scale:.3g}{kind.unit}"


def _clock(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"


def _span(span: timedelta) -> str:
    return f"{span.total_seconds() / 60:.0f} min"
