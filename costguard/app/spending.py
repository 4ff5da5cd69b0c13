"""What the ledger answers: status and report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta, tzinfo

from costguard.app import Answer
from costguard.app.ruling import rules_of
from costguard.core import calendar
from costguard.core.guard.beside import beside, overshoots
from costguard.core.guard.sight import Sight
from costguard.core.metering.accrual import GAP
from costguard.core.metering.observation import Handling
from costguard.core.metering.resource import ResourceKey
from costguard.core.statement import keys_stated, month_stated
from costguard.core.status import month_label
from costguard.data import Facts
from costguard.ledger.asking import Ask
from costguard.ledger.chain import head_text
from costguard.ledger.climbs import protections
from costguard.ledger.holds import open_holds
from costguard.ledger.intents import open_intents, reactions, sends_since
from costguard.ledger.lately import columns_since
from costguard.ledger.reader import Reader
from costguard.ledger.reading import Books
from costguard.ledger.wishes import open_wishes
from costguard.settings import Settings, ledger_url, read_settings, zone_named

LOOKS_BACK = timedelta(hours=48)
"""As far as samples are kept one by one."""
DAY = timedelta(days=1)
REACTIONS_BACK = timedelta(days=30)
"""How long a measured time of a stop says how long the next one takes."""


def status(*, zone: str | None = None, strict: bool = False, offline: bool = False, config: str | None = None) -> Answer:
    """`costguard status`: what burns now, what the month comes to, how each scope is seen.

    The configured providers are asked first, but for `offline`. `strict`: what could not be asked is refused.
    """
    from costguard.core.documents.status import not_whole, status_document, status_warnings
    from costguard.flows.status import status as flow

    settings, refused, told = read_settings(config), tuple[str, ...](), tuple[str, ...]()
    handling: Mapping[ResourceKey, Handling] = {}
    place = _zone(zone, settings)
    if settings.providers and not offline:
        from costguard.app.polling import look

        looked = look(settings)
        refused, told, handling = looked.refused, looked.told, looked.handling
    now, url = _now(), ledger_url(settings)
    with Reader(url) as reader, reader.snapshot() as ask:
        holds, intents, known = open_holds(ask, now), open_intents(ask), _known(ask, now)
        head = head_text(ask)
    rules = rules_of(settings)
    with _books(settings) as books:
        found = flow(
            books=books,
            budgets=settings.budgets,
            holds=holds,
            now=now,
            zone=place,
            intents=intents,
            beside=lambda live: beside(rules, replace(known, live=tuple(live))),
            overshoots=lambda live, found: overshoots(
                rules, replace(known, live=tuple(live), standings=tuple(found)), handling
            ),
        )
    warnings = (*status_warnings(found), *told)
    return Answer(
        document=status_document(found, told, head), warnings=warnings, refusal=not_whole(found, refused) if strict else None
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
    with _books(settings) as books:
        found = flow(
            books=books, period=period, label=month_label(period, place), zone=place, by=keys, rules=rules, as_of=now, pause=GAP
        )
    refusal = incompleteness(found) if strict else None
    return Answer(document=report_document(found), warnings=report_warnings(found), refusal=refusal)


def _books(settings: Settings) -> Books:
    """The ledger of `settings`. The market is opened only where something must be bounded by it."""

    def ceilings() -> Mapping[str, int]:
        from costguard.app.ceilings import ceilings as known

        return known(settings)

    return Books(ledger_url(settings), rules=Facts().billing_rules(), ceilings=ceilings)


def _known(ask: Ask, now: datetime) -> Sight:
    """What the ledger knows beside what lives: samples, wishes, protections that were seen."""
    return Sight(
        now=now,
        live=(),
        samples=columns_since(ask, now - LOOKS_BACK),
        wishes=tuple(open_wishes(ask, now)),
        protections=protections(ask),
        sent=tuple(sends_since(ask, now - DAY)),
        reactions=tuple(reactions(ask, now - REACTIONS_BACK)),
    )


def _zone(stated: str | None, settings: Settings) -> tzinfo:
    return settings.defaults.zone if stated is None else zone_named(stated, "--zone")


def _now() -> datetime:
    return datetime.now(UTC)
