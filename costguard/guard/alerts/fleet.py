"""Alerts about more than one machine: budgets, limits, accounts, balances, controllers, providers, the ledger."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta, tzinfo

from costguard.budgets.budget_status import list_budget_warnings
from costguard.budgets.runway import compute_runway
from costguard.guard.alerts import alert
from costguard.guard.alerts.alert import PAGE, WARNING, Alert, format_alert_rate, format_alert_sum
from costguard.guard.alerts.denial import build_denial_alert
from costguard.guard.alerts.rates import describe_hourly_cost
from costguard.guard.cap_acceptance import explain_cap_cure, name_cap_policy
from costguard.guard.cap_forecast import CapCandidate, CapForecast
from costguard.guard.context import GuardConfig, GuardSnapshot
from costguard.guard.evaluation import GuardEvaluation
from costguard.guard.limits import HOUR, Breaker, find_churning_controllers
from costguard.guard.overrides import DENIED, find_owner, is_override_open
from costguard.guard.policy import Rails
from costguard.guard.policy_evaluation import compute_burn_rate
from costguard.metering.observation import Observation
from costguard.metering.spending import LiveResource, ScopeCoverage
from costguard.values.instant import HOUR_US, MICROSECOND
from costguard.values.money import Money, Rate, divide_half_even
from costguard.values.resource import ENDED, INSTANCE, RUNNING, ScopeKey
from costguard.values.text_format import format_length, format_local_time, format_scope

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
    of = f"{alert.format_alert_sum(limit)} of budget {standing.budget.name}"
    reasons = [f"{alert.format_alert_sum(spent)} of {of} is surely spent"]
    if burn.nano:
        rate, left = Rate(nano_per_hour=burn.nano, currency=burn.currency), max(0, (limit - spent).nano)
        at = now + MICROSECOND * (left * HOUR_US // burn.nano)
        reached = f"reached about {format_local_time(at, zone)}" if left else "reached"
        reasons.append(f"at {alert.format_alert_rate(rate)} an hour the cap is {reached}")
    needed = f", so it acts at {alert.format_alert_sum(cap.acts_at)}"
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
        standing = foresight.standing
        burn = standing.burn.expected
        if foresight.acts and burn.nano:
            yield build_hard_cap_alert(
                standing.budget.name,
                owner="",
                spent=standing.spent.low,
                cap=standing.budget.cap,
                rate=Rate(nano_per_hour=burn.nano, currency=burn.currency),
                reaction=foresight.reaction,
                stops=[_get_candidate_name(victim) for victim in foresight.victims],
                undecided=[_get_candidate_name(one) for one in foresight.asked],
                untouched=[_get_candidate_name(one) for one in foresight.untouched],
                short=explain_short(foresight, survey),
                at=survey.at,
            )
    for standing in snapshot.standings:
        says = [concern.says for concern in list_budget_warnings(standing)]
        if says and standing.budget.name not in acting:
            burn = standing.burn.expected
            yield build_budget_alert(
                standing.budget.name,
                owner="",
                says=says,
                spent=standing.spent.high,
                cap=standing.budget.cap,
                rate=Rate(nano_per_hour=burn.nano, currency=burn.currency) if burn.nano else None,
                short=shorts.get(standing.budget.name, ""),
                at=survey.at,
            )


def explain_short(foresight: CapForecast, survey: GuardEvaluation) -> str:
    """Explain how the limits delay the stops of a cap, with what changes that; "" if they do not."""
    if not foresight.short:
        return ""
    policy = name_cap_policy(foresight.standing.budget)
    cure = explain_cap_cure((policy,), accepted=survey.accepted_caps, doubted=survey.doubted_caps, plan_hash=survey.plan_hash)
    return f"{foresight.short}: {cure}"


def _get_candidate_name(one: CapCandidate) -> str:
    return one.live.observation.name or one.live.observation.key.id


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
    """Yield one alert for each provider that was not listed completely for too long."""
    down: dict[str, list[ScopeCoverage]] = defaultdict(list)
    for scope in scopes:
        seen_at = scope.last_complete_at or scope.since
        refused = bool(CREDENTIALS_PATTERN.search(scope.why))
        if scope.outcome != "complete" and (refused or snapshot.now - seen_at >= PROVIDER_DOWN_AFTER):
            down[scope.scope.provider].append(scope)
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
            matter = alert.AlertSubject(
                topic="new",
                key=observation.key,
                owner="",
                name=observation.name,
                told=describe_shape(observation),
                rate=compute_burn_rate(live, snapshot.now),
            )
            facts = (
                ("since", format_local_time(sighting.at, rules.zone)),
                ("per hour", describe_hourly_cost(live, snapshot.now)),
                ("why", "it appeared while its account was watched, and nothing tells whose it is"),
                ("next", "nothing: label it with its owner, or claim its account in [watch] claims"),
            )
            what = f"new machine without an owner: {matter.called}, {format_alert_rate(matter.rate)} an hour"
            yield replace(alert.build_alert(matter, WARNING, what, snapshot.now, facts, keep=False), once=True)


def describe_shape(observation: Observation) -> str:
    """Describe its GPUs and type: `8xA100-80GB p4d.24xlarge`."""
    gpus = f"{observation.gpu_count:g}x{observation.gpu}" if observation.gpu else observation.kind
    return f"{gpus} {observation.instance_type}".strip()


def _list_balance_alerts(rules: GuardConfig, snapshot: GuardSnapshot) -> Iterator[Alert]:
    """Yield an alert for each account whose balance ends soon, with what is lost then."""
    for balance in snapshot.balances:
        runway = compute_runway(balance, snapshot.live, snapshot.now)
        if runway.short and balance.amount is not None and runway.hourly is not None and runway.hourly.nano:
            yield build_runway_alert(
                f"{balance.provider}/{balance.account}",
                owner="",
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
            matter = alert.AlertSubject(
                topic="churn",
                key=last.observation.key,
                owner=owner,
                rate=compute_burn_rate(last, snapshot.now),
                zone=rules.zone,
            )
            notice = alert.build_churn_alert(matter, controller=controller, times=times, within=HOUR, at=snapshot.now)
            yield replace(notice, subject=controller)


def _get_birth(live: LiveResource) -> datetime:
    return live.observation.created_at or live.first_seen_at


NAMES_SHOWN = 10
"""Machines, scopes or budgets that one line names; the rest is counted."""
SECOND = timedelta(seconds=1)
RESTARTS_WITHIN = timedelta(hours=2)
GAP_MINUTES_MAX = 60
"""Minutes between two runs, the most that the settings take."""


def build_budget_alert(
    name: str, *, owner: str, says: Sequence[str], spent: Money, cap: Money, rate: Rate | None, at: datetime, short: str = ""
) -> Alert:
    """Build the alert of a budget that is spent faster than planned. `says`: the sentences of its warnings.

    `short`: why the limits are too narrow for its hard cap; "" if they are not.
    """
    facts = (
        ("why", "; ".join(says)),
        ("so far", f"{format_alert_sum(spent)} of {format_alert_sum(cap)}"),
        ("per hour", format_alert_rate(rate)),
        ("next", "this warning stops nothing"),
        *((("the cap", short),) if short else ()),
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
    undecided: Sequence[str] = (),
    untouched: Sequence[str] = (),
    short: str = "",
) -> Alert:
    """Build the page of a hard cap that is about to be reached. `stops`: the machines to be stopped.

    `undecided`: machines that people are asked about, because a stop would lose data or does not exist. `untouched`: machines
    that are protected or not claimed; nothing is stopped for what they cost. `short`: why the limits are too narrow. Example:
    $482.10 of $500.00 at $98.32 an hour; stopping takes 600 s, which costs $16.39: it must start at $483.61.
    """
    nothing = "no machine can be stopped: all are protected or not armed"
    goes = f"to be stopped: {join_names(stops)}" if stops else "" if undecided or untouched else nothing
    stays = (
        f"protected or not claimed, and running on: {join_names(untouched)}. Nothing else is stopped for what they cost: "
        "lift the protection, stop them, or raise the cap"
    )
    then = "; ".join(
        one
        for one in (goes, f"asked about: {join_names(undecided)}" if undecided else "", stays if untouched else "", short)
        if one
    )
    needed = rate.multiply_seconds(int(reaction.total_seconds()))
    facts = (
        ("so far", f"{format_alert_sum(spent)} of {format_alert_sum(cap)}"),
        ("per hour", format_alert_rate(rate)),
        (
            "why",
            (
                f"to stop takes {format_length(reaction)}, which costs {format_alert_sum(needed)}: stopping starts at "
                f"{format_alert_sum(cap - needed)}"
            ),
        ),
        ("next", then),
    )
    what = f"hard cap of budget {name}: {format_alert_sum(spent)} of {format_alert_sum(cap)} spent"
    return Alert(
        topic=f"budget:{name}", subject=f"budget {name}", owner=owner, severity=PAGE, what=what, at=at, facts=facts, stage=1
    )


def build_runway_alert(
    account: str, *, owner: str, balance: Money, rate: Rate, losing: Sequence[str], at: datetime, zone: tzinfo = UTC
) -> Alert:
    """Build the alert of a prepaid balance that ends soon: $41.20 at $11.96 an hour lasts 3.44 h.

    `losing`: machines that lose data at zero.
    """
    hundredths = divide_half_even(max(balance.nano, 0) * 100, rate.nano_per_hour)
    left = f"{hundredths // 100}.{hundredths % 100:02d} h"
    ends = at + SECOND * (max(balance.nano, 0) * 3600 // rate.nano_per_hour)
    facts = (
        ("so far", f"{format_alert_sum(balance)} is left"),
        ("per hour", format_alert_rate(rate)),
        ("next", f"at zero, about {format_local_time(ends, zone)}, its provider removes the machines"),
        ("would be lost", f"data on {join_names(losing)}" if losing else "nothing known"),
    )
    what = f"the balance of {account} lasts {left}"
    return Alert(topic="runway", subject=account, owner=owner, severity=WARNING, what=what, at=at, facts=facts)


def build_breaker_alert(mass: Breaker, *, fleet: int, rails: Rails, at: datetime, zone: tzinfo = UTC) -> Alert:
    """Build the page of an open breaker: too many machines became idle or unknown at once, and acts on them are held."""
    turned, window = len(mass.keys), format_length(rails.breaker_window)
    asks, ends = mass.opened_at + rails.breaker_asks, mass.opened_at + rails.breaker_lasts
    facts = (
        ("since", format_local_time(mass.opened_at, zone)),
        ("why", f"{turned} of {fleet} became idle or unknown within {window}; in common: {mass.shared or 'nothing found'}"),
        ("next", f"no act on these before {format_local_time(asks, zone)}; then each is asked about"),
        ("it closes", f"{format_length(rails.breaker_recovery)} after most work again, or at {format_local_time(ends, zone)}"),
        ("to see them", "costguard breaker show"),
        ("to close it now", 'costguard breaker close --why "..."'),
    )
    return Alert(
        topic="rail:breaker",
        subject="the fleet",
        owner="",
        severity=PAGE,
        what=f"idle acts are suspended: {turned} of {fleet} machines became idle or unknown at once",
        at=at,
        facts=facts,
    )


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
    return Alert(topic="rail:gap", subject="the watch", owner="", severity=WARNING, what=what, at=at, facts=facts)


def list_restart_alerts(breaks: Sequence[datetime], least: int, at: datetime) -> Iterator[Alert]:
    """Yield the alert of a watchdog that starts, or is suspended, `least` times in a while, so that it hardly acts."""
    if len(breaks) >= least and at - breaks[-least] <= RESTARTS_WITHIN:
        facts = (
            ("since", format_local_time(breaks[-least])),
            ("why", "its process ends, or is suspended, again and again: its log says why (journalctl -u costguard)"),
            ("next", "the first run after a start or a gap only observes: acts, those of hard caps too, come late or never"),
        )
        within = format_length(RESTARTS_WITHIN)
        what = f"the watchdog restarts before it finishes a run, or soon after: {least} times within {within}"
        yield Alert(topic="rail:restarts", subject="the watch", owner="", severity=WARNING, what=what, at=at, facts=facts)


def build_unwatched_alert(live: Sequence[LiveResource], *, since: datetime, at: datetime, zone: tzinfo = UTC) -> Alert:
    """Build the alert that no guard run took place since `since`: how many machines run, and their known cost meanwhile."""
    running = [one for one in live if one.observation.kind == INSTANCE and one.observation.state == RUNNING]
    rates = [rate for one in running if (rate := compute_burn_rate(one, at)) is not None and rate.currency == "USD"]
    nano = sum(rate.nano_per_hour for rate in rates)
    cost = alert.compute_rate_cost(Rate(nano_per_hour=nano, currency="USD") if nano else None, at - since)
    more = f", and {len(running) - len(rates)} without a known price" if len(running) > len(rates) else ""
    facts = (
        ("since", format_local_time(since, zone)),
        ("so far", (f"about {format_alert_sum(cost)}" if cost else "nothing known") + more),
        ("why", "no guard run was recorded in that time: the watchdog was stopped, asleep or cut off"),
        ("next", "nothing was decided meanwhile; this run only observes, and the next one judges as usual"),
    )
    what = f"nobody watched from {format_local_time(since, zone)} to {format_local_time(at, zone)}; {len(running)} machines run"
    return Alert(
        topic="rail:unwatched", subject="the watch", owner="", severity=WARNING, what=what, at=at, facts=facts, once=True
    )


def build_inventory_drop_alert(scope: ScopeKey, *, absent_count: int, of: int, at: datetime, zone: tzinfo = UTC) -> Alert:
    """Build the page that more than half of a scope is missing from one listing; each machine is then verified."""
    facts = (
        ("since", format_local_time(at, zone)),
        ("why", "one listing does not contain them; a wrong key or an incomplete page can be the cause"),
        ("next", "each is looked up individually before it counts as gone; until then it counts as running"),
    )
    subject = format_scope(scope)
    what = f"{absent_count} of {of} resources of {subject} vanished at once"
    return Alert(topic="rail:inventory", subject=subject, owner="", severity=PAGE, what=what, at=at, facts=facts)


def build_ledger_unwritable_alert(*, why: str, at: datetime, since: datetime, zone: tzinfo = UTC) -> Alert:
    """Build the page that the ledger cannot be written, so no act is done. For a channel that needs no disk."""
    facts = (
        ("since", format_local_time(since, zone)),
        ("why", why),
        ("next", "observing only until the ledger can be written again: no stops, no hard caps"),
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
    """Build the page that the ledger was replaced by an older or another one, which lacks the overrides made since."""
    facts = (("why", why), ("next", "observing only until the ledger is confirmed: costguard audit adopt --why ..."))
    what = "the ledger is not the one used last: no acts"
    return Alert(topic="rail:ledger", subject="the ledger", owner="", severity=PAGE, what=what, at=at, facts=facts)


def build_provider_down_alert(
    provider: str, *, scopes: Sequence[ScopeKey], why: str, since: datetime, rate: Rate | None, at: datetime, zone: tzinfo = UTC
) -> Alert:
    """Build one alert for all scopes of a provider that cannot be read."""
    facts: tuple[tuple[str, str], ...] = (
        ("since", f"{format_local_time(since, zone)} ({format_length(at - since)})"),
        ("why", why),
        ("scopes", join_names([format_scope(scope) for scope in scopes])),
        ("per hour", f"{format_alert_rate(rate)} as last seen; it is still counted" if rate else format_alert_rate(rate)),
        ("next", "no machine there is stopped before it is seen again"),
    )
    what = f"{provider} cannot be asked ({len(scopes)} {'scope' if len(scopes) == 1 else 'scopes'})"
    if CREDENTIALS_PATTERN.search(URL_PATTERN.sub("", why)):
        facts = (*facts, ("to fix it", "costguard doctor shows which key is refused, and where it is read from"))
        what = f"{provider} refuses the credentials ({len(scopes)} {'scope' if len(scopes) == 1 else 'scopes'})"
    return Alert(topic="provider", subject=provider, owner="", severity=WARNING, what=what, at=at, facts=facts)


def join_names(names: Sequence[str]) -> str:
    """Join the first names and count the rest: `a, b, c and 4 more`."""
    shown, more = ", ".join(names[:NAMES_SHOWN]), len(names) - NAMES_SHOWN
    return shown if more <= 0 else f"{shown} and {more} more"
