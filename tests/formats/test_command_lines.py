"""Command lines of swift, verl, vLLM and SGLang, and what a script's comments and quotes mean."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from costguard.data import ShippedFacts
from costguard.errors import InputError
from costguard.formats import read_config
from costguard.formats.loading import load_config_file
from costguard.formats.reading import ConfigReading
from costguard.services.quote.job_input import read_job_input


def read(tmp_path: Path, text: str, name: str = "run.sh") -> ConfigReading:
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    return read_config(load_config_file(file))


TRAIN = "train.py --model_name_or_path gpt2 --per_device_train_batch_size 4 --max_steps 10"


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        (f"# torchrun --nproc_per_node 16 old.py\ntorchrun --nproc_per_node 8 {TRAIN}\n", 8),
        (f"torchrun --nproc_per_node 8 {TRAIN}  # was --nproc_per_node 16\n", 8),
        (f'torchrun --nproc_per_node "4" {TRAIN}\n', 4),
        (f"torchrun --nproc-per-node='2' {TRAIN}\n", 2),
        (f"# GPUS=16\nGPUS=8\ntorchrun --nproc_per_node $GPUS {TRAIN}\n", 8),
    ],
)
def test_a_comment_is_not_read_and_a_quoted_value_is(tmp_path: Path, text: str, gpus: int) -> None:
    hardware = read(tmp_path, text).hardware
    assert hardware is not None
    assert hardware.gpu_count == gpus


def test_swift_is_read_by_its_own_names(tmp_path: Path) -> None:
    text = "NPROC_PER_NODE=4 \\\nswift sft --model Qwen/Qwen2.5-7B-Instruct --train_type lora --quant_bits 4 --lora_rank 8"
    config = read(tmp_path, f"{text} --per_device_train_batch_size 2 --max_length 2048\n")
    assert config.table["model"] == "qwen2.5-7b"
    assert (config.table["method"], config.table["seq_len"], config.table["micro_batch"]) == ("qlora", 2048, 2)
    assert config.hardware is not None
    assert config.hardware.gpu_count == 4


@pytest.mark.parametrize(("estimator", "algorithm"), [("grpo", "grpo"), ("gae", "ppo")])
def test_verl_is_preference_training_on_its_machines(tmp_path: Path, estimator: str, algorithm: str) -> None:
    text = (
        f"python3 -m verl.trainer.main_ppo algorithm.adv_estimator={estimator} data.max_prompt_length=512 \\\n"
        "  data.max_response_length=1024 actor_rollout_ref.model.path=Qwen/Qwen3-8B actor_rollout_ref.rollout.n=5 \\\n"
        "  actor_rollout_ref.rollout.tensor_model_parallel_size=4 \\\n"
        "  actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8 trainer.n_gpus_per_node=8 trainer.nnodes=2 $@\n"
    )
    config = read(tmp_path, text)
    preference = config.table["preference"]
    assert isinstance(preference, dict)
    assert (preference["algorithm"], preference["prompt_len"], preference["completion_len"]) == (algorithm, 512, 1024)
    assert preference["rollout_tp"] == 4
    assert (config.table["micro_batch"], config.table["method"]) == (8, "full")
    assert config.hardware is not None
    assert (config.hardware.gpu_count, config.hardware.nodes) == (8, 2)


def test_arguments_that_are_not_read_are_named(tmp_path: Path) -> None:
    config = read(tmp_path, "vllm serve Qwen/Qwen3-8B --port 80 --max-num-seqs 64\n")
    assert config.unread == ("--max_num_seqs (of the command)",)


@pytest.mark.parametrize(
    ("command", "model", "seq_len"),
    [
        ("vllm serve meta-llama/Llama-3.1-70B-Instruct --tensor-parallel-size 4 --max-model-len 8192", "llama-3.1-70b", 8192),
        ("python -m vllm.entrypoints.openai.api_server --model Qwen/Qwen3-8B -tp 1 --tensor_parallel_size 4", "qwen3-8b", None),
        (
            "python -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3 --tp 4 --context-length 4096",
            "deepseek-v3",
            4096,
        ),
    ],
)
def test_a_server_is_inference_on_the_gpus_of_its_split(tmp_path: Path, command: str, model: str, seq_len: int | None) -> None:
    config = read(tmp_path, f"{command} --kv-cache-dtype fp8\n")
    assert (config.table["method"], config.table["model"], config.table["kv_cache"]) == ("inference", model, "fp8")
    assert (config.table["parallel"], config.table.get("seq_len")) == ({"tp": 4}, seq_len)
    assert config.hardware is not None
    assert config.hardware.gpu_count == 4


def test_variables_of_dstack_reach_its_commands(tmp_path: Path) -> None:
    commands = ["vllm serve $MODEL_ID --tensor-parallel-size $TP"]
    env = ["MODEL_ID=Qwen/Qwen3-8B", "TP=2", "HF_TOKEN"]
    text = json.dumps({"type": "service", "env": env, "commands": commands, "resources": {"gpu": "H100:2"}})
    config = read(tmp_path, text, ".dstack.yml")
    assert (config.table["model"], config.table["parallel"]) == ("qwen3-8b", {"tp": 2})


def test_slurm_without_gpus_says_what_to_add(tmp_path: Path) -> None:
    config = read(tmp_path, f"#!/bin/bash\n#SBATCH --nodes=2\nsrun torchrun {TRAIN}\n", "job.sbatch")
    assert config.hardware is not None
    assert (config.hardware.gpu_count, config.hardware.nodes) == (None, 2)
    assert any("--gpu NAME --count N" in line for line in config.unread)


def test_a_file_of_no_format_says_so(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello\n", encoding="utf-8")
    with pytest.raises(InputError, match="is of no known format"):
        read_job_input({}, str(tmp_path / "notes.txt"), ShippedFacts())
