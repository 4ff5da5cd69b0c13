"""Budget status: what is spent and held, the forecast (`spend_forecast`), and whether a new hold is admitted.

Example: a budget of $40.00 a day with two machines at $2.99 an hour, $6.00 spent by 12:00 and $12.00 in open holds: the
exposure is 6 + 12 = $18.00; if what runs goes on, 6 + 5.98 x 12 h = $77.76 are spent, over the cap; the pace 15 % - 50 % =
-35 %; the time to the cap (40 - 6) / 5.98 = 5.7 h; a new hold of $22.00 is admitted, one of $22.01 is not.

The high end of the spend is compared with the cap. Currencies are never mixed: spend in another currency is listed, and not
added.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from fractions import Fraction

from costguard.budgets.budget import (
    FORECAST,
    PACE,
    ROLLING,
    SPENT,
    TIME_TO_CAP,
    Budget,
    BudgetThreshold,
    find_budget_period,
    matches_filter,
)
from costguard.budgets.spend_forecast import BASES, NO_PAST, WEEKS, PastHours, forecast_spend
from costguard.metering.burn import AttributedBurn
from costguard.metering.spending import Spending
from costguard.values.calendar import Period
from costguard.values.checks import require
from costguard.values.instant import HOUR_US, MICROSECOND
from costguard.values.money import Money, MoneyInterval, divide_half_even
from costguard.values.resource import ENTERED
from costguard.values.text_format import format_amount, format_near_time, get_currency_sign, is_wide

WITHIN, OVER_CAP, OTHER_CURRENCY, NO_BUDGET = "within_budget", "budget_cap", "currency", "no_budget"
WITHIN_RATE, OVER_RATE, UNKNOWN_RATE = "within_rate_cap", "rate_cap", "rate_unknown"
RATE_REASONS = (WITHIN_RATE, OVER_RATE, UNKNOWN_RATE)
"""Of a rate cap: all amounts of such an admission are money an hour."""
ALREADY_HELD, RENEWED = "already_held", "renewed"
NEVER_ACTS = (
    "its cap is in {0} and charges are in {1}, so it can never act; write the cap in the currency of the charges, or what a "
    'dollar is worth: [display] rates = ["1 USD = 0.92 {0} on 2026-11-01 (ECB)"], with the rate, its day and its source'
)
HELD_BEFORE = (ALREADY_HELD, RENEWED)
"""Of a hold that was open when it was asked for again: its run may have been launched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetStatus:
    """The status of a budget in the current `period`.

    `burn`: money an hour. `holds`: open ones, in the budget's currency. `forecast`: the spend at the end of the period, four of
    five times between its ends; for a rolling window, its content after one window length. `if_unchanged`: the spend plus the
    burn until then; its low end counts only certain spend and certain burn. `basis`: what the forecast stands on, a key of
    `spend_forecast.BASES`. `fraction`: spent.high / cap. `pace`: `fraction` less the elapsed share of the period, None for a
    rolling window and a total without an end. `time_to_cap_hours`: until spent.high reaches the cap at burn.high; 0: it has
    reached it; None: not in this period, or never. A rolling window is assumed to lose nothing until then.

    Of a rate cap `spent` and `burn` are what an hour of what bills now costs, of which a machine that nobody could look at is
    not certain; `holds` are money an hour too; `fraction` is spent.expected / cap.
    """

    budget: Budget
    period: Period
    spent: MoneyInterval
    burn: MoneyInterval
    holds: Money
    forecast: MoneyInterval
    if_unchanged: MoneyInterval
    basis: str
    fraction: Fraction
    pace: Fraction | None
    time_to_cap_hours: Fraction | None
    notes: tuple[str, ...] = ()
    """Why the spend is not known exactly."""
    uncounted: tuple[str, ...] = ()
    """Other currencies in which matching resources were or are charged."""

    @property
    def exposure(self) -> Money:
        """Return the most that is spent or held: spent.high + holds."""
        return self.spent.high + self.holds

    @property
    def left(self) -> Money:
        """Return what may still be held: the cap less the exposure. Negative if the exposure exceeds the cap."""
        return self.budget.cap - self.exposure

    @property
    def left_range(self) -> MoneyInterval:
        """Return `left` as an interval: the low end, which decides, is `left`; the others are left if less was spent."""
        free = self.budget.cap - self.holds
        return MoneyInterval(low=self.left, expected=free - self.spent.expected, high=free - self.spent.low)


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetWarning:
    """A warning: the `measure` that passed its limit, and its text for people (`says`)."""

    measure: str
    says: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Whether a new hold is admitted, and why.

    `reason`: within_budget; budget_cap (exposure plus new money exceeds the cap); currency (the budget is in another currency,
    so they cannot be compared); within_rate_cap, rate_cap, rate_unknown (of a rate cap, with all amounts in money an hour;
    the last: what the run costs an hour is not known); no_budget (no budget matches, so there is no limit); already_held
    (requested and admitted before); renewed (admitted before with other money, which the new money replaces). For no_budget
    and already_held, the fields of the budget are empty. `exposure` excludes the new money, which is `asked`; `left` is
    cap - exposure, and may be negative; `left_range`: as an interval, whose low end is `left`.

    `was`: the money that the open hold of this id had before, where it is another amount; it is in no `exposure`. A refusal
    leaves that hold as it is. `until`: when the hold that counts now expires, where it was open before; else None.
    """

    admitted: bool
    reason: str
    asked: Money
    budget: str = ""
    exposure: Money | None = None
    cap: Money | None = None
    left: Money | None = None
    left_range: MoneyInterval | None = None
    was: Money | None = None
    until: datetime | None = None

    @property
    def says(self) -> str:
        """Return one sentence: which budget decided, how much of it is left, and what became of a hold that was open before."""
        if self.was is None:
            return self._describe_budget()
        was = f"{format_amount(self.was)} {self.was.currency}"
        if not self.admitted:
            return f"{self._describe_budget()}; the earlier hold of {was} stays"
        decided = f" ({self._describe_budget()})" if self.cap else ""
        return f"{format_amount(self.asked)} {self.asked.currency} is held instead of {was}{decided}"

    def _describe_budget(self) -> str:
        amount = f"{format_amount(self.asked)} {self.asked.currency}"
        if self.cap is None or self.left is None:
            return f"{amount} is held already" if self.reason == ALREADY_HELD else f"no budget limits {amount}"
        if self.reason == OTHER_CURRENCY:
            return f"budget {self.budget} is in {self.cap.currency}, and {amount} cannot be compared with it"
        sign, cap = get_currency_sign(self.cap.currency), format_amount(self.cap)
        if self.reason == UNKNOWN_RATE:
            return f"budget {self.budget} is {sign}{cap} an hour, and what the run costs an hour is not known: state its hours"
        if self.reason in RATE_REASONS:
            amount, cap = f"{amount} an hour", f"{cap} an hour"
        if self.left.nano < 0:
            spent = self.cap - self.left
            may = (
                "over budget by" if self.left_range is None or self.left_range.high.nano < 0 else "may be over budget by up to"
            )
            standing = f"{may} {sign}{format_amount(Money(nano=-self.left.nano, currency=self.cap.currency))} "
            return f"budget {self.budget}: {standing}({sign}{format_amount(spent)} of {sign}{cap})"
        answer = "enough" if self.admitted else "not enough"
        least = "at least " if self.left_range is not None and is_wide(self.left_range) else ""
        return f"budget {self.budget}: {least}{sign}{format_amount(self.left)} of {sign}{cap} left, {answer} for {amount}"


def compute_budget_status(
    budget: Budget,
    spendings: Iterable[Spending],
    burns: Iterable[AttributedBurn],
    *,
    holds: Money,
    now: datetime,
    past: PastHours = NO_PAST,
) -> BudgetStatus:
    """Return the status of `budget` at `now`.

    `spendings`: in `find_budget_period(budget, now)`, as known now; what does not match is left out. `past`: what closed spans
    that match cost, in the currency of its cap.
    """
    period = find_budget_period(budget, now)
    matching = [s for s in spendings if matches_filter(budget.match, s.attribution)]
    counted = [s for s in matching if s.money.low.currency == budget.cap.currency]
    lines = [b for b in burns if matches_filter(budget.match, b.attribution)]
    amounts = (*(b.hourly for b in lines), *(s.money for s in matching))
    currencies = {amount.low.currency for amount in amounts if amount.high.nano}
    lines = [b for b in lines if b.hourly.low.currency == budget.cap.currency]
    burn = _sum_intervals((_count_burn(b, budget) for b in lines), budget.cap.currency)
    spent = burn if budget.is_rate else _sum_intervals((_count_money(s, budget) for s in counted), budget.cap.currency)
    moving = budget.period == ROLLING
    left = timedelta(days=budget.days) if moving else period.end - now if budget.has_end else timedelta()
    spent_before = _sum_intervals((), budget.cap.currency) if moving else spent
    ahead = forecast_spend(spent_before, past, lines, now=now, left=left)
    fraction = Fraction((spent.expected if budget.is_rate else spent.high).nano, budget.cap.nano)
    return BudgetStatus(
        budget=budget,
        period=period,
        spent=spent,
        burn=burn,
        holds=holds,
        forecast=replace(ahead.total, high=max(ahead.total.high, spent_before.high + holds)),
        if_unchanged=ahead.if_unchanged,
        basis=ahead.basis,
        fraction=fraction,
        pace=fraction - Fraction((now - period.start) // MICROSECOND, period.length // MICROSECOND) if budget.has_end else None,
        time_to_cap_hours=None
        if budget.is_rate
        else _compute_time_to_cap(budget.cap - spent.high, burn.high, left // MICROSECOND if budget.has_end else None),
        notes=(*_list_unseen(lines, budget, now), *_list_unknown_prices(counted)),
        uncounted=tuple(sorted(currencies - {budget.cap.currency})),
    )


def admit_hold(standing: BudgetStatus, new: Money, hourly: Money | None = None) -> Admission:
    """Decide whether `new` money, more than zero, may be held: exposure + new <= cap.

    `hourly`: what the run costs an hour, which a rate cap is compared with; None: not known.
    """
    require(new.nano > 0, "hold", f"must be more than zero, not {new.format()}", "write what the run may cost")
    cap, is_rate = standing.budget.cap, standing.budget.is_rate
    within, over = (WITHIN_RATE, OVER_RATE) if is_rate else (WITHIN, OVER_CAP)
    is_known, new = not is_rate or hourly is not None, (hourly if is_rate else None) or new
    comparable = new.currency == cap.currency
    reason = (within if standing.exposure + new <= cap else over) if comparable else OTHER_CURRENCY
    reason = reason if is_known else UNKNOWN_RATE
    return Admission(
        admitted=reason == within,
        reason=reason,
        asked=new,
        budget=standing.budget.name,
        exposure=standing.exposure,
        cap=cap,
        left=standing.left,
        left_range=standing.left_range,
    )


def admit_to_all(standings: Iterable[BudgetStatus], new: Money, hourly: Money | None = None) -> Admission:
    """Decide whether every budget admits `new`, and return the deciding one: a refusal, else the one with the least left.

    `hourly`: as in `admit_hold`. A run that adds nothing an hour is compared with no rate cap.
    """
    unlimited = Admission(admitted=True, reason=NO_BUDGET, asked=new)
    adds_rate = hourly is None or hourly.nano > 0
    counting = (standing for standing in standings if adds_rate or not standing.budget.is_rate)
    return min((admit_hold(standing, new, hourly) for standing in counting), key=_get_tightness, default=unlimited)


def list_budget_warnings(standing: BudgetStatus) -> tuple[BudgetWarning, ...]:
    """Return the warnings, in the order of the budget's thresholds; first of all what it does not count."""
    breaches = [(t.measure, _describe_breach(standing, t)) for t in standing.budget.warn]
    if standing.uncounted:
        currency, others = standing.budget.cap.currency, " and ".join(standing.uncounted)
        partly = f"charges in {others} are not counted: its cap is in {currency}"
        counts = standing.spent.high.nano or standing.burn.high.nano
        breaches.insert(0, (OTHER_CURRENCY, partly if counts else NEVER_ACTS.format(currency, others)))
    return tuple(BudgetWarning(measure=measure, says=says) for measure, says in breaches if says)


def _describe_spent(standing: BudgetStatus) -> str:
    """Return how much of the cap is spent, with its doubt: `between 0 and 417 % (8 % expected) of 500.00 USD`."""
    cap, spent = standing.budget.cap, standing.spent
    low, expected, high = (_format_percent(Fraction(end.nano, cap.nano)) for end in (spent.low, spent.expected, spent.high))
    share = expected if low == high else f"between {low.removesuffix(' %')} and {high} ({expected} expected)"
    return f"{share} of {standing.budget.format_cap()}"


def _describe_breach(standing: BudgetStatus, threshold: BudgetThreshold) -> str:
    """Return the text of the warning if `threshold` is passed, else ""."""
    limit, cap = threshold.limit, standing.budget.cap
    share, doubt = _describe_spent(standing), f": {'; '.join(standing.notes)}" if standing.notes else ""
    if standing.budget.is_rate:
        return f"what runs costs {share}{doubt}" if standing.fraction > limit else ""
    if threshold.measure == SPENT and standing.fraction > limit:
        return f"{share} is spent{doubt}"
    if threshold.measure == PACE and standing.pace is not None and standing.pace > limit:
        passed = standing.fraction - standing.pace
        return f"{share} is spent when {_format_percent(passed)} of the {standing.budget.period} has passed{doubt}"
    if threshold.measure == FORECAST and standing.forecast.low.nano > limit * cap.nano:
        sign, ahead = get_currency_sign(cap.currency), standing.forecast
        basis = "" if standing.basis == WEEKS else f"; from {BASES[standing.basis]}"
        expected = f"{sign}{format_amount(ahead.expected)} expected, cap {sign}{format_amount(cap)}{basis}"
        return f"on course for at least {sign}{format_amount(ahead.low)} ({expected})"
    hours = standing.time_to_cap_hours
    if threshold.measure == TIME_TO_CAP and hours is not None and hours < limit:
        return f"{_describe_time_to_cap(standing, hours)}{doubt}"
    return ""


def _describe_time_to_cap(standing: BudgetStatus, hours: Fraction) -> str:
    cap, spent = standing.budget.cap, standing.spent
    if not hours:
        return "the cap is reached" if spent.low >= cap else f"the cap may be reached: {_describe_spent(standing)} is spent"
    usual = _compute_time_to_cap(cap - spent.expected, standing.burn.expected, None)
    later = "not expected" if usual is None else f"{_format_tenths(usual)} h expected"
    doubtful = f" at the earliest ({later})" if usual != hours else ""
    cap_text = standing.budget.format_cap()
    return f"the cap of {cap_text} is reached in {_format_tenths(hours)} h{doubtful} if what runs goes on"


def _get_tightness(admission: Admission) -> tuple[bool, bool, bool, int]:
    left = admission.left.nano if admission.left else 0
    return admission.admitted, admission.reason in RATE_REASONS, admission.reason != OTHER_CURRENCY, left


def _compute_time_to_cap(left: Money, burn: Money, left_us: int | None) -> Fraction | None:
    """Return the hours until `left` is spent at `burn`; None if that is beyond the `left_us` of the period."""
    if left.nano <= 0:
        return Fraction(0)
    if burn.nano <= 0:
        return None
    hours = Fraction(left.nano, burn.nano)
    return hours if left_us is None or hours * HOUR_US < left_us else None


def _sum_intervals(amounts: Iterable[MoneyInterval], currency: str) -> MoneyInterval:
    """Return the sum of `amounts`, all of one `currency`."""
    nothing = Money(nano=0, currency=currency)
    total = MoneyInterval(low=nothing, expected=nothing, high=nothing)
    for amount in amounts:
        total = total.add(amount)
    return total


def _count_money(one: Spending, budget: Budget) -> MoneyInterval:
    """Return what counts of `one`. Of an amount entered by hand nothing is certain to a hard cap: a slip stops no machine."""
    if one.attribution.kind != ENTERED or not budget.hard:
        return one.money
    return replace(one.money, low=min(one.money.low, replace(one.money.low, nano=0)))


def _count_burn(one: AttributedBurn, budget: Budget) -> MoneyInterval:
    """Return what counts of `one`. To a rate cap nothing is certain of a resource that nobody could look at."""
    unsure = budget.is_rate and one.unseen_since is not None
    return replace(one.hourly, low=replace(one.hourly.low, nano=0)) if unsure else one.hourly


def _list_unseen(lines: Iterable[AttributedBurn], budget: Budget, now: datetime) -> list[str]:
    """Return a note on the resources that nobody could look at."""
    since = min((line.unseen_since for line in lines if line.unseen_since), default=None)
    return [f"nobody could look since {format_near_time(since, now, budget.zone)}"] if since else []


def _list_unknown_prices(spendings: Iterable[Spending]) -> list[str]:
    """Return a note on spend at estimated prices."""
    bounds = [s.money.high for s in spendings if not s.known]
    if not bounds:
        return []
    most = Money(nano=sum(b.nano for b in bounds), currency=bounds[0].currency)
    return [f"up to {format_amount(most)} {most.currency} of it is at estimated prices"]


def _format_percent(share: Fraction) -> str:
    return f"{divide_half_even(100 * share.numerator, share.denominator)} %"


def _format_tenths(number: Fraction) -> str:
    units, tenth = divmod(divide_half_even(10 * number.numerator, number.denominator), 10)
    return f"{units}.{tenth}"
