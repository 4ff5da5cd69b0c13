"""The arguments of transformers' Trainer, which Axolotl's neighbours share: TRL, LLaMA-Factory, Unsloth and plain scripts.

Defaults of `TrainingArguments` (transformers 5, training_args.py, read 2026-11): 8 sequences a device, fused AdamW, no gradient
checkpointing. TRL's SFT, DPO and GRPO configs switch checkpointing and bf16 on since 0.20 (2025-07).
"""

from __future__ import annotations

from costguard.formats import deepspeed
from costguard.formats.reading import ConfigDraft, StepPlan
from costguard.formats.vocabulary import DTYPES, state_attention, state_fsdp, state_optimizer

NO_EFFECT = (
    *(
        "output_dir",
        "overwrite_output_dir",
        "do_train",
        "do_eval",
        "do_predict",
        "evaluation_strategy",
        "eval_*",
        "prediction_loss_only",
    ),
    *("per_device_eval_batch_size", "per_gpu_eval_batch_size", "learning_rate", "weight_decay", "adam_*", "max_grad_norm"),
    *("lr_scheduler_type", "lr_scheduler_kwargs", "warmup_*", "log_level*", "logging_*", "log_on_each_node", "save_*", "seed"),
    *(
        "data_seed",
        "tf32",
        "ddp_*",
        "dataloader_*",
        "past_index",
        "run_name",
        "disable_tqdm",
        "remove_unused_columns",
        "label_names",
    ),
    *("load_best_model_at_end", "metric_for_best_model", "greater_is_better", "ignore_data_skip", "report_to", "push_to_hub*"),
    *(
        "resume_from_checkpoint",
        "hub_*",
        "gradient_checkpointing_kwargs",
        "group_by_length",
        "length_column_name",
        "local_rank",
    ),
    *(
        "include_*",
        "skip_memory_metrics",
        "use_legacy_prediction_loop",
        "jit_mode_eval",
        "full_determinism",
        "restore_callback*",
    ),
    *("project", "trackio_space_id", "wandb_*", "no_cuda", "use_cpu", "average_tokens_across_devices", "accelerator_config"),
    *(
        "batch_eval_metrics",
        "label_smoothing_factor",
        "trust_remote_code",
        "fp16_backend",
        "half_precision_backend",
        "fp16_opt_level",
    ),
)


def read_batch(draft: ConfigDraft) -> None:
    """Take the micro-batch, accumulation, steps and epochs."""
    micro = draft.take_count("per_device_train_batch_size")
    if micro is None and not draft.is_computed("per_device_train_batch_size"):
        draft.assume("micro_batch", 8)
    elif micro is not None:
        draft.state("micro_batch", micro, "per_device_train_batch_size")
    draft.plan = StepPlan(
        accumulation=draft.take_count("gradient_accumulation_steps"),
        steps=draft.take_count("max_steps"),
        epochs=draft.take_number("num_train_epochs") or 3,  # the Trainer's default
    )


def read_trainer(draft: ConfigDraft, *, checkpointing: str | None = "none") -> None:
    """Take the optimizer, checkpointing, attention, compilation and sharding.

    `checkpointing`: what the tool does where nothing is stated; None: it depends on its version, so nothing is assumed here.
    """
    state_optimizer(draft, "optim")
    is_checkpointed = draft.take_flag("gradient_checkpointing")
    if is_checkpointed is not None:
        draft.state("checkpointing", "full" if is_checkpointed else "none", "gradient_checkpointing")
    elif checkpointing is not None:
        draft.assume("checkpointing", checkpointing)
    state_attention(draft, "attn_implementation")
    if draft.take_flag("torch_compile"):
        draft.state("compiled", value=True, key="torch_compile")
    if draft.take_flag("use_liger_kernel") or draft.take_flag("use_liger"):
        draft.state("loss", "fused", "use_liger_kernel")
    if draft.take_flag("activation_offloading"):
        draft.state("offload_activations", value=True, key="activation_offloading")
    deepspeed.read_named(draft, "deepspeed")
    fsdp = draft.take("fsdp")
    if fsdp:
        state_fsdp(draft, fsdp, "fsdp")
        draft.masters = True
        if "offload" in str(fsdp):
            draft.state("parallel.offload", "all", "fsdp")
    draft.ignore("fsdp_config", *NO_EFFECT)


def read_precision(draft: ConfigDraft, *, dtype_keys: tuple[str, ...], adapters: bool) -> None:
    """Take the precision: that of the loaded weights, and autocast over them.

    Example: `torch_dtype: bfloat16` and `bf16: true` train bf16 weights; `bf16: true` alone trains fp32 weights under autocast.
    """
    key = next((one for one in dtype_keys if draft.take_text(one) is not None), None)
    weights = DTYPES.get(str(draft.take_text(key)).lower()) if key else None
    computed = next((one for one in ("bf16", "fp16") if draft.take_flag(one)), None)
    draft.take_flag("fp16"), draft.take_flag("bf16")
    if weights in ("bf16", "fp16"):
        draft.state("precision", weights, str(key))
    elif adapters and computed:
        draft.state("precision", computed, computed)
    elif weights == "fp32":
        draft.state("precision", f"{computed}-amp" if computed else "fp32", str(key))
    elif computed:
        draft.state("precision", f"{computed}-amp", computed)
        if key is None:
            draft.notes.append(
                f"precision {computed}-amp: without a dtype weights are fp32; transformers 5 keeps the checkpoint's"
            )
