"""What there is to tell of more than one machine: budgets, rails, scopes, balances, controllers, runs that were refused."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta, tzinfo

from costguard.budgets.budget_status import list_budget_warnings
from costguard.budgets.runway import compute_runway
from costguard.guard.alerts import alarms, wording
from costguard.guard.alerts.alert import Alert
from costguard.guard.alerts.denials import build_denial_alert
from costguard.guard.cap_forecast import CapCandidate, CapForecast
from costguard.guard.context import GuardConfig, GuardSnapshot
from costguard.guard.evaluation import GuardEvaluation
from costguard.guard.facts import compute_burn_rate
from costguard.guard.limits import HOUR, find_churning_controllers
from costguard.guard.overrides import DENIED, is_override_open
from costguard.guard.owning import find_owner
from costguard.metering.spending import LiveResource, ScopeCoverage
from costguard.values.instant import HOUR_US, MICROSECOND
from costguard.values.money import Rate
from costguard.values.resource import ENDED
from costguard.values.text_format import format_length, format_local_time

PROVIDER_DOWN_AFTER = timedelta(minutes=15)


def list_fleet_alerts(
    survey: GuardEvaluation, rules: GuardConfig, sight: GuardSnapshot, scopes: Iterable[ScopeCoverage]
) -> Iterator[Alert]:
    """All of them, at `survey.at`."""
    yield from _list_budget_alerts(survey, sight)
    yield from _list_rail_alerts(survey, rules, sight)
    yield from _list_scope_alerts(scopes, rules, sight)
    yield from _list_balance_alerts(rules, sight)
    yield from _list_churn_alerts(rules, sight)
    yield from _list_denial_alerts(sight)


def explain_cap(cap: CapForecast, now: datetime, zone: tzinfo) -> tuple[str, ...]:
    """Why a hard cap acts: what is spent, how fast, how long a stop takes, and when the cap would be reached.

    Example: $484.00 of $500.00 at $98.32 an hour: 16.00 / 98.32 h, so it is reached in 9 min 45 s.
    """
    standing, burn = cap.standing, cap.standing.burn.expected
    limit, spent = standing.budget.cap, standing.spent.low
    said = [
        f"{wording.format_alert_sum(spent)} of {wording.format_alert_sum(limit)} of budget {standing.budget.name} is surely spent"
    ]
    if burn.nano:
        rate, left = Rate(nano_per_hour=burn.nano, currency=burn.currency), max(0, (limit - spent).nano)
        at = now + MICROSECOND * (left * HOUR_US // burn.nano)
        reached = f"reached about {format_local_time(at, zone)}" if left else "reached"
        said.append(f"at {wording.format_alert_rate(rate)} an hour the cap is {reached}")
    needed = f", so it acts from {wording.format_alert_sum(cap.acts_at)} on"
    return (*said, f"a stop is proven after {format_length(cap.reaction)}{needed}")


def _list_denial_alerts(sight: GuardSnapshot) -> Iterator[Alert]:
    """A notice a budget that had no room for a run lately."""
    for wish in sight.wishes:
        if wish.what == DENIED and is_override_open(wish, sight.now) and (told := build_denial_alert(wish)) is not None:
            yield told


def _list_budget_alerts(survey: GuardEvaluation, sight: GuardSnapshot) -> Iterator[Alert]:
    acting = {f.standing.budget.name for f in survey.foresights if f.acts}
    for foresight in survey.foresights:
        standing = foresight.standing
        burn = standing.burn.expected
        if foresight.acts and burn.nano:
            yield alarms.build_hard_cap_alert(
                standing.budget.name,
                owner="",
                spent=standing.spent.low,
                cap=standing.budget.cap,
                rate=Rate(nano_per_hour=burn.nano, currency=burn.currency),
                reaction=foresight.reaction,
                stops=[_get_candidate_name(victim) for victim in foresight.victims],
                asked=[_get_candidate_name(one) for one in foresight.asked],
                short=foresight.rails,
                at=survey.at,
            )
    for standing in sight.standings:
        says = [concern.says for concern in list_budget_warnings(standing)]
        if says and standing.budget.name not in acting:
            burn = standing.burn.expected
            yield alarms.build_budget_alert(
                standing.budget.name,
                owner="",
                says=says,
                spent=standing.spent.high,
                cap=standing.budget.cap,
                rate=Rate(nano_per_hour=burn.nano, currency=burn.currency) if burn.nano else None,
                at=survey.at,
            )


def _get_candidate_name(one: CapCandidate) -> str:
    return one.live.observation.name or one.live.observation.key.id


def _list_rail_alerts(survey: GuardEvaluation, rules: GuardConfig, sight: GuardSnapshot) -> Iterator[Alert]:
    mass, rails = survey.breaker, rules.rails
    for why in (says for reason, says in sight.held if reason == "older_ledger"):
        yield alarms.build_older_ledger_alert(why=why, at=survey.at)
    if sight.apart is not None:
        yield alarms.build_gap_alert(apart=sight.apart, interval=rules.interval, rails=rails, at=survey.at)
    if mass is not None:
        yield alarms.build_breaker_alert(
            turned=len(mass.keys),
            fleet=survey.fleet,
            within=rails.breaker_window,
            share=mass.shared,
            until=(mass.recovering_since or survey.at) + rails.breaker_recovery,
            at=survey.at,
            zone=rules.zone,
        )
    for scope in survey.quarantine:
        mine = [live for live in sight.live if live.scope == scope]
        gone = sum(live.absent_at is not None for live in mine)
        yield alarms.build_inventory_drop_alert(scope, gone=gone, of=len(mine), at=survey.at, zone=rules.zone)


def _list_scope_alerts(scopes: Iterable[ScopeCoverage], rules: GuardConfig, sight: GuardSnapshot) -> Iterator[Alert]:
    """One notice a provider that was not seen completely for too long."""
    down: dict[str, list[ScopeCoverage]] = defaultdict(list)
    for scope in scopes:
        seen_at = scope.last_complete_at or scope.since
        if scope.outcome != "complete" and sight.now - seen_at >= PROVIDER_DOWN_AFTER:
            down[scope.scope.provider].append(scope)
    for provider, missing in sorted(down.items()):
        names = {scope.scope for scope in missing}
        nano = sum(
            rate.nano_per_hour for live in sight.live if live.scope in names and (rate := compute_burn_rate(live, sight.now))
        )
        yield alarms.build_provider_down_alert(
            provider,
            scopes=sorted(names),
            why=missing[0].why,
            since=min(scope.last_complete_at or scope.since for scope in missing),
            rate=Rate(nano_per_hour=nano, currency="USD") if nano else None,
            at=sight.now,
            zone=rules.zone,
        )


def _list_balance_alerts(rules: GuardConfig, sight: GuardSnapshot) -> Iterator[Alert]:
    """A notice an account whose balance ends soon, with what is lost then."""
    for balance in sight.balances:
        found = compute_runway(balance, sight.live, sight.now)
        if found.short and balance.amount is not None and found.hourly is not None and found.hourly.nano:
            yield alarms.build_runway_alert(
                f"{balance.provider}/{balance.account}",
                owner="",
                balance=balance.amount,
                rate=Rate(nano_per_hour=found.hourly.nano, currency=found.hourly.currency),
                losing=[f"{name or key.id} ({'; '.join(lost)})" for key, name, lost in found.loses],
                at=sight.now,
                zone=rules.zone,
            )


def _list_churn_alerts(rules: GuardConfig, sight: GuardSnapshot) -> Iterator[Alert]:
    """A notice a controller that brings back what ends, again and again."""
    born = [(one.handling.controller, one.created_at) for one in sight.members]
    ended = [(one.handling.controller, one.stopped_at) for one in sight.members if one.state == ENDED]
    found = find_churning_controllers(
        ((name, at) for name, at in born if at is not None), ((name, at) for name, at in ended if at is not None), sight.now
    )
    for controller, times in found.items():
        last = max(
            (live for live in sight.live if live.observation.handling.controller == controller), key=_get_birth, default=None
        )
        if last is not None:
            owner = find_owner(last.observation, rules.owner_from)
            matter = wording.AlertSubject(
                topic="churn", key=last.observation.key, owner=owner, rate=compute_burn_rate(last, sight.now), zone=rules.zone
            )
            told = wording.build_churn_alert(matter, controller=controller, times=times, within=HOUR, at=sight.now)
            yield replace(told, subject=controller)


def _get_birth(live: LiveResource) -> datetime:
    return live.observation.created_at or live.first_seen_at
