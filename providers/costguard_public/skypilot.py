"""SkyPilot's catalogue, a fall-back: one CSV a cloud. Asked only for clouds for which no other source answered.

    GET /catalogs/v8/{cloud}/vms.csv

The files state no date. Their bucket says when each was last written (Last-Modified); where a mirror does not, a price may be
as old as the format itself, and is dated from that day to today (`Offer.observed_to`).

Left out: GCP, whose file prices GPUs and hosts apart and mixes SKUs (prices/README.md); Vast, whose asks change daily; shares
of a GPU. RunPod's SpotPrice repeats Price and is not read; its memory sizes are GB in a field called MiB.

Sources: skypilot-org/skypilot-catalog catalogs/v8, stored copies of 2025-08 to 2026-08; its README.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from datetime import date

from costguard.errors import ProviderError
from costguard.providers.ports.price_source import PriceFetcher, PriceSourceFacts
from costguard.quoting.offer import OfferListing
from costguard.values.gpu import GpuNames
from costguard.values.resource import COMMUNITY, SPOT
from costguard_public.catalogue import MOST_CATALOGUE_BYTES, CatalogueCollector, CatalogueRow, read_csv_rows
from costguard_public.rows import parse_count, parse_size

CLOUDS = ("aws", "azure", "hyperstack", "lambda", "nebius", "oci", "runpod", "verda")
COLUMNS = ("InstanceType", "AcceleratorName", "AcceleratorCount", "Price", "Region")
WITH_SPOT = ("aws", "azure", "nebius", "oci", "verda")
"""Clouds whose SpotPrice is one."""

FIRST_DAY = date(2025, 8, 1)
"""The earliest day of an undated copy: format v8 began then (the shipped market's oldest copy is e385a0d348ed, "2025-08 or
later")."""

MEMORY = re.compile(r"SizeInMiB\W+(\d{1,9})")
NAME = re.compile(r"""Name['"]+: *['"]+([\w -]{1,60})['"]""")
"""The GPU as its cloud calls it, which says more than AcceleratorName: RunPod's A100-80GB is an "A100 PCIe"."""
LEAST_MIB = 1024
"""A smaller size is in GB: RunPod's file says 80 of an A100."""


class SkyPilotSource:
    """See the module."""

    facts = PriceSourceFacts(
        name="skypilot",
        title="SkyPilot's catalogue",
        endpoint="https://skypilot-catalog.s3.us-east-1.amazonaws.com",
        providers=CLOUDS,
        terms="published for SkyPilot's own clients; Apache-2.0 project, no licence stands beside the data",
        size="8 files, 5 kB to 4 MB",
        freshness="AWS and Lambda every 7 hours, others when somebody does it; undated but for Last-Modified",
        checked_on=date(2026, 11, 23),
        order=80,
        fallback=True,
    )

    def list_public_offers(self, fetch: PriceFetcher, gpus: GpuNames) -> Mapping[str, OfferListing]:
        """Return the offers of all eight clouds."""
        return self.list_offers_of(fetch, gpus, CLOUDS)

    def list_offers_of(self, fetch: PriceFetcher, gpus: GpuNames, providers: Collection[str]) -> Mapping[str, OfferListing]:
        """Return the offers of `providers`; of one that cannot be had an empty listing that says why."""
        listings, failures = dict[str, OfferListing](), list[ProviderError]()
        for cloud in sorted(set(CLOUDS) & set(providers)):
            try:
                listings[cloud] = _list_cloud(cloud, fetch, gpus)
            except ProviderError as failed:
                failures.append(failed)
                listings[cloud] = OfferListing(offers=(), why=failed.what)
        if failures and len(failures) == len(listings):
            raise failures[0]
        return listings


def _list_cloud(cloud: str, fetch: PriceFetcher, gpus: GpuNames) -> OfferListing:
    feed = fetch.get(f"/catalogs/v8/{cloud}/vms.csv", most_bytes=MOST_CATALOGUE_BYTES)
    collector = CatalogueCollector(
        gpus=gpus,
        provider=cloud,
        source=f"SkyPilot catalogue v8 {cloud}" + ("" if feed.as_of else " (undated)"),
        observed_on=feed.as_of or FIRST_DAY,
        observed_to=None if feed.as_of else fetch.today,
    )
    for row in read_csv_rows(feed.body, COLUMNS, f"{cloud}/vms.csv", "skypilot"):
        _add_row(row, cloud, collector)
    return collector.build_listing()


def _add_row(row: Mapping[str, str], cloud: str, collector: CatalogueCollector) -> None:
    """Add the offers of a row; machines without a whole GPU are passed over."""
    count, gpu, machine = parse_count(row.get("AcceleratorCount")), row.get("AcceleratorName") or "", row["InstanceType"]
    if count is None or not gpu:
        return
    info = row.get("GpuInfo") or row.get("GPUInfo") or ""
    memory, name_match = MEMORY.search(info), NAME.search(info)
    prices = [(_name_tier(cloud, machine), row.get("Price") or "")]
    if cloud in WITH_SPOT and row.get("SpotPrice"):
        prices.append((SPOT, row["SpotPrice"]))
    for tier, price in prices:
        if price:  # an empty cell: not sold so
            collector.add_row(
                CatalogueRow(
                    region=(row.get("AvailabilityZone") if cloud == "runpod" else "") or row["Region"],
                    instance_type=machine,
                    gpu_names=tuple(name.removesuffix("-NVLink") for name in (name_match[1] if name_match else gpu, gpu)),
                    gpu_count=count,
                    tier=tier,
                    price=price,
                    vram_gb=_convert_memory(int(memory[1])) if memory else None,
                    vcpus=parse_size(row.get("vCPUs")),
                    ram_gb=parse_size(row.get("MemoryGiB")),
                )
            )


def _convert_memory(size: int) -> float:
    return float(size) if size < LEAST_MIB else size / 1024


def _name_tier(cloud: str, machine: str) -> str:
    if cloud != "runpod":
        return "on-demand"
    return COMMUNITY if machine.upper().endswith("_COMMUNITY") else "secure"


source = SkyPilotSource()
