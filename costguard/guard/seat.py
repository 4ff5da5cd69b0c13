"""One resource in a guard run, with what bears on it whatever the policy, and its state of work as each policy asks for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from costguard.guard.action_intents import IN_DOUBT
from costguard.guard.activity import judge
from costguard.guard.context import Rules, Sight
from costguard.guard.evidence import Columns, Lines, columns_of, counting
from costguard.guard.evidence import spacing as spacing_of
from costguard.guard.facts import Known
from costguard.guard.grouping import GroupKey, Member, Together, as_member, counts, group_of, together
from costguard.guard.overrides import LEASE, Wish
from costguard.guard.owning import (
    BY_HAND,
    Protection,
    approved,
    frozen,
    lease_ended_at,
    lease_of,
    marked,
    owner_of,
    phase_of,
    protection_of,
)
from costguard.guard.policy import Policy
from costguard.guard.policy_evaluation import Concerned
from costguard.guard.run import Protection as Sighted
from costguard.guard.schedule import Wanted, wants_off
from costguard.guard.work import IDLE, Work
from costguard.metering.observation import Handling, Observation, identify_incarnation
from costguard.metering.spending import LiveResource
from costguard.values.incarnation import Incarnation
from costguard.values.resource import INSTANCE, RUNNING, ResourceKey
from costguard.values.sample import Sample

WINDOW = timedelta(minutes=45)
"""Of samples, where no policy with a longer wait concerns a machine."""
WINDOW_LEAST = timedelta(minutes=10)
Asks = tuple[timedelta, tuple[str, ...], timedelta]


@dataclass(slots=True, kw_only=True)
class Seat:
    """One resource with what bears on it, whatever the policy. `policies`: those that concern it.

    `known`: what is known of it beside its listing, whatever the policy. `facts`: those made already that rest on its listing.
    `works`: already judged, by window and needs; `evidence`: what all of them are judged by, once it was asked for.
    """

    live: LiveResource
    life: Incarnation
    owner: str
    protection: Protection
    lease: Wish | None
    lease_ended_at: datetime | None
    phase: Wish | None
    known: Known
    frozen: Wish | None
    approved: frozenset[str]
    in_doubt: str
    policies: tuple[Policy, ...] = ()
    facts: dict[str, object | None] = field(default_factory=dict)
    evidence: tuple[datetime, timedelta, Lines] | None = None
    works: dict[Asks, Work] = field(default_factory=dict)
    group: Group | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(cls, live: LiveResource, rules: Rules, sight: Sight, among: Concerned | None = None) -> Seat:
        """The seat of `live` in this run. `among`: the policies of `rules`, for who makes several."""
        seen, now = live.observation, sight.now
        life, before, owner = identify_incarnation(seen), sight.protections.get(seen.key), owner_of(seen, rules.owner_from)
        policies = (among or Concerned(rules.policies)).by(seen, owner)
        wishes = (*sight.wishes, *_by_hand(seen, life, policies))
        protection = protection_of(seen, sight.wishes, rules.protect, before.at if before else None, now)
        lease = lease_of(life, wishes, now)
        doubt = next((i for i in sight.intents if i.state in IN_DOUBT and i.life.key == seen.key), None)
        return cls(
            live=live,
            life=life,
            owner=owner,
            protection=protection,
            lease=lease,
            lease_ended_at=lease_ended_at(life, wishes, now),
            phase=phase_of(life, sight.wishes, now),
            known=Known(owner=owner, protection=protection, lease=lease),
            frozen=frozen(sight.wishes, seen.key, now),
            approved=approved(life, sight.wishes, now),
            in_doubt=f"its {doubt.act} is {doubt.state}" if doubt else "",
            policies=policies,
        )

    @property
    def key(self) -> ResourceKey:
        """Of the resource."""
        return self.live.observation.key

    def is_marked(self, rules: Rules) -> bool:
        """Whether its labels protect it now: what is remembered for a day after they vanish."""
        return marked(self.live.observation, rules.protect).protected

    def sighted(self, rules: Rules, now: datetime) -> Sighted:
        """That its labels protect it, to be remembered."""
        return Sighted(key=self.key, at=now, how=marked(self.live.observation, rules.protect).why)

    def lag(self, sight: Sight) -> timedelta:
        """How late its newest sample may be."""
        return sight.lags.get(self.key.provider, timedelta())

    def longest(self) -> Policy | None:
        """Of the policies that concern it, the one that waits longest."""
        return max(self.policies, key=lambda p: p.hold, default=None)

    def work(self, policy: Policy | None, rules: Rules, sight: Sight) -> Work:
        """Its state of work as `policy` asks for it: that of its group, where it idles by itself and is not judged alone."""
        own = self.alone(policy, rules, sight)
        if self.group is None or own.state != IDLE or (policy is not None and policy.alone):
            return own
        return as_member(own, self.group.work(policy, rules, sight), self.live.observation.gpu_count)

    def alone(self, policy: Policy | None, rules: Rules, sight: Sight) -> Work:
        """Its own state of work, whatever its group does, judged once for policies that ask alike."""
        seen = self.live.observation
        if seen.kind != INSTANCE or seen.state != RUNNING:
            return Work(reasons=(f"it is {seen.state}",))
        asks = _asks(policy)
        made = self.works.get(asks)
        if made is None:
            made = self.works[asks] = self._judged(*asks, rules, sight)
        return made

    def _judged(self, window: timedelta, needs: tuple[str, ...], warmup: timedelta, rules: Rules, sight: Sight) -> Work:
        seen = self.live.observation
        since, rhythm, counted = self.evidence = self.evidence or self._evidence(rules, sight)
        return judge(
            seen,
            (),
            now=sight.now,
            since=since,
            poll=rhythm,
            window=window,
            warmup_max=warmup,
            needs=needs,
            phase_until=self.phase.until if self.phase else None,
            lag=self.lag(sight),
            counted=counted,
        )

    def rhythm(self, rules: Rules, sight: Sight) -> timedelta:
        """How often a sample of it is due."""
        return self.evidence[1] if self.evidence else spacing_of(sight.samples.get(self.key, {}), rules.interval)

    def _evidence(self, rules: Rules, sight: Sight) -> tuple[datetime, timedelta, Lines]:
        """From when on its samples count, how often one is due, and those that count: whatever the policy."""
        columns: Columns = sight.samples.get(self.key, {})
        began = [self.live.observation.started_at or self.live.observation.created_at, sight.gap_ended_at, self.lease_ended_at]
        since = max((at for at in began if at is not None), default=self.live.first_seen_at)
        return since, spacing_of(columns, rules.interval), counting(columns, since, sight.now)


@dataclass(slots=True, kw_only=True)
class Group:
    """A group of seats: those of its members that run. `works`: already judged, as of a `Seat`."""

    key: GroupKey
    running: list[Seat] = field(default_factory=list)
    works: dict[Asks, Together | None] = field(default_factory=dict)

    def work(self, policy: Policy | None, rules: Rules, sight: Sight) -> Together | None:
        """What it comes to, as `policy` asks for it; None: no member runs."""
        asks = _asks(policy)
        if asks not in self.works:
            self.works[asks] = together(self.key, [self._member(one, policy, rules, sight) for one in self.running])
        return self.works[asks]

    @staticmethod
    def _member(seat: Seat, policy: Policy | None, rules: Rules, sight: Sight) -> Member:
        return Member(key=seat.key, name=seat.live.observation.name, work=seat.alone(policy, rules, sight))


def seats_of(rules: Rules, sight: Sight) -> list[Seat]:
    """A seat for each resource of `sight`, those of one group put together."""
    among, groups = Concerned(rules.policies), dict[GroupKey, Group]()
    seats = [Seat.of(live, rules, sight, among) for live in sight.live]
    for seat in seats:
        key = group_of(seat.live.observation, rules.group_from)
        if key is not None:
            seat.group, seat.known = groups.setdefault(key, Group(key=key)), replace(seat.known, group=key.name)
            if counts(seat.live):
                seat.group.running.append(seat)
    return seats


def _asks(policy: Policy | None) -> Asks:
    """What `policy` asks of a judgement: window, needs, and how long a machine may be warming."""
    if policy is None:
        return max(WINDOW, WINDOW_LEAST), (), WINDOW
    return max(policy.hold or WINDOW, WINDOW_LEAST), policy.needs, policy.warmup_max


def spacing(samples: Sequence[Sample], interval: timedelta) -> timedelta:
    """How often a sample is due, as `evidence.spacing` says."""
    return spacing_of(columns_of(samples), interval)


def _by_hand(seen: Observation, life: Incarnation, policies: Iterable[Policy]) -> tuple[Wish, ...]:
    """The lease of a machine that somebody started while a schedule wanted it off: for that long no policy acts on it."""
    began = seen.started_at
    if began is None or not any(
        policy.schedule and after_hours(seen, wants_off(policy.schedule, began)) for policy in policies
    ):
        return ()
    who, why = "whoever started it", "started by hand"
    return (Wish(id="", what=LEASE, who=who, why=why, at=began, until=began + BY_HAND, key=seen.key, life=life),)


def after_hours(seen: Observation, wanted: Wanted) -> bool:
    """Whether its run began within the time in which its schedule wants it off: that was on purpose."""
    return wanted.off and wanted.since is not None and seen.started_at is not None and seen.started_at > wanted.since


def apply_handling(live: LiveResource, handling: Mapping[ResourceKey, Handling]) -> LiveResource:
    """`live` with what its last listing said of acts on it, which the ledger does not keep."""
    known = handling.get(live.observation.key)
    if known is None or known == live.observation.handling:
        return live
    return replace(live, observation=replace(live.observation, handling=known))
