"""Market documents: offers (`costguard.offers/1`), prices (`costguard.prices/1`) and `costguard.breakeven/1`.

Offers have one record per offer. Prices show which prices are in use and how old they are, one record per provider. Break-even
compares buying with renting.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from operator import itemgetter
from typing import Protocol

from costguard.quoting.breakeven import BreakEven, JobPurchase, PurchaseAnswer
from costguard.quoting.offer import Offer, OfferListing
from costguard.quoting.price_drift import AgedPrice, PriceDrift, age_price, shorten_age
from costguard.values.text_format import format_amount
from costguard.views.columns import ColumnFit
from costguard.views.document import Column, Document, TableView, build_record, build_table
from costguard.views.job import build_interval_data, format_hours_range
from costguard.views.price_sources import SourceRow, build_source_table, list_source_notes, list_source_records

OFFERS_SCHEMA = "costguard.offers/1"


def build_offers_document(
    offers: Sequence[Offer],
    market: Mapping[str, object],
    *,
    drift: Mapping[str, PriceDrift],
    today: date,
    warnings: Sequence[str] = (),
    live: Collection[Offer] | None = None,
    every: bool = False,
) -> Document:
    """Return the document for `offers`.

    `market`: facts about the file that the offers come from. `drift`: how prices move until `today`, by drift class. `live`:
    offers fetched just now; None: none were requested. `every`: a row for each region of a machine, instead of one with their
    range.
    """
    columns = _list_offer_columns(drift, today, live)
    records = tuple(build_record(columns, offer) for offer in offers)
    data = {"schema": OFFERS_SCHEMA, "market": dict(market), "offers": list(records), "warnings": list(warnings)}
    headings: tuple[str, ...] = ("provider", "region", "instance type", "GPU", "tier", "$/h>", "$/GPU-h>", "price")
    if any(offer.reliability is not None for offer in offers):
        headings = (*headings, "host")
    table = build_table(columns, offers, headings)
    rows = table.rows if every else _merge_regions(table.rows)
    fewer = f" in {len(rows)} rows: --all shows each region" if len(rows) < len(offers) else ""
    return Document(
        data=data,
        records=records,
        tables=(replace(table, rows=rows, fits=OFFER_FITS, short=_shorten_offer_cells(rows)),),
        notes=(*(f"Warning: {w}." for w in warnings), f"{len(offers)} offers{fewer}."),
    )


OFFER_FITS: Mapping[str, ColumnFit] = {
    "provider": ColumnFit(),
    "region": ColumnFit(rank=8, least=9),
    "instance type": ColumnFit(rank=9, least=12),
    "$/GPU-h": ColumnFit(rank=7),
    "tier": ColumnFit(rank=1),
    "price": ColumnFit(rank=2, heading="age"),
}


def _shorten_offer_cells(rows: Sequence[tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Return the rate with two decimals a value, and the age as a number of days, for narrow terminals."""
    rates = tuple("-".join(end if end == UNKNOWN else f"{float(end):.2f}" for end in row[5].split(" - ")) for row in rows)
    return {"$/h": rates, "price": tuple(shorten_age(row[7]) for row in rows)}


def _merge_regions(rows: Sequence[tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
    """Return one row for each machine, with the number of its regions and the range of its price, in the order of the first.

    A row is (provider, region, instance type, GPU, tier, $/h, $/GPU-h, price), and the host where
    one is known; prices of another age and other hosts are other rows.
    """
    machines: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for row in rows:
        provider, _, instance_type, gpu, tier, rate, _, age, *host = row
        machines.setdefault((provider, instance_type, gpu, tier, age, str(rate == UNKNOWN), *host), []).append(row)
    return tuple(same[0] if len(same) == 1 else _merge_rows(same) for same in machines.values())


def _merge_rows(same: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    provider, _, instance_type, gpu, tier, _, _, *rest = same[0]
    regions = len({row[1] for row in same})
    where = f"{regions} regions" if regions > 1 else same[0][1]
    return (provider, where, instance_type, gpu, tier, _format_range(same, 5), _format_range(same, 6), *rest)


def _format_range(same: Sequence[tuple[str, ...]], column: int) -> str:
    texts = sorted({row[column] for row in same} - {UNKNOWN}, key=float)
    return UNKNOWN if not texts else texts[0] if len(texts) == 1 else f"{texts[0]} - {texts[-1]}"


UNKNOWN = "unknown"


def _list_offer_columns(
    drift: Mapping[str, PriceDrift], today: date, live: Collection[Offer] | None
) -> tuple[Column[Offer], ...]:
    """Return the columns of an offer.

    `live`: offers fetched just now; None: none were requested, and records have no field for it.
    """

    def age(offer: Offer) -> AgedPrice | None:
        return age_price(offer, drift, today)

    def format_age(offer: Offer) -> str:
        if live is not None and offer in live:
            return "live"
        aged = age(offer)
        return aged.format_age() if aged else f"{offer.count_age_days(today)}d old"

    def format_today(offer: Offer) -> dict[str, str] | None:
        aged = age(offer)
        return {"low": aged.low.format(), "expected": aged.expected.format(), "high": aged.high.format()} if aged else None

    return (
        Column("provider", "provider", lambda offer: offer.provider),
        Column("region", "region", lambda offer: offer.region),
        Column("instance_type", "instance type", lambda offer: offer.instance_type),
        Column("gpu", "GPU", lambda offer: offer.gpu, lambda offer: f"{offer.gpu} x{offer.gpu_count}"),
        Column("gpu_count", "", lambda offer: offer.gpu_count),
        Column("tier", "tier", lambda offer: offer.tier),
        Column("usd_per_hour", "$/h>", _format_rate, lambda offer: _format_rate(offer) or UNKNOWN),
        Column("", "$/GPU-h>", _format_rate, _format_gpu_rate),
        Column("observed_at", "", lambda offer: offer.observed_on.isoformat()),
        Column("age_days", "", lambda offer: offer.count_age_days(today)),
        Column("stale", "", lambda offer: None if (aged := age(offer)) is None else not aged.fresh),
        Column("drift", "", lambda offer: offer.drift_class),
        Column("usd_per_hour_today", "", format_today),
        Column("", "price", format_age),
        Column("source", "", lambda offer: offer.source),
        Column("vcpus", "", lambda offer: offer.vcpus),
        Column("ram_gb", "", lambda offer: offer.ram_gb),
        Column("disk_gb", "", lambda offer: offer.disk_gb),
        *(() if live is None else (Column("live", "", lambda offer: offer in live),)),
        Column("reliability", "", lambda offer: offer.reliability),
        Column("verified", "", lambda offer: offer.verified),
        Column("", "host", lambda offer: offer.reliability, _format_host),
    )


def _format_host(offer: Offer) -> str:
    """Return how reliable the host of a marketplace's offer is, and whether it was checked: "99.8%, verified"."""
    if offer.reliability is None:
        return "-"
    return f"{offer.reliability:.1%}" + {True: ", verified", False: ", not verified", None: ""}[offer.verified]


def _format_rate(offer: Offer) -> str | None:
    return offer.rate.format() if offer.rate else None


def _format_gpu_rate(offer: Offer) -> str:
    return f"{offer.rate.nano_per_hour / offer.gpu_count / 1e9:.3f}" if offer.rate else UNKNOWN


PRICES_SCHEMA = "costguard.prices/1"


class PriceAnswers(Protocol):
    """The result of fetching prices from the providers."""

    @property
    def listings(self) -> Mapping[str, OfferListing]:
        """Return the listing of each provider that answered."""

    @property
    def failed(self) -> Mapping[str, str]:
        """Return the reason for each provider that did not answer."""


def build_prices_document(
    market: Mapping[str, object],
    providers: Sequence[Mapping[str, object]],
    answers: PriceAnswers | None,
    *,
    today: date,
    warnings: Sequence[str] = (),
    sources: Sequence[SourceRow] | None = None,
) -> Document:
    """Return the document about the prices in use.

    `market`: facts about the file in use. `providers`: for each, its offers, unpriced offers, oldest and newest day. `sources`:
    what each public source answered; None: none was asked.
    """
    records = tuple(_build_price_record(row, _read_origins(market), today) for row in providers)
    data = {
        "schema": PRICES_SCHEMA,
        "market": dict(market),
        "providers": list(records),
        "asked": None if answers is None else list(_list_price_answers(answers)),
        "sources": None if sources is None else list_source_records(sources),
        "warnings": list(warnings),
    }
    origin = f", refreshed {market['refreshed_at']}" if "refreshed_at" in market else ", as shipped"
    return Document(
        data=data,
        records=records,
        lead=(f"{market['path']}: {market['offers']} offers{origin}.", *_format_price_answers(answers)),
        tables=(*((build_source_table(sources),) if sources else ()), build_table(PRICE_COLUMNS, records)),
        notes=(*(f"Warning: {warning}." for warning in warnings), *(list_source_notes(sources) if sources else ())),
    )


def _read_origins(market: Mapping[str, object]) -> Mapping[object, str]:
    """Return where fresh rows of a provider came from, by provider: "live" (an account), "public", or both."""
    origins = {word: entries for word in ("live", "public") if isinstance(entries := market.get(word), list)}
    everybody = {name for names in origins.values() for name in names}
    return {name: ", ".join(word for word, names in origins.items() if name in names) for name in everybody}


def _build_price_record(row: Mapping[str, object], origins: Mapping[object, str], today: date) -> dict[str, object]:
    newest = date.fromisoformat(str(row["newest"]))
    origin = origins.get(row["provider"])
    return {**row, "age_days": (today - newest).days, "from": f"{origin} and snapshot" if origin else "snapshot"}


def _list_price_answers(answers: PriceAnswers) -> Iterator[Mapping[str, object]]:
    for name, listing in sorted(answers.listings.items()):
        yield {"provider": name, "offers": len(listing.offers), "why": listing.why, "unnamed": list(listing.unnamed)}
    for name, why in sorted(answers.failed.items()):
        yield {"provider": name, "offers": None, "why": why, "unnamed": []}


def _format_price_answers(answers: PriceAnswers | None) -> Iterator[str]:
    for one in _list_price_answers(answers) if answers else ():
        count = one["offers"]
        yield f"{one['provider']}: {'could not be asked' if count is None else f'{count} live offers'}."


PRICE_COLUMNS: tuple[Column[Mapping[str, object]], ...] = tuple(
    Column(key, heading, itemgetter(key))
    for key, heading in (
        ("provider", "provider"),
        ("offers", "offers>"),
        ("unpriced", "unpriced>"),
        ("oldest", "oldest"),
        ("newest", "newest"),
        ("age_days", "days old>"),
        ("from", "from"),
    )
)
"""A provider's prices, of the ledger's facts that `_build_price_record` completes."""


BREAKEVEN_SCHEMA = "costguard.breakeven/1"


def build_breakeven_document(p: PurchaseAnswer) -> Document:
    """Return the hours to break even, before and after power and resale."""
    rows = (("price / rent", p.plain), ("with power and resale", p.full))
    data: dict[str, object] = {
        "schema": BREAKEVEN_SCHEMA,
        "gpu": p.gpu.name if p.gpu else None,
        "count": p.count,
        "price_usd": p.price.format(),
        "usd_per_hour": p.rent.format(),
        "rented_from": p.rented_as.provider if p.rented_as else None,
        "power_w": p.power_w,
        "usd_per_kwh": p.usd_per_kwh,
        "resale_usd": p.resale.format() if p.resale else None,
        "hours_per_week": p.hours_week,
        "hours": {
            "before_power_and_resale": round(p.plain.plain_hours, 3),
            "with_power_and_resale": _round_hours(p.full.hours),
        },
        "weeks": {"before_power_and_resale": _round_hours(p.plain.weeks), "with_power_and_resale": _round_hours(p.full.weeks)},
        "months": {
            "before_power_and_resale": _round_hours(p.plain.months),
            "with_power_and_resale": _round_hours(p.full.months),
        },
        "years": p.years,
        "hours_per_week_least": _round_hours(p.weekly_hours_least),
        "warnings": list(p.warnings),
    }
    table = TableView(
        title="",
        columns=("counting", "hours>", "weeks>", "months>", "how"),
        rows=tuple((name, *_build_breakeven_row(b), b.explain[0]) for name, b in rows),
    )
    what = f"{p.gpu.name} x{p.count}" if p.gpu else "the machine"
    conclusion = (
        "never breaks even once power is included"
        if p.full.never
        else f"{_format_breakeven_hours(p.full)} with power and resale"
    )
    job = p.job
    if job is not None:
        data["job"] = {
            "hours": build_interval_data(job.hours),
            "own_usd": job.own_usd.format(),
            "rented_as": job.rented_as,
            "rented_usd": job.rented_usd.format(),
            "runs": _round_hours(job.runs),
        }
    even = f"{_format_breakeven_hours(p.plain)} before power and resale, {conclusion}"
    return Document(
        data=data,
        records=tuple({"counting": name, "hours": b.hours, "weeks": b.weeks, "months": b.months} for name, b in rows),
        lead=(f"Buying {what} for ${format_amount(p.price)} against ${p.rent.format()} an hour: {even}.",),
        tables=(table,),
        notes=(*_list_wear_notes(p), *([_explain_job_purchase(job)] if job else []), *(f"Warning: {w}." for w in p.warnings)),
    )


def _list_wear_notes(p: PurchaseAnswer) -> tuple[str, ...]:
    """Return from how many hours a week buying pays before the machine is worn out, beside the stated ones; empty if never."""
    if p.full.never:
        return ()
    least, weekly = p.weekly_hours_least, p.hours_week
    life = f"before the machine is worn out after {p.years:g} years (--years)"
    if least is None:
        return (f"Buying does not pay {life}: no week has so many hours.",)
    judged = "" if weekly is None else "enough" if weekly >= least else "too few: renting is cheaper"
    verdict = f"; {weekly:g} a week are {judged}" if judged else ""
    return (f"Buying pays {life} from {least:,.1f} hours of use a week{verdict}.",)


def _explain_job_purchase(job: JobPurchase) -> str:
    """Return what a run costs on the bought and on a rented machine, and after how many runs buying pays."""
    runs = "buying never pays" if job.runs is None else f"bought, it pays after {job.runs:,.0f} runs"
    own = f"A run of the job takes {format_hours_range(job.hours)} on it and ${job.own_usd.format()} of electricity"
    return f"{own}; rented, {job.rented_as} costs ${job.rented_usd.format()}: {runs}."


def _format_breakeven_hours(b: BreakEven) -> str:
    return "never" if b.hours is None else f"{b.hours:,.0f} hours"


def _build_breakeven_row(b: BreakEven) -> tuple[str, str, str]:
    return (
        "never" if b.hours is None else f"{b.hours:,.0f}",
        "-" if b.weeks is None else f"{b.weeks:,.1f}",
        "-" if b.months is None else f"{b.months:,.1f}",
    )


def _round_hours(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
