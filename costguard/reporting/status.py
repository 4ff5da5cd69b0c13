"""What is so now: what burns, what the month has cost and will, and how far to trust it.

Example: an instance at $2.00 an hour and its disk of 730 GB at $0.10 per GB-month of 730 h burn $2.10 an hour. With $100 spent
this month and 100 h left of it, the forecast is 100 + 2.10 x 100 = $310: the month to date, plus the present burn to the
month's end, end by end.

A resource that complete listings lack has probably ended: it stands in the forecast's high end and in nothing else. So does
what may bill since nobody has looked. A price that nobody stated stands in the forecast as its bounds, and in the burn not at
all.

What stands beside a resource in a status: its work, whose it is, who keeps it, whether it is protected.

And beside a hard budget: by how much it could be exceeded at worst.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, tzinfo

from costguard.budgets.budget_status import BudgetStatus
from costguard.budgets.runway import Runway, compute_runway
from costguard.guard.action_intents import Intent
from costguard.guard.alerts.rules import index_agents
from costguard.guard.context import GuardConfig, GuardSnapshot, apply_handling, build_contexts
from costguard.guard.evaluation import forecast_snapshot_caps
from costguard.guard.overrides import Override
from costguard.guard.signals import Activity
from costguard.metering.burn import HourlyBurn, compute_hourly_burn, forecast_total, make_zero_burn, sum_burns
from costguard.metering.inventory import COMPLETE, POLL_AHEAD_MAX
from costguard.metering.observation import Handling
from costguard.metering.spending import LiveResource, ScopeCoverage, Spending
from costguard.values.agent import Agent
from costguard.values.calendar import Period
from costguard.values.instant import MICROSECOND
from costguard.values.money import Money, MoneyInterval, PrepaidBalance, sum_intervals
from costguard.values.resource import RUNNING, ResourceKey

SCOPE_STALE_AFTER = timedelta(minutes=15)
"""A scope that was last seen completely longer ago is shouted about. Three polls of the slowest usual interval, five minutes:
an assumption, 2026-11."""

STALE_SCOPE, MISDATED_SCOPE, ABSENT_STATE = "stale", "ahead", "absent"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceAnnotations:
    """What the guard knows of a resource. `lease`: the one that holds now. `agent`: the one that may speak of it."""

    work: Activity = field(default_factory=Activity)
    owner: str = ""
    lease: Override | None = None
    protected: bool = False
    agent: Agent | None = None


NO_ANNOTATIONS = ResourceAnnotations()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceBurn:
    """A resource and what it burns, an `Hourly` a currency; none where nothing bills now."""

    live: LiveResource
    burns: tuple[HourlyBurn, ...]
    beside: ResourceAnnotations = field(default_factory=lambda: NO_ANNOTATIONS)

    @property
    def work(self) -> Activity:
        """Whether it does anything."""
        return self.beside.work

    @property
    def owner(self) -> str:
        """Whose it is, "" where unknown."""
        return self.beside.owner or self.live.observation.owner

    @property
    def absent(self) -> bool:
        """Whether complete listings lack it."""
        return self.live.absent_at is not None

    @property
    def state(self) -> str:
        """The provider's state in our words, or "absent"."""
        return ABSENT_STATE if self.absent else self.live.observation.state

    @property
    def unpriced(self) -> bool:
        """Whether it surely costs something, and nobody can say what, not even within what."""
        return bool(self.live.not_counted) and not self.burns

    def get_burn(self, currency: str = "USD") -> HourlyBurn:
        """What it burns in `currency`."""
        return next((burn for burn in self.burns if burn.currency == currency), make_zero_burn(currency))


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeStatus:
    """A scope as it stands at an instant. `state`: complete, partial or failed as the last listing was, or stale, or ahead.

    `unseen`: how long no listing has been complete where that is too long; None: it is not. `never`: none ever was.
    """

    now: ScopeCoverage
    state: str
    unseen: timedelta | None = None

    @property
    def never(self) -> bool:
        """Whether no listing ever was complete."""
        return self.now.last_complete_at is None

    @property
    def ahead(self) -> bool:
        """Whether its last listing lies in the future: until then the ledger takes no other for newer."""
        return self.state == MISDATED_SCOPE

    @property
    def seen(self) -> bool:
        """Whether it is seen completely, and lately."""
        return self.unseen is None and not self.ahead


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrencyOutlook:
    """What one currency comes to: burning now, spent this month, and by its end.

    `guessed`: the part of `to_date` whose price nobody stated, None where there is none.
    """

    burn: HourlyBurn
    to_date: MoneyInterval
    forecast: MoneyInterval
    guessed: MoneyInterval | None = None

    @property
    def currency(self) -> str:
        """ISO 4217."""
        return self.burn.currency


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetStatus:
    """The answer of `status` at `at`; its month, named `label`, is that of `zone`. What burns most stands first.

    `runways`: how long prepaid balances last; None: nobody was asked.
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


def build_fleet_status(
    *,
    at: datetime,
    month: Period,
    zone: tzinfo,
    spending: Iterable[Spending],
    live: Iterable[LiveResource],
    scopes: Iterable[ScopeCoverage],
    budgets: Sequence[BudgetStatus] = (),
    beside: Mapping[ResourceKey, ResourceAnnotations] | None = None,
    intents: Sequence[Intent] = (),
    overshoots: Mapping[str, Money] | None = None,
    balances: Sequence[PrepaidBalance] | None = None,
    stale_after: timedelta = SCOPE_STALE_AFTER,
) -> FleetStatus:
    """`spending`: of `month` as known at `at`. `budgets`: as they stand at `at`. `intents`: the open ones.

    `overshoots`: by how much a hard budget could be exceeded at worst, by name; one that is not there is not known. `balances`:
    of the accounts that are paid in advance, None: nobody was asked.
    """
    known, live = beside or {}, list(live)
    resources = tuple(
        ResourceBurn(live=one, burns=compute_hourly_burn(one, at), beside=known.get(one.observation.key, NO_ANNOTATIONS))
        for one in live
    )
    spent: dict[str, list[Spending]] = defaultdict(list)
    for part in spending:
        spent[part.money.low.currency].append(part)
    burns: dict[str, list[HourlyBurn]] = defaultdict(list)
    for burn in (burn for resource in resources for burn in resource.burns):
        burns[burn.currency].append(burn)
    left_us = (month.end - min(max(at, month.start), month.end)) // MICROSECOND
    others = sorted({*spent, *burns} - {"USD"})
    usd, *more = (_build_outlook(c, spent.get(c, []), burns.get(c, []), left_us) for c in ("USD", *others))
    return FleetStatus(
        at=at,
        month=month,
        zone=str(zone),
        label=format_month(month, zone),
        usd=usd,
        others=tuple(more),
        scopes=tuple(build_scope_status(scope, at, stale_after) for scope in sorted(scopes, key=lambda s: s.scope)),
        resources=tuple(sorted(resources, key=_rank_by_burn)),
        budgets=tuple(budgets),
        intents=tuple(intents),
        overshoots=dict(overshoots or {}),
        runways=None if balances is None else tuple(compute_runway(balance, live, at) for balance in balances),
    )


def build_scope_status(scope: ScopeCoverage, at: datetime, stale_after: timedelta) -> ScopeStatus:
    """How `scope` stands at `at`. One that was complete, and has not been asked for longer than `stale_after`, is stale.

    One whose last poll lies in the future, which a wrong clock has dated, is ahead.
    """
    seen_at = scope.last_complete_at or scope.since
    age = max(at - seen_at, timedelta())
    late = age > stale_after or scope.last_complete_at is None
    state = STALE_SCOPE if late and scope.outcome == COMPLETE else scope.outcome
    state = MISDATED_SCOPE if scope.at > at + POLL_AHEAD_MAX else state
    return ScopeStatus(now=scope, state=state, unseen=age if late else None)


def format_month(month: Period, zone: tzinfo) -> str:
    """`2026-10`: the month in `zone` that `month` is."""
    return f"{(month.start + month.length / 2).astimezone(zone):%Y-%m}"


def _build_outlook(currency: str, spending: Sequence[Spending], burns: Iterable[HourlyBurn], left_us: int) -> CurrencyOutlook:
    burn = sum_burns(burns, currency)
    to_date = sum_intervals((part.money for part in spending), currency)
    guessed = [part.money for part in spending if not part.known]
    return CurrencyOutlook(
        burn=burn,
        to_date=to_date,
        forecast=forecast_total(to_date, burn, left_us),
        guessed=sum_intervals(guessed, currency) if guessed else None,
    )


def _rank_by_burn(resource: ResourceBurn) -> tuple[int, int, int, tuple[str, ...]]:
    """What burns most first: dollars at stated prices, then what any currency could come to; then what has cost most."""
    most = sum(burn.bounds.high.nano for burn in resource.burns)
    return -resource.get_burn().stated.nano, -most, -resource.live.spent.expected.nano, resource.live.observation.key


def annotate_resources(
    rules: GuardConfig, sight: GuardSnapshot, works: Mapping[ResourceKey, Activity] | None = None
) -> dict[ResourceKey, ResourceAnnotations]:
    """Of each resource of `sight`, as the policy that waits longest for it judges its work. `works`: judged so already."""
    agents = index_agents(sight.agents)
    return {
        seat.key: ResourceAnnotations(
            work=(works or {}).get(seat.key) or seat.classify(seat.find_longest_policy(), rules, sight),
            owner=seat.owner,
            lease=seat.lease,
            protected=seat.protection.protected,
            agent=agents.get(seat.key),
        )
        for seat in build_contexts(rules, sight)
    }


def forecast_overshoots(rules: GuardConfig, sight: GuardSnapshot, handling: Mapping[ResourceKey, Handling]) -> dict[str, Money]:
    """By how much each hard budget could be exceeded at worst, were the guard to act on it now; by name.

    `handling`: of what was just listed. Empty where something runs whose handling is not known: whether it can be stopped
    decides most of the figure.
    """
    live = [apply_handling(one, handling) for one in sight.live]
    running = {one.observation.key for one in live if one.observation.state == RUNNING and one.absent_at is None}
    if not running <= set(handling):
        return {}
    found = forecast_snapshot_caps(rules, replace(sight, live=tuple(live)))
    return {one.standing.budget.name: one.overshoot for one in found}
