"""What a replay looks at beside the past of one resource, and the `Sight` that a guard run would have had of it at any time.

Example: stopped in the replay at 19:05 while the real machine ran on: at 19:06 the run sees it stopped, with the lines that
its provider's rule says a stopped machine bills. Somebody starts it again in the replay: then its run began at that moment.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from costguard.guard.asked import LOOKED_UP_FACTS, NO_COST_FACTS, SPENT_RUN, STOPPED_FOR, CostFacts, find_spending_starts
from costguard.guard.context import GuardConfig, GuardSnapshot
from costguard.guard.overrides import ARM, Override
from costguard.guard.policy import TERMINATE, Policy, Rails
from costguard.guard.replay.history import ResourceHistory, ScopeListings, rebuild_resource
from costguard.guard.run import FirstSighting
from costguard.guard.run import ProtectionSighting as Sighted
from costguard.guard.verdict import EscalationState
from costguard.metering.billing import BillingRule, list_meters
from costguard.metering.observation import UNKNOWN_HANDLING, Handling, Observation, identify_incarnation
from costguard.metering.span import Span, compute_amounts
from costguard.metering.spending import LiveResource
from costguard.values.incarnation import Incarnation, is_same_life
from costguard.values.instant import to_micros
from costguard.values.money import Money
from costguard.values.period import Period
from costguard.values.resource import STOPPED

WITHOUT_RAILS = Rails(
    acts_per_run=10**9,
    acts_per_10m=10**9,
    fleet_share_10m=Rails().fleet_share_10m * 10**9,
    fleet_share_day=Rails().fleet_share_day * 10**9,
    irreversible_per_h=10**9,
    breaker_least=10**9,
    first_seen=timedelta(),
    first_polls=0,
)
"""Rails that hold nothing but what was not seen lately: what a policy wants by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySetup:
    """`rules`: the settings that are tried. `period`: what is replayed, from `origin` on every `rules.interval`.

    `wishes`: all that were ever recorded. `gaps`: when each pause of all polls ended. `lags`: as in a `Sight`. `handling`: of
    each provider, where the past does not say it. `billing`: how each provider bills. `every_step`: look at every interval.
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
        """The rules as if each policy were armed for all that its ladder says, and without rails."""
        policies = tuple(replace(policy, arm=TERMINATE) for policy in self.rules.policies)
        return replace(self.rules, policies=policies, budgets=(), rails=WITHOUT_RAILS)

    def align_to_run(self, at: datetime) -> datetime:
        """The first guard run at or after `at`."""
        return self.origin - ((self.origin - at) // self.rules.interval) * self.rules.interval

    def select_overrides(self, past: ResourceHistory) -> tuple[Override, ...]:
        """Those that bear on one resource, with every policy armed."""
        mine = (w for w in self.wishes if w.what != ARM and w.key in {None, past.key})
        arming = (
            Override(id=p.name, what=ARM, who="simulate", why="", at=datetime.min.replace(tzinfo=self.origin.tzinfo),
                 subject=p.name, value=TERMINATE)
            for p in self.rules.policies
        )  # fmt: skip
        return (*mine, *arming)

    def find_gap_end(self, at: datetime) -> datetime | None:
        """When the last pause of all polls ended."""
        number = bisect_right(self.gaps, at)
        return self.align_to_run(self.gaps[number - 1]) if number and self.align_to_run(self.gaps[number - 1]) <= at else None


@dataclass(slots=True, kw_only=True)
class ReplayedResource:
    """One resource as the replay has it. `started_at`: when somebody started it again in the replay, after a stop of it.

    `rests_since`: when the replay stopped it, None: it did not, or it runs again. `gone`: the replay ended it for good.
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
        """The resource at `at` as a run would have it; `real`: whatever the replay stopped."""
        found = rebuild_resource(self.past, self.lookout, at)
        if found is None or (self.gone and not real):
            return None
        seen = found.observation
        if seen.handling == UNKNOWN_HANDLING:
            seen = replace(seen, handling=self.backdrop.handling.get(seen.key.provider, UNKNOWN_HANDLING))
        if self.started_at is not None and self.was is not None and is_same_life(self.was, identify_incarnation(seen)):
            seen = replace(seen, started_at=self.started_at)
        found = replace(found, observation=seen)
        return found if real or self.rests_since is None else self._show_stopped(found, self.rests_since)

    def build_snapshot(self, live: LiveResource, at: datetime, policies: Sequence[Policy]) -> GuardSnapshot:
        """What a run at `at` would have before it, of this resource alone.

        What is empty here is not recorded (standings, balances, agents), or has no effect in a replay: it sends nothing, takes
        each hook to end well at once, and applies the rails later, to all resources together.
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
            breaker=None,
            held=(),
        )

    def start_again(self, at: datetime) -> None:
        """Somebody started it at `at`, as far as the replay goes: a life of its own, with climbs of its own."""
        known = self.past.get_observation(at)
        self.started_at, self.was, self.rests_since = at, identify_incarnation(known[0]) if known else None, None
        self.climbs.clear()

    def _show_stopped(self, live: LiveResource, since: datetime) -> LiveResource:
        seen = replace(live.observation, state=STOPPED, stopped_at=since)
        return replace(live, observation=seen, open=self.list_rest_spans(seen, since))

    def list_rest_spans(self, seen: Observation, since: datetime) -> tuple[Span, ...]:
        """What it bills while it is stopped, by its provider's rule."""
        rule = self.backdrop.billing.get(seen.key.provider)
        found = list_meters(replace(seen, state=STOPPED), rule, {}) if rule else {}
        return tuple(
            Span(key=seen.key, attribution=seen.attribution, meter=meter, start=since, anchor=since) for meter in found.values()
        )

    def _bind_overrides(self, live: LiveResource) -> tuple[Override, ...]:
        """Its wishes; one of the real life that was made since the replay started it anew is of this life."""
        if self.started_at is None or self.was is None:
            return self.wishes
        life, was, since = identify_incarnation(live.observation), self.was, self.started_at
        return tuple(
            replace(w, life=life) if w.life is not None and w.at >= since and is_same_life(w.life, was) else w
            for w in self.wishes
        )

    def _collect_cost_facts(self, live: LiveResource, at: datetime, policies: Sequence[Policy]) -> CostFacts:
        """What some condition asks the ledger for, as far as it is recorded: balances are not."""
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
        """What it surely cost from `start` to `at` at stated prices; None: nothing did, or in several currencies."""
        if start is None:
            return None
        known = [s for s in self.past.spans if s.meter.price.known and s.start < at and (s.end is None or s.end > start)]
        if len({span.meter.price.currency for span in known}) != 1:
            return None
        nano = sum(compute_amounts(span, to_micros(start), to_micros(at))[0] for span in known)
        return Money(nano=nano, currency=known[0].meter.price.currency)

    def _find_stop(self, at: datetime) -> datetime | None:
        since = None
        for one in self.past.said:
            if one.at > at:
                break
            if one.seen is not None:
                since = (since or one.at) if one.seen.state == STOPPED else None
        return since
