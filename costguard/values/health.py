"""What `costguard doctor` finds: one check, what came of it, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass

from costguard.values.checks import one_of

GOOD, BAD, UNSURE, SKIPPED = "good", "bad", "unsure", "skipped"
OUTCOMES = (GOOD, BAD, UNSURE, SKIPPED)
"""unsure: it could not be proven without acting, or it limits what costguard can tell; skipped: something before it failed."""

CREDENTIALS, REACHABLE, IDENTITY, PERMISSION, CLOCK, UTILIZATION = (
    "credentials",
    "reachable",
    "identity",
    "permission",
    "clock",
    "utilization",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at.

    `subject`: one of the words above, with what of it ("permission: list pods"). `told`: what was found, in words, without a
    secret. `fix`: the exact command or setting that mends it, "" where nothing needs mending.
    """

    subject: str
    outcome: str
    told: str
    fix: str = ""

    def __post_init__(self) -> None:
        one_of(self.outcome, OUTCOMES, f"check {self.subject}")
