"""`match` tables: which spending a budget counts, which machines a policy concerns.

    match = { providers = ["aws", "gcp"], labels = { team = ["vision", "robotics"] } }

All that is stated must fit. An empty list fits nothing; an empty table is refused, as it could mean all or nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from costguard.budgets.budget import ResourceFilter
from costguard.errors import InputError
from costguard.settings.fields import SettingsTable, read_texts
from costguard.values.checks import describe_value, require, require_one_of
from costguard.values.resource import GROUPED_LABELS, KINDS, TIERS

MATCH_KEYS = ("providers", "accounts", "regions", "owners", "gpus", "tiers", "kinds", "labels")
MATCH_CHOICES = {"tiers": TIERS, "kinds": KINDS}


def read_match(stated: SettingsTable, field: str) -> ResourceFilter:
    """The Match that the keys MATCH_KEYS of `stated` make."""
    lists = {key: _read_names(key, stated[key], f"{field}.{key}") for key in MATCH_KEYS[:-1] if key in stated}
    labels = _read_labels(stated["labels"], f"{field}.labels") if "labels" in stated else None
    return ResourceFilter(**lists, labels=labels)


def _read_names(key: str, stated: object, field: str) -> tuple[str, ...]:
    names = read_texts(stated, field)
    for name in names:
        if key in MATCH_CHOICES:
            require_one_of(name, MATCH_CHOICES[key], field)
    return _resolve_gpus(names, field) if key == "gpus" else names


def _resolve_gpus(names: Iterable[str], field: str) -> tuple[str, ...]:
    """Canonical names. A name that is short for several GPUs would leave the others out unseen, and is refused."""
    from costguard.data import ShippedFacts
    from costguard.values.gpu_names import GpuNames

    known = GpuNames(ShippedFacts().get_gpus())
    found = {name: known.resolve(name, field=field) for name in names}
    for name, gpu in found.items():
        hint = f'write "{gpu.canonical}", and the others that are meant'
        require(not gpu.taken_as_short, field, f"'{name}' is short for several GPUs", hint)
    return tuple(gpu.canonical for gpu in found.values())


def _read_labels(stated: object, field: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    if not isinstance(stated, Mapping):
        raise InputError(f"must be a table, not {describe_value(stated)}", field=field, hint='write { team = "vision" }')
    for key in stated:
        require_one_of(str(key).lower(), GROUPED_LABELS, f"{field}.{key}")
    return tuple((str(key).lower(), read_texts(values, f"{field}.{key}")) for key, values in sorted(stated.items()))
