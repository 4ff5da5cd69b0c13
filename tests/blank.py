"""What a guard run would know of nothing but what a test states: each field that it leaves out is empty."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from costguard.guard.action_plan import PolicyCase
from costguard.guard.context import GuardSnapshot
from costguard.guard.evaluation import GuardEvaluation
from costguard.guard.policy import Proposal
from costguard.guard.policy_evaluation import NO_COST_FACTS
from costguard.metering.spending import LiveResource
from costguard.services.guarding.guard_inputs import PollResults


def blank_sight(now: datetime, live: tuple[LiveResource, ...], **known: Any) -> GuardSnapshot:  # noqa: ANN401 - any field
    """A snapshot of `live` alone."""
    empty: dict[str, Any] = dict.fromkeys(
        (
            "standings",
            "wishes",
            "climbs",
            "intents",
            "sent",
            "hooks",
            "reactions",
            "balances",
            "members",
            "agents",
            "held",
            "started",
        ),
        (),
    )
    empty |= {"samples": {}, "known": {}, "protections": {}, "lags": {}, "asked": NO_COST_FACTS}
    empty |= {
        "gap_ended_at": None,
        "apart": None,
        "gap_began_at": None,
        "breaker": None,
        "deliveries": {},
        "start_histories": {},
        "restarts": (),
        "raised": frozenset(),
        "last_run_at": None,
        "ready_since": {},
    }
    return GuardSnapshot(now=now, live=live, **{**empty, **known})


def blank_latest(**told: Any) -> PollResults:  # noqa: ANN401 - any field
    """What listings that held nothing told."""
    empty: dict[str, Any] = {
        "handling": {},
        "sources": {},
        "balances": (),
        "members": (),
        "lags": {},
        "measures": (),
        "agents": (),
    }
    return PollResults(**{**empty, **told})


def blank_evaluation(at: datetime, cases: Sequence[PolicyCase], proposals: Sequence[Proposal], fleet: int) -> GuardEvaluation:
    """An evaluation that consists of `cases` and what is proposed for them."""
    return GuardEvaluation(
        at=at,
        works={},
        cases=tuple(cases),
        proposals=tuple(proposals),
        climbs=(),
        sighted=(),
        foresights=(),
        breaker=None,
        quarantine={},
        fleet=fleet,
    )
