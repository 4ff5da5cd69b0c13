"""The status in one line, for a shell prompt, and the answer of `status --check`: whether a budget is over.

Example: `$16.99/h  $546.20 this month  vision $546.20 of $3,000.00 (18 %)`, and `over budget: ` before it where one is over.
A budget is over where more than its cap is expected to be spent; where only the high end is above the cap, it may be over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from costguard.budgets.budget_status import BudgetStatus
from costguard.errors import NoAnswerError
from costguard.metering.inventory import COMPLETE
from costguard.reporting.status import FleetStatus
from costguard.values.money import USD, ExchangeRate, Money
from costguard.values.text_format import format_interval, get_currency_sign
from costguard.views.document import Document


def fold_status(document: Document, status: FleetStatus, exchange: ExchangeRate | None = None) -> Document:
    """Return `document`, the whole status, with one line in the place of its tables and sentences; its data stay."""
    return replace(document, lead=(build_status_line(status, exchange),), tables=(), notes=())


def build_status_line(status: FleetStatus, exchange: ExchangeRate | None = None) -> str:
    """Return the burn, the month's expected cost, and the budget of which the largest share is spent.

    `exchange`: the rate at which dollars are shown, which the line names; None: they are shown as they are.
    """
    unread = sum(scope.state != COMPLETE for scope in status.scopes)
    tightest = max(status.budgets, key=lambda one: one.spent.expected.nano / one.budget.cap.nano, default=None)
    parts = (
        "over budget:" if any(map(is_over, status.budgets)) else "",
        f"{_convert(status.usd.burn.stated, exchange)}/h",
        f"{_convert(status.usd.to_date.expected, exchange)} this month",
        describe_share(tightest, exchange) if tightest else "",
        f"{unread} of {len(status.scopes)} accounts not read" if unread else "",
        exchange.label if exchange else "",
    )
    return "  ".join(filter(None, parts))


def is_over(standing: BudgetStatus) -> bool:
    """Return whether more than the cap is expected to be spent, or to run where it is a rate."""
    return standing.spent.expected > standing.budget.cap


def build_over_budget_error(budgets: Sequence[BudgetStatus]) -> NoAnswerError | None:
    """Return the error of `status --check`, which names each budget that is over; None if none is."""
    over = [one for one in budgets if is_over(one)]
    if not over:
        return None
    sums = "; ".join(
        f"{one.budget.name}: {get_currency_sign(one.budget.cap.currency)}{format_interval(one.spent)} "
        f"of {one.budget.cap}{_name_unit(one)}"
        for one in over
    )
    return NoAnswerError(f"over budget: {sums}", hint="costguard plan shows what is stopped, and when")


def describe_share(standing: BudgetStatus, exchange: ExchangeRate | None = None) -> str:
    """Return `vision $546.20 of $3,000.00 (18 %)`."""
    spent, cap = standing.spent.expected, standing.budget.cap
    share, limit = 100 * spent.nano // cap.nano, standing.budget.cap_stated
    if exchange is None or limit is None or limit.currency != exchange.currency:
        limit = _convert(cap, exchange)
    return f"{standing.budget.name} {_convert(spent, exchange)} of {limit}{_name_unit(standing)} ({share} %)"


def _convert(money: Money, exchange: ExchangeRate | None) -> Money:
    """Return dollars at the rate; an amount in another currency stays as it is."""
    return exchange.convert(money) if exchange and money.currency == USD else money


def _name_unit(standing: BudgetStatus) -> str:
    return "/h" if standing.budget.is_rate else ""
