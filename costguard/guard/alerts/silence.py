"""Silent agents: one that was not heard for a while says nothing, least of all that its machine idles.

Example: the agent of train-1 last beat at 12:03. At 12:07 whether train-1 works cannot be said by it, and people are told once:
"its agent is silent since 2026-11-22 12:03 UTC". What its provider measures still counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from costguard.metering.observation import identify_incarnation
from costguard.metering.spending import LiveResource
from costguard.values.agent import Agent, is_silent
from costguard.values.incarnation import is_same_life
from costguard.values.resource import RUNNING, ResourceKey
from costguard.values.text_format import format_local_time

REPORTS, SILENT, OLD_LIFE = "reports", "silent", "of an earlier run"


def index_agents(agents: Iterable[Agent]) -> Mapping[ResourceKey, Agent]:
    """Those that may speak, by their machine: one each."""
    return {agent.key: agent for agent in agents if agent.revoked_at is None}


def get_agent_state(agent: Agent, live: LiveResource | None, now: datetime) -> str:
    """How it stands: whether it reports, is silent, or belongs to a run of the machine that is over."""
    life = identify_incarnation(live.observation) if live else None
    if agent.life is not None and life is not None and not is_same_life(agent.life, life):
        return OLD_LIFE
    return SILENT if is_silent(agent, now) else REPORTS


def find_silent_agents(agents: Iterable[Agent], live: Iterable[LiveResource], now: datetime) -> dict[ResourceKey, str]:
    """Of machines that run and whose agent is silent: since when, in words."""
    found, there = dict[ResourceKey, str](), index_agents(agents)
    if not there:
        return found
    for one in live:
        agent = there.get(one.observation.key)
        if agent is None or one.observation.state != RUNNING or one.absent_at is not None:
            continue
        state = get_agent_state(agent, one, now)
        if state == SILENT:
            found[agent.key] = f"its agent is silent since {format_local_time(agent.heard_at)}"
        elif state == OLD_LIFE:
            found[agent.key] = "its agent joined in an earlier run of it: costguard agent enrol lets one join in this run"
    return found
