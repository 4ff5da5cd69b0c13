"""Names as every provider writes them, and as people do. The provider's names are facts read off its API in 2026-11."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import costguard
from costguard.errors import UnknownNameError
from costguard.values.gpu import GpuNameMatch, GpuNames, read_gpus

with (Path(costguard.__file__).parent / "data" / "gpus.csv").open(encoding="utf-8", newline="") as file:
    GPUS = read_gpus(csv.DictReader(file))
NAMES = GpuNames(GPUS)

PEOPLE = {
    "4090": "RTX-4090",
    "rtx4090": "RTX-4090",
    "RTX_4090": "RTX-4090",
    "a6000": "RTX-A6000",
    "H100 SXM": "H100-SXM",
    "h100_sxm": "H100-SXM",
    "NVIDIA H100 80GB HBM3": "H100-SXM",
    "NVIDIA GeForce RTX 4090": "RTX-4090",
    "A100-SXM4-80GB": "A100-80GB-SXM",
    "M3 Max": "M3-Max",
    "TPU v5e": "TPU-v5e",
}
AWS = {
    "NVIDIA T4": "T4",
    "NVIDIA T4g": "T4g",
    "NVIDIA A10G": "A10G",
    "NVIDIA L4": "L4",
    "NVIDIA L40S": "L40S",
    "NVIDIA K80": "K80",
    "NVIDIA M60": "M60",
    "NVIDIA B200": "B200-SXM",
    "NVIDIA B300": "B300",
    "NVIDIA RTX PRO 4500": "RTX-PRO-4500-Blackwell",
    "NVIDIA RTX PRO Server 6000": "RTX-PRO-6000-Blackwell-Server",
    "AMD Radeon Pro V520": "Radeon-Pro-V520",
    "Habana Gaudi HL-205": "Gaudi",
    "AWS Trainium2": "Trainium2",
}
GCP = {
    "nvidia-gb300": "GB300",
    "nvidia-gb200": "GB200",
    "nvidia-b200": "B200-SXM",
    "nvidia-h200-141gb": "H200-SXM",
    "nvidia-h100-mega-80gb": "H100-SXM",
    "nvidia-h100-80gb": "H100-SXM",
    "nvidia-a100-80gb": "A100-80GB-SXM",
    "nvidia-tesla-a100": "A100-40GB-SXM",
    "nvidia-a100-40gb": "A100-40GB-SXM",
    "nvidia-l4": "L4",
    "nvidia-rtx-pro-6000": "RTX-PRO-6000-Blackwell-Server",
    "nvidia-tesla-t4": "T4",
    "nvidia-tesla-p4": "P4",
    "nvidia-tesla-v100": "V100-16GB",
    "nvidia-tesla-p100": "P100-16GB",
}
LAMBDA = {
    "H100 (80 GB SXM5)": "H100-SXM",
    "A100 (40 GB SXM4)": "A100-40GB-SXM",
    "A100 (80 GB SXM4)": "A100-80GB-SXM",
    "A100 (40 GB PCIe)": "A100-40GB-PCIe",
    "A10 (24 GB PCIe)": "A10",
    "RTX A6000 (48 GB)": "RTX-A6000",
    "RTX 6000 (24 GB)": "Quadro-RTX-6000",
    "GH200 (96 GB)": "GH200-96GB",
    "B200 (180 GB SXM6)": "B200-SXM",
}
RUNPOD = {
    "AMD Instinct MI300X OAM": "MI300X",
    "NVIDIA  A30": "A30",
    "NVIDIA  RTX A4500": "RTX-A4500",
    "NVIDIA A100 80GB PCIe": "A100-80GB-PCIe",
    "NVIDIA A100-SXM4-40GB": "A100-40GB-SXM",
    "NVIDIA A100-SXM4-80GB": "A100-80GB-SXM",
    "NVIDIA A30": "A30",
    "NVIDIA A40": "A40",
    "NVIDIA A5000 Ada": "RTX-5000-Ada",
    "NVIDIA B200": "B200-SXM",
    "NVIDIA GeForce RTX 3070": "RTX-3070",
    "NVIDIA GeForce RTX 3080": "RTX-3080-10GB",
    "NVIDIA GeForce RTX 3080 Ti": "RTX-3080-Ti",
    "NVIDIA GeForce RTX 3080TI": "RTX-3080-Ti",
    "NVIDIA GeForce RTX 3090": "RTX-3090",
    "NVIDIA GeForce RTX 3090 Ti": "RTX-3090-Ti",
    "NVIDIA GeForce RTX 4070 Ti": "RTX-4070-Ti",
    "NVIDIA GeForce RTX 4080": "RTX-4080",
    "NVIDIA GeForce RTX 4080 SUPER": "RTX-4080-SUPER",
    "NVIDIA GeForce RTX 4090": "RTX-4090",
    "NVIDIA GeForce RTX 5080": "RTX-5080",
    "NVIDIA GeForce RTX 5090": "RTX-5090",
    "NVIDIA H100 80GB HBM3": "H100-SXM",
    "NVIDIA H100 NVL": "H100-NVL",
    "NVIDIA H100 PCIe": "H100-PCIe",
    "NVIDIA H200": "H200-SXM",
    "NVIDIA H200 NVL": "H200-NVL",
    "NVIDIA L4": "L4",
    "NVIDIA L40": "L40",
    "NVIDIA L40S": "L40S",
    "NVIDIA RTX 2000 Ada Generation": "RTX-2000-Ada",
    "NVIDIA RTX 4000 Ada Generation": "RTX-4000-Ada",
    "NVIDIA RTX 4000 SFF Ada Generation": "RTX-4000-SFF-Ada",
    "NVIDIA RTX 5000 Ada Generation": "RTX-5000-Ada",
    "NVIDIA RTX 6000 Ada Generation": "RTX-6000-Ada",
    "NVIDIA RTX A2000": "RTX-A2000",
    "NVIDIA RTX A30": "A30",
    "NVIDIA RTX A4000": "RTX-A4000",
    "NVIDIA RTX A4500": "RTX-A4500",
    "NVIDIA RTX A5000": "RTX-A5000",
    "NVIDIA RTX A6000": "RTX-A6000",
    "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition": "RTX-PRO-6000-Blackwell-Max-Q",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": "RTX-PRO-6000-Blackwell-Server",
    "NVIDIA RTX PRO 6000 Blackwell Workstation Edition": "RTX-PRO-6000-Blackwell",
    "Tesla T4": "T4",
    "Tesla V100-FHHL-16GB": "V100-16GB-FHHL",
    "Tesla V100-PCIE-16GB": "V100-16GB-PCIe",
    "Tesla V100-PCIE-32GB": "V100-32GB-PCIe",
    "Tesla V100-SXM2-16GB": "V100-16GB",
    "Tesla V100-SXM2-32GB": "V100-32GB",
}
VAST = {
    "H100 PCIE": "H100-PCIe",
    "H100 SXM": "H100-SXM",
    "H100 NVL": "H100-NVL",
    "H200": "H200-SXM",
    "H200 NVL": "H200-NVL",
    "RTX 4070S": "RTX-4070-SUPER",
    "RTX 4070S Ti": "RTX-4070-Ti-SUPER",
    "RTX 6000Ada": "RTX-6000-Ada",
    "RTX PRO 6000 S": "RTX-PRO-6000-Blackwell-Server",
    "RTX PRO 6000 WS": "RTX-PRO-6000-Blackwell",
    "Q RTX 8000": "Quadro-RTX-8000",
    "Tesla T4": "T4",
    "RTX A6000": "RTX-A6000",
}
SHORT = {
    "A100": "A100-80GB-SXM",
    "A100-80GB": "A100-80GB-SXM",
    "A100-40GB": "A100-40GB-SXM",
    "A100 SXM4": "A100-80GB-SXM",
    "A100_PCIE": "A100-80GB-PCIe",
    "H100": "H100-SXM",
    "H200": "H200-SXM",
    "V100": "V100-16GB",
    "Tesla V100": "V100-16GB",
    "GH200": "GH200-96GB",
    "RTX PRO 6000": "RTX-PRO-6000-Blackwell",
    "RTX 4060 Ti": "RTX-4060-Ti-16GB",
}


@pytest.mark.parametrize(
    "spoken", [PEOPLE, AWS, GCP, LAMBDA, RUNPOD, VAST], ids=["people", "aws", "gcp", "lambda", "runpod", "vast"]
)
def test_every_name_of_every_provider_is_understood(spoken: dict[str, str]) -> None:
    assert {name: NAMES.resolve(name).canonical for name in spoken} == spoken


@pytest.mark.parametrize(("name", "meant"), SHORT.items())
def test_a_short_form_is_taken_and_said(name: str, meant: str) -> None:
    assert NAMES.resolve(name) == GpuNameMatch(canonical=meant, taken_as_short=True)


def test_every_canonical_name_and_alias_is_its_own_gpu() -> None:
    spelled = {spelling: gpu.name for gpu in GPUS.values() for spelling in (gpu.name, *gpu.aliases)}
    assert {spelling: NAMES.resolve(spelling).canonical for spelling in spelled} == spelled


@pytest.mark.parametrize(
    ("name", "vram_gb", "meant"),
    [
        ("A100 PCIE", 40960 / 1024, "A100-40GB-PCIe"),
        ("A100 SXM4", 39.4, "A100-40GB-SXM"),
        ("V100", 32, "V100-32GB"),
        ("RTX 4060 Ti", 8, "RTX-4060-Ti-8GB"),
        ("NVIDIA L4", 22888 / 1024, "L4"),
        ("B200", 192, "B200-SXM"),
        ("nvidia-tesla-v100", 31.7, "V100-32GB"),
    ],
)
def test_memory_beside_the_name_decides_between_sizes(name: str, vram_gb: float, meant: str) -> None:
    assert NAMES.resolve(name, vram_gb=vram_gb).canonical == meant


def test_a_rebuilt_card_with_other_memory_is_not_the_model_it_was() -> None:
    with pytest.raises(UnknownNameError, match="RTX 4090 with 48 GB"):
        NAMES.resolve("RTX 4090", vram_gb=48)


@pytest.mark.parametrize(
    "name", ["", "SXM", "80GB", "NVIDIA", "RTX", "Ti", "6000", "H1000", "A100 96GB", "A100 NVL", "H100; DROP"]
)
def test_words_that_name_no_model_are_refused(name: str) -> None:
    with pytest.raises(UnknownNameError):
        NAMES.resolve(name)


def test_a_name_of_several_models_is_refused_with_all_of_them() -> None:
    with pytest.raises(UnknownNameError) as refused:
        NAMES.resolve("RTX 6000", field="limits.gpus")
    assert set(refused.value.nearest) == {"Quadro-RTX-6000", "RTX-A6000", "RTX-6000-Ada", "RTX-PRO-6000-Blackwell"}
    assert str(refused.value).startswith("limits.gpus: unknown GPU 'RTX 6000'")


def test_a_mistyped_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError) as refused:
        NAMES.resolve("H10O-SXM")
    assert refused.value.nearest[0] == "H100-SXM"


@given(st.text(max_size=300))
def test_any_text_is_a_known_gpu_or_refused(name: str) -> None:
    try:
        meant = {NAMES.resolve(name).canonical}
    except UnknownNameError as refused:
        meant = set(refused.nearest)
    assert meant <= set(GPUS)
