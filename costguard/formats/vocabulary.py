"""Words that several formats share: optimizers, precisions, attention, adapters, quantised loading, models.

Sources, read 2026-11: transformers `training_args.py` (OptimizerNames), bitsandbytes' optimizers, PEFT's LoraConfig, PyTorch's
and torchao's class names. An optimizer that is not here (Muon, GaLore, APOLLO ...) has states of another size: it is left, and
said.
"""

from __future__ import annotations

import re
from pathlib import Path

from costguard.data import ShippedFacts
from costguard.formats.reading import ConfigDraft
from costguard.values.checks import fold_name

OPTIMIZERS = {
    **dict.fromkeys(("adamw", "adam", "adamwtorch", "adamwhf", "adamwtorchfused", "fusedadam", "adamwapexfused"), "adamw"),
    **dict.fromkeys(("adamwtorchxla", "adamwtorchnpufused", "cpuadam", "deepspeedcpuadam"), "adamw"),
    **dict.fromkeys(("adamw8bit", "adamwbnb8bit", "adamwtorch8bit", "adam8bit", "bitsandbytesadamw8bit"), "adamw-8bit"),
    **dict.fromkeys(("pagedadamw", "pagedadamw32bit"), "paged-adamw"),
    "pagedadamw8bit": "paged-adamw-8bit",
    "adafactor": "adafactor",
    **dict.fromkeys(("lion", "lion32bit", "lionpytorch", "pagedlion32bit"), "lion"),
    **dict.fromkeys(("lion8bit", "pagedlion8bit"), "lion-8bit"),
    "sgd": "sgd",
}
FUSED = ("adamwtorchfused", "fusedadam", "adamwapexfused")
DTYPES = {
    **dict.fromkeys(("bf16", "bfloat16", "torch.bfloat16"), "bf16"),
    **dict.fromkeys(("fp16", "float16", "half", "torch.float16"), "fp16"),
    **dict.fromkeys(("fp32", "float32", "float", "torch.float32"), "fp32"),
}
ATTENTIONS = {
    **dict.fromkeys(("flash_attention_2", "fa2", "flash_attn_2", "flash", "sdpa", "flex_attention"), "flash"),
    **dict.fromkeys(("flash_attention_3", "fa3", "kernels-community/flash-attn3"), "flash3"),
    **dict.fromkeys(
        ("kernels-community/flash-attn", "kernels-community/flash-attn2", "kernels-community/vllm-flash-attn3"), "flash"
    ),
    "eager": "eager",
}
"""PyTorch's `sdpa` takes the flash kernel or one of the same memory (efficient attention)."""

QUANTISED = re.compile(r"bnb[-_]4bit", re.IGNORECASE)
EMBEDDINGS = ("embed_tokens", "lm_head")
ZERO_IN_NAME = re.compile(r"(?:z(?:ero)?|stage)[_-]?([0-3])(?![0-9])", re.IGNORECASE)


def state_model(draft: ConfigDraft, key: str) -> None:
    """State the model that `key` names: shipped, a re-upload of a shipped one, a folder beside the config, or as written."""
    model_name = draft.take_text(key)
    if model_name is not None:
        name_model(draft, model_name, key)


def name_model(draft: ConfigDraft, model_name: str, key: str) -> None:
    """State the model `model_name`, as `state_model` does."""
    for config in (f"{model_name.rstrip('/')}/config.json", model_name):
        if config.endswith(".json") and draft.file.is_beside(config):
            draft.state("path", str(draft.file.path.parent / config), key)
            return
    draft.state("model", find_shipped_name(model_name) or model_name, key)


def is_quantised(draft: ConfigDraft, key: str, *, adapters: bool) -> bool:
    """Return whether the model that `key` names is stored in 4 bits; without adapters that is said, and sized in 16 bits."""
    is_marked = QUANTISED.search(draft.take_text(key) or "") is not None
    if is_marked and not adapters:
        draft.leave(key, "4 bits need adapters: sized in 16 bits")
    return is_marked and adapters


def find_shipped_name(model_name: str) -> str | None:
    """Return the shipped model that `model_name` is, by its whole name or by the last part of it; None if there is none.

    Example: NousResearch/Llama-2-7b-hf and /tmp/Llama-2-7b-hf/ are llama-2-7b, whose release is meta-llama/Llama-2-7b-hf.
    """
    match = ShippedFacts().find_model(model_name)
    return match and match[0]


def state_optimizer(draft: ConfigDraft, key: str) -> None:
    """State the optimizer that `key` names, and its kernel if the name says which; leave one that is not known."""
    optimizer_name = draft.take_text(key)
    if optimizer_name is not None:
        name_optimizer(draft, optimizer_name, key)


def name_optimizer(draft: ConfigDraft, optimizer_name: str, key: str) -> None:
    """State the optimizer `optimizer_name`: a name of transformers, or a class such as torch.optim.AdamW."""
    word = fold_name(optimizer_name.rpartition(".")[2])
    optimizer = OPTIMIZERS.get(word)
    if word.startswith("paged") and "PagedAdamW" in optimizer_name and optimizer is None:
        optimizer = "paged-adamw"
    if optimizer is None:
        draft.leave(key, f"{optimizer_name}: its states are not known")
        return
    draft.state("optimizer", optimizer, key)
    if word in FUSED:
        draft.state("optimizer_kernel", "fused", key)


def state_attention(draft: ConfigDraft, key: str) -> None:
    """State the attention implementation that `key` names."""
    name = draft.take_text(key)
    if name is None:
        return
    attention = ATTENTIONS.get(name.lower())
    if attention is None:
        draft.leave(key, f"{name}: not a known attention")
    else:
        draft.state("attention", attention, key)


def state_targets(draft: ConfigDraft, key: str) -> None:
    """State the modules with adapters; `all` and `all-linear` are every linear layer."""
    names = draft.take_names(key)
    if names is None:
        return
    if names in (("all",), ("all-linear",)):
        draft.state("lora.targets", "all-linear", key)
    elif any(word in name for name in names for word in ("*", "|", "\\")):
        draft.leave(key, "a pattern of names")
    else:
        targets = [name.rpartition(".")[2] for name in names]
        embeddings = [name for name in targets if name in EMBEDDINGS]
        if embeddings:
            draft.leave(key, f"{', '.join(embeddings)}: not counted")
        if len(targets) > len(embeddings):
            draft.state("lora.targets", [name for name in targets if name not in EMBEDDINGS], key)


def state_fsdp(draft: ConfigDraft, words: object, key: str) -> None:
    """State the sharding that `words` name: `full_shard auto_wrap`, `SHARD_GRAD_OP`; without a name it is full."""
    text = str(words).lower()
    if "hybrid" in text:
        draft.leave(key, "hybrid sharding is sized as full")
        draft.notes.append(f"{key}: sized as sharding over all GPUs; hybrid sharding over several machines needs more")
    if "shard_grad_op" in text or "zero2" in text:
        draft.state("parallel.zero", 2, key)
    elif "no_shard" in text:
        draft.state("parallel.zero", 0, key)
    else:
        draft.state("parallel.fsdp", value=True, key=key)


def state_sharding_by_name(draft: ConfigDraft, name: str, key: str) -> None:
    """State ZeRO from the name of a DeepSpeed config that is not here: `ds_z3_offload_config.json` is stage 3 with offload."""
    match = ZERO_IN_NAME.search(Path(name).name)
    if match is None:
        draft.leave(key, f"{Path(name).name} is not next to the config")
        return
    draft.assume("parallel.zero", int(match[1]))
    draft.assume("framework", "deepspeed")
    if "offload_param" in name.lower():
        draft.leave(key, "weights alone in host memory: sized on the GPU")
    elif "offload" in name.lower():
        draft.assume("parallel.offload", "all" if match[1] == "3" else "optimizer")
    draft.notes.append(f"{key}: {Path(name).name} is not next to the config; ZeRO stage {match[1]} is taken from its name")
