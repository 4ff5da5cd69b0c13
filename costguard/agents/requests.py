"""Grant an agent's requests: limited overrides for the incarnation of its own machine.

Example: `costguard-agent phase download --for 3h` becomes a phase of three hours. An agent may declare 24 h of phases per
incarnation of its machine; more needs a person (`costguard phase`). `keep` is a lease, by the rules of the policies that apply
to the machine. A hard cap ignores all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from costguard.agents.messages import BUSY, KEEP, AgentRequest
from costguard.guard.overrides import LEASE, PHASE, Override, decide_lease
from costguard.guard.policy import Policy
from costguard.values.agent import Agent
from costguard.values.money import Rate
from costguard.values.resource import Incarnation, is_same_life

PHASES_MAX = timedelta(hours=24)
"""Of one life, declared by agents: who could go on for ever would spend for ever."""
OVERRIDE_MIN = timedelta(minutes=1)
OVERRIDE_MAX = timedelta(hours=24)
"""Of one wish, also where no policy concerns the machine and none bounds a lease."""
AGENT_PREFIX = "agent of "


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext:
    """The machine of a request.

    `name`: its name. `wishes`: all overrides made for this incarnation. `policies`: those that apply to it. `rate`: its price,
    None: unknown.
    """

    agent: Agent
    life: Incarnation
    name: str
    wishes: Sequence[Override]
    policies: Sequence[Policy]
    rate: Rate | None = None


@dataclass(frozen=True, slots=True)
class GrantedRequests:
    """The result of requests: the overrides to record, and for the id of each request "" or the reason of the denial."""

    wishes: tuple[Override, ...]
    asked: dict[str, str]


def grant_requests(of: RequestContext, asks: Sequence[AgentRequest], now: datetime) -> GrantedRequests:
    """Return the overrides to record for `asks`; a request that was recorded before is granted, and not recorded again."""
    overrides, new_overrides, reasons = list(of.wishes), list[Override](), dict[str, str]()
    for ask in asks:
        override = _build_override(of, ask, now)
        if any(one.id == override.id for one in overrides):
            reasons[ask.id] = ""
            continue
        reasons[ask.id] = why = _explain_denial(of, ask, overrides, now)
        if not why:
            overrides.append(override)
            new_overrides.append(override)
    return GrantedRequests(tuple(new_overrides), reasons)


def is_agent_override(override: Override) -> bool:
    """Return whether an agent, and not a person, made the override."""
    return override.who.startswith(AGENT_PREFIX)


def _build_override(of: RequestContext, ask: AgentRequest, now: datetime) -> Override:
    return Override(
        id=f"agent-{of.agent.id}-{ask.id}",
        what=LEASE if ask.what == KEEP else PHASE,
        who=f"{AGENT_PREFIX}{of.name}",
        why=ask.why,
        at=now,
        until=now + timedelta(seconds=round(ask.for_s)),
        key=of.life.key,
        life=of.life,
        subject="" if ask.what == KEEP else (ask.name.strip() or BUSY),
    )


def _explain_denial(of: RequestContext, ask: AgentRequest, overrides: Sequence[Override], now: datetime) -> str:
    if ask.for_s < OVERRIDE_MIN.total_seconds():
        return "at least a minute"
    if ask.for_s > OVERRIDE_MAX.total_seconds():
        return "at most 24 h at a time from an agent: costguard keep or costguard phase, by a person, allows more"
    length = timedelta(seconds=round(ask.for_s))
    if ask.what == KEEP:
        if not ask.why.strip():
            return "give a reason: it is shown to others"
        return decide_lease(of.life, overrides, of.policies, length, now, rate=of.rate).why
    phases = [_get_span(one) for one in overrides if _is_phase_of(one, of.life)]
    used = _sum_spans(phases)
    if _sum_spans([*phases, (now, now + length)]) > PHASES_MAX:
        left = _format_hours(max(timedelta(), PHASES_MAX - used))
        return f"agents declare at most 24 h of phases in one run of a machine, and {left} are left: costguard phase ID"
    return ""


def _is_phase_of(override: Override, life: Incarnation) -> bool:
    if override.what != PHASE or not is_agent_override(override):
        return False
    return override.life is not None and is_same_life(override.life, life)


def _get_span(override: Override) -> tuple[datetime, datetime]:
    """Return the start and end of an override; without an end it counts for `PHASES_MAX`."""
    ends = [at for at in (override.until, override.lifted_at) if at is not None]
    return override.at, max(override.at, min(ends)) if ends else override.at + PHASES_MAX


def _sum_spans(spans: Sequence[tuple[datetime, datetime]]) -> timedelta:
    """Return the length of the union of `spans`."""
    length, reached = timedelta(), None
    for start, end in sorted(spans):
        begin = start if reached is None else max(start, reached)
        length += max(timedelta(), end - begin)
        reached = end if reached is None else max(reached, end)
    return length


def _format_hours(length: timedelta) -> str:
    return f"{length.total_seconds() / 3600:.3g} h"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentMachine:
    """The machine of an agent as last listed.

    `policies`: those that apply to it. `rate`: its price, None: unknown.
    """

    life: Incarnation
    name: str
    first_seen_at: datetime
    policies: Sequence[Policy] = ()
    rate: Rate | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentVerdict:
    """The result of the last guard run for a machine, as sent to its agent.

    `kept_until`: the end of its lease, None: no lease. `protected`: whether only a person may end it (protected, frozen, or a
    member of a group that would start it again); None: no run has decided. A dead-man switch ends only a machine for which this
    is False.
    """

    state: str = "unknown"
    notices: tuple[str, ...] = field(default=())
    kept_until: datetime | None = None
    protected: bool | None = None
