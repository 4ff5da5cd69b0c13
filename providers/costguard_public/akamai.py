"""Akamai's (Linode's) list prices, from the public list of its machine types.

    GET /v4/linode/types?page=1&page_size=500
    {"data": [{"id": "g2-gpu-rtx4000a1-s", "class": "gpu", "gpus": 1, "vcpus": 4, "memory": 16384, "disk": 524288,
               "price": {"hourly": 0.52, "monthly": 350.0}, "region_prices": [{"id": "id-cgk", "hourly": 0.62, ...}]}],
     "page": 1, "pages": 1, "results": 1}

Memory and disk are in MB. A price holds in every region but those of `region_prices`. The RTX 6000 is the Turing card of 24 GB.
Blackwell types are shown to granted accounts only. Class "accelerated" holds video cards (NETINT), no GPUs.
Sources: hemgo-lexsi/gpu-price-dashboard scripts/fetch_prices.py (2026-08-22); linode's OpenAPI; `providers/public-prices.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date

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
    parse_size,
    take_object,
    take_rows,
    take_text,
)

PROVIDER, TITLE = "akamai", "Akamai's machine types"
MOST_PAGES, MOST_BYTES = 10, 4 * MIB
MB_PER_GB = 1024
CARDS = {
    "rtxpro6000": "RTX-PRO-6000-Blackwell-Server",
    "rtx4000a": "RTX-4000-Ada",
    "rtx6000": "Quadro-RTX-6000",
}
"""Part of a type's id -> our name; "g1-gpu-rtx6000-1" has 24 GB (hemgo, 2026-08-22), "rtx4000a" means Ada."""


class AkamaiSource:
    """See the module."""

    facts = PriceSourceFacts(
        name="akamai",
        title=TITLE,
        endpoint="https://api.linode.com",
        providers=(PROVIDER,),
        terms="public endpoint of Linode's API, no key; Akamai's terms of service",
        size="1 answer, about 60 kB",
        freshness="list prices of the moment; a change is announced weeks ahead",
        checked_on=date(2026, 11, 23),
        order=10,
    )

    def list_public_offers(self, fetch: PriceFetcher, gpus: GpuNames) -> Mapping[str, OfferListing]:
        """Return every type of class "gpu", in all regions and where a region has its own price."""
        collector = RowCollector(gpus=gpus, provider=PROVIDER, source="GET /v4/linode/types", observed_on=fetch.today)
        why, page, pages = "", 1, 1
        while page <= pages and not why:
            answer = decode_json(fetch.get(f"/v4/linode/types?page={page}&page_size=500", most_bytes=MOST_BYTES).body, TITLE)
            for row in take_rows(answer, ("data",), TITLE):
                if take_text(row, "class") == "gpu" or not row:
                    _add_type(row, collector)
            page_count = answer.get("pages") if isinstance(answer, dict) else None
            pages, page = (page_count if isinstance(page_count, int) else 1), page + 1
            why = f"only {MOST_PAGES} of {pages} pages were read" if page > MOST_PAGES and page <= pages else ""
        return {PROVIDER: collector.build_listing(why=why)}


def _add_type(row: Row, collector: RowCollector) -> None:
    name, count = take_text(row, "id"), parse_count(row.get("gpus"))
    if not name or count is None:
        collector.leave_out(UNREADABLE)
        return
    card = next((model for part, model in CARDS.items() if part in name), name)
    gpu = collector.find_gpu(card)
    if gpu is None:
        return
    regional = row.get("region_prices")
    prices = [("global", take_object(row, "price"))]
    prices += [(take_text(one, "id"), one) for one in regional if isinstance(one, dict)] if isinstance(regional, list) else []
    for region, price in prices:
        collector.add(
            MachinePrice(
                region=region,
                instance_type=name,
                gpu=gpu.canonical,
                gpu_count=count,
                tier="on-demand",
                price=price.get("hourly"),
                vcpus=parse_size(row.get("vcpus")),
                ram_gb=parse_size(row.get("memory"), MB_PER_GB),
                disk_gb=parse_size(row.get("disk"), MB_PER_GB),
                note="dearer in some regions" if region == "global" and len(prices) > 1 else "",
            )
        )


source = AkamaiSource()
