"""The time of a training step: components add up, experts and links cost what they should, and intervals know what is new."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from costguard.data import ShippedFacts
from costguard.errors import InputError
from costguard.sizing.job import parse_job
from costguard.sizing.recipe import NetworkSpeeds, Parallelism, Recipe
from costguard.sizing.speed.flops import count_work, find_peak_rate
from costguard.sizing.speed.step_time import COMPONENTS, StepCosts, StepSetting, compute_costs, compute_links
from costguard.sizing.speed.throughput import Throughput, compute_throughput, list_factors

FACTS = ShippedFacts()
EFFICIENCY = FACTS.get_efficiency()
FULL = Recipe(seq_len=4096)


def setting(
    model: str,
    gpu: str,
    recipe: Recipe = FULL,
    parallel: Parallelism | None = None,
    *,
    gpus: int = 8,
    network: NetworkSpeeds | None = None,
) -> StepSetting:
    architecture, card = FACTS.get_architecture(model), FACTS.get_gpus()[gpu]
    top = find_peak_rate(recipe, card)
    assert top is not None
    return StepSetting(
        work=count_work(architecture, recipe),
        recipe=recipe,
        parallel=parallel or Parallelism(fsdp=True),
        gpu=card,
        gpus=gpus,
        nodes=max(1, gpus // 8),
        top=top,
        network=network or NetworkSpeeds(),
    )


def costs(found: StepSetting) -> StepCosts:
    return compute_costs(found, EFFICIENCY.physics, EFFICIENCY.find_family(found.gpu.arch))


def speed(found: StepSetting, model: str) -> Throughput:
    timed = compute_throughput(
        FACTS.get_architecture(model),
        found.recipe,
        found.parallel,
        found.gpu,
        gpus=found.gpus,
        nodes=found.nodes,
        efficiency=EFFICIENCY,
        network=found.network,
    )
    assert timed is not None
    return timed


def test_components_that_take_seconds_add_up() -> None:
    """Two waits of a second beside one of arithmetic take three seconds, not four."""
    found = StepCosts(arithmetic=1.0, shares={}, seconds={"network": 1.0, "launch": 1.0}, factors={})
    product = math.prod(factor for _, factor in list_factors(found, {"network": 1.0, "launch": 1.0}))
    assert product == pytest.approx(1 / 3)


def test_every_component_says_what_it_is() -> None:
    models = ("llama-3.1-8b", "qwen3-30b-a3b")
    recipes = (FULL, replace(FULL, framework="megatron"), replace(FULL, precision="fp8"))
    names = {name for m in models for r in recipes for name in costs(setting(m, "H100-SXM", r)).names}
    assert {name for name in names if not name.startswith("gpu ")} <= COMPONENTS.keys()


def test_small_batches_wait_for_launches() -> None:
    """Sixteen times the tokens a pass take far less than sixteen times as long."""
    small = speed(setting("gpt2", "H100-SXM", Recipe(seq_len=256)), "gpt2").tokens_per_s_per_gpu.expected
    large = speed(setting("gpt2", "H100-SXM", Recipe(seq_len=256, micro_batch=16)), "gpt2").tokens_per_s_per_gpu.expected
    assert large > 3 * small


def test_experts_that_are_all_on_their_own_rank_are_not_gathered() -> None:
    """What is gathered is shared by ranks / ep: at ep = ranks only the dense weights move."""
    moved = [
        costs(setting("gpt-oss-20b", "B300", parallel=Parallelism(fsdp=True, ep=ep))).seconds["network"] for ep in (1, 2, 8)
    ]
    assert moved[0] > 1.5 * moved[1] > 4 * moved[2]


def test_hugging_face_modules_under_zero_3_run_experts_in_a_loop() -> None:
    """ms-swift measured 90 tokens/s a GPU of Qwen3-30B-A3B on 16 A800 with ZeRO-3 (Megatron-SWIFT benchmark, 2025)."""
    plain = setting("qwen3-30b-a3b", "A800-80GB-SXM", Recipe(seq_len=8192), Parallelism(zero=3), gpus=16)
    found = speed(plain, "qwen3-30b-a3b")
    assert found.tokens_per_s_per_gpu.low < 90 < found.tokens_per_s_per_gpu.high
    assert any("experts run one after the other" in note for note in found.notes)
    grouped = replace(plain, recipe=replace(plain.recipe, experts_implementation="grouped"))
    assert speed(grouped, "qwen3-30b-a3b").tokens_per_s_per_gpu.expected > 10 * found.tokens_per_s_per_gpu.expected


def test_amd_card_nobody_measured_is_its_generation_s_measured_one_at_its_own_power() -> None:
    shares = {name: costs(setting("llama-3.1-8b", name)).shares["achieved"] for name in ("MI300X", "MI350X", "MI355X")}
    assert shares["MI300X"] < shares["MI350X"] < shares["MI355X"]


def test_tensors_that_fsdp_divides_are_updated_once_a_step() -> None:
    one = setting("llama-3.1-8b", "H100-SXM")
    eight = replace(one, recipe=replace(one.recipe, gradient_accumulation=8))
    assert costs(one).seconds["step"] == pytest.approx(8 * costs(eight).seconds["step"])
    assert costs(setting("llama-3.1-8b", "H100-SXM", parallel=Parallelism(zero=3))).seconds["step"] == 0
    assert costs(setting("llama-3.1-8b", "H100-SXM", gpus=1)).seconds["step"] == 0


def test_superchips_have_a_network_card_each() -> None:
    alone = replace(setting("llama-3.1-8b", "GH200-96GB"), nodes=8)
    beside = replace(setting("llama-3.1-8b", "GH200-96GB", gpus=4), nodes=1)
    apart = compute_links(alone, EFFICIENCY.physics)
    assert apart.collective == pytest.approx(25)  # GB/s: 200 Gbit/s, as on Alps
    assert compute_links(beside, EFFICIENCY.physics).inside > 10 * apart.collective


def test_stated_network_replaces_the_assumed_one() -> None:
    usual = setting("llama-3.1-70b", "H100-SXM", gpus=32)
    slow = replace(usual, network=NetworkSpeeds(node_gbit=100))
    said = speed(usual, "llama-3.1-70b").notes
    assert any("Gbit/s of network into each machine" in note for note in said)
    assert not any("Gbit/s" in note for note in speed(slow, "llama-3.1-70b").notes)
    assert costs(slow).seconds["network"] > 10 * costs(usual).seconds["network"]


def test_cards_on_pcie_take_the_stated_speed() -> None:
    usual = setting("llama-3.1-8b", "RTX-4090")
    assert any("over PCIe" in note for note in speed(usual, "llama-3.1-8b").notes)
    faster = replace(usual, network=NetworkSpeeds(gpu_gb_s=24))
    assert costs(faster).seconds["network"] == pytest.approx(costs(usual).seconds["network"] / 3)


def test_network_of_a_job_is_read_and_checked() -> None:
    architecture = FACTS.get_architecture("llama-3.1-8b")
    assert parse_job({"network": {"node_gbit": 400}}, architecture).network == NetworkSpeeds(node_gbit=400)
    with pytest.raises(InputError, match=r"network\.node_gbit"):
        parse_job({"network": {"node_gbit": 0}}, architecture)
    with pytest.raises(InputError, match=r"node_gbits"):
        parse_job({"network": {"node_gbits": 400}}, architecture)


@pytest.mark.parametrize(
    ("names", "factor"),
    [
        (("base",), 1.0),
        (("base", "mixture"), EFFICIENCY.spread.mixture),
        (("base", "card Never-Built"), EFFICIENCY.spread.new_card),
        (("base", "library nobody"), EFFICIENCY.spread.new_card),
        (("base", "gpu CDNA", "card Never-Built"), EFFICIENCY.spread.new_kind),
        (("base", "host", "mixture"), EFFICIENCY.spread.host * EFFICIENCY.spread.mixture),
    ],
)
def test_intervals_are_wider_where_less_is_known(names: tuple[str, ...], factor: float) -> None:
    assert EFFICIENCY.compute_half_width(names) == pytest.approx(factor * EFFICIENCY.spread.dense)


def test_long_pipelines_are_interleaved() -> None:
    """16 stages of 8 layers and 16 passes: the bubble is 15 / 16 / 4 chunks, not 15 / 16."""
    recipe = replace(FULL, gradient_accumulation=16, framework="megatron")
    found = costs(setting("llama-3.1-405b", "H100-SXM", recipe, Parallelism(tp=8, pp=16), gpus=128))
    assert found.factors["bubble"] == pytest.approx(-math.log1p(15 / 16 / (126 / 16 / 2)))


def test_norms_move_twice_the_bytes_where_peft_prepared_quantised_weights() -> None:
    """A matrix of bitsandbytes returns the precision of its input, which PEFT's preparation makes fp32; TRL leaves that out."""
    recipe = replace(FULL, method="qlora", quant="nf4")
    one = Parallelism()
    prepared, trl, lora = (
        costs(setting("llama-3.1-8b", "A100-80GB-SXM", each, one, gpus=1)).seconds["layers eager"]
        for each in (recipe, replace(recipe, framework="trl"), replace(FULL, method="lora"))
    )
    assert prepared == pytest.approx(2 * trl)
    assert trl == lora
    sharded = costs(setting("llama-3.1-8b", "A100-80GB-SXM", recipe))
    assert sharded.seconds["layers eager"] == trl
