"""Read the state of each scope between polls from the ledger alone, so that a killed writer can continue.

Ended resources are remembered for `MEMORY_SPAN`, as long as a listing may still show them. One that is listed later is looked
up when it appears (`load_known`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cache
from heapq import heappush
from typing import Any

from sqlalchemy import ColumnElement, ScalarSelect, and_, bindparam, func, literal_column, null, or_
from sqlalchemy import select as select_columns
from sqlalchemy.orm import aliased
from sqlalchemy.sql.base import ReadOnlyColumnCollection
from sqlmodel import col, select

from costguard.ledger.db.codecs import (
    ABSENT_STATE,
    Query,
    SqlRow,
    decode_attribution,
    decode_observation,
    decode_open_span,
    decode_optional_instant,
    decode_span,
    strip_identity,
)
from costguard.ledger.db.rows import IDS, read_batches
from costguard.ledger.spans.correction_parts import RESOURCE, SPAN, Rows
from costguard.ledger.tables.spans import (
    ATTRIBUTION_KEY,
    AttributionRow,
    CorrectionRow,
    CoverageRow,
    ObservationRow,
    ResourceRow,
    ScopeRow,
    SpanRow,
)
from costguard.ledger.types import RESOURCE_KEY
from costguard.metering.inventory import COMPLETE, SHARES_NOTHING
from costguard.metering.meter import Line
from costguard.metering.scope_state import KnownResource, ScopeState
from costguard.metering.span import Span
from costguard.metering.spending import PollStretch
from costguard.values.calendar import Period
from costguard.values.instant import MICROSECOND, from_micros, to_micros
from costguard.values.resource import ENDED, Attribution, ResourceKey, ScopeKey

FOREVER_US = 2**62
MEMORY_SPAN = timedelta(days=2)
"""AWS shows a terminated instance for about an hour, Lambda for hours; no provider is known to go on for days (2026-11)."""


@dataclass(slots=True, kw_only=True)
class ScopeRecord:
    """A scope in the ledger.

    Mutable: polls update it, and its last row of `coverage`. `ids`: the rows of the resources in `state`. `elsewhere`:
    resources that this scope also lists, and that belong to the scope that saw them first. `endings`: a heap of ended
    resources, by the time that was logged.
    """

    id: int
    state: ScopeState
    ids: dict[ResourceKey, int] = field(default_factory=dict)
    coverage: CoverageRow | None = None
    elsewhere: dict[ResourceKey, ScopeKey] = field(default_factory=dict)
    endings: list[tuple[datetime, ResourceKey]] = field(default_factory=list)

    def remember(self, records: Mapping[ResourceKey, ResourceRecord]) -> None:
        """Add resources read from the ledger, and keep all in the order of their rows."""
        self.ids |= {key: one.id for key, one in records.items()}
        known_resources = {key: one.known for key, one in records.items()}
        resources = {**self.state.resources, **known_resources}
        self.state = replace(self.state, resources={key: resources[key] for key in sorted(resources, key=self.ids.__getitem__)})
        for key, one in known_resources.items():
            if one.observation.state == ENDED:
                heappush(self.endings, (one.logged_at, key))


@dataclass(frozen=True, slots=True)
class ResourceRecord:
    """A resource in the ledger: its row, the row of its scope, and its state."""

    id: int
    scope_id: int
    known: KnownResource


def is_remembered(state: ScopeState, resource: KnownResource) -> bool:
    """Return whether `state` still holds `resource` without a lookup."""
    return resource.observation.state != ENDED or state.at is None or resource.logged_at > state.at - MEMORY_SPAN


def load_scopes(ask: Query, account: tuple[str, str] | None = None) -> dict[ScopeKey, ScopeRecord]:
    """Return every scope that was ever polled, with the resources that it remembers.

    `account`: only those of this account (a provider and its account).
    """
    books = load_books(ask, account)
    resources: dict[int, dict[ResourceKey, ResourceRecord]] = defaultdict(dict)
    covered = select(CoverageRow.end_us).where(CoverageRow.scope_id == ResourceRow.scope_id)
    covered_us = covered.order_by(col(CoverageRow.start_us).desc()).limit(1).correlate(ResourceRow).scalar_subquery()
    recent = col(ObservationRow.at_us) + MEMORY_SPAN // MICROSECOND > covered_us
    remembered = _select_heads().where(or_(col(ObservationRow.state) != ENDED, recent))
    if account is not None:
        remembered = remembered.where(col(ResourceRow.scope_id).in_(select(ScopeRow.id).where(_is_of_account(account))))
    heads = ask(remembered)
    for record in _load_records(ask, heads, account=account):
        resources[record.scope_id][record.known.observation.key] = record
    for scope_id, all_found in resources.items():
        books[scope_id].remember(all_found)
    return {book.state.scope: book for book in books.values()}


def load_books(ask: Query, account: tuple[str, str] | None = None) -> dict[int, ScopeRecord]:
    """Return every scope that was ever polled (of `account`; None: of all), by row and without resources."""
    books = {}
    scopes = _select_books() if account is None else _select_books().where(_is_of_account(account))
    for scope_id, provider, account_name, name, complete_us, doubted, *columns in ask(scopes):
        book = ScopeRecord(id=scope_id, state=ScopeState(scope=ScopeKey(provider, account_name, name)))
        if columns[0] is not None:
            book.coverage = last = CoverageRow(**dict(zip(CoverageRow.model_fields, columns, strict=True)))
            complete_at = decode_optional_instant(complete_us)
            book.state = replace(book.state, at=from_micros(last.end_us), complete_at=complete_at, doubted=int(doubted or 0))
        books[scope_id] = book
    return books


def load_living(ask: Query) -> list[ResourceRecord]:
    """Return every resource that is not known to have ended, without `settled` and `edges`."""
    return list(_load_records(ask, ask(_select_heads().where(col(ObservationRow.state) != ENDED)), past=False))


def load_alike(ask: Query, looks_us: Mapping[int, int | None]) -> Iterator[tuple[ResourceRecord, tuple[int, ...]]]:
    """Yield the living resources of some scopes, those that look alike together: one of them, and the rows of all.

    `looks_us`: for each scope the instant of its last complete listing, less the listing's lag; None: there was none. Alike are
    resources of a scope that have no open line and nothing that billed after that instant, and that cost the same if they bill.
    A fleet of 18,000 stopped machines has a few hundred kinds, and only one of each is decoded.
    """
    living = _select_heads().where(col(ObservationRow.state) != ENDED, col(ResourceRow.scope_id).in_(IDS))
    since = min((us for us in looks_us.values() if us is not None), default=0)
    ends_us = dict(ask(_select_last_ends(), {"since": since}))
    alike: dict[object, list[SqlRow]] = defaultdict(list)
    for head in read_batches(ask, living, sorted(looks_us)):
        number, scope_id, _, _, region, _, _, at_us, _, state, detail = head
        look_us = looks_us[scope_id]
        if look_us is None or state == ABSENT_STATE or ends_us.get(number, 0) > look_us:
            alike[number].append(head)
        else:
            alike[scope_id, region, max(look_us, at_us), strip_identity(detail)].append(head)
    records = _load_records(ask, [heads[0] for heads in alike.values()])
    for record, heads in zip(records, alike.values(), strict=True):
        yield record, tuple(head[0] for head in heads)


def load_known(ask: Query, keys: Iterable[ResourceKey]) -> dict[ResourceKey, ResourceRecord]:
    """Return those of `keys` that were ever in the ledger, remembered or not."""
    places: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for key in keys:
        places[key[:3]].append(key.id)
    heads = [row for place, ids in places.items() for row in read_batches(ask, _select_heads().where(is_at(*place)), ids)]
    accounts = {place[:2] for place in places}
    account = accounts.pop() if len(accounts) == 1 else None
    return {record.known.observation.key: record for record in _load_records(ask, heads, account=account)}


def is_resource() -> ColumnElement[bool]:
    """Return whether a resource has the key that is named by `name_resource`."""
    return and_(*(column == bindparam(name) for column, name in zip(RESOURCE, RESOURCE_KEY, strict=True)))


def name_resource(key: ResourceKey, **values: object) -> dict[str, object]:
    """Return the parameters of a statement about the resource `key`, and its other ones."""
    return {**dict(zip(RESOURCE_KEY, key, strict=True)), **values}


def is_at(provider: str, account: str, region: str) -> ColumnElement[bool]:
    """Return whether a resource is at this place and its id is one of `IDS`."""
    place = (column == value for column, value in zip(RESOURCE, (provider, account, region), strict=False))
    return and_(*place, col(ResourceRow.external_id).in_(IDS))


def load_attributions(ask: Query, account: tuple[str, str] | None = None) -> dict[int, Attribution]:
    """Return every attribution (of `account`; None: of all) by its id."""
    rows = select_columns(*(getattr(AttributionRow, name) for name in ("id", *ATTRIBUTION_KEY)))
    if account is not None:
        rows = rows.where(col(AttributionRow.provider) == account[0], col(AttributionRow.account) == account[1])
    return {number: decode_attribution(tuple(columns)) for number, *columns in ask(rows)}


def load_poll_stretches(ask: Query, period: Period | None = None) -> list[PollStretch]:
    """Return consecutive polls with one outcome that touch `period` (None: all), uncut, by scope and in order of time."""
    scope = (col(ScopeRow.provider), col(ScopeRow.account), col(ScopeRow.name))
    coverage = (getattr(CoverageRow, name) for name in ("outcome", "start_us", "end_us", "polls", "why"))
    rows = select_columns(*scope, *coverage).join_from(CoverageRow, ScopeRow, col(ScopeRow.id) == CoverageRow.scope_id)
    if period is not None:
        rows = rows.where(col(CoverageRow.end_us) >= to_micros(period.start), col(CoverageRow.start_us) < to_micros(period.end))
    return [
        PollStretch(
            scope=ScopeKey(*names), outcome=outcome, start=from_micros(start_us), end=from_micros(end_us), polls=polls, why=why
        )
        for *names, outcome, start_us, end_us, polls, why in ask(rows.order_by(*scope, col(CoverageRow.start_us)))
    ]


def _load_records(
    ask: Query, heads: Sequence[SqlRow], *, past: bool = True, account: tuple[str, str] | None = None
) -> Iterator[ResourceRecord]:
    """Yield the state of the resources whose last observations are `heads`.

    `past`: with `settled` and `edges`. `account`: they are all of this one; None: of any.
    """
    ids = [head[0] for head in heads]
    keys = {head[0]: ResourceKey(*head[2:6]) for head in heads}
    absent_ids = [head[0] for head in heads if head[9] == ABSENT_STATE]
    details = {row[0]: row[1:] for row in read_batches(ask, _select_last_details(), absent_ids)}
    attributions = load_attributions(ask, account) if heads else {}
    open_now = _group_by_line(read_batches(ask, _select_open_spans(), ids), keys, attributions, decode_open_span)
    last = _group_by_line(read_batches(ask, _select_last_spans(), ids), keys, attributions) if past else {}
    for resource_id, scope_id, _, _, _, _, first_seen_us, at_us, seen_us, state, detail in heads:
        absent = state == ABSENT_STATE
        logged_us, text = details[resource_id] if absent else (at_us, detail)
        bills, billed = open_now.get(resource_id, {}), last.get(resource_id, {})
        observation, unproven = decode_observation(keys[resource_id], text)
        resource = KnownResource(
            observation=observation,
            first_seen_at=from_micros(first_seen_us),
            logged_at=from_micros(logged_us),
            seen_at=decode_optional_instant(seen_us),
            absent_at=from_micros(at_us) if absent else None,
            open=bills,
            settled={line: span.end for line, span in billed.items() if span.end},
            edges={line: billed[line] for line in unproven if line in billed},
        )
        yield ResourceRecord(resource_id, scope_id, resource)


def _group_by_line(
    rows: Iterable[SqlRow],
    keys: Mapping[int, ResourceKey],
    attributions: Mapping[int, Attribution],
    decode: Callable[[ResourceKey, Attribution, tuple[Any, ...]], Span] = decode_span,
) -> dict[int, dict[Line, Span]]:
    spans: dict[int, dict[Line, Span]] = defaultdict(dict)
    for resource_id, attribution_id, presence, *columns in rows:
        span = decode(keys[resource_id], attributions[attribution_id], tuple(columns))
        spans[resource_id][span.line] = span if presence is None else replace(span, presence=presence)
    return spans


def find_last_observation(*, listed: bool = False) -> ScalarSelect[int]:
    """Return the id of the last observation of the `ResourceRow` in the statement around it.

    `listed`: of those that a listing showed.
    """
    one = aliased(ObservationRow)
    last = select(func.max(one.id)).where(one.resource_id == ResourceRow.id)
    return (last.where(one.state != ABSENT_STATE) if listed else last).correlate(ResourceRow).scalar_subquery()


def _is_of_account(account: tuple[str, str]) -> ColumnElement[bool]:
    return and_(col(ScopeRow.provider) == account[0], col(ScopeRow.account) == account[1])


@cache
def _select_books() -> Rows:
    one = aliased(CoverageRow)
    of_scope = select(one.id).where(one.scope_id == ScopeRow.id).order_by(col(one.start_us).desc()).limit(1)
    complete_us = of_scope.with_only_columns(col(one.end_us)).where(col(one.outcome) == COMPLETE)
    last_us = complete_us.correlate(ScopeRow).scalar_subquery()
    other = aliased(CoverageRow)
    doubted = select_columns(func.sum(other.polls)).where(
        col(other.scope_id) == ScopeRow.id, col(other.start_us) > last_us, col(other.why) == SHARES_NOTHING
    )
    coverage = (getattr(CoverageRow, name) for name in CoverageRow.model_fields)
    scope = (col(ScopeRow.id), col(ScopeRow.provider), col(ScopeRow.account), col(ScopeRow.name))
    return (
        select_columns(*scope, last_us, doubted.correlate(ScopeRow).scalar_subquery(), *coverage)
        .outerjoin_from(ScopeRow, CoverageRow, col(CoverageRow.id) == of_scope.correlate(ScopeRow).scalar_subquery())
        .order_by(col(ScopeRow.id))
    )


@cache
def _select_heads() -> Rows:
    resource = (col(ResourceRow.id), col(ResourceRow.scope_id), *RESOURCE, col(ResourceRow.first_seen_us))
    observation = (getattr(ObservationRow, name) for name in ("at_us", "seen_us", "state", "detail"))
    heads = select_columns(*resource, *observation).join_from(
        ResourceRow, ObservationRow, col(ObservationRow.id) == find_last_observation()
    )
    return heads.order_by(col(ResourceRow.id))


@cache
def _select_last_ends() -> Rows:
    """Select when each resource that billed after `since` last did; those with an open line bill for ever."""
    end_us = col(SpanRow.end_us)
    last = func.max(func.coalesce(end_us, literal_column(str(FOREVER_US))))
    ends = select_columns(col(SpanRow.resource_id), last).where(or_(end_us.is_(None), end_us > bindparam("since")))
    return ends.group_by(col(SpanRow.resource_id))


@cache
def _select_last_details() -> Rows:
    details = select_columns(col(ResourceRow.id), col(ObservationRow.at_us), col(ObservationRow.detail)).join_from(
        ResourceRow, ObservationRow, col(ObservationRow.id) == find_last_observation(listed=True)
    )
    return details.where(col(ResourceRow.id).in_(IDS))


@cache
def _select_lines() -> ReadOnlyColumnCollection[str, Any]:
    lines = select_columns(col(SpanRow.resource_id), col(SpanRow.charge), col(SpanRow.part))
    return lines.where(col(SpanRow.resource_id).in_(IDS)).distinct().subquery().c


@cache
def _select_open_spans() -> Rows:
    """By line, so that SQLite takes the index of open spans, which holds one for each line."""
    line = _select_lines()
    of_line = and_(SpanRow.resource_id == line.resource_id, SpanRow.charge == line.charge, SpanRow.part == line.part)
    spans = select_columns(line.resource_id, col(SpanRow.attribution_id), null(), *SPAN)
    return spans.join(SpanRow, and_(of_line, col(SpanRow.end_us).is_(None)))


@cache
def _select_last_spans() -> Rows:
    line, one, correction = _select_lines(), aliased(SpanRow), CorrectionRow
    closed = select(one.id).where(
        *(one.resource_id == line.resource_id, one.charge == line.charge, one.part == line.part),
        col(one.end_us).is_not(None),
    )
    last = closed.order_by(col(one.start_us).desc(), col(one.end_us).desc(), col(one.id).desc()).limit(1)
    presence = select(correction.presence).where(correction.span_id == SpanRow.id).order_by(col(correction.id).desc()).limit(1)
    spans = select_columns(line.resource_id, col(SpanRow.attribution_id), presence.scalar_subquery(), *SPAN)
    return spans.join(SpanRow, col(SpanRow.id) == last.scalar_subquery())
