"""The current status: the burn, the month's cost and forecast, and how complete the data is.

Example: an instance at $2.00 an hour and its disk of 730 GB at $0.10 per GB-month of 730 h burn $2.10 an hour. With $100 spent
this month and 100 h left of it, the month costs 100 + 2.10 x 100 = $310 if what runs goes on, for each of low, expected and
high. The forecast stands on the past weeks as well (`budgets.spend_forecast`).

A resource that complete listings lack has probably ended: it counts only in the high ends. The same holds for possible costs
since the last listing. An estimated price counts in the burn and the forecast; what is unpriced counts in the high ends alone.

Each resource has annotations: its activity, owner, lease and protection. Each hard budget has its worst possible overshoot.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, tzinfo

from costguard.budgets.budget_status import BudgetStatus
from costguard.budgets.runway import Runway, compute_runway
from costguard.budgets.spend_forecast import NO_PAST, PastHours, SpendForecast, forecast_spend
from costguard.guard.action_intents import Intent
from costguard.guard.alerts.blind import index_agents
from costguard.guard.context import GuardConfig, GuardSnapshot, apply_handling, build_contexts
from costguard.guard.evaluation import forecast_snapshot_caps, forecast_starts
from costguard.guard.overrides import Override
from costguard.guard.scheduled_starts import ScheduledStart
from costguard.guard.signals import Activity
from costguard.guard.timed_stops import get_due_time, index_timed_stops, select_timed_stop
from costguard.guard.utilization import GpuUsage
from costguard.metering.burn import AttributedBurn, HourlyBurn, compute_hourly_burn, list_burns, make_zero_burn, sum_burns
from costguard.metering.inventory import COMPLETE, POLL_AHEAD_MAX
from costguard.metering.observation import SURCHARGED, Handling
from costguard.metering.spending import LiveResource, ScopeCoverage, Spending
from costguard.values.agent import Agent
from costguard.values.calendar import Period
from costguard.values.money import Money, MoneyInterval, PrepaidBalance, sum_intervals
from costguard.values.resource import RUNNING, ResourceKey

SCOPE_STALE_AFTER = timedelta(minutes=15)
"""A scope that was last seen completely longer ago is shouted about. Three polls of the slowest usual interval, five minutes:
an assumption, 2026-11."""

STALE_SCOPE, MISDATED_SCOPE, ABSENT_STATE = "stale", "ahead", "absent"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceAnnotations:
    """The guard's facts about a resource. `lease`: the one in force now. `agent`: the enrolled one.

    `starts_at`: when a schedule starts it again, as far as nothing lasting holds that; None: none does.
    `stops_at`: for when a person planned its stop; None: nobody did. `usage`: of its GPUs; None: not measured.
    """

    work: Activity = field(default_factory=Activity)
    owner: str = ""
    lease: Override | None = None
    protected: bool = False
    agent: Agent | None = None
    starts_at: datetime | None = None
    stops_at: datetime | None = None
    usage: GpuUsage | None = None


NO_ANNOTATIONS = ResourceAnnotations()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceBurn:
    """A resource and its burn, one `HourlyBurn` per currency; none if nothing bills now."""

    live: LiveResource
    burns: tuple[HourlyBurn, ...]
    beside: ResourceAnnotations = field(default_factory=lambda: NO_ANNOTATIONS)

    @property
    def work(self) -> Activity:
        """Return its activity."""
        return self.beside.work

    @property
    def owner(self) -> str:
        """Return its owner, "" if unknown."""
        return self.beside.owner or self.live.observation.owner

    @property
    def absent(self) -> bool:
        """Return whether complete listings lack it."""
        return self.live.absent_at is not None

    @property
    def state(self) -> str:
        """Return the provider's state in our words, or "absent"."""
        return ABSENT_STATE if self.absent else self.live.observation.state

    @property
    def surcharged(self) -> bool:
        """Return whether its price leaves out something that it costs (`widen_price`)."""
        prices = self.live.observation.prices if self.burns else ()
        return bool(prices and prices[-1].estimate and prices[-1].estimate.step == SURCHARGED)

    @property
    def unpriced(self) -> bool:
        """Return whether it certainly costs something, but not even bounds of its price are known."""
        return bool(self.live.not_counted) and not self.burns

    def get_burn(self, currency: str = "USD") -> HourlyBurn:
        """Return its burn in `currency`."""
        for burn in self.burns:
            if burn.currency == currency:
                return burn
        return make_zero_burn(currency)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeStatus:
    """The status of a scope. `state`: complete, partial or failed like its last listing, or stale, or ahead.

    `unseen`: the time since the last complete listing if that is too long ago; None: it is not.
    """

    now: ScopeCoverage
    state: str
    unseen: timedelta | None = None

    @property
    def unreached(self) -> bool:
        """Return whether it stands for an account that could never be asked for its scopes."""
        return not self.now.scope.name

    @property
    def never(self) -> bool:
        """Return whether no listing was ever complete."""
        return self.now.last_complete_at is None

    @property
    def ahead(self) -> bool:
        """Return whether its last listing is dated in the future; until then the ledger accepts no other as newer."""
        return self.state == MISDATED_SCOPE

    @property
    def seen(self) -> bool:
        """Return whether its last complete listing is recent."""
        return self.unseen is None and not self.ahead


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrencyOutlook:
    """The totals of one currency: the burn now, the spend this month, and the forecast of the month.

    `guessed`: the part of `to_date` at estimated prices, None if there is none.
    """

    burn: HourlyBurn
    to_date: MoneyInterval
    ahead: SpendForecast
    guessed: MoneyInterval | None = None

    @property
    def currency(self) -> str:
        """Return the ISO 4217 code."""
        return self.burn.currency


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchdogShare:
    """One of several watchdogs that share the accounts: which it polled last, and whether it plans. `name` "": nobody did.

    `overdue`: those of `accounts` that were due an interval ago, so that nobody polled them for two. `clock_off`: its clock is
    wrong, and ahead of the ledger server's by so much (negative: behind), so that it takes part in nothing; zero: it is right.
    """

    name: str
    accounts: tuple[str, ...]
    overdue: tuple[str, ...] = ()
    plans: bool = False
    clock_off: timedelta = timedelta()


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetStatus:
    """The result of `status` at `at`; its month, named `label`, is that of `zone`. The highest burn comes first.

    `runways`: how long prepaid balances last; None: not requested. `watchdogs`: those that share the accounts; (): none do.
    """

    at: datetime
    month: Period
    zone: str
    label: str
    usd: CurrencyOutlook
    others: tuple[CurrencyOutlook, ...]
    scopes: tuple[ScopeStatus, ...]
    resources: tuple[ResourceBurn, ...]
    budgets: tuple[BudgetStatus, ...] = ()
    intents: tuple[Intent, ...] = ()
    overshoots: Mapping[str, Money] = field(default_factory=dict)
    runways: tuple[Runway, ...] | None = None
    watchdogs: tuple[WatchdogShare, ...] = ()


def build_fleet_status(
    *,
    at: datetime,
    month: Period,
    zone: tzinfo,
    spending: Iterable[Spending],
    live: Iterable[LiveResource],
    scopes: Iterable[ScopeCoverage],
    budgets: Sequence[BudgetStatus] = (),
    annotations: Mapping[ResourceKey, ResourceAnnotations] | None = None,
    intents: Sequence[Intent] = (),
    overshoots: Mapping[str, Money] | None = None,
    balances: Sequence[PrepaidBalance] | None = None,
    stale_after: timedelta = SCOPE_STALE_AFTER,
    past: Mapping[str, PastHours] | None = None,
    ends: Mapping[ResourceKey, datetime] | None = None,
) -> FleetStatus:
    """Build the status at `at`. `spending`: of `month` as known at `at`. `past`: by currency; `ends`: the planned stops.

    `budgets`: their status at `at`. `intents`: the open ones. `overshoots`: by how much each hard budget could be exceeded at
    worst, by name; a missing one is unknown. `balances`: of prepaid accounts, None: not requested.
    """
    by_key, live = annotations or {}, list(live)
    resources = tuple(
        ResourceBurn(live=one, burns=compute_hourly_burn(one, at), beside=by_key.get(one.observation.key, NO_ANNOTATIONS))
        for one in live
    )
    burning = (burn for resource in resources for burn in resource.burns)
    lines = list_burns(live, at, ends)
    usd, *more = build_outlooks(at, month, spending=spending, burning=burning, lines=lines, past=past or {})
    return FleetStatus(
        at=at,
        month=month,
        zone=str(zone),
        label=format_month(month, zone),
        usd=usd,
        others=tuple(more),
        scopes=build_scope_statuses(scopes, at, stale_after),
        resources=tuple(sorted(resources, key=_rank_by_burn)),
        budgets=tuple(budgets),
        intents=tuple(intents),
        overshoots=dict(overshoots or {}),
        runways=None if balances is None else tuple(compute_runway(balance, live, at) for balance in balances),
    )


def build_outlooks(
    at: datetime,
    month: Period,
    *,
    spending: Iterable[Spending],
    burning: Iterable[HourlyBurn],
    lines: Iterable[AttributedBurn],
    past: Mapping[str, PastHours],
) -> tuple[CurrencyOutlook, ...]:
    """Return the totals of each currency at `at`, dollars first.

    `spending`: of `month`; `burning`: of all that bills now, and `lines`: the same by line; `past`: by currency.
    """
    spent: dict[str, list[Spending]] = defaultdict(list)
    for part in spending:
        spent[part.money.low.currency].append(part)
    burns: dict[str, list[HourlyBurn]] = defaultdict(list)
    for burn in burning:
        burns[burn.currency].append(burn)
    lines_by_currency: dict[str, list[AttributedBurn]] = defaultdict(list)
    for line in lines:
        lines_by_currency[line.hourly.low.currency].append(line)
    outlooks = []
    for currency in ("USD", *sorted({*spent, *burns} - {"USD"})):
        to_date = sum_intervals((part.money for part in spent[currency]), currency)
        guessed = [part.money for part in spent[currency] if not part.known]
        left = month.end - min(max(at, month.start), month.end)
        outlooks.append(
            CurrencyOutlook(
                burn=sum_burns(burns[currency], currency),
                to_date=to_date,
                ahead=forecast_spend(to_date, past.get(currency, NO_PAST), lines_by_currency[currency], now=at, left=left),
                guessed=sum_intervals(guessed, currency) if guessed else None,
            )
        )
    return tuple(outlooks)


def build_scope_statuses(scopes: Iterable[ScopeCoverage], at: datetime, stale_after: timedelta) -> tuple[ScopeStatus, ...]:
    """Return the status of each of `scopes` at `at`, sorted. `stale_after`: see `build_scope_status`."""
    return tuple(build_scope_status(scope, at, stale_after) for scope in sorted(scopes, key=lambda s: s.scope))


def build_scope_status(scope: ScopeCoverage, at: datetime, stale_after: timedelta) -> ScopeStatus:
    """Return the status of `scope` at `at`.

    A scope that was complete, and was not listed for longer than `stale_after`, is stale. A scope whose last poll is dated in
    the future, by a wrong clock, is ahead.
    """
    seen_at = scope.last_complete_at or scope.since
    age = max(at - seen_at, timedelta())
    late = age > stale_after or scope.last_complete_at is None
    state = STALE_SCOPE if late and scope.outcome == COMPLETE else scope.outcome
    state = MISDATED_SCOPE if scope.at > at + POLL_AHEAD_MAX else state
    return ScopeStatus(now=scope, state=state, unseen=age if late else None)


def format_month(month: Period, zone: tzinfo) -> str:
    """Return the month in `zone`: `2026-10`."""
    return f"{(month.start + month.length / 2).astimezone(zone):%Y-%m}"


def _rank_by_burn(resource: ResourceBurn) -> tuple[int, int, int, tuple[str, ...]]:
    """Return the sort key: burn in dollars at stated prices, the high end in any currency, then the cost so far."""
    most = sum(burn.bounds.high.nano for burn in resource.burns)
    return -resource.get_burn().stated.nano, -most, -resource.live.spent.expected.nano, resource.live.observation.key


def annotate_resources(
    rules: GuardConfig, snapshot: GuardSnapshot, works: Mapping[ResourceKey, Activity] | None = None
) -> dict[ResourceKey, ResourceAnnotations]:
    """Return the annotations of each resource of `snapshot`; its activity is that for its policy with the longest wait.

    `works`: activities computed before.
    """
    agents = index_agents(snapshot.agents)
    starts = {one.own_stop.life.key: one.proposal.due_at for one in forecast_starts(rules, snapshot) if _will_start(one)}
    planned = index_timed_stops(snapshot.wishes, snapshot.now)
    return {
        context.key: ResourceAnnotations(
            work=(works or {}).get(context.key) or context.classify(context.find_longest_policy()),
            owner=context.owner,
            lease=context.lease,
            protected=context.protection.protected,
            agent=agents.get(context.key),
            starts_at=starts.get(context.key),
            stops_at=get_due_time(plan) if (plan := select_timed_stop(context.live.observation, planned)) else None,
            usage=context.measure_usage(),
        )
        for context in build_contexts(rules, snapshot)
    }


def _will_start(start: ScheduledStart) -> bool:
    """Return whether nothing lasting holds it. What its provider offers is not known from the ledger alone."""
    return all(reason == "no_act" for reason, _ in start.list_lasting_holds())


def bound_by_hard_caps(status: FleetStatus) -> FleetStatus:
    """Return `status` with the high ends of hard budgets' forecasts at most where their caps hold them, as they act now."""

    def bound(one: BudgetStatus) -> BudgetStatus:
        overshoot, ahead = status.overshoots.get(one.budget.name), one.forecast
        if not one.budget.hard or overshoot is None:
            return one
        most = max(ahead.expected, one.spent.high, one.budget.cap + overshoot)
        return replace(one, forecast=replace(ahead, high=min(ahead.high, most)))

    return replace(status, budgets=tuple(map(bound, status.budgets)))


def forecast_overshoots(
    rules: GuardConfig, snapshot: GuardSnapshot, handling: Mapping[ResourceKey, Handling]
) -> dict[str, Money]:
    """Return by how much each hard budget could be exceeded at worst if the guard acted on it now, by name.

    `handling`: of what was just listed. Empty if the handling of a running machine is unknown, because the figure depends
    mostly on whether it can be stopped.
    """
    live = [apply_handling(one, handling) for one in snapshot.live]
    running = {one.observation.key for one in live if one.observation.state == RUNNING and one.absent_at is None}
    if not running <= set(handling):
        return {}
    forecasts = forecast_snapshot_caps(rules, replace(snapshot, live=tuple(live)))
    return {one.standing.budget.name: one.overshoot for one in forecasts}
