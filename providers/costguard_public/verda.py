"""Verda's (formerly DataCrunch's) prices, from its public list of machine types.

    GET /v1/instance-types?currency=usd
    [{"instance_type": "8H100.80S.176V", "price_per_hour": "19.12", "spot_price": "6.69", "currency": "usd",
      "gpu": {"description": "8x H100 SXM5 80GB", "number_of_gpus": 8}, "gpu_memory": {"size_in_gigabytes": 640},
      "cpu": {"number_of_cores": 176}, "memory": {"size_in_gigabytes": 1480}}]

A price holds in every location. Prices are text or numbers. `price_per_hour` is the fixed price; dynamic prices are fields of
their own. Sources: `providers/verda.md`; the OpenAPI file of api.verda.com, which allows the call without a key (2026-09-06);
dstackai/gpuhunt providers/verda.py for the descriptions. The endpoint was keyless in two collectors, and may close.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date

from costguard.providers.ports.price_source import PriceFetcher, PriceSourceFacts
from costguard.quoting.offer import OfferListing
from costguard.values.gpu import GpuNames
from costguard.values.resource import SPOT
from costguard_public.rows import (
    MIB,
    OTHER_CURRENCY,
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

PROVIDER, TITLE = "verda", "Verda's machine types"
PATH, MOST_BYTES = "/v1/instance-types?currency=usd", 4 * MIB
COUNTED = re.compile(r"^\d{1,3}x\s+")
SIZE = re.compile(r"\s+\d{1,4}\s?GB$")
"""Left to `gpu_memory`, which is compared with a tolerance: a B300 is described as 262 GB, and has 288."""

RUN_TOGETHER = re.compile(r"^RTX(?=\d)")


class VerdaSource:
    """See the module."""

    facts = PriceSourceFacts(
        name="verda",
        title=TITLE,
        endpoint="https://api.verda.com",
        providers=(PROVIDER,),
        terms="the API's description allows this call without a key; Verda's terms of service",
        size="1 answer, under 100 kB",
        freshness="of the moment; spot prices move",
        checked_on=date(2026, 11, 23),
        order=10,
    )

    def list_public_offers(self, fetch: PriceFetcher, gpus: GpuNames) -> Mapping[str, OfferListing]:
        """Return every type with GPUs, on demand and as spot."""
        collector = RowCollector(gpus=gpus, provider=PROVIDER, source="GET /v1/instance-types", observed_on=fetch.today)
        for row in take_rows(decode_json(fetch.get(PATH, most_bytes=MOST_BYTES).body, TITLE), (), TITLE):
            _add_type(row, collector)
        return {PROVIDER: collector.build_listing()}


def _add_type(row: Row, collector: RowCollector) -> None:
    number = parse_decimal(take_object(row, "gpu").get("number_of_gpus"))
    if row and number == 0:
        return  # a machine without GPUs
    name, described = take_text(row, "instance_type"), take_text(take_object(row, "gpu"), "description")
    count = parse_count(number)
    if not name or not described or count is None:
        collector.leave_out(UNREADABLE)
        return
    if take_text(row, "currency").lower() not in ("", "usd"):
        collector.leave_out(OTHER_CURRENCY)
        return
    vram = parse_size(take_object(row, "gpu_memory").get("size_in_gigabytes"), count)
    card = COUNTED.sub("", described)
    gpu = collector.find_gpu(RUN_TOGETHER.sub("RTX ", SIZE.sub("", card) if vram else card), vram_gb=vram)
    if gpu is None:
        return
    spot = row.get("spot_price", row.get("spot_price_per_hour"))
    prices = [("on-demand", row.get("price_per_hour"))]
    prices += [] if spot is None or parse_decimal(spot) == 0 else [(SPOT, spot)]  # none, or 0: not sold as spot
    for tier, price in prices:
        collector.add(
            MachinePrice(
                region="global",
                instance_type=name,
                gpu=gpu.canonical,
                gpu_count=count,
                tier=tier,
                price=price,
                on_demand_price=row.get("price_per_hour") if tier == SPOT else None,
                pricing="dynamic" if tier == SPOT else "standard",
                vcpus=parse_size(take_object(row, "cpu").get("number_of_cores")),
                ram_gb=parse_size(take_object(row, "memory").get("size_in_gigabytes")),
                note="form of the GPU not stated" if gpu.taken_as_short else "",
            )
        )


source = VerdaSource()
