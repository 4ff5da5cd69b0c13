"""Evaluate one guard run: from a snapshot of the ledger to a plan of actions. Pure: nothing is sent or stored here.

    snapshot -> activity per resource -> verdict per policy -> escalation state -> action plan with the reasons that hold steps

All is computed anew in each run, so a missed run loses nothing. Only the escalation states, the breaker and the sighted
protections are carried from one run to the next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from costguard.budgets.budget import Budget
from costguard.guard.action_plan import (
    RESTING_STATES,
    PolicyCase,
    RunConstraints,
    build_action_plan,
    explain_thin_evidence,
    explain_unstoppable,
)
from costguard.guard.announcements import apply_deliveries, end_lost_escalations, mark_executed_steps, update_announcements
from costguard.guard.cap_acceptance import find_accepted_caps, find_undoubted_caps
from costguard.guard.cap_forecast import (
    CapCandidate,
    CapForecast,
    build_cap_policies,
    build_cap_policy,
    estimate_reaction,
    forecast_caps,
    list_cap_verdicts,
)
from costguard.guard.context import GuardConfig, GuardSnapshot, ResourceContext, build_contexts
from costguard.guard.escalation import NO_HOOKS, advance_escalation, summarize_hook_runs
from costguard.guard.limits import NO_HEADROOM, Breaker, compute_rooms, count_fleet, find_quarantined_scopes, update_breaker
from costguard.guard.overrides import (
    ArmedLevel,
    find_armed_level,
    find_asking_policy,
    find_breaker_close,
    find_label_protection,
    name_question,
)
from costguard.guard.policy import (
    DOES_NOT,
    FINDINGS,
    HOLDS,
    IDLE_RULE,
    LIMIT_RULE,
    NOTIFY,
    OBSERVE,
    SCHEDULE_RULE,
    STOP,
    ConditionResult,
    EscalationState,
    Policy,
    Proposal,
    Verdict,
    evaluate_schedule,
    reaches_level,
)
from costguard.guard.policy_evaluation import (
    BUDGET_FACTS,
    LOOKED_UP_FACTS,
    FactInputs,
    add_cost_facts,
    build_facts,
    evaluate_policy,
    find_tightest_budget,
)
from costguard.guard.reach import is_explicit
from costguard.guard.run_facts import ProtectionSighting as Sighted
from costguard.guard.scheduled_starts import ScheduledStart, list_scheduled_starts
from costguard.guard.signals import IDLE, UNKNOWN, Activity, find_sample_bounds
from costguard.guard.timed_stops import TIMED_STOP, advance_timed_stop, list_timed_verdicts
from costguard.metering.spending import LiveResource
from costguard.values.money import Money
from costguard.values.resource import INSTANCE, RUNNING, Incarnation, ResourceKey, ScopeKey

NO_ADMIN_ROUTE = (
    "no route of [notify] takes every warning on a channel that reaches a person, so nothing beyond notify is armed: "
    "add a [[notify.route]] without match.owners and match.topics"
)


ABSENT_FOR = timedelta(seconds=60)
"""How long complete listings lack a machine, at least, before its absence ends what a policy began (H01)."""
CAP_POLICY = build_cap_policy(Budget(name="any", cap=Money(nano=1), hard=True, zone=UTC))
"""Stands for the policy of every hard budget: none names machines, so a machine of a shared account is claimed by none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardEvaluation:
    """Result of one guard run.

    `works`: activity of each resource, over the window of its policy with the longest wait. `cases`: one per verdict.
    `climbs`, `sighted`, `breaker` (None: closed): to be stored for the next run. `fleet`: machines that limits take shares of.
    `starts`: of machines that a schedule stopped. `accepted_caps`: policies of hard caps with limits of their own;
    `doubted_caps`: accepted ones that have none while a price is in doubt. `plan_hash`: what a person accepts the plan by; ""
    until it is known.
    """

    at: datetime
    works: Mapping[ResourceKey, Activity]
    cases: tuple[PolicyCase, ...]
    proposals: tuple[Proposal, ...]
    climbs: tuple[EscalationState, ...]
    sighted: tuple[Sighted, ...]
    foresights: tuple[CapForecast, ...]
    breaker: Breaker | None
    quarantine: Mapping[ScopeKey, str]
    fleet: int
    starts: tuple[ScheduledStart, ...] = ()
    accepted_caps: frozenset[str] = frozenset()
    doubted_caps: frozenset[str] = frozenset()
    plan_hash: str = ""


def evaluate_snapshot(rules: GuardConfig, sight: GuardSnapshot) -> GuardEvaluation:
    """Evaluate all policies and hard budgets of `rules` for every resource in `sight`, and plan the actions. Sends nothing."""
    seats = build_contexts(rules, sight)
    climbs = {(c.policy, c.life.key): c for c in mark_executed_steps(rules, sight)}
    levels = {policy.name: limit_armed_level(policy, rules, sight) for policy in rules.policies}
    cases, works = list[PolicyCase](), dict[ResourceKey, Activity]()
    for seat in seats:
        cases += _evaluate_cases(seat, seat.policies, levels, climbs)
        works[seat.key] = seat.classify(seat.find_longest_policy())
    fleet = count_fleet(sight.live, sight.sent)
    known_caps = find_accepted_caps(rules.budgets, sight.wishes, sight.now)
    accepted_caps = find_undoubted_caps(rules.budgets, known_caps, sight.live, sight.raised)
    foresights = _forecast_caps(rules, sight, seats, works, accepted_caps)
    cases += _build_cap_cases(foresights, seats, rules, sight, climbs)
    for seat, wish, verdict in list_timed_verdicts(seats, works, rules, sight):
        old = apply_deliveries(climbs.get((TIMED_STOP.name, seat.key)), seat.owner, rules, sight)
        climb = advance_timed_stop(old, wish, verdict, routed=rules.admin_route)
        cases.append(_build_case(seat, verdict, climb, limit_armed_level(verdict.policy, rules, sight)))
    mass = update_breaker(
        sight.breaker,
        _find_turns(seats, works),
        sight.live,
        rules.rails,
        sight.now,
        reset_at=find_breaker_close(sight.wishes, sight.now),
    )
    for n, case in enumerate(cases):
        if question := _explain_question(case, mass, rules, sight.now):
            cases[n] = replace(case, asks=question)
    around = replace(
        build_constraints(rules, replace(sight, breaker=mass)),
        rooms=compute_rooms(sight.sent, fleet, rules.rails, sight.now),
        accepted_caps=accepted_caps,
        fleet=fleet,
        sent=sight.sent,
        held=sight.held,
    )
    proposals = build_action_plan(cases, around)
    update_announcements(cases, proposals, sight.now)
    end_lost_escalations(cases, sight.intents)
    protected = [seat for seat in seats if seat.protection.protected]
    marks = [(seat.key, find_label_protection(seat.live.observation, rules.protect)) for seat in protected]
    return GuardEvaluation(
        at=sight.now,
        works=works,
        cases=tuple(cases),
        proposals=proposals,
        climbs=tuple(case.climb for case in cases if case.climb is not None),
        sighted=tuple(Sighted(key=key, at=sight.now, how=mark.why) for key, mark in marks if mark.protected),
        foresights=foresights,
        breaker=mass,
        quarantine=around.quarantine,
        fleet=fleet,
        starts=list_scheduled_starts(cases, sight, around, rules.policies),
        accepted_caps=accepted_caps,
        doubted_caps=known_caps - accepted_caps,
    )


def limit_armed_level(policy: Policy, rules: GuardConfig, sight: GuardSnapshot) -> ArmedLevel:
    """Return how far `policy` may go: as it is armed, but only notify if no admin route exists.

    Without an admin route some owner's notification would reach nobody; who planned a stop by hand was told there and then.
    """
    armed = find_armed_level(policy, sight.wishes, sight.now)
    if rules.admin_route or policy.rule == TIMED_STOP.rule or not reaches_level(armed.level, STOP):
        return armed
    return ArmedLevel(NOTIFY, NO_ADMIN_ROUTE)


def build_constraints(rules: GuardConfig, sight: GuardSnapshot) -> RunConstraints:
    """Build the constraints that all machines share; headroom is zero and holds of the whole run are left to the caller."""
    return RunConstraints(
        now=sight.now,
        interval=rules.interval,
        room=NO_HEADROOM,
        rails=rules.rails,
        breaker=sight.breaker,
        quarantine=find_quarantined_scopes(sight.live),
    )


def build_current_case(live: LiveResource, policy: Policy, rules: GuardConfig, sight: GuardSnapshot) -> PolicyCase:
    """Build the case of `live` as if the condition of `policy` held now, to see what else would hold its action back."""
    seat = ResourceContext.of(live, rules, sight)
    found = Verdict(
        policy=policy, life=seat.life, at=sight.now, finding=HOLDS, truth=ConditionResult(value=True), work=Activity(reasons=())
    )
    return _build_case(seat, found, None, limit_armed_level(policy, rules, sight))


def explain_unproven(key: ResourceKey, policy: Policy, rules: GuardConfig, sight: GuardSnapshot) -> str:
    """Explain why `policy` no longer holds for the resource, or only on stale or incomplete samples; "" if it holds."""
    seat = next((one for one in build_contexts(rules, sight) if one.key == key), None)
    climbs = {(climb.policy, climb.life.key): climb for climb in sight.climbs}
    cases = _evaluate_cases(seat, [policy], {policy.name: ArmedLevel(OBSERVE)}, climbs) if seat else []
    if not cases:
        return "it is no longer listed"
    found = cases[0].verdict
    if found.finding != HOLDS:
        return "; ".join(found.reasons[:2]) or FINDINGS[found.finding]
    return explain_thin_evidence(found)


def is_claimed(rules: GuardConfig, live: LiveResource, policy: Policy) -> bool:
    """Return whether `policy` may act on `live` if it has no owner.

    A claim is "provider", "provider/account" or a full scope. Without claims in the settings, accounts of providers that name
    owners are ours. On other providers (RunPod, Vast, Lambda) people share accounts, and the owner of a machine is unknown:
    there a policy must name the machine, its account, its labels or its owner.
    """
    if rules.claims is None:
        return live.scope.provider not in rules.ownerless or is_explicit(policy.target)
    return any(claim in (live.scope.provider, "/".join(live.scope[:2]), "/".join(live.scope)) for claim in rules.claims)


def _explain_question(case: PolicyCase, mass: Breaker | None, rules: GuardConfig, now: datetime) -> str:
    """Explain why a stop of this machine needs an approval although its provider could do it; "" for none."""
    verdict = case.verdict
    if verdict.policy.rule != IDLE_RULE or (mass is None and not verdict.short):
        return ""
    if mass is not None and mass.holds(verdict.life.key) and now - mass.opened_at >= rules.rails.breaker_asks:
        return "many machines turned idle or unknown at once, which may be an error of measurement"
    if verdict.short:
        return f"the confidence is {verdict.work.confidence:g}, which is too low for {verdict.policy.name} to act by itself"
    return ""


def _find_turns(seats: Sequence[ResourceContext], works: Mapping[ResourceKey, Activity]) -> dict[ResourceKey, datetime]:
    """Return when each machine turned idle or unknown, for the breaker. One member stands for a group whose job ended.

    A cluster or job array ends as a whole, which is no sign of an error. If one of its members is not measured, the members
    count separately.
    """
    found, groups = dict[ResourceKey, datetime](), set[str]()
    for seat in seats:
        at = _find_turn(seat, works[seat.key])
        if at is None:
            continue
        if seat.group is not None and works[seat.key].state == IDLE:
            name = f"{seat.group.key}"
            if name in groups:
                continue
            groups.add(name)
        found[seat.key] = at
    return found


def _find_turn(seat: ResourceContext, work: Activity) -> datetime | None:
    """Return when the machine turned idle or unknown, for the breaker; None if it did not turn.

    A machine that was idle or unmeasured from its start did not turn. One whose samples stopped turned two sample intervals
    plus the provider's lag after the last sample; with a single sample no interval is known. Samples that are missing because
    costguard itself did not run do not count.
    """
    if work.state not in (IDLE, UNKNOWN) or seat.live.observation.state != RUNNING:
        return None
    began, sight = seat.live.observation.started_at or seat.live.first_seen_at, seat.sight
    heard = find_sample_bounds(seat.columns)
    if heard is None:
        return None
    first, last = heard
    if work.state == IDLE and work.since is not None:
        return work.since if work.since > max(began, first) else None
    due = last + 2 * seat.sample_interval + seat.lag
    hidden = sight.gap_ended_at is not None and last <= sight.gap_ended_at
    silent = work.state == UNKNOWN and not hidden and first < last and work.get_known_until(sight.now) > due
    return due if silent else None


def _evaluate_cases(
    seat: ResourceContext,
    policies: Sequence[Policy],
    levels: Mapping[str, ArmedLevel],
    climbs: Mapping[tuple[str, ResourceKey], EscalationState],
) -> list[PolicyCase]:
    """Evaluate `policies`, armed as in `levels`, for one resource; empty if two complete listings lack it.

    One that lacks it ends no escalation.
    """
    absent_at = seat.live.absent_at
    if absent_at is not None and seat.sight.now - absent_at >= max(seat.rules.interval, ABSENT_FOR):
        return []
    return [_evaluate_case(seat, policy, levels[policy.name], climbs.get((policy.name, seat.key))) for policy in policies]


def _evaluate_case(seat: ResourceContext, policy: Policy, armed: ArmedLevel, stored: EscalationState | None) -> PolicyCase:
    """Evaluate `policy`, armed so far, for one resource. `stored`: its escalation as of the last run; None: none."""
    rules, sight, seen = seat.rules, seat.sight, seat.live.observation
    work, off = seat.classify(policy), None
    known = _collect_inputs(seat, policy)
    if policy.schedule is not None:
        off = seat.find_off_since(evaluate_schedule(policy.schedule, sight.now))
        known = replace(known, scheduled_on=off is None)
    climb = apply_deliveries(stored, seat.owner, rules, sight)
    found = evaluate_policy(
        policy,
        seat.life,
        build_facts(seat.live, work, known, sight.now, policy.when.names),
        work,
        sight.now,
        climb=climb,
        not_before=None if policy.rule in (SCHEDULE_RULE, LIMIT_RULE) else seat.evidence_from,
        off_since=off,
    )
    going = advance_escalation(climb, found, stopped=seen.state in RESTING_STATES, fresh_since=seat.lease_ended_at)
    return _build_case(seat, found, going, armed)


def _collect_inputs(seat: ResourceContext, policy: Policy) -> FactInputs:
    """Return what the facts of `policy` need besides the listing and the activity."""
    sight, asked, known = seat.sight, policy.when.names, seat.inputs
    if not BUDGET_FACTS.isdisjoint(asked):
        attribution = replace(seat.live.observation.attribution, owner=seat.owner)
        known = replace(known, budget=find_tightest_budget(sight.standings, attribution))
    if not LOOKED_UP_FACTS.isdisjoint(asked):
        known = add_cost_facts(known, seat.live, sight.asked, sight.now)
    if "group_state" in asked and seat.group is not None:
        group = seat.group.classify(policy)
        known = replace(known, group_state=group.state if group else "")
    return known


def _build_case(seat: ResourceContext, found: Verdict, climb: EscalationState | None, armed: ArmedLevel) -> PolicyCase:
    sighting = seat.sight.known.get(seat.key)
    return PolicyCase(
        verdict=found,
        live=seat.live,
        owner=seat.owner,
        protection=seat.protection,
        lease=seat.lease,
        phase=seat.phase,
        frozen=seat.frozen,
        polls=sighting.polls if sighting else 0,
        in_doubt=seat.in_doubt,
        refused=seat.refused,
        workers=seat.workers,
        climb=climb,
        level=armed.level,
        limited=armed.explain(),
        claimed=is_claimed(seat.rules, seat.live, found.policy) or found.policy.rule == TIMED_STOP.rule,
        approved=seat.approved | _list_answered_acts(seat, found, climb) if seat.answers else seat.approved,
        hooks=summarize_hook_runs(climb, seat.sight.hooks) if climb is not None else NO_HOOKS,
    )


def _list_answered_acts(seat: ResourceContext, found: Verdict, climb: EscalationState | None) -> frozenset[str]:
    """Return the acts that somebody allowed who was asked by this policy, in this episode."""
    if climb is None:
        return frozenset()
    question = name_question(found.policy.name, climb.episode)
    return frozenset(act for asked, act in seat.answers if asked == question)


def forecast_snapshot_caps(rules: GuardConfig, sight: GuardSnapshot) -> tuple[CapForecast, ...]:
    """Forecast when each hard budget would act and by how much it could be exceeded, without evaluating policies."""
    seats = build_contexts(rules, sight)
    works = {seat.key: seat.classify(seat.find_longest_policy()) for seat in seats}
    accepted = find_accepted_caps(rules.budgets, sight.wishes, sight.now)
    return _forecast_caps(rules, sight, seats, works, accepted)


def _forecast_caps(
    rules: GuardConfig,
    sight: GuardSnapshot,
    seats: Sequence[ResourceContext],
    works: Mapping[ResourceKey, Activity],
    accepted: frozenset[str],
) -> tuple[CapForecast, ...]:
    if not any(standing.budget.hard for standing in sight.standings):
        return ()
    caps = frozenset(policy.name for policy in build_cap_policies(rules.budgets))
    candidates = [
        CapCandidate(
            live=seat.live,
            work=works[seat.key],
            leased=seat.lease is not None,
            protected=seat.protection.protected,
            unclaimed=not seat.owner and not _may_stop(seat, caps) and not is_claimed(rules, seat.live, CAP_POLICY),
            cannot=explain_unstoppable(seat.live.observation),
            loses=seat.live.observation.handling.stop_loses,
            allowed=_may_stop(seat, caps),
            priority=max((policy.priority for policy in seat.policies), default=0),
        )
        for seat in seats
        if seat.live.observation.kind == INSTANCE and seat.live.absent_at is None
    ]
    took = [one.took for one in sight.reactions if one.act == "stop"]
    reaction = estimate_reaction(rules.interval, {"stop": took} if took else {})
    return forecast_caps(
        sight.standings,
        candidates,
        reaction.total,
        sight.now,
        fleet=count_fleet(sight.live, sight.sent),
        poll=rules.interval,
        rails=rules.rails,
        sent=sight.sent,
        accepted=accepted,
        announced={(climb.policy, climb.life.key) for climb in sight.climbs if climb.done},
    )


def forecast_starts(rules: GuardConfig, sight: GuardSnapshot) -> tuple[ScheduledStart, ...]:
    """Return the starts that schedules will make or have due, without evaluating the policies."""
    cases = [
        build_current_case(live, policy, rules, sight)
        for live in sight.live
        if live.observation.key in sight.start_histories
        for policy in rules.policies
        if policy.start is not None
    ]
    return list_scheduled_starts(cases, sight, build_constraints(rules, sight), rules.policies)


def _may_stop(seat: ResourceContext, caps: frozenset[str]) -> bool:
    """Return whether a person approved the stop: of whatever asks for it, or as the answer to one of the policies `caps`."""
    return STOP in seat.approved or any(act == STOP and find_asking_policy(asked) in caps for asked, act in seat.answers)


def _build_cap_cases(
    foresights: Sequence[CapForecast],
    seats: Sequence[ResourceContext],
    rules: GuardConfig,
    sight: GuardSnapshot,
    climbs: Mapping[tuple[str, ResourceKey], EscalationState],
) -> list[PolicyCase]:
    by_key = {seat.key: seat for seat in seats} if foresights else {}
    verdicts = [found for _, found in list_cap_verdicts(foresights, sight.now, climbs)]
    named = {(found.policy.name, found.life.key) for found in verdicts}
    for budget in rules.budgets:
        policy = build_cap_policy(budget)
        going = (climb for name, climb in climbs.items() if name[0] == policy.name and name not in named and budget.hard)
        verdicts += [_end_cap_verdict(policy, climb.life, sight.now) for climb in going if climb.life.key in by_key]
    cases = []
    for found in verdicts:
        seat = by_key[found.life.key]
        old = apply_deliveries(climbs.get((found.policy.name, seat.key)), seat.owner, rules, sight)
        climb = advance_escalation(old, found, stopped=seat.live.observation.state in RESTING_STATES)
        case = _build_case(seat, found, climb, limit_armed_level(found.policy, rules, sight))
        cases.append(replace(case, lease=None))  # a cap stops whatever a lease keeps
    return cases


def _end_cap_verdict(policy: Policy, life: Incarnation, now: datetime) -> Verdict:
    """Return the verdict of a cap that does not need this machine in this run; twice in a row ends its escalation."""
    no = ConditionResult(value=False)
    return Verdict(policy=policy, life=life, at=now, finding=DOES_NOT, truth=no, work=Activity(reasons=()))
