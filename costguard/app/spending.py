"""What the ledger answers: status and report."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo

from costguard.app import Answer
from costguard.core import calendar
from costguard.core.metering.accrual import GAP
from costguard.core.statement import keys_stated, month_stated
from costguard.core.status import month_label
from costguard.data import Facts
from costguard.ledger.holds import open_holds
from costguard.ledger.reader import Reader
from costguard.ledger.reading import Books
from costguard.settings import Settings, ledger_url, read_settings, zone_named


def status(*, zone: str | None = None, strict: bool = False, offline: bool = False, config: str | None = None) -> Answer:
    """`costguard status`: what burns now, what the month comes to, how each scope is seen.

    The configured providers are asked first, but for `offline`. `strict`: what could not be asked is refused.
    """
    from costguard.core.documents.status import not_whole, status_document, status_warnings
    from costguard.flows.status import status as flow

    settings, refused, told = read_settings(config), tuple[str, ...](), tuple[str, ...]()
    place = _zone(zone, settings)
    if settings.providers and not offline:
        from costguard.app.polling import look

        looked = look(settings)
        refused, told = looked.refused, looked.told
    now, url = _now(), ledger_url(settings)
    with Reader(url) as reader, reader.snapshot() as ask:
        holds = open_holds(ask, now)
    with Books(url, rules=Facts().billing_rules()) as books:
        found = flow(books=books, budgets=settings.budgets, holds=holds, now=now, zone=place)
    warnings = (*status_warnings(found), *told)
    return Answer(
        document=status_document(found, told), warnings=warnings, refusal=not_whole(found, refused) if strict else None
    )


def report(
    *,
    month: str | None = None,
    by: str | None = None,
    zone: str | None = None,
    strict: bool = False,
    config: str | None = None,
) -> Answer:
    """`costguard report`: where a month's money went. `strict`: a scope that was not seen all through is refused."""
    from costguard.core.documents.report import incompleteness, report_document, report_warnings
    from costguard.flows.report import report as flow

    settings, now = read_settings(config), _now()
    place, keys = _zone(zone, settings), keys_stated(by)
    period = calendar.month_of(now, place) if month is None else calendar.month(*month_stated(month), place)
    rules = Facts().billing_rules()
    with Books(ledger_url(settings), rules=rules) as books:
        found = flow(
            books=books, period=period, label=month_label(period, place), zone=place, by=keys, rules=rules, as_of=now, pause=GAP
        )
    refusal = incompleteness(found) if strict else None
    return Answer(document=report_document(found), warnings=report_warnings(found), refusal=refusal)


def _zone(stated: str | None, settings: Settings) -> tzinfo:
    return settings.defaults.zone if stated is None else zone_named(stated, "--zone")


def _now() -> datetime:
    return datetime.now(UTC)
