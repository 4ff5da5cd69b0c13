"""A price list as Google writes one, for the machines of a fake: with the traps of the real one in it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from costguard_gcp.machine_types import MachineShape, find_shape, parse_family

NANO = 10**9
SSD_MONTH_NANO = 730_000
"""Nano-USD per GiB-month of local SSD: a whole number an hour."""

NAMES = {
    "nvidia-tesla-a100": "Nvidia Tesla A100 GPU",
    "nvidia-a100-80gb": "Nvidia Tesla A100 80GB GPU",
    "nvidia-l4": "Nvidia L4 GPU",
    "nvidia-tesla-t4": "Nvidia Tesla T4 GPU",
    "nvidia-tesla-v100": "Nvidia Tesla V100 GPU",
    "nvidia-h100-80gb": "Nvidia H100 80GB GPU",
    "nvidia-h100-mega-80gb": "Nvidia H100 80GB Mega GPU",
    "nvidia-h200-141gb": "H200 141GB GPU",
    "nvidia-rtx-pro-6000": "RTX 6000 96GB",
}
FAMILIES = {"a3plus": "A3Plus", "a3ultra": "A3Ultra", "n1": "N1 Predefined", "n2d": "N2D AMD"}


@dataclass(frozen=True, slots=True)
class Listed:
    """`type` costs `nano` an hour in `region`."""

    type: str
    region: str
    tier: str
    nano: int


def sku(
    description: str, region: str, nano: int, *, usage: str = "OnDemand", unit: str = "h", group: str = "CPU"
) -> dict[str, Any]:
    """One SKU; whole dollars are text, and left out where there are none."""
    price: dict[str, Any] = {"currencyCode": "USD", "nanos": nano % NANO}
    if nano >= NANO:
        price["units"] = str(nano // NANO)
    family = "Storage" if unit == "GiBy.mo" else "Compute"
    return {
        "name": f"services/6F81-5844-456A/skus/{abs(hash(description + region)) % 16**4:04X}",
        "skuId": "0000-0000-0000",
        "description": description,
        "category": {
            "serviceDisplayName": "Compute Engine",
            "resourceFamily": family,
            "resourceGroup": group,
            "usageType": usage,
        },
        "serviceRegions": [region],
        "pricingInfo": [
            {
                "summary": "",
                "pricingExpression": {
                    "usageUnit": unit,
                    "displayQuantity": 1,
                    "tieredRates": [{"startUsageAmount": 0, "unitPrice": price}],
                },
                "effectiveTime": "2026-11-20T08:00:00Z",
            }
        ],
        "serviceProviderName": "Google",
    }


STORAGE = {
    "pd-balanced": ("Balanced PD Capacity in Moon", "GiBy.mo"),
    "pd-ssd": ("SSD backed PD Capacity in Moon", "GiBy.mo"),
    "pd-ssd-regional": ("Regional SSD backed PD Capacity in Moon", "GiBy.mo"),
    "hyperdisk-balanced": ("Hyperdisk Balanced Capacity in Moon", "GiBy.mo"),
    "hyperdisk-balanced-iops": ("Hyperdisk Balanced IOPS in Moon", "mo"),
    "hyperdisk-balanced-mibps": ("Hyperdisk Balanced Throughput in Moon", "mo"),
    "local-ssd": ("SSD backed Local Storage in Moon", "GiBy.mo"),
    "address": ("Static Ip Charge in Moon", "h"),
}
"""Line -> description and unit, as public readers of the catalogue quote them, 2026-11."""


def storage_sku(line: str, region: str, nano: int) -> dict[str, Any]:
    """One SKU of storage or of an idle address; the first hour of an address is free."""
    description, unit = STORAGE[line]
    made = sku(description, region, nano, unit=unit, group="Storage")
    made["category"]["resourceFamily"] = "Network" if line == "address" else "Storage"
    if line == "address":
        rates = made["pricingInfo"][0]["pricingExpression"]["tieredRates"]
        rates[0]["startUsageAmount"] = 1
        rates.insert(0, {"startUsageAmount": 0, "unitPrice": {"currencyCode": "USD", "nanos": 0}})
    return made


def price_list(listed: Iterable[Listed]) -> list[dict[str, Any]]:
    """SKUs that add up to every price of `listed`, to a few nano-dollars an hour."""
    skus = dict[str, dict[str, Any]]()
    for one in listed:
        shape = find_shape(one.type)
        if shape is not None:
            skus |= {f"{made['description']}|{one.region}": made for made in _of(one, shape)}
    return [*skus.values(), *_traps()]


def _of(one: Listed, shape: MachineShape) -> list[dict[str, Any]]:
    spot = one.tier == "spot"
    core, ram, gpu = parted(one.nano, shape)
    usage = "Preemptible" if spot else "OnDemand"
    family = FAMILIES.get(parse_family(one.type), parse_family(one.type).upper())
    start, at = ("Spot Preemptible ", "attached to Spot Preemptible VMs running in Moon") if spot else ("", "running in Moon")
    made = [
        sku(f"{start}{family} Instance Core running in Moon", one.region, core, usage=usage),
        sku(f"{start}{family} Instance Ram running in Moon", one.region, ram, usage=usage, unit="GiBy.h", group="RAM"),
    ]
    if shape.gpus:
        made.append(sku(f"{NAMES[shape.accelerator]} {at}", one.region, gpu, usage=usage, group="GPU"))
    if shape.ssd_gib:
        words = "SSD backed Local Storage" + (" attached to Spot Preemptible VMs" if spot else "")
        made.append(sku(words, one.region, SSD_MONTH_NANO, unit="GiBy.mo", group="LocalSSD"))
    return made


def parted(nano: int, shape: MachineShape) -> tuple[int, int, int]:
    """`nano` an hour as the price of one core, one GiB and one GPU."""
    rest = nano - shape.ssd_gib * SSD_MONTH_NANO // 730
    if not shape.gpus:
        core = max(1, rest // 2 // int(shape.vcpus))
        return core, max(1, int((rest - core * shape.vcpus) / shape.ram_gib)), 0
    core, ram = max(1, rest // 20 // int(shape.vcpus)), max(1, int(rest / 20 / shape.ram_gib))
    return core, ram, int((rest - core * shape.vcpus - ram * shape.ram_gib) / shape.gpus)


def _traps() -> list[dict[str, Any]]:
    """SKUs that must not be taken for others (gcp.md, section 3), each at a price that would show."""
    far = 77 * NANO
    return [
        sku("Nvidia L4 GPU attached to DWS Defined Duration VMs running in Moon", "us-central1", far, group="GPU"),
        sku("Spot Preemptible A4 Nvidia B200 (1 gpu slice) running in Moon", "us-central1", 4_954_200_000, group="GPU"),
        sku("A4 Nvidia B200 (1 gpu slice) running in Moon", "us-central1", 16_110_000_000, group="GPU"),
        sku("Commitment v1: G2 Cpu in Moon for 1 Year", "us-central1", far, usage="Commit1Yr"),
        sku("G2 Sole Tenancy Instance Core running in Moon", "us-central1", far),
        sku("Nvidia L4 Virtual Workstation GPU running in Moon", "us-central1", far, group="GPU"),
        sku("Nvidia L40 GPU running in Moon", "us-central1", far, group="GPU"),
        sku("Reserved G2 Core in Moon", "us-central1", far),
        sku("DWS Calendar Mode G2 Instance Core running in Moon", "us-central1", far),
        sku("N2 Custom Instance Core running in Moon", "us-central1", far),
        sku("Nvidia L4 GPU running in Moon", "us-central1", 0, group="GPU"),
        sku("TpuV6e running in Moon", "us-central1", far, group="TPU"),
        sku("Hyperdisk Balanced Capacity - Confidential Mode in Moon", "us-central1", far, unit="GiBy.mo"),
        sku("Hyperdisk Balanced Storage Pools Standard Capacity in Moon", "us-central1", far, unit="GiBy.mo"),
        sku("Storage PD Snapshot in Moon", "us-central1", far, unit="GiBy.mo"),
        sku("Commitment v1: Local SSD In Moon", "us-central1", far, usage="Commit1Yr", unit="GiBy.mo"),
    ]
