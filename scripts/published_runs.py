"""Published runs (`data/sizing/runs_dev.csv`) as the values costguard's formulas take. Standard library only.

One rule for each blank, none for any one row or source:

- shape unknown (no `layers`): the usual shape of its size, hidden = 128 x layers, N = 12 L h^2, 32,000 words;
- experts, or no shape at all: the shipped model of that name where it has as many parameters as the row states;
- experts of a model that is not shipped: `total_params` and `active_params` decide how many there are and how wide eight are;
- gated or plain feed-forward: whichever count of parameters comes nearer to `total_params`;
- recomputation not stated: none, or all of it where the job would need far more memory than the GPU has;
- micro-batch: one sequence; batch: 64 passes a step, or 8 for each stage of a pipeline; ranks, library, fused kernels: those
  that the technique names; sharding over several GPUs: optimizer states;
- GPUs: those of a run of 30 days at 40 % of peak, never what the published hours say;
- speed stated as TFLOPS only: divided by the FLOPs per token that `tflops_kind` says were counted.
"""

from __future__ import annotations

import csv
import math
import re
from dataclasses import dataclass, replace
from pathlib import Path

from costguard.data import ShippedFacts
from costguard.errors import InputError
from costguard.sizing.architecture import Architecture, Attention, FeedForward, LayerBlock
from costguard.sizing.memory.footprint import compute_footprint
from costguard.sizing.recipe import ADAPTER_METHODS, Parallelism, Recipe
from costguard.sizing.speed.flops import count_flops_per_token
from costguard.values.gpu import GIB, Gpu, read_gpus

USUAL_VOCAB = 32_000
USUAL_ASPECT = 128
"""Hidden width over layers of most published decoders (GPT-3 128, Llama-2-7B 128, Llama-3-70B 102)."""
EXPERTS_PER_TOKEN = 8
SAME_COUNT = 0.05
"""How far a stated count may lie from the shipped model's: cards round, and count towers in or out."""
GPUS_PER_NODE = 8
MONTH_HOURS = 720
USUAL_PASSES, PASSES_A_STAGE = 64, 8
USUAL_PASS_TOKENS = 16_384
"""Tokens of one pass that published runs with small models state most often (llm-foundry, torchtitan, nanochat: 8k to 32k)."""
USUAL_SHARE = 0.4
"""Of dense peak, over a whole run: most published runs reach 0.3 to 0.55."""
TOO_LARGE = 1.4
"""A job for which so many times the GPU's memory is computed was not run so: nine in ten computed figures are at most 40 % off
where a row states too little (docs/ACCURACY.md, 2026-11)."""
PRECISIONS = {"bf16-pure": "bf16", "mxfp8": "fp8", "nvfp4": "fp4"}
"""The table's words that are not a recipe's."""
MIXED = {"bf16": "bf16-amp", "fp16": "fp16-amp"}
"""What these words mean where weights are trained: a source that keeps no fp32 weights says so ("bf16-pure")."""
FACTS = ShippedFacts()
METHODS = {"full-ft": "full"}
RANKS = re.compile(r"\b(TP|PP|CP|EP) ?=? ?(\d+)\b")
FASTER_ATTENTION = re.compile(r"FA[34]|flash[- ]?attention[- ]?[34]|cudnn", re.IGNORECASE)
FUSED_LOSS = re.compile(r"liger|chunked|fused (?:loss|cross)", re.IGNORECASE)
EXPERT_LOOP = re.compile(r"experts? in a loop|expert loop|looped experts", re.IGNORECASE)
COMPILED = re.compile(r"compile|C/CUDA", re.IGNORECASE)
FRAMEWORKS = {name: name for name in ("megatron", "automodel", "torchtitan", "torchtune", "unsloth", "deepspeed")}
CHECKPOINTINGS = {"y": "full", "n": "none", "": "none", "selective": "selective", "recompute-gelu": "selective"}
STAGES = {"zero1": 1, "distopt": 1, "zero2": 2, "zero3": 3}


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One row. `tokens_per_s_per_gpu`: steady state, stated or derived; `gpu_hours`: of the whole run; None: not published."""

    name: str
    source: str
    total_params: float
    architecture: Architecture
    recipe: Recipe
    parallel: Parallelism
    gpu: Gpu
    gpus: int
    nodes: int
    tokens_per_s_per_gpu: float | None
    stated: bool
    tokens: float | None
    gpu_hours: float | None


def runs(path: Path, gpus: dict[str, Gpu]) -> list[Run]:
    """Every row of `path` whose GPU is known."""
    with path.open(newline="", encoding="utf-8") as lines:
        return [run(row, gpus[row["gpu"]]) for row in csv.DictReader(lines) if row["gpu"] in gpus]


def run(row: dict[str, str], gpu: Gpu) -> Run:
    """One row as values."""
    count = gpus_of(row, gpu)
    row = with_technique(row | {"gpu_count": str(count)})
    architecture, recipe, parallel = architecture_of(row), recipe_of(row), parallel_of(row)
    if not row["act_ckpt"] and parallel.pp == 1:  # a pipeline's schedule decides what it holds, and no column tells it
        recipe = with_checkpointing(architecture, recipe, parallel, gpu, count)
    speed = number(row["tokens_per_s_per_gpu"])
    return Run(
        name=row["id"],
        source=row["source_group"],
        total_params=float(row["total_params"]),
        architecture=architecture,
        recipe=recipe,
        parallel=parallel,
        gpu=gpu,
        gpus=count,
        nodes=-(-count // GPUS_PER_NODE),
        tokens_per_s_per_gpu=speed or speed_from_tflops(row, architecture, recipe),
        stated=speed is not None,
        tokens=number(row["tokens_trained"]),
        gpu_hours=number(row["gpu_hours"]),
    )


def architecture_of(row: dict[str, str]) -> Architecture:
    """The decoder that the row's shape columns describe, gated or plain, whichever comes nearer to its count.

    No column tells the shape of experts, so a mixture's is the shipped one where the name and both counts agree with it.
    """
    known = shipped(row) if row["active_params"] or not row["layers"] else None
    if known is not None:
        return known
    shaped = row if row["layers"] else row | usual_shape(float(row["active_params"] or row["total_params"]))
    total = float(row["total_params"])
    candidates = [decoder(shaped, total, gated=gated) for gated in (True, False)]
    return min(candidates, key=lambda a: abs(a.computed_parameters - total))


def shipped(row: dict[str, str]) -> Architecture | None:
    """The shipped model of the row's name, if it has as many parameters as the row states."""
    found = FACTS.get_shipped_architecture(row["model"].lower())
    if found is None:
        return None
    stated = float(row["total_params"])
    return found if abs(found.parameters / stated - 1) <= SAME_COUNT else None


def usual_shape(parameters: float) -> dict[str, str]:
    """Layers, width and heads of a plain decoder of that many parameters: N = 12 L h^2 with h = 128 L."""
    layers = max(2, round((parameters / (12 * USUAL_ASPECT**2)) ** (1 / 3)))
    hidden = USUAL_ASPECT * layers
    heads = str(layers)
    shape = {"layers": str(layers), "hidden": str(hidden), "heads": heads, "kv_heads": heads}
    return shape | {"ffn": str(4 * hidden), "vocab": str(USUAL_VOCAB)}


def decoder(row: dict[str, str], total: float, *, gated: bool) -> Architecture:
    """The row's decoder with a gated or plain feed-forward."""
    hidden, layers, heads = int(row["hidden"]), int(row["layers"]), int(row["heads"])
    vocab = int(row["vocab"])
    attention = Attention(heads=heads, kv_heads=int(row["kv_heads"]), head_dim=hidden // heads)
    active = number(row["active_params"])
    dense = FeedForward(ffn=int(row["ffn"]), gated=gated)
    outside = 2 * vocab * hidden + layers * sum(i * o for i, o in attention.list_matrices(hidden).values())
    forward = dense if active is None else mixture(total - outside, active - outside, layers * hidden)
    block = LayerBlock(layers=layers, hidden=hidden, attention=attention, feed_forward=forward)
    untied = Architecture(name=row["model"], kind="decoder", blocks=(block,), vocab=vocab)
    tied = Architecture(name=row["model"], kind="decoder", blocks=(block,), vocab=vocab, tied_embeddings=True)
    return min((untied, tied), key=lambda a: abs(a.computed_parameters - total))


def mixture(all_experts: float, active_experts: float, layers_hidden: int) -> FeedForward:
    """A gated mixture whose experts hold `all_experts` weights, of which a token passes `active_experts`."""
    active = max(active_experts, 0.05 * all_experts / EXPERTS_PER_TOKEN)
    ffn = max(1, round(active / (3 * layers_hidden * EXPERTS_PER_TOKEN)))
    experts = max(EXPERTS_PER_TOKEN, round(all_experts / (3 * layers_hidden * ffn)))
    return FeedForward(ffn=ffn, gated=True, experts=experts, experts_per_token=EXPERTS_PER_TOKEN)


def recipe_of(row: dict[str, str]) -> Recipe:
    """Method, precision, lengths and recomputation. Accumulation follows from the global batch where it is stated."""
    seq_len = int(number(row["seq_len"]) or 4096)
    batch = number(row["global_batch_tokens"])
    split = parallel_of(row)
    ranks = max(1, int(row["gpu_count"]) // split.model_ranks)
    micro = int(number(row["micro_batch"]) or usual_micro_batch(seq_len, batch, ranks, split))
    method = METHODS.get(row["method"], row["method"])
    return Recipe(
        method=method,
        precision=precision_of(row["precision"], method),
        quant="nf4" if method == "qlora" else "none",
        seq_len=seq_len,
        micro_batch=micro,
        gradient_accumulation=max(1, round(batch / (seq_len * micro * ranks)))
        if batch
        else max(USUAL_PASSES, PASSES_A_STAGE * split.pp),
        checkpointing=CHECKPOINTINGS[row["act_ckpt"]],
        attention="flash3" if FASTER_ATTENTION.search(row["technique"]) else "flash",
        framework=framework_of(row["technique"], method),
        fused_loss=bool(FUSED_LOSS.search(row["technique"])),
        compiled=bool(COMPILED.search(row["technique"])),
        experts_implementation="loop" if EXPERT_LOOP.search(row["technique"]) else "auto",
    )


def precision_of(word: str, method: str) -> str:
    """The recipe's word for the table's. Where weights are trained, 16 bits mean mixed precision unless "pure" is said."""
    mixed = {} if method in ADAPTER_METHODS else MIXED
    return mixed.get(word) or PRECISIONS.get(word, word)


def with_checkpointing(architecture: Architecture, recipe: Recipe, parallel: Parallelism, gpu: Gpu, count: int) -> Recipe:
    """The recipe, recomputing every layer where it fits only so: it needs TOO_LARGE times the memory without, and fits with."""
    again = replace(recipe, checkpointing="full")
    try:
        without, need = (compute_footprint(architecture, r, parallel, gpus=count).peak for r in (recipe, again))
    except InputError:  # the row's split is none that the memory model knows
        return recipe
    size = gpu.memory_gib * GIB
    return again if without > TOO_LARGE * size and need <= size else recipe


def usual_micro_batch(seq_len: int, batch: float | None, ranks: int, split: Parallelism) -> int:
    """Sequences of one pass where none are stated: one where GPUs share a copy of the model, whose pipeline wants many passes.

    Otherwise USUAL_PASS_TOKENS of them, or the rank's share of a smaller batch.
    """
    if split.model_ranks > 1:
        return 1
    share = batch / ranks / seq_len if batch else math.inf
    return max(1, int(min(USUAL_PASS_TOKENS / seq_len, share)))


def with_technique(row: dict[str, str]) -> dict[str, str]:
    """`row` with ranks that only its technique names: "Megatron+ZeRO3 TP4" is tp = 4."""
    said = {kind.lower(): count for kind, count in RANKS.findall(row["technique"])}
    return row | {kind: count for kind, count in said.items() if not row[kind]}


def framework_of(technique: str, method: str) -> str:
    """The library a technique names; Hugging Face where it names none, for QLoRA without PEFT's preparation.

    The sources of QLoRA (torchtune, litgpt, fsdp_qlora, Halo) do not call it.
    """
    usual = "trl" if method == "qlora" else "hf"
    return next((name for word, name in FRAMEWORKS.items() if word in technique.lower()), usual)


def parallel_of(row: dict[str, str]) -> Parallelism:
    """Sharding, ranks and offload."""
    sharding = row["sharding"] or ("zero1" if int(row["gpu_count"]) > 1 else "none")
    ranks = {name: int(number(row[name]) or 1) for name in ("tp", "pp", "cp", "ep")}
    return Parallelism(zero=STAGES.get(sharding, 0), fsdp="sdp" in sharding, offload=offload_of(row["technique"]), **ranks)


def offload_of(technique: str) -> str:
    """What the technique says is kept in the host's memory."""
    if "offload" not in technique:
        return "none"
    return "optimizer" if "optimizer offload" in technique else "all"


def gpus_of(row: dict[str, str], gpu: Gpu) -> int:
    """GPUs of the run; where they are not stated, those that take 30 days at a usual speed, in whole nodes."""
    if stated := number(row["gpu_count"]):
        return int(stated)
    flops = 6 * float(row["active_params"] or row["total_params"]) * (number(row["tokens_trained"]) or 0)
    hours = flops / (USUAL_SHARE * (gpu.bf16_tflops or gpu.fp32_tflops or 1) * 1e12) / 3600
    return max(1, round(hours / MONTH_HOURS / GPUS_PER_NODE)) * GPUS_PER_NODE


def speed_from_tflops(row: dict[str, str], architecture: Architecture, recipe: Recipe) -> float | None:
    """Tokens a second per GPU of a row that states TFLOPS and what was counted in them, else None."""
    tflops, kind = number(row["tflops_per_gpu"]), row["tflops_kind"]
    return None if tflops is None or not kind else tflops * 1e12 / counted_flops(kind, row, architecture, recipe)


def counted_flops(kind: str, row: dict[str, str], architecture: Architecture, recipe: Recipe) -> float:
    """FLOPs per token as the source counted them: with or without recomputation, attention in full unless it says causal."""
    recomputed = kind.startswith("hardware") and recipe.checkpointing == "full"
    if "N per token" in kind:
        return (8 if recomputed else 6) * float(row["total_params"])
    flops = count_flops_per_token(architecture, recipe)
    attention = flops.attention * flops.forward
    extra = 0.0 if "causal" in kind else attention
    passes = flops.model / flops.forward + recomputed
    return flops.model + extra * passes + (flops.recompute if recomputed else 0.0)


def gpus(path: Path) -> dict[str, Gpu]:
    """Datasheet figures by name."""
    with path.open(newline="", encoding="utf-8") as lines:
        return read_gpus(csv.DictReader(lines))


def number(text: str) -> float | None:
    """A cell as a number; None where it is blank."""
    return float(text) if text.strip() else None
