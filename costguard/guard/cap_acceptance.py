"""Which hard caps may stop as many machines as they need: those that a person accepted, at prices that two listings agree on.

A cap of 1200 USD that was meant to be 12000 stops a fleet, and so does a price that is wrong for one poll. So a new or lowered
cap acts within the limits of all other acts (`[rails] acts`) until somebody reads the plan and accepts it, and an accepted one
does so while a price is in doubt. From then on `[rails] caps` holds: without such a key, as many acts as the cap needs.

Example: all is capped at 12000 USD and accepted. Raised to 15000 it stays accepted; lowered to 1200 it is not, and stops three
machines in ten minutes until `costguard plan --accept HASH`. More machines in the fleet change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from datetime import datetime

from costguard.budgets.budget import Budget, matches_filter
from costguard.guard.overrides import ACCEPT, Override, is_override_open
from costguard.metering.spending import LiveResource
from costguard.values.money import Money
from costguard.values.resource import ResourceKey

CAP_SUBJECT = "budget:"
"""Begins the subject of an acceptance of a cap; that of a plan is its hash. It is the name of the cap's policy."""


def name_cap_policy(budget: Budget) -> str:
    """Return the name of the policy of a hard budget."""
    return f"{CAP_SUBJECT}{budget.name}"


def describe_cap(budget: Budget) -> str:
    """Return what an acceptance of the cap covers: its amount, and everything else that decides what it stops."""
    scope = replace(budget, cap=Money(nano=1, currency=budget.cap.currency), warn=(), zone=None)  # type: ignore[arg-type]  # a text
    bounds = f" from {budget.start} until {budget.end}" if budget.start or budget.end else ""
    return f"{budget.cap.nano} {budget.zone} {scope!r}{bounds}"


def find_accepted_caps(budgets: Iterable[Budget], overrides: Iterable[Override], now: datetime) -> frozenset[str]:
    """Return the policies of the hard budgets that a person accepted, at this amount or a lower one, with the same scope."""
    newest: dict[str, Override] = {}
    for override in sorted(overrides, key=lambda one: one.at):
        if override.what == ACCEPT and override.subject.startswith(CAP_SUBJECT) and is_override_open(override, now):
            newest[override.subject] = override
    return frozenset(
        name
        for budget in budgets
        if budget.hard and (name := name_cap_policy(budget)) in newest and _covers(newest[name].value, budget)
    )


def explain_cap_cure(policies: Collection[str], *, accepted: Collection[str], doubted: Collection[str], plan_hash: str) -> str:
    """Explain what ends the delay of stops of hard caps: a command, a setting, or the next listing.

    `policies`: the policies of those caps. `doubted`: accepted ones whose prices are in doubt.
    """
    if any(name in doubted for name in policies):
        return "wait until the next listing confirms a price that rose more than threefold"
    if all(name in accepted for name in policies):
        return "raise [rails] caps"
    return f"costguard plan --accept {plan_hash[:12]} gives it limits of its own"


def list_cap_acceptances(
    budgets: Iterable[Budget], overrides: Iterable[Override], acceptance: Override, make_id: Callable[[], str]
) -> list[Override]:
    """Return the acceptance of each hard budget that has none yet, by whoever accepted the plan with `acceptance`."""
    hard = [budget for budget in budgets if budget.hard]
    accepted_caps = find_accepted_caps(hard, overrides, acceptance.at)
    return [
        replace(acceptance, id=make_id(), until=None, subject=name, value=describe_cap(budget))
        for budget in hard
        if (name := name_cap_policy(budget)) not in accepted_caps
    ]


def find_undoubted_caps(
    budgets: Iterable[Budget], accepted: frozenset[str], live: Iterable[LiveResource], raised: Collection[ResourceKey]
) -> frozenset[str]:
    """Return those of `accepted` that count no machine of `raised`, whose price one listing raised and none confirmed yet."""
    doubted = [one.observation.attribution for one in live if one.observation.key in raised]
    return accepted - {
        name_cap_policy(budget)
        for budget in budgets
        if any(matches_filter(budget.match, attribution) for attribution in doubted)
    }


def _covers(accepted: str, budget: Budget) -> bool:
    amount, _, scope = accepted.partition(" ")
    return amount.isdecimal() and int(amount) <= budget.cap.nano and scope == describe_cap(budget).partition(" ")[2]
