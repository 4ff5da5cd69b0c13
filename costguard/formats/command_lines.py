"""Command lines of swift, verl, vLLM and SGLang, wherever a script has them: their own names for what other trainers state.

    swift sft --model Qwen/Qwen2.5-7B-Instruct --train_type lora --lora_rank 8 --max_length 2048
    python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=Qwen/Qwen3-8B trainer.n_gpus_per_node=8
    vllm serve meta-llama/Llama-3.1-70B-Instruct --tensor-parallel-size 4 --max-model-len 8192

The arguments of swift and verl are translated to those of the Trainer and TRL, and read as such. Sources: the options of
swift 3 (SftArguments), verl's ppo_trainer.yaml, vllm serve --help and sglang's server_args.py, read 2026-11.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from costguard.formats import trl
from costguard.formats.reading import ConfigDraft, LaunchHardware
from costguard.formats.vocabulary import DTYPES, name_model

SWIFT = {
    "model": "model_name_or_path",
    "lora_rank": "lora_r",
    "target_modules": "lora_target_modules",
    "attn_impl": "attn_implementation",
    "use_liger_kernel": "use_liger_kernel",
    **{name: name for name in ("per_device_train_batch_size", "gradient_accumulation_steps", "max_steps", "num_train_epochs")},
    **{name: name for name in ("max_length", "torch_dtype", "deepspeed", "fsdp", "optim", "gradient_checkpointing", "packing")},
}
ACTOR, ROLLOUT = "actor_rollout_ref.actor.", "actor_rollout_ref.rollout."
VERL = {
    "actor_rollout_ref.model.path": "model_name_or_path",
    "actor_rollout_ref.model.enable_gradient_checkpointing": "gradient_checkpointing",
    "actor_rollout_ref.model.lora_rank": "lora_r",
    "actor_rollout_ref.model.use_liger": "use_liger_kernel",
    f"{ACTOR}ppo_micro_batch_size_per_gpu": "per_device_train_batch_size",
    f"{ROLLOUT}n": "num_generations",
    "data.max_prompt_length": "max_prompt_length",
    "data.max_response_length": "max_completion_length",
    "trainer.total_training_steps": "max_steps",
    "trainer.total_epochs": "num_train_epochs",
}
SERVED = {
    "tensor_parallel_size": "tp",
    "tp_size": "tp",
    "tp": "tp",
    "pipeline_parallel_size": "pp",
    "pp_size": "pp",
    "max_model_len": "seq_len",
    "context_length": "seq_len",
}
SERVED_QUANTS = {
    "fp8": "fp8",
    "awq": "int4",
    "gptq": "int4",
    "awq_marlin": "int4",
    "gptq_marlin": "int4",
    "bitsandbytes": "nf4",
}
ROLLOUT_TP = f"{ROLLOUT}tensor_model_parallel_size"
WEIGHTS_IN_HOST = (f"{ACTOR}fsdp_config.param_offload", f"{ACTOR}fsdp_config.optimizer_offload")


class KnownCommand(NamedTuple):
    """A command of one of the four: which, and its arguments. Those of verl are dotted names with `=`."""

    tool: str
    arguments: Mapping[str, object]


def recognise_command(words: list[str], arguments: Mapping[str, object]) -> KnownCommand | None:
    """Return what the words of a command start, if it is one of the four; `arguments`: its `--name value` pairs."""
    names = [word.rpartition("/")[2] for word in words]
    if "swift" in names and {"sft", "pt", "rlhf"} & set(names):
        return KnownCommand("swift", arguments)
    if any(name.startswith("verl.trainer.") for name in names):
        pairs = (word.lstrip("+").partition("=") for word in words if "=" in word)
        return KnownCommand("verl", {key: value.strip("'\"") for key, _, value in pairs})
    server = next((name for name in names if name.startswith(("vllm.entrypoints", "sglang.launch_server"))), None)
    if "vllm" in names and "serve" in names:
        behind = words[names.index("serve") + 1 :]
        model = behind[0] if behind and not behind[0].startswith("-") else arguments.get("model")
        return KnownCommand("vLLM", {**arguments, "model": model})
    if server is not None:
        model = arguments.get("model", arguments.get("model_path"))
        return KnownCommand("vLLM" if server.startswith("vllm") else "SGLang", {**arguments, "model": model})
    return None


READ = {
    "swift": frozenset((*SWIFT, "train_type", "tuner_type", "quant_bits", "rlhf_type")),
    "verl": frozenset((*VERL, ROLLOUT_TP, *WEIGHTS_IN_HOST)),
    "server": frozenset((*SERVED, "model", "model_path", "quantization", "dtype", "kv_cache_dtype")),
}
NO_EFFECT = ("data.", "trainer.", "algorithm.", "host", "port", "api_key", "served_model", "trust_remote", "output_dir")
"""Beginnings of names of arguments that have no effect on the figures."""


def list_unread(command: KnownCommand) -> list[str]:
    """Return the names of the command's arguments that are not read and may change the figures."""
    read = READ.get(command.tool, READ["server"])
    return sorted(name for name in command.arguments if name not in read and not name.startswith(NO_EFFECT))


def read_known_command(draft: ConfigDraft, command: KnownCommand) -> None:
    """State on `draft` what the command says; leave what has no equal, and name it."""
    if command.tool in ("vLLM", "SGLang"):
        _read_server(draft, command)
        return
    table = SWIFT if command.tool == "swift" else VERL
    values: dict[str, object] = {table[key]: value for key, value in command.arguments.items() if key in table and value != ""}
    values.setdefault("gradient_checkpointing", True)
    if command.tool == "swift":
        _read_swift(draft, command.arguments, values)
    else:
        _read_verl(draft, command.arguments, values)
    draft.values = values
    trl.state_named_model(draft)
    trl.read_arguments(draft)


def _read_swift(draft: ConfigDraft, arguments: Mapping[str, object], values: dict[str, object]) -> None:
    """Add to `values` what swift calls by other words: the kind of training, and bits."""
    kind = arguments.get("train_type", arguments.get("tuner_type", "lora"))
    values |= {"use_peft": kind == "lora", "load_in_4bit": str(arguments.get("quant_bits")) == "4"}
    if kind not in ("lora", "full"):
        draft.leave("--train_type", f"{kind} is not sized")
    if arguments.get("rlhf_type") in ("dpo", "ppo"):
        draft.state("preference.algorithm", arguments["rlhf_type"], "--rlhf_type")


def _read_verl(draft: ConfigDraft, arguments: Mapping[str, object], values: dict[str, object]) -> None:
    """State what TRL has no argument for: the GPUs, FSDP with fp32 weights, and offloading."""
    if str(values.get("lora_r", "0")) == "0":
        values.pop("lora_r", None)
    if str(arguments.get("algorithm.adv_estimator", "gae")) == "gae":
        values.pop("num_generations", None)
        draft.state("preference.algorithm", "ppo", "algorithm.adv_estimator")
        for key, name in (("max_prompt_length", "prompt_len"), ("max_completion_length", "completion_len")):
            if key in values:
                draft.state(f"preference.{name}", draft.read_count(values.pop(key), key), key)
    if str(arguments.get(ROLLOUT_TP)).isdigit():
        draft.state("preference.rollout_tp", draft.read_count(arguments[ROLLOUT_TP], ROLLOUT_TP), ROLLOUT_TP)
    draft.assume("precision", "bf16-amp")
    draft.assume("parallel.fsdp", value=True)
    if any(_is_true(arguments, key) for key in WEIGHTS_IN_HOST):
        draft.state("parallel.offload", "all" if _is_true(arguments, WEIGHTS_IN_HOST[0]) else "optimizer", "offload")
    gpus, nodes = arguments.get("trainer.n_gpus_per_node"), arguments.get("trainer.nnodes", 1)
    if str(gpus).isdigit() and str(nodes).isdigit():
        count, machines = draft.read_count(gpus, "trainer.n_gpus_per_node"), draft.read_count(nodes, "trainer.nnodes")
        draft.hardware = LaunchHardware(gpu_count=count, nodes=machines)


def _is_true(arguments: Mapping[str, object], key: str) -> bool:
    return str(arguments.get(key)).lower() == "true"


def _read_server(draft: ConfigDraft, command: KnownCommand) -> None:
    """State a server: its model, split, longest sequence, bits and cache; its GPUs are those of the split."""
    arguments = command.arguments
    draft.state("method", "inference", command.tool)
    model, split, computed = arguments.get("model"), 1, False
    if isinstance(model, str) and "$" not in model:
        name_model(draft, model, "model")
    else:
        draft.leave("model", "is computed when the script runs")
    for key, field in SERVED.items():
        value = arguments.get(key)
        if value is None:
            continue
        if not str(value).isdigit():
            computed = True
            draft.leave(f"--{key}", "is computed when the script runs")
            continue
        number = draft.read_count(value, f"--{key}")
        split *= 1 if field == "seq_len" else number
        draft.state(field if field == "seq_len" else f"parallel.{field}", number, f"--{key}")
    draft.hardware = None if computed else LaunchHardware(gpu_count=split)
    quant = SERVED_QUANTS.get(str(arguments.get("quantization")))
    if quant is not None:
        draft.state("precision" if quant == "fp8" else "quant", quant, "--quantization")
    elif arguments.get("quantization") is not None:
        draft.leave("--quantization", f"{arguments['quantization']} is not sized")
    elif (dtype := DTYPES.get(str(arguments.get("dtype")))) is not None:
        draft.state("precision", dtype, "--dtype")
    if str(arguments.get("kv_cache_dtype")).startswith("fp8"):
        draft.state("kv_cache", "fp8", "--kv_cache_dtype")
