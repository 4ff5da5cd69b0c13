from __future__ import annotations

import csv
from pathlib import Path

import pytest
from costguard_aws.instance_types import find_family_gpu, load_known_types

from costguard.data import ShippedFacts
from tests.contract.rig import NAMES

SHEET = Path(__file__).parents[3].parent / "shared" / "providers" / "specs" / "aws_instance_gpus.csv"


def test_every_gpu_of_the_table_is_one_that_costguard_knows() -> None:
    assert {kind.gpu for kind in load_known_types().values()} <= set(ShippedFacts().get_gpus())


def test_shares_of_a_gpu_are_shares() -> None:
    assert load_known_types()["g6f.large"].gpu_count == 0.125
    assert load_known_types()["gr6f.4xlarge"].gpu_count == 0.5


def test_a_type_that_the_table_lacks_is_known_by_its_family() -> None:
    assert find_family_gpu("p5en.96xlarge") == "H200-SXM"
    assert find_family_gpu("q9.large") == ""


def test_the_table_agrees_with_the_notes_on_ec2() -> None:
    if not SHEET.is_file():
        pytest.skip("the notes are not beside this repository")
    rows = list(csv.DictReader(SHEET.read_text().splitlines()))
    assert {row["instance_type"] for row in rows} == set(load_known_types())
    for row in rows:
        kind = load_known_types()[row["instance_type"]]
        assert (kind.gpu_count, kind.vcpus, kind.ram_gb) == (float(row["gpu_count"]), float(row["vcpus"]), float(row["ram_gb"]))
        assert kind.local_gb == int(row["local_nvme_gb"])
        assert kind.vram_gb * kind.gpu_count == pytest.approx(float(row["vram_gb_total"]))
        if "GB200" not in row["gpu"]:
            assert NAMES.resolve(row["gpu"], vram_gb=kind.vram_gb).canonical == kind.gpu
