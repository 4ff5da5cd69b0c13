"""LLaMA-Factory: a YAML or JSON file of Trainer arguments and its own (llamafactory.readthedocs.io, src/llamafactory/hparams).

    model_name_or_path: meta-llama/Meta-Llama-3-8B-Instruct
    stage: sft                  # pt | sft | rm | ppo | dpo | kto
    finetuning_type: lora       # full | freeze | lora | oft; lora is the default
    lora_rank: 8
    cutoff_len: 2048
    per_device_train_batch_size: 1

Its loader checkpoints unless `disable_gradient_checkpointing`, and casts trained weights to fp32 unless `pure_bf16`
(model/loader.py and model/adapter.py, read 2026-11). Defaults: lora_rank 8, lora_target all, cutoff_len 2048.
"""

from __future__ import annotations

from costguard.formats import training_arguments
from costguard.formats.loading import ConfigFile
from costguard.formats.reading import ConfigDraft
from costguard.formats.vocabulary import is_quantised, state_model, state_targets

LABEL = "LLaMA-Factory"
KINDS = ("yaml", "json")

NO_EFFECT = (
    *("dataset", "dataset_dir", "eval_dataset", "template", "overwrite_cache", "preprocessing_*", "plot_loss", "lora_alpha"),
    *("lora_dropout", "use_fast_tokenizer", "cache_dir", "split_special_tokens"),
    *("new_special_tokens", "pref_beta", "pref_ftx", "kto_*", "val_size", "predict_with_generate", "reserved_label_len"),
    *(
        "train_on_prompt",
        "mask_history",
        "ignore_pad_token_for_loss",
        "streaming",
        "buffer_size",
        "mix_strategy",
        "interleave_probs",
    ),
    *("tokenized_path", "media_dir", "image_*", "video_*", "export_*", "infer_*", "use_swanlab", "swanlab_*", "ray_run_name"),
    *("ray_storage_path", "flash_attn_implementation", "enable_thinking", "adapter_name_or_path", "default_system"),
    *(
        "quantization_method",
        "double_quantization",
        "freeze_vision_tower",
        "freeze_multi_modal_projector",
        "ref_model",
        "packing",
    ),
)
OWN = frozenset(("finetuning_type", "stage", "cutoff_len", "template"))
"""Keys that no other tool of Trainer arguments has."""
FOUR_BITS = 4
PREFERENCES = {"dpo": "dpo", "ppo": "ppo"}


def recognise(file: ConfigFile) -> bool:
    """Return whether the keys are LLaMA-Factory's."""
    keys = file.table.keys()
    return "model_name_or_path" in keys and bool(OWN & keys)


def read(draft: ConfigDraft) -> None:
    """Take the model, the method, lengths, batches and sharding."""
    state_model(draft, "model_name_or_path")
    method = _read_method(draft)
    length = draft.take_count("cutoff_len")
    if length is None:
        draft.assume("seq_len", 2048)
    else:
        draft.state("seq_len", length, "cutoff_len")
    training_arguments.read_batch(draft)
    samples = draft.take_count("max_samples")
    if samples is not None:
        draft.notes.append(f"max_samples {samples}: at most so many examples of each dataset")
    _read_precision(draft, method)
    off = draft.take_flag("disable_gradient_checkpointing")
    if off is not None:
        draft.state("checkpointing", "none" if off else "full", "disable_gradient_checkpointing")
    training_arguments.read_trainer(draft, checkpointing=None if off is not None else "full")
    attention = draft.take_text("flash_attn")
    if attention in ("fa2", "sdpa", "fa3", "disabled"):
        draft.state("attention", {"fa3": "flash3", "disabled": "eager"}.get(attention, "flash"), "flash_attn")
    if draft.take_flag("enable_liger_kernel"):
        draft.state("loss", "fused", "enable_liger_kernel")
    if draft.take_flag("use_unsloth"):
        draft.state("framework", "unsloth", "use_unsloth")
    draft.ignore(*NO_EFFECT)


def _read_method(draft: ConfigDraft) -> str:
    kind = draft.take_text("finetuning_type")
    adapters = kind in (None, "lora")
    stored = is_quantised(draft, "model_name_or_path", adapters=adapters)
    if draft.take("additional_target") is not None:
        draft.leave("additional_target", "trained whole, and not counted")
    if draft.take_flag("resize_vocab"):
        draft.leave("resize_vocab", "a longer vocabulary is not counted")
    bits = draft.take_count("quantization_bit")
    method = "full" if not adapters else "qlora" if bits or stored else "lora"
    draft.state("method", method, "finetuning_type") if kind else draft.assume("method", method)
    if bits is not None and adapters:
        draft.state("quant", "nf4" if bits == FOUR_BITS else "int8", "quantization_bit")
    elif stored:
        draft.state("quant", "nf4", "model_name_or_path")
    elif bits is not None:
        draft.leave("quantization_bit", "quantised weights are trained only with adapters")
    if adapters:
        _read_adapters(draft)
    elif kind != "full":
        draft.leave("finetuning_type", f"{kind}: sized as training all weights")
    _read_stage(draft)
    return method


def _read_adapters(draft: ConfigDraft) -> None:
    rank = draft.take_count("lora_rank")
    draft.assume("lora.rank", 8) if rank is None else draft.state("lora.rank", rank, "lora_rank")
    if draft.take("lora_target") is None:
        draft.assume("lora.targets", "all-linear")
    else:
        state_targets(draft, "lora_target")
    if draft.take_flag("use_dora"):
        draft.state("lora.dora", value=True, key="use_dora")


def _read_stage(draft: ConfigDraft) -> None:
    stage = draft.take_text("stage")
    if stage in PREFERENCES:
        draft.state("preference.algorithm", PREFERENCES[stage], "stage")
        loss = draft.take_text("pref_loss")
        if loss in ("orpo", "simpo"):
            draft.state("preference.reference", value=False, key="pref_loss")
    elif stage not in (None, "sft", "pt"):
        draft.leave("stage", f"{stage} is not sized; sized as supervised training")


def _read_precision(draft: ConfigDraft, method: str) -> None:
    """Weights are loaded in 16 bits; those that are trained are cast to fp32 unless the training is `pure_bf16`."""
    pure = draft.take_flag("pure_bf16")
    bf16, fp16 = draft.take_flag("bf16"), draft.take_flag("fp16")
    key = "pure_bf16" if pure else "bf16" if bf16 else "fp16" if fp16 else None
    if key is None:
        return
    base = "fp16" if key == "fp16" else "bf16"
    draft.state("precision", base if pure or method != "full" else f"{base}-amp", key)
