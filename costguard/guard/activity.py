"""Classify a machine's activity from its samples: state, confidence and reasons. Incomplete data is unknown, never idle.

Example: an 8xA100 is polled every minute, and its training ends at 18:05. At 18:46 fewer than a tenth of the last 45 samples of
GPU duty are busy, so it is idle since 18:05: confidence 0.6 if only duty is measured, 0.9 if CPU and network are quiet too. A
missing sample counts as possibly busy.

Machines that work together are classified together: `grouping.py`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from costguard.guard.sample_times import BUSY_SHARE_MIN, ActivityWindow, build_window
from costguard.guard.server_rest import find_server_rest, find_spin_rest, is_server_loop, limit_server_idleness
from costguard.guard.signal_summary import (
    FROZEN_SAMPLES_MIN,
    IDLE_POWER_SHARE_MIN,
    Classification,
    SignalSummary,
    compute_power_threshold,
    detect_hang,
    find_frozen_start,
    find_impossible_power,
    find_zeroed_family,
    format_clock,
    format_minutes,
    looks_hung,
    summarize_signal,
)
from costguard.guard.signals import (
    ACTIVE,
    AGE,
    AGENT,
    CLOCK_AHEAD_MAX_US,
    COUNTER,
    CPU,
    CPU_UTIL_LARGE,
    DUTY,
    HELD,
    IDLE,
    INPUT_COUNTS_FOR,
    IO,
    LIMIT,
    MEMORY_HELD_MIN,
    POWER,
    PRESENCE,
    PROGRESS,
    QUEUE,
    RELEASED,
    SAMPLE_LOOKBACK,
    SERVER,
    SIGNAL_FAMILIES,
    UNKNOWN,
    WARMING,
    Activity,
    CountedSeries,
    SignalKind,
    SignalSeries,
    build_columns,
    build_series,
    find_counting_start,
    select_counted_series,
)
from costguard.guard.weak_signals import WEAK_SIGNAL_NAMES, summarize_weak_signals
from costguard.metering.observation import Observation
from costguard.values.instant import MICROSECOND, from_micros, to_micros
from costguard.values.sample import (
    AGENT_ALIVE,
    CONNECTIONS,
    CPU_UTIL,
    GPU_BUSY_COUNT,
    GPU_MEMORY_USED,
    GPU_POWER,
    GPU_POWER_BUSIEST,
    GPU_POWER_LIMIT,
    GPU_UTIL,
    INPUT_AGE,
    Sample,
)

WARMUP_MAX = timedelta(minutes=45)
PROBE_LENGTH = timedelta(minutes=15)
CONFIDENCE_CAPS = ((DUTY, 0.6), (CPU, 0.8), (IO, 0.9), (AGENT, 0.97), (PROGRESS, 0.99))
"""Highest confidence of idleness if this family and all before it are measured: each sees work that those before miss."""
FAMILY_RANKS = {family: weight for weight, family in enumerate((DUTY, CPU, IO, PROGRESS, POWER))}
"""Order of families in reasons."""
CAP_WITHOUT_DUTY = 0.8
"""An agent that reports no GPU duty may have lost sight of the GPUs."""
CAP_PROCESSOR_ALONE, CAP_PROCESSOR_AND_IO = 0.5, 0.55
"""Without GPU duty and agent: a process that waits for its GPU without spinning uses no core (AWS and GCP without an agent)."""
LARGE_GPU_COUNT = 4
UNUSED_BESIDE = frozenset((CPU, QUEUE))
"""What keeps a machine active without a sign that its job gets on: a spinning loop, jobs that never start."""
REASONS_SHOWN = 3


def classify_activity(
    observation: Observation,
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
    """Classify the activity of `observation` at `now`.

    `samples`: in any order; those before `since` or older than 48 h are ignored. `poll`: time between two samples of a signal,
    ours or the provider's, whichever is longer. `window`: length that busy shares are taken of; pass samples from one poll
    before it, and older ones to learn since when a state holds. `needs`: families that must prove idleness; (): all that
    delivered samples. `phase_until`: end of a declared phase; None: none declared. `power_limit_w`: watts of one GPU, used
    if no signal reports it. `lag`: delay of the provider's newest sample. `counted`: `select_counted_series` of the same
    samples, to save computing it again; None: compute it.
    """
    start = find_counting_start(since, now)
    lines, jumped = counted or select_counted_series(build_columns(samples), since, now)
    view = build_window(start, now, window, poll, lag)
    tracks = _summarize_signals(observation, lines, view, power_limit_w)
    attended = _is_attended(lines, view.newest - 2 * view.poll)
    if phase_until is not None and phase_until > now:
        why = (f"a phase was declared until {format_clock(to_micros(phase_until))}",)
        return Activity(state=ACTIVE, confidence=0.9, reasons=why, families=_list_measured_families(tracks), attended=attended)
    classification = None if jumped else detect_hang(observation, lines, tracks, view, power_limit_w)
    busy = [one for one in tracks if one.busy]
    if classification is None and busy and not any(one.fresh for one in busy):
        last = min(tracks, key=_rank_family)
        classification = Classification(
            UNKNOWN, 0, (f"{last.kind.told} last arrived at {format_clock(last.line.ats[-1])}",), None
        )
    rest = find_server_rest(tracks, view, memory_held=_is_memory_held(lines, view) is True)
    spin_since = find_spin_rest(lines, tracks, view, rest)
    if classification is None and busy and spin_since is None:
        classification = _classify_active(observation, busy, lines, view)
    weak = None
    if classification is None and spin_since is None:
        above = {name: _find_busy_threshold(observation, line, view, None) or 0 for name, line in lines.items()}
        worked_until = max([one.until for one in tracks if one.until is not None], default=view.start)
        weak = summarize_weak_signals(lines, above, view, worked_until)
    if weak is not None and weak.busy and weak.fresh:
        shown = [one for one in tracks if one.line.signal in WEAK_SIGNAL_NAMES and one.peak > 0][:REASONS_SHOWN]
        names = ", ".join(_format_level(one.kind, one.peak, "up to ") for one in shown)
        classification = Classification(ACTIVE, 0.9, (f"{names}: each is low, together they are work",), weak.began)
    if classification is None:
        quiet = _classify_quiet(
            observation.started_at or since,
            [one for one in tracks if spin_since is None or one.kind.family != CPU],
            view,
            warmup_max=warmup_max,
            needs=needs,
            phase_until=phase_until,
            jumped=jumped,
            weak_until=weak.until if weak is not None and weak.worked else spin_since,
        )
        classification = limit_server_idleness(quiet, rest, view, spins=spin_since is not None)
    unused = _find_unused_start(tracks, view) if classification.state == ACTIVE else None
    idle_since = classification.since if classification.state == IDLE else None
    return Activity(
        gpu_memory=_find_memory_use(lines, view, idle_since) if idle_since is not None else "",
        gpu_unused_since=from_micros(unused) if unused is not None else None,
        state=classification.state,
        confidence=classification.confidence,
        reasons=classification.reasons,
        since=None if classification.since is None else from_micros(classification.since),
        families=_list_measured_families(tracks),
        coverage=min([one.coverage for one in tracks if one.kind.family != SERVER], default=None),
        attended=attended,
        wasted_share=classification.wasted_share,
    )


def _classify_quiet(
    started: datetime,
    tracks: Sequence[SignalSummary],
    view: ActivityWindow,
    *,
    warmup_max: timedelta,
    needs: Sequence[str],
    phase_until: datetime | None,
    jumped: bool,
    weak_until: int | None,
) -> Classification:
    """Classify a machine without a busy signal as warming, unknown or idle. `weak_until`: when work not in `tracks` ended."""
    began = to_micros(started)
    ahead = began > view.now + CLOCK_AHEAD_MAX_US
    if view.now - began < warmup_max // MICROSECOND and not ahead and not any(one.worked for one in tracks):
        return Classification(WARMING, 0.5, (f"no activity since it started at {format_clock(began)}",), began)
    doubts = _list_doubts(tracks, view, needs, jumped=jumped or ahead)
    if doubts:
        return Classification(UNKNOWN, 0, tuple(doubts[:REASONS_SHOWN]), None)
    ends = [view.start, weak_until, None if phase_until is None else to_micros(phase_until)]
    return _classify_idle(tracks, view, max(at for at in ends if at is not None))


def _find_memory_use(lines: Mapping[str, SignalSeries], view: ActivityWindow, idle_since: int) -> str:
    """Return whether a process still holds GPU memory, or its end made the machine idle; "" where that is not known.

    It ended if memory was held within a window before `idle_since` and is free now, an agent reports, and the GPUs draw what a
    GPU at rest can draw: a signal source that fails shows free memory too, but 0 W.
    """
    memory, agent = lines.get(GPU_MEMORY_USED), lines.get(AGENT_ALIVE)
    recent, memory_held = view.newest - 2 * view.poll, _is_memory_held(lines, view)
    if memory is None or memory_held is None:
        return ""
    if memory_held:
        return HELD
    power, limit = lines.get(GPU_POWER_BUSIEST) or lines.get(GPU_POWER), lines.get(GPU_POWER_LIMIT)
    if agent is None or agent.ats[-1] < recent or power is None or power.ats[-1] < recent:
        return ""
    least = IDLE_POWER_SHARE_MIN * limit.values[-1] if limit is not None else 1.0
    recent_values = memory.values[bisect_left(memory.ats, idle_since - view.length) :]
    return RELEASED if max(recent_values) >= MEMORY_HELD_MIN and power.values[-1] > least else ""


def _is_memory_held(lines: Mapping[str, SignalSeries], view: ActivityWindow) -> bool | None:
    """Return whether a process holds GPU memory now; None if that is not measured."""
    memory = lines.get(GPU_MEMORY_USED)
    if memory is None or memory.ats[-1] < view.newest - 2 * view.poll:
        return None
    return memory.values[-1] >= MEMORY_HELD_MIN


def _find_unused_start(tracks: Sequence[SignalSummary], view: ActivityWindow) -> int | None:
    """Return since when no GPU worked, in microseconds, if only CPU or a queue show activity; None: something else does."""
    duty = [one for one in tracks if one.kind.family == DUTY]
    busy = {one.kind.family for one in tracks if one.busy}
    if not busy or not busy <= UNUSED_BESIDE or not duty or not all(one.proven for one in duty):
        return None
    return max([one.until if one.until is not None else view.start for one in duty])


def find_probe_start(now: datetime, lag: timedelta) -> datetime:
    """Return the time from which `probe_activity` needs samples: 15 min plus twice the lag."""
    return now - PROBE_LENGTH - 2 * lag


def probe_activity(
    samples: Sequence[Sample],
    now: datetime,
    poll: timedelta,
    observation: Observation | None = None,
    *,
    lag: timedelta = timedelta(),
    hung: bool = False,
) -> str:
    """Explain why the machine works right now, or "": a single busy sample in the last two polls is enough.

    Used just before an action, so it is stricter than `classify_activity`. `lag`: delay of the provider's newest sample; the
    two polls are shifted back by it. `hung`: the act is on a hang, which keeps GPUs and cores busy: it must still be measured,
    and progress, input, output and a queue show work.
    """
    now_us, poll_us = to_micros(now), poll // MICROSECOND
    recent = now_us - lag // MICROSECOND - 2 * poll_us
    lines, _ = build_series(build_columns(samples), to_micros(now - SAMPLE_LOOKBACK), now_us)
    limit = lines[GPU_POWER_LIMIT].values[-1] if GPU_POWER_LIMIT in lines else 0
    view = ActivityWindow(recent, recent, now_us, 2 * poll_us, poll_us, 2, now_us)
    if hung and not looks_hung(lines, recent, limit or None, observation.gpu_count if observation else 1):
        return "the hang is over, or is not measured now"
    for line in lines.values():
        kind = line.kind
        if line.ats[-1] < recent or kind.reading in (LIMIT, PRESENCE) or kind.family == AGENT:
            continue
        above = _find_busy_threshold(observation, line, view, limit or None)
        if (hung and kind.family in (DUTY, POWER, CPU)) or (kind.family == CPU and is_server_loop(lines, recent)):
            continue
        latest = [v for at, v in zip(line.ats, line.values, strict=True) if at >= recent]
        if kind.reading == AGE and min(latest) < INPUT_COUNTS_FOR.total_seconds():
            return f"keyboard input {max(0.0, min(latest)) / 60:.0f} min ago"
        changed = kind.reading == COUNTER and len(set(line.values[-len(latest) - 1 :])) > 1
        if changed or (kind.reading not in (COUNTER, AGE) and above is not None and max(latest) > above):
            return f"{kind.told} changed just now" if changed else f"{_format_level(kind, max(latest))} just now"
    return ""


def _summarize_signals(
    observation: Observation, lines: Mapping[str, SignalSeries], view: ActivityWindow, limit: float | None
) -> list[SignalSummary]:
    if GPU_POWER_LIMIT in lines:
        limit = lines[GPU_POWER_LIMIT].values[-1]
    summaries = []
    for line in lines.values():
        if line.kind.reading in (LIMIT, PRESENCE):
            continue
        above = _find_busy_threshold(observation, line, view, limit)
        summaries.append(summarize_signal(line, view, 1e18 if above is None else above))
    return summaries


def _find_busy_threshold(
    observation: Observation | None, line: SignalSeries, view: ActivityWindow, limit: float | None
) -> float | None:
    """Return the value above which `line` is busy; None if unknown."""
    gpus = observation.gpu_count if observation else 0
    if line.kind.family == POWER:
        return compute_power_threshold(line, view, limit, gpus) if limit and limit > 0 else None
    if line.signal == CPU_UTIL and gpus >= LARGE_GPU_COUNT:
        # RunPod sends whole numbers of the pod's vCPUs: 1 is half a percent and more, which an idle pod of 8 GPUs shows.
        return 1 if line.top == 1 else CPU_UTIL_LARGE
    return line.kind.above


def _is_attended(lines: Mapping[str, SignalSeries], recent: int) -> bool:
    line = lines.get(CONNECTIONS)
    return line is not None and line.ats[-1] >= recent and line.values[-1] > 0


def _classify_active(
    observation: Observation, busy: Sequence[SignalSummary], lines: Mapping[str, SignalSeries], view: ActivityWindow
) -> Classification:
    why = tuple([_explain_busy(one, view) for one in busy[:REASONS_SHOWN]])
    began = min([one.began for one in busy if one.began is not None])
    share = 0.0
    counted = lines.get(GPU_BUSY_COUNT)
    if counted is not None and observation.gpu_count > 1 and any(one.kind.family == DUTY for one in busy):
        within = sorted((v for at, v in zip(counted.ats, counted.values, strict=True) if at > view.opens), reverse=True)
        most = within[int(BUSY_SHARE_MIN * len(within))] if within else observation.gpu_count
        share = min(1.0, max(0.0, 1 - most / observation.gpu_count))
    surely = 0.97 if len({one.kind.family for one in busy}) > 1 else 0.9
    return Classification(ACTIVE, surely, why, began, share)


def _explain_busy(one: SignalSummary, view: ActivityWindow) -> str:
    if one.line.signal == INPUT_AGE and one.began is not None:
        return f"keyboard input at {format_clock(one.began)}"
    if one.kind.reading == COUNTER:
        return f"{one.kind.told} changed in the last {format_minutes(view.now - view.opens)}"
    return f"{_format_level(one.kind, one.peak, 'up to ')} in the last {format_minutes(view.now - view.opens)}"


def _list_doubts(tracks: Sequence[SignalSummary], view: ActivityWindow, needs: Sequence[str], *, jumped: bool) -> list[str]:
    """List the reasons against classifying it as idle, most important first; empty if it is idle."""
    doubts = ["a sample or the start time is in the future: a clock jumped"] if jumped else []
    frozen = find_frozen_start({one.line.signal: one.line for one in tracks})
    if frozen is not None:
        doubts.append(f"all values are the same to the last digit since {format_clock(frozen)}: their source may repeat them")
    measured = {one.kind.family for one in tracks}
    if not measured & {DUTY, AGENT} and ((needs and not is_processor_evidence(needs)) or CPU not in measured):
        doubts.append("no GPU duty and no agent: enrol an agent" if tracks else "no activity data yet: enrol an agent")
    if is_processor_evidence(needs) and not measured & {DUTY, AGENT} and (zeros := find_zeroed_family(tracks)):
        doubts.append(f"{SIGNAL_FAMILIES[zeros]} at 0 in the last {FROZEN_SAMPLES_MIN} samples: their source may fail")
    if impossible := find_impossible_power({one.line.signal: one.line for one in tracks}, view):
        doubts.append(impossible)
    doubts += [
        f"{SIGNAL_FAMILIES.get(family, family)} is required but not measured" for family in needs if family not in measured
    ]
    for one in tracks:
        if one.line.signal == GPU_UTIL and _may_be_fraction(one.line, view):
            doubts.append("GPU utilization is between 0 and 1 % in every sample: it may be a fraction, where 1 means 100 %")
        if (
            one.proven
            or one.kind.family == SERVER
            or (needs and one.kind.family not in (*needs, *_list_required_families(needs, measured)))
        ):
            continue
        if not one.fresh:
            doubts.append(f"{one.kind.told} last arrived at {format_clock(one.line.ats[-1])}")
        else:
            arrived = f"only {one.coverage * 100:.0f} % of the last {view.due} samples arrived"
            doubts.append(f"{one.kind.told}: {arrived}: not enough to judge")
    return doubts


def _may_be_fraction(line: SignalSeries, view: ActivityWindow) -> bool:
    """Return whether all values of the window lie above 0 and up to 1: a unit may have changed while it ran."""
    values = [value for at, value in zip(line.ats, line.values, strict=True) if at > view.opens]
    return bool(values) and min(values) > 0 and max(values) <= 1


def _list_required_families(needs: Sequence[str], measured: set[str]) -> tuple[str, ...]:
    """Return the families required besides `needs`: GPU duty, or else the agent, even if a policy requires neither."""
    if {DUTY, AGENT} & set(needs):
        return ()
    return (DUTY,) if DUTY in measured else () if is_processor_evidence(needs) else (AGENT,)


def is_processor_evidence(needs: Sequence[str]) -> bool:
    """Return whether a policy states that processors with network and disk are its evidence, where no GPU is measured."""
    return {CPU, IO} <= set(needs)


def _classify_idle(tracks: Sequence[SignalSummary], view: ActivityWindow, earliest: int) -> Classification:
    span = min(view.length, view.now - view.start)
    since = max([earliest, *[one.until for one in tracks if one.until is not None]])
    proven_tracks = [one for one in sorted(tracks, key=_rank_family) if one.proven]
    cap, missing = get_confidence_cap(frozenset([one.kind.family for one in proven_tracks]))
    note = [f"confidence at most {cap:g}: {SIGNAL_FAMILIES[missing]} is not measured"] if missing else []
    if span < view.length:
        note = [f"watched for {format_minutes(span)} of {format_minutes(view.length)} only"]
    surely = cap * min(1.0, span / view.length)
    when = format_clock(since)
    shown = [one for one in proven_tracks if one.kind.family != AGENT][: REASONS_SHOWN - len(note)]
    reasons = (*[_explain_quiet(one, when) for one in shown], *note) or ("the agent reports no activity",)
    return Classification(IDLE, round(surely, 4), reasons, since)


def _rank_family(one: SignalSummary) -> int:
    return FAMILY_RANKS.get(one.kind.family, len(FAMILY_RANKS))


def get_confidence_cap(proven: frozenset[str]) -> tuple[float, str]:
    """Return the highest confidence of idleness and the family that would raise it ("" if none)."""
    if not proven & {DUTY, AGENT}:
        return (CAP_PROCESSOR_AND_IO if IO in proven else CAP_PROCESSOR_ALONE), DUTY
    cap = 0.6
    for family, reached in CONFIDENCE_CAPS:
        if family not in proven and family != DUTY:
            return min(cap, 1.0 if DUTY in proven else CAP_WITHOUT_DUTY), family
        cap = reached
    return (cap, "") if DUTY in proven else (CAP_WITHOUT_DUTY, DUTY)


def _explain_quiet(one: SignalSummary, since: str) -> str:
    if one.line.signal == INPUT_AGE:
        return "no keyboard input for 30 min"
    if one.kind.reading == COUNTER:
        return f"{one.kind.told}: no progress since {since}"
    return f"{_format_level(one.kind, one.peak, 'at most ' if one.peak else '')} since {since}"


def _list_measured_families(tracks: Sequence[SignalSummary]) -> tuple[str, ...]:
    measured = {one.kind.family for one in tracks if one.fresh and one.coverage > 0}
    return tuple(family for family in SIGNAL_FAMILIES if family in measured)


def _format_level(kind: SignalKind, value: float, bound: str = "") -> str:
    """Return a value with its signal: `GPU power up to 320 W`; a count stands first: `0 GPUs busy`."""
    number = f"{bound}{value * kind.scale:.3g}{kind.unit}"
    return f"{kind.told} {number}" if kind.unit else f"{number} {kind.told.replace('s ', ' ', 1) if value == 1 else kind.told}"
