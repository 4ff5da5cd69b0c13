"""What `costguard doctor` finds: one check, what came of it, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass

from costguard.values.checks import require_one_of

CHECK_GOOD, CHECK_BAD, CHECK_UNSURE, CHECK_SKIPPED = "good", "bad", "unsure", "skipped"
CHECK_OUTCOMES = (CHECK_GOOD, CHECK_BAD, CHECK_UNSURE, CHECK_SKIPPED)
"""unsure: it could not be proven without acting, or it limits what costguard can tell; skipped: something before it failed."""

CREDENTIALS_CHECK, REACHABLE_CHECK, IDENTITY_CHECK, PERMISSION_CHECK, CLOCK_CHECK, UTILIZATION_CHECK = (
    "credentials",
    "reachable",
    "identity",
    "permission",
    "clock",
    "utilization",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthCheck:
    """One thing that was looked at.

    `subject`: one of the words above, with what of it ("permission: list pods"). `told`: what was found, in words, without a
    secret. `fix`: the exact command or setting that mends it, "" where nothing needs mending.
    """

    subject: str
    outcome: str
    told: str
    fix: str = ""

    def __post_init__(self) -> None:
        require_one_of(self.outcome, CHECK_OUTCOMES, f"check {self.subject}")
