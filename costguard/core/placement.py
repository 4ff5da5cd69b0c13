"""How a job sits on given GPUs: how it is split, what each GPU must hold, and whether that fits.

Example: a full fine-tune of Llama-2-7B in bf16 needs about 50 GiB on one GPU. On 4 x RTX 4090 (24 GiB each) whole
copies do not fit, sharded optimizer states (ZeRO-2) do not, fully sharded weights (FSDP) do: FSDP is the placement.
Where nobody stated a split, the lightest one that fits is taken, because every further shard costs communication.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from costguard.core.footprint import Footprint, footprint
from costguard.core.gpu import GIB, Gpu
from costguard.core.job import Job
from costguard.core.recipe import Parallel, Recipe
from costguard.errors import InputError

FABRIC_GPUS = 8
"""Machines with this many GPUs are sold with a network made for several of them; smaller ones are not joined."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A job on `nodes` machines of `gpu_count` GPUs. `recipe`: the job's, with its gradient accumulation filled in."""

    gpu: Gpu
    gpu_count: int
    nodes: int
    parallel: Parallel
    recipe: Recipe
    footprint: Footprint
    notes: tuple[str, ...] = ()

    @property
    def gpus(self) -> int:
        """GPUs in all."""
        return self.gpu_count * self.nodes

    @property
    def needs_gib(self) -> float:
        """GiB that must be free on each GPU: `reserved`."""
        return self.footprint.reserved / GIB

    @property
    def fits(self) -> bool:
        """Whether each GPU holds its part. Host memory is the machine's, and checked with the offer."""
        return self.needs_gib <= self.gpu.memory_gib

    @property
    def host_gib(self) -> float:
        """GiB of host memory one machine must have for what is offloaded."""
        return self.footprint.host_bytes * self.gpu_count / GIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Impossible:
    """Why a job cannot be split over these GPUs at all."""

    reason: str


@dataclass(slots=True)
class Placer:
    """Places one job on many kinds of GPU. Memory depends on the split and not on the kind, so each split is sized once."""

    job: Job
    _sized: dict[tuple[Parallel, int, Recipe], Footprint | Impossible] = field(default_factory=dict)

    def place(self, gpu: Gpu, gpu_count: int, nodes: int = 1) -> Placement | Impossible:
        """The lightest split that fits; where none fits, the one that needs least; Impossible where none exists."""
        found: list[Placement] = []
        why = Impossible(reason=f"no split of this job over {gpu_count * nodes} GPUs is known")
        for parallel in splits(self.job, gpu_count, nodes):
            placed = self._placed(gpu, gpu_count, nodes, parallel)
            if isinstance(placed, Impossible):
                why = placed
            elif placed.fits:
                return placed
            else:
                found.append(placed)
        return min(found, key=lambda p: p.footprint.reserved) if found else why

    def place_on_enough(self, gpu: Gpu, gpu_count: int) -> Placement | Impossible:
        """One machine if it holds the job; else as few as hold it, where such machines can be joined."""
        placed = self.place(gpu, gpu_count)
        nodes = 1
        while not _fits(placed) and gpu_count >= FABRIC_GPUS and 2 * nodes * gpu_count <= self.job.limits.max_gpus:
            nodes *= 2
            wider = self.place(gpu, gpu_count, nodes)
            if _fits(wider):
                return wider
        return placed

    def _placed(self, gpu: Gpu, gpu_count: int, nodes: int, parallel: Parallel) -> Placement | Impossible:
        gpus = gpu_count * nodes
        accumulated = accumulation(self.job, parallel, gpus)
        if isinstance(accumulated, Impossible):
            return accumulated
        recipe = replace(self.job.recipe, gradient_accumulation=accumulated)
        sized = self._size(parallel, gpus, recipe)
        if isinstance(sized, Impossible):
            return sized
        return Placement(gpu=gpu, gpu_count=gpu_count, nodes=nodes, parallel=parallel, recipe=recipe, footprint=sized)

    def _size(self, parallel: Parallel, gpus: int, recipe: Recipe) -> Footprint | Impossible:
        key = (parallel, gpus, recipe)
        if key not in self._sized:
            try:
                self._sized[key] = footprint(self.job.architecture, recipe, parallel, gpus=gpus)
            except InputError as impossible:
                # A stated split that suits no GPU count is the user's mistake and was refused before; here it is
                # a fact about this count of GPUs.
                self._sized[key] = Impossible(reason=impossible.what)
        return self._sized[key]


def splits(job: Job, gpu_count: int, nodes: int) -> tuple[Parallel, ...]:
    """The stated split, or the ones worth trying on `nodes` machines of `gpu_count` GPUs, lightest first."""
    if job.parallel is not None:
        return (job.parallel,)
    if gpu_count * nodes == 1:
        return (Parallel(),)
    if job.recipe.trains:
        return (Parallel(), Parallel(zero=2), Parallel(fsdp=True))
    return tuple(Parallel(tp=tp, pp=pp) for pp, tp in _served(gpu_count, nodes))


def accumulation(job: Job, parallel: Parallel, gpus: int) -> int | Impossible:
    """Passes per optimizer step: 1, or what `global_batch_tokens` asks for, rounded up."""
    if gpus % parallel.model_ranks:
        return Impossible(reason=f"tp x pp x cp = {parallel.model_ranks} ranks do not divide {gpus} GPUs")
    if job.global_batch_tokens is None:
        return job.recipe.gradient_accumulation
    one_pass = job.recipe.micro_tokens * parallel.data_ranks(gpus)
    if one_pass > job.global_batch_tokens:
        return Impossible(
            reason=f"one pass over {gpus} GPUs is {one_pass:,} tokens, more than global_batch_tokens = {job.global_batch_tokens:,}"
        )
    return -(-job.global_batch_tokens // one_pass)


def _served(gpu_count: int, nodes: int) -> list[tuple[int, int]]:
    """(pp, tp) for serving: whole copies first, then ever wider tensor parallelism inside a machine, then across."""
    inside = [(1, tp) for tp in range(1, gpu_count + 1) if gpu_count % tp == 0]
    return inside if nodes == 1 else [*inside, (nodes, gpu_count)]


def _fits(placed: Placement | Impossible) -> bool:
    return isinstance(placed, Placement) and placed.fits
