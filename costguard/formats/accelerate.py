"""Accelerate: the YAML that `accelerate launch --config_file` takes (huggingface.co/docs/accelerate, read 2026-11).

    distributed_type: FSDP          # or DEEPSPEED, MULTI_GPU, NO
    mixed_precision: bf16
    num_machines: 1
    num_processes: 8                # GPUs of all machines
    fsdp_config: {fsdp_sharding_strategy: FULL_SHARD, fsdp_offload_params: false}

It states how GPUs share the work. Name it beside the training config: `costguard quote train.yaml fsdp.yaml`.
"""

from __future__ import annotations

from costguard.formats import deepspeed
from costguard.formats.loading import ConfigFile
from costguard.formats.reading import ConfigDraft, LaunchHardware, StepPlan

LABEL = "Accelerate"
KINDS = ("yaml", "json")

NO_EFFECT = (
    *(
        "compute_environment",
        "debug",
        "downcast_bf16",
        "enable_cpu_affinity",
        "machine_rank",
        "main_*",
        "rdzv_*",
        "same_network",
    ),
    *("tpu_*", "use_cpu", "gpu_ids", "dynamo_config.dynamo_*", "commands", "command_file", "fsdp_config.fsdp_auto_wrap_policy"),
    *("fsdp_config.fsdp_backward_prefetch*", "fsdp_config.fsdp_cpu_ram_efficient_loading", "fsdp_config.fsdp_forward_prefetch"),
    *("fsdp_config.fsdp_state_dict_type", "fsdp_config.fsdp_sync_module_states", "fsdp_config.fsdp_use_orig_params"),
    *("fsdp_config.fsdp_transformer_layer_cls_to_wrap", "fsdp_config.fsdp_min_num_params"),
    *("deepspeed_config.deepspeed_multinode_launcher", "deepspeed_config.zero3_*", "deepspeed_config.gradient_clipping"),
    *("deepspeed_config.deepspeed_hostfile", "mpirun_config", "fsdp_config.fsdp_limit_all_gathers"),
)
NEWER_FSDP = 2
SHARDED = {"FULL_SHARD": "fsdp", "1": "fsdp", "SHARD_GRAD_OP": "2", "2": "2", "NO_SHARD": "0", "3": "0"}
"""Sharding strategies; SHARD_GRAD_OP divides gradients and states, as ZeRO stage 2 does."""
HYBRID = {"HYBRID_SHARD": "FULL_SHARD", "4": "FULL_SHARD", "HYBRID_SHARD_ZERO2": "SHARD_GRAD_OP", "5": "SHARD_GRAD_OP"}
"""Strategies that share among the GPUs of one machine; what each is where there is only one machine."""


def recognise(file: ConfigFile) -> bool:
    """Return whether the keys are Accelerate's."""
    keys = file.table.keys()
    return "distributed_type" in keys and bool({"compute_environment", "num_processes", "mixed_precision"} & keys)


def read(draft: ConfigDraft) -> None:
    """Take the precision, sharding and number of GPUs."""
    kind = (draft.take_text("distributed_type") or "NO").upper()
    precision = draft.take_text("mixed_precision")
    if precision in ("bf16", "fp16"):
        draft.autocast = (precision, "mixed_precision")
    elif precision == "fp8":
        draft.leave("mixed_precision", "fp8: sized as the training config states")
    machines, processes = draft.take_machines("num_machines") or 1, draft.take_machines("num_processes")
    if kind == "FSDP":
        _read_fsdp(draft, machines)
    elif kind == "DEEPSPEED":
        _read_deepspeed(draft)
    elif kind == "MULTI_GPU":
        draft.state("parallel.zero", 0, "distributed_type")
    if processes is not None and processes % machines == 0:
        draft.hardware = LaunchHardware(gpu_count=processes // machines, nodes=machines)
    elif processes is not None:
        draft.leave("num_processes", f"{processes} are not divided evenly among {machines} machines")
    if (draft.take_text("dynamo_config.dynamo_backend") or "no").upper() == "INDUCTOR":
        draft.state("compiled", value=True, key="dynamo_config.dynamo_backend")
    draft.masters = kind in ("FSDP", "DEEPSPEED")
    draft.plan = StepPlan(accumulation=draft.take_count("deepspeed_config.gradient_accumulation_steps"))
    draft.ignore(*NO_EFFECT)


def _read_fsdp(draft: ConfigDraft, machines: int) -> None:
    strategy = (draft.take_text("fsdp_config.fsdp_sharding_strategy") or "").upper()
    reshards = draft.take_text("fsdp_config.fsdp_reshard_after_forward")
    if strategy in HYBRID and machines > 1:
        draft.leave("fsdp_config.fsdp_sharding_strategy", f"{strategy} is not sized")
        bound = "sized as a whole copy on each GPU, an upper bound; sharding within a machine needs less"
        draft.notes.append(f"{strategy} over {machines} machines: {bound}")
        strategy = "NO_SHARD"
    strategy = HYBRID.get(strategy, strategy)
    way = SHARDED.get(strategy, "fsdp" if not strategy else "")
    if reshards == "false" and not strategy:
        way = "2"
    if way == "fsdp":
        draft.state("parallel.fsdp", value=True, key="distributed_type")
    elif way:
        draft.state("parallel.zero", int(way), "fsdp_config.fsdp_sharding_strategy")
    else:
        draft.leave("fsdp_config.fsdp_sharding_strategy", f"{strategy} is not known")
    if draft.take_count("fsdp_config.fsdp_version") == NEWER_FSDP:
        draft.state("framework", "hf-fsdp2", "fsdp_config.fsdp_version")
    if draft.take_flag("fsdp_config.fsdp_offload_params"):
        draft.state("parallel.offload", "all", "fsdp_config.fsdp_offload_params")
    if draft.take_flag("fsdp_config.fsdp_activation_checkpointing"):
        draft.state("checkpointing", "full", "fsdp_config.fsdp_activation_checkpointing")


def _read_deepspeed(draft: ConfigDraft) -> None:
    draft.state("framework", "deepspeed", "distributed_type")
    stage = draft.take_count("deepspeed_config.zero_stage", least=0)
    if stage is not None:
        draft.state("parallel.zero", stage, "deepspeed_config.zero_stage")
    deepspeed.state_offload(draft, "deepspeed_config.offload_param_device", "deepspeed_config.offload_optimizer_device")
    deepspeed.read_named(draft, "deepspeed_config.deepspeed_config_file")
