"""The market file: offers in one SQLite file that is written once and then only read.

A *class* is a GPU model and a count; a *lot* is what one provider sells of a class in one tier. The index holds each lot's
offers in order of price with every column that a selection uses, so the cheapest offer of a lot is found by reading one entry.
Memory and hours of a job depend on the class, so a quote reads the classes first, and then each provider's cheapest offer of
the suitable ones. The same offers give the same bytes (with the same version of SQLite). Live offers are merged with older
rows; each row keeps its own date and source.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import date
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from costguard.errors import CostguardError, InputError
from costguard.quoting.offer import Offer, OfferSelection
from costguard.quoting.price_drift import Judgement, Vintage, get_vintage
from costguard.quoting.price_falls import decode_fall, encode_fall
from costguard.system.atomic_file import replace_file
from costguard.values.checks import require_one_of
from costguard.values.money import Rate

APPLICATION_ID = 0x43474D4B
"""Marks the file as ours: "CGMK" in ASCII."""

SCHEMA_VERSION = 2
"""2: offers point to a vintage, which holds drift class and days; a lot is listed per vintage, with its lowest price."""

SCHEMA = """
CREATE TABLE sources (source_id INTEGER PRIMARY KEY, source TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE vintages (
    vintage_id INTEGER PRIMARY KEY,
    drift_class TEXT NOT NULL,
    observed_on TEXT NOT NULL,
    observed_to TEXT NOT NULL,
    placeholder INTEGER NOT NULL,
    stated_drift TEXT NOT NULL,
    pricing TEXT NOT NULL
) STRICT;
CREATE TABLE offers (
    offer_id INTEGER PRIMARY KEY,
    gpu TEXT NOT NULL,
    gpu_count INTEGER NOT NULL CHECK (gpu_count >= 1),
    nano_usd_per_hour INTEGER CHECK (nano_usd_per_hour > 0),
    provider TEXT NOT NULL,
    region TEXT NOT NULL,
    tier TEXT NOT NULL,
    instance_type TEXT NOT NULL,
    vintage_id INTEGER NOT NULL REFERENCES vintages,
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
    vintage_id INTEGER NOT NULL,
    least_nano_usd_per_hour INTEGER,
    PRIMARY KEY (gpu, gpu_count, provider, tier, vintage_id)
) STRICT, WITHOUT ROWID;
CREATE TABLE market (fact TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
"""

FALLS_TABLE = "CREATE {temporary} TABLE falls (offer_id INTEGER PRIMARY KEY, fall TEXT NOT NULL) STRICT"
"""In files of a refresh that saw a price fall far: `encode_fall`. Older files and the shipped one have no such table."""

INDEXES = """
CREATE INDEX offers_by_lot ON offers (gpu, gpu_count, provider, tier, vintage_id, nano_usd_per_hour, region, instance_type);
"""

SUMMARY_SQL = """
INSERT INTO lots SELECT gpu, gpu_count, provider, tier, vintage_id, min(nano_usd_per_hour) FROM offers
    GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5;
INSERT INTO market SELECT 'offers', count(*) FROM offers;
INSERT INTO market SELECT 'unpriced', count(*) FROM offers WHERE nano_usd_per_hour IS NULL;
INSERT INTO market SELECT 'oldest', coalesce(min(observed_on), '') FROM offers JOIN vintages USING (vintage_id);
INSERT INTO market SELECT 'newest', coalesce(max(observed_on), '') FROM offers JOIN vintages USING (vintage_id);
INSERT INTO market SELECT 'providers', coalesce(group_concat(provider, ','), '')
    FROM (SELECT DISTINCT provider FROM offers ORDER BY provider);
"""


def write_market(path: Path, offers: Iterable[Offer], facts: Mapping[str, str] | None = None) -> int:
    """Write `offers` as the market file at `path`, replacing it atomically, and return the number of offers.

    `facts` are stored in the table `market`, such as the files that the offers were built from.
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
    vintage_ids = {vintage: number for number, vintage in enumerate(sorted(set(map(_get_vintage, offers))), start=1)}
    connection.executemany(
        "INSERT INTO vintages VALUES (?, ?, ?, ?, ?, ?, ?)",
        ((number, *_encode_vintage(*vintage)) for vintage, number in vintage_ids.items()),
    )
    connection.executemany(
        "INSERT INTO offers VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        ((number, *_encode_offer(offer, source_ids, vintage_ids)) for number, offer in enumerate(offers, start=1)),
    )
    if falls := [(number, encode_fall(offer.fall)) for number, offer in enumerate(offers, start=1) if offer.fall]:
        connection.execute(FALLS_TABLE.format(temporary=""))
        connection.executemany("INSERT INTO falls VALUES (?, ?)", falls)
    connection.executemany("INSERT INTO market VALUES (?, ?)", sorted(facts.items()))
    connection.execute("COMMIT")
    connection.executescript(INDEXES + SUMMARY_SQL)
    connection.execute("VACUUM")


def _sort_key(offer: Offer) -> tuple[object, ...]:
    """Return the sort key of an offer in the file: its lot, its price (unknown first, as SQLite sorts it), its names."""
    price = 0 if offer.rate is None else offer.rate.nano_per_hour
    names = (offer.region, offer.instance_type, offer.observed_on, offer.source, offer.note)
    return (offer.gpu, offer.gpu_count, offer.provider, offer.tier, price, *names)


StoredVintage = tuple[Vintage, str, str]
"""A vintage, and what its offers state beside it: drift class ("": none) and pricing."""


def _get_vintage(offer: Offer) -> StoredVintage:
    return (get_vintage(offer), offer.drift, offer.pricing)


def _encode_vintage(vintage: Vintage, drift: str, pricing: str) -> tuple[str | int, ...]:
    until = "" if vintage.observed_to == date.min else vintage.observed_to.isoformat()
    return (vintage.drift_class, vintage.observed_on.isoformat(), until, int(vintage.placeholder), drift, pricing)


def _decode_vintage(row: tuple[Any, ...]) -> Vintage:
    until = date.fromisoformat(row[2]) if row[2] else date.min
    return Vintage(row[0], date.fromisoformat(row[1]), until, bool(row[3]))


def _encode_offer(
    offer: Offer, source_ids: Mapping[str, int], vintage_ids: Mapping[StoredVintage, int]
) -> tuple[str | int | float | None, ...]:
    return (
        offer.gpu,
        offer.gpu_count,
        None if offer.rate is None else offer.rate.nano_per_hour,
        offer.provider,
        offer.region,
        offer.tier,
        offer.instance_type,
        vintage_ids[_get_vintage(offer)],
        source_ids[offer.source],
        offer.vcpus,
        offer.ram_gb,
        offer.disk_gb,
        offer.note,
    )


OFFER_SORTS = {
    "usd_per_hour": "o.nano_usd_per_hour",
    "usd_per_gpu_hour": "o.nano_usd_per_hour / o.gpu_count",
    "age": "v.observed_on DESC, o.nano_usd_per_hour",
    "provider": "o.provider, o.nano_usd_per_hour",
}
"""The orders in which offers can be listed, and their SQL; offers without a price come last in all of them."""


class MarketReader:
    """The offers of one market file, opened for reading only. Use it in a `with` statement, or call `close`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection = _open_read_only(path)
        self._judged_by: Judge | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def list_classes(self, selection: OfferSelection) -> list[tuple[str, int]]:
        """Return (canonical GPU, GPUs of an offer) of every selected offer, priced or not, each once, sorted."""
        lots, lot_values = _format_lot_condition(selection, "l")
        regions, region_values = _format_row_condition(selection)
        anywhere = selection.regions is None and selection.observed_since is None
        sold = "TRUE" if anywhere else _SOLD_IN_REGION.format(regions=regions)
        return list(self._rows(_CLASSES.format(lots=lots, sold=sold), [*lot_values, *region_values]))

    def find_best(self, gpu: str, gpu_count: int, selection: OfferSelection, judge: Judge) -> list[Offer]:
        """Return the selected offers of one class that are likely to be the cheapest today, per provider and tier.

        `judge` says what the prices of a vintage are worth today. Of each provider and tier there is the cheapest fresh offer,
        the cheapest that is old, and the cheapest that must not be ranked. A spot offer has the on-demand rate of the same
        machine, where the file knows one.
        """
        self._judge_vintages(judge)
        lots, lot_values = _format_lot_condition(selection, "l")
        regions, region_values = _format_row_condition(selection)
        least, values = ("l.least_nano_usd_per_hour", list[str | int]())
        if selection.regions is not None or selection.observed_since is not None:
            least, values = _LEAST_SELECTED.format(regions=regions), [*region_values]
        values = [*values, gpu, gpu_count, *lot_values, *region_values]
        query = _BEST.format(lots=lots, regions=regions, least=least)
        return [_decode_offer(row, row[-1]) for row in self._rows(query, values)]

    def _judge_vintages(self, judge: Judge) -> None:
        """Hold what `judge` says of each vintage in a table of this connection, where a query can use it."""
        if self._judged_by == judge:
            return
        rows = [
            (number, judged.factor.expected, UNRANKED if judged.unranked else int(judged.fresh))
            for number, judged in ((row[0], judge(_decode_vintage(row[1:]))) for row in self._rows(_VINTAGES, []))
        ]
        self._connection.executescript(_JUDGED)
        self._connection.executemany("INSERT INTO judged VALUES (?, ?, ?)", rows)
        self._judged_by = judge

    def list_offers(self, selection: OfferSelection, sort: str = "usd_per_hour", limit: int | None = None) -> Iterator[Offer]:
        """Return the selected offers in the order `sort` (one of `OFFER_SORTS`), unknown prices last.

        `limit` None: all.
        """
        order = OFFER_SORTS[require_one_of(sort, OFFER_SORTS, "sort")]
        lots, lot_values = _format_lot_condition(selection, "o")
        regions, region_values = _format_row_condition(selection)
        values = [*lot_values, *region_values, NO_LIMIT if limit is None else max(limit, 0)]
        return map(_decode_offer, self._rows(_OFFERS.format(lots=lots, regions=regions, order=order), values))

    def list_fallen_offers(self) -> list[Offer]:
        """Return the offers whose price fell far lately, doubted or not."""
        query = _OFFERS.format(lots="f.fall IS NOT NULL", regions="TRUE", order=OFFER_SORTS["provider"])
        return [_decode_offer(row) for row in self._rows(query, [NO_LIMIT])]

    def providers(self) -> tuple[str, ...]:
        """Return every provider with an offer in the file."""
        ((names,),) = self._rows("SELECT value FROM market WHERE fact = 'providers'", [])
        return tuple(filter(None, names.split(",")))

    def regions(self, provider: str = "") -> tuple[str, ...]:
        """Return every region of an offer, as the providers name them. `provider` "": of all."""
        query = "SELECT DISTINCT region FROM offers WHERE ? IN ('', provider) ORDER BY region"
        return tuple(region for (region,) in self._rows(query, [provider]))

    def load_price_ceilings(self) -> dict[str, int]:
        """Return canonical GPU -> the highest price that is assumed where none is stated, in nano-dollars an hour.

        It is `CEILING_MARGIN` (2) times the highest price per GPU in the tiers on-demand, secure and community.
        """
        return {gpu: nano * CEILING_MARGIN for gpu, nano in self._rows(_PRICE_CEILINGS, [])}

    def summarize_providers(self) -> list[dict[str, object]]:
        """Return per provider: its offers, the number without a price, and the days of the oldest and the newest one."""
        names = ("provider", "offers", "unpriced", "oldest", "newest")
        return [dict(zip(names, row, strict=True)) for row in self._rows(_OF_PROVIDERS, [])]

    def describe_file(self) -> dict[str, object]:
        """Return the facts stored in the file: counts, providers, and the days of its oldest and newest observation."""
        facts: dict[str, str] = dict(self._rows("SELECT fact, value FROM market", []))
        return {
            "path": str(self.path),
            "offers": int(facts["offers"]),
            "unpriced": int(facts["unpriced"]),
            "providers": facts["providers"].split(",") if facts["providers"] else [],
            "oldest": facts["oldest"] or None,
            "newest": facts["newest"] or None,
            "built_from": facts.get("built_from", ""),
            **({"refreshed_at": facts["refreshed_at"], "live": _split_names(facts, "live")} if "refreshed_at" in facts else {}),
            **({"public": _split_names(facts, "public")} if facts.get("public") else {}),
        }

    def _rows(self, query: str, values: Sequence[str | int]) -> Iterator[tuple[Any, ...]]:
        try:
            yield from self._connection.execute(query, values)
        except sqlite3.DatabaseError as error:
            raise _make_unusable_error(self.path, f"cannot be read ({error})") from error


def _split_names(facts: Mapping[str, str], fact: str) -> list[str]:
    return [name for name in facts[fact].split(",") if name]


NO_LIMIT = -1
"""SQLite's word for it."""

CEILING_MARGIN = 2
"""How much dearer than the dearest known offer a GPU may be: list prices move by tens of percent, and never doubled so far
(the price files of 2026-11). An assumption."""

_PRICE_CEILINGS = """
SELECT gpu, max((nano_usd_per_hour + gpu_count - 1) / gpu_count) FROM offers
WHERE tier IN ('on-demand', 'secure', 'community') AND nano_usd_per_hour IS NOT NULL GROUP BY gpu ORDER BY gpu
"""

_OF_PROVIDERS = """
SELECT provider, count(*), sum(nano_usd_per_hour IS NULL), min(observed_on), max(observed_on)
FROM offers JOIN vintages USING (vintage_id) GROUP BY provider ORDER BY provider
"""

_CLASSES = """
SELECT DISTINCT l.gpu, l.gpu_count FROM lots AS l WHERE {lots} AND {sold} ORDER BY l.gpu, l.gpu_count
"""

_SOLD_IN_REGION = """
EXISTS (
    SELECT 1 FROM offers AS o JOIN vintages AS v USING (vintage_id)
    WHERE o.gpu = l.gpu AND o.gpu_count = l.gpu_count AND o.provider = l.provider AND o.tier = l.tier
        AND o.vintage_id = l.vintage_id AND {regions}
)
"""

_COLUMNS = """
o.provider, o.region, o.instance_type, o.gpu, o.gpu_count, o.tier, o.nano_usd_per_hour, v.observed_on, s.source, v.pricing,
o.vcpus, o.ram_gb, o.disk_gb, o.note, v.stated_drift, v.observed_to, f.fall
"""

Judge = Callable[[Vintage], Judgement]
UNRANKED = -1
"""How the table `judged` marks vintages that must not be ranked; fresh ones are 1, older ones 0."""

_VINTAGES = "SELECT vintage_id, drift_class, observed_on, observed_to, placeholder FROM vintages"

_JUDGED = """
DROP TABLE IF EXISTS temp.judged;
CREATE TEMP TABLE judged (vintage_id INTEGER PRIMARY KEY, factor REAL NOT NULL, standing INTEGER NOT NULL);
"""

_LEAST_SELECTED = """(
    SELECT o.nano_usd_per_hour FROM offers AS o
    WHERE o.gpu = l.gpu AND o.gpu_count = l.gpu_count AND o.provider = l.provider AND o.tier = l.tier
        AND o.vintage_id = l.vintage_id AND o.nano_usd_per_hour > 0 AND {regions}
    ORDER BY o.nano_usd_per_hour LIMIT 1
)"""

_ON_DEMAND = """
SELECT min(d.nano_usd_per_hour) FROM offers AS d
WHERE o.tier = 'spot' AND d.gpu = o.gpu AND d.gpu_count = o.gpu_count AND d.provider = o.provider AND d.tier = 'on-demand'
    AND d.region IN (o.region, 'global') AND d.instance_type = o.instance_type
"""

_BEST = f"""
WITH lot AS (
    SELECT l.gpu, l.gpu_count, l.provider, l.tier, l.vintage_id, {{least}} AS least
    FROM lots AS l CROSS JOIN vintages AS v
    WHERE v.vintage_id = l.vintage_id AND l.gpu = ? AND l.gpu_count = ? AND {{lots}}
), best AS (
    SELECT lot.*, min(lot.least * j.factor) AS expected
    FROM lot CROSS JOIN judged AS j
    WHERE j.vintage_id = lot.vintage_id
    GROUP BY lot.provider, lot.tier, j.standing
)
SELECT {_COLUMNS}, ({_ON_DEMAND})
FROM best AS b CROSS JOIN vintages AS v CROSS JOIN offers AS o CROSS JOIN sources AS s
    LEFT JOIN falls AS f ON f.offer_id = o.offer_id
WHERE v.vintage_id = b.vintage_id AND s.source_id = o.source_id AND o.offer_id = (
    SELECT o.offer_id FROM offers AS o
    WHERE o.gpu = b.gpu AND o.gpu_count = b.gpu_count AND o.provider = b.provider AND o.tier = b.tier
        AND o.vintage_id = b.vintage_id AND o.nano_usd_per_hour = b.least AND {{regions}}
    ORDER BY o.region, o.instance_type LIMIT 1
)
ORDER BY b.expected, o.provider, o.tier
"""  # noqa: S608 - our own column names; of a group's row with the least `expected` SQLite takes the other columns

_OFFERS = f"""
SELECT {_COLUMNS}
FROM offers AS o CROSS JOIN sources AS s USING (source_id) CROSS JOIN vintages AS v USING (vintage_id)
    LEFT JOIN falls AS f USING (offer_id)
WHERE {{lots}} AND {{regions}}
ORDER BY o.nano_usd_per_hour IS NULL, {{order}}, o.offer_id
LIMIT ?
"""  # noqa: S608 - our own column names

Values = list[str | int]


def _format_lot_condition(selection: OfferSelection, table: str) -> tuple[str, Values]:
    """Return the part of `selection` that is the same for every offer of a lot, as SQL over `table` and its values."""
    return _join_conditions(
        _format_membership(f"{table}.gpu", selection.gpus),
        _format_membership(f"{table}.gpu_count", selection.gpu_counts),
        _format_bound(f"{table}.gpu_count >=", selection.least_gpus),
        _format_bound(f"{table}.gpu_count <=", selection.most_gpus),
        _format_membership(f"{table}.provider", selection.providers),
        _format_membership(f"{table}.tier", selection.tiers),
    )


def _format_row_condition(selection: OfferSelection) -> tuple[str, Values]:
    since = selection.observed_since
    return _join_conditions(
        _format_membership("o.region", selection.regions),
        ("TRUE", []) if since is None else ("v.observed_on >= ?", [since.isoformat()]),
    )


def _join_conditions(*parts: tuple[str, Values]) -> tuple[str, Values]:
    return " AND ".join(sql for sql, _ in parts), [value for _, values in parts for value in values]


def _format_membership(column: str, allowed: Sequence[str | int] | None) -> tuple[str, Values]:
    """Return SQL that tests membership: no condition for None, `IN ()` (always false) for an empty sequence."""
    return ("TRUE", []) if allowed is None else (f"{column} IN ({', '.join('?' * len(allowed))})", [*allowed])


def _format_bound(comparison: str, bound: int | None) -> tuple[str, Values]:
    return ("TRUE", []) if bound is None else (f"{comparison} ?", [bound])


def _decode_offer(row: tuple[Any, ...], on_demand: int | None = None) -> Offer:
    return Offer(
        provider=row[0],
        region=row[1],
        instance_type=row[2],
        gpu=row[3],
        gpu_count=row[4],
        tier=row[5],
        rate=None if row[6] is None else Rate(nano_per_hour=row[6]),
        observed_on=date.fromisoformat(row[7]),
        source=row[8],
        pricing=row[9],
        vcpus=row[10],
        ram_gb=row[11],
        disk_gb=row[12],
        note=row[13],
        drift=row[14],
        observed_to=date.fromisoformat(row[15]) if row[15] else None,
        on_demand_rate=None if on_demand is None else Rate(nano_per_hour=on_demand),
        fall=decode_fall(row[16]) if row[16] else None,
    )


def _open_read_only(path: Path) -> sqlite3.Connection:
    """Open a read-only connection; `immutable` avoids locks, because the file is only ever replaced as a whole."""
    try:
        exists = path.is_file()
    except OSError as error:
        raise _make_unusable_error(path, f"cannot be opened ({error.strerror})") from error
    if not exists:
        raise _make_unusable_error(path, "is a folder" if path.is_dir() else "does not exist")
    quoted = path.absolute().as_posix().translate(_URI_ESCAPES)
    try:
        connection = sqlite3.connect(f"file:{quoted}?mode=ro&immutable=1", uri=True)
        pragmas = [connection.execute(f"PRAGMA {pragma}").fetchone()[0] for pragma in ("application_id", "user_version")]
    except sqlite3.DatabaseError as error:
        raise _make_unusable_error(path, f"cannot be read ({error})") from error
    if pragmas != [APPLICATION_ID, SCHEMA_VERSION]:
        connection.close()
        what = f"has format {pragmas[1]}, not {SCHEMA_VERSION}" if pragmas[0] == APPLICATION_ID else "is not a market file"
        raise _make_unusable_error(path, what)
    connection.execute("PRAGMA temp_store = MEMORY")
    if not connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'falls'").fetchone()[0]:
        connection.execute(FALLS_TABLE.format(temporary="TEMP"))
    return connection


_URI_ESCAPES = str.maketrans({"%": "%25", "?": "%3f", "#": "%23"})


def _make_unusable_error(path: Path, what: str) -> InputError:
    return InputError(
        f"the market file {what}",
        field=str(path),
        hint="reinstall costguard for the file it ships, or rebuild it with scripts/build_market.py",
    )


def select_newest_market(shipped: Path, refreshed: Path) -> Path:
    """Return `refreshed` if it is readable and at least as new as `shipped`; else `shipped`."""
    if not refreshed.is_file():
        return shipped
    try:
        with MarketReader(refreshed) as refreshed_market, MarketReader(shipped) as theirs:
            newer = str(refreshed_market.describe_file()["newest"] or "") >= str(theirs.describe_file()["newest"] or "")
    except CostguardError:
        return shipped
    return refreshed if newer else shipped
