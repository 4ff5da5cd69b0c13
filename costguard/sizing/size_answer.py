"""The answer to "how much memory?": the job's memory, the GPUs that hold it, and changes that make it smaller."""

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
    """The smallest number of GPUs of one kind, in one machine, that holds the job.

    `precision`: that in which the job runs there, and whose memory this is. `fit`: maybe where the high end of it
    does not fit, else yes.
    """

    gpu: str
    count: int
    peak_gib: float
    reserved_gib: float
    has_gib: float
    precision: str
    fit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobChangeEffect:
    """The effect of one change: the resulting peak, and `fit`, yes, maybe or no (None: no hardware stated)."""

    lever: JobChange
    peak_gib: float
    saves_gib: float
    fit: str | None

    @property
    def fits(self) -> bool | None:
        """Return whether the job may fit then."""
        return None if self.fit is None else self.fit != "no"


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeAnswer:
    """The answer.

    - `placed`: the job on the stated hardware. `footprint`: its footprint there, or on one large enough GPU.
    - `fit`: yes, maybe or no; None as `fits`, which is true for yes and maybe.
    - `exact`: one step executed on fake tensors; None if it was not requested.
    - `capacity`: tokens of KV cache that fit on the stated hardware; None for training, or if no hardware was stated.
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

    @property
    def fit(self) -> str | None:
        """Return whether the job fits on the stated hardware; None where none is stated."""
        return None if self.placed is None else self.placed.fit

    @property
    def sequences(self) -> int | None:
        """Return the whole sequences in `capacity`, each within one copy of the model; None where that is None."""
        if self.capacity is None or self.placed is None:
            return None
        copies = self.placed.gpus // self.placed.parallel.model_ranks
        return copies * (self.capacity // copies // self.job.recipe.seq_len)
