"""The survey: everything that one guard run finds, from facts to a plan. Derived anew each time, so a missed run costs nothing.

    facts of the ledger -> states of work -> verdicts -> climbs -> plan, with everything that holds each step back

What was remembered on purpose comes in and goes out: climbs, the breaker, protections that were seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from costguard.budgets.budget import Budget
from costguard.guard.action_intents import CANCELLED, FAILED, OPEN, Intent
from costguard.guard.action_plan import RESTING, Around, Case, cannot_stop, lacking, plan
from costguard.guard.asked import ASKED, learned
from costguard.guard.cap_forecast import Candidate, Foresight, cap_policy, cap_verdicts, foresee_all, reaction_of
from costguard.guard.condition import Truth
from costguard.guard.context import Rules, Sight
from costguard.guard.escalation import climbed, stepped
from costguard.guard.evidence import heard_of
from costguard.guard.facts import OF_BUDGET, facts_of, tightest
from costguard.guard.hook import ended_steps, hooked
from costguard.guard.limits import NO_ROOM, Breaker, breaker, fleet_of, quarantined, room
from costguard.guard.overrides import Wish
from costguard.guard.owning import armed
from costguard.guard.policy import OBSERVE, SCHEDULE_RULE, STOP, Policy
from costguard.guard.policy_evaluation import verdict
from costguard.guard.run import Protection as Sighted
from costguard.guard.schedule import wants_off
from costguard.guard.seat import Seat, after_hours, seats_of
from costguard.guard.verdict import FINDINGS, HOLDS, Climb, Proposal, Verdict
from costguard.guard.work import IDLE, UNKNOWN, Work
from costguard.metering.spending import LiveResource
from costguard.values.incarnation import Incarnation, is_same_life
from costguard.values.resource import INSTANCE, RUNNING, ResourceKey, ScopeKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What was found. `works`: of each resource, as the policy with the longest wait sees it. `cases`: one a verdict."""

    at: datetime
    works: Mapping[ResourceKey, Work]
    cases: tuple[Case, ...]
    proposals: tuple[Proposal, ...]
    climbs: tuple[Climb, ...]
    sighted: tuple[Sighted, ...]
    foresights: tuple[Foresight, ...]
    breaker: Breaker | None
    quarantine: Mapping[ScopeKey, str]
    fleet: int


def survey(rules: Rules, sight: Sight) -> Survey:
    """Everything about `sight` under `rules`. It does nothing."""
    seats = seats_of(rules, sight)
    climbs = {
        (c.policy, c.life.key): c for c in _with_deeds(sight.climbs, (*rules.policies, *cap_policies(rules.budgets)), sight)
    }
    levels = {policy.name: armed(policy, sight.wishes, sight.now) for policy in rules.policies}
    cases = [
        case
        for seat in seats
        for policy in seat.policies
        if (case := _case(seat, policy, rules, sight, climbs=climbs, levels=levels))
    ]
    works = {seat.key: seat.work(seat.longest(), rules, sight) for seat in seats}
    fleet = fleet_of(sight.live, sight.sent)
    foresights = _foresights(rules, sight, seats, works, fleet)
    cases += _cap_cases(foresights, {seat.key: seat for seat in seats}, rules, sight, climbs)
    turned = {seat.key: at for seat in seats if (at := _turned_at(seat, works[seat.key], rules, sight)) is not None}
    mass = breaker(sight.breaker, turned, sight.live, rules.rails, sight.now)
    around = replace(
        around_of(rules, replace(sight, breaker=mass)), room=room(sight.sent, fleet, rules.rails, sight.now), held=sight.held
    )
    return Survey(
        at=sight.now,
        works=works,
        cases=tuple(cases),
        proposals=plan(cases, around),
        climbs=tuple(case.climb for case in cases if case.climb is not None),
        sighted=tuple(seat.sighted(rules, sight.now) for seat in seats if seat.is_marked(rules)),
        foresights=foresights,
        breaker=mass,
        quarantine=around.quarantine,
        fleet=fleet,
    )


def around_of(rules: Rules, sight: Sight) -> Around:
    """What bears on all machines, by the breaker of `sight`; without room for acts, and without what holds a whole run."""
    mass = sight.breaker
    return Around(
        now=sight.now,
        interval=rules.interval,
        room=NO_ROOM,
        rails=rules.rails,
        breaker=f"{len(mass.keys)} turned idle or unknown at once ({mass.shared or 'nothing in common'})" if mass else "",
        quarantine=quarantined(sight.live),
    )


def case_now(live: LiveResource, policy: Policy, rules: Rules, sight: Sight) -> Case:
    """The case of `live`, seen just now, were the condition of `policy` to hold: what bears on it beside its condition."""
    seat = Seat.of(live, rules, sight)
    found = Verdict(policy=policy, life=seat.life, at=sight.now, finding=HOLDS, truth=Truth(value=True), work=Work(reasons=()))
    level = armed(policy, sight.wishes, sight.now)
    return _case_of(seat, found, None, lease=seat.lease, level=level, rules=rules, sight=sight)


def unproven(key: ResourceKey, policy: Policy, rules: Rules, sight: Sight) -> str:
    """Why what `policy` asks of the resource holds no more, or not by evidence that is fresh and whole; "" where it does."""
    seat = next((one for one in seats_of(rules, sight) if one.key == key), None)
    climbs = {(climb.policy, climb.life.key): climb for climb in sight.climbs}
    case = _case(seat, policy, rules, sight, climbs=climbs, levels={policy.name: OBSERVE}) if seat else None
    if case is None:
        return "it is not listed any more"
    found = case.verdict
    if found.finding != HOLDS:
        return "; ".join(found.reasons[:2]) or FINDINGS[found.finding]
    return lacking(found)


def claimed(claims: Sequence[str] | None, live: LiveResource) -> bool:
    """Whether its scope is ours: it is named, or its account or provider is. Without `claims` all that is configured is."""
    if claims is None:
        return True
    scope = live.scope
    return any(claim in (scope.provider, "/".join(scope[:2]), "/".join(scope)) for claim in claims)


def _turned_at(seat: Seat, work: Work, rules: Rules, sight: Sight) -> datetime | None:
    """Since when it is idle or unknown, where it was neither before: what never worked, or was never measured, never turned.

    What stopped being measured turned two samples after the last one could be there: its provider may publish late, and one
    sample has no rhythm that could break off. What a gap of ours hid says nothing.
    """
    if work.state not in (IDLE, UNKNOWN) or seat.live.observation.state != RUNNING:
        return None
    began, heard = seat.live.observation.started_at or seat.live.first_seen_at, heard_of(sight.samples.get(seat.key, {}))
    if heard is None:
        return None
    first, last = heard
    if work.state == IDLE and work.since is not None:
        return work.since if work.since > max(began, first) else None
    due = last + 2 * seat.rhythm(rules, sight) + seat.lag(sight)
    hidden = sight.gap_ended_at is not None and last <= sight.gap_ended_at
    silent = work.state == UNKNOWN and not hidden and first < last and sight.now > due
    return due if silent else None


def _case(
    seat: Seat,
    policy: Policy,
    rules: Rules,
    sight: Sight,
    *,
    climbs: Mapping[tuple[str, ResourceKey], Climb],
    levels: Mapping[str, str],
) -> Case | None:
    """What `policy` finds of a resource that it concerns; None where complete listings lack it. `levels`: see `armed`."""
    live, now = seat.live, sight.now
    seen = live.observation
    if live.absent_at is not None:
        return None
    work, lease, off, asked = seat.work(policy, rules, sight), seat.lease, None, policy.when.names
    if policy.schedule is not None:
        wanted = wants_off(policy.schedule, now)
        off = wanted.since if wanted.off else None
        off = None if after_hours(seen, wanted) else off
    known = seat.known
    if asked & OF_BUDGET or policy.schedule is not None:
        budget = tightest(sight.standings, replace(seen.attribution, owner=seat.owner)) if asked & OF_BUDGET else None
        known = replace(known, budget=budget, scheduled_on=None if policy.schedule is None else off is None)
    known = learned(known, live, sight.asked, now) if asked & ASKED else known
    if "group_state" in asked and seat.group is not None:
        group = seat.group.work(policy, rules, sight)
        known = replace(known, group_state=group.state if group else "")
    facts = facts_of(live, work, known, now, asked, kept=seat.facts)
    climb = climbs.get((policy.name, seen.key))
    ended = [at for at in (seat.lease_ended_at, sight.gap_ended_at) if at is not None and policy.rule != SCHEDULE_RULE]
    found = verdict(policy, seat.life, facts, work, now, climb=climb, not_before=max(ended, default=None), off_since=off)
    going = climbed(climb, found, stopped=seen.state in RESTING, fresh_since=seat.lease_ended_at)
    return _case_of(seat, found, going, lease=lease, level=levels[policy.name], rules=rules, sight=sight)


def _case_of(
    seat: Seat, found: Verdict, climb: Climb | None, *, lease: Wish | None, level: str, rules: Rules, sight: Sight
) -> Case:
    known = sight.known.get(seat.key)
    return Case(
        verdict=found,
        live=seat.live,
        climb=climb,
        level=level,
        owner=seat.owner,
        claimed=claimed(rules.claims, seat.live),
        protection=seat.protection,
        lease=lease,
        phase=seat.phase,
        frozen=seat.frozen,
        approved=seat.approved,
        polls=known.polls if known else 0,
        in_doubt=seat.in_doubt,
        hooks=hooked(climb, sight.hooks),
    )


def foresights_of(rules: Rules, sight: Sight) -> tuple[Foresight, ...]:
    """When each hard budget would act and by how much it could be exceeded, without the rest of a survey."""
    seats = seats_of(rules, sight)
    works = {seat.key: seat.work(seat.longest(), rules, sight) for seat in seats}
    return _foresights(rules, sight, seats, works, fleet_of(sight.live, sight.sent))


def _foresights(
    rules: Rules, sight: Sight, seats: Sequence[Seat], works: Mapping[ResourceKey, Work], fleet: int
) -> tuple[Foresight, ...]:
    candidates = [
        Candidate(
            live=seat.live,
            work=works[seat.key],
            leased=seat.lease is not None,
            protected=seat.protection.protected,
            cannot=cannot_stop(seat.live.observation),
            loses=_loses(seat),
            priority=max((policy.priority for policy in seat.policies), default=0),
        )
        for seat in seats
        if seat.live.observation.kind == INSTANCE and seat.live.absent_at is None
    ]
    took = [one.took for one in sight.reactions if one.act == "stop"]
    reaction = reaction_of(rules.interval, {"stop": took} if took else {})
    return foresee_all(
        sight.standings, candidates, reaction.total, sight.now, fleet=fleet, poll=rules.interval, rails=rules.rails
    )


def _loses(seat: Seat) -> tuple[str, ...]:
    """What its stop would lose that nobody has said yes to."""
    return () if STOP in seat.approved else seat.live.observation.handling.stop_loses


def _cap_cases(
    foresights: Sequence[Foresight],
    seats: Mapping[ResourceKey, Seat],
    rules: Rules,
    sight: Sight,
    climbs: Mapping[tuple[str, ResourceKey], Climb],
) -> list[Case]:
    cases = []
    for victim, found in cap_verdicts(foresights, sight.now, climbs):
        seat, old = seats[victim.live.observation.key], climbs.get((found.policy.name, victim.live.observation.key))
        climb = climbed(old, found, stopped=victim.live.observation.state in RESTING)
        level = armed(found.policy, sight.wishes, sight.now)
        cases.append(_case_of(seat, found, climb, lease=None, level=level, rules=rules, sight=sight))
    return cases


def _with_deeds(climbs: Iterable[Climb], policies: Sequence[Policy], sight: Sight) -> list[Climb]:
    """`climbs` with the steps done that an intent or a hook did.

    A crash between the deed and the record of its step loses nothing.
    """
    by_name = {policy.name: policy for policy in policies}
    found = []
    for climb in climbs:
        policy, done = by_name.get(climb.policy), climb
        if policy is None:
            continue
        for intent in sight.intents:
            mine = intent.policy == climb.policy and is_same_life(intent.life, climb.life) and intent.sends
            if mine and intent.state not in (CANCELLED, FAILED) and intent.created_at >= climb.started_at:
                for number, step in enumerate(policy.then):
                    if step.do == intent.act:
                        done = stepped(done, policy, number, intent.sent_at or intent.moved_at)
        for number, began_at in ended_steps(climb, policy, sight.hooks).items():
            done = stepped(done, policy, number, began_at)
        found.append(done)
    return found


def cap_policies(budgets: Iterable[Budget]) -> tuple[Policy, ...]:
    """The policies that hard budgets are."""
    return tuple(cap_policy(budget) for budget in budgets if budget.hard)


def open_for(intents: Iterable[Intent], life: Incarnation, act: str) -> Intent | None:
    """The open intent for this life and act."""
    return next((i for i in intents if i.state in OPEN and i.act == act and is_same_life(i.life, life)), None)
