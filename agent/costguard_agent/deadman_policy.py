"""The dead-man switch's decision: end an idle machine whose watchdog has been silent for hours.

Off unless a person arms it.

    switch = DeadmanSwitch.load_armed(folder, joined.agent, around)   # deadman_switch.py; None if it is off
    switch.add_record(moment, over_s, signals, unknown)    # each finished record; `unknown` as around.look() returns it
    switch.handle_answer(moment, answer)                   # each verified answer of the watchdog
    switch.handle_refusal(moment)                          # the watchdog is up and refuses this agent
    switch.handle_gap(moment)                              # after a gap: suspended, clock set, agent not running
    for text in switch.look(moment, asks.until_ms):        # once a minute; lines for the log
        log(text)

The agent's loop calls it so; `moment` is clock.read_clock(). `asks.until_ms` are this machine's own requests, whether or not
the watchdog has received them: `costguard-agent keep` in the ten minutes of the last call cancels it. The switch ends the
machine if all of these hold:

- The silence is longer than `after_s` plus a delay of this agent's own (0 to 30 min), by the boot clock.
- No suspension and no set clock occurred during the silence.
- For `idle_s` the machine was idle with every family measured; or its last lease has ended and nothing showed work.
- The watchdog stated that it is not protected, no request is in force, and no `costguard run` runs here.
- The way of ending it was checked at install and has not changed.

Example: six hours of silence, a delay of 11 minutes, idle since yesterday: at 6:11 all terminals get a message, at 6:21 the
machine is stopped. An ended lease stands in for missing signals, never for signals that show work. This module decides and is
pure; deadman_switch.py acts.

Idleness uses only the machine's own measurements and is stricter than any policy. A window is idle if its records follow one
another without a gap, each has every family, and no family shows work in any stretch of five minutes. Example: an hour at 0 %
GPU with a download of 6 MB/s: network shows work. The same hour with three minutes in which NVML did not answer: gpu_util is
missing, and the result is unknown.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from costguard_agent.signals import FRESH_S, INPUT_AGE, QUEUE_JOBS

HOUR_S = 3600.0
AFTER_S, AFTER_LEAST_S, IDLE_S, IDLE_LEAST_S, IDLE_MOST_S = 6 * HOUR_S, HOUR_S, HOUR_S, HOUR_S, 23 * HOUR_S
DELAY_MOST_S, LAST_CALL_S = 1800.0, 600.0
ATTEMPTS_MOST = 2
"""Attempts without a word of the watchdog in between; after them a person is needed."""

(
    SILENT_TOO_SHORT,
    UNCHECKED,
    PROTECTION_UNKNOWN,
    PROTECTED,
    WISHED,
    JOB,
    TRIED,
    WORKING,
    BLIND,
    NOT_IDLE_YET,
    IDLE,
    LEASE_ENDED,
) = (
    "silent_too_short",
    "unchecked",
    "protection_unknown",
    "protected",
    "wished",
    "job",
    "tried",
    "working",
    "blind",
    "not_idle_yet",
    "idle",
    "lease_ended",
)
ENDING = frozenset((IDLE, LEASE_ENDED))


class DeadmanSettings(NamedTuple):
    """The settings of an armed switch: `act` on the machine `id` of `provider`; times in seconds."""

    act: str
    provider: str
    id: str
    after_s: float = AFTER_S
    idle_s: float = IDLE_S
    delay_s: float = 0.0


class DeadmanFacts(NamedTuple):
    """The facts for a decision.

    `lease_left_s`: seconds left of the lease last received, None: there was none. `wishes`: requests in force, by kind and
    name.
    """

    silent_s: float
    evidence: IdleEvidence
    checked: bool
    protected: bool | None
    wishes: tuple[str, ...] = ()
    job: bool = True
    lease_left_s: float | None = None
    attempts: int = 0


class ShutdownDecision(NamedTuple):
    """A named reason and its evidence as text."""

    reason: str
    text: str

    @property
    def end(self) -> bool:
        """Whether the machine is to be ended."""
        return self.reason in ENDING


def decide_shutdown(facts: DeadmanFacts, settings: DeadmanSettings) -> ShutdownDecision:  # noqa: PLR0911 - one line a reason
    """Decide whether to end the machine: the first reason that prevents it, else the reason that ends it."""
    wait_s, evidence = settings.after_s + settings.delay_s, facts.evidence
    if not facts.silent_s > wait_s:
        return ShutdownDecision(
            SILENT_TOO_SHORT,
            f"the watchdog was silent for {_format_hours(facts.silent_s)}, it acts after {_format_hours(wait_s)}",
        )
    if not facts.checked:
        return ShutdownDecision(UNCHECKED, "this is not the machine, or not the way, that was tried when the switch was armed")
    if facts.protected is None:
        return ShutdownDecision(PROTECTION_UNKNOWN, "the watchdog never said whether this machine is protected")
    if facts.protected:
        return ShutdownDecision(PROTECTED, "this machine is protected")
    if facts.wishes:
        return ShutdownDecision(WISHED, f"it must not be ended: {', '.join(facts.wishes)}")
    if facts.lease_left_s is not None and facts.lease_left_s > 0:
        return ShutdownDecision(WISHED, f"it is kept for another {_format_hours(facts.lease_left_s)}")
    if facts.job:
        return ShutdownDecision(JOB, "a `costguard run` is active, or processes cannot be seen")
    if facts.attempts >= ATTEMPTS_MOST:
        return ShutdownDecision(TRIED, f"{facts.attempts} attempts did not end it: a person is needed")
    if evidence.working:
        return ShutdownDecision(WORKING, f"activity in {', '.join(evidence.working)}")
    return _decide_by_idleness(facts, settings)


def _decide_by_idleness(facts: DeadmanFacts, settings: DeadmanSettings) -> ShutdownDecision:
    evidence = facts.evidence
    if not evidence.missing and evidence.over_s >= settings.idle_s:
        return ShutdownDecision(
            IDLE, f"idle for {_format_hours(evidence.over_s)}, and the watchdog silent for {_format_hours(facts.silent_s)}"
        )
    if (
        facts.lease_left_s is not None
        and facts.lease_left_s <= 0
        and CPU not in evidence.missing
        and evidence.covered_s >= settings.idle_s
    ):
        return ShutdownDecision(
            LEASE_ENDED, f"its lease ended {_format_hours(-facts.lease_left_s)} ago, and no activity is measured"
        )
    if evidence.missing:
        return ShutdownDecision(BLIND, f"not measured: {', '.join(evidence.missing)}")
    return ShutdownDecision(
        NOT_IDLE_YET, f"idle for {_format_hours(evidence.over_s)}, it must be for {_format_hours(settings.idle_s)}"
    )


def compute_delay_s(agent_id: str) -> float:
    """Return this agent's extra delay, 0 to 1800 s, the same at each start, so that a fleet does not end at once."""
    return int.from_bytes(hashlib.sha256(agent_id.encode()).digest()[:4], "big") / 2**32 * DELAY_MOST_S


def parse_settings(fields: Mapping[str, Any], agent_id: str) -> DeadmanSettings | None:
    """Parse the stored settings; None if they are damaged or out of range: then the switch is off."""
    act, provider, id_, after_s, idle_s = (fields.get(name) for name in ("act", "provider", "id", "after_s", "idle_s"))
    if not (isinstance(act, str) and isinstance(provider, str) and isinstance(id_, str) and act and provider and id_):
        return None
    if not (isinstance(after_s, (int, float)) and isinstance(idle_s, (int, float))):
        return None
    if not (after_s >= AFTER_LEAST_S and IDLE_LEAST_S <= idle_s <= IDLE_MOST_S):
        return None
    return DeadmanSettings(act, provider, id_, float(after_s), float(idle_s), compute_delay_s(agent_id))


def _format_hours(seconds: float) -> str:
    return f"{seconds / HOUR_S:.1f} h" if seconds >= HOUR_S else f"{max(0.0, seconds) / 60:.0f} min"


GPU, CORES, CPU, NETWORK, DISK = "gpu_util", "cpu_cores", "cpu_util", "network_bytes_s", "disk_bytes_s"
COUNTERS = ("step", "heartbeat", "server_tokens")
REQUIRED = (GPU, CORES, CPU, NETWORK, DISK, INPUT_AGE)
"""Families that every record must have. Queues and counters must be there only where they were there before."""
STRETCH_S, SLACK_S, STALE_S, WINDOW_MOST_S = 300.0, 5.0, 60.0, 86400.0
GPU_PERCENT, TREE_CORES, ALL_CORES, RATE_BYTES_S, WINDOW_BYTES = 5.0, 0.2, 0.5, 1e6, 2e9
"""What is work: GUARD, section 2; of all processes together half a core, since daemons use some of it."""


class RecordStretch(NamedTuple):
    """Consecutive records merged.

    `end_s` and `over_s`: end and length by the boot clock. `sums`: values times seconds. `most`: maxima. `input_s`: the
    smallest input age. `counters`: the lowest and highest value.
    """

    end_s: float
    over_s: float
    most: Mapping[str, float]
    sums: Mapping[str, float]
    input_s: float | None
    counters: Mapping[str, tuple[float, float]]
    missing: frozenset[str]


class IdleEvidence(NamedTuple):
    """`over_s`: seconds without work and without missing signals.

    `working` and `missing`: the signals that contradict idleness. `covered_s`: seconds of records without a gap, whatever their
    values.
    """

    over_s: float
    working: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    covered_s: float = 0.0


class IdleHistory:
    """The records of the last day, in stretches."""

    def __init__(self, cpus: int) -> None:
        self._cpus = cpus
        self._stretches: deque[RecordStretch] = deque()

    def forget(self) -> None:
        """Discard all records, after a gap, a suspension or a set clock."""
        self._stretches.clear()

    def add(self, end_s: float, over_s: float, signals: Mapping[str, float], unknown: Iterable[str] = ()) -> None:
        """Add a record of `over_s` seconds up to `end_s` (boot clock).

        `unknown`: signals that exist here and could not be measured.
        """
        if self._stretches and end_s - over_s > self._stretches[-1].end_s + SLACK_S:
            self.forget()
        new = _make_stretch(end_s, over_s, signals, unknown)
        last = self._stretches[-1] if self._stretches else None
        if last is not None and last.over_s + over_s <= STRETCH_S:
            self._stretches[-1] = merge_stretches(last, new)
        else:
            self._stretches.append(new)
        while self._stretches and end_s - self._stretches[0].end_s > WINDOW_MOST_S:
            self._stretches.popleft()

    def collect_evidence(self, now_s: float, window_s: float) -> IdleEvidence:
        """Return the evidence of the last `window_s` seconds before `now_s`, as far as there are records."""
        inside = [one for one in self._stretches if one.end_s > now_s - window_s]
        if not inside or now_s - inside[-1].end_s > STALE_S:
            return IdleEvidence(0.0, (), ("records",))
        measured_names = {name for one in inside for name in (*one.counters, *one.most) if name in (*COUNTERS, QUEUE_JOBS)}
        missing = {name for one in inside for name in one.missing}
        missing |= {name for one in inside for name in measured_names if name not in one.counters and name not in one.most}
        working = {name for one in inside for name in self._find_work(one)} | _find_work_overall(inside)
        over_s = inside[-1].end_s - (inside[0].end_s - inside[0].over_s)
        return IdleEvidence(0.0 if working or missing else over_s, tuple(sorted(working)), tuple(sorted(missing)), over_s)

    def _find_work(self, one: RecordStretch) -> Iterable[str]:
        rates = {name: total / one.over_s for name, total in one.sums.items() if one.over_s > 0}
        limits = {CORES: TREE_CORES, CPU: 100 * ALL_CORES / self._cpus, NETWORK: RATE_BYTES_S, DISK: RATE_BYTES_S}
        yield from (name for name, limit in limits.items() if rates.get(name, 0.0) >= limit)
        if one.most.get(GPU, 0.0) > GPU_PERCENT or one.most.get("gpu_busy_count", 0.0) > 0:
            yield GPU
        if one.most.get(QUEUE_JOBS, 0.0) > 0:
            yield QUEUE_JOBS
        if one.input_s is not None and one.input_s < FRESH_S:
            yield INPUT_AGE


def merge_stretches(one: RecordStretch, other: RecordStretch) -> RecordStretch:
    """Merge two consecutive stretches; a signal missing in one of them is missing in the result."""
    inputs = [value for value in (one.input_s, other.input_s) if value is not None]
    counters = {
        name: (min(a[0], b[0]), max(a[1], b[1]))
        for name, a in one.counters.items()
        for b in [other.counters.get(name)]
        if b is not None
    }
    lost_counters = {name for name in (*one.counters, *other.counters) if name not in counters}
    return RecordStretch(
        other.end_s,
        one.over_s + other.over_s,
        {name: max(one.most.get(name, value), value) for name, value in {**one.most, **other.most}.items()},
        {name: one.sums.get(name, 0.0) + other.sums.get(name, 0.0) for name in (*one.sums, *other.sums)},
        min(inputs) if inputs else None,
        counters,
        one.missing | other.missing | lost_counters,
    )


def _make_stretch(end_s: float, over_s: float, signals: Mapping[str, float], unknown: Iterable[str]) -> RecordStretch:
    most = {name: signals[name] for name in (GPU, "gpu_busy_count", QUEUE_JOBS) if name in signals}
    sums = {name: signals[name] * over_s for name in (CORES, CPU, NETWORK, DISK) if name in signals}
    counters = {name: (signals[name], signals[name]) for name in COUNTERS if name in signals}
    missing = frozenset(name for name in REQUIRED if name not in signals) | frozenset(unknown)
    return RecordStretch(end_s, over_s, most, sums, signals.get(INPUT_AGE), counters, missing)


def _find_work_overall(inside: list[RecordStretch]) -> set[str]:
    """Return the signals that show work only over the whole window.

    These are a large sum of small transfers, or a counter that changed.
    """
    names = {name for name in (NETWORK, DISK) if sum(one.sums.get(name, 0.0) for one in inside) > WINDOW_BYTES}
    for name in COUNTERS:
        ranges = [one.counters[name] for one in inside if name in one.counters]
        if ranges and min(low for low, _ in ranges) != max(high for _, high in ranges):
            names.add(name)
    return names
