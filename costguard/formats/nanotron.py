"""nanotron: YAML of its Config dataclasses (github.com/huggingface/nanotron, src/nanotron/config, read 2026-11).

    model: {dtype: bfloat16, model_config: {is_llama_config: true, hidden_size: 2048, ...}}
    parallelism: {dp: 2, tp: 2, pp: 2, expert_parallel_size: 1}
    tokens: {micro_batch_size: 2, batch_accumulation_per_replica: 1, sequence_length: 2048, train_steps: 1000}

The model is its dimensions, as transformers' config.json has them; dp x tp x pp is the number of GPUs, so tokens are known.
"""

from __future__ import annotations

from collections.abc import Mapping

from costguard.formats.loading import ConfigFile
from costguard.formats.reading import ConfigDraft, LaunchHardware, StepPlan
from costguard.formats.vocabulary import DTYPES, name_optimizer

LABEL = "nanotron"
KINDS = ("yaml",)

NO_EFFECT = (
    *(
        "checkpoints",
        "data_stages",
        "data",
        "general",
        "lighteval",
        "logging",
        "profiler",
        "tokenizer",
        "s3_upload",
        "metrics_logging",
    ),
    *("optimizer.adam_*", "optimizer.torch_adam_is_fused", "parallelism.moe_layer_recompute"),
    *("model.ddp_bucket_cap_mb", "model.init_method", "model.make_vocab_size_divisible_by", "optimizer.clip_grad"),
    *("optimizer.learning_rate_scheduler", "optimizer.optimizer_factory", "optimizer.weight_decay*", "parallelism.pp_engine"),
    *(
        "parallelism.tp_*",
        "parallelism.recompute_layer",
        "tokens.limit_*",
        "tokens.val_check_interval",
        "experiment_logger",
        "kill_switch_path",
    ),
)
EXPERTS = {"num_experts", "top_k", "layers", "enable_shared_expert", "token_dispatcher_type"}
"""Keys of MoEConfig (src/nanotron/config/models_config.py, read 2026-11), whose defaults are 8 experts and 2 a token."""
DIMENSIONS = {
    "num_hidden_layers": "layers",
    "hidden_size": "hidden",
    "num_attention_heads": "heads",
    "num_key_value_heads": "kv_heads",
    "intermediate_size": "ffn",
    "vocab_size": "vocab",
}


def recognise(file: ConfigFile) -> bool:
    """Return whether there are nanotron's sections."""
    table = file.table
    model = table.get("model")
    return {"parallelism", "tokens"} <= table.keys() and isinstance(model, dict) and "model_config" in model


def read(draft: ConfigDraft) -> None:
    """Take the dimensions, batch, lengths, precision, parallel degrees and steps."""
    _read_model(draft)
    draft.assume("method", "pretrain")
    for field, key in (("seq_len", "tokens.sequence_length"), ("micro_batch", "tokens.micro_batch_size")):
        value = draft.take_count(key)
        if value is not None:
            draft.state(field, value, key)
    optimizer_name = draft.take_text("optimizer.optimizer_factory.name")
    if optimizer_name is not None:
        name_optimizer(draft, optimizer_name, "optimizer.optimizer_factory.name")
    elif draft.take("optimizer.adam_beta1") is not None:  # until 2024-03 there was one optimizer, and no factory
        draft.state("optimizer", "adamw", "optimizer.adam_beta1")
    dtype = DTYPES.get(str(draft.take_text("model.dtype")))
    masters = draft.take_flag("optimizer.accumulate_grad_in_fp32")
    if dtype in ("bf16", "fp16"):
        draft.state("precision", f"{dtype}-amp" if masters else dtype, "model.dtype")
    elif dtype:
        draft.state("precision", dtype, "model.dtype")
    elif draft.take_text("model.dtype") is not None:
        draft.leave("model.dtype", f"{draft.take_text('model.dtype')} is not sized")
    recomputed = draft.take_flag("parallelism.recompute_layer")
    draft.assume("checkpointing", "none") if not recomputed else draft.state(
        "checkpointing", "full", "parallelism.recompute_layer"
    )
    _read_parallel(draft)
    draft.notes.append("nanotron's own modules are not modelled: sized as framework hf")
    draft.ignore(*NO_EFFECT)


def _read_model(draft: ConfigDraft) -> None:
    config = draft.take("model.model_config")
    if not isinstance(config, dict):
        return
    kind = "qwen2" if config.get("is_qwen2_config") else "llama"
    missing = [key for key in DIMENSIONS if key != "num_key_value_heads" and not isinstance(config.get(key), int)]
    if missing:
        draft.leave("model.model_config", f"{missing[0]} is missing")
        return
    shape: dict[str, object] = {field: config[key] for key, field in DIMENSIONS.items() if config.get(key) is not None}
    shape |= {"kind": "decoder", "gated": True, "tied_embeddings": bool(config.get("tie_word_embeddings", False))}
    shape |= _read_experts(draft, config)
    draft.state("architecture", shape, "model.model_config")
    draft.notes.append(f"the model is read from its dimensions, as a {kind} decoder")


def _read_experts(draft: ConfigDraft, config: Mapping[str, object]) -> dict[str, object]:
    """Return the experts, each as wide as `intermediate_size`; {} if there are none, or not in every layer, which is said."""
    experts = config.get("moe_config")
    if isinstance(experts, Mapping) and experts.keys() <= EXPERTS and experts.get("layers", [-1]) == [-1]:
        shape = {"experts": experts.get("num_experts", 8), "experts_per_token": experts.get("top_k", 2)}
        return shape | ({"shared_ffn": config["intermediate_size"]} if experts.get("enable_shared_expert") else {})
    if experts or config.get("moe_num_experts"):
        draft.leave("model.model_config.moe_config", "these experts of nanotron are not read: sized without them")
    return {}


def _read_parallel(draft: ConfigDraft) -> None:
    degrees = {field: draft.take_count(f"parallelism.{field}") or 1 for field in ("dp", "tp", "pp")}
    degrees["cp"] = draft.take_count("parallelism.context_parallel_size") or 1
    experts = draft.take_count("parallelism.expert_parallel_size") or 1
    for field, value in {**degrees, "ep": experts}.items():
        if field != "dp" and value > 1:
            key = {"ep": "expert_parallel_size", "cp": "context_parallel_size"}.get(field, field)
            draft.state(f"parallel.{field}", value, f"parallelism.{key}")
    stage = draft.take_count("optimizer.zero_stage", least=0)
    if stage is not None:
        draft.state("parallel.zero", stage, "optimizer.zero_stage")
    gpus = degrees["dp"] * degrees["tp"] * degrees["pp"] * degrees["cp"]
    per_node = min(gpus, 8)
    if gpus % per_node == 0:
        draft.hardware = LaunchHardware(gpu_count=per_node, nodes=gpus // per_node)
    draft.notes.append(f"the parallel degrees make {gpus} GPUs: {per_node} a machine is assumed")
    draft.plan = StepPlan(
        accumulation=draft.take_count("tokens.batch_accumulation_per_replica"), steps=draft.take_count("tokens.train_steps")
    )
