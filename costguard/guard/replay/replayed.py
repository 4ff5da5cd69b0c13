"""What a replay found of one resource: acts that were wanted, acts that were held back, and when nothing could be said."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from costguard.guard.action_plan import PolicyCase
from costguard.guard.verdict import Proposal

WORKED, STOPPED_ITSELF, ENDED_ITSELF, PERIOD_END = "worked", "stopped", "ended", "period_end"
REST_ENDINGS = {
    WORKED: "it worked again",
    STOPPED_ITSELF: "it was really stopped, or started anew",
    ENDED_ITSELF: "it really ended",
    PERIOD_END: "the replay ends there",
}
"""Why a machine counts as stopped by the replay no longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedAct:
    """An act that a policy wants at `at`. `until`, `because`: how long it would have rested (see BECAUSE).

    `told_at`: when the first notice of its ladder went out. `worked_at`: when it worked again, None: it did not, as far as is
    known; `known`: its samples say whether it worked within the hour. `ended_at`: when a later step ended it for good.
    """

    at: datetime
    case: PolicyCase
    proposal: Proposal
    until: datetime
    because: str
    told_at: datetime | None = None
    worked_at: datetime | None = None
    known: bool = True
    ended_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldAct:
    """An act that was due from `since` to `until`, and that something else than its grace held back: (reason, sentence)."""

    case: PolicyCase
    proposal: Proposal
    since: datetime
    until: datetime
    reasons: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityTurn:
    """It turned idle or unknown at `since`, was seen to be that from `seen` to `until`, and was neither before."""

    since: datetime
    seen: datetime
    until: datetime


@dataclass(slots=True, kw_only=True)
class ReplayResult:
    """What came of one resource, which grows while it is replayed. `notices`, `questions`: how many, by policy.

    `blind`: (policy, reason) and for how long it could not be judged for that reason. `runs`: how often the guard looked.
    """

    wanted: list[WantedAct] = field(default_factory=list)
    held: list[HeldAct] = field(default_factory=list)
    turned: list[ActivityTurn] = field(default_factory=list)
    notices: dict[str, int] = field(default_factory=dict)
    questions: dict[str, int] = field(default_factory=dict)
    blind: dict[tuple[str, str], timedelta] = field(default_factory=dict)
    runs: int = 0
