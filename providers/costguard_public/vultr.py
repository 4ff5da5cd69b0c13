"""Vultr's list prices of whole GPUs, virtual and bare metal, in each location that sells them.

    GET /v2/plans?type=all&per_page=500&cursor=...     GET /v2/plans-metal?per_page=500
    {"plans": [{"id": "vcg-a100-12c-120g-80vram", "type": "vcg", "gpu_type": "NVIDIA_A100", "gpu_vram_gb": 80, "vcpu_count": 12,
                "ram": 122880, "disk": 1400, "monthly_cost": 1750, "hourly_cost": 2.397, "locations": ["ewr"]}],
     "meta": {"total": 1, "links": {"next": "", "prev": ""}}}

`gpu_vram_gb` is of the plan: 80 of an A100 with 80 GB is one GPU, 40 is half of one and left out. Newer answers state
`gpu_count`, "1/4" for a share. Bare-metal plans name their GPU in the id only: vbm-112c-2048gb-8-h100-gpu. RAM is in MB.
Plans that cannot be rented on demand (`deploy_ondemand` false), or in no location, are no offers; nor are preemptible prices,
whose terms are not known.
Sources: dstackai/gpuhunt providers/vultr.py (2026-08) and its tests; Vultr's pages of plans; `providers/public-prices.md`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import date
from decimal import Decimal
from urllib.parse import quote

from costguard.providers.ports.price_source import PriceFetcher, PriceSourceFacts
from costguard.quoting.offer import OfferListing
from costguard.values.gpu import GpuNames
from costguard_public.rows import (
    MIB,
    UNREADABLE,
    MachinePrice,
    Row,
    RowCollector,
    decode_json,
    parse_count,
    parse_decimal,
    parse_size,
    take_object,
    take_rows,
    take_text,
)

PROVIDER, TITLE = "vultr", "Vultr's plans"
MOST_PAGES, MOST_BYTES = 10, 4 * MIB
MOST_LOCATIONS = 100
HOURS_OF_MONTH = 730
"""What Vultr divides a monthly price by (gpuhunt: 730; its hourly prices are the monthly ones over 730 or 672)."""

MB_PER_GB = 1024
VRAM_GB: Mapping[str, int] = {
    "A16": 16,
    "A40": 48,
    "A100": 80,
    "L40S": 48,
    "GH200": 96,
    "H100": 80,
    "B200": 192,
    "MI300X": 192,
    "MI325X": 256,
    "MI355X": 288,
}
"""Memory by which Vultr counts a GPU, in GB (gpuhunt providers/vultr.py, 2026-08)."""

COUNTS = (1, 2, 4, 8, 16)
"""Sold numbers of GPUs. 1,536 GB of MI325X would be six: the plan is documented as eight, and one of the two is wrong."""

VIRTUAL = re.compile(r"vcg-([a-z0-9]+)-.*?-(\d{1,5})vram")
BARE_METAL = re.compile(r"vbm-\d+c-\d+gb-(?:(\d{1,2})-)?([a-z0-9]+)-gpu")
RENAMED = {"vbm-64c-2048gb-8-l40-gpu": "L40S"}
"""Plans whose id names another GPU than they hold (gpuhunt providers/vultr.py)."""


class VultrSource:
    """See the module."""

    facts = PriceSourceFacts(
        name="vultr",
        title=TITLE,
        endpoint="https://api.vultr.com",
        providers=(PROVIDER,),
        terms="documented API, no key for plans; Vultr's terms of service",
        size="2 answers, about 0.3 MB",
        freshness="list prices of the moment, and the locations that sell them",
        checked_on=date(2026, 11, 23),
        order=10,
    )

    def list_public_offers(self, fetch: PriceFetcher, gpus: GpuNames) -> Mapping[str, OfferListing]:
        """Return every plan with whole GPUs in each of its locations."""
        collector = RowCollector(gpus=gpus, provider=PROVIDER, source="GET /v2/plans", observed_on=fetch.today)
        whys = list[str]()
        for row in _list_plans(fetch, "/v2/plans?type=all&per_page=500", "plans", whys):
            if take_text(row, "type") in ("vcg", "vdm") or not row:
                _add_plan(row, _find_virtual_gpus(row), "vcpu_count", collector)
        for row in _list_plans(fetch, "/v2/plans-metal?per_page=500", "plans_metal", whys):
            if take_text(row, "id").endswith("-gpu") or not row:
                _add_plan(row, _find_metal_gpus(take_text(row, "id")), "cpu_threads", collector)
        return {PROVIDER: collector.build_listing(why="; ".join(whys))}


def _list_plans(fetch: PriceFetcher, path: str, key: str, whys: list[str]) -> Iterator[Row]:
    """Yield the plans of all pages; a list that does not end after MOST_PAGES is noted in `whys`."""
    cursor, cursors = "", set[str]()
    for _ in range(MOST_PAGES):
        page_path = f"{path}&cursor={quote(cursor, safe='')}" if cursor else path
        answer = decode_json(fetch.get(page_path, most_bytes=MOST_BYTES).body, TITLE)
        yield from take_rows(answer, (key,), TITLE)
        links = take_object(take_object(answer if isinstance(answer, dict) else {}, "meta"), "links")
        cursors.add(cursor)
        following = links.get("next")
        cursor = following if isinstance(following, str) and len(following) <= 1000 else ""  # noqa: PLR2004 - a cursor has about 30
        if not cursor:
            return
        if cursor in cursors:
            break
    whys.append(f"the list of {key} did not end after {len(cursors)} pages")


def _find_virtual_gpus(row: Row) -> tuple[str, int] | str:
    """Return the GPU and count of a virtual plan, "" for a share of a GPU, or why they cannot be read."""
    match = VIRTUAL.fullmatch(take_text(row, "id"))
    vendor, _, model = take_text(row, "gpu_type").partition("_")
    name = (model if vendor and model else match[1] if match else "").upper()
    total = parse_decimal(row.get("gpu_vram_gb"))
    if total is None and match:
        total = Decimal(match[2])
    if not name or total is None:
        return UNREADABLE
    if "gpu_count" in row:
        count = parse_count(row["gpu_count"])
        return (name, count) if count else ""
    size = VRAM_GB.get(name)
    if size is None:
        return name, 1  # unknown here: the listing will name it
    if total < size:
        return ""
    return (name, int(total / size)) if total % size == 0 and total / size in COUNTS else UNREADABLE


def _find_metal_gpus(plan: str) -> tuple[str, int] | str:
    """Return the GPU and count that the id of a bare-metal plan names, or why they cannot be read."""
    match = BARE_METAL.fullmatch(plan)
    return (RENAMED.get(plan, match[2].upper()), int(match[1] or 1)) if match else UNREADABLE


def _add_plan(row: Row, gpus: tuple[str, int] | str, cores: str, collector: RowCollector) -> None:
    if row.get("deploy_ondemand") is False or gpus == "":
        return
    plan, locations = take_text(row, "id"), row.get("locations")
    if isinstance(gpus, str) or not plan or not isinstance(locations, list):
        collector.leave_out(UNREADABLE)
        return
    name, count = gpus
    gpu = collector.find_gpu(name, vram_gb=VRAM_GB.get(name))
    price, notes = _find_price(row)
    if gpu is None:
        return
    notes += ["form of the GPU not stated"] if gpu.taken_as_short else []
    for region in [place for place in locations if isinstance(place, str) and place][:MOST_LOCATIONS]:
        collector.add(
            MachinePrice(
                region=take_text({"region": region}, "region"),
                instance_type=plan,
                gpu=gpu.canonical,
                gpu_count=count,
                tier="on-demand",
                price=price,
                vcpus=parse_size(row.get(cores)),
                ram_gb=parse_size(row.get("ram"), MB_PER_GB),
                disk_gb=parse_size(row.get("disk")),
                note=", ".join(notes),
            )
        )


def _find_price(row: Row) -> tuple[object, list[str]]:
    """Return the hourly price, or the monthly one by the hour with a note."""
    if row.get("hourly_cost") is not None:
        return row["hourly_cost"], []
    monthly = parse_decimal(row.get("monthly_cost"))
    return (None if monthly is None else (monthly / HOURS_OF_MONTH).quantize(Decimal("0.0001"))), [
        "monthly price over 730 hours"
    ]


source = VultrSource()
