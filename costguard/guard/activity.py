"""Judging work: from samples to a state of work, how surely it is known, and why. Doubt is never idleness.

Example: an 8xA100 is polled every minute, and its training ends at 18:05. At 18:46 fewer than a tenth of the last 45 samples of
GPU duty are busy, so it is idle since 18:05: with confidence 0.6 if that is all there is, 0.9 if CPU and network are quiet too.
A sample that is missing counts as one that could have been busy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache

from costguard.guard.evidence import (
    CLOCK_AHEAD_MAX_US,
    SAMPLE_LOOKBACK,
    CountedSeries,
    SignalSeries,
    build_columns,
    build_series,
    find_counting_start,
    select_counted_series,
)
from costguard.guard.hanging import detect_hang
from costguard.guard.signal_summary import (
    ActivityWindow,
    Classification,
    SignalSummary,
    compute_power_threshold,
    format_clock,
    summarize_signal,
)
from costguard.guard.signals import AGE, BUSY_SHARE_MIN, CPU_UTIL_LARGE, INPUT_COUNTS_FOR, LIMIT, PRESENCE, SignalKind
from costguard.guard.work import (
    ACTIVE,
    AGENT,
    CPU,
    DUTY,
    IDLE,
    IO,
    POWER,
    PROGRESS,
    SIGNAL_FAMILIES,
    UNKNOWN,
    WARMING,
    Activity,
)
from costguard.metering.observation import Observation
from costguard.values.instant import MICROSECOND, SECOND_US, from_micros, to_micros
from costguard.values.sample import CONNECTIONS, CPU_UTIL, GPU_BUSY_COUNT, GPU_POWER_LIMIT, INPUT_AGE, Sample

WARMUP_MAX = timedelta(minutes=45)
PROBE_LENGTH = timedelta(minutes=15)
CONFIDENCE_CAPS = ((DUTY, 0.6), (CPU, 0.8), (IO, 0.9), (AGENT, 0.97), (PROGRESS, 0.99))
"""How surely idleness can be known where all families up to this one are measured: each sees work that those before miss."""
FAMILY_RANKS = {family: weight for weight, family in enumerate((DUTY, CPU, IO, PROGRESS, POWER))}
"""Which family is told of first."""
CAP_WITHOUT_DUTY = 0.8
"""An agent that reports no GPU duty may have lost sight of the GPUs."""
LARGE_GPU_COUNT = 4
REASONS_SHOWN = 3


def classify_activity(
    seen: Observation,
    samples: Sequence[Sample],
    *,
    now: datetime,
    since: datetime,
    poll: timedelta,
    window: timedelta,
    warmup_max: timedelta = WARMUP_MAX,
    needs: Sequence[str] = (),
    phase_until: datetime | None = None,
    power_limit_w: float | None = None,
    lag: timedelta = timedelta(),
    counted: CountedSeries | None = None,
) -> Activity:
    """Whether `seen` works at `now`, by `samples` of it in any order; those before `since` or 48 h ago are not looked at.

    `poll`: how often a sample of each signal is due, by our interval or the provider's, whichever is longer. `lag`: how late
    the provider's newest sample is. `window`: what the shares are of; hand in samples from a poll before it on, and further
    back to know since when. `needs`: families that idleness must be proven by; () for every signal that delivered anything.
    `phase_until`: the end of a declared phase. `power_limit_w`: of one GPU, where no signal says it. `counted`: `counting`
    of the same samples, since and now, for who asks several times.
    """
    start = find_counting_start(since, now)
    lines, jumped = counted or select_counted_series(build_columns(samples), since, now)
    view = _build_window(start, now, window, poll, lag)
    tracks = _summarize_signals(seen, lines, view, power_limit_w)
    attended = _is_attended(lines, view.newest - 2 * view.poll)
    if phase_until is not None and phase_until > now:
        why = (f"a phase was declared until {format_clock(to_micros(phase_until))}",)
        return Activity(state=ACTIVE, confidence=0.9, reasons=why, families=_list_measured_families(tracks), attended=attended)
    found = None if jumped else detect_hang(seen, lines, tracks, view, power_limit_w)
    busy = [one for one in tracks if one.busy]
    if found is None and busy:
        found = _classify_active(seen, busy, lines, view)
    if found is None:
        found = _classify_quiet(
            seen.started_at or since,
            tracks,
            view,
            warmup_max=warmup_max,
            needs=needs,
            phase_until=phase_until,
            jumped=jumped,
        )
    return Activity(
        state=found.state,
        confidence=found.confidence,
        reasons=found.reasons,
        since=None if found.since is None else from_micros(found.since),
        families=_list_measured_families(tracks),
        coverage=min((one.coverage for one in tracks), default=None),
        attended=attended,
        wasted_share=found.wasted_share,
    )


def _build_window(start: datetime, now: datetime, window: timedelta, poll: timedelta, lag: timedelta) -> ActivityWindow:
    start_us, now_us, length, rhythm = to_micros(start), to_micros(now), window // MICROSECOND, poll // MICROSECOND
    span = min(length, now_us - start_us)
    opens = now_us - span if span < now_us - start_us else start_us - 1  # half-open, and a run's first sample is in it
    return ActivityWindow(start_us, opens, now_us, length, rhythm, max(1, round(span / rhythm)), now_us - lag // MICROSECOND)


def _classify_quiet(
    started: datetime,
    tracks: Sequence[SignalSummary],
    view: ActivityWindow,
    *,
    warmup_max: timedelta,
    needs: Sequence[str],
    phase_until: datetime | None,
    jumped: bool,
) -> Classification:
    """Warming, unknown or idle, where nothing is busy."""
    began = to_micros(started)
    ahead = began > view.now + CLOCK_AHEAD_MAX_US
    if view.now - began < warmup_max // MICROSECOND and not ahead and not any(one.worked for one in tracks):
        return Classification(WARMING, 0.5, (f"no work was seen since it started at {format_clock(began)}",), began)
    doubts = _list_doubts(tracks, view, needs, jumped=jumped or ahead)
    if doubts:
        return Classification(UNKNOWN, 0, tuple(doubts[:REASONS_SHOWN]), None)
    return _classify_idle(tracks, view, view.start if phase_until is None else max(view.start, to_micros(phase_until)))


def find_probe_start(now: datetime, lag: timedelta) -> datetime:
    """From when on a probe needs samples: enough of them to tell how often one comes."""
    return now - PROBE_LENGTH - 2 * lag


def probe_activity(
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
    lines, _ = build_series(build_columns(samples), to_micros(now - SAMPLE_LOOKBACK), now_us)
    limit = lines[GPU_POWER_LIMIT].values[-1] if GPU_POWER_LIMIT in lines else 0
    view = ActivityWindow(recent, recent, now_us, 2 * poll_us, poll_us, 2, now_us)
    for line in lines.values():
        kind = line.kind
        if line.ats[-1] < recent or kind.reading in (LIMIT, PRESENCE) or kind.family == AGENT:
            continue
        above = _find_busy_threshold(seen, line, view, limit or None)
        latest = [v for at, v in zip(line.ats, line.values, strict=True) if at >= recent]
        if kind.reading == AGE and min(latest) < INPUT_COUNTS_FOR.total_seconds():
            return f"somebody typed {max(0.0, min(latest)) / 60:.0f} min ago"
        changed = kind.family == PROGRESS and len(set(line.values[-len(latest) - 1 :])) > 1
        if changed or (kind.family != PROGRESS and kind.reading != AGE and above is not None and max(latest) > above):
            return f"{kind.told} moved on" if changed else f"{kind.told} {_format_value(kind, max(latest))} just now"
    return ""


def _summarize_signals(
    seen: Observation, lines: Mapping[str, SignalSeries], view: ActivityWindow, limit: float | None
) -> list[SignalSummary]:
    if GPU_POWER_LIMIT in lines:
        limit = lines[GPU_POWER_LIMIT].values[-1]
    found = []
    for line in lines.values():
        if line.kind.reading in (LIMIT, PRESENCE):
            continue
        above = _find_busy_threshold(seen, line, view, limit)
        found.append(summarize_signal(line, view, 1e18 if above is None else above))
    return found


def _find_busy_threshold(
    seen: Observation | None, line: SignalSeries, view: ActivityWindow, limit: float | None
) -> float | None:
    """The value above which `line` is busy; None: that is not known."""
    gpus = seen.gpu_count if seen else 0
    if line.kind.family == POWER:
        return compute_power_threshold(line, view, limit, gpus) if limit and limit > 0 else None
    if line.signal == CPU_UTIL and gpus >= LARGE_GPU_COUNT:
        return CPU_UTIL_LARGE
    return line.kind.above


def _is_attended(lines: Mapping[str, SignalSeries], recent: int) -> bool:
    line = lines.get(CONNECTIONS)
    return line is not None and line.ats[-1] >= recent and line.values[-1] > 0


def _classify_active(
    seen: Observation, busy: Sequence[SignalSummary], lines: Mapping[str, SignalSeries], view: ActivityWindow
) -> Classification:
    why = tuple(_explain_busy(one, view) for one in busy[:REASONS_SHOWN])
    began = min(one.began for one in busy if one.began is not None)
    share = 0.0
    counted = lines.get(GPU_BUSY_COUNT)
    if counted is not None and seen.gpu_count > 1 and any(one.kind.family == DUTY for one in busy):
        within = sorted((v for at, v in zip(counted.ats, counted.values, strict=True) if at > view.opens), reverse=True)
        most = within[int(BUSY_SHARE_MIN * len(within))] if within else seen.gpu_count
        share = min(1.0, max(0.0, 1 - most / seen.gpu_count))
    surely = 0.97 if len({one.kind.family for one in busy}) > 1 else 0.9
    return Classification(ACTIVE, surely, why, began, share)


def _explain_busy(one: SignalSummary, view: ActivityWindow) -> str:
    if one.line.signal == INPUT_AGE and one.began is not None:
        return f"somebody typed at {format_clock(one.began)}"
    if one.kind.family == PROGRESS:
        return f"{one.kind.told} moved on in the last {_format_minutes(view.now - view.opens)}"
    return f"{one.kind.told} up to {_format_value(one.kind, one.peak)} in the last {_format_minutes(view.now - view.opens)}"


def _list_doubts(tracks: Sequence[SignalSummary], view: ActivityWindow, needs: Sequence[str], *, jumped: bool) -> list[str]:
    """Why it cannot be called idle, the weightiest first; none: it can."""
    doubts = ["a sample or its start lies in the future: a clock jumped"] if jumped else []
    measured = {one.kind.family for one in tracks}
    if not measured & {DUTY, AGENT}:
        doubts.append("no GPU duty and no agent: nothing measures work" if tracks else "no signals: nothing measures work")
    doubts += [
        f"{SIGNAL_FAMILIES.get(family, family)} is needed and not measured" for family in needs if family not in measured
    ]
    for one in tracks:
        if one.proven or (needs and one.kind.family not in (*needs, *_list_required_families(needs, measured))):
            continue
        if not one.fresh:
            doubts.append(f"{one.kind.told} was last heard of at {format_clock(one.line.ats[-1])}")
        else:
            doubts.append(f"{one.kind.told}: {one.coverage:.0%} of {view.due} samples, and the rest could hide work")
    return doubts


def _list_required_families(needs: Sequence[str], measured: set[str]) -> tuple[str, ...]:
    """Duty or else the agent must prove it even where a policy asks for neither."""
    return () if {DUTY, AGENT} & set(needs) else ((DUTY,) if DUTY in measured else (AGENT,))


def _classify_idle(tracks: Sequence[SignalSummary], view: ActivityWindow, earliest: int) -> Classification:
    span = min(view.length, view.now - view.start)
    since = max([earliest, *(one.until for one in tracks if one.until is not None)])
    proven = frozenset(one.kind.family for one in tracks if one.proven)
    cap, missing = _cap_confidence(proven)
    note = [f"confidence at most {cap:g}: {SIGNAL_FAMILIES[missing]} is not measured"] if missing else []
    if span < view.length:
        note = [f"watched for {_format_minutes(span)} of {_format_minutes(view.length)} only"]
    surely = cap * min(1.0, span / view.length)
    told = [one for one in sorted(tracks, key=_rank_family) if one.proven and one.kind.family != AGENT]
    when = format_clock(since)
    reasons = (*(_explain_quiet(one, when) for one in told[: REASONS_SHOWN - len(note)]), *note) or (
        "the agent is alive, and sees nothing",
    )
    return Classification(IDLE, round(surely, 4), reasons, since)


def _rank_family(one: SignalSummary) -> int:
    return FAMILY_RANKS.get(one.kind.family, len(FAMILY_RANKS))


@lru_cache(maxsize=500)
def _cap_confidence(proven: frozenset[str]) -> tuple[float, str]:
    """How surely idleness can be known, and the family that would make it surer."""
    cap = 0.6
    for family, reached in CONFIDENCE_CAPS:
        if family not in proven and family != DUTY:
            return min(cap, 1.0 if DUTY in proven else CAP_WITHOUT_DUTY), family
        cap = reached
    return (cap, "") if DUTY in proven else (CAP_WITHOUT_DUTY, DUTY)


def _explain_quiet(one: SignalSummary, since: str) -> str:
    if one.line.signal == INPUT_AGE:
        return "nobody typed for 30 min"
    if one.kind.family == PROGRESS:
        return f"{one.kind.told}: no progress since {since}"
    return f"{one.kind.told} at most {_format_value(one.kind, one.peak)} since {since}"


def _list_measured_families(tracks: Sequence[SignalSummary]) -> tuple[str, ...]:
    return _sort_families(frozenset([one.kind.family for one in tracks if one.fresh and one.coverage > 0]))


@lru_cache(maxsize=500)
def _sort_families(families: frozenset[str]) -> tuple[str, ...]:
    return tuple(family for family in SIGNAL_FAMILIES if family in families)


def _format_value(kind: SignalKind, value: float) -> str:
    return f"{value * kind.scale:.3g}{kind.unit}"


def _format_minutes(span: int) -> str:
    return f"{span / SECOND_US / 60:.0f} min"
