"""Inputs of a guard run: configuration, snapshot, results of earlier runs, and a context for each resource.

The activity of a resource is computed once, in its context, and shared by all policies that ask alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache

from costguard.budgets.budget import Budget
from costguard.budgets.budget_status import BudgetStatus
from costguard.guard.action_intents import (
    CONFIRM_WITHIN,
    DONE,
    DOUBTFUL_STATES,
    FAILED,
    REFUSED_FOR,
    Intent,
    is_without_effect,
)
from costguard.guard.action_plan import CaseSubject
from costguard.guard.activity import classify_activity
from costguard.guard.alerts.alert import NoticeDelivery
from costguard.guard.escalation import Hook, HookRun
from costguard.guard.grouping import (
    GroupActivity,
    GroupKey,
    GroupMember,
    apply_group_activity,
    combine_activities,
    counts_for_group,
    find_group,
)
from costguard.guard.limits import Breaker
from costguard.guard.overrides import (
    FREEZE,
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
    is_group_head,
    list_answers,
    list_approved_acts,
)
from costguard.guard.policy import PERSON_RULE, EscalationState, Policy, Rails, evaluate_schedule
from costguard.guard.policy_evaluation import CostFacts, FactInputs, PolicySelector
from costguard.guard.prepared_policy import is_started_after_hours
from costguard.guard.run_facts import ConfirmedAct, FirstSighting, ProtectionSighting, StartHistory
from costguard.guard.sample_times import TimesPool
from costguard.guard.signals import (
    IDLE,
    Activity,
    CountedSeries,
    SampleColumns,
    build_columns,
    find_sample_bounds,
    select_counted_series,
)
from costguard.guard.signals import estimate_sample_interval as spacing_of
from costguard.metering.observation import Handling, Observation, identify_incarnation
from costguard.metering.spending import LiveResource
from costguard.values.agent import Agent
from costguard.values.money import PrepaidBalance
from costguard.values.resource import INSTANCE, RUNNING, Incarnation, ResourceKey, is_same_life
from costguard.values.sample import Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardConfig:
    """The configuration of a guard run, from the settings.

    `claims`: our accounts ("aws", "aws/1111", "aws/1111/us-east-1"); None: none is stated. `ownerless`: providers that report
    no owner for a machine. `group_from`: the labels that put machines into groups, () for none. `admin_route`: some route takes
    every warning, so that no machine is stopped without a notification; without such a route nothing beyond notify is armed.
    `journals`: channels whose sending does not count as a delivery: the console and logs.
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
    """All inputs of a guard run at `now`. No field has a default, so that every builder must supply every input.

    `services.guard_snapshot` builds it for `watch`, `plan`, `status` and `top`, `guard.replay.history` for `simulate`.

    `live` includes the handling of the last listing. `wishes`: overrides, also those that ended recently.

    `sent`: acts that were sent in the last day, and `started`: the starts among them, counted apart. `start_histories`: of
    stopped machines that a policy may start. `intents`: open and recently ended ones. `lags`: how late each provider's
    measurements arrive, for providers that lag. `balances`: of prepaid accounts. `gap_ended_at`: evidence from before it no
    longer counts. `apart`: how long no run took place before this one, if both this run and the one before it came after a gap.
    `gap_began_at`: in the first run after a gap, when the last run before the gap was; None: this run follows no gap. `held`:
    what holds every act. `hooks`: runs of hooks that have not ended, and recent ones. `members`: machines that controllers
    start, as last listed, including ended ones. `asked`: the ledger facts that some condition uses. `agents`: the enrolled
    ones. `deliveries`: confirmed notifications of the current escalations, by topic and subject. `last_run_at`: of the run
    before this one; None: there was none; `ready_since`: since when acts (`name_act`) are due and held by nothing, up to it.
    `raised`: machines whose price the last listing raised more than threefold; the next
    one confirms it.
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
    start_histories: Mapping[ResourceKey, StartHistory]
    started: tuple[Intent, ...]
    raised: frozenset[ResourceKey]
    last_run_at: datetime | None
    ready_since: Mapping[str, datetime]


ActivityQuery = tuple[timedelta, tuple[str, ...], timedelta]
"""What an activity is asked by: the window, the needs, and how long a machine may be warming."""
ACTIVITY_WINDOW = timedelta(minutes=45)
"""Of samples, where no policy with a longer wait concerns a machine."""
ACTIVITY_WINDOW_MIN = timedelta(minutes=10)
SAMPLES_LEAST = 3
"""Of a signal, in a window that is shortened by the provider's lag."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunShared:
    """What the contexts of one run share.

    `overrides`: those that bear on a resource which some override names, in their order; `general_overrides`: those that name
    none, which bear on all others. `doubtful`: the intents whose outcome is not known. `refused`: those that a provider refused
    within REFUSED_FOR. `started`: the starts by schedules.
    `times`: those of all samples.
    """

    policies: PolicySelector
    overrides: Mapping[ResourceKey, tuple[Override, ...]]
    general_overrides: tuple[Override, ...]
    doubtful: tuple[Intent, ...]
    refused: tuple[Intent, ...]
    started: tuple[Intent, ...]
    times: TimesPool

    @classmethod
    def of(cls, rules: GuardConfig, sight: GuardSnapshot) -> RunShared:
        """Sort the overrides and intents of `sight` by what they name."""
        named = [(wish, _list_named_keys(wish)) for wish in sight.wishes]
        return cls(
            policies=PolicySelector(rules.policies),
            overrides={
                key: tuple(wish for wish, keys in named if not keys or key in keys)
                for key in frozenset[ResourceKey]().union(*(keys for _, keys in named))
            },
            general_overrides=tuple(wish for wish, keys in named if not keys),
            doubtful=tuple(one for one in sight.intents if one.state in DOUBTFUL_STATES),
            refused=tuple(one for one in sight.intents if one.state == FAILED and sight.now - one.moved_at < REFUSED_FOR),
            started=tuple(one for one in sight.started if one.rule != PERSON_RULE),
            times=TimesPool(),
        )


@dataclass(slots=True, kw_only=True)
class ResourceContext:
    """The evaluation context of one resource, shared by all policies. `policies`: those that apply to it.

    `inputs`: see `known`. `works`: cached activities, by window and needs; `evidence`: the samples that all of them use, once
    they were requested; `interval`: how often one is due, once it was estimated; `times`: of the samples of all machines of the
    run. `evidence_from`: what was measured before it no longer counts; None: all counts. `own_start`: a schedule, not a person,
    started this run of it.
    """

    live: LiveResource
    life: Incarnation
    owner: str
    protection: Protection
    lease: Override | None
    lease_ended_at: datetime | None
    phase: Override | None
    frozen: Override | None
    approved: frozenset[str]
    answers: frozenset[tuple[str, str]]
    in_doubt: str
    refused: tuple[Intent, ...]
    evidence_from: datetime | None
    times: TimesPool
    policies: tuple[Policy, ...] = ()
    own_start: bool = False
    inputs: FactInputs | None = None
    evidence: tuple[datetime, timedelta, CountedSeries] | None = None
    interval: timedelta | None = None
    works: dict[ActivityQuery, Activity] = field(default_factory=dict)
    group: ResourceGroup | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(
        cls, live: LiveResource, rules: GuardConfig, sight: GuardSnapshot, shared: RunShared | None = None
    ) -> ResourceContext:
        """Build the context of `live` in this run. `shared`: what all contexts of the run share; None: there are no others."""
        seen, now, shared = live.observation, sight.now, shared or RunShared.of(rules, sight)
        life, before, owner = identify_incarnation(seen), sight.protections.get(seen.key), find_owner(seen, rules.owner_from)
        policies = shared.policies.select(seen, owner)
        stated = shared.overrides.get(seen.key, shared.general_overrides)
        own_start = any(is_run_of_start(seen, one) for one in shared.started if one.life.key == seen.key)
        wishes = (*stated, *(() if own_start else _lease_manual_start(seen, life, policies)))
        protection = find_protection(seen, stated, rules.protect, before.at if before else None, now)
        lease, lease_ended_at = find_lease(life, wishes, now), find_lease_end(life, wishes, now)
        ends = [at for at in (lease_ended_at, sight.gap_ended_at) if at is not None]
        doubt = next((i for i in shared.doubtful if i.life.key == seen.key), None)
        return cls(
            live=live,
            life=life,
            owner=owner,
            protection=protection,
            lease=lease,
            lease_ended_at=lease_ended_at,
            phase=find_phase(life, stated, now),
            frozen=find_freeze(stated, seen.key, now),
            approved=list_approved_acts(life, stated, now),
            answers=list_answers(life, stated, now),
            in_doubt=f"its {doubt.act} is {doubt.state}" if doubt else "",
            refused=tuple(one for one in shared.refused if is_same_life(one.life, life)),
            evidence_from=max(ends, default=None),
            times=shared.times,
            policies=policies,
            own_start=own_start,
        )

    @property
    def key(self) -> ResourceKey:
        """Return the key of the resource."""
        return self.live.observation.key

    @property
    def known(self) -> FactInputs:
        """Return its facts that come neither from its listing nor from its activity."""
        if self.inputs is None:
            self.inputs = FactInputs(
                owner=self.owner,
                protection=self.protection,
                lease=self.lease,
                lease_ended_at=self.lease_ended_at,
                group=self.group.key.name if self.group is not None else "",
            )
        return self.inputs

    def build_subject(self, sight: GuardSnapshot) -> CaseSubject:
        """Return what its cases share."""
        known, leads = sight.known.get(self.key), self.group is not None and is_group_head(self.live.observation)
        return CaseSubject(
            live=self.live,
            owner=self.owner,
            protection=self.protection,
            lease=self.lease,
            phase=self.phase,
            frozen=self.frozen,
            polls=known.polls if known else 0,
            in_doubt=self.in_doubt,
            refused=self.refused,
            workers=len(self.group.running) - 1 if self.group is not None and leads else 0,
        )

    def has_protecting_label(self, rules: GuardConfig) -> bool:
        """Return whether its labels protect it now; this is remembered for a day after they disappear."""
        return self.protection.protected and find_label_protection(self.live.observation, rules.protect).protected

    def record_protection(self, rules: GuardConfig, now: datetime) -> ProtectionSighting:
        """Return the record that its labels protect it at `now`."""
        return ProtectionSighting(key=self.key, at=now, how=find_label_protection(self.live.observation, rules.protect).why)

    def get_lag(self, sight: GuardSnapshot) -> timedelta:
        """Return how late its newest sample may be."""
        return sight.lags.get(self.key.provider, timedelta())

    def find_longest_policy(self) -> Policy | None:
        """Return the policy with the longest `hold` that applies to it; None: no policy applies."""
        return max(self.policies, key=lambda p: p.hold, default=None)

    def classify(self, policy: Policy | None, rules: GuardConfig, sight: GuardSnapshot) -> Activity:
        """Return its activity as `policy` requires it.

        If the resource by itself is idle, belongs to a group and is not judged alone, the activity of the group applies.
        """
        own = self.classify_alone(policy, rules, sight)
        if self.group is None or own.state != IDLE or (policy is not None and policy.alone):
            return own
        return apply_group_activity(own, self.group.classify(policy, rules, sight), self.live.observation.gpu_count)

    def classify_alone(self, policy: Policy | None, rules: GuardConfig, sight: GuardSnapshot) -> Activity:
        """Return its own activity, independent of its group; cached for policies with the same window and needs."""
        asks = build_activity_query(policy)
        made = self.works.get(asks)
        if made is None:
            seen = self.live.observation
            if seen.kind != INSTANCE or seen.state != RUNNING:
                made = Activity(reasons=(f"it is {seen.state}",))
            else:
                made = self._classify_once(*asks, rules, sight)
            self.works[asks] = made
        return made

    def find_sample_bounds(self, sight: GuardSnapshot) -> tuple[datetime, datetime] | None:
        """Return when its first and its last sample was taken; None: there is none."""
        return find_sample_bounds(sight.samples.get(self.key, {}))

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
        """Return how often a sample of it is due."""
        if self.interval is None:
            self.interval = spacing_of(sight.samples.get(self.key, {}), rules.interval, self.times)
        return self.interval

    def leave_group(self) -> None:
        """End the ring of a group and its members at the end of a run, so that no collector has to look for it."""
        self.group = None

    def release_evidence(self) -> None:
        """Let go of its samples and activities once all its policies are evaluated: of a large fleet two kB a machine.

        Members of a group keep theirs, which its other members ask for. What is asked for again is computed again.
        """
        if self.group is None:
            self.evidence = self.inputs = None
            self.works = {}

    def _collect_series(self, rules: GuardConfig, sight: GuardSnapshot) -> tuple[datetime, timedelta, CountedSeries]:
        """Return from when on its samples count, how often one is due, and the series that count, for all policies."""
        columns: SampleColumns = sight.samples.get(self.key, {})
        began = [self.live.observation.started_at or self.live.observation.created_at, self.evidence_from]
        since = max([at for at in began if at is not None], default=self.live.first_seen_at)
        interval = self.get_sample_interval(rules, sight)
        return since, interval, select_counted_series(columns, since, sight.now, self.times)


@dataclass(slots=True, kw_only=True)
class ResourceGroup:
    """A group of resource contexts. `running`: the members that run. `works`: cached group activities by query."""

    key: GroupKey
    running: list[ResourceContext] = field(default_factory=list)
    works: dict[ActivityQuery, GroupActivity | None] = field(default_factory=dict)

    def classify(self, policy: Policy | None, rules: GuardConfig, sight: GuardSnapshot) -> GroupActivity | None:
        """Return the activity of the group as `policy` requires it; None: no member runs."""
        asks = build_activity_query(policy)
        if asks not in self.works:
            self.works[asks] = combine_activities(
                self.key, [self._to_member(one, policy, rules, sight) for one in self.running]
            )
        return self.works[asks]

    @staticmethod
    def _to_member(seat: ResourceContext, policy: Policy | None, rules: GuardConfig, sight: GuardSnapshot) -> GroupMember:
        return GroupMember(key=seat.key, name=seat.live.observation.name, work=seat.classify_alone(policy, rules, sight))


def build_contexts(rules: GuardConfig, sight: GuardSnapshot) -> list[ResourceContext]:
    """Build a context for each resource of `sight` and join those of one group."""
    shared, groups = RunShared.of(rules, sight), dict[GroupKey, ResourceGroup]()
    seats = [ResourceContext.of(live, rules, sight, shared) for live in sight.live]
    for seat in seats:
        key = find_group(seat.live.observation, rules.group_from)
        if key is not None:
            seat.group = groups.setdefault(key, ResourceGroup(key=key))
            if counts_for_group(seat.live):
                seat.group.running.append(seat)
    return seats


def _list_named_keys(wish: Override) -> frozenset[ResourceKey]:
    """Return the resources that alone an override bears on; empty: it bears on all. A freeze without a key freezes all acts."""
    if wish.what == FREEZE and wish.key is None:
        return frozenset()
    return frozenset(key for key in (wish.key, wish.life.key if wish.life is not None else None) if key is not None)


def build_activity_query(policy: Policy | None) -> ActivityQuery:
    """Return the parameters of an activity for `policy`: window, needs, and how long a machine may be warming."""
    if policy is None:
        return max(ACTIVITY_WINDOW, ACTIVITY_WINDOW_MIN), (), ACTIVITY_WINDOW
    return _share_query(policy.hold, policy.needs, policy.warmup_max)


@lru_cache(maxsize=1000)
def _share_query(hold: timedelta, needs: tuple[str, ...], warmup_max: timedelta) -> ActivityQuery:
    """Return one query for all machines and policies that ask alike."""
    return max(hold or ACTIVITY_WINDOW, ACTIVITY_WINDOW_MIN), needs, warmup_max


def estimate_interval_of_samples(samples: Sequence[Sample], interval: timedelta) -> timedelta:
    """Return how often a sample is due, as estimated by `signals.estimate_sample_interval`."""
    return spacing_of(build_columns(samples), interval)


def _lease_manual_start(seen: Observation, life: Incarnation, policies: Iterable[Policy]) -> tuple[Override, ...]:
    """Return the lease of a machine started while a schedule wanted it off; no policy acts during the lease."""
    began = seen.started_at
    if began is None or not any(
        policy.schedule and is_started_after_hours(seen, evaluate_schedule(policy.schedule, began)) for policy in policies
    ):
        return ()
    who, why = "the person who started it", "started by hand"
    return (Override(id="", what=LEASE, who=who, why=why, at=began, until=began + MANUAL_START_LEASE, key=seen.key, life=life),)


START_CLOCK_TOLERANCE = timedelta(minutes=1)
"""How far the clock by which a provider states a start may be behind ours."""


def is_run_of_start(seen: Observation, start: Intent) -> bool:
    """Return whether the run that `seen` shows is the one that costguard's `start` began, or may have begun."""
    began, sent_at = seen.started_at, start.sent_at
    if began is None or sent_at is None or (start.state != DONE and is_without_effect(start)):
        return False
    last = start.moved_at if start.state == DONE else max(start.moved_at, sent_at + CONFIRM_WITHIN)
    return sent_at - START_CLOCK_TOLERANCE <= began <= last + START_CLOCK_TOLERANCE


def apply_handling(live: LiveResource, handling: Mapping[ResourceKey, Handling]) -> LiveResource:
    """Return `live` with the handling of its last listing, which the ledger does not store."""
    known = handling.get(live.observation.key)
    if known is None or known == live.observation.handling:
        return live
    return replace(live, observation=replace(live.observation, handling=known))
