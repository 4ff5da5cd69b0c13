"""What a guard run has before it: what the settings say, and what is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo

from costguard.core.balance import Balance
from costguard.core.budget import Budget
from costguard.core.guard.intent import Intent
from costguard.core.guard.policy import Policy, Rails
from costguard.core.guard.railing import Breaker
from costguard.core.guard.run import FirstSeen, Reaction
from costguard.core.guard.run import Protection as Sighted
from costguard.core.guard.verdict import Climb
from costguard.core.guard.wishes import Wish
from costguard.core.metering.observation import Observation
from costguard.core.metering.resource import ResourceKey
from costguard.core.sample import Sample
from costguard.core.spending import Live
from costguard.core.standing import Standing


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the settings say. `claims`: accounts ("aws", "aws/1111", "aws/1111/us-east-1") that are ours; None: all of them."""

    policies: tuple[Policy, ...] = ()
    budgets: tuple[Budget, ...] = ()
    rails: Rails = field(default_factory=Rails)
    owner_from: tuple[str, ...] = ("label:owner",)
    protect: tuple[str, ...] = ("label:costguard=never",)
    zone: tzinfo = UTC
    interval: timedelta = timedelta(seconds=60)
    claims: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What is known at `now`. `live` carries the handling of the last listing. `wishes`: also those that have ended lately.

    `sent`: intents that were sent in the last day; `intents`: open and lately ended ones. `apart`: providers that are asked for
    measures apart from their listing. `balances`: of prepaid accounts. `gap_ended_at`: evidence from before it counts no
    more. `held`: what holds every act.
    `members`: what controllers bring up, as last listed, with what has ended.
    """

    now: datetime
    live: tuple[Live, ...]
    standings: tuple[Standing, ...] = ()
    samples: Mapping[ResourceKey, Sequence[Sample]] = field(default_factory=dict)
    known: Mapping[ResourceKey, FirstSeen] = field(default_factory=dict)
    protections: Mapping[ResourceKey, Sighted] = field(default_factory=dict)
    wishes: tuple[Wish, ...] = ()
    climbs: tuple[Climb, ...] = ()
    intents: tuple[Intent, ...] = ()
    sent: tuple[Intent, ...] = ()
    reactions: tuple[Reaction, ...] = ()
    apart: frozenset[str] = frozenset()
    balances: tuple[Balance, ...] = ()
    members: tuple[Observation, ...] = ()
    gap_ended_at: datetime | None = None
    breaker: Breaker | None = None
    held: tuple[tuple[str, str], ...] = ()
