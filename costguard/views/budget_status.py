"""The status of budgets as part of a document; amounts are in each budget's own currency."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from fractions import Fraction
from functools import partial

from costguard.budgets.budget_status import BudgetStatus, list_budget_warnings
from costguard.budgets.spend_forecast import BASES, WEEKS, SpendForecast
from costguard.values.money import Money
from costguard.values.text_format import (
    RATE_PLACES,
    format_amount,
    format_amount_ends,
    format_exact,
    format_instant,
    format_interval,
    format_interval_exact,
    format_local_time,
    get_currency_sign,
)
from costguard.views.columns import WORDS, ColumnFit
from costguard.views.document import DOUBTFUL, OVER, PLAIN, Column, TableView, build_record, build_table

PERCENT = 100
BUDGET_FITS: Mapping[str, ColumnFit] = {
    "period": ColumnFit(rank=6),
    "share": ColumnFit(rank=2),
    "holds": ColumnFit(rank=5),
    "forecast": ColumnFit(rank=3),
    "overshoot max": ColumnFit(rank=8),
    "warning": ColumnFit(rank=7, least=18, how=WORDS),
}


def build_budget_data(standing: BudgetStatus, overshoot: Money | None = None) -> dict[str, object]:
    """Return the JSON data of one budget's status.

    Of a rate cap (`period.kind` "hour") all amounts are money an hour: `spent` is what runs now.

    `time_to_cap_hours`: 0 if the cap is reached, None if it is not reached in this period. `left` is below 0 if spending and
    holds exceed the cap. `overshoot`: the most by which a hard cap could be exceeded if the guard acted now; None: not hard, or
    not known.
    """
    return build_record(_list_budget_columns({standing.budget.name: overshoot} if overshoot is not None else {}), standing)


def build_budget_table(standings: Iterable[BudgetStatus], overshoots: Mapping[str, Money] | None, at: datetime) -> TableView:
    """Return a table with one row per budget.

    `overshoots`: by budget name, as in `build_budget_data`; None: not asked for. `at`: from when hours are counted.
    """
    own = tuple(standings)
    shown, rates = tuple(map(convert_standing, own)), {one.budget.name: one.budget.rate for one in own}
    title = ", ".join(("Budgets", *sorted({rate.label for rate in rates.values() if rate})))
    worst = () if overshoots is None else ("overshoot max>",)
    overshoots = {name: rate.convert(most) if (rate := rates.get(name)) else most for name, most in (overshoots or {}).items()}
    headings = ("budget", "period", "cap>", "spent>", "share>", "holds>", "left>", "forecast>", "runs out", *worst, "warning")
    table = build_table(_list_budget_columns(overshoots, at), shown, headings, title=title)
    return replace(table, fits=BUDGET_FITS, tones=tuple(_choose_tone(one) for one in shown))


def format_forecast(ahead: SpendForecast) -> str:
    """Return a forecast for people, with what it stands on and the cost if what runs goes on."""
    sign = get_currency_sign(ahead.total.low.currency)
    basis = "" if ahead.basis == WEEKS else f", from {BASES[ahead.basis]}"
    return f"{sign}{format_interval(ahead.total)}{basis}; {sign}{format_interval(ahead.if_unchanged)} if what runs goes on"


def _format_forecast_cell(standing: BudgetStatus) -> str:
    """Return the forecast in whole units: its cents are never known. A rate cap has none."""
    if standing.budget.is_rate:
        return "-"
    low, expected, high = format_amount_ends(standing.forecast, 0)
    return f"{expected} ({low} to {high})" if low != high else expected


def format_budget_share(standing: BudgetStatus) -> str:
    """Return the expected share, and the possible ones where they differ: `8 % (0 to 417)`."""
    cap = standing.budget.cap.nano
    ends = (standing.spent.low, standing.spent.expected, standing.spent.high)
    low, expected, high = (f"{PERCENT * end.nano / cap:.0f}" for end in ends)
    return f"{expected} % ({low} to {high})" if low != high else f"{expected} %"


def describe_budget_spend(standing: BudgetStatus) -> str:
    """Return `$1,234.56 of $3,000.00, month (UTC)`, or `$8.00 of $12.00, an hour now`."""
    shown, rate = convert_standing(standing), standing.budget.rate
    sign, label = get_currency_sign(shown.budget.cap.currency), f", {rate.label}" if rate else ""
    return f"{sign}{format_interval(shown.spent)} of {sign}{format_amount(shown.budget.cap)}, {_format_period(shown)}{label}"


def convert_standing(standing: BudgetStatus) -> BudgetStatus:
    """Return the status of a budget for people, in the currency of its rate, with the cap as it was written."""
    rate, its = standing.budget.rate, standing
    if rate is None:
        return its
    return replace(
        its,
        budget=replace(its.budget, cap=its.budget.cap_stated or rate.convert(its.budget.cap), cap_stated=None, rate=None),
        spent=rate.convert_interval(its.spent),
        burn=rate.convert_interval(its.burn),
        holds=rate.convert(its.holds),
        forecast=rate.convert_interval(its.forecast),
        if_unchanged=rate.convert_interval(its.if_unchanged),
    )


def _choose_tone(standing: BudgetStatus) -> str:
    over = standing.spent.expected - standing.budget.cap
    if over.nano > 0 or (not over.nano and not standing.budget.is_rate):  # a rate may be all of its cap
        return OVER
    return DOUBTFUL if list_budget_warnings(standing) else PLAIN


def _list_budget_columns(overshoots: Mapping[str, Money], at: datetime | None = None) -> tuple[Column[BudgetStatus], ...]:
    """Return the columns. `at`: from when hours are counted; None: only for data, which has hours."""
    return (
        Column("name", "budget", lambda one: one.budget.name),
        Column("hard", "", lambda one: one.budget.hard),
        Column("period", "period", _build_period_data, _format_period),
        Column("currency", "", lambda one: one.budget.cap.currency),
        Column("cap", "cap>", lambda one: format_exact(one.budget.cap), lambda one: one.budget.format_cap()),
        Column("cap_stated", "", _build_stated_cap),
        Column("spent", "spent>", lambda one: format_interval_exact(one.spent), lambda one: format_interval(one.spent)),
        Column("forecast", "forecast>", lambda one: format_interval_exact(one.forecast), _format_forecast_cell),
        Column("forecast_if_unchanged", "", lambda one: format_interval_exact(one.if_unchanged)),
        Column("forecast_basis", "", lambda one: one.basis),
        Column("burn_per_hour", "", lambda one: format_interval_exact(one.burn, RATE_PLACES)),
        Column("holds", "holds>", lambda one: format_exact(one.holds), lambda one: format_amount(one.holds)),
        Column("left", "left>", lambda one: format_exact(one.left), lambda one: format_amount(one.left)),
        Column("spent_share", "share>", lambda one: _to_number(one.fraction), format_budget_share),
        Column("pace", "", lambda one: _to_number(one.pace)),
        Column("time_to_cap_hours", "runs out", lambda one: _to_number(one.time_to_cap_hours), partial(_format_end, at=at)),
        Column(
            "worst_overshoot",
            "overshoot max>",
            lambda one: format_exact(overshoots[one.budget.name]) if one.budget.name in overshoots else None,
            lambda one: _format_overshoot(one, overshoots.get(one.budget.name)),
        ),
        Column("warnings", "warning", _build_warning_data, _format_warnings),
        Column("notes", "", lambda one: list(one.notes)),
    )


def _build_stated_cap(standing: BudgetStatus) -> dict[str, str] | None:
    cap, rate = standing.budget.cap_stated, standing.budget.rate
    if cap is None or rate is None:
        return None
    return {"amount": format_exact(cap), "currency": cap.currency, "rate": rate.label}


def _build_period_data(standing: BudgetStatus) -> dict[str, str]:
    return {
        "kind": standing.budget.period,
        "start": format_instant(standing.period.start),
        "end": format_instant(standing.period.end),
        "zone": str(standing.budget.zone),
    }


def _format_period(standing: BudgetStatus) -> str:
    budget = standing.budget
    if budget.is_rate:
        return "an hour now"
    return f"{f'{budget.days} days' if budget.days else budget.period} ({budget.zone})"


def _format_end(standing: BudgetStatus, at: datetime | None) -> str:
    """Return when the cap is reached: `2026-11-24 03:29 UTC`, `reached`, or `-` for not in this period."""
    hours = standing.time_to_cap_hours
    if hours is None:
        return "-"
    return "reached" if not hours or at is None else format_local_time(at + timedelta(hours=float(hours)), standing.budget.zone)


def _build_warning_data(standing: BudgetStatus) -> list[dict[str, str]]:
    return [{"measure": concern.measure, "says": concern.says} for concern in list_budget_warnings(standing)]


def _format_warnings(standing: BudgetStatus) -> str:
    return "; ".join(concern.says for concern in list_budget_warnings(standing)) or "-"


def _format_overshoot(standing: BudgetStatus, overshoot: Money | None) -> str:
    if not standing.budget.hard:
        return "not hard"
    return "not known" if overshoot is None else format_amount(overshoot)


def _to_number(value: Fraction | None) -> float | None:
    return None if value is None else round(float(value), 4)
