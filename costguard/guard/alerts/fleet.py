"""What there is to tell of more than one machine: budgets, rails, scopes, balances, controllers, runs that were refused."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta, tzinfo

from costguard.budgets.budget_status import list_budget_warnings
from costguard.budgets.runway import runway_of
from costguard.guard.alerts import alarms, wording
from costguard.guard.alerts.alert import Notice
from costguard.guard.alerts.denials import denial_of
from costguard.guard.cap_forecast import Candidate, Foresight
from costguard.guard.context import Rules, Sight
from costguard.guard.evaluation import Survey
from costguard.guard.facts import rate_of
from costguard.guard.limits import HOUR, churning
from costguard.guard.overrides import DENIED, is_open
from costguard.guard.owning import owner_of
from costguard.metering.spending import LiveResource, ScopeCoverage
from costguard.values.instant import HOUR_US, MICROSECOND
from costguard.values.money import Rate
from costguard.values.resource import ENDED
from costguard.values.text_format import format_length, format_local_time

DOWN_AFTER = timedelta(minutes=15)


def alarms_of(survey: Survey, rules: Rules, sight: Sight, scopes: Iterable[ScopeCoverage]) -> Iterator[Notice]:
    """All of them, at `survey.at`."""
    yield from _of_budgets(survey, sight)
    yield from _of_rails(survey, rules, sight)
    yield from _of_scopes(scopes, rules, sight)
    yield from _of_balances(rules, sight)
    yield from _of_members(rules, sight)
    yield from _of_denials(sight)


def cap_reasons(cap: Foresight, now: datetime, zone: tzinfo) -> tuple[str, ...]:
    """Why a hard cap acts: what is spent, how fast, how long a stop takes, and when the cap would be reached.

    Example: $484.00 of $500.00 at $98.32 an hour: 16.00 / 98.32 h, so it is reached in 9 min 45 s.
    """
    standing, burn = cap.standing, cap.standing.burn.expected
    limit, spent = standing.budget.cap, standing.spent.low
    said = [f"{wording.sum_text(spent)} of {wording.sum_text(limit)} of budget {standing.budget.name} is surely spent"]
    if burn.nano:
        rate, left = Rate(nano_per_hour=burn.nano, currency=burn.currency), max(0, (limit - spent).nano)
        at = now + MICROSECOND * (left * HOUR_US // burn.nano)
        reached = f"reached about {format_local_time(at, zone)}" if left else "reached"
        said.append(f"at {wording.rate_text(rate)} an hour the cap is {reached}")
    needed = f", so it acts from {wording.sum_text(cap.acts_at)} on"
    return (*said, f"a stop is proven after {format_length(cap.reaction)}{needed}")


def _of_denials(sight: Sight) -> Iterator[Notice]:
    """A notice a budget that had no room for a run lately."""
    for wish in sight.wishes:
        if wish.what == DENIED and is_open(wish, sight.now) and (told := denial_of(wish)) is not None:
            yield told


def _of_budgets(survey: Survey, sight: Sight) -> Iterator[Notice]:
    acting = {f.standing.budget.name for f in survey.foresights if f.acts}
    for foresight in survey.foresights:
        standing = foresight.standing
        burn = standing.burn.expected
        if foresight.acts and burn.nano:
            yield alarms.hard_cap(
                standing.budget.name,
                owner="",
                spent=standing.spent.low,
                cap=standing.budget.cap,
                rate=Rate(nano_per_hour=burn.nano, currency=burn.currency),
                reaction=foresight.reaction,
                stops=[_called(victim) for victim in foresight.victims],
                asked=[_called(one) for one in foresight.asked],
                short=foresight.rails,
                at=survey.at,
            )
    for standing in sight.standings:
        says = [concern.says for concern in list_budget_warnings(standing)]
        if says and standing.budget.name not in acting:
            burn = standing.burn.expected
            yield alarms.budget_warning(
                standing.budget.name,
                owner="",
                says=says,
                spent=standing.spent.high,
                cap=standing.budget.cap,
                rate=Rate(nano_per_hour=burn.nano, currency=burn.currency) if burn.nano else None,
                at=survey.at,
            )


def _called(one: Candidate) -> str:
    return one.live.observation.name or one.live.observation.key.id


def _of_rails(survey: Survey, rules: Rules, sight: Sight) -> Iterator[Notice]:
    mass, rails = survey.breaker, rules.rails
    for why in (says for reason, says in sight.held if reason == "older_ledger"):
        yield alarms.older_ledger(why=why, at=survey.at)
    if sight.apart is not None:
        yield alarms.runs_apart(apart=sight.apart, interval=rules.interval, rails=rails, at=survey.at)
    if mass is not None:
        yield alarms.breaker(
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
        yield alarms.inventory_drop(scope, gone=gone, of=len(mine), at=survey.at, zone=rules.zone)


def _of_scopes(scopes: Iterable[ScopeCoverage], rules: Rules, sight: Sight) -> Iterator[Notice]:
    """One notice a provider that was not seen completely for too long."""
    down: dict[str, list[ScopeCoverage]] = defaultdict(list)
    for scope in scopes:
        seen_at = scope.last_complete_at or scope.since
        if scope.outcome != "complete" and sight.now - seen_at >= DOWN_AFTER:
            down[scope.scope.provider].append(scope)
    for provider, missing in sorted(down.items()):
        names = {scope.scope for scope in missing}
        nano = sum(rate.nano_per_hour for live in sight.live if live.scope in names and (rate := rate_of(live, sight.now)))
        yield alarms.provider_down(
            provider,
            scopes=sorted(names),
            why=missing[0].why,
            since=min(scope.last_complete_at or scope.since for scope in missing),
            rate=Rate(nano_per_hour=nano, currency="USD") if nano else None,
            at=sight.now,
            zone=rules.zone,
        )


def _of_balances(rules: Rules, sight: Sight) -> Iterator[Notice]:
    """A notice an account whose balance ends soon, with what is lost then."""
    for balance in sight.balances:
        found = runway_of(balance, sight.live, sight.now)
        if found.short and balance.amount is not None and found.hourly is not None and found.hourly.nano:
            yield alarms.runway(
                f"{balance.provider}/{balance.account}",
                owner="",
                balance=balance.amount,
                rate=Rate(nano_per_hour=found.hourly.nano, currency=found.hourly.currency),
                losing=[f"{name or key.id} ({'; '.join(lost)})" for key, name, lost in found.loses],
                at=sight.now,
                zone=rules.zone,
            )


def _of_members(rules: Rules, sight: Sight) -> Iterator[Notice]:
    """A notice a controller that brings back what ends, again and again."""
    born = [(one.handling.controller, one.created_at) for one in sight.members]
    ended = [(one.handling.controller, one.stopped_at) for one in sight.members if one.state == ENDED]
    found = churning(
        ((name, at) for name, at in born if at is not None), ((name, at) for name, at in ended if at is not None), sight.now
    )
    for controller, times in found.items():
        last = max((live for live in sight.live if live.observation.handling.controller == controller), key=_born, default=None)
        if last is not None:
            owner = owner_of(last.observation, rules.owner_from)
            matter = wording.Matter(
                topic="churn", key=last.observation.key, owner=owner, rate=rate_of(last, sight.now), zone=rules.zone
            )
            told = wording.churn(matter, controller=controller, times=times, within=HOUR, at=sight.now)
            yield replace(told, subject=controller)


def _born(live: LiveResource) -> datetime:
    return live.observation.created_at or live.first_seen_at
