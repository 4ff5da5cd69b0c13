"""What a guard run has before it: what the settings say, and what is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo

from costguard.budgets.budget import Budget
from costguard.budgets.budget_status import BudgetStatus
from costguard.guard.action_intents import Intent
from costguard.guard.asked import CostFacts
from costguard.guard.evidence import SampleColumns
from costguard.guard.hook import Hook, HookRun
from costguard.guard.limits import Breaker
from costguard.guard.overrides import Override
from costguard.guard.policy import Policy, Rails
from costguard.guard.run import ConfirmedAct, FirstSighting
from costguard.guard.run import ProtectionSighting as Sighted
from costguard.guard.verdict import EscalationState
from costguard.metering.observation import Observation
from costguard.metering.spending import LiveResource
from costguard.values.agent import Agent
from costguard.values.balance import PrepaidBalance
from costguard.values.resource import ResourceKey


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardConfig:
    """What the settings say. `claims`: accounts ("aws", "aws/1111", "aws/1111/us-east-1") that are ours; None: all of them.

    `group_from`: the labels that put machines into groups, () for none.
    """

    policies: tuple[Policy, ...] = ()
    budgets: tuple[Budget, ...] = ()
    rails: Rails = field(default_factory=Rails)
    owner_from: tuple[str, ...] = ("label:owner",)
    group_from: tuple[str, ...] = ()
    protect: tuple[str, ...] = ("label:costguard=never",)
    zone: tzinfo = UTC
    interval: timedelta = timedelta(seconds=60)
    claims: tuple[str, ...] | None = None
    hooks: tuple[Hook, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardSnapshot:
    """What is known at `now`. No field has a default: who builds one without a field would judge by less than is known.

    `flows.guard_snapshot` builds it for `watch`, `plan`, `status` and `top`, a replay (`backdrop.Scene`) for `simulate`.

    `live` carries the handling of the last listing. `wishes`: also those that have ended lately.

    `sent`: intents that were sent in the last day; `intents`: open and lately ended ones. `lags`: how late each
    provider's measures come, where they do. `balances`: of prepaid accounts. `gap_ended_at`: evidence from before it counts no
    more. `apart`: how long nothing ran before this run, where it and the one before it each came after a gap.
    `held`: what holds every act.
    `hooks`: runs of hooks, those that have not ended and late ones.
    `members`: what controllers bring up, as last listed, with what has ended. `asked`: what some condition asks for.
    `agents`: those that may speak.
    """

    now: datetime
    live: tuple[LiveResource, ...]
    standings: tuple[BudgetStatus, ...]
    samples: Mapping[ResourceKey, SampleColumns]
    known: Mapping[ResourceKey, FirstSighting]
    protections: Mapping[ResourceKey, Sighted]
    wishes: tuple[Override, ...]
    climbs: tuple[EscalationState, ...]
    intents: tuple[Intent, ...]
    sent: tuple[Intent, ...]
    hooks: tuple[HookRun, ...]
    reactions: tuple[ConfirmedAct, ...]
    lags: Mapping[str, timedelta]
    balances: tuple[PrepaidBalance, ...]
    members: tuple[Observation, ...]
    agents: tuple[Agent, ...]
    asked: CostFacts
    gap_ended_at: datetime | None
    apart: timedelta | None
    breaker: Breaker | None
    held: tuple[tuple[str, str], ...]
