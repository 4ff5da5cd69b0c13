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
"""A second refusal of the same run within that time sends no second alert."""


def build_refusal_alert(name: str, *, owner: str, amount: Money, left: Money, at: datetime, who: str = "") -> Alert:
    """Build the alert of a refused run (`budget_cap`): 8.97 was wanted and 6.00 is left.

    `who`: who requested the run. It is sent once.
    """
    facts = (
        ("next", "runs that cost more than what is left are refused until the budget's next period or a higher cap"),
        *((("requested by", who),) if who else ()),
        ("why", "budget_cap"),
    )
    what = f"budget {name} refused a run: {format_alert_sum(amount)} requested, {format_alert_sum(left)} left"
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
    amount, left = admission.asked, admission.left
    value = f"{amount.nano} {left.nano} {amount.currency} {hold.owner}"
    until = now + DENIAL_TOLD_FOR
    return Override(
        id=wish_id, what=DENIED, who=hold.who, why=hold.why, at=now, until=until, subject=admission.budget, value=value
    )


def build_denial_alert(denial: Override) -> Alert | None:
    """Build the alert of a denial; None if `build_denial` did not write it."""
    amount, _, rest = denial.value.partition(" ")
    left, _, rest = rest.partition(" ")
    currency, _, owner = rest.partition(" ")
    if not (amount.isdecimal() and left.removeprefix("-").isdecimal()):
        return None
    money = Money(nano=int(amount), currency=currency)
    return build_refusal_alert(
        denial.subject, owner=owner, amount=money, left=Money(nano=int(left), currency=currency), who=denial.who, at=denial.at
    )
