"""Inputs of a guard run: configuration, snapshot, results of earlier runs, and a context for each resource.

The activity of a resource is computed once, in its context, and shared by all policies that ask alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cached_property

from costguard.budgets.budget import Budget
from costguard.budgets.budget_status import BudgetStatus
from costguard.guard.action_intents import CONFIRM_WITHIN, DONE, DOUBTFUL_STATES, FAILED, REFUSED_FOR, Intent, is_without_effect
from costguard.guard.activity import classify_activity
from costguard.guard.alerts.alert import NoticeDelivery
from costguard.guard.escalation import Hook, HookRun
from costguard.guard.facts import select_utilization
from costguard.guard.grouping import (
    GroupActivity,
    GroupKey,
    GroupMember,
    LaunchKey,
    apply_group_activity,
    apply_launch_activity,
    combine_activities,
    counts_for_group,
    find_group,
    find_launch,
    is_launched_with,
)
from costguard.guard.limits import Breaker
from costguard.guard.overrides import (
    FREEZE,
    LEASE,
    MANUAL_START_LEASE,
    Override,
    Protection,
    find_freeze,
    find_lease,
    find_lease_end,
    find_owner,
    find_phase,
    find_protection,
    is_group_head,
    list_answers,
    list_approved_acts,
)
from costguard.guard.policy import PASSED, PERSON_RULE, EscalationState, Policy, Rails, ScheduleState, evaluate_schedule
from costguard.guard.policy_evaluation import CostFacts, FactInputs, select_policies
from costguard.guard.run_facts import ConfirmedAct, FirstSighting, ProtectionSighting, Restart, StartHistory
from costguard.guard.signals import (
    ACTIVE,
    HELD,
    IDLE,
    Activity,
    CountedSeries,
    SampleColumns,
    build_columns,
    estimate_sample_interval,
    find_sample_bounds,
    select_counted_series,
)
from costguard.guard.until import EndDate, find_until_override, read_end_date
from costguard.guard.utilization import GpuUsage, measure_share, measure_usage
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

    `services.guard_snapshot` builds it for `watch`, `plan` and `status`; `guard.replay.history` for `simulate`.

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
    `restarts`: machines that ran again soon after an idle stop. `raised`: machines whose price the last listing raised more
    than threefold; the next one confirms it.
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
    restarts: tuple[Restart, ...]
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


@dataclass(kw_only=True, eq=False)
class ResourceContext:
    """The evaluation context of one resource in the run over `sight`, shared by all policies.

    `policies`: those that apply to it. `evidence_from`: what was measured before it no longer counts; None: all counts.
    `own_start`: a schedule, not a person, started this run of it. `until`: the date that somebody recorded for it. `works`: its
    own activities so far, by what was asked; `shares`: its utilisation so far, by name, None where it is not measured.
    `launch`: running machines without a group that may have been launched with it, itself among them.
    """

    rules: GuardConfig = field(repr=False)
    sight: GuardSnapshot = field(repr=False)
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
    policies: tuple[Policy, ...]
    own_start: bool
    until: Override | None = None
    works: dict[ActivityQuery, Activity] = field(default_factory=dict)
    shares: dict[str, float | None] = field(default_factory=dict)
    group: ResourceGroup | None = field(default=None, repr=False)
    launch: Launch | None = field(default=None, repr=False)

    @classmethod
    def of(
        cls, live: LiveResource, rules: GuardConfig, snapshot: GuardSnapshot, overrides: Sequence[Override] | None = None
    ) -> ResourceContext:
        """Build the context of `live` in this run. `overrides`: those that bear on it; None: look among all."""
        observation, now, overrides = live.observation, snapshot.now, snapshot.wishes if overrides is None else overrides
        life, sighting = identify_incarnation(observation), snapshot.protections.get(observation.key)
        owner = find_owner(observation, rules.owner_from)
        policies = select_policies(rules.policies, observation, owner)
        own_start = any(
            one.life.key == observation.key and one.rule != PERSON_RULE and is_run_of_start(observation, one)
            for one in snapshot.started
        )
        until = find_until_override(life, overrides, now)
        all_overrides = (*overrides, *(() if own_start else _lease_manual_start(observation, life, policies, until)))
        lease_ended_at = find_lease_end(life, all_overrides, now)
        intents = [one for one in snapshot.intents if one.life.key == observation.key]
        doubt = next((one for one in intents if one.state in DOUBTFUL_STATES), None)
        return cls(
            rules=rules,
            sight=snapshot,
            live=live,
            life=life,
            owner=owner,
            protection=find_protection(observation, overrides, rules.protect, sighting.at if sighting else None, now),
            lease=find_lease(life, all_overrides, now),
            lease_ended_at=lease_ended_at,
            phase=find_phase(life, overrides, now),
            frozen=find_freeze(overrides, observation.key, now),
            approved=list_approved_acts(life, overrides, now),
            answers=list_answers(life, overrides, now),
            in_doubt=f"its {doubt.act} is {doubt.state}" if doubt else "",
            refused=tuple(
                one
                for one in intents
                if one.state == FAILED and now - one.moved_at < REFUSED_FOR and is_same_life(one.life, life)
            ),
            evidence_from=max((at for at in (lease_ended_at, snapshot.gap_ended_at) if at is not None), default=None),
            policies=policies,
            own_start=own_start,
            until=until,
        )

    @property
    def key(self) -> ResourceKey:
        """Return the key of the resource."""
        return self.live.observation.key

    @property
    def lag(self) -> timedelta:
        """Return how late its newest sample may be."""
        return self.sight.lags.get(self.key.provider, timedelta())

    @property
    def columns(self) -> SampleColumns:
        """Return its samples."""
        return self.sight.samples.get(self.key, {})

    @cached_property
    def sample_interval(self) -> timedelta:
        """Return how often a sample of it is due."""
        return estimate_sample_interval(self.columns, self.rules.interval)

    @cached_property
    def inputs(self) -> FactInputs:
        """Return its facts that come neither from its listing nor from its activity, and that every policy may ask for."""
        return FactInputs(
            owner=self.owner,
            protection=self.protection,
            lease=self.lease,
            lease_ended_at=self.lease_ended_at,
            group=self.group.key.name if self.group is not None else "",
        )

    @property
    def workers(self) -> int:
        """Return how many other machines of the group that it leads run; 0 if it leads none."""
        return len(self.group.running) - 1 if self.group is not None and is_group_head(self.live.observation) else 0

    def find_longest_policy(self) -> Policy | None:
        """Return the policy with the longest `hold` that applies to it; None: no policy applies."""
        return max(self.policies, key=lambda p: p.hold, default=None)

    def find_off_since(self, state: ScheduleState) -> datetime | None:
        """Return since when a schedule in `state` wants it off; None: it wants it on.

        A machine that a person started after the schedule turned off is left on until the schedule's next turn.
        """
        if not state.off:
            return None
        return state.since if self.own_start or not _is_started_after_hours(self.live.observation, state) else None

    def read_end_date(self, policy: Policy) -> EndDate | None:
        """Return when it ends by its until label, as `policy` counts it; None for a policy that has no such condition."""
        if policy.until is None:
            return None
        observation, rules = self.live.observation, self.rules
        return read_end_date(observation, self.until, self.sight.now, policy.until.ahead_max, rules.zone)

    def classify(self, policy: Policy | None) -> Activity:
        """Return its activity as `policy` requires it.

        If the resource by itself is idle, belongs to a group and is not judged alone, the activity of the group applies.
        Without a group that of the machines launched with it does, if it worked before and a process holds its GPU memory.
        """
        own = self.classify_alone(policy)
        if own.state != IDLE or (policy is not None and policy.alone):
            return own
        if self.group is None:
            bounds = find_sample_bounds(self.columns)
            has_worked = own.since is not None and bounds is not None and own.since > bounds[0]
            if own.gpu_memory != HELD or self.launch is None or not has_worked:
                return own
            mates = (mate for mate in self.launch.list_active(policy) if is_launched_with(mate[0], self.live.observation))
            return apply_launch_activity(own, mates, self.sight.now)
        return apply_group_activity(own, self.group.classify(policy), self.live.observation.gpu_count)

    def measure_shares(self, names: Iterable[str]) -> dict[str, float]:
        """Return its utilisation by name (`gpu_util.mean("2h")`), without what is not measured; computed once for all policies.

        A machine that does not run has none.
        """
        observation = self.live.observation
        running = observation.kind == INSTANCE and observation.state == RUNNING
        for name in select_utilization(names) if running else ():
            if name not in self.shares:
                self.shares[name] = measure_share(
                    name,
                    self.columns,
                    since=self._counted[0],
                    now=self.sight.now,
                    interval=self.sample_interval,
                    lag=self.lag,
                    gpus=float(observation.gpu_count),
                )
        return {name: share for name, share in self.shares.items() if share is not None}

    def measure_usage(self) -> GpuUsage | None:
        """Return how far its GPUs were used in the last two hours; None: it does not run, or that is not known."""
        observation = self.live.observation
        if observation.kind != INSTANCE or observation.state != RUNNING:
            return None
        since, now = self._counted[0], self.sight.now
        return measure_usage(self.columns, since=since, now=now, interval=self.sample_interval, lag=self.lag)

    def classify_alone(self, policy: Policy | None) -> Activity:
        """Return its own activity, independent of its group; computed once for policies with the same window and needs."""
        query, observation = build_activity_query(policy), self.live.observation
        if query not in self.works:
            running = observation.kind == INSTANCE and observation.state == RUNNING
            self.works[query] = self._classify(*query) if running else Activity(reasons=(f"it is {observation.state}",))
        return self.works[query]

    def _classify(self, window: timedelta, needs: tuple[str, ...], warmup: timedelta) -> Activity:
        least = min(window, max(ACTIVITY_WINDOW_MIN, SAMPLES_LEAST * self.sample_interval))
        since, counted = self._counted
        return classify_activity(
            self.live.observation,
            (),
            now=self.sight.now,
            since=since,
            poll=self.sample_interval,
            window=max(window - self.lag, least),  # what was idle for `window` shows only `window - lag` of it yet
            warmup_max=warmup,
            needs=needs,
            phase_until=self.phase.until if self.phase else None,
            lag=self.lag,
            counted=counted,
        )

    @cached_property
    def _counted(self) -> tuple[datetime, CountedSeries]:
        """Return from when on its samples count, and the series that count."""
        began = [self.live.observation.started_at or self.live.observation.created_at, self.evidence_from]
        since = max([at for at in began if at is not None], default=self.live.first_seen_at)
        return since, select_counted_series(self.columns, since, self.sight.now)


@dataclass(slots=True, kw_only=True)
class ResourceGroup:
    """A group of resource contexts. `running`: the members that run. `works`: cached group activities by query."""

    key: GroupKey
    running: list[ResourceContext] = field(default_factory=list)
    works: dict[ActivityQuery, GroupActivity | None] = field(default_factory=dict)

    def classify(self, policy: Policy | None) -> GroupActivity | None:
        """Return the activity of the group as `policy` requires it; None: no member runs."""
        query = build_activity_query(policy)
        if query not in self.works:
            members = [(one, one.classify_alone(policy)) for one in self.running]
            self.works[query] = combine_activities(
                self.key, [GroupMember(key=one.key, name=one.live.observation.name, work=work) for one, work in members]
            )
        return self.works[query]


@dataclass(slots=True, kw_only=True)
class Launch:
    """Running machines that may have been launched together. `active`: those that are active by themselves, by query."""

    running: list[ResourceContext] = field(default_factory=list)
    active: dict[ActivityQuery, list[tuple[Observation, Activity]]] = field(default_factory=dict)

    def list_active(self, policy: Policy | None) -> list[tuple[Observation, Activity]]:
        """Return the machines that are active as `policy` requires it, each with its activity."""
        query = build_activity_query(policy)
        if query not in self.active:
            works = [(one.live.observation, one.classify_alone(policy)) for one in self.running]
            self.active[query] = [(observation, work) for observation, work in works if work.state == ACTIVE]
        return self.active[query]


def build_contexts(rules: GuardConfig, snapshot: GuardSnapshot) -> list[ResourceContext]:
    """Build a context for each resource of `snapshot` and join those of one group."""
    by_key, groups = _index_overrides(snapshot.wishes), dict[GroupKey, ResourceGroup]()
    launches = dict[LaunchKey, Launch]()
    contexts = []
    for live in snapshot.live:
        numbers = sorted({*by_key[None], *by_key.get(live.observation.key, ())})
        context = ResourceContext.of(live, rules, snapshot, [snapshot.wishes[n] for n in numbers])
        key = find_group(live.observation, rules.group_from)
        if key is not None:
            context.group = groups.setdefault(key, ResourceGroup(key=key))
            if counts_for_group(live):
                context.group.running.append(context)
        elif rules.group_from and counts_for_group(live) and (launch := find_launch(live.observation, context.owner)):
            context.launch = launches.setdefault(launch, Launch())
            context.launch.running.append(context)
        contexts.append(context)
    return contexts


def _index_overrides(overrides: Sequence[Override]) -> dict[ResourceKey | None, list[int]]:
    """Return the numbers of the overrides that name a resource, by its key; None: of those that bear on all resources.

    A freeze without a key freezes all acts.
    """
    by_key: dict[ResourceKey | None, list[int]] = {None: []}
    for number, override in enumerate(overrides):
        keys = {override.key, override.life.key if override.life is not None else None} - {None}
        for key in {None} if override.what == FREEZE and override.key is None else keys or {None}:
            by_key.setdefault(key, []).append(number)
    return by_key


def build_activity_query(policy: Policy | None) -> ActivityQuery:
    """Return the parameters of an activity for `policy`: window, needs, and how long a machine may be warming."""
    if policy is None:
        return max(ACTIVITY_WINDOW, ACTIVITY_WINDOW_MIN), (), ACTIVITY_WINDOW
    return max(policy.hold or ACTIVITY_WINDOW, ACTIVITY_WINDOW_MIN), policy.needs, policy.warmup_max


def estimate_interval_of_samples(samples: Sequence[Sample], interval: timedelta) -> timedelta:
    """Return how often a sample is due, as estimated by `signals.estimate_sample_interval`."""
    return estimate_sample_interval(build_columns(samples), interval)


def _is_started_after_hours(observation: Observation, state: ScheduleState) -> bool:
    """Return whether its run began within an off period (`state`) of its schedule, so the start was deliberate."""
    return state.off and state.since is not None and observation.started_at is not None and observation.started_at > state.since


def _lease_manual_start(
    observation: Observation, life: Incarnation, policies: Iterable[Policy], end: Override | None
) -> tuple[Override, ...]:
    """Return the lease of a machine started while a schedule wanted it off, or after its date; no policy acts during it."""
    began = observation.started_at
    if began is None or not any(
        (policy.schedule and _is_started_after_hours(observation, evaluate_schedule(policy.schedule, began)))
        or (policy.until and read_end_date(observation, end, began, policy.until.ahead_max).state == PASSED)
        for policy in policies
    ):
        return ()
    who, why, until = "the person who started it", "started by hand", began + MANUAL_START_LEASE
    return (Override(id="", what=LEASE, who=who, why=why, at=began, until=until, key=observation.key, life=life),)


START_CLOCK_TOLERANCE = timedelta(minutes=1)
"""How far the clock by which a provider states a start may be behind ours."""


def is_run_of_start(observation: Observation, start: Intent) -> bool:
    """Return whether the run that `observation` shows is the one that costguard's `start` began, or may have begun."""
    began, sent_at = observation.started_at, start.sent_at
    if began is None or sent_at is None or (start.state != DONE and is_without_effect(start)):
        return False
    last = start.moved_at if start.state == DONE else max(start.moved_at, sent_at + CONFIRM_WITHIN)
    return sent_at - START_CLOCK_TOLERANCE <= began <= last + START_CLOCK_TOLERANCE


def apply_handling(live: LiveResource, handling: Mapping[ResourceKey, Handling]) -> LiveResource:
    """Return `live` with the handling of its last listing, which the ledger does not store."""
    last_handling = handling.get(live.observation.key)
    if last_handling is None or last_handling == live.observation.handling:
        return live
    return replace(live, observation=replace(live.observation, handling=last_handling))
