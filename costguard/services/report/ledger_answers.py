"""Answer from the ledger: the report of a period.

Charge items for the formats that need them are read lazily: the ledger is opened when they are iterated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, overload

from costguard.budgets.budget import MATCH_ALL, Budget, ResourceFilter, covers_filter, matches_filter
from costguard.budgets.budget_status import BudgetStatus
from costguard.data import ShippedFacts
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.spans.books import SpendingReader
from costguard.metering.accrual import POLL_GAP
from costguard.metering.charge_item import ChargeItem
from costguard.reporting.statement.period import ReportPeriod, parse_report_period
from costguard.services import CommandAnswer
from costguard.services.poll.market_prices import read_price_ceilings
from costguard.settings import Settings, load_zone, read_settings, resolve_ledger_url
from costguard.settings.budgets import parse_filter
from costguard.system.process import pause_gc
from costguard.values.calendar import Period
from costguard.values.provider import Seller

if TYPE_CHECKING:  # types and no more: an answer from the ledger alone brings neither
    from costguard.ledger.reports.reader import ReportReader
    from costguard.reporting.statement.statement import Statement
    from costguard.views.document import Document

CHARTS_NEED, ITEMS_NEED = "charts", "items"
"""What a format that draws states as its needs, and one that is made of charge items: that one shows no statement."""
NO_PERIOD: Mapping[str, str | None] = MappingProxyType({})


def answer_report(
    *,
    period: Mapping[str, str | None] = NO_PERIOD,
    by: str | None = None,
    only: Sequence[str] = (),
    zone: str | None = None,
    strict: bool = False,
    in_full: bool = False,
    needs: str = "",
    config: str | None = None,
) -> CommandAnswer:
    """Answer `costguard report`: the costs of a period. `period`: the period, as in `reporting/statement/period.py`.

    `needs`: the field of the document that the format renders. `strict`: refuse if a scope was not observed throughout.
    `only`: of which spending, such as "owner=vision". `in_full`: with every line of what is not counted.
    """
    from costguard.reporting.statement.groups import parse_group_keys
    from costguard.views.report import build_incomplete_report_error, list_report_warnings

    settings, now = read_settings(config), get_now()
    place, keys = choose_zone(zone, settings), parse_group_keys(by)
    of = parse_report_period(period, now, place)
    statement, document = build_report(
        settings,
        of,
        by=keys,
        zone=place,
        now=now,
        drawn=needs == CHARTS_NEED,
        with_sections=needs != ITEMS_NEED,
        match=parse_filter(only, "--only"),
        in_full=in_full,
    )
    return CommandAnswer(
        document=document,
        warnings=list_report_warnings(statement),
        refusal=build_incomplete_report_error(statement) if strict else None,
        value=statement,
    )


def build_report(
    settings: Settings,
    of: ReportPeriod,
    *,
    by: tuple[str, ...],
    zone: tzinfo,
    now: datetime,
    drawn: bool,
    with_sections: bool = True,
    match: ResourceFilter = MATCH_ALL,
    in_full: bool = False,
) -> tuple[Statement, Document]:
    """Build the statement of a period, and its document. `drawn`: with chart data. `match`: of which spending.

    `with_sections`: see `report.build_full_statement`; `in_full`: see `views.report.build_report_document`.
    """
    from costguard.ledger.reports.reader import ReportReader
    from costguard.services.quote.price_history import add_spent_prices
    from costguard.services.report.report import ReportQuestion, build_full_statement
    from costguard.views.report import build_report_document

    with open_books(settings, ReportReader) as accounts, pause_gc():
        question = ReportQuestion(
            asked=of,
            by=by,
            zone=zone,
            as_of=now,
            pause=POLL_GAP,
            group_from=settings.defaults.group_from,
            drawn=drawn,
            match=match,
        )
        statement = build_full_statement(
            accounts=accounts, question=question, rules=ShippedFacts().get_billing_rules(), with_sections=with_sections
        )
        budgets = [one for one in settings.budgets if with_sections and covers_filter(match, one.match)]
        standings = _load_standings(settings, budgets, accounts, of.period, now) if budgets else ()
    items = LedgerChargeItems(books=lambda: open_books(settings), period=of.period, as_of=now, match=match)
    exchange = settings.display.find_exchange(min(of.period.end, now))
    statement = replace(statement, budgets=standings)
    document = add_spent_prices(build_report_document(statement, exchange, in_full=in_full), statement)
    return statement, replace(document, items=items)


def _load_standings(
    settings: Settings, budgets: Sequence[Budget], books: SpendingReader, period: Period, now: datetime
) -> tuple[BudgetStatus, ...]:
    """Return the budgets as they stand now, or as they stood at the end of a period that is over."""
    from costguard.services.guarding.status import load_budget_statuses

    if now < period.end:
        return load_standings_now(settings, budgets, books, now)
    budgets = [one for one in budgets if not one.is_rate]  # nothing says what ran at that instant
    last = period.end - timedelta(microseconds=1)
    return load_budget_statuses(books=books, budgets=budgets, holds=(), live=(), now=last)


def load_standings_now(
    settings: Settings, budgets: Sequence[Budget], books: SpendingReader, now: datetime
) -> tuple[BudgetStatus, ...]:
    """Return the budgets as they stand now; they need not be in the settings."""
    from costguard.ledger.holds import load_counting_holds
    from costguard.services.guarding.status import load_budget_statuses

    with LedgerReader(resolve_ledger_url(settings)) as reader, reader.snapshot() as ask:
        holds = load_counting_holds(ask, now)
    return load_budget_statuses(books=books, budgets=budgets, holds=holds, live=books.load_live(now), now=now)


@overload
def open_books(settings: Settings) -> SpendingReader: ...
@overload
def open_books(settings: Settings, kind: type[ReportReader]) -> ReportReader: ...
def open_books(settings: Settings, kind: type[SpendingReader] = SpendingReader) -> SpendingReader:
    """The ledger of `settings`. The market is opened only where something must be bounded by it."""
    return kind(
        resolve_ledger_url(settings), rules=ShippedFacts().get_billing_rules(), ceilings=partial(read_price_ceilings, settings)
    )


def choose_zone(zone_name: str | None, settings: Settings) -> tzinfo:
    """Return the zone that was stated, or that of the settings."""
    return settings.defaults.timezone if zone_name is None else load_zone(zone_name, "--zone")


def get_now() -> datetime:
    """Return the present time."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerChargeItems:
    """The charge items of `period` as known at `as_of`. Each iteration reads the ledger anew."""

    books: Callable[[], SpendingReader]
    period: Period
    as_of: datetime
    match: ResourceFilter = MATCH_ALL

    @property
    def sellers(self) -> Mapping[str, Seller]:
        """Return the seller of every installed provider. The import happens here, because only reports with items need it."""
        from costguard.providers.plugins import load_sellers

        return load_sellers()

    def __iter__(self) -> Iterator[ChargeItem]:
        """Yield the items resource by resource; the ledger is closed at the end of the iteration."""
        with self.books() as books:
            for item in books.items(self.period, self.as_of):
                if matches_filter(self.match, item.attribution):
                    yield item
