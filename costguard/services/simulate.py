"""Simulate: replay policies over what the ledger recorded, one resource after the other, and then all together under the rails.

    what was recorded -> each resource replayed without rails -> the rails over all of it -> stops, and what each saves

It asks no cloud and writes nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from costguard.errors import InputError
from costguard.guard.asked import RUNWAY
from costguard.guard.context import GuardConfig
from costguard.guard.facts import BUDGET_FACTS
from costguard.guard.grouping import GroupKey, find_group
from costguard.guard.owning import find_armed_level
from costguard.guard.policy import HOOK, TERMINATE
from costguard.guard.replay.backdrop import ReplayedResource, ReplaySetup
from costguard.guard.replay.checkpoints import GROWING_FACTS, INTERVALS_BETWEEN_LOOKS
from costguard.guard.replay.engine import ResourceReplay
from costguard.guard.replay.history import ScopeListings, find_gaps, rebuild_listing
from costguard.guard.replay.letting import LimitedAct, apply_limits
from costguard.guard.replay.replayed import HeldAct, ReplayResult
from costguard.guard.replay.simulation import (
    PolicySimulation,
    SimulatedHold,
    SimulatedStop,
    Simulation,
    build_blind_time,
    build_simulated_stop,
)
from costguard.metering.billing import BillingRule
from costguard.metering.inventory import COMPLETE
from costguard.metering.observation import Handling
from costguard.metering.spending import LiveResource, PollStretch
from costguard.services.history import Records
from costguard.values.period import Period
from costguard.values.resource import ResourceKey, ScopeKey

COVERAGE_PAUSE = timedelta(minutes=5)
"""A longer pause between two polls breaks the coverage of a scope, and so is recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationFacts:
    """What is known beside the ledger: how late each provider's measures come, what acts it has, and how it bills."""

    lags: Mapping[str, timedelta]
    handling: Mapping[str, Handling]
    billing: Mapping[str, BillingRule]


def simulate_policies(
    records: Records, rules: GuardConfig, period: Period, at: datetime, known: SimulationFacts, *, every_step: bool = False
) -> Simulation:
    """What the policies of `rules` would have come to in `period`. `at`: now. `every_step`: look at every interval."""
    stretches, wishes = records.load_stretches(), tuple(records.load_overrides())
    back = ReplaySetup(
        rules=rules,
        period=period,
        origin=_find_origin(stretches, period),
        wishes=wishes,
        gaps=find_gaps(
            (one for of in stretches.values() for one in of), max(COVERAGE_PAUSE, rules.rails.gap_polls * rules.interval)
        ),
        lags=known.lags,
        handling=known.handling,
        billing=known.billing,
        every_step=every_step,
    )
    lookouts = {scope: ScopeListings(stretches=tuple(of)) for scope, of in stretches.items()}
    scenes, found = dict[ResourceKey, ReplayedResource](), dict[ResourceKey, ReplayResult]()
    hourly: list[datetime] = []
    for key in records.load_resources(period):
        past = records.load_history(key, period, rules.interval)
        hourly += [past.hourly_until] if past.hourly_until and past.hourly_until > period.start else []
        scene = ReplayedResource(
            past=past, lookout=lookouts.get(past.scope, ScopeListings()), backdrop=back, wishes=back.select_overrides(past)
        )
        found[key] = ResourceReplay(scene=scene).run()
        scenes[key] = replace(scene, past=replace(past, samples={}))
    lets = apply_limits(
        [one for of in found.values() for one in of.wanted],
        {key: of.turned for key, of in found.items() if of.turned},
        lambda when: _list_fleet(scenes.values(), when),
        lambda key, when: scenes[key].lookout.count_listings(scenes[key].past.first_seen_at, when),
        back,
    )
    return Simulation(
        period=period,
        at=at,
        interval=rules.interval,
        resources=len(scenes),
        policies=_summarize_policies(back, lets, found, scenes, at),
        hourly_until=max(hourly, default=None),
        not_replayed=(*_list_not_replayed(rules), *_list_ungrouped(rules, scenes.values())),
    )


def _find_origin(stretches: Mapping[ScopeKey, Sequence[PollStretch]], period: Period) -> datetime:
    """The first listing that a guard run followed: its runs are taken to follow it every interval."""
    every = [one for of in stretches.values() for one in of if one.outcome == COMPLETE]
    within = [one.start for one in every if one.end >= period.start and one.start < period.end]
    if not within:
        told = "no scope was ever listed completely"
        if every:
            told = f"it holds {min(one.start for one in every):%Y-%m-%d} to {max(one.end for one in every):%Y-%m-%d}"
        raise InputError("the ledger holds nothing of this period", field="--since", hint=f"{told}; state another period")
    return min(within)


def _list_fleet(scenes: Iterable[ReplayedResource], when: datetime) -> list[LiveResource]:
    return [one for scene in scenes if (one := rebuild_listing(scene.past, scene.lookout, when)) is not None]


def _summarize_policies(
    back: ReplaySetup,
    lets: Sequence[LimitedAct],
    found: Mapping[ResourceKey, ReplayResult],
    scenes: Mapping[ResourceKey, ReplayedResource],
    at: datetime,
) -> tuple[PolicySimulation, ...]:
    stops, held = defaultdict[str, list[SimulatedStop]](list), defaultdict[str, list[SimulatedHold]](list)
    for one in lets:
        name, scene = one.wanted.proposal.verdict.policy.name, scenes[one.wanted.case.live.observation.key]
        if one.at is None:
            held[name].append(_to_never_sent(one))
        else:
            rests = one.wanted.proposal.step.do != TERMINATE
            rest = scene.list_rest_spans(one.wanted.case.live.observation, one.at) if rests else ()
            stops[name].append(build_simulated_stop(one, scene.past.spans, rest))
    for of in found.values():
        for back_ in of.held:
            held[back_.proposal.verdict.policy.name].append(_to_held(back_))
    return tuple(
        PolicySimulation(
            name=policy.name,
            level=find_armed_level(policy, back.wishes, at),
            stops=tuple(stops[policy.name]),
            held=tuple(sorted(held[policy.name], key=lambda one: (one.since, one.life.key))),
            notices=sum(of.notices.get(policy.name, 0) for of in found.values()),
            questions=sum(of.questions.get(policy.name, 0) for of in found.values()),
            blind=build_blind_time(_sum_blind_time(policy.name, found)),
        )
        for policy in back.rules.policies
    )


def _to_never_sent(one: LimitedAct) -> SimulatedHold:
    """What the rails never let go."""
    return _to_held(
        HeldAct(
            case=one.wanted.case,
            proposal=one.wanted.proposal,
            since=one.wanted.at,
            until=one.wanted.until,
            reasons=one.held,
        ),
        rails=True,
    )


def _to_held(one: HeldAct, *, rails: bool = False) -> SimulatedHold:
    verdict, seen = one.proposal.verdict, one.case.live.observation
    return SimulatedHold(
        life=verdict.life,
        name=seen.name,
        owner=one.case.owner,
        policy=verdict.policy.name,
        act=one.proposal.step.do,
        since=one.since,
        until=one.until,
        reasons=one.reasons,
        rails=rails,
    )


def _sum_blind_time(policy: str, found: Mapping[ResourceKey, ReplayResult]) -> dict[str, timedelta]:
    lengths: dict[str, timedelta] = defaultdict(timedelta)
    for of in found.values():
        for (name, reason), length in of.blind.items():
            if name == policy:
                lengths[reason] += length
    return lengths


def _list_not_replayed(rules: GuardConfig) -> Iterator[str]:
    """What history does not hold, as far as these settings ask for it."""
    hard = [budget.name for budget in rules.budgets if budget.hard]
    if hard:
        yield f"what hard budgets would have stopped ({', '.join(hard)}): standings of the past are not recorded"
    for policy in rules.policies:
        lacking = sorted(policy.when.names & (BUDGET_FACTS | {RUNWAY}))
        if lacking:
            yield f"{policy.name} asks for {', '.join(lacking)}, which is not recorded: unknown all through, and never true"
        if policy.when.names & GROWING_FACTS or policy.schedule:
            yield f"{policy.name} asks for what time alone changes: it is looked at every {INTERVALS_BETWEEN_LOOKS} intervals, and halved between"
        if any(step.do == HOOK for step in policy.then):
            yield f"the hooks of {policy.name}: each is taken to end well at once"
    yield "what an act would lose, and who would bring a machine back: an act that its provider has is taken to be possible"


def _list_ungrouped(rules: GuardConfig, scenes: Iterable[ReplayedResource]) -> Iterator[str]:
    """Each resource is replayed by itself, so where machines work in groups more is stopped than would have been."""
    members = defaultdict[GroupKey, set[ResourceKey]](set)
    for scene in scenes:
        for one in scene.past.said:
            group = find_group(one.seen, rules.group_from) if one.seen is not None else None
            if group is not None:
                members[group].add(scene.past.key)
    groups = sum(len(of) > 1 for of in members.values())
    if groups and not all(policy.alone for policy in rules.policies):
        many = "1 group" if groups == 1 else f"{groups} groups"
        yield f"{many} of machines: each is taken to be alone, so one that waited for others may be among the stops"
