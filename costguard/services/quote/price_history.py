"""The price history: collected by each refresh, shown by `costguard prices history`, and added to reports.

The history is never a reason to fail for what uses it: a refresh or a report goes on without it and says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from costguard.data import MARKET, ShippedFacts
from costguard.errors import CostguardError, NoAnswerError
from costguard.ledger.market import MarketReader
from costguard.quoting.offer import Offer, OfferSelection
from costguard.quoting.price_series import PriceLine, PriceSeries, add_offers, draw_lines
from costguard.services import CommandAnswer
from costguard.settings import get_data_path
from costguard.settings.files import PRICE_HISTORY_FILE
from costguard.values import checks
from costguard.views.document import Document

if TYPE_CHECKING:
    from costguard.reporting.statement.statement import Statement

DAYS, DAYS_MAX = 365, 3650
"""Days that `prices history` shows, and the most that it can."""
ROWS_MAX = 50
"""Rows of a table without a GPU; JSON has all."""
SPENT_ROWS_MAX = 8
"""Rows of the section in a report."""
NO_HISTORY = (
    "No history is kept yet: each costguard prices refresh adds to it"
    ' ([prices] refresh = "daily": costguard watch refreshes once a day).'
)


def get_history_file() -> Path:
    """Return the file of the price history, in the platform's folder for user data."""
    return get_data_path(PRICE_HISTORY_FILE)


def record_prices(offers: Iterable[Offer], on: date | None = None) -> tuple[str, ...]:
    """Append the prices of `offers` to the history; return warnings about what failed.

    `on`: the day; None: today.
    """
    from costguard.ledger.price_history import append_prices

    try:
        append_prices(get_history_file(), offers, on or _get_today())
    except CostguardError as failed:
        return (f"the prices were refreshed, but not added to the history: {_format_error(failed)}",)
    return ()


def answer_price_history(
    *,
    flags: Mapping[str, object],
    count: float | None = None,
    days: float | None = None,
    chart: bool = False,
    market: str | None = None,
    config: str | None = None,
) -> CommandAnswer:
    """Answer `costguard prices history`: how prices moved within so many `days`.

    The history and the dated rows of the shipped snapshot are drawn; `market` names a market file instead of the snapshot.
    """
    from costguard.services.quote.job_input import read_job_input
    from costguard.services.quote.market_choice import find_market_file, resolve_limits
    from costguard.services.quote.quote import select_offers
    from costguard.sizing.job import parse_job_limits, read_subtable
    from costguard.views.price_history import build_price_history_document, list_widest_moves

    shown = DAYS if days is None else checks.require_whole_number(days, "--days", most=DAYS_MAX)
    counts = None if count is None else (checks.require_whole_number(count, "--count"),)
    facts, end = ShippedFacts(), _get_today()
    start = end - timedelta(days=shown)
    job_input = read_job_input(flags, None, facts, families=True)
    limits = parse_job_limits(read_subtable(job_input.table, "limits"))
    file = find_market_file(market, config)
    with MarketReader(file) as source:
        selection = select_offers(resolve_limits(limits, source), counts, end)
        offers = list(source.list_offers(selection))
    if market is None and file != MARKET:  # what a refresh replaced in its own market is still in the shipped one
        with MarketReader(MARKET) as snapshot:
            offers += snapshot.list_offers(selection)
    stored, history, damaged = _load_history(selection)
    warnings = (*job_input.notes, *damaged)
    series = add_offers(stored, (offer for offer in offers if offer.observed_on <= end))
    lines = draw_lines(series, start, end)
    document = build_price_history_document(
        lines if selection.gpus else tuple(list_widest_moves(lines)),
        start=start,
        end=end,
        history=history,
        chart=chart,
        rows_max=None if selection.gpus else ROWS_MAX,
        notes=() if history else (NO_HISTORY,),
        warnings=warnings,
    )
    return CommandAnswer(document=document, warnings=warnings, refusal=None if lines else _explain_nothing(series, shown))


def _explain_nothing(series: tuple[PriceSeries, ...], shown: int) -> NoAnswerError:
    if series:
        last = max(one.runs[-1].last_seen_on for one in series)
        hint = f"the last one is of {last.isoformat()}: write more --days, or fetch today's with costguard prices refresh"
        return NoAnswerError(f"no price was seen within {shown} days", hint=hint)
    return NoAnswerError(
        "no price of such a machine is known",
        hint="remove a filter; costguard offers lists the market, costguard prices refresh adds to it",
    )


def _load_history(
    selection: OfferSelection,
) -> tuple[list[PriceSeries], Mapping[str, object] | None, tuple[str, ...]]:
    """Return the selected series, facts about the file (None: there is none), and warnings."""
    file = get_history_file()
    if not file.is_file():
        return [], None, ()
    from costguard.ledger.price_history import PriceHistoryReader

    try:
        with PriceHistoryReader(file) as history:
            return history.list_series(selection), history.describe_file(), ()
    except CostguardError as failed:
        return [], {"path": str(file)}, (f"the history is left out: {_format_error(failed)}",)


def add_spent_prices(document: Document, statement: Statement) -> Document:
    """Return a report with the prices of its dearest machines in its period, if the history has at least two of a machine."""
    lines, start, end = _load_spent_lines(statement)
    if not lines:
        return document
    from costguard.views.price_history import build_spent_prices_table

    return replace(document, tables=(*document.tables, build_spent_prices_table(lines, start, end)))


def _load_spent_lines(statement: Statement) -> tuple[tuple[PriceLine, ...], date, date]:
    start = statement.period.start.astimezone(UTC).date()
    end = min(statement.period.end - timedelta(microseconds=1), statement.as_of).astimezone(UTC).date()
    ran = {(a.provider, a.gpu, a.gpu_count, a.tier) for a in (one.attribution for one in statement.spenders) if a.gpu}
    if not ran or end <= start:
        return (), start, end
    selection = OfferSelection(
        providers=tuple(sorted({provider for provider, *_ in ran})),
        gpus=tuple(sorted({gpu for _, gpu, *_ in ran})),
        observed_since=start,
    )
    series, *_ = _load_history(selection)
    lines = draw_lines(series, start, end)
    fitting = (line for line in lines if (line.provider, line.gpu, line.gpu_count, line.tier) in ran and len(line.points) > 1)
    return tuple(fitting)[:SPENT_ROWS_MAX], start, end


def _format_error(failed: CostguardError) -> str:
    return "; ".join(str(failed).splitlines())


def _get_today() -> date:
    return datetime.now(UTC).date()
