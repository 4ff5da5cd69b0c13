"""What people are told of bills that differ from the charges: each drift once, until it has been within tolerance again."""

from __future__ import annotations

from collections.abc import Sequence

from costguard.bills.drift import BEYOND, DriftResult, ReconciliationRecord
from costguard.errors import shorten, to_one_line
from costguard.guard.alerts.alert import WARNING, Alert
from costguard.values.money import Money
from costguard.values.text_format import get_currency_sign

MOST_CAUSES = 3


def format_drift_subject(result: DriftResult) -> str:
    """What a notice is about: `bill runpod/default USD 2026-11-01`."""
    return f"bill {result.provider}/{to_one_line(result.account)} {result.currency} {result.period.start:%Y-%m-%d}"


def is_already_notified(result: DriftResult, before: Sequence[ReconciliationRecord]) -> bool:
    """Whether people know of it: the last time this bill was held, it was beyond tolerance too, and they were told."""
    key = (result.provider, result.account, result.currency, result.period)
    return any(
        (one.provider, one.account, one.currency, one.period) == key and one.outcome == BEYOND and one.told for one in before
    )


def build_drift_alert(result: DriftResult) -> Alert:
    """The notice of a bill beyond tolerance, with what it comes from."""
    mark = get_currency_sign(result.currency)

    def money(nano: int) -> str:
        return f"{mark}{Money(nano=nano, currency=result.currency).format()}"

    whose = f"{result.provider}/{shorten(to_one_line(result.account), 60)}"
    causes = [part for part in result.parts if not part.explained][:MOST_CAUSES]
    return Alert(
        topic=f"bill:{result.provider}",
        subject=format_drift_subject(result),
        owner="",
        severity=WARNING,
        what=f"the bill of {whose} differs from the charges by {money(abs(result.drift))}",
        at=result.at,
        facts=(
            ("billed", money(result.billed)),
            ("charged", f"{money(result.charged[1])} ({money(result.charged[0])} to {money(result.charged[2])})"),
            ("unexplained", f"{money(result.unexplained)}, allowed {money(result.allowed)}"),
            *((part.cause, to_one_line(part.reason)) for part in causes),
            ("next", "costguard reconcile shows it by day, resource and cause"),
        ),
        once=True,
    )
