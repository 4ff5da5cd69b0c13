"""Inputs of a guard run: configuration, snapshot, results of earlier runs, and a context for each resource.

The activity of a resource is computed once, in its context, and shared by all policies that ask alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, tzinfo

from costguard.budgets.budget import Budget
from costguard.budgets.budget_status import BudgetStatus
from costguard.guard.action_intents import DOUBTFUL_STATES, Intent
from costguard.guard.activity import (
    GroupActivity,
    GroupKey,
    GroupMember,
    apply_group_activity,
    classify_activity,
    combine_activities,
    counts_for_group,
    find_group,
)
from costguard.guard.alerts.alert import NoticeDelivery
from costguard.guard.escalation import Hook, HookRun
from costguard.guard.limits import Breaker
from costguard.guard.overrides import (
    LEASE,
    MANUAL_START_LEASE,
    Override,
    Protection,
    find_freeze,
    find_label_protection,
    find_lease,
    find_lease_end,
    find_owner,
    find_phase,
    find_protection,
    list_approved_acts,
)
from costguard.guard.policy import EscalationState, Policy, Rails, ScheduleState, evaluate_schedule
from costguard.guard.policy_evaluation import CostFacts, FactInputs, PolicySelector
from costguard.guard.signals import IDLE, Activity, CountedSeries, SampleColumns, build_columns, select_counted_series
from costguard.guard.signals import estimate_sample_interval as spacing_of
from costguard.metering.observation import Handling, Observation, identify_incarnation
from costguard.metering.spending import LiveResource
from costguard.values.agent import Agent
from costguard.values.money import PrepaidBalance
from costguard.values.resource import INSTANCE, RUNNING, Incarnation, ResourceKey
from costguard.values.sample import Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardConfig:
    """What the settings say. `claims`: accounts ("aws", "aws/1111", "aws/1111/us-east-1") that are ours; None: none is stated.

    `ownerless`: providers whose machines tell no owner.

    `group_from`: the labels that put machines into groups, () for none. `admin_route`: some route takes every warning, so that
    nobody's machine is stopped untold; without one nothing beyond notify is armed. `journals`: channels whose sending is no
    delivery: the console and logs.
    """

    admin_route: bool
    journals: frozenset[str] = frozenset()

    policies: tuple[Policy, ...] = ()
    budgets: tuple[Budget, ...] = ()
    rails: Rails = field(default_factory=Rails)
    owner_from: tuple[str, ...] = ("label:owner",)
    group_from: tuple[str, ...] = ()
    protect: tuple[str, ...] = ("label:costguard=never",)
    zone: tzinfo = UTC
    interval: timedelta = timedelta(seconds=60)
    claims: tuple[str, ...] | None = None
    ownerless: frozenset[str] = frozenset()
    hooks: tuple[Hook, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardSnapshot:
    """What is known at `now`. No field has a default: who builds one without a field would judge by less than is known.

    `services.guard_snapshot` builds it for `watch`, `plan`, `status` and `top`, `guard.replay.history` for `simulate`.

    `live` carries the handling of the last listing. `wishes`: also those that have ended lately.

    `sent`: intents that were sent in the last day; `intents`: open and lately ended ones. `lags`: how late each
    provider's measures come, where they do. `balances`: of prepaid accounts. `gap_ended_at`: evidence from before it counts no
    more. `apart`: how long nothing ran before this run, where it and the one before it each came after a gap.
    `gap_began_at`: in the first run after a gap, when the last run before it was; None: this run follows no gap.
    `held`: what holds every act.
    `hooks`: runs of hooks, those that have not ended and late ones.
    `members`: what controllers bring up, as last listed, with what has ended. `asked`: what some condition asks for.
    `agents`: those that may speak. `deliveries`: confirmed notices of the present climbs, by topic and subject.
    """

    now: datetime
    live: tuple[LiveResource, ...]
    standings: tuple[BudgetStatus, ...]
    samples: Mapping[ResourceKey, SampleColumns]
    known: Mapping[ResourceKey, FirstSighting]
    protections: Mapping[ResourceKey, ProtectionSighting]
    wishes: tuple[Override, ...]
    climbs: tuple[EscalationState, ...]
    intents: tuple[Intent, ...]
    sent: tuple[Intent, ...]
    hooks: tuple[HookRun, ...]
    reactions: tuple[ConfirmedAct, ...]
    lags: Mapping[str, timedelta]
    balances: tuple[PrepaidBalance, ...]
    members: tuple[Observation, ...]
    agents: tuple[Agent, ...]
    asked: CostFacts
    gap_ended_at: datetime | None
    apart: timedelta | None
    gap_began_at: datetime | None
    breaker: Breaker | None
    held: tuple[tuple[str, str], ...]
    deliveries: Mapping[tuple[str, str], tuple[NoticeDelivery, ...]]


ACTIVITY_WINDOW = timedelta(minutes=45)
"""Of samples, where no policy with a longer wait concerns a machine."""
ACTIVITY_WINDOW_MIN = timedelta(minutes=10)
SAMPLES_LEAST = 3
"""Of a signal, in a window that is shortened by the provider's lag."""
ActivityQuery = tuple[timedelta, tuple[str, ...], timedelta]


@dataclass(slots=True, kw_only=True)
class ResourceContext:
    """One resource with what bears on it, whatever the policy. `policies`: those that concern it.

    `known`: what is known of it beside its listing, whatever the policy. `facts`: those made already that rest on its listing.
    `works`: already judged, by window and needs; `evidence`: what all of them are judged by, once it was asked for.
    """

    live: LiveResource
    life: Incarnation
    owner: str
    protection: Protection
    lease: Override | None
    lease_ended_at: datetime | None
    phase: Override | None
    known: FactInputs
    frozen: Override | None
    approved: frozenset[str]
    in_doubt: str
    policies: tuple[Policy, ...] = ()
    facts: dict[str, object | None] = field(default_factory=dict)
    evidence: tuple[datetime, timedelta, CountedSeries] | None = None
    works: dict[ActivityQuery, Activity] = field(default_factory=dict)
    group: ResourceGroup | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(
        cls, live: LiveResource, rules: GuardConfig, sight: GuardSnapshot, among: PolicySelector | None = None
    ) -> ResourceContext:
        """The seat of `live` in this run. `among`: the policies of `rules`, for who makes several."""
        seen, now = live.observation, sight.now
        life, before, owner = identify_incarnation(seen), sight.protections.get(seen.key), find_owner(seen, rules.owner_from)
        policies = (among or PolicySelector(rules.policies)).select(seen, owner)
        wishes = (*sight.wishes, *_lease_manual_start(seen, life, policies))
        protection = find_protection(seen, sight.wishes, rules.protect, before.at if before else None, now)
        lease = find_lease(life, wishes, now)
        doubt = next((i for i in sight.intents if i.state in DOUBTFUL_STATES and i.life.key == seen.key), None)
        return cls(
            live=live,
            life=life,
            owner=owner,
            protection=protection,
            lease=lease,
            lease_ended_at=find_lease_end(life, wishes, now),
            phase=find_phase(life, sight.wishes, now),
            known=FactInputs(owner=owner, protection=protection, lease=lease, lease_ended_at=find_lease_end(life, wishes, now)),
            frozen=find_freeze(sight.wishes, seen.key, now),
            approved=list_approved_acts(life, sight.wishes, now),
            in_doubt=f"its {doubt.act} is {doubt.state}" if doubt else "",
            policies=policies,
        )

    @property
    def key(self) -> ResourceKey:
        """Of the resource."""
        return self.live.observation.key

    def has_protecting_label(self, rules: GuardConfig) -> bool:
        """Whether its labels protect it now: what is remembered for a day after they vanish."""
        return find_label_protection(self.live.observation, rules.protect).protected

    def record_protection(self, rules: GuardConfig, now: datetime) -> ProtectionSighting:
        """That its labels protect it, to be remembered."""
        return ProtectionSighting(key=self.key, at=now, how=find_label_protection(self.live.observation, rules.protect).why)

    def get_lag(self, sight: GuardSnapshot) -> timedelta:
        """How late its newest sample may be."""
        return sight.lags.get(self.key.provider, timedelta())

    def find_longest_policy(self) -> Policy | None:
        """Of the policies that concern it, the one that waits longest."""
        return max(self.policies, key=lambda p: p.hold, default=None)

    def classify(self, policy: Policy | None, rules: GuardConfig, sight: GuardSnapshot) -> Activity:
        """Its state of work as `policy` asks for it: that of its group, where it idles by itself and is not judged alone."""
        own = self.classify_alone(policy, rules, sight)
        if self.group is None or own.state != IDLE or (policy is not None and policy.alone):
            return own
        return apply_group_activity(own, self.group.classify(policy, rules, sight), self.live.observation.gpu_count)

    def classify_alone(self, policy: Policy | None, rules: GuardConfig, sight: GuardSnapshot) -> Activity:
        """Its own state of work, whatever its group does, judged once for policies that ask alike."""
        seen = self.live.observation
        if seen.kind != INSTANCE or seen.state != RUNNING:
            return Activity(reasons=(f"it is {seen.state}",))
        asks = _build_query(policy)
        made = self.works.get(asks)
        if made is None:
            made = self.works[asks] = self._classify_once(*asks, rules, sight)
        return made

    def _classify_once(
        self, window: timedelta, needs: tuple[str, ...], warmup: timedelta, rules: GuardConfig, sight: GuardSnapshot
    ) -> Activity:
        seen = self.live.observation
        since, rhythm, counted = self.evidence = self.evidence or self._collect_series(rules, sight)
        lag = self.get_lag(sight)
        least = min(window, max(ACTIVITY_WINDOW_MIN, SAMPLES_LEAST * rhythm))
        return classify_activity(
            seen,
            (),
            now=sight.now,
            since=since,
            poll=rhythm,
            window=max(window - lag, least),  # what was idle for `window` shows only `window - lag` of it yet
            warmup_max=warmup,
            needs=needs,
            phase_until=self.phase.until if self.phase else None,
            lag=lag,
            counted=counted,
        )

    def get_sample_interval(self, rules: GuardConfig, sight: GuardSnapshot) -> timedelta:
        """How often a sample of it is due."""
        return self.evidence[1] if self.evidence else spacing_of(sight.samples.get(self.key, {}), rules.interval)

    def _collect_series(self, rules: GuardConfig, sight: GuardSnapshot) -> tuple[datetime, timedelta, CountedSeries]:
        """From when on its samples count, how often one is due, and those that count: whatever the policy."""
        columns: SampleColumns = sight.samples.get(self.key, {})
        began = [self.live.observation.started_at or self.live.observation.created_at, sight.gap_ended_at, self.lease_ended_at]
        since = max((at for at in began if at is not None), default=self.live.first_seen_at)
        return since, spacing_of(columns, rules.interval), select_counted_series(columns, since, sight.now)


@dataclass(slots=True, kw_only=True)
class ResourceGroup:
    """A group of seats: those of its members that run. `works`: already judged, as of a `Seat`."""

    key: GroupKey
    running: list[ResourceContext] = field(default_factory=list)
    works: dict[ActivityQuery, GroupActivity | None] = field(default_factory=dict)

    def classify(self, policy: Policy | None, rules: GuardConfig, sight: GuardSnapshot) -> GroupActivity | None:
        """What it comes to, as `policy` asks for it; None: no member runs."""
        asks = _build_query(policy)
        if asks not in self.works:
            self.works[asks] = combine_activities(
                self.key, [self._to_member(one, policy, rules, sight) for one in self.running]
            )
        return self.works[asks]

    @staticmethod
    def _to_member(seat: ResourceContext, policy: Policy | None, rules: GuardConfig, sight: GuardSnapshot) -> GroupMember:
        return GroupMember(key=seat.key, name=seat.live.observation.name, work=seat.classify_alone(policy, rules, sight))


def build_contexts(rules: GuardConfig, sight: GuardSnapshot) -> list[ResourceContext]:
    """A seat for each resource of `sight`, those of one group put together."""
    among, groups = PolicySelector(rules.policies), dict[GroupKey, ResourceGroup]()
    seats = [ResourceContext.of(live, rules, sight, among) for live in sight.live]
    for seat in seats:
        key = find_group(seat.live.observation, rules.group_from)
        if key is not None:
            seat.group, seat.known = groups.setdefault(key, ResourceGroup(key=key)), replace(seat.known, group=key.name)
            if counts_for_group(seat.live):
                seat.group.running.append(seat)
    return seats


def _build_query(policy: Policy | None) -> ActivityQuery:
    """What `policy` asks of a judgement: window, needs, and how long a machine may be warming."""
    if policy is None:
        return max(ACTIVITY_WINDOW, ACTIVITY_WINDOW_MIN), (), ACTIVITY_WINDOW
    return max(policy.hold or ACTIVITY_WINDOW, ACTIVITY_WINDOW_MIN), policy.needs, policy.warmup_max


def estimate_interval_of_samples(samples: Sequence[Sample], interval: timedelta) -> timedelta:
    """How often a sample is due, as `evidence.spacing` says."""
    return spacing_of(build_columns(samples), interval)


def _lease_manual_start(seen: Observation, life: Incarnation, policies: Iterable[Policy]) -> tuple[Override, ...]:
    """The lease of a machine that somebody started while a schedule wanted it off: for that long no policy acts on it."""
    began = seen.started_at
    if began is None or not any(
        policy.schedule and is_started_after_hours(seen, evaluate_schedule(policy.schedule, began)) for policy in policies
    ):
        return ()
    who, why = "the person who started it", "started by hand"
    return (Override(id="", what=LEASE, who=who, why=why, at=began, until=began + MANUAL_START_LEASE, key=seen.key, life=life),)


def is_started_after_hours(seen: Observation, wanted: ScheduleState) -> bool:
    """Whether its run began within the time in which its schedule wants it off: that was on purpose."""
    return wanted.off and wanted.since is not None and seen.started_at is not None and seen.started_at > wanted.since


def apply_handling(live: LiveResource, handling: Mapping[ResourceKey, Handling]) -> LiveResource:
    """`live` with what its last listing said of acts on it, which the ledger does not keep."""
    known = handling.get(live.observation.key)
    if known is None or known == live.observation.handling:
        return live
    return replace(live, observation=replace(live.observation, handling=known))


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardRun:
    """One run, written with all that it leaves to the next. `epoch`: of the turn in which it was made.

    `interval`: how often runs are meant to come. `clock_skew`: by how much the wall clock moved away from the one that counts
    on in sleep, since the last run. `outcome`: a word for how it went; `notes`: sentences. `facts`: (name, text) for the next
    run (since when the breaker is open).
    """

    id: str
    at: datetime
    epoch: int
    interval: timedelta
    clock_skew: timedelta = timedelta()
    outcome: str = ""
    notes: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtectionSighting:
    """`key` was last seen protected on the cloud's side at `at`. `how`: by what ("label costguard=never")."""

    key: ResourceKey
    at: datetime
    how: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstSighting:
    """Since when a resource is known. `polls`: complete listings of its scope since then, its first one counted."""

    at: datetime
    polls: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DepartureEvidence:
    """What listings say of a resource that may be over. `listed`: as the last complete one that had it showed its end.

    `absences`: how many complete listings in a row do not contain it, where none showed its end.
    """

    listed: Observation | None = None
    absences: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmedAct:
    """One act that was confirmed: when its first request was let go, and when a listing had proven it."""

    intent_id: str
    provider: str
    act: str
    sent_at: datetime
    confirmed_at: datetime

    @property
    def took(self) -> timedelta:
        """From the one to the other."""
        return self.confirmed_at - self.sent_at
