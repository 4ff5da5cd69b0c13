"""The flags of a job as text: where each stands in the job's table, and how its number is read.

The command line and the page of a quote read them with the same functions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal

from costguard.errors import InputError, shorten
from costguard.sizing.recipe import LORA_GROUPS

FLAG_PLACES: Mapping[str, tuple[str, ...]] = {
    "template": ("template",),
    "model": ("model",),
    "method": ("method",),
    "preference": ("preference", "algorithm"),
    "precision": ("precision",),
    "quant": ("quant",),
    "optimizer": ("optimizer",),
    "tokens": ("tokens",),
    "images": ("images",),
    "audio_seconds": ("audio_seconds",),
    "frames": ("frames",),
    "denoising_steps": ("denoising_steps",),
    "kv_cache": ("kv_cache",),
    "decoder_len": ("decoder_len",),
    "seq_len": ("seq_len",),
    "micro_batch": ("micro_batch",),
    "global_batch_tokens": ("global_batch_tokens",),
    "checkpointing": ("checkpointing",),
    "attention": ("attention",),
    "disk_gb": ("disk_gb",),
    "checkpoint_every_hours": ("checkpoint_every_hours",),
    "requests_per_second": ("requests_per_second",),
    "prompt_len": ("prompt_len",),
    "output_len": ("output_len",),
    "lora_rank": ("lora", "rank"),
    "lora_targets": ("lora", "targets"),
    "zero": ("parallel", "zero"),
    "fsdp": ("parallel", "fsdp"),
    "tp": ("parallel", "tp"),
    "pp": ("parallel", "pp"),
    "cp": ("parallel", "cp"),
    "ep": ("parallel", "ep"),
    "offload": ("parallel", "offload"),
    "max_usd": ("limits", "max_usd"),
    "max_hours": ("limits", "max_hours"),
    "max_gpus": ("limits", "max_gpus"),
    "provider": ("limits", "providers"),
    "exclude": ("limits", "exclude"),
    "secure_only": ("limits", "secure_only"),
    "max_price_age": ("limits", "max_price_age"),
    "framework": ("framework",),
    "fused_loss": ("fused_loss",),
    "compile": ("compiled",),
    "region": ("limits", "regions"),
    "tier": ("limits", "tiers"),
    "gpu": ("limits", "gpus"),
}
"""Flag -> where its value stands in the job's table."""

NUMBER_FLAGS = frozenset(
    "tokens seq_len micro_batch global_batch_tokens disk_gb checkpoint_every_hours lora_rank zero "  # noqa: SIM905
    "tp pp cp ep max_hours max_gpus requests_per_second prompt_len output_len images audio_seconds frames "
    "decoder_len denoising_steps".split()
)
SUFFIXES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "b": 10**9, "t": 10**12}
NUMBER = re.compile(r"([+-]?(?:\d{1,3}(?:,\d{3})+|\d+(?:_\d+)*|(?=\.\d))(?:\.\d*)?(?:e[+-]?\d{1,3})?)([kmgbt]?)", re.ASCII)
"""Commas stand between thousands only: `1,5` may mean one and a half, so it is asked about, not read as 15."""

SWITCHES = frozenset(("secure_only", "fused_loss", "compile"))
"""Flags that say nothing where they are not given."""
LONGEST_NUMBER = 60


def build_job_table(params: Mapping[str, object]) -> dict[str, object]:
    """Return the job's table built from the given flags."""
    table: dict[str, object] = {}
    for flag, place in FLAG_PLACES.items():
        value = params.get(flag)
        if value is None or value in ([], ()) or (value is False and flag in SWITCHES):
            continue
        inner = table
        for key in place[:-1]:
            inner = inner.setdefault(key, {})  # type: ignore[assignment]  # only tables stand at inner keys
        inner[place[-1]] = _convert_value(flag, value)
    return table


def parse_number(text: str, flag: str) -> int | float:
    """Parse a number such as 50000000, 50_000_000, 50e6, 50M, 1.5B."""
    found = NUMBER.fullmatch(text.strip().lower()) if len(text) <= LONGEST_NUMBER else None
    if not found:
        raise InputError(
            f"must be a number, not '{shorten(text, 40)}'", field=f"--{flag.replace('_', '-')}", hint="write 50e6 or 50M"
        )
    value = Decimal(found[1].replace(",", "")) * SUFFIXES[found[2]]  # exact, where 0.07 * 10**6 in floats is not 70000
    return int(value) if value == value.to_integral_value() else float(value)


def _convert_value(flag: str, value: object) -> object:
    if isinstance(value, str) and flag in NUMBER_FLAGS:
        return parse_number(value, flag)
    if flag == "lora_targets" and isinstance(value, str) and value not in LORA_GROUPS:
        return [t.strip() for t in value.split(",") if t.strip()]
    return list(value) if isinstance(value, tuple) else value
