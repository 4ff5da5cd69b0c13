"""Alerts about watchdogs that share the accounts of one ledger: whose clock is wrong, which accounts are one.

a watchdog's clock is 2 h ahead of the ledger server's
the account runpod 1 and the account runpod 3 are the same account
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from costguard.guard.alerts.alert import PAGE, WARNING, Alert
from costguard.values.text_format import format_length


def build_clock_off_alert(holder: str, *, off: timedelta, at: datetime) -> Alert:
    """Build the warning that the clock of the watchdog `holder` is `off` from the server's, ahead if that is positive."""
    side = "ahead of" if off > timedelta() else "behind"
    facts = (
        ("watchdog", holder),
        ("next", "it polls, plans and records nothing; the other watchdogs poll its accounts"),
        ("fix", "set that machine's clock, and keep it with NTP (timedatectl set-ntp true)"),
    )
    length = format_length(timedelta(seconds=round(abs(off).total_seconds())))
    what = f"a watchdog's clock is {length} {side} the ledger server's"
    return Alert(topic=f"clock:{holder}", subject=holder, owner="", severity=WARNING, what=what, at=at, facts=facts)


def build_twin_accounts_alert(first: str, second: str, *, same: str, others: Sequence[str], at: datetime) -> Alert:
    """Build the page that two accounts of the settings are one, so that its costs are counted twice.

    `same`: what both list or are called. `others`: further accounts that are that one as well.
    """
    names = ", ".join((second, *others))
    facts = (
        ("both are", same),
        ("next", f"{names} is not polled any more, and nothing is stopped in it; what was counted twice stays in the ledger"),
        ("fix", "remove one of the two from the settings: its costs would be counted twice"),
    )
    what = f"{first} and {names} are the same account"
    return Alert(topic=f"twins:{first}", subject=first, owner="", severity=PAGE, what=what, at=at, facts=facts)
