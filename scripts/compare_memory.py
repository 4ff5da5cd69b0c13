"""Compare the memory model with published and measured peaks.

    python scripts/compare_memory.py faketensor_dev.csv memory_dev.csv

Prints each row, then median and p90 of the absolute error, the share under by more than 10 %, the fit decisions on OOM
rows, and the worst ten, for each file and by source. A row is mapped by its columns alone; what a source's rows have in
common and no column says (its framework) stands in `FRAMEWORKS`.
"""

from __future__ import annotations

import argparse
import csv
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from costguard.core.architecture import Architecture, Attention, Block, FeedForward
from costguard.core.footprint import Footprint, footprint
from costguard.core.recipe import Lora, Parallel, Recipe
from costguard.data import Facts
from costguard.errors import CostguardError

Row = dict[str, str]

FACTS = Facts()

FRAMEWORKS = {
    "torchtune": "torchtune",
    "litgpt": "litgpt",
    "litgpt-config-hub": "litgpt",
    "litgpt-quant": "litgpt",
    "torchtitan": "torchtitan",
    "bigscience": "megatron",
    "lomo-paper": "deepspeed",
}
OPTIMIZERS = (
    ("paged", "paged-adamw-8bit"),
    ("8bit", "adamw-8bit"),
    ("adafactor", "adafactor"),
    ("sgd", "sgd"),
    ("adam", "adamw"),
)
FAKE_OPTIMIZERS = {"adamw_fused": "adamw", "adamw_foreach": "adamw", "sgd_momentum": "sgd-momentum", "sgd": "sgd"}
PRECISIONS = {"amp": "bf16-amp", "bf16": "bf16", "fp32": "fp32"}
TARGETS: dict[str, str | tuple[str, ...]] = {
    "q+v": ("q_proj", "v_proj"),
    "all": "all-linear",
    "q_proj+v_proj": ("q_proj", "v_proj"),
}
BEFORE_SDPA = ("peft-readme", "lomo-paper", "hf-docs")
"""Measured before transformers 4.36 (December 2023) made SDPA the default."""

MODELS = {
    "gpt2_medium": "gpt2-medium",
    "gpt2_large": "gpt2-large",
    "gpt2_xl": "gpt2-xl",
    "llama32_1b": "llama-3.2-1b",
    "llama32_3b": "llama-3.2-3b",
    "llama2_7b": "llama-2-7b",
    "llama2_13b": "llama-2-13b",
    "llama3_8b": "llama-3-8b",
    "llama3_70b": "llama-3-70b",
    "mistral_7b": "mistral-7b",
    "qwen25_0p5b": "qwen2.5-0.5b",
    "qwen25_1p5b": "qwen2.5-1.5b",
    "qwen25_7b": "qwen2.5-7b",
}

DROPOUT = ("hf-docs", "litgpt", "litgpt-config-hub")
"""BERT as its config has it, 0.1; litgpt's lora_dropout, 0.05 in its defaults and in its config hub."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A row, what it says (bytes; None: out of memory) and what the model says."""

    id: str
    group: str
    stated: float | None
    found: float
    sized: Footprint
    capacity: float | None = None

    @property
    def error(self) -> float:
        """Relative error; only for rows with a figure."""
        return self.found / self.stated - 1 if self.stated else 0.0


def main() -> None:
    """Compare every file given."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--all", action="store_true", help="also rows whose inputs are not fully stated")
    arguments = parser.parse_args()
    for path in arguments.files:
        rows = list(csv.DictReader(path.open(encoding="utf-8")))
        fake = "peak_bytes" in rows[0]
        print(f"== {path.name}")
        report(list(compared_fake(rows) if fake else compared_published(rows, everything=arguments.all)))


def report(compared: list[Compared]) -> None:
    """Print rows, sums by group, and the worst ten."""
    for c in compared:
        print(line(c))
    groups = defaultdict(list)
    for c in compared:
        groups[c.group].append(c)
    for group, members in [*sorted(groups.items()), ("ALL", compared)]:
        print(summary(group, members))
    for c in sorted((c for c in compared if c.stated), key=lambda c: -abs(c.error))[:10]:
        print("worst", line(c))


def line(c: Compared) -> str:
    """One row as text."""
    stated = f"{c.stated / 1e9:9.3f}" if c.stated else "      OOM"
    verdict = f"{100 * c.error:+7.2f}%" if c.stated else ("ok" if fits_not(c) else "WRONG: fits")
    terms = " ".join(f"{k[:4]} {v / 1e9:.2f}" for k, v in c.sized.at_peak.items() if v)
    return f"{c.id[:74]:74} {stated} {c.found / 1e9:9.3f} {verdict:9} {c.sized.peak_phase:22} {terms}"


def fits_not(c: Compared) -> bool:
    """Whether the model says an OOM row does not fit."""
    return c.capacity is not None and c.sized.reserved > c.capacity


def summary(group: str, members: list[Compared]) -> str:
    """Median, p90, share under by more than 10 %, OOM decisions."""
    errors = sorted(abs(c.error) for c in members if c.stated)
    oom = [c for c in members if not c.stated]
    if not errors:
        return f"{group:20} oom right {sum(map(fits_not, oom))}/{len(oom)}"
    under = sum(c.error < -0.1 for c in members if c.stated) / len(errors)
    median, p90 = errors[len(errors) // 2], errors[min(int(0.9 * len(errors)), len(errors) - 1)]
    return (
        f"{group:20} n {len(errors):3} median {100 * median:6.2f}%  p90 {100 * p90:6.2f}%  "
        f"under by >10%: {100 * under:4.1f}%  oom right {sum(map(fits_not, oom))}/{len(oom)}"
    )


def compared_fake(rows: Iterable[Row]) -> Iterable[Compared]:
    """Rows of `tools/faketensor.py`: exact allocated bytes."""
    for row in rows:
        if row["error"]:
            continue
        name = MODELS.get(row["model"], row["model"].replace("_", "-"))
        sized = footprint(FACTS.architecture(name), fake_recipe(row), Parallel())
        yield Compared(id=row["id"], group="fake", stated=float(row["peak_bytes"]), found=sized.peak, sized=sized)


def fake_recipe(row: Row) -> Recipe:
    """The recipe of a fake-tensor row."""
    lora = Lora(rank=int(row["lora_r"]), targets=tuple(row["targets"].split("+"))) if row["method"] == "lora" else Lora()
    return Recipe(
        method=row["method"],
        precision=PRECISIONS[row["precision"]],
        optimizer=FAKE_OPTIMIZERS[row["optimizer"]],
        seq_len=int(row["seq"]),
        micro_batch=int(row["batch"]),
        checkpointing="full" if row["ckpt"] == "True" else "none",
        attention="eager" if row["attn"] == "eager" else "flash",
        lora=lora,
    )


def compared_published(rows: Iterable[Row], *, everything: bool) -> Iterable[Compared]:
    """Published rows that state enough (`usable_for_formula` y; partly too with `everything`)."""
    for row in rows:
        if row["usable_for_formula"] not in (("y", "partly") if everything else ("y",)) or not row["layers"]:
            continue
        if "lomo" in row["optimizer"]:
            continue
        try:
            yield compared_row(row)
        except (CostguardError, KeyError, ValueError) as error:
            print("skipped", row["id"], repr(error)[:120])


def compared_row(row: Row) -> Compared:
    """One published row."""
    gpus = int(row["gpu_count"] or 1)
    sized = footprint(shape(row), recipe_of(row), parallel_of(row), gpus=gpus)
    reported = float(row["reported_peak_gb"]) * 1e9 if row["reported_peak_gb"] else None
    return Compared(
        id=row["id"], group=row["source_group"], stated=reported, found=figure(sized, row), sized=sized, capacity=capacity(row)
    )


def figure(sized: Footprint, row: Row) -> float:
    """The model's figure of the kind the row reports."""
    if row["method"] == "load-only":
        return sized.phases[0].terms["weights"]
    if row["method"] == "kv-cache":
        return sized.phases[-1].terms["buffers"]
    metric = row["metric"]
    if "smi" in metric:
        return sized.reserved
    return sized.peak + sized.slack if "reserved" in metric else sized.peak


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
    try:
        return FACTS.architecture(name)
    except CostguardError:
        pass
    vocab = int(row["vocab"] or 0)
    ffn = int(row["ffn"])
    stated = int(row["params"]) if row["params"] else None
    return Architecture(
        name=name,
        kind="decoder",
        blocks=(
            Block(
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


def recipe_of(row: Row) -> Recipe:
    """The recipe from the row's columns."""
    note, quant = row["note"].lower(), row["quant"]
    method = {"load-only": "inference", "kv-cache": "inference"}.get(row["method"], row["method"])
    ckpt = {"y": "full", "n": "none", "selective": "selective"}.get(row["act_ckpt"].split(" ")[0], "none")
    return Recipe(
        method=method,
        precision=precision(row),
        quant=quant.lower().removesuffix("-dq").removeprefix("gguf-").replace("f16", "none"),
        double_quant=quant.endswith("-dq"),
        optimizer=next((v for k, v in OPTIMIZERS if k in row["optimizer"]), "adamw"),
        seq_len=int(row["seq_len"] or 512),
        micro_batch=int(row["batch"] or 1),
        checkpointing=ckpt,
        attention="eager" if "eager" in row["attention"] or row["source_group"] in BEFORE_SDPA else "flash",
        lora=Lora(rank=int(row["lora_rank"] or 16), targets=targets_of(row)),
        framework=FRAMEWORKS.get(row["source_group"], "hf"),
        gradient_accumulation=int(steps.group(1)) if (steps := re.search(r"(\d+) accumulation steps", note)) else 1,
        dropout=row["source_group"] in DROPOUT,
        fused_loss="chunked" in note or "liger" in note or "fused cross-entropy" in note,
        compiled="compile" in note,
        optimizer_in_backward="step in backward" in row["optimizer"],
        offload_activations=row["offload"] == "activations",
    )


def targets_of(row: Row) -> str | tuple[str, ...]:
    """Which matrices carry an adapter; "q+v (most configs; gemma all linear)" is one source's way to say it."""
    first, _, remark = row["lora_targets"].partition(" ")
    if "gemma all linear" in remark and "gemma" in row["model"].lower():
        return "all-linear"
    return TARGETS.get(first, "all-linear")


def precision(row: Row) -> str:
    """Mixed where `amp`; otherwise the weights' own."""
    kind = "fp16" if row["weight_dtype"] == "fp16" else "bf16"
    if row["amp"] == "y":
        return f"{kind}-amp"
    return "fp32" if row["weight_dtype"] == "fp32" else kind


def parallel_of(row: Row) -> Parallel:
    """The split from the row's columns."""
    zero, offload = row["zero_or_fsdp"], row["offload"]
    return Parallel(
        zero=int(zero[4:]) if zero.startswith("zero") else 0,
        fsdp=zero.startswith("fsdp"),
        tp=int(row["tp"] or 1),
        pp=int(row["pp"] or 1),
        offload={"optimizer": "optimizer", "params": "all", "DeepSpeed CPU": "all"}.get(offload, "none"),
    )


if __name__ == "__main__":
    main()
