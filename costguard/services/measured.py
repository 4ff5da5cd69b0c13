"""Measure: ask every provider that measures work for the samples of what runs, apart from its listing.

All are asked at once. What cannot be measured is missing, never zero, and the reason is a note: a machine without samples has
an unknown state of work, and is never taken for idle.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from costguard.errors import to_one_line
from costguard.metering.inventory import Failed
from costguard.metering.observation import Observation
from costguard.providers.ports import InstanceSource, UtilizationSource
from costguard.services.accounts import Ledger
from costguard.services.concurrency import run_all
from costguard.services.round import ScopePoll
from costguard.values.period import Period
from costguard.values.resource import INSTANCE, RUNNING
from costguard.values.sample import UtilizationSamples

MEASURE_LOOKBACK = timedelta(minutes=15)
"""Of one question: measures are published up to some minutes late, and a sample that is there already is not kept twice."""
MEASURE_LIMIT_S = 45.0
"""How long all questions together may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementResult:
    """How many samples were recorded, and why there are none of others."""

    samples: int = 0
    notes: tuple[str, ...] = ()


def measure_activity(
    seen: Iterable[ScopePoll], ledger: Ledger, now: datetime, *, limit_s: float = MEASURE_LIMIT_S
) -> MeasurementResult:
    """Ask for the samples of the instances that run among `seen`, and record them, an account a transaction."""
    running: dict[int, tuple[InstanceSource, list[Observation]]] = {}
    for one in seen:
        if isinstance(one.source, UtilizationSource) and not isinstance(one.poll.inventory, Failed):
            found = [item for item in one.poll.inventory.items if item.kind == INSTANCE and item.state == RUNNING]
            running.setdefault(id(one.source), (one.source, []))[1].extend(found)
    period = Period(start=now - MEASURE_LOOKBACK, end=now)
    questions = {
        number: partial(source.fetch_utilization, items, period)
        for number, (source, items) in running.items()
        if items and isinstance(source, UtilizationSource)
    }
    notes, count = list[str](), 0
    for number, answer in run_all(questions, limit_s=limit_s).items():
        if isinstance(answer, UtilizationSamples):
            ledger.record_samples(answer.samples)
            count += len(answer.samples)
            notes += sorted({f"{key.provider}: {why}" for key, why in answer.blind})
        else:
            name = ", ".join(running[number][0].providers)
            notes.append(f"{name}: work cannot be measured: {to_one_line(str(answer)) or type(answer).__name__}")
    return MeasurementResult(samples=count, notes=tuple(dict.fromkeys(notes)))
