"""What a guard run found, as plan and watch show it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from costguard.guard.action_plan import PolicyCase
from costguard.guard.alerts.silence import SILENT, find_silent_agents, get_agent_state, index_agents
from costguard.guard.context import GuardConfig
from costguard.guard.facts import compute_burn_rate, compute_waste
from costguard.guard.owning import find_freeze, find_owner
from costguard.guard.policy import DESTRUCTIVE
from costguard.guard.verdict import CANNOT_SAY, Proposal
from costguard.metering.spending import LiveResource
from costguard.services.guard import GuardRunResult
from costguard.services.status import build_status
from costguard.values.money import Money, Rate
from costguard.values.resource import INSTANCE, ResourceKey
from costguard.values.text_format import format_local_time
from costguard.views.plan import PlanRow, PlanView
from costguard.views.watch import WatchedAction, WatchedBudget, WatchedMachine, WatchView

if TYPE_CHECKING:
    from costguard.services.watchdog_context import WatchdogContext

RECENT_ACTIONS = timedelta(hours=24)


def build_plan_view(guarded: GuardRunResult, rules: GuardConfig, notes: Sequence[str]) -> PlanView:
    """The plan of this run, a row a verdict."""
    survey = guarded.survey
    proposals: dict[tuple[str, ResourceKey], list[Proposal]] = defaultdict(list)
    for one in survey.proposals if survey else ():
        proposals[one.verdict.policy.name, one.verdict.life.key].append(one)
    rows = [_build_plan_row(case, proposals, guarded) for case in (survey.cases if survey else ())]
    told = (
        ()
        if rules.policies or rules.budgets
        else ("the settings have no [[policy]] and no hard [[budget]]: nothing is judged",)
    )
    return PlanView(
        at=guarded.at,
        rows=tuple(rows),
        hash=guarded.plan_hash[:12],
        unaccepted=guarded.unaccepted,
        notes=(*told, *_list_cap_shortfalls(guarded), *_list_silent_agents(guarded), *notes),
    )


def _list_cap_shortfalls(guarded: GuardRunResult) -> tuple[str, ...]:
    """Hard caps that the rails do not let be kept."""
    foreseen = guarded.survey.foresights if guarded.survey else ()
    return tuple(f"budget {one.standing.budget.name}: {one.rails}" for one in foreseen if one.rails)


def _list_silent_agents(guarded: GuardRunResult) -> tuple[str, ...]:
    """Machines whose agent says nothing."""
    if guarded.sight is None:
        return ()
    found = find_silent_agents(guarded.sight.agents, guarded.sight.live, guarded.at)
    return tuple(f"{'/'.join(key)}: {says}: it is blind there" for key, says in found.items())


def build_watch_view(guarded: GuardRunResult, made: WatchdogContext) -> WatchView:
    """Everything at the instant of this run."""
    sight, survey, at = guarded.sight, guarded.survey, guarded.at
    with made.guard.books() as books:
        now = build_status(books=books, now=at, zone=made.guard.rules.zone, live=sight.live if sight else None)
    acts: dict[ResourceKey, list[Proposal]] = defaultdict(list)
    for one in survey.proposals if survey else ():
        if one.step.do in DESTRUCTIVE and one.verdict.finding != CANNOT_SAY:  # what cannot be judged has nothing coming
            acts[one.verdict.life.key].append(one)
    hold = find_freeze(sight.wishes, None, at) if sight else None
    machine = partial(_build_machine_view, guarded=guarded, made=made, acts=acts)
    live = [one for one in (sight.live if sight else ()) if one.observation.kind == INSTANCE and one.absent_at is None]
    return WatchView(
        at=at,
        mode="dry run" if made.guard.dry_run else "acting" if guarded.acting and not (sight and sight.held) else "observing",
        burn=now.usd.burn.bounds.expected,
        month=now.usd.to_date,
        scopes=now.scopes,
        machines=tuple(sorted(map(machine, live), key=lambda one: (-(one.rate.nano if one.rate else 0), one.key))),
        budgets=_build_budget_views(guarded),
        acts=tuple(
            WatchedAction(
                at=intent.moved_at,
                subject=intent.life.key.id,
                act=intent.act,
                state=intent.state,
                why=intent.outcome or intent.why,
            )
            for intent in guarded.intents
            if at - intent.moved_at <= RECENT_ACTIONS
        ),
        notices=tuple(dict.fromkeys((*(notice.what for notice in guarded.notices), *_list_cap_shortfalls(guarded)))),
        frozen=f"{hold.who}: {hold.why}" if hold else "",
        committed=guarded.committed,
    )


def _build_plan_row(
    case: PolicyCase, proposals: dict[tuple[str, ResourceKey], list[Proposal]], guarded: GuardRunResult
) -> PlanRow:
    seen, verdict = case.live.observation, case.verdict
    return PlanRow(
        verdict=verdict,
        proposals=tuple(proposals[verdict.policy.name, seen.key]),
        level=case.level,
        name=seen.name,
        owner=case.owner,
        rate=_to_hourly_money(compute_burn_rate(case.live, guarded.at)),
        waste=compute_waste(case.live, verdict.work, guarded.at),
        agent=_describe_agent(case.live, guarded),
    )


def _describe_agent(live: LiveResource, guarded: GuardRunResult) -> str:
    """How its agent stands, in words; "" where it has none."""
    agent = index_agents(guarded.sight.agents).get(live.observation.key) if guarded.sight else None
    if agent is None:
        return ""
    state = get_agent_state(agent, live, guarded.at)
    return f"{state} since {format_local_time(agent.heard_at)}" if state == SILENT else state


def _build_machine_view(
    live: LiveResource, guarded: GuardRunResult, made: WatchdogContext, acts: dict[ResourceKey, list[Proposal]]
) -> WatchedMachine:
    seen, survey = live.observation, guarded.survey
    assert survey is not None  # noqa: S101 - where there are machines there is a survey
    coming = min(acts.get(seen.key, ()), key=lambda one: (bool(one.held_by), one.due_at), default=None)
    gpus = f"{seen.gpu_count:g}x{seen.gpu}" if seen.gpu else seen.instance_type or seen.kind
    return WatchedMachine(
        key=seen.key,
        name=seen.name,
        owner=find_owner(seen, made.guard.rules.owner_from),
        told=gpus,
        power=seen.state,
        rate=_to_hourly_money(compute_burn_rate(live, guarded.at)),
        work=survey.works[seen.key],
        next_act=coming.step.do if coming else "",
        next_at=coming.due_at if coming else None,
        held_by=tuple(reason for reason, _ in coming.held_by if reason != "grace") if coming else (),
    )


def _build_budget_views(guarded: GuardRunResult) -> tuple[WatchedBudget, ...]:
    foreseen = {one.standing.budget.name: one for one in (guarded.survey.foresights if guarded.survey else ())}
    found = []
    for one in guarded.sight.standings if guarded.sight else ():
        ahead, hours = foreseen.get(one.budget.name), one.time_to_cap_hours
        found.append(
            WatchedBudget(
                name=one.budget.name,
                cap=one.budget.cap,
                spent=one.spent,
                time_to_cap=None if hours is None else timedelta(hours=float(hours)),
                overshoot=ahead.overshoot if ahead else None,
            )
        )
    return tuple(found)


def _to_hourly_money(rate: Rate | None) -> Money | None:
    return None if rate is None else Money(nano=rate.nano_per_hour, currency=rate.currency)
