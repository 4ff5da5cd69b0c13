"""Alerts about more than one machine: budgets, limits, accounts, balances, controllers, providers, the ledger."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta, tzinfo

from costguard.budgets.budget_status import BudgetStatus, list_budget_warnings
from costguard.budgets.runway import compute_runway
from costguard.guard.alerts import alert
from costguard.guard.alerts.alert import PAGE, WARNING, Alert, format_alert_rate, format_alert_sum
from costguard.guard.alerts.denial import build_denial_alert
from costguard.guard.alerts.rates import describe_hourly_cost
from costguard.guard.alerts.watchdog import (
    build_gap_alert,
    build_older_ledger_alert,
    build_other_account_alert,
    build_unwatched_alert,
)
from costguard.guard.cap_acceptance import explain_cap_cure, name_cap_policy
from costguard.guard.cap_forecast import CapCandidate, CapForecast
from costguard.guard.context import GuardConfig, GuardSnapshot
from costguard.guard.evaluation import GuardEvaluation
from costguard.guard.limits import HOUR, Breaker, find_churning_controllers
from costguard.guard.overrides import DENIED, find_owner, is_override_open
from costguard.guard.policy import Rails
from costguard.guard.policy_evaluation import compute_burn_rate
from costguard.metering.inventory import OTHER_ACCOUNT, SHARES_NOTHING
from costguard.metering.spending import LiveResource, ScopeCoverage
from costguard.values.instant import HOUR_US, MICROSECOND
from costguard.values.money import Money, Rate, divide_half_even
from costguard.values.resource import ENDED, INSTANCE, RUNNING, ScopeKey
from costguard.values.text_format import format_gpus, format_length, format_near_time, format_scope, is_wide

PROVIDER_DOWN_AFTER = timedelta(minutes=15)
URL_PATTERN = re.compile(r"https?://\S+")
"""An address may have "token" in its path, as Google's has: that it cannot be reached says nothing about a key."""
CREDENTIALS_PATTERN = re.compile(r"\b401\b|\bkey\b|credential|\btoken\b", re.IGNORECASE)
"""How adapters word a `CredentialsError`: no outage, so nobody waits for it to end by itself."""
NEW_MACHINE_POLLS, NEW_MACHINE_TOLD_FOR = 2, timedelta(hours=1)
"""Listings that must have a new machine before people are told of it, and for how long it counts as new."""


def list_fleet_alerts(
    survey: GuardEvaluation, rules: GuardConfig, snapshot: GuardSnapshot, scopes: Iterable[ScopeCoverage]
) -> Iterator[Alert]:
    """List all fleet alerts at `survey.at`."""
    yield from _list_budget_alerts(survey, snapshot)
    yield from _list_rail_alerts(survey, rules, snapshot)
    yield from _list_scope_alerts(scopes, rules, snapshot)
    yield from _list_new_machine_alerts(scopes, rules, snapshot)
    yield from _list_balance_alerts(rules, snapshot)
    yield from _list_churn_alerts(rules, snapshot)
    yield from _list_denial_alerts(snapshot)


def explain_cap(cap: CapForecast, now: datetime, zone: tzinfo) -> tuple[str, ...]:
    """Explain why a hard cap acts: the spend, its rate, how long a stop takes, and when the cap would be reached.

    Example: $484.00 of $500.00 at $98.32 an hour: 16.00 / 98.32 h, so it is reached in 9 min 45 s.
    """
    standing, burn = cap.standing, cap.standing.burn.expected
    limit, spent = standing.budget.cap, standing.spent.low
    if standing.budget.is_rate:
        what = f"at least {alert.format_alert_sum(spent)} an hour runs under budget {standing.budget.name}"
        return (
            f"{what}, which allows {alert.format_alert_sum(limit)}",
            f"a stop is confirmed after {format_length(cap.reaction)}",
        )
    of = f"{alert.format_alert_sum(limit)} of budget {standing.budget.name}"
    reasons = [f"at least {alert.format_alert_sum(spent)} of {of} is spent"]
    if burn.nano:
        rate, left = Rate(nano_per_hour=burn.nano, currency=burn.currency), max(0, (limit - spent).nano)
        at = now + MICROSECOND * (left * HOUR_US // burn.nano)
        reached = f"reached about {format_near_time(at, now, zone)}" if left else "reached"
        reasons.append(f"at {alert.format_alert_rate(rate)} an hour the cap is {reached}")
    needed = f", so stopping starts at {alert.format_alert_sum(cap.acts_at)}"
    return (*reasons, f"a stop is confirmed after {format_length(cap.reaction)}{needed}")


def _list_denial_alerts(snapshot: GuardSnapshot) -> Iterator[Alert]:
    """Yield an alert for each budget that recently refused a run."""
    for denial in snapshot.wishes:
        if (
            denial.what == DENIED
            and is_override_open(denial, snapshot.now)
            and (notice := build_denial_alert(denial)) is not None
        ):
            yield notice


def _list_budget_alerts(survey: GuardEvaluation, snapshot: GuardSnapshot) -> Iterator[Alert]:
    acting = {f.standing.budget.name for f in survey.foresights if f.acts}
    shorts = {f.standing.budget.name: explain_short(f, survey) for f in survey.foresights}
    for foresight in survey.foresights:
        if foresight.acts and foresight.standing.burn.expected.nano:
            yield build_hard_cap_alert(foresight, at=survey.at, short=explain_short(foresight, survey))
    for standing in snapshot.standings:
        says = [concern.says for concern in list_budget_warnings(standing)]
        if says and standing.budget.name not in acting:
            yield build_budget_alert(standing, says=says, at=survey.at, short=shorts.get(standing.budget.name, ""))


def explain_short(foresight: CapForecast, survey: GuardEvaluation) -> str:
    """Explain how the limits delay the stops of a cap, with what changes that; "" if they do not."""
    if not foresight.short:
        return ""
    policy = name_cap_policy(foresight.standing.budget)
    cure = explain_cap_cure((policy,), accepted=survey.accepted_caps, doubted=survey.doubted_caps, plan_hash=survey.plan_hash)
    return f"{foresight.short}: {cure}"


def _join_candidates(candidates: Sequence[CapCandidate]) -> str:
    return join_names([one.live.observation.name or one.live.observation.key.id for one in candidates])


def _list_rail_alerts(survey: GuardEvaluation, rules: GuardConfig, snapshot: GuardSnapshot) -> Iterator[Alert]:
    mass, rails = survey.breaker, rules.rails
    for why in (says for reason, says in snapshot.held if reason == "older_ledger"):
        yield build_older_ledger_alert(why=why, at=survey.at)
    if snapshot.gap_began_at is not None and any(one.observation.state == RUNNING for one in snapshot.live):
        yield build_unwatched_alert(snapshot.live, since=snapshot.gap_began_at, at=survey.at, zone=rules.zone)
    if snapshot.apart is not None:
        yield build_gap_alert(apart=snapshot.apart, interval=rules.interval, rails=rails, at=survey.at)
    if mass is not None and mass.closed_at is None:
        yield build_breaker_alert(mass, fleet=survey.fleet, rails=rails, at=survey.at, zone=rules.zone)
    for scope in survey.quarantine:
        resources = [live for live in snapshot.live if live.scope == scope]
        absent_count = sum(live.absent_at is not None for live in resources)
        yield build_inventory_drop_alert(scope, absent_count=absent_count, of=len(resources), at=survey.at, zone=rules.zone)


def _list_scope_alerts(scopes: Iterable[ScopeCoverage], rules: GuardConfig, snapshot: GuardSnapshot) -> Iterator[Alert]:
    """Yield one alert for each provider that was not listed completely for too long, and for each account with another key."""
    down: dict[str, list[ScopeCoverage]] = defaultdict(list)
    strangers: dict[tuple[str, str], ScopeCoverage] = {}
    for scope in scopes:
        if scope.outcome != "complete" and scope.why.startswith((OTHER_ACCOUNT, SHARES_NOTHING)):
            strangers.setdefault(scope.scope[:2], scope)
            continue
        seen_at = scope.last_complete_at or scope.since
        refused = bool(CREDENTIALS_PATTERN.search(scope.why))
        if scope.outcome != "complete" and (refused or snapshot.now - seen_at >= PROVIDER_DOWN_AFTER):
            down[scope.scope.provider].append(scope)
    for account, first in sorted(strangers.items()):
        rates = (compute_burn_rate(live, snapshot.now) for live in snapshot.live if live.scope[:2] == account)
        nano = sum(rate.nano_per_hour for rate in rates if rate)
        rate = Rate(nano_per_hour=nano, currency="USD") if nano else None
        yield build_other_account_alert(first, rate=rate, at=snapshot.now, zone=rules.zone)
    for provider, missing in sorted(down.items()):
        names = {scope.scope for scope in missing}
        nano = sum(
            rate.nano_per_hour
            for live in snapshot.live
            if live.scope in names and (rate := compute_burn_rate(live, snapshot.now))
        )
        yield build_provider_down_alert(
            provider,
            scopes=sorted(names),
            why=missing[0].why,
            since=min(scope.last_complete_at or scope.since for scope in missing),
            rate=Rate(nano_per_hour=nano, currency="USD") if nano else None,
            at=snapshot.now,
            zone=rules.zone,
        )


def _list_new_machine_alerts(scopes: Iterable[ScopeCoverage], rules: GuardConfig, snapshot: GuardSnapshot) -> Iterator[Alert]:
    """Yield one alert for each machine without an owner that appeared while its account was watched."""
    watched_since = {one.scope: one.first_at for one in scopes}
    for live in snapshot.live:
        observation, sighting = live.observation, snapshot.known.get(live.observation.key)
        began = watched_since.get(live.scope)
        if sighting is None or began is None or observation.kind != INSTANCE or find_owner(observation, rules.owner_from):
            continue
        fresh = (
            began < sighting.at and snapshot.now - sighting.at < NEW_MACHINE_TOLD_FOR and sighting.polls >= NEW_MACHINE_POLLS
        )
        if fresh and observation.state == RUNNING and live.absent_at is None:
            matter = build_alert_subject(live, "", snapshot.now, rules.zone, topic="new")
            facts = (
                ("per hour", describe_hourly_cost(live, snapshot.now)),
                ("next", "nothing automatic: label it with its owner, or claim its account in [watch] claims"),
                ("since", matter.format_time(sighting.at, snapshot.now)),
                ("why", "it appeared while its account was watched, and its owner is unknown"),
            )
            what = f"new machine without an owner: {matter.called}, {format_alert_rate(matter.rate)} an hour"
            yield replace(alert.build_alert(matter, WARNING, what, snapshot.now, facts, keep=False), once=True)


def build_alert_subject(
    live: LiveResource, owner: str, now: datetime, zone: tzinfo = UTC, *, topic: str = ""
) -> alert.AlertSubject:
    """Build the part of an alert that identifies a machine."""
    of, rate = live.observation, compute_burn_rate(live, now)
    shape = format_gpus(of.gpu, of.gpu_count) if of.gpu else of.instance_type or of.kind
    return alert.AlertSubject(topic=topic, key=of.key, owner=owner, name=of.name, told=shape, rate=rate, zone=zone)


def _list_balance_alerts(rules: GuardConfig, snapshot: GuardSnapshot) -> Iterator[Alert]:
    """Yield an alert for each account whose balance ends soon, with what is lost then."""
    for balance in snapshot.balances:
        runway = compute_runway(balance, snapshot.live, snapshot.now)
        if runway.short and balance.amount is not None and runway.hourly is not None and runway.hourly.nano:
            yield build_runway_alert(
                f"{balance.provider}/{balance.account}",
                balance=balance.amount,
                rate=Rate(nano_per_hour=runway.hourly.nano, currency=runway.hourly.currency),
                losing=[f"{name or key.id} ({'; '.join(lost)})" for key, name, lost in runway.loses],
                at=snapshot.now,
                zone=rules.zone,
            )


def _list_churn_alerts(rules: GuardConfig, snapshot: GuardSnapshot) -> Iterator[Alert]:
    """Yield an alert for each controller that keeps replacing ended machines."""
    born = [(one.handling.controller, one.created_at) for one in snapshot.members]
    ended = [(one.handling.controller, one.stopped_at) for one in snapshot.members if one.state == ENDED]
    churn_times = find_churning_controllers(
        ((name, at) for name, at in born if at is not None), ((name, at) for name, at in ended if at is not None), snapshot.now
    )
    for controller, times in churn_times.items():
        last = max(
            (live for live in snapshot.live if live.observation.handling.controller == controller), key=_get_birth, default=None
        )
        if last is not None:
            owner = find_owner(last.observation, rules.owner_from)
            matter = build_alert_subject(last, owner, snapshot.now, rules.zone, topic="churn")
            notice = build_churn_alert(matter, controller=controller, times=times, within=HOUR, at=snapshot.now)
            yield replace(notice, subject=controller)


def _get_birth(live: LiveResource) -> datetime:
    return live.observation.created_at or live.first_seen_at


NAMES_SHOWN = 10
"""Machines, scopes or budgets that one line names; the rest is counted."""
SECOND = timedelta(seconds=1)


def build_budget_alert(standing: BudgetStatus, *, says: Sequence[str], at: datetime, short: str = "") -> Alert:
    """Build the alert of a budget that is spent faster than planned. `says`: the sentences of its warnings.

    `short`: why the limits are too narrow for its hard cap; "" if they are not.
    """
    subject = f"budget {standing.budget.name}"
    facts = (
        ("per hour", format_alert_rate(_get_burn_rate(standing))),
        ("why", "; ".join(says)),
        ("next", "this warning stops no machine"),
        *((("cap", short),) if short else ()),
    )
    return Alert(
        topic=f"budget:{standing.budget.name}",
        subject=subject,
        severity=WARNING,
        what=f"{subject}: {_describe_spent(standing)}",
        at=at,
        facts=facts,
        condition=f"warning of {subject}",
    )


def build_hard_cap_alert(foresight: CapForecast, *, at: datetime, short: str = "") -> Alert:
    """Build the page of a hard cap that is about to be reached. `short`: why the limits are too narrow.

    It names the machines to be stopped; those that need an approval, because a stop would lose data or does not exist; and
    those that are protected or not claimed: nothing is stopped for what they cost. Example: $482.10 of $500.00 at $98.32 an
    hour; stopping takes 600 s, which costs $16.39: it must start at $483.61.
    """
    standing, stops, untouched = foresight.standing, foresight.victims, foresight.untouched
    stays = (
        f"keeps running (protected or not claimed): {_join_candidates(untouched)}. No other machine is stopped for it: "
        "lift the protection, stop them, or raise the cap"
    )
    goes = (
        f"stops {_join_candidates(stops)}" if stops else "",
        f"asks for approval: {_join_candidates(foresight.asked)}" if foresight.asked else "",
        stays if untouched else "",
        "" if stops or foresight.asked or untouched else "no machine can be stopped: all are protected or not armed",
        short,
    )
    rate, subject = _get_burn_rate(standing), f"hard cap of budget {standing.budget.name}"
    needed = Money(nano=0) if rate is None else rate.multiply_seconds(int(foresight.reaction.total_seconds()))
    why = f"a stop takes {format_length(foresight.reaction)}, which costs {format_alert_sum(needed)}"
    if not standing.budget.is_rate:
        why = f"{why}: stopping starts at {format_alert_sum(standing.budget.cap - needed)}"
    facts = (
        ("per hour", format_alert_rate(rate)),
        ("next", "; ".join(filter(None, goes))),
        ("why", why),
    )
    return Alert(
        topic=f"budget:{standing.budget.name}",
        subject=f"budget {standing.budget.name}",
        severity=PAGE,
        what=f"{subject}: {'at least ' if is_wide(standing.spent) else ''}{_format_spent(standing, standing.spent.low)}",
        at=at,
        facts=facts,
        stage=1,
        condition=subject,
    )


def _describe_spent(standing: BudgetStatus) -> str:
    low, expected, high = (format_alert_sum(end) for end in (standing.spent.low, standing.spent.expected, standing.spent.high))
    if not is_wide(standing.spent):
        return _format_spent(standing, standing.spent.expected)
    verb = "an hour" if standing.budget.is_rate else "spent"
    return f"between {low} and {high} of {format_alert_sum(standing.budget.cap)} {verb} ({expected} expected)"


def _format_spent(standing: BudgetStatus, spent: Money) -> str:
    verb = "an hour" if standing.budget.is_rate else "spent"
    return f"{format_alert_sum(spent)} of {format_alert_sum(standing.budget.cap)} {verb}"


def _get_burn_rate(standing: BudgetStatus) -> Rate | None:
    burn = standing.burn.expected
    return Rate(nano_per_hour=burn.nano, currency=burn.currency) if burn.nano else None


def build_runway_alert(
    account: str, *, balance: Money, rate: Rate, losing: Sequence[str], at: datetime, zone: tzinfo = UTC
) -> Alert:
    """Build the alert of a prepaid balance that ends soon: $41.20 at $11.96 an hour lasts 3.44 h.

    `losing`: machines that lose data at zero.
    """
    hundredths = divide_half_even(max(balance.nano, 0) * 100, rate.nano_per_hour)
    left = f"{hundredths // 100}.{hundredths % 100:02d} h"
    ends = at + SECOND * (max(balance.nano, 0) * 3600 // rate.nano_per_hour)
    facts = (
        ("per hour", format_alert_rate(rate)),
        ("next", "at zero its provider removes the machines: add money, or stop machines"),
        ("why", f"{format_alert_sum(balance)} at {format_alert_rate(rate)} an hour lasts {left}"),
        ("would be lost", f"data on {join_names(losing)}" if losing else "nothing known"),
    )
    what = f"balance of {account} ends at {format_near_time(ends, at, zone)}: {format_alert_sum(balance)} left"
    return Alert(
        topic="runway", subject=account, severity=WARNING, what=what, at=at, facts=facts, condition=f"low balance of {account}"
    )


def build_churn_alert(matter: alert.AlertSubject, *, controller: str, times: int, within: timedelta, at: datetime) -> Alert:
    """Build the alert of a controller that keeps replacing ended machines. `matter`: the member seen last."""
    facts = (
        ("per hour", format_alert_rate(matter.rate)),
        ("since", matter.format_time(at - within, at)),
        ("why", "each machine that ended was replaced by a new one"),
        ("next", f"nothing: its machines are never stopped; change {controller} itself"),
    )
    what = f"{controller} replaced its machines {times} times in {format_length(within)}"
    return alert.build_alert(matter, WARNING, what, at, facts)


def build_breaker_alert(mass: Breaker, *, fleet: int, rails: Rails, at: datetime, zone: tzinfo = UTC) -> Alert:
    """Build the page of an open breaker: too many machines became idle or unknown at once, and acts on them are held."""
    turned, window = len(mass.keys), format_length(rails.breaker_window)
    asks, ends = mass.opened_at + rails.breaker_asks, mass.opened_at + rails.breaker_lasts
    facts = (
        ("to see them", "costguard breaker show"),
        ("to close it now", 'costguard breaker close --why "..."'),
        ("since", format_near_time(mass.opened_at, at, zone)),
        ("why", f"{turned} of {fleet} became idle or unknown within {window}; in common: {mass.shared or 'nothing found'}"),
        ("next", f"no act on these before {format_near_time(asks, at, zone)}; then each needs an approval"),
        (
            "it closes",
            f"{format_length(rails.breaker_recovery)} after most work again, or at {format_near_time(ends, at, zone)}",
        ),
    )
    return Alert(
        topic="rail:breaker",
        subject="the fleet",
        severity=PAGE,
        what=f"idle acts are suspended: {turned} of {fleet} machines became idle or unknown at once",
        at=at,
        facts=facts,
    )


def build_inventory_drop_alert(scope: ScopeKey, *, absent_count: int, of: int, at: datetime, zone: tzinfo = UTC) -> Alert:
    """Build the page that more than half of a scope is missing from one listing; each machine is then verified."""
    facts = (
        ("since", format_near_time(at, at, zone)),
        ("why", "a wrong key or an incomplete page can be the cause"),
        ("next", "each is looked up individually before it counts as gone; until then it counts as running"),
    )
    subject = format_scope(scope)
    what = f"{absent_count} of {of} resources of {subject} are missing from one listing"
    return Alert(topic="rail:inventory", subject=subject, severity=PAGE, what=what, at=at, facts=facts)


def build_provider_down_alert(
    provider: str, *, scopes: Sequence[ScopeKey], why: str, since: datetime, rate: Rate | None, at: datetime, zone: tzinfo = UTC
) -> Alert:
    """Build one alert for all scopes of a provider that cannot be read."""
    facts: tuple[tuple[str, str], ...] = (
        ("per hour", format_alert_rate(rate)),
        ("next", "its machines are counted as last seen; none is stopped until it is listed again"),
        ("since", f"{format_near_time(since, at, zone)} ({format_length(at - since)})"),
        ("why", why),
        ("scopes", join_names([format_scope(scope) for scope in scopes])),
    )
    what = f"{provider} cannot be reached ({len(scopes)} {'scope' if len(scopes) == 1 else 'scopes'})"
    if CREDENTIALS_PATTERN.search(URL_PATTERN.sub("", why)):
        facts = (("to fix it", "costguard doctor shows which key is refused, and where it is read from"), *facts)
        what = f"{provider} refuses the credentials ({len(scopes)} {'scope' if len(scopes) == 1 else 'scopes'})"
    return Alert(topic="provider", subject=provider, severity=WARNING, what=what, at=at, facts=facts)


def join_names(names: Sequence[str]) -> str:
    """Join the first names and count the rest: `a, b, c and 4 more`."""
    shown, more = ", ".join(names[:NAMES_SHOWN]), len(names) - NAMES_SHOWN
    return shown if more <= 0 else f"{shown} and {more} more"
