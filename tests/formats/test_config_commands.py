"""`costguard quote` and `size` on other tools' files, through the real command line: what they answer and what they say."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Thread

import pytest

from tests.conftest import Command

AXOLOTL = """
base_model: NousResearch/Meta-Llama-3.1-8B
adapter: qlora
load_in_4bit: true
lora_r: 32
lora_target_linear: true
sequence_len: 2048
micro_batch_size: 2
gradient_accumulation_steps: 4
max_steps: 100
optimizer: adamw_bnb_8bit
bf16: auto
gradient_checkpointing: true
flash_attention: true
wandb_project: x
neat_trick: 3
"""
FLAGS = (
    *("--model", "llama-3.1-8b", "--method", "qlora", "--lora-rank", "32", "--lora-targets", "all-linear", "--seq-len", "2048"),
    *(
        "--micro-batch",
        "2",
        "--optimizer",
        "adamw-8bit",
        "--precision",
        "bf16",
        "--checkpointing",
        "full",
        "--attention",
        "flash",
    ),
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Path:
    (tmp_path / "qlora.yml").write_text(AXOLOTL)
    return tmp_path


def test_a_config_and_the_same_job_in_flags_are_one_quote(costguard: Command, market: str) -> None:
    ends = ("--on", "H100:1", "--market", market, "--json")
    tokens = str(100 * 4 * 2 * 2048)
    written = costguard("quote", "qlora.yml", *ends).data
    stated = costguard("quote", *FLAGS, "--tokens", tokens, "--global-batch-tokens", str(4 * 2 * 2048), *ends).data
    assert written["job"]["tokens"] == int(tokens)
    assert written["options"] == stated["options"]


def test_what_was_read_ignored_assumed_and_not_read_is_said(costguard: Command) -> None:
    told = costguard("size", "qlora.yml").out
    assert "read as Axolotl: model llama-3.1-8b (base_model)" in told
    assert "not read, and may change the figures: neat_trick." in told
    assert "no effect on the figures: wandb_project." in told


def test_a_training_config_and_the_accelerate_config_beside_it_are_one_job(costguard: Command, folder: Path) -> None:
    (folder / "sft.yaml").write_text(
        "model_name_or_path: mistralai/Mistral-7B-v0.1\ntorch_dtype: bfloat16\nbf16: true\nmax_length: 2048\n"
        "per_device_train_batch_size: 2\ngradient_accumulation_steps: 2\nmax_steps: 10\ngradient_checkpointing: true\n"
    )
    (folder / "fsdp.yaml").write_text(
        "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nfsdp_config: {fsdp_sharding_strategy: FULL_SHARD}\n"
        "mixed_precision: bf16\nnum_machines: 1\nnum_processes: 8\n"
    )
    answer = costguard("size", "sft.yaml", "fsdp.yaml", "--on", "A100-80GB:8", "--json").data
    assert (answer["job"]["precision"], answer["job"]["parallel"]["fsdp"]) == ("bf16-amp", True)
    assert answer["job"]["tokens"] == 10 * 2 * 2 * 8 * 2048
    assert any("fp32 masters" in warning for warning in answer["warnings"])


def test_a_deepspeed_config_in_the_folder_is_read_and_one_outside_is_not(costguard: Command, folder: Path) -> None:
    inside = folder / "run"
    inside.mkdir()
    (inside / "ds.json").write_text('{"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}')
    (folder / "z3.json").write_text('{"zero_optimization": {"stage": 1}}')
    for name, stage in (("ds.json", 2), ("../z3.json", 3), (str(folder / "z3.json"), 3)):
        (inside / "a.yml").write_text(f"{AXOLOTL}deepspeed: {name}\n")
        answer = costguard("size", "run/a.yml", "--on", "H100:2", "--json").data
        assert answer["job"]["parallel"]["zero"] == stage, name
    (inside / "link.json").symlink_to(folder / "z3.json")
    (inside / "a.yml").write_text(f"{AXOLOTL}deepspeed: link.json\n")
    assert "link.json is not next to the config" in costguard("size", "run/a.yml").out


SKYPILOT = "resources:\n  accelerators: H100:8\nnum_nodes: 2\nrun: |\n  python train.py\n"


def test_a_launch_file_is_a_rental_for_its_hours_or_the_hardware_of_a_job(
    costguard: Command, folder: Path, market: str
) -> None:
    (folder / "task.yaml").write_text(SKYPILOT)
    one = costguard("quote", "--gpu", "H100", "--count", "8", "--hours", "3", "--market", market, "--json").data
    two = costguard("quote", "task.yaml", "--hours", "3", "--market", market, "--json").data
    assert two["job"] == {"gpu": "H100-SXM", "gpu_count": 8, "nodes": 2, "hours": 3.0}
    assert [o["provider"] for o in two["options"]] == [o["provider"] for o in one["options"]]
    for single, double in zip(one["options"], two["options"], strict=True):
        assert float(double["usd"]["expected"]) == pytest.approx(2 * float(single["usd"]["expected"]), abs=0.02)
    job = costguard("quote", "task.yaml", "qlora.yml", "--market", market, "--json").data
    assert job["job"]["tokens"] == 100 * 4 * 2 * 2048 * 16
    assert {(o["gpu"], o["gpu_count"], o["nodes"]) for o in job["options"]} == {("H100-SXM", 8, 2)}
    costguard("quote", "task.yaml", "--market", market).says(
        "task.yaml", "no model and no time limit", "--hours", "H100 x8 on 2 nodes"
    )


def test_a_training_command_in_a_launch_file_is_read_and_never_run(costguard: Command, folder: Path) -> None:
    (folder / "task.yaml").write_text(
        "resources:\n  accelerators: A100-80GB:4\nrun: |\n  touch ran\n"
        "  torchrun --nproc_per_node 4 train.py --model_name_or_path gpt2 --per_device_train_batch_size 2 --bf16 \\\n"
        "    --max_steps 50 --model_max_length 512 --gradient_checkpointing True --my_rank 3\n"
    )
    answer = costguard("size", "task.yaml", "--json").data
    job = answer["job"]
    assert (job["model"], job["micro_batch"], job["seq_len"], job["tokens"]) == ("gpt2", 2, 512, 50 * 2 * 4 * 512)
    assert any("--my_rank (of the command)" in warning for warning in answer["warnings"])
    assert not (folder / "ran").exists()


def test_a_pipe_of_the_shell_is_read_once(costguard: Command) -> None:
    for text, code in (('model = "gpt2"\nmethod = "full"\n', 0), (AXOLOTL, 2), ("#!/bin/sh\n#SBATCH --gres=gpu:a100:1\n", 2)):
        reads, writes = os.pipe()
        writer = Thread(target=lambda said, end: Path(f"/dev/fd/{end}").write_text(said), args=(text, writes))
        writer.start()
        writer.join(5)
        os.close(writes)
        assert costguard("size", f"/dev/fd/{reads}").code == code
        os.close(reads)


def test_a_job_file_of_our_own_wins_over_a_config_and_stands_on_its_machines(costguard: Command, folder: Path) -> None:
    (folder / "job.toml").write_text('model = "gpt2"\nmethod = "qlora"\ntokens = 1e6\n')
    (folder / "task.yaml").write_text(SKYPILOT)
    answer = costguard("size", "job.toml", "task.yaml", "--json").data
    assert (answer["job"]["model"], answer["job"]["tokens"]) == ("gpt2", 1_000_000)
    both = costguard("size", "job.toml", "qlora.yml", "--seq-len", "512", "--json").data["job"]
    assert (both["model"], both["micro_batch"], both["lora"]["rank"]) == ("gpt2", 2, 32)


def test_what_a_script_computes_is_named_and_has_no_default(costguard: Command, folder: Path) -> None:
    (folder / "task.yaml").write_text(
        "resources: {accelerators: 'H100:8', use_spot: $SPOT}\nrun: |\n"
        "  torchrun train.py --model_name_or_path $MODEL --per_device_train_batch_size $BATCH --bf16 --max_length 512\n"
    )
    ran = costguard("size", "task.yaml", "--model", "gpt2")
    assert "filled in by another program, and not read: resources.use_spot." in ran.out
    assert "model_name_or_path (computed when it runs)" in ran.out
    assert "per_device_train_batch_size (computed when it runs)" in ran.out
    assert "micro_batch 8" not in ran.out


def test_a_batch_that_needs_other_gpus_than_those_stated_is_said(costguard: Command, tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(
        '{"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 4,'
        ' "zero_optimization": {"stage": 2}, "bf16": {"enabled": true}}'
    )
    asked = ("quote", "ds.json", "--model", "gpt2", "--method", "full", "--tokens", "1M", "--why", "--on")
    wrong, right = costguard(*asked, "A100:4"), costguard(*asked, "A100:2")
    assert "a step of 32 sequences with micro_batch 4 x accumulation 4 needs 2 GPUs, not 4" in wrong.out
    assert "contradicts" not in right.out
