"""What a fact can be at all. `state == "idel"` would never hold, and nobody would see it: it is refused when it is read."""

from __future__ import annotations

from costguard.errors import InputError
from costguard.guard.work import ACTIVITY_STATES
from costguard.values.checks import require_one_of
from costguard.values.resource import KINDS, STATES, TIERS

FACT_CHOICES = {
    "state": tuple(ACTIVITY_STATES),
    "group_state": tuple(ACTIVITY_STATES),
    "power": STATES,
    "tier": TIERS,
    "kind": KINDS,
}
SHARE_FACTS = ("confidence", "wasted_share")


def check_word(fact: str, literal: str, field: str) -> None:
    """InputError where `fact` can never be `literal`."""
    if fact in FACT_CHOICES:
        require_one_of(literal, FACT_CHOICES[fact], field)
    if fact == "gpu" and literal:
        resolve_gpu_name(literal, field)
    if fact in SHARE_FACTS and not 0 <= float(literal) <= 1:
        raise InputError(f"{fact} is from 0 to 1, and {literal} is not", field=field, hint="write 0.9 for 90 %")


def resolve_gpu_name(name: str, field: str) -> str:
    """The GPU's name as facts carry it, where `name` is that name; else an error that says what to write."""
    from costguard.data import ShippedFacts
    from costguard.values.gpu_names import GpuNames

    gpu = GpuNames(ShippedFacts().get_gpus()).resolve(name, field=field)
    if gpu.canonical != name:
        raise InputError(f"'{name}' is no GPU's whole name", field=field, hint=f'write "{gpu.canonical}"')
    return name
