"""The answer to "how much memory?": what a job holds, where it fits, and which change would make it smaller."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from costguard.sizing.job import Job
from costguard.sizing.memory.footprint import Footprint
from costguard.sizing.memory_savings import JobChange
from costguard.sizing.placement import Hardware, Placement

if TYPE_CHECKING:  # a type and no more: a quote that needs none of it does not pay for importing it
    from costguard.sizing.exact_memory import ExactMemory


@dataclass(frozen=True, slots=True, kw_only=True)
class FittingGpus:
    """The fewest GPUs of one kind that hold the job, in one machine."""

    gpu: str
    count: int
    peak_gib: float
    reserved_gib: float
    has_gib: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobChangeEffect:
    """What one change would do: the peak with it, and whether the job would then fit (None: no hardware stated)."""

    lever: JobChange
    peak_gib: float
    saves_gib: float
    fits: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeAnswer:
    """The answer. `placed`: the job on the stated hardware; `footprint`: there, or on one large enough GPU.

    `exact`: one step of it as run on fake tensors; None: nobody asked. `capacity`: tokens of keys and values that fit on the
    stated hardware; None where it is trained, or no hardware was stated.
    """

    job: Job
    on: Hardware | None
    placed: Placement | None
    footprint: Footprint
    fits: bool | None
    fits_on: tuple[FittingGpus, ...]
    levers: tuple[JobChangeEffect, ...]
    warnings: tuple[str, ...] = ()
    exact: ExactMemory | None = None
    capacity: int | None = None
