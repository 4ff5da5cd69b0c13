"""Read what bills say of the charges of a provider: lines, answers and spans, before any of it is weighed.

Of a large bill it takes long, so it is read before the transaction that writes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import NamedTuple

from sqlalchemy import and_, func, or_
from sqlalchemy import select as select_columns
from sqlmodel import col, select

from costguard.bills.drift import ProviderBill
from costguard.bills.evidence import (
    FUTURE,
    BillAnswerPeriod,
    EvidenceContext,
    EvidenceFinding,
    EvidenceLine,
    EvidenceSpan,
    weigh_lines,
)
from costguard.ledger.bills.answers import ResourceNames, confirm_lines, load_answers, load_answers_of_resources
from costguard.ledger.bills.reader import STATED, UNFINISHED, count_where, is_of_statement, load_statements, sum_amounts
from costguard.ledger.db.codecs import Query, decode_span, split_batches
from costguard.ledger.db.rows import IDS, read_batches
from costguard.ledger.spans.correction_parts import (
    RESOURCE,
    SPAN,
    Rows,
    join_last_correction,
)
from costguard.ledger.spans.scope_state import load_attributions
from costguard.ledger.tables.bills import BillImportRow, BillLineRow
from costguard.ledger.tables.spans import CorrectionPartRow, CorrectionRow, ResourceRow, SpanRow
from costguard.metering.billing import BillTerms
from costguard.metering.meter import ADDRESS_CHARGE, COMPUTE, STORAGE
from costguard.values.calendar import Period
from costguard.values.instant import DAY_US, MICROSECOND, from_micros, to_micros
from costguard.values.money import NANO
from costguard.values.resource import ResourceKey

NARROWED_CHARGES = (COMPUTE, STORAGE, ADDRESS_CHARGE)
"""Kinds of charge that accrue over time. Traffic is counted by its provider, and has no doubt of presence."""
VISIBLE_STEPS = (10_000_000, 1_000_000, 100_000)
"""Nano-units to which a statement may be rounded: a cent, a tenth and a hundredth of one."""
ChargePlace = tuple[int, str]
"""A resource's row, and the charge."""


@dataclass(slots=True)
class ResourceCharges:
    """The spans of one resource and kind of charge. `attributions`: the row of each, by span."""

    key: ResourceKey
    charge: str
    spans: list[EvidenceSpan] = field(default_factory=list)
    attributions: dict[int, int] = field(default_factory=dict)


class FactsScope(NamedTuple):
    """The resources with spans in doubt or bounded by a bill, their days, and the last import that counts (0: none)."""

    resource_ids: tuple[int, ...]
    first_us: int
    last_us: int
    import_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BillFacts:
    """What the bills of a provider say of the doubtful spans of a period, and of resources that they state another price of.

    `scope`: what was read; another one has other facts. `repriced`: resources of another price. `within`: the days of all their
    spans. `lines`: by account, id and charge. `steps`: by account, see `EvidenceContext.step`. `answers`: those
    that had lines of a resource, by account and id.
    """

    scope: FactsScope
    repriced: frozenset[int] = frozenset()
    within: tuple[int, int] = (0, 0)
    future: tuple[EvidenceFinding, ...] = ()
    lines: Mapping[tuple[str, str, str], Sequence[EvidenceLine]] = field(default_factory=dict)
    steps: Mapping[str, int] = field(default_factory=dict)
    answers: Mapping[tuple[str, str], Sequence[BillAnswerPeriod]] = field(default_factory=dict)


def load_bill_facts(  # noqa: PLR0917 - what is read, of when, and by which terms
    ask: Query, provider: str, period: Period, now: datetime, terms: BillTerms | None, repriced: frozenset[int] | None = None
) -> BillFacts:
    """Return what the bills of `provider` say of its spans in `period`. Of a million lines it takes many seconds.

    `terms`: how it states its bill. `repriced`: resources of another price, as found before; None: they are looked for.
    """
    scope = find_scope(ask, provider, period)  # first: an import that ends while the rest is read is another scope
    (ids, first_us, last_us, _), future = scope, _find_future_lines(ask, provider, period, now)
    within = (first_us, last_us)
    statements = load_statements(ask, provider, _to_period(within))[0]
    if repriced is None:
        repriced = frozenset(_find_repriced(ask, provider, statements, within, now))
    if not ids and not repriced:
        return BillFacts(scope=scope, future=future, within=within)
    for start_us, end_us in read_batches(ask, _select_extents(within), sorted(repriced)):
        within = min(within[0], start_us // DAY_US * DAY_US), max(within[1], end_us // DAY_US * DAY_US + DAY_US)
    if within != (first_us, last_us):
        statements = load_statements(ask, provider, _to_period(within))[0]
    names = _load_names(ask, sorted({*ids, *repriced}))
    lines = _load_lines(ask, provider, statements, names, within)
    if terms is not None and terms.estimated_lag_s is not None:
        confirm_lines(lines, {account: load_answers(ask, provider, one, within) for account, one in statements.items()})
    return BillFacts(
        scope=scope,
        future=future,
        repriced=repriced,
        within=within,
        lines=lines,
        answers=load_answers_of_resources(ask, provider, statements, names, within) if terms and terms.states_all else {},
        steps={account: _find_step(ask, provider, one) for account, one in statements.items()},
    )


def _to_period(within: tuple[int, int]) -> Period:
    return Period(start=from_micros(within[0]), end=from_micros(within[1]))


def _find_repriced(
    ask: Query, provider: str, statements: Mapping[str, ProviderBill], within: tuple[int, int], now: datetime
) -> Iterator[int]:
    """Yield the resources of which the bills state another price than was counted; some of them may turn out not to be."""
    resources = select_columns(col(ResourceRow.id), col(ResourceRow.account), col(ResourceRow.external_id))
    numbers = {(account, name): number for number, account, name in ask(resources.where(col(ResourceRow.provider) == provider))}
    for names in split_batches(sorted(numbers) if statements else ()):
        own_names = defaultdict[str, set[str]](set)
        for account, name in names:
            own_names[account].add(name)
        lines = _load_lines(ask, provider, statements, own_names, within)
        billed = sorted({numbers[account, name] for account, name, _ in lines})
        for (number, charge), one in load_charges(ask, billed, *within).items() if billed else ():
            context = EvidenceContext(now_us=to_micros(now), watched_until_us=to_micros(now))
            weighed = weigh_lines(lines.get((one.key.account, one.key.id, charge), ()), one.spans, context)
            still_open = {each.id for each in one.spans if each.span.end is None}
            if weighed.repriced or not still_open.isdisjoint(part.span_id for part in weighed.parts):
                yield number


def _select_extents(within: tuple[int, int]) -> Rows:
    """Select the start and the end of each span of resources that is partly within."""
    end_us = func.coalesce(SpanRow.end_us, within[1])
    extents = select_columns(col(SpanRow.start_us), end_us).where(col(SpanRow.charge).in_(NARROWED_CHARGES))
    return extents.where(col(SpanRow.resource_id).in_(IDS), col(SpanRow.start_us) < within[1], end_us > within[0])


def find_scope(ask: Query, provider: str, period: Period) -> FactsScope:
    """Return the scope of `period`, whose days it touches as well."""
    start_us, end_us = to_micros(period.start), to_micros(period.end)
    billed = select(CorrectionRow.span_id).join(CorrectionPartRow, col(CorrectionPartRow.correction_id) == CorrectionRow.id)
    billed = billed.where(col(CorrectionPartRow.bill_line_id).is_not(None))
    doubtful = (
        select(SpanRow.resource_id, func.min(SpanRow.start_us), func.max(SpanRow.end_us))
        .join(ResourceRow, col(ResourceRow.id) == SpanRow.resource_id)
        .where(col(ResourceRow.provider) == provider, col(SpanRow.charge).in_(NARROWED_CHARGES))
        .where(col(SpanRow.end_us) > start_us, col(SpanRow.start_us) < end_us)
        .where(or_(col(SpanRow.low) < col(SpanRow.high), col(SpanRow.id).in_(billed)))
        .group_by(col(SpanRow.resource_id))
    )
    rows = ask(doubtful)
    first_us = min(start_us, *(row[1] for row in rows), start_us) // DAY_US * DAY_US
    last_us = -(-max(end_us, *(row[2] for row in rows), end_us) // DAY_US) * DAY_US
    last_import = select(func.coalesce(func.max(BillImportRow.id), 0)).where(col(BillImportRow.id).not_in(UNFINISHED))
    return FactsScope(tuple(sorted({row[0] for row in rows})), first_us, last_us, ask(last_import)[0])


def load_charges(ask: Query, ids: Sequence[int], first_us: int, last_us: int) -> dict[ChargePlace, ResourceCharges]:
    """Return every span of the resources that touches the time, as polls recorded it, by resource and charge."""
    attributions, charges = load_attributions(ask), dict[ChargePlace, ResourceCharges]()
    start_us, end_us = col(SpanRow.start_us), col(SpanRow.end_us)
    # what polls said last is the presence of the last correction: one that a bill makes repeats it
    columns = [func.coalesce(CorrectionRow.presence, one) if one is SpanRow.presence else one for one in SPAN]
    spans = join_last_correction(
        select_columns(col(SpanRow.id), col(SpanRow.resource_id), col(SpanRow.attribution_id), *RESOURCE, *columns)
        .join(ResourceRow, col(ResourceRow.id) == SpanRow.resource_id)
        .where(col(SpanRow.charge).in_(NARROWED_CHARGES), col(SpanRow.resource_id).in_(IDS), start_us < last_us)
        .where(or_(end_us.is_(None), and_(end_us > first_us, end_us > start_us)))
        .order_by(col(SpanRow.resource_id), start_us, col(SpanRow.id))
    )
    for number, resource_id, attribution_id, *rest in read_batches(ask, spans, ids):
        key = ResourceKey(*rest[:4])
        span = decode_span(key, attributions[attribution_id], tuple(rest[4:]))
        one = charges.setdefault((resource_id, span.meter.charge), ResourceCharges(key, span.meter.charge))
        one.spans.append(EvidenceSpan(number, span))
        one.attributions[number] = attribution_id
    return charges


def _load_names(ask: Query, ids: Sequence[int]) -> ResourceNames:
    names = defaultdict[str, set[str]](set)
    resources = select(ResourceRow.account, ResourceRow.external_id).where(col(ResourceRow.id).in_(IDS))
    for account, external_id in read_batches(ask, resources, ids):
        names[account].add(external_id)
    return names


def _load_lines(
    ask: Query, provider: str, statements: Mapping[str, ProviderBill], names: ResourceNames, within: tuple[int, int]
) -> dict[tuple[str, str, str], list[EvidenceLine]]:
    """Return the current lines of the statement that counts for each account, by account, id and charge."""
    lines_by_place = defaultdict[tuple[str, str, str], list[EvidenceLine]](list)
    for account, statement in statements.items():
        touches = (col(BillLineRow.start_us) < within[1], col(BillLineRow.end_us) > within[0])
        lines = _select_lines().where(is_of_statement(provider, statement), *touches)
        for external_id, charge, *facts in read_batches(ask, lines, sorted(names[account])):
            lines_by_place[account, external_id, charge].append(EvidenceLine(*facts))
    return lines_by_place


@cache
def _select_lines() -> Rows:
    """Select the resource, the charge, and what an `EvidenceLine` has, of each line."""
    names = ("external_id", "charge", "id", "start_us", "end_us", "nano", "currency", "estimated", "description", "stated_us")
    lines = select_columns(*(getattr(BillLineRow, name) for name in names)).where(col(BillLineRow.external_id).in_(IDS))
    return lines.order_by(col(BillLineRow.start_us), col(BillLineRow.id))


def _find_step(ask: Query, provider: str, statement: ProviderBill) -> int:
    """Return the nano-units that every amount of a statement is a whole multiple of; 0 if there is no such step."""
    counts = (count_where(col(BillLineRow.nano) % step == 0) for step in VISIBLE_STEPS)
    amounts = select_columns(func.count(), *counts).where(is_of_statement(provider, statement), col(BillLineRow.nano) != 0)
    ((lines, *multiples),) = ask(amounts)
    return next((step for step, count in zip(VISIBLE_STEPS, multiples, strict=True) if lines and count == lines), 0)


def _find_future_lines(ask: Query, provider: str, period: Period, now: datetime) -> tuple[EvidenceFinding, ...]:
    """Return the lines that are stated as final although their period is not over."""
    names = (col(BillLineRow.account), col(BillLineRow.charge), col(BillLineRow.currency))
    start_us, end_us = col(BillLineRow.start_us), col(BillLineRow.end_us)
    begins = and_(start_us < to_micros(period.end), start_us >= to_micros(period.start))
    ends_later = or_(end_us > to_micros(now + MICROSECOND), end_us > BillLineRow.stated_us)
    lines = (
        select_columns(*names, func.count(), *sum_amounts(), func.min(BillLineRow.external_id))
        .where(col(BillLineRow.provider) == provider, begins, ends_later, col(BillLineRow.estimated) == 0, STATED)
        .where(col(BillLineRow.charge).not_in(("tax", "credit")))
        .group_by(*names)
        .order_by(*names)
    )
    return tuple(
        EvidenceFinding(
            **dict(zip(("account", "charge", "currency", "lines"), facts, strict=True)),
            provider=provider,
            reason=FUTURE,
            nano=int(whole_part) * NANO + int(rest),
            resources=(first,),
        )
        for *facts, whole_part, rest, first in ask(lines)
    )
