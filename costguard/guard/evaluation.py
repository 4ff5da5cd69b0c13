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
from costguard.guard.facts import select_utilization
from costguard.guard.limits import (
    NO_HEADROOM,
    Breaker,
    compute_rooms,
    count_fleet,
    drop_explained_turns,
    find_quarantined_scopes,
    select_cheap_ends,
    update_breaker,
)
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
from costguard.guard.run_facts import explain_undone_stop
from costguard.guard.scheduled_starts import ScheduledStart, list_scheduled_starts
from costguard.guard.signals import ACTIVE, IDLE, RELEASED, UNKNOWN, Activity, find_sample_bounds
from costguard.guard.timed_stops import TIMED_STOP, advance_timed_stop, list_timed_verdicts
from costguard.metering.spending import LiveResource
from costguard.values.money import Money
from costguard.values.resource import INSTANCE, RUNNING, Incarnation, ResourceKey, ScopeKey

NO_ADMIN_ROUTE = (
    "no route of [notify] takes every warning on a channel that reaches a person, so policies only notify: "
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


def evaluate_snapshot(rules: GuardConfig, snapshot: GuardSnapshot) -> GuardEvaluation:
    """Evaluate all policies and hard budgets of `rules` for every resource in `snapshot`, and plan the acts. Sends nothing."""
    contexts = build_contexts(rules, snapshot)
    climbs = {(c.policy, c.life.key): c for c in mark_executed_steps(rules, snapshot)}
    levels = {policy.name: limit_armed_level(policy, rules, snapshot) for policy in rules.policies}
    cases, works = list[PolicyCase](), dict[ResourceKey, Activity]()
    for context in contexts:
        cases += _evaluate_cases(context, context.policies, levels, climbs)
        works[context.key] = context.classify(context.find_longest_policy())
    fleet = count_fleet(snapshot.live, snapshot.sent)
    known_caps = find_accepted_caps(rules.budgets, snapshot.wishes, snapshot.now)
    accepted_caps = find_undoubted_caps(rules.budgets, known_caps, snapshot.live, snapshot.raised)
    foresights = _forecast_caps(rules, snapshot, contexts, works, accepted_caps)
    cases += _build_cap_cases(foresights, contexts, rules, snapshot, climbs)
    for context, plan, verdict in list_timed_verdicts(contexts, works, rules, snapshot):
        old = apply_deliveries(climbs.get((TIMED_STOP.name, context.key)), context.owner, rules, snapshot)
        climb = advance_timed_stop(old, plan, verdict, routed=rules.admin_route)
        cases.append(_build_case(context, verdict, climb, limit_armed_level(verdict.policy, rules, snapshot)))
    mass = update_breaker(
        snapshot.breaker,
        _find_turns(contexts, works, rules.rails.breaker_window),
        snapshot.live,
        rules.rails,
        snapshot.now,
        reset_at=find_breaker_close(snapshot.wishes, snapshot.now),
    )
    for n, case in enumerate(cases):
        if question := _explain_question(case, mass, rules, snapshot):
            cases[n] = replace(case, asks=question)
    around = replace(
        build_constraints(rules, replace(snapshot, breaker=mass)),
        rooms=compute_rooms(snapshot.sent, fleet, rules.rails, snapshot.now),
        accepted_caps=accepted_caps,
        fleet=fleet,
        sent=snapshot.sent,
        held=snapshot.held,
    )
    proposals = build_action_plan(cases, around)
    update_announcements(cases, proposals, snapshot.now)
    end_lost_escalations(cases, snapshot.intents)
    protected = [context for context in contexts if context.protection.protected]
    marks = [(context.key, find_label_protection(context.live.observation, rules.protect)) for context in protected]
    return GuardEvaluation(
        at=snapshot.now,
        works=works,
        cases=tuple(cases),
        proposals=proposals,
        climbs=tuple(case.climb for case in cases if case.climb is not None),
        sighted=tuple(Sighted(key=key, at=snapshot.now, how=mark.why) for key, mark in marks if mark.protected),
        foresights=foresights,
        breaker=mass,
        quarantine=around.quarantine,
        fleet=fleet,
        starts=list_scheduled_starts(cases, snapshot, around, rules.policies),
        accepted_caps=accepted_caps,
        doubted_caps=known_caps - accepted_caps,
    )


def limit_armed_level(policy: Policy, rules: GuardConfig, snapshot: GuardSnapshot) -> ArmedLevel:
    """Return how far `policy` may go: as it is armed, but only notify if no admin route exists.

    Without an admin route some owner's notification would reach nobody; who planned a stop by hand was told there and then.
    """
    armed = find_armed_level(policy, snapshot.wishes, snapshot.now)
    if rules.admin_route or policy.rule == TIMED_STOP.rule or not reaches_level(armed.level, STOP):
        return armed
    return ArmedLevel(NOTIFY, NO_ADMIN_ROUTE)


def build_constraints(rules: GuardConfig, snapshot: GuardSnapshot) -> RunConstraints:
    """Build the constraints that all machines share; headroom is zero and holds of the whole run are left to the caller."""
    return RunConstraints(
        now=snapshot.now,
        interval=rules.interval,
        room=NO_HEADROOM,
        rails=rules.rails,
        breaker=snapshot.breaker,
        quarantine=find_quarantined_scopes(snapshot.live),
    )


def build_current_case(live: LiveResource, policy: Policy, rules: GuardConfig, snapshot: GuardSnapshot) -> PolicyCase:
    """Build the case of `live` as if the condition of `policy` held now, to see what else would hold its action back."""
    context = ResourceContext.of(live, rules, snapshot)
    verdict = Verdict(
        policy=policy,
        life=context.life,
        at=snapshot.now,
        finding=HOLDS,
        truth=ConditionResult(value=True),
        work=Activity(reasons=()),
    )
    return _build_case(context, verdict, None, limit_armed_level(policy, rules, snapshot))


def explain_unproven(key: ResourceKey, policy: Policy, rules: GuardConfig, snapshot: GuardSnapshot) -> str:
    """Explain why `policy` no longer holds for the resource, or only on stale or incomplete samples; "" if it holds."""
    context = next((one for one in build_contexts(rules, snapshot) if one.key == key), None)
    climbs = {(climb.policy, climb.life.key): climb for climb in snapshot.climbs}
    cases = _evaluate_cases(context, [policy], {policy.name: ArmedLevel(OBSERVE)}, climbs) if context else []
    if not cases:
        return "it is no longer listed"
    verdict = cases[0].verdict
    if verdict.finding != HOLDS:
        return "; ".join(verdict.reasons[:2]) or FINDINGS[verdict.finding]
    return explain_thin_evidence(verdict)


def is_claimed(rules: GuardConfig, live: LiveResource, policy: Policy) -> bool:
    """Return whether `policy` may act on `live` if it has no owner.

    A claim is "provider", "provider/account" or a full scope. Without claims in the settings, accounts of providers that name
    owners are ours. On other providers (RunPod, Vast, Lambda) people share accounts, and the owner of a machine is unknown:
    there a policy must name the machine, its account, its labels or its owner.
    """
    if rules.claims is None:
        return live.scope.provider not in rules.ownerless or is_explicit(policy.target)
    return any(claim in (live.scope.provider, "/".join(live.scope[:2]), "/".join(live.scope)) for claim in rules.claims)


def _explain_question(case: PolicyCase, mass: Breaker | None, rules: GuardConfig, snapshot: GuardSnapshot) -> str:
    """Explain why a stop of this machine needs an approval although its provider could do it; "" for none."""
    verdict, now = case.verdict, snapshot.now
    if verdict.policy.rule != IDLE_RULE:
        return ""
    if mass is not None and mass.holds(verdict.life.key) and now - mass.opened_at >= rules.rails.breaker_asks:
        return "many machines turned idle or unknown at once, which may be a measurement error"
    if verdict.short:
        return f"the confidence is {verdict.work.confidence:g}, which is too low for {verdict.policy.name} to act by itself"
    return explain_undone_stop(snapshot.restarts, verdict.life.key, now)


def _find_turns(
    contexts: Sequence[ResourceContext], works: Mapping[ResourceKey, Activity], window: timedelta
) -> dict[ResourceKey, datetime]:
    """Return when each machine turned idle or unknown without a cause of its own, for the breaker.

    One member stands for a group whose job ended: a cluster or job array ends as a whole, which is no sign of an error. If one
    of its members is not measured, the members count separately. `window`: of the breaker.
    """
    turns, groups = dict[ResourceKey, datetime](), set[str]()
    for context in contexts:
        at = _find_turn(context, works[context.key])
        if at is None:
            continue
        if context.group is not None and works[context.key].state == IDLE:
            name = f"{context.group.key}"
            if name in groups:
                continue
            groups.add(name)
        turns[context.key] = at
    ended_machines = [one.live for one in contexts if one.key in turns and works[one.key].gpu_memory == RELEASED]
    ended = select_cheap_ends(ended_machines, contexts[0].sight.now) if ended_machines else frozenset()
    activated = [at for context in contexts if (at := _find_activation(context)) is not None] if ended else []
    return drop_explained_turns(turns, ended, activated, window)


def _find_activation(context: ResourceContext) -> datetime | None:
    """Return when a machine that is active by itself became so, if it was measured before; else None."""
    work, bounds = context.classify_alone(context.find_longest_policy()), find_sample_bounds(context.columns)
    return work.since if work.state == ACTIVE and work.since is not None and bounds and work.since > bounds[0] else None


def _find_turn(context: ResourceContext, work: Activity) -> datetime | None:
    """Return when the machine turned idle or unknown, for the breaker; None if it did not turn.

    A machine that was idle or unmeasured from its start did not turn. One whose samples stopped turned two sample intervals
    plus the provider's lag after the last sample; with a single sample no interval is known. Samples that are missing because
    costguard itself did not run do not count.
    """
    if work.state not in (IDLE, UNKNOWN) or context.live.observation.state != RUNNING:
        return None
    began, snapshot = context.live.observation.started_at or context.live.first_seen_at, context.sight
    bounds = find_sample_bounds(context.columns)
    if bounds is None:
        return None
    first, last = bounds
    if work.state == IDLE and work.since is not None:
        return work.since if work.since > max(began, first) else None
    due = last + 2 * context.sample_interval + context.lag
    hidden = snapshot.gap_ended_at is not None and last <= snapshot.gap_ended_at
    silent = work.state == UNKNOWN and not hidden and first < last and work.get_known_until(snapshot.now) > due
    return due if silent else None


def _evaluate_cases(
    context: ResourceContext,
    policies: Sequence[Policy],
    levels: Mapping[str, ArmedLevel],
    climbs: Mapping[tuple[str, ResourceKey], EscalationState],
) -> list[PolicyCase]:
    """Evaluate `policies`, armed as in `levels`, for one resource; empty if two complete listings lack it.

    One that lacks it ends no escalation.
    """
    absent_at = context.live.absent_at
    if absent_at is not None and context.sight.now - absent_at >= max(context.rules.interval, ABSENT_FOR):
        return []
    return [_evaluate_case(context, policy, levels[policy.name], climbs.get((policy.name, context.key))) for policy in policies]


def _evaluate_case(context: ResourceContext, policy: Policy, armed: ArmedLevel, stored: EscalationState | None) -> PolicyCase:
    """Evaluate `policy`, armed so far, for one resource. `stored`: its escalation as of the last run; None: none."""
    rules, snapshot, observation = context.rules, context.sight, context.live.observation
    work, off = context.classify(policy), None
    inputs = _collect_inputs(context, policy)
    if policy.schedule is not None:
        off = context.find_off_since(evaluate_schedule(policy.schedule, snapshot.now))
        inputs = replace(inputs, scheduled_on=off is None)
    if end := context.read_end_date(policy):
        inputs, off = replace(inputs, until_label=end.state), end.at
    climb = apply_deliveries(stored, context.owner, rules, snapshot)
    verdict = evaluate_policy(
        policy,
        context.life,
        build_facts(context.live, work, inputs, snapshot.now, policy.when.names),
        work,
        snapshot.now,
        climb=climb,
        not_before=None if policy.rule in (SCHEDULE_RULE, LIMIT_RULE) else context.evidence_from,
        off_since=off,
    )
    verdict = replace(verdict, reasons=(end.why, *verdict.reasons)) if end else verdict
    going = advance_escalation(climb, verdict, stopped=observation.state in RESTING_STATES, fresh_since=context.lease_ended_at)
    return _build_case(context, verdict, going, armed)


def _collect_inputs(context: ResourceContext, policy: Policy) -> FactInputs:
    """Return what the facts of `policy` need besides the listing and the activity."""
    snapshot, names, inputs = context.sight, policy.when.names, context.inputs
    if not BUDGET_FACTS.isdisjoint(names):
        attribution = replace(context.live.observation.attribution, owner=context.owner)
        inputs = replace(inputs, budget=find_tightest_budget(snapshot.standings, attribution))
    if not LOOKED_UP_FACTS.isdisjoint(names):
        inputs = add_cost_facts(inputs, context.live, snapshot.asked, snapshot.now)
    if select_utilization(names):
        inputs = replace(inputs, shares=context.measure_shares(names))
    if "group_state" in names and context.group is not None:
        group = context.group.classify(policy)
        inputs = replace(inputs, group_state=group.state if group else "")
    return inputs


def _build_case(context: ResourceContext, verdict: Verdict, climb: EscalationState | None, armed: ArmedLevel) -> PolicyCase:
    sighting = context.sight.known.get(context.key)
    return PolicyCase(
        verdict=verdict,
        live=context.live,
        owner=context.owner,
        protection=context.protection,
        lease=context.lease,
        phase=context.phase,
        frozen=context.frozen,
        polls=sighting.polls if sighting else 0,
        in_doubt=context.in_doubt,
        refused=context.refused,
        workers=context.workers,
        climb=climb,
        level=armed.level,
        limited=armed.explain(),
        claimed=is_claimed(context.rules, context.live, verdict.policy) or verdict.policy.rule == TIMED_STOP.rule,
        approved=context.approved | _list_answered_acts(context, verdict, climb) if context.answers else context.approved,
        hooks=summarize_hook_runs(climb, context.sight.hooks) if climb is not None else NO_HOOKS,
    )


def _list_answered_acts(context: ResourceContext, verdict: Verdict, climb: EscalationState | None) -> frozenset[str]:
    """Return the acts that somebody allowed who was asked by this policy, in this episode."""
    if climb is None:
        return frozenset()
    question = name_question(verdict.policy.name, climb.episode)
    return frozenset(act for answered_question, act in context.answers if answered_question == question)


def forecast_snapshot_caps(rules: GuardConfig, snapshot: GuardSnapshot) -> tuple[CapForecast, ...]:
    """Forecast when each hard budget would act and by how much it could be exceeded, without evaluating policies."""
    contexts = build_contexts(rules, snapshot)
    works = {context.key: context.classify(context.find_longest_policy()) for context in contexts}
    accepted = find_accepted_caps(rules.budgets, snapshot.wishes, snapshot.now)
    return _forecast_caps(rules, snapshot, contexts, works, accepted)


def _forecast_caps(
    rules: GuardConfig,
    snapshot: GuardSnapshot,
    contexts: Sequence[ResourceContext],
    works: Mapping[ResourceKey, Activity],
    accepted: frozenset[str],
) -> tuple[CapForecast, ...]:
    if not any(standing.budget.hard for standing in snapshot.standings):
        return ()
    caps = frozenset(policy.name for policy in build_cap_policies(rules.budgets))
    candidates = [
        CapCandidate(
            live=context.live,
            work=works[context.key],
            leased=context.lease is not None,
            protected=context.protection.protected,
            unclaimed=not context.owner and not _may_stop(context, caps) and not is_claimed(rules, context.live, CAP_POLICY),
            cannot=explain_unstoppable(context.live.observation),
            loses=context.live.observation.handling.stop_loses,
            allowed=_may_stop(context, caps),
            priority=max((policy.priority for policy in context.policies), default=0),
        )
        for context in contexts
        if context.live.observation.kind == INSTANCE and context.live.absent_at is None
    ]
    took = [one.took for one in snapshot.reactions if one.act == "stop"]
    reaction = estimate_reaction(rules.interval, {"stop": took} if took else {})
    return forecast_caps(
        snapshot.standings,
        candidates,
        reaction.total,
        snapshot.now,
        fleet=count_fleet(snapshot.live, snapshot.sent),
        poll=rules.interval,
        rails=rules.rails,
        sent=snapshot.sent,
        accepted=accepted,
        announced={(climb.policy, climb.life.key) for climb in snapshot.climbs if climb.done},
    )


def forecast_starts(rules: GuardConfig, snapshot: GuardSnapshot) -> tuple[ScheduledStart, ...]:
    """Return the starts that schedules will make or have due, without evaluating the policies."""
    cases = [
        build_current_case(live, policy, rules, snapshot)
        for live in snapshot.live
        if live.observation.key in snapshot.start_histories
        for policy in rules.policies
        if policy.start is not None
    ]
    return list_scheduled_starts(cases, snapshot, build_constraints(rules, snapshot), rules.policies)


def _may_stop(context: ResourceContext, caps: frozenset[str]) -> bool:
    """Return whether a person approved the stop: of whatever asks for it, or as the answer to one of the policies `caps`."""
    return STOP in context.approved or any(act == STOP and find_asking_policy(name) in caps for name, act in context.answers)


def _build_cap_cases(
    foresights: Sequence[CapForecast],
    contexts: Sequence[ResourceContext],
    rules: GuardConfig,
    snapshot: GuardSnapshot,
    climbs: Mapping[tuple[str, ResourceKey], EscalationState],
) -> list[PolicyCase]:
    by_key = {context.key: context for context in contexts} if foresights else {}
    verdicts = [verdict for _, verdict in list_cap_verdicts(foresights, snapshot.now, climbs)]
    verdict_keys = {(verdict.policy.name, verdict.life.key) for verdict in verdicts}
    for budget in rules.budgets:
        policy = build_cap_policy(budget)
        going = (climb for name, climb in climbs.items() if name[0] == policy.name and name not in verdict_keys and budget.hard)
        verdicts += [_end_cap_verdict(policy, climb.life, snapshot.now) for climb in going if climb.life.key in by_key]
    cases = []
    for verdict in verdicts:
        context = by_key[verdict.life.key]
        old = apply_deliveries(climbs.get((verdict.policy.name, context.key)), context.owner, rules, snapshot)
        climb = advance_escalation(old, verdict, stopped=context.live.observation.state in RESTING_STATES)
        case = _build_case(context, verdict, climb, limit_armed_level(verdict.policy, rules, snapshot))
        cases.append(replace(case, lease=None))  # a cap stops whatever a lease keeps
    return cases


def _end_cap_verdict(policy: Policy, life: Incarnation, now: datetime) -> Verdict:
    """Return the verdict of a cap that does not need this machine in this run; twice in a row ends its escalation."""
    no = ConditionResult(value=False)
    return Verdict(policy=policy, life=life, at=now, finding=DOES_NOT, truth=no, work=Activity(reasons=()))
