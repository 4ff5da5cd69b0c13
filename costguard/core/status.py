"""What is so now: what burns, what the month has cost and will, and how far to trust it.

Example: an instance at $2.00 an hour and its disk of 730 GB at $0.10 per GB-month of 730 h burn $2.10 an hour. With $100 spent
this month and 100 h left of it, the forecast is 100 + 2.10 x 100 = $310: the month to date, plus the present burn to the
month's end, end by end.

A resource that complete listings lack has probably ended: it stands in the forecast's high end and in nothing else. So does
what may bill since nobody has looked. A price that nobody stated stands in the forecast as its bounds, and in the burn not at
all.
"""

from __future__ import annotations

from calendar import monthrange
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, tzinfo

from costguard.core.guard.intent import Intent
from costguard.core.guard.wishes import Wish
from costguard.core.guard.work import Work
from costguard.core.instant import DAY_US, HOUR_US, MICROSECOND
from costguard.core.metering.inventory import AHEAD, COMPLETE
from costguard.core.metering.meter import FIXED_UNITS, GB, Meter
from costguard.core.metering.resource import ResourceKey
from costguard.core.metering.span import Span
from costguard.core.money import Money, MoneyInterval, divide_half_even
from costguard.core.period import Period
from costguard.core.spending import Live, ScopeNow, Spending
from costguard.core.standing import Burn, Standing
from costguard.core.statement import nothing, total_of

STALE_AFTER = timedelta(minutes=15)
"""A scope that was last seen completely longer ago is shouted about. Three polls of the slowest usual interval, five minutes:
an assumption, 2026-11."""

STALE, MISDATED, ABSENT = "stale", "ahead", "absent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hourly:
    """Money an hour in one currency. `stated`: what is expected at prices that somebody stated.

    `unstated`: the most that what bills at other prices can cost. `bounds` is of both together.
    """

    bounds: MoneyInterval
    stated: Money
    unstated: Money

    @property
    def unknown(self) -> bool:
        """Whether something in it bills at a price that nobody stated."""
        return self.unstated.nano > 0

    @property
    def currency(self) -> str:
        """ISO 4217."""
        return self.stated.currency

    def plus(self, other: Hourly) -> Hourly:
        """Both together."""
        bounds = self.bounds.plus(other.bounds)
        return Hourly(bounds=bounds, stated=self.stated + other.stated, unstated=self.unstated + other.unstated)


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """What the guard knows of a resource. `lease`: the one that holds now."""

    work: Work = field(default_factory=Work)
    owner: str = ""
    lease: Wish | None = None
    protected: bool = False


NOTHING_BESIDE = Beside()


@dataclass(frozen=True, slots=True, kw_only=True)
class Burning:
    """A resource and what it burns, an `Hourly` a currency; none where nothing bills now."""

    live: Live
    burns: tuple[Hourly, ...]
    beside: Beside = field(default_factory=lambda: NOTHING_BESIDE)

    @property
    def work(self) -> Work:
        """Whether it does anything."""
        return self.beside.work

    @property
    def owner(self) -> str:
        """Whose it is, "" where nobody is known."""
        return self.beside.owner or self.live.observation.owner

    @property
    def absent(self) -> bool:
        """Whether complete listings lack it."""
        return self.live.absent_at is not None

    @property
    def state(self) -> str:
        """The provider's state in our words, or "absent"."""
        return ABSENT if self.absent else self.live.observation.state

    def burn(self, currency: str = "USD") -> Hourly:
        """What it burns in `currency`."""
        return next((burn for burn in self.burns if burn.currency == currency), no_burn(currency))


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeView:
    """A scope as it stands at an instant. `state`: complete, partial or failed as the last listing was, or stale, or ahead.

    `unseen`: how long no listing has been complete where that is too long; None: it is not. `never`: none ever was.
    """

    now: ScopeNow
    state: str
    unseen: timedelta | None = None

    @property
    def never(self) -> bool:
        """Whether no listing ever was complete."""
        return self.now.last_complete_at is None

    @property
    def ahead(self) -> bool:
        """Whether its last listing lies in the future: until then the ledger takes no other for newer."""
        return self.state == MISDATED

    @property
    def seen(self) -> bool:
        """Whether it is seen completely, and lately."""
        return self.unseen is None and not self.ahead


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What one currency comes to: burning now, spent this month, and by its end.

    `guessed`: the part of `to_date` whose price nobody stated, None where there is none.
    """

    burn: Hourly
    to_date: MoneyInterval
    forecast: MoneyInterval
    guessed: MoneyInterval | None = None

    @property
    def currency(self) -> str:
        """ISO 4217."""
        return self.burn.currency


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The answer of `status` at `at`; its month, named `label`, is that of `zone`. What burns most stands first."""

    at: datetime
    month: Period
    zone: str
    label: str
    usd: Outlook
    others: tuple[Outlook, ...]
    scopes: tuple[ScopeView, ...]
    resources: tuple[Burning, ...]
    budgets: tuple[Standing, ...] = ()
    intents: tuple[Intent, ...] = ()
    overshoots: Mapping[str, Money] = field(default_factory=dict)


def status_of(
    *,
    at: datetime,
    month: Period,
    zone: tzinfo,
    spending: Iterable[Spending],
    live: Iterable[Live],
    scopes: Iterable[ScopeNow],
    budgets: Sequence[Standing] = (),
    beside: Mapping[ResourceKey, Beside] | None = None,
    intents: Sequence[Intent] = (),
    overshoots: Mapping[str, Money] | None = None,
    stale_after: timedelta = STALE_AFTER,
) -> Status:
    """`spending`: of `month` as known at `at`. `budgets`: as they stand at `at`. `intents`: the open ones.

    `overshoots`: by how much a hard budget could be exceeded at worst, by name; one that is not there is not known.
    """
    known = beside or {}
    resources = tuple(
        Burning(live=one, burns=hourly_of(one, at), beside=known.get(one.observation.key, NOTHING_BESIDE)) for one in live
    )
    spent: dict[str, list[Spending]] = defaultdict(list)
    for part in spending:
        spent[part.money.low.currency].append(part)
    burns: dict[str, list[Hourly]] = defaultdict(list)
    for burn in (burn for resource in resources for burn in resource.burns):
        burns[burn.currency].append(burn)
    left_us = (month.end - min(max(at, month.start), month.end)) // MICROSECOND
    others = sorted({*spent, *burns} - {"USD"})
    usd, *more = (_outlook(c, spent.get(c, []), burns.get(c, []), left_us) for c in ("USD", *others))
    return Status(
        at=at,
        month=month,
        zone=str(zone),
        label=month_label(month, zone),
        usd=usd,
        others=tuple(more),
        scopes=tuple(scope_view(scope, at, stale_after) for scope in sorted(scopes, key=lambda s: s.scope)),
        resources=tuple(sorted(resources, key=_dearest)),
        budgets=tuple(budgets),
        intents=tuple(intents),
        overshoots=dict(overshoots or {}),
    )


def hourly_of(live: Live, at: datetime) -> tuple[Hourly, ...]:
    """What the open lines of `live` burn at `at`, by currency, and what may burn beside them."""
    by_currency: dict[str, Hourly] = {}
    for _, burn in _hourlies(live, at):
        by_currency[burn.currency] = by_currency.get(burn.currency, no_burn(burn.currency)).plus(burn)
    return tuple(by_currency[currency] for currency in sorted(by_currency))


def burns_of(live: Iterable[Live], at: datetime) -> tuple[Burn, ...]:
    """What every line bills or may bill at `at`, as the budgets count it."""
    return tuple(
        Burn(attribution=span.attribution, hourly=hourly.bounds) for one in live for span, hourly in _hourlies(one, at)
    )


def per_hour(meter: Meter, nano: int, at: datetime) -> int:
    """Nano-units an hour of `meter` at `nano` per unit. A calendar GB-month is divided by the hours of the month of `at`."""
    if meter.unit == GB:
        return 0
    unit = FIXED_UNITS.get(meter.unit) or monthrange(at.year, at.month)[1] * DAY_US
    return divide_half_even(nano * meter.quantity * HOUR_US, unit)


def scope_view(scope: ScopeNow, at: datetime, stale_after: timedelta) -> ScopeView:
    """How `scope` stands at `at`. One that was complete, and has not been asked for longer than `stale_after`, is stale.

    One whose last poll lies in the future, which a wrong clock has dated, is ahead.
    """
    seen_at = scope.last_complete_at or scope.since
    age = max(at - seen_at, timedelta())
    late = age > stale_after or scope.last_complete_at is None
    state = STALE if late and scope.outcome == COMPLETE else scope.outcome
    state = MISDATED if scope.at > at + AHEAD else state
    return ScopeView(now=scope, state=state, unseen=age if late else None)


def month_label(month: Period, zone: tzinfo) -> str:
    """`2026-10`: the month in `zone` that `month` is."""
    return f"{(month.start + month.length / 2).astimezone(zone):%Y-%m}"


def no_burn(currency: str = "USD") -> Hourly:
    """Nothing an hour."""
    zero = Money(nano=0, currency=currency)
    return Hourly(bounds=nothing(currency), stated=zero, unstated=zero)


def _hourlies(live: Live, at: datetime) -> Iterator[tuple[Span, Hourly]]:
    """What each line of `live` burns: where it is absent or was not looked at, probably nothing."""
    yield from ((span, _hourly(span, at, doubtful=live.absent_at is not None)) for span in live.open)
    for span in live.unheard:
        hourly = _hourly(span, at, doubtful=True)
        yield span, replace(hourly, unstated=hourly.stated)  # it bounds what may be, and is no price that nobody stated


def _hourly(span: Span, at: datetime, *, doubtful: bool) -> Hourly:
    """What one line burns: where nobody knows whether it does, probably nothing and at most its price."""
    price, zero = span.meter.price, Money(nano=0, currency=span.meter.price.currency)
    low, expected, high = (
        Money(nano=per_hour(span.meter, nano, at), currency=price.currency) for nano in (price.low, price.expected, price.high)
    )
    if doubtful:
        low = expected = zero
    bounds = MoneyInterval(low=low, expected=expected, high=high)
    return Hourly(bounds=bounds, stated=expected if price.known else zero, unstated=zero if price.known else high)


def _outlook(currency: str, spending: Sequence[Spending], burns: Iterable[Hourly], left_us: int) -> Outlook:
    burn = no_burn(currency)
    for one in burns:
        burn = burn.plus(one)
    low, expected, high = (_over(end, left_us) for end in (burn.bounds.low, burn.bounds.expected, burn.bounds.high))
    to_date = total_of((part.money for part in spending), currency)
    guessed = [part.money for part in spending if not part.known]
    return Outlook(
        burn=burn,
        to_date=to_date,
        forecast=to_date.plus(MoneyInterval(low=low, expected=expected, high=high)),
        guessed=total_of(guessed, currency) if guessed else None,
    )


def _over(hourly: Money, us: int) -> Money:
    return Money(nano=divide_half_even(hourly.nano * us, HOUR_US), currency=hourly.currency)


def _dearest(resource: Burning) -> tuple[int, int, int, tuple[str, ...]]:
    """What burns most first: dollars at stated prices, then what any currency could come to; then what has cost most."""
    most = sum(burn.bounds.high.nano for burn in resource.burns)
    return -resource.burn().stated.nano, -most, -resource.live.spent.expected.nano, resource.live.observation.key
