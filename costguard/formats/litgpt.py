"""LitGPT: YAML of its scripts' arguments (github.com/Lightning-AI/litgpt, config_hub and litgpt/args.py, read 2026-11).

    checkpoint_dir: checkpoints/meta-llama/Meta-Llama-3.1-8B
    precision: bf16-true
    quantize: bnb.nf4
    devices: 1
    lora_r: 32
    train: {micro_batch_size: 2, global_batch_size: 8, max_seq_length: 512, epochs: 2}

Fine-tuning checkpoints activations under FSDP, so on several devices; pretraining does not (finetune/full.py, pretrain.py).
"""

from __future__ import annotations

from costguard.formats.loading import ConfigFile
from costguard.formats.reading import ConfigDraft, LaunchHardware, StepPlan
from costguard.formats.vocabulary import name_model, name_optimizer

LABEL = "LitGPT"
KINDS = ("yaml",)

NO_EFFECT = (
    *(
        "out_dir",
        "tokenizer_dir",
        "initial_checkpoint_dir",
        "data",
        "eval",
        "logger_name",
        "seed",
        "resume",
        "access_token",
        "log",
    ),
    *(
        "train.save_interval",
        "train.log_interval",
        "train.lr_warmup_*",
        "train.learning_rate",
        "train.weight_decay",
        "train.beta1",
    ),
    *("train.beta2", "train.max_norm", "train.min_lr", "train.max_time", "train.tie_embeddings", "lora_alpha", "lora_dropout"),
    *("optimizer.init_args", "optim.learning_rate", "optim.weight_decay", "optim.beta*", "check", "optimizer_args", "ops"),
)
PRECISIONS = {
    "bf16-true": "bf16",
    "bf16-mixed": "bf16-amp",
    "16-true": "fp16",
    "16-mixed": "fp16-amp",
    "32-true": "fp32",
    "32": "fp32",
}
TARGETS = {
    "lora_query": ("q_proj",),
    "lora_key": ("k_proj",),
    "lora_value": ("v_proj",),
    "lora_projection": ("o_proj",),
    "lora_mlp": ("gate_proj", "up_proj", "down_proj"),
}
USUAL_TARGETS = ("lora_query", "lora_value")
DIMENSIONS = {
    "n_layer": "layers",
    "n_embd": "hidden",
    "n_head": "heads",
    "n_query_groups": "kv_heads",
    "head_size": "head_dim",
    "intermediate_size": "ffn",
    "padded_vocab_size": "vocab",
}
NEEDED = ("n_layer", "n_embd", "n_head", "intermediate_size", "padded_vocab_size")
GATED = ("LLaMAMLP", "GemmaMLP")
"""`mlp_class_name`; the default, GptNeoxMLP, is not gated."""


def recognise(file: ConfigFile) -> bool:
    """Return whether the keys are LitGPT's."""
    train = file.table.get("train")
    return isinstance(train, dict) and {"micro_batch_size", "global_batch_size"} <= train.keys()


def read(draft: ConfigDraft) -> None:
    """Take the model, the method, lengths, batches, precision and devices."""
    draft.state("framework", "litgpt", "train")
    tuned = draft.take_text("checkpoint_dir")
    pretrained = draft.take_text("model_name") or (draft.take_text("model.name") if tuned is None else None)
    if tuned is not None:
        name_model(draft, tuned, "checkpoint_dir")
    elif (shape := _read_shape(draft)) is not None:
        draft.state("architecture", shape, "model_config" if draft.take("model_config") else "model")
    elif pretrained is not None:
        name_model(draft, pretrained, "model_name" if draft.take_text("model_name") else "model.name")
    draft.ignore("model", "model_config")
    _read_method(draft, pretraining=tuned is None)
    _read_lengths(draft)
    precision = draft.take_text("precision")
    if precision is None:
        draft.assume("precision", "bf16")
    elif precision in PRECISIONS:
        draft.state("precision", PRECISIONS[precision], "precision")
    else:
        draft.leave("precision", f"{precision} is not known")
    _read_optimizer(draft)
    _read_devices(draft, pretraining=tuned is None)
    draft.ignore(*NO_EFFECT)


def _read_shape(draft: ConfigDraft) -> dict[str, object] | None:
    """Return the model's dimensions; None if not all are stated. `model_config` is what `model` was until 2024-05."""
    for key in ("model_config", "model"):
        config = draft.take(key)
        if isinstance(config, dict) and all(isinstance(config.get(one), int) for one in NEEDED):
            shape: dict[str, object] = {field: config[one] for one, field in DIMENSIONS.items() if config.get(one) is not None}
            shape |= {"gated": config.get("mlp_class_name") in GATED, "bias": bool(config.get("bias", False))}
            tied = draft.take_flag("train.tie_embeddings")
            return {"kind": "decoder", **shape, **({"tied_embeddings": True} if tied else {})}
    return None


def _read_method(draft: ConfigDraft, *, pretraining: bool) -> None:
    quantised = draft.take_text("quantize")
    rank = draft.take_count("lora_r")
    if rank is None:
        draft.assume("method", "pretrain" if pretraining else "full")
        if quantised is not None:
            draft.leave("quantize", "quantised weights are trained only with lora_r")
        return
    draft.state("method", "qlora" if quantised else "lora", "quantize" if quantised else "lora_r")
    draft.state("lora.rank", rank, "lora_r")
    if quantised is not None:
        draft.state("quant", "int8" if "int8" in quantised else "nf4", "quantize")
        if quantised.endswith("-dq"):
            draft.state("double_quant", value=True, key="quantize")
    switched = {key: draft.take_flag(key) for key in TARGETS}
    chosen = [key for key, on in switched.items() if on or (on is None and key in USUAL_TARGETS)]
    if chosen:
        draft.state("lora.targets", [name for key in chosen for name in TARGETS[key]], "+".join(chosen))
    if draft.take_flag("lora_head"):
        draft.leave("lora_head", "an adapter of the head is not counted")


def _read_lengths(draft: ConfigDraft) -> None:
    length, micro = draft.take_count("train.max_seq_length"), draft.take_count("train.micro_batch_size")
    if length is None:
        length = draft.take_count("model.block_size")
        if length is not None:
            draft.state("seq_len", length, "model.block_size")
    else:
        draft.state("seq_len", length, "train.max_seq_length")
    if micro is not None:
        draft.state("micro_batch", micro, "train.micro_batch_size")
    tokens = draft.take_count("train.max_tokens")
    if tokens is not None:
        draft.state("tokens", tokens, "train.max_tokens")
    draft.plan = StepPlan(
        global_sequences=draft.take_count("train.global_batch_size"),
        steps=None if tokens is not None else draft.take_count("train.max_steps"),
        epochs=draft.take_number("train.epochs"),
    )


def _read_optimizer(draft: ConfigDraft) -> None:
    optimizer = draft.take("optimizer")
    if isinstance(optimizer, dict):
        name_optimizer(draft, str(optimizer.get("class_path", "")), "optimizer.class_path")
    elif isinstance(optimizer, str):
        name_optimizer(draft, optimizer, "optimizer")
    elif draft.take_text("optim.optimizer") is not None:
        name_optimizer(draft, str(draft.take_text("optim.optimizer")), "optim.optimizer")
    else:
        draft.assume("optimizer", "adamw")


def _read_devices(draft: ConfigDraft, *, pretraining: bool) -> None:
    """Take the devices; fine-tuning has one if none is stated, and pretraining all that there are (`auto`, or -1)."""
    devices, nodes = draft.take("devices"), draft.take_machines("num_nodes") or 1
    if devices not in (None, "auto", -1, "-1"):
        devices = draft.read_count(devices, "devices")
        draft.hardware = LaunchHardware(gpu_count=devices, nodes=nodes)
    elif devices is None and not pretraining and nodes == 1 and not draft.is_computed("devices"):
        draft.notes.append("devices: one, as LitGPT fine-tunes where none is stated; more of them shard and checkpoint")
        devices = 1
    many = not isinstance(devices, int) or devices * nodes > 1
    draft.assume("checkpointing", "full" if many and not pretraining else "none")
    if many and isinstance(devices, int):
        draft.assume("parallel.fsdp", value=True)
