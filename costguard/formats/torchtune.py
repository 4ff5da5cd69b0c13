"""torchtune: YAML recipes with `_component_` paths (pytorch.org/torchtune, recipes/configs, read 2026-11).

    model: {_component_: torchtune.models.llama3_1.lora_llama3_1_8b, lora_rank: 8, lora_attn_modules: [q_proj, v_proj]}
    tokenizer: {max_seq_len: 2048}
    batch_size: 2
    dtype: bf16

The builder's name is the model: `lora_llama3_1_8b` is Llama 3.1 8B with adapters, `qlora_llama2_7b` with 4-bit weights.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from costguard.formats.loading import ConfigFile
from costguard.formats.reading import ConfigDraft, StepPlan
from costguard.formats.vocabulary import DTYPES, find_shipped_name, name_optimizer

LABEL = "torchtune"
KINDS = ("yaml",)

NO_EFFECT = (
    *("tokenizer._component_", "tokenizer.path", "tokenizer.merges_file", "tokenizer.prompt_template", "tokenizer.image_size"),
    *(
        "checkpointer",
        "resume_from_checkpoint",
        "save_adapter_weights_only",
        "dataset",
        "dataset_val",
        "seed",
        "shuffle",
        "lr_scheduler",
    ),
    *("optimizer.lr", "optimizer.weight_decay", "optimizer.betas", "optimizer.eps", "model.lora_alpha", "model.lora_dropout"),
    *("metric_logger", "output_dir", "log_every_n_steps", "log_peak_memory_stats", "log_level", "device", "profiler"),
    *(
        "clip_grad_norm",
        "run_val_every_n_steps",
        "batch_size_val",
        "model_dir",
        "base_output_dir",
        "custom_sharded_layers",
        "loss.beta",
    ),
    *("loss.label_smoothing", "cudnn_deterministic_mode", "collate_fn", "teacher_checkpointer", "loss.num_output_chunks"),
    *("fsdp_reshard_after_forward", "optimizer.torch_*", "enable_async_checkpointing", "save_every_epoch", "checkpoint_dir"),
)
METHOD = re.compile(r"^(q?lora|dora|qdora)_")
CHUNKED = ("CEWithChunkedOutputLoss", "LinearCrossEntropyLoss")
FAMILIES = (
    (re.compile(r"^code_llama2_(\d+b)$"), r"codellama-\1"),
    (re.compile(r"^llama(\d)_(\d)_(.+)$"), r"llama-\1.\2-\3"),
    (re.compile(r"^qwen(\d)_(\d)_(\d+)_(\d+)_?(b)(?:_.*)?$"), r"qwen\1.\2-\3.\4b"),
    (re.compile(r"^qwen(\d)_(\d)_(\d+b)(?:_.*)?$"), r"qwen\1.\2-\3"),
    (re.compile(r"^(\w+?)_(\d+)_(\d+)b$"), r"\1-\2.\3b"),
)
"""Builders' names whose underscores are dots: `llama3_1_8b`, `qwen2_5_0_5b`, `qwen2_1_5b`."""


def recognise(file: ConfigFile) -> bool:
    """Return whether the model is a component of torchtune."""
    model = file.table.get("model")
    return isinstance(model, dict) and str(model.get("_component_", "")).startswith("torchtune.")


def read(draft: ConfigDraft) -> None:
    """Take the model, the method, lengths, batches and memory options."""
    draft.state("framework", "torchtune", "model._component_")
    _read_model(draft)
    length = draft.take_count("tokenizer.max_seq_len") or draft.take_count("max_seq_len")
    if length is not None:
        draft.state("seq_len", length, "tokenizer.max_seq_len")
    micro = draft.take_count("batch_size")
    if micro is not None:
        draft.state("micro_batch", micro, "batch_size")
    _read_optimizer(draft)
    dtype = DTYPES.get(str(draft.take_text("dtype")))
    if dtype:
        draft.state("precision", dtype, "dtype")
    elif draft.take_text("dtype") is not None:
        draft.leave("dtype", f"{draft.take_text('dtype')} is not known")
    _read_memory(draft)
    _read_parallel(draft)
    epochs = draft.take_count("epochs") or 1
    per_epoch = draft.take_count("max_steps_per_epoch")
    steps = per_epoch * epochs if per_epoch else None
    draft.plan = StepPlan(accumulation=draft.take_count("gradient_accumulation_steps"), steps=steps, epochs=epochs)
    draft.ignore(*NO_EFFECT)


def _read_model(draft: ConfigDraft) -> None:
    above, _, builder = (draft.take_text("model._component_") or "").rpartition(".")
    kind = METHOD.match(builder)
    names = list(_list_names(METHOD.sub("", builder), family=above.rpartition(".")[2]))
    shipped = next((model for model in map(find_shipped_name, names) if model), names[0])
    draft.state("model", shipped, "model._component_")
    quantised = bool(kind and kind[1].startswith("q")) or bool(draft.take_flag("model.quantize_base"))
    if kind is None:
        draft.state("method", "full", "model._component_")
        return
    draft.state("method", "qlora" if quantised else "lora", "model._component_")
    if quantised:
        draft.state("quant", "nf4", "model._component_")
    rank = draft.take_count("model.lora_rank")
    draft.assume("lora.rank", 8) if rank is None else draft.state("lora.rank", rank, "model.lora_rank")
    targets = list(draft.take_names("model.lora_attn_modules") or ())
    if draft.take_flag("model.apply_lora_to_mlp"):
        targets += ["gate_proj", "up_proj", "down_proj"]
    targets = ["o_proj" if one == "output_proj" else one for one in targets]
    if targets:
        draft.state("lora.targets", targets, "model.lora_attn_modules")
    if draft.take_flag("model.apply_lora_to_output"):
        draft.leave("model.apply_lora_to_output", "an adapter of the head is not counted")
    if draft.take_flag("model.use_dora") or "dora" in kind[1]:
        draft.state("lora.dora", value=True, key="model.use_dora")


def _list_names(builder: str, family: str) -> Iterator[str]:
    """Yield what a builder may stand for: llama3_1_8b is llama-3.1-8b, qwen2_1_5b is qwen2-1.5b, llama3_8b llama-3-8b.

    `family`: its module, which counts where the builder's name says less: gemma2.qlora_gemma_27b is gemma-2-27b.
    """
    first, line, rest = builder.partition("_")
    builder = f"{family}{line}{rest}" if family.startswith(first) and family[len(first) :].isdigit() else builder
    for pattern, name in FAMILIES:
        if pattern.match(builder):
            yield pattern.sub(name, builder).replace("_", "-")
    spaced = re.sub(r"^(llama)(\d)", r"\1-\2", builder)
    yield re.sub(r"_(?:base|instruct)$", "", spaced).replace("_", "-")


def _read_optimizer(draft: ConfigDraft) -> None:
    optimizer_name = draft.take_text("optimizer._component_")
    if optimizer_name is not None:
        name_optimizer(draft, optimizer_name, "optimizer._component_")
    if draft.take_flag("optimizer.fused"):
        draft.state("optimizer_kernel", "fused", "optimizer.fused")
    for key in ("optimizer_in_bwd", "compile"):
        if draft.take_flag(key):
            draft.state("optimizer_in_backward" if key == "optimizer_in_bwd" else "compiled", value=True, key=key)


def _read_memory(draft: ConfigDraft) -> None:
    checkpointing = draft.take_flag("enable_activation_checkpointing")
    draft.assume("checkpointing", "none") if checkpointing is None else draft.state(
        "checkpointing", "full" if checkpointing else "none", "enable_activation_checkpointing"
    )
    if draft.take_flag("enable_activation_offloading"):
        draft.state("offload_activations", value=True, key="enable_activation_offloading")
    loss = draft.take_text("loss._component_") or ""
    if loss.endswith(CHUNKED):
        draft.state("loss", "chunked", "loss._component_")
    elif loss.endswith(("CrossEntropyLoss",)):
        draft.state("loss", "whole", "loss._component_")
    elif "DPO" in loss or "GRPO" in loss:
        draft.state("preference.algorithm", "grpo" if "GRPO" in loss else "dpo", "loss._component_")
        samples = draft.take_count("grpo_samples")
        if samples is not None:
            draft.state("preference.completions", samples, "grpo_samples")
    elif loss:
        draft.leave("loss._component_", f"{loss}: the usual loss is sized")


def _read_parallel(draft: ConfigDraft) -> None:
    if draft.take_flag("fsdp_cpu_offload"):
        draft.state("parallel.fsdp", value=True, key="fsdp_cpu_offload")
        draft.state("parallel.offload", "all", "fsdp_cpu_offload")
    tp = draft.take_count("tensor_parallel_dim")
    if tp is not None and tp > 1:
        draft.state("parallel.tp", tp, "tensor_parallel_dim")
    for key in ("data_parallel_shard_dim", "data_parallel_replicate_dim"):
        value = draft.take_number(key)
        if value not in (None, 1.0, -1.0):
            draft.leave(key, "the split that fits is chosen")
    draft.ignore("tensor_parallel_plan")
