"""How bills were held against charges, as a report tells it; and amounts as `reconcile` writes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from costguard.bills.drift import BEYOND, UNSURE, WITHIN, NanoAmounts, ReconciliationRecord
from costguard.errors import to_one_line
from costguard.values.money import Money, MoneyInterval
from costguard.values.text_format import (
    format_exact,
    format_instant,
    format_interval_exact,
    format_local_time,
    get_currency_sign,
)

OUTCOMES = {WITHIN: "within tolerance", BEYOND: "beyond tolerance", UNSURE: "cannot be said"}


def build_bill_comparison_data(held: Sequence[ReconciliationRecord], spent: Sequence[str]) -> list[dict[str, object]]:
    """The report's `reconciliation`: each account whose bill was held against its charges, and providers of which none was."""
    rows: list[dict[str, object]] = [
        {
            "provider": one.provider,
            "account": one.account,
            "currency": one.currency,
            "state": one.outcome,
            "at": format_instant(one.at),
            "period": {"start": format_instant(one.period.start), "end": format_instant(one.period.end)},
            "billed": format_exact(_to_money(one.billed, one.currency)),
            "charged": _format_amounts(one.charged, one.currency),
            "drift": format_exact(_to_money(one.billed - one.charged[1], one.currency)),
            "unexplained": format_exact(_to_money(one.unexplained, one.currency)),
            "tolerance": one.tolerance,
        }
        for one in held
    ]
    known = {one.provider for one in held}
    return rows + [{"provider": name, "state": "not reconciled"} for name in spent if name not in known]


def list_bill_comparison_lines(held: Sequence[ReconciliationRecord], spent: Sequence[str]) -> Iterator[str]:
    """The same for people, a sentence each without its full stop."""
    for one in held:
        mark = get_currency_sign(one.currency)
        drift = _format_signed_amount(one.billed - one.charged[1], one.currency)
        told = (
            f"held against the bill on {format_local_time(one.at)}: {mark}{_to_money(one.billed, one.currency).format()} billed"
        )
        off = f"{mark}{_to_money(one.unexplained, one.currency).format()} of it unexplained"
        yield f"{one.provider}/{to_one_line(one.account)} {told}, {drift} beside the charges, {off}, {OUTCOMES[one.outcome]}"
    known = {one.provider for one in held}
    missing = [name for name in spent if name not in known]
    if missing:
        yield f"Not reconciled with a bill: {', '.join(missing)}"


def _to_money(nano: int, currency: str) -> Money:
    """An amount of the ledger's."""
    return Money(nano=nano, currency=currency)


def _format_amounts(amounts: NanoAmounts, currency: str) -> dict[str, str]:
    """{"low", "expected", "high"} to the nano-unit."""
    low, expected, high = (_to_money(nano, currency) for nano in amounts)
    return format_interval_exact(MoneyInterval(low=low, expected=expected, high=high))


def _format_signed_amount(nano: int, currency: str) -> str:
    """`+$1.68`, `-$0.40`, `$0.00`."""
    plus = "+" if nano > 0 else "-" if nano < 0 else ""
    return f"{plus}{get_currency_sign(currency)}{_to_money(abs(nano), currency).format()}"
