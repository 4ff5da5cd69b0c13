"""The price history: collected by each refresh, shown by `costguard prices history`, added to reports, and turned into drift.

The history is never a reason to fail for what uses it: a refresh, a quote or a report goes on without it and says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from costguard.data import MARKET, ShippedFacts
from costguard.errors import CostguardError, NoAnswerError
from costguard.ledger.market import MarketReader
from costguard.ledger.price_history import PriceHistoryReader, append_prices, save_own_drift
from costguard.quoting.offer import Offer, OfferSelection
from costguard.quoting.own_drift import DAYS_MIN, OwnDrift, estimate_own_drift, replace_drift
from costguard.quoting.price_drift import PriceDrift
from costguard.quoting.price_series import PriceLine, PriceSeries, add_offers, draw_lines
from costguard.services import CommandAnswer
from costguard.settings import get_data_path
from costguard.settings.files import PRICE_HISTORY_FILE
from costguard.values import checks
from costguard.views.document import Document

if TYPE_CHECKING:  # types and no more: a quote reads the drift alone
    from costguard.reporting.statement import Statement

DAYS, DAYS_MAX = 365, 3650
"""Days that `prices history` shows, and the most that it can."""
ROWS_MAX = 50
"""Rows of a table without a GPU; JSON has all."""
DRIFT_SERIES_MAX = 300
"""Machines of a class from which its drift is estimated: more do not narrow it, and each takes about 3 ms."""
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
    """Append the prices of `offers` to the history, and estimate the drift anew; return warnings about what failed.

    `on`: the day; None: today.
    """
    file = get_history_file()
    try:
        append_prices(file, offers, on or _get_today())
        _update_own_drift(file)
    except CostguardError as failed:
        return (f"the prices were refreshed, but not added to the history: {_format_error(failed)}",)
    return ()


def _update_own_drift(file: Path) -> None:
    with PriceHistoryReader(file) as history:
        facts = history.describe_file()
        if not facts["oldest"] or _count_days(facts) < DAYS_MIN:
            return
        series = history.sample_series(DRIFT_SERIES_MAX)
    save_own_drift(file, estimate_own_drift(series, ShippedFacts().get_price_drift()))


def _count_days(facts: Mapping[str, object]) -> int:
    return (date.fromisoformat(str(facts["newest"])) - date.fromisoformat(str(facts["oldest"]))).days


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftInUse:
    """The drift constants to use: the shipped ones, replaced where one's own history says enough.

    `own`: what the history says of each class. `warning`: why it could not be read, "": it could, or there is none.
    """

    terms: Mapping[str, PriceDrift]
    own: tuple[OwnDrift, ...] = ()
    warning: str = ""


def load_price_drift() -> DriftInUse:
    """Return the drift constants to use; the estimates in the history are those of its last refresh."""
    shipped, file = ShippedFacts().get_price_drift(), get_history_file()
    if not file.is_file():
        return DriftInUse(terms=shipped)
    try:
        with PriceHistoryReader(file) as history:
            own = history.load_own_drift()
    except CostguardError as failed:
        return DriftInUse(terms=shipped, warning=_format_error(failed))
    return DriftInUse(terms=replace_drift(shipped, own), own=own)


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
    from costguard.services.job_input import read_job_input
    from costguard.services.quote import select_offers
    from costguard.services.quote_commands import find_market_file, resolve_limits
    from costguard.sizing.job import parse_job_limits, read_subtable
    from costguard.views.price_history import build_price_history_document, list_widest_moves

    shown = DAYS if days is None else checks.require_whole_number(days, "--days", most=DAYS_MAX)
    counts = None if count is None else (checks.require_whole_number(count, "--count"),)
    facts, end = ShippedFacts(), _get_today()
    start = end - timedelta(days=shown)
    stated = read_job_input(flags, None, facts)
    limits = parse_job_limits(read_subtable(stated.table, "limits"))
    file = find_market_file(market, config)
    with MarketReader(file) as source:
        selection = select_offers(resolve_limits(limits, source), counts, end)
        offers = list(source.list_offers(selection))
    if market is None and file != MARKET:  # what a refresh replaced in its own market is still in the shipped one
        with MarketReader(MARKET) as snapshot:
            offers += snapshot.list_offers(selection)
    stored, own, known, damaged = _load_history(selection)
    warnings = (*stated.notes, *damaged)
    series = add_offers(stored, (offer for offer in offers if offer.observed_on <= end))
    lines = draw_lines(series, start, end)
    classes = {line.drift for line in lines}
    document = build_price_history_document(
        lines if selection.gpus else tuple(list_widest_moves(lines)),
        start=start,
        end=end,
        history=known,
        own=[one for one in own if one.drift in classes],
        shipped=facts.get_price_drift(),
        chart=chart,
        rows_max=None if selection.gpus else ROWS_MAX,
        notes=() if known else (NO_HISTORY,),
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
) -> tuple[list[PriceSeries], tuple[OwnDrift, ...], Mapping[str, object] | None, tuple[str, ...]]:
    """Return the selected series, the drift estimates, facts about the file (None: there is none), and warnings."""
    file = get_history_file()
    if not file.is_file():
        return [], (), None, ()
    try:
        with PriceHistoryReader(file) as history:
            return history.list_series(selection), history.load_own_drift(), history.describe_file(), ()
    except CostguardError as failed:
        return [], (), {"path": str(file)}, (f"the history is left out: {_format_error(failed)}",)


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
