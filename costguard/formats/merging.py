"""Merges the configs of one run: a training config, what it is launched with, and where.

    costguard quote sft.yaml task.sky.yaml ds3.yaml

Fields of the job are those of the last file that states them. Two things do not depend on the order: machines are those of the
file that names their GPU, and steps and accumulation those of the file that names the model. A difference is noted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace

from costguard.formats.reading import ConfigReading, LaunchHardware, StepPlan
from costguard.sizing.job import SHAPE_KEYS, merge_tables

ADAPTERS = ("lora", "qlora")
HALF = ("bf16", "fp16")


def merge_readings(readings: Iterable[ConfigReading]) -> ConfigReading:
    """Return several configs of one run as one."""
    first, *others = readings
    merged = first
    for other in others:
        hardware, hardware_notes = _merge_hardware(merged, other)
        plan, plan_notes = merge_plans(merged, other)
        merged = replace(
            merged,
            label=f"{merged.label} and {other.label}",
            files=(*merged.files, *other.files),
            table=_merge_tables(merged.table, other.table),
            stated=(*merged.stated, *other.stated),
            assumed=(*merged.assumed, *other.assumed),
            unread=(*merged.unread, *other.unread),
            ignored=(*merged.ignored, *other.ignored),
            templates=(*merged.templates, *other.templates),
            notes=(*merged.notes, *other.notes, *hardware_notes, *plan_notes),
            hardware=hardware,
            masters=other.masters or merged.masters,
            autocast=other.autocast or merged.autocast,
            plan=plan,
        )
    return _keep_masters(_settle_precision(merged))


def merge_plans(one: ConfigReading, other: ConfigReading) -> tuple[StepPlan, tuple[str, ...]]:
    """Return the plan of two configs, field by field: first that of the config with a model, else of the later one.

    With a note for each field in which they differ.
    """
    main, extra = (other, one) if _names_model(other) or not _names_model(one) else (one, other)
    values: dict[str, float | None] = {}
    notes: list[str] = []
    for part in fields(StepPlan):
        first, second = getattr(main.plan, part.name), getattr(extra.plan, part.name)
        values[part.name] = second if first is None else first
        if part.name != "epochs" and first is not None and second not in (None, first):
            where = f"{first} of {_name_file(main)}, not {second} of {_name_file(extra)}"
            notes.append(f"{part.name.replace('_', ' ')}: {where}")
    return replace(main.plan, **values), tuple(notes)  # type: ignore[arg-type]  # fields of the same class


def _merge_hardware(one: ConfigReading, other: ConfigReading) -> tuple[LaunchHardware | None, tuple[str, ...]]:
    """Return the machines of the config that names their GPU, else of the later one; what it leaves open is the other's."""
    if one.hardware is None or other.hardware is None:
        return other.hardware or one.hardware, ()
    main, extra = (one, other) if _rank_hardware(one.hardware) > _rank_hardware(other.hardware) else (other, one)
    first, second = main.hardware or LaunchHardware(), extra.hardware or LaunchHardware()
    kind = first if first.gpu is not None or first.memory_gb is not None else second
    count = second.gpu_count if first.gpu_count is None else first.gpu_count
    hours = second.hours if first.hours is None else first.hours
    hardware = replace(first, gpu=kind.gpu, memory_gb=kind.memory_gb, gpu_count=count, hours=hours)
    if (second.gpu_count or count, second.nodes) == (count, hardware.nodes):
        return hardware, ()
    other_machines = f"{second.gpu_count or '?'} GPUs on each of {second.nodes} machines"
    machines = f"{count or '?'} on each of {hardware.nodes}"
    return hardware, (f"machines: {machines} of {_name_file(main)}, not {other_machines} of {_name_file(extra)}",)


def _merge_tables(one: Mapping[str, object], other: Mapping[str, object]) -> dict[str, object]:
    """Return both tables, later fields over earlier ones.

    Only a launcher that says nothing of sharding (`MULTI_GPU`) does not end the sharding that a training config states.
    """
    table = merge_tables(one, other)
    old, new, both = (each.get("parallel") for each in (one, other, table))
    if isinstance(old, Mapping) and isinstance(new, Mapping) and isinstance(both, Mapping) and new.get("zero") == 0:
        table = {**table, "parallel": {**both, "zero": old.get("zero", 0)}}
    return table


def _rank_hardware(hardware: LaunchHardware) -> int:
    """Return how much a launch file says of machines: a process count says least, the name of a GPU most."""
    return 2 if hardware.gpu is not None else int(hardware.memory_gb is not None or hardware.hours is not None)


def is_from_autocast(reading: ConfigReading) -> bool:
    """Return whether the precision of `reading` is the launcher's autocast over weights whose precision nothing states."""
    key = reading.autocast[1] if reading.autocast else None
    return "method" not in reading.table and any(name == "precision" and source == key for name, _, source in reading.stated)


def _names_model(reading: ConfigReading) -> bool:
    return any(key in reading.table for key in SHAPE_KEYS)


def _name_file(reading: ConfigReading) -> str:
    return " and ".join(file.name for file in reading.files)


def _settle_precision(reading: ConfigReading) -> ConfigReading:
    """Return `reading` with the precision that a launcher's autocast makes of the weights that the training config states.

    Weights without a stated precision are loaded in fp32, and so are computed in 16 bits from fp32 weights.
    """
    if reading.autocast is None:
        return reading
    computed, key = reading.autocast
    stated_precision = reading.table.get("precision")
    if stated_precision not in (None, "fp32"):
        differs = not str(stated_precision).startswith(computed)
        note = f"precision {stated_precision} is taken as the training config states it; {key} {computed} computes over it"
        return replace(reading, notes=(*reading.notes, note)) if differs else reading
    precision = computed if stated_precision is None and reading.table.get("method") in ADAPTERS else f"{computed}-amp"
    table = {**reading.table, "precision": precision}
    return replace(reading, table=table, stated=(*reading.stated, ("precision", precision, key)))


def has_masters(reading: ConfigReading, method: object) -> bool:
    """Return whether weights of `reading` have fp32 masters that its precision does not say, if `method` trains them all."""
    return reading.masters and reading.table.get("precision") in HALF and method in ("full", "pretrain")


def _keep_masters(reading: ConfigReading) -> ConfigReading:
    """Return `reading` with the precision in which masters are fp32, if the training has them and trains all weights."""
    precision = reading.table.get("precision")
    if not has_masters(reading, reading.table.get("method")):
        return reading
    note = f"precision {precision}-amp: trained weights have fp32 masters here"
    return replace(reading, table={**reading.table, "precision": f"{precision}-amp"}, notes=(*reading.notes, note))
