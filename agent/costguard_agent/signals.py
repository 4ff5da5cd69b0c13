"""Merge readings into records, each signal by its own rule; and merge the results of probes.

Pure. Records. Example: eight GPUs, one at 100 % in five of fifteen readings and the rest idle: gpu_util 33.3 (the mean of the
busiest GPU, never the mean over GPUs), gpu_busy_count 1. A GPU that could not be read might have been the busy one: then the
maximum duty and the count are used only if they show work, and sums are left out. A GPU that was read in less than half of the
readings, or of the time, is unknown as well: one idle reading followed by a driver that hangs gives no idle record. Missing is
never zero.

Probes. A result that shows work is used even if another source did not answer; one that shows none only if all sources
answered. Example: of two notebook servers one answers that its last cell ended 20 s ago, the other does not answer: 20 s. If
the first answers 3 hours, the age is unknown: the other might be busy.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from costguard_agent.protocol import SIGNALS

Gpu = Mapping[str, float]
"""What was read of one GPU in one look, by the names below; what could not be read is not in it."""
UTIL, MEMORY_UTIL, MEMORY_USED, POWER, LIMIT, TEMPERATURE, PCIE = (
    "util",
    "memory_util",
    "memory_used",
    "power_w",
    "limit_w",
    "temperature_c",
    "pcie_bytes_s",
)
BUSY_PERCENT = 5.0
"""A GPU ran a kernel where its mean duty is above this, as the watchdog reads it."""
ENOUGH, FAR_S = 0.5, 5.0
"""Of the looks that there should be, those that a mean needs; seconds between two looks of which both know something."""
DECIMALS = 3
LARGEST = 1e15

MEAN, MAX, LAST, AGE = "mean", "max", "last", "age"
MEANINGS: Mapping[str, str] = {
    "cpu_util": MEAN,
    "cpu_cores": MEAN,
    "memory_used": MAX,
    "network_bytes_s": MEAN,
    "disk_bytes_s": MEAN,
    "step": LAST,
    "heartbeat": LAST,
    "queue_jobs": LAST,
    "input_age_s": AGE,
    "connections": MAX,
    "agent_alive": LAST,
    "server_requests": MAX,
    "server_tokens": LAST,
    "server_cores": MEAN,
}
"""How looks become one value; those of GPUs are put together per GPU first. `age`: since the latest of its moments."""


class SignalReading(NamedTuple):
    """One reading: its rates are means over `over_s` seconds that end at `at_s` of a monotonic clock.

    `gpus`: each GPU by a stable name, None if the GPUs are unknown.
    """

    at_s: float
    over_s: float
    signals: Mapping[str, float]
    gpus: Mapping[str, Gpu] | None = None


def merge_readings(looks: Sequence[SignalReading], *, at_s: float) -> dict[str, float]:
    """Return the signals of all `looks` merged into one record that ends at `at_s`."""
    gpu_readings = [look for look in looks if look.gpus is not None]
    over_s = max((look.over_s for look in looks), default=0.0)
    signals = _merge_gpus(
        [look.gpus for look in gpu_readings if look.gpus is not None],
        _count_expected([look.at_s for look in gpu_readings], at_s, over_s),
    )
    for signal, meaning in MEANINGS.items():
        readings = [look for look in looks if signal in look.signals]
        if readings:
            signals[signal] = _merge_signal(meaning, signal, readings, at_s)
    return {name: round(value, DECIMALS) for name, value in signals.items() if _is_plausible(name, value)}


def _merge_signal(meaning: str, signal: str, readings: Sequence[SignalReading], at_s: float) -> float:
    if meaning == MEAN:
        return _compute_mean((look.signals[signal], look.over_s) for look in readings)
    if meaning == MAX:
        return max(look.signals[signal] for look in readings)
    if meaning == AGE:
        return max(0.0, min(look.signals[signal] + at_s - look.at_s for look in readings))
    return readings[-1].signals[signal]


def _count_expected(ats: Sequence[float], at_s: float, over_s: float) -> float:
    """Return how many readings to expect in the `over_s` seconds before `at_s`, at the rate of those at `ats`."""
    if over_s <= 0:
        return len(ats)
    edges = [at_s - over_s, *sorted(ats), at_s]
    unseen_s = sum(max(0.0, next_at - last_at - FAR_S) for last_at, next_at in zip(edges, edges[1:]))
    return len(ats) / max(1 - unseen_s / over_s, 1e-9)


def _merge_gpus(looks: Sequence[Mapping[str, Gpu]], due: float) -> dict[str, float]:
    """Return the signals of all GPUs together, with `due` expected readings; none if there are no GPUs."""
    names = {name for look in looks for name in look}
    if not names:
        return {}
    gpus = [_merge_gpu([look[name] for look in looks if name in look], due) for name in sorted(names)]
    signals = {**_sum_gpus(gpus), **_find_extremes(gpus)}
    util = _have_all(gpus, UTIL)
    busiest = max(_list_known(gpus, UTIL), default=0.0)
    if util or busiest > BUSY_PERCENT:
        signals["gpu_util"] = busiest
        signals["gpu_busy_count"] = float(sum(value > BUSY_PERCENT for value in _list_known(gpus, UTIL)))
    return signals


def _sum_gpus(gpus: Sequence[Gpu]) -> dict[str, float]:
    name_by_signal = {"gpu_power_w": POWER, "pcie_bytes_s": PCIE}
    return {signal: sum(_list_known(gpus, name)) for signal, name in name_by_signal.items() if _have_all(gpus, name)}


def _find_extremes(gpus: Sequence[Gpu]) -> dict[str, float]:
    name_by_signal = {"gpu_memory_util": MEMORY_UTIL, "gpu_memory_used": MEMORY_USED, "gpu_power_busiest_w": POWER}
    signals = {signal: max(_list_known(gpus, name)) for signal, name in name_by_signal.items() if _have_all(gpus, name)}
    hottest, limits = _list_known(gpus, TEMPERATURE), _list_known(gpus, LIMIT)
    if hottest:
        signals["gpu_temperature_c"] = max(hottest)
    if limits:
        signals["gpu_power_limit_w"] = min(limits)
    return signals


def _merge_gpu(looks: Sequence[Gpu], due: float) -> Gpu:
    """Merge the readings of one GPU: means, but the maximum of memory and temperature, and the last power limit.

    A mean of less than half of the `due` readings is left out, unless it shows work.
    """
    gpu = {}
    for name in (UTIL, MEMORY_UTIL, MEMORY_USED, POWER, LIMIT, TEMPERATURE, PCIE):
        values = [look[name] for look in looks if name in look]
        if values and name in {MEMORY_USED, TEMPERATURE}:
            gpu[name] = max(values)
        elif values and name == LIMIT:
            gpu[name] = values[-1]
        elif values:
            mean = sum(values) / len(values)
            if len(values) >= ENOUGH * due or (name == UTIL and mean > BUSY_PERCENT):
                gpu[name] = mean
    return gpu


def _have_all(gpus: Sequence[Gpu], name: str) -> bool:
    return all(name in gpu for gpu in gpus)


def _list_known(gpus: Sequence[Gpu], name: str) -> list[float]:
    return [gpu[name] for gpu in gpus if name in gpu]


def _compute_mean(weighed: Iterable[tuple[float, float]]) -> float:
    pairs = list(weighed)
    over = sum(seconds for _, seconds in pairs)
    return sum(value * seconds for value, seconds in pairs) / over if over > 0 else pairs[-1][0]


def _is_plausible(name: str, value: float) -> bool:
    return name in SIGNALS and math.isfinite(value) and abs(value) <= LARGEST


INPUT_AGE, CONNECTIONS, QUEUE_JOBS = "input_age_s", "connections", "queue_jobs"
SERVER_REQUESTS, SERVER_TOKENS, SERVER_CORES = "server_requests", "server_tokens", "server_cores"
SERVER_SIGNALS = (SERVER_REQUESTS, SERVER_TOKENS)
FRESH_S = 1800.0
"""Younger input than this is work (GUARD, section 2)."""


class ProbeResult(NamedTuple):
    """Signals by name; `unknown`: signals that exist here and could not be measured; `troubles`: the reasons."""

    signals: Mapping[str, float] = {}
    unknown: tuple[str, ...] = ()
    troubles: tuple[str, ...] = ()


def merge_probe_results(probe_results: Sequence[ProbeResult]) -> ProbeResult:
    """Merge several results: the latest input, the sum of sessions, the sum of jobs; of servers, the one that has them."""
    unknown = {name for one in probe_results for name in one.unknown}
    troubles = tuple(dict.fromkeys(text for one in probe_results for text in one.troubles))
    signals = {name: one.signals[name] for one in probe_results for name in SERVER_SIGNALS if name in one.signals}
    ages = [one.signals[INPUT_AGE] for one in probe_results if INPUT_AGE in one.signals]
    if ages and (INPUT_AGE not in unknown or min(ages) < FRESH_S):
        signals[INPUT_AGE] = min(ages)
    for name in (CONNECTIONS, QUEUE_JOBS):
        counts = [one.signals[name] for one in probe_results if name in one.signals]
        if counts and (name not in unknown or (name == QUEUE_JOBS and sum(counts) > 0)):
            signals[name] = sum(counts)
    return ProbeResult(signals, tuple(sorted(unknown - signals.keys())), troubles)
