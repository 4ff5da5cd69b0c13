"""How a job sits on given GPUs: how it is split, what each GPU must hold, and whether that fits.

Example: a full fine-tune of Llama-2-7B in bf16 needs about 50 GiB on one GPU. On 4 x RTX 4090 (24 GiB each) whole
copies do not fit, sharded optimizer states (ZeRO-2) do not, fully sharded weights (FSDP) do: FSDP is the placement.
Where nobody stated a split, the lightest one that fits is taken, because every further shard costs communication.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from costguard.errors import InputError
from costguard.sizing.job import Job
from costguard.sizing.memory.footprint import Footprint, footprint
from costguard.sizing.recipe import Parallel, Recipe
from costguard.values.gpu import GIB, Gpu

FABRIC_GPUS = 8
"""Machines with this many GPUs on a fabric of their own are sold with a network made for several; others are not joined."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """Given GPUs (`--on`), whatever the market offers."""

    gpu: Gpu
    gpu_count: int
    nodes: int = 1


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Sized:
    """One split of a job over some number of GPUs, and what each of them must hold."""

    parallel: Parallel
    recipe: Recipe
    footprint: Footprint


@dataclass(slots=True)
class Placer:
    """Places one job on many kinds of GPU. Memory depends on the split and not on the kind, so each split is sized once."""

    job: Job
    _sized: dict[tuple[int, int, bool], tuple[Sized, ...] | Impossible] = field(default_factory=dict)

    def place(self, gpu: Gpu, gpu_count: int, nodes: int = 1) -> Placement | Impossible:
        """The lightest split that fits; where none fits, the one that needs least; Impossible where none exists."""
        ways = self.ways(gpu_count, nodes)
        if isinstance(ways, Impossible):
            return ways
        chosen = lightest_that_fits(ways, gpu) or min(ways, key=lambda w: w.footprint.reserved)
        return Placement(
            gpu=gpu,
            gpu_count=gpu_count,
            nodes=nodes,
            parallel=chosen.parallel,
            recipe=chosen.recipe,
            footprint=chosen.footprint,
            notes=self.job.calibration.notes(chosen.footprint) if self.job.calibration else (),
        )

    def place_on_enough(self, gpu: Gpu, gpu_count: int) -> Placement | Impossible:
        """One machine if it holds the job; else as few as hold it, where such machines can be joined."""
        placed = self.place(gpu, gpu_count)
        nodes = 1
        joined = gpu.nvlink and gpu_count >= FABRIC_GPUS
        while joined and not holds(placed) and 2 * nodes * gpu_count <= self.job.limits.max_gpus:
            nodes *= 2
            wider = self.place(gpu, gpu_count, nodes)
            if holds(wider):
                return wider
        return placed

    def ways(self, gpu_count: int, nodes: int = 1, *, sharded: bool = False) -> tuple[Sized, ...] | Impossible:
        """Every split worth trying on so many GPUs, lightest first, sized; Impossible where there is none.

        `sharded`: without whole copies, where there is another way.
        """
        key = (gpu_count, nodes, sharded)
        if key not in self._sized:
            worth = splits(self.job, gpu_count, nodes)
            chosen = worth[1:] if sharded and len(worth) > 1 else worth
            tried = [_sized(self.job, parallel, gpu_count * nodes) for parallel in chosen]
            ways = tuple(t for t in tried if isinstance(t, Sized))
            self._sized[key] = ways or next(t for t in tried if isinstance(t, Impossible))
        return self._sized[key]


def holds(placed: Placement | Impossible) -> bool:
    """Whether the job could be placed, and fits."""
    return isinstance(placed, Placement) and placed.fits


def lightest_that_fits(ways: tuple[Sized, ...], gpu: Gpu) -> Sized | None:
    """The first of `ways` that each GPU holds; None where it holds none."""
    has = gpu.memory_gib * GIB
    return next((w for w in ways if w.footprint.reserved <= has), None)


def _sized(job: Job, parallel: Parallel, gpus: int) -> Sized | Impossible:
    accumulated = accumulation(job, parallel, gpus)
    if isinstance(accumulated, Impossible):
        return accumulated
    recipe = job.recipe
    if accumulated != recipe.gradient_accumulation:
        recipe = replace(recipe, gradient_accumulation=accumulated)
    try:
        return Sized(parallel=parallel, recipe=recipe, footprint=needed(job, recipe, parallel, gpus))
    except InputError as impossible:
        # A stated split that suits no number of GPUs was refused before (flows/quote.py, check_split); here it
        # is a fact about this number of GPUs.
        return Impossible(reason=impossible.what)


def needed(job: Job, recipe: Recipe, parallel: Parallel, gpus: int) -> Footprint:
    """The footprint, companions' beside it, shifted by what observed runs say."""
    if job.beside is None:
        computed = footprint(job.architecture, recipe, parallel, gpus=gpus)
    else:
        from costguard.sizing.memory.preference import footprint_together

        computed = footprint_together(job.architecture, recipe, job.beside, parallel, gpus=gpus)
    return job.calibration.memory(computed, job) if job.calibration else computed


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
    one_pass = job.example_sequences * job.recipe.micro_tokens * parallel.data_ranks(gpus)
    if one_pass > job.global_batch_tokens:
        return Impossible(
            reason=f"a pass over {gpus} GPUs is {one_pass:,} tokens, over global_batch_tokens = {job.global_batch_tokens:,}"
        )
    return -(-job.global_batch_tokens // one_pass)


def _served(gpu_count: int, nodes: int) -> list[tuple[int, int]]:
    """(pp, tp) for serving: whole copies first, then ever wider tensor parallelism inside a machine, then across."""
    inside = [(1, tp) for tp in range(1, gpu_count + 1) if gpu_count % tp == 0]
    return inside if nodes == 1 else [*inside, (nodes, gpu_count)]
