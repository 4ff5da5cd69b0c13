"""The few numbers of a statement that people look for first, for formats that show them large; its lead has them in words."""

from __future__ import annotations

from collections.abc import Iterator

from costguard.errors import shorten
from costguard.reporting.statement.groups import CurrencySums
from costguard.reporting.statement.statement import Statement
from costguard.values.money import Money, MoneyInterval
from costguard.values.text_format import LARGEST_SHARE, get_currency_sign
from costguard.views.document import HeadlineFigure

LONGEST_FIGURE_NAME = 40
UNKNOWN = "not known"


def list_headline_figures(statement: Statement) -> Iterator[HeadlineFigure]:
    """None of a period that lies ahead, or of which the ledger holds nothing: there is nothing to show large."""
    if statement.ahead or statement.blank:
        return
    for sums in (statement.usd, *statement.others):
        yield _build_money_figure("Spent so far" if statement.running else "Spent", sums.total)
    for forecast in statement.forecast:
        yield _build_money_figure("By its end, if it goes on", forecast)
    if statement.before is not None:
        yield _build_change_figure(statement)
    if statement.usd.computing:
        yield _build_idle_figure(statement.usd)
    for money in statement.rest.money:
        many = statement.rest.machines
        yield _build_money_figure("Disks of stopped machines", money, f"{many} machine{'s' * (many != 1)}")
    for net in statement.saved.net:
        yield _build_money_figure("Saved by the guard", net)


def _build_money_figure(name: str, money: MoneyInterval, note: str = "") -> HeadlineFigure:
    """An amount, with its bounds where they differ to the cent."""
    low, expected, high = money.format_ends().values()
    code = get_currency_sign(money.expected.currency)
    bounds = "" if low == high else f"between {_move_minus_sign(low, code)} and {_move_minus_sign(high, code)}"
    return HeadlineFigure(name=name, text=_move_minus_sign(expected, code), note="; ".join(filter(None, (bounds, note))))


def _build_change_figure(statement: Statement) -> HeadlineFigure:
    before = statement.before
    assert before is not None  # noqa: S101 - asked by its caller
    name = f"Against {shorten(before.label, LONGEST_FIGURE_NAME)}"
    change, share = before.compute_change(statement.usd), before.compute_share(statement.usd)
    if change is None:
        return HeadlineFigure(name=name, text=UNKNOWN, note="nobody looked then")
    was = (
        f"${before.part.total.expected.format()} in as much of it"
        if statement.running
        else f"from ${before.usd.total.expected.format()}"
    )
    by = f"; {float(share):+.0%}" if share is not None and abs(share) < LARGEST_SHARE else ""
    seen = "" if before.complete else "; it was not seen all through"
    text = _move_minus_sign(change.format(), "$")
    return HeadlineFigure(name=name, text=text if change.nano <= 0 else f"+{text}", note=f"{was}{by}{seen}")


def _build_idle_figure(usd: CurrencySums) -> HeadlineFigure:
    wastes = [group.waste for group in usd.groups if group.waste]
    judged = sum(waste.judged for waste in wastes)
    if not judged:
        return HeadlineFigure(name="Idle", text=UNKNOWN, note="nothing measured well enough whether machines did any work")
    idle, partly = Money(nano=sum(w.idle for w in wastes)), Money(nano=sum(w.partly for w in wastes))
    note = f"and ${partly.format()} partly idle, of the {judged / usd.computing:.0%} that could be judged"
    return HeadlineFigure(name="Idle", text=f"${idle.format()}", note=note)


def _move_minus_sign(amount: str, code: str) -> str:
    """`-$5.00` and not `$-5.00`."""
    return f"-{code}{amount[1:]}" if amount.startswith("-") else f"{code}{amount}"
