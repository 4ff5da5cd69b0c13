"""`costguard gpus`: the GPU data as it is, with what a market asks for an hour."""

from __future__ import annotations

import pytest

from costguard.data import ShippedFacts
from tests.conftest import Command


def test_every_gpu_of_the_data_is_listed(costguard: Command, market: str) -> None:
    data = costguard("gpus", "--market", market, "--json").data
    assert data["schema"] == "costguard.gpus/1"
    assert [one["gpu"] for one in data["gpus"]] == list(ShippedFacts().get_gpus())


def test_a_family_is_all_its_parts(costguard: Command, market: str) -> None:
    names = [one["gpu"] for one in costguard("gpus", "a100", "--market", market, "--json").data["gpus"]]
    assert names == ["A100-80GB-SXM", "A100-40GB-SXM", "A100-80GB-PCIe", "A100-40GB-PCIe"]


def test_sparse_rates_stand_beside_dense_ones_only_where_the_hardware_has_them(costguard: Command, market: str) -> None:
    rates = {one["gpu"]: one["tflops"] for one in costguard("gpus", "--market", market, "--json").data["gpus"]}
    assert rates["H100-SXM"]["fp8"] == {"dense": 1979, "sparse": 3958}
    assert rates["H100-SXM"]["fp32"] == {"dense": 67, "sparse": None}
    assert rates["V100-16GB"]["16bit"] == {"dense": 125, "sparse": None}
    assert rates["MI250X"]["16bit"]["sparse"] is None
    assert rates["B300"]["fp4"]["sparse"] is None
    assert rates["B200-SXM"]["fp4"]["sparse"] == 2 * rates["B200-SXM"]["fp4"]["dense"]


def test_a_price_is_for_one_gpu_by_the_hour_and_leaves_spot_out(costguard: Command, market: str) -> None:
    (h100,) = (one for one in costguard("gpus", "h100", "--market", market, "--json").data["gpus"] if one["gpu"] == "H100-SXM")
    prices = h100["usd_per_gpu_hour"]
    assert (prices["low"], prices["high"]) == ("2.9900", "5.0000")  # aws: $16 for 8 is spot; $40 for 8
    (l4,) = costguard("gpus", "L4", "--vendor", "nvidia", "--market", market, "--json").data["gpus"][:1]
    assert l4["usd_per_gpu_hour"] is None  # its only offer states no price


def test_rows_are_sorted_and_what_is_unknown_comes_last(costguard: Command, market: str) -> None:
    for sort, key, sign in (("memory", "memory_gb", -1), ("bandwidth", "bandwidth_gb_s", -1), ("power", "watts", 1)):
        values = [one[key] for one in costguard("gpus", "--sort", sort, "--market", market, "--json").data["gpus"]]
        numbers = [value for value in values if value is not None]
        assert numbers == sorted(numbers, key=lambda value, sign=sign: sign * value)  # type: ignore[misc]  # bound at once
        assert None not in values[: len(numbers)]
    assert len(costguard("gpus", "--min-memory", "190", "--market", market, "--json").data["gpus"]) == sum(
        gpu.vram_gb >= 190 for gpu in ShippedFacts().get_gpus().values()
    )


def test_remarks_are_printed_where_few_gpus_are(costguard: Command, market: str) -> None:
    assert "A40: a common '37.4 TFLOPS FP16' is the fp32 rate" in costguard("gpus", "A40", "--market", market).out
    assert "costguard gpus NAME also prints remarks" in costguard("gpus", "--market", market).out


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("H1000X",), "NAME: unknown GPU 'H1000X'"),
        (("--vendor", "nvidea"), "did you mean nvidia"),
        (("--sort", "prize"), "did you mean price"),
        (("--min-memory", "much"), "--min-memory: must be a number"),
    ],
)
def test_a_name_that_nothing_has_is_refused(costguard: Command, market: str, flags: tuple[str, ...], words: str) -> None:
    run = costguard("gpus", *flags, "--market", market)
    assert run.code == 2
    assert words in run.err
