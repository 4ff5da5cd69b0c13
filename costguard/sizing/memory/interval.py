"""The 80 % interval of a peak: how far published peaks of sources nobody had seen lay from what was predicted.

It is a split conformal interval over sources, as that of speed: the errors of published peaks, each source with the same
weight, at the level 0.8 (k + 1) / k of k sources. It is wider where the job is unlike all that was measured, and UNSEEN times
as wide as the rows say with which the model was built (scripts/fit_memory_interval.py prints the figures; decisions 0048,
0147).

Example: 40 GB on one GPU with a log half-width of 0.15 is 34.4 to 46.5 GB. LoRA of a diffusion model in nf4, of which one
property differs from every measured run, has 1.4 times the width: 32.4 to 49.3 GB.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from costguard.sizing.memory.measured_runs import MEASURED_RUNS
from costguard.sizing.recipe import Parallelism, Recipe, name_library
from costguard.values.interval import Interval


class RunKind(NamedTuple):
    """What decides how far a measured run tells of another one; each is a word.

    `content`: text, images or samples (of fixed length: ViT, Whisper). `split`: one, copies, sharded, model or offload.
    """

    content: str
    method: str
    precision: str
    library: str
    length: str
    split: str


FIELD_WEIGHTS = RunKind(content=2, method=2, precision=1, library=1, length=1, split=1)  # type: ignore[arg-type]  # by field
"""How far apart two runs are that differ in one field: another method or content keeps other tensors altogether."""
FIELD_WORDS = RunKind("content", "method", "precision", "framework", "length", "sharding")
SHORT, LONG = 1024, 8192
"""Tokens: published runs are of 512 to 1,024, of 2,048 to 8,192, or of long contexts."""
PRECISION_WORDS = {"bf16": "16-bit", "fp16": "16-bit", "fp8": "8-bit", "fp4": "8-bit", "fp32": "fp32"}
METHOD_WORDS = {"full": "full training", "lora": "LoRA", "qlora": "QLoRA", "inference": "serving"}


def describe_kind(content: str, recipe: Recipe, parallel: Parallelism, gpus: int) -> RunKind:
    """Return the kind of a run of a model that reads `content`."""
    split = "sharded" if parallel.stage == 3 else "copies"  # noqa: PLR2004 - ZeRO's stage that shards weights
    split = "one" if gpus == 1 else "model" if parallel.model_ranks > 1 else split
    return RunKind(
        content=content,
        method="full" if recipe.method == "pretrain" else recipe.method,
        precision=PRECISION_WORDS.get(recipe.precision, "mixed"),
        library=name_library(recipe.framework),
        length=name_length(recipe.seq_len) if content == "text" else "usual",
        split=split if parallel.offload == "none" else "offload",
    )


def name_length(seq_len: int) -> str:
    """Return the class of a sequence's length: short, usual or long."""
    return "short" if seq_len <= SHORT else "usual" if seq_len <= LONG else "long"


class NearestRun(NamedTuple):
    """The measured run that is most like a job, the `gpu` it ran on, and how far it is: 0 if alike in every field."""

    kind: RunKind
    gpu: str
    distance: int


@lru_cache(maxsize=512)
def find_nearest_run(kind: RunKind) -> NearestRun:
    """Return the nearest measured run."""
    runs = (NearestRun(one, gpu, measure_distance(kind, one)) for one, gpu in _list_measured_runs())
    nearest = min(runs, key=_get_distance)
    is_counted = kind.method == "inference"  # a served model is its weights and cache, which are counted and not modelled
    return nearest._replace(distance=min(nearest.distance, 1)) if is_counted else nearest


TRANSFORMERS_MODULES = frozenset(("hf", "deepspeed"))
"""Libraries that run transformers' modules: DeepSpeed shards what they keep, and runs a job of Hugging Face with ZeRO."""
WHOLE_WEIGHTS = frozenset(("one", "copies"))
"""Splits in which each GPU holds the whole model: gradient buckets and what ZeRO-1 and 2 divide are counted, not modelled."""
ALIKE = (TRANSFORMERS_MODULES, WHOLE_WEIGHTS)


def measure_distance(one: RunKind, other: RunKind) -> int:
    """Return the weights of the fields in which two kinds of runs differ, summed."""
    pairs = zip(FIELD_WEIGHTS, one, other, strict=True)
    return sum(int(weight) for weight, a, b in pairs if a != b and {a, b} not in ALIKE)


def explain_distance(kind: RunKind) -> str:
    """Return what no measured run has, and the nearest one; "" if a run like this one was measured."""
    nearest = find_nearest_run(kind)
    if not nearest.distance:
        return ""
    pairs = zip(FIELD_WORDS, kind, nearest.kind, strict=True)
    differs = [f"{word} {value}" for word, value, measured in pairs if value != measured and {value, measured} not in ALIKE]
    method = METHOD_WORDS[nearest.kind.method]
    return f"no measured run like this one ({', '.join(differs)}): interval from the nearest, {method} on {nearest.gpu}"


@lru_cache(maxsize=1)
def _list_measured_runs() -> tuple[tuple[RunKind, str], ...]:
    words = [line.split() for line in MEASURED_RUNS.strip().splitlines()]
    return tuple((RunKind(*fields[:-1]), fields[-1]) for fields in words)


def _get_distance(nearest: NearestRun) -> int:
    return nearest.distance


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakSpread:
    """Log half-width of the 80 % interval of a peak on one GPU, and the factors by which it grows.

    `sharded`: where several GPUs share the job. `mixture`: where the model has experts. `unlike`: by the distance to the
    nearest measured run, the last one for all that are further.
    """

    one_gpu: float
    sharded: float
    mixture: float
    unlike: tuple[float, ...]

    def get_factor(self, *, sharded: bool, mixture: bool, distance: int) -> float:
        """Return how many times as wide the interval of a job of these classes is as the narrowest."""
        unlike = self.unlike[min(distance, len(self.unlike) - 1)]
        return (self.sharded if sharded else 1) * (self.mixture if mixture else 1) * unlike

    def compute_half_width(self, *, sharded: bool, mixture: bool, distance: int = 0) -> float:
        """Return the log half-width for a job of these classes; never less than LEAST_HALF_WIDTH."""
        return max(LEAST_HALF_WIDTH, self.one_gpu * self.get_factor(sharded=sharded, mixture=mixture, distance=distance))


LEAST_HALF_WIDTH = 0.05
"""Half of the log by which two sources of one recipe differ: allocators, drivers and library versions (memory_dev.csv: the same
LoRA of Llama-2-7B by litgpt and by PEFT differs by a tenth). No interval is narrower."""

PEAK_SPREAD = PeakSpread(one_gpu=0.1512, sharded=1.25, mixture=1.25, unlike=(1.0, 1.4, 2.5))
"""Printed by scripts/fit_memory_interval.py from memory_dev.csv, memory2_dev.csv and facts.jsonl, 2026-11."""


def compute_peak_interval(peak: float, *, sharded: bool, mixture: bool, distance: int = 0) -> Interval:
    """Return the 80 % interval of a peak of `peak` bytes."""
    return Interval.around(peak, math.exp(PEAK_SPREAD.compute_half_width(sharded=sharded, mixture=mixture, distance=distance)))
