"""Lookback: the samples of the last 48 hours, of which a process that stays reads only what is new.

What is remembered is samples, as they were read, in columns: no judgement (decision 0024). A run reads AGAIN of them anew, so
that samples which came late are among them: those who measure ask for a quarter of an hour (`flows.measured.LOOKS_BACK`).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from costguard.guard.evidence import SAMPLE_LOOKBACK, SampleColumns
from costguard.services.ports import GuardRecords
from costguard.values.instant import to_micros
from costguard.values.resource import ResourceKey

REREAD_SPAN = timedelta(hours=1)
"""Read anew in each run: longer than any sample is late."""
FULL_READ_EVERY = timedelta(hours=6)
"""How often all is read anew, whatever came late or was taken out."""


@dataclass(slots=True)
class SampleWindow:
    """What one process has read. `_read_at`: when it last read; `_whole_at`: when it last read all."""

    _kept: dict[ResourceKey, SampleColumns] = field(default_factory=dict)
    _read_at: datetime | None = None
    _whole_at: datetime | None = None

    def read(self, book: GuardRecords, now: datetime) -> Mapping[ResourceKey, SampleColumns]:
        """As `book.columns_since(now - REACH)`."""
        since = self._find_read_start(now)
        if since is None:
            self._kept = dict(book.load_columns_since(now - SAMPLE_LOOKBACK))
            self._whole_at = now
        else:
            self._kept = _join_columns(
                self._kept, book.load_columns_since(since), to_micros(now - SAMPLE_LOOKBACK), to_micros(since)
            )
        self._read_at = now
        return self._kept

    def _find_read_start(self, now: datetime) -> datetime | None:
        """From when on to read; None: all, since nothing was read, or too long ago, or a clock went back."""
        if self._read_at is None or self._whole_at is None:
            return None
        steady = self._read_at <= now < self._whole_at + FULL_READ_EVERY and now - self._read_at < REREAD_SPAN / 2
        return self._read_at - REREAD_SPAN if steady else None


def _join_columns(
    kept: Mapping[ResourceKey, SampleColumns], fresh: Mapping[ResourceKey, SampleColumns], start: int, since: int
) -> dict[ResourceKey, SampleColumns]:
    """What was `kept` between `start` and `since`, and the `fresh` samples after it."""
    found = dict[ResourceKey, SampleColumns]()
    for key in {**kept, **fresh}:
        old, new = kept.get(key, {}), fresh.get(key, {})
        lines = {signal: _join_signal(old.get(signal), new.get(signal), start, since) for signal in sorted({*old, *new})}
        if columns := {signal: line for signal, line in lines.items() if line[0]}:
            found[key] = columns
    return found


def _join_signal(
    old: tuple[Sequence[int], Sequence[float]] | None, new: tuple[Sequence[int], Sequence[float]] | None, start: int, since: int
) -> tuple[Sequence[int], Sequence[float]]:
    """One signal's samples from `start` on: the old ones before `since`, then the new ones."""
    if old is None:
        return new or ((), ())
    ats, values = old
    first, last = bisect_left(ats, start), bisect_left(ats, since)
    ats, values = ats[first:last], values[first:last]
    if new is None:
        return ats, values
    return array("q", ats) + array("q", new[0]), array("d", values) + array("d", new[1])
