"""Evidence: those samples of a resource that count, put in order once for all policies that ask about it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from costguard.core.guard.signals import Line, lines_of
from costguard.core.sample import Sample

REACH = timedelta(hours=48)
"""How far back the last work is looked for."""

Lines = tuple[dict[str, Line], bool]
"""Samples by signal, and whether any lies in the future."""


def counting(samples: Sequence[Sample], since: datetime, now: datetime) -> Lines:
    """Those of `samples` that count at `now`, by signal and time, and whether a clock jumped."""
    return lines_of(samples, counts_from(since, now), now)


def counts_from(since: datetime, now: datetime) -> datetime:
    """From when on samples count, of what is known since `since`."""
    return min(now, max(since, now - REACH))
