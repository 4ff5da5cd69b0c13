"""Narrow doubtful charges by the settled lines of bills, in the transaction in which their import counts.

Nothing is edited: a span that a bill bounds gets a correction with parts (`spans/correction_parts.py`), and daily sums change
with it. Each call starts from what was observed, and not from what an earlier bill said: the same bill again writes nothing, a
restated line replaces what its older version said, and a withdrawn one takes it back.

Example: 30 hours of a Vast machine are a GAP from $0 to $600. The line of its first day says $240 for twelve of them. The span
gets a correction from $240 to $600; the bill of the second day gives it another one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

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
from costguard.ledger.bills.reader import STATED, UNFINISHED, load_statements
from costguard.ledger.db.codecs import (
    SPAN_COLUMNS,
    Execute,
    Query,
    SqlRow,
    decode_span,
    format_placeholders,
    split_batches,
)
from costguard.ledger.spans.correction_parts import PART_COLUMNS, CorrectionPart, cover_span, decode_parts, encode_parts
from costguard.ledger.spans.numbering import RowNumbers
from costguard.ledger.spans.posting import CORRECTION_COLUMNS, DailyRollup
from costguard.ledger.spans.scope_state import load_attributions, load_books, load_known
from costguard.metering.accrual import find_last_seen
from costguard.metering.billing import BillingRule, get_billing_rule
from costguard.metering.meter import ADDRESS_CHARGE, COMPUTE, STORAGE
from costguard.metering.span import compute_amounts
from costguard.values.calendar import Period
from costguard.values.instant import DAY_US, MICROSECOND, from_micros, to_micros
from costguard.values.resource import ENDED, ResourceKey, make_storable

NARROWED_CHARGES = (COMPUTE, STORAGE, ADDRESS_CHARGE)
"""Kinds of charge that accrue over time. Traffic is counted by its provider, and has no doubt of presence."""
RESOURCES_NAMED_MAX = 5
VISIBLE_STEPS = (10_000_000, 1_000_000, 100_000)
"""Nano-units to which a statement may be rounded: a cent, a tenth and a hundredth of one."""
FAR_US = 2**62


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


class _Scope(NamedTuple):
    """The resources that have doubtful spans, the days that these touch, and the last import that counts (0: none)."""

    resource_ids: tuple[int, ...]
    first_us: int
    last_us: int
    import_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BillFacts:
    """What the bills of a provider say of the doubtful spans of a period.

    `scope`: what was read; another one has other facts. `lines`: by account, id and charge. `steps`: by account, see
    `EvidenceContext.step`.
    """

    scope: _Scope
    future: tuple[EvidenceFinding, ...] = ()
    lines: Mapping[tuple[str, str, str], Sequence[EvidenceLine]] = field(default_factory=dict)
    steps: Mapping[str, int] = field(default_factory=dict)


def load_bill_facts(ask: Query, provider: str, period: Period, now: datetime) -> BillFacts:
    """Return what the bills of `provider` say of its doubtful spans in `period`. Of a million lines it takes many seconds."""
    scope = _find_scope(ask, provider, period)  # first: an import that ends while the rest is read is another scope
    (ids, first_us, last_us, _), future = scope, _find_future_lines(ask, provider, period, now)
    if not ids:
        return BillFacts(scope=scope, future=future)
    statements = load_statements(ask, provider, Period(start=from_micros(first_us), end=from_micros(last_us)))[0]
    return BillFacts(
        scope=scope,
        future=future,
        lines=_load_lines(ask, provider, statements, ids, (first_us, last_us)),
        steps={account: _find_step(ask, provider, one) for account, one in statements.items()},
    )


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
    """Write a correction for each doubtful span of `provider` in `period` of which its bills say something else than before.

    Run it in a write transaction that excludes all others. `on_server`: the ledger is on PostgreSQL. `rules`: how each provider
    bills; the lag of its listings limits what is known. `facts`: of
    the same provider and period, read before this transaction; they are read again if meanwhile an import ended, or a poll put
    other spans in doubt. None: they are read here.
    """
    scope = _find_scope(ask, provider, period)
    if facts is None or facts.scope != scope:
        facts = load_bill_facts(ask, provider, period, now)
    ids, first_us, last_us, _ = scope
    if not ids:
        return EvidenceResult(findings=facts.future)
    charged = _load_charges(ask, ids, first_us, last_us)
    ambiguous = {tuple(row) for row in ask(_AMBIGUOUS, (provider,))}
    lag = timedelta(seconds=get_billing_rule(rules, provider).lag_s)
    contexts = _load_contexts(ask, {one.key for one in charged.values()}, facts.steps, lag, now)
    parts, unused = dict[int, list[BilledPart]](), list[tuple[ResourceKey, str, UnusedLine]]()
    for one in charged.values():
        place = (one.key.account, one.key.id, one.charge)
        mine = () if place[:2] in ambiguous else facts.lines.get(place, ())
        weighed = weigh_lines(mine, one.spans, contexts[one.key])
        unused += [(one.key, one.charge, line) for line in weighed.unused]
        for part in weighed.parts:
            parts.setdefault(part.span_id, []).append(part)
    written = _write_corrections(ask, tell, charged, parts, now, RowNumbers(ask, on_server=on_server))
    return EvidenceResult(
        summaries=_summarize(provider, charged, parts),
        findings=(*_group_findings(provider, unused), *facts.future),
        corrections=written,
    )


def _find_scope(ask: Query, provider: str, period: Period) -> _Scope:
    """Return the scope of `period`, whose days it touches as well."""
    start_us, end_us = to_micros(period.start), to_micros(period.end)
    sql = _DOUBTFUL.format(charges=format_placeholders(NARROWED_CHARGES))
    found = ask(sql, (provider, start_us, end_us, *NARROWED_CHARGES))
    first_us = min(start_us, *(row[1] for row in found), start_us) // DAY_US * DAY_US
    last_us = -(-max(end_us, *(row[2] for row in found), end_us) // DAY_US) * DAY_US
    ((import_id,),) = ask(_LAST_IMPORT, ())
    return _Scope(tuple(sorted({row[0] for row in found})), first_us, last_us, import_id)


_Place = tuple[int, str]
"""A resource's row, and the charge."""


def _load_charges(ask: Query, ids: Sequence[int], first_us: int, last_us: int) -> dict[_Place, _Charges]:
    """Return every span of the resources that touches the time, as polls recorded it, by resource and charge."""
    attributions, found = load_attributions(ask), dict[_Place, _Charges]()
    for lot in split_batches(ids):
        sql = _SPANS.format(ids=format_placeholders(lot), charges=format_placeholders(NARROWED_CHARGES))
        for number, resource_id, attribution_id, *rest in ask(sql, (*lot, *NARROWED_CHARGES, first_us, last_us)):
            key = ResourceKey(*rest[:4])
            span = decode_span(key, attributions[attribution_id], tuple(rest[4:]))
            one = found.setdefault((resource_id, span.meter.charge), _Charges(key, span.meter.charge))
            one.spans.append(EvidenceSpan(number, span))
            one.attributions[number] = attribution_id
    return found


def _load_lines(
    ask: Query, provider: str, statements: Mapping[str, ProviderBill], ids: Sequence[int], within: tuple[int, int]
) -> dict[tuple[str, str, str], list[EvidenceLine]]:
    """Return the current lines of the statement that counts for each account, by account, id and charge."""
    names = defaultdict[str, set[str]](set)
    for lot in split_batches(ids):
        for account, external_id in ask(_NAMES.format(ids=format_placeholders(lot)), lot):
            names[account].add(external_id)
    found = defaultdict[tuple[str, str, str], list[EvidenceLine]](list)
    for account, statement in statements.items():
        for some in split_batches(sorted(names[account])):
            sql = _LINES.format(ids=format_placeholders(some))
            for id_, charge, *line in ask(sql, (provider, account, statement.name, within[1], within[0], *some)):
                number, start_us, end_us, nano, currency, estimated, *told = line
                one = EvidenceLine(number, start_us, end_us, nano, currency, bool(estimated), *told)
                found[account, id_, charge].append(one)
    return found


def _load_contexts(
    ask: Query, keys: Collection[ResourceKey], steps: Mapping[str, int], lag: timedelta, now: datetime
) -> dict[ResourceKey, EvidenceContext]:
    """Return what is known of each resource: up to when its charges are recorded, and since when it was watched.

    `steps`: by account, see `EvidenceContext.step`. `lag`: of the provider's listing.
    """
    books, found = load_books(ask), dict[ResourceKey, EvidenceContext]()
    for key, record in load_known(ask, keys).items():
        known, state = record.known, books[record.scope_id].state
        ended = known.observation.state == ENDED
        seen_at = (state.complete_at or known.logged_at) if ended else find_last_seen(known, state)
        stated = known.observation.created_at or known.observation.started_at
        found[key] = EvidenceContext(
            now_us=to_micros(now),
            watched_until_us=to_micros(seen_at - lag),
            watched_since_us=None if stated else to_micros(known.first_seen_at),
            step=steps.get(key.account, 0),
        )
    return found


def _find_step(ask: Query, provider: str, statement: ProviderBill) -> int:
    """Return the nano-units that every amount of a statement is a whole multiple of; 0 if there is no such step."""
    ((lines, *multiples),) = ask(_STEPS, (provider, statement.account, statement.name))
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
    spans = {
        one.id: (one.span, group.attributions[one.id])
        for group in charged.values()
        for one in group.spans
        if one.span.end is not None
    }
    before = _load_parts(ask, list(spans))
    daily, corrections, rows = DailyRollup(), list[SqlRow](), list[SqlRow]()
    for span_id, (span, attribution_id) in spans.items():
        after, held = cover_span(span, billed.get(span_id, ())), decode_parts(span, before.get(span_id, ()))
        if after == held:
            continue
        number = numbers.take("correction")
        amounts = daily.replace([one.span for one in held] or [span], [one.span for one in after] or [span], attribution_id)
        reason = make_storable(_describe_correction(after))
        corrections.append((number, span_id, to_micros(now), span.presence, reason, *amounts))
        rows += encode_parts(number, after)
    if corrections:
        tell(_INSERT_CORRECTION, corrections)
        if rows:
            tell(_INSERT_PARTS, rows)
        daily.write(lambda sql, changed: tell(sql, changed) if changed else 0)
        tell("UPDATE ledger_state SET revision = revision + ? WHERE id = 1", [(1,)])
    return len(corrections)


def _describe_correction(parts: Sequence[CorrectionPart]) -> str:
    lines = {one.bill_line_id for one in parts if one.bill_line_id is not None}
    if not lines:
        return "no settled bill line bounds it any more"
    return f"bounded by {len(lines)} settled bill line{'s' if len(lines) > 1 else ''}"


def _load_parts(ask: Query, span_ids: Sequence[int]) -> dict[int, list[SqlRow]]:
    found = defaultdict[int, list[SqlRow]](list)
    for lot in split_batches(span_ids):
        for span_id, *row in ask(_PARTS.format(ids=format_placeholders(lot)), lot):
            found[span_id].append(tuple(row))
    return found


def _summarize(
    provider: str, charged: Mapping[_Place, _Charges], billed: Mapping[int, list[BilledPart]]
) -> tuple[EvidenceSummary, ...]:
    tallies = defaultdict[tuple[str, str], _Tally](_Tally)
    for group in charged.values():
        for span_id, span in group.spans:
            for part in billed.get(span_id, ()):
                tally = tallies[group.key.account, span.meter.price.currency]
                low, _, high = compute_amounts(span, part.start_us, part.end_us)
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
            doubt=one.doubt,
            left=one.left,
        )
        for (account, currency), one in sorted(tallies.items())
    )


def _group_findings(provider: str, unused: Iterable[tuple[ResourceKey, str, UnusedLine]]) -> list[EvidenceFinding]:
    """Return the lines that count for nothing, together where account, charge, currency and reason are the same."""
    found = defaultdict[tuple[str, str, str, str], list[tuple[str, EvidenceLine]]](list)
    for key, charge, (reason, line) in unused:
        if reason != FUTURE:  # all of these are counted by a query of their own
            found[key.account, charge, reason, line.currency].append((key.id, line))
    ranked = sorted(found.items(), key=lambda one: (one[0][2] not in CONTRADICTIONS, one[0]))
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
    rows = ask(_FUTURE, (provider, to_micros(period.end), to_micros(period.start), to_micros(now + MICROSECOND)))
    return tuple(
        EvidenceFinding(
            provider=provider,
            account=account,
            charge=charge,
            reason=FUTURE,
            lines=lines,
            nano=int(whole) * 10**9 + int(rest),
            currency=currency,
            resources=(first,),
        )
        for account, charge, currency, lines, whole, rest, first in rows
    )


_BASE = "LEFT JOIN correction AS c ON c.id = (SELECT max(x.id) FROM correction AS x WHERE x.span_id = s.id)"
"""The last correction. Its presence is what polls said last: one that a bill makes repeats it."""

_DOUBTFUL = """
SELECT s.resource_id, min(s.start_us), max(s.end_us) FROM span AS s JOIN resource AS r ON r.id = s.resource_id
WHERE r.provider = ? AND s.end_us > ? AND s.start_us < ? AND s.charge IN ({charges}) AND s.low < s.high
GROUP BY s.resource_id
"""

_LAST_IMPORT = f"SELECT coalesce(max(id), 0) FROM bill_import WHERE id NOT IN ({UNFINISHED})"  # noqa: S608 - our own names

_NAMES = "SELECT account, external_id FROM resource WHERE id IN ({ids})"

_SPANS = f"""
SELECT s.id, s.resource_id, s.attribution_id, r.provider, r.account, r.region, r.external_id,
    {SPAN_COLUMNS.replace("s.presence", "coalesce(c.presence, s.presence)")}
FROM span AS s JOIN resource AS r ON r.id = s.resource_id {_BASE}
WHERE s.resource_id IN ({{ids}}) AND s.charge IN ({{charges}})
    AND (s.end_us IS NULL OR (s.end_us > ? AND s.end_us > s.start_us)) AND s.start_us < ?
ORDER BY s.resource_id, s.start_us, s.id
"""  # noqa: S608 - our own names

_AMBIGUOUS = """
SELECT account, external_id FROM resource WHERE provider = ? GROUP BY account, external_id HAVING count(*) > 1
"""
"""Ids that two regions of one account have: a line may mean either."""

_LINES = f"""
SELECT external_id, charge, id, start_us, end_us, nano, currency, estimated, description, stated_us FROM bill_line
WHERE provider = ? AND account = ? AND statement = ? AND start_us < ? AND end_us > ? AND external_id IN ({{ids}})
    AND {STATED}
ORDER BY start_us, id
"""  # noqa: S608 - our own names

_STEPS = f"""
SELECT count(*), {", ".join(f"sum(CASE WHEN nano - nano / {step} * {step} = 0 THEN 1 ELSE 0 END)" for step in VISIBLE_STEPS)}
FROM bill_line WHERE provider = ? AND account = ? AND statement = ? AND {STATED} AND nano <> 0
"""  # noqa: S608 - our own numbers

_FUTURE = f"""
SELECT account, charge, currency, count(*), sum(nano / 1000000000), sum(nano - nano / 1000000000 * 1000000000), min(external_id)
FROM bill_line
WHERE provider = ? AND start_us < ? AND start_us >= ? AND (end_us > ? OR end_us > stated_us) AND estimated = 0
    AND {STATED}
    AND charge NOT IN ('tax', 'credit')
GROUP BY account, charge, currency ORDER BY account, charge, currency
"""  # noqa: S608 - our own names

_PARTS = f"""
SELECT c.span_id, {", ".join(f"p.{name}" for name in PART_COLUMNS.split(", "))} FROM correction_part AS p
JOIN correction AS c ON c.id = p.correction_id
WHERE c.span_id IN ({{ids}}) AND c.id = (SELECT max(x.id) FROM correction AS x WHERE x.span_id = c.span_id)
ORDER BY c.span_id, p.start_us
"""  # noqa: S608 - our own names

_INSERT_CORRECTION = f"""
INSERT INTO correction ({CORRECTION_COLUMNS}) VALUES ({format_placeholders(CORRECTION_COLUMNS.split(", "))})
"""  # noqa: S608 - our own names

_INSERT_PARTS = f"""
INSERT INTO correction_part ({PART_COLUMNS}) VALUES ({format_placeholders(PART_COLUMNS.split(", "))})
"""  # noqa: S608 - our own names
