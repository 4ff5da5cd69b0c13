"""A row as the values costguard's formulas take: one reader for each kind of row, those of `scripts/`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache

from bench.published import FACTS, Row, UnreadableRowError, faketensor_inputs, memory_inputs, run_inputs
from costguard.sizing.architecture import Architecture
from costguard.sizing.huggingface import build_architecture_from_config
from costguard.sizing.memory.adapters import resolve_targets
from costguard.sizing.recipe import Parallelism, Recipe
from costguard.values.gpu import GpuNames
from scripts import compare_memory, published_memory, published_runs

GIGA = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What a row of memory or fake tensors asks for. `inputs`: the stated columns, nothing measured among them."""

    architecture: Architecture
    recipe: Recipe
    parallel: Parallelism
    gpus: int
    inputs: Row

    @property
    def tokens(self) -> int:
        """Tokens one GPU holds in one pass."""
        return self.recipe.micro_tokens

    @property
    def adapters(self) -> bool:
        """Whether only adapters are trained."""
        return self.recipe.adapters


def memory_case(row: Row) -> Case:
    """A row of memory_dev.csv."""
    inputs = memory_inputs(row)
    readable = dict.fromkeys(row, "") | inputs
    architecture = published_memory.shape(readable)
    recipe = published_memory.recipe_of(readable, architecture.kind)
    if recipe.adapters and not isinstance(recipe.lora.targets, str):
        resolve_targets(architecture, recipe.lora.targets, "lora_targets")  # a name that is no matrix of the model is refused
    return Case(
        architecture=architecture,
        recipe=recipe,
        parallel=published_memory.parallel_of(readable),
        gpus=int(inputs["gpu_count"] or 1),
        inputs=inputs,
    )


def faketensor_case(row: Row) -> Case:
    """A row of faketensor_dev.csv: the model's config.json where a column holds it, else a name."""
    inputs = faketensor_inputs(row)
    recipe = compare_memory.fake_recipe(inputs)
    return Case(architecture=_faked(inputs), recipe=recipe, parallel=Parallelism(), gpus=1, inputs=inputs)


def run_case(row: Row) -> published_runs.Run:
    """A row of runs_dev.csv. Where no GPUs are counted, those of a run of 30 days at 40 % of peak, in whole nodes."""
    inputs = run_inputs(row)
    if not inputs["gpu"]:
        raise UnreadableRowError("gpu is not stated")
    gpu = FACTS.get_gpus()[_gpu_names().resolve(inputs["gpu"]).canonical]
    nothing_measured = {"tokens_per_s_per_gpu": "", "tflops_per_gpu": "", "tflops_kind": "", "gpu_hours": ""}
    named = {"id": row.get("id", ""), "source_group": row.get("source_group", "")}
    return published_runs.run(inputs | nothing_measured | named, gpu)


def card_bytes(row: Row) -> float | None:
    """Bytes a process can use of the card the row names, None where it names none that is known."""
    inputs = memory_inputs(row)
    if not inputs["gpu"]:
        return None
    size = published_memory.capacity(inputs)
    if "card" in inputs["gpu"].lower():
        return size
    return FACTS.get_gpus()[_gpu_names().resolve(inputs["gpu"]).canonical].memory_gib * 2**30


def name_gpu(name: str) -> str:
    """The shipped name of a GPU."""
    return _gpu_names().resolve(name).canonical


def _faked(inputs: Row) -> Architecture:
    name = inputs["model"]
    if not inputs["hf_config"]:
        return FACTS.get_architecture(compare_memory.MODELS.get(name, name.replace("_", "-")))
    config = json.loads(inputs["hf_config"])
    if not isinstance(config, dict):
        raise UnreadableRowError("hf_config is not a JSON object")
    return build_architecture_from_config(config, name=name or "model")


@cache
def _gpu_names() -> GpuNames:
    return GpuNames(FACTS.get_gpus())
