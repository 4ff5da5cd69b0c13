"""What an agent may ask for: bounded wishes about the life of its own machine, and no more of them than a person would grant.

Example: `costguard-agent phase download --for 3h` becomes a phase of three hours. A life has a day of phases from its agent;
after that a person has to say so (`costguard phase`). `keep` is a lease, by the rules of the policies that concern the machine.
A hard cap minds none of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from costguard.agents.messages import BUSY, KEEP, Ask
from costguard.guard.overrides import LEASE, PHASE, Wish
from costguard.guard.owning import may_lease
from costguard.guard.policy import Policy
from costguard.values.agent import Agent
from costguard.values.incarnation import Incarnation, is_same_life
from costguard.values.money import Rate

PHASES_MOST = timedelta(hours=24)
"""Of one life, declared by agents: who could go on for ever would spend for ever."""
SHORTEST = timedelta(minutes=1)
LONGEST = timedelta(hours=24)
"""Of one wish, also where no policy concerns the machine and none bounds a lease."""
WHO = "agent of "


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Of whose machine something is asked. `name`: what it is called. `wishes`: every one that was made of this life.

    `policies`: those that concern it. `rate`: what it costs, None: unknown.
    """

    agent: Agent
    life: Incarnation
    name: str
    wishes: Sequence[Wish]
    policies: Sequence[Policy]
    rate: Rate | None = None


@dataclass(frozen=True, slots=True)
class Granted:
    """What became of asks: the wishes to record, and by the id of each ask "" or why not."""

    wishes: tuple[Wish, ...]
    asked: dict[str, str]


def granted(of: Asked, asks: Sequence[Ask], now: datetime) -> Granted:
    """What is recorded of `asks`; one that was recorded before is granted, and not recorded again."""
    there, made, asked = list(of.wishes), list[Wish](), dict[str, str]()
    for ask in asks:
        wish = _wish(of, ask, now)
        if any(one.id == wish.id for one in there):
            asked[ask.id] = ""
            continue
        asked[ask.id] = why = _why_not(of, ask, there, now)
        if not why:
            there.append(wish)
            made.append(wish)
    return Granted(tuple(made), asked)


def is_agents(wish: Wish) -> bool:
    """Whether an agent asked for it, and no person."""
    return wish.who.startswith(WHO)


def _wish(of: Asked, ask: Ask, now: datetime) -> Wish:
    return Wish(
        id=f"agent-{of.agent.id}-{ask.id}",
        what=LEASE if ask.what == KEEP else PHASE,
        who=f"{WHO}{of.name}",
        why=ask.why,
        at=now,
        until=now + timedelta(seconds=round(ask.for_s)),
        key=of.life.key,
        life=of.life,
        subject="" if ask.what == KEEP else (ask.name.strip() or BUSY),
    )


def _why_not(of: Asked, ask: Ask, wishes: Sequence[Wish], now: datetime) -> str:
    if ask.for_s < SHORTEST.total_seconds():
        return "at least a minute"
    if ask.for_s > LONGEST.total_seconds():
        return "at most 24 h at a time from an agent: costguard keep or costguard phase, by a person, goes further"
    length = timedelta(seconds=round(ask.for_s))
    if ask.what == KEEP:
        if not ask.why.strip():
            return "say what for: others read it"
        return may_lease(of.life, wishes, of.policies, length, now, rate=of.rate).why
    phases = [_span(one) for one in wishes if _is_phase_of(one, of.life)]
    used = _together(phases)
    if _together([*phases, (now, now + length)]) > PHASES_MOST:
        left = _hours(max(timedelta(), PHASES_MOST - used))
        return f"agents declare at most 24 h of phases in one run of a machine, and {left} are left: costguard phase ID"
    return ""


def _is_phase_of(wish: Wish, life: Incarnation) -> bool:
    return wish.what == PHASE and is_agents(wish) and wish.life is not None and is_same_life(wish.life, life)


def _span(wish: Wish) -> tuple[datetime, datetime]:
    """From when to when it counts; one without an end for as long as all together may."""
    ends = [at for at in (wish.until, wish.lifted_at) if at is not None]
    return wish.at, max(wish.at, min(ends)) if ends else wish.at + PHASES_MOST


def _together(spans: Sequence[tuple[datetime, datetime]]) -> timedelta:
    """How long at least one of `spans` lasts."""
    length, reached = timedelta(), None
    for start, end in sorted(spans):
        begin = start if reached is None else max(start, reached)
        length += max(timedelta(), end - begin)
        reached = end if reached is None else max(reached, end)
    return length


def _hours(length: timedelta) -> str:
    return f"{length.total_seconds() / 3600:.3g} h"
