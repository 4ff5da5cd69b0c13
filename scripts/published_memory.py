"""What a row of `data/sizing/memory_dev.csv` says, as the values the memory model takes.

A row is mapped by its columns. What no column says is read from words and dates: the library from the remarks and the
source ("Unsloth:", "github.com/pytorch/torchtitan ..."), its era from a date there ("llama3_h100_202412", "arXiv 2306.09782"),
or from `MEASURED`, when a source's rows were measured. Nothing here looks at a row, a model or a result.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from costguard.data import ShippedFacts
from costguard.sizing.architecture import Architecture, Attention, FeedForward, LayerBlock
from costguard.sizing.huggingface import build_architecture_from_config
from costguard.sizing.memory.footprint import Footprint
from costguard.sizing.recipe import Lora, Parallelism, Recipe

Row = dict[str, str]

FACTS = ShippedFacts()

LIBRARIES = (
    *(("unsloth:", "unsloth"), ("hf +", "hf"), ("deepspeed", "deepspeed"), ("transformers", "hf"), ("hf trainer", "hf")),
    *(("hf;", "hf"), ("torchtune", "torchtune"), ("litgpt", "litgpt")),
    *(("torchtitan", "torchtitan"), ("megatron", "megatron"), ("nemo", "megatron"), ("bigscience", "megatron")),
    *(("lomo", "deepspeed"), ("unsloth", "unsloth")),
)
"""Words of remarks, then of the source, and the library they name; LOMO's authors ran DeepSpeed. No word: Hugging Face's."""

BUILT_ON = {"hf": (("whitecircle/halo", "halo"),)}
"""Library -> words of the source of another one that is built on it, as which its rows are remarked."""

MEASURED = {
    "bigscience": "2021-10",
    "hf-docs": "2022-06",
    "peft-readme": "2023-03",
    "litgpt": "2023-08",
    "litgpt-quant": "2023-08",
    "litgpt-config-hub": "2024-04",
    "peft-docs": "2024-03",
    "peft-metamath": "2025-06",
    "peft-imagegen": "2026-01",
    "ml-engineering": "2026-01",
}
"""When a source's rows were measured, by the history of the file they stand in, where the source's name holds no date."""

ALLOCATED = ("peft-readme",)
"""Sources that report what was allocated although their rows do not say so: PEFT's example scripts print
torch.cuda.max_memory_allocated (TorchTracemalloc in examples/lora_dreambooth/train_dreambooth.py, read 2026-11-25)."""

ERAS = {
    "hf": (("hf-2022", "2023-04"), ("hf-2024", "2024-10")),
    "deepspeed": (("deepspeed-2023", "2023-08"),),
    "litgpt": (("litgpt-2023", "2024-01"),),
    "torchtitan": (("torchtitan-2024", "2025-02"),),
    "megatron": (("megatron-2021", "2022-06"),),
}
"""Library -> its earlier selves, and the month from which it was another: see `sizing/memory/frameworks.py`."""

UNDATED = {"hf": "hf-2024"}
"""Where nothing tells a date: what most who publish memory ran, which also holds more."""

SDPA_SINCE = "2023-12"
"""transformers 4.36 made SDPA the default; before it attention was eager."""

DATES = (
    re.compile(r"(?P<year>20[12]\d)[-_/]?(?P<month>0[1-9]|1[0-2])(?!\d)"),
    re.compile(r"(?<!\d)(?P<month>0[1-9]|1[0-2])[-_/](?P<year>20[12]\d)"),
    re.compile(r"arxiv[: ]+(?P<year>[12]\d)(?P<month>0[1-9]|1[0-2])\."),
    re.compile(r"(?<![\d-])(?P<year>20[12]\d)(?P<month>)(?![-_/\d])"),
)
MIDDLE_OF_YEAR = "06"
"""The month of a date that states the year alone."""
COMPILED = re.compile(r"(?<![\w-])(torch\.)?compiled?\b", re.IGNORECASE)
EXPERT_PARALLEL = re.compile(r"expert parallel (\d+)", re.IGNORECASE)
IN_PLACE = re.compile(r"gradient in place|head not fused", re.IGNORECASE)
LONGEST = re.compile(r"max(?:imum|\.)?(?: seq\w*| length)? (\d{2,6})\b")
LATENT = 8
"""Pixels a side of one number of a latent: Stable Diffusion's VAE."""
TWEET_TOKENS = 70
"""280 characters at four a token."""
USUAL_SEQ_LEN = 512

OPTIMIZERS = (
    (r"paged.*8bit", "paged-adamw-8bit"),
    (r"paged.*(adam|32bit)", "paged-adamw"),
    (r"paged", "paged-adamw-8bit"),
    (r"lion.*8bit|8bit.*lion", "lion-8bit"),
    (r"lion", "lion"),
    (r"8bit", "adamw-8bit"),
    (r"adafactor", "adafactor"),
    (r"sgd.*(?<!no )momentum", "sgd-momentum"),
    (r"sgd", "sgd"),
    (r"adam", "adamw"),
)
"""Patterns of an optimizer's words, the first that fits; bitsandbytes' paged optimizer has 8-bit states unless it says 32."""

DROPS = ("litgpt", "litgpt-2023", "megatron-2021")
"""Whose defaults have dropout: litgpt's lora_dropout 0.05, Megatron's hidden_dropout 0.1; BERT's config has 0.1 too."""


def figure(sized: Footprint, row: Row) -> float:
    """The model's figure of the kind the row reports."""
    metric = row["metric"]
    if row["method"] == "load-only":
        return sized.reserved if "memory" in metric else sized.phases[0].terms["weights"]
    if row["method"] == "kv-cache":
        return sized.phases[-1].terms["buffers"]
    if metric.startswith("computed"):
        return summed(sized)
    if "smi" in metric:
        return sized.peak + sized.context + sized.fragments
    return sized.peak + sized.fragments if "reserved" in metric else sized.peak


def summed(sized: Footprint) -> float:
    """Each term at its largest, added up, as one does who computes memory from a profile instead of measuring a peak."""
    states = sum(max(p.terms[name] for p in sized.phases) for name in ("weights", "gradients", "optimizer"))
    return states + max(p.terms["activations"] + p.terms["logits"] for p in sized.phases)


def capacity(row: Row) -> float | None:
    """Bytes of the GPU an OOM row names."""
    found = re.search(r"(\d+) ?GB", row["gpu"])
    names = {"A10G": 24, "RTX-3090": 24, "RTX-4090": 24, "L40S": 48}
    size = int(found.group(1)) if found else names.get(row["gpu"])
    return size * 2**30 * 0.99 if size else None


def shape(row: Row) -> Architecture:
    """The architecture from the row's columns, a shipped one's blocks where its name is known."""
    h, heads = int(row["hidden"]), int(row["heads"])
    name = row["model"].lower()
    found = FACTS.get_shipped_architecture(name)
    if found is not None:
        return found if found.walk is None else _walk_images(found, row)
    vocab = int(row["vocab"] or 0)
    ffn = int(row["ffn"])
    stated = int(row["params"]) if row["params"] else None
    return Architecture(
        name=name,
        kind="decoder",
        blocks=(
            LayerBlock(
                layers=int(row["layers"]),
                hidden=h,
                attention=Attention(heads=heads, kv_heads=int(row["kv_heads"] or heads), head_dim=max(h // heads, 1)),
                feed_forward=FeedForward(ffn=ffn, gated=ffn < 4 * h and ffn != 2 * h),
            ),
        ),
        vocab=vocab,
        tied_embeddings=row["tied_embeddings"] == "y",
        extras=(("norm", h),),
        stated_params=stated,
    )


def _walk_images(known: Architecture, row: Row) -> Architecture:
    """A shipped model of convolutions for images of the row's size, with the text encoders trained where the row says so.

    What a pipeline's stated size holds besides is loaded beside the U-Net.
    """
    image = re.fullmatch(r"(\d+)x\1", row.get("sample", ""))
    if row.get("sample") and not image:
        raise ValueError(f"seq_len: '{row['sample']}' is not square, and such images are not walked")
    if image:
        config = FACTS.config(known.name)
        size = {"sample_size": int(image[1]) // LATENT} if known.kind == "unet" else {"image_size": int(image[1])}
        known = build_architecture_from_config({**config, **size}, name=known.name)
    if row["method"] != "full" or "with text encoder" not in row["note"].lower():
        return known
    trained = tuple(each for each in known.companions if each[0] == "text encoders")
    return replace(known, extras=known.extras + trained, companions=tuple(c for c in known.companions if c not in trained))


def recipe_of(row: Row, kind: str) -> Recipe:
    """The recipe from the row's columns, of a model of `kind`."""
    note, quant = row["note"].lower(), row["quant"]
    words = f"{note} {row['source'].lower()}"
    method = {"load-only": "inference", "kv-cache": "inference"}.get(row["method"], row["method"])
    ckpt = {"y": "full", "n": "none", "selective": "selective"}.get(row["act_ckpt"].split(" ")[0], "none")
    batch, accumulation = batch_of(row)
    framework = framework_of(row)
    fused = "chunked" in words or "liger" in words or "fused cross-entropy" in words  # else the baseline of what is compared
    return Recipe(
        method=method,
        precision=precision(row),
        quant=quant.lower().removesuffix("-dq").removeprefix("gguf-").replace("f16", "none"),
        double_quant=quant.endswith("-dq"),
        optimizer=next((v for k, v in OPTIMIZERS if re.search(k, row["optimizer"])), "adamw"),
        optimizer_kernel=next((word for word in ("fused", "foreach") if word in row["optimizer"]), "auto"),
        seq_len=int(row["seq_len"] or length_in(note) or USUAL_SEQ_LEN),
        micro_batch=batch,
        checkpointing=ckpt,
        attention=attention_of(row, framework),
        lora=Lora(rank=int(row["lora_rank"] or 16), targets=targets_of(row), dora=row.get("adapter") == "dora"),
        framework=framework,
        gradient_accumulation=accumulation,
        dropout=True if framework in DROPS or kind == "encoder" else None,
        fused_loss=fused,
        loss="in-place" if IN_PLACE.search(note) else "auto" if fused else "whole",
        moments="bf16" if "bf16 moments" in note or "moments in bf16" in note else "auto",
        compiled=bool(COMPILED.search(note)),
        optimizer_in_backward="step in backward" in row["optimizer"],
        offload_activations=row["offload"] == "activations",
        decoder_len=int(row["decoder_len"]) if row.get("decoder_len") else None,
    )


def framework_of(row: Row) -> str:
    """The library the row's words name, as it was when the row was measured."""
    texts = (row["note"].lower(), row["source_group"].lower(), row["source"].lower())
    library = next((name for text in texts for word, name in LIBRARIES if word in text), "hf")
    library = next((name for word, name in BUILT_ON.get(library, ()) if word in texts[-1] and library in texts[0]), library)
    date = measured(row)
    if date is None:
        return UNDATED.get(library, library)
    return next((name for name, until in ERAS.get(library, ()) if date < until), library)


def measured(row: Row) -> str | None:
    """The month, `2024-12`, in which the row was measured; None: nothing tells."""
    return MEASURED.get(row["source_group"]) or next(_dates(f"{row['source']} {row['note']}".lower()), None)


def _dates(text: str) -> Iterator[str]:
    for pattern in DATES:
        for found in pattern.finditer(text):
            yield f"20{found['year'][-2:]}-{found['month'] or MIDDLE_OF_YEAR}"


def length_in(note: str) -> int | None:
    """The sequence length that remarks tell: the longest allowed, or what the data are."""
    said = LONGEST.search(note)
    return int(said[1]) if said else TWEET_TOKENS if "tweet" in note else None


def batch_of(row: Row) -> tuple[int, int]:
    """Sequences of one pass, and passes of a step.

    litgpt's scripts and torchtune's LoRA recipes accumulate unless told otherwise. A local batch that "is cut into pipeline
    micro-batches" is cut into one a stage.
    """
    batch, stages = int(row["batch"] or 1), int(row["pp"] or 1)
    if (
        "prior preservation" in row["note"].lower()
    ):  # an image of the class goes through with each (train_dreambooth.py, collate_fn)
        batch *= 2
    if "cut into pipeline micro-batches" in row["note"]:
        return max(1, batch // stages), stages
    steps = re.search(r"(\d+)", row.get("grad_accum") or "") or re.search(r"(\d+) accumulation steps", row["note"].lower())
    library = framework_of(row)
    accumulates = library.startswith("litgpt") or (library == "torchtune" and "lora" in row["method"])
    return batch, int(steps.group(1)) if steps else 1 + accumulates


def attention_of(row: Row, framework: str) -> str:
    """Scores are whole where the row says so (also in a fused softmax), and where SDPA was not yet the default."""
    said, date = row["attention"].lower(), measured(row)
    before = date is not None and date < SDPA_SINCE and framework.startswith(("hf", "deepspeed"))
    return "eager" if "eager" in said or "softmax" in said or (before and not said) else "flash"


def targets_of(row: Row) -> str | tuple[str, ...]:
    """Which matrices carry an adapter; "q+v (most configs; gemma all linear)" is one source's way to say it."""
    first, _, remark = row["lora_targets"].partition(" ")
    if ("gemma all linear" in remark and "gemma" in row["model"].lower()) or not first or first.startswith("all"):
        return "all-linear"
    if first.lower() in {"attention", "attn", "qkvo"}:
        return "attention"
    said = first if "most configs" in remark else row["lora_targets"]
    names = [name for name in re.split(r"[^\w.]+", said) if name not in {"", "and"}]
    return tuple(f"{name}_proj" if name in SHORT_NAMES else name for name in names)


SHORT_NAMES = ("q", "k", "v", "o", "gate", "up", "down")
"""Llama's matrices without their ending."""


def precision(row: Row) -> str:
    """Mixed where `amp`; otherwise the weights' own, of a mixture of widths the largest."""
    kind = "fp16" if row["weight_dtype"] == "fp16" else "bf16"
    if row["amp"] == "y":
        return f"{kind}-amp"
    return "fp32" if row["weight_dtype"] in ("fp32", "mixed") else kind


def parallel_of(row: Row) -> Parallelism:
    """The split from the row's columns."""
    zero, offload = row["zero_or_fsdp"], row["offload"]
    return Parallelism(
        zero=int(zero[4:]) if zero.startswith("zero") else 0,
        fsdp=zero.startswith("fsdp"),
        tp=int(row["tp"] or 1),
        pp=int(row["pp"] or 1),
        cp=int(row.get("cp") or 1),
        ep=int(row.get("ep") or ((said := EXPERT_PARALLEL.search(row["note"])) and said[1]) or 1),
        offload={"optimizer": "optimizer", "params": "all", "DeepSpeed CPU": "all"}.get(offload, "none"),
    )
