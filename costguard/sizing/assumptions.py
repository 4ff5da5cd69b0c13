"""Values that the user did not state: with --strict an error, otherwise shown with the effect of another choice.

Example: `micro_batch 1 (4: 0.81x the hours, 1.30x the memory)` means that, on the first option's GPUs, four sequences per pass
would take 0.81 times the hours and 1.3 times the GPU memory shown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from costguard.errors import InputError
from costguard.sizing.job import Job
from costguard.sizing.memory_savings import SHORTEST_SEQ_LEN

TRL_UPDATES = 4
"""Passes over each batch of completions that TRL takes by default (PPOConfig.num_ppo_epochs)."""


def check_nothing_assumed(job: Job) -> None:
    """Raise InputError that lists every assumed field of `job` and what to write, if there are any."""
    if job.assumed:
        fields = ", ".join(field for field, _ in job.assumed)
        written = ", ".join(f"{field} = {_format_as_written(value)}" for field, value in job.assumed)
        raise InputError(f"not given, and --strict allows no assumptions: {fields}", field="--strict", hint=f"write {written}")


def list_shape_notes(job: Job) -> tuple[str, ...]:
    """Return what the count of the model, and of the models beside it, leaves out or takes for granted."""
    companions = [c.architecture for c in job.beside.companions] if job.beside else []
    return tuple(dict.fromkeys(note for model in (job.architecture, *companions) for note in model.notes))


def format_effect(other: str, *, hours: float | None, memory: float | None, fits: bool) -> str:
    """Return the effect of the value `other` as text: `4: 0.81x the hours, 1.30x the memory`.

    `hours` and `memory` are ratios to the shown answer; None: unknown.
    """
    parts = [f"{value:.2f}x the {name}" for name, value in (("hours", hours), ("memory", memory)) if value]
    effects = ", ".join(parts) or "unknown"
    return f"{other}: {effects}" + ("" if fits else ", too much for this GPU")


def list_alternatives(job: Job) -> tuple[tuple[str, str, Job], ...]:
    """Return (field, other value, job with it) for each assumed field that has a common alternative."""
    tried = ((field, ALTERNATIVES[field](job)) for field, _ in job.assumed if field in ALTERNATIVES)
    return tuple((field, *alternative) for field, alternative in tried if alternative is not None)


Alternative = tuple[str, Job] | None


def _change_recipe(job: Job, field: str, value: str | int) -> Alternative:
    changed = replace(job.recipe, **{field: value})  # type: ignore[arg-type]  # checked at birth
    return str(value), replace(job, recipe=changed)


def _halve_seq_len(job: Job) -> Alternative:
    half = job.recipe.seq_len // 2
    return _change_recipe(job, "seq_len", half) if half >= SHORTEST_SEQ_LEN and not job.beside else None


def _change_to_lora(job: Job) -> Alternative:
    return _change_recipe(job, "method", "lora") if job.architecture.walk is None else None


def _change_precision(job: Job) -> Alternative:
    if job.recipe.trains:
        return _change_recipe(job, "precision", "bf16" if job.recipe.amp else "bf16-amp")
    return _change_recipe(job, "precision", "fp8" if job.recipe.precision == "bf16" else "bf16")


def _drop_companion(role: str) -> Callable[[Job], Alternative]:
    def changed(job: Job) -> Alternative:
        if job.beside is None or not any(c.role == role for c in job.beside.companions):
            return None
        left = tuple(c for c in job.beside.companions if c.role != role)
        return "none", replace(job, beside=replace(job.beside, companions=left))

    return changed


def _double_generation_batch(job: Job) -> Alternative:
    if job.beside is None:
        return None
    twice = 2 * job.beside.generation_batch
    return str(twice), replace(job, beside=replace(job.beside, generation_batch=twice))


def _change_updates(job: Job) -> Alternative:
    if job.beside is None:
        return None
    return str(TRL_UPDATES), replace(job, beside=replace(job.beside, updates=TRL_UPDATES))


ALTERNATIVES: dict[str, Callable[[Job], Alternative]] = {
    "method": _change_to_lora,
    "seq_len": _halve_seq_len,
    "micro_batch": lambda job: _change_recipe(job, "micro_batch", 1 if job.recipe.micro_batch > 1 else 4),
    "precision": _change_precision,
    "checkpointing": lambda job: _change_recipe(job, "checkpointing", "none"),
    "loss": lambda job: None if job.recipe.loss != "auto" else _change_recipe(job, "loss", "fused"),
    "optimizer": lambda job: None if job.recipe.adapters else _change_recipe(job, "optimizer", "adamw-8bit"),
    "preference.reference": _drop_companion("reference"),
    "preference.reward_model": _drop_companion("reward"),
    "preference.value_model": _drop_companion("value"),
    "preference.generation_batch": _double_generation_batch,
    "preference.updates": _change_updates,
}
"""Field -> the value somebody else would have meant; fields whose value follows from others are left out."""


def _format_as_written(value: str) -> str:
    return value if value.replace(".", "").isdigit() or value in ("true", "false") else f'"{value}"'
