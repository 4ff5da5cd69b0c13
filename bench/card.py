"""What a quote says of training steps that were measured on a card of our own (`bench/card.csv`), case by case.

    python -m bench.card        also a part of docs/ACCURACY.md

The rows are one source. `scripts/fit_efficiency.py` does not read them, so no weight is fitted to them; `adapter_launch_s`
was read off them (decision 0064).
"""

from __future__ import annotations

import csv
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.page import table
from costguard.data import ShippedFacts
from costguard.sizing.architecture import Architecture
from costguard.sizing.huggingface import build_architecture_from_config
from costguard.sizing.memory.footprint import compute_footprint
from costguard.sizing.recipe import Lora, Parallelism, Recipe
from costguard.sizing.speed.throughput import compute_throughput
from costguard.values.interval import Interval

CARD = Path(__file__).with_name("card.csv")
FACTS = ShippedFacts()
GPUS = {"NVIDIA H100 80GB HBM3": "H100-SXM", "NVIDIA H200": "H200-SXM"}
"""torch.cuda.get_device_name -> the shipped name."""

INTRODUCTION = (
    "This table shows 28 training steps of plain Hugging Face code with random weights, measured by `bench/card_steps.py` "
    "on one H100-SXM (2026-11-27, torch 2.11, transformers 5.17, peft 0.21; a virtual machine with a slow host). They are "
    "one source, and no weight is fitted to it. A star marks results outside the 80 % interval."
)

Row = dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One case: GB (1e9 bytes) that were allocated, tokens a second, and what is said of both."""

    name: str
    gb: float
    said_gb: Interval
    speed: float
    said_speed: Interval


BLIND = (
    "With the constants of the previous day, memory had an error of 0.7 % in the median and 17 % at the p90, and 89 % were "
    "inside the interval; speed had 15 % and 103 %, with 61 % inside. The rows showed three mechanisms: the kernels of "
    "PEFT's adapters, whose launches take the host longer than the GPU's computation at small batches; the power in GPT-2's "
    "GELU, which autocast computes in fp32; T5's dropped scores. The table has today's predictions, which are therefore no "
    "evidence for these three mechanisms. The speed of GPT-2 and T5 is still wrong."
)


def main() -> int:
    """Print the page's part; always 0."""
    print("\n\n".join(build_sections()))
    return 0


def build_sections() -> list[str]:
    """The part of docs/ACCURACY.md: each case, and the scores."""
    found = list(compare())
    lines = [
        (
            *(case.name, f"{case.gb:.1f}", format_error(case.said_gb, case.gb)),
            *(f"{case.speed:,.0f}", format_error(case.said_speed, case.speed)),
        )
        for case in found
    ]
    scores = (
        f"- memory: {score([(case.said_gb, case.gb) for case in found])}\n"
        f"- speed: {score([(case.said_speed, case.speed) for case in found])}"
    )
    header = ("case", "GB allocated", "said", "tokens/s", "said")
    return ["## On a card of our own", INTRODUCTION, BLIND, table(header, lines), scores]


def format_error(said: Interval, measured: float) -> str:
    """How far the expectation is off, with a star where the interval misses."""
    inside = said.low <= measured <= said.high
    return f"{said.expected / measured - 1:+.0%}{'' if inside else ' *'}"


def score(pairs: list[tuple[Interval, float]]) -> str:
    """Median and 90th percentile of the error, and how many intervals hold the truth."""
    errors = sorted(abs(said.expected / measured - 1) for said, measured in pairs)
    held = sum(said.low <= measured <= said.high for said, measured in pairs)
    low = sum(said.expected < 0.9 * measured for said, measured in pairs)
    p90 = statistics.quantiles(errors, n=10)[-1]
    return (
        f"{len(pairs)} cases, median {statistics.median(errors):.1%}, p90 {p90:.1%}, "
        f"under by over 10 %: {low / len(pairs):.0%}, interval holds {held / len(pairs):.0%}"
    )


def compare(path: Path = CARD) -> Iterator[Compared]:
    """Each measured case beside what costguard says of it."""
    efficiency, gpus = FACTS.get_efficiency(), FACTS.get_gpus()
    with path.open(newline="", encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            architecture, recipe = architecture_of(row), recipe_of(row)
            footprint = compute_footprint(architecture, recipe, Parallelism(), gpus=1)
            speed = compute_throughput(
                architecture, recipe, Parallelism(), gpus[GPUS[row["card"]]], gpus=1, nodes=1, efficiency=efficiency
            )
            if speed is None:
                raise ValueError(f"no arithmetic rate of {row['card']} is known")
            kind = f"lora{row['rank']} {row['targets']}" if recipe.adapters else "full"
            parts = (row["model"], kind, row["dtype"], f"{row['batch']}x{row['seq']}", recipe.checkpointing)
            yield Compared(
                name=" ".join(parts),
                gb=float(row["allocated"]) / 1e9,
                said_gb=footprint.peak_interval.scale(1e-9),
                speed=float(row["tokens_per_s"]),
                said_speed=speed.tokens_per_s_per_gpu,
            )


def architecture_of(row: Row) -> Architecture:
    """The model as it was built: the first rows' embeddings and heads were not tied, which their parameters tell."""
    config = dict(FACTS.config(row["model"]))
    known = FACTS.get_architecture(row["model"])
    tied = known.tied_embeddings and int(row["parameters"]) == known.parameters
    return build_architecture_from_config({**config, "tie_word_embeddings": tied}, name=row["model"])


def recipe_of(row: Row) -> Recipe:
    """The case as a job of Hugging Face's libraries."""
    rank = int(row["rank"])
    return Recipe(
        method="lora" if rank else "full",
        precision="bf16" if rank else row["dtype"],
        seq_len=int(row["seq"]),
        micro_batch=int(row["batch"]),
        checkpointing="full" if row["checkpointing"] == "True" else "none",
        attention="flash",
        lora=Lora(rank=rank, targets=row["targets"]) if rank else Lora(),
        compiled=row["compiled"] == "True",
        optimizer_kernel="foreach" if row["foreach"] == "True" else "fused",
        decoder_len=int(row["decoder_len"]) or None,
    )


if __name__ == "__main__":
    sys.exit(main())
