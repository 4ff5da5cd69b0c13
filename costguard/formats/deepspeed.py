"""DeepSpeed: a JSON file beside a training config (deepspeed.ai, configuration reference, read 2026-11).

    {"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}, "bf16": {"enabled": "auto"},
     "train_micro_batch_size_per_gpu": "auto"}

`auto` is filled in by transformers from the training config, so it states nothing.
"""

from __future__ import annotations

from dataclasses import replace

from costguard.formats.loading import ConfigFile
from costguard.formats.reading import ConfigDraft
from costguard.formats.vocabulary import name_optimizer, state_sharding_by_name

LABEL = "DeepSpeed"
KINDS = ("json", "yaml")

NO_EFFECT = (
    *("gradient_clipping", "steps_per_print", "wall_clock_breakdown", "zero_allow_untested_optimizer", "prescale_gradients"),
    *("fp16.loss_scale*", "fp16.initial_scale_power", "fp16.hysteresis", "fp16.min_loss_scale", "fp16.auto_cast", "scheduler"),
    *(
        "optimizer.params",
        "comms_config",
        "monitor_config",
        "tensorboard",
        "wandb",
        "csv_monitor",
        "flops_profiler",
        "dump_state",
    ),
    *("zero_optimization.overlap_comm", "zero_optimization.contiguous_gradients", "zero_optimization.round_robin_gradients"),
    *("zero_optimization.allgather_partitions", "zero_optimization.reduce_scatter", "zero_optimization.*bucket_size"),
    *("zero_optimization.stage3_*", "zero_optimization.sub_group_size", "zero_optimization.ignore_unused_parameters"),
    *(
        "zero_optimization.offload_optimizer",
        "zero_optimization.offload_param",
        "train_batch_size",
        "zero_force_ds_cpu_optimizer",
    ),
)
"""Bucket sizes move less than a percent of a job's memory; the rest changes no tensor's size."""


def recognise(file: ConfigFile) -> bool:
    """Return whether the keys are DeepSpeed's."""
    return bool({"zero_optimization", "train_micro_batch_size_per_gpu", "zero_allow_untested_optimizer"} & file.table.keys())


def read(draft: ConfigDraft) -> None:
    """Take the ZeRO stage, offloading, precision and batch."""
    draft.masters = True
    stage = draft.take_count("zero_optimization.stage", least=0)
    draft.state("framework", "deepspeed", "zero_optimization")
    if stage is not None:
        draft.state("parallel.zero", stage, "zero_optimization.stage")
    elif not draft.is_computed("zero_optimization.stage"):
        draft.assume("parallel.zero", 0)
    state_offload(draft, "zero_optimization.offload_param.device", "zero_optimization.offload_optimizer.device")
    older = "zero_optimization.cpu_offload"  # until DeepSpeed 0.3.16 (2021), with cpu_offload_params beside it
    if draft.take_flag(older):
        draft.state("parallel.offload", "all" if draft.take_flag(f"{older}_params") else "optimizer", older)
    for key in ("bf16", "fp16"):
        if draft.take_flag(f"{key}.enabled"):
            draft.state("precision", key, f"{key}.enabled")
    micro = draft.take_count("train_micro_batch_size_per_gpu")
    if micro is not None:
        draft.state("micro_batch", micro, "train_micro_batch_size_per_gpu")
    draft.plan = replace(
        draft.plan,
        accumulation=draft.take_count("gradient_accumulation_steps"),
        global_sequences=draft.take_count("train_batch_size"),
    )
    optimizer_name = draft.take_text("optimizer.type")
    if optimizer_name is not None:
        name_optimizer(draft, optimizer_name, "optimizer.type")
    if draft.take_flag("torch_autocast.enabled"):
        draft.take_text("torch_autocast.dtype")
    _read_checkpointing(draft)
    draft.ignore(*NO_EFFECT)


def _read_checkpointing(draft: ConfigDraft) -> None:
    """State what is checkpointed to host memory; what is divided among tensor-parallel GPUs is left."""
    checkpointing = draft.take("activation_checkpointing")
    if not isinstance(checkpointing, dict):
        return
    if checkpointing.get("cpu_checkpointing"):
        draft.state("offload_activations", value=True, key="activation_checkpointing.cpu_checkpointing")
    if checkpointing.get("partition_activations"):
        draft.leave("activation_checkpointing.partition_activations", "sized with whole activations on each GPU")


def state_offload(draft: ConfigDraft, weights_key: str, states_key: str) -> None:
    """State what lies in host memory: weights and optimizer, or the optimizer; weights alone are not sized, and said."""
    weights, states = (draft.take_text(key) not in (None, "none") for key in (weights_key, states_key))
    if weights and states:
        draft.state("parallel.offload", "all", weights_key)
    elif states:
        draft.state("parallel.offload", "optimizer", states_key)
    elif weights:
        draft.leave(weights_key, "weights alone in host memory: sized on the GPU")


def read_named(draft: ConfigDraft, key: str) -> None:
    """Read the DeepSpeed config that `key` of a training config holds or names."""
    config = draft.take(key)
    if config is None:
        return
    inner: ConfigDraft | None = None
    if isinstance(config, dict):
        inner = ConfigDraft(draft.file, LABEL, values={str(name): value for name, value in config.items()})
    elif isinstance(config, str):
        config_file = draft.file.load_beside(config)
        if config_file is None:
            state_sharding_by_name(draft, config, key)
            draft.masters = True
        else:
            inner = ConfigDraft(config_file, LABEL)
    if inner is not None:
        read(inner)
        draft.add_file(inner)
