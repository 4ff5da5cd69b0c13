"""Alerts about the watchdog itself: gaps between its runs, its ledger, its clock, its HTTP server, accounts that are one.

clock of a watchdog is 2 h ahead of the ledger server's clock
the account runpod 1 and the account runpod 3 are the same account
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta, tzinfo

from costguard.guard.alerts.alert import PAGE, WARNING, Alert, compute_rate_cost, format_alert_rate, format_alert_sum
from costguard.guard.policy import Rails
from costguard.guard.policy_evaluation import compute_burn_rate
from costguard.metering.inventory import OTHER_ACCOUNT
from costguard.metering.spending import LiveResource, ScopeCoverage
from costguard.values.money import Rate
from costguard.values.resource import INSTANCE, RUNNING
from costguard.values.text_format import format_length, format_near_time

RESTARTS_WITHIN = timedelta(hours=2)
GAP_MINUTES_MAX = 60
"""Minutes between two runs, the most that the settings take."""


def build_clock_off_alert(holder: str, *, off: timedelta, at: datetime) -> Alert:
    """Build the warning that the clock of the watchdog `holder` is `off` from the server's, ahead if that is positive."""
    side = "ahead of" if off > timedelta() else "behind"
    facts = (
        ("watchdog", holder),
        ("next", "this watchdog polls, plans and records nothing; the other watchdogs poll its accounts"),
        ("fix", "set that machine's clock, and keep it with NTP (timedatectl set-ntp true)"),
    )
    length = format_length(timedelta(seconds=round(abs(off).total_seconds())))
    what = f"clock of a watchdog is {length} {side} the ledger server's clock"
    return Alert(topic=f"clock:{holder}", subject=holder, severity=WARNING, what=what, at=at, facts=facts)


def build_twin_accounts_alert(first: str, second: str, *, same: str, others: Sequence[str], at: datetime) -> Alert:
    """Build the page that two accounts of the settings are one, so that its costs are counted twice.

    `same`: what both list or are called. `others`: further accounts that are that one as well.
    """
    names = ", ".join((second, *others))
    facts = (
        ("both are", same),
        ("next", f"{names} is no longer polled, and nothing in it is stopped; costs counted twice so far stay in the ledger"),
        ("fix", "remove one of the two from the settings"),
    )
    what = f"{first} and {names} are the same account"
    return Alert(topic=f"twins:{first}", subject=first, severity=PAGE, what=what, at=at, facts=facts)


def build_other_account_alert(coverage: ScopeCoverage, *, rate: Rate | None, at: datetime, zone: tzinfo = UTC) -> Alert:
    """Build the page that the key of an account is of another one, or the warning that its listing may be.

    `rate`: what the machines of the account cost an hour, as last listed.
    """
    account, is_certain = "/".join(coverage.scope[:2]), coverage.why.startswith(OTHER_ACCOUNT)
    certain = "it is not polled, nothing of it is recorded or stopped, and what was listed before counts as last seen"
    doubted = "what was listed before counts as running until three listings agree; is the key that of the account?"
    facts = (
        ("per hour", format_alert_rate(rate)),
        ("since", format_near_time(coverage.since, at, zone)),
        ("why", coverage.why),
        ("next", certain if is_certain else doubted),
    )
    what = f"the key of {account} is of another account" if is_certain else f"all resources of {account} were replaced at once"
    severity = PAGE if is_certain else WARNING
    return Alert(topic=f"account:{account}", subject=account, severity=severity, what=what, at=at, facts=facts)


def build_gap_alert(*, apart: timedelta, interval: timedelta, rails: Rails, at: datetime) -> Alert:
    """Build the alert that every run comes after a gap and only observes, so that nothing is ever stopped.

    Example: `*/5 * * * * costguard watch --once` with the default interval of 60 s, which makes three minutes a gap.
    """
    minutes = -(-apart // timedelta(minutes=1))
    advice = f'write [watch] interval = "{minutes}m" where a timer runs it that often'
    facts = (
        ("why", f"a run that comes more than {rails.gap_polls} intervals after the one before it only observes"),
        (
            "next",
            f"{advice}, or let it run every {format_length(interval)}"
            if minutes <= GAP_MINUTES_MAX
            else "let it run more often",
        ),
    )
    remedy = f'set interval = "{minutes}m"' if minutes <= GAP_MINUTES_MAX else f"run it every {format_length(interval)}"
    what = f"observing only: runs are {format_length(apart)} apart; {remedy}"
    return Alert(topic="rail:gap", subject="the watch", severity=WARNING, what=what, at=at, facts=facts)


def list_restart_alerts(breaks: Sequence[datetime], least: int, at: datetime) -> Iterator[Alert]:
    """Yield the alert of a watchdog that starts, or is suspended, `least` times in a while, so that it hardly acts."""
    if len(breaks) >= least and at - breaks[-least] <= RESTARTS_WITHIN:
        facts = (
            ("since", format_near_time(breaks[-least], at)),
            ("next", "the first run after a start or a gap only observes: acts, those of hard caps too, come late or never"),
            ("why", "its process ends or is suspended again and again: read its log (journalctl -u costguard)"),
        )
        what = f"the watchdog was restarted or suspended {least} times within {format_length(RESTARTS_WITHIN)}"
        yield Alert(topic="rail:restarts", subject="the watch", severity=WARNING, what=what, at=at, facts=facts)


def build_unwatched_alert(live: Sequence[LiveResource], *, since: datetime, at: datetime, zone: tzinfo = UTC) -> Alert:
    """Build the alert that no guard run took place since `since`: how many machines run, and their known cost meanwhile."""
    running = [one for one in live if one.observation.kind == INSTANCE and one.observation.state == RUNNING]
    rates = [rate for one in running if (rate := compute_burn_rate(one, at)) is not None and rate.currency == "USD"]
    nano = sum(rate.nano_per_hour for rate in rates)
    cost = compute_rate_cost(Rate(nano_per_hour=nano, currency="USD") if nano else None, at - since)
    more = f", and {len(running) - len(rates)} without a known price" if len(running) > len(rates) else ""
    facts = (
        ("so far", (f"about {format_alert_sum(cost)}" if cost else "nothing known") + more),
        ("next", "this run only observes, and the next one decides as usual"),
        ("why", "the watchdog was stopped, suspended or cut off from its ledger"),
    )
    count = "1 machine runs" if len(running) == 1 else f"{len(running)} machines run"
    what = f"no guard run from {format_near_time(since, at, zone)} to {format_near_time(at, at, zone)}; {count}"
    return Alert(topic="rail:unwatched", subject="the watch", severity=WARNING, what=what, at=at, facts=facts, once=True)


def build_ledger_unwritable_alert(*, why: str, at: datetime, since: datetime, zone: tzinfo = UTC) -> Alert:
    """Build the page that the ledger cannot be written, so no act is done. For a channel that needs no disk."""
    facts = (
        ("since", format_near_time(since, at, zone)),
        ("why", why),
        ("next", "observing only until the ledger can be written again: no stops, no hard caps"),
    )
    return Alert(
        topic="rail:ledger", subject="the ledger", severity=PAGE, what="the ledger cannot be written", at=at, facts=facts
    )


def build_older_ledger_alert(*, why: str, at: datetime) -> Alert:
    """Build the page that the ledger was replaced by an older or another one, which lacks the overrides made since."""
    facts = (("why", why), ("next", "observing only until the ledger is confirmed: costguard audit adopt --why ..."))
    what = "the ledger is not the one used last: no acts"
    return Alert(topic="rail:ledger", subject="the ledger", severity=PAGE, what=what, at=at, facts=facts)


def build_door_alert(*, why: str, at: datetime) -> Alert:
    """Build the warning that the process that answers agents and readers keeps failing; the guard goes on without it."""
    facts = (
        ("why", why),
        ("next", "it is started again at least once a minute; polls, policies and acts go on, and agents keep their records"),
    )
    what = "the HTTP server keeps failing: agents and readers are not answered"
    return Alert(topic="door", subject="the HTTP server", severity=WARNING, what=what, at=at, facts=facts)
