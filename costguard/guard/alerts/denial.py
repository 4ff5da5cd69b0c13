"""The alert of a refused run, and the override that carries it from the refusal to the next guard run.

A refused run writes no hold. Its refusal is recorded as an override for an hour, and the next guard run alerts on it once.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from costguard.budgets.budget_status import OVER_CAP, Admission
from costguard.budgets.hold import Hold
from costguard.guard.alerts.alert import WARNING, Alert, format_alert_sum
from costguard.guard.overrides import DENIED, Override
from costguard.values.money import Money

DENIAL_TOLD_FOR = timedelta(hours=1)
"""Whoever asks again within that time and is refused again is not told of again."""


def build_refusal_alert(name: str, *, owner: str, wanted: Money, left: Money, at: datetime, who: str = "") -> Alert:
    """Build the alert of a refused run (`budget_cap`): 8.97 was wanted and 6.00 is left.

    `who`: who requested the run. It is sent once.
    """
    facts = (
        *((("who asked", who),) if who else ()),
        ("why", f"{format_alert_sum(wanted)} was requested, {format_alert_sum(left)} is left (budget_cap)"),
        ("next", "new runs are refused until the budget's next period or until its cap is raised"),
    )
    what = f"budget {name} refuses a run: {format_alert_sum(wanted)} is more than the {format_alert_sum(left)} left"
    return Alert(
        topic=f"denied:{name}",
        subject=f"budget {name}",
        owner=owner,
        severity=WARNING,
        what=what,
        at=at,
        facts=facts,
        once=True,
    )


def build_denial(hold: Hold, admission: Admission, now: datetime, wish_id: str) -> Override | None:
    """Return the override that records a refused hold; None if it was admitted, or refused for another reason than money."""
    if admission.admitted or admission.reason != OVER_CAP or admission.left is None:
        return None
    asked, left = admission.asked, admission.left
    value = f"{asked.nano} {left.nano} {asked.currency} {hold.owner}"
    until = now + DENIAL_TOLD_FOR
    return Override(
        id=wish_id, what=DENIED, who=hold.who, why=hold.why, at=now, until=until, subject=admission.budget, value=value
    )


def build_denial_alert(wish: Override) -> Alert | None:
    """Build the alert of a denial; None if `build_denial` did not write it."""
    wanted, _, rest = wish.value.partition(" ")
    left, _, rest = rest.partition(" ")
    currency, _, owner = rest.partition(" ")
    if not (wanted.isdecimal() and left.removeprefix("-").isdecimal()):
        return None
    money = Money(nano=int(wanted), currency=currency)
    return build_refusal_alert(
        wish.subject, owner=owner, wanted=money, left=Money(nano=int(left), currency=currency), who=wish.who, at=wish.at
    )
