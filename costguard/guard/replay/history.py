"""What the ledger remembers of one resource, and what a guard run would have had before it at any time.

Example: logged at 16:00 as running and at 19:06 as stopped. At 19:05 it is running, with the spans that cover 19:05 and the
samples of the 48 hours before. Nothing that was said later is known then.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from costguard.guard.evidence import SampleColumns
from costguard.metering.inventory import COMPLETE
from costguard.metering.observation import Observation
from costguard.metering.span import Span, compute_amounts
from costguard.metering.spending import LiveResource, PollStretch
from costguard.values.instant import MICROSECOND, from_micros, to_micros
from costguard.values.money import Money, MoneyInterval, make_zero_interval
from costguard.values.resource import ENDED, RUNNING, ResourceKey, ScopeKey
from costguard.values.sample import Sample, SampleHour

HISTORY_LOOKBACK = timedelta(hours=48)
"""How far back a guard run looks at samples."""
HOUR = timedelta(hours=1)
HANG_AVOIDED_BY = timedelta(minutes=9)
"""Less than what a machine must look busy for without a break to be called hung."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedChange:
    """What was said of it at `at`, when it changed. `seen` None: complete listings lacked it from then on."""

    at: datetime
    seen: Observation | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceHistory:
    """One resource as recorded. `said` and `spans` are in order of time. `samples`: in columns.

    `hourly_until`: before it only one row an hour is kept of some signals, and `hours` made samples of them; None: of none.
    """

    key: ResourceKey
    scope: ScopeKey
    first_seen_at: datetime
    said: tuple[RecordedChange, ...]
    spans: tuple[Span, ...] = ()
    samples: SampleColumns = field(default_factory=dict)
    hourly_until: datetime | None = None

    def get_observation(self, at: datetime) -> tuple[Observation, datetime | None] | None:
        """What is known of it at `at`, and since when listings lack it (None: they do not); None: nothing, or it has ended."""
        number = bisect_right(self.said, at, key=lambda one: one.at) - 1
        if number < 0:
            return None
        absent_at = self.said[number].at if self.said[number].seen is None else None
        seen = next((one.seen for one in reversed(self.said[: number + 1]) if one.seen is not None), None)
        return None if seen is None or seen.state == ENDED else (seen, absent_at)

    def select_samples(
        self, at: datetime, reach: timedelta = HISTORY_LOOKBACK
    ) -> dict[str, tuple[Sequence[int], Sequence[float]]]:
        """The samples of the last `reach` before `at`, in columns; a signal without any is left out."""
        first, last = to_micros(at - reach), to_micros(at)
        found = {}
        for signal, (ats, values) in self.samples.items():
            low, high = bisect_left(ats, first), bisect_right(ats, last)
            if low < high:
                found[signal] = ats[low:high], values[low:high]
        return found

    def list_samples(self, at: datetime, reach: timedelta) -> list[Sample]:
        """The same, one by one."""
        return [
            Sample(key=self.key, signal=signal, at=from_micros(when), value=value)
            for signal, (ats, values) in self.select_samples(at, reach).items()
            for when, value in zip(ats, values, strict=True)
        ]

    def has_samples(self, start: datetime, end: datetime) -> bool:
        """Whether any sample lies in (start, end]."""
        return bool(self.select_samples(end, end - start - MICROSECOND))

    def list_open_spans(self, at: datetime) -> tuple[Span, ...]:
        """The lines that bill at `at`."""
        return tuple(span for span in self.spans if span.start <= at and (span.end is None or at < span.end))


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeListings:
    """How well a scope was seen: its `stretches`, in order of time."""

    stretches: tuple[PollStretch, ...] = ()

    def find_last_listing(self, at: datetime) -> datetime | None:
        """When its last complete listing before `at` was, as if those of a stretch had come evenly; None: there was none."""
        for one in reversed(self.stretches):
            if one.outcome == COMPLETE and one.start <= at:
                if at >= one.end or one.polls < 2:  # noqa: PLR2004 - two make a distance
                    return min(one.end, at)
                each = (one.end - one.start) / (one.polls - 1)
                return one.start + ((at - one.start) // each) * each
        return None

    def count_listings(self, first: datetime, at: datetime) -> int:
        """How many complete listings lie from `first` to `at`, as if those of a stretch had come evenly."""
        return sum(_count_shared_polls(one, first, at) for one in self.stretches if one.outcome == COMPLETE)

    @property
    def ends(self) -> datetime | None:
        """When it was last listed completely; None: never."""
        return max((one.end for one in self.stretches if one.outcome == COMPLETE), default=None)


def rebuild_listing(past: ResourceHistory, lookout: ScopeListings, at: datetime) -> LiveResource | None:
    """The resource as it was listed at `at`, without its money; None where nothing was known of it, or it had ended."""
    known = past.get_observation(at)
    if known is None:
        return None
    seen_at = lookout.find_last_listing(at) or past.first_seen_at
    return LiveResource(
        scope=past.scope,
        observation=known[0],
        first_seen_at=past.first_seen_at,
        seen_at=seen_at,
        open=(),
        spent=make_zero_interval(),
        absent_at=known[1],
    )


def rebuild_resource(past: ResourceHistory, lookout: ScopeListings, at: datetime) -> LiveResource | None:
    """The resource as it stood at `at`, with what it billed."""
    found = rebuild_listing(past, lookout, at)
    return None if found is None else replace(found, open=past.list_open_spans(at), spent=_sum_spent(past.spans, at))


def find_gaps(stretches: Iterable[PollStretch], longest: timedelta) -> tuple[datetime, ...]:
    """When each pause of all polls together ended that was longer than `longest`."""
    reached, found = None, list[datetime]()
    for one in sorted(stretches, key=lambda s: s.start):
        if reached is not None and one.start - reached > longest:
            found.append(one.start)
        reached = one.end if reached is None else max(reached, one.end)
    return tuple(found)


def expand_sample_hours(
    hours: Iterable[SampleHour], every: timedelta, runs: Sequence[tuple[datetime, datetime]]
) -> tuple[list[int], list[float]]:
    """Samples that fit `hours` and hide no work: the highest, and every few minutes the lowest, as many as there were.

    Example: 60 samples of GPU duty from 0 to 97 %: eight of 97, one of 0, and so on. So all of that hour counts as work,
    wherever in it the work was; and with a low one every nine minutes none of it can look like a hang. `runs`: when each run
    began; samples of an hour in which one did stand at the hour's end.
    """
    ats, values, each = list[int](), list[float](), every // MICROSECOND
    cycle = max(2, HANG_AVOIDED_BY // every)
    for hour in hours:
        begin, ends = to_micros(hour.start), to_micros(hour.start + HOUR)
        late = any(hour.start < start < hour.start + HOUR for start, _ in runs)
        first = max(begin, ends - hour.count * each) if late else begin
        apart = min(each, (ends - first) // hour.count)
        ats.extend(range(first, first + hour.count * apart, apart))
        values.extend(hour.lowest if number % cycle == cycle - 1 else hour.highest for number in range(hour.count))
    return ats, values


def estimate_hourly_interval(hours: Iterable[SampleHour], interval: timedelta) -> timedelta:
    """How often a sample came, by the fullest of `hours`; never oftener than `interval`."""
    most = max((hour.count for hour in hours), default=0)
    return max(interval, HOUR / most) if most else interval


def find_instance_runs(said: Iterable[RecordedChange]) -> tuple[tuple[datetime, datetime], ...]:
    """(start, when it was said) of each run."""
    found = dict[datetime, datetime]()
    for one in said:
        if one.seen is not None and one.seen.state == RUNNING:
            found.setdefault(one.seen.started_at or one.at, one.at)
    return tuple(found.items())


def _count_shared_polls(stretch: PollStretch, first: datetime, at: datetime) -> int:
    start, end = max(stretch.start, first), min(stretch.end, at)
    if end < start:
        return 0
    if stretch.polls < 2:  # noqa: PLR2004 - two make a distance
        return stretch.polls
    each = (stretch.end - stretch.start) / (stretch.polls - 1)
    return int((end - stretch.start) // each) - int(-((stretch.start - start) // each)) + 1


def _sum_spent(spans: Sequence[Span], at: datetime) -> MoneyInterval:
    """All that it cost until then, in the currency that billed last."""
    begun = [span for span in spans if span.start <= at]
    currency = begun[-1].meter.price.currency if begun else "USD"
    parts = [
        compute_amounts(span, to_micros(span.start), to_micros(at)) for span in begun if span.meter.price.currency == currency
    ]
    low, expected, high = (Money(nano=sum(part[end] for part in parts), currency=currency) for end in range(3))
    return MoneyInterval(low=low, expected=expected, high=high)
