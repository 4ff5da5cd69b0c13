"""The recorded history of one resource, and the snapshot that a guard run would have had at any time of it.

Example: recorded at 16:00 as running and at 19:06 as stopped. At 19:05 it is running, with the spans that cover 19:05 and the
samples of the 48 hours before; nothing recorded later is used. If the replay stopped it at 19:05 while the real machine ran on,
the run at 19:06 sees it stopped, with the charges that its provider's billing rule states for a stopped machine.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from costguard.guard.context import GuardConfig, GuardSnapshot
from costguard.guard.overrides import ARM, STOP_AT, Override, join_arming
from costguard.guard.policy import TERMINATE, EscalationState, Policy, Rails
from costguard.guard.policy_evaluation import (
    LOOKED_UP_FACTS,
    NO_COST_FACTS,
    SPENT_RUN,
    STOPPED_FOR,
    CostFacts,
    find_spending_starts,
)
from costguard.guard.run_facts import FirstSighting
from costguard.guard.run_facts import ProtectionSighting as Sighted
from costguard.guard.signals import SampleColumns
from costguard.metering.billing import BillingRule, list_meters
from costguard.metering.inventory import COMPLETE
from costguard.metering.observation import UNKNOWN_HANDLING, Handling, Observation, identify_incarnation
from costguard.metering.span import Span, compute_amounts
from costguard.metering.spending import LiveResource, PollStretch
from costguard.values.calendar import Period
from costguard.values.instant import MICROSECOND, from_micros, to_micros
from costguard.values.money import Money, MoneyInterval, make_zero_interval
from costguard.values.resource import ENDED, RUNNING, STOPPED, Incarnation, ResourceKey, ScopeKey, is_same_life
from costguard.values.sample import Sample, SampleHour

HISTORY_LOOKBACK = timedelta(hours=48)
"""How far back a guard run looks at samples."""
HOUR = timedelta(hours=1)
HANG_AVOIDED_BY = timedelta(minutes=9)
"""Less than what a machine must look busy for without a break to be called hung."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedChange:
    """A recorded change of a resource at `at`. `seen` None: complete listings lacked it from then on."""

    at: datetime
    seen: Observation | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceHistory:
    """One resource as recorded. `said` (its changes) and `spans` are ordered by time. `samples`: in columns.

    `hourly_until`: before it only one row an hour is kept for some signals, which `expand_sample_hours` turned into samples;
    None: for no signal.
    """

    key: ResourceKey
    scope: ScopeKey
    first_seen_at: datetime
    said: tuple[RecordedChange, ...]
    spans: tuple[Span, ...] = ()
    samples: SampleColumns = field(default_factory=dict)
    hourly_until: datetime | None = None

    def get_observation(self, at: datetime) -> tuple[Observation, datetime | None] | None:
        """Return its observation at `at` and since when listings lack it (None: they contain it).

        None: nothing was known of it, or it has ended.
        """
        number = bisect_right(self.said, at, key=lambda one: one.at) - 1
        if number < 0:
            return None
        absent_at = self.said[number].at if self.said[number].seen is None else None
        observation = next((one.seen for one in reversed(self.said[: number + 1]) if one.seen is not None), None)
        return None if observation is None or observation.state == ENDED else (observation, absent_at)

    def select_samples(
        self, at: datetime, reach: timedelta = HISTORY_LOOKBACK
    ) -> dict[str, tuple[Sequence[int], Sequence[float]]]:
        """Return the samples of the last `reach` before `at`, in columns; a signal without any is left out."""
        first, last = to_micros(at - reach), to_micros(at)
        columns = {}
        for signal, (ats, values) in self.samples.items():
            low, high = bisect_left(ats, first), bisect_right(ats, last)
            if low < high:
                columns[signal] = ats[low:high], values[low:high]
        return columns

    def list_samples(self, at: datetime, reach: timedelta) -> list[Sample]:
        """Return the same samples as a list of objects."""
        return [
            Sample(key=self.key, signal=signal, at=from_micros(when), value=value)
            for signal, (ats, values) in self.select_samples(at, reach).items()
            for when, value in zip(ats, values, strict=True)
        ]

    def has_samples(self, start: datetime, end: datetime) -> bool:
        """Return whether any sample lies in (start, end]."""
        return bool(self.select_samples(end, end - start - MICROSECOND))

    def list_open_spans(self, at: datetime) -> tuple[Span, ...]:
        """Return the spans that bill at `at`."""
        return tuple(span for span in self.spans if span.start <= at and (span.end is None or at < span.end))


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeListings:
    """How completely a scope was listed: its poll `stretches`, ordered by time."""

    stretches: tuple[PollStretch, ...] = ()

    def find_last_listing(self, at: datetime) -> datetime | None:
        """Return when its last complete listing before `at` was; None: there was none.

        The listings of a stretch are taken to be evenly spaced.
        """
        for one in reversed(self.stretches):
            if one.outcome == COMPLETE and one.start <= at:
                if at >= one.end or one.polls < 2:  # noqa: PLR2004 - two make a distance
                    return min(one.end, at)
                each = (one.end - one.start) / (one.polls - 1)
                return one.start + ((at - one.start) // each) * each
        return None

    def count_listings(self, first: datetime, at: datetime) -> int:
        """Count the complete listings from `first` to `at`. The listings of a stretch are taken to be evenly spaced."""
        return sum(_count_shared_polls(one, first, at) for one in self.stretches if one.outcome == COMPLETE)

    @property
    def ends(self) -> datetime | None:
        """Return when it was last listed completely; None: never."""
        return max((one.end for one in self.stretches if one.outcome == COMPLETE), default=None)


def rebuild_listing(past: ResourceHistory, lookout: ScopeListings, at: datetime) -> LiveResource | None:
    """Rebuild the resource as listed at `at`, without its costs; None if it was not known yet or had ended."""
    record = past.get_observation(at)
    if record is None:
        return None
    seen_at = lookout.find_last_listing(at) or past.first_seen_at
    return LiveResource(
        scope=past.scope,
        observation=record[0],
        first_seen_at=past.first_seen_at,
        seen_at=seen_at,
        open=(),
        spent=make_zero_interval(),
        absent_at=record[1],
    )


def rebuild_resource(past: ResourceHistory, lookout: ScopeListings, at: datetime) -> LiveResource | None:
    """Rebuild the resource at `at`, with its open spans and its cost so far; None as in `rebuild_listing`."""
    resource = rebuild_listing(past, lookout, at)
    return None if resource is None else replace(resource, open=past.list_open_spans(at), spent=_sum_spent(past.spans, at))


def find_gaps(stretches: Iterable[PollStretch], longest: timedelta) -> tuple[datetime, ...]:
    """Return the ends of the pauses longer than `longest` in which no scope was polled."""
    reached, gap_ends = None, list[datetime]()
    for one in sorted(stretches, key=lambda s: s.start):
        if reached is not None and one.start - reached > longest:
            gap_ends.append(one.start)
        reached = one.end if reached is None else max(reached, one.end)
    return tuple(gap_ends)


def expand_sample_hours(
    hours: Iterable[SampleHour], every: timedelta, runs: Sequence[tuple[datetime, datetime]]
) -> tuple[list[int], list[float]]:
    """Expand hourly rows to samples that hide no work: mostly the highest value, and the lowest every few minutes.

    Each hour gets as many samples as it had. Example: 60 samples of GPU duty from 0 to 97 %: eight of 97, one of 0, and so on.
    So the whole hour counts as work, wherever in it the work was, and a low sample every nine minutes prevents the detection of
    a hang. `runs`: when each run began; if one began within an hour, the samples of that hour are put at its end.
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
    """Estimate the sample interval from the fullest of `hours`; at least `interval`."""
    most = max((hour.count for hour in hours), default=0)
    return max(interval, HOUR / most) if most else interval


def find_instance_runs(changes: Iterable[RecordedChange]) -> tuple[tuple[datetime, datetime], ...]:
    """Return for each run its start and when it was first recorded."""
    runs = dict[datetime, datetime]()
    for one in changes:
        if one.seen is not None and one.seen.state == RUNNING:
            runs.setdefault(one.seen.started_at or one.at, one.at)
    return tuple(runs.items())


def _count_shared_polls(stretch: PollStretch, first: datetime, at: datetime) -> int:
    start, end = max(stretch.start, first), min(stretch.end, at)
    if end < start:
        return 0
    if stretch.polls < 2:  # noqa: PLR2004 - two make a distance
        return stretch.polls
    each = (stretch.end - stretch.start) / (stretch.polls - 1)
    return int((end - stretch.start) // each) - int(-((stretch.start - start) // each)) + 1


def _sum_spent(spans: Sequence[Span], at: datetime) -> MoneyInterval:
    """Return its cost until `at`, in the currency that billed last."""
    begun = [span for span in spans if span.start <= at]
    currency = begun[-1].meter.price.currency if begun else "USD"
    parts = [
        compute_amounts(span, to_micros(span.start), to_micros(at)) for span in begun if span.meter.price.currency == currency
    ]
    low, expected, high = (Money(nano=sum(part[end] for part in parts), currency=currency) for end in range(3))
    return MoneyInterval(low=low, expected=expected, high=high)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySetup:
    """The settings and shared inputs of a replay. `rules`: the settings to test.

    `period`: what is replayed, with a guard run every `rules.interval` counted from `origin`. `wishes`: all recorded overrides.
    `gaps`: the end of each pause of all polls. `lags`: as in GuardSnapshot. `handling`: of each provider, used if the history
    lacks it. `billing`: how each provider bills. `every_step`: evaluate at every interval.
    """

    rules: GuardConfig
    period: Period
    origin: datetime
    wishes: tuple[Override, ...]
    gaps: tuple[datetime, ...]
    lags: Mapping[str, timedelta]
    handling: Mapping[str, Handling]
    billing: Mapping[str, BillingRule]
    every_step: bool

    @property
    def armed(self) -> GuardConfig:
        """Return the settings with every policy fully armed, and without limits and budgets."""
        policies = tuple(replace(policy, arm=TERMINATE) for policy in self.rules.policies)
        return replace(self.rules, policies=policies, budgets=(), rails=Rails.unlimited(), admin_route=True)

    def align_to_run(self, at: datetime) -> datetime:
        """Return the first guard run at or after `at`."""
        return self.origin - ((self.origin - at) // self.rules.interval) * self.rules.interval

    def select_overrides(self, past: ResourceHistory) -> tuple[Override, ...]:
        """Return the overrides that concern one resource, with every policy armed."""
        overrides = (w for w in self.wishes if w.what not in (ARM, STOP_AT) and w.key in {None, past.key})
        arming = (
            Override(id=p.name, what=ARM, who="simulate", why="", at=datetime.min.replace(tzinfo=self.origin.tzinfo),
                 subject=p.name, value=join_arming(TERMINATE, p.digest))
            for p in self.rules.policies
        )  # fmt: skip
        return (*overrides, *arming)

    def find_gap_end(self, at: datetime) -> datetime | None:
        """Return the run at the end of the last pause of all polls before `at`; None: there was none."""
        number = bisect_right(self.gaps, at)
        return self.align_to_run(self.gaps[number - 1]) if number and self.align_to_run(self.gaps[number - 1]) <= at else None


@dataclass(slots=True, kw_only=True)
class ReplayedResource:
    """One resource in a replay. `started_at`: when it was started again in the replay after a stop.

    `rests_since`: when the replay stopped it; None: it did not, or it runs again. `gone`: the replay terminated it.
    """

    past: ResourceHistory
    lookout: ScopeListings
    backdrop: ReplaySetup
    wishes: tuple[Override, ...]
    climbs: dict[str, EscalationState] = field(default_factory=dict)
    sighted: Sighted | None = None
    started_at: datetime | None = None
    was: Incarnation | None = None
    rests_since: datetime | None = None
    gone: bool = False

    def get_resource(self, at: datetime, *, real: bool = False) -> LiveResource | None:
        """Return the resource as a run at `at` would see it; `real`: ignore the stops of the replay."""
        resource = rebuild_resource(self.past, self.lookout, at)
        if resource is None or (self.gone and not real):
            return None
        observation = resource.observation
        if observation.handling == UNKNOWN_HANDLING:
            observation = replace(observation, handling=self.backdrop.handling.get(observation.key.provider, UNKNOWN_HANDLING))
        if self.started_at is not None and self.was is not None and is_same_life(self.was, identify_incarnation(observation)):
            observation = replace(observation, started_at=self.started_at)
        resource = replace(resource, observation=observation)
        return resource if real or self.rests_since is None else self._show_stopped(resource, self.rests_since)

    def build_snapshot(self, live: LiveResource, at: datetime, policies: Sequence[Policy]) -> GuardSnapshot:
        """Build the snapshot of a run at `at`, for this resource alone.

        An empty field is not recorded (budget statuses, balances, agents), or has no effect in a replay: a replay sends
        nothing, assumes that each hook succeeds at once, and applies the limits later to all resources together.
        """
        return GuardSnapshot(
            now=at,
            live=(live,),
            standings=(),
            samples={self.past.key: self.past.select_samples(at)},
            known={
                self.past.key: FirstSighting(
                    at=self.past.first_seen_at, polls=self.lookout.count_listings(self.past.first_seen_at, at)
                )
            },
            protections={self.past.key: self.sighted} if self.sighted else {},
            wishes=self._bind_overrides(live),
            climbs=tuple(self.climbs.values()),
            intents=(),
            sent=(),
            hooks=(),
            reactions=(),
            lags=self.backdrop.lags,
            balances=(),
            members=(),
            agents=(),
            asked=self._collect_cost_facts(live, at, policies),
            gap_ended_at=self.backdrop.find_gap_end(at),
            apart=None,
            gap_began_at=None,
            breaker=None,
            held=(),
            deliveries={},
            start_histories={},
            started=(),
            restarts=(),
            raised=frozenset(),
            last_run_at=None,
            ready_since={},
        )

    def start_again(self, at: datetime) -> None:
        """Start it again at `at` in the replay: a new incarnation without escalations."""
        record = self.past.get_observation(at)
        self.started_at, self.was, self.rests_since = at, identify_incarnation(record[0]) if record else None, None
        self.climbs.clear()

    def _show_stopped(self, live: LiveResource, since: datetime) -> LiveResource:
        observation = replace(live.observation, state=STOPPED, stopped_at=since)
        return replace(live, observation=observation, open=self.list_rest_spans(observation, since))

    def list_rest_spans(self, observation: Observation, since: datetime) -> tuple[Span, ...]:
        """Return what it bills while it is stopped, by its provider's billing rule."""
        rule = self.backdrop.billing.get(observation.key.provider)
        meters = list_meters(replace(observation, state=STOPPED), rule, {}) if rule else {}
        return tuple(
            Span(key=observation.key, attribution=observation.attribution, meter=meter, start=since, anchor=since)
            for meter in meters.values()
        )

    def _bind_overrides(self, live: LiveResource) -> tuple[Override, ...]:
        """Return its overrides, those of the real incarnation made since the replay restarted it bound to the new one."""
        if self.started_at is None or self.was is None:
            return self.wishes
        life, was, since = identify_incarnation(live.observation), self.was, self.started_at
        return tuple(
            replace(w, life=life) if w.life is not None and w.at >= since and is_same_life(w.life, was) else w
            for w in self.wishes
        )

    def _collect_cost_facts(self, live: LiveResource, at: datetime, policies: Sequence[Policy]) -> CostFacts:
        """Return the ledger facts that some condition uses, as far as they are recorded; balances are not."""
        names = frozenset[str]().union(*(policy.when.names for policy in policies)) & LOOKED_UP_FACTS
        if not names or self.rests_since is not None:
            return NO_COST_FACTS
        paid = {
            name: money
            for name, start in find_spending_starts(names, self.backdrop.rules.zone, at).items()
            if (money := self._sum_paid(live.observation.started_at if name == SPENT_RUN else start, at)) is not None
        }
        stopped = self._find_stop(at) if STOPPED_FOR in names else None
        key = self.past.key
        return CostFacts(paid={key: paid}, stopped_since={key: stopped} if stopped else {}, runways={})

    def _sum_paid(self, start: datetime | None, at: datetime) -> Money | None:
        """Return its certain cost from `start` to `at` at stated prices; None: no cost, or several currencies."""
        if start is None:
            return None
        priced_spans = [s for s in self.past.spans if s.meter.price.known and s.start < at and (s.end is None or s.end > start)]
        if len({span.meter.price.currency for span in priced_spans}) != 1:
            return None
        nano = sum(compute_amounts(span, to_micros(start), to_micros(at))[0] for span in priced_spans)
        return Money(nano=nano, currency=priced_spans[0].meter.price.currency)

    def _find_stop(self, at: datetime) -> datetime | None:
        since = None
        for one in self.past.said:
            if one.at > at:
                break
            if one.seen is not None:
                since = (since or one.at) if one.seen.state == STOPPED else None
        return since
