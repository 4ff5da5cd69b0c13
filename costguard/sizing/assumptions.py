"""What nobody stated: refused where somebody asks for strictness, else said with how much another choice would move the answer.

Example: `micro_batch 1 (4: 0.81x the hours, 1.30x the memory)` says that on the first option's GPUs four sequences a pass would
take 0.81 times the hours and 1.3 times the GPU memory of what is shown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from costguard.errors import InputError
from costguard.sizing.job import Job
from costguard.sizing.memory_savings import SHORTEST_SEQ_LEN

TRAINED_ONCE_MORE = 4
"""Passes over each batch of completions that TRL takes by default (PPOConfig.num_ppo_epochs)."""


def check_stated(job: Job) -> None:
    """InputError where something of `job` was assumed: every such field, and what to write."""
    if job.assumed:
        fields = ", ".join(field for field, _ in job.assumed)
        written = ", ".join(f"{field} = {_as_written(value)}" for field, value in job.assumed)
        raise InputError(f"not stated, and --strict assumes nothing: {fields}", field="--strict", hint=f"write {written}")


def effect_text(other: str, *, hours: float | None, memory: float | None, fits: bool) -> str:
    """`4: 0.81x the hours, 1.30x the memory`: what `other` would do; None: not known."""
    parts = [f"{value:.2f}x the {name}" for name, value in (("hours", hours), ("memory", memory)) if value]
    told = ", ".join(parts) or "unknown"
    return f"{other}: {told}" + ("" if fits else ", too much for this GPU")


def alternatives(job: Job) -> tuple[tuple[str, str, Job], ...]:
    """(field, another value, the job with it) for each assumed field of which another value is common."""
    tried = ((field, OTHERS[field](job)) for field, _ in job.assumed if field in OTHERS)
    return tuple((field, *found) for field, found in tried if found is not None)


Other = tuple[str, Job] | None


def _recipe(job: Job, field: str, value: str | int) -> Other:
    changed = replace(job.recipe, **{field: value})  # type: ignore[arg-type]  # checked at birth
    return str(value), replace(job, recipe=changed)


def _shorter(job: Job) -> Other:
    half = job.recipe.seq_len // 2
    return _recipe(job, "seq_len", half) if half >= SHORTEST_SEQ_LEN and not job.beside else None


def _lora(job: Job) -> Other:
    return _recipe(job, "method", "lora") if job.architecture.walk is None else None


def _precision(job: Job) -> Other:
    if job.recipe.trains:
        return _recipe(job, "precision", "bf16-amp")
    return _recipe(job, "precision", "fp8" if job.recipe.precision == "bf16" else "bf16")


def _without(role: str) -> Callable[[Job], Other]:
    def changed(job: Job) -> Other:
        if job.beside is None or not any(c.role == role for c in job.beside.companions):
            return None
        left = tuple(c for c in job.beside.companions if c.role != role)
        return "none", replace(job, beside=replace(job.beside, companions=left))

    return changed


def _written_at_once(job: Job) -> Other:
    if job.beside is None:
        return None
    twice = 2 * job.beside.generation_batch
    return str(twice), replace(job, beside=replace(job.beside, generation_batch=twice))


def _updates(job: Job) -> Other:
    if job.beside is None:
        return None
    return str(TRAINED_ONCE_MORE), replace(job, beside=replace(job.beside, updates=TRAINED_ONCE_MORE))


OTHERS: dict[str, Callable[[Job], Other]] = {
    "method": _lora,
    "seq_len": _shorter,
    "micro_batch": lambda job: _recipe(job, "micro_batch", 4),
    "precision": _precision,
    "checkpointing": lambda job: _recipe(job, "checkpointing", "none"),
    "optimizer": lambda job: None if job.recipe.adapters else _recipe(job, "optimizer", "adamw-8bit"),
    "preference.reference": _without("reference"),
    "preference.reward_model": _without("reward"),
    "preference.value_model": _without("value"),
    "preference.generation_batch": _written_at_once,
    "preference.updates": _updates,
}
"""Field -> the value somebody else would have meant; fields whose value follows from others are left out."""


def _as_written(value: str) -> str:
    return value if value.replace(".", "").isdigit() or value in ("true", "false") else f'"{value}"'
