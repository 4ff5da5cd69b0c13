"""Watchdogs that share the accounts, as `costguard status`, `doctor` and the pages show them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

from costguard.reporting.status import WatchdogShare
from costguard.values.text_format import format_length, limit_lines


def build_share_data(one: WatchdogShare) -> dict[str, object]:
    """Return one watchdog as JSON. `name` null: the accounts that nobody polls."""
    return {
        "name": one.name or None,
        "accounts": len(one.accounts),
        "plans": one.plans,
        "held": list(one.accounts),
        "overdue": list(one.overdue),
        "clock_off_seconds": one.clock_off.total_seconds(),
    }


def format_shares(shares: Sequence[WatchdogShare]) -> str:
    """Return who polls what as one sentence: `334 polled by db1, which plans, 2 polled by no watchdog`."""
    return ", ".join(map(_format_share, shares))


def list_share_warnings(shares: Sequence[WatchdogShare]) -> Iterator[str]:
    """Yield a sentence for each thing that is wrong: clocks, accounts that were not polled for two intervals, nobody plans."""
    for one in shares:
        if one.clock_off:
            side = "ahead of" if one.clock_off > timedelta() else "behind"
            off = f"{format_length(timedelta(seconds=round(abs(one.clock_off).total_seconds())))} {side} the ledger server's"
            yield f"the clock of the watchdog {one.name} is {off}: it does not poll"
        if one.overdue:
            names = ", ".join(limit_lines(one.overdue, "accounts"))
            yield f"not polled for two intervals by {one.name or 'anybody'}: {names}"
    if shares and not any(one.plans for one in shares):
        yield "no watchdog plans and acts: the last lease expired or was released"


def _format_share(one: WatchdogShare) -> str:
    accounts = f"{len(one.accounts)} polled by {one.name or 'no watchdog'}"
    return f"{accounts}{', which plans' if one.plans else ''}"
