"""Hold: money is set aside for a run, or its refusal is recorded, so that the next guard run tells of it once."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from secrets import token_hex

from costguard.budgets.budget import Budget
from costguard.budgets.budget_status import Admission
from costguard.budgets.hold import Hold
from costguard.guard.alerts.denials import build_denial
from costguard.services.ports import Holds, Wishes


def take_hold(wanted: Hold, holds: Holds, wishes: Wishes, budgets: Iterable[Budget], now: datetime) -> Admission:
    """Take `wanted` if every one of `budgets` that it counts in has room; the one that decides says so."""
    admission = holds.take(wanted, budgets, now)
    wish = build_denial(wanted, admission, now, token_hex(8))
    if wish is not None:
        wishes.add_override(wish)
    return admission
