"""What to say when nothing fits: the smallest single change after which some machine holds the job.

Example: a full fine-tune of a 70B model on single GPUs fits nowhere. Checkpointing is full already; 8-bit optimizer states
still need 490 GiB; LoRA needs 150 GiB and fits on one B300: the advice is `method = lora (now full) would fit on B300 x1`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice

from costguard.sizing.job import Job
from costguard.sizing.memory_savings import SHORTEST_SEQ_LEN, JobChange, list_memory_savings
from costguard.sizing.placement import FABRIC_GPUS, Placement, Placer, can_hold
from costguard.values.gpu import Gpu

MORE_MACHINES = 8
"""How many times `max_gpus` is tried before saying that no number of machines helps."""

LARGE_MACHINE = 8
"""GPUs of the machine that is tried where the ones asked about help in no way."""


MOST_CHANGES_TOGETHER = 3
"""Changes that are tried together; a job that needs more is another job."""


def find_smallest_changes(
    job: Job, hardware: Iterable[tuple[Gpu, int]], known: Iterable[Gpu], most: int = 4
) -> tuple[str, ...]:
    """Changes after which some of `hardware` holds `job`: as few as do, least loss first; more machines; other GPUs."""
    classes = sorted(hardware, key=lambda c: c[0].memory_gib * c[1], reverse=True)
    found: list[str] = []
    for together in range(1, MOST_CHANGES_TOGETHER + 1):
        found = found or list(islice(_list_sufficient_changes(job, classes, together), most))
    joined = [c for c in classes if c[1] >= FABRIC_GPUS and c[0].nvlink]
    found += list(_list_sufficient_machines(job, joined[:1]))
    return tuple((found or list(_list_other_gpus(job, known)) or list(_list_shorter_sequences(job, classes)))[:most])


def _list_sufficient_changes(job: Job, classes: list[tuple[Gpu, int]], together: int) -> Iterator[str]:
    """Each way to change `together` things after which some class holds the job."""
    gpus = max((count for _, count in classes), default=1)
    seen: set[frozenset[str]] = set()
    for path in _list_change_paths(job, gpus, together):
        changes = frozenset(lever.change for lever in path)
        if changes in seen:
            continue
        seen.add(changes)
        where = _find_hardware(path[-1].job, classes)
        if where:
            yield f"{' and '.join(lever.change for lever in path)} would fit on {where}"


def _find_hardware(job: Job, classes: list[tuple[Gpu, int]]) -> str | None:
    """The first class of which one machine holds `job`, or as many as may be joined; None where none does."""
    placer = Placer(job=job)
    for gpu, count in classes:
        if can_hold(placer.place(gpu, count)):
            return f"{gpu.name} x{count}"
    for gpu, count in classes:
        placed = placer.place_on_enough(gpu, count)
        if isinstance(placed, Placement) and placed.fits:
            return f"{gpu.name} x{count} x{placed.nodes} nodes"
    return None


def _list_change_paths(job: Job, gpus: int, length: int) -> Iterator[tuple[JobChange, ...]]:
    """Every sequence of `length` levers that touch different fields."""
    for lever in list_memory_savings(job, gpus=gpus):
        if length == 1:
            yield (lever,)
            continue
        for rest in _list_change_paths(lever.job, gpus, length - 1):
            if all(lever.field != later.field for later in rest):
                yield (lever, *rest)


def _list_sufficient_machines(job: Job, classes: list[tuple[Gpu, int]]) -> Iterator[str]:
    """How many of the given machines hold a job that no single change saves."""
    for gpu, count in classes:
        placer, nodes = Placer(job=job), 2
        while nodes * count <= job.limits.max_gpus * MORE_MACHINES:
            if can_hold(placer.place(gpu, count, nodes)):
                yield f"{nodes} machines of {gpu.name} x{count} would hold it: --on {gpu.name}:{count}x{nodes}"
                break
            nodes *= 2


def _list_other_gpus(job: Job, known: Iterable[Gpu]) -> Iterator[str]:
    """The smallest other GPU of which one large machine, or a few, hold the job."""
    placer = Placer(job=job)
    for gpu in sorted(known, key=lambda g: (g.memory_gib, g.name)):
        if gpu.nvlink and can_hold(placer.place(gpu, LARGE_MACHINE)):
            yield f"{gpu.name} x{LARGE_MACHINE} would hold it"
            return
    largest = max((g for g in known if g.nvlink), key=lambda g: g.memory_gib, default=None)
    if largest:
        yield from _list_sufficient_machines(job, [(largest, LARGE_MACHINE)])


def _list_shorter_sequences(job: Job, classes: list[tuple[Gpu, int]]) -> Iterator[str]:
    """The longest sequence, halved again and again, of which one GPU holds one: for a length nothing else can save."""
    if job.architecture.sample_tokens is not None:
        return
    seq_len = job.recipe.seq_len // 2
    while seq_len >= SHORTEST_SEQ_LEN:
        where = _find_hardware(replace(job, recipe=replace(job.recipe, seq_len=seq_len, micro_batch=1)), classes)
        if where:
            also = " and micro_batch = 1" if job.recipe.micro_batch > 1 else ""
            yield f"seq_len = {seq_len} (now {job.recipe.seq_len}){also} would fit on {where}"
            return
        seq_len //= 2
