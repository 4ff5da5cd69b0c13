"""The plan of a guard run: each policy's verdict on each resource, and what its acts wait for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from costguard.guard.action_plan import PolicyCase
from costguard.guard.alerts.blind import SILENT, find_silent_agents, get_agent_state, index_agents
from costguard.guard.alerts.fleet import explain_short
from costguard.guard.context import GuardConfig, GuardSnapshot
from costguard.guard.evaluation import NO_ADMIN_ROUTE
from costguard.guard.limits import explain_gap_doubt
from costguard.guard.policy import STOP, TERMINATE, Proposal
from costguard.guard.policy_evaluation import compute_burn_rate, compute_waste
from costguard.guard.run_facts import GuardRun
from costguard.metering.spending import LiveResource
from costguard.services.guarding.guard import GuardRunResult, evaluate_plan, list_budget_armings
from costguard.values.money import Money, Rate
from costguard.values.resource import ResourceKey
from costguard.values.text_format import format_local_time
from costguard.views.plan import PlanRow, PlanView


def build_plan_view(guarded: GuardRunResult, rules: GuardConfig, notes: Sequence[str]) -> PlanView:
    """Build the plan of this run, a row per verdict."""
    survey = guarded.survey
    proposals: dict[tuple[str, ResourceKey], list[Proposal]] = defaultdict(list)
    for one in (*survey.proposals, *(start.proposal for start in survey.starts)) if survey else ():
        proposals[one.verdict.policy.name, one.verdict.life.key].append(one)
    rows = [_build_plan_row(case, proposals, guarded) for case in (survey.cases if survey else ())]
    first_notes = (
        ()
        if rules.policies or rules.budgets
        else ("the settings have no [[policy]] and no hard [[budget]]: nothing to evaluate",)
    )
    return PlanView(
        at=guarded.at,
        rows=tuple(rows),
        hash=guarded.plan_hash[:12],
        unaccepted=guarded.unaccepted,
        notes=(*first_notes, *list_cap_shortfalls(guarded), *_list_silent_agents(guarded), *notes),
    )


def evaluate_as_plan(rules: GuardConfig, snapshot: GuardSnapshot, last: GuardRun | None, older_ledger: str) -> GuardRunResult:
    """Evaluate `snapshot` as `costguard plan` does in a dry run of the guard, for a process that writes nothing: the pages.

    `last`: the newest run. `older_ledger`: why the ledger may be an older copy; "" if it is not.
    """

    def list_holds() -> Iterator[tuple[str, str]]:
        if older_ledger:
            yield "older_ledger", f"{older_ledger}; if this is intended: costguard audit adopt"
        if gap := explain_gap_doubt(last.at if last else None, rules.interval, rules.rails, snapshot.now):
            yield "gap", gap

    overrides = (*snapshot.wishes, *list_budget_armings(rules, snapshot.wishes, snapshot.now))
    snapshot = replace(snapshot, wishes=overrides, held=(*snapshot.held, *list_holds()))
    plan = evaluate_plan(rules, snapshot, dict(last.facts) if last else {})
    return GuardRunResult(
        at=snapshot.now,
        committed=False,
        acting=False,
        survey=plan.evaluation,
        sight=plan.snapshot,
        plan_hash=plan.evaluation.plan_hash,
        unaccepted=plan.unaccepted,
    )


def list_cap_shortfalls(guarded: GuardRunResult) -> tuple[str, ...]:
    """Return the hard caps that the limits prevent from being kept."""
    if guarded.survey is None:
        return ()
    shorts = {one.standing.budget.name: explain_short(one, guarded.survey) for one in guarded.survey.foresights}
    return tuple(f"budget {name}: {short}" for name, short in shorts.items() if short)


def _list_silent_agents(guarded: GuardRunResult) -> tuple[str, ...]:
    """Return the machines whose agent is silent."""
    if guarded.sight is None:
        return ()
    silent_agents = find_silent_agents(guarded.sight.agents, guarded.sight.live, guarded.at)
    return tuple(f"{'/'.join(key)}: {says}: that account is not monitored" for key, says in silent_agents.items())


def _build_plan_row(
    case: PolicyCase, proposals: dict[tuple[str, ResourceKey], list[Proposal]], guarded: GuardRunResult
) -> PlanRow:
    observation, verdict = case.live.observation, case.verdict
    return PlanRow(
        verdict=verdict,
        proposals=tuple(proposals[verdict.policy.name, observation.key]),
        level=case.level,
        kind=observation.kind,
        name=observation.name,
        owner=case.owner,
        rate=to_hourly_money(compute_burn_rate(case.live, guarded.at)),
        waste=compute_waste(case.live, verdict.work, guarded.at),
        agent=_describe_agent(case.live, guarded),
    )


def _describe_agent(live: LiveResource, guarded: GuardRunResult) -> str:
    """Describe the state of its agent; "" if it has none."""
    agent = index_agents(guarded.sight.agents).get(live.observation.key) if guarded.sight else None
    if agent is None:
        return ""
    state = get_agent_state(agent, live, guarded.at)
    return f"{state} since {format_local_time(agent.heard_at)}" if state == SILENT else state


def list_unarmed(rules: GuardConfig) -> tuple[str, ...]:
    """Explain why nothing beyond notify is armed although the settings demand acts; empty if that is not so."""
    asks = any(policy.arm in (STOP, TERMINATE) for policy in rules.policies) or any(budget.hard for budget in rules.budgets)
    return (NO_ADMIN_ROUTE,) if asks and not rules.admin_route else ()


def to_hourly_money(rate: Rate | None) -> Money | None:
    """Return what an hour costs at `rate`."""
    return None if rate is None else Money(nano=rate.nano_per_hour, currency=rate.currency)
