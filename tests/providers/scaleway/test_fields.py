"""The fake's answers are held against the types of the vendor's SDK where it is installed, else against the fields noted here.

Noted from the scaleway package 2.12.0 (instance/v1/types.py, block/v1/types.py): the fields without a default.
"""

from __future__ import annotations

import dataclasses
import importlib
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.fakes.scaleway import CATALOGUE, FakeScaleway, address, block_volume, local_volume, machine

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
REQUIRED = {
    "instance.v1.Server": (
        "id name organization project allowed_actions tags commercial_type dynamic_ip_required hostname protected public_ips "
        "mac_address state boot_type volumes maintenances state_detail arch private_nics zone filesystems end_of_service"
    ),
    "instance.v1.Volume": "id name size volume_type organization project tags state zone",
    "instance.v1.Ip": "id address organization tags project type state prefix ipam_id zone",
    "instance.v1.ServerType": ("hourly_price alt_names ncpus ram arch scratch_storage_max_volumes_count end_of_service"),
    "instance.v1.ServerTypeGPUInfo": "gpu_manufacturer gpu_name gpu_memory",
    "block.v1.Volume": "id name type size project_id references status tags zone",
}


def shown(kind: str) -> dict[str, Any]:
    """What the fake answers of a kind."""
    examples: dict[str, dict[str, Any]] = {
        "instance.v1.Server": FakeScaleway().server(machine(1, NOW)),
        "instance.v1.Volume": local_volume(1, NOW, 20),
        "instance.v1.Ip": address(1),
        "instance.v1.ServerType": CATALOGUE["L4-1-24G"],
        "instance.v1.ServerTypeGPUInfo": CATALOGUE["L4-1-24G"]["gpu_info"],
        "block.v1.Volume": block_volume(1, NOW, 20),
    }
    return examples[kind]


@pytest.mark.parametrize("kind", REQUIRED)
def test_the_fake_answers_with_every_field_that_the_sdk_requires(kind: str) -> None:
    assert set(REQUIRED[kind].split()) <= set(shown(kind))


@pytest.mark.parametrize("kind", REQUIRED)
def test_the_noted_fields_are_the_sdks(kind: str) -> None:
    pytest.importorskip("scaleway", reason="Scaleway's SDK is not installed here; the noted fields were read in 2.12.0")
    path, _, name = kind.rpartition(".")
    fields = dataclasses.fields(getattr(importlib.import_module(f"scaleway.{path}.types"), name))
    names = {one.name.rstrip("_"): one.default is dataclasses.MISSING for one in fields}
    assert {name for name, required in names.items() if required} == set(REQUIRED[kind].split())
    assert set(shown(kind)) <= set(names)
