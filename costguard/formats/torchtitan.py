"""torchtitan: TOML job configs (torchtitan/config/job_config.py and train_configs, read 2026-11).

    [model]       name = "llama3"  flavor = "8B"
    [training]    local_batch_size = 1  seq_len = 8192  steps = 1000
    [parallelism] tensor_parallel_degree = 1  data_parallel_shard_degree = -1

Weights are fp32 and FSDP computes in bf16 (`mixed_precision_param`), unless `training.dtype` says otherwise. It pretrains.
"""

from __future__ import annotations

from costguard.formats.loading import ConfigFile
from costguard.formats.reading import ConfigDraft, LaunchHardware, StepPlan
from costguard.formats.vocabulary import DTYPES, find_shipped_name, name_optimizer

LABEL = "torchtitan"
KINDS = ("toml",)

NO_EFFECT = (
    *("job", "profiling", "metrics", "comm", "memory_estimation", "fault_tolerance", "validation", "debug"),
    *("model.tokenizer_path", "model.hf_assets_path", "model.print_after_conversion", "optimizer.lr", "optimizer.eps"),
    *("optimizer.beta1", "optimizer.beta2", "optimizer.weight_decay", "lr_scheduler", "training.max_norm", "training.dataset*"),
    *("training.seed", "training.deterministic", "training.gc_freq", "training.warmup_steps", "checkpoint", "float8", "mx"),
    *("quantize", "activation_checkpoint.per_op_*", "parallelism.enable_async_*"),
    *(
        "parallelism.pipeline_parallel_schedule*",
        "parallelism.pipeline_parallel_microbatch_size",
        "parallelism.disable_loss_parallel",
    ),
    *(
        "parallelism.fsdp_reshard_after_forward",
        "parallelism.context_parallel_rotate_method",
        "parallelism.enable_compiled_autograd",
    ),
    *("experimental.custom_*", "experimental.pipeline_parallel_schedule*", "experimental.pipeline_parallel_split_points"),
    *("experimental.pipeline_parallel_microbatches", "experimental.enable_*", "experimental.context_parallel_rotate_method"),
    *("training.mixed_precision_reduce", "parallelism.module_fqns_per_model_part", "compile.backend"),
)
MODELS = {
    ("llama3", "8b"): "llama-3.1-8b",
    ("llama3", "70b"): "llama-3.1-70b",
    ("llama3", "405b"): "llama-3.1-405b",
    ("llama2", "7b"): "llama-2-7b",
    ("llama2", "13b"): "llama-2-13b",
    ("llama2", "70b"): "llama-2-70b",
    ("deepseek_v3", "16b"): "deepseek-v2-lite",
    ("deepseek_v3", "671b"): "deepseek-v3",
    ("llama4", "17bx16e"): "llama-4-scout",
    ("llama4", "17bx128e"): "llama-4-maverick",
}
"""(name, flavor) -> the shipped shape. Its 16B of deepseek_v3 has DeepSeek-V2-Lite's dimensions."""
SECTIONS = ("parallelism", "training", "experimental")
"""Where the degrees stand: in `parallelism` since 2025, before it in the other two."""
DEGREES = {
    "tensor_parallel_degree": "tp",
    "pipeline_parallel_degree": "pp",
    "context_parallel_degree": "cp",
    "expert_parallel_degree": "ep",
}


def recognise(file: ConfigFile) -> bool:
    """Return whether there are torchtitan's sections."""
    table = file.table
    model = table.get("model")
    return "training" in table and isinstance(model, dict) and {"flavor", "name"} <= model.keys()


def read(draft: ConfigDraft) -> None:
    """Take the model, batch, lengths, precision, parallel degrees and steps."""
    name, flavor = draft.take_text("model.name") or "", draft.take_text("model.flavor") or ""
    plain = find_shipped_name(f"{name.replace('_', '.')}-{flavor}") or find_shipped_name(f"{name}-{flavor}")
    shipped = MODELS.get((name.lower(), flavor.lower())) or plain
    draft.state("model", shipped or f"{name}-{flavor}", "model.flavor")
    draft.state("framework", "torchtitan", "model.name")
    draft.assume("method", "pretrain")
    for field, keys in (
        ("seq_len", ("training.seq_len",)),
        ("micro_batch", ("training.local_batch_size", "training.batch_size")),
    ):
        key = next((one for one in keys if draft.take_count(one) is not None), None)
        if key is not None:
            draft.state(field, draft.take_count(key), key)
    optimizer_name = draft.take_text("optimizer.name")
    if optimizer_name is not None:
        name_optimizer(draft, optimizer_name, "optimizer.name")
    _read_kernels(draft)
    _read_precision(draft)
    mode = draft.take_text("activation_checkpoint.mode")
    if mode in ("none", "selective", "full"):
        draft.state("checkpointing", mode, "activation_checkpoint.mode")
    elif mode is not None:
        draft.leave("activation_checkpoint.mode", f"{mode} is not sized")
    option = draft.take_text("activation_checkpoint.selective_ac_option")
    if mode == "selective" and option not in (None, "op"):
        draft.leave("activation_checkpoint.selective_ac_option", f"every {option}th layer: sized as selective in each layer")
    _read_parallel(draft)
    draft.ignore(*NO_EFFECT)


def _read_kernels(draft: ConfigDraft) -> None:
    kernel = draft.take_text("optimizer.implementation")
    if kernel in ("fused", "foreach"):
        draft.state("optimizer_kernel", kernel, "optimizer.implementation")
    elif draft.take_flag("optimizer.fused"):
        draft.state("optimizer_kernel", "fused", "optimizer.fused")
    if draft.take_flag("optimizer.early_step_in_backward"):
        draft.state("optimizer_in_backward", value=True, key="optimizer.early_step_in_backward")
    parts = draft.take_names("compile.components") or ("model", "loss")
    for key in ("training.compile", "compile.enable"):
        if draft.take_flag(key) and "model" in parts:
            draft.state("compiled", value=True, key=key)


def _read_precision(draft: ConfigDraft) -> None:
    converters = draft.take("model.converters")
    if converters and ("float8" in str(converters) or "mx" in str(converters)):
        draft.leave("model.converters", "sized in 16 bits: float8 speeds matrices up and saves little memory")
    weights = DTYPES.get(str(draft.take_text("training.dtype")))
    computed = DTYPES.get(str(draft.take_text("training.mixed_precision_param")), "bf16")
    if weights == "bf16":
        draft.state("precision", "bf16", "training.dtype")
    elif computed == "fp32":
        draft.state("precision", "fp32", "training.mixed_precision_param")
    else:
        draft.assume("precision", f"{computed}-amp")
    if draft.take_flag("training.enable_cpu_offload"):
        draft.state("parallel.offload", "all", "training.enable_cpu_offload")


def _read_parallel(draft: ConfigDraft) -> None:
    """Take the degrees; they say how many GPUs there are unless the data-parallel degree is -1 (all that are left)."""
    ranks = 1
    for name, field in DEGREES.items():
        value = _take_degree(draft, name)
        if value is not None and value > 1:
            draft.state(f"parallel.{field}", value, name)
            ranks *= 1 if field == "ep" else value
    section = "training" if draft.take("training.data_parallel_shard_degree") is not None else "parallelism"
    replicas = _take_degree(draft, "data_parallel_replicate_degree") or 1
    shards = _take_degree(draft, "data_parallel_shard_degree") or -1
    if shards != 1 and replicas > 1:
        draft.leave(f"{section}.data_parallel_replicate_degree", "groups are not sized")
        bound = "sized as a whole copy on each GPU, an upper bound; sharding within a replica needs less"
        draft.notes.append(f"{replicas} replicas of sharded models: {bound}")
    if shards != 1 and replicas <= 1:
        draft.state("parallel.fsdp", value=True, key=f"{section}.data_parallel_shard_degree")
    elif replicas > 1:
        draft.state("parallel.zero", 0, f"{section}.data_parallel_replicate_degree")
    draft.plan = StepPlan(
        global_sequences=draft.take_count("training.global_batch_size"), steps=draft.take_count("training.steps")
    )
    if shards > 0 and replicas > 0:
        gpus = draft.read_count(shards * replicas * ranks, "parallelism")
        per_node = min(gpus, 8)
        if gpus % per_node == 0:
            draft.hardware = LaunchHardware(gpu_count=per_node, nodes=gpus // per_node)
            draft.notes.append(f"the parallel degrees make {gpus} GPUs: {per_node} a machine is assumed")


def _take_degree(draft: ConfigDraft, name: str) -> int | None:
    """Return a parallel degree; -1, which means all GPUs that are left, as it is; None if it is not stated."""
    for section in SECTIONS:
        value = draft.take(f"{section}.{name}")
        if value is not None:
            return -1 if value == -1 else draft.read_count(value, f"{section}.{name}")
    return None
