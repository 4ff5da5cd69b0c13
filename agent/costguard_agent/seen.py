"""What one look around came to. Pure.

What shows work is told even where something else could not be asked; that nobody works is told only where all was asked.
Example: of two notebook servers one answers that its last cell ended 20 s ago, the other does not answer: 20 s. If the first
says 3 hours, nothing is told: the other might be busy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

INPUT_AGE, CONNECTIONS, QUEUE_JOBS = "input_age_s", "connections", "queue_jobs"
FRESH_S = 1800.0
"""Younger input than this is work (GUARD, section 2)."""


class ProbeResult(NamedTuple):
    """Signals by name; `unknown`: those that there would be, and that could not be had now; `troubles`: why, in words."""

    signals: Mapping[str, float] = {}
    unknown: tuple[str, ...] = ()
    troubles: tuple[str, ...] = ()


def merge_probe_results(seen: Sequence[ProbeResult]) -> ProbeResult:
    """Several looks as one: the latest input, all sessions, all jobs."""
    unknown = {name for one in seen for name in one.unknown}
    troubles = tuple(dict.fromkeys(text for one in seen for text in one.troubles))
    found: dict[str, float] = {}
    ages = [one.signals[INPUT_AGE] for one in seen if INPUT_AGE in one.signals]
    if ages and (INPUT_AGE not in unknown or min(ages) < FRESH_S):
        found[INPUT_AGE] = min(ages)
    for name in (CONNECTIONS, QUEUE_JOBS):
        counts = [one.signals[name] for one in seen if name in one.signals]
        if counts and (name not in unknown or (name == QUEUE_JOBS and sum(counts) > 0)):
            found[name] = sum(counts)
    return ProbeResult(found, tuple(sorted(unknown - found.keys())), troubles)
