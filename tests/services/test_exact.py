"""`costguard size --exact`: one step really run on fake tensors, equal to the byte with what tools/faketensor.py measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from costguard.data import ShippedFacts
from costguard.errors import InputError
from costguard.services.quote.exact_step import PACKAGES, FakeTensorSizer
from costguard.services.quote.size import add_exact_step, size_job
from costguard.sizing.exact_memory import ExactMemory, check_runnable, compare_moments
from costguard.sizing.job import Job, parse_job
from costguard.sizing.memory.footprint import compute_footprint
from costguard.sizing.recipe import Parallelism
from tests.conftest import Command

FACTS = ShippedFacts()
GPT2 = {"model": "gpt2", "method": "full", "precision": "bf16-amp", "seq_len": 1024, "checkpointing": "none"}
MEDIUM = ExactMemory(
    parameters=354_823_168,
    trained=354_823_168,
    forward=13_000_000_000,
    forward_end=12_062_639_104,
    forward_backward=13_709_427_712,
    step=5_677_385_728,
    made_with="a table",
)
LLAMA_TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]

needs_torch = pytest.mark.skipif(
    any(find_spec(name) is None for name in PACKAGES), reason="the extra 'exact' (torch, transformers, peft) is not installed"
)


def job(**stated: object) -> Job:
    table = {**GPT2, **stated}
    return parse_job(table, FACTS.get_architecture(str(table["model"])))


class Told:
    """A sizer that says what it was told to say."""

    def __init__(self, exact: ExactMemory) -> None:
        self.told = exact

    def measure_step(self, config: Mapping[str, object], job: Job) -> ExactMemory:  # noqa: ARG002 - the port's signature
        return self.told


@pytest.mark.parametrize(
    ("stated", "field"),
    [
        ({"model": "mixtral-8x7b", "seq_len": 512}, "model"),
        ({"method": "qlora"}, "method"),
        ({"method": "inference"}, "method"),
        ({"precision": "fp8"}, "precision"),
        ({"optimizer": "adamw-8bit"}, "optimizer"),
        ({"checkpointing": "selective"}, "checkpointing"),
        ({"framework": "megatron"}, "framework"),
        ({"fused_loss": True}, "fused_loss"),
        ({"compiled": True}, "compiled"),
        ({"preference": {"algorithm": "dpo"}}, "preference"),
        ({"parallel": {"tp": 2}}, "parallel"),
        ({"parallel": {"offload": "all"}}, "parallel.offload"),
    ],
)
def test_what_fake_tensors_cannot_run_is_named_with_a_way_out(stated: dict[str, object], field: str) -> None:
    with pytest.raises(InputError) as refused:
        check_runnable(job(**stated))
    assert refused.value.field == field
    assert "--exact" in str(refused.value)


def test_several_gpus_are_refused() -> None:
    with pytest.raises(InputError, match="one GPU's step"):
        check_runnable(job(), gpus=8)


def test_a_plain_job_is_runnable() -> None:
    check_runnable(job())
    check_runnable(job(method="lora", optimizer="sgd", precision="fp32", attention="eager", checkpointing="full"))


def test_missing_packages_are_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("costguard.services.quote.exact_step.find_spec", lambda name: None if name == "peft" else object())
    with pytest.raises(InputError, match=r"not installed: peft\n.*\.\[exact\]"):
        FakeTensorSizer().measure_step({}, job())


def test_the_closed_form_stands_beside_each_moment_it_has() -> None:
    asked = job(model="gpt2-medium", micro_batch=4)
    recipe = replace(asked.recipe, dropout=False, autocast_rules="cpu")  # as the step was run
    moments = {c.moment: c for c in compare_moments(MEDIUM, compute_footprint(asked.architecture, recipe, Parallelism()))}
    assert moments["peak"].exact == 13_709_427_712
    assert abs(moments["peak"].difference or 1) < 0.01
    assert abs(moments["step"].difference or 1) < 0.001
    assert moments["forward, end"].closed is None
    assert moments["forward, end"].difference is None


def test_another_number_of_parameters_is_said() -> None:
    asked = job(model="gpt2-medium", micro_batch=4)
    sized = size_job(asked, facts=FACTS)
    same = add_exact_step(sized, {}, Told(MEDIUM))
    other = add_exact_step(sized, {}, Told(replace(MEDIUM, parameters=300_000_000)))
    assert same.warnings == (
        *sized.warnings,
        "--exact runs without dropout and with a CPU's autocast: a GPU needs about 2.4 GiB more",
    )
    assert "transformers builds 300,000,000 parameters" in other.warnings[-2]


def test_an_architecture_table_has_no_config_to_build(costguard: Command, tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(
        "[architecture]\nkind = 'decoder'\nlayers = 2\nhidden = 64\nheads = 2\nffn = 128\nvocab = 100\n", encoding="utf-8"
    )
    costguard("size", "job.toml", "--exact").says("architecture", "config.json")


def test_shipped_names_and_aliases_have_a_config() -> None:
    assert FACTS.config("gpt2")["n_embd"] == 768
    assert FACTS.config("google-bert/bert-large-uncased")["hidden_size"] == 1024
    with pytest.raises(InputError, match="unknown model"):
        FACTS.config("no-such-model")


def ran(config: Mapping[str, object], asked: Job) -> tuple[int, int, int, int]:
    exact = FakeTensorSizer().measure_step(config, asked)
    return exact.parameters, exact.forward_end, exact.forward_backward, exact.step


@needs_torch
@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ({"model": "gpt2-medium", "micro_batch": 4}, (354_823_168, 12_062_639_104, 13_709_427_712, 5_677_385_728)),
        (
            {"model": "bert-large", "micro_batch": 8, "seq_len": 512, "attention": "eager"},
            (335_174_458, 10_880_131_584, 11_880_276_480, 5_363_067_904),
        ),
        (
            {"model": "tinyllama-1.1b", "micro_batch": 4, "seq_len": 2048, "precision": "bf16", "checkpointing": "full"},
            (1_100_048_384, 8_538_933_760, 10_636_020_224, 8_800_622_080),
        ),
        (
            {
                "model": "llama-2-7b",
                "micro_batch": 2,
                "precision": "bf16",
                "checkpointing": "full",
                "method": "lora",
                "lora": {"rank": 16, "targets": LLAMA_TARGETS},
            },
            (6_778_392_576, 14_792_042_496, 15_316_314_112, 14_116_725_760),
        ),
    ],
)
def test_a_step_is_equal_to_the_byte(stated: dict[str, object], expected: tuple[int, int, int, int]) -> None:
    asked = job(**stated)
    assert ran(FACTS.config(str(stated["model"])), asked) == expected
