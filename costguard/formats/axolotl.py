"""Axolotl: a YAML file of flat keys (docs.axolotl.ai, config reference, read 2026-11).

base_model: NousResearch/Llama-3.2-1B
adapter: lora            # or qlora; empty: all weights
sequence_len: 2048
micro_batch_size: 2      # sequences of one GPU and pass
gradient_accumulation_steps: 2
"""

from __future__ import annotations

from costguard.formats import deepspeed
from costguard.formats.loading import ConfigFile
from costguard.formats.reading import ConfigDraft, StepPlan
from costguard.formats.vocabulary import ATTENTIONS, is_quantised, state_fsdp, state_model, state_optimizer, state_targets

LABEL = "Axolotl"
KINDS = ("yaml", "json")

NO_EFFECT = (
    *("model_type", "tokenizer_*", "processor_type", "is_*_derived_model", "trust_remote_code", "special_tokens", "tokens"),
    *(
        "added_tokens_overrides",
        "chat_template*",
        "default_system_message",
        "datasets",
        "test_datasets",
        "shuffle_merged_datasets",
        "pretraining_dataset",
    ),
    *("dataset_*", "val_set_size", "output_dir", "strict", "seed", "lora_alpha", "lora_dropout", "lora_fan_in_fan_out"),
    *("wandb_*", "mlflow_*", "comet_*", "use_wandb", "use_tensorboard", "hub_*", "hf_use_auth_token", "push_dataset_to_hub"),
    *(
        "lr_scheduler",
        "lr_scheduler_kwargs",
        "cosine_min_lr_ratio",
        "learning_rate",
        "warmup_*",
        "weight_decay",
        "max_grad_norm",
    ),
    *("adam_*", "train_on_inputs", "group_by_length", "tf32", "early_stopping_patience", "resume_from_checkpoint"),
    *("auto_resume_from_checkpoints", "local_rank", "logging_steps", "evals_per_epoch", "eval_*", "saves_per_epoch", "save_*"),
    *("debug", "gradient_checkpointing_kwargs", "model_revision", "revision_of_model", "pad_to_sequence_len"),
    *("sample_packing_*", "eval_sample_packing", "low_cpu_mem_usage", "rl_beta", "dpo_beta", "loss_watchdog_*", "env"),
    *(
        "overrides_of_model_config.rope_scaling",
        "ddp_timeout",
        "ddp_find_unused_parameters",
        "experimental_skip_move_to_device",
    ),
)
FAST_KERNELS = ("lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel")
FUSED_LOSSES = ("cut_cross_entropy", "liger_fused_linear_cross_entropy")
PREFERENCES = {"dpo": "dpo", "ipo": "dpo", "grpo": "grpo"}


def recognise(file: ConfigFile) -> bool:
    """Return whether the keys are Axolotl's."""
    keys = file.table.keys()
    return "base_model" in keys and bool({"micro_batch_size", "sequence_len", "adapter", "datasets", "num_epochs"} & keys)


def read(draft: ConfigDraft) -> None:
    """Take the model, the method, lengths, batches and sharding."""
    state_model(draft, "base_model")
    draft.take("base_model_config")
    _read_method(draft)
    _read_precision(draft)
    for name, key in (("seq_len", "sequence_len"), ("micro_batch", "micro_batch_size")):
        value = draft.take_count(key)
        if value is not None:
            draft.state(name, value, key)
    state_optimizer(draft, "optimizer")
    _read_memory(draft)
    _read_sharding(draft)
    _read_amount(draft)
    draft.ignore(*NO_EFFECT)


def _read_method(draft: ConfigDraft) -> None:
    adapter = draft.take_text("adapter")
    four, eight = draft.take_flag("load_in_4bit"), draft.take_flag("load_in_8bit")
    stored = is_quantised(draft, "base_model", adapters=adapter in ("lora", "qlora"))
    if adapter in (None, "none"):
        draft.assume("method", "full")
        if four or eight:
            draft.leave("load_in_4bit" if four else "load_in_8bit", "quantised weights are trained only with an adapter")
    elif adapter in ("lora", "qlora"):
        quantised = adapter == "qlora" or four or eight or stored
        draft.state("method", "qlora" if quantised else "lora", "adapter")
        if quantised:
            key = "base_model" if stored else "load_in_8bit" if eight and not four else "adapter"
            draft.state("quant", "int8" if key == "load_in_8bit" else "nf4", key)
    else:
        draft.leave("adapter", f"{adapter}: only lora and qlora are sized")
    if adapter in ("lora", "qlora"):
        _read_adapters(draft)
    else:
        draft.ignore("lora_*", "peft_*")
    _read_preference(draft)


def _read_adapters(draft: ConfigDraft) -> None:
    rank = draft.take_count("lora_r")
    if rank is not None:
        draft.state("lora.rank", rank, "lora_r")
    if draft.take_flag("peft_use_dora"):
        draft.state("lora.dora", value=True, key="peft_use_dora")
    if draft.take_flag("lora_target_linear"):
        draft.state("lora.targets", "all-linear", "lora_target_linear")
        draft.ignore("lora_target_modules")
    else:
        state_targets(draft, "lora_target_modules")


def _read_preference(draft: ConfigDraft) -> None:
    rl = draft.take_text("rl")
    if rl in PREFERENCES:
        draft.state("preference.algorithm", PREFERENCES[rl], "rl")
    elif rl is not None:
        draft.leave("rl", f"{rl} is not sized; sized as supervised training")


def _read_precision(draft: ConfigDraft) -> None:
    """`bf16: auto` is bf16 on every GPU that has it. The weights are loaded in it, too."""
    bf16, bfloat16, fp16, float16 = (draft.take_text(key) for key in ("bf16", "bfloat16", "fp16", "float16"))
    on = ("true", "auto", "full")
    if bf16 in on or bfloat16 in on:
        draft.state("precision", "bf16", "bf16" if bf16 in on else "bfloat16")
    elif fp16 in on or float16 in on:
        draft.state("precision", "fp16", "fp16" if fp16 in on else "float16")
    elif bf16 == "false" and fp16 in (None, "false"):
        draft.state("precision", "fp32", "bf16")
    if draft.take_flag("fp8"):
        draft.leave("fp8", "sized in 16 bits")


def _read_memory(draft: ConfigDraft) -> None:
    _read_attention(draft)
    _read_checkpointing(draft)
    if draft.take_text("activation_offloading") not in (None, "false", "none"):  # true, or how: legacy, disk, hidden_states
        draft.state("offload_activations", value=True, key="activation_offloading")
    plugins = draft.take_names("plugins") or ()
    if any("CutCrossEntropy" in plugin for plugin in plugins) and draft.take_flag("cut_cross_entropy") is not False:
        draft.state("loss", "fused", "plugins")
    for key in FUSED_LOSSES:
        if draft.take_flag(key):
            draft.state("loss", "fused", key)
    if draft.take_flag("torch_compile"):
        draft.state("compiled", value=True, key="torch_compile")
    for key in FAST_KERNELS:
        if draft.take_flag(key):
            draft.leave(key, "its fused kernels save memory that is not subtracted")


def _read_checkpointing(draft: ConfigDraft) -> None:
    checkpointing = draft.take("gradient_checkpointing")
    settings = draft.take("fsdp_config")
    by_fsdp = [
        key
        for key in ("activation_checkpointing", "fsdp_activation_checkpointing")
        if isinstance(settings, dict) and settings.get(key)
    ]
    if by_fsdp and not checkpointing:
        draft.state("checkpointing", "full", f"fsdp_config.{by_fsdp[0]}")
    elif checkpointing is None:
        draft.assume("checkpointing", "none")
    elif checkpointing in ("offload", "offload_disk"):
        draft.state("checkpointing", "full", "gradient_checkpointing")
        draft.state("offload_activations", value=True, key="gradient_checkpointing")
    else:
        draft.state("checkpointing", "full" if checkpointing else "none", "gradient_checkpointing")


def _read_attention(draft: ConfigDraft) -> None:
    for key in ("attn_implementation", "attention"):
        attention = draft.take_text(key)
        if attention in ATTENTIONS:
            draft.state("attention", ATTENTIONS[attention], key)
    for key, value in (
        ("eager_attention", "eager"),
        ("sdp_attention", "flash"),
        ("xformers_attention", "flash"),
        ("flash_attention", "flash"),
    ):
        if draft.take_flag(key):
            draft.state("attention", value, key)


def _read_sharding(draft: ConfigDraft) -> None:
    deepspeed.read_named(draft, "deepspeed")
    fsdp, settings = draft.take("fsdp"), draft.take("fsdp_config")
    if fsdp or settings:
        inner = settings if isinstance(settings, dict) else {}
        strategy = next((key for key in ("fsdp_sharding_strategy", "sharding_strategy") if inner.get(key)), None)
        if strategy is not None:
            state_fsdp(draft, inner[strategy], f"fsdp_config.{strategy}")
        else:
            state_fsdp(draft, fsdp or "", "fsdp" if fsdp else "fsdp_config")
        if inner.get("fsdp_offload_params") or inner.get("offload_params") or "offload" in str(fsdp):
            draft.state("parallel.offload", "all", "fsdp_config")
        draft.masters = True
    for key, name in (("tensor_parallel_size", "tp"), ("context_parallel_size", "cp"), ("sequence_parallel_degree", "cp")):
        value = draft.take_count(key)
        if value is not None and value > 1:
            draft.state(f"parallel.{name}", value, key)
    draft.ignore("fsdp_version", "fsdp_final_state_dict_type")


def _read_amount(draft: ConfigDraft) -> None:
    """Epochs of a dataset say no tokens; steps do, once the GPUs are known."""
    draft.plan = StepPlan(
        accumulation=draft.take_count("gradient_accumulation_steps"),
        steps=draft.take_count("max_steps"),
        epochs=draft.take_number("num_epochs"),
    )
    if draft.take_flag("sample_packing") is False:
        draft.notes.append("sample_packing false: memory is that of sequences of full length")
