"""Asks of Vast's hosts, and the least bids, from the public search of its marketplace: the cheapest few of each kind.

    POST /api/v0/bundles/  {"verified": {"eq": true}, "rentable": {"eq": true}, "gpu_name": {"in": ["H100 SXM", ...]}, ...}
    {"offers": [{"id": 1, "machine_id": 7, "gpu_name": "H100 SXM", "num_gpus": 8, "gpu_ram": 81559, "dph_base": 17.6,
                 "dph_total": 17.613, "storage_total_cost": 0.0133, "min_bid": 9.6, "geolocation": "Texas, US", ...}]}

A price is of the whole machine. It is `dph_base`, the part of the GPUs, as in the offers of an account (costguard_vast): disk
and traffic are extra. Without it, `dph_total` less `storage_total_cost`. `min_bid` is the least bid that is taken, and rents
nothing by itself. A100s of both sizes have one name; `gpu_ram` in MB tells them apart.

A broad search ends near 64 rows, so GPUs are searched in groups, those of data centres in small ones; at most ten searches, as
Vast allows in a minute. A search without a key counts to a daily quota by address. Sources: `providers/vast.md` section 4 and
its specs/vast-openapi.yaml; dstackai/gpuhunt providers/vastai.py; `providers/public-prices.md`, 2026-11-23.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from decimal import Decimal

from costguard.errors import ProviderError
from costguard.providers.ports.price_source import PriceFetcher, PriceSourceFacts
from costguard.quoting.offer import BID, Offer, OfferListing
from costguard.values.gpu import GpuNames
from costguard.values.resource import SPOT
from costguard_public.rows import (
    MIB,
    UNREADABLE,
    MachinePrice,
    Row,
    RowCollector,
    decode_json,
    get_nano,
    parse_count,
    parse_decimal,
    parse_size,
    take_rows,
    take_text,
)

PROVIDER, TITLE = "vast", "Vast's marketplace"
GROUPS = (
    ("H100 SXM", "H100 NVL", "H100 PCIE"),
    ("H200", "H200 NVL", "B200", "B300", "GH200 SXM"),
    ("A100 SXM4", "A100 PCIE", "A800 PCIE"),
    ("L40S", "L40", "L4", "A40", "A30", "A10"),
    ("RTX PRO 6000 WS", "RTX PRO 6000 S", "RTX PRO 5000", "RTX PRO 4500", "RTX PRO 4000"),
    (
        "RTX 6000Ada",
        "RTX 5880Ada",
        "RTX 5000Ada",
        "RTX 4500Ada",
        "RTX 4000Ada",
        "RTX A6000",
        "RTX A5000",
        "RTX A4500",
        "RTX A4000",
    ),
    ("RTX 5090", "RTX 4090", "RTX 4090D"),
    ("RTX 5080", "RTX 5070 Ti", "RTX 5070", "RTX 5060 Ti", "RTX 4080", "RTX 4080S", "RTX 4070S Ti", "RTX 4070 Ti", "RTX 4070S"),
    ("RTX 3090", "RTX 3090 Ti", "RTX 3080 Ti", "RTX 3080", "RTX 3060", "RTX 4060 Ti"),
    ("Tesla V100", "Tesla T4", "Tesla P100", "Tesla P40", "Q RTX 8000", "Q RTX 6000", "Titan RTX", "RTX 2080 Ti"),
)
"""What Vast calls GPUs on the wire (`providers/vast.md` section 4, 2026-11-21), one search a line; ten searches a minute."""

SEARCH_ROWS, BROAD_ROWS = 1000, 64
"""Rows that one search asks for, and near how many a broad one ends."""

MOST_BYTES = 8 * MIB
KEPT = 3
"""Asks, and as many bids, that are kept of each GPU, count and country: more would only make the market larger."""

MB_PER_GIB = 1024


class VastSource:
    """See the module."""

    facts = PriceSourceFacts(
        name="vast",
        title=TITLE,
        endpoint="https://console.vast.ai",
        providers=(PROVIDER,),
        terms="search of the marketplace without a key, ten a minute and a daily quota by address; Vast's terms of service",
        size=f"{len(GROUPS)} answers, up to 3 MB each",
        freshness="of the moment; asks change within hours",
        checked_on=date(2026, 11, 23),
        order=10,
    )

    def list_public_offers(self, fetch: PriceFetcher, gpus: GpuNames) -> Mapping[str, OfferListing]:
        """Return the cheapest verified asks of each GPU, number of GPUs and country, and the cheapest least bids."""
        collector = RowCollector(gpus=gpus, provider=PROVIDER, source="POST /api/v0/bundles", observed_on=fetch.today)
        whys = list[str]()
        offers = [offer for row in _search_groups(fetch, whys) for offer in _make_offers(row, collector)]
        return {PROVIDER: collector.build_listing(offers=_select_cheapest(offers), why="; ".join(whys))}


def _search_groups(fetch: PriceFetcher, whys: list[str]) -> Iterator[Row]:
    """Yield the rows of all searches. After one that fails no more are sent; the first must succeed."""
    for number, names in enumerate(GROUPS):
        try:
            body = fetch.post("/api/v0/bundles/", _write_query(names), most_bytes=MOST_BYTES).body
            rows = take_rows(decode_json(body, TITLE), ("offers",), TITLE)
        except ProviderError as failed:
            if not number:
                raise
            whys.append(f"not queried for {', '.join(name for group in GROUPS[number:] for name in group)}: {failed.what}")
            return
        if len(rows) == BROAD_ROWS or len(rows) >= SEARCH_ROWS:
            whys.append(f"only the {len(rows)} cheapest of {', '.join(names)} were listed")
        yield from rows[:SEARCH_ROWS]


def _write_query(names: Sequence[str]) -> bytes:
    query = {
        "verified": {"eq": True},
        "rentable": {"eq": True},
        "rented": {"eq": False},
        "external": {"eq": False},
        "gpu_name": {"in": list(names)},
        "order": [["dph_total", "asc"]],
        "type": "on-demand",
        "limit": SEARCH_ROWS,
        "allocated_storage": 10.0,
    }
    return json.dumps(query).encode()


def _make_offers(row: Row, collector: RowCollector) -> Iterator[Offer]:
    """Yield the ask of a machine, and its least bid where one is stated."""
    if row.get("rentable") is False or take_text(row, "verification") not in ("", "verified"):
        return
    name, count = take_text(row, "gpu_name"), parse_count(row.get("num_gpus"))
    if not name or count is None:
        collector.leave_out(UNREADABLE)
        return
    gpu = _find_gpu(name, parse_size(row.get("gpu_ram"), MB_PER_GIB), collector)
    if gpu is None:
        return
    ask, bid = _find_ask(row), row.get("min_bid")
    for tier, price in (("on-demand", ask), *(((SPOT, bid),) if _is_offered(bid) else ())):
        offer = collector.make_offer(
            MachinePrice(
                region=take_text(row, "geolocation") or "unknown",
                instance_type=f"{gpu} x{count}",
                gpu=gpu,
                gpu_count=count,
                tier=tier,
                price=price,
                on_demand_price=ask if tier == SPOT else None,
                pricing="dynamic",
                drift=BID if tier == SPOT else "",
                vcpus=parse_size(row.get("cpu_cores_effective")),
                ram_gb=_compute_ram_gb(row),
                disk_gb=parse_size(row.get("disk_space")),
                note=_write_note(row, tier),
            )
        )
        if offer is not None:
            yield offer


def _find_gpu(name: str, vram_gb: float | None, collector: RowCollector) -> str | None:
    """Return the canonical GPU; a stated size that fits none is ignored where the name alone is clear."""
    sized = collector.match_gpu(name, vram_gb=vram_gb) if vram_gb is not None else None
    if sized is not None:
        return sized.canonical
    match = collector.find_gpu(name)
    return None if match is None or match.taken_as_short else match.canonical


def _find_ask(row: Row) -> object:
    """Return the hourly price of the machine's GPUs."""
    if row.get("dph_base") is not None:
        return row["dph_base"]
    total, disk = parse_decimal(row.get("dph_total")), parse_decimal(row.get("storage_total_cost")) or Decimal(0)
    return total - disk if total is not None and 0 <= disk < total else total


def _is_offered(bid: object) -> bool:
    return bid is not None and parse_decimal(bid) != 0


def _compute_ram_gb(row: Row) -> float | None:
    """Return the offer's share of the machine's main memory, by cores; `cpu_cores` may be null."""
    ram, cores, all_cores = (parse_size(row.get(key)) for key in ("cpu_ram", "cpu_cores_effective", "cpu_cores"))
    return round(ram * min(cores / all_cores, 1.0) / 1000, 3) if ram and cores and all_cores else None


def _write_note(row: Row, tier: str) -> str:
    machine, kind = parse_decimal(row.get("machine_id")), parse_decimal(row.get("hosting_type"))
    reliability = parse_decimal(row.get("reliability2"))
    return ", ".join(
        filter(
            None,
            (
                f"machine {int(machine)}" if machine is not None else "",
                take_text(row, "verification"),
                f"reliability {float(reliability):.1%}" if reliability is not None and 0 <= reliability <= 1 else "",
                "datacenter" if kind == 1 else "",
                "the least bid that is taken; outbid, it stops" if tier == SPOT else "disk and traffic extra",
            ),
        )
    )


def _select_cheapest(offers: Iterable[Offer]) -> list[Offer]:
    """Return the KEPT cheapest offers of each tier, GPU, count and country ("US" of "Texas, US")."""
    kinds: defaultdict[tuple[str, str, int, str], list[Offer]] = defaultdict(list)
    for offer in offers:
        country = offer.region.rpartition(",")[2].strip()
        kinds[offer.tier, offer.gpu, offer.gpu_count, country].append(offer)
    return [offer for kind in kinds.values() for offer in sorted(kind, key=get_nano)[:KEPT]]


source = VastSource()
