"""The market file: what is for sale, as one SQLite file that is written once and only read afterwards.

A *class* is a GPU model and a count; a *lot* is what one provider sells of a class in one tier. The index holds each lot's
offers in order of price and carries every column a selection can ask for, so the cheapest of a lot is found by reading
one entry. Writing sorts the offers: the same offers give the same bytes (with the same version of SQLite).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path

from costguard.quoting.offer import Offer
from costguard.system.whole import replace_file

APPLICATION_ID = 0x43474D4B
"""Marks the file as ours: "CGMK" in ASCII."""

SCHEMA_VERSION = 1

SCHEMA = """
CREATE TABLE sources (source_id INTEGER PRIMARY KEY, source TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE offers (
    offer_id INTEGER PRIMARY KEY,
    gpu TEXT NOT NULL,
    gpu_count INTEGER NOT NULL CHECK (gpu_count >= 1),
    nano_usd_per_hour INTEGER CHECK (nano_usd_per_hour > 0),
    provider TEXT NOT NULL,
    region TEXT NOT NULL,
    tier TEXT NOT NULL,
    instance_type TEXT NOT NULL,
    pricing TEXT NOT NULL,
    observed_on TEXT NOT NULL,
    source_id INTEGER NOT NULL REFERENCES sources,
    vcpus REAL,
    ram_gb REAL,
    disk_gb REAL,
    note TEXT NOT NULL
) STRICT;
CREATE TABLE lots (
    gpu TEXT NOT NULL,
    gpu_count INTEGER NOT NULL,
    provider TEXT NOT NULL,
    tier TEXT NOT NULL,
    PRIMARY KEY (gpu, gpu_count, provider, tier)
) STRICT, WITHOUT ROWID;
CREATE TABLE market (fact TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
"""

INDEXES = """
CREATE INDEX offers_by_lot ON offers (gpu, gpu_count, provider, tier, nano_usd_per_hour, region, instance_type);
"""

SUMMARY_SQL = """
INSERT INTO lots SELECT DISTINCT gpu, gpu_count, provider, tier FROM offers ORDER BY 1, 2, 3, 4;
INSERT INTO market SELECT 'offers', count(*) FROM offers;
INSERT INTO market SELECT 'unpriced', count(*) FROM offers WHERE nano_usd_per_hour IS NULL;
INSERT INTO market SELECT 'oldest', coalesce(min(observed_on), '') FROM offers;
INSERT INTO market SELECT 'newest', coalesce(max(observed_on), '') FROM offers;
INSERT INTO market SELECT 'providers', coalesce(group_concat(provider, ','), '')
    FROM (SELECT DISTINCT provider FROM offers ORDER BY provider);
"""


def write_market(path: Path, offers: Iterable[Offer], facts: Mapping[str, str] | None = None) -> int:
    """Write `offers` as the market file at `path`, replacing what is there in one step; the number of offers written.

    `facts` are kept beside them in the table `market`, such as which files they were built from.
    """
    rows = sorted(offers, key=_sort_key)
    with replace_file(path) as unfinished, closing(sqlite3.connect(unfinished, isolation_level=None)) as connection:
        _fill_tables(connection, rows, facts or {})
    return len(rows)


def _fill_tables(connection: sqlite3.Connection, offers: list[Offer], facts: Mapping[str, str]) -> None:
    connection.execute("PRAGMA page_size = 4096")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.executescript(SCHEMA)
    connection.execute("BEGIN")
    source_ids = {source: number for number, source in enumerate(sorted({offer.source for offer in offers}), start=1)}
    connection.executemany("INSERT INTO sources (source, source_id) VALUES (?, ?)", source_ids.items())
    connection.executemany(
        "INSERT INTO offers VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        ((number, *_encode_offer(offer, source_ids)) for number, offer in enumerate(offers, start=1)),
    )
    connection.executemany("INSERT INTO market VALUES (?, ?)", sorted(facts.items()))
    connection.execute("COMMIT")
    connection.executescript(INDEXES + SUMMARY_SQL)
    connection.execute("VACUUM")


def _sort_key(offer: Offer) -> tuple[object, ...]:
    """Where an offer stands in the file: its lot, then its price (unknown first, as SQLite sorts it), then its names."""
    price = 0 if offer.rate is None else offer.rate.nano_per_hour
    names = (offer.region, offer.instance_type, offer.observed_on, offer.source, offer.note)
    return (offer.gpu, offer.gpu_count, offer.provider, offer.tier, price, *names)


def _encode_offer(offer: Offer, source_ids: Mapping[str, int]) -> tuple[str | int | float | None, ...]:
    return (
        offer.gpu,
        offer.gpu_count,
        None if offer.rate is None else offer.rate.nano_per_hour,
        offer.provider,
        offer.region,
        offer.tier,
        offer.instance_type,
        offer.pricing,
        offer.observed_on.isoformat(),
        source_ids[offer.source],
        offer.vcpus,
        offer.ram_gb,
        offer.disk_gb,
        offer.note,
    )
