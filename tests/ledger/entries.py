"""Rows made by hand: one scope with one machine, and spans of it written as they are, with the sums that belong to them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Engine, insert, text

from costguard.ledger.db.codecs import encode_attribution, encode_span
from costguard.ledger.db.connection import begin_write
from costguard.ledger.db.session import open_sql_session
from costguard.ledger.spans.posting import DailyRollup
from costguard.ledger.tables import load_metadata
from costguard.metering.meter import Meter, PriceRange
from costguard.metering.span import Span, compute_amounts
from costguard.values.instant import to_micros
from costguard.values.resource import Attribution, ResourceKey

METADATA = load_metadata()
ATTRIBUTION = METADATA.tables["attribution"]
COVERAGE = METADATA.tables["coverage"]
OBSERVATION = METADATA.tables["observation"]
RESOURCE = METADATA.tables["resource"]
SCOPE = METADATA.tables["scope"]
SPAN = METADATA.tables["span"]

KEY = ResourceKey("aws", "123", "us-east-1", "i-1")
MACHINE = Attribution("aws", "123", "us-east-1", "instance", "H100-80GB-SXM", 0.125, "spot", "ada", "g6f.large")
T0 = datetime(2026, 11, 20, 22, tzinfo=UTC)
T0_US = to_micros(T0)


def span(hours: float = 3, *, after: float = 0, **stated: Any) -> Span:  # noqa: ANN401 - any field
    """A closed span that starts `after` hours past 22:00 and goes on for `hours`: over midnight, as it stands."""
    start = T0 + timedelta(hours=after)
    meter = Meter("compute", PriceRange.exactly(1_234_567_891), minimum_s=60)
    made = Span(key=KEY, attribution=MACHINE, meter=meter, start=start, anchor=start, end=start + timedelta(hours=hours))
    return replace(made, why="first seen", ended_by="stopped_at stated", **stated)


def open_span(*, after: float = 0) -> Span:
    """One that has no end yet."""
    return replace(span(after=after), end=None, ended_by="")


def begin(engine: Engine) -> None:
    """One scope, one machine, and what both said."""
    with begin_write(engine) as connection:
        connection.execute(insert(SCOPE), [{"id": 1, "provider": "aws", "account": "123", "name": "us-east-1"}])
        connection.execute(insert(RESOURCE), [_resource(1, "i-1")])
        names = [column.name for column in ATTRIBUTION.columns]
        connection.execute(insert(ATTRIBUTION), [dict(zip(names, (1, *encode_attribution(MACHINE)), strict=True))])
        stretch = {
            "id": 1,
            "scope_id": 1,
            "outcome": "complete",
            "why": "",
            "start_us": T0_US,
            "end_us": T0_US + 60,
            "polls": 2,
        }
        connection.execute(insert(COVERAGE), [stretch])
        seen = {"id": 1, "resource_id": 1, "at_us": T0_US, "seen_us": None, "state": "running", "name": "trainer"}
        more = {"instance_type": "g6f.large", "owner": "ada", "started_us": T0_US, "stopped_us": None, "detail": "{}"}
        connection.execute(insert(OBSERVATION), [{**seen, **more}])


def _resource(number: int, external_id: str) -> dict[str, object]:
    place = {"provider": "aws", "account": "123", "region": "us-east-1", "external_id": external_id}
    return {"id": number, "scope_id": 1, **place, "kind": "instance", "first_seen_us": T0_US}


def row_of(number: int, one: Span, *, resource_id: int = 1) -> dict[str, Any]:
    """The row of `one`, with what it comes to where it is closed."""
    whole = None if one.end is None else compute_amounts(one, 0, to_micros(one.end))
    names = [column.name for column in SPAN.columns]
    return dict(zip(names, (number, *encode_span(one, resource_id, 1, whole)), strict=True))


def add(connection: Connection, number: int, one: Span, *, resource_id: int = 1) -> None:
    """Write one span, and nothing else."""
    connection.execute(insert(SPAN), [row_of(number, one, resource_id=resource_id)])


def roll_up(connection: Connection, *spans: Span) -> None:
    """The days, months and hours that `spans` add up to."""
    daily, (_, tell) = DailyRollup(), open_sql_session(connection)
    for one in spans:
        daily.add(one, 1, 1)
    daily.write(tell)


def scalar(engine: Engine, query: str) -> Any:  # noqa: ANN401 - whatever it is
    """The one value that `query` finds."""
    with engine.connect() as connection:
        return connection.execute(text(query)).scalar_one()
