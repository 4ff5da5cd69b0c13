"""Narrow doubtful charges by the lines of bills, in the transaction in which their import counts.

Nothing is edited: a span that a bill bounds gets a correction with parts (`spans/correction_parts.py`), and daily sums change
with it. Each call starts from what was observed, and not from what an earlier bill said: the same bill again writes nothing, a
restated line replaces what its older version said, and a withdrawn one takes it back.

Example: 30 hours of a Vast machine are a GAP from $0 to $600. The line of its first day says $240 for twelve of them. The span
gets a correction from $240 to $600; the bill of the second day gives it another one.

An hour in which a resource has no line is a line of zero, where its provider's complete answer has lines of the resource in
other hours, and had settled that hour (`list_gaps`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from sqlalchemy import func, update
from sqlalchemy import select as select_columns
from sqlmodel import col

from costguard.bills.evidence import (
    CONTRADICTIONS,
    FUTURE,
    NO_LINE,
    BilledPart,
    EvidenceContext,
    EvidenceFinding,
    EvidenceLine,
    EvidenceSpan,
    EvidenceSummary,
    UnusedLine,
    list_gaps,
    weigh_lines,
)
from costguard.ledger.bills.facts import BillFacts, ChargePlace, ResourceCharges, find_scope, load_bill_facts, load_charges
from costguard.ledger.db.codecs import Execute, Query, SqlRow, encode_span, pick_fields
from costguard.ledger.db.rows import IDS, insert_tuples, read_batches
from costguard.ledger.spans.correction_parts import (
    PART_COLUMNS,
    CorrectionPart,
    cover_span,
    decode_parts,
    encode_parts,
    join_last_correction,
)
from costguard.ledger.spans.numbering import RowNumbers
from costguard.ledger.spans.posting import CLOSING_COLUMNS, DailyRollup
from costguard.ledger.spans.scope_state import load_books, load_known
from costguard.ledger.tables.spans import CorrectionPartRow, CorrectionRow, LedgerStateRow, ResourceRow, SpanRow
from costguard.metering.accrual import find_last_seen
from costguard.metering.billing import BillingRule, BillTerms, get_billing_rule
from costguard.metering.line_accrual import close_span
from costguard.metering.span import Span, compute_amounts
from costguard.values.calendar import Period
from costguard.values.instant import DAY_US, SECOND_US, from_micros, to_micros
from costguard.values.resource import ENDED, ResourceKey, make_storable

RESOURCES_NAMED_MAX = 5
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
class _Tally:
    """Sums for the summary of one account and currency."""

    lines: set[int] = field(default_factory=set)
    resources: set[ResourceKey] = field(default_factory=set)
    doubt: int = 0
    left: int = 0
    repriced: set[int] = field(default_factory=set)
    counted: int = 0
    billed: int = 0


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
    scope = find_scope(ask, provider, period)
    if facts is None or facts.scope != scope:
        terms = get_billing_rule(rules, provider).bill
        facts = load_bill_facts(ask, provider, period, now, terms, None if facts is None else facts.repriced)
    ids = sorted({*scope.resource_ids, *facts.repriced})
    if not ids:
        return EvidenceResult(findings=facts.future)
    charged = load_charges(ask, ids, *facts.within)
    names = (col(ResourceRow.account), col(ResourceRow.external_id))
    ids_of_two = select_columns(*names).where(col(ResourceRow.provider) == provider).group_by(*names)
    ambiguous = set(ask(ids_of_two.having(func.count() > 1)))  # two regions of an account have it: a line may mean either
    rule = get_billing_rule(rules, provider)
    contexts = _load_contexts(ask, {one.key for one in charged.values()}, facts.steps, rule, now)
    gaps = {} if rule.bill is None or not facts.answers else _list_gaps(charged, facts, rule.bill, contexts)
    parts, unused, repriced = dict[int, list[BilledPart]](), list[tuple[ResourceKey, str, UnusedLine]](), set[int]()
    for (resource_id, _), one in charged.items():
        place = (one.key.account, one.key.id, one.charge)
        lines = () if place[:2] in ambiguous else (*facts.lines.get(place, ()), *gaps.get(resource_id, ()))
        weighed = weigh_lines(lines, one.spans, contexts[one.key])
        unused += [(one.key, one.charge, odd) for odd in weighed.unused if odd.line.description != NO_LINE]
        repriced |= {line.id for line in weighed.repriced}
        for part in weighed.parts:
            parts.setdefault(part.span_id, []).append(part)
    summaries = _summarize(charged, parts, repriced, facts, rule)
    written = _write_corrections(ask, tell, charged, parts, now, RowNumbers(ask, on_server=on_server))
    return EvidenceResult(
        summaries=summaries,
        findings=(*_group_findings(provider, unused), *facts.future),
        corrections=written,
    )


def _list_gaps(
    charged: Mapping[ChargePlace, ResourceCharges],
    facts: BillFacts,
    terms: BillTerms,
    contexts: Mapping[ResourceKey, EvidenceContext],
) -> dict[int, list[EvidenceLine]]:
    """Return by resource a line of zero for each settled hour (or day) in which it has none: see `list_gaps`."""
    groups, gaps = defaultdict[int, list[ResourceCharges]](list), dict[int, list[EvidenceLine]]()
    for (resource_id, _), one in charged.items():
        groups[resource_id].append(one)
    for resource_id, group in groups.items():
        key, spans = group[0].key, [one.span for charges in group for one in charges.spans]
        place = (key.account, key.id)
        lines = [line for where, every in facts.lines.items() if where[:2] == place for line in every]
        gaps[resource_id] = list_gaps(lines, spans, facts.answers.get(place, ()), terms, contexts[key])
    return gaps


def _load_contexts(
    ask: Query, keys: Collection[ResourceKey], steps: Mapping[str, int], rule: BillingRule, now: datetime
) -> dict[ResourceKey, EvidenceContext]:
    """Return what is known of each resource: up to when its charges are recorded, and since when it was watched.

    `steps`: by account, see `EvidenceContext.step`. `rule`: its lag is that of the listing.
    """
    lag, terms = timedelta(seconds=rule.lag_s), rule.bill
    estimated_lag_s = None if terms is None else terms.estimated_lag_s
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
            estimated_lag_us=None if estimated_lag_s is None else estimated_lag_s * SECOND_US,
            estimated_percent=0 if terms is None else terms.estimated_percent,
        )
    return contexts


def _write_corrections(  # noqa: PLR0917 - what is written, and when
    ask: Query,
    tell: Execute,
    charged: Mapping[ChargePlace, ResourceCharges],
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
        return "no bill line bounds it any more"
    return f"bounded by {len(lines)} bill line{'s' if len(lines) > 1 else ''}"


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
    charged: Mapping[ChargePlace, ResourceCharges],
    billed: Mapping[int, list[BilledPart]],
    repriced: Collection[int],
    facts: BillFacts,
    rule: BillingRule,
) -> tuple[EvidenceSummary, ...]:
    estimated = {line.id for lines in facts.lines.values() for line in lines if line.estimated}
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
            provider=rule.provider,
            account=account,
            currency=currency,
            lines=len(one.lines),
            estimated=len(one.lines & estimated),
            percent=0 if rule.bill is None else rule.bill.estimated_percent,
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
