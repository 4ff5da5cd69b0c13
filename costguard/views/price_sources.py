"""Documents about public sources of prices: which there are (`costguard.price-sources/1`), and what a refresh got from each.

The rows of a refresh are a part of the document `costguard.prices/1`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Protocol

from costguard.views.document import Column, Document, TableView, build_record, build_table

PRICE_SOURCES_SCHEMA = "costguard.price-sources/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRow:
    """What one source answered. `offers`: by provider, those that are used. `days`: of its oldest and newest price.

    `failed`: why nothing of it is used, "": something is. `incomplete`: what could not be had, a sentence each. `remarks`: what
    was left out, a sentence each. `unnamed`: by provider, GPUs nobody knows. `asked`: False for a fall-back not needed.
    """

    source: str
    title: str
    endpoint: str
    offers: Mapping[str, int] = field(default_factory=dict)
    days: tuple[date, date] | None = None
    failed: str = ""
    incomplete: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    unnamed: Mapping[str, Sequence[str]] = field(default_factory=dict)
    asked: bool = True

    @property
    def state(self) -> str:
        """Return one word for a table: ok, partly, failed or unneeded."""
        if not self.asked:
            return "unneeded"
        return "failed" if self.failed else "partly" if self.incomplete else "ok"


SOURCE_ROW_COLUMNS: tuple[Column[SourceRow], ...] = (
    Column("source", "source", lambda row: row.source),
    Column("title", "", lambda row: row.title),
    Column("endpoint", "", lambda row: row.endpoint),
    Column("state", "state", lambda row: row.state),
    Column("providers", "providers", lambda row: dict(row.offers), lambda row: ", ".join(_list_sellers(row)) or "-"),
    Column("offers", "offers>", lambda row: sum(row.offers.values()), lambda row: f"{sum(row.offers.values()):,}"),
    Column("oldest", "", lambda row: row.days[0].isoformat() if row.days else None),
    Column("newest", "", lambda row: row.days[1].isoformat() if row.days else None),
    Column("", "as of", lambda _: None, lambda row: _format_days(row.days)),
    Column("failed", "", lambda row: row.failed),
    Column("incomplete", "", lambda row: list(row.incomplete)),
    Column("remarks", "", lambda row: list(row.remarks)),
    Column("unnamed", "", lambda row: {name: list(names) for name, names in row.unnamed.items()}),
)
"""A source's answer. A price dated over a range of days stands under the first of them."""


def list_source_records(rows: Sequence[SourceRow]) -> list[Mapping[str, object]]:
    """Return the records of `rows` for JSON."""
    return [build_record(SOURCE_ROW_COLUMNS, row) for row in rows]


def build_source_table(rows: Sequence[SourceRow]) -> TableView:
    """Return the table of `rows`: a source a row."""
    return build_table(SOURCE_ROW_COLUMNS, rows)


def list_source_notes(rows: Sequence[SourceRow]) -> Iterator[str]:
    """Yield what was left out of each source, and the next step."""
    for row in rows:
        yield from (f"{row.source}: {remark}." for remark in row.remarks)
    if any(row.offers for row in rows):
        yield "next: costguard quote --gpu H100 --count 8 --hours 12"


def _list_sellers(row: SourceRow) -> list[str]:
    return sorted(name for name, offers in row.offers.items() if offers)


def _format_days(days: tuple[date, date] | None) -> str:
    if days is None:
        return "-"
    oldest, newest = days
    return newest.isoformat() if oldest == newest else f"{oldest} to {newest}"


class SourceFacts(Protocol):
    """What is known of a source before it is asked (`PriceSourceFacts`)."""

    @property
    def name(self) -> str:
        """Its name in settings and flags."""

    @property
    def title(self) -> str:
        """Its name for people."""

    @property
    def endpoint(self) -> str:
        """Its own address."""

    @property
    def providers(self) -> tuple[str, ...]:
        """Whose prices it states."""

    @property
    def terms(self) -> str:
        """On which terms it may be read."""

    @property
    def size(self) -> str:
        """How much is fetched."""

    @property
    def freshness(self) -> str:
        """How old its prices are."""

    @property
    def checked_on(self) -> date:
        """The day on which these facts were checked."""

    @property
    def fallback(self) -> bool:
        """Whether it is asked only for providers for which no other source answered."""


def build_price_sources_document(sources: Sequence[tuple[SourceFacts, str, str]]) -> Document:
    """Return the document on the installed sources: facts, the endpoint in use, and why it cannot be used ("": it can)."""
    records = tuple(
        {
            "source": facts.name,
            "title": facts.title,
            "address": endpoint,
            "own_address": facts.endpoint,
            "providers": list(facts.providers),
            "terms": facts.terms,
            "size": facts.size,
            "freshness": facts.freshness,
            "checked_on": None if broken else facts.checked_on.isoformat(),
            "fallback": facts.fallback,
            "broken": broken,
        }
        for facts, endpoint, broken in sources
    )
    tables = tuple(_build_facts_table(*one) for one in sources)
    return Document(
        data={"schema": PRICE_SOURCES_SCHEMA, "sources": list(records)},
        records=records,
        lead=(f"{len(sources)} public price sources, highest priority first.",),
        tables=tables,
        notes=("next: costguard prices refresh --public",),
    )


def _build_facts_table(facts: SourceFacts, endpoint: str, broken: str) -> TableView:
    """Return a small table of one source: terms and addresses are too long for a row."""
    rows = (
        ("what", facts.title + (" (fall-back)" if facts.fallback else "")),
        *((("cannot be used", broken),) if broken else ()),
        ("providers", ", ".join(facts.providers) or "-"),
        ("address", endpoint or "-"),
        ("fresh", facts.freshness or "-"),
        ("size", facts.size or "-"),
        ("terms", f"{facts.terms} (checked {facts.checked_on})" if facts.terms else "-"),
    )
    return TableView(title=facts.name, columns=("", ""), rows=rows)
