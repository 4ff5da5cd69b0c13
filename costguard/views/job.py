"""Parts that several answers share: a job, a footprint and an interval as data of the JSON contract."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from costguard.sizing.job import Job
from costguard.sizing.memory.footprint import Footprint
from costguard.sizing.recipe import Parallelism, Recipe
from costguard.values.gpu import GIB
from costguard.values.interval import Interval

if TYPE_CHECKING:  # types and no more: most jobs have nobody beside them, and `size` needs no quote
    from costguard.quoting.quote import QuoteOption
    from costguard.sizing.preference import PreferenceTraining

TERMS = ("weights", "gradients", "optimizer", "activations", "logits", "buffers")


def build_job_data(job: Job) -> dict[str, object]:
    """Return the job with every field filled in, so that scripts see the assumed values."""
    a, r = job.architecture, job.recipe
    return {
        "model": a.name,
        "parameters": a.parameters,
        "active_parameters": a.active_parameters,
        "method": r.method,
        "precision": r.precision,
        "quant": r.quant,
        "optimizer": r.optimizer if r.trains else None,
        "tokens": job.tokens,
        **({a.sample_unit: job.units} if a.sample_unit and job.units is not None else {}),
        **({"denoising_steps": job.denoising_steps} if job.denoising_steps > 1 else {}),
        **({"kv_cache": r.kv_cache} if r.kv_cache != "auto" else {}),
        "seq_len": r.seq_len,
        **({"decoder_len": r.decoder_len} if r.decoder_len is not None else {}),
        "micro_batch": r.micro_batch,
        "global_batch_tokens": job.global_batch_tokens,
        "checkpointing": r.checkpointing if r.trains else None,
        "attention": r.attention,
        "lora": {"rank": r.lora.rank, "targets": r.lora.targets} if r.adapters else None,
        "parallel": build_parallel_data(job.parallel) if job.parallel else None,
        "preference": _build_companion_data(job.beside, job.recipe) if job.beside else None,
        "assumed": dict(job.assumed),
    } | ({"serving": asdict(job.serving)} if job.serving else {})


def format_amount(job: Job) -> str:
    """Return how much the job processes, in what people count: "50,000,000 tokens", "1,281,167 images"."""
    if job.units is not None:
        passes = f" of {job.denoising_steps} passes" if job.denoising_steps > 1 else ""
        return f"{job.units:,.0f} {str(job.architecture.sample_unit).replace('_', ' ')}{passes}"
    return f"{job.tokens:,} tokens"


def _build_companion_data(training: PreferenceTraining, policy: Recipe) -> dict[str, object]:
    """Return the models besides the policy, and the passes that each example needs."""
    return {
        "algorithm": training.algorithm,
        "sequences_per_example": training.sequences,
        "completions": training.completions,
        "generation_batch": training.generation_batch or None,
        "rollout_tp": training.rollout_tp or None,
        "prompt_len": training.prompt_len,
        "completion_len": training.completion_len,
        "updates": training.updates,
        "companions": [
            {
                "role": c.role,
                "model": c.architecture.name,
                "parameters": c.architecture.parameters,
                "trained": c.trained,
                "quant": c.quant,
                "shared_with_policy": c.is_shared_with(policy),
            }
            for c in training.companions
        ],
    }


def build_parallel_data(parallel: Parallelism) -> dict[str, object]:
    """Return the split with one key per field."""
    return asdict(parallel)


def format_gpus(option: QuoteOption) -> str:
    """Return the GPUs of an option as text: `H100-SXM x8 x2 nodes`."""
    return f"{option.gpu.name} x{option.gpu_count}" + (f" x{option.nodes} nodes" if option.nodes > 1 else "")


def format_split(parallel: Parallelism) -> str:
    """Return the split as a short text: `fsdp`, `zero2`, `tp4 pp2`, or `-` for full copies."""
    ways = [f"{n}{getattr(parallel, n)}" for n in ("tp", "pp", "cp", "ep") if getattr(parallel, n) > 1]
    sharding = "fsdp" if parallel.fsdp else f"zero{parallel.zero}" if parallel.zero else ""
    offload = "" if parallel.offload == "none" else f"offload-{parallel.offload}"
    return " ".join(filter(None, (sharding, *ways, offload))) or "-"


def build_memory_data(footprint: Footprint) -> dict[str, object]:
    """Return GiB per GPU: the terms at the peak (their sum is the peak), context, peak, its phase and reserved."""
    terms: dict[str, object] = {term: to_gib(footprint.at_peak[term]) for term in TERMS}
    return terms | {
        "context": to_gib(footprint.context),
        "peak": to_gib(footprint.peak),
        "peak_phase": footprint.peak_phase,
        "reserved": to_gib(footprint.reserved),
    }


def build_peak_data(footprint: Footprint) -> dict[str, float]:
    """Return the 80 % interval of the peak in GiB per GPU."""
    return {end: to_gib(getattr(footprint.peak_interval, end)) for end in ("low", "expected", "high")}


def build_interval_data(interval: Interval | None, digits: int = 4) -> dict[str, float] | None:
    """Return {"low", "expected", "high"} with `digits` significant digits; None if unknown."""
    if interval is None:
        return None
    return {
        "low": round_digits(interval.low, digits),
        "expected": round_digits(interval.expected, digits),
        "high": round_digits(interval.high, digits),
    }


def round_digits(value: float, digits: int) -> float:
    """Return `value` rounded to `digits` significant digits."""
    return float(f"{value:.{digits}g}")


def to_gib(size: float) -> float:
    """Bytes as GiB with three decimals."""
    return round(size / GIB, 3)


def format_speed(rate: float) -> str:
    """Return a rate with three digits where it is small: `1,756`, `90.4`, `2.31`."""
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"  # noqa: PLR2004 - from here on three digits are whole


def format_share(share: float) -> str:
    """Return a share in percent, small ones with a digit that counts: `47%`, `0.08%`."""
    return f"{share:.0%}" if share >= 0.01 else f"{share * 100:.1g}%"  # noqa: PLR2004 - one percent


def format_hours(hours: float) -> str:
    """Return hours in a readable unit: `24 min`, `7.4 h`, `3.2 d`, `2.1 y`."""
    if hours < 1:
        return f"{hours * 60:.0f} min"
    if hours < 48:  # noqa: PLR2004 - two days: from there on hours stop being a feeling
        return f"{hours:.1f} h"
    if hours < 24 * 730:
        return f"{hours / 24:.1f} d"
    return f"{hours / 8760:,.1f} y"


def format_hours_range(interval: Interval | None) -> str:
    """Return `5.9 h (4.4 h - 7.9 h)`, or `unknown`."""
    if interval is None:
        return "unknown"
    return f"{format_hours(interval.expected)} ({format_hours(interval.low)} - {format_hours(interval.high)})"
