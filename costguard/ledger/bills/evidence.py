"""Narrow doubtful charges by the settled lines of bills, in the transaction in which their import counts.

Nothing is edited: a span that a bill bounds gets a correction with parts (`spans/correction_parts.py`), and daily sums change
with it. Each call starts from what was observed, and not from what an earlier bill said: the same bill again writes nothing, a
restated line replaces what its older version said, and a withdrawn one takes it back.

Example: 30 hours of a Vast machine are a GAP from $0 to $600. The line of its first day says $240 for twelve of them. The span
gets a correction from $240 to $600; the bill of the second day gives it another one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cache
from typing import NamedTuple

from sqlalchemy import and_, func, or_, update
from sqlalchemy import select as select_columns
from sqlmodel import col, select

from costguard.bills.drift import ProviderBill
from costguard.bills.evidence import (
    CONTRADICTIONS,
    FUTURE,
    BilledPart,
    EvidenceContext,
    EvidenceFinding,
    EvidenceLine,
    EvidenceSpan,
    EvidenceSummary,
    UnusedLine,
    weigh_lines,
)
from costguard.ledger.bills.reader import STATED, UNFINISHED, count_where, is_of_statement, load_statements, sum_amounts
from costguard.ledger.db.codecs import Execute, Query, SqlRow, decode_span, encode_span, pick_fields, split_batches
from costguard.ledger.db.rows import IDS, insert_tuples, read_batches
from costguard.ledger.spans.correction_parts import (
    PART_COLUMNS,
    RESOURCE,
    SPAN,
    CorrectionPart,
    Rows,
    cover_span,
    decode_parts,
    encode_parts,
    join_last_correction,
)
from costguard.ledger.spans.numbering import RowNumbers
from costguard.ledger.spans.posting import CLOSING_COLUMNS, DailyRollup
from costguard.ledger.spans.scope_state import load_attributions, load_books, load_known
from costguard.ledger.tables.bills import BillImportRow, BillLineRow
from costguard.ledger.tables.spans import CorrectionPartRow, CorrectionRow, LedgerStateRow, ResourceRow, SpanRow
from costguard.metering.accrual import find_last_seen
from costguard.metering.billing import BillingRule, get_billing_rule
from costguard.metering.line_accrual import close_span
from costguard.metering.meter import ADDRESS_CHARGE, COMPUTE, STORAGE
from costguard.metering.span import Span, compute_amounts
from costguard.values.calendar import Period
from costguard.values.instant import DAY_US, MICROSECOND, from_micros, to_micros
from costguard.values.money import NANO
from costguard.values.resource import ENDED, ResourceKey, make_storable

NARROWED_CHARGES = (COMPUTE, STORAGE, ADDRESS_CHARGE)
"""Kinds of charge that accrue over time. Traffic is counted by its provider, and has no doubt of presence."""
RESOURCES_NAMED_MAX = 5
VISIBLE_STEPS = (10_000_000, 1_000_000, 100_000)
"""Nano-units to which a statement may be rounded: a cent, a tenth and a hundredth of one."""
FAR_US = 2**62
BILLED_UNTIL = "billed until here, at another price"
"""Why a span ends in which a machine went on: the bill's price counts for the time of the bill alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceResult:
    """What the bills of a provider did to its charges in a period, by account and currency; and lines that count for nothing.

    `corrections`: how many were written now.
    """

    summaries: tuple[EvidenceSummary, ...] = ()
    findings: tuple[EvidenceFinding, ...] = ()
    corrections: int = 0


@dataclass(slots=True)
class _Charges:
    """The spans of one resource and kind of charge. `attributions`: the row of each, by span."""

    key: ResourceKey
    charge: str
    spans: list[EvidenceSpan] = field(default_factory=list)
    attributions: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Tally:
    """Sums for the summary of one account and currency."""

    lines: set[int] = field(default_factory=set)
    resources: set[ResourceKey] = field(default_factory=set)
    doubt: int = 0
    left: int = 0
    repriced: set[int] = field(default_factory=set)
    counted: int = 0
    billed: int = 0


class _Scope(NamedTuple):
    """The resources with spans in doubt or bounded by a bill, their days, and the last import that counts (0: none)."""

    resource_ids: tuple[int, ...]
    first_us: int
    last_us: int
    import_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BillFacts:
    """What the bills of a provider say of the doubtful spans of a period, and of resources that they state another price of.

    `scope`: what was read; another one has other facts. `repriced`: resources of another price. `within`: the days of all their
    spans. `lines`: by account, id and charge. `steps`: by account, see `EvidenceContext.step`.
    """

    scope: _Scope
    repriced: frozenset[int] = frozenset()
    within: tuple[int, int] = (0, 0)
    future: tuple[EvidenceFinding, ...] = ()
    lines: Mapping[tuple[str, str, str], Sequence[EvidenceLine]] = field(default_factory=dict)
    steps: Mapping[str, int] = field(default_factory=dict)


def load_bill_facts(
    ask: Query, provider: str, period: Period, now: datetime, repriced: frozenset[int] | None = None
) -> BillFacts:
    """Return what the bills of `provider` say of its spans in `period`. Of a million lines it takes many seconds.

    `repriced`: resources of another price, as found before; None: they are looked for.
    """
    scope = _find_scope(ask, provider, period)  # first: an import that ends while the rest is read is another scope
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
    return BillFacts(
        scope=scope,
        future=future,
        repriced=repriced,
        within=within,
        lines=_load_lines(ask, provider, statements, sorted({*ids, *repriced}), within),
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
        lines = _load_lines(ask, provider, statements, [numbers[name] for name in names], within)
        billed = sorted({numbers[account, name] for account, name, _ in lines})
        for (number, charge), one in _load_charges(ask, billed, *within).items() if billed else ():
            context = EvidenceContext(now_us=to_micros(now), watched_until_us=to_micros(now))
            if weigh_lines(lines.get((one.key.account, one.key.id, charge), ()), one.spans, context).repriced:
                yield number


def _select_extents(within: tuple[int, int]) -> Rows:
    """Select the start and the end of each span of resources that is partly within."""
    end_us = func.coalesce(SpanRow.end_us, within[1])
    extents = select_columns(col(SpanRow.start_us), end_us).where(col(SpanRow.charge).in_(NARROWED_CHARGES))
    return extents.where(col(SpanRow.resource_id).in_(IDS), col(SpanRow.start_us) < within[1], end_us > within[0])


def apply_evidence(
    ask: Query,
    tell: Execute,
    provider: str,
    period: Period,
    *,
    rules: Mapping[str, BillingRule],
    now: datetime,
    on_server: bool,
    facts: BillFacts | None = None,
) -> EvidenceResult:
    """Write a correction for each span of `provider` in `period` of which its bills say something else than before.

    An open span of which a bill states another price is closed where the bill ends, and goes on as a new one.

    Run it in a write transaction that excludes all others. `on_server`: the ledger is on PostgreSQL. `rules`: how each provider
    bills; the lag of its listings limits what is known. `facts`: of
    the same provider and period, read before this transaction; they are read again if meanwhile an import ended, or a poll put
    other spans in doubt. None: they are read here.
    """
    scope = _find_scope(ask, provider, period)
    if facts is None or facts.scope != scope:
        facts = load_bill_facts(ask, provider, period, now, None if facts is None else facts.repriced)
    ids = sorted({*scope.resource_ids, *facts.repriced})
    if not ids:
        return EvidenceResult(findings=facts.future)
    charged = _load_charges(ask, ids, *facts.within)
    names = (col(ResourceRow.account), col(ResourceRow.external_id))
    ids_of_two = select_columns(*names).where(col(ResourceRow.provider) == provider).group_by(*names)
    ambiguous = set(ask(ids_of_two.having(func.count() > 1)))  # two regions of an account have it: a line may mean either
    lag = timedelta(seconds=get_billing_rule(rules, provider).lag_s)
    contexts = _load_contexts(ask, {one.key for one in charged.values()}, facts.steps, lag, now)
    parts, unused, repriced = dict[int, list[BilledPart]](), list[tuple[ResourceKey, str, UnusedLine]](), set[int]()
    for one in charged.values():
        place = (one.key.account, one.key.id, one.charge)
        lines = () if place[:2] in ambiguous else facts.lines.get(place, ())
        weighed = weigh_lines(lines, one.spans, contexts[one.key])
        unused += [(one.key, one.charge, line) for line in weighed.unused]
        repriced |= {line.id for line in weighed.repriced}
        for part in weighed.parts:
            parts.setdefault(part.span_id, []).append(part)
    summaries = _summarize(provider, charged, parts, repriced)
    written = _write_corrections(ask, tell, charged, parts, now, RowNumbers(ask, on_server=on_server))
    return EvidenceResult(
        summaries=summaries,
        findings=(*_group_findings(provider, unused), *facts.future),
        corrections=written,
    )


def _find_scope(ask: Query, provider: str, period: Period) -> _Scope:
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
    return _Scope(tuple(sorted({row[0] for row in rows})), first_us, last_us, ask(last_import)[0])


_Place = tuple[int, str]
"""A resource's row, and the charge."""


def _load_charges(ask: Query, ids: Sequence[int], first_us: int, last_us: int) -> dict[_Place, _Charges]:
    """Return every span of the resources that touches the time, as polls recorded it, by resource and charge."""
    attributions, charges = load_attributions(ask), dict[_Place, _Charges]()
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
        one = charges.setdefault((resource_id, span.meter.charge), _Charges(key, span.meter.charge))
        one.spans.append(EvidenceSpan(number, span))
        one.attributions[number] = attribution_id
    return charges


def _load_lines(
    ask: Query, provider: str, statements: Mapping[str, ProviderBill], ids: Sequence[int], within: tuple[int, int]
) -> dict[tuple[str, str, str], list[EvidenceLine]]:
    """Return the current lines of the statement that counts for each account, by account, id and charge."""
    names = defaultdict[str, set[str]](set)
    resources = select(ResourceRow.account, ResourceRow.external_id).where(col(ResourceRow.id).in_(IDS))
    for account, external_id in read_batches(ask, resources, ids):
        names[account].add(external_id)
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


def _load_contexts(
    ask: Query, keys: Collection[ResourceKey], steps: Mapping[str, int], lag: timedelta, now: datetime
) -> dict[ResourceKey, EvidenceContext]:
    """Return what is known of each resource: up to when its charges are recorded, and since when it was watched.

    `steps`: by account, see `EvidenceContext.step`. `lag`: of the provider's listing.
    """
    books, contexts = load_books(ask), dict[ResourceKey, EvidenceContext]()
    for key, record in load_known(ask, keys).items():
        resource, state = record.known, books[record.scope_id].state
        ended = resource.observation.state == ENDED
        seen_at = (state.complete_at or resource.logged_at) if ended else find_last_seen(resource, state)
        began_at = resource.observation.created_at or resource.observation.started_at
        contexts[key] = EvidenceContext(
            now_us=to_micros(now),
            watched_until_us=to_micros(seen_at - lag),
            watched_since_us=None if began_at else to_micros(resource.first_seen_at),
            step=steps.get(key.account, 0),
        )
    return contexts


def _find_step(ask: Query, provider: str, statement: ProviderBill) -> int:
    """Return the nano-units that every amount of a statement is a whole multiple of; 0 if there is no such step."""
    counts = (count_where(col(BillLineRow.nano) % step == 0) for step in VISIBLE_STEPS)
    amounts = select_columns(func.count(), *counts).where(is_of_statement(provider, statement), col(BillLineRow.nano) != 0)
    ((lines, *multiples),) = ask(amounts)
    return next((step for step, count in zip(VISIBLE_STEPS, multiples, strict=True) if lines and count == lines), 0)


def _write_corrections(  # noqa: PLR0917 - what is written, and when
    ask: Query,
    tell: Execute,
    charged: Mapping[_Place, _Charges],
    billed: Mapping[int, list[BilledPart]],
    now: datetime,
    numbers: RowNumbers,
) -> int:
    """Write a correction for each closed span whose parts differ from those of its last correction."""
    daily, corrections, rows = DailyRollup(), list[SqlRow](), list[SqlRow]()
    for (resource_id, _), group in charged.items():
        for index, (number, span) in enumerate(group.spans):
            if span.end is None and number in billed:
                owner = (resource_id, group.attributions[number])
                ended = _split_open_span(tell, (number, numbers.take(SpanRow)), span, billed[number], owner, daily)
                group.spans[index] = EvidenceSpan(number, ended)
    spans = {
        one.id: (one.span, resource_id, group.attributions[one.id])
        for (resource_id, _), group in charged.items()
        for one in group.spans
        if one.span.end is not None
    }
    stored_parts = _load_parts(ask, list(spans))
    for span_id, (span, *place) in spans.items():
        new_parts, old_parts = cover_span(span, billed.get(span_id, ())), decode_parts(span, stored_parts.get(span_id, ()))
        if new_parts == old_parts:
            continue
        number = numbers.take(CorrectionRow)
        amounts = daily.replace([one.span for one in old_parts] or [span], [one.span for one in new_parts] or [span], *place)
        reason = make_storable(_describe_correction(new_parts))
        corrections.append((number, span_id, to_micros(now), span.presence, reason, *amounts))
        rows += encode_parts(number, new_parts)
    if corrections:
        insert_tuples(tell, CorrectionRow, corrections)
        insert_tuples(tell, CorrectionPartRow, rows)
        daily.write(tell)
        tell(update(LedgerStateRow).values(revision=col(LedgerStateRow.revision) + 1))
    return len(corrections)


def _split_open_span(  # noqa: PLR0917 - what is written, and where
    tell: Execute,
    numbers: tuple[int, int],
    span: Span,
    billed: Sequence[BilledPart],
    place: tuple[int, int],
    daily: DailyRollup,
) -> Span:
    """Close an open span where its bill ends, write one that goes on from there, and return the closed one.

    `numbers`: the rows of both. `place`: of the resource and of its attribution.
    """
    until = from_micros(max(part.end_us for part in billed))
    ended = close_span(span, until, BILLED_UNTIL)
    values = (to_micros(until), BILLED_UNTIL, *daily.add(ended, *place))
    tell(update(SpanRow).where(col(SpanRow.id) == numbers[0]).values(dict(zip(CLOSING_COLUMNS, values, strict=True))))
    rest = replace(span, start=until, why=BILLED_UNTIL)
    insert_tuples(tell, SpanRow, [(numbers[1], *encode_span(rest, *place, None))])
    return ended


def _describe_correction(parts: Sequence[CorrectionPart]) -> str:
    lines = {one.bill_line_id for one in parts if one.bill_line_id is not None}
    if not lines:
        return "no settled bill line bounds it any more"
    return f"bounded by {len(lines)} settled bill line{'s' if len(lines) > 1 else ''}"


def _load_parts(ask: Query, span_ids: Sequence[int]) -> dict[int, list[SqlRow]]:
    parts_by_span = defaultdict[int, list[SqlRow]](list)
    columns = (getattr(CorrectionPartRow, name) for name in PART_COLUMNS.split(", "))
    parts = join_last_correction(select_columns(col(SpanRow.id), *columns)).join(
        CorrectionPartRow, col(CorrectionPartRow.correction_id) == CorrectionRow.id
    )
    parts = parts.where(col(SpanRow.id).in_(IDS)).order_by(col(SpanRow.id), col(CorrectionPartRow.start_us))
    for span_id, *row in read_batches(ask, parts, span_ids):
        parts_by_span[span_id].append(tuple(row))
    return parts_by_span


def _summarize(
    provider: str, charged: Mapping[_Place, _Charges], billed: Mapping[int, list[BilledPart]], repriced: Collection[int]
) -> tuple[EvidenceSummary, ...]:
    tallies = defaultdict[tuple[str, str], _Tally](_Tally)
    for group in charged.values():
        for span_id, span in group.spans:
            for part in billed.get(span_id, ()):
                tally = tallies[group.key.account, span.meter.price.currency]
                low, expected, high = compute_amounts(span, part.start_us, part.end_us)
                if part.line_id in repriced:
                    tally.repriced.add(part.line_id)
                    tally.counted, tally.billed = tally.counted + expected, tally.billed + part.amounts[1]
                    continue
                tally.lines.add(part.line_id)
                tally.resources.add(group.key)
                tally.doubt += high - low
                tally.left += part.amounts[2] - part.amounts[0]
    return tuple(
        EvidenceSummary(
            provider=provider,
            account=account,
            currency=currency,
            lines=len(one.lines),
            resources=len(one.resources),
            repriced=len(one.repriced),
            **pick_fields(one, ("doubt", "left", "counted", "billed")),
        )
        for (account, currency), one in sorted(tallies.items())
    )


def _group_findings(provider: str, unused: Iterable[tuple[ResourceKey, str, UnusedLine]]) -> list[EvidenceFinding]:
    """Return the lines that count for nothing, together where account, charge, currency and reason are the same."""
    lines_by_place = defaultdict[tuple[str, str, str, str], list[tuple[str, EvidenceLine]]](list)
    for key, charge, (reason, line) in unused:
        if reason != FUTURE:  # all of these are counted by a query of their own
            lines_by_place[key.account, charge, reason, line.currency].append((key.id, line))
    ranked = sorted(lines_by_place.items(), key=lambda one: (one[0][2] not in CONTRADICTIONS, one[0]))
    return [
        EvidenceFinding(
            provider=provider,
            account=account,
            charge=charge,
            reason=reason,
            lines=len(lines),
            nano=sum(line.nano for _, line in lines),
            currency=currency,
            resources=tuple(sorted({id_ for id_, _ in lines})[:RESOURCES_NAMED_MAX]),
            days=frozenset((id_, line.start_us // DAY_US) for id_, line in lines if reason in CONTRADICTIONS),
        )
        for (account, charge, reason, currency), lines in ranked
    ]


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
