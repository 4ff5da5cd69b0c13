"""What the ledger answers: status and report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, tzinfo
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, overload

from costguard.data import ShippedFacts
from costguard.ledger.agents.records import load_agents
from costguard.ledger.db.asking import Query
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.guard.audit_log import read_head_text
from costguard.ledger.guard_records import SnapshotRecords
from costguard.ledger.holds import load_counting_holds
from costguard.ledger.reports.reader import ReportReader
from costguard.ledger.spans.books import SpendingReader
from costguard.metering.accrual import POLL_GAP
from costguard.reporting.beside import annotate_resources, forecast_overshoots
from costguard.reporting.statement.groups import parse_group_keys
from costguard.reporting.statement.period import ReportPeriod, parse_report_period
from costguard.services import Answer
from costguard.services.ceilings import ceilings
from costguard.services.charging import Charges
from costguard.services.guard_inputs import rules_of
from costguard.services.lags import read_measurement_lags
from costguard.services.latest import Latest
from costguard.settings import Settings, load_zone, read_settings, resolve_ledger_url
from costguard.system.gc_pause import pause_gc

if TYPE_CHECKING:  # types and no more: an answer from the ledger alone brings neither
    from costguard.reporting.statement import Statement
    from costguard.reporting.status import FleetStatus
    from costguard.services.poll_now import Looked
    from costguard.views.document import Document

CHARTS, ITEMS = "charts", "items"
"""What a format that draws states as its needs, and one that is made of charge items: that one shows no statement."""
NOTHING_STATED: Mapping[str, str | None] = MappingProxyType({})


def status(*, zone: str | None = None, strict: bool = False, offline: bool = False, config: str | None = None) -> Answer:
    """`costguard status`: what burns now, what the month comes to, how each scope is seen.

    The configured providers are asked first, but for `offline`. `strict`: what could not be asked is refused.
    """
    from costguard.views.status import build_incomplete_status_error, build_status_document, list_status_warnings

    settings = read_settings(config)
    place = _zone(zone, settings)
    looked = None
    if settings.providers and not offline:
        from costguard.services.poll_now import look

        looked = look(settings)
    found, head = status_now(settings, place, looked)
    told = looked.told if looked else ()
    return Answer(
        document=build_status_document(found, told, head, settings.display.find_exchange(found.at)),
        warnings=(*list_status_warnings(found), *told),
        refusal=build_incomplete_status_error(found, looked.refused if looked else ()) if strict else None,
    )


def status_now(settings: Settings, zone: tzinfo, looked: Looked | None) -> tuple[FleetStatus, str]:
    """What the ledger says now, and the head of its audit. `looked`: what the providers have just said; None: nobody asked."""
    from costguard.services.flows_asked import wishes_lately
    from costguard.services.guard_snapshot import build_guard_snapshot, read_runs_before
    from costguard.services.lookback import Lookback
    from costguard.services.status import status as flow

    now, url, rules = _now(), resolve_ledger_url(settings), rules_of(settings)
    with LedgerReader(url) as reader, reader.snapshot() as ask, _books(settings) as books:
        records, latest = SnapshotRecords(ask), _latest(ask, looked)
        last = records.load_last_run()
        sight = build_guard_snapshot(
            now=now,
            rules=rules,
            books=books,
            records=records,
            latest=latest,
            holds=load_counting_holds(ask, now),
            wishes=wishes_lately(records, now),
            before=read_runs_before(last, rules, now, guarded_until=last.at if last else None),
            held=(),
            lookback=Lookback(),
        )
        found = flow(
            books=books,
            now=now,
            zone=zone,
            intents=records.load_open_intents(),
            live=sight.live,
            stand=sight.standings,
            balances=looked.balances if looked else None,
            beside=lambda _: annotate_resources(rules, sight),
            overshoots=lambda *_: forecast_overshoots(rules, sight, latest.handling),
        )
        return found, read_head_text(ask)


def report(
    *,
    stated: Mapping[str, str | None] = NOTHING_STATED,
    by: str | None = None,
    zone: str | None = None,
    strict: bool = False,
    needs: str = "",
    config: str | None = None,
) -> Answer:
    """`costguard report`: where a period's money went. `stated`: which period, by the names of `core/statement/period.py`.

    `needs`: the field of the document that the format is made of. `strict`: a scope that was not seen all through is refused.
    """
    from costguard.views.report import build_incomplete_report_error, list_report_warnings

    settings, now = read_settings(config), _now()
    place, keys = _zone(zone, settings), parse_group_keys(by)
    of = parse_report_period(stated, now, place)
    found, document = reported(settings, of, by=keys, zone=place, now=now, drawn=needs == CHARTS, beside=needs != ITEMS)
    return Answer(
        document=document,
        warnings=list_report_warnings(found),
        refusal=build_incomplete_report_error(found) if strict else None,
    )


def reported(
    settings: Settings, of: ReportPeriod, *, by: tuple[str, ...], zone: tzinfo, now: datetime, drawn: bool, beside: bool = True
) -> tuple[Statement, Document]:
    """The statement of a period, and its document. `drawn`: with what charts are drawn from. `beside`: see `full_report`."""
    from costguard.services.further import Question
    from costguard.services.report import full_report
    from costguard.views.report import build_report_document

    with _books(settings, ReportReader) as accounts, pause_gc():
        question = Question(
            asked=of, by=by, zone=zone, as_of=now, pause=POLL_GAP, group_from=settings.defaults.group_from, drawn=drawn
        )
        found = full_report(accounts=accounts, question=question, rules=ShippedFacts().get_billing_rules(), beside=beside)
    items = Charges(books=lambda: _books(settings), period=of.period, as_of=now)
    exchange = settings.display.find_exchange(min(of.period.end, now))
    return found, replace(build_report_document(found, exchange), items=items)


@overload
def _books(settings: Settings) -> SpendingReader: ...
@overload
def _books(settings: Settings, kind: type[ReportReader]) -> ReportReader: ...
def _books(settings: Settings, kind: type[SpendingReader] = SpendingReader) -> SpendingReader:
    """The ledger of `settings`. The market is opened only where something must be bounded by it."""
    return kind(resolve_ledger_url(settings), rules=ShippedFacts().get_billing_rules(), ceilings=partial(ceilings, settings))


def _latest(ask: Query, looked: Looked | None) -> Latest:
    """What a guard run would be told beside the ledger, of what was just listed. Nobody is asked for a measure from here."""
    return Latest(
        handling=looked.handling if looked else {},
        sources={},
        balances=looked.balances if looked else (),
        members=looked.members if looked else (),
        lags=read_measurement_lags(),
        measures=(),
        agents=tuple(load_agents(ask)),
    )


def _zone(stated: str | None, settings: Settings) -> tzinfo:
    return settings.defaults.zone if stated is None else load_zone(stated, "--zone")


def _now() -> datetime:
    return datetime.now(UTC)
