"""Notices about more than one machine: budgets, balances, rails, providers and the ledger itself."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, tzinfo

from costguard.guard.alerts.alert import PAGE, WARNING, Alert
from costguard.guard.alerts.wording import format_alert_rate, format_alert_sum
from costguard.guard.policy import Rails
from costguard.values.money import Money, Rate, divide_half_even
from costguard.values.resource import ScopeKey
from costguard.values.text_format import format_length, format_local_time, format_scope

NAMES_SHOWN = 10
"""Machines, scopes or budgets that one line names; the rest is counted."""
SECOND = timedelta(seconds=1)
GAP_MINUTES_MAX = 60
"""Minutes between two runs, the most that the settings take."""


def build_budget_alert(
    name: str, *, owner: str, says: Sequence[str], spent: Money, cap: Money, rate: Rate | None, at: datetime
) -> Alert:
    """A budget goes faster than it should. `says`: the sentences of its concerns."""
    facts = (
        ("why", "; ".join(says)),
        ("so far", f"{format_alert_sum(spent)} of {format_alert_sum(cap)}"),
        ("per hour", format_alert_rate(rate)),
        ("next", "nothing is stopped by this warning"),
    )
    what = f"budget {name}: {format_alert_sum(spent)} of {format_alert_sum(cap)} spent"
    return Alert(topic=f"budget:{name}", subject=f"budget {name}", owner=owner, severity=WARNING, what=what, at=at, facts=facts)


def build_hard_cap_alert(
    name: str,
    *,
    owner: str,
    spent: Money,
    cap: Money,
    rate: Rate,
    reaction: timedelta,
    stops: Sequence[str],
    at: datetime,
    asked: Sequence[str] = (),
    short: str = "",
) -> Alert:
    """A hard cap is about to be reached, and `stops` are stopped for it. A page.

    `asked`: about these people are asked, as a stop would lose data or there is none. `short`: why the rails are too narrow.

    Example: $482.10 of $500.00 at $98.32 an hour; stopping takes 600 s, which costs $16.39: it must start at $483.61.
    """
    nothing = "nothing can be stopped: all of it is protected or not armed"
    goes = f"stopped for it: {join_names(stops)}" if stops else "" if asked else nothing
    then = "; ".join(one for one in (goes, f"asked about: {join_names(asked)}" if asked else "", short) if one)
    needed = rate.multiply_seconds(int(reaction.total_seconds()))
    facts = (
        ("so far", f"{format_alert_sum(spent)} of {format_alert_sum(cap)}"),
        ("per hour", format_alert_rate(rate)),
        (
            "why",
            f"to stop takes {format_length(reaction)}, which costs {format_alert_sum(needed)}: it starts at {format_alert_sum(cap - needed)}",
        ),
        ("next", then),
    )
    what = f"hard cap of budget {name}: {format_alert_sum(spent)} of {format_alert_sum(cap)} spent"
    return Alert(
        topic=f"budget:{name}", subject=f"budget {name}", owner=owner, severity=PAGE, what=what, at=at, facts=facts, stage=1
    )


def build_refusal_alert(name: str, *, owner: str, wanted: Money, left: Money, at: datetime, who: str = "") -> Alert:
    """A run was not admitted (`budget_cap`): 8.97 was wanted and 6.00 is left. `who` asked for it. Told once."""
    facts = (
        *((("who asked", who),) if who else ()),
        ("why", f"{format_alert_sum(wanted)} was asked for and {format_alert_sum(left)} is left (budget_cap)"),
        ("next", "more is refused until the budget's next period, or a higher cap"),
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


def build_runway_alert(
    account: str, *, owner: str, balance: Money, rate: Rate, losing: Sequence[str], at: datetime, zone: tzinfo = UTC
) -> Alert:
    """A prepaid balance ends soon. $41.20 at $11.96 an hour: 3.44 h. `losing`: machines that lose data at zero."""
    hundredths = divide_half_even(max(balance.nano, 0) * 100, rate.nano_per_hour)
    left = f"{hundredths // 100}.{hundredths % 100:02d} h"
    ends = at + SECOND * (max(balance.nano, 0) * 3600 // rate.nano_per_hour)
    facts = (
        ("so far", f"{format_alert_sum(balance)} is left"),
        ("per hour", format_alert_rate(rate)),
        ("next", f"at zero, about {format_local_time(ends, zone)}, its machines are taken down"),
        ("would be lost", f"data on {join_names(losing)}" if losing else "nothing that is known"),
    )
    what = f"the balance of {account} lasts {left}"
    return Alert(topic="runway", subject=account, owner=owner, severity=WARNING, what=what, at=at, facts=facts)


def build_breaker_alert(
    *, turned: int, fleet: int, within: timedelta, share: str, until: datetime, at: datetime, zone: tzinfo = UTC
) -> Alert:
    """Too many turned idle or unknown at once: idle acts freeze. `share`: what they have in common. One page."""
    facts = (
        ("since", format_local_time(at, zone)),
        (
            "why",
            f"{turned} of {fleet} turned idle or unknown within {format_length(within)}; in common: {share or 'nothing found'}",
        ),
        ("next", f"no idle act before {format_local_time(until, zone)}, or until somebody closes it"),
    )
    return Alert(
        topic="rail:breaker",
        subject="the fleet",
        owner="",
        severity=PAGE,
        what=f"idle acts are frozen: {turned} of {fleet} machines turned idle or unknown at once",
        at=at,
        facts=facts,
    )


def build_gap_alert(*, apart: timedelta, interval: timedelta, rails: Rails, at: datetime) -> Alert:
    """Run after run comes after a gap, and each only observes: nothing is ever done.

    Example: `*/5 * * * * costguard watch --once` with the usual interval of 60 s, which makes three minutes a gap.
    """
    minutes = -(-apart // timedelta(minutes=1))
    stated = f'write [watch] interval = "{minutes}m" where a timer runs it that often'
    facts = (
        ("why", f"a run that comes more than {rails.gap_polls} intervals after the one before it only observes"),
        (
            "next",
            f"{stated}, or let it run every {format_length(interval)}"
            if minutes <= GAP_MINUTES_MAX
            else "let it run more often",
        ),
    )
    what = f"nothing is ever done: runs come {format_length(apart)} apart, and one every {format_length(interval)} is expected"
    return Alert(topic="rail:gap", subject="the watch", owner="", severity=WARNING, what=what, at=at, facts=facts)


def build_inventory_drop_alert(scope: ScopeKey, *, gone: int, of: int, at: datetime, zone: tzinfo = UTC) -> Alert:
    """More than half of a scope vanished from one listing: believed only one by one."""
    facts = (
        ("since", format_local_time(at, zone)),
        ("why", "one listing lacks them; a wrong key or a broken page looks the same"),
        ("next", "each is looked up by itself before it counts as gone; it counts as running until then"),
    )
    subject = format_scope(scope)
    what = f"{gone} of {of} machines of {subject} vanished at once"
    return Alert(topic="rail:inventory", subject=subject, owner="", severity=PAGE, what=what, at=at, facts=facts)


def build_ledger_unwritable_alert(*, why: str, at: datetime, since: datetime, zone: tzinfo = UTC) -> Alert:
    """Nothing can be written, so nothing is done. A page, for a channel that needs no disk."""
    facts = (
        ("since", format_local_time(since, zone)),
        ("why", why),
        ("next", "it only observes until the ledger can be written again: no stop, no hard cap"),
    )
    return Alert(
        topic="rail:ledger",
        subject="the ledger",
        owner="",
        severity=PAGE,
        what="the ledger cannot be written",
        at=at,
        facts=facts,
    )


def build_older_ledger_alert(*, why: str, at: datetime) -> Alert:
    """Somebody put an older ledger back, or another one in its place. A page: what people wished since then is not in it."""
    facts = (
        ("why", why),
        ("next", "it only observes, until somebody says that this ledger is meant: costguard audit adopt --why ..."),
    )
    what = "the ledger is not the one that was seen last: nothing is done"
    return Alert(topic="rail:ledger", subject="the ledger", owner="", severity=PAGE, what=what, at=at, facts=facts)


def build_provider_down_alert(
    provider: str, *, scopes: Sequence[ScopeKey], why: str, since: datetime, rate: Rate | None, at: datetime, zone: tzinfo = UTC
) -> Alert:
    """A provider cannot be asked: one notice for all of its scopes."""
    facts = (
        ("since", f"{format_local_time(since, zone)} ({format_length(at - since)})"),
        ("why", why),
        ("scopes", join_names([format_scope(scope) for scope in scopes])),
        ("per hour", f"{format_alert_rate(rate)} as last seen, and counted on" if rate else format_alert_rate(rate)),
        ("next", "nothing there is stopped before it is seen again"),
    )
    what = f"{provider} cannot be asked ({len(scopes)} {'scope' if len(scopes) == 1 else 'scopes'})"
    return Alert(topic="provider", subject=provider, owner="", severity=WARNING, what=what, at=at, facts=facts)


def join_names(names: Sequence[str]) -> str:
    """`a, b, c and 4 more`."""
    shown, more = ", ".join(names[:NAMES_SHOWN]), len(names) - NAMES_SHOWN
    return shown if more <= 0 else f"{shown} and {more} more"
