"""The status of budgets as part of a document; amounts are in each budget's own currency."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

from costguard.budgets.budget_status import BudgetStatus, list_budget_warnings
from costguard.values.money import Money
from costguard.values.text_format import RATE_PLACES, format_exact, format_instant, format_interval, format_interval_exact
from costguard.views.document import Column, TableView, build_record, build_table

PERCENT = 100


def build_budget_data(standing: BudgetStatus, overshoot: Money | None = None) -> dict[str, object]:
    """Return the JSON data of one budget's status.

    `time_to_cap_hours`: 0 if the cap is reached, None if it is not reached in this period. `left` is below 0 if spending and
    holds exceed the cap. `overshoot`: the most by which a hard cap could be exceeded if the guard acted now; None: not hard, or
    not known.
    """
    return build_record(_list_budget_columns({standing.budget.name: overshoot} if overshoot is not None else {}), standing)


def build_budget_table(standings: Iterable[BudgetStatus], overshoots: Mapping[str, Money]) -> TableView:
    """Return a table with one row per budget.

    `overshoots`: by budget name, as in `build_budget_data`.
    """
    headings = (
        *("budget", "period", "cap>", "spent>", "share>", "holds>", "forecast>"),
        *("cap reached in>", "at worst over by>", "warning"),
    )
    return build_table(_list_budget_columns(overshoots), standings, headings, title="Budgets")


def _list_budget_columns(overshoots: Mapping[str, Money]) -> tuple[Column[BudgetStatus], ...]:
    return (
        Column("name", "budget", lambda one: one.budget.name),
        Column("hard", "", lambda one: one.budget.hard),
        Column("period", "period", _build_period_data, _format_period),
        Column("currency", "", lambda one: one.budget.cap.currency),
        Column("cap", "cap>", lambda one: format_exact(one.budget.cap), _format_cap),
        Column("spent", "spent>", lambda one: format_interval_exact(one.spent), lambda one: format_interval(one.spent)),
        Column(
            "forecast", "forecast>", lambda one: format_interval_exact(one.forecast), lambda one: format_interval(one.forecast)
        ),
        Column("burn_per_hour", "", lambda one: format_interval_exact(one.burn, RATE_PLACES)),
        Column("holds", "holds>", lambda one: format_exact(one.holds), lambda one: one.holds.format()),
        Column("left", "", lambda one: format_exact(one.left)),
        Column(
            "spent_share", "share>", lambda one: _to_number(one.fraction), lambda one: f"{float(PERCENT * one.fraction):.0f} %"
        ),
        Column("pace", "", lambda one: _to_number(one.pace)),
        Column("time_to_cap_hours", "cap reached in>", lambda one: _to_number(one.time_to_cap_hours), _format_time_to_cap),
        Column(
            "worst_overshoot",
            "at worst over by>",
            lambda one: format_exact(overshoots[one.budget.name]) if one.budget.name in overshoots else None,
            lambda one: _format_overshoot(one, overshoots.get(one.budget.name)),
        ),
        Column("warnings", "warning", _build_warning_data, _format_warnings),
        Column("notes", "", lambda one: list(one.notes)),
    )


def _build_period_data(standing: BudgetStatus) -> dict[str, str]:
    return {
        "kind": standing.budget.period,
        "start": format_instant(standing.period.start),
        "end": format_instant(standing.period.end),
        "zone": str(standing.budget.zone),
    }


def _format_period(standing: BudgetStatus) -> str:
    budget = standing.budget
    return f"{f'{budget.days} days' if budget.days else budget.period} ({budget.zone})"


def _format_cap(standing: BudgetStatus) -> str:
    return f"{standing.budget.cap.format()} {standing.budget.cap.currency}"


def _format_time_to_cap(standing: BudgetStatus) -> str:
    hours = standing.time_to_cap_hours
    return "-" if hours is None else f"{float(hours):.1f} h" if hours else "reached"


def _build_warning_data(standing: BudgetStatus) -> list[dict[str, str]]:
    return [{"measure": concern.measure, "says": concern.says} for concern in list_budget_warnings(standing)]


def _format_warnings(standing: BudgetStatus) -> str:
    return "; ".join(concern.says for concern in list_budget_warnings(standing)) or "-"


def _format_overshoot(standing: BudgetStatus, overshoot: Money | None) -> str:
    if not standing.budget.hard:
        return "not hard"
    return "not known" if overshoot is None else overshoot.format()


def _to_number(value: Fraction | None) -> float | None:
    return None if value is None else round(float(value), 4)
