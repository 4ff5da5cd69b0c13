"""Samples of signals: kept one by one for KEPT, then as one row an hour with the exact number of them.

Samples do not move the ledger's revision: nothing that a writer of polls remembers depends on them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import Engine

from costguard.ledger.db.asking import Execute, Query, format_placeholders, split_batches
from costguard.ledger.db.connection import begin_write
from costguard.ledger.db.voices import open_sql_session
from costguard.ledger.spans.observations import SAMPLED_SIGNALS
from costguard.values.instant import HOUR_US, to_micros
from costguard.values.resource import ResourceKey
from costguard.values.sample import Sample

SAMPLE_RETENTION = timedelta(hours=48)
"""How long samples are kept one by one: longer than any rule about idle machines looks back."""


def record_samples(engine: Engine, samples: Sequence[Sample]) -> frozenset[ResourceKey]:
    """Write `samples` in one transaction, and say which resources the ledger does not know: theirs are left out.

    A sample that is there already stays as it is, and so does an hour that was rolled up: a replay changes nothing.
    """
    with begin_write(engine) as connection:
        return write_samples(*open_sql_session(connection), samples)


def write_samples(ask: Query, tell: Execute, samples: Sequence[Sample]) -> frozenset[ResourceKey]:
    """The same within a write transaction."""
    ids = _load_resource_ids(ask, {sample.key for sample in samples})
    rows = [
        (ids[s.key], s.signal, at_us := to_micros(s.at), float(s.value), ids[s.key], s.signal, at_us // HOUR_US)
        for s in samples
        if s.key in ids
    ]
    if rows:
        tell(_INSERT_SAMPLE, rows)
    return frozenset(sample.key for sample in samples if sample.key not in ids)


def roll_up_samples(engine: Engine, now: datetime) -> int:
    """Turn the samples of whole hours that ended more than KEPT before `now` into a row an hour; how many samples that was.

    One transaction: a crash leaves all of it done or nothing, and once more changes nothing.
    """
    until_us = to_micros(now - SAMPLE_RETENTION) // HOUR_US * HOUR_US
    with begin_write(engine) as connection:
        ask, tell = open_sql_session(connection)
        lines = [(resource_id, signal, until_us) for resource_id, signal in ask(SAMPLED_SIGNALS, ())]
        if not lines:
            return 0
        tell(_INSERT_SAMPLE_HOURS, lines)
        return tell(_DELETE_SAMPLES, lines)


def _load_resource_ids(ask: Query, keys: set[ResourceKey]) -> dict[ResourceKey, int]:
    """The rows of those of `keys` that the ledger knows."""
    places: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for key in keys:
        places[key[:3]].append(key.id)
    return {
        ResourceKey(*place, name): number
        for place, names in places.items()
        for lot in split_batches(names)
        for number, name in ask(_RESOURCE_IDS.format(format_placeholders(lot)), (*place, *lot))
    }


_RESOURCE_IDS = "SELECT id, external_id FROM resource WHERE provider = ? AND account = ? AND region = ? AND external_id IN ({})"

_INSERT_SAMPLE = """
INSERT INTO sample (resource_id, signal, at_us, value)
SELECT CAST(? AS BIGINT), CAST(? AS TEXT), CAST(? AS BIGINT), CAST(? AS DOUBLE PRECISION)
WHERE NOT EXISTS (SELECT 1 FROM sample_hour WHERE resource_id = ? AND signal = ? AND hour = ?)
ON CONFLICT DO NOTHING
"""

_INSERT_SAMPLE_HOURS = f"""
INSERT INTO sample_hour (resource_id, signal, hour, count, sum, lowest, highest)
SELECT resource_id, signal, at_us / {HOUR_US}, count(*), sum(value), min(value), max(value) FROM sample
WHERE resource_id = ? AND signal = ? AND at_us < ?
GROUP BY resource_id, signal, at_us / {HOUR_US}
"""  # noqa: S608 - our own number

_DELETE_SAMPLES = "DELETE FROM sample WHERE resource_id = ? AND signal = ? AND at_us < ?"
