"""Alerts of machines whose activity is unknown to every idle policy, and of agents that are silent.

Silent agents: the agent of train-1 last sent at 12:03. At 12:07 it no longer counts as evidence, and one alert reports "its
agent has not reported since 2026-11-22 12:03 UTC". The provider's own samples still count.

Example: a pod on RunPod has no agent. `idle-gpu` needs network or disk and cannot judge it; `idle-runpod` can: no alert.
On Lambda no policy can judge a machine: one alert, 45 min after it is first seen.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime, timedelta

from costguard.guard.action_plan import PolicyCase
from costguard.guard.alerts.alert import Alert, build_blind_alert
from costguard.guard.alerts.fleet import build_alert_subject
from costguard.guard.context import GuardConfig, GuardSnapshot
from costguard.guard.evaluation import GuardEvaluation
from costguard.guard.facts import select_utilization
from costguard.guard.overrides import find_owner
from costguard.guard.policy import CANNOT_SAY, IDLE_RULE, NOTIFY, reaches_level
from costguard.guard.signals import IDLE, UNKNOWN, WARMING
from costguard.metering.observation import identify_incarnation
from costguard.metering.spending import LiveResource
from costguard.values.agent import Agent, is_silent
from costguard.values.resource import RUNNING, ResourceKey, ScopeKey, is_same_life
from costguard.values.text_format import format_local_time

BLIND_AFTER = timedelta(minutes=45)
"""How long after it is first seen a machine of unknown activity raises an alert."""


def list_blind_alerts(
    survey: GuardEvaluation,
    rules: GuardConfig,
    snapshot: GuardSnapshot,
    unannounced_cases: Iterable[PolicyCase],
    dark: Collection[ScopeKey],
) -> Iterator[Alert]:
    """Yield one alert for each machine that no idle policy can judge, and for each other one whose agent is silent.

    `unannounced_cases`: those without an alert of their own. `dark`: scopes whose provider cannot be asked, and is reported.
    """
    now = snapshot.now
    silent = find_silent_agents(snapshot.agents, snapshot.live, now)
    blind_cases = dict[ResourceKey, PolicyCase]()
    for case in unannounced_cases:
        if case.live.scope not in dark and _is_blind(case, now):
            blind_cases.setdefault(case.verdict.life.key, case)
    judged = {case.verdict.life.key for case in survey.cases if case.verdict.life.key in blind_cases and _can_find_idle(case)}
    for key, case in blind_cases.items():
        if key not in judged:
            subject = build_alert_subject(case.live, case.owner, now, rules.zone, topic="blind")
            says = silent.pop(key, "")
            why = (*([says] if says else []), *case.verdict.reasons)
            yield build_blind_alert(subject, at=now, since=None, why=why, so_far=case.live.spent.expected)
    for live in (one for one in snapshot.live if one.observation.key in silent and one.scope not in dark):
        owner, spent = find_owner(live.observation, rules.owner_from), live.spent.expected
        subject = build_alert_subject(live, owner, now, rules.zone, topic="blind")
        yield build_blind_alert(subject, at=now, since=None, why=(silent[live.observation.key],), so_far=spent)


def _is_blind(case: PolicyCase, now: datetime) -> bool:
    observation, work = case.live.observation, case.verdict.work
    asks = case.verdict.policy.rule == IDLE_RULE and case.verdict.finding == CANNOT_SAY
    missing = case.verdict.truth.missing
    if work.state != UNKNOWN and missing and len(select_utilization(missing)) == len(missing):
        return False  # a mean is not there yet after a start or a gap, or DCGM is not installed: plan and status say so
    return asks and observation.state == RUNNING and work.state != WARMING and now - case.live.first_seen_at >= BLIND_AFTER


def _can_find_idle(case: PolicyCase) -> bool:
    """Return whether this policy can judge the machine, looks for idleness, and notifies people of it."""
    policy, is_judged = case.verdict.policy, case.verdict.finding != CANNOT_SAY
    idle = policy.when.evaluate({"state": IDLE, "confidence": 1.0}).value
    return policy.rule == IDLE_RULE and is_judged and idle is not False and reaches_level(case.level, NOTIFY)


REPORTS, SILENT, OLD_LIFE = "reports", "silent", "of an earlier run"


def index_agents(agents: Iterable[Agent]) -> Mapping[ResourceKey, Agent]:
    """Return the agents that are not revoked, by machine; one per machine."""
    return {agent.key: agent for agent in agents if agent.revoked_at is None}


def get_agent_state(agent: Agent, live: LiveResource | None, now: datetime) -> str:
    """Return whether the agent reports, is silent, or belongs to an earlier incarnation of the machine."""
    life = identify_incarnation(live.observation) if live else None
    if agent.life is not None and life is not None and not is_same_life(agent.life, life):
        return OLD_LIFE
    return SILENT if is_silent(agent, now) else REPORTS


def find_silent_agents(agents: Iterable[Agent], live: Iterable[LiveResource], now: datetime) -> dict[ResourceKey, str]:
    """Return, for running machines whose agent is silent, a sentence with the time of its last report."""
    reasons, agents_by_key = dict[ResourceKey, str](), index_agents(agents)
    if not agents_by_key:
        return reasons
    for one in live:
        agent = agents_by_key.get(one.observation.key)
        if agent is None or one.observation.state != RUNNING or one.absent_at is not None:
            continue
        state = get_agent_state(agent, one, now)
        if state == SILENT:
            reasons[agent.key] = f"its agent has not reported since {format_local_time(agent.heard_at)}"
        elif state == OLD_LIFE:
            reasons[agent.key] = (
                "its agent was enrolled in an earlier run of the machine: enrol it again for this run: costguard agent enrol"
            )
    return reasons
