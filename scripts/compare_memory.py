"""Compare the memory model with published and measured peaks.

    python scripts/compare_memory.py faketensor_dev.csv memory_dev.csv

Prints each row, then median and p90 of the absolute error, the share under by more than 10 %, the fit decisions on OOM
rows, and the worst ten, for each file and by source. `scripts/published_memory.py` says what a row means.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # scripts is a folder beside the package, not installed

from costguard.errors import CostguardError
from costguard.sizing.memory.footprint import Footprint, compute_footprint
from costguard.sizing.recipe import Lora, Parallelism, Recipe
from scripts.published_memory import FACTS, Row, capacity, figure, parallel_of, recipe_of, shape

FAKE_OPTIMIZERS = {
    "adamw_fused": ("adamw", "fused"),
    "adamw_foreach": ("adamw", "foreach"),
    "sgd_momentum": ("sgd-momentum", "auto"),
    "sgd": ("sgd", "auto"),
}
PRECISIONS = {"amp": "bf16-amp", "bf16": "bf16", "fp32": "fp32"}
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
        sized = compute_footprint(FACTS.get_architecture(name), fake_recipe(row), Parallelism())
        yield Compared(id=row["id"], group="fake", stated=float(row["peak_bytes"]), found=sized.peak, sized=sized)


def fake_recipe(row: Row) -> Recipe:
    """The recipe of a fake-tensor row."""
    lora = Lora(rank=int(row["lora_r"]), targets=tuple(row["targets"].split("+"))) if row["method"] == "lora" else Lora()
    optimizer, kernel = FAKE_OPTIMIZERS[row["optimizer"]]
    return Recipe(
        method=row["method"],
        precision=PRECISIONS[row["precision"]],
        optimizer=optimizer,
        optimizer_kernel=kernel,
        gradient_accumulation=int(row.get("grad_accum") or 1),
        seq_len=int(row["seq"]),
        decoder_len=int(row["decoder_len"]) if row.get("decoder_len") else None,
        micro_batch=int(row["batch"]),
        checkpointing="full" if row["ckpt"] == "True" else "none",
        attention="eager" if row["attn"] == "eager" else "flash",
        lora=lora,
        dropout=False,
        autocast_rules="cpu",
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
    architecture = shape(row)
    sized = compute_footprint(architecture, recipe_of(row, architecture.kind), parallel_of(row), gpus=gpus)
    reported = float(row["reported_peak_gb"]) * 1e9 if row["reported_peak_gb"] else None
    return Compared(
        id=row["id"], group=row["source_group"], stated=reported, found=figure(sized, row), sized=sized, capacity=capacity(row)
    )


if __name__ == "__main__":
    main()
