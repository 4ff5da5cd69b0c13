"""Runs that were not admitted, as recorded and as told: the third hold of an agent is refused, and people hear of it once.

A refusal writes no hold. It is kept as a wish that nobody could grant, for an hour, which the next guard run tells of.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from costguard.budgets.budget_status import OVER_CAP, Admission
from costguard.budgets.hold import Hold
from costguard.guard.alerts.alarms import build_refusal_alert
from costguard.guard.alerts.alert import Alert
from costguard.guard.overrides import DENIED, Override
from costguard.values.money import Money

DENIAL_TOLD_FOR = timedelta(hours=1)
"""Whoever asks again within that time and is refused again is not told of again."""


def build_denial(hold: Hold, admission: Admission, now: datetime, wish_id: str) -> Override | None:
    """What to record of `admission`; None where `hold` was admitted, or refused for another reason than its money."""
    if admission.admitted or admission.reason != OVER_CAP or admission.left is None:
        return None
    asked, left = admission.asked, admission.left
    value = f"{asked.nano} {left.nano} {asked.currency} {hold.owner}"
    until = now + DENIAL_TOLD_FOR
    return Override(
        id=wish_id, what=DENIED, who=hold.who, why=hold.why, at=now, until=until, subject=admission.budget, value=value
    )


def build_denial_alert(wish: Override) -> Alert | None:
    """What is told of it; None where it was not written by `denial`."""
    wanted, _, rest = wish.value.partition(" ")
    left, _, rest = rest.partition(" ")
    currency, _, owner = rest.partition(" ")
    if not (wanted.isdecimal() and left.removeprefix("-").isdecimal()):
        return None
    money = Money(nano=int(wanted), currency=currency)
    return build_refusal_alert(
        wish.subject, owner=owner, wanted=money, left=Money(nano=int(left), currency=currency), who=wish.who, at=wish.at
    )
