"""Verdicts and the plan: what each policy finds of each resource, what would be done and when, and what holds it back."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from costguard.guard.condition import ConditionResult
from costguard.guard.policy import Policy, PolicyStep
from costguard.guard.work import Activity
from costguard.values.incarnation import Incarnation

HOLDS, NOT_YET, DOES_NOT, CANNOT_SAY = "holds", "not_yet", "does_not", "cannot_say"
FINDINGS = {
    HOLDS: "the condition holds, and has held for long enough",
    NOT_YET: "the condition holds, and not for long enough yet",
    DOES_NOT: "the condition does not hold",
    CANNOT_SAY: "a fact is missing, so nothing can be said",
}

HOLD_REASONS = {
    "protected": "it is protected",
    "leased": "somebody keeps it",
    "frozen": "all acts are frozen",
    "not_armed": "its policy is not armed for that",
    "grace": "its grace has not run out",
    "hook": "a hook has not ended, or went wrong",
    "working": "it works, whatever its condition says",
    "not_confident": "the evidence is not fresh and whole",
    "unknown": "its state of work is not known",
    "controller": "a controller would bring it back",
    "no_act": "its provider has no such act for it",
    "irreversible": "data would be lost, and nobody allowed that",
    "first_seen": "it was seen for too short a time",
    "not_ours": "nobody owns it and nobody claims its scope",
    "rate": "the rails allow no more acts now",
    "breaker": "too many turned idle or unknown at once",
    "quarantine": "its scope lost too many machines at once",
    "clock": "the clocks disagree",
    "gap": "the first run after a start or a gap only observes",
    "ledger": "the ledger cannot be written",
    "older_ledger": "the ledger is not the one that was seen last",
    "in_doubt": "an earlier act on it is not settled",
    "stale": "it was not seen lately",
    "dry_run": "this is a dry run",
    "not_acting": "another watchdog acts on this ledger",
    "not_accepted": "the first run of this config would act beyond the rails",
    "asked": "it was asked about, and nobody answered yet",
    "phase": "a declared phase of work goes on",
    "provider_protection": "its provider protects it",
}
"""What may hold an act back, by its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What `policy` finds of one life of a resource at `at`. `since`: since when the condition holds, None: it does not."""

    policy: Policy
    life: Incarnation
    at: datetime
    finding: str
    truth: ConditionResult
    work: Activity
    since: datetime | None = None
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EscalationState:
    """How far one life of a resource has come on a policy's ladder. Recorded, so that a grace is a grace after a restart.

    `since`: from when on the condition has held. `started_at`: when the first step was done: `after` counts from here.
    `done`: the numbers of the steps that were done, from 0. `left_polls`: guard runs in a row in which the condition did not
    hold (two of them end the climb).
    """

    policy: str
    life: Incarnation
    since: datetime
    started_at: datetime
    done: tuple[int, ...] = ()
    left_polls: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """One step that is due, or will be at `due_at`, on one resource. `held_by`: names of REASONS with a sentence each.

    `number`: of the step in its ladder. An act goes ahead when it is due and nothing holds it.
    """

    verdict: Verdict
    number: int
    step: PolicyStep
    due_at: datetime
    held_by: tuple[tuple[str, str], ...] = ()

    def is_ready(self, now: datetime) -> bool:
        """Whether it may be done at `now`."""
        return self.due_at <= now and not self.held_by
