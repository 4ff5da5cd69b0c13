"""Compute Engine's offers by its price list: GPU machine types in every region in which all parts have a price.

Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from costguard.quoting.offer import Offer, OfferListing
from costguard.values.gpu import GpuNames
from costguard_gcp.machine_types import NOT_ON_DEMAND, TABLE, MachineShape, find_shape
from costguard_gcp.price_list import ON_DEMAND, SOURCE, SPOT, PriceList, compute_rate

Sold = tuple[str, MachineShape, tuple[tuple[str, int], ...]]
"""Its name, its machine type, the GPUs attached to it."""

ATTACHED = (
    ("nvidia-tesla-t4", ((1, 8), (2, 16), (4, 32))),
    ("nvidia-tesla-p4", ((1, 8), (2, 16), (4, 32))),
    ("nvidia-tesla-v100", ((1, 8), (2, 16), (4, 32), (8, 64))),
    ("nvidia-tesla-p100", ((1, 8), (2, 16), (4, 32))),
)
"""GPUs that N1 machines can have, and the size offered with each count: gcp_machine_gpus.csv; the sizes are a choice."""

NOTE = "list price; whether there is capacity is not known"


def list_offers(listed: PriceList, names: GpuNames, gpus: Collection[str] | None) -> OfferListing:
    """Return on-demand and spot offers of the canonical `gpus`, None: any GPU.

    A type with a slice of a GPU is left out.
    """
    regions = sorted({key.rsplit("|", 1)[-1] for key in listed.prices})
    offers, unnamed = list[Offer](), dict[str, None]()
    for sold in _list_sold():
        accelerator = sold[2][0][0] if sold[2] else sold[1].accelerator
        name = names.find(accelerator)
        if name is None:
            unnamed[accelerator] = None
        elif gpus is None or name.canonical in gpus:
            offers += [one for region in regions for one in _list_offers_in(region, sold, name.canonical, listed)]
    return OfferListing(offers=tuple(offers), unnamed=tuple(unnamed))


def _list_sold() -> Iterator[Sold]:
    for name, one in TABLE.items():
        if one.gpus >= 1:
            yield name, one, ()
    for accelerator, sizes in ATTACHED:
        for count, vcpus in sizes:
            host = find_shape(f"n1-standard-{vcpus}")
            if host is not None:
                yield f"{host.name}+{accelerator}x{count}", host, ((accelerator, count),)


def _list_offers_in(region: str, sold: Sold, gpu: str, listed: PriceList) -> Iterator[Offer]:
    name, shape, attached = sold
    for tier in (ON_DEMAND, SPOT):
        if tier == ON_DEMAND and name.startswith(NOT_ON_DEMAND):
            continue
        rate, _ = compute_rate(shape, attached, tier, region, listed.prices)
        if rate is not None:
            yield Offer(
                provider="gcp",
                region=region,
                instance_type=name,
                gpu=gpu,
                gpu_count=attached[0][1] if attached else int(shape.gpus),
                tier=tier,
                rate=rate,
                observed_on=listed.at.date(),
                source=SOURCE,
                pricing="dynamic" if tier == SPOT else "standard",
                vcpus=shape.vcpus,
                ram_gb=shape.ram_gib,
                disk_gb=shape.ssd_gib or None,
                note=NOTE,
            )
