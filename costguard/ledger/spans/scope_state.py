"""Read the state of each scope between polls from the ledger alone, so that a killed writer can continue.

Ended resources are remembered for `MEMORY_SPAN`, as long as a listing may still show them. One that is listed later is looked
up when it appears (`load_known`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from heapq import heappush
from typing import Any

from costguard.ledger.db.codecs import (
    ABSENT_STATE,
    ATTRIBUTION_COLUMNS,
    SPAN_COLUMNS,
    Query,
    SqlRow,
    decode_attribution,
    decode_observation,
    decode_open_span,
    decode_optional_instant,
    decode_span,
    format_placeholders,
    split_batches,
)
from costguard.metering.meter import Line
from costguard.metering.scope_state import KnownResource, ScopeState
from costguard.metering.span import Span
from costguard.values.instant import MICROSECOND, from_micros
from costguard.values.resource import ENDED, Attribution, ResourceKey, ScopeKey

MEMORY_SPAN = timedelta(days=2)
"""AWS shows a terminated instance for about an hour, Lambda for hours; no provider is known to go on for days (2026-11)."""


@dataclass(slots=True)
class CoverageState:
    """The last coverage row of a scope.

    Mutable: polls update it.
    """

    id: int
    outcome: str
    why: str
    start_us: int
    end_us: int
    polls: int


@dataclass(slots=True, kw_only=True)
class ScopeRecord:
    """A scope in the ledger.

    Mutable: polls update it. `ids`: the rows of the resources in `state`. `coverage`: its last row. `elsewhere`: resources that
    this scope also lists, and that belong to the scope that saw them first. `endings`: a heap of ended resources, by the time
    that was logged.
    """

    id: int
    state: ScopeState
    ids: dict[ResourceKey, int] = field(default_factory=dict)
    coverage: CoverageState | None = None
    elsewhere: dict[ResourceKey, ScopeKey] = field(default_factory=dict)
    endings: list[tuple[datetime, ResourceKey]] = field(default_factory=list)

    def remember(self, found: Mapping[ResourceKey, ResourceRecord]) -> None:
        """Add resources read from the ledger, and keep all in the order of their rows."""
        self.ids |= {key: one.id for key, one in found.items()}
        known = {key: one.known for key, one in found.items()}
        resources = {**self.state.resources, **known}
        self.state = replace(self.state, resources={key: resources[key] for key in sorted(resources, key=self.ids.__getitem__)})
        for key, one in known.items():
            if one.observation.state == ENDED:
                heappush(self.endings, (one.logged_at, key))


@dataclass(frozen=True, slots=True)
class ResourceRecord:
    """A resource in the ledger: its row, the row of its scope, and its state."""

    id: int
    scope_id: int
    known: KnownResource


def is_remembered(state: ScopeState, known: KnownResource) -> bool:
    """Return whether `state` still holds `known` without a lookup."""
    return known.observation.state != ENDED or state.at is None or known.logged_at > state.at - MEMORY_SPAN


def load_scopes(ask: Query, account: tuple[str, str] | None = None) -> dict[ScopeKey, ScopeRecord]:
    """Return every scope that was ever polled, with the resources that it remembers.

    `account`: only those of this account (a provider and its account).
    """
    books = load_books(ask, account)
    resources: dict[int, dict[ResourceKey, ResourceRecord]] = defaultdict(dict)
    values = (ENDED, MEMORY_SPAN // MICROSECOND)
    if account is None:
        heads = ask(_HEADS.format(which=_WHERE_REMEMBERED), values)
    else:
        heads = ask(_HEADS.format(which=f"{_IN_ACCOUNT} AND ({_WHERE_REMEMBERED})"), (*account, *values))
    for found in _load_records(ask, heads, account=account):
        resources[found.scope_id][found.known.observation.key] = found
    for scope_id, all_found in resources.items():
        books[scope_id].remember(all_found)
    return {book.state.scope: book for book in books.values()}


def load_books(ask: Query, account: tuple[str, str] | None = None) -> dict[int, ScopeRecord]:
    """Return every scope that was ever polled (of `account`; None: of all), by row and without resources."""
    books = {}
    where = "" if account is None else "WHERE s.provider = ? AND s.account = ?"
    for scope_id, provider, named, name, complete_us, *columns in ask(_BOOKS.format(where=where), account or ()):
        book = ScopeRecord(id=scope_id, state=ScopeState(scope=ScopeKey(provider, named, name)))
        if columns[0] is not None:
            book.coverage = last = CoverageState(*columns)
            book.state = replace(book.state, at=from_micros(last.end_us), complete_at=decode_optional_instant(complete_us))
        books[scope_id] = book
    return books


def load_living(ask: Query) -> list[ResourceRecord]:
    """Return every resource that is not known to have ended, without `settled` and `edges`."""
    return list(_load_records(ask, ask(_HEADS.format(which="o.state <> ?"), (ENDED,)), past=False))


def load_living_of(ask: Query, scope_ids: Sequence[int]) -> list[ResourceRecord]:
    """Return the living resources of some scopes, with `settled` and `edges`."""
    return [
        found
        for lot in split_batches(scope_ids)
        for found in _load_records(
            ask, ask(_HEADS.format(which=_WHERE_LIVING_IN.format(format_placeholders(lot))), (ENDED, *lot))
        )
    ]


def load_known(ask: Query, keys: Iterable[ResourceKey]) -> dict[ResourceKey, ResourceRecord]:
    """Return those of `keys` that were ever in the ledger, remembered or not."""
    places: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for key in keys:
        places[key[:3]].append(key.id)
    heads = [
        row
        for place, ids in places.items()
        for lot in split_batches(ids)
        for row in ask(_HEADS.format(which=_WHERE_KEY.format(format_placeholders(lot))), (*place, *lot))
    ]
    accounts = {place[:2] for place in places}
    account = accounts.pop() if len(accounts) == 1 else None
    return {found.known.observation.key: found for found in _load_records(ask, heads, account=account)}


def load_attributions(ask: Query, account: tuple[str, str] | None = None) -> dict[int, Attribution]:
    """Return every attribution (of `account`; None: of all) by its id."""
    where = "" if account is None else " WHERE provider = ? AND account = ?"
    sql = f"SELECT id, {ATTRIBUTION_COLUMNS} FROM attribution{where}"  # noqa: S608 - our own column names
    return {row[0]: decode_attribution(row[1:]) for row in ask(sql, account or ())}


def _load_records(
    ask: Query, heads: Sequence[SqlRow], *, past: bool = True, account: tuple[str, str] | None = None
) -> Iterator[ResourceRecord]:
    """Yield the state of the resources whose last observations are `heads`.

    `past`: with `settled` and `edges`. `account`: they are all of this one; None: of any.
    """
    ids = [head[0] for head in heads]
    keys = {head[0]: ResourceKey(*head[2:6]) for head in heads}
    said = {row[0]: row[1:] for row in _query_of(ask, _LAST_DETAILS, [head[0] for head in heads if head[9] == ABSENT_STATE])}
    attributions = load_attributions(ask, account) if heads else {}
    open_now = _group_by_line(_query_of(ask, _OPEN_SPANS, ids), keys, attributions, decode_open_span)
    last = _group_by_line(_query_of(ask, _LAST_SPANS, ids), keys, attributions) if past else {}
    for resource_id, scope_id, _, _, _, _, first_seen_us, at_us, seen_us, state, detail in heads:
        absent = state == ABSENT_STATE
        logged_us, text = said[resource_id] if absent else (at_us, detail)
        bills, billed = open_now.get(resource_id, {}), last.get(resource_id, {})
        seen, unproven = decode_observation(keys[resource_id], text)
        known = KnownResource(
            observation=seen,
            first_seen_at=from_micros(first_seen_us),
            logged_at=from_micros(logged_us),
            seen_at=decode_optional_instant(seen_us),
            absent_at=from_micros(at_us) if absent else None,
            open=bills,
            settled={line: span.end for line, span in billed.items() if span.end},
            edges={line: billed[line] for line in unproven if line in billed},
        )
        yield ResourceRecord(resource_id, scope_id, known)


def _query_of(ask: Query, sql: str, ids: Sequence[int]) -> list[SqlRow]:
    """Return the rows of `sql` for the resources `ids`."""
    return [row for lot in split_batches(ids) for row in ask(sql.format(ids=format_placeholders(lot)), lot)]


def _group_by_line(
    rows: Iterable[SqlRow],
    keys: Mapping[int, ResourceKey],
    attributions: Mapping[int, Attribution],
    made: Callable[[ResourceKey, Attribution, tuple[Any, ...]], Span] = decode_span,
) -> dict[int, dict[Line, Span]]:
    found: dict[int, dict[Line, Span]] = defaultdict(dict)
    for resource_id, attribution_id, presence, *columns in rows:
        span = made(keys[resource_id], attributions[attribution_id], tuple(columns))
        found[resource_id][span.line] = span if presence is None else replace(span, presence=presence)
    return found


_BOOKS = """
SELECT s.id, s.provider, s.account, s.name,
    (SELECT x.end_us FROM coverage AS x WHERE x.scope_id = s.id AND x.outcome = 'complete' ORDER BY x.start_us DESC LIMIT 1),
    c.id, c.outcome, c.why, c.start_us, c.end_us, c.polls
FROM scope AS s LEFT JOIN coverage AS c ON c.id = (
    SELECT x.id FROM coverage AS x WHERE x.scope_id = s.id ORDER BY x.start_us DESC LIMIT 1
)
{where} ORDER BY s.id
"""

_HEADS = """
SELECT r.id, r.scope_id, r.provider, r.account, r.region, r.external_id, r.first_seen_us, o.at_us, o.seen_us, o.state, o.detail
FROM resource AS r
JOIN observation AS o ON o.id = (SELECT max(x.id) FROM observation AS x WHERE x.resource_id = r.id)
WHERE {which}
ORDER BY r.id
"""

_IN_ACCOUNT = "r.scope_id IN (SELECT s.id FROM scope AS s WHERE s.provider = ? AND s.account = ?)"

_WHERE_REMEMBERED = """
o.state <> ? OR o.at_us + ? > (
    SELECT c.end_us FROM coverage AS c WHERE c.scope_id = r.scope_id ORDER BY c.start_us DESC LIMIT 1
)
"""

_WHERE_KEY = "r.provider = ? AND r.account = ? AND r.region = ? AND r.external_id IN ({})"

_WHERE_LIVING_IN = "o.state <> ? AND r.scope_id IN ({})"

_LAST_DETAILS = """
SELECT o.resource_id, o.at_us, o.detail FROM observation AS o
WHERE o.resource_id IN ({ids}) AND o.id = (
    SELECT max(x.id) FROM observation AS x WHERE x.resource_id = o.resource_id AND x.state <> 'absent'
)
"""

_LINES = "(SELECT DISTINCT x.resource_id, x.charge, x.part FROM span AS x WHERE x.resource_id IN ({ids})) AS line"

_OPEN_SPANS = f"""
SELECT s.resource_id, s.attribution_id, NULL, {SPAN_COLUMNS} FROM {_LINES}
JOIN span AS s ON s.resource_id = line.resource_id AND s.charge = line.charge AND s.part = line.part AND s.end_us IS NULL
"""  # noqa: S608 - our own column names
"""By line, so that SQLite takes the index of open spans, which holds one for each line."""

_LAST_SPANS = f"""
SELECT s.resource_id, s.attribution_id,
    (SELECT c.presence FROM correction AS c WHERE c.span_id = s.id ORDER BY c.id DESC LIMIT 1), {SPAN_COLUMNS}
FROM {_LINES}
JOIN span AS s ON s.id = (
    SELECT x.id FROM span AS x
    WHERE x.resource_id = line.resource_id AND x.charge = line.charge AND x.part = line.part AND x.end_us IS NOT NULL
    ORDER BY x.start_us DESC, x.end_us DESC, x.id DESC LIMIT 1
)
"""  # noqa: S608 - our own column names
