"""Who polls what, where several watchdogs share the accounts of a ledger: for `costguard status`, `doctor` and the pages.

Example: db1 polled 334 accounts last and plans, db2 polled 333, nobody 1 in two intervals; of those of db2, aws 17 is overdue.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta

from costguard.ledger.db.codecs import Query
from costguard.ledger.duty_records import LEFT_BEHIND_AFTER, POLL, Duty, load_duties
from costguard.ledger.guard.guard_state import load_last_run, load_leader_lease
from costguard.reporting.status import WatchdogShare


def load_watchdog_shares(ask: Query, now: datetime) -> tuple[WatchdogShare, ...]:
    """Return the watchdogs that share the accounts, the one that plans first; empty where none do.

    `now`: by this machine's clock, which times the turn; polls are timed by the server's.
    """
    duties, at = load_duties(ask)
    if not duties:
        return ()
    turn, last = load_leader_lease(ask), load_last_run(ask)
    leader = turn.holder if turn and turn.is_held(now) else ""
    workers = {duty.account: duty for duty in duties if duty.kind != POLL and duty.is_held(at)}
    if leader and not workers:
        return ()  # a watchdog by itself polls every account, whatever others have left behind
    every = last.interval if last else timedelta()
    held_accounts, late = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    for duty in _list_present([duty for duty in duties if duty.kind == POLL], at):
        holder, name = duty.holder if duty.is_held(at) else "", duty.account.rpartition("/")[2]
        held_accounts[holder].append(name)
        if at - duty.due_at > every:
            late[holder].append(name)
    names = {*held_accounts, *workers, *filter(None, (leader,))} if held_accounts else set[str]()
    shares = [
        WatchdogShare(
            name=name,
            accounts=tuple(held_accounts[name]),
            overdue=tuple(late[name]),
            plans=bool(name) and name == leader,
            clock_off=workers[name].clock_off if name in workers else timedelta(),
        )
        for name in names
    ]
    return tuple(sorted(shares, key=lambda one: (not one.name, not one.plans, one.name)))


def _list_present(duties: Sequence[Duty], at: datetime) -> list[Duty]:
    """Return the duties of the settings that watchdogs have; if none holds any, of those that were used last."""
    groups = {duty.account.rpartition("/")[0] for duty in duties if duty.is_held(at)}
    newest = max(duties, key=lambda duty: max(duty.due_at, duty.until), default=None)
    if not groups and newest is not None and at - max(newest.due_at, newest.until) < LEFT_BEHIND_AFTER:
        groups = {newest.account.rpartition("/")[0]}
    return [duty for duty in duties if duty.account.rpartition("/")[0] in groups]
