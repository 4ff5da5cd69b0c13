"""Answers from the ledger: status and report.

Charge items for the formats that need them are read lazily: the ledger is opened when they are iterated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, overload

from costguard.budgets.budget_status import BudgetStatus
from costguard.data import ShippedFacts
from costguard.errors import CostguardError
from costguard.ledger.agents.records import load_agents
from costguard.ledger.db.codecs import Query
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.guard.audit_log import read_head_text
from costguard.ledger.guard_records import SnapshotRecords
from costguard.ledger.holds import load_counting_holds
from costguard.ledger.reports.reader import ReportReader
from costguard.ledger.spans.books import SpendingReader
from costguard.metering.accrual import POLL_GAP
from costguard.metering.charge_item import ChargeItem
from costguard.reporting.statement.groups import parse_group_keys
from costguard.reporting.statement.period import ReportPeriod, parse_report_period
from costguard.reporting.status import annotate_resources, forecast_overshoots
from costguard.services import CommandAnswer
from costguard.services.guarding.guard_inputs import PollResults, build_guard_config, read_measurement_lags
from costguard.services.poll.market_prices import read_price_ceilings
from costguard.settings import Settings, load_zone, read_settings, resolve_ledger_url
from costguard.system.process import pause_gc
from costguard.values.calendar import Period
from costguard.values.provider import Seller

if TYPE_CHECKING:  # types and no more: an answer from the ledger alone brings neither
    from costguard.guard.context import GuardConfig, GuardSnapshot
    from costguard.guard.run_facts import GuardRun
    from costguard.reporting.statement import Statement
    from costguard.reporting.status import FleetStatus
    from costguard.services.guarding.run_view import RunView
    from costguard.services.poll.poll_now import PollNowResult
    from costguard.views.document import Document

CHARTS_NEED, ITEMS_NEED = "charts", "items"
"""What a format that draws states as its needs, and one that is made of charge items: that one shows no statement."""
NO_PERIOD: Mapping[str, str | None] = MappingProxyType({})


def answer_status(
    *, zone: str | None = None, strict: bool = False, offline: bool = False, ask: bool = False, config: str | None = None
) -> CommandAnswer:
    """Answer `costguard status`: the present burn, the month's cost and forecast, the state of each scope.

    The ledger answers if its last guard run is younger than one interval and read every account; else the configured providers
    are polled first. `ask`: they are polled in any case; `offline`: they are not. `strict`: an incomplete poll is refused.
    """
    from costguard.views.status import (
        build_incomplete_status_error,
        build_status_document,
        describe_status_source,
        list_status_warnings,
    )

    settings = read_settings(config)
    place = _choose_zone(zone, settings)
    looked, doubt, now = None, "", _get_now()
    if settings.providers and not offline:
        doubt = "" if ask else _explain_unfit_ledger(settings, now)
        if ask or doubt:
            from costguard.services.poll.poll_now import poll_providers_now

            looked = poll_providers_now(settings)
            now = _get_now()
    view = load_current_view(settings, place, now, looked)
    found, head = view.status, view.head
    told = looked.told if looked else ()
    source = describe_status_source(asked_because=doubt, run_at=view.seen_at, at=found.at, offline=offline)
    return CommandAnswer(
        document=build_status_document(found, told, head, settings.display.find_exchange(found.at), source),
        warnings=tuple(dict.fromkeys((*list_status_warnings(found), *told))),
        refusal=build_incomplete_status_error(found, looked.refused if looked else ()) if strict else None,
        value=found,
    )


def _explain_unfit_ledger(settings: Settings, now: datetime) -> str:
    """Explain why the clouds must be asked; "" if the ledger's last guard run tells what they would say."""
    from costguard.services.guarding.run_view import explain_unfit_run

    try:
        with LedgerReader(resolve_ledger_url(settings)) as reader, reader.snapshot() as ask, open_books(settings) as books:
            return explain_unfit_run(SnapshotRecords(ask).load_last_run(), books.list_scopes(), settings.providers, now)
    except CostguardError:  # there is none yet, or it must be upgraded: the poll does both, or says what is wrong
        return "no guard run is recorded"


def load_current_status(settings: Settings, zone: tzinfo, looked: PollNowResult | None) -> tuple[FleetStatus, str]:
    """Load the current status from the ledger, and the head of its audit log.

    `looked`: the results of a poll just made; None: no poll.
    """
    found = load_current_view(settings, zone, _get_now(), looked)
    return found.status, found.head


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentView:
    """The fleet as the ledger knows it: its status, what the guard would evaluate, and the last guard run (None: none yet).

    `head`: the head of the audit log. `seen_at`: when the guard run was made that stands for a poll; None: none does.
    """

    status: FleetStatus
    sight: GuardSnapshot
    rules: GuardConfig
    last: GuardRun | None
    head: str
    seen_at: datetime | None = None


def load_current_view(settings: Settings, zone: tzinfo, now: datetime, looked: PollNowResult | None = None) -> CurrentView:
    """Load the fleet as the ledger knows it at `now`, in one snapshot. `looked`: as in `load_current_status`.

    Without a poll, what the last guard run saw stands for it while that run is younger than its interval.
    """
    from costguard.services.guarding.guard_snapshot import (
        SampleWindow,
        build_guard_snapshot,
        load_recent_overrides,
        read_previous_runs,
    )
    from costguard.services.guarding.run_view import decode_run_view, list_unasked_providers
    from costguard.services.guarding.status import build_status as flow
    from costguard.services.report.watchdog_shares import load_watchdog_shares

    url, rules = resolve_ledger_url(settings), build_guard_config(settings)
    with LedgerReader(url) as reader, reader.snapshot() as ask, open_books(settings) as books:
        records = SnapshotRecords(ask)
        last = records.load_last_run()
        view = decode_run_view(last) if looked is None and last and timedelta(0) <= now - last.at < last.interval else None
        seen = looked or view
        latest = _build_poll_results(ask, seen)
        sight = build_guard_snapshot(
            now=now,
            rules=rules,
            books=books,
            records=records,
            latest=latest,
            holds=load_counting_holds(ask, now),
            wishes=load_recent_overrides(records, now),
            before=read_previous_runs(last, rules, now, guarded_until=last.at if last else None),
            held=(),
            lookback=SampleWindow(),
        )
        found = flow(
            books=books,
            now=now,
            zone=zone,
            intents=records.load_open_intents(),
            live=sight.live,
            stand=sight.standings,
            balances=seen.balances if seen else None,
            unreached=seen.unreached if seen else list_unasked_providers(settings.providers, books.list_scopes(), now),
            beside=lambda _: annotate_resources(rules, sight),
            overshoots=lambda *_: view.overshoots if view else forecast_overshoots(rules, sight, latest.handling),
        )
        found = replace(found, watchdogs=load_watchdog_shares(ask, now))
        seen_at = last.at if last and view else None
        return CurrentView(status=found, sight=sight, rules=rules, last=last, head=read_head_text(ask), seen_at=seen_at)


def answer_report(
    *,
    stated: Mapping[str, str | None] = NO_PERIOD,
    by: str | None = None,
    zone: str | None = None,
    strict: bool = False,
    needs: str = "",
    config: str | None = None,
) -> CommandAnswer:
    """Answer `costguard report`: the costs of a period. `stated`: the period, as in `reporting/statement/period.py`.

    `needs`: the field of the document that the format renders. `strict`: refuse if a scope was not observed throughout.
    """
    from costguard.views.report import build_incomplete_report_error, list_report_warnings

    settings, now = read_settings(config), _get_now()
    place, keys = _choose_zone(zone, settings), parse_group_keys(by)
    of = parse_report_period(stated, now, place)
    found, document = build_report(
        settings, of, by=keys, zone=place, now=now, drawn=needs == CHARTS_NEED, beside=needs != ITEMS_NEED
    )
    return CommandAnswer(
        document=document,
        warnings=list_report_warnings(found),
        refusal=build_incomplete_report_error(found) if strict else None,
        value=found,
    )


def build_report(
    settings: Settings, of: ReportPeriod, *, by: tuple[str, ...], zone: tzinfo, now: datetime, drawn: bool, beside: bool = True
) -> tuple[Statement, Document]:
    """Build the statement of a period, and its document. `drawn`: with chart data.

    `beside`: see `report.build_full_statement`.
    """
    from costguard.services.quote.price_history import add_spent_prices
    from costguard.services.report.report import ReportQuestion, build_full_statement
    from costguard.views.report import add_budgets, build_report_document

    with open_books(settings, ReportReader) as accounts, pause_gc():
        question = ReportQuestion(
            asked=of, by=by, zone=zone, as_of=now, pause=POLL_GAP, group_from=settings.defaults.group_from, drawn=drawn
        )
        found = build_full_statement(
            accounts=accounts, question=question, rules=ShippedFacts().get_billing_rules(), beside=beside
        )
        standings = _load_standings(settings, accounts, of.period, now) if settings.budgets and beside else ()
    items = LedgerChargeItems(books=lambda: open_books(settings), period=of.period, as_of=now)
    exchange = settings.display.find_exchange(min(of.period.end, now))
    at = min(now, of.period.end)
    document = add_spent_prices(add_budgets(build_report_document(found, exchange), standings, at), found)
    return found, replace(document, items=items)


def _load_standings(settings: Settings, books: SpendingReader, period: Period, now: datetime) -> tuple[BudgetStatus, ...]:
    """Return the budgets as they stand now, or as they stood at the end of a period that is over."""
    from costguard.services.guarding.status import load_budget_statuses

    if now < period.end:
        with LedgerReader(resolve_ledger_url(settings)) as reader, reader.snapshot() as ask:
            holds = load_counting_holds(ask, now)
        return load_budget_statuses(books=books, budgets=settings.budgets, holds=holds, live=books.load_live(now), now=now)
    last = period.end - timedelta(microseconds=1)
    return load_budget_statuses(books=books, budgets=settings.budgets, holds=(), live=(), now=last)


@overload
def open_books(settings: Settings) -> SpendingReader: ...
@overload
def open_books(settings: Settings, kind: type[ReportReader]) -> ReportReader: ...
def open_books(settings: Settings, kind: type[SpendingReader] = SpendingReader) -> SpendingReader:
    """The ledger of `settings`. The market is opened only where something must be bounded by it."""
    return kind(
        resolve_ledger_url(settings), rules=ShippedFacts().get_billing_rules(), ceilings=partial(read_price_ceilings, settings)
    )


def _build_poll_results(ask: Query, looked: PollNowResult | RunView | None) -> PollResults:
    """Build the poll results of a snapshot from what was just listed, or seen by a run. No measurements are requested."""
    return PollResults(
        handling=looked.handling if looked else {},
        sources={},
        balances=looked.balances if looked else (),
        members=looked.members if looked else (),
        lags=read_measurement_lags(),
        measures=(),
        agents=tuple(load_agents(ask)),
    )


def _choose_zone(stated: str | None, settings: Settings) -> tzinfo:
    return settings.defaults.zone if stated is None else load_zone(stated, "--zone")


def _get_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerChargeItems:
    """The charge items of `period` as known at `as_of`. Each iteration reads the ledger anew."""

    books: Callable[[], SpendingReader]
    period: Period
    as_of: datetime

    @property
    def sellers(self) -> Mapping[str, Seller]:
        """Return the seller of every installed provider. The import happens here, because only reports with items need it."""
        from costguard.providers.plugins import load_sellers

        return load_sellers()

    def __iter__(self) -> Iterator[ChargeItem]:
        """Yield the items resource by resource; the ledger is closed at the end of the iteration."""
        with self.books() as books:
            yield from books.items(self.period, self.as_of)
