"""The price list: what a SKU is, and what a machine costs."""

from __future__ import annotations

import csv
import json
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest
from costguard_gcp.machine_types import TABLE, MachineShape, find_shape, parse_shape
from costguard_gcp.price_list import classify_sku, collect_prices, compute_rate, find_disk_price
from costguard_gcp.wire import Sku
from google.cloud.compute_v1 import MachineType

from tests.fakes.gcp_prices import sku

SPECS = Path(__file__).parents[4] / "shared/providers/specs/gcp_machine_gpus.csv"
NANO = 10**9


def prices(*skus: dict[str, object]) -> dict[str, int]:
    """What is kept of `skus`."""
    found: dict[str, int] = {}
    assert collect_prices([msgspec.Raw(json.dumps(one).encode()) for one in skus], found) == 0
    return found


def priced(
    name: str, listed: dict[str, int], tier: str = "on-demand", attached: tuple[tuple[str, int], ...] = ()
) -> str | None:
    """The machine's hourly price in us-central1, as text."""
    rate, why = compute_rate(find_shape(name), attached, tier, "us-central1", listed)
    assert bool(why) == (rate is None)
    return rate.format(6) if rate else None


@pytest.mark.parametrize(
    ("description", "usage", "part"),
    [
        ("A2 Instance Core running in Americas", "OnDemand", ("core:a2", "on-demand")),
        ("A2 Instance Ram running in Iowa", "OnDemand", ("ram:a2", "on-demand")),
        ("A3Plus Instance Core running in Americas", "OnDemand", ("core:a3plus", "on-demand")),
        ("A3 Ultra Instance Core running in Americas", "OnDemand", ("core:a3ultra", "on-demand")),
        ("N1 Predefined Instance Core running in Americas", "OnDemand", ("core:n1", "on-demand")),
        ("N2D AMD Instance Ram running in Americas", "OnDemand", ("ram:n2d", "on-demand")),
        ("Custom Instance Core running in Americas", "OnDemand", ("core:n1 custom", "on-demand")),
        ("N2 Custom Instance Core running in Americas", "OnDemand", ("core:n2 custom", "on-demand")),
        ("Spot Preemptible A2 Instance Core running in Americas", "Preemptible", ("core:a2", "spot")),
        ("Nvidia Tesla A100 GPU running in Americas", "OnDemand", ("gpu:nvidia-tesla-a100", "on-demand")),
        ("Nvidia Tesla A100 80GB GPU running in Americas", "OnDemand", ("gpu:nvidia-a100-80gb", "on-demand")),
        ("Nvidia L4 GPU attached to Spot Preemptible VMs running in Americas", "Preemptible", ("gpu:nvidia-l4", "spot")),
        ("Nvidia L4 GPU attached to DWS Defined Duration VMs running in Iowa", "OnDemand", ("gpu:nvidia-l4", "flex")),
        ("DWS Defined Duration A3 Core running in Americas", "OnDemand", ("core:a3", "flex")),
        ("Nvidia H100 80GB Plus GPU running in Americas", "OnDemand", ("gpu:nvidia-h100-mega-80gb", "on-demand")),
        ("H200 141GB GPU running in Belgium", "OnDemand", ("gpu:nvidia-h200-141gb", "on-demand")),
        ("RTX 6000 96GB running in Oregon", "OnDemand", ("gpu:nvidia-rtx-pro-6000", "on-demand")),
        ("A4 Nvidia B200 (1 gpu slice) running in Netherlands", "OnDemand", ("slice:nvidia-b200", "on-demand")),
        ("Spot Preemptible A4 Nvidia B200 (1 gpu slice) running in Iowa", "OnDemand", ("slice:nvidia-b200", "spot")),
        ("SSD backed Local Storage attached to Spot Preemptible VMs", "OnDemand", ("ssd", "spot")),
        ("SSD backed Local Storage in Tokyo", "OnDemand", ("ssd", "on-demand")),
        ("Commitment v1: Nvidia L4 GPU running in Americas for 1 Year", "Commit1Yr", None),
        ("Nvidia Tesla T4 GPU attached to Sole Tenancy VMs running in Americas", "OnDemand", None),
        ("C3 Sole Tenancy Instance Core running in Americas", "OnDemand", None),
        ("Reserved M4 Core in Americas", "OnDemand", None),
        ("Nvidia H100 80GB Mega GPU Calendar Mode running in Americas", "OnDemand", None),
        ("Nvidia L4 Virtual Workstation GPU running in Netherlands", "OnDemand", None),
        ("Nvidia L40 GPU running in Netherlands", "OnDemand", None),
        ("TpuV6e running in Americas", "OnDemand", None),
        ("Storage PD Capacity", "OnDemand", None),
        ("", "OnDemand", None),
    ],
)
def test_a_sku_is_what_its_description_says(description: str, usage: str, part: tuple[str, str] | None) -> None:
    assert classify_sku(msgspec.convert({"description": description, "category": {"usageType": usage}}, Sku)) == part


A2 = (
    sku("A2 Instance Core running in Iowa", "us-central1", 31_611_000),
    sku("A2 Instance Ram running in Iowa", "us-central1", 4_237_000, unit="GiBy.h"),
    sku("Nvidia Tesla A100 GPU running in Iowa", "us-central1", 2_933_908_000),
)


def test_a_machine_costs_its_cores_its_memory_and_its_gpus() -> None:
    assert priced("a2-highgpu-1g", prices(*A2)) == "3.673385"


def test_a_part_without_a_price_leaves_no_price() -> None:
    for missing in range(3):
        assert priced("a2-highgpu-1g", prices(*(one for n, one in enumerate(A2) if n != missing))) is None


def test_two_prices_for_one_part_are_none() -> None:
    other = sku("Nvidia Tesla A100 GPU running in Americas", "us-central1", 1_000_000_000)
    assert priced("a2-highgpu-1g", prices(*A2, other)) is None
    same = sku("Nvidia Tesla A100 GPU running in Americas", "us-central1", 2_933_908_000)
    assert priced("a2-highgpu-1g", prices(*A2, same)) == "3.673385"


def test_a_free_or_foreign_sku_prices_nothing() -> None:
    free = sku("A2 Instance Core running in Iowa", "us-central1", 0)
    wrong = sku("A2 Instance Core running in Iowa", "us-central1", 31_611_000, unit="GiBy.mo")
    assert prices(free, wrong) == {}


def test_a_slice_holds_cores_and_memory_already() -> None:
    sliced = sku("A4 Nvidia B200 (1 gpu slice) running in Iowa", "us-central1", 16_110_000_000)
    core = sku("A4 Instance Core running in Iowa", "us-central1", 31_611_000)
    assert priced("a4-highgpu-8g", prices(sliced, core)) == "128.880000"


def test_bundled_local_ssd_is_part_of_the_price() -> None:
    listed = prices(
        A2[0],
        A2[1],
        sku("Nvidia Tesla A100 80GB GPU running in Iowa", "us-central1", 3_930_000_000),
        sku("SSD backed Local Storage", "us-central1", 80_000_000, unit="GiBy.mo"),
    )
    expected = Decimal("0.031611") * 12 + Decimal("0.004237") * 170 + Decimal("3.93") + Decimal("0.08") * 375 / 730
    assert priced("a2-ultragpu-1g", listed) == f"{expected:.6f}"


def test_a_fraction_of_a_gpu_costs_its_fraction() -> None:
    listed = prices(
        sku("G4 Instance Core running in Iowa", "us-central1", 48_910_000),
        sku("G4 Instance Ram running in Iowa", "us-central1", 5_870_000, unit="GiBy.h"),
        sku("RTX 6000 96GB running in Iowa", "us-central1", 4_500_000_000),
    )
    expected = Decimal("0.04891") * 6 + Decimal("0.00587") * 22 + Decimal("4.5") / 8
    assert priced("g4-standard-6", listed) == f"{expected:.6f}"


def test_an_attached_gpu_is_added_to_its_n1() -> None:
    listed = prices(
        sku("N1 Predefined Instance Core running in Iowa", "us-central1", 31_611_000),
        sku("N1 Predefined Instance Ram running in Iowa", "us-central1", 4_237_000, unit="GiBy.h"),
        sku("Nvidia Tesla T4 GPU running in Iowa", "us-central1", 350_000_000),
    )
    assert priced("n1-standard-8", listed, attached=(("nvidia-tesla-t4", 2),)) == "1.079998"
    assert priced("n1-custom-8-30720", listed) is None
    assert priced("n1-standard-8", listed, attached=(("nvidia-tesla-t4-vws", 1),)) is None


def test_a_reservation_and_an_unknown_model_have_no_price_of_their_own() -> None:
    for tier in ("reservation", "unknown"):
        assert priced("a2-highgpu-1g", prices(*A2), tier) is None


def test_custom_machines_are_read_from_their_names() -> None:
    n1, g2 = find_shape("custom-8-30720"), find_shape("g2-custom-24-65536")
    assert n1 == MachineShape(name="custom-8-30720", vcpus=8, ram_gib=30)
    assert n1.family == "n1 custom"
    assert g2 is not None
    assert (g2.gpus, g2.ram_gib, g2.family) == (2, 64, "g2")
    assert find_shape("g2-custom-7-65536") is None
    assert find_shape("z9-standard-8") is None


def test_a_type_that_is_asked_for_brings_its_gpus_and_its_ssd() -> None:
    stated = {
        "name": "z9-highgpu-2g",
        "guestCpus": 52,
        "memoryMb": 239616,
        "accelerators": [{"guestAcceleratorType": "nvidia-z9", "guestAcceleratorCount": 2}],
        "bundledLocalSsds": {"partitionCount": 4},
    }
    made = parse_shape(MachineType.from_json(json.dumps(stated)))
    assert (made.gpus, made.ram_gib, made.ssd_gib, made.accelerator) == (2, 234, 1500, "nvidia-z9")


def test_the_table_of_machine_types_is_the_published_one() -> None:
    if not SPECS.is_file():
        pytest.skip(f"{SPECS} is not there")
    rows = [row for row in csv.DictReader(SPECS.read_text().splitlines()) if "*" not in row["instance_type"]]
    assert len(rows) == len(TABLE) == 34
    for row in rows:
        one = TABLE[row["instance_type"]]
        assert (one.accelerator, one.gpus, one.vcpus, one.ram_gib, one.ssd_gib) == (
            row["gpu"],
            float(row["gpu_count"]),
            float(row["vcpus"]),
            float(row["ram_gb"]),
            int(row["local_nvme_gb"]),
        )


def test_the_capacity_of_zonal_disks_has_a_price_by_region_and_type() -> None:
    def disk(description: str, nano: int) -> dict[str, object]:
        return sku(description, "europe-west6", nano, unit="GiBy.mo", group="SSD")

    regional = disk("Regional SSD backed PD Capacity in Zurich", 442_000_000)
    listed = prices(disk("SSD backed PD Capacity in Zurich", 221_000_000), regional, disk("Storage PD Capacity", 52_000_000))
    assert find_disk_price("pd-ssd", "europe-west6", listed) == 221_000_000
    assert find_disk_price("pd-standard", "europe-west6", listed) == 52_000_000
    assert find_disk_price("pd-balanced", "europe-west6", listed) is None
    torn = prices(disk("Balanced PD Capacity", 1), disk("Balanced PD Capacity", 2))
    assert find_disk_price("pd-balanced", "europe-west6", torn) is None
