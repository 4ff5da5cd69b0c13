"""How budgets stand, as part of a document: amounts are in each budget's own currency."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

from costguard.budgets.budget_status import BudgetStatus, list_budget_warnings
from costguard.values.money import Money
from costguard.values.text_format import RATE_PLACES, format_exact, format_instant, format_interval, format_interval_exact
from costguard.views.document import TableView

PERCENT = 100


def build_budget_data(standing: BudgetStatus, overshoot: Money | None = None) -> dict[str, object]:
    """`time_to_cap_hours`: 0 where the cap is reached, None: not in this period. `left`: below 0 where more is promised.

    `overshoot`: by how much a hard cap could be exceeded at worst, were the guard to act now; None: not hard, or not known.
    """
    budget = standing.budget
    return {
        "name": budget.name,
        "hard": budget.hard,
        "period": {
            "kind": budget.period,
            "start": format_instant(standing.period.start),
            "end": format_instant(standing.period.end),
            "zone": str(budget.zone),
        },
        "currency": budget.cap.currency,
        "cap": format_exact(budget.cap),
        "spent": format_interval_exact(standing.spent),
        "forecast": format_interval_exact(standing.forecast),
        "burn_per_hour": format_interval_exact(standing.burn, RATE_PLACES),
        "holds": format_exact(standing.holds),
        "left": format_exact(standing.left),
        "spent_share": _to_number(standing.fraction),
        "pace": _to_number(standing.pace),
        "time_to_cap_hours": _to_number(standing.time_to_cap_hours),
        "worst_overshoot": format_exact(overshoot) if overshoot is not None else None,
        "warnings": [{"measure": concern.measure, "says": concern.says} for concern in list_budget_warnings(standing)],
        "notes": list(standing.notes),
    }


def build_budget_table(standings: Iterable[BudgetStatus], overshoots: Mapping[str, Money]) -> TableView:
    """A row a budget. `overshoots`: as in `standing_data`, by name."""
    return TableView(
        title="Budgets",
        columns=(
            "budget",
            "period",
            "cap>",
            "spent>",
            "share>",
            "holds>",
            "forecast>",
            "cap reached in>",
            "at worst over by>",
            "warning",
        ),
        rows=tuple(_build_budget_row(standing, overshoots.get(standing.budget.name)) for standing in standings),
    )


def _build_budget_row(standing: BudgetStatus, overshoot: Money | None) -> tuple[str, ...]:
    budget, hours = standing.budget, standing.time_to_cap_hours
    period = f"{budget.days} days" if budget.days else budget.period
    return (
        budget.name,
        f"{period} ({budget.zone})",
        f"{budget.cap.format()} {budget.cap.currency}",
        format_interval(standing.spent),
        f"{float(PERCENT * standing.fraction):.0f} %",
        standing.holds.format(),
        format_interval(standing.forecast),
        "-" if hours is None else f"{float(hours):.1f} h" if hours else "reached",
        _format_overshoot(standing, overshoot),
        "; ".join(concern.says for concern in list_budget_warnings(standing)) or "-",
    )


def _format_overshoot(standing: BudgetStatus, overshoot: Money | None) -> str:
    if not standing.budget.hard:
        return "not hard"
    return "not known" if overshoot is None else overshoot.format()


def _to_number(value: Fraction | None) -> float | None:
    return None if value is None else round(float(value), 4)
