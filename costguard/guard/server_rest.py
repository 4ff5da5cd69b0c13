"""Evidence of inference servers: since when nobody asked them, and what that says of the machine.

Example: an SGLang server had its last request at 9:00, and its scheduler spins one core. No GPU works, and no other process
uses a core: at 13:00 the machine is idle since 9:00. Servers are asked rarely, and their users are elsewhere, so the confidence
stays below what a policy demands for a stop by itself (people are asked) until nobody asked for two days; where a core spins,
always.

A server that cannot be read says nothing: the machine is judged by its other signals.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from datetime import timedelta

from costguard.guard.sample_times import ActivityWindow
from costguard.guard.signal_summary import Classification, SignalSummary, format_clock
from costguard.guard.signals import CPU, IDLE, SERVER, SIGNAL_KINDS, SignalSeries
from costguard.values.instant import MICROSECOND
from costguard.values.sample import CPU_CORES, SERVER_CORES, SERVER_REQUESTS, SERVER_TOKENS

SPIN_REST_US = timedelta(hours=4) // MICROSECOND
"""How long nobody may have asked a server before what its loop computes no longer counts: as for GPUs that nobody uses."""
ASKED_WITHIN_US = timedelta(hours=47) // MICROSECOND
"""A server that was asked within this may be asked again. Samples reach back 48 h."""
SERVER_CONFIDENCE = 0.6
"""As high as GPU duty alone: people are told and asked, and nothing is stopped without an answer where 0.9 is demanded."""
REASONS_MOST = 3


def find_server_rest(tracks: Sequence[SignalSummary], view: ActivityWindow, *, memory_held: bool) -> int | None:
    """Return since when nobody asked the servers, in microseconds; None: there is no server now, or it works.

    Since `view.start` if it was never asked. `memory_held`: a process holds GPU memory, so that a server that no longer answers
    still counts as one.
    """
    servers = [one for one in tracks if one.kind.family == SERVER]
    if not servers or any(one.busy for one in servers) or not (memory_held or any(one.fresh for one in servers)):
        return None
    return max([view.start, *(one.until for one in servers if one.until is not None)])


def find_spin_rest(
    lines: Mapping[str, SignalSeries], tracks: Sequence[SignalSummary], view: ActivityWindow, rest: int | None
) -> int | None:
    """Return since when only the servers' own loops used processors; None: others do, or it is not certain for long enough.

    `rest`: since when nobody asked the servers, or None. All their signals must have been measured well.
    """
    proven = {one.line.signal for one in tracks if one.kind.family == SERVER and one.proven}
    busy = {one.kind.family for one in tracks if one.busy}
    if rest is None or busy != {CPU} or not {SERVER_REQUESTS, SERVER_TOKENS} <= proven:
        return None
    others = list_other_work(lines, rest)
    if others is None:
        return None
    since = max([rest, *others[-1:]])
    return since if view.now - since >= SPIN_REST_US else None


def list_other_work(lines: Mapping[str, SignalSeries], since: int) -> list[int] | None:
    """Return when, since `since`, processes other than the servers used processors; None if that is not measured."""
    cores, own = lines.get(CPU_CORES), lines.get(SERVER_CORES)
    if cores is None or own is None:
        return None
    own_cores, above = dict(zip(own.ats, own.values, strict=True)), SIGNAL_KINDS[CPU_CORES].above
    first = bisect_left(cores.ats, since)
    pairs = zip(cores.ats[first:], cores.values[first:], strict=True)
    return [at for at, value in pairs if value - own_cores.get(at, 0.0) > above]


def is_server_loop(lines: Mapping[str, SignalSeries], recent: int) -> bool:
    """Return whether what uses processors since `recent` is the loop of servers that can be read, so that it is no work."""
    measured = (SERVER_REQUESTS, SERVER_TOKENS, SERVER_CORES, CPU_CORES)
    return all(name in lines and lines[name].ats[-1] >= recent for name in measured) and list_other_work(lines, recent) == []


def limit_server_idleness(quiet: Classification, rest: int | None, view: ActivityWindow, *, spins: bool) -> Classification:
    """Return `quiet` with at most SERVER_CONFIDENCE, if it is idle and its server may be asked again, or its loop `spins`.

    `rest`: since when nobody asked the servers; None: there is none.
    """
    if rest is None or quiet.state != IDLE or not (spins or view.now - rest < ASKED_WITHIN_US):
        return quiet
    why = f"no request to the inference server since {format_clock(rest)}: it may be asked again"
    loop = ("its own loop uses the CPU",) if spins else ()
    reasons = (why, *loop, *(one for one in quiet.reasons if not one.startswith("confidence at most")))
    return quiet._replace(confidence=min(quiet.confidence, SERVER_CONFIDENCE), reasons=reasons[:REASONS_MOST])
